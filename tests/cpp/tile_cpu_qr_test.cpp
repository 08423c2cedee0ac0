// Orthonormal bases and the small operations of Householder QR on CPU tiles.
#include "tile/cpu/cpu.h"
#include "tile/cpu/pool.h"
#include "tile/householder.h"
#include "tile_matrix.h"

namespace jaxmg::testing {
namespace {

using tile::Cpu;

template <class T>
class QrTiles : public ::testing::Test {
 protected:
  void SetUp() override { tile::set_pool_threads(3); }
  Cpu::Lane lane{tile::Priority::high};
};
TYPED_TEST_SUITE(QrTiles, ElementTypes);

template <class T>
Matrix<T> identity(Size n) {
  Matrix<T> a(n, n);
  Cpu::Lane lane{tile::Priority::high};
  Cpu::fill<T>(lane, n, n, T(0), T(1), a.get(), a.ld);
  return a;
}

template <class T>
Matrix<T> times(Op op_a, const Matrix<T>& a, Op op_b, const Matrix<T>& b) {
  const Size m = op_a == Op::none ? a.m : a.n, n = op_b == Op::none ? b.n : b.m;
  return product(op_a, op_b, op_a == Op::none ? a.n : a.m, T(1), a, b, T(0), Matrix<T>(m, n));
}

TYPED_TEST(QrTiles, OrthonormaliseAnything) {
  using T = TypeParam;
  // The last shapes are cut in pieces.
  for (auto [m, n] : {std::pair<Size, Size>{1, 1}, {5, 5}, {70, 33}, {2000, 20}, {5000, 7}}) {
    for (int kind = 0; kind < 4; ++kind) {
      SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n) + " kind " + std::to_string(kind));
      auto a = Matrix<T>::random(m, n, 3);
      for (Size j = 0; j < n; ++j) {
        for (Size i = 0; i < m; ++i) {
          a(i, j) = kind == 1   ? T(0)
                    : kind == 2 ? a(i, j / 2)
                    : kind == 3 ? a(i, j) * T(std::pow(Real<T>(10), Real<T>(-j)))
                                : a(i, j);
        }
      }
      Matrix<T> q = a, r(n, n);
      Cpu::orthonormalise<T>(this->lane, m, n, q.get(), q.ld, r.get(), r.ld);
      EXPECT_TRUE(q.padding_untouched());
      EXPECT_TRUE(r.padding_untouched());
      const double unit = 10 * static_cast<double>(m) * epsilon<T>;
      EXPECT_LE(distance(times(Op::none, q, Op::none, r), a), unit);
      EXPECT_LE(distance(times(Op::conj_transpose, q, Op::none, q), identity<T>(n)), unit);
      for (Size j = 0; j < n; ++j) {
        EXPECT_EQ(std::imag(r(j, j)), 0);
        for (Size i = j + 1; i < n; ++i) {
          EXPECT_EQ(r(i, j), T(0));
        }
      }
    }
  }
}

// (I - Y T Y^H) [I; 0] S = Q, with R following the signs.
TYPED_TEST(QrTiles, ReflectorsOfABasis) {
  using T = TypeParam;
  for (auto [m, n] : {std::pair<Size, Size>{1, 1}, {4, 4}, {9, 3}, {200, 130}}) {
    SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(n));
    auto q = Matrix<T>::random(m, n, 4);
    Matrix<T> r(n, n), t(n, n), top(n, n);
    Cpu::orthonormalise<T>(this->lane, m, n, q.get(), q.ld, r.get(), r.ld);
    const auto before = r;
    Cpu::copy<T>(this->lane, n, n, q.get(), q.ld, top.get(), top.ld);
    std::vector<Real<T>> signs(static_cast<std::size_t>(n));
    reconstruct_reflectors<Cpu, T>(this->lane, n, top.get(), top.ld, signs.data(), r.get(), r.ld,
                                   t.get(), t.ld);
    auto y = q;  // Y = (Q - [S; 0]) inv(U), with Y1 as it is
    Cpu::trsm<T>(this->lane, Side::right, Uplo::upper, Op::none, Diag::non_unit, m, n, T(1),
                 top.get(), top.ld, y.get(), y.ld);
    for (Size j = 0; j < n; ++j) {
      const Real<T> sign = signs[static_cast<std::size_t>(j)];
      EXPECT_EQ(std::abs(sign), 1);
      EXPECT_GE(std::abs(top(j, j)), 1 - 10 * epsilon<T>);
      for (Size i = 0; i < n; ++i) {
        y(i, j) = i > j ? top(i, j) : T(i == j ? 1 : 0);
        EXPECT_EQ(r(j, i), before(j, i) * T(sign));
      }
    }
    const auto yt = times(Op::none, y, Op::none, t);
    auto h = times(Op::none, yt, Op::conj_transpose, y);
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        const T column = (T(i == j ? 1 : 0) - h(i, j)) * T(signs[static_cast<std::size_t>(j)]);
        EXPECT_LE(std::abs(column - q(i, j)), 20 * static_cast<double>(m) * epsilon<T>);
      }
    }
  }
}

TYPED_TEST(QrTiles, CopiesOfTriangles) {
  using T = TypeParam;
  for (auto [m, n] : {std::pair<Size, Size>{0, 2}, {3, 3}, {7, 4}, {4, 7}}) {
    for (const Uplo uplo : {Uplo::lower, Uplo::upper}) {
      for (const Diag diag : {Diag::unit, Diag::non_unit}) {
        const auto a = Matrix<T>::random(m, n, 1);
        const auto b = Matrix<T>::random(m, n, 2);
        auto c = b;
        Cpu::copy_triangle<T>(this->lane, uplo, diag, m, n, a.get(), a.ld, c.get(), c.ld);
        for (Size j = 0; j < n; ++j) {
          for (Size i = 0; i < m; ++i) {
            const bool inside = i == j ? diag == Diag::non_unit : (i > j) == (uplo == Uplo::lower);
            EXPECT_EQ(c(i, j), inside ? a(i, j) : b(i, j));
          }
        }
        EXPECT_TRUE(c.padding_untouched());
      }
    }
  }
}

TYPED_TEST(QrTiles, ScaleOfRowsAndColumns) {
  using T = TypeParam;
  const auto a = Matrix<T>::random(3, 2, 1);
  const std::vector<Real<T>> rows = {2, -1, 4}, columns = {-1, 8};
  for (const bool with_rows : {true, false}) {
    for (const bool with_columns : {true, false}) {
      auto b = a;
      Cpu::scale<T>(this->lane, 3, 2, with_rows ? rows.data() : nullptr,
                    with_columns ? columns.data() : nullptr, b.get(), b.ld);
      for (std::size_t j = 0; j < 2; ++j) {
        for (std::size_t i = 0; i < 3; ++i) {
          const Real<T> by =
              (with_rows ? rows[i] : Real<T>(1)) * (with_columns ? columns[j] : Real<T>(1));
          EXPECT_EQ(b(Size(i), Size(j)), a(Size(i), Size(j)) * T(by));
        }
      }
    }
  }
}

TYPED_TEST(QrTiles, TheFirstZeroOfADiagonal) {
  using T = TypeParam;
  auto a = Matrix<T>::random(6, 6, 1);
  Info info;
  Cpu::check_diagonal<T>(this->lane, 6, a.get(), a.ld, 10, &info);
  EXPECT_EQ(info.kind, 0);
  a(2, 2) = T(0);
  a(4, 4) = T(0);
  Cpu::check_diagonal<T>(this->lane, 6, a.get(), a.ld, 10, &info);
  EXPECT_EQ(info.kind, static_cast<std::int32_t>(Kind::singular));
  EXPECT_EQ(info.position, 13);
}

}  // namespace
}  // namespace jaxmg::testing
