// Operations that move memory: cut by columns when there is much to move.
#include <algorithm>

#include "tile/cpu/columns.h"
#include "tile/cpu/cpu.h"
#include "tile/cpu/element.h"

namespace jaxmg::tile {
namespace {

// The m x n corner at src to dst, by way of a square that the processor keeps: each side's memory
// is passed in whole cache lines, and distances between columns that are powers of two do no harm.
template <bool conj, Size square, class T>
void transpose_square(Size m, Size n, const T* src, Size lds, T* dst, Size ldd) {
  T kept[square * square];
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < m; ++i) {
      kept[i * square + j] = conj ? conjugate(src[i + j * lds]) : src[i + j * lds];
    }
  }
  for (Size i = 0; i < m; ++i) {
    std::copy_n(kept + i * square, n, dst + i * ldd);
  }
}

// Squares within blocks, whose pages the processor's address tables hold.
template <bool conj, class T>
void transpose_columns(Size m, Size n, const T* src, Size lds, T* dst, Size ldd) {
  constexpr Size square = sizeof(T) <= 4 ? 16 : 8;
  constexpr Size block = 64;
  for (Size j0 = 0; j0 < n; j0 += block) {
    const Size j1 = std::min(j0 + block, n);
    for (Size i0 = 0; i0 < m; i0 += block) {
      const Size i1 = std::min(i0 + block, m);
      for (Size j = j0; j < j1; j += square) {
        for (Size i = i0; i < i1; i += square) {
          const T* from = src + i + j * lds;
          T* to = dst + j + i * ldd;
          if (i + square <= i1 && j + square <= j1) {
            transpose_square<conj, square>(square, square, from, lds, to, ldd);
          } else {
            transpose_square<conj, square>(std::min(square, i1 - i), std::min(square, j1 - j), from,
                                           lds, to, ldd);
          }
        }
      }
    }
  }
}

}  // namespace

template <class T>
void Cpu::copy(Lane& lane, Size m, Size n, const T* src, Size lds, T* dst, Size ldd) {
  for_columns<T>(lane, m, n, [&](Size first, Size count) {
    if (lds == m && ldd == m) {
      std::copy_n(src + first * m, m * count, dst + first * m);
      return;
    }
    for (Size j = first; j < first + count; ++j) {
      std::copy_n(src + j * lds, m, dst + j * ldd);
    }
  });
}

template <class T>
void Cpu::copy_blocks(Lane& lane, Size m, Size n, Size count, const T* src, Size lds, Size src_step,
                      T* dst, Size ldd, Size dst_step) {
  for_columns<T>(lane, m, n * count, [&](Size first, Size columns) {
    for (Size j = first; j < first + columns; ++j) {
      const Size block = j / n, column = j % n;
      std::copy_n(src + block * src_step + column * lds, m, dst + block * dst_step + column * ldd);
    }
  });
}

template <class T>
void Cpu::transpose(Lane& lane, Size m, Size n, const T* src, Size lds, T* dst, Size ldd,
                    bool conj) {
  for_columns<T>(lane, m, n, [&](Size first, Size count) {
    if (conj) {
      transpose_columns<true>(m, count, src + first * lds, lds, dst + first, ldd);
    } else {
      transpose_columns<false>(m, count, src + first * lds, lds, dst + first, ldd);
    }
  });
}

template <class T>
void Cpu::transpose_blocks(Lane& lane, Size m, Size n, Size count, const T* src, Size lds,
                           Size src_step, T* dst, Size ldd, Size dst_step, bool conj) {
  for (Size i = 0; i < count; ++i) {
    transpose(lane, m, n, src + i * src_step, lds, dst + i * dst_step, ldd, conj);
  }
}

template <class T>
void Cpu::fill(Lane& lane, Size m, Size n, T off, T diag, T* a, Size lda) {
  for_columns<T>(lane, m, n, [&](Size first, Size count) {
    for (Size j = first; j < first + count; ++j) {
      std::fill_n(a + j * lda, m, off);
      if (j < m) {
        a[j + j * lda] = diag;
      }
    }
  });
}

template <class T>
void Cpu::fill_if_failed(Lane& lane, const Info* info, Size m, Size n, T value, T* a, Size lda) {
  if (info->kind != 0) {
    fill(lane, m, n, value, value, a, lda);
  }
}

template <class T>
void Cpu::add(Lane& lane, Size m, Size n, T alpha, const T* src, Size lds, T* dst, Size ldd) {
  for_columns<T>(lane, m, n, [&](Size first, Size count) {
    for (Size j = first; j < first + count; ++j) {
      const T* from = src + j * lds;
      T* to = dst + j * ldd;
      if (alpha == T(1)) {
        for (Size i = 0; i < m; ++i) {
          to[i] += from[i];
        }
      } else {
        for (Size i = 0; i < m; ++i) {
          to[i] += alpha * from[i];
        }
      }
    }
  });
}

#define JAXMG_INSTANTIATE(T)                                                                      \
  template void Cpu::copy<T>(Lane&, Size, Size, const T*, Size, T*, Size);                        \
  template void Cpu::copy_blocks<T>(Lane&, Size, Size, Size, const T*, Size, Size, T*, Size,      \
                                    Size);                                                        \
  template void Cpu::transpose<T>(Lane&, Size, Size, const T*, Size, T*, Size, bool);             \
  template void Cpu::transpose_blocks<T>(Lane&, Size, Size, Size, const T*, Size, Size, T*, Size, \
                                         Size, bool);                                             \
  template void Cpu::fill<T>(Lane&, Size, Size, T, T, T*, Size);                                  \
  template void Cpu::fill_if_failed<T>(Lane&, const Info*, Size, Size, T, T*, Size);              \
  template void Cpu::add<T>(Lane&, Size, Size, T, const T*, Size, T*, Size);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
template void Cpu::copy<std::int32_t>(Lane&, Size, Size, const std::int32_t*, Size, std::int32_t*,
                                      Size);

}  // namespace jaxmg::tile
