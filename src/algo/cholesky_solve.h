// Solution of A X = B from the Cholesky factor of a row-sharded A.
//
// B and X are row-major, so read column-major they are B^T and X^T with one column per equation.
// With M = A^T and P M P^T = L L^H (cholesky.h), A X = B is
//
//   X^T M = B^T:    Y = B^T L^-H  (forward),    X^T = Y L^-1  (backward)
//
// where rows and columns are taken in elimination order. The owner of tile k holds all of column
// tile k of L and no other rank holds any of it, hence:
//
//   forward    Y_k = (B_k - sum_j<k Y_j L_kj^H) L_kk^-H      what is subtracted is kept where L_kj
//                                                            lies, and collected by the owner of k
//   backward   X_k = (Y_k - sum_i>k X_i L_ik) L_kk^-1        all L_ik are at the owner of k, which
//                                                            needs all X_i: X_k is broadcast
//
// Between one tile and the next there is only a small part of these products: what Y_k adds to the
// sums of tile k + 1, what X_k takes of X_k+1. The owner of tile k makes that part first, or last,
// and the rest while other ranks are at their tiles.
//
// LAPACK: xPOTRS.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class CholeskySolve {
 public:
  // x: nrhs x n (whole on every rank) or nrhs x L (this rank's rows); holds b on entry.
  CholeskySolve(Rank<Device>& rank, const Distribution& dist, const T* l, const T* inverse, T* x)
      : rank_(rank),
        dist_(dist),
        me_(rank.comm.rank()),
        n_(dist.size()),
        nrhs_(rank.plan.request().nrhs),
        whole_(rank.plan.request().replicated_rhs),
        l_(l),
        inverse_(inverse),
        x_(x),
        sums_(rank.workspace.template get<T>(Buffer::partial_sums)),
        work_(rank.workspace.template get<T>(Buffer::tile_rhs_other)) {}

  void run() { solve_blocks(false); }
  // x holds Y in this rank's rows: what is left is the backward sweep.
  void run_backward() { solve_blocks(true); }

 private:
  using Ticket = typename Device::Ticket;

  void solve_blocks(bool eliminated) {
    for (Size first = 0; first < nrhs_; first += rank_.plan.rhs_block()) {
      block_ = std::min(rank_.plan.rhs_block(), nrhs_ - first);
      column_ = first;
      begin();
      if (!eliminated) {
        forward();
      }
      backward();
      end();
    }
  }

  const T* factor(Tile t, GlobalIndex row) const { return l_ + *dist_.begin(t.local) * n_ + *row; }
  const T* diagonal(Tile t) const { return factor(t, dist_.global_begin(t)); }
  const T* inverse(Tile t) const {
    return inverse_ + *t.local * dist_.tile_size() * dist_.tile_size();
  }
  T* sums(GlobalIndex row) const { return sums_ + *row * block_; }
  T* sums(Tile t) const { return sums(dist_.global_begin(t)); }
  // The rows of mine in x and in the sums.
  Size my_rows() const { return dist_.local_size(me_); }
  T* my_solution() const { return x_ + (whole_ ? *my_begin() * nrhs_ : 0) + column_; }
  GlobalIndex my_begin() const { return dist_.global(me_, LocalIndex(0)); }
  // The first step of which products with tile column k can wait, if somebody is waiting.
  Step far(Step k) const {
    return Step(dist_.ranks() > 1 ? std::min(*k + 2, dist_.steps()) : dist_.steps());
  }

  Watch watch_step(Size step) const {
    return watch_solve_step(rank_, column_, step, 2 * dist_.steps());
  }

  void wait_for(std::vector<Ticket>& tickets) {
    for (Ticket& ticket : tickets) {
      rank_.lanes.update.wait(ticket);
    }
    tickets.clear();
  }

  // sums = B in my rows, 0 in all others.
  void begin() {
    auto& lane = rank_.lanes.update;
    Device::template fill<T>(lane, block_, n_, T(0), T(0), sums_, block_);
    if (my_rows() > 0) {
      Device::template copy<T>(lane, block_, my_rows(), my_solution(), nrhs_, sums(my_begin()),
                               block_);
    }
  }

  // sums = Y in my rows.
  void forward() {
    auto& lane = rank_.lanes.update;
    const Step last(dist_.steps());
    std::vector<Ticket> sent;
    for (Step k(0); k < last; ++k) {
      const Watch watch = watch_step(*k);
      const Tile tile = dist_.tile(k);
      Ticket reduced = rank_.comm.reduce(lane, sums(tile), block_ * dist_.rows(tile), dtype_of<T>,
                                         Reduction::sum, tile.rank);
      if (*k > 0) {
        subtract_from_sums(k - 1, far(k - 1), last);
      }
      if (tile.rank != me_) {
        sent.push_back(std::move(reduced));
        continue;
      }
      lane.wait(reduced);
      solve(Op::conj_transpose, tile);
      subtract_from_sums(k, k + 1, far(k));
    }
    wait_for(sent);
  }

  // sums = X, whole on every rank.
  void backward() {
    auto& lane = rank_.lanes.update;
    auto& copy = rank_.lanes.copy;
    const Step last(dist_.steps());
    std::vector<Ticket> received;
    std::vector<Ticket> sent;
    copy.wait(lane.record());
    for (Step k = last - 1; *k >= 0; k += -1) {
      const Watch watch = watch_step(2 * *last - 1 - *k);
      const Tile tile = dist_.tile(k);
      const bool mine = tile.rank == me_;
      if (mine) {
        Ticket newest;  // X_k+1, if another rank makes it
        if (!received.empty() && dist_.tile(k + 1).rank != me_) {
          newest = std::move(received.back());
          received.pop_back();
        }
        wait_for(received);
        subtract_solved(k, far(k), last);
        lane.wait(newest);
        subtract_solved(k, k + 1, far(k));
        solve(Op::none, tile);
      }
      // Others' solutions arrive beside my work.
      auto& tickets = mine ? sent : received;
      tickets.push_back(rank_.comm.broadcast(mine ? lane : copy, sums(tile),
                                             block_ * dist_.rows(tile), dtype_of<T>, tile.rank));
    }
    wait_for(received);
    wait_for(sent);
  }

  // Y_k or X_k of an own tile, in the place of what it is made from.
  void solve(Op op, Tile tile) {
    Device::template solve_diagonal<T>(rank_.lanes.update, op, block_, dist_.rows(tile),
                                       diagonal(tile), n_, inverse(tile), dist_.tile_size(),
                                       sums(tile), block_, work_);
  }

  // sums_i -= Y_k L_ik^H for the steps i = from .. to - 1, if tile k is mine.
  void subtract_from_sums(Step k, Step from, Step to) {
    const Tile tile = dist_.tile(k);
    if (tile.rank != me_) {
      return;
    }
    for (const RowRange& r : dist_.rows_between(from, to)) {
      Device::template gemm<T>(rank_.lanes.update, Op::none, Op::conj_transpose, block_, r.count,
                               dist_.rows(tile), T(-1), sums(tile), block_, factor(tile, r.begin),
                               n_, T(1), sums(r.begin), block_);
    }
  }

  // sums_k -= X_i L_ik for the steps i = from .. to - 1.
  void subtract_solved(Step k, Step from, Step to) {
    const Tile tile = dist_.tile(k);
    for (const RowRange& r : dist_.rows_between(from, to)) {
      Device::template gemm<T>(rank_.lanes.update, Op::none, Op::none, block_, dist_.rows(tile),
                               r.count, T(-1), sums(r.begin), block_, factor(tile, r.begin), n_,
                               T(1), sums(tile), block_);
    }
  }

  void end() {
    auto& lane = rank_.lanes.update;
    if (whole_) {
      Device::template copy<T>(lane, block_, n_, sums_, block_, x_ + column_, nrhs_);
    } else if (my_rows() > 0) {
      Device::template copy<T>(lane, block_, my_rows(), sums(my_begin()), block_, my_solution(),
                               nrhs_);
    }
  }

  Rank<Device>& rank_;
  const Distribution& dist_;
  int me_;
  Size n_;
  Size nrhs_;
  bool whole_;
  const T* l_;
  const T* inverse_;
  T* x_;
  T* sums_;
  T* work_;
  Size block_ = 0;   // right-hand sides in work
  Size column_ = 0;  // the first of them
};

// x <- A^-1 b on the form of b that the plan names; NaN on every rank if the factorisation failed.
//   b may be x. l, tile_inverse, info: what cholesky_factor left.
template <class Device, class T>
void cholesky_solve(Rank<Device>& rank, const T* l, const T* tile_inverse, const Info* info,
                    const T* b, T* x) {
  auto& lane = rank.lanes.update;
  const Distribution dist = rank.plan.distribution();
  const Size nrhs = rank.plan.request().nrhs;
  const Size rows = rank.plan.request().replicated_rhs ? dist.size() : dist.capacity();
  if (b != x) {
    Device::template copy<T>(lane, nrhs, rows, b, nrhs, x, nrhs);
  }
  CholeskySolve<Device, T>(rank, dist, l, tile_inverse, x).run();
  const T nan(std::numeric_limits<Real<T>>::quiet_NaN());
  Device::template fill_if_failed<T>(lane, info, nrhs, rows, nan, x, nrhs);
}

}  // namespace jaxmg
