#include "comm/thread_collective.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/elementwise.h"

namespace jaxmg::threads {

Collective::Collective(Team& team, const Signature& signature)
    : Operation(team, signature),
      arrived_(static_cast<std::size_t>(team.size()), false),
      excused_(static_cast<std::size_t>(team.size()), false),
      missing_(team.size()) {}

void Collective::join(int rank) {
  arrived_[static_cast<std::size_t>(rank)] = true;
  if (--missing_ > 0) {
    return;
  }
  chunks_ = begin();
  // No more threads than there are chunks: the others are woken when all is done.
  Size awake = chunks_;
  for (int r = 0; r < team_.size(); ++r) {
    if (chunks_ == 0 || awake > 0) {
      awake -= team_.wake(r, *this) ? 1 : 0;
    }
  }
}

bool Collective::complete(int rank) const {
  return excused_[static_cast<std::size_t>(rank)] || (missing_ == 0 && done_ == chunks_);
}

bool Collective::claim(int, Work& work) {
  if (missing_ > 0 || claimed_ == chunks_) {
    return false;
  }
  work.chunk = claimed_++;
  ++active_;
  return true;
}

void Collective::finish(const Work&) {
  ++done_;
  --active_;
  if (done_ == chunks_ || (active_ == 0 && team_.failed())) {
    for (int r = 0; r < team_.size(); ++r) {
      team_.wake(r, *this);
    }
  }
}

std::vector<int> Collective::missing(int) const {
  std::vector<int> ranks;
  for (int r = 0; r < team_.size(); ++r) {
    if (!arrived_[static_cast<std::size_t>(r)]) {
      ranks.push_back(r);
    }
  }
  return ranks;
}

Reduce::Reduce(Team& team, const Signature& signature)
    : Collective(team, signature),
      scatters_(signature.call == Call::reduce_scatter),
      blocks_(scatters_ ? team.size() : 1),
      chunk_elements_(chunk_bytes / size_of(signature.type)),
      chunks_of_block_(ceil_div(signature.count, chunk_elements_)),
      parts_(static_cast<std::size_t>(team.size())) {}

void Reduce::post(int rank, const void* in, void* out) {
  Part& mine = parts_[static_cast<std::size_t>(rank)];
  mine.in = static_cast<const std::byte*>(in);
  mine.out = static_cast<std::byte*>(out);
  const Size bytes = signature().count * size_of(signature().type);
  if (signature().call == Call::reduce && rank != signature().root && bytes <= small) {
    mine.taken_along.assign(mine.in, mine.in + bytes);
    mine.in = mine.taken_along.data();
    excuse(rank);
  }
  join(rank);
}

Size Reduce::begin() {
  const Size chunks = blocks_ * chunks_of_block_;
  const Size bytes = blocks_ * signature().count * size_of(signature().type) * team_.size();
  if (bytes > 8 * small) {
    return chunks;
  }
  for (Size chunk = 0; chunk < chunks; ++chunk) {
    run_chunk(chunk);
  }
  return 0;
}

// out_i <- ((in_i of rank 0 + in_i of rank 1) + in_i of rank 2) + ..., once for all ranks, for the
// elements i of one chunk. All inputs are read before any output is written, since a rank may use
// one buffer for both.
void Reduce::run_chunk(Size chunk) {
  const DType type = signature().type;
  const Size block = chunk / chunks_of_block_;
  const Size begin = (chunk % chunks_of_block_) * chunk_elements_;
  const Size count = std::min(chunk_elements_, signature().count - begin);
  const auto bytes = static_cast<std::size_t>(count * size_of(type));
  const Size in_offset = (block * signature().count + begin) * size_of(type);
  const Size out_offset = begin * size_of(type);

  alignas(64) std::array<std::byte, static_cast<std::size_t>(chunk_bytes)> result;
  std::memcpy(result.data(), parts_[0].in + in_offset, bytes);
  for (std::size_t r = 1; r < parts_.size(); ++r) {
    accumulate(type, signature().op, count, parts_[r].in + in_offset, result.data());
  }
  for (std::size_t r = 0; r < parts_.size(); ++r) {
    const bool receives = scatters_
                              ? static_cast<Size>(r) == block
                              : signature().root < 0 || static_cast<int>(r) == signature().root;
    if (receives) {
      std::memcpy(parts_[r].out + out_offset, result.data(), bytes);
    }
  }
}

}  // namespace jaxmg::threads
