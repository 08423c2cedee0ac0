// Memory of the eigensolver, in matrices over all ranks.
#include <gtest/gtest.h>

#include "core/plan.h"

namespace jaxmg {
namespace {

constexpr DType kTypes[] = {DType::f32, DType::f64, DType::c64, DType::c128};

PlanRequest request(DType type, Size n, int ranks, Platform platform, Size count) {
  PlanRequest q;
  q.routine = Routine::syevd;
  q.type = type;
  q.n = n;
  q.ranks = ranks;
  q.platform = platform;
  q.vectors = count > 0;
  q.columns = count;
  return q;
}

double matrices(const PlanRequest& q) {
  return static_cast<double>(Plan(q).total_bytes()) * q.ranks /
         (static_cast<double>(q.n) * static_cast<double>(q.n) *
          static_cast<double>(size_of(q.type)));
}

TEST(EigenPlan, FewMatricesOverAllRanks) {
  for (const DType type : kTypes) {
    for (const Platform platform : {Platform::cpu, Platform::cuda}) {
      for (const int ranks : {1, 2, 8}) {
        SCOPED_TRACE(::testing::Message() << "type " << static_cast<int>(type) << " ranks " << ranks
                                          << " cuda " << (platform == Platform::cuda));
        const Size n = 40000;
        EXPECT_LE(matrices(request(type, n, ranks, platform, n)), 4.5);
        EXPECT_LE(matrices(request(type, n, ranks, platform, 0)), 1.5);
        // Some vectors: the tridiagonal matrix's are all needed, but for the last merge.
        EXPECT_LE(matrices(request(type, n, ranks, platform, n / 10)), 4.5);
      }
    }
  }
}

// Nothing of n^2 elements is on every rank.
TEST(EigenPlan, BuffersShrinkWithTheNumberOfRanks) {
  for (const DType type : kTypes) {
    const Size n = 100000;
    const Plan plan(request(type, n, 8, Platform::cpu, n));
    for (const Entry& e : plan.entries()) {
      EXPECT_LE(e.count, n * (n / 8) + n) << name(e.buffer);
    }
  }
}

TEST(EigenPlan, SizesBeyond32Bits) {
  for (const Size n : {Size{0}, Size{1}, Size{2}, Size{46341}, Size{1} << 20}) {
    for (const int ranks : {1, 3, 8}) {
      const Plan plan(request(DType::c128, n, ranks, Platform::cuda, n));
      for (const Entry& e : plan.entries()) {
        EXPECT_GE(e.count, 0) << name(e.buffer);
        EXPECT_GE(e.bytes(), 0) << name(e.buffer);
      }
    }
  }
  const Plan plan(request(DType::c128, Size{1} << 20, 1, Platform::cpu, Size{1} << 20));
  EXPECT_GT(plan.total_bytes(), Size{1} << 44);
  EXPECT_NE(plan.json().find("\"sweep_reflectors\""), std::string::npos);
}

}  // namespace
}  // namespace jaxmg
