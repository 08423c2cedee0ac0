// The QR family and triangular systems on lanes that run late.
#include <gtest/gtest.h>

#include "deferred_ranks.h"
#include "qr_run.h"
#include "triangular_run.h"

namespace jaxmg::test {
namespace {

template <class T>
Bytes factor_and_use(const Matrix<T>& a, Size nrhs, int ranks, Size tile, bool judge) {
  const auto b = random_matrix<T>(a.rows, nrhs, 5), c = random_matrix<T>(a.cols, nrhs, 6);
  QrRun<T, Deferred> run(a, ranks, tile);
  EXPECT_EQ(run.info[0].kind, 0);
  Bytes bytes;
  append(bytes, run.aux[0]);
  const auto r = run.r_factor(), q = run.q_factor(run.k(), false);
  append(bytes, r.data);
  append(bytes, q.data);
  append(bytes, run.times_q(random_matrix<T>(run.k(), nrhs, 7)).data);
  append(bytes, run.times_adjoint(b).data);
  if (judge) {
    expect_factors(a, q, r);
    EXPECT_EQ(run.r_factor().data, r.data);
  }
  if (a.rows < a.cols) {
    return bytes;
  }
  append(bytes, run.q_factor(a.cols, true).data);
  const auto x = run.least_squares(b), y = run.minimum_norm(c);
  append(bytes, x.data);
  append(bytes, y.data);
  if (judge) {
    // A^H (b - A x) = 0 and A^H y = c
    const auto ah = adjoint(a);
    const double eps = std::numeric_limits<Real<T>>::epsilon();
    EXPECT_LE(norm1(product(ah, difference(b, product(a, x)))),
              1000 * eps * norm1(ah) * (norm1(b) + norm1(a) * norm1(x)));
    EXPECT_LE(norm1(difference(c, product(ah, y))), 1000 * eps * norm1(ah) * norm1(y));
  }
  return bytes;
}

template <class T>
void expect_ordered(Size m, Size n, int ranks, Size tile, int seeds, Size nrhs = 3) {
  SCOPED_TRACE("m " + std::to_string(m) + " n " + std::to_string(n) + " tile " +
               std::to_string(tile));
  const auto a = random_matrix<T>(m, n, 2);
  expect_same_with_every_schedule(
      ranks, seeds, [&](bool judge) { return factor_and_use<T>(a, nrhs, ranks, tile, judge); });
}

TEST(DeferredQrTest, SquareAndTall) {
  for (const int ranks : {1, 2, 3, 4}) {
    expect_ordered<double>(18, 18, ranks, 3, 4);
    expect_ordered<double>(33, 11, ranks, 3, 4);
  }
}

TEST(DeferredQrTest, Wide) {
  for (const int ranks : {2, 3}) {
    expect_ordered<std::complex<float>>(12, 20, ranks, 2, 4);
  }
}

TEST(DeferredQrTest, EightRanks) {
  expect_ordered<std::complex<double>>(40, 24, 8, 3, 2);
}

// In more than one block, which take turns in the same buffers.
TEST(DeferredQrTest, ManyRightHandSides) {
  for (const int ranks : {2, 3}) {
    expect_ordered<float>(9, 6, ranks, 2, 2, kManyRightHandSides);
  }
}

// Panels are taken by way of their Gram matrices, or not, where the numbers do not allow it; also
// by ranks that have no rows left, or fewer than columns.
template <class T>
void expect_hard_matrices(Size m, Size n) {
  present_schedule() = {.choice = Schedule::Choice::as_enqueued};
  int index = 0;
  for (const auto& a : hard_matrices<T>(m, n)) {
    for (const int ranks : {1, 3, 4}) {
      for (const Size tile : {4, 9}) {
        SCOPED_TRACE("matrix " + std::to_string(index) + " ranks " + std::to_string(ranks) +
                     " tile " + std::to_string(tile));
        QrRun<T, Deferred> run(a, ranks, tile);
        ASSERT_EQ(run.info[0].kind, 0);
        expect_factors(a, run.q_factor(run.k(), false), run.r_factor());
      }
    }
    ++index;
  }
}

TEST(DeferredQrTest, HardMatrices) {
  expect_hard_matrices<float>(30, 11);
  expect_hard_matrices<double>(30, 21);
  expect_hard_matrices<std::complex<float>>(16, 16);
  expect_hard_matrices<std::complex<double>>(30, 11);
}

template <class T>
std::pair<int, int> verdicts_on(const Matrix<T>& a, int ranks, Size tile) {
  present_schedule() = {.choice = Schedule::Choice::as_enqueued};
  Deferred::good_verdicts = Deferred::bad_verdicts = 0;
  const QrRun<T, Deferred> run(a, ranks, tile);
  return {Deferred::good_verdicts, Deferred::bad_verdicts};
}

TEST(DeferredQrTest, GramMatricesWhereTheyAreSafe) {
  using Counts = std::pair<int, int>;
  EXPECT_EQ(verdicts_on(random_matrix<double>(64, 32, 3), 2, 4), Counts(2 * 8, 0));
  // Tried for panels 0, 2 and 6 of 8, after longer and longer pauses.
  EXPECT_EQ(verdicts_on(Matrix<double>(64, 32), 2, 4), Counts(0, 2 * 3));
  // As far apart as 1 and 1e-12.
  auto graded = random_matrix<double>(64, 4, 3);
  for (Size i = 0; i < graded.rows; ++i) {
    for (Size j = 0; j < graded.cols; ++j) {
      graded(i, j) *= std::pow(1e-4, double(j));
    }
  }
  EXPECT_EQ(verdicts_on(graded, 2, 4), Counts(0, 2));
}

template <class T>
void expect_triangles_ordered(const TriangularForm& form, Size n, Size nrhs, int ranks, Size tile,
                              Order order, int seeds) {
  auto [given, meant] = triangular_system<T>(n, form);
  if (order == Order::relabelled) {
    const Distribution dist(n, ranks, tile);
    given = relabelled(given, dist);
    meant = relabelled(meant, dist);
  }
  const auto b = random_matrix<T>(n, nrhs, 5);
  expect_same_with_every_schedule(ranks, seeds, [&, &a = given, &system = meant](bool judge) {
    Bytes bytes;
    for (const bool replicated : {true, false}) {
      const auto x = solve_triangular<T, Deferred>(a, b, form, ranks, tile, replicated, order);
      append(bytes, x.data);
      if (judge) {
        EXPECT_LE(solve_residual(system, b, x), 25);
      }
    }
    return bytes;
  });
}

TEST(DeferredTriangularTest, EveryForm) {
  for (const Uplo uplo : {Uplo::lower, Uplo::upper}) {
    for (const Op op : {Op::none, Op::transpose, Op::conj_transpose}) {
      for (const int ranks : {1, 2, 3, 4}) {
        for (const Order order : {Order::natural, Order::relabelled}) {
          expect_triangles_ordered<std::complex<double>>({uplo, op, Diag::non_unit}, 21, 3, ranks,
                                                         2, order, 3);
        }
      }
    }
  }
}

// In more than one block.
TEST(DeferredTriangularTest, ManyRightHandSides) {
  for (const Op op : {Op::none, Op::transpose}) {
    expect_triangles_ordered<float>({Uplo::lower, op, Diag::unit}, 9, kManyRightHandSides, 3, 2,
                                    Order::natural, 2);
  }
}

}  // namespace
}  // namespace jaxmg::test
