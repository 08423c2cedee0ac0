// A matrix scaled by a power of two to a largest element of about 1, so that neither squares nor
// products of its elements overflow or vanish.
#pragma once

#include <cmath>
#include <optional>

#include "algo/rank.h"
#include "core/distribution.h"

namespace jaxmg {

// a <- 2^-e a, exactly, with its largest |Re| or |Im| in [1, 2); returns e. Nothing, on all ranks
// and with *info set, if the matrix is not finite.
template <class Device, class T>
std::optional<int> scale_to_unit(Rank<Device>& rank, const Distribution& dist, T* a, Info* info) {
  using R = Real<T>;
  auto& lane = rank.lanes.update;
  const Size n = dist.size();
  const Size own = dist.local_size(rank.comm.rank());
  R* const result = rank.workspace.template get<R>(Buffer::probe_result);
  Device::template fill<R>(lane, 2, 1, R(0), R(0), result, 2);
  Device::template max_abs<T>(lane, n, own, a, n, result);
  auto joined = rank.comm.all_reduce(lane, result, 2, dtype_of<R>, Reduction::max);
  lane.wait(joined);
  double found[2];
  Device::template to_host<R>(lane, 2, result, found);
  if (found[1] != 0) {
    Device::set_if_ok(lane, Kind::non_finite, 0, info);
    return std::nullopt;
  }
  const int exponent = found[0] > 0 ? std::ilogb(found[0]) : 0;
  // In two halves, since 2^-exponent itself may not be a number of the type.
  const int half = exponent / 2;
  for (const int part : {half, exponent - half}) {
    if (part != 0) {
      Device::template multiply<T>(lane, n, own, std::ldexp(R(1), -part), a, n);
    }
  }
  return exponent;
}

}  // namespace jaxmg
