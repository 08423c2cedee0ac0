// Buffers of operations that only move a matrix.
#include <algorithm>

#include "core/plan_entries.h"

namespace jaxmg {
namespace {

// Bytes of one staging buffer of a redistribution; two are used.
constexpr Size kStagingBytesCpu = Size{8} << 20;
constexpr Size kStagingBytesCuda = Size{128} << 20;

}  // namespace

Size staging_count(const PlanRequest& q) {
  const Size chosen = q.platform == Platform::cpu ? kStagingBytesCpu : kStagingBytesCuda;
  return (q.staging_bytes > 0 ? q.staging_bytes : chosen) / size_of(q.type);
}

Size mirror_staging_count(const PlanRequest& q, Size rows, Size tile) {
  return std::max(tile * tile, std::min(staging_count(q), rows * rows));
}

Size dealing_staging_count(const PlanRequest& q, Size rows, Size tile) {
  return std::max({tile * tile, rows, std::min(staging_count(q), rows * q.n)});
}

void add_redistribution_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  const Size tile = decided.tile;
  const Size rows = ceil_div(q.n, q.ranks);
  const DType t = q.type;
  switch (q.routine) {
    case Routine::mirror:
      list.argument(Buffer::matrix, t, rows * q.n);
      list.scratch(Buffer::send_staging, t, mirror_staging_count(q, rows, tile));
      list.scratch(Buffer::receive_staging, t, mirror_staging_count(q, rows, tile));
      break;
    case Routine::cyclic: {
      // The tile is what the caller wants to see in storage: it may be wider than a shard. There is
      // room for the rows of either storage, and for at least one column of them in staging.
      const Size columns = q.columns > 0 ? q.columns : q.n;
      const Distribution cyclic(q.n, q.ranks, tile, Storage::cyclic);
      const Size capacity = std::max(rows, cyclic.capacity());
      const Size count = std::max(capacity, std::min(staging_count(q), capacity * columns));
      list.argument(Buffer::matrix, t, capacity * columns);
      list.scratch(Buffer::send_staging, t, count);
      list.scratch(Buffer::receive_staging, t, count);
      break;
    }
    default:
      break;
  }
}

}  // namespace jaxmg
