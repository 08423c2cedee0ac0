// Least squares and minimum norm from a QR factorisation (qr.h) of A with m >= n, and products with
// Q. LAPACK: xGELS, xORMQR, xUNMQR.
//
// Right-hand sides are row-major, so read column-major they are transposed: D = B^T, one column an
// equation. With A = Q R, L = R^T:
//
//   X = R^-1 Q^H B:     D H_0 H_1 ...,    then  X^T L = C,   C the columns of eliminated rows
//   Y = Q R^-H C:       W L^H = C^T,      then  W ... H_1^H H_0^H
//
// Rows of L are in the order of columns of A and whole on the rank that has the column; hence the
// sweeps are those of lu_solve.h:
//
//   backward   X_k = (C_k - sum_i>k X_i L_ik) L_kk^-1       X_k is broadcast
//   forward    W_k = (C_k - sum_j<k W_j L_kj^H) L_kk^-H     shares are reduced to the owner of k
//
// Between two steps there are only the product of the newest part with the rows or columns of the
// next tile and the solution of that tile; the other products are made while other ranks are at
// that.
#pragma once

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "algo/pivot_rows.h"
#include "algo/qr_reflect.h"
#include "algo/qr_steps.h"
#include "algo/rank.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class QrSolve {
 public:
  QrSolve(Rank<Device>& rank, const QrSteps& steps, const T* a, const T* aux)
      : rank_(rank),
        steps_(steps),
        me_(rank.comm.rank()),
        n_(steps.columns()),
        local_(steps.distribution().local_size(me_)),
        nrhs_(rank.plan.request().nrhs),
        a_(a),
        reflectors_(rank, steps, a, aux),
        d_(rank.workspace.template get<T>(Buffer::local_rhs)),
        sums_(rank.workspace.template get<T>(Buffer::partial_sums)) {}

  // visit(first, count) for blocks of right-hand sides.
  template <class Visit>
  void for_blocks(const Visit& visit) {
    for (column_ = 0; column_ < nrhs_; column_ += rank_.plan.rhs_block()) {
      block_ = std::min(rank_.plan.rhs_block(), nrhs_ - column_);
      visit();
    }
  }

  // x (n x nrhs, the same on all ranks) <- R^-1 Q^H b. b: this rank's rows.
  void least_squares(const T* b, T* x) {
    for_blocks([&] {
      auto& lane = rank_.lanes.update;
      Device::template copy<T>(lane, block_, local_, b + column_, nrhs_, d_, block_);
      reflectors_.forward(block_, d_, block_);
      backward();
      Device::template copy<T>(lane, block_, n_, sums_, block_, x + column_, nrhs_);
    });
  }

  // y (this rank's rows) <- Q R^-H c. c: n x nrhs, the same on all ranks.
  void minimum_norm(const T* c, T* y) {
    for_blocks([&] {
      auto& lane = rank_.lanes.update;
      Device::template fill<T>(lane, block_, local_, T(0), T(0), d_, block_);
      forward(c + column_);
      reflectors_.backward(block_, d_, block_);
      put(y + column_);
    });
  }

  // out (rows of the k x nrhs result, contiguous shards) <- Q^H c. c: this rank's rows.
  void multiply_adjoint(const T* c, T* out) {
    const Size per = ceil_div(steps_.rank(), steps_.ranks());
    for_blocks([&] {
      auto& lane = rank_.lanes.update;
      Device::template copy<T>(lane, block_, local_, c + column_, nrhs_, d_, block_);
      reflectors_.forward(block_, d_, block_);
      Device::template fill<T>(lane, block_, per, T(0), T(0), sums_, block_);
      move(per, true);
      Device::template copy<T>(lane, block_, per, sums_, block_, out + column_, nrhs_);
    });
  }

  // out (this rank's rows) <- Q c. c: rows of a k x nrhs matrix in contiguous shards.
  void multiply(const T* c, T* out) {
    const Size per = ceil_div(steps_.rank(), steps_.ranks());
    for_blocks([&] {
      auto& lane = rank_.lanes.update;
      Device::template copy<T>(lane, block_, per, c + column_, nrhs_, sums_, block_);
      Device::template fill<T>(lane, block_, local_, T(0), T(0), d_, block_);
      move(per, false);
      reflectors_.backward(block_, d_, block_);
      put(out + column_);
    });
  }

 private:
  using Ticket = typename Device::Ticket;

  // L from row `row` on, in the columns of step s; this rank must own them.
  const T* factor(Size s, Size row) const { return a_ + steps_.begin(s, me_) * n_ + row; }
  T* pivots(Size s) const { return d_ + steps_.begin(s, me_) * block_; }
  T* sums(Size row) const { return sums_ + row * block_; }

  void wait_for(std::vector<Ticket>& tickets) {
    for (Ticket& ticket : tickets) {
      rank_.lanes.update.wait(ticket);
    }
    tickets.clear();
  }

  // y <- this rank's rows, zeros where there are none.
  void put(T* y) {
    auto& lane = rank_.lanes.update;
    const Size padding = steps_.distribution().capacity() - local_;
    Device::template copy<T>(lane, block_, local_, d_, block_, y, nrhs_);
    Device::template fill<T>(lane, block_, padding, T(0), T(0), y + local_ * nrhs_, nrhs_);
  }

  void move(Size per, bool to_natural) {
    move_pivot_rows<Device, T>(
        rank_, steps_, block_, per, to_natural,
        [&](const PivotPiece& piece) { return d_ + piece.local * block_; },
        [&](const PivotPiece& piece) { return sums_ + (piece.index - me_ * per) * block_; });
  }

  // x <- x inv(op(L_ss))
  void solve_tile(Size s, Op op, T* x) {
    const QrStep step = steps_.step(s);
    Device::template trsm<T>(rank_.lanes.update, Side::right, Uplo::lower, op, Diag::non_unit,
                             block_, step.width, T(1), factor(s, step.first), n_, x, block_);
  }

  void backward() {
    auto& lane = rank_.lanes.update;
    std::vector<Ticket> sent;
    Size next = own_before(steps_.count());
    for (Size s = steps_.count() - 1; s >= 0; --s) {
      Watch watch(rank_.observer, me_, Observer::Task::solve, steps_.count() - 1 - s,
                  steps_.count());
      const QrStep step = steps_.step(s);
      const bool mine = step.tile.rank == me_;
      if (mine) {
        solve_tile(s, Op::none, pivots(s));
        Device::template copy<T>(lane, block_, step.width, pivots(s), block_, sums(step.first),
                                 block_);
      }
      Ticket known = rank_.comm.broadcast(lane, sums(step.first), block_ * step.width, dtype_of<T>,
                                          step.tile.rank);
      if (mine) {
        sent.push_back(std::move(known));
        next = own_before(s);
        subtract(next, step.first, n_ - step.first);
      } else {
        lane.wait(known);
        subtract(next, step.first, step.width);
      }
    }
    wait_for(sent);
  }

  // The last step before s whose tile is mine, or -1.
  Size own_before(Size s) const {
    do {
      --s;
    } while (s >= 0 && steps_.step(s).tile.rank != me_);
    return s;
  }

  // Right-hand sides of own step s <- themselves - X in these rows times the rows of its columns
  void subtract(Size s, Size first, Size count) {
    if (s >= 0) {
      Device::template gemm<T>(rank_.lanes.update, Op::none, Op::none, block_, steps_.step(s).width,
                               count, T(-1), sums(first), block_, factor(s, first), n_, T(1),
                               pivots(s), block_);
    }
  }

  // Right-hand sides are sums over ranks: of C, which is on the first of them to begin with.
  void forward(const T* c) {
    auto& lane = rank_.lanes.update;
    std::vector<Ticket> sent;
    if (me_ == 0) {
      Device::template copy<T>(lane, block_, n_, c, nrhs_, sums_, block_);
    } else {
      Device::template fill<T>(lane, block_, n_, T(0), T(0), sums_, block_);
    }
    if (steps_.count() > 0) {
      sent.push_back(collect(0));
    }
    for (Size s = 0; s < steps_.count(); ++s) {
      Watch watch(rank_.observer, me_, Observer::Task::solve, s, steps_.count());
      const QrStep step = steps_.step(s);
      const bool mine = step.tile.rank == me_;
      T* const x = sums(step.first);
      Size begin = step.first + step.width;  // of the rows that are left
      if (mine) {
        lane.wait(sent.back());
        solve_tile(s, Op::conj_transpose, x);
      }
      if (s + 1 < steps_.count()) {
        const Size w = steps_.step(s + 1).width;
        if (mine) {
          contribute(s, begin, w);
        }
        sent.push_back(collect(s + 1));
        begin += w;
      }
      if (mine) {
        Device::template copy<T>(lane, block_, step.width, x, block_, pivots(s), block_);
        contribute(s, begin, n_ - begin);
      }
    }
    wait_for(sent);
  }

  // All ranks' shares of the right-hand sides of a step to its owner.
  Ticket collect(Size s) {
    const QrStep step = steps_.step(s);
    return rank_.comm.reduce(rank_.lanes.update, sums(step.first), block_ * step.width, dtype_of<T>,
                             Reduction::sum, step.tile.rank);
  }

  // shares of these rows <- themselves - W_s times the adjoint of the rows of its columns
  void contribute(Size s, Size first, Size count) {
    const QrStep step = steps_.step(s);
    Device::template gemm<T>(rank_.lanes.update, Op::none, Op::conj_transpose, block_, count,
                             step.width, T(-1), sums(step.first), block_, factor(s, first), n_,
                             T(1), sums(first), block_);
  }

  Rank<Device>& rank_;
  const QrSteps& steps_;
  int me_;
  Size n_;
  Size local_;
  Size nrhs_;
  const T* a_;
  QrReflectors<Device, T> reflectors_;
  T* d_;
  T* sums_;
  Size block_ = 0;
  Size column_ = 0;
};

// report <- info of the factorisation, or the first zero on the diagonal of R.
template <class Device, class T>
void qr_check_rank(Rank<Device>& rank, const QrSteps& steps, const T* a, const Info* info,
                   Info* report) {
  auto& lane = rank.lanes.update;
  const Size n = steps.columns();
  const int me = rank.comm.rank();
  constexpr Size words = sizeof(Info) / sizeof(float);
  Device::template copy<float>(lane, words, 1, reinterpret_cast<const float*>(info), words,
                               reinterpret_cast<float*>(report), words);
  for (Size s = 0; s < steps.count(); ++s) {
    const QrStep step = steps.step(s);
    if (step.tile.rank == me) {
      Device::template check_diagonal<T>(lane, step.width, a + steps.begin(s, me) * n + step.first,
                                         n, step.first, report);
    }
  }
  Device::set_phase(lane, Phase::natural_order, me, report);
  auto agreed = rank.comm.agree(lane, report);
  lane.wait(agreed);
}

// out <- A^+ b (least squares) or, if adjoint, (A^+)^H b (minimum norm of the adjoint system), with
// m >= n; NaN if the factorisation failed or R has a zero on its diagonal, which report tells.
template <class Device, class T>
void qr_solve(Rank<Device>& rank, bool adjoint, const T* a, const T* aux, const Info* info,
              const T* b, T* out, Info* report) {
  const QrSteps steps(rank.plan);
  const Size nrhs = rank.plan.request().nrhs;
  qr_check_rank<Device, T>(rank, steps, a, info, report);
  QrSolve<Device, T> solve(rank, steps, a, aux);
  adjoint ? solve.minimum_norm(b, out) : solve.least_squares(b, out);
  const Size rows = adjoint ? steps.distribution().capacity() : steps.columns();
  const T nan(std::numeric_limits<Real<T>>::quiet_NaN());
  Device::template fill_if_failed<T>(rank.lanes.update, report, nrhs, rows, nan, out, nrhs);
}

// out <- Q^H c if adjoint, else Q c; NaN if the factorisation failed.
template <class Device, class T>
void qr_multiply(Rank<Device>& rank, bool adjoint, const T* a, const T* aux, const Info* info,
                 const T* c, T* out) {
  const QrSteps steps(rank.plan);
  const Size nrhs = rank.plan.request().nrhs;
  QrSolve<Device, T> solve(rank, steps, a, aux);
  adjoint ? solve.multiply_adjoint(c, out) : solve.multiply(c, out);
  const Size rows =
      adjoint ? ceil_div(steps.rank(), steps.ranks()) : steps.distribution().capacity();
  const T nan(std::numeric_limits<Real<T>>::quiet_NaN());
  Device::template fill_if_failed<T>(rank.lanes.update, info, nrhs, rows, nan, out, nrhs);
}

}  // namespace jaxmg
