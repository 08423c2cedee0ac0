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
// Of which the library takes no wider ones.
constexpr Size kWidestLuTile = 512;
constexpr Size kWidestEigenTile = 1024;

Size widest(Routine routine) {
  return is_lu(routine)              ? kWidestLuTile
         : routine == Routine::syevd ? kWidestEigenTile
                                     : kLargestTile;
}

}  // namespace

Size choose_vendor_tile(const PlanRequest& q) {
  const Size rows = std::max<Size>(1, ceil_div(q.n, q.ranks));
  const bool limited = is_lu(q.routine) || q.routine == Routine::syevd;
  if (q.tile > 0) {
    return std::min({q.tile, rows, limited ? widest(q.routine) : rows});
  }
  const Size target = std::clamp(rows / kTilesPerRank, kLeastTile, widest(q.routine));
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

namespace {

// A matrix dealt out, mirrored or transposed by way of these.
void add_staging(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const Size rows = ceil_div(q.n, q.ranks);
  const Size cyclic = vendor_rows(q.n, q.ranks, decided.tile);
  const Size moved = std::max(cyclic, std::min(staging_count(q), cyclic * q.n));
  const Size count = std::max(moved, mirror_staging_count(q, rows, decided.tile));
  list.scratch(Buffer::send_staging, q.type, count);
  list.scratch(Buffer::receive_staging, q.type, count);
}

void add_probe(const PlanRequest& q, EntryList& list) {
  list.scratch(Buffer::probe_vector, q.type, q.n);
  list.scratch(Buffer::probe_product, q.type, q.n);
  list.scratch(Buffer::probe_transpose, q.type, q.n);
  list.scratch(Buffer::probe_result, real_of(q.type), 4);
}

// Right-hand sides of all ranks, and the columns that the library finds on one.
void add_split_columns(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const Size own = ceil_div(decided.rhs_block, q.ranks);
  list.scratch(Buffer::gathered_rhs, q.type, own * q.ranks * ceil_div(q.n, q.ranks) * q.ranks);
  list.scratch(Buffer::rhs_columns, q.type, own * q.n);
}

void add_getrs(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const Size block = decided.rhs_block;
  if (q.transpose) {
    list.scratch(Buffer::row_order, DType::i32, vendor_rows(q.n, q.ranks, decided.tile));
    return add_split_columns(q, decided, list);
  }
  list.scratch(Buffer::partial_sums, q.type, block * q.n);
  list.scratch(Buffer::tile_rhs, q.type, block * decided.tile);
  if (!q.replicated_rhs) {
    list.scratch(Buffer::gathered_rhs, q.type, block * ceil_div(q.n, q.ranks) * q.ranks);
  }
}

void add_syevd(const PlanRequest& q, EntryList& list) {
  const Size rows = ceil_div(q.n, q.ranks);
  list.result(Buffer::eigenvalues, real_of(q.type), q.n);
  add_probe(q, list);
  if (q.vectors) {
    if (q.columns != q.n) {  // else they take the place of the matrix
      list.result(Buffer::result_vectors, q.type, rows * q.columns);
    }
    list.scratch(Buffer::eigenvectors, q.type, rows * q.n);
  }
}

}  // namespace

void add_vendor_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const DType t = q.type;
  const Size rows = ceil_div(q.n, q.ranks);
  const Size cyclic = vendor_rows(q.n, q.ranks, decided.tile);
  list.argument(Buffer::matrix, t, cyclic * q.n);
  if (q.routine == Routine::potrf || q.routine == Routine::potri || q.routine == Routine::getrf ||
      q.routine == Routine::syevd) {
    add_staging(q, decided, list);
  }
  if (is_lu(q.routine)) {
    list.result(Buffer::tile_inverse, t, lu_aux_count(q, decided.tile));
    list.result(Buffer::pivots, DType::i32, 2 * q.n);
  }
  if (q.routine == Routine::potrs || q.routine == Routine::getrs) {
    list.result(Buffer::right_hand_side, t, (q.replicated_rhs ? q.n : rows) * q.nrhs);
  }
  switch (q.routine) {
    case Routine::potrf:
      add_probe(q, list);
      list.scratch(Buffer::probe_factor, q.type, decided.tile);
      break;
    case Routine::potrs:
      add_split_columns(q, decided, list);
      break;
    case Routine::getrf:
      list.scratch(Buffer::row_order, DType::i32, cyclic * q.ranks);
      break;
    case Routine::getrs:
      add_getrs(q, decided, list);
      break;
    case Routine::syevd:
      add_syevd(q, list);
      break;
    default:
      break;
  }
  if (q.vendor_bytes > 0) {
    list.scratch(Buffer::vendor_workspace, DType::f32, ceil_div(q.vendor_bytes, 4));
  }
}

}  // namespace jaxmg
