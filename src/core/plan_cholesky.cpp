// Panels and buffers of the Cholesky family.
#include <cmath>

#include "core/parts.h"
#include "core/plan_entries.h"

namespace jaxmg {

// Where the chain of panels decides, the next one is not kept waiting for all of a panel: in parts,
// its way and what the next one needs of it go on beside the making of the rest. Each part has
// calls of its own, which take longer than the parts of narrow panels, or of real ones, that GPUs
// make in one launch. Half-precision parts of numbers are made of whole panels.
Size choose_panel_parts(const PlanRequest& q, Precision precision, Size tile) {
  if (!factors_by_cholesky(q.routine) || precision != Precision::native) {
    return 1;
  }
  if (q.parts > 0) {
    return q.parts;
  }
  if (q.platform != Platform::cuda || !is_complex(q.type) || q.ranks == 1 || q.n < 4096 ||
      q.n >= kLongUpdates) {
    return 1;
  }
  return tile >= 448 ? 4 : tile >= 320 ? 2 : 1;
}

// As long as an update takes longer than a panel and its way, nobody waits for the parts, and a
// look-ahead by parts takes longer than one product: the number of rows m at which, for each column
// of the tile, four times m^2 operations on all devices take that time.
Size choose_parted_rows(const PlanRequest& q) {
  constexpr double seconds = 1.8e-6, speed = 14e12;
  return q.parts > 0 ? q.n
                     : static_cast<Size>(std::sqrt(seconds * speed * static_cast<double>(q.ranks)));
}

namespace {

// Elements of a rank's diagonal tiles.
Size diagonal_count(Size n, int ranks, Size tile) {
  return ceil_div(ceil_div(n, ranks), tile) * tile * tile;
}

// Of locate and posv too.
void add_potrf_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const Size tile = decided.tile;
  const Size rows = ceil_div(q.n, q.ranks);
  const DType t = q.type;
  const DType real = real_of(t);
  const Size tiles = diagonal_count(q.n, q.ranks, tile);
  list.argument(Buffer::matrix, t, decided.matrix_rows * q.n);
  list.result(Buffer::saved_diagonal, t, tiles);
  list.result(Buffer::tile_inverse, t, tiles);
  const Size panel = (q.n + rhs_rows(decided.eliminated_rhs)) * tile;
  list.scratch(Buffer::panel_even, t, panel);
  list.scratch(Buffer::panel_odd, t, panel);
  if (decided.precision == Precision::split) {
    const Size scales = q.ranks * rows;
    list.scratch(Buffer::split_even, DType::f32,
                 ceil_div(cholesky_halves(t) * parts_ld(q.n) * tile, 2));
    if (q.platform != Platform::cuda || makes_panels_by_parts(t, tile)) {
      list.scratch(Buffer::split_block, DType::f32,
                   ceil_div(cholesky_halves(t) * parts_ld(q.n) * ceil_div(tile, 2), 2));
    }
    list.scratch(Buffer::row_scale, real, scales);
    list.scratch(Buffer::inverse_scale, real, scales + 1);  // and whether they are needed
  }
  if (factors_by_cholesky(q.routine)) {
    list.scratch(Buffer::probe_vector, t, q.n);
    list.scratch(Buffer::probe_product, t, q.n);
    list.scratch(Buffer::probe_transpose, t, q.n);
    list.scratch(Buffer::probe_result, real, 4);
  }
  if (factors_by_cholesky(q.routine) && q.order == Order::natural) {
    const Size count = dealing_staging_count(q, decided.matrix_rows, tile);
    list.scratch(Buffer::send_staging, t, count);
    list.scratch(Buffer::receive_staging, t, count);
  } else if (q.mirror || q.routine == Routine::locate) {
    const Size count = mirror_staging_count(q, rows, tile);
    list.scratch(Buffer::send_staging, t, count);
    list.scratch(Buffer::receive_staging, t, count);
  }
}

void add_solution_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const Size rows = q.replicated_rhs ? q.n : ceil_div(q.n, q.ranks);
  list.result(Buffer::right_hand_side, q.type, rows * q.nrhs);
  list.scratch(Buffer::partial_sums, q.type, decided.rhs_block * q.n);
  list.scratch(Buffer::tile_rhs_other, q.type, decided.rhs_block * decided.tile);
}

}  // namespace

Size aux_count(Size n, int ranks, Size tile) {
  return 2 * diagonal_count(n, ranks, tile);
}

void add_cholesky_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const Size tile = decided.tile;
  const Size rows = ceil_div(q.n, q.ranks);
  const DType t = q.type;
  const Size tiles = diagonal_count(q.n, q.ranks, tile);
  switch (q.routine) {
    case Routine::potrf:
    case Routine::locate:
      add_potrf_entries(q, decided, list);
      break;
    case Routine::potrs:
      list.argument(Buffer::matrix, t, rows * q.n);
      list.argument(Buffer::saved_diagonal, t, tiles);
      list.argument(Buffer::tile_inverse, t, tiles);
      add_solution_entries(q, decided, list);
      break;
    case Routine::posv:
      add_potrf_entries(q, decided, list);
      add_solution_entries(q, decided, list);
      break;
    case Routine::potri: {
      const Size count = mirror_staging_count(q, rows, tile);
      list.argument(Buffer::matrix, t, rows * q.n);
      list.scratch(Buffer::panel_even, t, q.n * tile);
      list.scratch(Buffer::panel_odd, t, q.n * tile);
      list.scratch(Buffer::row_block, t, rows * tile);
      list.scratch(Buffer::send_staging, t, count);
      list.scratch(Buffer::receive_staging, t, count);
      break;
    }
    case Routine::logdet:
      list.argument(Buffer::matrix, t, rows * q.n);
      break;
    default:
      break;
  }
}

}  // namespace jaxmg
