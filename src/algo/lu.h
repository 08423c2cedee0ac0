// LU factorisation with partial pivoting of a row-sharded matrix, in place, with no redistribution.
//
// Rank r's shard holds rows of A. Read column-major it is the n x L block of columns of M = A^T
// that belong to the same indices, with leading dimension n: the order of columns is free, and all
// rows of a column are on one device, so that the search for a pivot never leaves it.
//
//   P M Q = L U        Q: the elimination order of the Distribution, P: row interchanges
//
// L (unit lower) and U overwrite each tile of columns, rows being in their final order. Pivoting
// runs along the rows of A, over its unknowns: as stable as the usual kind. The interchanges of a
// panel are not carried out in the columns to its left until the end, all of them at once.
// Right-looking, one panel of look-ahead. LAPACK: xGETRF.
#pragma once

#include <functional>

#include "algo/panel_buffers.h"
#include "algo/rank.h"
#include "algo/unit_rows.h"
#include "core/distribution.h"
#include "tile/lu_panel.h"
#include "tile/split_lu_panel.h"

namespace jaxmg {

template <class Device, class T, class PanelType = LuPanel<Device, T>>
class Lu {
 public:
  // a: n x L columns, ld n. pivots, rows: n integers each; row i changed places with row pivots_i,
  // and row i of the factors belongs to row rows_i of M.
  Lu(Rank<Device>& rank, const Distribution& dist, T* a, std::int32_t* pivots, std::int32_t* rows,
     Info* info)
      : rank_(rank),
        dist_(dist),
        me_(rank.comm.rank()),
        n_(dist.size()),
        a_(a),
        pivots_(pivots),
        rows_(rows),
        info_(info),
        panels_(rank, dist, PanelType::from(rank.workspace, dist.tile_size(), false),
                PanelType::from(rank.workspace, dist.tile_size(), true)) {}

  // On return everything is ordered before later work of the update lane. *info is this rank's own.
  // after(k) is called when later work of the update lane finds tile k, and the first rows of all
  // own columns up to those of step k, as they will stay.
  void run(const std::function<void(Step)>& after = {}) {
    Device::iota(rank_.lanes.update, n_, rows_);
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
      if (after) {
        panels_.follow_look_ahead(k, rank_.lanes.update);
        after(k);
      }
    }
    panels_.end();
    interchange_left_columns();
  }

 private:
  Size width(Step k) const { return dist_.rows(dist_.tile(k)); }
  Size first(Step k) const { return dist_.eliminated(k); }  // row of the step's diagonal
  T* column(LocalTile t) const { return a_ + *dist_.begin(t) * n_; }

  bool looks_ahead(Step k) const { return *k + 1 < dist_.steps() && panels_.mine(k + 1); }

  // Later work of both lanes sees panel k, ready for updates.
  void arrive(Step k) {
    auto& lanes = rank_.lanes;
    auto& lane = looks_ahead(k) ? lanes.panel : lanes.update;
    panels_.await(k, lane);
    panels_.follow_updates(k, lane);
    PanelType& panel = panels_[k];
    panel.prepare(lane);
    lanes.update.wait(lane.record());
    // What is wanted only at the end keeps nobody waiting.
    if (!panels_.mine(k)) {
      Device::template copy<std::int32_t>(lanes.update, width(k), 1, panel.pivots(), n_,
                                          pivots_ + first(k), n_);
    }
    Device::template move_rows<std::int32_t>(lanes.update, width(k), panel.moves(), 1,
                                             rows_ + first(k), n_, nullptr, 0);
  }

  // Panel k: factor it if it is mine, send it or get ready to receive it.
  void advance(Step k) {
    PanelType& panel = panels_[k];
    panels_.claim(k);
    panel.reshape(first(k), n_ - first(k), width(k));
    if (panels_.mine(k)) {
      Watch watch(rank_.observer, me_, Observer::Task::panel, *k, dist_.steps());
      factor(k, panel);
      panels_.made(k);
    }
    panels_.publish(k, *k + 1 < dist_.steps() ? panels_.owner(k + 1) : -1);
  }

  void factor(Step k, PanelType& panel) {
    auto& lane = rank_.lanes.panel;
    const Tile tile = dist_.tile(k);
    T* const columns = column(tile.local) + first(k);
    panel.factor(lane, columns, n_, pivots_ + first(k), *dist_.global_begin(tile), info_);
  }

  // Columns of panel k + 1, if they are mine.
  void look_ahead(Step k) {
    if (!looks_ahead(k)) {
      return;
    }
    Watch watch(rank_.observer, me_, Observer::Task::look_ahead, *k, dist_.steps());
    const LocalTile next = dist_.tile(k + 1).local;
    apply(rank_.lanes.panel, k, dist_.begin(next), width(k + 1));
    panels_.looked(k);
  }

  // All other columns of mine.
  void update(Step k) {
    Watch watch(rank_.observer, me_, Observer::Task::update, *k, dist_.steps());
    LocalTile next = dist_.first_tile_from(k + 1, me_);
    if (looks_ahead(k)) {
      ++next;  // done by the look-ahead
    }
    LocalIndex begin = dist_.begin(next);
    Size columns = LocalIndex(dist_.local_size(me_)) - begin;
    if constexpr (Device::partitions) {
      if (looks_ahead(k) && columns > 0) {
        const Size beside = update_beside_panel(k, begin, columns);
        begin += beside;
        columns -= beside;
      }
    }
    if (columns > 0) {
      apply(rank_.lanes.update, k, begin, columns);
    }
  }

  // As many columns as take about the time of panel k + 1, which is being made; the others follow
  // it. Returns their number.
  Size update_beside_panel(Step k, LocalIndex begin, Size columns) {
    auto& lanes = rank_.lanes;
    const Size rows = n_ - first(k) - width(k);
    const Size beside = Device::template columns_beside_panel<T>(lanes, PanelType::by_parts, n_,
                                                                 rows, width(k), columns);
    if (beside > 0) {
      Device::leave_room(lanes, true);
      apply(lanes.update, k, begin, beside);
      Device::leave_room(lanes, false);
      panels_.await(k + 1, lanes.update);
    }
    return beside;
  }

  void apply(typename Device::Lane& lane, Step k, LocalIndex begin, Size columns) {
    panels_[k].apply(lane, begin, columns, a_ + *begin * n_ + first(k), n_);
  }

  // What later panels did to the rows of each column tile below its diagonal tile. Backwards, with
  // place_i where row i of column tile k ends; P_k moves row p(i) to place i:
  //
  //   place = identity for the last tile,   place <- place o inv(p)  from tile k to tile k - 1
  void interchange_left_columns() {
    auto& lane = rank_.lanes.update;
    std::int32_t* const place = rank_.workspace.template get<std::int32_t>(Buffer::row_order);
    T* const panel = rank_.workspace.template get<T>(Buffer::panel_even);
    std::int32_t* const lists = rank_.workspace.template get<std::int32_t>(Buffer::moves_even);
    const RowMoves moves{lists, lists + 2 * dist_.tile_size()};
    Device::iota(lane, n_, place);
    for (Step k(dist_.steps() - 1); *k >= 0; k += -1) {
      const Size below = first(k) + width(k);
      const Size count = n_ - below;
      if (panels_.mine(k) && count > 0) {
        T* const rows = column(dist_.tile(k).local) + below;
        Device::template put_rows<T>(lane, count, width(k), place + below, below, rows, n_, panel,
                                     count);
        Device::template copy<T>(lane, count, width(k), panel, count, rows, n_);
      }
      Device::trace_pivots(lane, width(k), pivots_ + first(k), first(k), moves);
      Device::template move_rows<std::int32_t>(lane, width(k), moves.inverse(), 1, place + first(k),
                                               n_, nullptr, 0);
    }
  }

  Rank<Device>& rank_;
  const Distribution& dist_;
  int me_;
  Size n_;
  T* a_;
  std::int32_t* pivots_;
  std::int32_t* rows_;
  Info* info_;
  PanelBuffers<Device, PanelType> panels_;
};

// What solves with the factor need: inverses of the diagonal tiles, twice a tile x tile block per
// local tile, of L, then of U. This is one of them.
template <class Device, class T>
void invert_lu_tile(Rank<Device>& rank, typename Device::Lane& of_l, typename Device::Lane& of_u,
                    const Distribution& dist, LocalTile t, const T* a, T* inverse) {
  const Tile tile{rank.comm.rank(), t};
  const Size n = dist.size();
  const Size nb = dist.tile_size();
  const T* const diagonal = a + *dist.begin(t) * n + dist.eliminated(dist.step(tile));
  T* const lower = inverse + *t * nb * nb;
  T* const upper = lower + dist.capacity_tiles() * nb * nb;
  Device::template invert_triangle<T>(of_l, Uplo::lower, Diag::unit, dist.rows(tile), diagonal, n,
                                      lower, nb);
  Device::template invert_triangle<T>(of_u, Uplo::upper, Diag::non_unit, dist.rows(tile), diagonal,
                                      n, upper, nb);
}

// All of them: two lanes share the work, each operation of which is small.
template <class Device, class T>
void invert_lu_tiles(Rank<Device>& rank, const Distribution& dist, const T* a, T* inverse) {
  auto& lanes = rank.lanes;
  lanes.panel.wait(lanes.update.record());
  for (LocalTile t(0); *t < dist.local_tiles(rank.comm.rank()); ++t) {
    invert_lu_tile<Device, T>(rank, lanes.panel, lanes.update, dist, t, a, inverse);
  }
  lanes.update.wait(lanes.panel.record());
}

// a <- its factors in the plan's precision.
template <class Device, class T>
void eliminate_columns(Rank<Device>& rank, const Distribution& dist, T* a, std::int32_t* pivots,
                       Info* info) {
  std::int32_t* const rows = pivots + dist.size();
  if constexpr (Device::template splits<T>) {
    if (rank.plan.precision() == Precision::split) {
      UnitRows<Device, T> unit(rank, dist);
      unit.scale(a);
      Device::share_with_panels(rank.lanes, true);
      Lu<Device, T, SplitLuPanel<Device, T>>(rank, dist, a, pivots, rows, info).run();
      Device::share_with_panels(rank.lanes, false);
      return unit.unscale_factors(rows, a);
    }
  }
  Lu<Device, T>(rank, dist, a, pivots, rows, info).run();
}

// What comes before and after the elimination.
template <class Device, class T>
void begin_lu_factor(Rank<Device>& rank, const Distribution& dist, const T* a, T* inverse,
                     Info* info) {
  auto& lane = rank.lanes.update;
  const Size n = dist.size();
  Device::reset(lane, info);
  if (inverse) {  // also the places that no tile covers
    const Size count = lu_aux_count(rank.plan.request(), dist.tile_size());
    Device::template fill<T>(lane, count, 1, T(0), T(0), inverse, count);
  }
  Device::template check_finite<T>(lane, n, dist.local_size(rank.comm.rank()), a, n, info);
}
template <class Device>
void agree_on_lu_factor(Rank<Device>& rank, Info* info) {
  auto& lane = rank.lanes.update;
  Device::set_phase(lane, Phase::natural_order, rank.comm.rank(), info);
  auto agreed = rank.comm.agree(lane, info);
  lane.wait(agreed);
  Device::name_equation(lane, info);
}

// The whole of getrf: look for what is not finite, factor, agree.
//   inverse: the aux operand, null if it is empty. pivots: 2 n integers, see Lu: pivots, then rows;
//   the same on all ranks. *info: the first equation, in elimination order, that depends on earlier
//   ones.
template <class Device, class T>
void lu_factor(Rank<Device>& rank, T* a, T* inverse, std::int32_t* pivots, Info* info) {
  const Distribution dist = rank.plan.distribution();
  begin_lu_factor<Device, T>(rank, dist, a, inverse, info);
  eliminate_columns<Device, T>(rank, dist, a, pivots, info);
  if (inverse) {
    invert_lu_tiles<Device, T>(rank, dist, a, inverse);
  }
  agree_on_lu_factor(rank, info);
}

}  // namespace jaxmg
