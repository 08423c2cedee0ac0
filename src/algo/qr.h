// QR factorisation of a row-sharded m x n matrix, in place, with no redistribution.
//
// Rank r's shard holds rows of A. Read column-major it is the n x L block of columns of M = A^T.
// What is computed are block reflectors (qr_reflect.h) and a lower trapezoid L with
//
//   M H_0 H_1 ... = L              (its columns in the places of the eliminated rows, else 0)
//
// so that A = Q R with R = L^T and Q = conj(H_0 H_1 ...), restricted to those columns. Read as rows
// of A again, R lies on and above the diagonal of the eliminated rows, in the user's order of
// columns, and Y^H (unit diagonals left out) everywhere else. T of each panel goes to aux, which is
// the same on all ranks. The diagonal of R is real; its signs are those of Householder's method.
//
// Right-looking, with one panel of look-ahead. LAPACK: xGEQRF, xGEQRT.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "algo/qr_panel.h"
#include "algo/qr_reflect.h"
#include "algo/qr_steps.h"
#include "algo/rank.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class Qr {
 public:
  // a: n x L columns, ld n. aux: qr_aux_count() elements.
  Qr(Rank<Device>& rank, const QrSteps& steps, T* a, T* aux)
      : rank_(rank),
        steps_(steps),
        me_(rank.comm.rank()),
        n_(steps.columns()),
        a_(a),
        aux_(aux),
        panel_(rank, steps, a, aux),
        z_{rank.workspace.template get<T>(Buffer::panel_even),
           rank.workspace.template get<T>(Buffer::panel_odd)} {}

  // On return everything is ordered before later work of the update lane.
  void run() {
    auto& lanes = rank_.lanes;
    stored_ = lanes.update.record();
    if (steps_.count() > 0) {
      factor(0);
    }
    for (Size s = 0; s < steps_.count(); ++s) {
      lanes.update.wait(*factored_);
      panel_.store(lanes.update, z(s));
      stored_ = lanes.update.record();
      const bool more = s + 1 < steps_.count();
      if (more) {
        look_ahead(s);  // the next panel's columns first, so that
      }
      update(s);  // while the rest is brought up to date
      if (more) {
        factor(s + 1);  // the panel is on its way; its host may have to wait for numbers
      }
      updated_ = lanes.update.record();
    }
    lanes.update.wait(lanes.panel.record());
  }

 private:
  void factor(Size s) {
    rank_.lanes.panel.wait(stored_);
    panel_.factor(s, z(s));
    factored_ = rank_.lanes.panel.record();
  }
  T* z(Size s) const { return z_[static_cast<std::size_t>(s & 1)]; }
  Size remaining(Size s) const { return steps_.remaining(s, me_); }
  T* rows_from(Size s, Size first) const { return a_ + steps_.begin(s, me_) * n_ + first; }

  // Of rows [first, last) of M, which are columns of A, with reflector s.
  Reflection<Device, T> reflection(Size s, Size first, Size last, T* product, T* other) const {
    const QrStep step = steps_.step(s);
    return {
        Op::none,           last - first, step.width, z(s), aux_ + step.first * steps_.tile_size(),
        steps_.tile_size(), product,      other};
  }

  void look_ahead(Size s) {
    Watch watch(rank_.observer, me_, Observer::Task::look_ahead, s, steps_.count());
    auto& lane = rank_.lanes.panel;
    if (updated_) {
      lane.wait(*updated_);
    }
    const QrStep next = steps_.step(s + 1);
    T* const product = rank_.workspace.template get<T>(Buffer::ahead_product);
    const Size square = steps_.tile_size() * steps_.tile_size();
    reflection(s, next.first, next.first + next.width, product, product + square)
        .apply(rank_, lane, remaining(s), rows_from(s, next.first), n_);
  }

  // All rows behind those of the look-ahead.
  void update(Size s) {
    Watch watch(rank_.observer, me_, Observer::Task::update, s, steps_.count());
    const QrStep done = steps_.step(std::min(s + 1, steps_.count() - 1));
    const Size first = done.first + done.width;
    const auto& workspace = rank_.workspace;
    SplitReflection<Device, T>(rank_,
                               reflection(s, first, n_, workspace.template get<T>(Buffer::product),
                                          workspace.template get<T>(Buffer::product_other)),
                               remaining(s), rows_from(s, first), n_)
        .apply();
  }

  Rank<Device>& rank_;
  const QrSteps& steps_;
  int me_;
  Size n_;
  T* a_;
  T* aux_;
  QrPanel<Device, T> panel_;
  std::array<T*, 2> z_;
  typename Device::Event stored_;  // the panel's buffers are free
  std::optional<typename Device::Event> factored_;
  std::optional<typename Device::Event> updated_;
};

// The whole of geqrf: look for numbers that are none, factor, agree.
template <class Device, class T>
void qr_factor(Rank<Device>& rank, T* a, T* aux, Info* info) {
  auto& lane = rank.lanes.update;
  const QrSteps steps(rank.plan);
  const Size local = steps.distribution().local_size(rank.comm.rank());
  Device::reset(lane, info);
  // Places of aux that no panel covers are seen by users all the same, and by checks for NaN.
  Device::template fill<T>(lane, steps.tile_size(), steps.rank(), T(0), T(0), aux,
                           steps.tile_size());
  Device::template check_finite<T>(lane, steps.columns(), local, a, steps.columns(), info);
  Qr<Device, T>(rank, steps, a, aux).run();
  Device::set_phase(lane, Phase::natural_order, rank.comm.rank(), info);
  auto agreed = rank.comm.agree(lane, info);
  lane.wait(agreed);
}

}  // namespace jaxmg
