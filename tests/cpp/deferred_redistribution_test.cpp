// Matrices that change ranks, or sides of the diagonal, in chunks, on lanes that run late.
#include <gtest/gtest.h>

#include "algo/cyclic.h"
#include "algo/mirror.h"
#include "algo/transpose.h"
#include "deferred_ranks.h"
#include "matrices.h"
#include "tile/cpu/cpu.h"

namespace jaxmg::test {
namespace {

using Shards = std::vector<std::vector<double>>;

PlanRequest make_request(Routine routine, Size n, int ranks, Size tile, Size staged) {
  PlanRequest request;
  request.routine = routine;
  request.type = DType::f64;
  request.n = n;
  request.ranks = ranks;
  request.tile = tile;
  request.staging_bytes = staged * size_of(DType::f64);
  return request;
}

// Elements that are all different.
Shards make_shards(int ranks, Size elements) {
  Shards shards;
  for (int r = 0; r < ranks; ++r) {
    auto& mine = shards.emplace_back();
    for (Size i = 0; i < elements; ++i) {
      mine.push_back(static_cast<double>(r * elements + i + 1));
    }
  }
  return shards;
}

Bytes bytes_of(const Shards& shards) {
  Bytes bytes;
  for (const auto& mine : shards) {
    append(bytes, mine);
  }
  return bytes;
}

// program(rank, r) on the device, and what it makes of the shards; the same as on a CPU.
template <template <class> class Program>
void expect_ordered(const Plan& plan, const Shards& shards, int seeds) {
  Shards expected = shards;
  run_plan<tile::Cpu>(plan, Program<tile::Cpu>{expected});
  expect_same_with_every_schedule(plan.request().ranks, seeds, [&](bool judge) {
    Shards got = shards;
    run_plan<Deferred>(plan, Program<Deferred>{got});
    if (judge) {
      EXPECT_EQ(got, expected);
    }
    return bytes_of(got);
  });
}

template <class Device>
struct DealAndCollect {
  Shards& shards;
  void operator()(Rank<Device>& rank, std::size_t r) const {
    const PlanRequest& q = rank.plan.request();
    const Size columns = q.columns;
    to_cyclic<Device, double>(rank, q.n, q.tile, columns, shards[r].data());
    Device::template multiply<double>(rank.lanes.update, 1, 1, 2.0, shards[r].data(), 1);
    from_cyclic<Device, double>(rank, q.n, q.tile, columns, shards[r].data());
  }
};

TEST(DeferredRedistributionTest, RowsAreDealtOutAndCollected) {
  for (const int ranks : {2, 3, 4}) {
    for (const Size chunk : {Size{1}, Size{2}, Size{3}, Size{4}}) {  // columns in staging
      SCOPED_TRACE("columns in staging " + std::to_string(chunk));
      PlanRequest request = make_request(Routine::cyclic, 23, ranks, 3, 0);
      request.columns = 11;
      const Size rows = std::max(ceil_div(Size{23}, ranks),
                                 Distribution(23, ranks, 3, Storage::cyclic).capacity());
      request.staging_bytes = chunk * rows * size_of(DType::f64);
      expect_ordered<DealAndCollect>(Plan(request), make_shards(ranks, rows * 11), 6);
    }
  }
}

template <class Device>
struct Mirror {
  Shards& shards;
  void operator()(Rank<Device>& rank, std::size_t r) const {
    const PlanRequest& q = rank.plan.request();
    const Distribution dist(q.n, q.ranks, q.tile);
    mirror_triangle<Device, double>(rank, dist, Uplo::lower, shards[r].data());
  }
};

TEST(DeferredRedistributionTest, TrianglesAreMirrored) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Size staged : {Size{9}, Size{20}, Size{70}}) {
      const Plan plan(make_request(Routine::mirror, 26, ranks, 3, staged));
      expect_ordered<Mirror>(plan, make_shards(ranks, ceil_div(Size{26}, ranks) * 26), 6);
    }
  }
}

// A 26 x 26 matrix and back.
template <class Device>
struct TransposeTwice {
  Shards& shards;
  void operator()(Rank<Device>& rank, std::size_t r) const {
    const PlanRequest& q = rank.plan.request();
    const Distribution dist(q.n, q.ranks, q.tile);
    double* const a = shards[r].data();
    double* const b = a + dist.capacity() * q.n;
    distributed_transpose<Device, double>(rank, dist, dist, false, a, b);
    distributed_transpose<Device, double>(rank, dist, dist, true, b, a);
  }
};

TEST(DeferredRedistributionTest, MatricesAreTransposed) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Size staged : {Size{9}, Size{30}}) {
      const Plan plan(make_request(Routine::mirror, 26, ranks, 3, staged));
      expect_ordered<TransposeTwice>(plan, make_shards(ranks, 2 * ceil_div(Size{26}, ranks) * 26),
                                     6);
    }
  }
}

}  // namespace
}  // namespace jaxmg::test
