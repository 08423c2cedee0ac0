// Rows of a matrix that lies as whole columns on a rank, between the order of the matrix and the
// order of elimination, in which the rows that are left are always the last ones.
#pragma once

#include <algorithm>

#include "algo/elimination_rows.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

enum class RowOrder { natural, elimination };

// Rows of a (n x columns, ld n) put into the order `to`; they are in the other one. buffer holds
// `room` elements, n at least.
template <class Device, class T>
void reorder_rows(typename Device::Lane& lane, const Distribution& dist, RowOrder to, Size columns,
                  T* a, T* buffer, Size room) {
  const Size n = dist.size();
  if (dist.ranks() == 1 || n == 0) {
    return;
  }
  const EliminationRows rows(dist);
  const Size width = std::max<Size>(1, room / n);
  for (Size c = 0; c < columns; c += width) {
    const Size count = std::min(width, columns - c);
    T* const block = a + c * n;
    Device::template copy<T>(lane, n, count, block, n, buffer, n);
    for (int r = 0; r < dist.ranks(); ++r) {
      if (dist.local_size(r) == 0) {
        continue;
      }
      const Size first = *dist.global(r, LocalIndex(0));
      for (const LocalRun& run : rows.runs(r, 0)) {
        const Size natural = first + run.local;
        const bool forwards = to == RowOrder::elimination;
        Device::template copy_blocks<T>(
            lane, run.rows, count, run.count, buffer + (forwards ? natural : run.position), n,
            forwards ? run.rows : run.stride, block + (forwards ? run.position : natural), n,
            forwards ? run.stride : run.rows);
      }
    }
  }
}

}  // namespace jaxmg
