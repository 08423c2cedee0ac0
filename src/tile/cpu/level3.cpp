// Products and triangular solves: cut in tasks, each of which is one call of the library.
#include <algorithm>
#include <functional>
#include <vector>

#include "tile/cpu/blas.h"
#include "tile/cpu/cpu.h"
#include "tile/cpu/cut.h"
#include "tile/cpu/pool.h"

namespace jaxmg::tile {
namespace {

// Triangles up to here are solved by one call per task, larger ones by halves.
constexpr Size kLeaf = 512;

// Real operations of a multiplication and addition.
template <class T>
constexpr double operations = is_complex_v<T> ? 8 : 2;

template <class T>
double product(Size m, Size n, Size k) {
  return operations<T> * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

int workers(double flops) {
  return worth_spreading(flops) ? Pool::instance().threads() : 1;
}

// Where row i of op(a), or column i, begins.
template <class T>
const T* at_row(Op op, const T* a, Size lda, Size i) {
  return op == Op::none ? a + i : a + i * lda;
}
template <class T>
const T* at_col(Op op, const T* a, Size lda, Size i) {
  return op == Op::none ? a + i * lda : a + i;
}

// c <- beta c; what c holds does not matter if beta is 0.
template <class T>
void times(Size m, Size n, T beta, T* c, Size ldc) {
  if (beta == T(1)) {
    return;
  }
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < m; ++i) {
      T& x = c[i + j * ldc];
      x = beta == T(0) ? T(0) : beta * x;
    }
  }
}

// One column of c: memory bound, and a fraction of the time when nothing is packed.
template <class T>
void product_with_vector(CpuLane& lane, Op op, Size m, Size k, T alpha, const T* a, Size lda,
                         const T* x, Size incx, T beta, T* y) {
  const double flops = product<T>(m, 1, k);
  const Cut rows(m, pieces(flops, workers(flops)));
  for_each(lane.priority(), worth_spreading(flops), rows.count(), [&](Size i) {
    const Size first = rows.begin(i), count = rows.length(i);
    times(count, Size{1}, beta, y + first, count);
    const Cut sum(k, 1);
    for (Size s = 0; s < sum.count(); ++s) {
      const Size from = sum.begin(s), length = sum.length(s);
      const T* block = at_col(op, at_row(op, a, lda, first), lda, from);
      const bool plain = op == Op::none;
      blas::gemv(op, plain ? count : length, plain ? length : count, alpha, block, lda,
                 x + from * incx, incx, T(1), y + first, Size{1});
    }
  });
}

// `count` products, all tasks handed in together.
template <class T>
void products(CpuLane& lane, Op op_a, Op op_b, Size m, Size n, Size k, T alpha, const T* a,
              Size lda, Size stride_a, const T* b, Size ldb, Size stride_b, T beta, T* c, Size ldc,
              Size stride_c, Size count) {
  if (count <= 0) {
    return;
  }
  const double flops = product<T>(m, n, k) * static_cast<double>(count);
  const Grid blocks = grid(m, n, count, flops, workers(flops));
  const Cut sum(k, 1);
  for_each(lane.priority(), worth_spreading(flops), count * blocks.count(), [&](Size task) {
    const Size which = task / blocks.count(), block = task % blocks.count();
    const Size i = block % blocks.rows.count(), j = block / blocks.rows.count();
    const Size row = blocks.rows.begin(i), col = blocks.cols.begin(j);
    const T* a_rows = at_row(op_a, a + which * stride_a, lda, row);
    const T* b_cols = at_col(op_b, b + which * stride_b, ldb, col);
    T* target = c + which * stride_c + row + col * ldc;
    for (Size s = 0; s < sum.count(); ++s) {
      const Size from = sum.begin(s);
      blas::gemm(op_a, op_b, blocks.rows.length(i), blocks.cols.length(j), sum.length(s), alpha,
                 at_col(op_a, a_rows, lda, from), lda, at_row(op_b, b_cols, ldb, from), ldb,
                 s == 0 ? beta : T(1), target, ldc);
    }
  });
}

// b <- alpha inv(op(a)) b, or alpha b inv(op(a)), with a of order at most kLeaf.
template <class T>
void solve_leaf(CpuLane& lane, Side side, Uplo uplo, Op op, Diag diag, Size m, Size n, T alpha,
                const T* a, Size lda, T* b, Size ldb) {
  const bool left = side == Side::left;
  const Size order = left ? m : n;
  const double flops = product<T>(order, order, left ? n : m) / 2;
  const Cut cut(left ? n : m, pieces(flops, workers(flops)));
  for_each(lane.priority(), worth_spreading(flops), cut.count(), [&](Size i) {
    const Size first = cut.begin(i), count = cut.length(i);
    blas::trsm(side, uplo, op, diag, left ? m : count, left ? count : n, alpha, a, lda,
               left ? b + first * ldb : b + first, ldb);
  });
}

}  // namespace

template <class T>
void Cpu::gemm(Lane& lane, Op op_a, Op op_b, Size m, Size n, Size k, T alpha, const T* a, Size lda,
               const T* b, Size ldb, T beta, T* c, Size ldc) {
  if (m <= 0 || n <= 0) {
    return;
  }
  if (k <= 0 || alpha == T(0)) {
    return times(m, n, beta, c, ldc);
  }
  if (n == 1 && (op_b != Op::conj_transpose || !is_complex_v<T>)) {
    return product_with_vector(lane, op_a, m, k, alpha, a, lda, b, op_b == Op::none ? 1 : ldb, beta,
                               c);
  }
  products(lane, op_a, op_b, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}

template <class T>
void Cpu::gemm_strided(Lane& lane, Op op_a, Op op_b, Size m, Size n, Size k, T alpha, const T* a,
                       Size lda, Size stride_a, const T* b, Size ldb, Size stride_b, T beta, T* c,
                       Size ldc, Size stride_c, Size count) {
  if (m > 0 && n > 1 && k > 0 && alpha != T(0)) {
    return products(lane, op_a, op_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c,
                    ldc, stride_c, count);
  }
  for (Size i = 0; i < count; ++i) {
    gemm(lane, op_a, op_b, m, n, k, alpha, a + i * stride_a, lda, b + i * stride_b, ldb, beta,
         c + i * stride_c, ldc);
  }
}

// By square blocks, a task each.
template <class T>
void Cpu::herk_strided(Lane& lane, Size n, Size k, const T* a, Size lda, Size stride_a, T* c,
                       Size ldc, Size stride_c, Size count) {
  if (n <= 0 || k <= 0) {
    return;
  }
  constexpr Size kBlock = 256;
  const Size q = ceil_div(n, kBlock), tasks = q * (q + 1) / 2;
  const double flops = product<T>(n, n, k) / 2 * static_cast<double>(count);
  for_each(lane.priority(), worth_spreading(flops), tasks * count, [&](Size number) {
    const T* factor = a + number / tasks * stride_a;
    T* target = c + number / tasks * stride_c;
    Size i = number % tasks, j = 0;  // block column j holds q - j blocks
    for (; i >= q - j; ++j) {
      i -= q - j;
    }
    const Size row = (j + i) * kBlock, col = j * kBlock;
    const Size rows = std::min(kBlock, n - row), cols = std::min(kBlock, n - col);
    target += row + col * ldc;
    if (row == col) {
      blas::herk<T>(rows, k, Real<T>(-1), factor + row, lda, Real<T>(1), target, ldc);
    } else {
      blas::gemm(Op::none, Op::conj_transpose, rows, cols, k, T(-1), factor + row, lda,
                 factor + col, lda, T(1), target, ldc);
    }
  });
}

// A is read once: by blocks of columns that stay in the cache between the two products.
template <class T>
void Cpu::multiply_both(Lane& lane, Size m, Size n, const T* a, Size lda, const T* v, const T* w,
                        T* y, T* z, T* /*work*/, Size /*count*/) {
  if (m <= 0 || n <= 0) {
    return;
  }
  std::fill_n(y, n, T(0));
  constexpr Size kCached = 1 << 19;  // bytes
  const Cut rows(m, 1);
  const Size width = std::max<Size>(4, kCached / (rows.block * static_cast<Size>(sizeof(T))));
  const double flops = 2 * product<T>(m, 1, n);
  const Cut parts(n, pieces(flops, workers(flops)));
  // Of all parts but the first, which adds to z itself.
  std::vector<T> sums(static_cast<std::size_t>((parts.count() - 1) * m), T(0));
  for_each(lane.priority(), worth_spreading(flops), parts.count(), [&](Size part) {
    T* const sum = part == 0 ? z : sums.data() + (part - 1) * m;
    const Size end = parts.begin(part) + parts.length(part);
    for (Size j = parts.begin(part); j < end; j += width) {
      const Size count = std::min(width, end - j);
      for (Size i = 0; i < rows.count(); ++i) {
        const Size first = rows.begin(i), length = rows.length(i);
        const T* const columns = a + first + j * lda;
        blas::gemv(Op::transpose, length, count, T(1), columns, lda, v + first, Size{1}, T(1),
                   y + j, Size{1});
        blas::gemv(Op::none, length, count, T(1), columns, lda, w + j, Size{1}, T(1), sum + first,
                   Size{1});
      }
    }
  });
  for (Size part = 1; part < parts.count(); ++part) {
    const T* const sum = sums.data() + (part - 1) * m;
    std::transform(z, z + m, sum, z, std::plus<>());
  }
}

// Let M = op(a), cut in halves; M is lower triangular if a is and op does not transpose, or
// neither.
//
//   lower  M X = B:  X1 = inv(M11) B1,  X2 = inv(M22) (B2 - M21 X1)
//          X M = B:  X2 = B2 inv(M22),  X1 = (B1 - X2 M21) inv(M11)
//   upper  M X = B:  X2 = inv(M22) B2,  X1 = inv(M11) (B1 - M12 X2)
//          X M = B:  X1 = B1 inv(M11),  X2 = (B2 - X1 M12) inv(M22)
template <class T>
void Cpu::trsm(Lane& lane, Side side, Uplo uplo, Op op, Diag diag, Size m, Size n, T alpha,
               const T* a, Size lda, T* b, Size ldb) {
  if (m <= 0 || n <= 0) {
    return;
  }
  if (alpha == T(0)) {
    return times(m, n, T(0), b, ldb);
  }
  const bool left = side == Side::left;
  const Size order = left ? m : n;
  if (order <= kLeaf) {
    return solve_leaf(lane, side, uplo, op, diag, m, n, alpha, a, lda, b, ldb);
  }
  const bool lower = (uplo == Uplo::lower) == (op == Op::none);
  const bool first_half_first = left == lower;
  const Size h = round_up(order / 2, kBlockAlign);
  const T* off = uplo == Uplo::lower ? a + h : a + h * lda;

  struct Half {
    const T* a;
    T* b;
    Size size;
  };
  const Half halves[2] = {{a, b, h}, {a + h + h * lda, left ? b + h : b + h * ldb, order - h}};
  const Half& one = halves[first_half_first ? 0 : 1];
  const Half& two = halves[first_half_first ? 1 : 0];
  if (left) {
    trsm(lane, side, uplo, op, diag, one.size, n, alpha, one.a, lda, one.b, ldb);
    gemm(lane, op, Op::none, two.size, n, one.size, T(-1), off, lda, one.b, ldb, alpha, two.b, ldb);
    trsm(lane, side, uplo, op, diag, two.size, n, T(1), two.a, lda, two.b, ldb);
  } else {
    trsm(lane, side, uplo, op, diag, m, one.size, alpha, one.a, lda, one.b, ldb);
    gemm(lane, Op::none, op, m, two.size, one.size, T(-1), one.b, ldb, off, lda, alpha, two.b, ldb);
    trsm(lane, side, uplo, op, diag, m, two.size, T(1), two.a, lda, two.b, ldb);
  }
}

#define JAXMG_INSTANTIATE(T)                                                                     \
  template void Cpu::gemm<T>(Lane&, Op, Op, Size, Size, Size, T, const T*, Size, const T*, Size, \
                             T, T*, Size);                                                       \
  template void Cpu::gemm_strided<T>(Lane&, Op, Op, Size, Size, Size, T, const T*, Size, Size,   \
                                     const T*, Size, Size, T, T*, Size, Size, Size);             \
  template void Cpu::herk_strided<T>(Lane&, Size, Size, const T*, Size, Size, T*, Size, Size,    \
                                     Size);                                                      \
  template void Cpu::multiply_both<T>(Lane&, Size, Size, const T*, Size, const T*, const T*, T*, \
                                      T*, T*, Size);                                             \
  template void Cpu::trsm<T>(Lane&, Side, Uplo, Op, Diag, Size, Size, T, const T*, Size, T*, Size);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)

}  // namespace jaxmg::tile
