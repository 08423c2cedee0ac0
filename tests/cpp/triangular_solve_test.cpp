// Triangular systems on thread ranks.
#include "algo/triangular_solve.h"

#include "matrices.h"
#include "run_ranks.h"
#include "tile/cpu/cpu.h"

namespace jaxmg::test {
namespace {

using tile::Cpu;

template <class T>
class TriangularTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(TriangularTest, Types);

template <class T>
Matrix<T> solve(const Matrix<T>& a, const Matrix<T>& b, const TriangularForm& form, int ranks,
                Size tile, bool replicated, Order order = Order::natural) {
  PlanRequest q;
  q.routine = Routine::trsm;
  q.type = dtype_of<T>;
  q.n = a.rows;
  q.nrhs = b.cols;
  q.ranks = ranks;
  q.tile = tile;
  q.order = order;
  q.replicated_rhs = replicated;
  const Plan plan(q);
  const Distribution dist = plan.distribution();
  std::vector<Matrix<T>> parts(static_cast<std::size_t>(ranks));
  run_ranks(ranks, [&](Communicator<Cpu>& comm, tile::CpuLanes& lanes) {
    std::vector<std::byte> scratch(static_cast<std::size_t>(plan.scratch_bytes()), std::byte{0xff});
    Observer observer;
    Rank<Cpu> rank{comm, lanes, plan, Workspace(plan, scratch.data()), observer};
    const int me = comm.rank();
    Matrix<T> shard(dist.capacity(), a.rows);
    Matrix<T> mine = replicated ? b : Matrix<T>(dist.capacity(), b.cols);
    for (Size i = 0; i < dist.local_size(me); ++i) {
      const Size row = *dist.global(me, LocalIndex(i));
      std::copy_n(a.data.begin() + row * a.cols, a.cols, shard.data.begin() + i * a.cols);
      if (!replicated) {
        std::copy_n(b.data.begin() + row * b.cols, b.cols, mine.data.begin() + i * b.cols);
      }
    }
    triangular_solve<Cpu, T>(rank, form, shard.data.data(), mine.data.data());
    parts[static_cast<std::size_t>(me)] = mine;
    comm.barrier();
  });
  if (replicated) {
    return parts.back();
  }
  Matrix<T> x(a.rows, b.cols);
  for (int r = 0; r < ranks; ++r) {
    for (Size i = 0; i < dist.local_size(r); ++i) {
      std::copy_n(parts[static_cast<std::size_t>(r)].data.begin() + i * b.cols, b.cols,
                  x.data.begin() + *dist.global(r, LocalIndex(i)) * b.cols);
    }
  }
  return x;
}

// What a system of this form means, and NaN where it must not be read.
template <class T>
std::pair<Matrix<T>, Matrix<T>> system(Size n, const TriangularForm& form) {
  Matrix<T> given(n, n, T(std::numeric_limits<Real<T>>::quiet_NaN()));
  Matrix<T> meant(n, n);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      if (i != j && (form.uplo == Uplo::lower) != (j < i)) {
        continue;
      }
      T value = random_entry<T>(4, i, j);
      if (i == j) {
        value += T(static_cast<Real<T>>(std::sqrt(static_cast<double>(n))));
      }
      const bool one = i == j && form.diag == Diag::unit;
      if (!one) {
        given(i, j) = value;
      }
      value = one ? T(1) : value;
      if (form.op == Op::none) {
        meant(i, j) = value;
      } else {
        meant(j, i) = form.op == Op::transpose ? value : conjugate(value);
      }
    }
  }
  return {given, meant};
}

TYPED_TEST(TriangularTest, EveryFormSizeAndLayout) {
  using T = TypeParam;
  for (Uplo uplo : {Uplo::lower, Uplo::upper}) {
    for (Op op : {Op::none, Op::transpose, Op::conj_transpose}) {
      for (Diag diag : {Diag::non_unit, Diag::unit}) {
        const TriangularForm form{uplo, op, diag};
        for (Size n : {1, 2, 9, 24}) {
          const auto [given, meant] = system<T>(n, form);
          const auto b = random_matrix<T>(n, 3, 5);
          for (int ranks : {1, 2, 3, 8}) {
            for (Size tile : {Size{1}, Size{2}, Size{0}}) {
              SCOPED_TRACE("n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                           std::to_string(tile) + (uplo == Uplo::lower ? " lower" : " upper") +
                           " op " + std::to_string(static_cast<int>(op)));
              EXPECT_LE(solve_residual(meant, b, solve(given, b, form, ranks, tile, true)), 25);
              EXPECT_LE(solve_residual(meant, b, solve(given, b, form, ranks, tile, false)), 25);
            }
          }
        }
      }
    }
  }
}

// Rows and columns of a in the places that an order of elimination gives them.
template <class T>
Matrix<T> relabelled(const Matrix<T>& a, const Distribution& dist) {
  std::vector<Size> row(static_cast<std::size_t>(a.rows));  // by position in the order
  for (Step k(0); *k < dist.steps(); ++k) {
    const Tile tile = dist.tile(k);
    for (Size i = 0; i < dist.rows(tile); ++i) {
      row[static_cast<std::size_t>(dist.eliminated(k) + i)] = *dist.global_begin(tile) + i;
    }
  }
  Matrix<T> moved(a.rows, a.cols);
  for (Size i = 0; i < a.rows; ++i) {
    for (Size j = 0; j < a.cols; ++j) {
      moved(row[static_cast<std::size_t>(i)], row[static_cast<std::size_t>(j)]) = a(i, j);
    }
  }
  return moved;
}

TYPED_TEST(TriangularTest, EveryTileInTheOrderOfElimination) {
  using T = TypeParam;
  for (Uplo uplo : {Uplo::lower, Uplo::upper}) {
    for (Op op : {Op::none, Op::transpose, Op::conj_transpose}) {
      const TriangularForm form{uplo, op, Diag::non_unit};
      for (Size n : {7, 19}) {
        const auto [given, meant] = system<T>(n, form);
        for (int ranks : {2, 3, 5, 8}) {
          for (Size tile = 1; tile <= ceil_div(n, ranks); ++tile) {
            SCOPED_TRACE("n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                         std::to_string(tile) + " op " + std::to_string(static_cast<int>(op)));
            const Distribution dist(n, ranks, tile);
            const auto b = random_matrix<T>(n, tile % 3 + 1, 5);
            for (const bool replicated : {true, false}) {
              const auto x = solve(relabelled(given, dist), b, form, ranks, tile, replicated,
                                   Order::relabelled);
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
    const auto [given, meant] = system<T>(23, form);
    for (Size nrhs : {0, 1, 512, 700}) {
      const auto b = random_matrix<T>(23, nrhs, 8);
      EXPECT_LE(solve_residual(meant, b, solve(given, b, form, 3, 4, true)), 25);
      EXPECT_LE(solve_residual(meant, b, solve(given, b, form, 3, 4, false)), 25);
    }
  }
}

TYPED_TEST(TriangularTest, AZeroOnTheDiagonalShowsInTheSolution) {
  using T = TypeParam;
  const TriangularForm form;
  auto [given, meant] = system<T>(12, form);
  given(5, 5) = T(0);
  const auto x = solve(given, random_matrix<T>(12, 1, 5), form, 3, 2, true);
  for (Size i = 0; i < 5; ++i) {
    EXPECT_TRUE(std::isfinite(std::abs(x(i, 0))));
  }
  EXPECT_FALSE(std::isfinite(std::abs(x(5, 0))));
}

}  // namespace
}  // namespace jaxmg::test
