// Cholesky factors of triangles of 32 x 32 by a warp, in registers.
#pragma once

#include "tile/cuda/scalar.h"
#include "tile/cuda/shuffle.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

inline constexpr int kWarp = 32;

// x - a conj(b)
template <class R>
__device__ R minus_product_conjugate(R x, R a, R b) {
  return fma(-a, b, x);
}
template <class R>
__device__ DeviceComplex<R> minus_product_conjugate(DeviceComplex<R> x, DeviceComplex<R> a,
                                                    DeviceComplex<R> b) {
  return {fma(-a.im, b.im, fma(-a.re, b.re, x.re)), fma(a.re, b.im, fma(-a.im, b.re, x.im))};
}

// The factor of a 32 x 32 triangle by one warp, lane i holding row i. Returns the first failing
// minor, 32 if there is none.
template <class D>
__device__ int factor_warp(D (&row)[kWarp], int lane) {
  using R = decltype(real_part(D{}));
  int failing = kWarp;
#pragma unroll
  for (int k = 0; k < kWarp; ++k) {
    const R pivot = from_lane(real_part(row[k]), k);
    if (failing == kWarp && !(pivot > R{0} && isfinite(pivot))) {
      failing = k;
    }
    const R inverse = rsqrt(pivot);
    row[k] = lane == k ? element<D>(pivot * inverse) : times(row[k], inverse);
#pragma unroll
    for (int j = k + 1; j < kWarp; ++j) {
      row[j] = minus_product_conjugate(row[j], row[k], from_lane(row[k], j));
    }
  }
  return failing;
}

// 1 / x and 1 / sqrt(x) for x in the usual range, to the last bits, without a branch: between
// branches instructions of one column cannot go on beside those of the next.
__device__ inline float fast_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline double fast_reciprocal(double x) {
  double y;
  asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  const double e = fma(-x, y, 1.0);
  return fma(y, fma(e, e, e), y);
}
__device__ inline float fast_rsqrt(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ inline double fast_rsqrt(double x) {
  double y;
  asm("rsqrt.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
  const double e = fma(-x * y, y, 1.0);
  return fma(y * e, fma(0.375, e, 0.5), y);
}
template <class R>
__device__ bool is_usual(R x) {
  constexpr R bound = sizeof(R) > 4 ? R(0x1p1000) : R(0x1p100f);
  return x > R{1} / bound && x < bound;
}

// The same as factor_warp if all pivots are positive and of usual size; else false, and the rows
// have lost their meaning. The chain of a column is a reciprocal and two products: its root is
// taken beside that of the next.
template <class D>
__device__ bool factor_usual(D (&row)[kWarp], int lane) {
  using R = decltype(real_part(D{}));
  bool usual = true;
#pragma unroll
  for (int k = 0; k < kWarp; ++k) {
    const R pivot = from_lane(real_part(row[k]), k);
    usual = usual && is_usual(pivot);
    const D scaled = times(row[k], fast_reciprocal(pivot));
#pragma unroll
    for (int j = k + 1; j < kWarp; ++j) {
      row[j] = minus_product_conjugate(row[j], scaled, from_lane(row[k], j));
    }
    const R inverse = fast_rsqrt(pivot);
    row[k] = lane == k ? element<D>(pivot * inverse) : times(row[k], inverse);
  }
  return usual;
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
