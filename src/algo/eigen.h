// Eigenvalues and eigenvectors of a row-sharded Hermitian matrix.
//
//   A V = V diag(w),   V^H V = I,   w ascending
//
// in two stages: full to band (band_reduction.h), band to tridiagonal (band_chase.h); then divide
// and conquer (tridiagonal_vectors.h) and both stages backwards (band_eigenvectors.h,
// dense_eigenvectors.h), or bisection if only the values are wanted. Nothing of the size of A is
// whole on one rank: A and the reflectors stay where A's rows are, the tridiagonal matrix's
// eigenvectors are split by rows while they are made and by columns afterwards.
//
// A is scaled by a power of two to a largest element of about 1, so that squares neither overflow
// nor vanish. LAPACK: xSYEVD, xHEEVD, xSYEVR.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "algo/band_chase.h"
#include "algo/band_eigenvectors.h"
#include "algo/band_reduction.h"
#include "algo/dense_eigenvectors.h"
#include "algo/hermitian_probe.h"
#include "algo/mirror.h"
#include "algo/rank.h"
#include "algo/transpose.h"
#include "algo/tridiagonal_vectors.h"
#include "algo/unit_scale.h"
#include "core/plan.h"
#include "tile/device.h"

namespace jaxmg {

// What is wanted of the eigenvectors.
struct EigenRange {
  bool vectors = true;
  Size first = 0;
  Size count = 0;
};

template <class Device, class T>
class Eigensolver {
 public:
  // a: n x L columns, ld n, destroyed. w: n. v: as many elements as `count` rows of capacity; it
  // may be a.
  Eigensolver(Rank<Device>& rank, const EigenRange& wanted, T* a, Real<T>* w, T* v, Info* info)
      : rank_(rank),
        lane_(rank.lanes.update),
        dist_(rank.plan.distribution()),
        groups_(rank.plan),
        n_(dist_.size()),
        own_(dist_.local_size(rank.comm.rank())),
        wanted_(wanted),
        a_(a),
        w_(w),
        v_(v),
        info_(info) {}

  void run(Triangle valid) {
    Device::reset(lane_, info_);
    stage("scaling");
    if (n_ > 0) {
      if (valid != Triangle::whole) {
        const Distribution coarse(n_, dist_.ranks(), mirror_tile(dist_.capacity()));
        mirror_triangle<Device, T>(rank_, coarse,
                                   valid == Triangle::lower ? Uplo::lower : Uplo::upper, a_);
      }
      if (scale()) {
        if (valid == Triangle::whole) {
          hermitian_probe<Device, T>(rank_, dist_, a_, info_);
        }
        solve();
      }
    }
    stage("results");
    auto agreed = rank_.comm.agree(lane_, info_);
    lane_.wait(agreed);
    const Real<T> nan = std::numeric_limits<Real<T>>::quiet_NaN();
    Device::template fill_if_failed<Real<T>>(lane_, info_, n_, 1, nan, w_, n_);
    if (wanted_.vectors) {
      Device::template fill_if_failed<T>(lane_, info_, wanted_.count, dist_.capacity(), T(nan), v_,
                                         wanted_.count);
    }
  }

 private:
  void stage(const char* name) { rank_.observer.stage(rank_.comm.rank(), name); }

  // Largest |Re| or |Im| of A to [1, 2). False, on all ranks, if A is not finite.
  bool scale() {
    const auto exponent = scale_to_unit<Device, T>(rank_, dist_, a_, info_);
    if (!exponent) {
      return false;
    }
    exponent_ = *exponent;
    if (own_ > 0) {
      const Size first = *dist_.global(rank_.comm.rank(), LocalIndex(0));
      Device::template real_diagonal<T>(lane_, own_, a_ + first, n_ + 1);
    }
    return true;
  }

  void solve() {
    const Size b = dist_.tile_size();
    BandReduction<Device, T>(rank_, dist_, a_).run();
    std::vector<double> d, e;
    stage("chase");
    chase_band<Device, T>(rank_, groups_, n_, b, wanted_.vectors, d, e, info_);
    // Parts of a device that have waited for each other in vain leave NaN.
    const auto finite = [](double x) { return std::isfinite(x); };
    if (!std::ranges::all_of(d, finite) || !std::ranges::all_of(e, finite)) {
      return Device::set_if_ok(lane_, Kind::no_convergence, n_, info_);
    }
    if (!wanted_.vectors) {
      stage("bisection");
      return put_values(bisect(d, e));
    }
    vectors(std::move(d), std::move(e));
  }

  std::vector<double> bisect(const std::vector<double>& d, const std::vector<double>& e) {
    double low = d[0], high = d[0], norm = 0;
    std::vector<double> squares;
    for (std::size_t i = 0; i < d.size(); ++i) {
      const double radius =
          (i > 0 ? std::fabs(e[i - 1]) : 0.0) + (i < e.size() ? std::fabs(e[i]) : 0.0);
      low = std::min(low, d[i] - radius);
      high = std::max(high, d[i] + radius);
      norm = std::max({norm, std::fabs(low), std::fabs(high)});
      if (i < e.size()) {
        squares.push_back(e[i] * e[i]);
      }
    }
    // Twice the precision of the type: the Sturm counts are worth no more than one.
    const double tolerance =
        std::max(0.25 * static_cast<double>(std::numeric_limits<Real<T>>::epsilon()) * norm,
                 std::numeric_limits<double>::min());
    const double slack = 4 * std::numeric_limits<double>::epsilon() * norm;
    std::vector<double> w(d.size(), 0.0);
    const Size part = ceil_div(n_, rank_.comm.size());
    const Size first = std::min(n_, rank_.comm.rank() * part);
    const Size count = std::min(n_, first + part) - first;
    Device::bisect(lane_, n_, d.data(), squares.data(), low - slack, high + slack, tolerance, first,
                   count, w.data(), rank_.workspace.template get<double>(Buffer::eigen_work));
    if (rank_.comm.size() > 1) {
      double* const scalars = rank_.workspace.template get<double>(Buffer::scalars);
      Device::template from_host<double>(lane_, n_, 1, w.data(), n_, scalars, n_);
      auto joined = rank_.comm.all_reduce(lane_, scalars, n_, DType::f64, Reduction::sum);
      lane_.wait(joined);
      Device::template to_host<double>(lane_, n_, scalars, w.data());
    }
    std::sort(w.begin(), w.end());
    return w;
  }

  void put_values(std::vector<double> w) {
    for (double& x : w) {
      x = std::ldexp(x, exponent_);
    }
    Device::template from_host<Real<T>>(lane_, n_, 1, w.data(), n_, w_, n_);
  }

  void vectors(std::vector<double> d, std::vector<double> e) {
    using R = Real<T>;
    stage("tridiagonal vectors");
    // Two places for eigenvectors of the tridiagonal matrix: one of its own, and the one where
    // those of A will be.
    T* const z = rank_.workspace.template get<T>(Buffer::eigenvectors);
    R* const split_rows = rank_.workspace.template get<R>(Buffer::tridiagonal_vectors);
    TridiagonalVectors<Device, R> tridiagonal(rank_, dist_, std::move(d), std::move(e),
                                              reinterpret_cast<R*>(z), split_rows);
    if (!tridiagonal.run(wanted_.first, wanted_.count)) {
      Device::set_if_ok(lane_, Kind::no_convergence, n_, info_);
    }
    put_values(tridiagonal.eigenvalues());
    if (wanted_.count == 0) {
      return;
    }
    stage("transposition");
    const Distribution columns(wanted_.count, dist_.ranks(), dist_.tile_size());
    const Size held = columns.local_size(rank_.comm.rank());
    distributed_transpose<Device, R>(rank_, dist_, columns, false, split_rows,
                                     reinterpret_cast<R*>(z));
    if constexpr (is_complex_v<T>) {
      Device::template copy<R>(lane_, n_, held, reinterpret_cast<R*>(z), n_, split_rows, n_);
      Device::template widen<T>(lane_, n_ * held, split_rows, z);
    }
    stage("sweeps backwards");
    SweepBackTransformation<Device, T>(rank_, groups_, z, held, info_).apply();
    stage("panels backwards");
    PanelBackTransformation<Device, T>(rank_, dist_, a_, z, held).apply();
    stage("transposition");
    // M = conj(A) has been decomposed: V = conj(Z).
    distributed_transpose<Device, T>(rank_, columns, dist_, true, z, v_);
  }

  Rank<Device>& rank_;
  typename Device::Lane& lane_;
  Distribution dist_;
  SweepGroups groups_;
  Size n_, own_;
  EigenRange wanted_;
  T* a_;
  Real<T>* w_;
  T* v_;
  Info* info_;
  int exponent_ = 0;
};

template <class Device, class T>
void syevd(Rank<Device>& rank, Triangle valid, const EigenRange& wanted, T* a, Real<T>* w, T* v,
           Info* info) {
  Eigensolver<Device, T>(rank, wanted, a, w, v, info).run(valid);
}

}  // namespace jaxmg
