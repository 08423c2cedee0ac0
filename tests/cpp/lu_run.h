// One LU factorisation on ranks of a device, and what its results must fulfil.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "algo/lu.h"
#include "algo/lu_det.h"
#include "algo/lu_gesv.h"
#include "algo/lu_inverse.h"
#include "algo/lu_solve.h"
#include "matrices.h"
#include "run_plan.h"
#include "split_rows.h"
#include "tile/cpu/cpu.h"

namespace jaxmg::test {

// One factorisation on ranks of a device and everything that can be asked of it.
template <class T, class Device = tile::Cpu>
struct LuRun {
  Size n;
  int ranks;
  Size tile;
  bool natural;
  Precision precision;
  std::vector<std::vector<T>> shard;
  std::vector<std::vector<T>> inverse;  // of diagonal tiles, where the device solves with them
  std::vector<std::vector<std::int32_t>> pivots;
  std::vector<Info> info;

  LuRun(const Matrix<T>& a, int ranks_, Size tile_, bool natural_ = false,
        Precision precision_ = Precision::native)
      : n(a.rows), ranks(ranks_), tile(tile_), natural(natural_), precision(precision_) {
    const Plan plan(make_request(Routine::getrf));
    tile = plan.tile();
    const Distribution dist = plan.distribution();
    info.resize(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      shard.push_back(rows_of_rank(a, dist, r, false).data);
      pivots.emplace_back(static_cast<std::size_t>(2 * n), -1);
      inverse.emplace_back();
      if (lu_inverts(plan.request())) {
        inverse.back().resize(static_cast<std::size_t>(lu_aux_count(plan.request(), tile)));
      }
    }
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      lu_factor<Device, T>(rank, shard[r].data(), inverses(r), pivots[r].data(), &info[r]);
    });
    for (int r = 1; r < ranks; ++r) {  // the same everywhere
      EXPECT_EQ(pivots[0], pivots[static_cast<std::size_t>(r)]);
      EXPECT_EQ(0, std::memcmp(&info[0], &info[static_cast<std::size_t>(r)], sizeof(Info)));
    }
  }

  PlanRequest make_request(Routine routine) const {
    PlanRequest request;
    request.routine = routine;
    request.type = dtype_of<T>;
    request.n = n;
    request.ranks = ranks;
    request.tile = tile;
    request.precision = precision;
    request.platform = OnRanks<Device>::platform;
    request.order = natural ? Order::natural : Order::relabelled;
    return request;
  }

  template <class Program>
  void each_rank(const Plan& plan, const Program& program) {
    run_plan<Device>(plan, program);
  }
  T* inverses(std::size_t r) { return inverse[r].empty() ? nullptr : inverse[r].data(); }

  Matrix<T> solve(const Matrix<T>& b, bool replicated, bool transpose = false) {
    PlanRequest request = make_request(Routine::getrs);
    request.nrhs = b.cols;
    request.replicated_rhs = replicated;
    request.transpose = transpose;
    const Plan plan(request);
    const Distribution dist = plan.distribution();
    std::vector<Matrix<T>> parts(static_cast<std::size_t>(ranks));
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      Matrix<T>& mine = parts[r];
      mine = rows_of_rank(b, dist, rank.comm.rank(), replicated);
      lu_solve<Device, T>(rank, shard[r].data(), inverses(r), pivots[r].data(), &info[r],
                          mine.data.data());
    });
    return joined_rows(parts, dist, replicated);
  }

  // Factors a, and solves, in one; everything else can be asked of the run afterwards.
  Matrix<T> gesv(const Matrix<T>& a, const Matrix<T>& b, bool replicated) {
    PlanRequest request = make_request(Routine::gesv);
    request.nrhs = b.cols;
    request.replicated_rhs = replicated;
    const Plan plan(request);
    const Distribution dist = plan.distribution();
    std::vector<Matrix<T>> parts(static_cast<std::size_t>(ranks));
    for (std::size_t r = 0; r < parts.size(); ++r) {
      shard[r] = rows_of_rank(a, dist, static_cast<int>(r), false).data;
      pivots[r].assign(pivots[r].size(), -1);
      inverse[r].assign(inverse[r].size(), T(0));
      info[r] = Info{};
    }
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      Matrix<T>& mine = parts[r];
      mine = rows_of_rank(b, dist, rank.comm.rank(), replicated);
      lu_gesv<Device, T>(rank, shard[r].data(), inverses(r), pivots[r].data(), &info[r],
                         mine.data.data());
    });
    return joined_rows(parts, dist, replicated);
  }

  std::pair<T, double> determinant() {
    const Plan plan(make_request(Routine::getdet));
    std::vector<T> phase(static_cast<std::size_t>(ranks));
    std::vector<Real<T>> log(static_cast<std::size_t>(ranks));
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      lu_determinant<Device, T>(rank, shard[r].data(), pivots[r].data(), &info[r], &phase[r],
                                &log[r]);
    });
    for (std::size_t r = 1; r < phase.size(); ++r) {  // the same everywhere, if it is a number
      EXPECT_EQ(std::isnan(log[r]), std::isnan(log[0]));
      EXPECT_TRUE(std::isnan(log[0]) || (log[r] == log[0] && phase[r] == phase[0]));
    }
    return {phase[0], static_cast<double>(log[0])};
  }

  // The whole inverse, put together from the shards, which it takes the place of.
  Matrix<T> inverted() {
    const Plan plan(make_request(Routine::getri));
    const Distribution dist = plan.distribution();
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      lu_inverse<Device, T>(rank, pivots[r].data(), &info[r], shard[r].data());
    });
    Matrix<T> x(n, n);
    for (int r = 0; r < ranks; ++r) {
      for (Size i = 0; i < dist.local_size(r); ++i) {
        std::copy_n(shard[static_cast<std::size_t>(r)].begin() + i * n, n,
                    x.data.begin() + *dist.global(r, LocalIndex(i)) * n);
      }
    }
    return x;
  }

  // Element (row of M, place in the elimination order) of what the factorisation left.
  T factor(Size i, Size place) const {
    const Distribution dist = Plan(make_request(Routine::getrf)).distribution();
    Step k(0);
    while (*k + 1 < dist.steps() && dist.eliminated(k + 1) <= place) {
      ++k;
    }
    const Tile tile_ = dist.tile(k);
    const Size local = *dist.begin(tile_.local) + place - dist.eliminated(k);
    return shard[static_cast<std::size_t>(tile_.rank)][static_cast<std::size_t>(local * n + i)];
  }
};

template <class T>
Matrix<T> transposed(const Matrix<T>& a) {
  Matrix<T> t(a.cols, a.rows);
  for (Size i = 0; i < a.rows; ++i) {
    for (Size j = 0; j < a.cols; ++j) {
      t(j, i) = a(i, j);
    }
  }
  return t;
}

}  // namespace jaxmg::test
