// What src/vendor/lu.h does around a library: redistribution, pivots, right-hand sides of both
// systems, statuses.
#include "vendor/lu.h"

#include <gtest/gtest.h>

#include <cstring>

#include "split_rows.h"
#include "vendor_run.h"

namespace jaxmg::test {
namespace {

using tile::Cpu;

// One factorisation and what is solved with it.
template <class T>
struct Run {
  VendorProblem problem;
  std::vector<std::vector<T>> shard;
  std::vector<std::vector<T>> aux;
  std::vector<std::vector<std::int32_t>> pivots;
  std::vector<Info> info;

  Run(const Matrix<T>& a, int ranks, Size tile, Platform platform = Platform::cpu)
      : problem{dtype_of<T>, a.rows, ranks, tile, platform},
        pivots(static_cast<std::size_t>(ranks),
               std::vector<std::int32_t>(static_cast<std::size_t>(2 * a.rows), -1)),
        info(static_cast<std::size_t>(ranks)) {
    const Plan plan(problem.request(Routine::getrf));
    problem.tile = plan.tile();
    shard = shards_of(a, plan);
    aux.assign(shard.size(), std::vector<T>(static_cast<std::size_t>(plan.aux_count())));
    run_with_library<T>(plan, [&](Rank<Cpu>& rank, vendor::Session& session, std::size_t r) {
      vendor::getrf<Cpu, T>(rank, session, shard[r].data(), aux[r].data(), pivots[r].data(),
                            &info[r]);
    });
    for (std::size_t r = 1; r < info.size(); ++r) {  // the same everywhere
      EXPECT_EQ(pivots[0], pivots[r]);
      EXPECT_EQ(0, std::memcmp(&info[0], &info[r], sizeof(Info)));
    }
  }

  Matrix<T> solve(const Matrix<T>& b, bool replicated, bool transpose) {
    PlanRequest request = problem.request(Routine::getrs);
    request.nrhs = b.cols;
    request.replicated_rhs = replicated;
    request.transpose = transpose;
    const Plan plan(request);
    const Distribution dist = plan.distribution();
    std::vector<Matrix<T>> parts(shard.size());
    run_with_library<T>(plan, [&](Rank<Cpu>& rank, vendor::Session& session, std::size_t r) {
      Matrix<T> mine = rows_of_rank(b, dist, rank.comm.rank(), replicated);
      vendor::getrs<Cpu, T>(rank, session, shard[r].data(), aux[r].data(), pivots[r].data(),
                            &info[r], mine.data.data());
      parts[r] = mine;
    });
    return joined_rows(parts, dist, replicated);
  }
};

template <class T>
Matrix<T> transposed(const Matrix<T>& a) {
  Matrix<T> t(a.cols, a.rows);
  for (Size i = 0; i < a.rows; ++i) {
    for (Size j = 0; j < a.cols; ++j) {
      t(j, i) = a(i, j);
    }
  }
  return t;
}

template <class T>
void expect_solves(const Matrix<T>& a, Run<T>& run, const Matrix<T>& b) {
  for (const bool replicated : {true, false}) {
    EXPECT_LE(solve_residual(a, b, run.solve(b, replicated, false)), 25);
    EXPECT_LE(solve_residual(transposed(a), b, run.solve(b, replicated, true)), 25);
  }
}

template <class T>
class VendorLuTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(VendorLuTest, Types);

TYPED_TEST(VendorLuTest, SolvesBothSystemsOnEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const Size n : {1, 2, 7, 9, 33}) {
      for (const Size tile : {Size{1}, Size{4}, Size{0}}) {
        SCOPED_TRACE("n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                     std::to_string(tile));
        const auto a = random_matrix<TypeParam>(n, n, 1);
        Run<TypeParam> run(a, ranks, tile);
        ASSERT_EQ(run.info[0].kind, 0);
        expect_solves(a, run, random_matrix<TypeParam>(n, 3, 5));
      }
    }
  }
}

TYPED_TEST(VendorLuTest, BuffersOfGpus) {
  for (const int ranks : {1, 3}) {
    const auto a = random_matrix<TypeParam>(29, 29, 2);
    Run<TypeParam> run(a, ranks, 4, Platform::cuda);
    EXPECT_GT(run.aux[0].size(), 1U);
    expect_solves(a, run, random_matrix<TypeParam>(29, 5, 6));
  }
}

TYPED_TEST(VendorLuTest, ManyRightHandSidesInSeveralBlocks) {
  const auto a = random_matrix<TypeParam>(6, 6, 6);
  Run<TypeParam> run(a, 3, 2);
  for (const Size nrhs : {Size{0}, Size{1}, Size{1024}, Size{1027}}) {
    expect_solves(a, run, random_matrix<TypeParam>(6, nrhs, 8));
  }
}

TYPED_TEST(VendorLuTest, PivotsAndRowsAreThoseOfTheFactorisation) {
  using T = TypeParam;
  const Size n = 11;
  Matrix<T> a(n, n);  // column i of A^T has its one element in row n - 1 - i
  for (Size i = 0; i < n; ++i) {
    a(i, n - 1 - i) = T(static_cast<Real<T>>(i + 1));
  }
  for (const int ranks : {1, 2, 4}) {
    const Run<T> run(a, ranks, 2);
    const auto& pivots = run.pivots[0];
    for (Size i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      EXPECT_EQ(pivots[at], std::max(i, n - 1 - i));
      EXPECT_EQ(pivots[at + static_cast<std::size_t>(n)], n - 1 - i);
    }
  }
}

TYPED_TEST(VendorLuTest, FailuresAreReportedAsByTheNativeEngine) {
  using T = TypeParam;
  const Size n = 24;
  for (const int ranks : {1, 2, 3}) {
    for (Size k = 1; k < n; k += 5) {
      auto a = random_matrix<T>(n, n, 7);
      std::fill_n(&a(k, 0), n, T(0));  // equation k depends on none
      Run<T> run(a, ranks, 4);
      EXPECT_EQ(run.info[0].kind, static_cast<int>(Kind::singular));
      EXPECT_EQ(run.info[0].phase, static_cast<int>(Phase::natural_order));
      EXPECT_EQ(status(run.info[0]), k + 1);
      for (const bool transpose : {true, false}) {
        for (const T& value : run.solve(random_matrix<T>(n, 2, 1), true, transpose).data) {
          EXPECT_TRUE(std::isnan(std::real(value)));
        }
      }
    }
    auto bad = random_matrix<T>(n, n, 7);
    bad(3, 20) = T(std::numeric_limits<Real<T>>::infinity());
    Run<T> run(bad, ranks, 4);
    EXPECT_EQ(run.info[0].kind, static_cast<int>(Kind::non_finite));
    for (const T& value : run.solve(random_matrix<T>(n, 2, 1), false, false).data) {
      EXPECT_TRUE(std::isnan(std::real(value)));
    }
  }
}

// A library that does not say that a pivot was zero.
template <class T>
class Silent final : public NaiveLibrary<T> {
 public:
  using NaiveLibrary<T>::NaiveLibrary;
  Size getrf(vendor::Pointers a, vendor::Pointers pivots, vendor::Pointers workspace) override {
    NaiveLibrary<T>::getrf(a, pivots, workspace);
    return 0;
  }
};

TYPED_TEST(VendorLuTest, AZeroPivotIsFoundIfTheLibraryIsSilent) {
  using T = TypeParam;
  const Size n = 13, k = 6;
  auto a = random_matrix<T>(n, n, 3);
  std::fill_n(&a(k, 0), n, T(0));
  const VendorProblem problem{dtype_of<T>, n, 3, 2};
  const Plan plan(problem.request(Routine::getrf));
  auto shard = shards_of(a, plan);
  std::vector<Info> info(3);
  vendor::Session session(3, std::make_unique<Silent<T>>(n, 3, plan.tile()));
  run_ranks(3, [&](Communicator<Cpu>& comm, tile::CpuLanes& lanes) {
    std::vector<std::byte> scratch(static_cast<std::size_t>(plan.scratch_bytes()));
    std::vector<std::int32_t> pivots(2 * n);
    Observer observer;
    Rank<Cpu> rank{comm, lanes, plan, Workspace(plan, scratch.data()), observer};
    const auto r = static_cast<std::size_t>(comm.rank());
    vendor::getrf<Cpu, T>(rank, session, shard[r].data(), nullptr, pivots.data(), &info[r]);
    comm.barrier();
  });
  for (const Info& found : info) {
    EXPECT_EQ(found.kind, static_cast<int>(Kind::singular));
    EXPECT_EQ(status(found), k + 1);
  }
}

TEST(VendorLuPivotsTest, WhatNoFactorisationGivesIsRefused) {
  const Distribution cyclic(4, 2, 1, Storage::cyclic);
  EXPECT_EQ(vendor::pivots_of_all(cyclic, {4, 4, 2, 4}),
            (vendor::Integers{3, 1, 3, 3, 3, 1, 0, 2}));
  EXPECT_THROW(vendor::pivots_of_all(cyclic, {4, 2, 2, 4}), std::runtime_error);  // 2 < 3
  EXPECT_THROW(vendor::pivots_of_all(cyclic, {4, 4, 5, 4}), std::runtime_error);
}

TEST(VendorLuPlanTest, TilesAreThoseThatTheLibraryTakes) {
  for (const Size tile : {Size{0}, Size{100}, Size{4096}}) {
    const VendorProblem problem{DType::f64, 100000, 2, tile, Platform::cuda};
    EXPECT_LE(Plan(problem.request(Routine::getrf)).tile(), 512);
    EXPECT_LE(Plan(problem.request(Routine::syevd)).tile(), 1024);
    EXPECT_EQ(Plan(problem.request(Routine::potrf)).tile() > 2048, tile == 4096);
  }
}

}  // namespace
}  // namespace jaxmg::test
