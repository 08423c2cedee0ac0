// The block reflectors of a QR factorisation applied to a matrix whose columns lie on the ranks.
//
// With Z_s = Y_s^H, and H_s = I - Z_s^H T_s Z_s unitary, of size m x m:
//
//   D H_s   = D - (D Z_s^H) T_s Z_s
//   D H_s^H = D - (D Z_s^H) T_s^H Z_s
//
// The sums D Z_s^H over ranks are as wide as the panel: D never moves.
#pragma once

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
  // The same for all ranks.
  void sum(Rank<Device>& rank, typename Device::Lane& lane) const {
    if (rows > 0 && rank.comm.size() > 1) {
      auto summed = rank.comm.all_reduce(lane, product, rows * width, dtype_of<T>, Reduction::sum);
      lane.wait(summed);
    }
  }
  // other <- (D Z^H) T or T^H
  void turn(typename Device::Lane& lane) const {
    Device::template gemm<T>(lane, Op::none, op, rows, width, width, T(1), product, rows, t, ldt,
                             T(0), other, rows);
  }
  // Columns [first, last) of d less what belongs to them.
  void subtract(typename Device::Lane& lane, Size first, Size last, T* d, Size ldd) const {
    if (rows > 0 && first < last) {
      Device::template gemm<T>(lane, Op::none, Op::none, rows, last - first, width, T(-1), other,
                               rows, z + first * width, width, T(1), d + first * ldd, ldd);
    }
  }
  void apply(Rank<Device>& rank, typename Device::Lane& lane, Size count, T* d, Size ldd) const {
    multiply(lane, count, d, ldd);
    sum(rank, lane);
    if (count > 0) {
      turn(lane);
      subtract(lane, 0, count, d, ldd);
    }
  }
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
    h.apply(rank_, rank_.lanes.update, steps_.remaining(s, me_), d + steps_.begin(s, me_) * ldd,
            ldd);
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
