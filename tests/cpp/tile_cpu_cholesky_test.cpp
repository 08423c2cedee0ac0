// The Cholesky factor of a CPU tile.
#include "tile/cpu/cpu.h"
#include "tile/cpu/pool.h"
#include "tile_matrix.h"

namespace jaxmg::testing {
namespace {

using tile::Cpu;

constexpr auto kFailed = static_cast<std::int32_t>(Kind::not_positive_definite);

// A lower triangular matrix with diagonal about 2; NaN above.
template <class T>
Matrix<T> factor_of(Size n) {
  auto l = triangle<T>(Uplo::lower, Diag::non_unit, n, 11);
  for (Size i = 0; i < n; ++i) {
    l(i, i) = T(std::real(l(i, i)));
  }
  return l;
}

// Lower triangle of L D L^H, D being 1 but for d[failing] = -1; NaN above, and in the imaginary
// parts of the diagonal something that must be ignored.
template <class T>
Matrix<T> matrix_of(const Matrix<T>& l, Size failing = -1) {
  const Size n = l.n;
  Matrix<T> a(n, n);
  for (Size j = 0; j < n; ++j) {
    for (Size i = j; i < n; ++i) {
      T sum(0);
      for (Size k = 0; k <= j; ++k) {
        sum += (k == failing ? T(-1) : T(1)) * l(i, k) * conjugate(l(j, k));
      }
      a(i, j) = sum;
    }
    a(j, j) = number<T>(std::real(a(j, j)), 17);
  }
  return a;
}

template <class T>
class Cholesky : public ::testing::Test {
 protected:
  void SetUp() override { tile::set_pool_threads(3); }

  Info factor(Matrix<T>& a, Size position = 0) {
    Info info;
    Cpu::potrf(lane, a.n, a.get(), a.ld, position, &info);
    return info;
  }

  Cpu::Lane lane{tile::Priority::high};
};
TYPED_TEST_SUITE(Cholesky, ElementTypes);

TYPED_TEST(Cholesky, FindsTheFactorAndTouchesNothingElse) {
  using T = TypeParam;
  for (Size n : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 33, 64, 130, 600}) {
    const auto l = factor_of<T>(n);
    auto a = matrix_of(l);
    EXPECT_EQ(this->factor(a).kind, 0) << n;
    double error = 0;
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < n; ++i) {
        if (i < j) {
          ASSERT_TRUE(is_nan(a(i, j))) << i << ", " << j;
        } else {
          const double d = std::abs(a(i, j) - l(i, j));
          error = std::isnan(d) ? INFINITY : std::max(error, d);
        }
      }
      ASSERT_EQ(std::imag(a(j, j)), 0);
    }
    EXPECT_LE(error, 16 * epsilon<T> * static_cast<double>(n + 2)) << n;
    EXPECT_TRUE(a.padding_untouched());
  }
}

TYPED_TEST(Cholesky, NamesTheFirstFailingMinor) {
  using T = TypeParam;
  const auto check = [this](Size n, Size failing) {
    auto a = matrix_of(factor_of<T>(n), failing);
    const Info info = this->factor(a, 1000);
    EXPECT_EQ(info.kind, kFailed) << n << ", " << failing;
    EXPECT_EQ(info.position, 1000 + failing + 1) << n;
  };
  for (Size n = 1; n <= 9; ++n) {
    for (Size failing = 0; failing < n; ++failing) {
      check(n, failing);
    }
  }
  for (Size failing : {0, 1, 31, 32, 63, 64, 99, 129}) {
    check(130, failing);
  }
  for (Size failing : {319, 320}) {
    check(521, failing);
  }
}

// A zero pivot is a failure too.
TYPED_TEST(Cholesky, SingularIsNotPositiveDefinite) {
  using T = TypeParam;
  Matrix<T> a(3, 3);
  for (Size j = 0; j < 3; ++j) {
    for (Size i = j; i < 3; ++i) {
      a(i, j) = T(1);
    }
  }
  EXPECT_EQ(this->factor(a).position, 2);
}

// The first minor with something in it that is not finite fails, wherever it comes from.
TYPED_TEST(Cholesky, NotFiniteFails) {
  using T = TypeParam;
  using R = Real<T>;
  for (Size n : {1, 2, 5, 70, 521}) {
    const auto good = matrix_of(factor_of<T>(n));
    for (R bad : {std::numeric_limits<R>::quiet_NaN(), std::numeric_limits<R>::infinity()}) {
      for (const auto& [i, j] :
           {std::pair<Size, Size>{0, 0}, {n - 1, 0}, {n / 2, n / 3}, {n - 1, n - 1}}) {
        auto a = good;
        a(i, j) = T(bad);
        const Info info = this->factor(a);
        EXPECT_EQ(info.kind, kFailed) << n << ": " << bad << " at " << i << ", " << j;
        EXPECT_EQ(info.position, i + 1) << n << ": " << bad << " at " << i << ", " << j;
      }
    }
  }
}

TYPED_TEST(Cholesky, AnEarlierFailureStays) {
  using T = TypeParam;
  auto a = matrix_of(factor_of<T>(4), 2);
  Info info;
  info.kind = static_cast<std::int32_t>(Kind::non_finite);
  info.position = 5;
  Cpu::potrf(this->lane, 4, a.get(), a.ld, 0, &info);
  EXPECT_EQ(info.kind, static_cast<std::int32_t>(Kind::non_finite));
  EXPECT_EQ(info.position, 5);
}

TYPED_TEST(Cholesky, LogDeterminantAddsUp) {
  using T = TypeParam;
  const auto l = factor_of<T>(9);
  double expected = 0.5;
  for (Size i = 0; i < 9; ++i) {
    expected += 2 * std::log(std::real(l(i, i)));
  }
  Real<T> result = Real<T>(0.5);
  Cpu::log_diagonal(this->lane, 4, l.get(), l.ld, &result);
  Cpu::log_diagonal(this->lane, 5, &l(4, 4), l.ld, &result);
  Cpu::log_diagonal(this->lane, 0, l.get(), l.ld, &result);
  EXPECT_NEAR(result, expected, 64 * epsilon<T>);
}

}  // namespace
}  // namespace jaxmg::testing
