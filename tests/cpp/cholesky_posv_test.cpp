// Right-hand sides that are eliminated together with a matrix, on thread ranks.
#include <gtest/gtest.h>

#include "cholesky_run.h"

namespace jaxmg::test {
namespace {

template <class T>
class PosvTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(PosvTest, Types);

template <class T>
Run<T> laid_out(const Matrix<T>& a, int ranks, Size tile, Triangle valid = Triangle::whole,
                Size group = 0, Order order = Order::relabelled, Size parts = 0) {
  return Run<T>(a, ranks, tile, valid, group, order, parts);
}

// The solution, and the factor that is left: that of a factorisation without right-hand sides.
template <class T>
void expect_solves(const Matrix<T>& a, Run<T> run, Size nrhs) {
  SCOPED_TRACE("n " + std::to_string(a.rows) + " ranks " + std::to_string(run.ranks) + " tile " +
               std::to_string(run.tile) + " group " + std::to_string(run.group) + " parts " +
               std::to_string(run.parts) + " nrhs " + std::to_string(nrhs));
  const Matrix<T> b = random_matrix<T>(a.rows, nrhs, 5);
  const auto saved = run.saved;
  for (const bool replicated : {true, false}) {
    EXPECT_LE(solve_residual(a, b, run.posv(a, b, replicated)), 25);
    for (const Info& info : run.info) {
      EXPECT_EQ(info.kind, 0);
    }
    EXPECT_LE(factor_residual(a, run), 25);
    EXPECT_EQ(run.saved, saved);
    EXPECT_LE(solve_residual(a, b, run.solve(b, replicated)), 25);
  }
}

TYPED_TEST(PosvTest, EverySizeOnEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    for (const Size n : {1, 2, 3, 7, 8, 9, 17, 33}) {
      const auto a = random_hpd<TypeParam>(n, 1);
      expect_solves(a, laid_out(a, ranks, 4), 3);
    }
  }
}

TYPED_TEST(PosvTest, EveryTile) {
  const auto a = random_hpd<TypeParam>(19, 2);
  for (const int ranks : {1, 2, 4}) {
    for (Size tile = 1; tile <= 19; ++tile) {
      expect_solves(a, laid_out(a, ranks, tile), 1);
    }
  }
}

TYPED_TEST(PosvTest, AnyNumberOfRightHandSides) {
  const auto a = random_hpd<TypeParam>(23, 6);
  for (const int ranks : {1, 3}) {
    for (const Size nrhs : {0, 1, 2, 3, 15, 16, 17, 64, 65, 600}) {
      expect_solves(a, laid_out(a, ranks, 4), nrhs);
    }
  }
}

TYPED_TEST(PosvTest, PartsOfPanelsAndGroupsOfTileColumns) {
  const auto a = random_hpd<TypeParam>(75, 2);
  for (const int ranks : {1, 2, 3, 8}) {
    for (const Size parts : {1, 2, 3, 7, 64}) {
      for (const Size group : {1, 2, 5}) {
        expect_solves(a, laid_out(a, ranks, 7, Triangle::whole, group, Order::relabelled, parts),
                      2);
      }
    }
  }
}

TYPED_TEST(PosvTest, WidePanelsEndWithANarrowPart) {
  const auto a = random_hpd<TypeParam>(500, 2);
  struct Case {
    int ranks;
    Size tile, parts;
  };
  for (const auto& [ranks, tile, parts] :
       {Case{1, 400, 3}, {1, 450, 4}, {1, 200, 2}, {2, 250, 2}}) {
    expect_solves(a, laid_out(a, ranks, tile, Triangle::whole, 1, Order::relabelled, parts), 2);
  }
}

TYPED_TEST(PosvTest, NaturalOrderSolvesAfterwards) {
  const auto a = random_hpd<TypeParam>(26, 2);
  for (const int ranks : {1, 2, 3}) {
    expect_solves(a, laid_out(a, ranks, 3, Triangle::whole, 0, Order::natural), 2);
  }
}

TYPED_TEST(PosvTest, ReadsOnlyTheTriangleThatIsNamed) {
  using T = TypeParam;
  const Size n = 21;
  const auto a = random_hpd<T>(n, 4);
  const auto b = random_matrix<T>(n, 2, 5);
  for (const Triangle valid : {Triangle::lower, Triangle::upper}) {
    Matrix<T> half = a;
    for (Size i = 0; i < n; ++i) {
      for (Size j = 0; j < n; ++j) {
        if (valid == Triangle::lower ? j > i : j < i) {
          half(i, j) = T(std::numeric_limits<Real<T>>::quiet_NaN());
        }
      }
    }
    for (const int ranks : {1, 2, 3, 8}) {
      auto run = laid_out(half, ranks, 3, valid);
      EXPECT_LE(solve_residual(a, b, run.posv(half, b, true, valid)), 25);
    }
  }
}

TYPED_TEST(PosvTest, FailingMinorIsFoundAndSolutionsAreNaN) {
  using T = TypeParam;
  const Size n = 24;
  for (const int ranks : {1, 2, 3, 8}) {
    for (const Size tile : {1, 4, 24}) {
      for (Size k = 0; k < n; k += 5) {
        Matrix<T> a = random_hpd<T>(n, 7);
        a(k, k) = T(-1);
        auto run = laid_out(a, ranks, tile);
        for (const bool replicated : {true, false}) {
          for (const T& x : run.posv(a, random_matrix<T>(n, 2, 1), replicated).data) {
            EXPECT_TRUE(std::isnan(std::real(x)));
          }
          EXPECT_TRUE(std::isnan(run.logdet()));
          EXPECT_EQ(status(run.locate()), k + 1) << "ranks " << ranks << " tile " << tile;
        }
      }
    }
  }
}

// Rows of A and B of very different sizes: errors are relative to each equation's own.
TYPED_TEST(PosvTest, EquationsOfDifferentScales) {
  using T = TypeParam;
  const Size n = 30;
  auto a = random_hpd<T>(n, 9);
  const auto scale = [](Size i) { return std::ldexp(Real<T>(1), static_cast<int>(3 * (i % 5))); };
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      a(i, j) *= scale(i) * scale(j);
    }
  }
  const auto b = random_matrix<T>(n, 3, 5);
  for (const int ranks : {1, 2, 3}) {
    auto run = laid_out(a, ranks, 4);
    EXPECT_LE(solve_residual(a, b, run.posv(a, b, true)), 25);
  }
}

TYPED_TEST(PosvTest, LogDeterminantAndInverseOfWhatIsLeft) {
  using T = TypeParam;
  const auto a = random_hpd<T>(31, 3);
  const auto b = random_matrix<T>(31, 2, 5);
  Matrix<T> identity(31, 31);
  for (Size i = 0; i < 31; ++i) {
    identity(i, i) = T(1);
  }
  for (const int ranks : {1, 3}) {
    auto run = laid_out(a, ranks, 4);
    const double expected = run.logdet();
    run.posv(a, b, false);
    EXPECT_NEAR(run.logdet(), expected, 500 * std::numeric_limits<Real<T>>::epsilon() * expected);
    EXPECT_LE(solve_residual(a, identity, run.inverted()), 25);
  }
}

}  // namespace
}  // namespace jaxmg::test
