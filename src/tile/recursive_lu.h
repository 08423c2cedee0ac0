// LU factors of a tall panel by halves of its columns, down to a width that the device factors as
// one: nearly all operations are products.
//
//   [A1  A2]    P1 A1 = L1 U1                    the left half, m x h
//               P1 A2 = [U12; A22']  with  U12 = inv(L11) A12,  A22 = A22' - L21 U12
//               P2 A22 = L2 U2                   the right half, and P2 for the rows of L1 too
#pragma once

#include <cstdint>

#include "core/types.h"
#include "tile/device.h"

namespace jaxmg::tile {

// leaf(m, n, a, first, pivots) factors panels of at most `width` columns. moves: room for n
// interchanges.
template <class Device, class T, class Leaf>
void recursive_lu(typename Device::Lane& lane, Size m, Size n, T* a, Size lda, Size first,
                  std::int32_t* pivots, RowMoves moves, Size width, const Leaf& leaf) {
  if (n <= width) {
    return leaf(m, n, a, first, pivots);
  }
  const Size h = round_up(n / 2, width);
  T* const right = a + h * lda;
  recursive_lu<Device>(lane, m, h, a, lda, first, pivots, moves, width, leaf);
  Device::trace_pivots(lane, h, pivots, first, moves);
  Device::template move_rows<T>(lane, h, moves, n - h, right, lda, nullptr, 0);
  Device::template trsm<T>(lane, Side::left, Uplo::lower, Op::none, Diag::unit, h, n - h, T(1), a,
                           lda, right, lda);
  Device::template gemm<T>(lane, Op::none, Op::none, m - h, n - h, h, T(-1), a + h, lda, right, lda,
                           T(1), right + h, lda);
  recursive_lu<Device>(lane, m - h, n - h, right + h, lda, first + h, pivots + h, moves, width,
                       leaf);
  Device::trace_pivots(lane, n - h, pivots + h, first + h, moves);
  Device::template move_rows<T>(lane, n - h, moves, h, a + h, lda, nullptr, 0);
}

}  // namespace jaxmg::tile
