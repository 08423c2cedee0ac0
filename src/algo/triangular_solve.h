// Solution of op(A) X = B with a row-sharded triangular A, with no redistribution.
//
// B and X are row-major, so read column-major they are B^T and X^T with one column per equation,
// and a shard of A is M = A^T, n x L: own columns of M are own rows of A. What is solved is
//
//   X^T M = B^T,    X^T M^T = B^T  or  X^T M^H = B^T
//
// tile by tile in the order in which equations become known. Own columns of M are whole, hence:
//
//   op none   X_k = (B_k - sum_i X_i M_ik) M_kk^-1          X_i is broadcast as soon as it is
//                                                           known, every rank takes it out of all
//                                                           of its own equations at once
//   else      X_k = (B_k - sum_j X_j op(M)_jk) op(M_kk)^-1  where M_kj lies, X_j lies too: ranks
//                                                           add up what they know, the owner of k
//                                                           collects the sums
//
// so that all ranks take part in every step. Where the equations of two steps lie on different
// ranks, the next one's owner has to wait for the newest X_i: then only that product is made
// between its coming and the next message, and those with all others before or after. Triangles are
// those of the elimination order: with the natural one they are what the user calls lower and
// upper, and with that of a Cholesky factor they make its two halves. Elements of the other
// triangle are never read. BLAS: xTRSM.
#pragma once

#include <algorithm>
#include <array>
#include <utility>

#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

// Which system is solved; uplo is that of A.
struct TriangularForm {
  Uplo uplo = Uplo::lower;
  Op op = Op::none;
  Diag diag = Diag::non_unit;
  bool operator==(const TriangularForm&) const = default;
};

template <class Device, class T>
class TriangularSolve {
 public:
  // x: nrhs x n (whole on every rank) or nrhs x L (this rank's rows); holds b on entry.
  TriangularSolve(Rank<Device>& rank, const Distribution& dist, const TriangularForm& form,
                  const T* a, T* x)
      : rank_(rank),
        dist_(dist),
        form_(form),
        me_(rank.comm.rank()),
        n_(dist.size()),
        own_rows_(dist.local_size(me_)),
        nrhs_(rank.plan.request().nrhs),
        whole_(rank.plan.request().replicated_rhs),
        forward_((form.uplo == Uplo::lower) == (form.op == Op::none)),
        a_(a),
        x_(x),
        own_(rank.workspace.template get<T>(Buffer::row_block)),
        gathered_(rank.workspace.template get<T>(Buffer::partial_sums)),
        tiles_{rank.workspace.template get<T>(Buffer::tile_rhs),
               rank.workspace.template get<T>(Buffer::tile_rhs_other)} {}

  void run() {
    for (column_ = 0; column_ < nrhs_; column_ += rank_.plan.rhs_block()) {
      block_ = std::min(rank_.plan.rhs_block(), nrhs_ - column_);
      load();
      for (Size place = 0; place < dist_.steps(); ++place) {
        Watch watch(rank_.observer, me_, Observer::Task::solve, place, dist_.steps());
        form_.op == Op::none ? push(place) : pull(place);
      }
      for (Ticket& ticket : tickets_) {
        rank_.lanes.update.wait(ticket);
      }
      tickets_ = {};
      store();
    }
  }

 private:
  using Ticket = typename Device::Ticket;

  // Own columns of M, and rows of X, as a range.
  struct Own {
    Size first = 0;
    Size count = 0;
  };
  Step step_at(Size place) const { return Step(forward_ ? place : dist_.steps() - 1 - place); }
  bool owns(Size place) const {
    return place < dist_.steps() && dist_.tile(step_at(place)).rank == me_;
  }
  Own rows_of(Tile t) const { return {*dist_.begin(t.local), dist_.rows(t)}; }
  Size own_before(Step k) const {
    return std::min(*dist_.begin(dist_.first_tile_from(k, me_)), own_rows_);
  }
  Own unsolved_after(Step k) const {
    const Size before = forward_ ? own_before(k + 1) : 0;
    return {before, (forward_ ? own_rows_ : own_before(k)) - before};
  }
  Own solved_before(Step k) const {
    const Size before = forward_ ? 0 : own_before(k + 1);
    return {before, (forward_ ? own_before(k) : own_rows_) - before};
  }

  // M in the rows of a tile, from own column `first` on.
  const T* matrix(Tile tile, Size first) const {
    return a_ + first * n_ + *dist_.global_begin(tile);
  }

  // The buffer of the present step's right-hand sides, which the step before last has let go of.
  T* tile_buffer(Size place) {
    rank_.lanes.update.wait(tickets_[parity(place)]);
    return tiles_[parity(place)];
  }
  void keep(Size place, Ticket ticket) { tickets_[parity(place)] = std::move(ticket); }
  static std::size_t parity(Size place) { return static_cast<std::size_t>(place & 1); }

  // x <- x inv(op(M_kk))
  void solve_tile(Tile tile, Size w, T* x) {
    const Uplo of_m = form_.uplo == Uplo::lower ? Uplo::upper : Uplo::lower;
    Device::template trsm<T>(rank_.lanes.update, Side::right, of_m, form_.op, form_.diag, block_, w,
                             T(1), matrix(tile, *dist_.begin(tile.local)), n_, x, block_);
  }

  // op none: X_k to everybody, and out of all equations that are left.
  void push(Size place) {
    auto& lane = rank_.lanes.update;
    const Step k = step_at(place);
    const Tile tile = dist_.tile(k);
    const bool mine = tile.rank == me_;
    const Size w = dist_.rows(tile);
    T* const known = tile_buffer(place);
    if (mine) {
      T* const x = own_ + *dist_.begin(tile.local) * block_;
      solve_tile(tile, w, x);
      Device::template copy<T>(lane, block_, w, x, block_, known, block_);
    }
    Ticket sent = rank_.comm.broadcast(lane, known, block_ * w, dtype_of<T>, tile.rank);
    if (!mine) {
      lane.wait(sent);
    }
    keep(place, std::move(sent));
    if (delayed_) {
      take_out(place - 1, unsolved_after(k));
    }
    // Others wait for the next tile if it is mine and this one is not.
    delayed_ = !mine && owns(place + 1);
    take_out(place, delayed_ ? rows_of(dist_.tile(step_at(place + 1))) : unsolved_after(k));
  }

  // The X of a step out of some of the own equations.
  void take_out(Size place, Own rows) {
    const Tile tile = dist_.tile(step_at(place));
    if (rows.count == 0) {
      return;
    }
    Device::template gemm<T>(rank_.lanes.update, Op::none, Op::none, block_, rows.count,
                             dist_.rows(tile), T(-1), tiles_[parity(place)], block_,
                             matrix(tile, rows.first), n_, T(1), own_ + rows.first * block_,
                             block_);
  }

  // op transpose or conj_transpose: what all know of equation k to its owner.
  void pull(Size place) {
    auto& lane = rank_.lanes.update;
    const Step k = step_at(place);
    const Tile tile = dist_.tile(k);
    const bool mine = tile.rank == me_;
    const Size w = dist_.rows(tile);
    if (!begun_) {
      begin_sum(place, solved_before(k));
    }
    T* const sum = tiles_[parity(place)];
    // Another rank waits for the next sum: what is known of it by now, without this tile.
    begun_ = mine && place + 1 < dist_.steps() && !owns(place + 1);
    if (begun_) {
      begin_sum(place + 1, solved_before(k));
    }
    Ticket reduced =
        rank_.comm.reduce(lane, sum, block_ * w, dtype_of<T>, Reduction::sum, tile.rank);
    if (mine) {
      lane.wait(reduced);
      T* const x = own_ + *dist_.begin(tile.local) * block_;
      Device::template add<T>(lane, block_, w, T(-1), sum, block_, x, block_);
      solve_tile(tile, w, x);
    }
    keep(place, std::move(reduced));
    if (begun_) {
      add_known(place + 1, rows_of(tile), T(1));
    }
  }

  // The sum of a step <- what these solutions make of it.
  void begin_sum(Size place, Own known) {
    T* const sum = tile_buffer(place);
    if (known.count == 0) {
      const Size w = dist_.rows(dist_.tile(step_at(place)));
      Device::template fill<T>(rank_.lanes.update, block_, w, T(0), T(0), sum, block_);
    } else {
      add_known(place, known, T(0));
    }
  }
  void add_known(Size place, Own known, T beta) {
    const Tile tile = dist_.tile(step_at(place));
    Device::template gemm<T>(rank_.lanes.update, Op::none, form_.op, block_, dist_.rows(tile),
                             known.count, T(1), own_ + known.first * block_, block_,
                             matrix(tile, known.first), n_, beta, tiles_[parity(place)], block_);
  }

  T* mine() const {
    const Size first = whole_ && own_rows_ > 0 ? *dist_.global(me_, LocalIndex(0)) : 0;
    return x_ + first * nrhs_ + column_;
  }

  void load() {
    Device::template copy<T>(rank_.lanes.update, block_, own_rows_, mine(), nrhs_, own_, block_);
  }

  void store() {
    auto& lane = rank_.lanes.update;
    if (!whole_) {
      Device::template copy<T>(lane, block_, own_rows_, own_, block_, mine(), nrhs_);
      return;
    }
    // Ranks hold consecutive rows.
    auto all = rank_.comm.all_gather(lane, own_, gathered_, block_ * dist_.capacity(), dtype_of<T>);
    lane.wait(all);
    Device::template copy<T>(lane, block_, n_, gathered_, block_, x_ + column_, nrhs_);
  }

  Rank<Device>& rank_;
  const Distribution& dist_;
  TriangularForm form_;
  int me_;
  Size n_;
  Size own_rows_;
  Size nrhs_;
  bool whole_;
  bool forward_;          // equations become known in elimination order
  bool delayed_ = false;  // the X before the last is still in equations behind the newest's
  bool begun_ = false;    // the next sum has been begun
  const T* a_;
  T* x_;
  T* own_;       // block x L: right-hand sides, then solutions, of own rows
  T* gathered_;  // those of all ranks
  std::array<T*, 2> tiles_;
  std::array<Ticket, 2> tickets_;
  Size block_ = 0;   // right-hand sides in work
  Size column_ = 0;  // the first of them
};

// x <- op(A)^-1 x on the form of x that the plan names.
template <class Device, class T>
void triangular_solve(Rank<Device>& rank, const TriangularForm& form, const T* a, T* x) {
  const Distribution dist = rank.plan.distribution();
  TriangularSolve<Device, T>(rank, dist, form, a, x).run();
}

}  // namespace jaxmg
