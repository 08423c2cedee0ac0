// One panel of a QR factorisation by its Gram matrix: few operations, all of them products but for
// those of width x width, and two waits for other ranks.
//
//   X^H X = L1 L1^H        summed over the ranks      Q1 = X inv(L1)^H
//   Q1^H Q1 = L2 L2^H      likewise                   Q = Q1 inv(L2)^H
//   Q - [S; 0] = Y U       at the owner of the top rows (tile/householder.h)
//   Y_r = Q1_r C,  C = inv(L2)^H inv(U)               on each rank
//   R = S (L1 L2)^H
//
// Orthonormal to rounding, and thus as good as Householder's method, as long as Q1^H Q1 is near I.
// That is for the caller to ask, of numbers which are the same on all ranks. Yamamoto, Nakatsukasa,
// Yanagisawa, Fukaya: Roundoff error analysis of the CholeskyQR2 algorithm (2015).
#pragma once

#include "algo/qr_steps.h"
#include "algo/rank.h"
#include "tile/householder.h"

namespace jaxmg {

// A step of a factorisation as one rank sees it.
template <class T>
struct QrPanelPart {
  Size width = 0;
  Size left = 0;       // rows of this rank
  int owner = 0;       // rank of the top rows
  T* block = nullptr;  // width x left, ld n: those rows of A as columns
  Size ld = 0;
};

// z (w columns of it) <- the unit lower triangle of top as Y1^H. flipped: w x w.
template <class Device, class T>
void place_unit_triangle(typename Device::Lane& lane, Size w, const T* top, Size ldt, T* flipped,
                         T* z) {
  Device::template transpose<T>(lane, w, w, top, ldt, flipped, w, true);
  Device::template fill<T>(lane, w, w, T(0), T(1), z, w);
  Device::template copy_triangle<T>(lane, Uplo::upper, Diag::unit, w, w, flipped, w, z, w);
}

template <class Device, class T>
class QrGramPanel {
 public:
  // Tiles of Buffer::panel_small that this class works in.
  static constexpr Size kTiles = 7;

  // tiles: kTiles of them. flipped: one more, which is shared with others.
  QrGramPanel(Rank<Device>& rank, Size tile, T* tiles, T* flipped)
      : rank_(rank),
        x_(rank.workspace.template get<T>(Buffer::panel_columns)),
        gathered_(rank.workspace.template get<T>(Buffer::gathered_triangles)),
        own_(tiles),
        sent_(tiles + tile * tile),
        second_(tiles + 3 * tile * tile),
        other_(tiles + 6 * tile * tile),
        flipped_(flipped),
        signs_(rank.workspace.template get<Real<T>>(Buffer::panel_signs)),
        info_(reinterpret_cast<Info*>(
            rank.workspace.template get<std::int32_t>(Buffer::panel_info))) {}

  // z (width x left) <- Y^H, t <- T, by work of the panel lane. False if the numbers do not allow
  // it: then nothing has been changed but z, t and scratch. The host waits for that, but not for
  // what comes behind.
  bool factor(const QrPanelPart<T>& part, T* z, T* t, Size ldt) {
    auto& lane = rank_.lanes.panel;
    part_ = part;
    w_ = part.width;
    ld_ = w_ + part.left;
    T* const q = x_ + w_;  // below L1
    Device::template transpose<T>(lane, w_, part.left, part.block, part.ld, q, ld_, true);
    sum_grams(q, false, x_, ld_);
    Device::reset(lane, info_);
    Device::template factor_panel<T>(lane, 0, w_, w_, part.left, x_, ld_, 0, info_);
    sum_grams(q, true, second_, 3 * w_);
    auto verdict = Device::template judge_gram<T>(lane, w_, second_, 3 * w_);
    if (owner()) {
      reflectors(q);
    }
    if (rank_.comm.size() > 1) {
      auto sent = rank_.comm.broadcast(lane, sent_, 2 * w_ * w_, dtype_of<T>, part.owner);
      lane.wait(sent);
    }
    Device::template gemm<T>(lane, Op::conj_transpose, Op::conj_transpose, w_, part.left, w_, T(1),
                             sent_, w_, q, ld_, T(0), z, w_);
    Device::template copy<T>(lane, w_, w_, sent_ + w_ * w_, w_, t, ldt);
    if (owner()) {
      place_unit_triangle<Device, T>(lane, w_, second_ + w_, 3 * w_, flipped_, z);
    }
    return verdict.good();
  }

  // lower (ld w, at the owner) <- R^H = L1 L2 S, what is above its diagonal being zero.
  void triangle(typename Device::Lane& lane, T* lower) {
    Device::template fill<T>(lane, w_, w_, T(0), T(0), own_, w_);
    Device::template fill<T>(lane, w_, w_, T(0), T(0), other_, w_);
    Device::template copy_triangle<T>(lane, Uplo::lower, Diag::non_unit, w_, w_, x_, ld_, own_, w_);
    Device::template copy_triangle<T>(lane, Uplo::lower, Diag::non_unit, w_, w_, second_, 3 * w_,
                                      other_, w_);
    Device::template gemm<T>(lane, Op::none, Op::none, w_, w_, w_, T(1), own_, w_, other_, w_, T(0),
                             lower, w_);
    Device::template scale<T>(lane, w_, w_, nullptr, signs_, lower, w_);
  }

 private:
  bool owner() const { return part_.owner == rank_.comm.rank(); }

  // sum <- q^H q, all ranks' in their order. A rank whose factor is doubtful, if that is asked,
  // spoils the sum for all.
  void sum_grams(const T* q, bool doubt, T* sum, Size lds) {
    auto& lane = rank_.lanes.panel;
    const int ranks = rank_.comm.size();
    T* const own = ranks > 1 ? own_ : sum;
    const Size ld = ranks > 1 ? w_ : lds;
    if (part_.left > 0) {
      Device::template gemm<T>(lane, Op::conj_transpose, Op::none, w_, w_, part_.left, T(1), q, ld_,
                               q, ld_, T(0), own, ld);
    } else {
      Device::template fill<T>(lane, w_, w_, T(0), T(0), own, ld);
    }
    if (doubt) {
      Device::template doubt_factor<T>(lane, w_, x_, ld_, info_, own);
    }
    if (ranks == 1) {
      return;
    }
    auto gathered = rank_.comm.all_gather(lane, own_, gathered_, w_ * w_, dtype_of<T>);
    lane.wait(gathered);
    Device::template copy<T>(lane, w_, w_, gathered_, w_, sum, lds);
    for (int r = 1; r < ranks; ++r) {
      Device::template add<T>(lane, w_, w_, T(1), gathered_ + r * w_ * w_, w_, sum, lds);
    }
  }

  // second <- [L2; Y1 \ U; C], sent <- C, T
  void reflectors(const T* q) {
    auto& lane = rank_.lanes.panel;
    T* const top = second_ + w_;
    T* const c = second_ + 2 * w_;
    const Size ld = 3 * w_;
    Device::template copy<T>(lane, w_, w_, q, ld_, top, ld);
    Device::template fill<T>(lane, w_, w_, T(0), T(1), c, ld);
    Device::template factor_panel<T>(lane, 0, w_, w_, 2 * w_, second_, ld, 0, info_);
    T* const t = sent_ + w_ * w_;
    if (w_ <= Device::lu_block) {
      Device::template make_reflectors<T>(lane, w_, w_, top, ld, signs_, t, w_);
    } else {
      signed_lu_blocked<Device, T>(lane, w_, w_, top, ld, signs_);
      reflector_triangle<Device, T>(lane, w_, top, ld, signs_, t, w_);
    }
    Device::template copy<T>(lane, w_, w_, c, ld, sent_, w_);
  }

  Rank<Device>& rank_;
  T* x_;  // L1, and below it X, then Q1
  T* gathered_;
  T* own_;     // Gram matrix of the rows of this rank
  T* sent_;    // C, T
  T* second_;  // 3 w x w: see reflectors
  T* other_;
  T* flipped_;
  Real<T>* signs_;
  Info* info_;
  // Of the present step.
  QrPanelPart<T> part_;
  Size w_ = 0;
  Size ld_ = 0;  // of x
};

}  // namespace jaxmg
