// Solution with an LU factor, no element of which moves.
//
// P M Q = L U with M = A^T (see lu.h). Right-hand sides are row-major (n x k), hence columns of a
// k x n matrix when read column-major, and with X so stored
//
//   A x = b      Y U = B Q,   Z L = Y,   X = Z P       rows of Z to their unknowns
//   A^T x = b    Z L^T = B P^T,   X Q U^T = Z          B in the order of the factor's rows
//
// The owner of tile k has the whole of its columns of L and U. In the first form it needs the parts
// of the solution that came before, which are broadcast:
//
//   forward    Y_k = (B_k - sum_j<k Y_j U_jk) U_kk^-1
//   backward   Z_k = (Y_k - sum_i>k Z_i L_ik) L_kk^-1
//
// Each rank works for its own next tile as parts arrive, and while others are at theirs. In the
// second form the owner of tile j adds its part to all later sums, which owners collect:
//
//   forward    Z_k = (B_k - sum_j<k Z_j L_kj^T) L_kk^-T
//   backward   X_k = (Z_k - sum_j>k X_j U_kj^T) U_kk^-T
//
// LAPACK: xGETRS.
#pragma once

#include <algorithm>
#include <limits>
#include <vector>

#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class LuSolve {
 public:
  // x: nrhs x n (`whole` on every rank) or nrhs x L (this rank's rows); holds b on entry.
  LuSolve(Rank<Device>& rank, const Distribution& dist, const T* lu, const T* inverse,
          const std::int32_t* rows, Size nrhs, bool whole, T* x)
      : rank_(rank),
        dist_(dist),
        me_(rank.comm.rank()),
        n_(dist.size()),
        nrhs_(nrhs),
        whole_(whole),
        lu_(lu),
        inverse_(inverse),
        rows_(rows),
        x_(x),
        parts_(rank.workspace.template get<T>(Buffer::partial_sums)),
        permuted_(rank.workspace.template get<T>(Buffer::permuted_rhs)),
        rhs_(rank.workspace.template get<T>(Buffer::tile_rhs)),
        other_(rank.workspace.template get<T>(Buffer::tile_rhs_other)) {}

  void run() {
    for (Size first = 0; first < nrhs_; first += rank_.plan.rhs_block()) {
      block_ = std::min(rank_.plan.rhs_block(), nrhs_ - first);
      column_ = first;
      if (rank_.plan.request().transpose) {
        permute();
        forward_transposed();
        backward_transposed();
        share();
      } else {
        forward();
        backward();
        put_in_place();
      }
    }
  }

 private:
  using Ticket = typename Device::Ticket;

  const T* factor(Tile t, Size row) const { return lu_ + *dist_.begin(t.local) * n_ + row; }
  Size first(Step k) const { return dist_.eliminated(k); }
  Size width(Step k) const { return dist_.rows(dist_.tile(k)); }
  // Where the right-hand sides and solutions of an own tile lie, and the parts of a step.
  T* solution(Tile t) const {
    return x_ + (whole_ ? *dist_.global_begin(t) : *dist_.begin(t.local)) * nrhs_ + column_;
  }
  T* parts(Step k) const { return parts_ + first(k) * block_; }
  GlobalIndex own_begin() const { return dist_.global(me_, LocalIndex(0)); }
  bool has_tile(LocalTile t) const { return *t >= 0 && *t < dist_.local_tiles(me_); }

  Watch watch_step(Size step) const {
    return watch_solve_step(rank_, column_, step, 2 * dist_.steps());
  }

  void wait_for(std::vector<Ticket>& tickets) {
    for (Ticket& ticket : tickets) {
      rank_.lanes.update.wait(ticket);
    }
    tickets.clear();
  }

  // rhs <- rhs - (the parts of rows first .. first + count - 1) times these rows of tile t.
  void subtract(Tile t, Size first, Size count) {
    Device::template gemm<T>(rank_.lanes.update, Op::none, Op::none, block_, dist_.rows(t), count,
                             T(-1), parts_ + first * block_, block_, factor(t, first), n_, T(1),
                             rhs_, block_);
  }

  // rhs <- rhs inv(op(the triangle of tile t))
  void solve_tile(Tile t, Uplo uplo, Op op) {
    const Size nb = dist_.tile_size();
    const bool lower = uplo == Uplo::lower;
    const T* inverse = inverse_;
    if (inverse) {
      inverse += (*t.local + (lower ? 0 : dist_.capacity_tiles())) * nb * nb;
    }
    Device::template solve_triangle<T>(
        rank_.lanes.update, uplo, op, lower ? Diag::unit : Diag::non_unit, block_, dist_.rows(t),
        factor(t, dist_.eliminated(dist_.step(t))), n_, inverse, nb, rhs_, block_, other_);
  }

  // Y U = B Q
  void forward() {
    auto& lane = rank_.lanes.update;
    std::vector<Ticket> sent;
    LocalTile next(0);
    const auto begin = [&](Size solved) {
      if (has_tile(next)) {
        const Tile t{me_, next};
        Device::template copy<T>(lane, block_, dist_.rows(t), solution(t), nrhs_, rhs_, block_);
        subtract(t, 0, solved);
      }
    };
    begin(0);
    for (Step k(0); *k < dist_.steps(); ++k) {
      const Watch watch = watch_step(*k);
      const Tile tile = dist_.tile(k);
      if (tile.rank == me_) {
        solve_tile(tile, Uplo::upper, Op::none);
        Device::template copy<T>(lane, block_, width(k), rhs_, block_, parts(k), block_);
      }
      Ticket ticket =
          rank_.comm.broadcast(lane, parts(k), block_ * width(k), dtype_of<T>, tile.rank);
      if (tile.rank == me_) {
        sent.push_back(std::move(ticket));
        ++next;
        begin(first(k) + width(k));
      } else {
        lane.wait(ticket);
        if (has_tile(next)) {
          subtract({me_, next}, first(k), width(k));
        }
      }
    }
    wait_for(sent);
  }

  // Z L = Y, in the place of Y
  void backward() {
    auto& lane = rank_.lanes.update;
    std::vector<Ticket> sent;
    LocalTile next(dist_.local_tiles(me_) - 1);
    const auto begin = [&](Size solved) {  // rows from `solved` on are
      if (has_tile(next)) {
        const Tile t{me_, next};
        Device::template copy<T>(lane, block_, dist_.rows(t), parts(dist_.step(t)), block_, rhs_,
                                 block_);
        subtract(t, solved, n_ - solved);
      }
    };
    begin(n_);
    for (Step k(dist_.steps() - 1); *k >= 0; k += -1) {
      const Watch watch = watch_step(2 * dist_.steps() - 1 - *k);
      const Tile tile = dist_.tile(k);
      if (tile.rank == me_) {
        solve_tile(tile, Uplo::lower, Op::none);
        Device::template copy<T>(lane, block_, width(k), rhs_, block_, parts(k), block_);
      }
      Ticket ticket =
          rank_.comm.broadcast(lane, parts(k), block_ * width(k), dtype_of<T>, tile.rank);
      if (tile.rank == me_) {
        sent.push_back(std::move(ticket));
        next += -1;
        begin(first(k));
      } else {
        lane.wait(ticket);
        if (has_tile(next)) {
          subtract({me_, next}, first(k), width(k));
        }
      }
    }
    wait_for(sent);
  }

  // X = Z P
  void put_in_place() {
    auto& lane = rank_.lanes.update;
    if (whole_) {
      Device::template put_columns<T>(lane, block_, n_, rows_, 0, n_, parts_, block_, x_ + column_,
                                      nrhs_);
    } else if (dist_.local_size(me_) > 0) {
      Device::template put_columns<T>(lane, block_, n_, rows_, *own_begin(), dist_.local_size(me_),
                                      parts_, block_, x_ + column_, nrhs_);
    }
  }

  // B P^T, whole on every rank
  void permute() {
    auto& lane = rank_.lanes.update;
    if (whole_) {
      Device::template take_columns<T>(lane, block_, n_, rows_, 0, n_, x_ + column_, nrhs_,
                                       permuted_, block_);
      return;
    }
    const Size own = dist_.local_size(me_);
    Device::template take_columns<T>(lane, block_, n_, rows_, own > 0 ? *own_begin() : 0, own,
                                     x_ + column_, nrhs_, permuted_, block_);
    auto summed = rank_.comm.all_reduce(lane, permuted_, block_ * n_, dtype_of<T>, Reduction::sum);
    lane.wait(summed);
  }

  // rhs <- right-hand sides of step k less what all ranks have for it
  void collect(Step k, Ticket& reduced) {
    auto& lane = rank_.lanes.update;
    lane.wait(reduced);
    Device::template copy<T>(lane, block_, width(k), permuted_ + first(k) * block_, block_, rhs_,
                             block_);
    Device::template add<T>(lane, block_, width(k), T(-1), parts(k), block_, rhs_, block_);
  }

  // parts <- parts + rhs times the transpose of these rows of tile t
  void contribute(Tile t, Size first, Size count) {
    Device::template gemm<T>(rank_.lanes.update, Op::none, Op::transpose, block_, count,
                             dist_.rows(t), T(1), rhs_, block_, factor(t, first), n_, T(1),
                             parts_ + first * block_, block_);
  }

  // Z L^T = B P^T, in the place of the right-hand sides
  void forward_transposed() {
    auto& lane = rank_.lanes.update;
    std::vector<Ticket> sent;
    Device::template fill<T>(lane, block_, n_, T(0), T(0), parts_, block_);
    for (Step k(0); *k < dist_.steps(); ++k) {
      const Watch watch = watch_step(*k);
      const Tile tile = dist_.tile(k);
      Ticket reduced = rank_.comm.reduce(lane, parts(k), block_ * width(k), dtype_of<T>,
                                         Reduction::sum, tile.rank);
      if (tile.rank != me_) {
        sent.push_back(std::move(reduced));
        continue;
      }
      collect(k, reduced);
      solve_tile(tile, Uplo::lower, Op::transpose);
      Device::template copy<T>(lane, block_, width(k), rhs_, block_, permuted_ + first(k) * block_,
                               block_);
      const Size below = first(k) + width(k);
      contribute(tile, below, n_ - below);
    }
    wait_for(sent);
  }

  // X Q U^T = Z; an own tile of X goes to its place
  void backward_transposed() {
    auto& lane = rank_.lanes.update;
    std::vector<Ticket> sent;
    Device::template fill<T>(lane, block_, n_, T(0), T(0), parts_, block_);
    for (Step k(dist_.steps() - 1); *k >= 0; k += -1) {
      const Watch watch = watch_step(2 * dist_.steps() - 1 - *k);
      const Tile tile = dist_.tile(k);
      Ticket reduced = rank_.comm.reduce(lane, parts(k), block_ * width(k), dtype_of<T>,
                                         Reduction::sum, tile.rank);
      if (tile.rank != me_) {
        sent.push_back(std::move(reduced));
        continue;
      }
      collect(k, reduced);
      solve_tile(tile, Uplo::upper, Op::transpose);
      Device::template copy<T>(lane, block_, width(k), rhs_, block_, solution(tile), nrhs_);
      contribute(tile, 0, first(k));
    }
    wait_for(sent);
  }

  // All ranks' tiles of X to all ranks, if these hold it whole.
  void share() {
    if (!whole_) {
      return;
    }
    auto& lane = rank_.lanes.update;
    std::vector<Ticket> tickets;
    for (Step k(0); *k < dist_.steps(); ++k) {
      const Tile tile = dist_.tile(k);
      T* const part = parts_ + *dist_.global_begin(tile) * block_;
      if (tile.rank == me_) {
        Device::template copy<T>(lane, block_, width(k), solution(tile), nrhs_, part, block_);
      }
      tickets.push_back(
          rank_.comm.broadcast(lane, part, block_ * width(k), dtype_of<T>, tile.rank));
    }
    wait_for(tickets);
    Device::template copy<T>(lane, block_, n_, parts_, block_, x_ + column_, nrhs_);
  }

  Rank<Device>& rank_;
  const Distribution& dist_;
  int me_;
  Size n_;
  Size nrhs_;
  bool whole_;
  const T* lu_;
  const T* inverse_;
  const std::int32_t* rows_;
  T* x_;
  T* parts_;
  T* permuted_;
  T* rhs_;
  T* other_;
  Size block_ = 0;   // right-hand sides in work
  Size column_ = 0;  // the first of them
};

// x <- A^-1 b or A^-T b, on the form of b that the plan names; NaN on every rank if the
// factorisation failed. lu, inverse, pivots, info: what lu_factor left. b may be x.
template <class Device, class T>
void lu_solve(Rank<Device>& rank, const T* lu, const T* inverse, const std::int32_t* pivots,
              const Info* info, T* x) {
  auto& lane = rank.lanes.update;
  const Distribution dist = rank.plan.distribution();
  const Size nrhs = rank.plan.request().nrhs;
  const bool whole = rank.plan.request().replicated_rhs;
  const Size rows = whole ? dist.size() : dist.capacity();
  LuSolve<Device, T>(rank, dist, lu, inverse, pivots + dist.size(), nrhs, whole, x).run();
  const T nan(std::numeric_limits<Real<T>>::quiet_NaN());
  Device::template fill_if_failed<T>(lane, info, nrhs, rows, nan, x, nrhs);
}

}  // namespace jaxmg
