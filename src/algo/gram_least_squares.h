// Least squares with a tall A by its Gram matrix: half of the operations of a QR factorisation, all
// of them products, and A is only read.
//
//   H = conj(A^H A) = L L^H        in double precision, summed over the ranks, factored by each
//   x_0 = 0,  x_i+1 = x_i + d_i    A^H A d_i = A^H (b - A x_i)      corrected seminormal equations
//
// Rounding errors of H, of relative size e, make this iteration converge at the rate
// e cond(A)^2, cond being that of A with columns scaled to norm 1, as scaling by powers of two
// changes no bit of it. Where that is far below 1, the result is as good as Householder's method
// makes it, the residual being computed with A itself. Where it may not be, because L tells so, or
// the corrections, there is no result: *info is set, and the caller takes a QR factorisation.
//
// Bjorck: Stability analysis of the method of seminormal equations for linear least squares
// problems (1987).
#pragma once

#include <algorithm>
#include <limits>
#include <type_traits>
#include <vector>

#include "algo/gram_verdict.h"
#include "algo/rank.h"
#include "algo/tall_products.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class GramLeastSquares {
 public:
  using W = Wide<T>;
  using R = Real<W>;

  GramLeastSquares(Rank<Device>& rank, const T* a)
      : rank_(rank),
        n_(rank.plan.request().columns),
        local_(rank.plan.distribution().local_size(rank.comm.rank())),
        nrhs_(rank.plan.request().nrhs),
        products_(rank, n_, local_, a),
        factor_(rank.workspace.template get<W>(Buffer::gram_factor)),
        d_(rank.workspace.template get<T>(Buffer::local_rhs)),
        gradient_(rank.workspace.template get<T>(Buffer::gradient)),
        correction_(rank.workspace.template get<W>(Buffer::correction)),
        x_(rank.workspace.template get<T>(Buffer::solution_columns)),
        sizes_(rank.workspace.template get<R>(Buffer::sizes)) {}

  // x (n x nrhs, the same on all ranks) <- the solution for b, this rank's rows. *info must be ok.
  void run(const T* b, T* x, Info* info) {
    factor(info);
    const Size width = rank_.plan.rhs_block();
    for (column_ = 0; column_ < nrhs_; column_ += width) {
      k_ = std::min(width, nrhs_ - column_);
      if (!solve(b + column_)) {
        Device::set_if_ok(rank_.lanes.update, Kind::no_convergence, 1, info);
        return;
      }
      Device::template copy<T>(rank_.lanes.update, k_, n_, x_, k_, x + column_, nrhs_);
    }
  }

 private:
  // Above this, corrections that still do not settle will not.
  static constexpr int kMostCorrections = 10;

  Size ld() const { return 2 * n_; }
  W* inverse() const { return factor_ + n_; }  // inv(L)^H
  R* slopes(int i) const { return sizes_ + 2 * n_ + (i & 1) * rank_.plan.rhs_block(); }

  // Upper half of `factor` <- L, lower half <- inv(L)^H; sizes <- what tells how good they are.
  void factor(Info* info) {
    Watch watch(rank_.observer, rank_.comm.rank(), Observer::Task::update, 0, 2);
    auto& lane = rank_.lanes.update;
    stage("Gram matrix");
    products_.gram(factor_, ld());
    stage("factor");
    constexpr Size reals = sizeof(W) / sizeof(R);
    Device::template copy<R>(lane, 1, n_, reinterpret_cast<const R*>(factor_), reals * (ld() + 1),
                             sizes_, 1);
    Device::template fill<W>(lane, n_, n_, W(0), W(1), inverse(), ld());
    eliminate(info);
    Device::template row_norms<W>(lane, n_, n_, inverse(), ld(), sizes_ + n_);
    const R nan = std::numeric_limits<R>::quiet_NaN();
    Device::template fill_if_failed<R>(lane, info, n_, 1, nan, sizes_, n_);
  }

  // [H; I] <- [L; inv(L)^H] by block columns. Of the rows below a tile those of the identity that
  // begin further down are zero yet, which leaves n of them.
  void eliminate(Info* info) {
    auto& lane = rank_.lanes.update;
    const Size tile = std::min(rank_.plan.tile(), n_);
    for (Size j = 0; j < n_; j += tile) {
      const Size w = std::min(tile, n_ - j), next = j + w;
      W* const block = factor_ + j * (ld() + 1);
      Device::template factor_panel<W>(lane, 0, w, w, n_, block, ld(), j, info);
      Device::template gemm<W>(lane, Op::none, Op::conj_transpose, n_, n_ - next, w, W(-1),
                               block + w, ld(), block + w, ld(), W(1), block + w + w * ld(), ld());
    }
  }

  // The present block of right-hand sides. False if it is doubtful whether x solves it.
  bool solve(const T* b) {
    Watch watch(rank_.observer, rank_.comm.rank(), Observer::Task::solve, 1, 2);
    correct(b, 0);
    Corrections corrections(k_, std::numeric_limits<Real<T>>::epsilon());
    for (int i = 1; i <= kMostCorrections; ++i) {
      correct(b, i);
      const std::vector<double> sizes = agreed_sizes();
      if (i == 1 && column_ == 0 && !is_well_conditioned(n_, sizes.data())) {
        return false;
      }
      const auto host = [&](const R* slope) { return sizes.data() + (slope - sizes_); };
      switch (corrections.judge(i, host(slopes(i - 1)), host(slopes(i)))) {
        case Corrections::State::settled:
          return true;
        case Corrections::State::doubtful:
          return false;
        case Corrections::State::shrinking:
          break;
      }
    }
    return false;
  }

  // x <- x + inv(A^H A) A^H (b - A x), x being 0 for i = 0; slopes(i) <- the norms of inv(L) A^H r,
  // which are those of A times the correction.
  void correct(const T* b, int i) {
    auto& lane = rank_.lanes.update;
    W* const g = correction_;
    W* const y = correction_ + k_ * n_;
    Device::template copy<T>(lane, k_, local_, b, nrhs_, d_, k_);
    stage("products with A");
    T* const sums = own_precision() ? reinterpret_cast<T*>(g) : gradient_;
    products_.gradient(k_, i == 0 ? nullptr : x_, d_, sums);
    widen(sums, g);
    if (rank_.comm.size() > 1) {
      auto summed = rank_.comm.all_reduce(lane, g, k_ * n_, dtype_of<W>, Reduction::sum);
      lane.wait(summed);
    }
    stage("corrections");
    Device::template gemm<W>(lane, Op::none, Op::none, k_, n_, n_, W(1), g, k_, inverse(), ld(),
                             W(0), y, k_);
    Device::template row_norms<W>(lane, k_, n_, y, k_, slopes(i));
    Device::template gemm<W>(lane, Op::none, Op::conj_transpose, k_, n_, n_, W(1), y, k_, inverse(),
                             ld(), W(0), g, k_);
    add_to_solution(i == 0, g, y);
  }

  void stage(const char* name) const { rank_.observer.stage(rank_.comm.rank(), name); }

  static constexpr bool own_precision() { return std::is_same_v<T, W>; }

  // The k x n numbers in double precision, if they are not already.
  void widen(const T* from, W* to) {
    if constexpr (!own_precision()) {
      Device::template convert<T, W>(rank_.lanes.update, k_, n_, from, k_, to, k_);
    }
  }

  void add_to_solution(bool first, const W* correction, W* work) {
    auto& lane = rank_.lanes.update;
    if constexpr (own_precision()) {
      first ? Device::template copy<T>(lane, k_, n_, correction, k_, x_, k_)
            : Device::template add<T>(lane, k_, n_, T(1), correction, k_, x_, k_);
    } else {
      if (!first) {
        widen(x_, work);
        Device::template add<W>(lane, k_, n_, W(1), correction, k_, work, k_);
      }
      Device::template convert<W, T>(lane, k_, n_, first ? correction : work, k_, x_, k_);
    }
  }

  // All numbers that decide how to go on, the same on all ranks.
  std::vector<double> agreed_sizes() {
    auto& lane = rank_.lanes.update;
    const Size count = 2 * n_ + 2 * rank_.plan.rhs_block();
    if (rank_.comm.size() > 1) {
      auto joined = rank_.comm.all_reduce(lane, sizes_, count, dtype_of<R>, Reduction::max);
      lane.wait(joined);
    }
    std::vector<double> sizes(static_cast<std::size_t>(count));
    Device::template to_host<R>(lane, count, sizes_, sizes.data());
    return sizes;
  }

  Rank<Device>& rank_;
  Size n_;
  Size local_;
  Size nrhs_;
  TallProducts<Device, T> products_;
  W* factor_;
  T* d_;
  T* gradient_;
  W* correction_;
  T* x_;
  R* sizes_;
  Size column_ = 0;
  Size k_ = 0;
};

// x (n x nrhs) <- the solution of min ||A x - b||, or NaN with *info set, in the same way on all
// ranks, if that takes a QR factorisation. a, b: this rank's rows, which stay as they are.
template <class Device, class T>
void gram_least_squares(Rank<Device>& rank, const T* a, const T* b, T* x, Info* info) {
  auto& lane = rank.lanes.update;
  const Size n = rank.plan.request().columns;
  const Size nrhs = rank.plan.request().nrhs;
  Device::reset(lane, info);
  GramLeastSquares<Device, T>(rank, a).run(b, x, info);
  Device::set_phase(lane, Phase::natural_order, rank.comm.rank(), info);
  auto agreed = rank.comm.agree(lane, info);
  lane.wait(agreed);
  const T nan(std::numeric_limits<Real<T>>::quiet_NaN());
  Device::template fill_if_failed<T>(lane, info, nrhs, n, nan, x, nrhs);
}

}  // namespace jaxmg
