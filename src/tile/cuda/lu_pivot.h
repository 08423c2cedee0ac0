// The search for a pivot among the rows of a panel, and what follows from its choice.
#pragma once

#include "tile/cuda/mailbox.h"
#include "tile/cuda/scalar.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

inline constexpr Word kNoRow = ~0u;

// How large a candidate is, as two words that are ordered as the sizes are, NaN last; no candidate
// comes before all.
struct Weight {
  Word high = 0;
  Word low = 0;
};
__device__ inline Weight weight_of(float x) {
  return {(__float_as_uint(x) & 0x7fffffffu) + 1, 0};
}
__device__ inline Weight weight_of(double x) {
  return {(static_cast<Word>(__double2hiint(x)) & 0x7fffffffu) + 1,
          static_cast<Word>(__double2loint(x))};
}
template <class R>
__device__ Weight weight_of(DeviceComplex<R> x) {  // LAPACK's measure
  return weight_of(fabs(x.re) + fabs(x.im));
}
template <class D>
inline constexpr bool kTwoWords = sizeof(decltype(real_part(D{}))) == 8;

__device__ inline bool exceeds(Weight a, Weight b) {
  return a.high > b.high || (a.high == b.high && a.low > b.low);
}

struct Candidate {
  Weight weight;
  Word place = kNoRow;
};
// The larger one, or the first of equal ones, as LAPACK chooses.
__device__ inline bool comes_before(const Candidate& a, const Candidate& b) {
  return exceeds(a.weight, b.weight) || (!exceeds(b.weight, a.weight) && a.place < b.place);
}

// The best candidate of a warp's lanes, the lowest place among equal ones.
template <bool kTwo>
__device__ Candidate best_of_warp(Candidate c) {
  const Word high = __reduce_max_sync(~0u, c.weight.high);
  bool best = c.weight.high == high;
  Word low = 0;
  if constexpr (kTwo) {
    low = __reduce_max_sync(~0u, best ? c.weight.low : 0);
    best = best && c.weight.low == low;
  }
  const Word place = __reduce_min_sync(~0u, best ? c.place : kNoRow);
  return {{high, low}, place};
}

// What divides a column: x / pivot = (x scale) inverse. Only pivots whose reciprocals might
// overflow are scaled; a zero divides nothing.
template <class D>
struct Divisor {
  decltype(real_part(D{})) scale;
  D inverse;
};
template <class R>
inline constexpr R kSmallPivot = sizeof(R) == 4 ? R(1e-37) : R(1e-306);
template <class R>
inline constexpr R kSmallScale = sizeof(R) == 4 ? R(0x1p100) : R(0x1p1000);

template <class R>
__device__ Divisor<R> divisor_of(R x) {
  const R scale = fabs(x) < kSmallPivot<R> ? kSmallScale<R> : R{1};
  return {scale, x == R{0} ? R{0} : R{1} / (x * scale)};
}
// 1 / (p + i q) = (1 - i t) / (p + q t) with t = q / p, |q| <= |p|
template <class R>
__device__ Divisor<DeviceComplex<R>> divisor_of(DeviceComplex<R> x) {
  const R larger = fmax(fabs(x.re), fabs(x.im));
  const R scale = larger < kSmallPivot<R> ? kSmallScale<R> : R{1};
  const R re = x.re * scale, im = x.im * scale;
  if (re == R{0} && im == R{0}) {
    return {scale, {R{0}, R{0}}};
  }
  if (fabs(re) >= fabs(im)) {
    const R t = im / re;
    const R d = R{1} / (re + im * t);
    return {scale, {d, -t * d}};
  }
  const R t = re / im;
  const R d = R{1} / (im + re * t);
  return {scale, {t * d, -d}};
}

// The next column; what the compiler knows of its address would be kept in registers otherwise.
template <class P>
__device__ void next_column(P*& p, Size lda) {
  p += lda;
  asm volatile("" : "+l"(p));
}

// Row j of the inverse of a unit lower triangle, a lane a column: x_j = e_j - sum_k<j l_jk x_k.
template <class D, int kWidth>
__device__ D inverse_row(int j, const D (&l)[kWidth][kWidth + 1], D (&x)[kWidth][kWidth + 1]) {
  using R = decltype(real_part(D{}));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  D sum = element<D>(R{0});
  if (lane < kWidth) {
    sum = element<D>(lane == j ? R{1} : R{0});
    D other = element<D>(R{0});
#pragma unroll 4
    for (int k = 0; k + 1 < j; k += 2) {
      sum = minus_product(sum, l[j][k], x[k][lane]);
      other = minus_product(other, l[j][k + 1], x[k + 1][lane]);
    }
    if (j % 2 != 0) {
      sum = minus_product(sum, l[j][j - 1], x[j - 1][lane]);
    }
    sum = j < lane ? element<D>(R{0}) : sum + other;
    x[j][lane] = sum;
  }
  __syncwarp();
  return sum;
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
