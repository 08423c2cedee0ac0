// Eigenvectors of the band matrix turned into those of the full one: the reflectors of stage 1 are
// applied to the columns that a rank holds, several panels at a time. No rank waits for the columns
// of another, so that the time falls with their number.
//
// The reflectors V of a block of panels are I - V inv(U) V^H together, where U is the strict upper
// triangle of V^H V with the inverses of the reflectors' scalars on its diagonal.
// Joffrain, Low, Quintana-Orti, van de Geijn, Van Zee: Accumulating Householder transformations,
// revisited (2006).
#pragma once

#include <algorithm>

#include "algo/band_reduction.h"
#include "algo/rank.h"
#include "algo/row_order.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class PanelBackTransformation {
 public:
  // v: n x columns, ld n, this rank's eigenvectors. a: what BandReduction left.
  PanelBackTransformation(Rank<Device>& rank, const Distribution& dist, const T* a, T* v,
                          Size columns)
      : rank_(rank),
        lane_(rank.lanes.update),
        dist_(dist),
        me_(rank.comm.rank()),
        n_(dist.size()),
        width_(rank.plan.group() * dist.tile_size()),
        a_(a),
        v_(v),
        columns_(columns),
        block_(rank.workspace.template get<T>(Buffer::reflector_rows)),
        triangle_(block_ + width_ * n_),
        panel_(rank.workspace.template get<T>(Buffer::panel_even)),
        scalars_(rank.workspace.template get<T>(Buffer::reflector_factors)),
        products_(rank.workspace.template get<T>(Buffer::back_products)) {}

  // v <- Q_stage1 v, with rows that go from the order of elimination to that of the matrix.
  void apply() {
    const Size most = rank_.plan.group();
    for (Size end = dist_.steps(); end > 0;) {
      Size first = end - 1;
      while (first > 0 && end - first < most && continues(first)) {
        --first;
      }
      collect(first, end);
      if (held_ > 0) {
        apply_block(reflector_panel(dist_, Step(first)).first);
      }
      end = first;
    }
    reorder_rows<Device, T>(lane_, dist_, RowOrder::natural, columns_, v_, block_, width_ * n_);
  }

 private:
  // Whether panel s - 1 is as wide as all others and ends where panel s begins.
  bool continues(Size s) const {
    return reflector_panel(dist_, Step(s - 1)).count == dist_.tile_size();
  }

  // block <- V of panels first .. end - 1, with zeros above, from the first row that they act on.
  void collect(Size first, Size end) {
    const Size top = reflector_panel(dist_, Step(first)).first;
    held_ = 0;
    for (Size k = first; k < end; ++k) {
      const ReflectorPanel p = reflector_panel(dist_, Step(k));
      if (p.count == 0) {
        continue;
      }
      Watch watch(rank_.observer, me_, Observer::Task::solve, dist_.steps() - end, dist_.steps());
      const bool mine = p.tile.rank == me_;
      const Size rows = n_ - p.first;
      T* const target = block_ + held_ * n_;
      const T* const own = a_ + *dist_.begin(p.tile.local) * n_ + p.first;
      if (dist_.ranks() > 1 && mine) {
        Device::template copy<T>(lane_, rows, p.count, own, n_, panel_, rows);
      }
      Message message{panel_, panel_};
      auto sent = rank_.comm.publish(lane_, message, rows * p.count, dtype_of<T>, p.tile.rank);
      if (!mine) {
        lane_.wait(sent);
      }
      Device::template fill<T>(lane_, p.first - top, p.count, T(0), T(0), target + top, n_);
      Device::template copy<T>(lane_, rows, p.count,
                               mine ? own : static_cast<const T*>(message.view), mine ? n_ : rows,
                               target + p.first, n_);
      sent.release();
      held_ += p.count;
    }
    scalars_begin_ = reflector_panel(dist_, Step(first)).begin;
  }

  // v <- v - V inv(U) V^H v in the rows from `first` on
  void apply_block(Size first) {
    const Size rows = n_ - first;
    const T* const block = block_ + first;
    Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, held_, held_, rows, T(1), block,
                             n_, block, n_, T(0), triangle_, width_);
    Device::template reflector_diagonal<T>(lane_, held_, scalars_ + scalars_begin_, triangle_,
                                           width_);
    Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, held_, columns_, rows, T(1),
                             block, n_, v_ + first, n_, T(0), products_, width_);
    Device::template trsm<T>(lane_, Side::left, Uplo::upper, Op::none, Diag::non_unit, held_,
                             columns_, T(1), triangle_, width_, products_, width_);
    Device::template gemm<T>(lane_, Op::none, Op::none, rows, columns_, held_, T(-1), block, n_,
                             products_, width_, T(1), v_ + first, n_);
  }

  Rank<Device>& rank_;
  typename Device::Lane& lane_;
  const Distribution& dist_;
  int me_;
  Size n_;
  Size width_;  // the most reflectors of a block
  const T* a_;
  T* v_;
  Size columns_;
  T* block_;     // n x width
  T* triangle_;  // width x width
  T* panel_;     // n x b
  T* scalars_;   // n
  T* products_;  // width x columns
  Size held_ = 0;
  Size scalars_begin_ = 0;
};

}  // namespace jaxmg
