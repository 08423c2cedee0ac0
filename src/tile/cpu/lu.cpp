// LU factors of a panel, and the triangles and pivots that they consist of.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "tile/cpu/blas.h"
#include "tile/cpu/columns.h"
#include "tile/cpu/cpu.h"
#include "tile/recursive_lu.h"

namespace jaxmg::tile {
namespace {

// Panels up to here are one task: narrow when there are other workers to give products to.
Size leaf_width() {
  return Pool::instance().threads() > 1 ? 64 : 512;
}

// The library's row numbers count from 1. Comparisons with NaN may lead it anywhere.
template <class T>
void factor_leaf(Size m, Size n, T* a, Size lda, Size first, std::int32_t* pivots) {
  std::vector<int> found(static_cast<std::size_t>(n));
  blas::getrf(m, n, a, lda, found.data());
  for (Size j = 0; j < n; ++j) {
    const Size row = std::clamp<Size>(found[static_cast<std::size_t>(j)] - 1, j, m - 1);
    pivots[j] = narrow(first + row);
  }
}

template <class T>
double panel_flops(Size m, Size n) {
  return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(n) *
         (is_complex_v<T> ? 4 : 1);
}

// Real operations with a finite result, NaN otherwise.
template <class R>
R nothing_if_finite(R x) {
  return x * R(0);
}
template <class R>
R nothing_if_finite(std::complex<R> x) {
  return x.real() * R(0) + x.imag() * R(0);
}

}  // namespace

template <class T>
void Cpu::getrf(Lane& lane, Size m, Size n, T* a, Size lda, Size first, std::int32_t* pivots, T*,
                Size, Size position, Size equation, Info* info) {
  if (n <= 0) {
    return;
  }
  std::vector<std::int32_t> rows(static_cast<std::size_t>(4 * n));
  const RowMoves moves{rows.data(), rows.data() + 2 * n};
  recursive_lu<Cpu>(lane, m, n, a, lda, first, pivots, moves, leaf_width(),
                    [&](Size rows_, Size columns, T* panel, Size from, std::int32_t* found) {
                      for_each(lane.priority(), worth_spreading(panel_flops<T>(rows_, columns)), 1,
                               [&](Size) { factor_leaf(rows_, columns, panel, lda, from, found); });
                    });
  for (Size j = 0; j < n && info->kind == 0; ++j) {
    if (a[j + j * lda] == T(0)) {
      set_if_ok(lane, Kind::singular, position + j + 1, info);
      info->spare[1] = narrow(equation + j + 1);
    }
  }
}

void Cpu::trace_pivots(Lane&, Size n, const std::int32_t* pivots, Size first, RowMoves moves) {
  // Rows that are touched: 0 .. n-1, and the pivots beyond them in ascending order.
  std::vector<std::int32_t> beyond;
  for (Size j = 0; j < n; ++j) {
    if (pivots[j] - first >= n) {
      beyond.push_back(narrow(pivots[j] - first));
    }
  }
  std::ranges::sort(beyond);
  beyond.erase(std::ranges::unique(beyond).begin(), beyond.end());
  const Size used = n + std::ssize(beyond);
  for (Size i = 0; i < 2 * n; ++i) {
    const std::int32_t row = i < n      ? narrow(i)
                             : i < used ? beyond[static_cast<std::size_t>(i - n)]
                                        : -1;
    moves.to[i] = moves.from[i] = row;
  }
  for (Size j = 0; j < n; ++j) {
    const Size row = pivots[j] - first;
    const Size place =
        row < n ? row : n + (std::ranges::lower_bound(beyond, narrow(row)) - beyond.begin());
    std::swap(moves.from[j], moves.from[place]);
  }
}

template <class T>
void Cpu::move_rows(Lane& lane, Size n, RowMoves moves, Size columns, T* a, Size lda, T* top,
                    Size ldt) {
  for_columns<T>(lane, 2 * n, columns, [&](Size begin, Size count) {
    std::vector<T> kept(static_cast<std::size_t>(2 * n));
    for (Size j = begin; j < begin + count; ++j) {
      T* const column = a + j * lda;
      for (Size i = 0; i < 2 * n && moves.from[i] >= 0; ++i) {
        kept[static_cast<std::size_t>(i)] = column[moves.from[i]];
      }
      for (Size i = 0; i < 2 * n && moves.from[i] >= 0; ++i) {
        (top && i < n ? top[i + j * ldt] : column[moves.to[i]]) = kept[static_cast<std::size_t>(i)];
      }
    }
  });
}

template <class T>
void Cpu::put_rows(Lane& lane, Size m, Size n, const std::int32_t* index, Size first, const T* src,
                   Size lds, T* dst, Size ldd) {
  for_columns<T>(lane, m, n, [&](Size begin, Size count) {
    for (Size j = begin; j < begin + count; ++j) {
      for (Size i = 0; i < m; ++i) {
        dst[index[i] - first + j * ldd] = src[i + j * lds];
      }
    }
  });
}

template <class T>
void Cpu::put_columns(Lane& lane, Size m, Size n, const std::int32_t* index, Size first, Size count,
                      const T* src, Size lds, T* dst, Size ldd) {
  for_columns<T>(lane, m, n, [&](Size begin, Size columns) {
    for (Size j = begin; j < begin + columns; ++j) {
      const Size to = index[j] - first;
      if (0 <= to && to < count) {
        std::copy_n(src + j * lds, m, dst + to * ldd);
      }
    }
  });
}

template <class T>
void Cpu::take_columns(Lane& lane, Size m, Size n, const std::int32_t* index, Size first,
                       Size count, const T* src, Size lds, T* dst, Size ldd) {
  for_columns<T>(lane, m, n, [&](Size begin, Size columns) {
    for (Size j = begin; j < begin + columns; ++j) {
      const Size from = index[j] - first;
      if (0 <= from && from < count) {
        std::copy_n(src + from * lds, m, dst + j * ldd);
      } else {
        std::fill_n(dst + j * ldd, m, T(0));
      }
    }
  });
}

void Cpu::iota(Lane&, Size n, std::int32_t* index) {
  for (Size i = 0; i < n; ++i) {
    index[i] = narrow(i);
  }
}

// Nothing: a triangular solve on CPU is as fast as a product with the inverse, and more accurate.
template <class T>
void Cpu::invert_triangle(Lane&, Uplo, Diag, Size, const T*, Size, T*, Size) {}

template <class T>
void Cpu::solve_triangle(Lane& lane, Uplo uplo, Op op, Diag diag, Size m, Size n, const T* a,
                         Size lda, const T*, Size, T* b, Size ldb, T*) {
  trsm(lane, Side::right, uplo, op, diag, m, n, T(1), a, lda, b, ldb);
}

template <class T>
void Cpu::log_phase(Lane&, Size n, const T* x, Size stride, Real<T>* log, T* phase) {
  double sum = static_cast<double>(*log);
  for (Size i = 0; i < n; ++i) {
    const T value = x[i * stride];
    const Real<T> size = std::abs(value);
    sum += std::log(static_cast<double>(size));
    *phase *= value == T(0) ? T(0) : value / size;
  }
  *log = static_cast<Real<T>>(sum);
}

template <class T>
void Cpu::pivot_sign(Lane&, Size n, const std::int32_t* pivots, T* phase) {
  for (Size i = 0; i < n; ++i) {
    if (pivots[i] != i) {
      *phase = -*phase;
    }
  }
}

template <class T>
void Cpu::check_finite(Lane& lane, Size m, Size n, const T* a, Size lda, Info* info) {
  std::atomic<bool> finite{true};
  for_columns<T>(lane, m, n, [&](Size begin, Size count) {
    for (Size j = begin; j < begin + count; ++j) {
      Real<T> sum(0);
      for (Size i = 0; i < m; ++i) {
        sum += nothing_if_finite(a[i + j * lda]);
      }
      if (sum != Real<T>(0)) {
        finite = false;
      }
    }
  });
  if (!finite) {
    set_if_ok(lane, Kind::non_finite, 0, info);
  }
}

void Cpu::name_equation(Lane&, Info* info) {
  if (info->kind == static_cast<std::int32_t>(Kind::singular)) {
    info->position = info->spare[1];
  }
  info->spare[1] = 0;
}

template <class T>
void Cpu::fill_if_kind(Lane& lane, const Info* info, Kind kind, Size m, Size n, T value, T* a,
                       Size lda) {
  if (info->kind == static_cast<std::int32_t>(kind)) {
    fill(lane, m, n, value, value, a, lda);
  }
}

#define JAXMG_INSTANTIATE(T)                                                                       \
  template void Cpu::getrf<T>(Lane&, Size, Size, T*, Size, Size, std::int32_t*, T*, Size, Size,    \
                              Size, Info*);                                                        \
  template void Cpu::move_rows<T>(Lane&, Size, RowMoves, Size, T*, Size, T*, Size);                \
  template void Cpu::put_rows<T>(Lane&, Size, Size, const std::int32_t*, Size, const T*, Size, T*, \
                                 Size);                                                            \
  template void Cpu::put_columns<T>(Lane&, Size, Size, const std::int32_t*, Size, Size, const T*,  \
                                    Size, T*, Size);                                               \
  template void Cpu::take_columns<T>(Lane&, Size, Size, const std::int32_t*, Size, Size, const T*, \
                                     Size, T*, Size);                                              \
  template void Cpu::invert_triangle<T>(Lane&, Uplo, Diag, Size, const T*, Size, T*, Size);        \
  template void Cpu::solve_triangle<T>(Lane&, Uplo, Op, Diag, Size, Size, const T*, Size,          \
                                       const T*, Size, T*, Size, T*);                              \
  template void Cpu::log_phase<T>(Lane&, Size, const T*, Size, Real<T>*, T*);                      \
  template void Cpu::pivot_sign<T>(Lane&, Size, const std::int32_t*, T*);                          \
  template void Cpu::check_finite<T>(Lane&, Size, Size, const T*, Size, Info*);                    \
  template void Cpu::fill_if_kind<T>(Lane&, const Info*, Kind, Size, Size, T, T*, Size);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
template void Cpu::move_rows<std::int32_t>(Lane&, Size, RowMoves, Size, std::int32_t*, Size,
                                           std::int32_t*, Size);

}  // namespace jaxmg::tile
