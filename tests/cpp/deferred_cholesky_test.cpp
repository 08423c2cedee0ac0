// The Cholesky family on lanes that run late.
#include <gtest/gtest.h>

#include "cholesky_run.h"
#include "deferred_ranks.h"

namespace jaxmg::test {
namespace {

template <class T>
using LateRun = Run<T, Deferred>;

struct Problem {
  int ranks = 1;
  Size n = 1;
  Size tile = 1;
  Size group = 1;
  Triangle valid = Triangle::whole;
  Order order = Order::relabelled;
  Precision precision = Precision::native;
  Size parts = 1;
};

template <class T>
Bytes factor_and_use(const Problem& p, bool judge) {
  const auto a = random_hpd<T>(p.n, 3);
  const auto b = random_matrix<T>(p.n, 3, 5);
  LateRun<T> run(a, p.ranks, p.tile, p.valid, p.group, p.order, p.parts, p.precision);
  EXPECT_EQ(run.info[0].kind, 0);
  Bytes bytes;
  append(bytes, run.lower().data);
  const Matrix<T> replicated = run.solve(b, true), sharded = run.solve(b, false);
  append(bytes, replicated.data);
  append(bytes, sharded.data);
  const Real<T> logdet = run.logdet();
  append(bytes, &logdet, 1);
  if (judge) {
    EXPECT_LE(factor_residual(a, run), 25);
    EXPECT_LE(solve_residual(a, b, replicated), 25);
    EXPECT_LE(solve_residual(a, b, sharded), 25);
  }
  const Matrix<T> inverse = run.inverted();
  append(bytes, inverse.data);
  if (judge) {
    EXPECT_NEAR(logdet, Run<T>(a, 1, p.tile).logdet(),
                1000 * std::numeric_limits<Real<T>>::epsilon() * std::abs(logdet));
    Matrix<T> identity(p.n, p.n);
    for (Size i = 0; i < p.n; ++i) {
      identity(i, i) = T(1);
    }
    EXPECT_LE(solve_residual(a, identity, inverse), 25);
  }
  return bytes;
}

// Right-hand sides that are eliminated with the matrix.
template <class T>
Bytes factor_with_rhs(const Problem& p, bool judge) {
  const auto a = random_hpd<T>(p.n, 3);
  LateRun<T> run(a, p.ranks, p.tile, p.valid, p.group, p.order, p.parts, p.precision);
  Bytes bytes;
  for (const Size nrhs : {Size{1}, Size{17}}) {
    const auto b = random_matrix<T>(p.n, nrhs, 5);
    for (const bool replicated : {true, false}) {
      const Matrix<T> x = run.posv(a, b, replicated, p.valid);
      append(bytes, x.data);
      append(bytes, run.lower().data);
      if (judge) {
        EXPECT_LE(solve_residual(a, b, x), 25);
        EXPECT_LE(factor_residual(a, run), 25);
        EXPECT_LE(solve_residual(a, b, run.solve(b, replicated)), 25);
      }
    }
  }
  return bytes;
}

template <class T>
void expect_ordered_with_rhs(const Problem& p, int seeds) {
  SCOPED_TRACE("ranks " + std::to_string(p.ranks) + " n " + std::to_string(p.n) + " tile " +
               std::to_string(p.tile) + " group " + std::to_string(p.group) + " parts " +
               std::to_string(p.parts));
  expect_same_with_every_schedule(p.ranks, seeds,
                                  [&](bool judge) { return factor_with_rhs<T>(p, judge); });
}

template <class T>
void expect_ordered(const Problem& p, int seeds) {
  SCOPED_TRACE("n " + std::to_string(p.n) + " tile " + std::to_string(p.tile) + " group " +
               std::to_string(p.group));
  expect_same_with_every_schedule(p.ranks, seeds,
                                  [&](bool judge) { return factor_and_use<T>(p, judge); });
}

TEST(DeferredCholeskyTest, FactorsAndSolves) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Size tile : {Size{2}, Size{3}}) {
      expect_ordered<double>({.ranks = ranks, .n = 23, .tile = tile}, 3);
    }
  }
}

TEST(DeferredCholeskyTest, FactorsOnEightRanks) {
  expect_ordered<std::complex<double>>({.ranks = 8, .n = 45, .tile = 3}, 1);
}

TEST(DeferredCholeskyTest, PanelsInParts) {
  for (const int ranks : {1, 2, 3}) {
    for (const Size parts : {Size{2}, Size{3}, Size{5}}) {
      expect_ordered<double>({.ranks = ranks, .n = 40, .tile = 5, .group = 2, .parts = parts}, 4);
    }
  }
}

TEST(DeferredCholeskyTest, EliminatesRightHandSides) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Size parts : {Size{1}, Size{2}}) {
      expect_ordered_with_rhs<double>({.ranks = ranks, .n = 23, .tile = 3, .parts = parts}, 4);
    }
    expect_ordered_with_rhs<double>({.ranks = ranks, .n = 40, .tile = 4, .group = 3, .parts = 3},
                                    3);
  }
  expect_ordered_with_rhs<std::complex<double>>({.ranks = 8, .n = 45, .tile = 3}, 3);
}

TEST(DeferredCholeskyTest, EliminatesRightHandSidesWithNumbersInParts) {
  for (const int ranks : {1, 2, 4}) {
    expect_ordered_with_rhs<float>(
        {.ranks = ranks, .n = 35, .tile = 4, .group = 3, .precision = Precision::split}, 3);
  }
  expect_ordered_with_rhs<std::complex<float>>(
      {.ranks = 3, .n = 31, .tile = 4, .group = 2, .precision = Precision::split}, 2);
}

TEST(DeferredCholeskyTest, GroupsOfTileColumns) {
  for (const int ranks : {1, 2, 4}) {
    expect_ordered<double>({.ranks = ranks, .n = 40, .tile = 3, .group = 3}, 4);
  }
}

TEST(DeferredCholeskyTest, NumbersInParts) {
  for (const int ranks : {1, 2, 4}) {
    for (const Size group : {Size{1}, Size{3}}) {
      expect_ordered<float>(
          {.ranks = ranks, .n = 35, .tile = 4, .group = group, .precision = Precision::split}, 4);
    }
  }
  for (const int ranks : {1, 3}) {
    expect_ordered<std::complex<float>>(
        {.ranks = ranks, .n = 31, .tile = 4, .group = 2, .precision = Precision::split}, 3);
  }
}

TEST(DeferredCholeskyTest, TriangleThatIsMirrored) {
  for (const Triangle valid : {Triangle::lower, Triangle::upper}) {
    expect_ordered<double>({.ranks = 3, .n = 26, .tile = 4, .valid = valid}, 4);
  }
}

TEST(DeferredCholeskyTest, NaturalOrder) {
  for (const int ranks : {2, 4}) {
    expect_ordered<float>({.ranks = ranks, .n = 30, .tile = 3, .order = Order::natural}, 4);
  }
}

TEST(DeferredCholeskyTest, FailingMinorIsFound) {
  auto a = random_hpd<double>(21, 7);
  a(13, 13) = -1;
  expect_same_with_every_schedule(3, 4, [&](bool) {
    LateRun<double> run(a, 3, 2);
    EXPECT_EQ(run.info[0].kind, static_cast<int>(Kind::not_positive_definite));
    EXPECT_EQ(status(run.locate()), 14);
    Bytes bytes;
    append(bytes, run.info);
    return bytes;
  });
}

// The order of elimination may fail by rounding where the natural one does not.
TEST(DeferredCholeskyTest, LastMinorIsNamedIfNoneFails) {
  const auto a = random_hpd<double>(21, 7);
  expect_same_with_every_schedule(3, 4, [&](bool) {
    LateRun<double> run(a, 3, 2);
    for (Info& info : run.info) {
      info.kind = static_cast<int>(Kind::not_positive_definite);
    }
    EXPECT_EQ(status(run.locate()), 21);
    Bytes bytes;
    append(bytes, run.info);
    return bytes;
  });
}

TEST(DeferredCholeskyTest, NothingComesOfAFailedFactor) {
  const auto a = random_hpd<double>(12, 7);
  expect_same_with_every_schedule(3, 4, [&](bool) {
    LateRun<double> run(a, 3, 2);
    for (Info& info : run.info) {
      info.kind = static_cast<int>(Kind::not_positive_definite);
    }
    EXPECT_TRUE(std::isnan(run.logdet()));
    for (const bool replicated : {true, false}) {
      for (const double x : run.solve(random_matrix<double>(12, 2, 5), replicated).data) {
        EXPECT_TRUE(std::isnan(x));
      }
    }
    for (const double x : run.inverted().data) {
      EXPECT_TRUE(std::isnan(x));
    }
    return Bytes();
  });
}

// In more than one block, which take turns in the same buffers.
TEST(DeferredCholeskyTest, ManyRightHandSides) {
  const auto a = random_hpd<float>(8, 7);
  const auto b = random_matrix<float>(8, kManyRightHandSides, 2);
  for (const int ranks : {2, 3}) {
    expect_same_with_every_schedule(ranks, 2, [&](bool judge) {
      LateRun<float> run(a, ranks, 1);
      Bytes bytes;
      for (const bool replicated : {true, false}) {
        const auto x = run.solve(b, replicated);
        append(bytes, x.data);
        if (judge) {
          EXPECT_LE(solve_residual(a, b, x), 25);
        }
      }
      return bytes;
    });
  }
}

TEST(DeferredCholeskyTest, UpdatesAndDowndates) {
  const auto a = random_hpd<double>(26, 7);
  const auto v = random_matrix<double>(26, 3, 2);
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Order order : {Order::relabelled, Order::natural}) {
      expect_same_with_every_schedule(ranks, 4, [&](bool judge) {
        LateRun<double> run(a, ranks, 3, Triangle::whole, 0, order);
        run.update(v, false);
        Bytes bytes;
        append(bytes, run.lower().data);
        run.update(v, true);
        append(bytes, run.lower().data);
        if (judge) {
          EXPECT_LE(factor_residual(a, run), 100);
        }
        return bytes;
      });
    }
  }
}

}  // namespace
}  // namespace jaxmg::test
