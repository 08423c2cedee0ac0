#include "comm/thread_exchange.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

namespace jaxmg::threads {

namespace {

void sort_by_peer(std::vector<Block>& blocks) {
  const auto by_peer = [](const Block& a, const Block& b) { return a.peer < b.peer; };
  if (!std::is_sorted(blocks.begin(), blocks.end(), by_peer)) {
    std::stable_sort(blocks.begin(), blocks.end(), by_peer);
  }
}

std::span<Block> blocks_of(std::vector<Block>& blocks, int peer) {
  const auto [begin, end] = std::ranges::equal_range(blocks, peer, {}, &Block::peer);
  return {begin, end};
}

Size count_nonempty(const std::vector<Block>& blocks) {
  return std::count_if(blocks.begin(), blocks.end(), [](const Block& b) { return b.bytes > 0; });
}

void copy_bytes(const std::byte* source, std::byte* target, Size bytes) {
  if (source != target) {
    std::memmove(target, source, static_cast<std::size_t>(bytes));
  }
}

[[noreturn]] void fail_to_match(int sender, int receiver, const char* what, Size sent,
                                Size expected) {
  throw CommunicationError("rank " + std::to_string(sender) + " sends " + std::to_string(sent) +
                               " " + what + " to rank " + std::to_string(receiver) +
                               ", which expects " + std::to_string(expected),
                           Kind::mismatched_calls);
}

}  // namespace

Exchange::Exchange(Team& team, const Signature& signature)
    : Operation(team, signature), parts_(static_cast<std::size_t>(team.size())) {}

void Exchange::post(int rank, std::vector<Block> sends, std::vector<Block> receives, int first) {
  Part& mine = part(rank);
  mine.arrived = true;
  mine.sends = std::move(sends);
  mine.receives = std::move(receives);
  sort_by_peer(mine.sends);
  sort_by_peer(mine.receives);
  mine.remaining = count_nonempty(mine.sends) + count_nonempty(mine.receives);

  const auto meet = [&](int peer) {
    if (!part(peer).arrived) {
      return;
    }
    const std::size_t ready = ready_.size();
    match(rank, peer);
    if (peer != rank) {
      match(peer, rank);
      if (ready_.size() > ready || complete(peer)) {
        team_.wake(peer, *this);
      }
    }
  };
  if (first >= 0) {
    meet(first);
  }
  for (int peer = 0; peer < team_.size(); ++peer) {
    if (peer != first) {
      meet(peer);
    }
  }
  take_along(rank);
}

// Both ranks are there: copies what is small, and makes work of the rest.
void Exchange::match(int sender, int receiver) {
  const std::span<Block> sent = blocks_of(part(sender).sends, receiver);
  const std::span<Block> expected = blocks_of(part(receiver).receives, sender);
  if (sent.size() != expected.size()) {
    fail_to_match(sender, receiver, "messages", static_cast<Size>(sent.size()),
                  static_cast<Size>(expected.size()));
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const Block& from = sent[i];
    const Block& to = expected[i];
    if (from.bytes != to.bytes) {
      fail_to_match(sender, receiver, "bytes", from.bytes, to.bytes);
    }
    if (from.bytes == 0) {
      continue;
    }
    if (from.bytes <= small) {
      copy_bytes(from.data, to.data, from.bytes);
      part(sender).remaining -= from.taken_along ? 0 : 1;
      --part(receiver).remaining;
    } else {
      ready_.push_back({from.data, to.data, from.bytes, sender, receiver});
    }
  }
}

// Leaves copies of the small blocks whose receivers are not there yet. Blocks sent to several
// receivers (broadcast, all_gather) are next to each other and need one copy.
void Exchange::take_along(int rank) {
  Part& mine = part(rank);
  const auto needs_copy = [&](const Block& b) {
    return b.bytes > 0 && b.bytes <= small && !part(b.peer).arrived;
  };
  Block last;
  const auto is_last = [&](const Block& b) { return b.data == last.data && b.bytes == last.bytes; };
  Size total = 0;
  for (const Block& b : mine.sends) {
    if (needs_copy(b) && !is_last(b)) {
      last = b;
      total += b.bytes;
    }
  }
  mine.taken_along.resize(static_cast<std::size_t>(total));
  std::byte* end = mine.taken_along.data();
  last = {};
  for (Block& b : mine.sends) {
    if (!needs_copy(b)) {
      continue;
    }
    if (!is_last(b)) {
      last = b;
      copy_bytes(b.data, end, b.bytes);
      end += b.bytes;
    }
    b.data = end - b.bytes;
    b.taken_along = true;
    --mine.remaining;
  }
}

bool Exchange::complete(int rank) const {
  return part(rank).arrived && part(rank).remaining == 0;
}

bool Exchange::claim(int rank, Work& work) {
  auto found = std::ranges::find(ready_, rank, &Work::receiver);
  if (found == ready_.end()) {
    found = std::ranges::find(ready_, rank, &Work::sender);
  }
  if (found == ready_.end()) {
    return false;
  }
  work = *found;
  ready_.erase(found);
  ++part(work.sender).active;
  ++part(work.receiver).active;
  return true;
}

void Exchange::run(const Work& work) {
  copy_bytes(work.source, work.target, work.bytes);
}

void Exchange::finish(const Work& work) {
  for (const int rank : {work.sender, work.receiver}) {
    Part& p = part(rank);
    --p.active;
    --p.remaining;
    if (p.remaining == 0 || (p.active == 0 && team_.failed())) {
      team_.wake(rank, *this);
    }
  }
}

bool Exchange::busy(int rank) const {
  return part(rank).active > 0;
}

std::vector<int> Exchange::missing(int rank) const {
  std::vector<int> ranks;
  for (const std::vector<Block>* blocks : {&part(rank).sends, &part(rank).receives}) {
    for (const Block& b : *blocks) {
      if (b.bytes > 0 && !b.taken_along && !part(b.peer).arrived) {
        ranks.push_back(b.peer);
      }
    }
  }
  std::ranges::sort(ranks);
  const auto repeated = std::ranges::unique(ranks);
  ranks.erase(repeated.begin(), repeated.end());
  return ranks;
}

Publish::Publish(Team& team, const Signature& signature)
    : Operation(team, signature),
      root_(signature.root),
      readers_left_(team.size() - 1),
      readers_(static_cast<std::size_t>(team.size())) {}

void Publish::post(int rank, Message& message, int first) {
  if (rank != root_) {
    readers_[static_cast<std::size_t>(rank)] = {&message, State::arrived};
    return;
  }
  message.view = message.buffer;
  view_ = message.buffer;
  published_ = true;
  if (first >= 0) {
    team_.wake(first, *this);
  }
  for (int reader = 0; reader < team_.size(); ++reader) {
    team_.wake(reader, *this);
  }
}

// After a failure the root waits for no reader that has not begun, so none may begin then.
bool Publish::complete(int rank) const {
  return rank == root_ ? readers_left_ == 0 : published_ && !team_.failed();
}

bool Publish::busy(int rank) const {
  return rank == root_ && reading_ > 0;
}

std::vector<int> Publish::missing(int rank) const {
  if (rank != root_) {
    return {root_};
  }
  std::vector<int> ranks;
  for (int reader = 0; reader < team_.size(); ++reader) {
    if (reader != root_ && readers_[static_cast<std::size_t>(reader)].state != State::released) {
      ranks.push_back(reader);
    }
  }
  return ranks;
}

void Publish::waited(int rank) {
  Reader& reader = readers_[static_cast<std::size_t>(rank)];
  if (rank != root_ && reader.state == State::arrived) {
    reader.message->view = view_;
    reader.state = State::reading;
    ++reading_;
  }
}

void Publish::dropped(int rank) {
  Reader& reader = readers_[static_cast<std::size_t>(rank)];
  if (rank == root_ || reader.state == State::released) {
    return;
  }
  reading_ -= reader.state == State::reading ? 1 : 0;
  reader.state = State::released;
  --readers_left_;
  if (readers_left_ == 0 || (reading_ == 0 && team_.failed())) {
    team_.wake(root_, *this);
  }
}

}  // namespace jaxmg::threads
