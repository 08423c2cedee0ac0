// Rows moved between contiguous and block-cyclic storage, in place.
//
// A shard of capacity x columns, row-major, is read column-major as columns x capacity: a run of
// rows is a run of columns there. For each range of columns of the user's matrix that fits the
// staging buffers, all local rows are packed by destination, exchanged and put to their new places.
// Every chunk is whole in itself, so nothing is overwritten that has yet to leave, and all links
// are busy in both directions.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "algo/rank.h"
#include "algo/staging.h"
#include "core/distribution.h"

namespace jaxmg {

// The rows that go from one rank of contiguous storage to one of cyclic storage, in ascending
// order. They lie together in cyclic storage; in contiguous storage they are pieces of one tile
// each, all whole but perhaps the first and the last, `stride` rows from one whole tile to the
// next.
struct CyclicRows {
  Size count = 0;         // rows in all
  LocalIndex cyclic;      // first row in cyclic storage
  LocalIndex contiguous;  // first row in contiguous storage
  Size head = 0;          // rows of the first piece if it starts within a tile, else 0
  Size stride = 0;
};

// Rows that `holder` has in contiguous storage and `owner` in cyclic storage.
inline CyclicRows cyclic_rows(const Distribution& contiguous, const Distribution& cyclic,
                              int holder, int owner) {
  const Size tile = cyclic.tile_size();
  const Size stride = tile * cyclic.ranks();
  const Size begin = holder * contiguous.capacity();
  const Size end = begin + contiguous.local_size(holder);
  // Rows of `owner` among the first g rows.
  const auto owned_before = [&](Size g) {
    return g / stride * tile + std::clamp<Size>(g % stride - owner * tile, 0, tile);
  };
  CyclicRows rows;
  rows.stride = stride;
  const Size first = owned_before(begin);
  rows.count = contiguous.local_size(holder) > 0 ? owned_before(end) - first : 0;
  if (rows.count > 0) {
    rows.cyclic = LocalIndex(first);
    rows.contiguous = contiguous.local(cyclic.global(owner, rows.cyclic));
    rows.head = first % tile == 0 ? 0 : std::min(tile - first % tile, rows.count);
  }
  return rows;
}

namespace cyclic_detail {

// Calls visit(contiguous row, packed row, n, count) for sets of `count` runs of n rows: in
// contiguous storage a run begins rows.stride rows behind the last, among the packed rows there is
// nothing between them.
template <class Visit>
void for_row_sets(const CyclicRows& rows, Size tile, Visit&& visit) {
  Size packed = 0;
  Size at = *rows.contiguous;
  const auto runs = [&](Size n, Size count) {
    if (n > 0 && count > 0) {
      visit(at, packed, n, count);
    }
    packed += n * count;
  };
  if (rows.head > 0) {
    runs(rows.head, 1);
    at += rows.head + rows.stride - tile;
  }
  const Size whole = (rows.count - rows.head) / tile;
  runs(tile, whole);
  at += whole * rows.stride;
  runs(rows.count - packed, 1);
}

// One redistribution, seen from one rank.
template <class D, class T>
class Redistribution {
 public:
  Redistribution(Rank<D>& rank, const Distribution& contiguous, const Distribution& cyclic,
                 bool to_cyclic, Size columns, T* a)
      : rank_(rank),
        tile_(cyclic.tile_size()),
        to_cyclic_(to_cyclic),
        columns_(columns),
        a_(a),
        // The widest shard decides, so that all ranks cut the same chunks.
        rows_(std::max(contiguous.capacity(), cyclic.capacity())),
        staging_(rank.workspace, rows_),
        width_(std::min(columns, staging_.capacity() / rows_)) {
    const int me = rank.comm.rank();
    for (int peer = 0; peer < rank.comm.size(); ++peer) {
      held_.push_back(cyclic_rows(contiguous, cyclic, me, peer));
      owned_.push_back(cyclic_rows(contiguous, cyclic, peer, me));
    }
  }

  void run() {
    pipeline(
        rank_, ceil_div(columns_, width_), staging_.depth(), [this](Size c) { pack(c); },
        [this](Size c) { return start(c); }, [this](Size c) { unpack(c); });
  }

 private:
  // Rows that go to a peer, or come from it: the parts of contiguous storage are `held_`.
  const std::vector<CyclicRows>& outgoing() const { return to_cyclic_ ? held_ : owned_; }
  const std::vector<CyclicRows>& incoming() const { return to_cyclic_ ? owned_ : held_; }

  Size width(Size chunk) const { return std::min(width_, columns_ - chunk * width_); }

  void pack(Size chunk) {
    T* stage = staging_.send(chunk);
    for (const CyclicRows& rows : outgoing()) {
      move(rows, to_cyclic_, width(chunk), a_ + chunk * width_, stage, /*pack=*/true);
      stage += rows.count * width(chunk);
    }
  }

  typename D::Ticket start(Size chunk) {
    std::vector<Size> counts[2], offsets[2];
    for (const int side : {0, 1}) {
      Size offset = 0;
      for (const CyclicRows& rows : side == 0 ? outgoing() : incoming()) {
        counts[side].push_back(rows.count * width(chunk));
        offsets[side].push_back(offset);
        offset += counts[side].back();
      }
      // What stays here is unpacked from where it was packed.
      counts[side][static_cast<std::size_t>(rank_.comm.rank())] = 0;
    }
    return rank_.comm.all_to_all_v(rank_.lanes.copy, staging_.send(chunk), counts[0], offsets[0],
                                   staging_.receive(chunk), counts[1], offsets[1], dtype_of<T>);
  }

  void unpack(Size chunk) {
    T* stage = staging_.receive(chunk);
    T* own = staging_.send(chunk);
    for (int peer = 0; peer < rank_.comm.size(); ++peer) {
      const auto p = static_cast<std::size_t>(peer);
      const bool here = peer == rank_.comm.rank();
      move(incoming()[p], !to_cyclic_, width(chunk), a_ + chunk * width_, here ? own : stage,
           /*pack=*/false);
      stage += incoming()[p].count * width(chunk);
      own += outgoing()[p].count * width(chunk);
    }
  }

  // Copies `width` columns of the rows between the shard and a packed block, width x rows.count.
  void move(const CyclicRows& rows, bool contiguous, Size width, T* shard, T* packed, bool pack) {
    const auto copy = [&](Size row, Size packed_row, Size n, Size count) {
      T* outside = shard + row * columns_;
      T* inside = packed + packed_row * width;
      const Size apart = rows.stride * columns_, together = n * width;
      if (pack) {
        copy_runs(width, n, count, outside, columns_, apart, inside, width, together);
      } else {
        copy_runs(width, n, count, inside, width, together, outside, columns_, apart);
      }
    };
    if (contiguous) {
      for_row_sets(rows, tile_, copy);
    } else if (rows.count > 0) {
      copy(*rows.cyclic, 0, rows.count, 1);
    }
  }

  void copy_runs(Size width, Size n, Size count, const T* from, Size ld_from, Size step_from, T* to,
                 Size ld_to, Size step_to) {
    D::copy_blocks(rank_.lanes.update, width, n, count, from, ld_from, step_from, to, ld_to,
                   step_to);
  }

  Rank<D>& rank_;
  Size tile_;
  bool to_cyclic_;
  Size columns_;
  T* a_;
  Size rows_;
  Staging<T> staging_;
  Size width_;                     // columns of a chunk
  std::vector<CyclicRows> held_;   // rows that this rank has in contiguous storage, by cyclic rank
  std::vector<CyclicRows> owned_;  // rows that it has in cyclic storage, by contiguous rank
};

template <class D, class T>
void redistribute(Rank<D>& rank, Size n, Size tile, Size columns, bool to_cyclic, T* a) {
  const int ranks = rank.comm.size();
  const Distribution contiguous(n, ranks, tile, Storage::contiguous);
  const Distribution cyclic(n, ranks, tile, Storage::cyclic);
  if (n == 0 || columns == 0) {
    return;
  }
  if (ranks > 1) {
    Redistribution<D, T>(rank, contiguous, cyclic, to_cyclic, columns, a).run();
  }
  const Size held = (to_cyclic ? cyclic : contiguous).local_size(rank.comm.rank());
  const Size capacity = std::max(contiguous.capacity(), cyclic.capacity());
  D::fill(rank.lanes.update, columns, capacity - held, T(0), T(0), a + held * columns, columns);
}

}  // namespace cyclic_detail

// a: this rank's shard of an n x columns matrix, row-major, with room for the larger of the two
// storages' capacities in rows. Rows of the shard beyond those that the rank holds are zero
// afterwards.

// From Storage::contiguous to Storage::cyclic, tiles of `tile` rows.
template <class D, class T>
void to_cyclic(Rank<D>& rank, Size n, Size tile, Size columns, T* a) {
  cyclic_detail::redistribute<D, T>(rank, n, tile, columns, /*to_cyclic=*/true, a);
}

// From Storage::cyclic, tiles of `tile` rows, to Storage::contiguous.
template <class D, class T>
void from_cyclic(Rank<D>& rank, Size n, Size tile, Size columns, T* a) {
  cyclic_detail::redistribute<D, T>(rank, n, tile, columns, /*to_cyclic=*/false, a);
}

}  // namespace jaxmg
