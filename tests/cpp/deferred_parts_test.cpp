// Factors by half-precision parts beside native ones, on matrices that are hard for a narrow range
// of exponents and for rounding: lanes that run late split numbers as GPUs do.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "cholesky_run.h"
#include "deferred_ranks.h"
#include "lu_run.h"

namespace jaxmg::test {
namespace {

constexpr double kMostTimesNative = 4;
constexpr double kNegligible = 1e-10;  // of residuals that are to be below 25

TEST(Half, EveryNumberAndRounding) {
  for (int bits = 0; bits < 0x7c00; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float x = from_half(half);
    EXPECT_EQ(to_half(x), half);
    EXPECT_EQ(to_half(-x), half | 0x8000);
    const float next = bits == 0x7bff ? 65536.0F : from_half(static_cast<std::uint16_t>(bits + 1));
    const float middle = (x + next) / 2;  // to even
    EXPECT_EQ(to_half(middle), bits % 2 == 0 ? half : half + 1);
    EXPECT_EQ(to_half(std::nextafter(middle, 0.0F)), half);
    EXPECT_EQ(to_half(std::nextafter(middle, 1e6F)), half + 1);
  }
  EXPECT_TRUE(std::isinf(from_half(to_half(1e6F))));
  EXPECT_TRUE(std::isnan(from_half(to_half(std::nanf("")))));
  EXPECT_EQ(from_half(0x3c00), 1.0F);
  EXPECT_EQ(from_half(0xc000), -2.0F);
}

// Of the last two the square roots of the diagonal go to the ends of what needs no scaling, and
// beyond.
enum class Shape { plain, graded, badly_scaled, ill_conditioned, huge, wide, wider };

// log2 of the square root of diagonal element k.
double size_of_row(Shape kind, Size k) {
  constexpr std::array<double, 4> wide = {5.45, 0.2, -4.45, 5};
  constexpr std::array<double, 4> wider = {5.6, 0.2, -5, -4};
  return (kind == Shape::wide ? wide : wider)[static_cast<std::size_t>(k % 4)];
}

double part_of(Size k, Size n) {
  return static_cast<double>(k) / static_cast<double>(n);
}

template <class T>
Matrix<T> hermitian(Shape kind, Size n) {
  Matrix<T> a = random_hpd<T>(n, 3);
  if (kind == Shape::ill_conditioned) {
    // X X^H + 1e-5 I with columns of X that become smaller and smaller.
    const auto x = random_matrix<T>(n, n, 9);
    for (Size i = 0; i < n; ++i) {
      for (Size j = 0; j < n; ++j) {
        T sum = T(0);
        for (Size k = 0; k < n; ++k) {
          const auto size = static_cast<Real<T>>(std::exp2(-16.0 * part_of(k, n)));
          sum += x(i, k) * conjugate(x(j, k)) * size;
        }
        a(i, j) = i == j ? T(std::real(sum) + Real<T>(1e-5)) : sum;
        if (j < i) {
          a(j, i) = conjugate(a(i, j));
        }
      }
    }
    return a;
  }
  std::vector<double> diagonal;
  for (Size i = 0; i < n; ++i) {
    diagonal.push_back(std::real(a(i, i)));
  }
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      const auto exponent = [&](Size k) {
        return kind >= Shape::wide
                   ? size_of_row(kind, k) - std::log2(diagonal[static_cast<std::size_t>(k)]) / 2
               : kind == Shape::graded       ? -30.0 * part_of(k, n)
               : kind == Shape::badly_scaled ? static_cast<double>(k * 7 % 41) - 20.0
               : kind == Shape::huge         ? 50.0
                                             : 0.0;
      };
      a(i, j) *= static_cast<Real<T>>(std::exp2(exponent(i) + exponent(j)));
    }
  }
  return a;
}

// max |A - L L^H|_ij / sqrt(a_ii a_jj) / (n eps): badly scaled rows count as others.
template <class T>
double scaled_residual(const Matrix<T>& a, const test::Run<T, Deferred>& run) {
  std::vector<double> scale;
  for (Size i = 0; i < a.rows; ++i) {
    scale.push_back(1 / std::sqrt(std::real(a(i, i))));
  }
  std::vector<Size> p;
  const Matrix<T> l = run.lower(&p);
  double largest = 0;
  for (Size i = 0; i < a.rows; ++i) {
    for (Size j = 0; j <= i; ++j) {
      const auto row = static_cast<std::size_t>(p[static_cast<std::size_t>(i)]);
      const auto column = static_cast<std::size_t>(p[static_cast<std::size_t>(j)]);
      std::complex<double> sum(a(static_cast<Size>(row), static_cast<Size>(column)));
      for (Size k = 0; k <= j; ++k) {
        sum -= std::complex<double>(l(i, k)) * std::conj(std::complex<double>(l(j, k)));
      }
      largest = std::max(largest, std::abs(sum) * scale[row] * scale[column]);
    }
  }
  const double eps = std::numeric_limits<Real<T>>::epsilon();
  return largest / (static_cast<double>(a.rows) * eps);
}

// Residuals of the solution and of the factor, native and by parts.
template <class T>
void expect_near_native(const Matrix<T>& a, int ranks, Size tile) {
  const auto b = random_matrix<T>(a.rows, 2, 5);
  const auto run = [&](Precision precision) {
    return Run<T, Deferred>(a, ranks, tile, Triangle::whole, 2, Order::relabelled, 1, precision);
  };
  auto native = run(Precision::native);
  auto parts = run(Precision::split);
  ASSERT_EQ(native.info[0].kind, 0);
  ASSERT_EQ(parts.info[0].kind, 0);
  EXPECT_LE(solve_residual(a, b, parts.solve(b, true)),
            kMostTimesNative * solve_residual(a, b, native.solve(b, true)) + kNegligible);
  EXPECT_LE(scaled_residual(a, parts), kMostTimesNative * scaled_residual(a, native));
}

// In natural order too, for which tiles are dealt out to the ranks in turn.
template <class T>
void expect_natural_near_native(Shape kind, int ranks) {
  const auto a = hermitian<T>(kind, 75);
  const auto run = [&](Precision precision) {
    return Run<T, Deferred>(a, ranks, 8, Triangle::whole, 1, Order::natural, 1, precision);
  };
  const auto native = run(Precision::native);
  const auto parts = run(Precision::split);
  ASSERT_EQ(parts.info[0].kind, 0);
  EXPECT_LE(scaled_residual(a, parts), kMostTimesNative * scaled_residual(a, native));
}

template <class T>
void expect_hermitian_near_native() {
  for (const Shape kind : {Shape::plain, Shape::graded, Shape::badly_scaled, Shape::ill_conditioned,
                           Shape::huge, Shape::wide, Shape::wider}) {
    SCOPED_TRACE(static_cast<int>(kind));
    for (const int ranks : {1, 3}) {
      expect_near_native(hermitian<T>(kind, 160), ranks, 16);
      expect_natural_near_native<T>(kind, ranks);
    }
  }
}

TEST(DeferredParts, RealCholeskyIsNearNative) {
  expect_hermitian_near_native<float>();
}

TEST(DeferredParts, ComplexCholeskyIsNearNative) {
  expect_hermitian_near_native<std::complex<float>>();
}

// What is left of a by UnitDiagonal::scale, and by undoing it; order: that of elimination.
template <class T>
std::array<Matrix<T>, 2> scaled_and_back(const Matrix<T>& a, int ranks, Size tile, Order order) {
  PlanRequest request{.routine = Routine::potrf, .type = dtype_of<T>, .n = a.rows, .ranks = ranks};
  request.tile = tile;
  request.order = order;
  request.precision = Precision::split;
  request.platform = Platform::cuda;
  const Plan plan(request);
  const Distribution dist = plan.distribution();
  std::array<std::vector<Matrix<T>>, 2> left;
  for (auto& shards : left) {
    for (int r = 0; r < ranks; ++r) {
      shards.push_back(rows_of_rank(a, dist, r, false));
    }
  }
  run_plan<Deferred>(plan, [&](Rank<Deferred>& rank, std::size_t r) {
    auto& lane = rank.lanes.update;
    T* const mine = left[1][r].data.data();
    T* const scaled = left[0][r].data.data();
    const Size own = dist.local_size(static_cast<int>(r));
    UnitDiagonal<Deferred, T> unit(rank, dist);
    unit.scale(mine);
    Deferred::copy<T>(lane, a.rows, own, mine, a.rows, scaled, a.rows);
    unit.unscale_factor(mine);
  });
  return {joined_rows(left[0], dist, false), joined_rows(left[1], dist, false)};
}

// Nothing is touched up to the bounds. Beyond them the diagonal is brought to about 1, and what is
// above the diagonal tiles, whatever the order, is left alone.
template <class T>
void expect_scaled_if_needed() {
  for (const int ranks : {1, 3}) {
    for (const Order order : {Order::relabelled, Order::natural}) {
      for (const Shape kind : {Shape::wide, Shape::wider}) {
        const Size n = 45;
        const Size tile = 4;
        auto a = hermitian<T>(kind, n);
        a(7, 7) = T(-3);  // nothing to go by
        a(8, 8) = T(0);
        const auto [scaled, back] = scaled_and_back(a, ranks, tile, order);
        if (kind == Shape::wide) {
          EXPECT_EQ(scaled.data, a.data);
          EXPECT_EQ(back.data, a.data);
          continue;
        }
        Size touched = 0;
        for (Size i = 0; i < n; ++i) {
          const auto size = std::real(scaled(i, i));
          if (i == 7 || i == 8) {
            EXPECT_EQ(scaled(i, i), a(i, i));
          } else {
            EXPECT_GE(size, Real<T>(0.49));
            EXPECT_LE(size, Real<T>(2.01));
          }
          for (Size j = 0; j < n; ++j) {
            touched += scaled(i, j) != a(i, j) ? 1 : 0;
          }
        }
        EXPECT_GT(touched, n * n / 4);
        EXPECT_LT(touched, n * n * 2 / 3);
      }
    }
  }
}

TEST(DeferredParts, DiagonalsThatAreScaledAndThoseThatAreNot) {
  expect_scaled_if_needed<float>();
  expect_scaled_if_needed<std::complex<float>>();
}

// Without the scaling the parts of these numbers would be zero, or infinite.
TEST(DeferredParts, ComplexFactorsOfTinyMatrices) {
  using T = std::complex<float>;
  auto a = hermitian<T>(Shape::plain, 40);
  for (T& x : a.data) {
    x *= 0x1p-100F;
  }
  expect_near_native(a, 2, 8);
}

TEST(DeferredParts, MatricesThatAreNotPositiveDefinite) {
  using T = std::complex<float>;
  for (const Shape kind : {Shape::plain, Shape::badly_scaled, Shape::wide, Shape::wider}) {
    for (const float sign : {-1.0F, 0.0F}) {
      auto a = hermitian<T>(kind, 60);
      a(41, 41) *= sign;
      test::Run<T, Deferred> run(a, 3, 8, Triangle::whole, 1, Order::relabelled, 1,
                                 Precision::split);
      EXPECT_EQ(run.info[0].kind, static_cast<int>(Kind::not_positive_definite));
      EXPECT_EQ(status(run.locate()), 42);
    }
    auto a = hermitian<T>(kind, 60);
    a(41, 41) = std::numeric_limits<Real<T>>::quiet_NaN();
    test::Run<T, Deferred> run(a, 3, 8, Triangle::whole, 1, Order::relabelled, 1, Precision::split);
    EXPECT_EQ(run.info[0].kind, static_cast<int>(Kind::non_finite));
  }
}

template <class T>
Matrix<T> general(Shape kind, Size n) {
  Matrix<T> a = random_matrix<T>(n, n, 3);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      const double rows = kind == Shape::graded         ? -20.0 * part_of(i, n)
                          : kind == Shape::badly_scaled ? static_cast<double>(i % 41) - 20.0
                                                        : 0.0;
      const double columns = kind == Shape::badly_scaled ? static_cast<double>(j % 37) - 18.0 : 0.0;
      a(i, j) *= static_cast<Real<T>>(std::exp2(rows + columns));
      if (kind == Shape::ill_conditioned) {  // growth by 2 with each step, as far as it goes
        a(i, j) = i == j || j == n - 1 ? T(1) : i > j && j < 20 ? T(-1) : T(0);
      }
    }
  }
  return a;
}

template <class T>
void expect_general_near_native() {
  for (const Shape kind :
       {Shape::plain, Shape::graded, Shape::badly_scaled, Shape::ill_conditioned}) {
    SCOPED_TRACE(static_cast<int>(kind));
    const auto a = general<T>(kind, 150);
    const auto b = random_matrix<T>(a.rows, 2, 5);
    for (const int ranks : {1, 3}) {
      LuRun<T, Deferred> native(a, ranks, 16);
      LuRun<T, Deferred> parts(a, ranks, 16, false, Precision::split);
      ASSERT_EQ(native.info[0].kind, 0);
      ASSERT_EQ(parts.info[0].kind, 0);
      EXPECT_LE(solve_residual(a, b, parts.solve(b, true)),
                kMostTimesNative * solve_residual(a, b, native.solve(b, true)) + kNegligible);
    }
  }
}

TEST(DeferredParts, RealLuIsNearNative) {
  expect_general_near_native<float>();
}

TEST(DeferredParts, ComplexLuIsNearNative) {
  expect_general_near_native<std::complex<float>>();
}

}  // namespace
}  // namespace jaxmg::test
