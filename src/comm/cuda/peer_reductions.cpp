// Calls of PeerCommunicator that combine data.
#include <algorithm>
#include <stdexcept>
#include <utility>

#include "comm/cuda/peer_communicator.h"

namespace jaxmg {

using peers::Offer;
using peers::Sources;

namespace {

constexpr Size kAlignment = 256;
// Start of the staging block, where results of small calls stay until all ranks have read.
constexpr Size kResultBytes = 1024;
// The least that is worth a copy of its own: small reductions are made by few ranks.
constexpr Size kLeastSegment = 1024;

void check_reduction(DType type, Reduction op) {
  if (is_complex(type) && op != Reduction::sum) {
    throw std::invalid_argument("complex values have no extremes");
  }
}

const void* advanced(const void* p, Size bytes) {
  return static_cast<const char*>(p) + bytes;
}

}  // namespace

std::vector<const void*> PeerCommunicator::await_operands(Lane& lane, const Call& call) {
  std::vector<const void*> operands;
  for (int r = 0; r < size(); ++r) {
    const Offer& source = await(call, r, Stage::ready);
    lane.wait(source.event);
    operands.push_back(source.data);
  }
  return operands;
}

void PeerCommunicator::reduce_part(Lane& lane, const std::vector<const void*>& operands, Size begin,
                                   Size count, DType type, Reduction op, void* out) {
  const Size unit = size_of(type);
  Sources sources{.size = size()};
  if (group_->direct()) {
    for (int r = 0; r < size(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      sources.data[i] = advanced(operands[i], begin * unit);
    }
    peers::reduce(lane, sources, count, type, op, out);
    return;
  }
  // Chunks of all operands side by side in the staging block.
  const tile::CudaStaging::Use use(staging_, lane);
  const Size slot = (staging_.bytes() - kResultBytes) / size() / kAlignment * kAlignment;
  const Size chunk = slot / unit;
  for (Size done = 0; done < count; done += chunk) {
    const Size part = std::min(chunk, count - done);
    for (int r = 0; r < size(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      const void* const source = advanced(operands[i], (begin + done) * unit);
      char* const place = staging_.data() + kResultBytes + r * slot;
      if (r != rank_) {
        pull(lane, r, source, place, part * unit);
      }
      sources.data[i] = r == rank_ ? source : place;
    }
    peers::reduce(lane, sources, part, type, op, static_cast<char*>(out) + done * unit);
  }
}

PeerCommunicator::Ticket PeerCommunicator::reduce(Lane& lane, void* data, Size count, DType type,
                                                  Reduction op, int root) {
  check_rank(root, "reduce");
  check_reduction(type, op);
  const Call call = enter({.name = "reduce", .count = count, .type = type, .root = root, .op = op});
  if (size() == 1 || count == 0) {
    return {};
  }
  offer(call, Stage::ready, {.event = lane.record(), .data = data});
  if (rank_ != root) {
    return finish(lane, call, {root});
  }
  reduce_part(lane, await_operands(lane, call), 0, count, type, op, data);
  return finish(lane, call, {});
}

// Each rank reduces a segment, into its own data, and copies the other segments from where they
// were made. No other rank reads a segment's operands, and a copy follows the event of the rank
// that has read what it overwrites.
PeerCommunicator::Ticket PeerCommunicator::all_reduce(Lane& lane, void* data, Size count,
                                                      DType type, Reduction op) {
  check_reduction(type, op);
  const Call call = enter({.name = "all_reduce", .count = count, .type = type, .op = op});
  if (size() == 1 || count == 0) {
    return {};
  }
  const Size unit = size_of(type);
  const Size segment = std::max(ceil_div(count, size()), kLeastSegment);
  const auto begin_of = [&](int r) { return std::min(r * segment, count); };
  const auto count_of = [&](int r) { return begin_of(r + 1) - begin_of(r); };
  const auto place_of = [&](int r) { return static_cast<char*>(data) + begin_of(r) * unit; };

  offer(call, Stage::ready, {.event = lane.record(), .data = data});
  const bool makes_one = count_of(rank_) > 0;
  if (makes_one) {
    reduce_part(lane, await_operands(lane, call), begin_of(rank_), count_of(rank_), type, op,
                place_of(rank_));
    offer(call, Stage::middle, {.event = lane.record(), .data = place_of(rank_)});
  }
  for (const int r : others()) {
    if (count_of(r) > 0) {
      const Offer& source = await(call, r, Stage::middle);
      lane.wait(source.event);
      pull(lane, r, source.data, place_of(r), count_of(r) * unit);
    }
  }
  return finish(lane, call, makes_one ? others() : std::vector<int>{});
}

PeerCommunicator::Ticket PeerCommunicator::reduce_scatter(Lane& lane, const void* in, void* out,
                                                          Size count, DType type, Reduction op) {
  check_reduction(type, op);
  const Call call = enter({.name = "reduce_scatter", .count = count, .type = type, .op = op});
  if (count == 0) {
    return {};
  }
  offer(call, Stage::ready, {.event = lane.record(), .data = in});
  reduce_part(lane, await_operands(lane, call), rank_ * count, count, type, op, out);
  return finish(lane, call, others());
}

Sources PeerCommunicator::readable(Lane& lane, const std::vector<const void*>& operands, Size bytes,
                                   char* staging) {
  Sources sources{.size = size()};
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    sources.data[i] = operands[i];
    if (!group_->direct() && r != rank_) {
      pull(lane, r, operands[i], staging + r * bytes, bytes);
      sources.data[i] = staging + r * bytes;
    }
  }
  return sources;
}

void PeerCommunicator::await_read(Lane& lane, const Call& call) {
  offer(call, Stage::middle, {.event = lane.record()});
  for (const int r : others()) {
    lane.wait(await(call, r, Stage::middle).event);
  }
}

PeerCommunicator::Ticket PeerCommunicator::agree(Lane& lane, Info* info) {
  const Call call = enter({.name = "agree"});
  if (size() == 1) {
    return {};
  }
  offer(call, Stage::ready, {.event = lane.record(), .data = info});
  const auto operands = await_operands(lane, call);
  const tile::CudaStaging::Use use(staging_, lane);
  Info* const result = reinterpret_cast<Info*>(staging_.data());
  peers::least_severe(lane, readable(lane, operands, sizeof(Info), staging_.data() + kResultBytes),
                      result);
  await_read(lane, call);
  pull(lane, rank_, result, info, sizeof(Info));
  return finish(lane, call, {});
}

PeerCommunicator::Ticket PeerCommunicator::min_location(Lane& lane, void* value,
                                                        std::int64_t* location, DType type) {
  return locate(lane, "min_location", value, location, type, Reduction::min);
}

PeerCommunicator::Ticket PeerCommunicator::max_location(Lane& lane, void* value,
                                                        std::int64_t* location, DType type) {
  return locate(lane, "max_location", value, location, type, Reduction::max);
}

PeerCommunicator::Ticket PeerCommunicator::locate(Lane& lane, std::string_view name, void* value,
                                                  std::int64_t* location, DType type,
                                                  Reduction op) {
  check_reduction(type, op);
  const Call call = enter({.name = name, .type = type, .op = op});
  offer(call, Stage::ready, {.event = lane.record(), .data = value, .more = location});
  const auto values = await_operands(lane, call);
  std::vector<const void*> locations;
  locations.reserve(static_cast<std::size_t>(size()));
  for (int r = 0; r < size(); ++r) {
    locations.push_back(await(call, r, Stage::ready).more);
  }
  const tile::CudaStaging::Use use(staging_, lane);
  char* const pulled = staging_.data() + kResultBytes;
  const Size unit = size_of(type);
  auto* const best_location = reinterpret_cast<std::int64_t*>(staging_.data());
  void* const best = staging_.data() + sizeof(std::int64_t);
  peers::locate_extreme(
      lane, readable(lane, values, unit, pulled),
      readable(lane, locations, sizeof(std::int64_t), pulled + peers::kMaxRanks * Size{8}), type,
      op, best, best_location);
  await_read(lane, call);
  pull(lane, rank_, best, value, unit);
  pull(lane, rank_, best_location, location, sizeof(std::int64_t));
  return finish(lane, call, {});
}

}  // namespace jaxmg
