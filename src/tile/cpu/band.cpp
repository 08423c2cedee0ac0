// Operations of the reduction to band form: scaling, the QR of a panel, band storage.
#include <algorithm>
#include <cmath>
#include <complex>
#include <vector>

#include "tile/cpu/blas.h"
#include "tile/cpu/cpu.h"
#include "tile/cpu/element.h"
#include "tile/cpu/pool.h"

namespace jaxmg::tile {
namespace {

// body(j) for the n columns of an m x n matrix, in as many tasks as pay.
template <class T, class Body>
void each_column(CpuLane& lane, Size m, Size n, const Body& body) {
  const double bytes = static_cast<double>(m) * static_cast<double>(n) * sizeof(T);
  const bool worth = bytes >= 2 * kLeastBytes;
  const Size tasks = worth ? std::min(n, Size{4} * Pool::instance().threads()) : 1;
  const Size length = ceil_div(std::max<Size>(n, 1), tasks);
  for_each(lane.priority(), worth, ceil_div(n, length), [&](Size task) {
    for (Size j = task * length; j < std::min(n, (task + 1) * length); ++j) {
      body(j);
    }
  });
}

double magnitude(double x) {
  return std::fabs(x);
}
template <class R>
double magnitude(std::complex<R> x) {
  return std::max(std::fabs(static_cast<double>(x.real())),
                  std::fabs(static_cast<double>(x.imag())));
}

}  // namespace

template <class T>
void Cpu::max_abs(Lane& lane, Size m, Size n, const T* a, Size lda, Real<T>* result) {
  std::vector<double> largest(static_cast<std::size_t>(n));
  std::vector<char> bad(static_cast<std::size_t>(n));
  each_column<T>(lane, m, n, [&](Size j) {
    double most = 0;
    bool all_finite = true;
    for (Size i = 0; i < m; ++i) {
      const T x = a[i + j * lda];
      all_finite = all_finite && finite(x);
      most = std::max(most, magnitude(x));
    }
    largest[static_cast<std::size_t>(j)] = most;
    bad[static_cast<std::size_t>(j)] = all_finite ? 0 : 1;
  });
  for (std::size_t j = 0; j < largest.size(); ++j) {
    result[0] = std::max(result[0], static_cast<Real<T>>(largest[j]));
    result[1] = bad[j] ? Real<T>(1) : result[1];
  }
}

template <class T>
void Cpu::multiply(Lane& lane, Size m, Size n, Real<T> factor, T* a, Size lda) {
  each_column<T>(lane, m, n, [&](Size j) {
    for (Size i = 0; i < m; ++i) {
      a[i + j * lda] *= factor;
    }
  });
}

template <class T>
void Cpu::real_diagonal(Lane&, Size n, T* a, Size stride) {
  if constexpr (is_complex_v<T>) {
    for (Size i = 0; i < n; ++i) {
      a[i * stride] = T(a[i * stride].real());
    }
  }
}

template <class T>
void Cpu::mirror(Lane& lane, Size n, T* a, Size lda) {
  // Square blocks, so that the reads across columns stay in the cache.
  constexpr Size kEdge = 64;
  const double bytes = static_cast<double>(n) * static_cast<double>(n) * sizeof(T);
  for_each(lane.priority(), bytes >= 2 * kLeastBytes, ceil_div(n, kEdge), [&](Size block) {
    const Size begin = block * kEdge, end = std::min(n, begin + kEdge);
    for (Size first = 0; first < end; first += kEdge) {
      for (Size j = begin; j < end; ++j) {
        for (Size i = first; i < std::min(first + kEdge, j); ++i) {
          a[i + j * lda] = conjugate(a[j + i * lda]);
        }
      }
    }
  });
}

template <class T>
void Cpu::householder_panel(Lane& lane, Size m, Size w, T* a, Size lda, T* r, Size ldr, T* tau,
                            void*) {
  const Size k = std::min(m, w);
  if (k <= 0) {
    return;
  }
  const double work = 4.0 * static_cast<double>(m) * static_cast<double>(w * w);
  for_each(lane.priority(), worth_spreading(work), 1, [&](Size) {
    std::vector<T> room(static_cast<std::size_t>(k * w)), t(static_cast<std::size_t>(k * k));
    blas::geqrt(m, w, k, a, lda, t.data(), k, room.data());
    for (Size j = 0; j < w; ++j) {
      for (Size i = 0; i < k; ++i) {
        r[i + j * ldr] = i <= j ? a[i + j * lda] : T(0);
      }
    }
    for (Size j = 0; j < k; ++j) {
      std::fill_n(a + j * lda, j, T(0));
      a[j + j * lda] = T(1);
      tau[j] = t[static_cast<std::size_t>(j * (k + 1))];
    }
  });
}

// Column by column: T_j = -tau_j T (V^H v_j) above the diagonal.
template <class T>
void Cpu::reflector_factor(Lane&, Size k, const T* gram, Size ldg, const T* tau, T* t, Size ldt) {
  for (Size j = 0; j < k; ++j) {
    T* const column = t + j * ldt;
    std::fill_n(column, k, T(0));
    for (Size l = 0; l < j; ++l) {
      const T factor = -tau[j] * gram[l + j * ldg];
      for (Size i = 0; i <= l; ++i) {
        column[i] += t[i + l * ldt] * factor;
      }
    }
    column[j] = tau[j];
  }
}

template <class T>
void Cpu::reflector_diagonal(Lane&, Size k, const T* tau, T* u, Size ldu) {
  for (Size j = 0; j < k; ++j) {
    u[j * (ldu + 1)] = tau[j] == T(0) ? T(kNoReflector<Real<T>>) : T(1) / tau[j];
  }
}

template <class T>
void Cpu::store_band(Lane&, Size m, Size w, Size b, const T* block, Size ldb, T* band, Size ld) {
  for (Size j = 0; j < w; ++j) {
    if (j < m) {
      std::copy_n(block + j + j * ldb, std::min(b + 1, m - j), band + j * ld);
    }
  }
}

template <class T>
void Cpu::tridiagonal_part(Lane&, Size n, const T* band, Size ld, double* d, double* e) {
  for (Size j = 0; j < n; ++j) {
    d[j] = static_cast<double>(std::real(band[j * ld]));
    if (j + 1 < n) {
      e[j] = static_cast<double>(std::real(band[j * ld + 1]));
    }
  }
}

template <class T>
void Cpu::widen(Lane& lane, Size n, const Real<T>* src, T* dst) {
  constexpr Size kPiece = 1 << 16;
  each_column<T>(lane, std::min(n, kPiece), ceil_div(n, kPiece), [&](Size piece) {
    for (Size i = piece * kPiece; i < std::min(n, (piece + 1) * kPiece); ++i) {
      dst[i] = T(src[i]);
    }
  });
}

#define JAXMG_INSTANTIATE(T)                                                                 \
  template void Cpu::max_abs<T>(Lane&, Size, Size, const T*, Size, Real<T>*);                \
  template void Cpu::multiply<T>(Lane&, Size, Size, Real<T>, T*, Size);                      \
  template void Cpu::real_diagonal<T>(Lane&, Size, T*, Size);                                \
  template void Cpu::mirror<T>(Lane&, Size, T*, Size);                                       \
  template void Cpu::householder_panel<T>(Lane&, Size, Size, T*, Size, T*, Size, T*, void*); \
  template void Cpu::reflector_factor<T>(Lane&, Size, const T*, Size, const T*, T*, Size);   \
  template void Cpu::reflector_diagonal<T>(Lane&, Size, const T*, T*, Size);                 \
  template void Cpu::store_band<T>(Lane&, Size, Size, Size, const T*, Size, T*, Size);       \
  template void Cpu::tridiagonal_part<T>(Lane&, Size, const T*, Size, double*, double*);     \
  template void Cpu::widen<T>(Lane&, Size, const Real<T>*, T*);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)

}  // namespace jaxmg::tile
