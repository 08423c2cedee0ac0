// What ranks wait for while they solve triangular systems tile by tile: no more than they must, and
// in whatever order things happen the result has the same bits.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "algo/cholesky.h"
#include "algo/cholesky_solve.h"
#include "algo/lu.h"
#include "algo/lu_solve.h"
#include "algo/qr.h"
#include "algo/qr_solve.h"
#include "algo/triangular_solve.h"
#include "matrices.h"
#include "paced_device.h"
#include "run_ranks.h"
#include "split_rows.h"

namespace jaxmg::test {
namespace {

using tile::Cpu;

// Ranks times tiles of each, so that neighbouring steps belong to different ranks.
struct Shape {
  int ranks;
  Size tile;
  Size tiles;
  Size nrhs;
  Size n() const { return ranks * tile * tiles; }
};

template <class Device>
void with_scratch(Communicator<Device>& comm, tile::CpuLanes& lanes, const Plan& plan,
                  Observer& observer, const std::function<void(Rank<Device>&)>& program) {
  // NaN, whatever the type.
  std::vector<std::byte> scratch(static_cast<std::size_t>(plan.scratch_bytes()), std::byte{0xff});
  Rank<Device> rank{comm, lanes, plan, Workspace(plan, scratch.data()), observer};
  program(rank);
}

template <class T>
PlanRequest request(Routine routine, const Shape& shape) {
  PlanRequest q;
  q.routine = routine;
  q.type = dtype_of<T>;
  q.n = shape.n();
  q.columns = is_qr(routine) ? shape.n() : 0;
  q.nrhs = shape.nrhs;
  q.ranks = shape.ranks;
  q.tile = shape.tile;
  return q;
}

// One rank: it factors at once, and solves at the pace given.
class PacedRank {
 public:
  PacedRank(Communicator<Cpu>& comm, tile::CpuLanes& lanes, Pace& pace)
      : comm_(comm), lanes_(lanes), observer_(pace), paced_(comm) {}

  int index() const { return comm_.rank(); }
  void factor(const Plan& plan, const std::function<void(Rank<Cpu>&)>& program) {
    Observer nobody;
    with_scratch<Cpu>(comm_, lanes_, plan, nobody, program);
  }
  void solve(const Plan& plan, const std::function<void(Rank<Paced>&)>& program) {
    with_scratch<Paced>(paced_, lanes_, plan, observer_, program);
  }

 private:
  Communicator<Cpu>& comm_;
  tile::CpuLanes& lanes_;
  PacedObserver observer_;
  PacedCommunicator paced_;
};

// What program(rank) returns on each rank.
template <class T, class Program>
std::vector<Matrix<T>> on_each_rank(const Shape& shape, Pace& pace, const Program& program) {
  std::vector<Matrix<T>> x(static_cast<std::size_t>(shape.ranks));
  run_ranks(shape.ranks, [&](Communicator<Cpu>& comm, tile::CpuLanes& lanes) {
    PacedRank rank(comm, lanes, pace);
    x[static_cast<std::size_t>(comm.rank())] = program(rank);
    comm.barrier();
  });
  return x;
}

// Solutions of a system, rank by rank, at the pace given.
template <class T>
using Solve = std::vector<Matrix<T>> (*)(const Shape&, bool form, bool replicated, Pace&);

template <class T>
std::vector<Matrix<T>> by_cholesky(const Shape& shape, bool, bool replicated, Pace& pace) {
  const Plan factoring(request<T>(Routine::potrf, shape));
  PlanRequest q = request<T>(Routine::potrs, shape);
  q.replicated_rhs = replicated;
  const Plan solving(q);
  const Distribution dist = solving.distribution();
  const auto a = random_hpd<T>(shape.n(), 2);
  const auto b = random_matrix<T>(shape.n(), shape.nrhs, 3);
  return on_each_rank<T>(shape, pace, [&](PacedRank& ranked) {
    Info info;
    Matrix<T> shard = rows_of_rank(a, dist, ranked.index(), false);
    std::vector<T> saved(static_cast<std::size_t>(factoring.aux_count() / 2));
    std::vector<T> inverse(saved.size());
    ranked.factor(factoring, [&](Rank<Cpu>& rank) {
      cholesky_factor<Cpu, T>(rank, Triangle::whole, shard.data.data(), saved.data(),
                              inverse.data(), &info);
    });
    Matrix<T> mine = rows_of_rank(b, dist, ranked.index(), replicated);
    ranked.solve(solving, [&](Rank<Paced>& rank) {
      cholesky_solve<Paced, T>(rank, shard.data.data(), inverse.data(), &info, mine.data.data(),
                               mine.data.data());
    });
    return mine;
  });
}

// form: A^T x = b
template <class T>
std::vector<Matrix<T>> by_lu(const Shape& shape, bool transpose, bool replicated, Pace& pace) {
  using Pivots = std::vector<std::int32_t>;
  const Plan factoring(request<T>(Routine::getrf, shape));
  PlanRequest q = request<T>(Routine::getrs, shape);
  q.transpose = transpose;
  q.replicated_rhs = replicated;
  const Plan solving(q);
  const Distribution dist = solving.distribution();
  const auto a = random_matrix<T>(shape.n(), shape.n(), 2);
  const auto b = random_matrix<T>(shape.n(), shape.nrhs, 3);
  return on_each_rank<T>(shape, pace, [&](PacedRank& ranked) {
    Info info;
    Matrix<T> shard = rows_of_rank(a, dist, ranked.index(), false);
    Pivots pivots(static_cast<std::size_t>(2 * shape.n()));
    ranked.factor(factoring, [&](Rank<Cpu>& rank) {
      lu_factor<Cpu, T>(rank, shard.data.data(), nullptr, pivots.data(), &info);
    });
    Matrix<T> mine = rows_of_rank(b, dist, ranked.index(), replicated);
    ranked.solve(solving, [&](Rank<Paced>& rank) {
      lu_solve<Paced, T>(rank, shard.data.data(), nullptr, pivots.data(), &info, mine.data.data());
    });
    return mine;
  });
}

// form: minimum norm, of the adjoint system
template <class T>
std::vector<Matrix<T>> by_qr(const Shape& shape, bool adjoint, bool, Pace& pace) {
  const Plan factoring(request<T>(Routine::geqrf, shape));
  const Plan solving(request<T>(Routine::geqrs, shape));
  const Distribution dist = solving.distribution();
  const auto a = random_matrix<T>(shape.n(), shape.n(), 2);
  const auto b = random_matrix<T>(shape.n(), shape.nrhs, 3);
  return on_each_rank<T>(shape, pace, [&](PacedRank& ranked) {
    Info info, report;
    Matrix<T> shard = rows_of_rank(a, dist, ranked.index(), false);
    std::vector<T> aux(static_cast<std::size_t>(factoring.aux_count()));
    ranked.factor(factoring, [&](Rank<Cpu>& rank) {
      qr_factor<Cpu, T>(rank, shard.data.data(), aux.data(), &info);
    });
    const Matrix<T> given = rows_of_rank(b, dist, ranked.index(), adjoint);
    Matrix<T> mine(adjoint ? dist.capacity() : shape.n(), shape.nrhs);
    ranked.solve(solving, [&](Rank<Paced>& rank) {
      qr_solve<Paced, T>(rank, adjoint, shard.data.data(), aux.data(), &info, given.data.data(),
                         mine.data.data(), &report);
    });
    return mine;
  });
}

// A matrix whose rows and columns, in the order of elimination, make a lower triangle.
template <class T>
Matrix<T> lower_when_eliminated(const Distribution& dist) {
  std::vector<Size> place(static_cast<std::size_t>(dist.size()));
  for (Step k(0); *k < dist.steps(); ++k) {
    const Tile tile = dist.tile(k);
    for (Size i = 0; i < dist.rows(tile); ++i) {
      place[static_cast<std::size_t>(*dist.global_begin(tile) + i)] = dist.eliminated(k) + i;
    }
  }
  Matrix<T> a = random_matrix<T>(dist.size(), dist.size(), 2);
  for (Size i = 0; i < a.rows; ++i) {
    for (Size j = 0; j < a.cols; ++j) {
      if (place[static_cast<std::size_t>(i)] < place[static_cast<std::size_t>(j)]) {
        a(i, j) = T(std::numeric_limits<Real<T>>::quiet_NaN());
      }
    }
    a(i, i) += T(static_cast<Real<T>>(std::sqrt(static_cast<double>(a.rows))));
  }
  return a;
}

// form: A^H x = b
template <class T>
std::vector<Matrix<T>> by_triangle(const Shape& shape, bool adjoint, bool replicated, Pace& pace) {
  PlanRequest q = request<T>(Routine::trsm, shape);
  q.replicated_rhs = replicated;
  const Plan plan(q);
  const Distribution dist = plan.distribution();
  const Matrix<T> a = lower_when_eliminated<T>(dist);
  const auto b = random_matrix<T>(shape.n(), shape.nrhs, 3);
  const TriangularForm form{Uplo::lower, adjoint ? Op::conj_transpose : Op::none, Diag::non_unit};
  return on_each_rank<T>(shape, pace, [&](PacedRank& ranked) {
    const Matrix<T> shard = rows_of_rank(a, dist, ranked.index(), false);
    Matrix<T> mine = rows_of_rank(b, dist, ranked.index(), replicated);
    ranked.solve(plan, [&](Rank<Paced>& rank) {
      triangular_solve<Paced, T>(rank, form, shard.data.data(), mine.data.data());
    });
    return mine;
  });
}

template <class T>
void expect_others_first(Solve<T> solve, bool ahead = false) {
  for (const Shape& shape : {Shape{2, 3, 5, 1}, Shape{3, 2, 4, 3}, Shape{5, 2, 3, 2}}) {
    for (const bool form : {false, true}) {
      for (const bool replicated : {true, false}) {
        SCOPED_TRACE(std::to_string(shape.ranks) + " ranks, form " + std::to_string(form) +
                     (replicated ? ", replicated" : ""));
        OthersFirst pace(shape.tile, ahead);
        solve(shape, form, replicated, pace);
        EXPECT_FALSE(pace.chained());
        EXPECT_GT(pace.far_products(), 0);
      }
    }
  }
}

template <class T>
void expect_same_bits(Solve<T> solve) {
  for (const Shape& shape : {Shape{2, 3, 5, 1}, Shape{3, 2, 4, 3}, Shape{4, 8, 2, 100}}) {
    for (const bool form : {false, true}) {
      Pace usual(shape.tile);
      const auto expected = solve(shape, form, true, usual);
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        Shaken shaken(shape.tile, seed);
        const auto x = solve(shape, form, true, shaken);
        for (std::size_t r = 0; r < x.size(); ++r) {
          EXPECT_EQ(0, std::memcmp(x[r].data.data(), expected[r].data.data(),
                                   sizeof(T) * x[r].data.size()));
        }
      }
    }
  }
}

template <class T>
class SubstitutionTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(SubstitutionTest, Types);

TYPED_TEST(SubstitutionTest, OthersNeedNotWaitForProductsWithMoreThanATile) {
  expect_others_first<TypeParam>(by_cholesky<TypeParam>, true);
  expect_others_first<TypeParam>(by_lu<TypeParam>);
  expect_others_first<TypeParam>(by_qr<TypeParam>);
  expect_others_first<TypeParam>(by_triangle<TypeParam>);
}

TYPED_TEST(SubstitutionTest, SameBitsInWhateverOrderThingsHappen) {
  expect_same_bits<TypeParam>(by_cholesky<TypeParam>);
  expect_same_bits<TypeParam>(by_lu<TypeParam>);
  expect_same_bits<TypeParam>(by_qr<TypeParam>);
  expect_same_bits<TypeParam>(by_triangle<TypeParam>);
}

}  // namespace
}  // namespace jaxmg::test
