// The Cholesky factor of a diagonal tile, and what is done with it.
#include <algorithm>
#include <cmath>

#include "tile/cpu/blas.h"
#include "tile/cpu/cpu.h"
#include "tile/cpu/pool.h"

namespace jaxmg::tile {
namespace {

// Tiles up to here are one task: with several workers, so that the others have something to do;
// with one, so that the library's offsets stay far from 32 bits.
Size leaf() {
  return Pool::instance().threads() > 1 ? 512 : 4096;
}

template <class T>
double flops(double n, double k) {
  return n * n * k * (is_complex_v<T> ? 4 : 1);
}

// First failing minor of a tile that is one task, 0 if there is none. The library takes NaN for a
// good pivot, and so infinity: look at what it wrote.
template <class T>
Size factor_leaf(Size n, T* a, Size lda) {
  const Size failing = blas::potrf(n, a, lda);
  const Size done = failing > 0 ? failing - 1 : n;
  for (Size j = 0; j < done; ++j) {
    if (!std::isfinite(std::real(a[j + j * lda]))) {
      return j + 1;
    }
  }
  return failing;
}

//   [A11     ]      L11 = chol(A11),  L21 = A21 inv(L11)^H,
//   [A21  A22]      L22 = chol(A22 - L21 L21^H)
template <class T>
Size factor(CpuLane& lane, Size n, T* a, Size lda) {
  if (n <= leaf()) {
    Size failing = 0;
    const double size = static_cast<double>(n);
    for_each(lane.priority(), worth_spreading(flops<T>(size, size / 3)), 1,
             [&](Size) { failing = factor_leaf(n, a, lda); });
    return failing;
  }
  const Size h = round_up(n / 2, 64);
  T* a21 = a + h;
  T* a22 = a21 + h * lda;
  if (const Size failing = factor(lane, h, a, lda)) {
    return failing;
  }
  Cpu::trsm(lane, Side::right, Uplo::lower, Op::conj_transpose, Diag::non_unit, n - h, h, T(1), a,
            lda, a21, lda);
  Cpu::herk_strided(lane, n - h, h, a21, lda, 0, a22, lda, 0, 1);
  const Size failing = factor(lane, n - h, a22, lda);
  return failing > 0 ? h + failing : 0;
}

}  // namespace

template <class T>
void Cpu::potrf(Lane& lane, Size n, T* a, Size lda, Size position, Info* info) {
  if (n <= 0) {
    return;
  }
  const Size failing = factor(lane, n, a, lda);
  if (failing > 0) {
    set_if_ok(lane, Kind::not_positive_definite, position + failing, info);
  }
}

template <class T>
void Cpu::factor_panel(Lane& lane, Size first, Size last, Size n, Size m, T* a, Size lda,
                       Size position, Info* info) {
  const Size w = last - first;
  T* const block = a + first + first * lda;
  gemm(lane, Op::none, Op::conj_transpose, n + m - first, w, first, T(-1), a + first, lda,
       a + first, lda, T(1), block, lda);
  potrf(lane, w, block, lda, position + first, info);
  trsm(lane, Side::right, Uplo::lower, Op::conj_transpose, Diag::non_unit, n + m - last, w, T(1),
       block, lda, block + w, lda);
}

// Nothing: a triangular solve on CPU is as fast as a product with the inverse, and more accurate.
template <class T>
void Cpu::invert_lower(Lane&, Size, const T*, Size, T*, Size) {}

template <class T>
void Cpu::solve_diagonal(Lane& lane, Op op, Size m, Size n, const T* l, Size ldl, const T*, Size,
                         T* b, Size ldb, T*) {
  trsm(lane, Side::right, Uplo::lower, op, Diag::non_unit, m, n, T(1), l, ldl, b, ldb);
}

template <class T>
void Cpu::log_diagonal(Lane&, Size n, const T* l, Size ldl, Real<T>* result) {
  if (n <= 0) {
    return;
  }
  double sum = 0;
  for (Size i = 0; i < n; ++i) {
    sum += std::log(static_cast<double>(std::real(l[i + i * ldl])));
  }
  *result = static_cast<Real<T>>(static_cast<double>(*result) + 2 * sum);
}

#define JAXMG_INSTANTIATE(T)                                                                      \
  template void Cpu::potrf<T>(Lane&, Size, T*, Size, Size, Info*);                                \
  template void Cpu::invert_lower<T>(Lane&, Size, const T*, Size, T*, Size);                      \
  template void Cpu::factor_panel<T>(Lane&, Size, Size, Size, Size, T*, Size, Size, Info*);       \
  template void Cpu::solve_diagonal<T>(Lane&, Op, Size, Size, const T*, Size, const T*, Size, T*, \
                                       Size, T*);                                                 \
  template void Cpu::log_diagonal<T>(Lane&, Size, const T*, Size, Real<T>*);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)

}  // namespace jaxmg::tile
