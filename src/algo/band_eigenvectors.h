// Eigenvectors of a tridiagonal matrix turned into those of the band matrix that it was made from:
// the reflectors of stage 2 are applied to the columns that a rank holds, while they pass by in
// panels. No rank waits for the columns of another, so that the time falls with their number.
#pragma once

#include <algorithm>

#include "algo/band_chase.h"
#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class SweepBackTransformation {
 public:
  // v: n x columns, ld n, this rank's eigenvectors.
  SweepBackTransformation(Rank<Device>& rank, T* v, Size columns)
      : rank_(rank),
        lane_(rank.lanes.update),
        me_(rank.comm.rank()),
        n_(rank.plan.distribution().size()),
        v_(v),
        columns_(columns),
        products_(rank.workspace.template get<T>(Buffer::back_products)) {}

  // v <- Q_stage2 v: groups of sweeps last to first, in each the reflectors by rising number (two
  // that act on the same rows and are not in the same group or window stand in this order).
  void apply(const SweepGroups& groups) {
    const T* const kept = rank_.workspace.template get<T>(Buffer::sweep_reflectors);
    T* const panel = rank_.workspace.template get<T>(Buffer::sweep_panel);
    for (Size i = groups.count() - 1; i >= 0; --i) {
      Watch watch(rank_.observer, me_, Observer::Task::solve, i, groups.count());
      const SweepGroup group = groups.group(i);
      const bool mine = groups.owner(i) == me_;
      if (mine) {
        Device::template pack_sweeps<T>(lane_, group, kept + groups.offset(i), panel);
      }
      Message message{panel, panel};
      auto sent = rank_.comm.publish(lane_, message, group.packed(), dtype_of<T>, groups.owner(i));
      if (!mine) {
        lane_.wait(sent);
      }
      const T* const packed = static_cast<const T*>(mine ? panel : message.view);
      const Size ld = group.window();
      for (Size k = 0; k < group.steps(); ++k) {
        const T* const w = packed + k * group.packed_step();
        apply_window(w, w + ld * group.count, ld, group.window_rows(k), group.count,
                     v_ + group.window_begin(k));
      }
      sent.release();
    }
  }

 private:
  // x (m rows of v) <- x - W (V^H x) with W = V T.
  void apply_window(const T* v, const T* w, Size ld, Size m, Size k, T* x) {
    Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, k, columns_, m, T(1), v, ld, x,
                             n_, T(0), products_, k);
    Device::template gemm<T>(lane_, Op::none, Op::none, m, columns_, k, T(-1), w, ld, products_, k,
                             T(1), x, n_);
  }

  Rank<Device>& rank_;
  typename Device::Lane& lane_;
  int me_;
  Size n_;
  T* v_;
  Size columns_;
  T* products_;  // group x columns
};

}  // namespace jaxmg
