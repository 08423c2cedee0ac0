// Sums over the lanes of a warp of several numbers at once: half of the numbers change places with
// the other half of the lanes at each turn, so that C sums take C + log2(32 / C) exchanges.
#pragma once

#include "tile/cuda/shuffle.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// r[0] <- the sum over all lanes of number summed_column<C>(lane).
template <int C, int Half, int Mask, class D>
__device__ void sum_columns_step(D (&r)[C], int lane) {
  if constexpr (Half >= 1) {
    const bool upper = (lane & Mask) != 0;
#pragma unroll
    for (int c = 0; c < Half; ++c) {
      const D given = upper ? r[c] : r[c + Half];
      const D kept = upper ? r[c + Half] : r[c];
      r[c] = kept + exchange(given, Mask);
    }
    sum_columns_step<C, Half / 2, Mask / 2>(r, lane);
  } else if constexpr (Mask >= 1) {
    r[0] = r[0] + exchange(r[0], Mask);
    sum_columns_step<C, 0, Mask / 2>(r, lane);
  }
}
template <int C, class D>
__device__ D sum_columns(D (&r)[C], int lane) {
  sum_columns_step<C, C / 2, 16>(r, lane);
  return r[0];
}
template <int C>
__device__ int summed_column(int lane) {
  int column = 0, mask = 16;
  for (int half = C / 2; half >= 1; half /= 2, mask /= 2) {
    column += (lane & mask) != 0 ? half : 0;
  }
  return column;
}
// One lane of those that have the same sum.
template <int C>
__device__ bool keeps_sum(int lane) {
  return lane % (32 / C) == 0;
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
