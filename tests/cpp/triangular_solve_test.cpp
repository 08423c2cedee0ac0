// Triangular systems on thread ranks.
#include "triangular_run.h"

namespace jaxmg::test {
namespace {

template <class T>
class TriangularTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(TriangularTest, Types);

TYPED_TEST(TriangularTest, EveryFormSizeAndLayout) {
  using T = TypeParam;
  for (Uplo uplo : {Uplo::lower, Uplo::upper}) {
    for (Op op : {Op::none, Op::transpose, Op::conj_transpose}) {
      for (Diag diag : {Diag::non_unit, Diag::unit}) {
        const TriangularForm form{uplo, op, diag};
        for (Size n : {1, 2, 9, 24}) {
          const auto [given, meant] = triangular_system<T>(n, form);
          const auto b = random_matrix<T>(n, 3, 5);
          for (int ranks : {1, 2, 3, 8}) {
            for (Size tile : {Size{1}, Size{2}, Size{0}}) {
              SCOPED_TRACE("n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                           std::to_string(tile) + (uplo == Uplo::lower ? " lower" : " upper") +
                           " op " + std::to_string(static_cast<int>(op)));
              EXPECT_LE(
                  solve_residual(meant, b, solve_triangular(given, b, form, ranks, tile, true)),
                  25);
              EXPECT_LE(
                  solve_residual(meant, b, solve_triangular(given, b, form, ranks, tile, false)),
                  25);
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(TriangularTest, EveryTileInTheOrderOfElimination) {
  using T = TypeParam;
  for (Uplo uplo : {Uplo::lower, Uplo::upper}) {
    for (Op op : {Op::none, Op::transpose, Op::conj_transpose}) {
      const TriangularForm form{uplo, op, Diag::non_unit};
      for (Size n : {7, 19}) {
        const auto [given, meant] = triangular_system<T>(n, form);
        for (int ranks : {2, 3, 5, 8}) {
          for (Size tile = 1; tile <= ceil_div(n, ranks); ++tile) {
            SCOPED_TRACE("n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                         std::to_string(tile) + " op " + std::to_string(static_cast<int>(op)));
            const Distribution dist(n, ranks, tile);
            const auto b = random_matrix<T>(n, tile % 3 + 1, 5);
            for (const bool replicated : {true, false}) {
              const auto x = solve_triangular(relabelled(given, dist), b, form, ranks, tile,
                                              replicated, Order::relabelled);
              EXPECT_LE(solve_residual(relabelled(meant, dist), b, x), 25);
            }
          }
        }
      }
    }
  }
}

TYPED_TEST(TriangularTest, ManyRightHandSidesInSeveralBlocks) {
  using T = TypeParam;
  for (Op op : {Op::none, Op::conj_transpose}) {
    const TriangularForm form{Uplo::upper, op, Diag::non_unit};
    const auto [given, meant] = triangular_system<T>(23, form);
    for (Size nrhs : {0, 1, 512, 700}) {
      const auto b = random_matrix<T>(23, nrhs, 8);
      EXPECT_LE(solve_residual(meant, b, solve_triangular(given, b, form, 3, 4, true)), 25);
      EXPECT_LE(solve_residual(meant, b, solve_triangular(given, b, form, 3, 4, false)), 25);
    }
  }
}

TYPED_TEST(TriangularTest, AZeroOnTheDiagonalShowsInTheSolution) {
  using T = TypeParam;
  const TriangularForm form;
  auto [given, meant] = triangular_system<T>(12, form);
  given(5, 5) = T(0);
  const auto x = solve_triangular(given, random_matrix<T>(12, 1, 5), form, 3, 2, true);
  for (Size i = 0; i < 5; ++i) {
    EXPECT_TRUE(std::isfinite(std::abs(x(i, 0))));
  }
  EXPECT_FALSE(std::isfinite(std::abs(x(5, 0))));
}

}  // namespace
}  // namespace jaxmg::test
