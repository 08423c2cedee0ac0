#include "core/plan.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <stdexcept>

#include "core/parts.h"
#include "core/plan_entries.h"

namespace jaxmg {
namespace {

constexpr Size kAlignment = 256;  // of every scratch buffer, in bytes
constexpr Size kMaxRhsBlock = 512;
// Right-hand sides that are eliminated with a matrix travel with its panels and lengthen them;
// many of them are solved for just as fast on their own.
constexpr Size kMostEliminatedRhs = 64;
// Panels keep their alignment: rows of right-hand sides are added in lots of so many.
constexpr Size kRhsRows = 16;
// Of n, nrhs, tile and columns: then no product of two of them, in bytes, exceeds 2^60.
constexpr Size kLargest = Size{1} << 28;

// Of complex numbers in half-precision parts: their products have twice the inner dimension that
// real ones of the same tile have, and their panels are native.
Size choose_complex_tile(Size n) {
  return n >= 12288 ? 512 : 256;
}

// Tile edges measured to be best; the trailing update's inner dimension is the tile.
Size choose_tile(const PlanRequest& q) {
  const Size rows = std::max<Size>(1, ceil_div(q.n, q.ranks));
  if (is_lu(q.routine)) {
    return std::min(choose_lu_tile(q), rows);
  }
  Size tile = 0;
  if (q.platform == Platform::cpu) {
    tile = q.n >= 3072 ? 256 : q.n >= 1024 ? 128 : q.n >= 512 ? 64 : 32;
  } else {
    // Products of half-precision parts are fast enough for the chain of panels to decide up to a
    // larger n.
    const bool split = q.precision == Precision::split && factors_by_cholesky(q.routine);
    const bool fast = split && q.type == DType::f32 && q.ranks > 1;
    tile = q.n >= (fast ? 49152 : 24576) ? 1024 : q.n >= 6144 ? 512 : q.n >= 2048 ? 256 : 128;
    if (split && q.type == DType::c64) {
      tile = std::min(choose_complex_tile(q.n), tile);
    }
  }
  tile = std::min(tile, rows);
  if (q.routine == Routine::trsm && q.ranks == 1) {
    return rows;  // nobody waits for a part of it
  }
  if (q.order == Order::natural && factors_by_cholesky(q.routine)) {
    // Tiles that divide a shard are dealt out in place: see matrix_rows().
    for (Size d = tile; 4 * d > tile; --d) {
      if (rows % d == 0) {
        return d;
      }
    }
  }
  return tile;
}

Size choose_group(const PlanRequest& q, Size tile) {
  if (factors_by_cholesky(q.routine) && q.order == Order::natural) {
    return 1;  // tiles that were dealt out do not follow each other in the matrix
  }
  if (q.group > 0) {
    return q.group;
  }
  return q.platform == Platform::cpu ? 1 : std::max<Size>(1, 1024 / tile);
}

// Not where tiles are dealt out, since right-hand sides stay where they are, and not where the
// factors are scaled afterwards.
Size choose_eliminated_rhs(const PlanRequest& q, Precision precision) {
  if (q.nrhs > kMostEliminatedRhs) {
    return 0;
  }
  const bool cholesky =
      q.routine == Routine::posv && (q.order == Order::relabelled || q.ranks == 1);
  const bool lu = q.routine == Routine::gesv && precision == Precision::native;
  return cholesky || lu ? q.nrhs : 0;
}

}  // namespace

bool factors_by_cholesky(Routine routine) {
  return routine == Routine::potrf || routine == Routine::posv;
}

Size rhs_rows(Size eliminated_rhs) {
  return round_up(eliminated_rhs, kRhsRows);
}

Plan::Plan(const PlanRequest& request) : request_(request) {
  const PlanRequest& q = request_;
  const auto [least, most] = std::minmax({q.n, q.nrhs, q.tile, q.columns});
  if (least < 0 || most > kLargest || q.ranks < 1) {
    throw std::invalid_argument(
        "plan: n = " + std::to_string(q.n) + ", nrhs = " + std::to_string(q.nrhs) +
        ", ranks = " + std::to_string(q.ranks) + ", tile = " + std::to_string(q.tile) +
        ", columns = " + std::to_string(q.columns));
  }
  decide();
  const Decisions decided = {tile_, group_, precision_, rhs_block_, matrix_rows_, eliminated_rhs_};
  EntryList list;
  if (q.backend == Backend::native) {
    add_cholesky_entries(q, decided, list);
    add_lu_entries(q, decided, list);
    add_qr_entries(q, decided, list);
    add_eigen_entries(q, decided, list);
    add_redistribution_entries(q, decided, list);
    add_triangular_entries(q, decided, list);
  } else {
    add_vendor_entries(q, decided, list);
  }
  if (q.library_bytes > 0) {
    list.scratch(Buffer::library, DType::f32, ceil_div(q.library_bytes, 4));
  }
  entries_ = list.entries();
  scratch_bytes_ = list.scratch_bytes();
}

void Plan::decide() {
  const PlanRequest& q = request_;
  const Size rows = ceil_div(q.n, q.ranks);
  tile_ = q.tile > 0         ? std::min(q.tile, std::max<Size>(1, rows))
          : is_qr(q.routine) ? choose_qr_tile(q)
                             : choose_tile(q);
  if (is_lu(q.routine)) {
    tile_ = std::min(tile_, widest_lu_tile(q));
  }
  if (q.backend != Backend::native) {
    tile_ = choose_vendor_tile(q);
  }
  group_ = choose_group(q, tile_);
  const bool eigen = q.routine == Routine::syevd && q.type == DType::f32;
  const bool factors = factors_by_cholesky(q.routine) || factors_by_lu(q.routine);
  if (q.platform == Platform::cuda && has_parts(q.type) && (factors || eigen)) {
    precision_ = q.precision;
  }
  if (q.routine == Routine::syevd && q.backend == Backend::native) {
    tile_ = choose_band(q, tile_);
    // No wider than the matrix.
    const Size panels = std::max<Size>(1, q.n / std::max<Size>(1, tile_));
    group_ = std::min(q.group > 0 ? q.group : choose_reflector_group(q, tile_), panels);
  }
  if (q.routine == Routine::cyclic && q.tile > 0) {
    tile_ = q.tile;  // what the caller wants to see in storage: it may be wider than a shard
  }
  rhs_block_ = std::clamp<Size>(q.nrhs, 1, kMaxRhsBlock);
  if (q.backend != Backend::native) {
    precision_ = Precision::native;
    rhs_block_ = vendor_rhs_block(q);
  }
  panel_parts_ = choose_panel_parts(q, precision_, tile_);
  parted_rows_ = choose_parted_rows(q);
  eliminated_rhs_ = choose_eliminated_rhs(q, precision_);

  matrix_rows_ = factor_rows();
  if (factors_by_cholesky(q.routine) && q.order == Order::natural) {
    matrix_rows_ = std::max(matrix_rows_, cyclic().capacity());
  }
}

void EntryList::add(Buffer buffer, Place place, DType type, Size count) {
  Entry e{buffer, place, type, count, 0};
  if (place == Place::scratch) {
    e.offset = scratch_bytes_;
    scratch_bytes_ += round_up(e.bytes(), kAlignment);
  }
  entries_.push_back(e);
}

Entry Plan::entry(Buffer buffer) const {
  for (const Entry& e : entries_) {
    if (e.buffer == buffer) {
      return e;
    }
  }
  return Entry{buffer, Place::scratch, request_.type, 0, 0};
}

bool Plan::overlaps_products() const {
  return precision_ == Precision::native && request_.n < kLongUpdates;
}

Size Plan::factor_rows() const {
  return request_.backend == Backend::native ? ceil_div(request_.n, request_.ranks)
                                             : vendor_rows(request_.n, request_.ranks, tile_);
}

Size Plan::aux_count() const {
  // A vendor's library leaves nothing beside a Cholesky factor; an operand has an element all the
  // same.
  if (request_.backend != Backend::native && !is_lu(request_.routine)) {
    return 1;
  }
  return is_lu(request_.routine)   ? lu_aux_count(request_, tile_)
         : is_qr(request_.routine) ? qr_aux_count(request_.n, request_.columns, tile_)
                                   : jaxmg::aux_count(request_.n, request_.ranks, tile_);
}

Size Plan::total_bytes() const {
  Size total = scratch_bytes_;
  for (const Entry& e : entries_) {
    if (e.place != Place::scratch) {
      total += e.bytes();
    }
  }
  return total;
}

Distribution Plan::distribution(Order order) const {
  return Distribution(request_.n, request_.ranks, tile_, Storage::contiguous, order);
}

Distribution Plan::cyclic() const {
  return Distribution(request_.n, request_.ranks, tile_, Storage::cyclic);
}

double Plan::flops() const {
  const double n = static_cast<double>(request_.n);
  const double k = static_cast<double>(request_.nrhs);
  const double unit = is_complex(request_.type) ? 4.0 : 1.0;
  switch (request_.routine) {
    case Routine::potrf:
    case Routine::locate:
      return unit * n * n * n / 3.0;
    case Routine::potri:
    case Routine::getrf:
      return unit * n * n * n * 2.0 / 3.0;
    case Routine::getri:
      return unit * n * n * n * 4.0 / 3.0;
    case Routine::potrs:
    case Routine::getrs:
      return unit * 2.0 * n * n * k;
    case Routine::posv:
      return unit * n * n * (n / 3.0 + 2.0 * k);
    case Routine::gesv:
      return unit * n * n * (n * 2.0 / 3.0 + 2.0 * k);
    case Routine::trsm:
      return unit * n * n * k;
    case Routine::cholupdate:
      return unit * 2.0 * n * n * k;
    case Routine::gels: {
      // Half of a Gram matrix, and products with A: two to begin with, and two for each correction.
      const double c = static_cast<double>(request_.columns);
      return unit * n * c * (c + 6.0 * k);
    }
    case Routine::geqrf:
    case Routine::ormqr:
    case Routine::orgqr:
    case Routine::geqrs: {
      const double c = static_cast<double>(request_.columns);
      const double small = std::min(n, c);
      if (request_.routine == Routine::geqrf) {
        // 2 m n^2 - 2/3 n^3 for m >= n
        return unit *
               (2.0 * n * c * small - (n + c) * small * small + 2.0 / 3.0 * small * small * small);
      }
      // Of the 4 k m n - 2 k n^2 operations on k columns, the identity has about half.
      const double half = request_.routine == Routine::orgqr ? 0.5 : 1.0;
      return unit * half * k * (4.0 * n * small - 2.0 * small * small);
    }
    case Routine::syevd:
      // Reduction; both back-transformations of the columns wanted, and about n^3 real ones in
      // divide and conquer.
      return unit * n * n * n * 4.0 / 3.0 +
             (request_.vectors
                  ? unit * 4.0 * n * n * static_cast<double>(request_.columns) + n * n * n
                  : 0.0);
    case Routine::logdet:
    case Routine::getdet:
    case Routine::mirror:
    case Routine::cyclic:
    case Routine::qr_r:
      return 0.0;
  }
  return 0.0;
}

std::string_view name(Buffer buffer) {
  constexpr auto names = std::to_array<std::string_view>({"matrix",
                                                          "right_hand_side",
                                                          "saved_diagonal",
                                                          "tile_inverse",
                                                          "panel_even",
                                                          "panel_odd",
                                                          "split_even",
                                                          "split_odd",
                                                          "row_scale",
                                                          "inverse_scale",
                                                          "partial_sums",
                                                          "tile_rhs",
                                                          "tile_rhs_other",
                                                          "row_block",
                                                          "split_block",
                                                          "probe_vector",
                                                          "probe_product",
                                                          "probe_transpose",
                                                          "probe_result",
                                                          "probe_factor",
                                                          "send_staging",
                                                          "receive_staging",
                                                          "pivots",
                                                          "moves_even",
                                                          "moves_odd",
                                                          "row_order",
                                                          "later_sums",
                                                          "phases",
                                                          "panel_columns",
                                                          "gathered_triangles",
                                                          "stacked_triangles",
                                                          "panel_small",
                                                          "panel_signs",
                                                          "panel_info",
                                                          "product",
                                                          "product_other",
                                                          "ahead_product",
                                                          "local_rhs",
                                                          "block_reflectors",
                                                          "orthogonal",
                                                          "triangular",
                                                          "gathered_rhs",
                                                          "rhs_columns",
                                                          "update_columns",
                                                          "rotation",
                                                          "update_even",
                                                          "update_odd",
                                                          "vendor_workspace",
                                                          "eigenvalues",
                                                          "result_vectors",
                                                          "reflector_rows",
                                                          "reflector_own_rows",
                                                          "product_rows",
                                                          "product_own_rows",
                                                          "reflector_factors",
                                                          "small_blocks",
                                                          "band",
                                                          "sweep_reflectors",
                                                          "sweep_panel",
                                                          "tridiagonal_vectors",
                                                          "eigenvectors",
                                                          "back_products",
                                                          "secular_block",
                                                          "scalars",
                                                          "gram_parts",
                                                          "gram_blocks",
                                                          "gram_factor",
                                                          "ones",
                                                          "wide_columns",
                                                          "gradient",
                                                          "gradient_parts",
                                                          "correction",
                                                          "solution_columns",
                                                          "sizes",
                                                          "eigen_work",
                                                          "library"});
  static_assert(names.size() == static_cast<std::size_t>(Buffer::library) + 1);
  return names[static_cast<std::size_t>(buffer)];
}

std::string Plan::json() const {
  constexpr std::array<std::string_view, 3> places = {"argument", "result", "scratch"};
  std::ostringstream out;
  out << "{\"routine\":\"" << name(request_.routine) << "\",\"n\":" << request_.n
      << ",\"nrhs\":" << request_.nrhs << ",\"ranks\":" << request_.ranks << ",\"tile\":" << tile_
      << ",\"group\":" << group_ << ",\"panel_parts\":" << panel_parts_
      << ",\"parted_rows\":" << parted_rows_ << ",\"eliminated_rhs\":" << eliminated_rhs_
      << ",\"rhs_block\":" << rhs_block_ << ",\"matrix_rows\":" << matrix_rows_
      << ",\"factor_rows\":" << factor_rows() << ",\"aux_count\":" << aux_count()
      << ",\"scratch_bytes\":" << scratch_bytes_ << ",\"total_bytes\":" << total_bytes()
      << ",\"flops\":" << flops() << ",\"entries\":[";
  bool first = true;
  for (const Entry& e : entries_) {
    out << (first ? "" : ",") << "{\"buffer\":\"" << name(e.buffer) << "\",\"place\":\""
        << places[static_cast<std::size_t>(e.place)] << "\",\"count\":" << e.count
        << ",\"bytes\":" << e.bytes() << "}";
    first = false;
  }
  out << "]}";
  return out.str();
}

}  // namespace jaxmg
