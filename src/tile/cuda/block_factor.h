// The Cholesky factor of a 64 x 64 block and its inverse, by one thread block.
//
// Rows of an identity are appended to the block and go through the same operations:
//
//   ( A )        ( L    )
//   ( I )   ->   ( L^-T )      8 columns at a time
//
// A thread has one of the 128 rows. All of them factor the 8 x 8 triangle of a strip for
// themselves, which needs neither shuffles nor barriers, and solve their row by it; the columns
// that follow are then updated on tensor cores, by warps with 16 rows each in registers.
#pragma once

#include "tile/cuda/panel_block.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

inline constexpr int kStrip = 8;                        // columns
inline constexpr int kStripPitch = 2 * kBlockEdge + 4;  // keeps lanes that read together apart
// Doubles of shared memory: 64 columns of 128 rows, and a strip that is not solved yet.
inline constexpr int kBlockFactorRoom = (kBlockEdge + kStrip) * kStripPitch;

struct BlockOutcome {
  int failing;            // first failing minor, 64 if there is none; in threads 0 .. 127
  double factor_squares;  // sums of the squares of L and of its inverse; in all threads
  double inverse_squares;
};

// The lower triangle of a strip, which begins at row `first`, and one row of it.
__device__ inline void load_strip(const double* strip, int first, int row,
                                  double (&d)[kStrip][kStrip], double (&x)[kStrip]) {
#pragma unroll
  for (int c = 0; c < kStrip; ++c) {
    const double2* const column = reinterpret_cast<const double2*>(strip + c * kStripPitch + first);
#pragma unroll
    for (int r = c / 2; r < kStrip / 2; ++r) {
      const double2 two = column[r];
      d[2 * r][c] = two.x;
      d[2 * r + 1][c] = two.y;
    }
    x[c] = strip[c * kStripPitch + row];
  }
}

// What is left to do with column k when 1 / sqrt(d_kk) is known.
__device__ inline void eliminate_column(int k, double inverse, double (&d)[kStrip][kStrip],
                                        double (&x)[kStrip]) {
#pragma unroll
  for (int r = k + 1; r < kStrip; ++r) {
    d[r][k] *= inverse;
  }
  x[k] *= inverse;
#pragma unroll
  for (int c = k + 1; c < kStrip; ++c) {
#pragma unroll
    for (int r = c; r < kStrip; ++r) {
      d[r][c] = fma(-d[r][k], d[c][k], d[r][c]);
    }
    x[c] = fma(-x[k], d[c][k], x[c]);
  }
}

struct SolvedRow {
  double x[kStrip];
  int failing;
};

// For pivots of any kind; failing: the first failing minor, or what it is if there is none.
__device__ __noinline__ SolvedRow solve_unusual_strip(const double* strip, int first, int row,
                                                      int failing) {
  double d[kStrip][kStrip];
  SolvedRow out;
  load_strip(strip, first, row, d, out.x);
#pragma unroll
  for (int k = 0; k < kStrip; ++k) {
    const double pivot = d[k][k];
    if (failing == kBlockEdge && !(pivot > 0 && isfinite(pivot))) {
      failing = first + k;
    }
    eliminate_column(k, rsqrt(pivot), d, out.x);
  }
  out.failing = failing;
  return out;
}

// 1 / sqrt(p) to rounding for p between 2^-1000 and 2^1000, without a branch: the 20 bits of the
// special-function unit and one step of third order.
__device__ inline double reciprocal_root(double p) {
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(p));
  const double e = fma(-p * y, y, 1.0);
  return fma(fma(e, 0.375, 0.5), y * e, y);
}
__device__ inline bool is_usual(double p) {
  constexpr int least = (1023 - 1000) << 20;
  return static_cast<unsigned>(__double2hiint(p) - least) < 2000u << 20;
}

// Row `row` of a strip by its triangle. All columns in one run of instructions, since the chain of
// pivots leaves time for everything else. Returns false if a pivot was not usual.
__device__ inline bool solve_strip(const double* strip, int first, int row, double (&x)[kStrip]) {
  double d[kStrip][kStrip];
  load_strip(strip, first, row, d, x);
  bool usual = true;
#pragma unroll
  for (int k = 0; k < kStrip; ++k) {
    usual = usual && is_usual(d[k][k]);
    eliminate_column(k, reciprocal_root(d[k][k]), d, x);
  }
  return usual;
}

// L and its inverse, of which `size` rows and columns are real, to their places; the latter gets
// zeros in all others.
template <class R>
__device__ void store_factor(const double* columns, int size, R* l, Size ldl, R* inverse) {
  const int row = static_cast<int>(threadIdx.x) % kBlockEdge;
#pragma unroll 4
  for (int e = 0; e < kBlockEdge * kBlockEdge / kThreads; ++e) {
    const int column = static_cast<int>(threadIdx.x) / kBlockEdge + e * (kThreads / kBlockEdge);
    const bool real = column <= row && row < size;
    double x = 0;
    if (real) {
      l[row + column * ldl] = static_cast<R>(columns[row + column * kStripPitch]);
      x = columns[row * kStripPitch + kBlockEdge + column];
    }
    inverse[row + column * kBlockEdge] = static_cast<R>(x);
  }
}

// By 256 threads; columns: kBlockFactorRoom doubles, which begin with the block, column by column
// with pitch kStripPitch, visible to all. Beyond `size` rows it has to hold an identity.
// inverse (64 x 64) <- inv(L). Ends with a barrier.
template <class R>
__device__ BlockOutcome factor_with_inverse(double* columns, int size, R* l, Size ldl, R* inverse) {
  double* const strip = columns + kBlockEdge * kStripPitch;
  const int tid = static_cast<int>(threadIdx.x);
  const int g = tid % 32 / 4, t = tid % 4;
  const int top = tid / 32 * 16;
  double c[kBlockEdge / kStrip][4];
#pragma unroll
  for (int q = 0; q < kBlockEdge / kStrip; ++q) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int row = top + g + e / 2 * 8, column = kStrip * q + 2 * t + e % 2;
      c[q][e] = row < kBlockEdge             ? columns[column * kStripPitch + row]
                : row - kBlockEdge == column ? 1.0
                                             : 0.0;
    }
  }
  int failing = kBlockEdge;
  double squares = 0;
#pragma unroll 1
  for (int first = 0; first < kBlockEdge; first += kStrip) {
    double* const mine = strip + 2 * t * kStripPitch + top + g;
    mine[0] = c[0][0];
    mine[kStripPitch] = c[0][1];
    mine[8] = c[0][2];
    mine[kStripPitch + 8] = c[0][3];
    __syncthreads();
    double* const solved = columns + first * kStripPitch;
    if (tid < 2 * kBlockEdge) {
      double x[kStrip];
      if (!solve_strip(strip, first, tid, x)) {
        const SolvedRow again = solve_unusual_strip(strip, first, tid, failing);
        failing = again.failing;
#pragma unroll
        for (int k = 0; k < kStrip; ++k) {
          x[k] = again.x[k];
        }
      }
#pragma unroll
      for (int k = 0; k < kStrip; ++k) {
        solved[k * kStripPitch + tid] = x[k];
        squares = tid >= first + k ? fma(x[k], x[k], squares) : squares;
      }
    }
    __syncthreads();
    const double* const left = solved + t * kStripPitch + top + g;
    const double a0 = -left[0], a1 = -left[8];
    const double a2 = -left[4 * kStripPitch], a3 = -left[4 * kStripPitch + 8];
    // Column block q goes to the place of the one before it: the next strip is always the first.
#pragma unroll
    for (int q = 1; q < kBlockEdge / kStrip; ++q) {
      const double* const right = solved + t * kStripPitch + first + kStrip * q + g;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        c[q - 1][e] = c[q][e];
      }
      multiply_add(c[q - 1], a0, a1, a2, a3, right[0], right[4 * kStripPitch]);
    }
  }
  store_factor(columns, size, l, ldl, inverse);
  for (int mask = 16; mask > 0; mask /= 2) {
    squares += __shfl_xor_sync(~0u, squares, mask);
  }
  if (tid % 32 == 0) {
    strip[tid / 32] = squares;
  }
  __syncthreads();
  return {failing, strip[0] + strip[1], strip[2] + strip[3]};
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
