#include "core/plan.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <stdexcept>

namespace jaxmg {
namespace {

constexpr Size kAlignment = 256;  // of every scratch buffer, in bytes
// Bytes of one staging buffer of a redistribution; two are used.
constexpr Size kStagingBytesCpu = Size{8} << 20;
constexpr Size kStagingBytesCuda = Size{128} << 20;
constexpr Size kMaxRhsBlock = 512;
// Of n, nrhs, tile and columns: then no product of two of them, in bytes, exceeds 2^60.
constexpr Size kLargest = Size{1} << 28;

// Tile edges measured to be best; the trailing update's inner dimension is the tile.
Size choose_tile(const PlanRequest& q) {
  const Size rows = std::max<Size>(1, ceil_div(q.n, q.ranks));
  Size tile = 0;
  if (q.platform == Platform::cpu) {
    tile = q.n >= 3072 ? 256 : q.n >= 1024 ? 128 : q.n >= 512 ? 64 : 32;
  } else {
    tile = q.n >= 24576 ? 1024 : q.n >= 6144 ? 512 : q.n >= 2048 ? 256 : 128;
  }
  return std::min(tile, rows);
}

// Elements of one staging buffer of a redistribution.
Size choose_staging(const PlanRequest& q) {
  const Size chosen = q.platform == Platform::cpu ? kStagingBytesCpu : kStagingBytesCuda;
  return (q.staging_bytes > 0 ? q.staging_bytes : chosen) / size_of(q.type);
}

// The same for a mirror: one tile at least, and no more than two ranks have to tell each other.
Size mirror_staging(const PlanRequest& q, Size rows, Size tile) {
  return std::max(tile * tile, std::min(choose_staging(q), rows * rows));
}

Size choose_group(const PlanRequest& q, Size tile) {
  if (q.group > 0) {
    return q.group;
  }
  return q.platform == Platform::cpu ? 1 : std::max<Size>(1, 1024 / tile);
}

}  // namespace

Size aux_count(Size n, int ranks, Size tile) {
  return 2 * ceil_div(ceil_div(n, ranks), tile) * tile * tile;
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
  const Size rows = ceil_div(q.n, q.ranks);
  tile_ = q.tile > 0 ? std::min(q.tile, std::max<Size>(1, rows)) : choose_tile(q);
  group_ = choose_group(q, tile_);
  if (q.platform == Platform::cuda && q.type == DType::f32 && q.routine == Routine::potrf) {
    precision_ = q.precision;
  }
  rhs_block_ = std::clamp<Size>(q.nrhs, 1, kMaxRhsBlock);

  const DType t = q.type;
  const DType real = real_of(t);
  const Size tiles = ceil_div(rows, tile_) * tile_ * tile_;
  switch (q.routine) {
    case Routine::potrf:
    case Routine::locate:
      add(Buffer::matrix, Place::argument, t, rows * q.n);
      add(Buffer::saved_diagonal, Place::result, t, tiles);
      add(Buffer::tile_inverse, Place::result, t, tiles);
      add(Buffer::panel_even, Place::scratch, t, q.n * tile_);
      add(Buffer::panel_odd, Place::scratch, t, q.n * tile_);
      if (precision_ == Precision::split) {
        const Size scales = q.ranks * rows;
        add(Buffer::split_even, Place::scratch, DType::f32, 2 * q.n * tile_);
        add(Buffer::split_odd, Place::scratch, DType::f32, 2 * q.n * tile_);
        add(Buffer::row_scale, Place::scratch, real, scales);
        add(Buffer::inverse_scale, Place::scratch, real, scales);
      }
      if (q.platform == Platform::cuda) {
        add(Buffer::panel_inverse, Place::scratch, t, tile_ * tile_);
      }
      if (q.routine == Routine::potrf) {
        add(Buffer::probe_vector, Place::scratch, t, q.n);
        add(Buffer::probe_product, Place::scratch, t, q.n);
        add(Buffer::probe_transpose, Place::scratch, t, q.n);
        add(Buffer::probe_result, Place::scratch, real, 4);
      }
      if (q.mirror || q.routine == Routine::locate) {
        const Size count = mirror_staging(q, rows, tile_);
        add(Buffer::send_staging, Place::scratch, t, count);
        add(Buffer::receive_staging, Place::scratch, t, count);
      }
      break;
    case Routine::potrs:
      add(Buffer::matrix, Place::argument, t, rows * q.n);
      add(Buffer::saved_diagonal, Place::argument, t, tiles);
      add(Buffer::tile_inverse, Place::argument, t, tiles);
      add(Buffer::right_hand_side, Place::result, t, (q.replicated_rhs ? q.n : rows) * q.nrhs);
      add(Buffer::partial_sums, Place::scratch, t, rhs_block_ * q.n);
      add(Buffer::tile_rhs, Place::scratch, t, rhs_block_ * tile_);
      add(Buffer::tile_rhs_other, Place::scratch, t, rhs_block_ * tile_);
      break;
    case Routine::potri: {
      const Size count = mirror_staging(q, rows, tile_);
      add(Buffer::matrix, Place::argument, t, rows * q.n);
      add(Buffer::panel_even, Place::scratch, t, q.n * tile_);
      add(Buffer::panel_odd, Place::scratch, t, q.n * tile_);
      add(Buffer::row_block, Place::scratch, t, rows * tile_);
      add(Buffer::send_staging, Place::scratch, t, count);
      add(Buffer::receive_staging, Place::scratch, t, count);
      break;
    }
    case Routine::logdet:
      add(Buffer::matrix, Place::argument, t, rows * q.n);
      break;
    case Routine::mirror:
      add(Buffer::matrix, Place::argument, t, rows * q.n);
      add(Buffer::send_staging, Place::scratch, t, mirror_staging(q, rows, tile_));
      add(Buffer::receive_staging, Place::scratch, t, mirror_staging(q, rows, tile_));
      break;
    case Routine::cyclic: {
      // The tile is what the caller wants to see in storage: it may be wider than a shard. There is
      // room for the rows of either storage, and for at least one column of them in staging.
      tile_ = q.tile > 0 ? q.tile : tile_;
      const Size columns = q.columns > 0 ? q.columns : q.n;
      const Distribution cyclic(q.n, q.ranks, tile_, Storage::cyclic);
      const Size capacity = std::max(rows, cyclic.capacity());
      const Size count = std::max(capacity, std::min(choose_staging(q), capacity * columns));
      add(Buffer::matrix, Place::argument, t, capacity * columns);
      add(Buffer::send_staging, Place::scratch, t, count);
      add(Buffer::receive_staging, Place::scratch, t, count);
      break;
    }
  }
  if (q.library_bytes > 0) {
    add(Buffer::library, Place::scratch, DType::f32, ceil_div(q.library_bytes, 4));
  }
}

void Plan::add(Buffer buffer, Place place, DType type, Size count) {
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

double Plan::flops() const {
  const double n = static_cast<double>(request_.n);
  const double k = static_cast<double>(request_.nrhs);
  const double unit = is_complex(request_.type) ? 4.0 : 1.0;
  switch (request_.routine) {
    case Routine::potrf:
    case Routine::locate:
      return unit * n * n * n / 3.0;
    case Routine::potri:
      return unit * n * n * n * 2.0 / 3.0;
    case Routine::potrs:
      return unit * 2.0 * n * n * k;
    case Routine::logdet:
    case Routine::mirror:
    case Routine::cyclic:
      return 0.0;
  }
  return 0.0;
}

std::string_view name(Routine routine) {
  constexpr std::array<std::string_view, 7> names = {"potrf",  "potrs",  "logdet", "locate",
                                                     "mirror", "cyclic", "potri"};
  return names[static_cast<std::size_t>(routine)];
}

std::string_view name(Buffer buffer) {
  constexpr std::array<std::string_view, 22> names = {
      "matrix",          "right_hand_side", "saved_diagonal",  "tile_inverse",   "panel_even",
      "panel_odd",       "split_even",      "split_odd",       "row_scale",      "inverse_scale",
      "panel_inverse",   "partial_sums",    "tile_rhs",        "tile_rhs_other", "row_block",
      "probe_vector",    "probe_product",   "probe_transpose", "probe_result",   "send_staging",
      "receive_staging", "library"};
  return names[static_cast<std::size_t>(buffer)];
}

std::string Plan::json() const {
  constexpr std::array<std::string_view, 3> places = {"argument", "result", "scratch"};
  std::ostringstream out;
  out << "{\"routine\":\"" << name(request_.routine) << "\",\"n\":" << request_.n
      << ",\"nrhs\":" << request_.nrhs << ",\"ranks\":" << request_.ranks << ",\"tile\":" << tile_
      << ",\"group\":" << group_ << ",\"rhs_block\":" << rhs_block_
      << ",\"aux_count\":" << aux_count(request_.n, request_.ranks, tile_)
      << ",\"scratch_bytes\":" << scratch_bytes_ << ",\"total_bytes\":" << total_bytes()
      << ",\"flops\":" << flops() << ",\"entries\":[";
  bool first = true;
  for (const Entry& e : entries_) {
    out << (first ? "" : ",") << "{\"buffer\":\"" << name(e.buffer) << "\",\"place\":\""
        << places[static_cast<std::size_t>(e.place)] << "\",\"bytes\":" << e.bytes() << "}";
    first = false;
  }
  out << "]}";
  return out.str();
}

}  // namespace jaxmg
