// A row-sharded Hermitian matrix becomes a band matrix of half width b = the tile: blocked
// Householder reduction, stage 1 of the eigensolver.
//
// Read column-major, a rank's shard holds columns of M = A^T = conj(A) (see cholesky.h). In the
// elimination order P, which balances the load and in which all ranks put the rows of their columns
// first,
//
//   P M P^T = Q B Q^H,    Q = Q_0 Q_1 ...,    Q_k = I - V_k T_k V_k^H
//
// Panel k has the columns of tile k, which begin at position c. Its rows from position c + b on are
// Q_k R. Several panels form a block, within which M is left as it was at the block's beginning:
// with X = [V_0 W_0 V_1 W_1 ...] of the block's panels so far, and X' = [W_0 V_0 W_1 V_1 ...], the
// matrix is M - X X'^H. For the next panel,
//
//   its columns <- M - X X'^H, then their QR
//   Z = M V - X' (X^H V)       each rank the rows that are its columns, as M is Hermitian;
//   all-gather W = Z T - V (T^H V^H Z T) / 2
//
// and M <- M - X X'^H at the end of the block, one product with a long inner dimension. T comes
// from V^H V, which is part of X^H V, and the scalars of the reflectors.
//
// V_k stays in the place of the panel, the scalars on every rank. LAPACK: xSY2SB; Dongarra,
// Sorensen, Hammarling: Block reduction of matrices to condensed forms (1989), for the delayed
// update.
#pragma once

#include <algorithm>

#include "algo/band_update.h"
#include "algo/elimination_rows.h"
#include "algo/rank.h"
#include "algo/row_order.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

// The reflectors of one panel.
struct ReflectorPanel {
  Tile tile;
  Size begin = 0;  // position of the panel's first column
  Size width = 0;  // of its columns
  Size count = 0;  // reflectors
  Size first = 0;  // position of the first row that they act on
};

// Those of panel k; count is 0 when nothing is left to reduce.
inline ReflectorPanel reflector_panel(const Distribution& dist, Step k) {
  ReflectorPanel panel;
  panel.tile = dist.tile(k);
  panel.begin = dist.eliminated(k);
  panel.width = dist.rows(panel.tile);
  panel.first = panel.begin + dist.tile_size();
  panel.count = std::clamp<Size>(dist.size() - panel.first, 0, panel.width);
  return panel;
}

// Panels from k on, `most` at the most, of which each begins where the one before has left off.
inline Size reflector_block(const Distribution& dist, Step k, Size most) {
  Size count = 1;
  for (Step s = k; count < most && *s + 1 < dist.steps(); ++s, ++count) {
    const Size b = dist.tile_size();
    if (reflector_panel(dist, s).count < b || dist.rows(dist.tile(Step(*s + 1))) < b) {
      break;
    }
  }
  return count;
}

template <class Device, class T>
class BandReduction {
 public:
  BandReduction(Rank<Device>& rank, const Distribution& dist, T* a)
      : rank_(rank),
        lane_(rank.lanes.update),
        panel_lane_(rank.lanes.panel),
        dist_(dist),
        rows_(dist),
        me_(rank.comm.rank()),
        n_(dist.size()),
        b_(dist.tile_size()),
        group_(rank.plan.group()),
        own_(dist.local_size(me_)),
        a_(a),
        x_(get(Buffer::reflector_rows)),
        x_own_(get(Buffer::reflector_own_rows)),
        z_(get(Buffer::product_rows)),
        z_own_(get(Buffer::product_own_rows)),
        panel_(get(Buffer::panel_even)),
        scalars_(get(Buffer::reflector_factors)),
        blocks_(get(Buffer::small_blocks)),
        band_(get(Buffer::band)) {}

  // a <- reflectors, with rows in the order of elimination. The band, A_ij at
  // band[i - j + 2 b j], is left on rank 0.
  void run() {
    stage("order of rows");
    reorder_rows<Device, T>(lane_, dist_, RowOrder::elimination, own_, a_, x_, 2 * b_ * n_);
    Device::template fill<T>(lane_, 2 * b_, n_, T(0), T(0), band_, 2 * b_);
    for (Size k = 0; k < dist_.steps();) {
      const Size end = k + reflector_block(dist_, Step(k), group_);
      used_ = 0;
      ReflectorPanel p;
      for (; k < end; ++k) {
        Watch watch(rank_.observer, me_, Observer::Task::update, k, dist_.steps());
        p = reflector_panel(dist_, Step(k));
        step(p);
      }
      stage("updates");
      BandUpdate<Device, T>(rank_, dist_, a_).apply(p.first, used_);
    }
    stage("band");
    auto gathered = rank_.comm.reduce(lane_, band_, 2 * b_ * n_, dtype_of<T>, Reduction::sum, 0);
    lane_.wait(gathered);
  }

 private:
  void stage(const char* name) { rank_.observer.stage(me_, name); }
  T* get(Buffer buffer) const { return rank_.workspace.template get<T>(buffer); }
  T* column(LocalTile t) const { return a_ + *dist_.begin(t) * n_; }
  // T, products; the last two take the top of a panel, 2 b x b, with R in its lower half.
  T* block(Size i) const { return blocks_ + i * b_ * b_; }
  T* top() const { return block(3); }
  // X^H V, 2 group b x b
  T* products() const { return block(5); }
  Size products_ld() const { return 2 * group_ * b_; }

  void step(const ReflectorPanel& p) {
    const bool mine = p.tile.rank == me_;
    stage("panel QR");
    if (mine) {
      factor(p);
    }
    if (p.count == 0) {
      store(p);
      return;
    }
    stage("panel sent");
    const Size height = n_ - p.begin;
    Message message{panel_, panel_};
    auto sent = rank_.comm.publish(lane_, message, height * p.width, dtype_of<T>, p.tile.rank);
    store(p);
    if (!mine) {
      lane_.wait(sent);
    }
    const T* const panel = mine ? place(p) : static_cast<const T*>(message.view);
    const Size ld = mine ? place_ld(p) : height;
    T* const v = x_ + used_ * n_ + p.first;
    Device::template copy<T>(lane_, n_ - p.first, p.count, panel + b_, ld, v, n_);
    if (!mine) {
      Device::template copy<T>(lane_, 1, p.count, panel, ld, scalars_ + p.begin, 1);
      sent.release();
    }
    // Beside the product with the matrix.
    panel_lane_.wait(lane_.record());
    triangular_factor(p, v);
    const auto factored = panel_lane_.record();
    stage("matrix times panel");
    multiply(p, v);
    lane_.wait(factored);
    correct(p);
    update_between(p, v);
    if (mine) {
      lane_.wait(sent);  // the panel's memory is used again
    }
    stage("all-gather");
    gather(p);
    stage("corrections");
    complete(p, v);
    used_ += 2 * p.count;
  }

  bool alone() const { return rank_.comm.size() == 1; }
  // Where the owner makes the QR of a panel, from its first position on: in a copy to be sent, or,
  // if there is nobody else, where it is.
  T* place(const ReflectorPanel& p) const {
    return alone() ? column(p.tile.local) + p.begin : panel_;
  }
  Size place_ld(const ReflectorPanel& p) const { return alone() ? n_ : n_ - p.begin; }

  // The panel's QR. A copy to be sent has the scalars of the reflectors in its first row.
  void factor(const ReflectorPanel& p) {
    T* const panel = place(p);
    const Size height = n_ - p.begin, ld = place_ld(p);
    if (!alone()) {
      Device::template copy<T>(lane_, height, p.width, column(p.tile.local) + p.begin, n_, panel,
                               ld);
    }
    Device::template gemm<T>(lane_, Op::none, Op::conj_transpose, height, p.width, used_, T(-1),
                             x_ + p.begin, n_, x_own_ + *dist_.begin(p.tile.local), own_, T(1),
                             panel, ld);
    Device::template copy<T>(lane_, std::min(b_, height), p.width, panel, ld, top(), 2 * b_);
    if (p.count > 0) {
      T* const scalars = scalars_ + p.begin;
      Device::template householder_panel<T>(
          lane_, height - b_, p.width, panel + b_, ld, top() + b_, 2 * b_, scalars,
          rank_.workspace.template get<double>(Buffer::eigen_work));
      if (!alone()) {
        Device::template copy<T>(lane_, 1, p.count, scalars, 1, panel, ld);
      }
    }
  }

  // The owner keeps the reflectors in the panel's place, and the panel's part of the band.
  void store(const ReflectorPanel& p) {
    if (p.tile.rank != me_) {
      return;
    }
    const Size height = n_ - p.begin, rows = std::min(b_, height);
    if (p.count > 0 && !alone()) {
      Device::template copy<T>(lane_, height - b_, p.count, panel_ + b_, height,
                               column(p.tile.local) + p.first, n_);
    }
    Device::template store_band<T>(lane_, rows + p.count, p.width, b_, top(), 2 * b_,
                                   band_ + p.begin * 2 * b_, 2 * b_);
  }

  // products <- [X V]^H V, block(1) <- T
  void triangular_factor(const ReflectorPanel& p, const T* v) {
    Device::template gemm<T>(panel_lane_, Op::conj_transpose, Op::none, used_ + p.count, p.count,
                             n_ - p.first, T(1), x_ + p.first, n_, v, n_, T(0), products(),
                             products_ld());
    Device::template reflector_factor<T>(panel_lane_, p.count, products() + used_, products_ld(),
                                         scalars_ + p.begin, block(0), b_);
  }

  // Own columns at positions between the panel's end and the first reduced row, which there are if
  // the panel is narrower than b and alone in its block: M <- Q^H M there.
  void update_between(const ReflectorPanel& p, const T* v) {
    const Size from = rows_.first_local(me_, p.begin + p.width);
    const Size columns = rows_.first_local(me_, p.first) - from;
    T* const m = a_ + from * n_ + p.first;
    const Size rows = n_ - p.first;
    Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, p.count, columns, rows, T(1), v,
                             n_, m, n_, T(0), block(1), b_);
    Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, p.count, columns, p.count, T(1),
                             block(0), b_, block(1), b_, T(0), block(2), b_);
    Device::template gemm<T>(lane_, Op::none, Op::none, rows, columns, p.count, T(-1), v, n_,
                             block(2), b_, T(1), m, n_);
  }

  // z_own <- own rows of M V
  void multiply(const ReflectorPanel& p, const T* v) {
    const Size from = rows_.first_local(me_, p.first);
    Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, own_ - from, p.count,
                             n_ - p.first, T(1), a_ + from * n_ + p.first, n_, v, n_, T(0),
                             own_product(p), own_ld(p));
  }

  // z_own <- z_own - X' (X^H V)
  void correct(const ReflectorPanel& p) {
    const Size from = rows_.first_local(me_, p.first);
    Device::template gemm<T>(lane_, Op::none, Op::none, own_ - from, p.count, used_, T(-1),
                             x_own_ + from, own_, products(), products_ld(), T(1), own_product(p),
                             own_ld(p));
  }

  // Alone, a rank needs no gathering.
  T* own_product(const ReflectorPanel& p) const { return alone() ? z_ + p.first : z_own_; }
  Size own_ld(const ReflectorPanel& p) const { return alone() ? n_ : most_rows(p.first); }
  // The most rows at position `first` or later that a rank has.
  Size most_rows(Size first) const {
    Size most = 0;
    for (int r = 0; r < dist_.ranks(); ++r) {
      most = std::max(most, dist_.local_size(r) - rows_.first_local(r, first));
    }
    return most;
  }

  // z <- the ranks' rows in the order of elimination
  void gather(const ReflectorPanel& p) {
    if (alone()) {
      return;
    }
    const Size ld = own_ld(p), count = ld * p.count;
    auto gathered = rank_.comm.all_gather(lane_, z_own_, panel_, count, dtype_of<T>);
    lane_.wait(gathered);
    for (int r = 0; r < dist_.ranks(); ++r) {
      const Size from = rows_.first_local(r, p.first);
      for (const LocalRun& run : rows_.runs(r, from)) {
        Device::template copy_blocks<T>(lane_, run.rows, p.count, run.count,
                                        panel_ + r * count + run.local - from, ld, run.rows,
                                        z_ + run.position, n_, run.stride);
      }
    }
  }

  // W = Z T - V S / 2 with S = T^H (V^H Z) T, beside V in X; own rows of both, the other way round,
  // in X'.
  void complete(const ReflectorPanel& p, const T* v) {
    const Size k = p.count, rows = n_ - p.first;
    const T* const z = z_ + p.first;
    T* const w = x_ + (used_ + k) * n_ + p.first;
    Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, k, k, rows, T(1), v, n_, z, n_,
                             T(0), block(1), b_);
    Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, k, k, k, T(1), block(0), b_,
                             block(1), b_, T(0), block(2), b_);
    Device::template gemm<T>(lane_, Op::none, Op::none, k, k, k, T(-0.5), block(2), b_, block(0),
                             b_, T(0), block(1), b_);
    Device::template gemm<T>(lane_, Op::none, Op::none, rows, k, k, T(1), z, n_, block(0), b_, T(0),
                             w, n_);
    Device::template gemm<T>(lane_, Op::none, Op::none, rows, k, k, T(1), v, n_, block(1), b_, T(1),
                             w, n_);
    if (alone()) {
      return Device::template copy_blocks<T>(lane_, rows, k, 2, x_ + used_ * n_ + p.first, n_,
                                             k * n_, x_own_ + (used_ + k) * own_ + p.first, own_,
                                             -k * own_);
    }
    for (const LocalRun& run : rows_.runs(me_, rows_.first_local(me_, p.first))) {
      for (const bool first : {true, false}) {
        Device::template copy_blocks<T>(
            lane_, run.rows, k, run.count, x_ + (used_ + (first ? k : 0)) * n_ + run.position, n_,
            run.stride, x_own_ + (used_ + (first ? 0 : k)) * own_ + run.local, own_, run.rows);
      }
    }
  }

  Rank<Device>& rank_;
  typename Device::Lane& lane_;
  typename Device::Lane& panel_lane_;
  const Distribution& dist_;
  EliminationRows rows_;
  int me_;
  Size n_, b_;
  Size group_;  // panels of a block
  Size own_;
  Size used_ = 0;  // columns of X
  T* a_;
  T* x_;        // n x 2 group b: X
  T* x_own_;    // own x 2 group b: own rows of X'
  T* z_;        // n x b
  T* z_own_;    // own x b
  T* panel_;    // n x b; all ranks' z_own
  T* scalars_;  // n
  T* blocks_;   // (5 + 2 group) b^2
  T* band_;     // 2 b x n
};

}  // namespace jaxmg
