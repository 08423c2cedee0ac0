// Buffers of operations with a triangular matrix.
#include <algorithm>

#include "core/plan_entries.h"

namespace jaxmg {

void add_triangular_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const Size tile = decided.tile;
  const Size rows = ceil_div(q.n, q.ranks);
  const DType t = q.type;
  switch (q.routine) {
    case Routine::trsm:
      list.argument(Buffer::matrix, t, rows * q.n);
      list.result(Buffer::right_hand_side, t, (q.replicated_rhs ? q.n : rows) * q.nrhs);
      list.scratch(Buffer::row_block, t, decided.rhs_block * rows);
      list.scratch(Buffer::tile_rhs, t, decided.rhs_block * tile);
      list.scratch(Buffer::tile_rhs_other, t, decided.rhs_block * tile);
      if (q.replicated_rhs) {
        list.scratch(Buffer::partial_sums, t, decided.rhs_block * rows * q.ranks);
      }
      break;
    case Routine::cholupdate: {
      const Size columns = std::min(std::max<Size>(q.nrhs, 1), kUpdateColumns);
      const Size width = std::min(tile, kUpdateWidth);
      list.argument(Buffer::matrix, t, rows * q.n);
      list.argument(Buffer::right_hand_side, t, q.n * q.nrhs);
      list.scratch(Buffer::panel_even, t, q.n * tile);
      list.scratch(Buffer::update_columns, t, q.n * width);
      list.scratch(Buffer::rotation, t, (width + columns) * (width + columns));
      list.scratch(Buffer::update_even, t, q.n * columns);
      list.scratch(Buffer::update_odd, t, q.n * columns);
      break;
    }
    default:
      break;
  }
}

}  // namespace jaxmg
