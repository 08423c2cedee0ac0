// What src/vendor does around a library: redistribution, right-hand sides, triangles, conjugates,
// statuses and the meeting of the ranks. On thread ranks, with a naive library.
#include <gtest/gtest.h>

#include "run_ranks.h"
#include "split_rows.h"
#include "vendor/cholesky.h"
#include "vendor_lagging.h"
#include "vendor_library.h"

namespace jaxmg::test {
namespace {

using tile::Cpu;

// One factorisation on thread ranks and everything that can be asked of it.
template <class T>
struct Run {
  Size n;
  int ranks;
  Size tile = 0;
  std::vector<std::vector<T>> shard;
  std::vector<Info> info;

  Run(const Matrix<T>& a, int ranks_, Size tile_, Triangle valid = Triangle::whole)
      : n(a.rows), ranks(ranks_), tile(tile_), info(static_cast<std::size_t>(ranks_)) {
    PlanRequest request = make_request(Routine::potrf);
    request.mirror = valid != Triangle::whole;
    const Plan plan(request);
    tile = plan.tile();
    const Distribution dist = plan.distribution();
    for (int r = 0; r < ranks; ++r) {
      std::vector<T> mine(static_cast<std::size_t>(plan.factor_rows() * n));
      for (Size i = 0; i < dist.local_size(r); ++i) {
        std::copy_n(a.data.begin() + *dist.global(r, LocalIndex(i)) * n, n, mine.begin() + i * n);
      }
      shard.push_back(mine);
    }
    each_rank(plan, [&](Rank<Cpu>& rank, vendor::Session& session, std::size_t r) {
      vendor::potrf<Cpu, T>(rank, session, valid, shard[r].data(), &info[r]);
    });
  }

  PlanRequest make_request(Routine routine) const {
    PlanRequest request;
    request.routine = routine;
    request.type = dtype_of<T>;
    request.n = n;
    request.ranks = ranks;
    request.tile = tile;
    request.backend = Backend::cusolvermg;
    request.vendor_bytes = 16;
    return request;
  }

  template <class Program>
  void each_rank(const Plan& plan, Program program) {
    vendor::Session session(ranks, std::make_unique<NaiveLibrary<T>>(n, ranks, plan.tile()));
    run_ranks(ranks, [&](Communicator<Cpu>& comm, tile::CpuLanes& lanes) {
      std::vector<std::byte> scratch(static_cast<std::size_t>(plan.scratch_bytes()),
                                     std::byte{0xff});  // NaN, whatever the type
      Observer observer;
      Rank<Cpu> rank{comm, lanes, plan, Workspace(plan, scratch.data()), observer};
      program(rank, session, static_cast<std::size_t>(comm.rank()));
      comm.barrier();
    });
  }

  Matrix<T> solve(const Matrix<T>& b, bool replicated) {
    PlanRequest request = make_request(Routine::potrs);
    request.nrhs = b.cols;
    request.replicated_rhs = replicated;
    const Plan plan(request);
    const Distribution dist = plan.distribution();
    std::vector<Matrix<T>> parts(static_cast<std::size_t>(ranks));
    each_rank(plan, [&](Rank<Cpu>& rank, vendor::Session& session, std::size_t r) {
      Matrix<T> mine = rows_of_rank(b, dist, rank.comm.rank(), replicated);
      vendor::potrs<Cpu, T>(rank, session, shard[r].data(), &info[r], mine.data.data());
      parts[r] = mine;
    });
    return joined_rows(parts, dist, replicated);
  }

  Matrix<T> inverted() {
    const Plan plan(make_request(Routine::potri));
    const Distribution dist = plan.distribution();
    each_rank(plan, [&](Rank<Cpu>& rank, vendor::Session& session, std::size_t r) {
      vendor::potri<Cpu, T>(rank, session, &info[r], shard[r].data());
    });
    Matrix<T> x(n, n);
    for (int r = 0; r < ranks; ++r) {
      for (Size i = 0; i < dist.local_size(r); ++i) {
        std::copy_n(shard[static_cast<std::size_t>(r)].begin() + i * n, n,
                    x.data.begin() + *dist.global(r, LocalIndex(i)) * n);
      }
    }
    return x;
  }

  Real<T> logdet() {
    const Plan plan(make_request(Routine::logdet));
    std::vector<Real<T>> result(static_cast<std::size_t>(ranks));
    each_rank(plan, [&](Rank<Cpu>& rank, vendor::Session&, std::size_t r) {
      vendor::logdet<Cpu, T>(rank, shard[r].data(), &info[r], &result[r]);
    });
    return result[0];
  }
};

template <class T>
class VendorTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(VendorTest, Types);

template <class T>
Matrix<T> identity(Size n) {
  Matrix<T> e(n, n);
  for (Size i = 0; i < n; ++i) {
    e(i, i) = T(1);
  }
  return e;
}

TYPED_TEST(VendorTest, SolvesOnEveryNumberOfRanks) {
  for (int ranks : {1, 2, 3, 8}) {
    for (Size n : {1, 2, 7, 9, 33}) {
      for (Size tile : {Size{1}, Size{4}, Size{0}}) {
        SCOPED_TRACE("n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                     std::to_string(tile));
        const auto a = random_hpd<TypeParam>(n, 1);
        Run<TypeParam> run(a, ranks, tile);
        ASSERT_EQ(run.info[0].kind, 0);
        for (Size nrhs : {Size{1}, Size{3}, Size{11}}) {
          const auto b = random_matrix<TypeParam>(n, nrhs, 5);
          EXPECT_LE(solve_residual(a, b, run.solve(b, true)), 25);
          EXPECT_LE(solve_residual(a, b, run.solve(b, false)), 25);
        }
      }
    }
  }
}

TYPED_TEST(VendorTest, ManyRightHandSidesInSeveralBlocks) {
  const auto a = random_hpd<TypeParam>(6, 6);
  Run<TypeParam> run(a, 3, 2);
  for (Size nrhs : {Size{0}, Size{1024}, Size{1027}}) {
    const auto b = random_matrix<TypeParam>(6, nrhs, 8);
    EXPECT_LE(solve_residual(a, b, run.solve(b, true)), 25);
    EXPECT_LE(solve_residual(a, b, run.solve(b, false)), 25);
  }
}

TYPED_TEST(VendorTest, InverseIsWholeAndInTheUsersOrder) {
  for (int ranks : {1, 2, 3, 8}) {
    for (Size n : {1, 2, 8, 30}) {
      for (Size tile : {Size{1}, Size{3}, Size{30}}) {
        SCOPED_TRACE("ranks " + std::to_string(ranks) + " n " + std::to_string(n) + " tile " +
                     std::to_string(tile));
        const auto a = random_hpd<TypeParam>(n, 12);
        EXPECT_LE(
            solve_residual(a, identity<TypeParam>(n), Run<TypeParam>(a, ranks, tile).inverted()),
            25);
      }
    }
  }
}

TYPED_TEST(VendorTest, ReadsOnlyTheTriangleThatIsNamed) {
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
    for (int ranks : {1, 3}) {
      Run<T> run(half, ranks, 3, valid);
      ASSERT_EQ(run.info[0].kind, 0);
      const Matrix<T> b = random_matrix<T>(n, 2, 5);
      EXPECT_LE(solve_residual(a, b, run.solve(b, true)), 25);
    }
  }
}

TYPED_TEST(VendorTest, ImaginaryPartsOfTheDiagonalAreLeftOut) {
  using T = TypeParam;
  if constexpr (is_complex_v<T>) {
    const auto a = random_hpd<T>(19, 4);
    auto given = a;
    for (Size i = 0; i < 19; ++i) {
      given(i, i) += T(0, static_cast<Real<T>>(i + 1));
    }
    for (int ranks : {1, 4}) {
      Run<T> run(given, ranks, 2);
      ASSERT_EQ(run.info[0].kind, 0);
      const Matrix<T> b = random_matrix<T>(19, 2, 5);
      EXPECT_LE(solve_residual(a, b, run.solve(b, true)), 25);
    }
  }
}

TYPED_TEST(VendorTest, LogDeterminantIsThatOfTheDiagonal) {
  using T = TypeParam;
  const Size n = 30;
  Matrix<T> a(n, n);
  double expected = 0;
  for (Size i = 0; i < n; ++i) {
    a(i, i) = T(static_cast<Real<T>>(1.5 + static_cast<double>(i)));
    expected += std::log(1.5 + static_cast<double>(i));
  }
  for (int ranks : {1, 2, 5}) {
    const double got = Run<T>(a, ranks, 4).logdet();
    EXPECT_NEAR(got, expected, 100 * std::numeric_limits<Real<T>>::epsilon() * expected);
  }
}

TYPED_TEST(VendorTest, FailuresAreReportedAsByTheNativeEngine) {
  using T = TypeParam;
  const Size n = 24;
  for (int ranks : {1, 2, 3}) {
    for (Size k = 0; k < n; k += 5) {
      auto a = random_hpd<T>(n, 7);
      a(k, k) = T(-1);
      Run<T> run(a, ranks, 4);
      for (const Info& info : run.info) {
        EXPECT_EQ(info.kind, static_cast<int>(Kind::not_positive_definite));
        EXPECT_EQ(info.phase, static_cast<int>(Phase::natural_order));
        EXPECT_EQ(status(info), k + 1);
      }
      for (bool replicated : {true, false}) {
        for (const T& value : run.solve(random_matrix<T>(n, 2, 1), replicated).data) {
          EXPECT_TRUE(std::isnan(std::real(value)));
        }
      }
      EXPECT_TRUE(std::isnan(run.logdet()));
      for (const T& value : run.inverted().data) {
        EXPECT_TRUE(std::isnan(std::real(value)));
      }
    }
    auto bad = random_hpd<T>(n, 7);
    bad(3, 20) = bad(20, 3) = T(std::numeric_limits<Real<T>>::infinity());
    EXPECT_EQ(Run<T>(bad, ranks, 4).info[0].kind, static_cast<int>(Kind::non_finite));
    auto half = random_hpd<T>(n, 7);
    for (Size i = 0; i < n; ++i) {
      std::fill_n(half.data.begin() + i * n, i, T(0));
    }
    EXPECT_EQ(Run<T>(half, ranks, 4).info[0].kind, static_cast<int>(Kind::not_hermitian));
  }
}

// What each rank threw.
template <class T>
std::vector<std::exception_ptr> factor_with_lag(const Matrix<T>& a, int ranks, Size tile,
                                                Size late) {
  PlanRequest request;
  request.type = dtype_of<T>;
  request.n = a.rows;
  request.ranks = ranks;
  request.tile = tile;
  request.backend = Backend::cusolvermg;
  request.vendor_bytes = 16;
  const Plan plan(request);
  vendor::Session session(ranks,
                          std::make_unique<LaggingLibrary<T>>(a.rows, ranks, plan.tile(), late));
  return collect_ranks(ranks, [&](Communicator<Cpu>& comm, tile::CpuLanes& lanes) {
    std::vector<std::byte> scratch(static_cast<std::size_t>(plan.scratch_bytes()), std::byte{0xff});
    Observer observer;
    Rank<Cpu> rank{comm, lanes, plan, Workspace(plan, scratch.data()), observer};
    const Distribution dist = plan.distribution();
    std::vector<T> mine(static_cast<std::size_t>(plan.factor_rows() * a.cols));
    for (Size i = 0; i < dist.local_size(comm.rank()); ++i) {
      std::copy_n(a.data.begin() + *dist.global(comm.rank(), LocalIndex(i)) * a.cols, a.cols,
                  mine.begin() + i * a.cols);
    }
    Info info;
    vendor::potrf<Cpu, T>(rank, session, Triangle::whole, mine.data(), &info);
    comm.barrier();
  });
}

TYPED_TEST(VendorTest, AFactorOfAnotherMatrixIsNoResult) {
  using T = TypeParam;
  const auto a = random_hpd<T>(64, 3);
  for (const int ranks : {2, 3}) {
    expect_no_errors(factor_with_lag<T>(a, ranks, 8, -1));
    for (const Size late : {0, 1, 3}) {
      for (const auto& error : factor_with_lag<T>(a, ranks, 8, late)) {
        ASSERT_TRUE(error);
        EXPECT_NE(message_of(error).find("is not one of the matrix"), std::string::npos)
            << message_of(error);
      }
    }
  }
}

// A library that fails, or never gets to work since a rank does.
class Failing final : public vendor::Library {
 public:
  Size workspace_bytes() const override { return 0; }
  Size potrf(vendor::Pointers, vendor::Pointers) override {
    throw std::runtime_error("cusolverMgPotrf failed");
  }
  void potrs(Size, vendor::Pointers, vendor::Pointers, vendor::Pointers) override {}
  Size potri(vendor::Pointers, vendor::Pointers) override { return 7; }
  Size getrf(vendor::Pointers, vendor::Pointers, vendor::Pointers) override { return 0; }
  void getrs(Size, vendor::Pointers, vendor::Pointers, vendor::Pointers,
             vendor::Pointers) override {}
  Size syevd(bool, vendor::Pointers, void*, vendor::Pointers) override { return 3; }
};

vendor::Session::Work potrf_of_parts() {
  return [](vendor::Library& library, const vendor::Parts& p) {
    return library.potrf(p.a, p.workspace);
  };
}

TEST(VendorSessionTest, AFailureOfTheLibraryReachesAllRanks) {
  vendor::Session session(3, std::make_unique<Failing>());
  const auto errors = collect_ranks(3, [&](Communicator<Cpu>& comm, tile::CpuLanes&) {
    session.run(
        comm.rank(), {}, [&] { comm.barrier(); }, potrf_of_parts());
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_EQ(message_of(error), "cusolverMgPotrf failed");
  }
}

TEST(VendorSessionTest, ARankThatDoesNotComeFailsTheOthers) {
  for (int absent : {0, 2}) {
    vendor::Session session(3, std::make_unique<Failing>());
    const auto errors = collect_ranks(3, [&](Communicator<Cpu>& comm, tile::CpuLanes&) {
      if (comm.rank() == absent) {
        throw std::runtime_error("lost");
      }
      session.run(
          comm.rank(), {}, [&] { comm.barrier(); }, potrf_of_parts());
    });
    for (const auto& error : errors) {
      ASSERT_TRUE(error);
      EXPECT_NE(message_of(error).find("lost"), std::string::npos);
    }
  }
}

TEST(VendorSessionTest, RoundsFollowEachOther) {
  vendor::Session session(4, std::make_unique<Failing>());
  run_ranks(4, [&](Communicator<Cpu>& comm, tile::CpuLanes&) {
    for (Size round = 0; round < 200; ++round) {
      // Rank 0 counts the parts that bear this round's mark.
      const Size got = session.run(
          comm.rank(), {.a = reinterpret_cast<void*>(round + 1)}, [&] { comm.barrier(); },
          [round](vendor::Library&, const vendor::Parts& p) {
            return std::ranges::count(p.a, reinterpret_cast<void*>(round + 1)) + 10 * round;
          });
      ASSERT_EQ(got, 4 + 10 * round);
    }
  });
}

TEST(VendorPlanTest, TheChosenTileDividesAShardIfItCan) {
  for (const Size n : {Size{1}, Size{7}, Size{1000}, Size{8192}, Size{20000}, Size{131072}}) {
    for (const int ranks : {1, 2, 8}) {
      PlanRequest q;
      q.n = n;
      q.ranks = ranks;
      q.platform = Platform::cuda;
      q.backend = Backend::cusolvermg;
      const Plan plan(q);
      const Size rows = ceil_div(n, ranks);
      EXPECT_LE(plan.tile(), 2048);
      EXPECT_GE(plan.factor_rows(), rows);
      EXPECT_LE(plan.factor_rows(), rows + rows / plan.tile() + 1);
      if (n % 1000 == 0 || n % 8192 == 0) {
        EXPECT_EQ(plan.factor_rows(), rows);
      }
    }
  }
}

}  // namespace
}  // namespace jaxmg::test
