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
//   forward    Y_k = (B_k - sum_j<k Y_j L_kj^H) L_kk^-H      sums are kept where L_kj lies, and
//                                                            collected by the owner of k
//   backward   X_k = (Y_k - sum_i>k X_i L_ik) L_kk^-1        all L_ik are at the owner of k, which
//                                                            needs all X_i: X_k is broadcast
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
        rhs_(rank.workspace.template get<T>(Buffer::tile_rhs)),
        other_(rank.workspace.template get<T>(Buffer::tile_rhs_other)) {}

  void run() {
    for (Size first = 0; first < nrhs_; first += rank_.plan.rhs_block()) {
      block_ = std::min(rank_.plan.rhs_block(), nrhs_ - first);
      column_ = first;
      forward();
      backward();
    }
  }

 private:
  using Ticket = typename Device::Ticket;

  const T* factor(Tile t, GlobalIndex row) const { return l_ + *dist_.begin(t.local) * n_ + *row; }
  const T* diagonal(Tile t) const { return factor(t, dist_.global_begin(t)); }
  const T* inverse(Tile t) const {
    return inverse_ + *t.local * dist_.tile_size() * dist_.tile_size();
  }
  // Where the present right-hand sides of an own tile, and of any rows in the sums, lie.
  T* solution(Tile t) const {
    return x_ + (whole_ ? *dist_.global_begin(t) : *dist_.begin(t.local)) * nrhs_ + column_;
  }
  T* sums(GlobalIndex row) const { return sums_ + *row * block_; }

  Watch watch_step(Size step) const {
    return watch_solve_step(rank_, column_, step, 2 * dist_.steps());
  }

  void wait_for(std::vector<Ticket>& tickets) {
    for (Ticket& ticket : tickets) {
      rank_.lanes.update.wait(ticket);
    }
    tickets.clear();
  }

  void forward() {
    auto& lane = rank_.lanes.update;
    std::vector<Ticket> sent;
    Device::template fill<T>(lane, block_, n_, T(0), T(0), sums_, block_);
    for (Step k(0); *k < dist_.steps(); ++k) {
      const Watch watch = watch_step(*k);
      const Tile tile = dist_.tile(k);
      const Size w = dist_.rows(tile);
      T* const sum = sums(dist_.global_begin(tile));
      Ticket reduced =
          rank_.comm.reduce(lane, sum, block_ * w, dtype_of<T>, Reduction::sum, tile.rank);
      if (tile.rank != me_) {
        sent.push_back(std::move(reduced));
        continue;
      }
      lane.wait(reduced);
      // Y_k = (B_k - sums) L_kk^-H
      Device::template copy<T>(lane, block_, w, solution(tile), nrhs_, rhs_, block_);
      Device::template add<T>(lane, block_, w, T(-1), sum, block_, rhs_, block_);
      Device::template solve_diagonal<T>(lane, Op::conj_transpose, block_, w, diagonal(tile), n_,
                                         inverse(tile), dist_.tile_size(), rhs_, block_, other_);
      Device::template copy<T>(lane, block_, w, rhs_, block_, solution(tile), nrhs_);
      // sums_i += Y_k L_ik^H for all later i
      for (const RowRange& r : dist_.rows_from(k + 1)) {
        Device::template gemm<T>(lane, Op::none, Op::conj_transpose, block_, r.count, w, T(1), rhs_,
                                 block_, factor(tile, r.begin), n_, T(1), sums(r.begin), block_);
      }
    }
    wait_for(sent);
  }

  // The sums make room for X.
  void backward() {
    auto& lane = rank_.lanes.update;
    std::vector<Ticket> received;
    std::vector<Ticket> sent;
    for (Step k(dist_.steps() - 1); *k >= 0; k += -1) {
      const Watch watch = watch_step(2 * dist_.steps() - 1 - *k);
      const Tile tile = dist_.tile(k);
      const Size w = dist_.rows(tile);
      T* const solved = sums(dist_.global_begin(tile));
      if (tile.rank == me_) {
        wait_for(received);
        // X_k = (Y_k - sum_i>k X_i L_ik) L_kk^-1
        Device::template copy<T>(lane, block_, w, solution(tile), nrhs_, rhs_, block_);
        for (const RowRange& r : dist_.rows_from(k + 1)) {
          Device::template gemm<T>(lane, Op::none, Op::none, block_, w, r.count, T(-1),
                                   sums(r.begin), block_, factor(tile, r.begin), n_, T(1), rhs_,
                                   block_);
        }
        Device::template solve_diagonal<T>(lane, Op::none, block_, w, diagonal(tile), n_,
                                           inverse(tile), dist_.tile_size(), rhs_, block_, other_);
        Device::template copy<T>(lane, block_, w, rhs_, block_, solved, block_);
        if (!whole_) {
          Device::template copy<T>(lane, block_, w, rhs_, block_, solution(tile), nrhs_);
        }
      }
      auto& tickets = tile.rank == me_ ? sent : received;
      tickets.push_back(rank_.comm.broadcast(lane, solved, block_ * w, dtype_of<T>, tile.rank));
    }
    wait_for(received);
    wait_for(sent);
    if (whole_) {
      Device::template copy<T>(lane, block_, n_, sums_, block_, x_ + column_, nrhs_);
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
  T* rhs_;
  T* other_;
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
