// What src/vendor does around a library, on lanes that run late: the library is no work of a lane,
// and finds and leaves its data where all lanes must have come to an end, or not have begun.
#include <gtest/gtest.h>

#include "deferred_device.h"
#include "deferred_ranks.h"
#include "eigen_problem.h"
#include "split_rows.h"
#include "vendor/cholesky.h"
#include "vendor/eigen.h"
#include "vendor/lu.h"
#include "vendor_run.h"

namespace jaxmg::vendor {

template <>
struct Host<test::Deferred> {
  static Info finish(test::DeferredLane& lane, const Info* info) {
    Info found;
    read(lane, 1, info, &found);
    return found;
  }
  template <class X>
  static void read(test::DeferredLane& lane, Size count, const X* from, X* host) {
    lane.put("read", [=] { std::copy_n(from, count, host); });
    lane.synchronise();
  }
  template <class X>
  static void write(test::DeferredLane& lane, Size count, const X* host, X* to) {
    lane.put("write", [=] { std::copy_n(host, count, to); });
    lane.synchronise();
  }
  template <class Until>
  static void wait(test::DeferredLane& lane, std::unique_lock<std::mutex>& lock,
                   std::condition_variable&, const Until& until) {
    std::mutex& mutex = *lock.mutex();
    lock.unlock();
    lane.wait_until("the library", [&] {
      const std::lock_guard guard(mutex);
      return until();
    });
    lock.lock();
  }
};

}  // namespace jaxmg::vendor

namespace jaxmg::test {
namespace {

struct Case {
  int ranks;
  Size n;
  Size tile;
};

template <class T>
VendorProblem problem_of(const Case& c) {
  return {dtype_of<T>, c.n, c.ranks, c.tile, Platform::cuda};
}

template <class Program>
void with_every_schedule(const Case& c, const Program& run) {
  SCOPED_TRACE("n " + std::to_string(c.n) + " tile " + std::to_string(c.tile));
  expect_same_with_every_schedule(c.ranks, 3, [&](bool judge) { return run(c, judge); });
}

// The solution of one kind of system: solve(rank, session, index, right-hand sides).
template <class T, class Solve>
Matrix<T> solved(const PlanRequest& request, const Matrix<T>& b, const Solve& solve) {
  const Plan plan(request);
  const Distribution dist = plan.distribution();
  std::vector<Matrix<T>> parts(static_cast<std::size_t>(request.ranks));
  for (int r = 0; r < request.ranks; ++r) {
    parts[static_cast<std::size_t>(r)] = rows_of_rank(b, dist, r, request.replicated_rhs);
  }
  run_with_library<T, Deferred>(plan,
                                [&](Rank<Deferred>& rank, vendor::Session& session, std::size_t r) {
                                  solve(rank, session, r, parts[r].data.data());
                                });
  return joined_rows(parts, dist, request.replicated_rhs);
}

template <class T>
Bytes cholesky(const Case& c, bool judge) {
  const auto a = random_hpd<T>(c.n, 3);
  const auto b = random_matrix<T>(c.n, 3, 5);
  const VendorProblem problem = problem_of<T>(c);
  std::vector<Info> info(static_cast<std::size_t>(c.ranks));
  PlanRequest request = problem.request(Routine::potrf);
  request.mirror = true;
  const Plan plan(request);
  auto shard = shards_of(a, plan);
  run_with_library<T, Deferred>(
      plan, [&](Rank<Deferred>& rank, vendor::Session& session, std::size_t r) {
        vendor::potrf<Deferred, T>(rank, session, Triangle::lower, shard[r].data(), &info[r]);
      });
  EXPECT_EQ(info[0].kind, 0);
  Bytes bytes;
  for (const bool replicated : {true, false}) {
    request = problem.request(Routine::potrs);
    request.nrhs = b.cols;
    request.replicated_rhs = replicated;
    const auto x = solved<T>(request, b, [&](auto& rank, auto& session, std::size_t r, T* mine) {
      vendor::potrs<Deferred, T>(rank, session, shard[r].data(), &info[r], mine);
    });
    if (judge) {
      EXPECT_LE(solve_residual(a, b, x), 25);
    }
    append(bytes, x.data);
  }
  const Plan of_inverse(problem.request(Routine::potri));
  run_with_library<T, Deferred>(
      of_inverse, [&](Rank<Deferred>& rank, vendor::Session& session, std::size_t r) {
        vendor::potri<Deferred, T>(rank, session, &info[r], shard[r].data());
      });
  const auto inverse = joined_shards(shard, of_inverse, c.n);
  if (judge) {
    Matrix<T> identity(c.n, c.n);
    for (Size i = 0; i < c.n; ++i) {
      identity(i, i) = T(1);
    }
    EXPECT_LE(solve_residual(a, identity, inverse), 25);
  }
  append(bytes, inverse.data);
  return bytes;
}

template <class T>
Bytes lu(const Case& c, bool judge) {
  const auto a = random_matrix<T>(c.n, c.n, 3);
  const auto b = random_matrix<T>(c.n, 3, 5);
  Matrix<T> transposed(c.n, c.n);
  for (Size i = 0; i < c.n; ++i) {
    for (Size j = 0; j < c.n; ++j) {
      transposed(j, i) = a(i, j);
    }
  }
  const VendorProblem problem = problem_of<T>(c);
  const Plan plan(problem.request(Routine::getrf));
  const auto ranks = static_cast<std::size_t>(c.ranks);
  std::vector<Info> info(ranks);
  std::vector<std::vector<T>> aux(ranks,
                                  std::vector<T>(static_cast<std::size_t>(plan.aux_count())));
  std::vector<std::vector<std::int32_t>> pivots(
      ranks, std::vector<std::int32_t>(static_cast<std::size_t>(2 * c.n), -1));
  auto shard = shards_of(a, plan);
  run_with_library<T, Deferred>(
      plan, [&](Rank<Deferred>& rank, vendor::Session& session, std::size_t r) {
        vendor::getrf<Deferred, T>(rank, session, shard[r].data(), aux[r].data(), pivots[r].data(),
                                   &info[r]);
      });
  EXPECT_EQ(info[0].kind, 0);
  Bytes bytes;
  for (const bool replicated : {true, false}) {
    for (const bool transpose : {true, false}) {
      PlanRequest request = problem.request(Routine::getrs);
      request.nrhs = b.cols;
      request.replicated_rhs = replicated;
      request.transpose = transpose;
      const auto x = solved<T>(request, b, [&](auto& rank, auto& session, std::size_t r, T* mine) {
        vendor::getrs<Deferred, T>(rank, session, shard[r].data(), aux[r].data(), pivots[r].data(),
                                   &info[r], mine);
      });
      if (judge) {
        EXPECT_LE(solve_residual(transpose ? transposed : a, b, x), 25);
      }
      append(bytes, x.data);
    }
  }
  return bytes;
}

template <class T>
Bytes eigen(const Case& c, bool judge) {
  const auto a = hermitian<T>(c.n, 3);
  PlanRequest request = problem_of<T>(c).request(Routine::syevd);
  request.vectors = true;
  request.columns = c.n;
  const Plan plan(request);
  auto shard = shards_of(a, plan);
  std::vector<Info> info(shard.size());
  std::vector<std::vector<Real<T>>> w(shard.size(),
                                      std::vector<Real<T>>(static_cast<std::size_t>(c.n)));
  run_with_library<T, Deferred>(
      plan, [&](Rank<Deferred>& rank, vendor::Session& session, std::size_t r) {
        vendor::syevd<Deferred, T>(rank, session, Triangle::whole, 0, shard[r].data(), w[r].data(),
                                   shard[r].data(), &info[r]);
      });
  EXPECT_EQ(info[0].kind, 0);
  const auto v = joined_shards(shard, plan, c.n);
  if (judge) {
    expect_decomposes(a, w[0], v);
  }
  Bytes bytes;
  append(bytes, v.data);
  for (const auto& values : w) {
    append(bytes, values);
  }
  return bytes;
}

TEST(DeferredVendorTest, FactorsSolutionsAndInverses) {
  for (const int ranks : {1, 2, 3}) {
    with_every_schedule({ranks, 22, 3}, cholesky<double>);
    with_every_schedule({ranks, 13, 2}, cholesky<std::complex<float>>);
  }
}

TEST(DeferredVendorTest, LuOfBothSystems) {
  for (const int ranks : {1, 2, 3}) {
    with_every_schedule({ranks, 22, 3}, lu<double>);
    with_every_schedule({ranks, 13, 2}, lu<std::complex<float>>);
  }
}

TEST(DeferredVendorTest, EigenvaluesAndVectors) {
  for (const int ranks : {1, 2, 3}) {
    with_every_schedule({ranks, 16, 3}, eigen<double>);
    with_every_schedule({ranks, 11, 2}, eigen<std::complex<float>>);
  }
}

}  // namespace
}  // namespace jaxmg::test
