// Calls of PeerCommunicator that move data as it is.
#include <algorithm>
#include <string>
#include <utility>

#include "comm/cuda/peer_communicator.h"

namespace jaxmg {

using peers::Offer;

namespace {

// From here on a broadcast to several ranks is cut in chunks that follow each other along a chain.
constexpr Size kChainBytes = Size{4} << 20;
constexpr Size kChunkBytes = Size{8} << 20;
constexpr Size kMaxChunks = 32;

// The ranks in the order of the chain: the root, the one that needs the data first, all others.
std::vector<int> chain_order(int size, int root, int first) {
  std::vector<int> order{root};
  if (first >= 0 && first < size && first != root) {
    order.push_back(first);
  }
  for (int i = 1; i < size; ++i) {
    const int r = (root + i) % size;
    if (r != first) {
      order.push_back(r);
    }
  }
  return order;
}

}  // namespace

PeerCommunicator::Ticket PeerCommunicator::broadcast(Lane& lane, void* data, Size count, DType type,
                                                     int root, int first) {
  return spread(lane, "broadcast", data, count, type, root, first);
}

// Every reader copies: reading a peer's memory over and over would cost the link each time.
PeerCommunicator::Ticket PeerCommunicator::publish(Lane& lane, Message& message, Size count,
                                                   DType type, int root, int first) {
  message.view = message.buffer;
  return spread(lane, "publish", message.buffer, count, type, root, first);
}

PeerCommunicator::Ticket PeerCommunicator::spread(Lane& lane, std::string_view name, void* data,
                                                  Size count, DType type, int root, int first) {
  check_rank(root, "broadcast");
  const Call call =
      enter({.name = name, .count = count, .type = type, .root = root, .first = first});
  const Size bytes = count * size_of(type);
  if (size() == 1 || bytes == 0) {
    return {};
  }
  if (size() > 2 && bytes >= kChainBytes) {
    return spread_chain(lane, call, data, bytes, root, first);
  }
  return spread_star(lane, call, data, bytes, root, first);
}

// All ranks copy from the root, the first one before the others.
PeerCommunicator::Ticket PeerCommunicator::spread_star(Lane& lane, const Call& call, void* data,
                                                       Size bytes, int root, int first) {
  if (rank_ == root) {
    offer(call, Stage::ready, {.event = lane.record(), .data = data});
    return finish(lane, call, others());
  }
  const Offer& source = await(call, root, Stage::ready);
  lane.wait(source.event);
  if (size() > 2 && first >= 0 && first < size() && first != root && first != rank_) {
    lane.wait(await(call, first, Stage::done).event);
  }
  pull(lane, root, source.data, data, bytes);
  return finish(lane, call, {});
}

// Each rank copies from the one before it in the chain, chunk by chunk.
PeerCommunicator::Ticket PeerCommunicator::spread_chain(Lane& lane, const Call& call, void* data,
                                                        Size bytes, int root, int first) {
  const std::vector<int> order = chain_order(size(), root, first);
  const auto place = std::ranges::find(order, rank_);
  const std::vector<int> next =
      place + 1 == order.end() ? std::vector<int>{} : std::vector{*(place + 1)};
  if (rank_ == root) {
    offer(call, Stage::ready, {.event = lane.record(), .data = data});
    return finish(lane, call, next);
  }
  const int before = *(place - 1);
  const Offer& source = await(call, before, Stage::ready);
  const Size chunks = std::clamp<Size>(bytes / kChunkBytes, 1, kMaxChunks);
  const Size chunk = round_up(ceil_div(bytes, chunks), 256);
  Offer mine{.data = data};
  lane.wait(source.event);  // the root's; the others' chunks come one by one
  for (Size c = 0, begin = 0; begin < bytes; ++c, begin += chunk) {
    if (before != root) {
      lane.wait(source.chunks[static_cast<std::size_t>(c)]);
    }
    pull(lane, before, static_cast<const char*>(source.data) + begin,
         static_cast<char*>(data) + begin, std::min(chunk, bytes - begin));
    if (!next.empty()) {
      mine.chunks.push_back(lane.record());
    }
  }
  offer(call, Stage::ready, std::move(mine));
  return finish(lane, call, next);
}

PeerCommunicator::Ticket PeerCommunicator::all_gather(Lane& lane, const void* in, void* out,
                                                      Size count, DType type) {
  const Call call = enter({.name = "all_gather", .count = count, .type = type});
  const Size bytes = count * size_of(type);
  offer(call, Stage::ready, {.event = lane.record(), .data = in});
  char* const target = static_cast<char*>(out);
  pull(lane, rank_, in, target + rank_ * bytes, bytes);
  for (const int r : others()) {
    const Offer& source = await(call, r, Stage::ready);
    lane.wait(source.event);
    pull(lane, r, source.data, target + r * bytes, bytes);
  }
  return finish(lane, call, others());
}

PeerCommunicator::Ticket PeerCommunicator::all_to_all_v(
    Lane& lane, const void* in, std::span<const Size> send_counts,
    std::span<const Size> send_offsets, void* out, std::span<const Size> recv_counts,
    std::span<const Size> recv_offsets, DType type) {
  std::vector<Transfer> sends;
  std::vector<Transfer> receives;
  const Size unit = size_of(type);
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (send_counts[i] > 0) {
      // The buffer is read only; Transfer serves both directions.
      char* const block = const_cast<char*>(static_cast<const char*>(in)) + send_offsets[i] * unit;
      sends.push_back({block, send_counts[i], r});
    }
    if (recv_counts[i] > 0) {
      receives.push_back({static_cast<char*>(out) + recv_offsets[i] * unit, recv_counts[i], r});
    }
  }
  return exchange(lane, sends, receives, type);
}

PeerCommunicator::Ticket PeerCommunicator::exchange(Lane& lane, std::span<const Transfer> sends,
                                                    std::span<const Transfer> receives,
                                                    DType type) {
  for (const Transfer& t : sends) {
    check_rank(t.peer, "exchange");
  }
  for (const Transfer& t : receives) {
    check_rank(t.peer, "exchange");
  }
  const Call call = enter({.name = "exchange", .type = type});
  std::vector<int> readers;
  for (const Transfer& t : sends) {
    if (t.peer != rank_ && std::ranges::find(readers, t.peer) == readers.end()) {
      readers.push_back(t.peer);
    }
  }
  offer(call, Stage::ready,
        {.event = lane.record(), .parts = std::vector<Transfer>(sends.begin(), sends.end())});
  std::vector<int> sources = others();
  sources.push_back(rank_);
  for (const int r : sources) {
    const auto from_r = [r](const Transfer& t) { return t.peer == r; };
    if (std::ranges::none_of(receives, from_r)) {
      continue;
    }
    const Offer& source = await(call, r, Stage::ready);
    lane.wait(source.event);
    auto part = source.parts.begin();
    for (const Transfer& receive : receives) {
      if (receive.peer != r) {
        continue;
      }
      part = std::find_if(part, source.parts.end(),
                          [this](const Transfer& t) { return t.peer == rank_; });
      if (part == source.parts.end() || part->count != receive.count) {
        group_->mismatch("rank " + std::to_string(rank_) + " expects " +
                         std::to_string(receive.count) + " elements from rank " +
                         std::to_string(r) + ", which sends " +
                         (part == source.parts.end() ? "none" : std::to_string(part->count)));
      }
      pull(lane, r, part->buffer, receive.buffer, receive.count * size_of(type));
      ++part;
    }
  }
  return finish(lane, call, std::move(readers));
}

}  // namespace jaxmg
