// Solutions by LU, by QR and of triangular systems on lanes that run late.
#include <gtest/gtest.h>

#include "algo/lu.h"
#include "algo/lu_solve.h"
#include "algo/qr.h"
#include "algo/qr_solve.h"
#include "algo/triangular_solve.h"
#include "deferred_ranks.h"
#include "matrices.h"
#include "split_rows.h"

namespace jaxmg::test {
namespace {

struct Problem {
  int ranks = 1;
  Size n = 1;
  Size tile = 1;
  Size nrhs = 1;
  Order order = Order::relabelled;
};

template <class T>
PlanRequest request(Routine routine, const Problem& p) {
  PlanRequest q;
  q.routine = routine;
  q.type = dtype_of<T>;
  q.platform = Platform::cuda;
  q.n = p.n;
  q.columns = is_qr(routine) ? p.n : 0;
  q.nrhs = p.nrhs;
  q.ranks = p.ranks;
  q.tile = p.tile;
  q.order = p.order;
  return q;
}

template <class T>
Matrix<T> transposed(const Matrix<T>& a, bool conj) {
  Matrix<T> t(a.cols, a.rows);
  for (Size i = 0; i < a.rows; ++i) {
    for (Size j = 0; j < a.cols; ++j) {
      t(j, i) = conj ? conjugate(a(i, j)) : a(i, j);
    }
  }
  return t;
}

template <class T>
Bytes solve_by_lu(const Problem& p, bool judge) {
  const auto a = random_matrix<T>(p.n, p.n, 2);
  const auto b = random_matrix<T>(p.n, p.nrhs, 3);
  const auto ranks = static_cast<std::size_t>(p.ranks);
  const Plan factoring(request<T>(Routine::getrf, p));
  const Distribution dist = factoring.distribution();
  std::vector<Matrix<T>> shard(ranks);
  std::vector<std::vector<T>> inverse(ranks);
  std::vector<std::vector<std::int32_t>> pivots(ranks);
  std::vector<Info> info(ranks);
  run_plan<Deferred>(factoring, [&](Rank<Deferred>& rank, std::size_t r) {
    shard[r] = rows_of_rank(a, dist, rank.comm.rank(), false);
    inverse[r].resize(static_cast<std::size_t>(factoring.aux_count()));
    pivots[r].resize(static_cast<std::size_t>(2 * p.n));
    lu_factor<Deferred, T>(rank, shard[r].data.data(), inverse[r].data(), pivots[r].data(),
                           &info[r]);
  });
  Bytes bytes;
  for (const bool transpose : {false, true}) {
    for (const bool replicated : {false, true}) {
      PlanRequest q = request<T>(Routine::getrs, p);
      q.transpose = transpose;
      q.replicated_rhs = replicated;
      const Plan solving(q);
      std::vector<Matrix<T>> x(ranks);
      run_plan<Deferred>(solving, [&](Rank<Deferred>& rank, std::size_t r) {
        x[r] = rows_of_rank(b, dist, rank.comm.rank(), replicated);
        lu_solve<Deferred, T>(rank, shard[r].data.data(), inverse[r].data(), pivots[r].data(),
                              &info[r], x[r].data.data());
      });
      const Matrix<T> whole = joined_rows(x, dist, replicated);
      append(bytes, whole.data);
      if (judge) {
        EXPECT_LE(solve_residual(transpose ? transposed(a, false) : a, b, whole), 25);
      }
    }
  }
  return bytes;
}

template <class T>
Bytes solve_by_qr(const Problem& p, bool judge) {
  const auto a = random_matrix<T>(p.n, p.n, 2);
  const auto b = random_matrix<T>(p.n, p.nrhs, 3);
  const auto ranks = static_cast<std::size_t>(p.ranks);
  const Plan factoring(request<T>(Routine::geqrf, p));
  const Plan solving(request<T>(Routine::geqrs, p));
  const Distribution dist = factoring.distribution();
  std::vector<Matrix<T>> shard(ranks);
  std::vector<std::vector<T>> aux(ranks);
  std::vector<Info> info(ranks), report(ranks);
  run_plan<Deferred>(factoring, [&](Rank<Deferred>& rank, std::size_t r) {
    shard[r] = rows_of_rank(a, dist, rank.comm.rank(), false);
    aux[r].resize(static_cast<std::size_t>(factoring.aux_count()));
    qr_factor<Deferred, T>(rank, shard[r].data.data(), aux[r].data(), &info[r]);
  });
  Bytes bytes;
  for (const bool adjoint : {false, true}) {
    std::vector<Matrix<T>> given(ranks), x(ranks);
    run_plan<Deferred>(solving, [&](Rank<Deferred>& rank, std::size_t r) {
      given[r] = rows_of_rank(b, dist, rank.comm.rank(), adjoint);
      x[r] = Matrix<T>(adjoint ? dist.capacity() : p.n, p.nrhs);
      qr_solve<Deferred, T>(rank, adjoint, shard[r].data.data(), aux[r].data(), &info[r],
                            given[r].data.data(), x[r].data.data(), &report[r]);
    });
    const Matrix<T> whole = joined_rows(x, dist, !adjoint);
    append(bytes, whole.data);
    if (judge) {
      EXPECT_LE(solve_residual(adjoint ? transposed(a, true) : a, b, whole), 25);
    }
  }
  return bytes;
}

// A matrix is both triangles here: each form reads one of them in the order of elimination, which
// is no matter where only bits are compared.
template <class T>
Bytes solve_triangles(const Problem& p, bool judge) {
  auto a = random_matrix<T>(p.n, p.n, 2);
  for (Size i = 0; i < p.n; ++i) {
    a(i, i) += T(static_cast<Real<T>>(std::sqrt(static_cast<double>(p.n))));
  }
  const auto b = random_matrix<T>(p.n, p.nrhs, 3);
  const auto ranks = static_cast<std::size_t>(p.ranks);
  Bytes bytes;
  for (const Uplo uplo : {Uplo::lower, Uplo::upper}) {
    for (const Op op : {Op::none, Op::transpose, Op::conj_transpose}) {
      for (const bool replicated : {false, true}) {
        PlanRequest q = request<T>(Routine::trsm, p);
        q.replicated_rhs = replicated;
        const Plan plan(q);
        const Distribution dist = plan.distribution();
        std::vector<Matrix<T>> shard(ranks), x(ranks);
        run_plan<Deferred>(plan, [&](Rank<Deferred>& rank, std::size_t r) {
          shard[r] = rows_of_rank(a, dist, rank.comm.rank(), false);
          x[r] = rows_of_rank(b, dist, rank.comm.rank(), replicated);
          triangular_solve<Deferred, T>(rank, {uplo, op, Diag::non_unit}, shard[r].data.data(),
                                        x[r].data.data());
        });
        const Matrix<T> whole = joined_rows(x, dist, replicated);
        append(bytes, whole.data);
        if (judge) {
          EXPECT_TRUE(std::isfinite(norm1(whole)));
        }
      }
    }
  }
  return bytes;
}

template <class Solve>
void expect_ordered(const Problem& p, int seeds, const Solve& solve) {
  SCOPED_TRACE("n " + std::to_string(p.n) + " tile " + std::to_string(p.tile));
  expect_same_with_every_schedule(p.ranks, seeds, [&](bool judge) { return solve(p, judge); });
}

TEST(DeferredSolveTest, ByLu) {
  for (const int ranks : {1, 2, 3, 4}) {
    expect_ordered({.ranks = ranks, .n = 23, .tile = 3, .nrhs = 3}, 4, solve_by_lu<double>);
  }
  expect_ordered({.ranks = 3, .n = 26, .tile = 3, .order = Order::natural}, 4,
                 solve_by_lu<std::complex<float>>);
  expect_ordered({.ranks = 8, .n = 35, .tile = 2}, 2, solve_by_lu<std::complex<double>>);
  expect_ordered({.ranks = 2, .n = 9, .tile = 2, .nrhs = 520}, 2, solve_by_lu<double>);
}

TEST(DeferredSolveTest, ByQr) {
  for (const int ranks : {1, 2, 3, 4}) {
    expect_ordered({.ranks = ranks, .n = 23, .tile = 3, .nrhs = 2}, 4, solve_by_qr<double>);
  }
  expect_ordered({.ranks = 2, .n = 9, .tile = 2, .nrhs = 520}, 2,
                 solve_by_qr<std::complex<double>>);
}

TEST(DeferredSolveTest, Triangles) {
  for (const Order order : {Order::relabelled, Order::natural}) {
    for (const int ranks : {2, 3, 4}) {
      expect_ordered({.ranks = ranks, .n = 23, .tile = 3, .nrhs = 2, .order = order}, 4,
                     solve_triangles<double>);
    }
    expect_ordered({.ranks = 3, .n = 11, .tile = 2, .nrhs = 520, .order = order}, 2,
                   solve_triangles<std::complex<float>>);
  }
}

}  // namespace
}  // namespace jaxmg::test
