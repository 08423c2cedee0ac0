// The Cholesky factor of A + V V^H or A - V V^H from that of A, in place: 2 n^2 operations a column
// of V instead of n^3 / 3.
//
// In the layout of cholesky.h the owner of tile k has the whole of column tile k of L (for
// M = conj(A), whence conj(V)). A unitary Theta of order w + k, found from the rows of one diagonal
// block alone, moves V's rows there into L and is then applied to all rows i below:
//
//   update      [L_kk V_k] Theta = [L'_kk 0]      [L'_ik V'_i] = [L_ik V_i] Theta
//   downdate    [L'_kk V_k] Theta = [L_kk 0]      L'_ik = (L_ik - V_i Theta_21) inv(Theta_11)
//                                                 V'_i = L'_ik Theta_12 + V_i Theta_22
//
// The downdate solves for the old from the new, by rotations that are unitary all the same, which
// keeps it as stable as the problem allows (Chambers 1971; Bojanczyk, Brent, van Dooren and de Hoog
// 1987). V' then goes to the owner of the next tile: n k elements a tile. Blocks are narrower than
// tiles, since the width is what a block costs for each element of L.
#pragma once

#include <algorithm>
#include <array>
#include <span>
#include <utility>
#include <vector>

#include "algo/cholesky.h"
#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"
#include "tile/panel.h"

namespace jaxmg {

template <class Device, class T>
class CholeskyUpdate {
 public:
  // l: the factor. inverse: one tile x tile block per local tile. v: k x n, row i of V in column i.
  CholeskyUpdate(Rank<Device>& rank, const Distribution& dist, bool downdate, T* l, T* inverse,
                 Info* info)
      : rank_(rank),
        dist_(dist),
        downdate_(downdate),
        me_(rank.comm.rank()),
        n_(dist.size()),
        l_(l),
        inverse_(inverse),
        info_(info),
        panel_(rank.workspace.template get<T>(Buffer::panel_even)),
        old_(rank.workspace.template get<T>(Buffer::update_columns)),
        theta_(rank.workspace.template get<T>(Buffer::rotation)),
        v_{rank.workspace.template get<T>(Buffer::update_even),
           rank.workspace.template get<T>(Buffer::update_odd)} {}

  // v: k x n on every rank, column-major.
  void run(const T* v, Size k) {
    for (Size first = 0; first < k; first += kUpdateColumns) {
      columns_ = std::min(kUpdateColumns, k - first);
      sweep(v + first, k);
    }
  }

 private:
  using Ticket = typename Device::Ticket;

  void sweep(const T* v, Size k) {
    auto& lane = rank_.lanes.update;
    if (dist_.steps() == 0) {
      return;
    }
    // conj(V), of which only the first owner's will be used.
    current_ = 0;
    Device::template transpose<T>(lane, columns_, n_, v, k, v_[0], n_, true);
    for (Step s(0); *s < dist_.steps(); ++s) {
      Watch watch(rank_.observer, me_, Observer::Task::update, *s, dist_.steps());
      if (dist_.tile(s).rank == me_) {
        column_tile(s);
      }
      if (*s + 1 < dist_.steps()) {
        hand_over(s);
      }
    }
  }

  // V, packed in the rows that are left after step s, to the owner of the next tile.
  void hand_over(Step s) {
    auto& lane = rank_.lanes.update;
    const int from = dist_.tile(s).rank;
    const int to = dist_.tile(s + 1).rank;
    const Size count = dist_.remaining(s + 1) * columns_;
    if (from == me_) {
      pack_rest(s);
    }
    if (from == to) {
      return;
    }
    const Transfer sent{v_[current_], count, to};
    const Transfer received{v_[current_], count, from};
    Ticket ticket = rank_.comm.exchange(lane, {&sent, from == me_ ? 1u : 0u},
                                        {&received, to == me_ ? 1u : 0u}, dtype_of<T>);
    lane.wait(ticket);
  }

  void pack_rest(Step s) {
    const std::vector<RowRange> before = dist_.rows_from(s);
    const Size rows = dist_.remaining(s);
    const Size rest = dist_.remaining(s + 1);
    for (const RowRange& r : dist_.rows_from(s + 1)) {
      Device::template copy<T>(rank_.lanes.update, r.count, columns_,
                               v_[current_] + packed_position(before, r.begin), rows,
                               v_[1 - current_] + r.packed, rest);
    }
    current_ = 1 - current_;
  }

  // All rows of one own column tile, packed, block by block.
  void column_tile(Step s) {
    auto& lane = rank_.lanes.update;
    const Tile tile = dist_.tile(s);
    const Size w = dist_.rows(tile);
    T* const columns = l_ + *dist_.begin(tile.local) * n_;
    panel_.reshape(dist_.rows_from(s), w);
    panel_.pack(lane, columns, n_);
    const Size top = packed_position(panel_.ranges(), dist_.global_begin(tile));
    for (Size c = 0; c < w; c += kUpdateWidth) {
      block(dist_.eliminated(s) + c, c, std::min(kUpdateWidth, w - c), top);
    }
    panel_.unpack(lane, columns, n_);
    const Size nb = dist_.tile_size();
    Device::template invert_lower<T>(lane, w, columns + *dist_.global_begin(tile), n_,
                                     inverse_ + *tile.local * nb * nb, nb);
  }

  // Columns c .. c + w - 1 of the panel, whose diagonal tile starts at row `top`.
  void block(Size position, Size c, Size w, Size top) {
    auto& lane = rank_.lanes.update;
    const Size rows = panel_.rows();
    const Size diagonal = top + c;
    T* const l = panel_.data() + c * rows;
    Device::template rotate<T>(lane, downdate_, w, columns_, l + diagonal, rows,
                               v_[current_] + diagonal, rows, theta_, w + columns_, position,
                               info_);
    // Rows of other tiles lie on both sides of this one.
    apply(w, l, 0, top);
    apply(w, l, diagonal + w, rows - diagonal - w);
    current_ = 1 - current_;
  }

  void apply(Size w, T* l, Size first, Size m) {
    auto& lane = rank_.lanes.update;
    const Size rows = panel_.rows();
    const Size ld = w + columns_;
    const T* const theta_11 = theta_;
    const T* const theta_21 = theta_ + w;
    const T* const theta_12 = theta_ + w * ld;
    const T* const theta_22 = theta_12 + w;
    l += first;
    const T* const v = v_[current_] + first;
    T* const next = v_[1 - current_] + first;
    const auto product = [&](Size n, Size k, T alpha, const T* a, const T* b, T beta, T* c) {
      Device::template gemm<T>(lane, Op::none, Op::none, m, n, k, alpha, a, rows, b, ld, beta, c,
                               rows);
    };
    if (downdate_) {
      product(w, columns_, T(-1), v, theta_21, T(1), l);
      Device::template trsm<T>(lane, Side::right, Uplo::upper, Op::none, Diag::non_unit, m, w, T(1),
                               theta_11, ld, l, rows);
      product(columns_, w, T(1), l, theta_12, T(0), next);
      product(columns_, columns_, T(1), v, theta_22, T(1), next);
      return;
    }
    product(columns_, w, T(1), l, theta_12, T(0), next);
    product(columns_, columns_, T(1), v, theta_22, T(1), next);
    Device::template copy<T>(lane, m, w, l, rows, old_ + first, rows);
    product(w, w, T(1), old_ + first, theta_11, T(0), l);
    product(w, columns_, T(1), v, theta_21, T(1), l);
  }

  Rank<Device>& rank_;
  const Distribution& dist_;
  bool downdate_;
  int me_;
  Size n_;
  T* l_;
  T* inverse_;
  Info* info_;
  Panel<Device, T> panel_;
  T* old_;    // n x block: columns of L before the block's rotation
  T* theta_;  // (block + columns)^2
  std::array<T*, 2> v_;
  std::size_t current_ = 0;  // which of the two holds V
  Size columns_ = 0;         // of V in work
};

// l, tile_inverse: what cholesky_factor left for A <- the same for A + V V^H, or A - V V^H.
//   v: nrhs x n, row i of V in column i, whole on every rank.
//   *info: of the factor of A; afterwards not_positive_definite, with a place in elimination order,
//   if A - V V^H is not. A factor of a matrix that failed stays one.
template <class Device, class T>
void cholesky_update(Rank<Device>& rank, bool downdate, T* l, T* tile_inverse, const T* v,
                     Info* info) {
  auto& lane = rank.lanes.update;
  const Distribution dist = rank.plan.distribution();
  CholeskyUpdate<Device, T>(rank, dist, downdate, l, tile_inverse, info)
      .run(v, rank.plan.request().nrhs);
  const bool natural = rank.plan.request().order == Order::natural;
  Device::set_phase(lane, natural ? Phase::natural_order : Phase::elimination_order,
                    rank.comm.rank(), info);
  auto agreed = rank.comm.agree(lane, info);
  lane.wait(agreed);
}

}  // namespace jaxmg
