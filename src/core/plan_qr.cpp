// Buffers of the QR family.
#include <algorithm>
#include <cstdint>

#include "core/plan_entries.h"
#include "core/status.h"

namespace jaxmg {

Size qr_aux_count(Size m, Size n, Size tile) {
  return tile * std::min(m, n);
}

bool is_qr(Routine routine) {
  switch (routine) {
    case Routine::geqrf:
    case Routine::ormqr:
    case Routine::orgqr:
    case Routine::qr_r:
    case Routine::geqrs:
    case Routine::gels:
      return true;
    default:
      return false;
  }
}

Size orthonormal_rows(const PlanRequest& q, Size tile) {
  return q.routine == Routine::geqrf ? std::max(ceil_div(q.n, q.ranks), q.ranks * tile) : 0;
}

// Panels cost about three times the operations of an update a column, so they are narrow while the
// matrix is.
Size choose_qr_tile(const PlanRequest& q) {
  const Size rows = std::max<Size>(1, ceil_div(q.n, q.ranks));
  const Size small = std::max<Size>(1, std::min(q.n, q.columns));
  Size tile = 0;
  if (q.platform == Platform::cpu) {
    tile = small >= 4096 ? 128 : small >= 384 ? 64 : 32;
  } else {
    tile = small >= 24576 ? 512 : small >= 2048 ? 256 : 128;
  }
  return std::min({tile, rows, small});
}

// Enough runs of rows to keep a device busy with the blocks of a Gram matrix; short ones would cost
// more in adding up than they are worth.
GramCut gram_cut(const PlanRequest& q, Size tile) {
  const Size rows = ceil_div(q.n, q.ranks);
  const Size blocks = ceil_div(q.columns, tile);
  const Size wanted = q.platform == Platform::cuda ? ceil_div(528, blocks) : Size{16};
  const Size parts = std::clamp<Size>(rows / kLeastGramRows, 1, wanted);
  const bool widened = wide_of(q.type) != q.type;
  return {parts, widened ? std::min(rows, parts * kLeastGramRows) : 0};
}

DType tile_type(const PlanRequest& q) {
  return q.routine == Routine::gels ? wide_of(q.type) : q.type;
}

namespace {

void add_gels_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const Size rows = ceil_div(q.n, q.ranks), n = q.columns, block = decided.rhs_block;
  const Size tile = std::min(decided.tile, n);
  const DType t = q.type, wide = wide_of(t);
  const GramCut cut = gram_cut(q, decided.tile);
  list.argument(Buffer::matrix, t, rows * n);
  list.result(Buffer::right_hand_side, t, std::max(rows, n) * q.nrhs);
  list.scratch(Buffer::gram_parts, wide, (cut.parts + 1) * n * tile);
  list.scratch(Buffer::gram_blocks, wide, ceil_div(n * (n + tile), 2));
  list.scratch(Buffer::gram_factor, wide, 2 * n * n);
  list.scratch(Buffer::ones, wide, 2 * (cut.parts + 1));
  list.scratch(Buffer::wide_columns, wide, cut.rows * n);
  list.scratch(Buffer::local_rhs, t, block * rows);
  list.scratch(Buffer::gradient, t, t == wide ? 0 : block * n);
  const Size parts = q.platform == Platform::cuda ? kGradientBlocks : Size{0};
  list.scratch(Buffer::gradient_parts, t, n * std::max(parts, block * (cut.parts + 1)));
  list.scratch(Buffer::correction, wide, 2 * block * n);
  list.scratch(Buffer::solution_columns, t, block * n);
  list.scratch(Buffer::sizes, real_of(wide), 2 * n + 2 * block);
}

}  // namespace

void add_qr_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  if (!is_qr(q.routine)) {
    return;
  }
  if (q.routine == Routine::gels) {
    return add_gels_entries(q, decided, list);
  }
  const Size tile = decided.tile;
  const Size rows = ceil_div(q.n, q.ranks);
  const Size n = q.columns;
  const Size rank = std::min(q.n, n);
  const Size per = ceil_div(rank, q.ranks);
  const Size block = decided.rhs_block;
  const DType t = q.type;
  list.argument(Buffer::matrix, t, rows * n);
  if (q.routine != Routine::qr_r) {
    list.result(Buffer::block_reflectors, t, qr_aux_count(q.n, n, tile));
    list.scratch(Buffer::panel_even, t, rows * tile);
  }
  switch (q.routine) {
    case Routine::geqrf:
      list.scratch(Buffer::panel_odd, t, rows * tile);
      list.scratch(Buffer::panel_columns, t, (rows + tile) * tile);
      list.scratch(Buffer::gathered_triangles, t, q.ranks * tile * tile);
      list.scratch(Buffer::stacked_triangles, t, q.ranks * tile * tile);
      list.scratch(Buffer::panel_small, t, 13 * tile * tile);
      list.scratch(Buffer::panel_signs, real_of(t), tile);
      list.scratch(Buffer::panel_info, DType::i32, sizeof(Info) / sizeof(std::int32_t));
      list.scratch(Buffer::product, t, n * tile);
      list.scratch(Buffer::product_other, t, n * tile);
      list.scratch(Buffer::ahead_product, t, 2 * tile * tile);
      break;
    case Routine::orgqr:
      list.result(Buffer::orthogonal, t, rows * q.nrhs);
      list.result(Buffer::triangular, t, per * n);
      list.scratch(Buffer::row_block, t, n * tile);
      list.scratch(Buffer::product, t, q.nrhs * tile);
      list.scratch(Buffer::product_other, t, q.nrhs * tile);
      break;
    case Routine::qr_r:
      list.result(Buffer::triangular, t, per * n);
      list.scratch(Buffer::row_block, t, n * tile);
      break;
    case Routine::ormqr:
    case Routine::geqrs:
      list.result(Buffer::right_hand_side, t, std::max(rows, n) * q.nrhs);
      list.scratch(Buffer::local_rhs, t, block * rows);
      list.scratch(Buffer::partial_sums, t, block * n);
      list.scratch(Buffer::product, t, block * tile);
      list.scratch(Buffer::product_other, t, block * tile);
      break;
    default:
      break;
  }
}

}  // namespace jaxmg
