// Updates and downdates of Cholesky factors in both orders.
#include "cholesky_run.h"

namespace jaxmg::test {
namespace {

template <class T>
class UpdateTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(UpdateTest, Types);

// a + sign v v^H
template <class T>
Matrix<T> changed(const Matrix<T>& a, const Matrix<T>& v, double sign) {
  Matrix<T> out = a;
  for (Size i = 0; i < a.rows; ++i) {
    for (Size j = 0; j < a.rows; ++j) {
      for (Size k = 0; k < v.cols; ++k) {
        out(i, j) += static_cast<Real<T>>(sign) * v(i, k) * conjugate(v(j, k));
      }
    }
  }
  return out;
}

template <class T>
void expect_factor_of(const Matrix<T>& a, Run<T>& run) {
  ASSERT_EQ(run.info[0].kind, 0);
  EXPECT_LE(factor_residual(a, run), 25);
  const auto b = random_matrix<T>(a.rows, 2, 5);
  EXPECT_LE(solve_residual(a, b, run.solve(b, true)), 25);
}

TYPED_TEST(UpdateTest, EverySizeRanksTileAndNumberOfColumns) {
  using T = TypeParam;
  for (Order order : {Order::relabelled, Order::natural}) {
    for (int ranks : {1, 2, 3, 8}) {
      for (Size n : {1, 2, 9, 26}) {
        for (Size tile : {Size{1}, Size{4}, Size{0}}) {
          for (Size k : {1, 3}) {
            SCOPED_TRACE("n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                         std::to_string(tile) + " columns " + std::to_string(k));
            const auto a = random_hpd<T>(n, 1);
            const auto v = random_matrix<T>(n, k, 2);
            const auto more = changed(a, v, 1);
            Run<T> run(a, ranks, tile, Triangle::whole, 0, order);
            run.update(v, false);
            expect_factor_of(more, run);
            // Rounding is that of the larger matrix.
            const double scale = norm1(a) / norm1(more);
            run.update(v, true);
            EXPECT_LE(factor_residual(a, run) * scale, 25);
            Run<T> down(more, ranks, tile, Triangle::whole, 0, order);
            down.update(v, true);
            EXPECT_LE(factor_residual(a, down) * scale, 25);
          }
        }
      }
    }
  }
}

TYPED_TEST(UpdateTest, MoreColumnsThanGoTogetherAndTilesOfSeveralBlocks) {
  using T = TypeParam;
  const Size n = 150;
  const auto a = random_hpd<T>(n, 1);
  for (int ranks : {1, 2}) {
    for (Size k : {Size{0}, kUpdateColumns, kUpdateColumns + 5}) {
      const auto v = random_matrix<T>(n, k, 2);
      Run<T> run(a, ranks, 75);
      run.update(v, false);
      expect_factor_of(changed(a, v, 1), run);
    }
  }
}

TYPED_TEST(UpdateTest, UpdatesThatDwarfTheMatrix) {
  using T = TypeParam;
  const Size n = 20;
  Matrix<T> a(n, n);
  for (Size i = 0; i < n; ++i) {
    a(i, i) = T(1);
  }
  auto v = random_matrix<T>(n, 2, 2);
  const auto big = static_cast<Real<T>>(std::is_same_v<Real<T>, float> ? 1e6 : 1e12);
  for (T& x : v.data) {
    x *= big;
  }
  for (int ranks : {1, 3}) {
    Run<T> run(a, ranks, 3);
    run.update(v, false);
    ASSERT_EQ(run.info[0].kind, 0);
    EXPECT_LE(factor_residual(changed(a, v, 1), run), 25);
  }
}

TYPED_TEST(UpdateTest, ADowndateThatLosesDefinitenessNamesThePlace) {
  using T = TypeParam;
  const Size n = 18;
  const auto a = random_hpd<T>(n, 3);
  for (int ranks : {1, 2, 5}) {
    for (Size k : {0, 4, 17}) {
      Matrix<T> v(n, 1);
      v(k, 0) = T(static_cast<Real<T>>(std::sqrt(std::real(a(k, k))) * 2));
      Run<T> run(a, ranks, 3, Triangle::whole, 0, Order::natural);
      run.update(v, true);
      for (const Info& info : run.info) {
        EXPECT_EQ(info.kind, static_cast<int>(Kind::not_positive_definite));
        EXPECT_EQ(status(info), k + 1);
      }
      for (const T& value : run.solve(random_matrix<T>(n, 1, 1), true).data) {
        EXPECT_TRUE(std::isnan(std::real(value)));
      }
    }
  }
}

TYPED_TEST(UpdateTest, NearlySingularDowndatesStayStable) {
  using T = TypeParam;
  const Size n = 30;
  const auto a = random_hpd<T>(n, 3);
  auto v = random_matrix<T>(n, 1, 9);
  for (T& x : v.data) {
    x *= static_cast<Real<T>>(100);
  }
  // A + V V^H loses V again: what remains is A to within the rounding of the sum.
  for (int ranks : {1, 4}) {
    Run<T> run(a, ranks, 4);
    run.update(v, false);
    run.update(v, true);
    ASSERT_EQ(run.info[0].kind, 0);
    const double scale = norm1(changed(a, v, 1)) / norm1(a);
    EXPECT_LE(factor_residual(a, run), 25 * scale);
  }
}

TYPED_TEST(UpdateTest, AFailedFactorStaysFailed) {
  using T = TypeParam;
  auto a = random_hpd<T>(10, 3);
  a(4, 4) = T(-1);
  Run<T> run(a, 2, 2);
  const Info before = run.info[0];
  run.update(random_matrix<T>(10, 1, 1), false);
  EXPECT_EQ(run.info[1].kind, before.kind);
  EXPECT_EQ(run.info[1].position, before.position);
}

}  // namespace
}  // namespace jaxmg::test
