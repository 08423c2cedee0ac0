// Cholesky factorisation, solution, log-determinant and failure reports on thread ranks.
#include <gtest/gtest.h>

#include "cholesky_run.h"

namespace jaxmg::test {
namespace {

template <class T>
class CholeskyTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(CholeskyTest, Types);

template <class T>
void expect_solves(const Matrix<T>& a, int ranks, Size tile, Triangle valid = Triangle::whole) {
  SCOPED_TRACE("n " + std::to_string(a.rows) + " ranks " + std::to_string(ranks) + " tile " +
               std::to_string(tile));
  Run<T> run(a, ranks, tile, valid);
  ASSERT_EQ(run.info[0].kind, 0);
  const Matrix<T> b = random_matrix<T>(a.rows, 3, 5);
  EXPECT_LE(solve_residual(a, b, run.solve(b, true)), 25);
  EXPECT_LE(solve_residual(a, b, run.solve(b, false)), 25);
}

TYPED_TEST(CholeskyTest, SolvesEverySizeOnEveryNumberOfRanks) {
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    for (Size n : {1, 2, 3, 7, 8, 9, 17, 33}) {
      expect_solves(random_hpd<TypeParam>(n, 1), ranks, 4);
    }
  }
}

TYPED_TEST(CholeskyTest, SolvesWithEveryTile) {
  const auto a = random_hpd<TypeParam>(19, 2);
  for (int ranks : {1, 2, 4}) {
    for (Size tile = 1; tile <= 19; ++tile) {
      expect_solves(a, ranks, tile);
    }
  }
}

TYPED_TEST(CholeskyTest, SolvesWithTheChosenTile) {
  for (int ranks : {1, 3, 8}) {
    expect_solves(random_hpd<TypeParam>(257, 3), ranks, 0);
  }
}

TYPED_TEST(CholeskyTest, GroupsOfTileColumnsChangeNothing) {
  const auto a = random_hpd<TypeParam>(90, 2);
  auto indefinite = a;
  indefinite(61, 61) = TypeParam(-5);
  const auto b = random_matrix<TypeParam>(90, 2, 5);
  for (int ranks : {1, 2, 3, 8}) {
    for (Size group : {Size{1}, Size{2}, Size{3}, Size{64}}) {
      SCOPED_TRACE("ranks " + std::to_string(ranks) + " group " + std::to_string(group));
      Run<TypeParam> run(a, ranks, 7, Triangle::whole, group);
      EXPECT_LE(solve_residual(a, b, run.solve(b, true)), 25);
      Run<TypeParam> failing(indefinite, ranks, 7, Triangle::whole, group);
      EXPECT_EQ(status(failing.locate()), 62);
    }
  }
}

TYPED_TEST(CholeskyTest, PartsOfPanelsChangeNothing) {
  const auto a = random_hpd<TypeParam>(75, 2);
  auto indefinite = a;
  indefinite(61, 61) = TypeParam(-5);
  const auto b = random_matrix<TypeParam>(75, 2, 5);
  for (int ranks : {1, 2, 3, 8}) {
    for (Size parts : {Size{1}, Size{2}, Size{3}, Size{7}, Size{64}}) {
      for (Order order : {Order::relabelled, Order::natural}) {
        SCOPED_TRACE("ranks " + std::to_string(ranks) + " parts " + std::to_string(parts));
        Run<TypeParam> run(a, ranks, 7, Triangle::whole, 2, order, parts);
        EXPECT_LE(solve_residual(a, b, run.solve(b, true)), 25);
        Run<TypeParam> failing(indefinite, ranks, 7, Triangle::whole, 2, order, parts);
        EXPECT_EQ(status(failing.locate()), 62);
      }
    }
  }
}

TYPED_TEST(CholeskyTest, ReadsOnlyTheTriangleThatIsNamed) {
  using T = TypeParam;
  const Size n = 21;
  const auto a = random_hpd<T>(n, 4);
  const T nan(std::numeric_limits<Real<T>>::quiet_NaN());
  for (Triangle valid : {Triangle::lower, Triangle::upper}) {
    Matrix<T> half = a;
    for (Size i = 0; i < n; ++i) {
      for (Size j = 0; j < n; ++j) {
        if (valid == Triangle::lower ? j > i : j < i) {
          half(i, j) = nan;
        }
      }
    }
    for (int ranks : {1, 2, 3, 8}) {
      Run<T> run(half, ranks, 3, valid);
      ASSERT_EQ(run.info[0].kind, 0);
      const Matrix<T> b = random_matrix<T>(n, 2, 5);
      EXPECT_LE(solve_residual(a, b, run.solve(b, true)), 25);
    }
  }
}

TYPED_TEST(CholeskyTest, LogDeterminantOfKnownFactor) {
  using T = TypeParam;
  // A = L L^H with l_ij = 1 for j < i and l_ii = 1 + i / n: log det = 2 sum log l_ii.
  const Size n = 30;
  Matrix<T> l(n, n);
  double expected = 0;
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < i; ++j) {
      l(i, j) = random_entry<T>(9, i, j);
    }
    l(i, i) = T(static_cast<Real<T>>(2.0 + static_cast<double>(i) / static_cast<double>(n)));
    expected += 2 * std::log(std::abs(l(i, i)));
  }
  Matrix<T> a(n, n);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      for (Size k = 0; k < n; ++k) {
        a(i, j) += l(i, k) * conjugate(l(j, k));
      }
    }
  }
  for (int ranks : {1, 2, 5}) {
    const double got = Run<T>(a, ranks, 4).logdet();
    EXPECT_NEAR(got, expected, 500 * std::numeric_limits<Real<T>>::epsilon() * expected);
  }
}

TYPED_TEST(CholeskyTest, ManyRightHandSidesInSeveralBlocks) {
  const auto a = random_hpd<TypeParam>(23, 6);
  Run<TypeParam> run(a, 3, 4);
  for (Size nrhs : {Size{0}, Size{1}, Size{512}, Size{700}}) {
    const auto b = random_matrix<TypeParam>(23, nrhs, 8);
    EXPECT_LE(solve_residual(a, b, run.solve(b, true)), 25);
    EXPECT_LE(solve_residual(a, b, run.solve(b, false)), 25);
  }
}

TYPED_TEST(CholeskyTest, InverseInTheUsersOrder) {
  using T = TypeParam;
  for (int ranks : {1, 2, 3, 8}) {
    for (Size n : {1, 2, 7, 8, 30}) {
      for (Size tile : {Size{1}, Size{3}, Size{30}}) {
        SCOPED_TRACE("ranks " + std::to_string(ranks) + " n " + std::to_string(n) + " tile " +
                     std::to_string(tile));
        const auto a = random_hpd<T>(n, 12);
        Run<T> run(a, ranks, tile);
        const auto x = run.inverted();
        Matrix<T> identity(n, n);
        for (Size i = 0; i < n; ++i) {
          identity(i, i) = T(1);
        }
        EXPECT_LE(solve_residual(a, identity, x), 25);
        for (Size i = 0; i < n; ++i) {
          for (Size j = 0; j < n; ++j) {
            const double gap = std::abs(x(i, j) - conjugate(x(j, i)));
            EXPECT_LE(gap, 100 * std::numeric_limits<Real<T>>::epsilon() * norm1(x));
          }
        }
      }
    }
  }
}

TYPED_TEST(CholeskyTest, InverseOfAnIndefiniteMatrixIsNaN) {
  using T = TypeParam;
  auto a = random_hpd<T>(10, 12);
  a(4, 4) = T(-1);
  Run<T> run(a, 3, 2);
  for (const T& value : run.inverted().data) {
    EXPECT_TRUE(std::isnan(std::real(value)));
  }
}

TYPED_TEST(CholeskyTest, FailingMinorIsLapacksWhateverTheLayout) {
  using T = TypeParam;
  const Size n = 24;
  for (int ranks : {1, 2, 3, 8}) {
    for (Size tile : {Size{1}, Size{4}, Size{24}}) {
      for (Size k = 0; k < n; ++k) {
        // Positive definite but for the leading minor k + 1 and those after it.
        Matrix<T> a = random_hpd<T>(n, 7);
        a(k, k) = T(-1);
        Run<T> run(a, ranks, tile);
        ASSERT_EQ(run.info[0].kind, static_cast<int>(Kind::not_positive_definite));
        const Info info = run.locate();
        EXPECT_EQ(status(info), k + 1) << "ranks " << ranks << " tile " << tile;
        for (const Info& other : run.info) {
          EXPECT_EQ(status(other), k + 1);
        }
        const auto x = run.solve(random_matrix<T>(n, 1, 1), true);
        for (const T& value : x.data) {
          EXPECT_TRUE(std::isnan(std::real(value)));
        }
        EXPECT_TRUE(std::isnan(run.logdet()));
      }
    }
  }
}

TYPED_TEST(CholeskyTest, TheMatrixIsRestoredFromWhatAFactorisationLeaves) {
  using T = TypeParam;
  const Size n = 31;
  for (bool definite : {true, false}) {
    Matrix<T> a = random_hpd<T>(n, 11);
    if (!definite) {
      a(9, 9) = T(-3);
    }
    for (int ranks : {1, 2, 3, 8}) {
      for (Size tile : {Size{1}, Size{3}, Size{31}}) {
        Run<T> run(a, ranks, tile);
        const Plan plan(run.make_request(Routine::locate));
        const Distribution d = plan.distribution();
        run.each_rank(plan, [&](Rank<Cpu>& rank, std::size_t r) {
          mirror_elimination<Cpu, T>(rank, d, run.saved[r].data(), run.shard[r].data());
        });
        for (Size i = 0; i < n; ++i) {
          const auto& mine = run.shard[static_cast<std::size_t>(d.owner(GlobalIndex(i)))];
          for (Size j = 0; j < n; ++j) {
            EXPECT_EQ(mine[static_cast<std::size_t>(*d.local(GlobalIndex(i)) * n + j)], a(i, j));
          }
        }
      }
    }
  }
}

TYPED_TEST(CholeskyTest, NonFiniteAndNonHermitianInputIsTold) {
  using T = TypeParam;
  const Size n = 40;
  for (int ranks : {1, 4}) {
    for (double bad :
         {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      for (auto [i, j] : {std::pair<Size, Size>{39, 39}, {0, 0}, {3, 30}, {30, 3}}) {
        Matrix<T> a = random_hpd<T>(n, 7);
        a(i, j) = T(static_cast<Real<T>>(bad));
        const Run<T> run(a, ranks, 8);
        EXPECT_EQ(run.info[0].kind, static_cast<int>(Kind::non_finite)) << i << "," << j;
      }
    }
    Matrix<T> a = random_hpd<T>(n, 7);
    for (Size i = 0; i < n; ++i) {
      for (Size j = i + 1; j < n; ++j) {
        a(i, j) = T(0);
      }
    }
    const Run<T> run(a, ranks, 8);
    EXPECT_EQ(run.info[0].kind, static_cast<int>(Kind::not_hermitian));
  }
}

TYPED_TEST(CholeskyTest, ImaginaryPartsOfTheDiagonalAreIgnored) {
  using T = TypeParam;
  if constexpr (is_complex_v<T>) {
    const Size n = 18;
    const auto a = random_hpd<T>(n, 3);
    Matrix<T> tilted = a;
    for (Size i = 0; i < n; ++i) {
      tilted(i, i) += T(0, 5);
    }
    for (int ranks : {1, 3}) {
      Run<T> run(tilted, ranks, 4);
      ASSERT_EQ(run.info[0].kind, 0);
      const auto b = random_matrix<T>(n, 1, 5);
      EXPECT_LE(solve_residual(a, b, run.solve(b, true)), 25);
    }
  }
}

TYPED_TEST(CholeskyTest, HugeAndTinyEntriesAreFinite) {
  using T = TypeParam;
  const double big = std::is_same_v<Real<T>, float> ? 1e37 : 1e300;
  for (double scale : {big, 1 / big}) {
    Matrix<T> a(6, 6);
    for (Size i = 0; i < 6; ++i) {
      a(i, i) = T(static_cast<Real<T>>(scale));
    }
    const Run<T> run(a, 2, 2);
    EXPECT_EQ(run.info[0].kind, 0);
  }
}

TYPED_TEST(CholeskyTest, TilesAboveTheEliminationOrderStayUntouched) {
  using T = TypeParam;
  const Size n = 29;
  const auto a = random_hpd<T>(n, 11);
  for (int ranks : {1, 2, 4}) {
    Run<T> run(a, ranks, 3);
    const Distribution d(n, ranks, run.tile);
    for (Size row = 0; row < n; ++row) {    // user's row: a column of M
      for (Size col = 0; col < n; ++col) {  // user's column: a row of M
        const GlobalIndex gr(row), gc(col);
        const Tile tr{d.owner(gr), d.tile_of(d.local(gr))};
        const Tile tc{d.owner(gc), d.tile_of(d.local(gc))};
        if (d.step(tc) < d.step(tr)) {
          const auto& mine = run.shard[static_cast<std::size_t>(d.owner(gr))];
          EXPECT_EQ(mine[static_cast<std::size_t>(*d.local(gr) * n + col)], a(row, col));
        }
      }
    }
  }
}

}  // namespace
}  // namespace jaxmg::test
