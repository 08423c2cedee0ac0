// A row-sharded Hermitian matrix becomes a band matrix of half width b = the tile: blocked
// Householder reduction, stage 1 of the eigensolver.
//
// Read column-major, a rank's shard holds columns of M = A^T = conj(A) (see cholesky.h). In the
// elimination order P, which balances the load and moves nothing,
//
//   P M P^T = Q B Q^H,    Q = Q_0 Q_1 ...,    Q_k = I - V_k T_k V_k^H
//
// Panel k has the columns of tile k, which begin at position c. Its rows from position c + b on are
// Q_k R. With V and T sent to all ranks, each applies Q_k^H from the left and Q_k from the right to
// its own columns at such positions (sums over the rows at positions c + b and later):
//
//   Z = M V             each rank the rows that are its columns, since M is Hermitian; all-gather
//   W = Z T - V (T^H V^H Z T) / 2
//   M <- M - V W^H - W V^H
//
// V_k stays in the place of the panel, T_k on every rank (n b elements in all). LAPACK:
// xSYTRD_SY2SB.
#pragma once

#include <algorithm>
#include <vector>

#include "algo/elimination_rows.h"
#include "algo/rank.h"
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

template <class Device, class T>
class BandReduction {
 public:
  BandReduction(Rank<Device>& rank, const Distribution& dist, T* a)
      : rank_(rank),
        lane_(rank.lanes.update),
        dist_(dist),
        rows_(dist),
        me_(rank.comm.rank()),
        n_(dist.size()),
        b_(dist.tile_size()),
        own_(dist.local_size(me_)),
        begin_(own_ > 0 ? *dist.global(me_, LocalIndex(0)) : 0),
        a_(a),
        left_(get(Buffer::reflector_rows)),
        right_(get(Buffer::reflector_own_rows)),
        z_(get(Buffer::product_rows)),
        z_own_(get(Buffer::product_own_rows)),
        panel_(get(Buffer::panel_even)),
        factors_(get(Buffer::reflector_factors)),
        blocks_(get(Buffer::small_blocks)),
        band_(get(Buffer::band)) {}

  // a <- reflectors. The band, A_ij at band[i - j + 2 b j], is left on rank 0.
  void run() {
    Device::template fill<T>(lane_, 2 * b_, n_, T(0), T(0), band_, 2 * b_);
    for (Step k(0); *k < dist_.steps(); ++k) {
      Watch watch(rank_.observer, me_, Observer::Task::panel, *k, dist_.steps());
      step(reflector_panel(dist_, k), factors_ + *k * b_ * b_);
    }
    auto gathered = rank_.comm.reduce(lane_, band_, 2 * b_ * n_, dtype_of<T>, Reduction::sum, 0);
    lane_.wait(gathered);
  }

 private:
  void stage(const char* name) { rank_.observer.stage(me_, name); }
  T* get(Buffer buffer) const { return rank_.workspace.template get<T>(buffer); }
  T* column(LocalTile t) const { return a_ + *dist_.begin(t) * n_; }
  // Columns of small_blocks: R, two products, the top of a panel (2 b rows).
  T* block(Size i) const { return blocks_ + i * b_ * b_; }

  void step(const ReflectorPanel& p, T* t) {
    const bool mine = p.tile.rank == me_;
    stage("panel QR");
    if (mine) {
      factor(p, t);
    }
    if (p.count == 0) {
      return;
    }
    stage("panel sent");
    T* const columns = mine ? column(p.tile.local) : panel_;
    Message message{columns, columns};
    auto sent = rank_.comm.publish(lane_, message, n_ * p.width, dtype_of<T>, p.tile.rank);
    auto sent_factor = rank_.comm.broadcast(lane_, t, b_ * b_, dtype_of<T>, p.tile.rank);
    if (!mine) {
      lane_.wait(sent);
    }
    lane_.wait(sent_factor);
    const auto ranges = rows_.from(p.first);
    // V^H, so that rows of the matrix are columns here and lie together.
    const T* const v = static_cast<const T*>(mine ? columns : message.view);
    for (const RowRange& r : ranges) {
      Device::template transpose<T>(lane_, r.count, p.count, v + *r.begin, n_,
                                    left_ + *r.begin * 2 * b_, 2 * b_, true);
    }
    if (!mine) {
      sent.release();
    }
    update_between(p, t, ranges);
    stage("matrix times panel");
    multiply(p, ranges);
    stage("corrections");
    complete(p, t, ranges);
    stage("updates");
    update(p, ranges);
    if (mine) {
      lane_.wait(sent);
    }
  }

  // The panel's QR, and its part of the band.
  void factor(const ReflectorPanel& p, T* t) {
    T* const columns = column(p.tile.local);
    T* const top = block(3);
    const Size rows = std::min(b_, n_ - p.begin);
    for (const auto& piece : rows_.between(p.begin, p.begin + rows)) {
      Device::template copy<T>(lane_, piece.count, p.width, columns + *piece.row, n_,
                               top + (piece.position - p.begin), 2 * b_);
    }
    if (p.count > 0) {
      // The rows of R first, in the order of elimination, then all others.
      const Size m = n_ - p.first;
      const auto pivots = rows_.between(p.first, p.first + p.count);
      const auto rest = rows_.from(p.first + p.count);
      for (const auto& piece : pivots) {
        Device::template copy<T>(lane_, piece.count, p.width, columns + *piece.row, n_,
                                 panel_ + (piece.position - p.first), m);
      }
      for (const RowRange& r : rest) {
        Device::template copy<T>(lane_, r.count, p.width, columns + *r.begin, n_,
                                 panel_ + p.count + r.packed, m);
      }
      Device::template fill<T>(lane_, b_ * b_, 1, T(0), T(0), t, b_ * b_);
      Device::template householder_panel<T>(
          lane_, m, p.width, panel_, m, block(0), b_, t, b_,
          rank_.workspace.template get<double>(Buffer::eigen_work));
      for (const auto& piece : pivots) {
        Device::template copy<T>(lane_, piece.count, p.count, panel_ + (piece.position - p.first),
                                 m, columns + *piece.row, n_);
      }
      for (const RowRange& r : rest) {
        Device::template copy<T>(lane_, r.count, p.count, panel_ + p.count + r.packed, m,
                                 columns + *r.begin, n_);
      }
      Device::template copy<T>(lane_, p.count, p.width, block(0), b_, top + b_, 2 * b_);
    }
    Device::template store_band<T>(lane_, rows + p.count, p.width, b_, top, 2 * b_,
                                   band_ + p.begin * 2 * b_, 2 * b_);
  }

  // Own columns at positions between the panel's end and the first reduced row, which there are if
  // the panel is narrower than b: M <- Q^H M there.
  void update_between(const ReflectorPanel& p, const T* t, const std::vector<RowRange>& ranges) {
    const Size from = rows_.first_local(me_, p.begin + p.width);
    const Size count = rows_.first_local(me_, p.first) - from;
    if (count <= 0) {
      return;
    }
    T* const columns = a_ + from * n_;
    sum_over(ranges, [&](const RowRange& r, T beta) {
      Device::template gemm<T>(lane_, Op::none, Op::none, p.count, count, r.count, T(1),
                               left_ + *r.begin * 2 * b_, 2 * b_, columns + *r.begin, n_, beta,
                               z_own_, b_);
    });
    Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, p.count, count, p.count, T(1), t,
                             b_, z_own_, b_, T(0), right_, 2 * b_);
    for (const RowRange& r : ranges) {
      Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, r.count, count, p.count, T(-1),
                               left_ + *r.begin * 2 * b_, 2 * b_, right_, 2 * b_, T(1),
                               columns + *r.begin, n_);
    }
  }

  // Z^H = V^H M, everybody's columns.
  void multiply(const ReflectorPanel& p, const std::vector<RowRange>& ranges) {
    const Size from = rows_.first_local(me_, p.first);
    const bool alone = rank_.comm.size() == 1;
    T* const target = alone ? z_ : z_own_;
    sum_over(ranges, [&](const RowRange& r, T beta) {
      Device::template gemm<T>(lane_, Op::none, Op::none, p.count, own_ - from, r.count, T(1),
                               left_ + *r.begin * 2 * b_, 2 * b_, a_ + from * n_ + *r.begin, n_,
                               beta, target + from * b_, b_);
    });
    if (!alone) {
      auto gathered = rank_.comm.all_gather(lane_, z_own_, z_, b_ * dist_.capacity(), dtype_of<T>);
      lane_.wait(gathered);
    }
  }

  // W^H = T^H Z^H - S V^H / 2 with S = T^H (V^H Z) T, below V^H in `left`; and the own columns'
  // part, the other way round, in `right`.
  void complete(const ReflectorPanel& p, const T* t, const std::vector<RowRange>& ranges) {
    const Size k = p.count, ld = 2 * b_;
    sum_over(ranges, [&](const RowRange& r, T beta) {
      Device::template gemm<T>(lane_, Op::none, Op::conj_transpose, k, k, r.count, T(1),
                               left_ + *r.begin * ld, ld, z_ + *r.begin * b_, b_, beta, block(1),
                               b_);
    });
    Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, k, k, k, T(1), t, b_, block(1),
                             b_, T(0), block(2), b_);
    Device::template gemm<T>(lane_, Op::none, Op::none, k, k, k, T(1), block(2), b_, t, b_, T(0),
                             block(1), b_);
    for (const RowRange& r : ranges) {
      T* const v = left_ + *r.begin * ld;
      Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, k, r.count, k, T(1), t, b_,
                               z_ + *r.begin * b_, b_, T(0), v + k, ld);
      Device::template gemm<T>(lane_, Op::none, Op::none, k, r.count, k, T(-0.5), block(1), b_, v,
                               ld, T(1), v + k, ld);
    }
    const Size from = rows_.first_local(me_, p.first);
    const T* const own = left_ + (begin_ + from) * ld;
    Device::template copy<T>(lane_, k, own_ - from, own + k, ld, right_ + from * ld, ld);
    Device::template copy<T>(lane_, k, own_ - from, own, ld, right_ + from * ld + k, ld);
  }

  // M <- M - [V W] [W V]^H
  void update(const ReflectorPanel& p, const std::vector<RowRange>& ranges) {
    const Size from = rows_.first_local(me_, p.first);
    for (const RowRange& r : ranges) {
      Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, r.count, own_ - from,
                               2 * p.count, T(-1), left_ + *r.begin * 2 * b_, 2 * b_,
                               right_ + from * 2 * b_, 2 * b_, T(1), a_ + from * n_ + *r.begin, n_);
    }
  }

  template <class Term>
  static void sum_over(const std::vector<RowRange>& ranges, const Term& term) {
    T beta(0);
    for (const RowRange& r : ranges) {
      term(r, beta);
      beta = T(1);
    }
  }

  Rank<Device>& rank_;
  typename Device::Lane& lane_;
  const Distribution& dist_;
  EliminationRows rows_;
  int me_;
  Size n_, b_, own_;
  Size begin_;  // first own row
  T* a_;
  T* left_;     // 2 b x n: V^H over W^H
  T* right_;    // 2 b x L: W^H over V^H in the own columns
  T* z_;        // b x (G L)
  T* z_own_;    // b x L
  T* panel_;    // n b
  T* factors_;  // b x b for each panel
  T* blocks_;   // 5 b^2
  T* band_;     // 2 b x n
};

}  // namespace jaxmg
