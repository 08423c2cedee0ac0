// Independent pieces of equal work for the pool.
#pragma once

#include <algorithm>

#include "tile/cpu/lane.h"
#include "tile/cpu/pool.h"

namespace jaxmg::tile {

// body(i) for first <= i < first + count, in as many tasks as pay.
template <class Body>
void spread(CpuLane& lane, Size first, Size count, double flops_each, const Body& body) {
  const double flops = flops_each * static_cast<double>(count);
  const bool worth = worth_spreading(flops);
  const Size tasks =
      worth ? std::min<Size>(count, static_cast<Size>(flops / kLeastFlops)) : Size{1};
  const Size length = ceil_div(std::max<Size>(count, 1), std::clamp<Size>(tasks, 1, 64));
  for_each(lane.priority(), worth, ceil_div(count, length), [&](Size task) {
    const Size end = std::min(count, (task + 1) * length);
    for (Size i = task * length; i < end; ++i) {
      body(first + i);
    }
  });
}

}  // namespace jaxmg::tile
