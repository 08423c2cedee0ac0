// LU factorisation, solutions, determinants and failure reports on thread ranks.
#include <gtest/gtest.h>

#include <numeric>

#include "lu_run.h"
#include "tile/cpu/pool.h"

namespace jaxmg::test {
namespace {

template <class T>
using Run = LuRun<T>;

template <class T>
class LuTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(LuTest, Types);

template <class T>
void expect_solves(const Matrix<T>& a, int ranks, Size tile, bool natural = false) {
  SCOPED_TRACE("n " + std::to_string(a.rows) + " ranks " + std::to_string(ranks) + " tile " +
               std::to_string(tile));
  Run<T> run(a, ranks, tile, natural);
  ASSERT_EQ(run.info[0].kind, 0);
  const Matrix<T> b = random_matrix<T>(a.rows, 3, 5);
  const Matrix<T> t = transposed(a);
  for (const bool replicated : {true, false}) {
    EXPECT_LE(solve_residual(a, b, run.solve(b, replicated)), 25);
    EXPECT_LE(solve_residual(t, b, run.solve(b, replicated, true)), 25);
  }
}

TYPED_TEST(LuTest, SolvesEverySizeOnEveryNumberOfRanks) {
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    for (Size n : {1, 2, 3, 7, 8, 9, 17, 33}) {
      expect_solves(random_matrix<TypeParam>(n, n, 1), ranks, 4);
    }
  }
}

TYPED_TEST(LuTest, SolvesWithEveryTile) {
  const auto a = random_matrix<TypeParam>(19, 19, 2);
  for (int ranks : {1, 2, 4}) {
    for (Size tile = 1; tile <= 19; ++tile) {
      expect_solves(a, ranks, tile);
    }
  }
}

TYPED_TEST(LuTest, SolvesInNaturalOrder) {
  const auto a = random_matrix<TypeParam>(19, 19, 2);
  for (int ranks : {2, 3, 8}) {
    for (Size tile = 1; tile <= 7; ++tile) {
      expect_solves(a, ranks, tile, true);
    }
  }
}

TYPED_TEST(LuTest, SolvesWithTheChosenTile) {
  for (int ranks : {1, 3, 8}) {
    expect_solves(random_matrix<TypeParam>(257, 257, 3), ranks, 0);
  }
}

TYPED_TEST(LuTest, PanelsWiderThanALeaf) {
  tile::set_pool_threads(3);
  expect_solves(random_matrix<TypeParam>(300, 300, 3), 2, 150);
  tile::set_pool_threads(0);
}

TYPED_TEST(LuTest, ManyRightHandSidesInSeveralBlocks) {
  const auto a = random_matrix<TypeParam>(23, 23, 6);
  Run<TypeParam> run(a, 3, 4);
  for (Size nrhs : {Size{0}, Size{1}, Size{512}, Size{700}}) {
    const auto b = random_matrix<TypeParam>(23, nrhs, 8);
    for (const bool replicated : {true, false}) {
      EXPECT_LE(solve_residual(a, b, run.solve(b, replicated)), 25);
      EXPECT_LE(solve_residual(transposed(a), b, run.solve(b, replicated, true)), 25);
    }
  }
}

// P M Q = L U element by element, with multipliers of at most 1.
TYPED_TEST(LuTest, FactorsAreThoseOfTheTransposedMatrix) {
  using T = TypeParam;
  const Size n = 29;
  const auto a = random_matrix<T>(n, n, 4);
  for (const bool natural : {false, true}) {
    for (int ranks : {1, 2, 3, 8}) {
      for (Size tile : {Size{1}, Size{3}, Size{29}}) {
        const Run<T> run(a, ranks, tile, natural);
        const Distribution dist = Plan(run.make_request(Routine::getrf)).distribution();
        std::vector<Size> order;
        for (const Tile t : dist.elimination_order()) {
          for (Size i = 0; i < dist.rows(t); ++i) {
            order.push_back(*dist.global_begin(t) + i);
          }
        }
        double error = 0;
        for (Size i = 0; i < n; ++i) {
          const Size row = run.pivots[0][static_cast<std::size_t>(n + i)];
          for (Size j = 0; j < n; ++j) {
            T sum(0);
            for (Size k = 0; k <= std::min(i, j); ++k) {
              sum += (k == i ? T(1) : run.factor(i, k)) * run.factor(k, j);
            }
            const Size column = order[static_cast<std::size_t>(j)];
            error = std::max<double>(error, std::abs(sum - a(column, row)));
            if (j < i) {
              EXPECT_LE(std::abs(run.factor(i, j)), is_complex_v<T> ? 1.5 : 1.0001);
            }
          }
        }
        EXPECT_LE(error, 200 * std::numeric_limits<Real<T>>::epsilon())
            << "ranks " << ranks << " tile " << tile << " natural " << natural;
      }
    }
  }
}

// Permutation matrices have determinants 1 and -1 that nothing can blur: all of order 4, and
// random ones, some with ragged tiles, some with odd orders of elimination.
TYPED_TEST(LuTest, SignsOfPermutations) {
  using T = TypeParam;
  const auto check = [](const std::vector<Size>& image, int ranks, Size tile, T scale) {
    const auto n = static_cast<Size>(image.size());
    Matrix<T> a(n, n);
    int inversions = 0;
    for (Size i = 0; i < n; ++i) {
      a(i, image[static_cast<std::size_t>(i)]) = i == 0 ? scale : T(1);
      for (Size j = 0; j < i; ++j) {
        inversions += image[static_cast<std::size_t>(j)] > image[static_cast<std::size_t>(i)];
      }
    }
    const auto [sign, log] = Run<T>(a, ranks, tile).determinant();
    const T expected = scale / std::abs(scale) * (inversions % 2 == 0 ? T(1) : T(-1));
    EXPECT_LE(std::abs(sign - expected), 1e-6)
        << "n " << n << " ranks " << ranks << " tile " << tile;
    EXPECT_NEAR(log, std::log(std::abs(scale)), 1e-6);
  };
  for (int ranks = 1; ranks <= 8; ++ranks) {
    std::vector<Size> image = {0, 1, 2, 3};
    do {
      check(image, ranks, 1, T(2));
    } while (std::ranges::next_permutation(image).found);
    for (Size n : {2, 5, 9, 13, 20, 27}) {
      for (Size tile : {Size{1}, Size{2}, Size{3}}) {
        image.resize(static_cast<std::size_t>(n));
        std::iota(image.begin(), image.end(), Size{0});
        check(image, ranks, tile, T(-3));
        for (Size i = n - 1; i > 0; --i) {
          const auto j =
              static_cast<Size>((random_number(9, 3, static_cast<std::uint64_t>(i)) + 0.5) *
                                static_cast<double>(i + 1));
          std::swap(image[static_cast<std::size_t>(i)], image[static_cast<std::size_t>(j)]);
        }
        T scale(1);
        if constexpr (is_complex_v<T>) {
          scale = T(3, -4);
        }
        check(image, ranks, tile, scale);
      }
    }
  }
}

TYPED_TEST(LuTest, DeterminantOfASingularMatrixIsZero) {
  using T = TypeParam;
  auto a = random_matrix<T>(11, 11, 3);
  for (Size j = 0; j < 11; ++j) {
    a(6, j) = T(0);
  }
  for (int ranks : {1, 3}) {
    const auto [sign, log] = Run<T>(a, ranks, 2).determinant();
    EXPECT_EQ(sign, T(0));
    EXPECT_EQ(log, -std::numeric_limits<double>::infinity());
  }
}

// Of several dependent equations, the first in the order of elimination.
TYPED_TEST(LuTest, NamesTheDependentEquation) {
  using T = TypeParam;
  const Size n = 13;
  for (int ranks : {1, 2, 3, 8}) {
    for (Size tile : {Size{1}, Size{2}, Size{5}}) {
      for (Size row = 0; row < n; ++row) {
        const Size other = (row + 5) % n;
        auto a = random_matrix<T>(n, n, 7);
        for (Size j = 0; j < n; ++j) {
          a(row, j) = a(other, j) = T(0);
        }
        Run<T> run(a, ranks, tile);
        EXPECT_EQ(run.info[0].kind, static_cast<int>(Kind::singular));
        const Distribution dist = Plan(run.make_request(Routine::getrf)).distribution();
        const auto step = [&](Size g) {
          const GlobalIndex index(g);
          const Tile t{dist.owner(index), dist.tile_of(dist.local(index))};
          return dist.eliminated(dist.step(t)) + *dist.local(index) % dist.tile_size();
        };
        EXPECT_EQ(status(run.info[0]), (step(row) < step(other) ? row : other) + 1)
            << "ranks " << ranks << " tile " << tile;
        for (const bool transpose : {false, true}) {
          for (const T& value : run.solve(random_matrix<T>(n, 2, 1), true, transpose).data) {
            EXPECT_TRUE(std::isnan(std::real(value)));
          }
        }
      }
    }
  }
}

TYPED_TEST(LuTest, TellsWhatIsNotFinite) {
  using T = TypeParam;
  using R = Real<T>;
  for (R bad : {std::numeric_limits<R>::quiet_NaN(), std::numeric_limits<R>::infinity()}) {
    for (int ranks : {1, 4}) {
      for (auto [i, j] : {std::pair<Size, Size>{0, 0}, {39, 39}, {3, 30}, {30, 3}}) {
        auto a = random_matrix<T>(40, 40, 7);
        a(i, j) = T(bad);
        Run<T> run(a, ranks, 8);
        EXPECT_EQ(run.info[0].kind, static_cast<int>(Kind::non_finite));
        const auto [sign, log] = run.determinant();
        EXPECT_TRUE(std::isnan(std::real(sign)) && std::isnan(log));
      }
    }
  }
}

// Growth to 2^(n-1) is what partial pivoting may do; the backward error must stay what it is for
// triangular solves.
TYPED_TEST(LuTest, GrowthMatricesAndBadScales) {
  using T = TypeParam;
  using R = Real<T>;
  const Size n = 24;
  Matrix<T> wilkinson(n, n), kahan(n, n);
  const R s = R(0.9), c = std::sqrt(1 - s * s);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      wilkinson(i, j) = j > i ? T(0) : T(i == j ? R(1) : R(-1));
      kahan(i, j) = j < i ? T(0) : T(std::pow(s, static_cast<R>(i)) * (i == j ? R(1) : -c));
    }
    wilkinson(i, n - 1) = T(1);
  }
  const double big = std::is_same_v<R, float> ? 1e15 : 1e150;
  for (int ranks : {1, 3, 8}) {
    const double growth = std::pow(2.0, static_cast<double>(n - 1)) / static_cast<double>(n);
    for (const auto& [a, limit] :
         std::vector<std::pair<Matrix<T>, double>>{{wilkinson, growth},
                                                   {transposed(wilkinson), growth},
                                                   {kahan, 25},
                                                   {transposed(kahan), 25}}) {
      Run<T> run(a, ranks, 3);
      ASSERT_EQ(run.info[0].kind, 0);
      const auto b = random_matrix<T>(n, 1, 5);
      EXPECT_LE(solve_residual(transposed(a), b, run.solve(b, true, true)), limit);
      EXPECT_LE(solve_residual(a, b, run.solve(b, true)), limit);
    }
    for (double scale : {big, 1 / big}) {
      auto a = random_matrix<T>(n, n, 8);
      for (T& x : a.data) {
        x *= static_cast<R>(scale);
      }
      expect_solves(a, ranks, 3);
    }
  }
}

}  // namespace
}  // namespace jaxmg::test
