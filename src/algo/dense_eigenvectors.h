// Eigenvectors of the band matrix turned into those of the full one: the reflectors of stage 1 are
// applied to the columns that a rank holds, while they pass by in panels. No rank waits for the
// columns of another, so that the time falls with their number.
#pragma once

#include <algorithm>

#include "algo/band_reduction.h"
#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class PanelBackTransformation {
 public:
  // v: n x columns, ld n, this rank's eigenvectors.
  PanelBackTransformation(Rank<Device>& rank, const Distribution& dist, T* v, Size columns)
      : rank_(rank),
        lane_(rank.lanes.update),
        dist_(dist),
        me_(rank.comm.rank()),
        n_(dist.size()),
        v_(v),
        columns_(columns),
        products_(rank.workspace.template get<T>(Buffer::back_products)) {}

  // Rows of v from the order of elimination to that of the matrix, a few columns at a time.
  void to_natural_order() {
    if (rank_.comm.size() == 1) {
      return;
    }
    T* const buffer = rank_.workspace.template get<T>(Buffer::panel_even);
    const Size width = std::max<Size>(1, dist_.tile_size());
    for (Size c = 0; c < columns_; c += width) {
      const Size count = std::min(width, columns_ - c);
      T* const block = v_ + c * n_;
      Device::template copy<T>(lane_, n_, count, block, n_, buffer, n_);
      for (Step s(0); *s < dist_.steps(); ++s) {
        const Tile tile = dist_.tile(s);
        Device::template copy<T>(lane_, dist_.rows(tile), count, buffer + dist_.eliminated(s), n_,
                                 block + *dist_.global_begin(tile), n_);
      }
    }
  }

  // v <- Q_stage1 v, in the order of the matrix; a: what BandReduction left.
  void apply(const T* a) {
    const T* const factors = rank_.workspace.template get<T>(Buffer::reflector_factors);
    T* const received = rank_.workspace.template get<T>(Buffer::panel_even);
    const EliminationRows rows(dist_);
    const Size b = dist_.tile_size();
    for (Size i = dist_.steps() - 1; i >= 0; --i) {
      const ReflectorPanel p = reflector_panel(dist_, Step(i));
      if (p.count == 0) {
        continue;
      }
      Watch watch(rank_.observer, me_, Observer::Task::solve, i, dist_.steps());
      const bool mine = p.tile.rank == me_;
      // The root's memory is read only.
      T* const columns = mine ? const_cast<T*>(a) + *dist_.begin(p.tile.local) * n_ : received;
      Message message{columns, columns};
      auto sent = rank_.comm.publish(lane_, message, n_ * p.width, dtype_of<T>, p.tile.rank);
      if (!mine) {
        lane_.wait(sent);
      }
      const T* const w = static_cast<const T*>(mine ? columns : message.view);
      const T* const t = factors + i * b * b;
      T* const first = products_;
      T* const second = products_ + b * columns_;
      T beta(0);
      const auto ranges = rows.from(p.first);
      for (const RowRange& r : ranges) {
        Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, p.count, columns_, r.count,
                                 T(1), w + *r.begin, n_, v_ + *r.begin, n_, beta, first, b);
        beta = T(1);
      }
      Device::template gemm<T>(lane_, Op::none, Op::none, p.count, columns_, p.count, T(1), t, b,
                               first, b, T(0), second, b);
      for (const RowRange& r : ranges) {
        Device::template gemm<T>(lane_, Op::none, Op::none, r.count, columns_, p.count, T(-1),
                                 w + *r.begin, n_, second, b, T(1), v_ + *r.begin, n_);
      }
      sent.release();
    }
  }

 private:
  Rank<Device>& rank_;
  typename Device::Lane& lane_;
  const Distribution& dist_;
  int me_;
  Size n_;
  T* v_;
  Size columns_;
  T* products_;  // 2 b x columns
};

}  // namespace jaxmg
