// One panel of a QR factorisation, spread over all ranks: unconditionally stable, with three
// messages of width^2 elements whatever the height.
//
// With X_r the rows of rank r that are left (conjugated, see qr.h), and M_r the rows in which rank
// r goes on (its triangle R_r, or X_r itself where that has fewer rows than columns):
//
//   X_r = Q_r R_r                     on each rank
//   [M_0; M_1; ...] = W B             on all ranks alike
//   X = diag(Q_r) W B                 orthonormal to rounding, whatever the rank of X
//   Q - [S; 0] = Y U                  at the owner of the top rows: signs S, reflectors (tile/
//                                     householder.h); U and T are sent to all
//   Y_r = Q_r (W_r inv(U))            on each rank
//
// Where a device has a shorter way (qr_gram_panel.h), that is gone as long as it is safe.
//
// Demmel, Grigori, Hoemmen, Langou: Communication-optimal parallel and sequential QR (2012), for
// the reduction.
#pragma once

#include <algorithm>

#include "algo/qr_gram_panel.h"
#include "algo/qr_steps.h"
#include "algo/rank.h"
#include "tile/householder.h"

namespace jaxmg {

template <class Device, class T>
class QrPanel {
 public:
  // a: n x L columns, ld n. aux: the T factors, tile_size() rows each.
  QrPanel(Rank<Device>& rank, const QrSteps& steps, T* a, T* aux)
      : rank_(rank),
        steps_(steps),
        me_(rank.comm.rank()),
        n_(steps.columns()),
        a_(a),
        aux_(aux),
        x_(rank.workspace.template get<T>(Buffer::panel_columns)),
        gathered_(rank.workspace.template get<T>(Buffer::gathered_triangles)),
        stack_(rank.workspace.template get<T>(Buffer::stacked_triangles)),
        signs_(rank.workspace.template get<Real<T>>(Buffer::panel_signs)),
        own_(small(0)),
        triangle_(small(1)),
        top_(small(2)),  // and T behind it
        mine_(small(4)),
        flipped_(small(5)),
        gram_(rank, steps.tile_size(), small(6), flipped_) {}

  // z (width x rows left) <- Y^H, T goes to aux; all work is in the panel lane. store() must be
  // over before the next panel.
  void factor(Size s, T* z) {
    Watch watch(rank_.observer, me_, Observer::Task::panel, s, steps_.count());
    step_ = steps_.step(s);
    w_ = step_.width;
    left_ = steps_.remaining(s, me_);
    block_ = a_ + steps_.begin(s, me_) * n_ + step_.first;
    // A rank with fewer rows than columns takes no part in the reduction but with these rows.
    reduced_ = left_ >= w_;
    by_gram_ = factor_by_gram(z);
    if (!by_gram_) {
      const Size place = gather(s);
      reflectors(place);
      expand(place, z);
    }
  }

  // The matrix <- Y^H, and R^H with the diagonal in the place of Y1's.
  void store(typename Device::Lane& lane, const T* z) {
    Device::template copy<T>(lane, w_, left_, z, w_, block_, n_);
    if (owner()) {
      if (by_gram_) {
        gram_.triangle(lane, flipped_);
      } else {
        Device::template transpose<T>(lane, w_, w_, triangle_, w_, flipped_, w_, true);
      }
      Device::template copy_triangle<T>(lane, Uplo::lower, Diag::non_unit, w_, w_, flipped_, w_,
                                        block_, n_);
    }
  }

 private:
  T* small(Size i) const {
    const Size square = steps_.tile_size() * steps_.tile_size();
    return rank_.workspace.template get<T>(Buffer::panel_small) + i * square;
  }
  T* t_factor() const { return aux_ + step_.first * steps_.tile_size(); }

  // The more often it has been in vain, the longer until the next attempt.
  bool factor_by_gram(T* z) {
    if constexpr (Device::gram_panels) {
      if (pause_ > 0) {
        --pause_;
        return false;
      }
      if (gram_.factor({w_, left_, step_.tile.rank, block_, n_}, z, t_factor(),
                       steps_.tile_size())) {
        return true;
      }
      pause_ = next_pause_;
      next_pause_ = 2 * next_pause_ + 1;
    }
    return false;
  }

  bool owner() const { return step_.tile.rank == me_; }

  // x <- Q_r, stack <- W, triangle <- B. Returns the place of W_r in the stack.
  Size gather(Size s) {
    auto& lane = rank_.lanes.panel;
    Device::template transpose<T>(lane, w_, left_, block_, n_, x_, left_, true);
    if (reduced_) {
      Device::template orthonormalise<T>(lane, left_, w_, x_, left_, own_, w_);
    } else {
      Device::template copy<T>(lane, left_, w_, x_, left_, own_, w_);
    }
    if (steps_.ranks() == 1) {
      height_ = w_;
      Device::template fill<T>(lane, w_, w_, T(0), T(1), stack_, w_);
      Device::template copy<T>(lane, w_, w_, own_, w_, triangle_, w_);
      return 0;
    }
    auto gathered = rank_.comm.all_gather(lane, own_, gathered_, w_ * w_, dtype_of<T>);
    lane.wait(gathered);
    return stacked(s);
  }

  Size stacked(Size s) {
    auto& lane = rank_.lanes.panel;
    const auto contribution = [&](int r) { return std::min(steps_.remaining(s, r), w_); };
    height_ = 0;
    for (int r = 0; r < steps_.ranks(); ++r) {
      height_ += contribution(r);
    }
    Size at = 0;
    Size place = 0;
    for (int r = 0; r < steps_.ranks(); ++r) {
      place = r == me_ ? at : place;
      Device::template copy<T>(lane, contribution(r), w_, gathered_ + r * w_ * w_, w_, stack_ + at,
                               height_);
      at += contribution(r);
    }
    Device::template orthonormalise<T>(lane, height_, w_, stack_, height_, triangle_, w_);
    return place;
  }

  // top <- Y1 \ U, T behind it, on all ranks; triangle <- R at the owner.
  void reflectors(Size place) {
    auto& lane = rank_.lanes.panel;
    T* const t = top_ + w_ * w_;
    if (owner()) {
      Device::template gemm<T>(lane, Op::none, Op::none, w_, w_, w_, T(1), x_, left_,
                               stack_ + place, height_, T(0), top_, w_);
      reconstruct_reflectors<Device, T>(lane, w_, top_, w_, signs_, triangle_, w_, t, w_);
    }
    if (steps_.ranks() > 1) {
      auto sent = rank_.comm.broadcast(lane, top_, 2 * w_ * w_, dtype_of<T>, step_.tile.rank);
      lane.wait(sent);
    }
    Device::template copy<T>(lane, w_, w_, t, w_, t_factor(), steps_.tile_size());
  }

  // z <- (Q_r (W_r inv(U)))^H
  void expand(Size place, T* z) {
    auto& lane = rank_.lanes.panel;
    const Size rows = std::min(left_, w_);
    Device::template copy<T>(lane, rows, w_, stack_ + place, height_, mine_, w_);
    Device::template trsm<T>(lane, Side::right, Uplo::upper, Op::none, Diag::non_unit, rows, w_,
                             T(1), top_, w_, mine_, w_);
    if (reduced_) {
      Device::template gemm<T>(lane, Op::conj_transpose, Op::conj_transpose, w_, left_, w_, T(1),
                               mine_, w_, x_, left_, T(0), z, w_);
    } else {
      Device::template transpose<T>(lane, left_, w_, mine_, w_, z, w_, true);
    }
    if (owner()) {
      place_unit_triangle<Device, T>(lane, w_, top_, w_, flipped_, z);
    }
  }

  Rank<Device>& rank_;
  const QrSteps& steps_;
  int me_;
  Size n_;
  T* a_;
  T* aux_;
  T* x_;
  T* gathered_;
  T* stack_;
  Real<T>* signs_;
  T* own_;
  T* triangle_;
  T* top_;
  T* mine_;
  T* flipped_;
  QrGramPanel<Device, T> gram_;
  Size pause_ = 0;  // panels until it is tried again
  Size next_pause_ = 1;
  // Of the present step.
  QrStep step_;
  Size w_ = 0;
  Size left_ = 0;    // rows of this rank
  Size height_ = 0;  // of the stack
  T* block_ = nullptr;
  bool reduced_ = false;
  bool by_gram_ = false;
};

}  // namespace jaxmg
