// Calls of DeferredCommunicator that combine data.
#include <algorithm>
#include <cstring>
#include <utility>

#include "comm/elementwise.h"
#include "deferred_communicator.h"

namespace jaxmg::test {

using deferred::at;
using deferred::pull;

namespace {

// The least part of a reduction that a rank makes for the others.
constexpr Size kLeastSegment = 2;

// out <- the reduction of the operands' elements from `begin` on, in rank order.
void reduce_part(DeferredLane& lane, std::vector<const void*> operands, Size begin, Size count,
                 DType type, Reduction op, void* out) {
  lane.put("reduce", [=, operands = std::move(operands)] {
    const Size unit = size_of(type);
    const auto bytes = static_cast<std::size_t>(count * unit);
    std::vector<std::byte> sum(bytes);
    std::memcpy(sum.data(), at(operands[0], begin * unit), bytes);
    for (std::size_t r = 1; r < operands.size(); ++r) {
      threads::accumulate(type, op, count, at(operands[r], begin * unit), sum.data());
    }
    std::memcpy(out, sum.data(), bytes);
  });
}

}  // namespace

DeferredCommunicator::Operands DeferredCommunicator::await_operands(Lane& lane, const Call& call) {
  Operands operands;
  for (int r = 0; r < size(); ++r) {
    const DeferredOffer& source = await(call, r, Stage::ready);
    lane.wait(source.event);
    operands.push_back(source.data);
  }
  return operands;
}

void DeferredCommunicator::await_read(Lane& lane, const Call& call) {
  offer(call, Stage::middle, {.event = lane.record()});
  for (const int r : others()) {
    lane.wait(await(call, r, Stage::middle).event);
  }
}

DeferredCommunicator::Ticket DeferredCommunicator::reduce(Lane& given, void* data, Size count,
                                                          DType type, Reduction op, int root) {
  const Call call = enter({.name = "reduce", .count = count, .type = type, .root = root, .op = op});
  if (size() == 1 || count == 0) {
    return {};
  }
  Lane& lane = begin(given);
  offer(call, Stage::ready, {.event = lane.record(), .data = data});
  if (rank_ != root) {
    return finish(given, call, {root});
  }
  reduce_part(lane, await_operands(lane, call), 0, count, type, op, data);
  return finish(given, call, {});
}

// Each rank makes a segment in its own data; the others copy it from there.
DeferredCommunicator::Ticket DeferredCommunicator::all_reduce(Lane& given, void* data, Size count,
                                                              DType type, Reduction op) {
  const Call call = enter({.name = "all_reduce", .count = count, .type = type, .op = op});
  if (size() == 1 || count == 0) {
    return {};
  }
  const Size unit = size_of(type);
  const Size segment = std::max(ceil_div(count, size()), kLeastSegment);
  const auto begin_of = [&](int r) { return std::min(r * segment, count); };
  const auto count_of = [&](int r) { return begin_of(r + 1) - begin_of(r); };
  const auto place_of = [&](int r) { return at(data, begin_of(r) * unit); };
  Lane& lane = begin(given);
  offer(call, Stage::ready, {.event = lane.record(), .data = data});
  if (count_of(rank_) > 0) {
    reduce_part(lane, await_operands(lane, call), begin_of(rank_), count_of(rank_), type, op,
                place_of(rank_));
    offer(call, Stage::middle, {.event = lane.record(), .data = place_of(rank_)});
  }
  for (const int r : others()) {
    if (count_of(r) > 0) {
      const DeferredOffer& source = await(call, r, Stage::middle);
      lane.wait(source.event);
      pull(lane, source.data, place_of(r), count_of(r) * unit);
    }
  }
  return finish(given, call, count_of(rank_) > 0 ? others() : std::vector<int>{});
}

DeferredCommunicator::Ticket DeferredCommunicator::reduce_scatter(Lane& given, const void* in,
                                                                  void* out, Size count, DType type,
                                                                  Reduction op) {
  const Call call = enter({.name = "reduce_scatter", .count = count, .type = type, .op = op});
  if (count == 0) {
    return {};
  }
  Lane& lane = begin(given);
  offer(call, Stage::ready, {.event = lane.record(), .data = in});
  reduce_part(lane, await_operands(lane, call), rank_ * count, count, type, op, out);
  return finish(given, call, others());
}

DeferredCommunicator::Ticket DeferredCommunicator::min_location(Lane& lane, void* value,
                                                                std::int64_t* location,
                                                                DType type) {
  return locate(lane, "min_location", value, location, type, Reduction::min);
}

DeferredCommunicator::Ticket DeferredCommunicator::max_location(Lane& lane, void* value,
                                                                std::int64_t* location,
                                                                DType type) {
  return locate(lane, "max_location", value, location, type, Reduction::max);
}

// The result waits beside the operands until all ranks have read them.
DeferredCommunicator::Ticket DeferredCommunicator::locate(Lane& given, std::string_view name,
                                                          void* value, std::int64_t* location,
                                                          DType type, Reduction op) {
  struct Entry {
    double value = 0;  // room for any type
    std::int64_t location = 0;
  };
  const Call call = enter({.name = name, .type = type, .op = op});
  Lane& lane = begin(given);
  offer(call, Stage::ready, {.event = lane.record(), .data = value, .more = location});
  const Operands values = await_operands(lane, call);
  Operands locations;
  for (int r = 0; r < size(); ++r) {
    locations.push_back(await(call, r, Stage::ready).more);
  }
  const auto unit = static_cast<std::size_t>(size_of(type));
  const auto best = std::make_shared<Entry>();
  lane.put("locate", [=] {
    std::vector<Entry> entries(values.size());
    std::vector<threads::Located> located;
    for (std::size_t r = 0; r < entries.size(); ++r) {
      std::memcpy(&entries[r].value, values[r], unit);
      std::memcpy(&entries[r].location, locations[r], sizeof(std::int64_t));
      located.push_back({&entries[r].value, &entries[r].location});
    }
    threads::locate_extreme(type, op, located);
    *best = entries[0];
  });
  await_read(lane, call);
  lane.put("locate", [=] {
    std::memcpy(value, &best->value, unit);
    *location = best->location;
  });
  return finish(given, call, {});
}

DeferredCommunicator::Ticket DeferredCommunicator::agree(Lane& given, Info* info) {
  const Call call = enter({.name = "agree"});
  if (size() == 1) {
    return {};
  }
  Lane& lane = begin(given);
  offer(call, Stage::ready, {.event = lane.record(), .data = info});
  const Operands operands = await_operands(lane, call);
  const auto least = std::make_shared<Info>();
  lane.put("agree", [=] {
    const auto info_of = [](const void* p) { return *static_cast<const Info*>(p); };
    *least = info_of(*std::ranges::min_element(
        operands, {}, [&](const void* p) { return severity(info_of(p)); }));
  });
  await_read(lane, call);
  lane.put("agree", [=] { *info = *least; });
  return finish(given, call, {});
}

}  // namespace jaxmg::test
