// A block of reflectors of bulge chasing applied to a window of registers, tile by tile.
#pragma once

#include "tile/cuda/sweep_blocks.h"
#include "tile/cuda/tensor_core.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// c += a times the tile at p; a and c as accumulators have them.
template <bool Complex>
__device__ void multiply_tile(double (&c)[4], const double (&a)[4], const double* p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const double2 b = reinterpret_cast<const double2*>(p)[lane];
  multiply_add(c, a[0], a[2], a[1], a[3], b.x, b.y);
  if constexpr (Complex) {
    const double2 d = reinterpret_cast<const double2*>(p + 64)[lane];
    multiply_add(c, a[2], -a[0], a[3], -a[1], d.x, d.y);
  }
}

// One block on the tiles of the window from Base on, cyclically.
template <int Q, bool Complex, int Base>
__device__ void apply_block(double (&window)[2 * Q][4], const double* p) {
  using Block = SweepBlock<Q, Complex>;
  constexpr int columns = Block::kColumns;
  double w[columns][4], x[columns][4];
#pragma unroll
  for (int c = 0; c < columns; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      w[c][e] = 0;
      x[c][e] = 0;
    }
  }
#pragma unroll
  for (int r = 0; r < Q + columns; ++r) {
    const double(&e)[4] = window[(r + Base) % (2 * Q)];
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      if (c <= r && r <= c + Q) {
        multiply_tile<Complex>(w[c], e, p + (c * Block::kTall + r - c) * Block::kTile);
      }
    }
    // Column r - Q of the first product is complete.
    if (r >= Q) {
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        if (c <= r - Q) {
          multiply_tile<Complex>(x[c], w[r - Q], p + Block::factor(c, r - Q) * Block::kTile);
        }
      }
    }
  }
#pragma unroll
  for (int c = 0; c < columns; ++c) {
#pragma unroll
    for (int r = c; r <= c + Q; ++r) {
      multiply_tile<Complex>(window[(r + Base) % (2 * Q)], x[c],
                             p + (Block::kV + Block::kT + c * Block::kTall + r - c) * Block::kTile);
    }
  }
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
