// Work on the columns of a matrix, cut in tasks when there is much of it.
#pragma once

#include <algorithm>

#include "tile/cpu/lane.h"
#include "tile/cpu/pool.h"

namespace jaxmg::tile {

// columns(first, count) on blocks that cover the n columns of an m x n matrix.
template <class T, class Columns>
void for_columns(CpuLane& lane, Size m, Size n, const Columns& columns) {
  if (m <= 0 || n <= 0) {
    return;
  }
  const double bytes = static_cast<double>(m) * static_cast<double>(n) * sizeof(T);
  const bool worth = bytes >= 2 * kLeastBytes;
  if (!worth) {
    return columns(Size{0}, n);
  }
  const double pieces = std::min(bytes / kLeastBytes, 2.0 * Pool::instance().threads());
  const Size width = ceil_div(n, static_cast<Size>(pieces));
  for_each(lane.priority(), worth, ceil_div(n, width),
           [&](Size i) { columns(i * width, std::min(width, n - i * width)); });
}

}  // namespace jaxmg::tile
