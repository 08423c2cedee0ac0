// Sizes and buffers of calls that a vendor's library carries out.
//
// cuSOLVERMg works on column-major matrices whose blocks of columns go round the devices. A
// row-major shard read column-major is just that, once its rows have been dealt out anew
// (algo/cyclic.h). In place, if the tile divides the rows of a shard; the tile that is chosen here
// does, if there is one.
#include <algorithm>

#include "core/plan_entries.h"

namespace jaxmg {
namespace {

constexpr Size kLeastTile = 256;
constexpr Size kLargestTile = 2048;
constexpr Size kTilesPerRank = 4;
constexpr Size kRhsBlock = 1024;

}  // namespace

Size choose_vendor_tile(const PlanRequest& q) {
  const Size rows = std::max<Size>(1, ceil_div(q.n, q.ranks));
  if (q.tile > 0) {
    return std::min(q.tile, rows);
  }
  const Size target = std::clamp(rows / kTilesPerRank, kLeastTile, kLargestTile);
  // A whole number of tiles, if need be with up to twice as many of them.
  const Size least = ceil_div(rows, target);
  for (Size tiles = least; tiles <= 2 * least; ++tiles) {
    if (rows % tiles == 0) {
      return rows / tiles;
    }
  }
  return ceil_div(rows, least);
}

Size vendor_rows(Size n, int ranks, Size tile) {
  return ceil_div(ceil_div(n, tile), ranks) * tile;
}

Size vendor_rhs_block(const PlanRequest& q) {
  return std::clamp<Size>(q.nrhs, 1, kRhsBlock);
}

void add_vendor_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const DType t = q.type;
  const Size rows = ceil_div(q.n, q.ranks);
  const Size cyclic = vendor_rows(q.n, q.ranks, decided.tile);
  list.argument(Buffer::matrix, t, cyclic * q.n);
  if (q.routine == Routine::potrf || q.routine == Routine::potri) {
    const Size moved = std::max(cyclic, std::min(staging_count(q), cyclic * q.n));
    const Size count = std::max(moved, mirror_staging_count(q, rows, decided.tile));
    list.scratch(Buffer::send_staging, t, count);
    list.scratch(Buffer::receive_staging, t, count);
  }
  if (q.routine == Routine::potrf) {
    list.scratch(Buffer::probe_vector, t, q.n);
    list.scratch(Buffer::probe_product, t, q.n);
    list.scratch(Buffer::probe_transpose, t, q.n);
    list.scratch(Buffer::probe_result, real_of(t), 4);
  }
  if (q.routine == Routine::potrs) {
    const Size own = ceil_div(decided.rhs_block, q.ranks);
    list.result(Buffer::right_hand_side, t, (q.replicated_rhs ? q.n : rows) * q.nrhs);
    list.scratch(Buffer::gathered_rhs, t, own * q.ranks * rows * q.ranks);
    list.scratch(Buffer::rhs_columns, t, own * q.n);
  }
  if (q.vendor_bytes > 0) {
    list.scratch(Buffer::vendor_workspace, DType::f32, ceil_div(q.vendor_bytes, 4));
  }
}

}  // namespace jaxmg
