// Inverse of a row-sharded general matrix from its LU factor, in place, with no redistribution.
//
// With P M Q = L U as in lu.h, M^-1 = Q U^-1 L^-1 P. Column tiles are in elimination order:
//
//   W = U^-1     from the first to the last   W_kk = U_kk^-1,  W_ik = -(sum over i <= l < k of
//                                                                        W_il U_lk) W_kk
//   X = W L^-1   from the last to the first   X_k = (W_k - sum over j > k of X_j L_jk) L_kk^-1
//
// In the first sweep a finished column tile of W goes to all ranks, which add their shares to later
// columns. In the second the columns of L do, and each rank sends back what its own columns of X
// contribute: X itself, a full matrix, stays where it is. Then rows of X go to their places, which
// is each rank's own affair, and columns to theirs, which P mixes over the ranks.
//
// M^-1 = (A^-1)^T: the shard ends as rows of A^-1. n^3 / 3 and n^3 operations, which makes 2 n^3
// with the factorisation. LAPACK: xGETRI.
#pragma once

#include <algorithm>
#include <limits>

#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class LuInverse {
 public:
  // rows: row i of the factors belongs to row rows_i of M (see Lu). a: n x L columns, ld n.
  LuInverse(Rank<Device>& rank, const Distribution& dist, const std::int32_t* rows, T* a)
      : rank_(rank),
        lane_(rank.lanes.update),
        dist_(dist),
        me_(rank.comm.rank()),
        n_(dist.size()),
        own_(dist.local_size(me_)),
        rows_(rows),
        a_(a),
        panel_(rank.workspace.template get<T>(Buffer::panel_even)),
        part_(rank.workspace.template get<T>(Buffer::panel_odd)),
        block_(rank.workspace.template get<T>(Buffer::row_block)),
        small_(rank.workspace.template get<T>(Buffer::small_blocks)),
        order_(rank.workspace.template get<std::int32_t>(Buffer::row_order)),
        target_(order_ + n_) {}

  void run() {
    index();
    for (Step k(0); *k < dist_.steps(); ++k) {
      const Watch watch = watch_step(*k);
      invert_step(k);
    }
    for (Step k(dist_.steps() - 1); *k >= 0; k += -1) {
      const Watch watch = watch_step(2 * dist_.steps() - 1 - *k);
      solve_step(k);
    }
    order_rows();
    exchange_columns();
  }

 private:
  Watch watch_step(Size step) const {
    return Watch(rank_.observer, me_, Observer::Task::update, step, 2 * dist_.steps());
  }
  bool mine(Step k) const { return dist_.tile(k).rank == me_; }
  Size width(Step k) const { return dist_.rows(dist_.tile(k)); }
  Size first(Step k) const { return dist_.eliminated(k); }  // row of the step's diagonal
  Size last(Step k) const { return first(k) + width(k); }
  T* column(Step k) const { return a_ + *dist_.begin(dist_.tile(k).local) * n_; }
  // Own columns that are eliminated after step k: the first, counted on this rank.
  Size later(Step k) const {
    return std::min(*dist_.begin(dist_.first_tile_from(k + 1, me_)), own_);
  }
  Size own_begin() const { return own_ > 0 ? *dist_.global(me_, LocalIndex(0)) : 0; }

  // order_i: the index, in the user's order, that is eliminated at place i.
  // target_j: where the column of X that is stored for index j goes.
  void index() {
    Device::iota(lane_, n_, target_);
    for (Step k(0); *k < dist_.steps(); ++k) {
      Device::template copy<std::int32_t>(lane_, width(k), 1,
                                          target_ + *dist_.global_begin(dist_.tile(k)), n_,
                                          order_ + first(k), n_);
    }
    for (Step k(0); *k < dist_.steps(); ++k) {
      Device::template copy<std::int32_t>(lane_, width(k), 1, rows_ + first(k), n_,
                                          target_ + *dist_.global_begin(dist_.tile(k)), n_);
    }
  }

  // Column tile k of W, and its share of those to its right, which hold the sums above their
  // diagonals' rows until it is their turn.
  void invert_step(Step k) {
    const Size w = width(k);
    if (mine(k)) {
      finish_column(k);
    }
    auto sent = rank_.comm.broadcast(lane_, panel_, last(k) * w, dtype_of<T>, dist_.tile(k).rank);
    lane_.wait(sent);
    const Size begin = later(k);
    const Size columns = own_ - begin;
    T* const row = a_ + begin * n_ + first(k);
    Device::template copy<T>(lane_, w, columns, row, n_, block_, w);
    Device::template fill<T>(lane_, w, columns, T(0), T(0), row, n_);
    Device::template gemm<T>(lane_, Op::none, Op::none, last(k), columns, w, T(1), panel_, last(k),
                             block_, w, T(1), a_ + begin * n_, n_);
  }

  // panel_ (its rows up to the diagonal's last) <- W_k, and so the upper part of the column.
  void finish_column(Step k) {
    const Size w = width(k);
    T* const sums = column(k);
    T* const diagonal = sums + first(k);
    Device::template fill<T>(lane_, w, w, T(0), T(1), small_, w);
    Device::template trsm<T>(lane_, Side::left, Uplo::upper, Op::none, Diag::non_unit, w, w, T(1),
                             diagonal, n_, small_, w);
    Device::template gemm<T>(lane_, Op::none, Op::none, first(k), w, w, T(-1), sums, n_, small_, w,
                             T(0), panel_, last(k));
    Device::template copy<T>(lane_, first(k), w, panel_, last(k), sums, n_);
    Device::template copy<T>(lane_, w, w, small_, w, panel_ + first(k), last(k));
    Device::template copy_triangle<T>(lane_, Uplo::upper, Diag::non_unit, w, w, small_, w, diagonal,
                                      n_);
  }

  // Column tile k of X.
  void solve_step(Step k) {
    const Size w = width(k);
    if (mine(k)) {
      take_lower(k);
    }
    if (last(k) < n_) {
      auto sent = rank_.comm.broadcast(lane_, panel_, n_ * w, dtype_of<T>, dist_.tile(k).rank);
      lane_.wait(sent);
      const Size begin = later(k);
      Device::template fill<T>(lane_, n_, own_ > begin ? 0 : w, T(0), T(0), part_, n_);
      Device::template gemm<T>(lane_, Op::none, Op::none, n_, w, own_ - begin, T(1),
                               a_ + begin * n_, n_, panel_ + own_begin() + begin, n_, T(0), part_,
                               n_);
      auto summed =
          rank_.comm.reduce(lane_, part_, n_ * w, dtype_of<T>, Reduction::sum, dist_.tile(k).rank);
      lane_.wait(summed);
    }
    if (mine(k)) {
      if (last(k) < n_) {
        Device::template add<T>(lane_, n_, w, T(-1), part_, n_, column(k), n_);
      }
      Device::template trsm<T>(lane_, Side::right, Uplo::lower, Op::none, Diag::unit, n_, w, T(1),
                               small_, w, column(k), n_);
    }
  }

  // small_ <- the diagonal tile with L_kk, panel_ <- L below it with each row where its own column
  // of X is stored, so that a rank's columns meet rows that lie together; W_k alone is left.
  void take_lower(Step k) {
    const Size w = width(k);
    const Size below = n_ - last(k);
    T* const diagonal = column(k) + first(k);
    T* const upper = small_ + w * w;
    Device::template put_rows<T>(lane_, below, w, order_ + last(k), 0, diagonal + w, n_, panel_,
                                 n_);
    Device::template fill<T>(lane_, below, w, T(0), T(0), diagonal + w, n_);
    Device::template copy<T>(lane_, w, w, diagonal, n_, small_, w);
    Device::template fill<T>(lane_, w, w, T(0), T(0), upper, w);
    Device::template copy_triangle<T>(lane_, Uplo::upper, Diag::non_unit, w, w, small_, w, upper,
                                      w);
    Device::template copy<T>(lane_, w, w, upper, w, diagonal, n_);
  }

  // Q: from elimination order to the user's.
  void order_rows() {
    bool ordered = true;
    for (Step k(0); *k < dist_.steps(); ++k) {
      ordered = ordered && *dist_.global_begin(dist_.tile(k)) == first(k);
    }
    const Size tile = dist_.tile_size();
    for (Size begin = 0; !ordered && begin < own_; begin += tile) {
      const Size w = std::min(tile, own_ - begin);
      T* const columns = a_ + begin * n_;
      Device::template put_rows<T>(lane_, n_, w, order_, 0, columns, n_, panel_, n_);
      Device::template copy<T>(lane_, n_, w, panel_, n_, columns, n_);
    }
  }

  // P: some rows of all columns at a time.
  void exchange_columns() {
    T* const send = rank_.workspace.template get<T>(Buffer::send_staging);
    T* const all = rank_.workspace.template get<T>(Buffer::receive_staging);
    const Size capacity = dist_.capacity();
    const Size height = rank_.workspace.count(Buffer::send_staging) / capacity;
    for (Size row = 0; row < n_; row += height) {
      const Size count = std::min(height, n_ - row);
      Device::template copy<T>(lane_, count, own_, a_ + row, n_, send, count);
      auto gathered = rank_.comm.all_gather(lane_, send, all, count * capacity, dtype_of<T>);
      lane_.wait(gathered);
      Device::template put_columns<T>(lane_, count, n_, target_, own_begin(), own_, all, count,
                                      a_ + row, n_);
    }
  }

  Rank<Device>& rank_;
  typename Device::Lane& lane_;
  const Distribution& dist_;
  int me_;
  Size n_;
  Size own_;
  const std::int32_t* rows_;
  T* a_;
  T* panel_;  // n x tile
  T* part_;   // n x tile
  T* block_;  // tile x L
  T* small_;  // two tile x tile blocks
  std::int32_t* order_;
  std::int32_t* target_;
};

// a <- the rows of A^-1, from what lu_factor left; NaN on every rank if that failed.
template <class Device, class T>
void lu_inverse(Rank<Device>& rank, const std::int32_t* pivots, const Info* info, T* a) {
  const Distribution dist = rank.plan.distribution();
  const Size n = dist.size();
  if (n == 0) {
    return;
  }
  LuInverse<Device, T>(rank, dist, pivots + n, a).run();
  const T nan(std::numeric_limits<Real<T>>::quiet_NaN());
  Device::template fill_if_failed<T>(rank.lanes.update, info, n, dist.capacity(), nan, a, n);
}

}  // namespace jaxmg
