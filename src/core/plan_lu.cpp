// Tiles and buffers of the LU family.
#include <algorithm>

#include "core/parts.h"
#include "core/plan_entries.h"

namespace jaxmg {

bool is_lu(Routine routine) {
  return routine == Routine::getrf || routine == Routine::getrs || routine == Routine::getdet ||
         routine == Routine::getri || routine == Routine::gesv;
}

bool factors_by_lu(Routine routine) {
  return routine == Routine::getrf || routine == Routine::gesv;
}

// A panel of an LU factorisation is the critical path: narrower ones pay up to larger n.
Size choose_lu_tile(const PlanRequest& q) {
  if (q.platform == Platform::cpu) {
    return q.n >= 4096 ? 256 : q.n >= 1024 ? 128 : q.n >= 256 ? 64 : 32;
  }
  if (q.type == DType::f32) {  // products that are several times faster want a shorter panel
    return q.n >= 98304 ? 1024 : q.n >= 20480 ? 512 : q.n >= 2048 ? 256 : 128;
  }
  return q.n >= 49152 ? 1024 : q.n >= 28672 ? 512 : q.n >= 2048 ? 256 : 128;
}

Size widest_lu_tile(const PlanRequest& q) {
  // On a GPU a block's shared memory holds a column's moved rows.
  return q.platform == Platform::cuda ? 1024 : std::max<Size>(1, q.n);
}

bool lu_inverts(const PlanRequest& q) {
  return q.platform == Platform::cuda;
}

Size lu_aux_count(const PlanRequest& q, Size tile) {
  // One element where nothing is kept: an operand without elements that is split over devices ends
  // the process in XLA's partitioner (JAX 0.11).
  if (!lu_inverts(q)) {
    return 1;
  }
  return 2 * ceil_div(ceil_div(q.n, q.ranks), tile) * tile * tile;
}

namespace {

void add_getrf_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const Size tile = decided.tile;
  const Size rows = ceil_div(q.n, q.ranks);
  const DType t = q.type;
  // The inverse of a panel's triangle and its pivots travel behind its elements.
  const Size inverse = q.platform == Platform::cuda ? tile * tile : 0;
  const Size panel = q.n * tile + inverse + ceil_div(tile * size_of(DType::i32), size_of(t));
  list.argument(Buffer::matrix, t, rows * q.n);
  list.result(Buffer::tile_inverse, t, lu_aux_count(q, tile));
  list.result(Buffer::pivots, DType::i32, 2 * q.n);
  list.scratch(Buffer::panel_even, t, panel);
  list.scratch(Buffer::panel_odd, t, panel);
  list.scratch(Buffer::moves_even, DType::i32, 4 * tile);
  list.scratch(Buffer::moves_odd, DType::i32, 4 * tile);
  list.scratch(Buffer::row_order, DType::i32, q.n);
  if (q.platform == Platform::cuda) {
    list.scratch(Buffer::row_block, t, rows * tile);
  }
  if (decided.precision == Precision::split) {
    // Parts of panels and of the other factor; scales of all rows and of this rank's columns.
    const Size lower = ceil_div(lower_halves(t) * parts_ld(q.n) * tile, 2);
    list.scratch(Buffer::split_even, DType::f32, lower);
    list.scratch(Buffer::split_odd, DType::f32, lower);
    list.scratch(Buffer::split_block, DType::f32, ceil_div(upper_halves(t) * rows * tile, 2));
    list.scratch(Buffer::row_scale, real_of(t), q.n + rows);
    // And whether they are needed.
    list.scratch(Buffer::inverse_scale, real_of(t), q.n + rows + 1);
  }
}

void add_getri_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const Size tile = decided.tile;
  const Size rows = ceil_div(q.n, q.ranks);
  const DType t = q.type;
  list.argument(Buffer::matrix, t, rows * q.n);
  list.argument(Buffer::pivots, DType::i32, 2 * q.n);
  list.scratch(Buffer::panel_even, t, q.n * tile);
  list.scratch(Buffer::panel_odd, t, q.n * tile);
  list.scratch(Buffer::row_block, t, rows * tile);
  list.scratch(Buffer::small_blocks, t, 2 * tile * tile);
  list.scratch(Buffer::row_order, DType::i32, 2 * q.n);
  // Rows of all ranks' columns: as many as a staging buffer holds, but at least one.
  const Size height = std::clamp<Size>(staging_count(q) / std::max<Size>(1, rows * q.ranks), 1,
                                       std::max<Size>(1, q.n));
  list.scratch(Buffer::send_staging, t, height * rows);
  list.scratch(Buffer::receive_staging, t, height * rows * q.ranks);
}

}  // namespace

void add_lu_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const Size tile = decided.tile;
  const Size rows = ceil_div(q.n, q.ranks);
  const DType t = q.type;
  const Size aux = lu_aux_count(q, tile);
  switch (q.routine) {
    case Routine::getrf:
      add_getrf_entries(q, decided, list);
      break;
    case Routine::gesv:
      add_getrf_entries(q, decided, list);
      list.result(Buffer::right_hand_side, t, (q.replicated_rhs ? q.n : rows) * q.nrhs);
      list.scratch(Buffer::partial_sums, t, decided.rhs_block * q.n);
      list.scratch(Buffer::tile_rhs, t, decided.rhs_block * tile);
      break;
    case Routine::getrs:
      list.argument(Buffer::matrix, t, rows * q.n);
      list.argument(Buffer::tile_inverse, t, aux);
      list.argument(Buffer::pivots, DType::i32, 2 * q.n);
      list.result(Buffer::right_hand_side, t, (q.replicated_rhs ? q.n : rows) * q.nrhs);
      // Where solutions of the transposed system are gathered there are the rows of all shards.
      list.scratch(Buffer::partial_sums, t,
                   decided.rhs_block * (q.transpose && q.replicated_rhs ? rows * q.ranks : q.n));
      list.scratch(Buffer::tile_rhs, t, decided.rhs_block * tile);
      if (q.transpose) {
        list.scratch(Buffer::later_sums, t, decided.rhs_block * q.n);
      }
      break;
    case Routine::getdet:
      list.argument(Buffer::matrix, t, rows * q.n);
      list.argument(Buffer::pivots, DType::i32, 2 * q.n);
      list.scratch(Buffer::phases, t, q.ranks);
      break;
    case Routine::getri:
      add_getri_entries(q, decided, list);
      break;
    default:
      break;
  }
}

}  // namespace jaxmg
