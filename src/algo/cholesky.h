// Cholesky factorisation of a row-sharded Hermitian matrix, in place, with no redistribution.
//
// Rank r's shard holds rows of A. Read column-major it is the n x L block of columns
// M = A^T = conj(A) that belong to the same indices, with leading dimension n. What is computed is
//
//   P M P^T = L L^H
//
// where P is the elimination order of the Distribution: the natural one, P = I, if the plan says
// so, for which tiles are dealt out to the ranks in turn and collected again. L overwrites the
// tiles of M on and below the diagonal of that order. Tiles above it are never written: with the
// saved diagonal tiles they still hold all of A, from which the first failing leading minor is
// found if there is one (first_failing_minor.h). Right-looking, one panel of look-ahead. A panel
// can travel in parts: the next one is brought up to date with the first columns while the others
// are being made.
//
// Right-hand sides can be eliminated along with the matrix. A X = B is X^T M = B^T, and B^T, one
// column per equation, is like further rows of M below all others, that are never eliminated: what
// comes of them is
//
//   Y = B^T L^-H
//
// which is the first half of the solution, with no message of its own: see cholesky_posv.h. Each
// rank holds the columns that belong to its columns of M. LAPACK: xPOTRF.
#pragma once

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

#include "algo/block_runs.h"
#include "algo/cyclic.h"
#include "algo/diagonal_tiles.h"
#include "algo/hermitian_probe.h"
#include "algo/mirror.h"
#include "algo/panel_buffers.h"
#include "algo/product_lanes.h"
#include "algo/rank.h"
#include "algo/unit_diagonal.h"
#include "tile/panel.h"
#include "tile/split_panel.h"

namespace jaxmg {

// Right-hand sides that are eliminated along with a matrix: count x L, the columns of this rank.
template <class T>
struct EliminatedRhs {
  T* columns = nullptr;
  Size count = 0;
};

template <class Device, class T, class PanelType = Panel<Device, T>>
class Cholesky {
 public:
  // a: n x L columns, ld n. inverse: one tile x tile block per local tile, or null.
  Cholesky(Rank<Device>& rank, const Distribution& dist, T* a, T* inverse, Info* info,
           EliminatedRhs<T> rhs = {})
      : rank_(rank),
        dist_(dist),
        me_(rank.comm.rank()),
        n_(dist.size()),
        a_(a),
        inverse_(inverse),
        info_(info),
        rhs_(rhs),
        panels_(rank, dist, PanelType::from(rank.workspace, false),
                PanelType::from(rank.workspace, true)) {}

  // On return everything is ordered before later work of the update lane. *info is this rank's own.
  void run() {
    panels_.begin();
    if (dist_.steps() > 0) {
      advance(Step(0));
    }
    for (Step k(0); *k < dist_.steps(); ++k) {
      arrive(k);
      if (*k + 1 < dist_.steps()) {
        look_ahead(k);   // the next panel's columns first, and the panel itself,
        advance(k + 1);  // on its way while
      }
      update(k);  // the rest of the trailing matrix is brought up to date
      panels_.updated(k);
    }
    panels_.end();
  }

 private:
  T* column(LocalTile t) const { return a_ + *dist_.begin(t) * n_; }
  T* rhs_column(LocalTile t) const { return rhs_.columns + *dist_.begin(t) * rhs_.count; }

  bool looks_ahead(Step k) const { return *k + 1 < dist_.steps() && panels_.mine(k + 1); }

  // Later work of the update lane sees panel k, ready for updates; after look_ahead() if there is
  // one, to which the parts come one by one.
  void arrive(Step k) {
    auto& update = rank_.lanes.update;
    if (!looks_ahead(k)) {
      panels_.await(k, update);
      panels_.follow_updates(k, update);
      panels_[k].prepare(update);
    }
  }

  // Panel k: factor it if it is mine, send it or get ready to receive it.
  void advance(Step k) {
    const Tile tile = dist_.tile(k);
    PanelType& panel = panels_[k];
    panels_.claim(k);
    panel.reshape(dist_.rows_from(k + 1), dist_.rows(tile), dist_.rows(tile),
                  rank_.plan.panel_parts(dist_.remaining(k + 1)), rhs_.count, rhs_rows(rhs_.count));
    const int next = *k + 1 < dist_.steps() ? panels_.owner(k + 1) : -1;
    for (Size part = 0; part < panel.parts(); ++part) {
      if (panels_.mine(k)) {
        Watch watch(rank_.observer, me_, Observer::Task::panel, *k, dist_.steps());
        factor(k, part, panel);
      }
      panels_.publish_part(k, part, next);
    }
    if (panels_.mine(k)) {
      keep(k, panel);
      panels_.kept(k);
    }
  }

  //   L11 L11^H = A11,   L21 = A21 L11^-H
  void factor(Step k, Size part, PanelType& panel) {
    auto& lane = rank_.lanes.panel;
    if (part == 0) {
      const Tile tile = dist_.tile(k);
      const T* const columns = column(tile.local);
      panel.pack_with_head(lane, columns, n_, columns + *dist_.global_begin(tile));
      if (rhs_.count > 0) {
        panel.pack_rhs(lane, rhs_column(tile.local), rhs_.count);
      }
    }
    panel.factor(lane, part, dist_.eliminated(k), info_);
    if (part + 1 == panel.parts()) {
      panels_.made(k);
    }
  }

  // What is left to do on an own panel when it is on its way: the rows go back to the matrix, and
  // the solves get the inverse of the diagonal tile.
  void keep(Step k, PanelType& panel) {
    auto& lane = rank_.lanes.panel;
    const Tile tile = dist_.tile(k);
    T* const columns = column(tile.local);
    T* const diagonal = columns + *dist_.global_begin(tile);
    panel.unpack_head(lane, diagonal, n_);
    panel.unpack(lane, columns, n_);
    if (rhs_.count > 0) {
      panel.unpack_rhs(lane, rhs_column(tile.local), rhs_.count);
    }
    if (inverse_) {
      const Size nb = dist_.tile_size();
      Device::template invert_lower<T>(lane, dist_.rows(tile), diagonal, n_,
                                       inverse_ + *tile.local * nb * nb, nb);
    }
  }

  // Columns of panel k + 1, if they are mine:  A22(:, k+1) -= L21 L21(k+1, :)^H
  void look_ahead(Step k) {
    if (!looks_ahead(k)) {
      return;
    }
    Watch watch(rank_.observer, me_, Observer::Task::look_ahead, *k, dist_.steps());
    auto& lane = rank_.lanes.panel;
    auto& update = rank_.lanes.update;
    std::optional<typename Device::Event> rhs_updated;
    const LocalTile next = dist_.tile(k + 1).local;
    PanelType& panel = panels_[k];
    panels_.follow_updates(k, lane);
    for (Size part = 0; part < panel.parts(); ++part) {
      panels_.await_part(k, part, lane);
      if (part + 1 == panel.parts()) {
        panel.prepare(lane);
        update.wait(lane.record());
        // Few numbers, in one product beside those of the last part.
        for_rhs(k, next, next + 1, [&](Size col, Size count, T* columns) {
          panel.update_rhs(update, col, count, columns, rhs_.count);
          rhs_updated = update.record();
        });
      }
      for_blocks(k, next, next + 1, k + 1, Step(dist_.steps()), [&](const UpdateBlock& block) {
        panel.update_by(lane, part, block.row, block.m, block.col, block.n, a_ + block.offset, n_);
      });
    }
    if (rhs_updated) {
      lane.wait(*rhs_updated);
    }
    panels_.looked(k);
  }

  // All other columns of mine, while panel k + 1 may be made in the panel lane.
  void update(Step k) {
    Watch watch(rank_.observer, me_, Observer::Task::update, *k, dist_.steps());
    LocalTile first = dist_.first_tile_from(k + 1, me_);
    if (looks_ahead(k)) {
      ++first;  // done by the look-ahead
    }
    update_columns(k, first, LocalTile(dist_.local_tiles(me_)));
  }

  //   A22 -= L21 L21^H, on and below the diagonal tiles, in local tile columns [first, end)
  void update_columns(Step k, LocalTile first, LocalTile end) {
    ProductLanes<Device> products(rank_.lanes, rank_.plan.overlaps_products());
    const LocalTile all(dist_.local_tiles(me_));
    const Size group = rank_.plan.group();
    const Step last(dist_.steps());
    BlockRuns near_diagonal(group * dist_.ranks()), diagonal(1);
    for (LocalTile j = first; j < end; j += group) {
      const LocalTile stop = std::min(j + group, end);
      if (group == 1) {
        Step from = dist_.step({me_, j});
        if constexpr (Device::halves_herk) {
          for_blocks(k, j, stop, from, from + 1,
                     [&](const UpdateBlock& block) { diagonal.add(0, block); });
          ++from;
        }
        update_below(products, k, j, stop, from, last);
        continue;
      }
      // The tile columns of a group share one product for the rows below all of them; the
      // triangle at its top goes tile column by tile column, all groups at once.
      const Step below = stop < all ? dist_.step({me_, stop}) : last;
      update_below(products, k, j, stop, below, last);
      for (LocalTile c = j; c < stop; ++c) {
        Size sequence = (c - j) * dist_.ranks();
        for_blocks(k, c, c + 1, dist_.step({me_, c}), below,
                   [&](const UpdateBlock& block) { near_diagonal.add(sequence++, block); });
      }
    }
    const PanelType& panel = panels_[k];
    for_rhs(k, first, end, [&](Size col, Size count, T* columns) {
      panel.update_rhs(products.next(), col, count, columns, rhs_.count);
    });
    near_diagonal.for_each([&](const UpdateBlock& block, const UpdateBlock& stride, Size count) {
      panel.update_strided(products.next(), block.row, stride.row, block.m, block.col, stride.col,
                           block.n, a_ + block.offset, n_, stride.offset, count);
    });
    if constexpr (Device::halves_herk) {
      diagonal.for_each([&](const UpdateBlock& block, const UpdateBlock& stride, Size count) {
        panel.update_diagonal(products.next(), block.row, stride.row, block.n, a_ + block.offset,
                              n_, stride.offset, count);
      });
    }
    products.join();
  }

  // Tile columns [j, stop), rows eliminated at steps from .. to - 1, as blocks of panel k's update.
  template <class Visit>
  void for_blocks(Step k, LocalTile j, LocalTile stop, Step from, Step to, const Visit& visit) {
    const std::span<const RowRange> packed = panels_[k].ranges();
    const Size first = *dist_.begin(j);
    const Size width = std::min(*dist_.begin(stop), dist_.local_size(me_)) - first;
    const Size col = packed_position(packed, dist_.global_begin({me_, j}));
    for (const RowRange& r : dist_.rows_between(from, to)) {
      visit(UpdateBlock{packed_position(packed, r.begin), r.count, col, width,
                        first * n_ + *r.begin});
    }
  }

  // What belongs to tile columns [j, stop) of the right-hand sides: a rank's rows of a panel follow
  // each other.   Y(:, j .. stop - 1) -= Y_k L21(j .. stop - 1, :)^H
  template <class Visit>
  void for_rhs(Step k, LocalTile j, LocalTile stop, const Visit& visit) {
    if (rhs_.count == 0 || j >= stop) {
      return;
    }
    const Size count = std::min(*dist_.begin(stop), dist_.local_size(me_)) - *dist_.begin(j);
    visit(packed_position(panels_[k].ranges(), dist_.global_begin({me_, j})), count, rhs_column(j));
  }

  void update_below(ProductLanes<Device>& products, Step k, LocalTile j, LocalTile stop, Step from,
                    Step to) {
    for_blocks(k, j, stop, from, to, [&](const UpdateBlock& block) {
      panels_[k].update(products.next(), block.row, block.m, block.col, block.n, a_ + block.offset,
                        n_);
    });
  }

  Rank<Device>& rank_;
  const Distribution& dist_;
  int me_;
  Size n_;
  T* a_;
  T* inverse_;
  Info* info_;
  EliminatedRhs<T> rhs_;
  PanelBuffers<Device, PanelType> panels_;
};

// saved <- this rank's diagonal tiles, one tile x tile block each. They are the only part of A that
// a factorisation overwrites and cannot restore from the other half.
template <class Device, class T>
void save_diagonal_tiles(Rank<Device>& rank, const Distribution& dist, const T* a, T* saved) {
  for_each_diagonal_tile(dist, rank.comm.rank(), a, saved,
                         [&](Tile tile, const T* diagonal, T* block) {
                           const Size w = dist.rows(tile);
                           Device::template copy<T>(rank.lanes.update, w, w, diagonal, dist.size(),
                                                    block, dist.tile_size());
                         });
}

// inverse <- inverses of the diagonal tiles of a factor, as its solves want them.
template <class Device, class T>
void invert_diagonal_tiles(Rank<Device>& rank, const Distribution& dist, const T* a, T* inverse) {
  for_each_diagonal_tile(
      dist, rank.comm.rank(), a, inverse, [&](Tile tile, const T* diagonal, T* block) {
        Device::template invert_lower<T>(rank.lanes.update, dist.rows(tile), diagonal, dist.size(),
                                         block, dist.tile_size());
      });
}

// a <- its Cholesky factor with panels of one kind; returns whether inverses have been left too.
// There may be right-hand sides where the plan has eliminated_rhs().
template <class Device, class T, class PanelType>
bool eliminate(Rank<Device>& rank, const Distribution& dist, T* a, T* inverse, Info* info,
               EliminatedRhs<T> rhs) {
  if (rank.plan.request().order == Order::relabelled || dist.ranks() == 1) {
    Cholesky<Device, T, PanelType>(rank, dist, a, inverse, info, rhs).run();
    return inverse != nullptr;
  }
  const Distribution dealt = rank.plan.cyclic();
  const Size n = dist.size();
  to_cyclic<Device, T>(rank, n, dist.tile_size(), n, a);
  Cholesky<Device, T, PanelType>(rank, dealt, a, nullptr, info).run();
  from_cyclic<Device, T>(rank, n, dist.tile_size(), n, a);
  return false;
}

// a <- its Cholesky factor in the plan's precision; inverse <- inverses of its diagonal tiles.
template <class Device, class T>
void factor_tiles(Rank<Device>& rank, const Distribution& dist, T* a, T* inverse, Info* info,
                  EliminatedRhs<T> rhs) {
  if constexpr (Device::template splits<T>) {
    if (rank.plan.precision() == Precision::split) {
      UnitDiagonal<Device, T> unit(rank, dist);
      unit.scale(a);
      unit.scale_rhs(rhs.count, rhs.columns);
      const bool inverted =
          eliminate<Device, T, SplitPanel<Device, T>>(rank, dist, a, inverse, info, rhs);
      unit.unscale_factor(a);
      if (inverted) {
        return unit.unscale_inverses(inverse);
      }
      return invert_diagonal_tiles<Device, T>(rank, dist, a, inverse);
    }
  }
  if (!eliminate<Device, T, Panel<Device, T>>(rank, dist, a, inverse, info, rhs)) {
    invert_diagonal_tiles<Device, T>(rank, dist, a, inverse);
  }
}

// The whole of potrf: mirror the valid triangle if only one is valid, probe, factor, agree.
//   a: room for the plan's matrix_rows() rows of A.
//   saved_diagonal, tile_inverse: the two halves of aux, see aux_count().
//   rhs: the plan's eliminated_rhs() of them, B^T on entry and Y on return.
template <class Device, class T>
void cholesky_factor(Rank<Device>& rank, Triangle valid, T* a, T* saved_diagonal, T* tile_inverse,
                     Info* info, EliminatedRhs<T> rhs = {}) {
  auto& lane = rank.lanes.update;
  const Distribution dist = rank.plan.distribution();
  Device::reset(lane, info);
  // Places of aux that no tile covers are seen by users all the same, and by checks for NaN; not
  // every device has inverses.
  const Size nb2 = dist.tile_size() * dist.tile_size();
  const Size whole = dist.local_size(rank.comm.rank()) / dist.tile_size();
  Device::template fill<T>(lane, nb2, dist.capacity_tiles() - whole, T(0), T(0),
                           saved_diagonal + whole * nb2, nb2);
  Device::template fill<T>(lane, nb2, dist.capacity_tiles(), T(0), T(0), tile_inverse, nb2);
  if (valid != Triangle::whole) {
    mirror_triangle<Device, T>(rank, dist, valid == Triangle::lower ? Uplo::lower : Uplo::upper, a);
  }
  hermitian_probe<Device, T>(rank, dist, a, info);
  save_diagonal_tiles<Device, T>(rank, dist, a, saved_diagonal);
  factor_tiles<Device, T>(rank, dist, a, tile_inverse, info, rhs);
  const bool natural = rank.plan.request().order == Order::natural;
  Device::set_phase(lane, natural ? Phase::natural_order : Phase::elimination_order,
                    rank.comm.rank(), info);
  auto agreed = rank.comm.agree(lane, info);
  lane.wait(agreed);
}

}  // namespace jaxmg
