// LU factorisation with a solution that goes along with it, on thread ranks.
#include <gtest/gtest.h>

#include "lu_run.h"

namespace jaxmg::test {
namespace {

template <class T>
class GesvTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(GesvTest, Types);

// The solution; and the factor is that of a factorisation alone, bit by bit.
template <class T>
void expect_solves(Size n, int ranks, Size tile, Size nrhs, bool natural = false) {
  SCOPED_TRACE("n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
               std::to_string(tile) + " nrhs " + std::to_string(nrhs));
  const auto a = random_matrix<T>(n, n, 3);
  const auto b = random_matrix<T>(n, nrhs, 5);
  LuRun<T> run(a, ranks, tile, natural);
  const auto shard = run.shard;
  const auto pivots = run.pivots;
  for (const bool replicated : {true, false}) {
    EXPECT_LE(solve_residual(a, b, run.gesv(a, b, replicated)), 25);
    EXPECT_EQ(run.shard, shard);
    EXPECT_EQ(run.pivots, pivots);
    for (const Info& info : run.info) {
      EXPECT_EQ(info.kind, 0);
    }
    EXPECT_LE(solve_residual(a, b, run.solve(b, replicated)), 25);
  }
}

TYPED_TEST(GesvTest, EverySizeOnEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4, 5, 8}) {
    for (const Size n : {1, 2, 3, 7, 8, 9, 17, 33}) {
      expect_solves<TypeParam>(n, ranks, 4, 3);
    }
  }
}

TYPED_TEST(GesvTest, EveryTile) {
  for (const int ranks : {1, 2, 4}) {
    for (Size tile = 1; tile <= 19; ++tile) {
      expect_solves<TypeParam>(19, ranks, tile, 1);
      expect_solves<TypeParam>(19, ranks, tile, 2, true);
    }
  }
}

TYPED_TEST(GesvTest, AnyNumberOfRightHandSides) {
  for (const int ranks : {1, 3}) {
    for (const Size nrhs : {0, 1, 2, 17, 64, 65, 600}) {
      expect_solves<TypeParam>(23, ranks, 4, nrhs);
    }
  }
}

TYPED_TEST(GesvTest, SingularMatricesAreToldAndSolutionsAreNaN) {
  using T = TypeParam;
  const Size n = 20;
  for (const int ranks : {1, 2, 3}) {
    auto a = random_matrix<T>(n, n, 3);
    for (Size j = 0; j < n; ++j) {
      a(11, j) = T(0);
    }
    LuRun<T> run(a, ranks, 3);
    const Info expected = run.info[0];
    EXPECT_EQ(expected.kind, static_cast<int>(Kind::singular));
    for (const bool replicated : {true, false}) {
      for (const T& x : run.gesv(a, random_matrix<T>(n, 2, 5), replicated).data) {
        EXPECT_TRUE(std::isnan(std::real(x)));
      }
      for (const Info& info : run.info) {
        EXPECT_EQ(0, std::memcmp(&info, &expected, sizeof(Info)));
      }
    }
  }
}

}  // namespace
}  // namespace jaxmg::test
