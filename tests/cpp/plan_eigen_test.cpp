// Memory of the eigensolver, in matrices over all ranks.
#include <gtest/gtest.h>

#include <algorithm>

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

// float32 on a GPU may have products by parts, at the price of room for them.
TEST(EigenPlan, ProductsByParts) {
  for (const DType type : kTypes) {
    for (const Platform platform : {Platform::cpu, Platform::cuda}) {
      for (const int ranks : {1, 2, 8}) {
        PlanRequest q = request(type, 40000, ranks, platform, 40000);
        const double native = matrices(q);
        q.precision = Precision::split;
        const bool there = type == DType::f32 && platform == Platform::cuda;
        EXPECT_EQ(Plan(q).precision(), there ? Precision::split : Precision::native);
        EXPECT_LE(matrices(q), there ? native + 0.5 : native);
      }
    }
  }
}

TEST(EigenPlan, NarrowBandsWhereTheChaseDecides) {
  const auto band = [](DType type, Size n, Platform platform, bool vectors) {
    return Plan(request(type, n, 2, platform, vectors ? n : 0)).tile();
  };
  for (const DType type : kTypes) {
    const bool large = type == DType::c128;
    for (const Size n : {256, 1024, 2048, 4096}) {
      EXPECT_EQ(band(type, n, Platform::cuda, true), 32);
      EXPECT_EQ(band(type, n, Platform::cuda, false), 32);
    }
    EXPECT_EQ(band(type, 2048, Platform::cpu, true), 64);
    EXPECT_EQ(band(type, 8192, Platform::cuda, false), 32);
    EXPECT_EQ(band(type, 8192, Platform::cuda, true), large ? 32 : 64);
    EXPECT_EQ(band(type, 16384, Platform::cuda, false), large ? 32 : 64);
    EXPECT_EQ(band(type, 16384, Platform::cuda, true), 64);
    EXPECT_EQ(band(type, 32768, Platform::cuda, false), 64);
    EXPECT_EQ(band(type, 8192, Platform::cpu, false), 64);
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

// What every rank keeps of the reflectors of a block of panels.
TEST(EigenPlan, BlocksOfPanelsAreHeldToAPartOfAMatrix) {
  for (const Platform platform : {Platform::cpu, Platform::cuda}) {
    for (const int ranks : {1, 2, 8}) {
      for (const Size n : {Size{2048}, Size{8192}, Size{40000}}) {
        for (const bool vectors : {true, false}) {
          const Plan plan(request(DType::f64, n, ranks, platform, vectors ? n : 0));
          const Size kept = ranks * (plan.entry(Buffer::reflector_rows).count +
                                     plan.entry(Buffer::reflector_own_rows).count);
          const Size least = 2 * plan.tile() * (ranks + 1) * (n + ranks);
          EXPECT_LE(kept, std::max(least, n * n / (vectors ? 3 : 6) + 2 * n * plan.tile()))
              << n << " on " << ranks;
          EXPECT_GE(plan.group(), 1);
          EXPECT_LE(plan.group() * plan.tile(), platform == Platform::cpu ? 256 : 1024);
        }
      }
    }
  }
  PlanRequest q = request(DType::f64, 100, 2, Platform::cpu, 100);
  q.tile = 10;
  q.group = 1000;  // no wider than the matrix
  EXPECT_EQ(Plan(q).group(), 10);
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
