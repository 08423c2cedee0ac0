// A block of reflectors of bulge chasing applied to a window of registers, tile by tile.
#pragma once

#include <cstdint>

#include "tile/cuda/sweep_blocks.h"
#include "tile/cuda/tensor_core.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// The numbers of an accumulator in the order of an operand a, which is another one; for complex
// numbers also in that in which they meet the imaginary parts of a tile. `none` is 0, which the
// compiler does not know: copies that it saw through it would make again for each product.
template <bool Complex>
struct TileOperand {
  double a[4];
  double turned[4];

  __device__ TileOperand(const double (&c)[4], std::uint64_t none) {
    a[0] = changed(c[0], none);
    a[1] = changed(c[2], none);
    a[2] = changed(c[1], none);
    a[3] = changed(c[3], none);
    if constexpr (Complex) {
      const std::uint64_t sign = none ^ (std::uint64_t{1} << 63);
      turned[0] = changed(c[2], none);
      turned[1] = changed(c[0], sign);
      turned[2] = changed(c[3], none);
      turned[3] = changed(c[1], sign);
    }
  }

  // c += this times the tile at p, or its real parts; then what its imaginary parts add.
  __device__ void multiply(double (&c)[4], const double* p) const { product(c, a, p); }
  __device__ void multiply_rest(double (&c)[4], const double* p) const {
    if constexpr (Complex) {
      product(c, turned, p + 64);
    }
  }

 private:
  __device__ static double changed(double x, std::uint64_t mask) {
    return __longlong_as_double(
        static_cast<long long>(static_cast<std::uint64_t>(__double_as_longlong(x)) ^ mask));
  }
  __device__ static void product(double (&c)[4], const double (&x)[4], const double* p) {
    const double2 b = reinterpret_cast<const double2*>(p)[threadIdx.x % 32];
    multiply_add(c, x[0], x[1], x[2], x[3], b.x, b.y);
  }
};

// One block on the tiles of the window from Base on, cyclically.
//
//   W <- V^H X,   X <- X - (V T) W
//
// Column c of W is complete after tile c + Q of X, and from then on is used.
template <int Q, bool Complex, int Base>
__device__ void apply_block(double (&window)[2 * Q][4], const double* p, std::uint64_t none) {
  using Block = SweepBlock<Q, Complex>;
  constexpr int columns = Block::kColumns;
  const auto tile = [p](int number) { return p + number * Block::kTile; };
  double w[columns][4];
#pragma unroll
  for (int c = 0; c < columns; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      w[c][e] = 0;
    }
  }
#pragma unroll
  for (int r = 0; r < Q + columns; ++r) {
    const TileOperand<Complex> x(window[(r + Base) % (2 * Q)], none);
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      if (c <= r && r <= c + Q) {
        x.multiply(w[c], tile(Block::reflector(r, c)));
      }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      if (c <= r && r <= c + Q) {
        x.multiply_rest(w[c], tile(Block::reflector(r, c)));
      }
    }
    if (r >= Q) {
      const TileOperand<Complex> y(w[r - Q], none);
#pragma unroll
      for (int i = 0; i <= r; ++i) {
        y.multiply(window[(i + Base) % (2 * Q)], tile(Block::factor(i, r - Q)));
      }
#pragma unroll
      for (int i = 0; i <= r; ++i) {
        y.multiply_rest(window[(i + Base) % (2 * Q)], tile(Block::factor(i, r - Q)));
      }
    }
  }
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
