// Least squares by a Gram matrix: good, or left to a QR factorisation.
#include <gtest/gtest.h>

#include <cmath>

#include "gels_run.h"

namespace jaxmg::test {
namespace {

template <class T>
class GramLeastSquaresTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(GramLeastSquaresTest, Types);

template <class T>
Matrix<T> by_qr(const Matrix<T>& a, const Matrix<T>& b) {
  return QrRun<T>(a, 1, 0).least_squares(b);
}

// Singular values from 1 down to 1 / condition: A = Q D V with two orthonormal factors.
template <class T>
Matrix<T> conditioned(Size m, Size n, double condition) {
  const auto q = QrRun<T>(random_matrix<T>(m, n, 1), 1, 0).q_factor(n, false);
  auto v = QrRun<T>(random_matrix<T>(n, n, 2), 1, 0).q_factor(n, false);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      const double part = static_cast<double>(i) / static_cast<double>(std::max<Size>(1, n - 1));
      v(i, j) *= Real<T>(std::pow(condition, -part));
    }
  }
  return product(q, v);
}

template <class T>
void expect_good(const Matrix<T>& a, const Matrix<T>& b, int ranks, Size tile = 0) {
  SCOPED_TRACE("m " + std::to_string(a.rows) + " n " + std::to_string(a.cols) + " ranks " +
               std::to_string(ranks) + " tile " + std::to_string(tile));
  const auto found = gram_solution<T>(a, b, ranks, tile);
  ASSERT_TRUE(found.good());
  EXPECT_LE(normal_residual(a, found.x, b), 25);
}

TYPED_TEST(GramLeastSquaresTest, EveryShapeOnEveryNumberOfRanks) {
  for (int ranks : {1, 2, 3, 4, 8}) {
    for (auto [m, n] :
         {std::pair<Size, Size>{1, 1}, {5, 1}, {17, 4}, {33, 9}, {64, 16}, {90, 21}}) {
      for (Size nrhs : {1, 3}) {
        const auto a = random_matrix<TypeParam>(m, n, 1), b = random_matrix<TypeParam>(m, nrhs, 2);
        expect_good(a, b, ranks);
        expect_good(a, b, ranks, 4);
      }
    }
  }
}

TYPED_TEST(GramLeastSquaresTest, EveryTile) {
  const auto a = random_matrix<TypeParam>(50, 11, 1), b = random_matrix<TypeParam>(50, 2, 2);
  for (int ranks : {1, 4}) {
    for (Size tile = 1; tile <= 12; ++tile) {
      expect_good(a, b, ranks, tile);
    }
  }
}

TYPED_TEST(GramLeastSquaresTest, SumsInParts) {
  using T = TypeParam;
  for (int ranks : {1, 2}) {
    for (Size nrhs : {1, 2}) {
      for (Size m : {2 * kLeastGramRows, 3 * kLeastGramRows + 1, 7 * kLeastGramRows + 77}) {
        expect_good(random_matrix<T>(m, 6, 1), random_matrix<T>(m, nrhs, 2), ranks, 4);
      }
    }
  }
}

TYPED_TEST(GramLeastSquaresTest, AsGoodAsQr) {
  using T = TypeParam;
  using R = Real<T>;
  const double eps = std::numeric_limits<R>::epsilon();
  for (double condition : {1.0, 1e2, 1e3, 1e4, 1e5, 3e5}) {
    SCOPED_TRACE("condition " + std::to_string(condition));
    const auto a = conditioned<T>(60, 12, condition);
    const auto random = random_matrix<T>(60, 2, 5);
    // A small residual, and one as large as b.
    for (const auto& b : {product(a, random_matrix<T>(12, 2, 6)), random}) {
      const auto found = gram_solution<T>(a, b, 3);
      ASSERT_TRUE(found.good());
      EXPECT_LE(normal_residual(a, found.x, b), 25);
      const auto expected = by_qr(a, b);
      const auto r = difference(product(a, expected), b);
      // cond eps ||x|| + cond^2 eps ||r|| / ||A||, for both
      const double bound = 50 * eps * condition * (norm1(expected) + condition * norm1(r));
      EXPECT_LE(norm1(difference(found.x, expected)), bound);
    }
  }
}

TYPED_TEST(GramLeastSquaresTest, ScalesOfColumnsDoNotMatter) {
  using T = TypeParam;
  auto a = random_matrix<T>(60, 12, 1);
  const auto b = random_matrix<T>(60, 1, 2);
  const auto x = gram_solution<T>(a, b, 2);
  for (Size i = 0; i < a.rows; ++i) {
    for (Size j = 0; j < a.cols; ++j) {
      a(i, j) *= Real<T>(std::ldexp(1.0, static_cast<int>(j % 5) * 12 - 20));
    }
  }
  auto scaled = gram_solution<T>(a, b, 2);
  ASSERT_TRUE(x.good() && scaled.good());
  for (Size j = 0; j < a.cols; ++j) {
    scaled.x(j, 0) *= Real<T>(std::ldexp(1.0, static_cast<int>(j % 5) * 12 - 20));
  }
  EXPECT_EQ(0, std::memcmp(x.x.data.data(), scaled.x.data.data(), sizeof(T) * x.x.data.size()));
}

// Whatever it makes of a hard matrix is good, or it says that it is not.
TYPED_TEST(GramLeastSquaresTest, GoodOrLeftToQr) {
  using T = TypeParam;
  const auto b = random_matrix<T>(30, 2, 3);
  for (const auto& a : hard_matrices<T>(30, 11)) {
    for (int ranks : {1, 3, 8}) {
      const auto found = gram_solution<T>(a, b, ranks);
      if (found.good()) {
        EXPECT_LE(normal_residual(a, found.x, b), 25);
      } else {
        EXPECT_TRUE(std::isnan(std::real(found.x(0, 0))));
      }
    }
  }
}

TYPED_TEST(GramLeastSquaresTest, LeavesToQr) {
  using T = TypeParam;
  const auto b = random_matrix<T>(40, 1, 3);
  const auto nan = T(std::numeric_limits<Real<T>>::quiet_NaN());
  const auto infinity = T(std::numeric_limits<Real<T>>::infinity());
  const auto refused = [&](const char* what, const Matrix<T>& a, const Matrix<T>& rhs) {
    for (int ranks : {1, 2, 8}) {
      EXPECT_FALSE(gram_solution<T>(a, rhs, ranks).good()) << what;
    }
  };
  auto a = random_matrix<T>(40, 7, 1);
  const auto good = a;
  refused("condition 1e12", conditioned<T>(40, 7, 1e12), b);
  for (const T bad : {nan, infinity}) {
    a = good;
    a(33, 4) = bad;
    refused("not finite", a, b);
    auto rhs = b;
    rhs(20, 0) = bad;
    refused("b not finite", good, rhs);
  }
  a = good;
  for (Size i = 0; i < a.rows; ++i) {
    a(i, 3) = T(0);
  }
  refused("zero column", a, b);
  for (Size i = 0; i < a.rows; ++i) {
    a(i, 3) = good(i, 2);
  }
  refused("equal columns", a, b);
  if constexpr (std::is_same_v<Real<T>, double>) {
    for (const double size : {1e150, 1e-150, 1e200, 1e-200}) {
      a = good;
      for (T& x : a.data) {
        x *= size;
      }
      refused("range", a, b);
    }
  }
}

TYPED_TEST(GramLeastSquaresTest, RightHandSidesOfAnySize) {
  using T = TypeParam;
  using R = Real<T>;
  const auto a = random_matrix<T>(40, 7, 1);
  const bool is_float = std::is_same_v<R, float>;
  auto b = random_matrix<T>(40, 5, 2);
  for (Size i = 0; i < b.rows; ++i) {
    b(i, 1) = T(0);
    b(i, 2) *= is_float ? R(1e-30) : R(1e-290);
    b(i, 3) *= is_float ? R(1e30) : R(1e290);
  }
  // Next to nothing of it in the range of A.
  const auto q = QrRun<T>(a, 1, 0).q_factor(7, false);
  const auto inside = product(q, product(adjoint(q), b));
  for (Size i = 0; i < b.rows; ++i) {
    b(i, 4) -= inside(i, 4);
  }
  for (int ranks : {1, 3}) {
    const auto all = gram_solution<T>(a, b, ranks);
    ASSERT_TRUE(all.good());
    for (Size j = 0; j < b.cols; ++j) {
      SCOPED_TRACE("column " + std::to_string(j));
      Matrix<T> one(b.rows, 1), x(a.cols, 1);
      const double scale = j == 2   ? (is_float ? 1e30 : 1e290)
                           : j == 3 ? (is_float ? 1e-30 : 1e-290)
                                    : 1;
      for (Size i = 0; i < b.rows; ++i) {
        one(i, 0) = b(i, j) * R(scale);
      }
      for (Size i = 0; i < a.cols; ++i) {
        x(i, 0) = all.x(i, j) * R(scale);
      }
      EXPECT_LE(normal_residual(a, x, one), 25);
    }
    EXPECT_EQ(all.x(0, 1), T(0));
  }
}

TYPED_TEST(GramLeastSquaresTest, ManyRightHandSides) {
  using T = TypeParam;
  expect_good(random_matrix<T>(30, 5, 1), random_matrix<T>(30, 1100, 2), 3);
}

TEST(GramVerdictTest, CorrectionsSettle) {
  using State = Corrections::State;
  const auto judge = [](std::vector<double> slopes) {
    Corrections corrections(1, 1e-16);
    State state = State::shrinking;
    for (std::size_t i = 1; i < slopes.size() && state == State::shrinking; ++i) {
      state = corrections.judge(static_cast<int>(i), &slopes[i - 1], &slopes[i]);
    }
    return state;
  };
  EXPECT_EQ(judge({1, 1e-9}), State::settled);
  EXPECT_EQ(judge({1, 1e-3}), State::shrinking);
  EXPECT_EQ(judge({1, 1e-3, 1e-6, 1e-9}), State::shrinking);
  EXPECT_EQ(judge({1, 1e-3, 1e-6, 1e-9, 1e-14}), State::settled);
  EXPECT_EQ(judge({1e-16, 0.9e-16}), State::shrinking);
  EXPECT_EQ(judge({1e-16, 0.9e-16, 0.8e-16}), State::settled);
  EXPECT_EQ(judge({0, 0}), State::settled);
  EXPECT_EQ(judge({1, 1, 20}), State::shrinking);
  EXPECT_EQ(judge({1, NAN}), State::doubtful);
  EXPECT_EQ(judge({INFINITY, 1}), State::doubtful);
}

TEST(GramVerdictTest, Condition) {
  EXPECT_TRUE(is_well_conditioned(2, std::vector<double>{4, 1e-20, 0.5, 1e10}.data()));
  EXPECT_FALSE(is_well_conditioned(2, std::vector<double>{4, 1, 0.5, 1e6}.data()));
  EXPECT_FALSE(is_well_conditioned(2, std::vector<double>{0, 1, 0.5, 1}.data()));
  EXPECT_FALSE(is_well_conditioned(2, std::vector<double>{1, NAN, 0.5, 1}.data()));
  EXPECT_FALSE(is_well_conditioned(2, std::vector<double>{1, INFINITY, 0.5, 0}.data()));
  EXPECT_FALSE(is_well_conditioned(2, std::vector<double>{1e201, 1, 0, 1}.data()));
}

}  // namespace
}  // namespace jaxmg::test
