// The block reflectors of a QR factorisation applied to a matrix whose columns lie on the ranks.
//
// With Z_s = Y_s^H, and H_s = I - Z_s^H T_s Z_s unitary, of size m x m:
//
//   D H_s   = D - (D Z_s^H) T_s Z_s
//   D H_s^H = D - (D Z_s^H) T_s^H Z_s
//
// The sums D Z_s^H over ranks are as wide as the panel: D never moves.
#pragma once

#include <array>
#include <optional>

#include "algo/qr_steps.h"
#include "algo/rank.h"
#include "tile/device.h"

namespace jaxmg {

// D H or D H^H for one reflector, step by step. D: rows x count columns of this rank, those of its
// rows of A that are left.
template <class Device, class T>
struct Reflection {
  Op op = Op::none;  // H, or conj_transpose: H^H
  Size rows = 0;
  Size width = 0;
  const T* z = nullptr;  // width x the columns of D
  const T* t = nullptr;
  Size ldt = 0;
  T* product = nullptr;  // rows x width each
  T* other = nullptr;

  // product <- D Z^H
  void multiply(typename Device::Lane& lane, Size count, const T* d, Size ldd) const {
    if (rows > 0 && count > 0) {
      Device::template gemm<T>(lane, Op::none, Op::conj_transpose, rows, width, count, T(1), d, ldd,
                               z, width, T(0), product, rows);
    } else {
      Device::template fill<T>(lane, rows, width, T(0), T(0), product, rows);
    }
  }
  // product <- its sum over all ranks
  typename Device::Ticket sum(Rank<Device>& rank, typename Device::Lane& lane) const {
    return rank.comm.all_reduce(lane, product, rows * width, dtype_of<T>, Reduction::sum);
  }
  // other <- (D Z^H) T or T^H
  void turn(typename Device::Lane& lane) const {
    Device::template gemm<T>(lane, Op::none, op, rows, width, width, T(1), product, rows, t, ldt,
                             T(0), other, rows);
  }
  // d <- d - other Z
  void subtract(typename Device::Lane& lane, Size count, T* d, Size ldd) const {
    Device::template gemm<T>(lane, Op::none, Op::none, rows, count, width, T(-1), other, rows, z,
                             width, T(1), d, ldd);
  }
  void apply(Rank<Device>& rank, typename Device::Lane& lane, Size count, T* d, Size ldd) const {
    if (rows <= 0) {
      return;
    }
    multiply(lane, count, d, ldd);
    if (rank.comm.size() > 1) {
      auto summed = sum(rank, lane);
      lane.wait(summed);
    }
    if (count > 0) {
      turn(lane);
      subtract(lane, count, d, ldd);
    }
  }
};

// The same for many rows, in the update lane: the sum over ranks of the first ones is made by the
// copy lane while the others are multiplied, and that of the others while the first are finished.
template <class Device, class T>
class SplitReflection {
 public:
  SplitReflection(Rank<Device>& rank, const Reflection<Device, T>& whole, Size count, T* d,
                  Size ldd)
      : rank_(rank), count_(count), ldd_(ldd) {
    const bool many = rank.comm.size() > 1 && whole.rows >= Device::split_rows;
    const Size first = many ? whole.rows / 2 : whole.rows;
    parts_[0] = {whole, d, {}};
    parts_[0].reflection.rows = first;
    parts_[1] = {whole, d + first, {}};
    parts_[1].reflection.rows = whole.rows - first;
    parts_[1].reflection.product += first * whole.width;
    parts_[1].reflection.other += first * whole.width;
  }

  void apply() {
    multiply();
    auto& lane = rank_.lanes.update;
    for (Part& part : parts_) {
      if (part.reflection.rows <= 0) {
        continue;
      }
      if (part.summed) {
        lane.wait(*part.summed);
      }
      if (count_ > 0) {
        part.reflection.turn(lane);
        part.reflection.subtract(lane, count_, part.d, ldd_);
      }
    }
  }

 private:
  struct Part {
    Reflection<Device, T> reflection;
    T* d = nullptr;
    std::optional<typename Device::Ticket> summed;
  };

  void multiply() {
    auto& lanes = rank_.lanes;
    for (Part& part : parts_) {
      if (part.reflection.rows > 0) {
        part.reflection.multiply(lanes.update, count_, part.d, ldd_);
        if (rank_.comm.size() > 1) {
          lanes.copy.wait(lanes.update.record());
          part.summed.emplace(part.reflection.sum(rank_, lanes.copy));
        }
      }
    }
  }

  Rank<Device>& rank_;
  Size count_;
  Size ldd_;
  std::array<Part, 2> parts_;
};

// The reflectors that a factorisation left in the matrix and its aux.
template <class Device, class T>
class QrReflectors {
 public:
  // a: n x L columns, ld n. The workspace holds panel_even.
  QrReflectors(Rank<Device>& rank, const QrSteps& steps, const T* a, const T* aux)
      : rank_(rank),
        steps_(steps),
        me_(rank.comm.rank()),
        a_(a),
        aux_(aux),
        z_(rank.workspace.template get<T>(Buffer::panel_even)) {}

  // z <- Z_s, read from the matrix. Work of the update lane, as all of this class.
  void load(Size s) {
    auto& lane = rank_.lanes.update;
    const QrStep step = steps_.step(s);
    const Size n = steps_.columns();
    const Size w = step.width;
    const T* const block = a_ + steps_.begin(s, me_) * n + step.first;
    Device::template copy<T>(lane, w, steps_.remaining(s, me_), block, n, z_, w);
    if (step.tile.rank == me_) {
      Device::template fill<T>(lane, w, w, T(0), T(1), z_, w);
      Device::template copy_triangle<T>(lane, Uplo::upper, Diag::unit, w, w, block, n, z_, w);
    }
  }

  // d <- d H_s (Op::none) or d H_s^H (Op::conj_transpose) with the loaded reflector. d: `rows` rows
  // of all L columns of this rank.
  void apply(Size s, Op op, Size rows, T* d, Size ldd) {
    const QrStep step = steps_.step(s);
    const Reflection<Device, T> h{op,
                                  rows,
                                  step.width,
                                  z_,
                                  aux_ + step.first * steps_.tile_size(),
                                  steps_.tile_size(),
                                  rank_.workspace.template get<T>(Buffer::product),
                                  rank_.workspace.template get<T>(Buffer::product_other)};
    SplitReflection<Device, T>(rank_, h, steps_.remaining(s, me_), d + steps_.begin(s, me_) * ldd,
                               ldd)
        .apply();
  }

  // d <- d H_0 H_1 ...
  void forward(Size rows, T* d, Size ldd) {
    for (Size s = 0; s < steps_.count(); ++s) {
      load(s);
      apply(s, Op::none, rows, d, ldd);
    }
  }
  // d <- d ... H_1^H H_0^H
  void backward(Size rows, T* d, Size ldd) {
    for (Size s = steps_.count() - 1; s >= 0; --s) {
      load(s);
      apply(s, Op::conj_transpose, rows, d, ldd);
    }
  }

 private:
  Rank<Device>& rank_;
  const QrSteps& steps_;
  int me_;
  const T* a_;
  const T* aux_;
  T* z_;
};

}  // namespace jaxmg
