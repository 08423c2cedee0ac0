// Products and triangular solves of CPU tiles against plain loops.
#include <algorithm>
#include <array>
#include <complex>

#include "tile/cpu/cpu.h"
#include "tile/cpu/pool.h"
#include "tile_matrix.h"

namespace jaxmg::testing {
namespace {

using tile::Cpu;

constexpr Op kOps[] = {Op::none, Op::transpose, Op::conj_transpose};

template <class T>
class Level3 : public ::testing::Test {
 protected:
  void SetUp() override { tile::set_pool_threads(3); }

  void check_gemm(Op op_a, Op op_b, Size m, Size n, Size k, T alpha, T beta) {
    const auto a = op_a == Op::none ? Matrix<T>::random(m, k, 1) : Matrix<T>::random(k, m, 1);
    const auto b = op_b == Op::none ? Matrix<T>::random(k, n, 2) : Matrix<T>::random(n, k, 2);
    auto c = beta == T(0) ? Matrix<T>(m, n) : Matrix<T>::random(m, n, 3);
    const auto expected = product(op_a, op_b, k, alpha, a, b, beta, c);
    Cpu::gemm(lane, op_a, op_b, m, n, k, alpha, a.get(), a.ld, b.get(), b.ld, beta, c.get(), c.ld);
    EXPECT_LE(distance(c, expected), 4 * epsilon<T> * static_cast<double>(k + 2))
        << m << " x " << n << " x " << k << ", ops " << static_cast<int>(op_a)
        << static_cast<int>(op_b);
    EXPECT_TRUE(c.padding_untouched());
  }

  void check_trsm(Side side, Uplo uplo, Op op, Diag diag, Size m, Size n, T alpha) {
    const Size order = side == Side::left ? m : n;
    const auto a = triangle<T>(uplo, diag, order, 4);
    const auto b = Matrix<T>::random(m, n, 5);
    auto x = b;
    Cpu::trsm(lane, side, uplo, op, diag, m, n, alpha, a.get(), a.ld, x.get(), x.ld);
    EXPECT_TRUE(x.padding_untouched());

    // op(A) X = alpha B, or X op(A) = alpha B
    const auto full = written_out(diag, uplo, a);
    const auto back = side == Side::left ? product(op, Op::none, m, T(1), full, x, -alpha, b)
                                         : product(Op::none, op, n, T(1), x, full, -alpha, b);
    Matrix<T> zero(m, n);
    for (Size j = 0; j < n; ++j) {
      std::fill_n(&zero(0, j), m, T(0));
    }
    EXPECT_LE(distance(back, zero), 16 * epsilon<T> * static_cast<double>(order + 2))
        << m << " x " << n << ", side " << static_cast<int>(side) << " uplo "
        << static_cast<int>(uplo) << " op " << static_cast<int>(op) << " diag "
        << static_cast<int>(diag);
  }

  template <class Check>
  void all_triangles(const Check& check) {
    for (Side side : {Side::left, Side::right}) {
      for (Uplo uplo : {Uplo::lower, Uplo::upper}) {
        for (Op op : kOps) {
          for (Diag diag : {Diag::non_unit, Diag::unit}) {
            check(side, uplo, op, diag);
          }
        }
      }
    }
  }

  Cpu::Lane lane{tile::Priority::normal};
};
TYPED_TEST_SUITE(Level3, ElementTypes);

TYPED_TEST(Level3, SmallProductsOfAllKinds) {
  using T = TypeParam;
  const T general = number<T>(0.7, -0.4);
  for (Op op_a : kOps) {
    for (Op op_b : kOps) {
      for (Size m : {0, 1, 2, 3, 5, 9}) {
        for (Size n : {0, 1, 2, 4, 7}) {
          for (Size k : {0, 1, 3, 8}) {
            this->check_gemm(op_a, op_b, m, n, k, T(1), T(0));
            this->check_gemm(op_a, op_b, m, n, k, T(-1), T(1));
            this->check_gemm(op_a, op_b, m, n, k, general, number<T>(-2, 0.5));
            this->check_gemm(op_a, op_b, m, n, k, T(0), T(0));
          }
        }
      }
    }
  }
}

// Products that are cut in tasks, with blocks that do not come out even.
TYPED_TEST(Level3, LargeProductsOfAllKinds) {
  using T = TypeParam;
  for (Op op_a : kOps) {
    for (Op op_b : kOps) {
      this->check_gemm(op_a, op_b, 131, 97, 67, number<T>(0.7, -0.4), T(1));
      this->check_gemm(op_a, op_b, 257, 33, 70, T(1), T(0));
      this->check_gemm(op_a, op_b, 35, 259, 70, T(-1), T(1));
      this->check_gemm(op_a, op_b, 1100, 1, 517, T(1), T(0));
      this->check_gemm(op_a, op_b, 1, 517, 1100, T(1), T(0));
    }
  }
}

// The inner dimension is summed in slices when it is very long.
TYPED_TEST(Level3, LongInnerDimension) {
  using T = TypeParam;
  for (Op op : kOps) {
    this->check_gemm(op, Op::none, 3, 2, 33000, T(1), T(0));
    this->check_gemm(op, Op::none, 3, 1, 33000, T(1), number<T>(0.5, 1));
  }
}

TYPED_TEST(Level3, UpdateStep) {
  using T = TypeParam;
  for (Size m = 1; m <= 9; ++m) {
    for (Size n = 1; n <= 9; ++n) {
      for (Size k = 1; k <= 9; ++k) {
        this->check_gemm(Op::none, Op::none, m, n, k, T(-1), T(1));
        this->check_gemm(Op::none, Op::conj_transpose, m, n, k, T(-1), T(1));
      }
    }
  }
}

// Lower triangles of blocks on a diagonal; within one block of the library and cut in several.
TYPED_TEST(Level3, StridedTriangles) {
  using T = TypeParam;
  for (const auto& [n, k, count] :
       {std::array<Size, 3>{1, 1, 1}, {5, 3, 4}, {70, 20, 3}, {300, 30, 2}, {4, 0, 2}, {0, 3, 2}}) {
    const Size step = n + 2;
    const auto a = Matrix<T>::random(step * count, k, 1);
    const auto before = Matrix<T>::random(n, step * count, 2);
    auto c = before;
    for (Size i = 0; i < count; ++i) {
      for (Size j = 0; j < n; ++j) {
        T& diagonal = c(j, i * step + j);
        diagonal = T(std::real(diagonal));
      }
    }
    auto expected = c;
    Cpu::herk_strided(this->lane, n, k, a.get(), a.ld, step, c.get(), c.ld, step * c.ld, count);
    for (Size block = 0; block < count; ++block) {
      for (Size j = 0; j < n; ++j) {
        for (Size i = j; i < n; ++i) {
          for (Size l = 0; l < k; ++l) {
            expected(i, block * step + j) -=
                a(block * step + i, l) * conjugate(a(block * step + j, l));
          }
        }
        std::copy_n(&c(0, block * step + j), j, &expected(0, block * step + j));
      }
    }
    EXPECT_LE(distance(c, expected), 4 * epsilon<T> * static_cast<double>(k + 2)) << n << ' ' << k;
    EXPECT_TRUE(c.padding_untouched());
  }
}

TYPED_TEST(Level3, BothProductsWithVectors) {
  using T = TypeParam;
  for (const auto& [m, n] :
       {std::array<Size, 2>{1, 1}, {7, 3}, {3, 0}, {1200, 1700}, {40000, 11}}) {
    const auto a = Matrix<T>::random(m, n, 1);
    const auto v = Matrix<T>::random(m, 1, 2), w = Matrix<T>::random(n, 1, 3);
    Matrix<T> y(n, 1);
    auto z = Matrix<T>::random(m, 1, 4);
    const auto expected_z = product(Op::none, Op::none, n, T(1), a, w, T(1), z);
    Cpu::multiply_both(this->lane, m, n, a.get(), a.ld, v.get(), w.get(), y.get(), z.get(),
                       static_cast<T*>(nullptr), 0);
    const auto expected_y = product(Op::transpose, Op::none, m, T(1), a, v, T(0), y);
    EXPECT_LE(distance(y, expected_y), 4 * epsilon<T> * static_cast<double>(m + 2))
        << m << ' ' << n;
    EXPECT_LE(distance(z, expected_z), 4 * epsilon<T> * static_cast<double>(n + 2))
        << m << ' ' << n;
    EXPECT_TRUE(y.padding_untouched() && z.padding_untouched());
  }
}

// Blocks of one panel at constant distances, as a trailing update has them: small, and cut in
// tasks.
TYPED_TEST(Level3, StridedProducts) {
  using T = TypeParam;
  for (const auto& [m, n, k, count] : {std::array<Size, 4>{3, 2, 4, 5},
                                       {65, 40, 30, 7},
                                       {300, 50, 40, 2},
                                       {4, 1, 3, 3},
                                       {4, 4, 0, 3},
                                       {0, 2, 2, 2},
                                       {3, 3, 3, 0}}) {
    for (Op op_b : kOps) {
      const Size row_step = m + 2, col_step = n + 1;
      const auto a = Matrix<T>::random(row_step * count, k, 1);
      const auto b = op_b == Op::none ? Matrix<T>::random(k, col_step * count, 2)
                                      : Matrix<T>::random(col_step * count, k, 2);
      const Size stride_b = op_b == Op::none ? col_step * b.ld : col_step;
      auto c = Matrix<T>::random(m, n * count, 3);
      auto expected = c;
      for (Size i = 0; i < count; ++i) {
        Cpu::gemm(this->lane, Op::none, op_b, m, n, k, T(-1), a.get() + i * row_step, a.ld,
                  b.get() + i * stride_b, b.ld, T(1), expected.get() + i * n * c.ld, c.ld);
      }
      Cpu::gemm_strided(this->lane, Op::none, op_b, m, n, k, T(-1), a.get(), a.ld, row_step,
                        b.get(), b.ld, stride_b, T(1), c.get(), c.ld, n * c.ld, count);
      EXPECT_LE(distance(c, expected), 4 * epsilon<T> * static_cast<double>(k + 2));
      EXPECT_TRUE(c.padding_untouched());
    }
  }
}

// alpha = 0 does not read the factors.
TYPED_TEST(Level3, NothingTimesNaN) {
  using T = TypeParam;
  const Matrix<T> nan(5, 5);
  auto c = Matrix<T>::random(5, 5, 1);
  const auto before = c;
  Cpu::gemm(this->lane, Op::none, Op::none, 5, 5, 5, T(0), nan.get(), nan.ld, nan.get(), nan.ld,
            T(1), c.get(), c.ld);
  EXPECT_EQ(distance(c, before), 0);
  Cpu::trsm(this->lane, Side::left, Uplo::lower, Op::none, Diag::non_unit, 5, 5, T(0), nan.get(),
            nan.ld, c.get(), c.ld);
  EXPECT_EQ(c(4, 4), T(0));
  EXPECT_TRUE(c.padding_untouched());
}

TYPED_TEST(Level3, SmallTrianglesOfAllKinds) {
  using T = TypeParam;
  this->all_triangles([&](Side side, Uplo uplo, Op op, Diag diag) {
    for (Size m : {0, 1, 2, 3, 5, 9}) {
      for (Size n : {0, 1, 2, 4, 7, 9}) {
        this->check_trsm(side, uplo, op, diag, m, n, T(1));
        this->check_trsm(side, uplo, op, diag, m, n, number<T>(-0.5, 0.25));
      }
    }
  });
}

TYPED_TEST(Level3, LargeTrianglesOfAllKinds) {
  using T = TypeParam;
  this->all_triangles([&](Side side, Uplo uplo, Op op, Diag diag) {
    const bool left = side == Side::left;
    for (const auto& [order, other] : {std::pair<Size, Size>{70, 415}, {531, 3}, {523, 1}}) {
      this->check_trsm(side, uplo, op, diag, left ? order : other, left ? other : order,
                       number<T>(0.5, 1));
    }
  });
}

TYPED_TEST(Level3, SolveDiagonal) {
  using T = TypeParam;
  for (Op op : kOps) {
    for (const auto& [m, n] : {std::pair<Size, Size>{1, 1}, {7, 4}, {0, 3}, {300, 65}}) {
      const auto l = triangle<T>(Uplo::lower, Diag::non_unit, n, 6);
      const auto b = Matrix<T>::random(m, n, 7);
      auto x = b;
      Matrix<T> inverse(n, n), work(m, n, 0);
      Cpu::invert_lower(this->lane, n, l.get(), l.ld, inverse.get(), inverse.ld);
      Cpu::solve_diagonal(this->lane, op, m, n, l.get(), l.ld, inverse.get(), inverse.ld, x.get(),
                          x.ld, work.get());
      const auto back =
          product(Op::none, op, n, T(1), x, written_out(Diag::non_unit, Uplo::lower, l), T(0), b);
      EXPECT_LE(distance(back, b), 16 * epsilon<T> * static_cast<double>(n + 2));
      EXPECT_TRUE(x.padding_untouched());
    }
  }
}

}  // namespace
}  // namespace jaxmg::testing
