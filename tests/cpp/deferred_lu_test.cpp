// The LU family on lanes that run late.
#include <gtest/gtest.h>

#include "deferred_ranks.h"
#include "lu_run.h"

namespace jaxmg::test {
namespace {

struct Problem {
  int ranks = 1;
  Size n = 1;
  Size tile = 1;
  bool natural = false;
  Precision precision = Precision::native;
  double scale = 1;  // of some rows and columns
};

template <class T>
Bytes factor_and_use(const Problem& p, bool judge) {
  auto a = random_matrix<T>(p.n, p.n, 3);
  for (Size i = 0; i < p.n; i += 3) {
    for (Size j = 0; j < p.n; ++j) {
      a(i, j) *= static_cast<Real<T>>(p.scale);
      a(j, i) *= static_cast<Real<T>>(p.scale);
    }
  }
  const auto b = random_matrix<T>(p.n, 3, 5);
  const auto at = transposed(a);
  LuRun<T, Deferred> run(a, p.ranks, p.tile, p.natural, p.precision);
  EXPECT_EQ(run.info[0].kind, 0);
  Bytes bytes;
  append(bytes, run.pivots[0]);
  for (const auto& shard : run.shard) {
    append(bytes, shard);
  }
  for (const bool replicated : {true, false}) {
    for (const bool transpose : {false, true}) {
      const auto x = run.solve(b, replicated, transpose);
      append(bytes, x.data);
      if (judge) {
        EXPECT_LE(solve_residual(transpose ? at : a, b, x), 25);
      }
    }
  }
  const auto [phase, log] = run.determinant();
  append(bytes, &phase, 1);
  append(bytes, &log, 1);
  const auto inverse = run.inverted();
  append(bytes, inverse.data);
  if (judge) {
    const auto expected = LuRun<T>(a, 1, p.tile).determinant();
    EXPECT_NEAR(log, expected.second, 1e4 * std::numeric_limits<Real<T>>::epsilon());
    EXPECT_NEAR(std::abs(phase - expected.first), 0, 1e3 * std::numeric_limits<Real<T>>::epsilon());
    Matrix<T> identity(p.n, p.n);
    for (Size i = 0; i < p.n; ++i) {
      identity(i, i) = T(1);
    }
    EXPECT_LE(solve_residual(a, identity, inverse), 50);
  }
  return bytes;
}

// The forward sweep goes along with the factorisation.
template <class T>
Bytes factor_with_rhs(const Problem& p, bool judge) {
  const auto a = random_matrix<T>(p.n, p.n, 3);
  LuRun<T, Deferred> run(a, p.ranks, p.tile, p.natural, p.precision);
  const auto pivots = run.pivots;
  const auto shard = run.shard;
  const auto inverse = run.inverse;
  Bytes bytes;
  for (const Size nrhs : {Size{1}, Size{17}}) {
    const auto b = random_matrix<T>(p.n, nrhs, 5);
    for (const bool replicated : {true, false}) {
      const auto x = run.gesv(a, b, replicated);
      append(bytes, x.data);
      EXPECT_EQ(run.pivots, pivots);
      EXPECT_EQ(run.shard, shard);
      EXPECT_EQ(run.inverse, inverse);
      if (judge) {
        EXPECT_LE(solve_residual(a, b, x), 25);
      }
    }
  }
  return bytes;
}

template <class T>
void expect_ordered_with_rhs(const Problem& p, int seeds) {
  SCOPED_TRACE("ranks " + std::to_string(p.ranks) + " n " + std::to_string(p.n) + " tile " +
               std::to_string(p.tile));
  expect_same_with_every_schedule(p.ranks, seeds,
                                  [&](bool judge) { return factor_with_rhs<T>(p, judge); });
}

template <class T>
void expect_ordered(const Problem& p, int seeds) {
  SCOPED_TRACE("n " + std::to_string(p.n) + " tile " + std::to_string(p.tile));
  expect_same_with_every_schedule(p.ranks, seeds,
                                  [&](bool judge) { return factor_and_use<T>(p, judge); });
}

TEST(DeferredLuTest, FactorsAndSolves) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Size tile : {Size{2}, Size{3}}) {
      expect_ordered<double>({.ranks = ranks, .n = 22, .tile = tile}, 4);
    }
  }
}

TEST(DeferredLuTest, FactorsOnEightRanks) {
  expect_ordered<std::complex<double>>({.ranks = 8, .n = 45, .tile = 3}, 2);
}

TEST(DeferredLuTest, PanelsInParts) {
  for (const int ranks : {1, 2, 4}) {
    for (const double scale : {1.0, 1024.0}) {
      expect_ordered<float>(
          {.ranks = ranks, .n = 31, .tile = 4, .precision = Precision::split, .scale = scale}, 3);
    }
  }
  for (const int ranks : {1, 3}) {
    expect_ordered<std::complex<float>>(
        {.ranks = ranks, .n = 29, .tile = 4, .precision = Precision::split, .scale = 1024}, 3);
  }
}

TEST(DeferredLuTest, EliminatesRightHandSides) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Size tile : {Size{2}, Size{3}}) {
      expect_ordered_with_rhs<double>({.ranks = ranks, .n = 22, .tile = tile}, 3);
    }
  }
  expect_ordered_with_rhs<std::complex<double>>({.ranks = 8, .n = 45, .tile = 3}, 2);
  expect_ordered_with_rhs<double>({.ranks = 3, .n = 26, .tile = 3, .natural = true}, 3);
  expect_ordered_with_rhs<float>({.ranks = 2, .n = 31, .tile = 4, .precision = Precision::split},
                                 2);
}

TEST(DeferredLuTest, NaturalOrder) {
  for (const int ranks : {2, 3}) {
    expect_ordered<float>({.ranks = ranks, .n = 26, .tile = 3, .natural = true}, 3);
  }
}

// In more than one block, which take turns in the same buffers.
TEST(DeferredLuTest, ManyRightHandSides) {
  const auto a = random_matrix<float>(8, 8, 7);
  const auto b = random_matrix<float>(8, kManyRightHandSides, 2);
  for (const int ranks : {2, 3}) {
    expect_same_with_every_schedule(ranks, 2, [&](bool judge) {
      LuRun<float, Deferred> run(a, ranks, 1);
      Bytes bytes;
      for (const bool replicated : {true, false}) {
        for (const bool transpose : {false, true}) {
          const auto x = run.solve(b, replicated, transpose);
          append(bytes, x.data);
          if (judge) {
            EXPECT_LE(solve_residual(transpose ? transposed(a) : a, b, x), 25);
          }
        }
      }
      return bytes;
    });
  }
}

TEST(DeferredLuTest, SingularMatricesAreTold) {
  auto a = random_matrix<double>(20, 20, 7);
  for (Size j = 0; j < 20; ++j) {
    a(11, j) = 0;
  }
  expect_same_with_every_schedule(3, 4, [&](bool) {
    LuRun<double, Deferred> run(a, 3, 2);
    EXPECT_EQ(run.info[0].kind, static_cast<int>(Kind::singular));
    EXPECT_EQ(status(run.info[0]), 12);
    Bytes bytes;
    append(bytes, run.info);
    return bytes;
  });
}

TEST(DeferredLuTest, NothingComesOfASingularFactor) {
  const auto a = random_matrix<double>(12, 12, 7);
  expect_same_with_every_schedule(3, 12, [&](bool) {
    LuRun<double, Deferred> run(a, 3, 2);
    for (Info& info : run.info) {
      info.kind = static_cast<int>(Kind::singular);
    }
    EXPECT_EQ(run.determinant(), std::pair(0.0, -std::numeric_limits<double>::infinity()));
    for (const double x : run.solve(random_matrix<double>(12, 2, 5), false).data) {
      EXPECT_TRUE(std::isnan(x));
    }
    for (const double x : run.inverted().data) {
      EXPECT_TRUE(std::isnan(x));
    }
    return Bytes();
  });
}

}  // namespace
}  // namespace jaxmg::test
