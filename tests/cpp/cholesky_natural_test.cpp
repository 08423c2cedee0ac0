// Cholesky factors in natural order, and everything that is asked of them.
#include "cholesky_run.h"

namespace jaxmg::test {
namespace {

template <class T>
class NaturalTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(NaturalTest, Types);

template <class T>
Run<T> natural(const Matrix<T>& a, int ranks, Size tile, Triangle valid = Triangle::whole) {
  return Run<T>(a, ranks, tile, valid, 0, Order::natural);
}

TYPED_TEST(NaturalTest, FactorOfEverySizeOnEveryNumberOfRanks) {
  using T = TypeParam;
  for (int ranks : {1, 2, 3, 5, 8}) {
    for (Size n : {1, 2, 7, 8, 9, 17, 33}) {
      for (Size tile : {Size{0}, Size{1}, Size{3}, Size{64}}) {
        SCOPED_TRACE("n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                     std::to_string(tile));
        const auto a = random_hpd<T>(n, 1);
        Run<T> run = natural<T>(a, ranks, tile);
        ASSERT_EQ(run.info[0].kind, 0);
        std::vector<Size> p;
        run.lower(&p);
        EXPECT_TRUE(std::is_sorted(p.begin(), p.end()));
        EXPECT_LE(factor_residual(a, run), 25);
        const auto b = random_matrix<T>(n, 3, 5);
        EXPECT_LE(solve_residual(a, b, run.solve(b, true)), 25);
        EXPECT_LE(solve_residual(a, b, run.solve(b, false)), 25);
      }
    }
  }
}

TYPED_TEST(NaturalTest, DoesNotDependOnTheNumberOfRanks) {
  using T = TypeParam;
  const auto a = random_hpd<T>(40, 3);
  const Matrix<T> one = natural<T>(a, 1, 8).lower();
  for (int ranks : {2, 3, 8}) {
    const Matrix<T> l = natural<T>(a, ranks, 4).lower();
    for (std::size_t i = 0; i < l.data.size(); ++i) {
      EXPECT_LE(std::abs(l.data[i] - one.data[i]), 1000 * std::numeric_limits<Real<T>>::epsilon());
    }
  }
}

TYPED_TEST(NaturalTest, OneTriangleLogdetAndInverse) {
  using T = TypeParam;
  const Size n = 21;
  const auto a = random_hpd<T>(n, 4);
  const double expected = Run<T>(a, 1, 4).logdet();
  Matrix<T> identity(n, n);
  for (Size i = 0; i < n; ++i) {
    identity(i, i) = T(1);
  }
  for (Triangle valid : {Triangle::lower, Triangle::upper}) {
    Matrix<T> half = a;
    for (Size i = 0; i < n; ++i) {
      for (Size j = 0; j < n; ++j) {
        if (valid == Triangle::lower ? j > i : j < i) {
          half(i, j) = T(std::numeric_limits<Real<T>>::quiet_NaN());
        }
      }
    }
    for (int ranks : {1, 2, 3, 8}) {
      Run<T> run = natural<T>(half, ranks, 3, valid);
      ASSERT_EQ(run.info[0].kind, 0);
      EXPECT_NEAR(run.logdet(), expected, 1000 * std::numeric_limits<Real<T>>::epsilon());
      EXPECT_LE(solve_residual(a, identity, run.inverted()), 25);
    }
  }
}

TYPED_TEST(NaturalTest, TheFailingMinorNeedsNoSearch) {
  using T = TypeParam;
  const Size n = 24;
  for (int ranks : {1, 2, 3, 8}) {
    for (Size k : {0, 1, 7, 8, 23}) {
      Matrix<T> a = random_hpd<T>(n, 7);
      a(k, k) = T(-1);
      const Run<T> run = natural<T>(a, ranks, 3);
      for (const Info& info : run.info) {
        EXPECT_EQ(info.kind, static_cast<int>(Kind::not_positive_definite));
        EXPECT_EQ(status(info), k + 1);
        EXPECT_EQ(info.phase, static_cast<int>(Phase::natural_order));
      }
    }
  }
}

}  // namespace
}  // namespace jaxmg::test
