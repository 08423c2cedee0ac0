// Inverse of a row-sharded Hermitian positive definite matrix from its Cholesky factor, in place,
// in the user's order, with no redistribution.
//
// With P M P^T = L L^H as in cholesky.h, and W = L^-1,
//
//   M^-1 = W^H W   (in elimination order, so in its own place in the user's order)
//
// in two sweeps over the panels and a mirroring of one half: n^3 / 3 operations each, which makes
// n^3 with the factorisation. M^-1 = (A^-1)^T, which is what the shard holds for A. LAPACK: xPOTRI.
#pragma once

#include <algorithm>
#include <limits>

#include "algo/diagonal_tiles.h"
#include "algo/mirror.h"
#include "algo/panel_stream.h"
#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class CholeskyInverse {
 public:
  // inverse: those of the diagonal tiles, as cholesky_factor left them for solutions.
  CholeskyInverse(Rank<Device>& rank, const Distribution& dist, const T* inverse, T* a)
      : rank_(rank),
        dist_(dist),
        me_(rank.comm.rank()),
        n_(dist.size()),
        a_(a),
        inverse_(inverse),
        block_(rank.workspace.template get<T>(Buffer::row_block)) {}

  void run() {
    invert_diagonal();
    PanelStream<Device, T>(rank_, dist_, a_).for_each([this](Step k, const auto& panel) {
      Watch watch(rank_.observer, me_, Observer::Task::update, *k, 2 * dist_.steps());
      invert_step(k, panel);
    });
    PanelStream<Device, T>(rank_, dist_, a_).for_each([this](Step k, const auto& panel) {
      Watch watch(rank_.observer, me_, Observer::Task::update, dist_.steps() + *k,
                  2 * dist_.steps());
      multiply_step(k, panel);
    });
    // The lower half of the elimination order is done: its image goes to the other half.
    mirror_tiles<Device, T>(
        rank_, dist_, [this](Tile i, Tile j) { return dist_.step(j) < dist_.step(i); }, a_);
  }

 private:
  using PanelType = Panel<Device, T>;

  T* rows(GlobalIndex row, LocalTile column) const { return a_ + *dist_.begin(column) * n_ + *row; }
  // Own columns eliminated before step k.
  Size columns_before(Step k) const {
    return std::min(*dist_.begin(dist_.first_tile_from(k, me_)), dist_.local_size(me_));
  }
  const T* place(const PanelType& panel, GlobalIndex row) const {
    return panel.view() + packed_position(panel.ranges(), row);
  }

  // The diagonal tiles of L are needed by their inverses alone: products are faster than solves.
  void invert_diagonal() {
    auto& lane = rank_.lanes.update;
    const Size nb = dist_.tile_size();
    T* const work = rank_.workspace.template get<T>(Buffer::panel_even);
    for_each_diagonal_tile(dist_, me_, a_, inverse_, [&](Tile tile, T* diagonal, const T* inverse) {
      const Size w = dist_.rows(tile);
      Device::template fill<T>(lane, w, w, T(0), T(1), block_, w);
      Device::template solve_diagonal<T>(lane, Op::none, w, w, diagonal, n_, inverse, nb, block_, w,
                                         work);
      Device::template copy<T>(lane, w, w, block_, w, diagonal, n_);
    });
  }

  // L W = I, columns of W in place of those of L, inv(L_kk) = W_kk in that of L_kk. R is what is
  // left of the right-hand side:
  //   W_kj = W_kk R_kj,         R_ij -= L_ik W_kj          for own columns j < k, i > k
  //   R_ik = -L_ik W_kk                                    if column k is mine
  void invert_step(Step k, const PanelType& panel) {
    auto& lane = rank_.lanes.update;
    const Tile tile = dist_.tile(k);
    const Size w = dist_.rows(tile);
    const GlobalIndex row = dist_.global_begin(tile);
    const T* const w_kk = place(panel, row);
    const Size before = columns_before(k);
    T* const w_k = rows(row, LocalTile(0));
    Device::template copy<T>(lane, w, before, w_k, n_, block_, w);
    Device::template gemm<T>(lane, Op::none, Op::none, w, before, w, T(1), w_kk, panel.rows(),
                             block_, w, T(0), w_k, n_);
    for (const RowRange& r : dist_.rows_from(k + 1)) {
      const T* const l = place(panel, r.begin);
      Device::template gemm<T>(lane, Op::none, Op::none, r.count, before, w, T(-1), l, panel.rows(),
                               w_k, n_, T(1), rows(r.begin, LocalTile(0)), n_);
      if (tile.rank == me_) {
        Device::template gemm<T>(lane, Op::none, Op::none, r.count, w, w, T(-1), l, panel.rows(),
                                 w_kk, panel.rows(), T(0), rows(r.begin, tile.local), n_);
      }
    }
  }

  // X_kj = sum_l>=k W_lk^H W_lj for own columns j <= k, in place of W_kj, which is not needed
  // again.
  void multiply_step(Step k, const PanelType& panel) {
    auto& lane = rank_.lanes.update;
    const Tile tile = dist_.tile(k);
    const Size w = dist_.rows(tile);
    const Size count = columns_before(k + 1);
    T beta(0);
    for (const RowRange& r : dist_.rows_from(k)) {
      Device::template gemm<T>(lane, Op::conj_transpose, Op::none, w, count, r.count, T(1),
                               place(panel, r.begin), panel.rows(), rows(r.begin, LocalTile(0)), n_,
                               beta, block_, w);
      beta = T(1);
    }
    Device::template copy<T>(lane, w, count, block_, w,
                             rows(dist_.global_begin(tile), LocalTile(0)), n_);
  }

  Rank<Device>& rank_;
  const Distribution& dist_;
  int me_;
  Size n_;
  T* a_;
  const T* inverse_;
  T* block_;  // tile x L
};

// a, tile_inverse: what cholesky_factor left; a <- A^-1, all of it; NaN if the factorisation
// failed.
template <class Device, class T>
void cholesky_inverse(Rank<Device>& rank, const T* tile_inverse, const Info* info, T* a) {
  const Distribution dist = rank.plan.distribution();
  CholeskyInverse<Device, T>(rank, dist, tile_inverse, a).run();
  Device::template fill_if_failed<T>(rank.lanes.update, info, dist.size(), dist.capacity(),
                                     T(std::numeric_limits<Real<T>>::quiet_NaN()), a, dist.size());
}

}  // namespace jaxmg
