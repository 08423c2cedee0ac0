// Inverses from LU factors on thread ranks.
#include "algo/lu_inverse.h"

#include <gtest/gtest.h>

#include "algo/lu.h"
#include "matrices.h"
#include "run_ranks.h"
#include "tile/cpu/cpu.h"

namespace jaxmg::test {
namespace {

using tile::Cpu;

template <class T>
struct Inverse {
  Matrix<T> x;
  std::vector<Info> info;

  Inverse(const Matrix<T>& a, int ranks, Size tile, Platform platform = Platform::cpu,
          Size staging_bytes = 0)
      : x(a.rows, a.rows), info(static_cast<std::size_t>(ranks)) {
    const Size n = a.rows;
    PlanRequest request;
    request.routine = Routine::getrf;
    request.type = dtype_of<T>;
    request.n = n;
    request.ranks = ranks;
    request.tile = tile;
    request.platform = platform;
    const Plan factor(request);
    request.routine = Routine::getri;
    request.tile = factor.tile();
    request.staging_bytes = staging_bytes;
    const Plan inverse(request);
    const Distribution dist = factor.distribution();
    EXPECT_EQ(dist, inverse.distribution());
    std::vector<std::vector<T>> shard;
    for (int r = 0; r < ranks; ++r) {
      auto& mine = shard.emplace_back(static_cast<std::size_t>(dist.capacity() * n));
      for (Size i = 0; i < dist.local_size(r); ++i) {
        std::copy_n(a.data.begin() + *dist.global(r, LocalIndex(i)) * n, n, mine.begin() + i * n);
      }
    }
    run_ranks(ranks, [&](Communicator<Cpu>& comm, tile::CpuLanes& lanes) {
      const auto r = static_cast<std::size_t>(comm.rank());
      std::vector<std::int32_t> pivots(static_cast<std::size_t>(2 * n), -1);
      Observer observer;
      const auto run = [&](const Plan& plan, const auto& program) {
        std::vector<std::byte> scratch(static_cast<std::size_t>(plan.scratch_bytes()),
                                       std::byte{0xff});  // NaN, whatever the type
        Rank<Cpu> rank{comm, lanes, plan, Workspace(plan, scratch.data()), observer};
        program(rank);
        comm.barrier();
      };
      run(factor, [&](Rank<Cpu>& rank) {
        lu_factor<Cpu, T>(rank, shard[r].data(), nullptr, pivots.data(), &info[r]);
      });
      run(inverse, [&](Rank<Cpu>& rank) {
        lu_inverse<Cpu, T>(rank, pivots.data(), &info[r], shard[r].data());
      });
    });
    for (int r = 0; r < ranks; ++r) {
      for (Size i = 0; i < dist.local_size(r); ++i) {
        std::copy_n(shard[static_cast<std::size_t>(r)].begin() + i * n, n,
                    x.data.begin() + *dist.global(r, LocalIndex(i)) * n);
      }
    }
  }
};

template <class T>
Matrix<T> identity(Size n) {
  Matrix<T> e(n, n);
  for (Size i = 0; i < n; ++i) {
    e(i, i) = T(1);
  }
  return e;
}

template <class T>
class LuInverseTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(LuInverseTest, Types);

TYPED_TEST(LuInverseTest, EveryNumberOfRanksAndTile) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (const Size n : {1, 2, 3, 7, 9, 33}) {
      for (const Size tile : {Size{1}, Size{2}, Size{4}, Size{0}}) {
        SCOPED_TRACE("n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                     std::to_string(tile));
        const auto a = random_matrix<TypeParam>(n, n, 1);
        const Inverse<TypeParam> inverse(a, ranks, tile);
        ASSERT_EQ(inverse.info[0].kind, 0);
        EXPECT_LE(solve_residual(a, identity<TypeParam>(n), inverse.x), 25);
      }
    }
  }
}

TYPED_TEST(LuInverseTest, RowsGoToTheirPlacesAFewAtATime) {
  const Size n = 26;
  const auto a = random_matrix<TypeParam>(n, n, 5);
  const Matrix<TypeParam> whole = Inverse<TypeParam>(a, 3, 4).x;
  for (const Size rows : {1, 5}) {
    const Size bytes = rows * 27 * static_cast<Size>(sizeof(TypeParam));
    EXPECT_EQ(Inverse<TypeParam>(a, 3, 4, Platform::cpu, bytes).x.data, whole.data);
  }
}

TYPED_TEST(LuInverseTest, PermutationsAndScalesAreExact) {
  using T = TypeParam;
  const Size n = 13;
  Matrix<T> a(n, n), expected(n, n);
  for (Size i = 0; i < n; ++i) {
    const Size j = (5 * i + 3) % n;
    a(i, j) = T(std::ldexp(Real<T>(1), static_cast<int>(i % 7) - 3));
    expected(j, i) = T(1) / a(i, j);
  }
  for (const int ranks : {1, 2, 4}) {
    EXPECT_EQ(Inverse<T>(a, ranks, 2).x.data, expected.data);
    EXPECT_EQ(Inverse<T>(a, ranks, 3, Platform::cuda).x.data, expected.data);
  }
}

TYPED_TEST(LuInverseTest, FailuresGiveNaN) {
  using T = TypeParam;
  for (const int ranks : {1, 3}) {
    auto singular = random_matrix<T>(12, 12, 2);
    std::fill_n(&singular(7, 0), 12, T(0));
    auto bad = random_matrix<T>(12, 12, 2);
    bad(1, 4) = T(std::numeric_limits<Real<T>>::infinity());
    for (const auto& [a, kind] : {std::pair{singular, Kind::singular}, {bad, Kind::non_finite}}) {
      const Inverse<T> inverse(a, ranks, 4);
      EXPECT_EQ(inverse.info[0].kind, static_cast<int>(kind));
      EXPECT_TRUE(
          std::ranges::all_of(inverse.x.data, [](T v) { return std::isnan(std::real(v)); }));
    }
  }
}

}  // namespace
}  // namespace jaxmg::test
