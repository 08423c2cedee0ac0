// Residuals of least squares and their products with the matrix, norms, other precisions.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tile/cpu/blas.h"
#include "tile/cpu/cpu.h"
#include "tile/cpu/cut.h"
#include "tile/cpu/element.h"
#include "tile/cpu/pool.h"
#include "tile/cpu/spread.h"

namespace jaxmg::tile {
namespace {

template <class T>
void conjugate(Size n, T* x) {
  if constexpr (is_complex_v<T>) {
    std::transform(x, x + n, x, [](T value) { return tile::conjugate(value); });
  }
}

// sum <- sum + A conj(d - A^T x) for some columns of A, which stay in the cache between the two
// products; residual holds as many elements as there are columns.
template <class T>
void add_gradient(Size n, Size columns, const T* a, Size lda, const T* x, const T* d, T* residual,
                  T* sum) {
  std::copy_n(d, columns, residual);
  const Cut rows(n, 1);
  for (Size i = 0; x && i < rows.count(); ++i) {
    const Size first = rows.begin(i);
    blas::gemv(Op::transpose, rows.length(i), columns, T(-1), a + first, lda, x + first, Size{1},
               T(1), residual, Size{1});
  }
  conjugate(columns, residual);
  for (Size i = 0; i < rows.count(); ++i) {
    const Size first = rows.begin(i);
    blas::gemv(Op::none, rows.length(i), columns, T(1), a + first, lda, residual, Size{1}, T(1),
               sum + first, Size{1});
  }
}

}  // namespace

template <class T>
void Cpu::gradient(Lane& lane, Size n, Size m, const T* a, Size lda, const T* x, const T* d, T* g,
                   T* /*work*/, Size /*count*/) {
  if (n <= 0) {
    return;
  }
  std::fill_n(g, n, T(0));
  if (m <= 0) {
    return;
  }
  constexpr Size kCached = 1 << 18;  // bytes
  const Size width = std::clamp<Size>(kCached / (n * static_cast<Size>(sizeof(T))), 4, m + 4);
  const double flops = (is_complex_v<T> ? 16.0 : 4.0) * static_cast<double>(m * n);
  const int threads = worth_spreading(flops) ? Pool::instance().threads() : 1;
  const Cut parts(m, pieces(flops, threads));
  // A sum and the residuals for each part.
  const Size room = n + width;
  std::vector<T> memory(static_cast<std::size_t>(parts.count() * room), T(0));
  for_each(lane.priority(), worth_spreading(flops), parts.count(), [&](Size part) {
    T* const sum = memory.data() + part * room;
    const Size end = parts.begin(part) + parts.length(part);
    for (Size j = parts.begin(part); j < end; j += width) {
      add_gradient(n, std::min(width, end - j), a + j * lda, lda, x, d + j, sum + n, sum);
    }
  });
  for (Size part = 0; part < parts.count(); ++part) {
    const T* const sum = memory.data() + part * room;
    std::transform(g, g + n, sum, g, [](T all, T one) { return all + conjugate(one); });
  }
}

template <class T>
void Cpu::row_norms(Lane& lane, Size m, Size n, const T* a, Size lda, Real<T>* result) {
  using R = Real<T>;
  spread(lane, 0, m, 8 * static_cast<double>(n), [&](Size i) {
    R largest = 0;
    bool finite = true;
    for (Size j = 0; j < n; ++j) {
      const R size =
          std::max(std::abs(std::real(a[i + j * lda])), std::abs(std::imag(a[i + j * lda])));
      finite = finite && std::isfinite(size);
      largest = std::max(largest, size);
    }
    if (!finite || largest == 0) {
      result[i] = finite ? R(0) : std::numeric_limits<R>::quiet_NaN();
      return;
    }
    R sum = 0;
    for (Size j = 0; j < n; ++j) {
      const R re = std::real(a[i + j * lda]) / largest, im = std::imag(a[i + j * lda]) / largest;
      sum += re * re + im * im;
    }
    result[i] = largest * std::sqrt(sum);
  });
}

template <class T, class U>
void Cpu::convert(Lane& lane, Size m, Size n, const T* src, Size lds, U* dst, Size ldd) {
  spread(lane, 0, n, 2 * static_cast<double>(m), [&](Size j) {
    std::transform(src + j * lds, src + j * lds + m, dst + j * ldd,
                   [](T x) { return static_cast<U>(x); });
  });
}

#define JAXMG_INSTANTIATE(T)                                                                    \
  template void Cpu::gradient<T>(Lane&, Size, Size, const T*, Size, const T*, const T*, T*, T*, \
                                 Size);                                                         \
  template void Cpu::row_norms<T>(Lane&, Size, Size, const T*, Size, Real<T>*);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)

template void Cpu::convert(Lane&, Size, Size, const float*, Size, double*, Size);
template void Cpu::convert(Lane&, Size, Size, const double*, Size, float*, Size);
template void Cpu::convert(Lane&, Size, Size, const std::complex<float>*, Size,
                           std::complex<double>*, Size);
template void Cpu::convert(Lane&, Size, Size, const std::complex<double>*, Size,
                           std::complex<float>*, Size);

}  // namespace jaxmg::tile
