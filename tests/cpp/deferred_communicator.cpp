#include "deferred_communicator.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/communication_error.h"

namespace jaxmg::test {

using deferred::at;
using deferred::pull;
using deferred::spoil;

namespace {

// From here on a message to several ranks goes along a chain, in so many chunks.
constexpr Size kChainBytes = 512;
constexpr Size kChunks = 3;

// Own work in the call's lane, and that of the ranks that read from this one.
class Part final : public DeferredTicket::State {
 public:
  Part(std::shared_ptr<DeferredGroup> group, std::shared_ptr<DeferredCall> call, int rank,
       DeferredEvent own, std::vector<int> readers)
      : group_(std::move(group)),
        call_(std::move(call)),
        rank_(rank),
        own_(std::move(own)),
        readers_(std::move(readers)) {}

  void wait(DeferredLane& lane) override {
    lane.wait(own_);
    for (const int reader : readers_) {
      lane.wait(group_->await(call_, rank_, reader, DeferredStage::done).event);
    }
  }

  void abandon() noexcept override {
    try {
      group_->scheduler().fail("rank " + std::to_string(rank_) + " gave up during a call");
    } catch (const std::exception&) {
      // No memory for the message: peers will be told that nothing can go on.
    }
  }

 private:
  std::shared_ptr<DeferredGroup> group_;
  std::shared_ptr<DeferredCall> call_;
  int rank_;
  DeferredEvent own_;
  std::vector<int> readers_;
};

}  // namespace

namespace deferred {

void spoil(DeferredLane& lane, void* target, Size bytes) {
  if (bytes > 0) {
    lane.put("spoil", [=] { std::memset(target, 0xff, static_cast<std::size_t>(bytes)); });
  }
}

void pull(DeferredLane& lane, const void* source, void* target, Size bytes) {
  if (bytes > 0 && source != target) {
    lane.put("pull", [=] { std::memcpy(target, source, static_cast<std::size_t>(bytes)); });
  }
}

}  // namespace deferred

DeferredGroup::DeferredGroup(std::shared_ptr<Scheduler> scheduler, std::vector<int> members)
    : scheduler_(std::move(scheduler)),
      members_(std::move(members)),
      calls_made_(members_.size(), 0) {}

std::shared_ptr<DeferredGroup> DeferredGroup::subgroup(const std::vector<int>& ranks) const {
  std::vector<int> members;
  members.reserve(ranks.size());
  for (const int r : ranks) {
    members.push_back(members_[static_cast<std::size_t>(r)]);
  }
  return std::make_shared<DeferredGroup>(scheduler_, std::move(members));
}

std::shared_ptr<DeferredCall> DeferredGroup::enter(int rank, const DeferredSignature& signature) {
  scheduler_->check();
  const std::size_t number = calls_made_[static_cast<std::size_t>(rank)]++;
  if (number == calls_.size()) {
    calls_.push_back(std::make_shared<DeferredCall>(DeferredCall{signature, {}}));
  }
  if (calls_[number]->signature != signature) {
    fail("call " + std::to_string(number) + " of rank " + std::to_string(rank) + " is " +
         std::string(signature.name) + " of " + std::to_string(signature.count) +
         " elements, that of a peer " + std::string(calls_[number]->signature.name) + " of " +
         std::to_string(calls_[number]->signature.count));
  }
  return calls_[number];
}

const DeferredOffer& DeferredGroup::await(const std::shared_ptr<DeferredCall>& call, int rank,
                                          int from, DeferredStage stage) {
  const std::pair key{from, stage};
  scheduler_->wait(members_[static_cast<std::size_t>(rank)],
                   "rank " + std::to_string(from) + " in " + std::string(call->signature.name),
                   [call, key] { return call->offers.contains(key); });
  return call->offers.at(key);
}

void DeferredGroup::fail(const std::string& reason) {
  scheduler_->fail(reason);
  throw CommunicationError(reason);
}

std::vector<int> DeferredCommunicator::others() const {
  std::vector<int> ranks;
  for (int i = 1; i < size(); ++i) {
    ranks.push_back((rank_ + i) % size());
  }
  return ranks;
}

DeferredLane& DeferredCommunicator::begin(Lane& given) {
  Scheduler& scheduler = group_->scheduler();
  way_ = &given;
  if (scheduler.schedule().detached) {
    Ways& ways = ways_[&given];
    std::unique_ptr<Lane>& next = ways.lanes[ways.calls++ % ways.lanes.size()];
    if (!next) {
      next = std::make_unique<Lane>(scheduler, group_->member(rank_), LaneKind::messages);
    }
    way_ = next.get();
    way_->wait(given.record());
  }
  return *way_;
}

DeferredCommunicator::Ticket DeferredCommunicator::finish(Lane& given, const Call& call,
                                                          std::vector<int> readers) {
  const DeferredEvent own = way_->record();
  offer(call, Stage::done, {.event = own});
  return Ticket(std::make_unique<Part>(group_, call, rank_, own, std::move(readers)), given);
}

void DeferredCommunicator::barrier() {
  const Call call = enter({.name = "barrier"});
  offer(call, Stage::ready, {});
  for (const int r : others()) {
    await(call, r, Stage::ready);
  }
}

std::unique_ptr<Communicator<Deferred>> DeferredCommunicator::split(int color, int key) {
  const Call call = enter({.name = "split"});
  offer(call, Stage::ready, {.color = color, .key = key});
  std::vector<std::pair<int, int>> order;  // key, rank
  for (int r = 0; r < size(); ++r) {
    const DeferredOffer& other = await(call, r, Stage::ready);
    if (other.color == color) {
      order.emplace_back(other.key, r);
    }
  }
  std::ranges::sort(order);
  std::vector<int> ranks;
  ranks.reserve(order.size());
  for (const auto& member : order) {
    ranks.push_back(member.second);
  }
  const int maker = std::ranges::min(ranks);
  if (rank_ == maker) {
    offer(call, Stage::middle, {.group = group_->subgroup(ranks)});
  }
  const auto place = std::ranges::find(ranks, rank_) - ranks.begin();
  return std::make_unique<DeferredCommunicator>(await(call, maker, Stage::middle).group,
                                                static_cast<int>(place));
}

DeferredCommunicator::Ticket DeferredCommunicator::broadcast(Lane& lane, void* data, Size count,
                                                             DType type, int root, int first) {
  return spread(lane, "broadcast", data, count, type, root, first);
}

DeferredCommunicator::Ticket DeferredCommunicator::publish(Lane& lane, Message& message, Size count,
                                                           DType type, int root, int first) {
  message.view = message.buffer;
  return spread(lane, "publish", message.buffer, count, type, root, first);
}

// All copy from the root, the first one before the others; or each from the one before it.
DeferredCommunicator::Ticket DeferredCommunicator::spread(Lane& given, std::string_view name,
                                                          void* data, Size count, DType type,
                                                          int root, int first) {
  const Call call =
      enter({.name = name, .count = count, .type = type, .root = root, .first = first});
  const Size bytes = count * size_of(type);
  if (size() == 1 || bytes == 0) {
    return {};
  }
  std::vector<int> order{root};
  if (first >= 0 && first != root) {
    order.push_back(first);
  }
  for (int i = 1; i < size(); ++i) {
    if (const int r = (root + i) % size(); r != first) {
      order.push_back(r);
    }
  }
  const bool chain = size() > 2 && bytes >= kChainBytes;
  const Size place = std::ranges::find(order, rank_) - order.begin();
  std::vector<int> readers;
  if (chain && place + 1 < size()) {
    readers = {order[static_cast<std::size_t>(place + 1)]};
  } else if (!chain && rank_ == root) {
    readers = others();
  }
  Lane& lane = begin(given);
  if (rank_ == root) {
    offer(call, Stage::ready, {.event = lane.record(), .data = data});
    return finish(given, call, std::move(readers));
  }
  spoil(lane, data, bytes);
  if (chain) {
    spread_chain(lane, call, data, bytes, order, place);
    return finish(given, call, std::move(readers));
  }
  const DeferredOffer& source = await(call, root, Stage::ready);
  lane.wait(source.event);
  if (size() > 2 && first >= 0 && first != root && first != rank_) {
    lane.wait(await(call, first, Stage::done).event);
  }
  pull(lane, source.data, data, bytes);
  return finish(given, call, {});
}

void DeferredCommunicator::spread_chain(Lane& lane, const Call& call, void* data, Size bytes,
                                        const std::vector<int>& order, Size place) {
  const int before = order[static_cast<std::size_t>(place - 1)];
  const DeferredOffer& source = await(call, before, Stage::ready);
  const Size chunk = ceil_div(bytes, kChunks);
  DeferredOffer mine{.data = data};
  lane.wait(source.event);
  for (Size c = 0; c < kChunks; ++c) {
    const Size begin = std::min(c * chunk, bytes);
    if (place > 1) {
      lane.wait(source.chunks[static_cast<std::size_t>(c)]);
    }
    pull(lane, at(source.data, begin), at(data, begin), std::min(chunk, bytes - begin));
    mine.chunks.push_back(lane.record());
  }
  offer(call, Stage::ready, mine);
}

DeferredCommunicator::Ticket DeferredCommunicator::all_gather(Lane& given, const void* in,
                                                              void* out, Size count, DType type) {
  const Call call = enter({.name = "all_gather", .count = count, .type = type});
  const Size bytes = count * size_of(type);
  Lane& lane = begin(given);
  offer(call, Stage::ready, {.event = lane.record(), .data = in});
  for (const int r : others()) {
    spoil(lane, at(out, r * bytes), bytes);
  }
  pull(lane, in, at(out, rank_ * bytes), bytes);
  for (const int r : others()) {
    const DeferredOffer& source = await(call, r, Stage::ready);
    lane.wait(source.event);
    pull(lane, source.data, at(out, r * bytes), bytes);
  }
  return finish(given, call, others());
}

DeferredCommunicator::Ticket DeferredCommunicator::all_to_all_v(
    Lane& lane, const void* in, std::span<const Size> send_counts,
    std::span<const Size> send_offsets, void* out, std::span<const Size> recv_counts,
    std::span<const Size> recv_offsets, DType type) {
  std::vector<Transfer> sends, receives;
  const Size unit = size_of(type);
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<std::size_t>(r);
    if (send_counts[i] > 0) {
      sends.push_back({const_cast<std::byte*>(at(in, send_offsets[i] * unit)), send_counts[i], r});
    }
    if (recv_counts[i] > 0) {
      receives.push_back({at(out, recv_offsets[i] * unit), recv_counts[i], r});
    }
  }
  return exchange(lane, sends, receives, type);
}

DeferredCommunicator::Ticket DeferredCommunicator::exchange(Lane& given,
                                                            std::span<const Transfer> sends,
                                                            std::span<const Transfer> receives,
                                                            DType type) {
  const Call call = enter({.name = "exchange", .type = type});
  const Size unit = size_of(type);
  Lane& lane = begin(given);
  offer(call, Stage::ready, {.event = lane.record(), .parts = {sends.begin(), sends.end()}});
  for (const Transfer& receive : receives) {
    spoil(lane, receive.buffer, receive.count * unit);
  }
  std::vector<std::size_t> taken(static_cast<std::size_t>(size()), 0);  // of each peer's parts
  for (const Transfer& receive : receives) {
    const DeferredOffer& source = await(call, receive.peer, Stage::ready);
    std::size_t& next = taken[static_cast<std::size_t>(receive.peer)];
    while (next < source.parts.size() && source.parts[next].peer != rank_) {
      ++next;
    }
    if (next == source.parts.size() || source.parts[next].count != receive.count) {
      group_->fail("rank " + std::to_string(receive.peer) + " does not send what rank " +
                   std::to_string(rank_) + " expects");
    }
    lane.wait(source.event);
    pull(lane, source.parts[next++].buffer, receive.buffer, receive.count * unit);
  }
  std::vector<int> readers;
  for (const Transfer& sent : sends) {
    if (sent.peer != rank_ && std::ranges::find(readers, sent.peer) == readers.end()) {
      readers.push_back(sent.peer);
    }
  }
  return finish(given, call, std::move(readers));
}

}  // namespace jaxmg::test
