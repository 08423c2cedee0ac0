// Q and R in full from a factorisation (qr.h). LAPACK: xORGQR, xUNGQR.
#pragma once

#include <limits>

#include "algo/pivot_rows.h"
#include "algo/qr_reflect.h"
#include "algo/qr_steps.h"
#include "algo/rank.h"
#include "tile/device.h"

namespace jaxmg {

// r (ceil(k / ranks) rows of R on each rank, row-major) <- R, zeros below the diagonal; NaN if the
// factorisation failed.
template <class Device, class T>
void qr_triangle(Rank<Device>& rank, const T* a, const Info* info, T* r) {
  auto& lane = rank.lanes.update;
  const QrSteps steps(rank.plan);
  const Size n = steps.columns();
  const Size per = ceil_div(steps.rank(), steps.ranks());
  const int me = rank.comm.rank();
  T* const stage = rank.workspace.template get<T>(Buffer::row_block);
  Device::template fill<T>(lane, n, per, T(0), T(0), r, n);
  Size staged = -1;  // index of the first row that is staged
  const auto pivot_place = [&](const PivotPiece& piece) {
    const Size within = piece.local % steps.tile_size();
    const Size first = piece.index - within;
    if (first != staged) {
      staged = first;
      const Size w = std::min(steps.tile_size(), steps.rank() - first);
      const Size local = piece.local - within;
      const Size width = std::min(w, steps.distribution().local_size(me) - local);
      Device::template fill<T>(lane, n, width, T(0), T(0), stage, n);
      Device::template copy_triangle<T>(lane, Uplo::lower, Diag::non_unit, n - first, width,
                                        a + local * n + first, n, stage + first, n);
    }
    return stage + within * n;
  };
  const auto natural_place = [&](const PivotPiece& piece) {
    return r + (piece.index - me * per) * n;
  };
  move_pivot_rows<Device, T>(rank, steps, n, per, true, pivot_place, natural_place);
  const T nan(std::numeric_limits<Real<T>>::quiet_NaN());
  Device::template fill_if_failed<T>(lane, info, n, per, nan, r, n);
}

// The columns of Q, with q read column-major as Q^T (c x L, ld c): the identity in the places of
// the eliminated rows, then reflectors from the last to the first. Column j of Q is touched by the
// reflectors up to its own only.
template <class Device, class T>
class QrForm {
 public:
  // q may be a if c = n: the reflector that is being applied is read before it is overwritten, and
  // earlier ones lie in other rows.
  QrForm(Rank<Device>& rank, const QrSteps& steps, const T* a, const T* aux, Size c, T* q)
      : rank_(rank),
        steps_(steps),
        me_(rank.comm.rank()),
        reflectors_(rank, steps, a, aux),
        c_(c),
        q_(q) {}

  void run() {
    if (c_ > steps_.rank()) {
      begin_complete();
    }
    for (Size s = steps_.count() - 1; s >= 0; --s) {
      Watch watch(rank_.observer, me_, Observer::Task::update, steps_.count() - 1 - s,
                  steps_.count());
      reflectors_.load(s);
      place_identity(s);
      const Size first = steps_.step(s).first;
      reflectors_.apply(s, Op::conj_transpose, c_ - first, q_ + first, c_);
    }
  }

 private:
  // Columns beyond the rank: further rows in the order of elimination, one for each.
  void begin_complete() {
    auto& lane = rank_.lanes.update;
    const Distribution& dist = steps_.distribution();
    Device::template fill<T>(lane, c_, dist.local_size(me_), T(0), T(0), q_, c_);
    for (Size s = std::max<Size>(steps_.count() - 1, 0); s < dist.steps(); ++s) {
      const Tile tile = dist.tile(Step(s));
      const Size first = dist.eliminated(Step(s));
      const Size skip = std::max<Size>(0, steps_.rank() - first);
      const Size count = std::min(dist.rows(tile), c_ - first) - skip;
      if (tile.rank == me_ && count > 0) {
        const Size local = *dist.begin(tile.local) + skip;
        Device::template fill<T>(lane, count, count, T(0), T(1), q_ + local * c_ + first + skip,
                                 c_);
      }
    }
  }

  void place_identity(Size s) {
    auto& lane = rank_.lanes.update;
    const QrStep step = steps_.step(s);
    const Size begin = steps_.begin(s, me_);
    const Size w = step.width;
    T* const rows = q_ + begin * c_ + step.first;
    Device::template fill<T>(lane, w, steps_.remaining(s, me_), T(0), T(0), rows, c_);
    if (step.tile.rank == me_) {
      Device::template fill<T>(lane, c_ - step.first, w, T(0), T(1), rows, c_);
    }
  }

  Rank<Device>& rank_;
  const QrSteps& steps_;
  int me_;
  QrReflectors<Device, T> reflectors_;
  Size c_;
  T* q_;
};

// q (c columns, row-major) <- Q, r <- R; NaN if the factorisation failed. q may be a.
template <class Device, class T>
void qr_form(Rank<Device>& rank, const T* a, const T* aux, const Info* info, Size c, T* q, T* r) {
  qr_triangle<Device, T>(rank, a, info, r);
  const QrSteps steps(rank.plan);
  QrForm<Device, T>(rank, steps, a, aux, c, q).run();
  // Rows that only fill the shards up are those of a matrix with as many zero rows.
  const Size local = steps.distribution().local_size(rank.comm.rank());
  Device::template fill<T>(rank.lanes.update, c, steps.distribution().capacity() - local, T(0),
                           T(0), q + local * c, c);
  const T nan(std::numeric_limits<Real<T>>::quiet_NaN());
  Device::template fill_if_failed<T>(rank.lanes.update, info, c, steps.distribution().capacity(),
                                     nan, q, c);
}

}  // namespace jaxmg
