// Orthogonal factors of tall blocks, and the small operations that Householder QR is made of.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstddef>
#include <vector>

#include "tile/cpu/blas.h"
#include "tile/cpu/cpu.h"
#include "tile/cpu/cut.h"
#include "tile/cpu/pool.h"

namespace jaxmg::tile {
namespace {

// a (m x n) <- Q, r <- R, by the library in the calling thread.
template <class T>
void factor_block(Size m, Size n, T* a, Size lda, T* r, Size ldr) {
  std::vector<T> tau(static_cast<std::size_t>(n));
  blas::geqrf(m, n, a, lda, tau.data());
  for (Size j = 0; j < n; ++j) {
    std::copy_n(a + j * lda, j + 1, r + j * ldr);
    std::fill_n(r + j * ldr + j + 1, n - j - 1, T(0));
  }
  blas::orgqr(m, n, a, lda, tau.data());
}

// Rows of the pieces that a tall block is cut in: enough work for every thread, no piece wider than
// tall, and none so long that the library's offsets come near 32 bits.
Size piece_rows(Size m, Size n) {
  const Size threads = Pool::instance().threads();
  const Size wanted = std::max<Size>({4 * n, ceil_div(m, threads), 512});
  return std::max(n, std::min(wanted, kLongestBlock));
}

}  // namespace

// Tall blocks by pieces: a_i = Q_i R_i, all at once; [R_1; R_2; ...] = W R; Q = diag(Q_i) W.
template <class T>
void Cpu::orthonormalise(Lane& lane, Size m, Size n, T* a, Size lda, T* r, Size ldr) {
  if (n <= 0) {
    return;
  }
  const double size = static_cast<double>(n);
  const bool worth = worth_spreading(4 * static_cast<double>(m) * size * size);
  const Size rows = piece_rows(m, n);
  const Size count = m / rows;  // the last one takes the remainder
  if (count < 2) {
    for_each(lane.priority(), worth, 1, [&](Size) { factor_block(m, n, a, lda, r, ldr); });
    return;
  }
  const Size stacked = count * n;
  std::vector<T> stack(static_cast<std::size_t>(stacked * n));
  const auto length = [&](Size i) { return i + 1 < count ? rows : m - i * rows; };
  for_each(lane.priority(), worth, count, [&](Size i) {
    factor_block(length(i), n, a + i * rows, lda, stack.data() + i * n, stacked);
  });
  orthonormalise(lane, stacked, n, stack.data(), stacked, r, ldr);
  for_each(lane.priority(), worth, count, [&](Size i) {
    const Size m_i = length(i);
    std::vector<T> q(static_cast<std::size_t>(m_i * n));
    for (Size j = 0; j < n; ++j) {
      std::copy_n(a + i * rows + j * lda, m_i, q.data() + j * m_i);
    }
    blas::gemm(Op::none, Op::none, m_i, n, n, T(1), q.data(), m_i, stack.data() + i * n, stacked,
               T(0), a + i * rows, lda);
  });
}

template <class T>
void Cpu::signed_lu(Lane&, Size n, Size m, T* a, Size lda, Real<T>* signs) {
  for (Size j = 0; j < n; ++j) {
    T* const column = a + j * lda;
    signs[j] = std::real(column[j]) < 0 ? Real<T>(1) : Real<T>(-1);
    column[j] -= T(signs[j]);
    for (Size i = j + 1; i < n + m; ++i) {
      column[i] /= column[j];
    }
    for (Size k = j + 1; k < n; ++k) {
      const T x = a[j + k * lda];
      for (Size i = j + 1; i < n + m; ++i) {
        a[i + k * lda] -= column[i] * x;
      }
    }
  }
}

template <class T>
void Cpu::copy_triangle(Lane&, Uplo uplo, Diag diag, Size m, Size n, const T* src, Size lds, T* dst,
                        Size ldd) {
  const Size off = diag == Diag::unit ? 1 : 0;
  for (Size j = 0; j < n; ++j) {
    const Size first = uplo == Uplo::lower ? std::min(j + off, m) : 0;
    const Size last = uplo == Uplo::lower ? m : std::min(j + 1 - off, m);
    std::copy(src + j * lds + first, src + j * lds + last, dst + j * ldd + first);
  }
}

template <class T>
void Cpu::scale(Lane&, Size m, Size n, const Real<T>* rows, const Real<T>* columns, T* a,
                Size lda) {
  for (Size j = 0; j < n; ++j) {
    const Real<T> by = columns ? columns[j] : Real<T>(1);
    for (Size i = 0; i < m; ++i) {
      a[i + j * lda] *= rows ? by * rows[i] : by;
    }
  }
}

template <class T>
void Cpu::check_diagonal(Lane& lane, Size n, const T* a, Size lda, Size position, Info* info) {
  for (Size j = 0; j < n; ++j) {
    if (a[j + j * lda] == T(0)) {
      return set_if_ok(lane, Kind::singular, position + j + 1, info);
    }
  }
}

#define JAXMG_INSTANTIATE(T)                                                                    \
  template void Cpu::orthonormalise<T>(Lane&, Size, Size, T*, Size, T*, Size);                  \
  template void Cpu::signed_lu<T>(Lane&, Size, Size, T*, Size, Real<T>*);                       \
  template void Cpu::copy_triangle<T>(Lane&, Uplo, Diag, Size, Size, const T*, Size, T*, Size); \
  template void Cpu::scale<T>(Lane&, Size, Size, const Real<T>*, const Real<T>*, T*, Size);     \
  template void Cpu::check_diagonal<T>(Lane&, Size, const T*, Size, Size, Info*);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)

}  // namespace jaxmg::tile
