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
// second form the owner of tile j adds its part to all later right-hand sides, of which every rank
// has a share; owners collect them:
//
//   forward    Z_k = (B_k - sum_j<k Z_j L_kj^T) L_kk^-T
//   backward   X_k = (Z_k - sum_j>k X_j U_kj^T) U_kk^-T
//
// Either way a step waits for the step before. What lies between them is kept short: the product
// that takes the newest part out of the next tile alone, the solution of that tile, in place, and
// its message. All that is left of a column of the factor is read while other ranks are at that.
//
// LAPACK: xGETRS.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
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
        later_(rank.workspace.template get<T>(Buffer::later_sums)),
        work_(rank.workspace.template get<T>(Buffer::tile_rhs)),
        sent_(static_cast<std::size_t>(dist.steps())) {}

  void run() {
    for (Size first = 0; first < nrhs_; first += rank_.plan.rhs_block()) {
      block_ = std::min(rank_.plan.rhs_block(), nrhs_ - first);
      column_ = first;
      if (rank_.plan.request().transpose) {
        permute();
        substitute_transposed(Sweep::forward, parts_);
        wait_for_sent();
        substitute_transposed(Sweep::backward, later_);
        share();
      } else {
        substitute(Sweep::forward);
        substitute(Sweep::backward);
        put_in_place();
      }
      wait_for_sent();
    }
  }

  // A x = b for all right-hand sides at once, the forward sweep going along with the factorisation:
  // begin(), then forward(k) as soon as tile k, and rows 0 .. first(k + 1) - 1 of all own columns,
  // are final, then backward().
  void begin() {
    block_ = nrhs_;
    column_ = 0;
    begin_sweep(Sweep::forward);
  }
  void forward(Step k) {
    const Watch watch = watch_step(Sweep::forward, *k);
    take_latest();
    Ticket part = make_part(Sweep::forward, k);
    if (dist_.tile(k).rank != me_) {
      latest_ = std::move(part);
      latest_step_ = k;
    }
  }
  void backward() {
    take_latest();
    substitute(Sweep::backward);
    put_in_place();
    wait_for_sent();
  }

 private:
  using Ticket = typename Device::Ticket;
  enum class Sweep { forward, backward };

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

  Step step_at(Sweep sweep, Size place) const {
    return Step(sweep == Sweep::forward ? place : dist_.steps() - 1 - place);
  }
  Watch watch_step(Sweep sweep, Size place) const {
    const Size steps = dist_.steps();
    return watch_solve_step(rank_, column_, sweep == Sweep::forward ? place : steps + place,
                            2 * steps);
  }

  Ticket& sent(Step k) { return sent_[static_cast<std::size_t>(*k)]; }
  void wait_for_sent(Step k) {
    rank_.lanes.update.wait(sent(k));
    sent(k) = {};
  }
  void wait_for_sent() {
    for (Step k(0); *k < dist_.steps(); ++k) {
      wait_for_sent(k);
    }
  }

  // x <- x inv(op(the triangle of tile t))
  void solve_tile(Tile t, Uplo uplo, Op op, T* x) {
    const Size nb = dist_.tile_size();
    const bool lower = uplo == Uplo::lower;
    const T* inverse = inverse_;
    if (inverse) {
      inverse += (*t.local + (lower ? 0 : dist_.capacity_tiles())) * nb * nb;
    }
    Device::template solve_triangle<T>(
        rank_.lanes.update, uplo, op, lower ? Diag::unit : Diag::non_unit, block_, dist_.rows(t),
        factor(t, dist_.eliminated(dist_.step(t))), n_, inverse, nb, x, block_, work_);
  }

  // Y U = B Q, or Z L = Y in the place of Y
  void substitute(Sweep sweep) {
    begin_sweep(sweep);
    for (Size place = 0; place < dist_.steps(); ++place) {
      substitute_step(sweep, place);
    }
  }

  void begin_sweep(Sweep sweep) {
    next_ = LocalTile(sweep == Sweep::forward ? 0 : dist_.local_tiles(me_) - 1);
    begin_tile(sweep, 0, 0);
  }

  void substitute_step(Sweep sweep, Size place) {
    const Watch watch = watch_step(sweep, place);
    const Step k = step_at(sweep, place);
    Ticket part = make_part(sweep, k);
    if (dist_.tile(k).rank != me_) {
      take_part(k, part);
    }
  }

  // The part of step k, on its way from the owner of its tile, who goes on with its next tile; the
  // ticket is that of all others.
  Ticket make_part(Sweep sweep, Step k) {
    auto& lane = rank_.lanes.update;
    const bool forward = sweep == Sweep::forward;
    const Tile tile = dist_.tile(k);
    const bool mine = tile.rank == me_;
    if (mine) {
      solve_tile(tile, forward ? Uplo::upper : Uplo::lower, Op::none, parts(k));
    }
    Ticket known = rank_.comm.broadcast(lane, parts(k), block_ * width(k), dtype_of<T>, tile.rank);
    if (mine) {
      sent(k) = std::move(known);
      known = {};
      next_ += forward ? 1 : -1;
      const Size solved = forward ? 0 : first(k);
      begin_tile(sweep, solved, forward ? first(k) + width(k) : n_ - solved);
    }
    return known;
  }

  void take_part(Step k, Ticket& part) {
    rank_.lanes.update.wait(part);
    subtract(first(k), width(k));
  }

  // The part that has had a step of the factorisation to arrive.
  void take_latest() {
    if (latest_step_) {
      take_part(*latest_step_, latest_);
      latest_step_.reset();
    }
  }

  // Right-hand sides of the next own tile, less what is known by now: these rows.
  void begin_tile(Sweep sweep, Size first, Size count) {
    if (!has_tile(next_)) {
      return;
    }
    auto& lane = rank_.lanes.update;
    const Tile t{me_, next_};
    const Step k = dist_.step(t);
    wait_for_sent(k);  // others have what lies there
    if (sweep == Sweep::forward) {
      Device::template copy<T>(lane, block_, dist_.rows(t), solution(t), nrhs_, parts(k), block_);
    }
    subtract(first, count);
  }

  // parts of the next own tile <- themselves - parts in these rows times the rows of its column
  void subtract(Size first, Size count) {
    if (!has_tile(next_) || count == 0) {
      return;
    }
    const Tile t{me_, next_};
    Device::template gemm<T>(rank_.lanes.update, Op::none, Op::none, block_, dist_.rows(t), count,
                             T(-1), parts_ + first * block_, block_, factor(t, first), n_, T(1),
                             parts(dist_.step(t)), block_);
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

  // B P^T as a sum over ranks: those columns that come from own rows, and zeros. Of Z there is
  // nothing yet.
  void permute() {
    auto& lane = rank_.lanes.update;
    const Size own = dist_.local_size(me_);
    const Size begin = own > 0 ? *own_begin() : 0;
    Device::template take_columns<T>(lane, block_, n_, rows_, begin, own,
                                     x_ + (whole_ ? begin * nrhs_ : 0) + column_, nrhs_, parts_,
                                     block_);
    Device::template fill<T>(lane, block_, n_, T(0), T(0), later_, block_);
  }

  // Z L^T = B P^T, or X Q U^T = Z; shares: those of all ranks add up to the right-hand sides. The
  // solution of a step comes to their place at its owner.
  void substitute_transposed(Sweep sweep, T* shares) {
    const bool forward = sweep == Sweep::forward;
    const Size steps = dist_.steps();
    if (steps > 0) {
      collect(step_at(sweep, 0), shares);
    }
    for (Size place = 0; place < steps; ++place) {
      const Watch watch = watch_step(sweep, place);
      const Step k = step_at(sweep, place);
      const Tile tile = dist_.tile(k);
      const bool mine = tile.rank == me_;
      const Size after = first(k) + width(k);
      const Size near = place + 1 < steps ? width(step_at(sweep, place + 1)) : 0;
      T* const x = shares + first(k) * block_;
      if (mine) {
        wait_for_sent(k);
        solve_tile(tile, forward ? Uplo::lower : Uplo::upper, Op::transpose, x);
        contribute(tile, x, forward ? after : first(k) - near, near, shares);
      }
      if (near > 0) {
        collect(step_at(sweep, place + 1), shares);
      }
      if (mine) {
        keep(sweep, tile, x);
        contribute(tile, x, forward ? after + near : 0, (forward ? n_ - after : first(k)) - near,
                   shares);
      }
    }
  }

  // The shares of a step to its owner.
  void collect(Step k, T* shares) {
    sent(k) = rank_.comm.reduce(rank_.lanes.update, shares + first(k) * block_, block_ * width(k),
                                dtype_of<T>, Reduction::sum, dist_.tile(k).rank);
  }

  // shares of these rows <- themselves - x times the transpose of the rows of tile t's column
  void contribute(Tile t, const T* x, Size first, Size count, T* shares) {
    if (count == 0) {
      return;
    }
    Device::template gemm<T>(rank_.lanes.update, Op::none, Op::transpose, block_, count,
                             dist_.rows(t), T(-1), x, block_, factor(t, first), n_, T(1),
                             shares + first * block_, block_);
  }

  // The solution of an own tile to where it is wanted next: Z among the right-hand sides of the
  // second sweep, X in its place, or where all ranks' rows are gathered.
  void keep(Sweep sweep, Tile t, const T* x) {
    T* to = later_ + first(dist_.step(t)) * block_;
    Size ld = block_;
    if (sweep == Sweep::backward) {
      to = whole_ ? parts_ + *dist_.global_begin(t) * block_ : solution(t);
      ld = whole_ ? block_ : nrhs_;
    }
    Device::template copy<T>(rank_.lanes.update, block_, dist_.rows(t), x, block_, to, ld);
  }

  // All ranks' rows of X to all ranks, if these hold it whole.
  void share() {
    if (!whole_) {
      return;
    }
    auto& lane = rank_.lanes.update;
    const Size count = block_ * dist_.capacity();
    auto all = rank_.comm.all_gather(lane, parts_ + me_ * count, parts_, count, dtype_of<T>);
    lane.wait(all);
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
  T* later_;
  T* work_;
  std::vector<Ticket> sent_;         // by step: its latest message from here
  LocalTile next_{0};                // own tile that parts are taken from
  Ticket latest_;                    // of the part that has not been taken yet,
  std::optional<Step> latest_step_;  // and its step
  Size block_ = 0;                   // right-hand sides in work
  Size column_ = 0;                  // the first of them
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
