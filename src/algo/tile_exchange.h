// Blocks of a matrix that change ranks and are transposed on the way: the pairwise exchange under
// mirroring and transposition.
//
// Both matrices lie column-major with whole columns on a rank. In round k rank r meets rank
// (k - r) mod ranks, itself included, so that after as many rounds as there are ranks each pair has
// met once and both directions of every link have been busy.
#pragma once

#include <algorithm>
#include <vector>

#include "algo/rank.h"
#include "algo/staging.h"
#include "core/distribution.h"

namespace jaxmg {

// A rows x columns block of the source matrix and the place of its transpose in the target matrix.
struct TransposedBlock {
  GlobalIndex row;          // of the source
  LocalIndex column;        // of the source, on the rank that sends
  Size rows = 0;            // of the source; columns of the image
  Size columns = 0;         // of the source; rows of the image
  GlobalIndex image_row;    // of the target
  LocalIndex image_column;  // of the target, on the rank that receives
};

// Blocks grouped in chunks of limited size. Blocks that continue the last one downwards are joined
// to it, blocks that are too large are cut; sender and receiver make the same chunks from the same
// blocks.
class BlockChunks {
 public:
  explicit BlockChunks(Size capacity) : capacity_(capacity) {}

  void add(TransposedBlock block) {
    for (; block.columns > capacity_; cut_columns(block, capacity_)) {
      TransposedBlock left = block;
      left.columns = capacity_;
      add_columns(left);
    }
    add_columns(block);
  }

  Size count() const { return static_cast<Size>(chunks_.size()); }
  // The blocks of a chunk, packed one after another; empty beyond the last chunk.
  std::vector<TransposedBlock> chunk(Size c) const {
    return c < count() ? chunks_[static_cast<std::size_t>(c)] : std::vector<TransposedBlock>();
  }

 private:
  // block.columns <= capacity.
  void add_columns(TransposedBlock block) {
    while (block.rows > 0 && block.columns > 0) {
      const Size room = chunks_.empty() ? 0 : capacity_ - used_;
      TransposedBlock top = block;
      top.rows = std::min(block.rows, room / block.columns);
      if (top.rows == 0) {
        chunks_.emplace_back();
        used_ = 0;
        continue;
      }
      append(top);
      block.row += top.rows;
      block.image_column += top.rows;
      block.rows -= top.rows;
    }
  }

  void append(const TransposedBlock& block) {
    used_ += block.rows * block.columns;
    std::vector<TransposedBlock>& blocks = chunks_.back();
    if (!blocks.empty() && continues(blocks.back(), block)) {
      blocks.back().rows += block.rows;
    } else {
      blocks.push_back(block);
    }
  }

  static bool continues(const TransposedBlock& above, const TransposedBlock& below) {
    return above.column == below.column && above.columns == below.columns &&
           above.image_row == below.image_row && above.row + above.rows == below.row &&
           above.image_column + above.rows == below.image_column;
  }

  static void cut_columns(TransposedBlock& block, Size columns) {
    block.column += columns;
    block.image_row += columns;
    block.columns -= columns;
  }

  Size capacity_;
  Size used_ = 0;  // elements of the last chunk
  std::vector<std::vector<TransposedBlock>> chunks_;
};

// One communication call: what this rank sends to its partner and what it gets from there.
struct Meeting {
  int partner = 0;
  std::vector<TransposedBlock> sent;
  std::vector<TransposedBlock> received;
};

// The meetings of `me`, the same number on every rank. blocks(from, to, visit) calls visit with
// each TransposedBlock that goes from one rank to another.
template <class Blocks>
std::vector<Meeting> plan_meetings(int me, int ranks, Size capacity, const Blocks& blocks) {
  const auto chunks = [&](int from, int to) {
    BlockChunks result(capacity);
    blocks(from, to, [&](const TransposedBlock& block) { result.add(block); });
    return result;
  };
  std::vector<Meeting> meetings;
  for (int round = 0; round < ranks; ++round) {
    Size longest = 0;
    BlockChunks sent(capacity);
    BlockChunks received(capacity);
    const int partner = (round - me + ranks) % ranks;
    for (int from = 0; from < ranks; ++from) {
      const int to = (round - from + ranks) % ranks;
      if (from == to) {
        continue;
      }
      BlockChunks moved = chunks(from, to);
      longest = std::max(longest, moved.count());
      if (from == me) {
        sent = std::move(moved);
      } else if (to == me) {
        received = std::move(moved);
      }
    }
    for (Size c = 0; c < longest; ++c) {
      meetings.push_back({partner, sent.chunk(c), received.chunk(c)});
    }
  }
  return meetings;
}

// target <- transpose (conj: conjugate transpose) of the blocks of source that `blocks` names (see
// plan_meetings), on all ranks. Source and target may be one matrix if no block overlaps an image.
template <class D, class T, class Blocks>
void exchange_transposed(Rank<D>& rank, const Blocks& blocks, bool conj, const T* source,
                         Size source_ld, T* target, Size target_ld) {
  auto& lane = rank.lanes.update;
  const int me = rank.comm.rank();
  const auto from = [&](const TransposedBlock& b) {
    return source + *b.column * source_ld + *b.row;
  };
  const auto into = [&](const TransposedBlock& b) {
    return target + *b.image_column * target_ld + *b.image_row;
  };
  const auto local = [&] {
    blocks(me, me, [&](const TransposedBlock& b) {
      D::transpose(lane, b.rows, b.columns, from(b), source_ld, into(b), target_ld, conj);
    });
  };
  const auto elements = [](const std::vector<TransposedBlock>& list) {
    Size sum = 0;
    for (const TransposedBlock& b : list) {
      sum += b.rows * b.columns;
    }
    return sum;
  };

  const Staging<T> staging(rank.workspace, rank.comm.size() > 1 ? 1 : 0);
  const std::vector<Meeting> meetings =
      plan_meetings(me, rank.comm.size(), staging.capacity(), blocks);
  const auto meeting = [&](Size c) -> const Meeting& {
    return meetings[static_cast<std::size_t>(c)];
  };
  const auto pack = [&](Size c) {
    T* stage = staging.send(c);
    for (const TransposedBlock& b : meeting(c).sent) {
      D::transpose(lane, b.rows, b.columns, from(b), source_ld, stage, b.columns, conj);
      stage += b.rows * b.columns;
    }
  };
  const auto start = [&](Size c) {
    const Meeting& m = meeting(c);
    const Transfer sent{staging.send(c), elements(m.sent), m.partner};
    const Transfer received{staging.receive(c), elements(m.received), m.partner};
    auto ticket = rank.comm.exchange(rank.lanes.copy, {&sent, sent.count > 0 ? 1u : 0u},
                                     {&received, received.count > 0 ? 1u : 0u}, dtype_of<T>);
    if (c == 0) {
      local();  // what stays on this rank, while the first chunk travels
    }
    return ticket;
  };
  const auto unpack = [&](Size c) {
    const T* stage = staging.receive(c);
    for (const TransposedBlock& b : meeting(c).received) {
      D::copy(lane, b.columns, b.rows, stage, b.columns, into(b), target_ld);
      stage += b.rows * b.columns;
    }
  };
  pipeline(rank, static_cast<Size>(meetings.size()), staging.depth(), pack, start, unpack);
  if (meetings.empty()) {
    local();
  }
}

}  // namespace jaxmg
