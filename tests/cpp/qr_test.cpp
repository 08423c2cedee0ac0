// QR factorisation, its factors in full, products with Q and least squares on thread ranks.
#include <gtest/gtest.h>

#include <cstring>

#include "qr_run.h"

namespace jaxmg::test {
namespace {

template <class T>
using Run = QrRun<T>;

template <class T>
void expect_qr(const Matrix<T>& a, int ranks, Size tile) {
  SCOPED_TRACE("m " + std::to_string(a.rows) + " n " + std::to_string(a.cols) + " ranks " +
               std::to_string(ranks) + " tile " + std::to_string(tile));
  Run<T> run(a, ranks, tile);
  ASSERT_EQ(run.info[0].kind, 0);
  const auto r = run.r_factor();
  const auto q = run.q_factor(run.k(), false);
  expect_factors(a, q, r);
  if (a.rows >= a.cols) {
    EXPECT_EQ(run.q_factor(a.cols, true).data, q.data);
  }
}

template <class T>
class QrTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(QrTest, Types);

TYPED_TEST(QrTest, EveryShapeOnEveryNumberOfRanks) {
  for (int ranks : {1, 2, 3, 4, 8}) {
    for (Size m : {1, 2, 3, 7, 8, 9, 17, 33}) {
      for (Size n : {1, 2, 5, 9, 17, 20}) {
        expect_qr(random_matrix<TypeParam>(m, n, 1), ranks, 4);
      }
    }
  }
}

TYPED_TEST(QrTest, EveryTile) {
  const auto square = random_matrix<TypeParam>(19, 19, 2);
  const auto tall = random_matrix<TypeParam>(41, 10, 3);
  for (int ranks : {1, 2, 4}) {
    for (Size tile = 1; tile <= 19; ++tile) {
      expect_qr(square, ranks, tile);
      expect_qr(tall, ranks, tile);
    }
  }
}

TYPED_TEST(QrTest, TheChosenTile) {
  for (int ranks : {1, 3, 8}) {
    expect_qr(random_matrix<TypeParam>(150, 140, 3), ranks, 0);
    expect_qr(random_matrix<TypeParam>(3000, 12, 4), ranks, 0);
  }
}

TYPED_TEST(QrTest, CompleteQ) {
  for (int ranks : {1, 2, 3, 8}) {
    for (Size n : {1, 4, 6, 13}) {
      const auto a = random_matrix<TypeParam>(13, n, 4);
      Run<TypeParam> run(a, ranks, 3);
      const auto q = run.q_factor(13, false);
      const auto r = run.r_factor();
      Matrix<TypeParam> whole(13, n);
      std::copy(r.data.begin(), r.data.end(), whole.data.begin());
      expect_factors(a, q, whole);
    }
  }
}

TYPED_TEST(QrTest, HardMatrices) {
  for (const auto& a : hard_matrices<TypeParam>(30, 11)) {
    for (int ranks : {1, 3, 4, 8}) {
      expect_qr(a, ranks, 4);
      expect_qr(a, ranks, 0);
    }
  }
  for (const auto& a : hard_matrices<TypeParam>(16, 16)) {
    expect_qr(a, 4, 3);
  }
}

TYPED_TEST(QrTest, ProductsWithQ) {
  using T = TypeParam;
  for (int ranks : {1, 2, 3, 8}) {
    for (auto [m, n] : {std::pair<Size, Size>{17, 6}, {9, 9}, {5, 12}}) {
      Run<T> run(random_matrix<T>(m, n, 6), ranks, 4);
      const auto q = widened(run.q_factor(run.k(), false));
      const auto c = random_matrix<T>(m, 3, 7);
      const auto small = random_matrix<T>(run.k(), 2, 8);
      const auto first = difference(product(adjoint(q), widened(c)), widened(run.times_adjoint(c)));
      const auto second = difference(product(q, widened(small)), widened(run.times_q(small)));
      EXPECT_LE(norm1(first), 25 * unit<T>(m) * norm1(c));
      EXPECT_LE(norm1(second), 25 * unit<T>(m) * norm1(small));
    }
  }
}

TYPED_TEST(QrTest, LeastSquaresAndMinimumNorm) {
  using T = TypeParam;
  for (int ranks : {1, 2, 3, 8}) {
    for (auto [m, n] : {std::pair<Size, Size>{1, 1}, {17, 6}, {12, 12}, {33, 20}}) {
      const auto a = random_matrix<T>(m, n, 6);
      Run<T> run(a, ranks, 4);
      const auto b = random_matrix<T>(m, 3, 7);
      const auto x = run.least_squares(b);
      const auto wa = widened(a);
      const auto r = difference(product(wa, widened(x)), widened(b));
      EXPECT_LE(norm1(product(adjoint(wa), r)),
                25 * unit<T>(m) * norm1(a) * (norm1(a) * norm1(x) + norm1(b)));
      // A^H y = c with y in the range of A
      const auto c = random_matrix<T>(n, 2, 8);
      const auto y = run.minimum_norm(c);
      const auto miss = difference(product(adjoint(wa), widened(y)), widened(c));
      EXPECT_LE(norm1(miss), 25 * unit<T>(m) * norm1(adjoint(wa)) * norm1(y));
      const auto q = widened(run.q_factor(n, false));
      const auto outside = difference(product(q, product(adjoint(q), widened(y))), widened(y));
      EXPECT_LE(norm1(outside), 25 * unit<T>(m) * norm1(y));
    }
  }
}

TYPED_TEST(QrTest, ManyRightHandSides) {
  using T = TypeParam;
  const auto a = random_matrix<T>(9, 4, 6);
  Run<T> run(a, 3, 4);
  const auto b = random_matrix<T>(run.m, 1100, 7);
  const auto x = run.least_squares(b);
  const auto r = difference(product(widened(a), widened(x)), widened(b));
  EXPECT_LE(norm1(product(adjoint(widened(a)), r)),
            25 * unit<T>(9) * norm1(a) * (norm1(a) * norm1(x) + norm1(b)));
}

TYPED_TEST(QrTest, NumbersThatAreNone) {
  using T = TypeParam;
  const auto nan = T(std::numeric_limits<Real<T>>::quiet_NaN());
  const auto infinity = T(std::numeric_limits<Real<T>>::infinity());
  for (const T bad : {nan, infinity}) {
    for (int ranks : {1, 3}) {
      auto a = random_matrix<T>(12, 5, 1);
      a(7, 4) = bad;
      Run<T> run(a, ranks, 2);
      for (const Info& info : run.info) {
        EXPECT_EQ(info.kind, static_cast<std::int32_t>(Kind::non_finite));
      }
      const auto r = run.r_factor();
      const auto q = run.q_factor(5, true);
      const auto x = run.least_squares(random_matrix<T>(12, 1, 2));
      EXPECT_TRUE(std::isnan(std::real(r(4, 0))));
      EXPECT_TRUE(std::isnan(std::real(q(0, 0))));
      EXPECT_TRUE(std::isnan(std::real(x(0, 0))));
    }
  }
}

TYPED_TEST(QrTest, AZeroColumnHasAPlace) {
  using T = TypeParam;
  auto a = random_matrix<T>(12, 5, 1);
  for (Size i = 0; i < 12; ++i) {
    a(i, 3) = T(0);
  }
  for (int ranks : {1, 2, 8}) {
    Run<T> run(a, ranks, 2);
    EXPECT_EQ(run.info[0].kind, 0);
    const auto x = run.least_squares(random_matrix<T>(12, 1, 2));
    EXPECT_TRUE(std::isnan(std::real(x(0, 0))));
    for (const Info& report : run.report) {
      EXPECT_EQ(report.kind, static_cast<std::int32_t>(Kind::singular));
      EXPECT_EQ(report.position, 4);
    }
  }
}

}  // namespace
}  // namespace jaxmg::test
