// One factorisation on ranks of a device and everything that can be asked of it.
#pragma once

#include <gtest/gtest.h>

#include "algo/cholesky.h"
#include "algo/cholesky_inverse.h"
#include "algo/cholesky_logdet.h"
#include "algo/cholesky_posv.h"
#include "algo/cholesky_solve.h"
#include "algo/cholesky_update.h"
#include "algo/first_failing_minor.h"
#include "matrices.h"
#include "run_plan.h"
#include "split_rows.h"
#include "tile/cpu/cpu.h"

namespace jaxmg::test {

using tile::Cpu;

template <class T, class Device = Cpu>
struct Run {
  Size n;
  int ranks;
  Size tile;
  Size group;
  Size parts;
  std::vector<std::vector<T>> shard, saved, inverse;
  std::vector<Info> info;

  Order order;
  Precision precision;

  Run(const Matrix<T>& a, int ranks_, Size tile_, Triangle valid = Triangle::whole, Size group_ = 0,
      Order order_ = Order::relabelled, Size parts_ = 0, Precision precision_ = Precision::native)
      : n(a.rows),
        ranks(ranks_),
        tile(0),
        group(group_),
        parts(parts_),
        order(order_),
        precision(precision_) {
    PlanRequest request = make_request(Routine::potrf);
    request.tile = tile_;
    request.mirror = valid != Triangle::whole;
    const Plan plan(request);
    tile = plan.tile();
    load(a, plan);
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      cholesky_factor<Device, T>(rank, valid, shard[r].data(), saved[r].data(), inverse[r].data(),
                                 &info[r]);
    });
  }

  PlanRequest make_request(Routine routine) const {
    PlanRequest request;
    request.routine = routine;
    request.type = dtype_of<T>;
    request.n = n;
    request.ranks = ranks;
    request.tile = tile;
    request.group = group;
    request.parts = parts;
    request.order = order;
    request.precision = precision;
    request.platform = OnRanks<Device>::platform;
    return request;
  }

  // The shards of a, and nothing beside them.
  void load(const Matrix<T>& a, const Plan& plan) {
    const Distribution dist = plan.distribution();
    const auto aux = static_cast<std::size_t>(aux_count(n, ranks, tile) / 2);
    const auto count = static_cast<std::size_t>(ranks);
    info.assign(count, Info{});
    saved.assign(count, std::vector<T>(aux));
    inverse.assign(count, std::vector<T>(aux));
    shard.clear();
    for (int r = 0; r < ranks; ++r) {
      shard.push_back(rows_of_rank(a, dist, r, false).data);
      shard.back().resize(static_cast<std::size_t>(plan.matrix_rows() * n));
    }
  }

  template <class Program>
  void each_rank(const Plan& plan, const Program& program) {
    run_plan<Device>(plan, program);
  }

  Matrix<T> solve(const Matrix<T>& b, bool replicated) {
    PlanRequest request = make_request(Routine::potrs);
    request.nrhs = b.cols;
    request.replicated_rhs = replicated;
    const Plan plan(request);
    const Distribution dist = plan.distribution();
    std::vector<Matrix<T>> pieces(static_cast<std::size_t>(ranks));
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      Matrix<T>& mine = pieces[r];
      mine = rows_of_rank(b, dist, rank.comm.rank(), replicated);
      cholesky_solve<Device, T>(rank, shard[r].data(), inverse[r].data(), &info[r],
                                mine.data.data(), mine.data.data());
    });
    return joined_rows(pieces, dist, replicated);
  }

  // Factors a, and solves, in one; everything else can be asked of the run afterwards.
  Matrix<T> posv(const Matrix<T>& a, const Matrix<T>& b, bool replicated,
                 Triangle valid = Triangle::whole) {
    PlanRequest request = make_request(Routine::posv);
    request.nrhs = b.cols;
    request.replicated_rhs = replicated;
    request.mirror = valid != Triangle::whole;
    const Plan plan(request);
    const Distribution dist = plan.distribution();
    load(a, plan);
    std::vector<Matrix<T>> pieces(static_cast<std::size_t>(ranks));
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      Matrix<T>& mine = pieces[r];
      mine = rows_of_rank(b, dist, rank.comm.rank(), replicated);
      cholesky_posv<Device, T>(rank, valid, shard[r].data(), saved[r].data(), inverse[r].data(),
                               &info[r], mine.data.data());
    });
    return joined_rows(pieces, dist, replicated);
  }

  // What the shards hold, put together.
  Matrix<T> gathered() const {
    const Distribution dist(n, ranks, tile);
    Matrix<T> x(n, n);
    for (int r = 0; r < ranks; ++r) {
      for (Size i = 0; i < dist.local_size(r); ++i) {
        std::copy_n(shard[static_cast<std::size_t>(r)].begin() + i * n, n,
                    x.data.begin() + *dist.global(r, LocalIndex(i)) * n);
      }
    }
    return x;
  }

  // L of the user's matrix A with A[p][:, p] = L L^H, and p.
  Matrix<T> lower(std::vector<Size>* p = nullptr) const {
    const Distribution dist = Plan(make_request(Routine::potrs)).distribution();
    std::vector<Size> rows;
    for (const Tile& t : dist.elimination_order()) {
      for (Size i = 0; i < dist.rows(t); ++i) {
        rows.push_back(*dist.global_begin(t) + i);
      }
    }
    const Matrix<T> held = gathered();
    Matrix<T> l(n, n);
    for (Size i = 0; i < n; ++i) {
      for (Size j = 0; j <= i; ++j) {
        l(i, j) =
            conjugate(held(rows[static_cast<std::size_t>(j)], rows[static_cast<std::size_t>(i)]));
      }
    }
    if (p) {
      *p = rows;
    }
    return l;
  }

  // The factor of A + V V^H, or A - V V^H, in the place of that of A.
  void update(const Matrix<T>& v, bool downdate) {
    PlanRequest request = make_request(Routine::cholupdate);
    request.nrhs = v.cols;
    const Plan plan(request);
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      cholesky_update<Device, T>(rank, downdate, shard[r].data(), inverse[r].data(), v.data.data(),
                                 &info[r]);
    });
  }

  // The whole inverse, put together from the shards.
  Matrix<T> inverted() {
    const Plan plan(make_request(Routine::potri));
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      cholesky_inverse<Device, T>(rank, inverse[r].data(), &info[r], shard[r].data());
    });
    return gathered();
  }

  Real<T> logdet() {
    const Plan plan(make_request(Routine::logdet));
    std::vector<Real<T>> result(static_cast<std::size_t>(ranks));
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      cholesky_logdet<Device, T>(rank, shard[r].data(), &info[r], &result[r]);
    });
    for (const Real<T> other : result) {
      EXPECT_TRUE(other == result[0] || (std::isnan(other) && std::isnan(result[0])));
    }
    return result[0];
  }

  Info locate() {
    const Plan plan(make_request(Routine::locate));
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      first_failing_minor<Device, T>(rank, shard[r].data(), saved[r].data(), &info[r]);
    });
    return info[0];
  }
};

// norm1(A[p][:, p] - L L^H) / (n eps norm1(A)), 0/0 counted as 0.
template <class T, class Device>
double factor_residual(const Matrix<T>& a, const Run<T, Device>& run) {
  using Wide = std::conditional_t<is_complex_v<T>, std::complex<double>, double>;
  std::vector<Size> p;
  const Matrix<T> l = run.lower(&p);
  const Size n = a.rows;
  Matrix<Wide> r(n, n);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      Wide sum(a(p[static_cast<std::size_t>(i)], p[static_cast<std::size_t>(j)]));
      for (Size k = 0; k <= std::min(i, j); ++k) {
        sum -= Wide(l(i, k)) * conjugate(Wide(l(j, k)));
      }
      r(i, j) = sum;
    }
  }
  const double top = norm1(r);
  const double eps = std::numeric_limits<Real<T>>::epsilon();
  return top == 0 ? 0 : top / (static_cast<double>(n) * eps * norm1(a));
}

}  // namespace jaxmg::test
