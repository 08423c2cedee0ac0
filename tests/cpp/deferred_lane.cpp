#include "deferred_lane.h"

#include <algorithm>
#include <utility>

#include "comm/communication_error.h"

namespace jaxmg::test {
namespace {

const char* name_of(LaneKind kind) {
  switch (kind) {
    case LaneKind::panel:
      return "panel";
    case LaneKind::update:
      return "update";
    case LaneKind::copy:
      return "copy";
    case LaneKind::side:
      return "side";
    case LaneKind::messages:
      return "messages";
  }
  return "?";
}

const char* name_of(Schedule::Choice choice) {
  switch (choice) {
    case Schedule::Choice::as_enqueued:
      return "as enqueued";
    case Schedule::Choice::random:
      return "random";
    case Schedule::Choice::priorities:
      return "priorities";
    case Schedule::Choice::last:
      return "last";
    case Schedule::Choice::first:
      return "first";
  }
  return "?";
}

// Priorities change about once in so many items.
constexpr Size kChangeEvery = 12;

}  // namespace

std::string Schedule::name() const {
  std::string text(name_of(choice));
  if (kind) {
    text.append(", lane ").append(name_of(*kind));
  }
  if (rank) {
    text.append(", rank ").append(std::to_string(*rank));
  }
  return text + (detached ? ", messages apart" : "") + ", seed " + std::to_string(seed);
}

bool Schedule::names(int r, LaneKind k) const {
  return (!kind || *kind == k) && (!rank || *rank == r);
}

std::vector<Schedule> schedules(int ranks, int seeds) {
  using Choice = Schedule::Choice;
  constexpr LaneKind kinds[] = {LaneKind::panel, LaneKind::update, LaneKind::copy, LaneKind::side};
  std::vector<Schedule> all{{Choice::as_enqueued}};
  std::uint64_t seed = 0;
  for (const bool detached : {false, true}) {
    for (int i = 0; i < seeds; ++i) {
      all.push_back({Choice::random, ++seed, {}, {}, detached});
      all.push_back({Choice::priorities, ++seed, {}, {}, detached});
    }
    for (const Choice choice : {Choice::last, Choice::first}) {
      for (const LaneKind kind : kinds) {
        all.push_back({choice, ++seed, kind, {}, detached});
      }
      for (int r = 0; ranks > 1 && r < ranks; ++r) {
        all.push_back({choice, ++seed, {}, r, detached});
      }
    }
  }
  all.push_back({Choice::last, ++seed, LaneKind::messages, {}, true});
  for (int r = 0; ranks > 1 && r < ranks; ++r) {
    for (const LaneKind kind : kinds) {
      all.push_back({Choice::last, ++seed, kind, r, false});
    }
    all.push_back({Choice::last, ++seed, LaneKind::messages, r, true});
  }
  return all;
}

bool DeferredEvent::over() const {
  return !queue_ || queue_->done >= place_;
}

std::string DeferredEvent::name() const {
  return queue_ ? "item " + std::to_string(place_) + " of " + queue_->name() : "nothing";
}

std::string DeferredQueue::name() const {
  return "rank " + std::to_string(rank) + "'s " + name_of(kind) + " lane";
}

Scheduler::Scheduler(int ranks, const Schedule& schedule)
    : schedule_(schedule), hosts_(static_cast<std::size_t>(ranks)), state_(schedule.seed) {}

// Lanes that wait for each other, after a failure, hold each other.
Scheduler::~Scheduler() {
  for (const auto& queue : queues_) {
    queue->items.clear();
  }
}

// In 0 .. count - 1.
Size Scheduler::random(Size count) {
  state_ += 0x9E3779B97F4A7C15ull;
  std::uint64_t x = state_;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  x ^= x >> 31;
  return static_cast<Size>(x % static_cast<std::uint64_t>(count));
}

void Scheduler::begin(int rank) {
  std::unique_lock lock(mutex_);
  host(rank).its_turn.wait(lock, [&] { return turn_ == rank; });
}

void Scheduler::end(int rank) {
  const std::lock_guard lock(mutex_);
  host(rank).ended = true;
  pass_on();
}

void Scheduler::wait(int rank, std::string what, std::function<bool()> until) {
  std::unique_lock lock(mutex_);
  if (!failure_ && !until()) {
    Host& mine = host(rank);
    mine.waits_for = std::move(what);
    mine.until = std::move(until);
    pass_on();
    mine.its_turn.wait(lock, [&] { return turn_ == rank; });
    mine.until = nullptr;
  }
  if (failure_) {
    throw CommunicationError(*failure_);
  }
}

void Scheduler::fail(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  fail_locked(reason);
}

void Scheduler::fail_locked(const std::string& reason) {
  if (!failure_) {
    failure_ = reason;
  }
}

void Scheduler::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    throw CommunicationError(*failure_);
  }
}

std::shared_ptr<DeferredQueue> Scheduler::make_queue(int rank, LaneKind kind) {
  const std::lock_guard lock(mutex_);
  auto queue = std::make_shared<DeferredQueue>(rank, kind);
  queue->priority = random(1 << 20);
  queues_.push_back(queue);
  return queue;
}

void Scheduler::put(DeferredQueue& queue, DeferredQueue::Item item) {
  const std::lock_guard lock(mutex_);
  item.number = items_++;
  queue.items.push_back(std::move(item));
}

void Scheduler::pass_on() {
  for (;;) {
    std::vector<int> able;
    bool all_ended = true;
    for (std::size_t r = 0; r < hosts_.size(); ++r) {
      const Host& one = hosts_[r];
      all_ended = all_ended && one.ended;
      if (!one.ended && (failure_ || !one.until || one.until())) {
        able.push_back(static_cast<int>(r));
      }
    }
    if (!able.empty()) {
      turn_ = able[static_cast<std::size_t>(random(std::ssize(able)))];
      host(turn_).its_turn.notify_one();
      return;
    }
    if (all_ended) {
      return;
    }
    try {
      if (!run_one()) {
        fail_locked(standstill());
      }
    } catch (const std::exception& error) {
      fail_locked(std::string("an operation failed: ") + error.what());
    }
  }
}

// Takes waits that are over from the heads of lanes, and those that are over because of that.
// Returns whether there were any.
bool Scheduler::end_waits() {
  bool any = false;
  for (bool again = true; again;) {
    again = false;
    for (const auto& queue : queues_) {
      auto& items = queue->items;
      while (!items.empty() && !items.front().work && items.front().event.over()) {
        items.pop_front();
        ++queue->done;
        any = again = true;
      }
    }
  }
  return any;
}

// Whether there was anything that could be done.
bool Scheduler::run_one() {
  const bool waits_ended = end_waits();
  std::vector<DeferredQueue*> able;
  for (const auto& queue : queues_) {
    if (!queue->items.empty() && queue->items.front().work) {
      able.push_back(queue.get());
    }
  }
  if (able.empty()) {
    return waits_ended;
  }
  DeferredQueue& queue = choose(able);
  const DeferredQueue::Item item = std::move(queue.items.front());
  queue.items.pop_front();
  item.work();
  ++queue.done;
  return true;
}

DeferredQueue& Scheduler::choose(const std::vector<DeferredQueue*>& able) {
  using Choice = Schedule::Choice;
  const auto any_of = [&](const std::vector<DeferredQueue*>& queues) -> DeferredQueue& {
    return *queues[static_cast<std::size_t>(random(std::ssize(queues)))];
  };
  switch (schedule_.choice) {
    case Choice::as_enqueued:
      return **std::ranges::min_element(
          able, {}, [](const DeferredQueue* q) { return q->items.front().number; });
    case Choice::random:
      return any_of(able);
    case Choice::priorities: {
      DeferredQueue& top = **std::ranges::max_element(
          able, {}, [](const DeferredQueue* queue) { return queue->priority; });
      if (random(kChangeEvery) == 0) {
        top.priority = random(1 << 20);
      }
      return top;
    }
    case Choice::last:
    case Choice::first: {
      std::vector<DeferredQueue*> preferred;
      std::ranges::copy_if(able, std::back_inserter(preferred), [&](const DeferredQueue* q) {
        return schedule_.names(q->rank, q->kind) == (schedule_.choice == Choice::first);
      });
      return any_of(preferred.empty() ? able : preferred);
    }
  }
  return *able.front();
}

std::string Scheduler::standstill() const {
  std::string text = "nothing can go on:";
  for (std::size_t r = 0; r < hosts_.size(); ++r) {
    if (!hosts_[r].ended) {
      text.append("\n  rank ").append(std::to_string(r)).append(" waits for ");
      text.append(hosts_[r].waits_for);
    }
  }
  for (const auto& queue : queues_) {
    if (!queue->items.empty()) {
      text.append("\n  ").append(queue->name()).append(" has done ");
      text.append(std::to_string(queue->done)).append(" items and waits for ");
      text.append(queue->items.front().event.name());
    }
  }
  return text;
}

DeferredTicket& DeferredTicket::operator=(DeferredTicket&& other) noexcept {
  if (this != &other) {
    DeferredTicket old(std::move(*this));
    state_ = std::move(other.state_);
    lane_ = other.lane_;
    own_lane_waited_ = other.own_lane_waited_;
    exceptions_ = other.exceptions_;
  }
  return *this;
}

DeferredTicket::~DeferredTicket() {
  if (!state_) {
    return;
  }
  if (std::uncaught_exceptions() > exceptions_) {
    state_->abandon();
    return;
  }
  try {
    release();
  } catch (const std::exception&) {
    state_.reset();  // the scheduler remembers why
  }
}

void DeferredTicket::wait(DeferredLane& lane) {
  if (state_) {
    state_->wait(lane);
    own_lane_waited_ = own_lane_waited_ || &lane == lane_;
  }
}

void DeferredTicket::release() {
  if (!state_) {
    return;
  }
  const std::unique_ptr<State> state = std::move(state_);
  if (!own_lane_waited_) {
    state->wait(*lane_);
  }
}

DeferredLane::DeferredLane(Scheduler& scheduler, int rank, LaneKind kind)
    : scheduler_(scheduler), queue_(scheduler.make_queue(rank, kind)) {}

void DeferredLane::put(std::string name, std::function<void()> work) {
  scheduler_.put(*queue_, {std::move(name), std::move(work), {}, 0});
}

void DeferredLane::wait(const DeferredEvent& event) {
  scheduler_.put(*queue_, {"wait", nullptr, event, 0});
}

DeferredEvent DeferredLane::record() const {
  return {queue_, queue_->done + std::ssize(queue_->items)};
}

void DeferredLane::synchronise() const {
  const DeferredEvent all = record();
  scheduler_.wait(queue_->rank, all.name(), [all] { return all.over(); });
}

void DeferredLane::wait_until(std::string what, std::function<bool()> until) const {
  scheduler_.wait(queue_->rank, std::move(what), std::move(until));
}

void settle(DeferredLanes& lanes) {
  lanes.update.wait(lanes.panel.record());
  lanes.update.wait(lanes.copy.record());
  lanes.update.synchronise();
}

}  // namespace jaxmg::test
