// Programs of src/vendor on thread ranks, with a naive library.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "run_plan.h"
#include "vendor/session.h"
#include "vendor_library.h"

namespace jaxmg::test {

// One problem: its sizes, and the plans that go with them.
struct VendorProblem {
  DType type;
  Size n;
  int ranks;
  Size tile;
  Platform platform = Platform::cpu;  // whose buffers are planned; threads do the work

  PlanRequest request(Routine routine) const {
    PlanRequest request;
    request.routine = routine;
    request.type = type;
    request.n = n;
    request.ranks = ranks;
    request.tile = tile;
    request.platform = platform;
    request.backend = Backend::cusolvermg;
    request.vendor_bytes = 16;
    return request;
  }
};

// program(rank, session, index) on every rank, with scratch that is NaN, whatever the type.
template <class T, class Device = tile::Cpu, class Program>
void run_with_library(const Plan& plan, const Program& program) {
  const PlanRequest& q = plan.request();
  vendor::Session session(q.ranks, std::make_unique<NaiveLibrary<T>>(q.n, q.ranks, plan.tile()));
  run_plan<Device>(plan,
                   [&](Rank<Device>& rank, std::size_t index) { program(rank, session, index); });
}

// The ranks' rows of a, each with the room that the plan gives it, and back.
template <class T>
std::vector<std::vector<T>> shards_of(const Matrix<T>& a, const Plan& plan) {
  const Distribution dist = plan.distribution();
  std::vector<std::vector<T>> shards;
  for (int r = 0; r < dist.ranks(); ++r) {
    std::vector<T>& mine =
        shards.emplace_back(static_cast<std::size_t>(plan.factor_rows() * a.cols));
    for (Size i = 0; i < dist.local_size(r); ++i) {
      std::copy_n(a.data.begin() + *dist.global(r, LocalIndex(i)) * a.cols, a.cols,
                  mine.begin() + i * a.cols);
    }
  }
  return shards;
}

template <class T>
Matrix<T> joined_shards(const std::vector<std::vector<T>>& shards, const Plan& plan, Size columns) {
  const Distribution dist = plan.distribution();
  Matrix<T> a(dist.size(), columns);
  for (int r = 0; r < dist.ranks(); ++r) {
    for (Size i = 0; i < dist.local_size(r); ++i) {
      std::copy_n(shards[static_cast<std::size_t>(r)].begin() + i * columns, columns,
                  a.data.begin() + *dist.global(r, LocalIndex(i)) * columns);
    }
  }
  return a;
}

}  // namespace jaxmg::test
