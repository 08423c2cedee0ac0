// Lanes that run late. The host threads of ranks only put work into them, as with GPUs, and what
// runs next is the choice of a schedule, which may be as unkind as events and tickets allow: order
// that an algorithm has forgotten to ask for shows as a wrong result.
//
// One host thread runs at a time, until it has to wait: for a peer or for a lane. Work is done only
// when all hosts wait, so they are as far ahead as they can be, and a run depends on its schedule
// alone.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/types.h"

namespace jaxmg::test {

// messages: what a communicator does, where that has lanes of its own.
enum class LaneKind { panel, update, copy, side, messages };

// Which of the lanes that can go on does so.
struct Schedule {
  enum class Choice {
    as_enqueued,  // what was put into a lane first, whatever the lane: as if lanes were synchronous
    random,       // any
    priorities,   // the lane of highest priority, with priorities that change now and then
    last,         // the lanes named only if no other can
    first,        // the lanes named if they can
  };

  Choice choice = Choice::random;
  std::uint64_t seed = 1;
  std::optional<LaneKind> kind{};  // the lanes named: of this kind, of this rank; all if neither is
  std::optional<int> rank{};
  bool detached = false;  // messages have lanes of their own

  std::string name() const;
  bool names(int rank, LaneKind kind) const;
};

// Schedules for so many ranks: each choice, with `seeds` different seeds where it leaves something
// open.
std::vector<Schedule> schedules(int ranks, int seeds);

class DeferredQueue;

// Something that happens in a lane: all that was put into it before; empty by default.
class DeferredEvent {
 public:
  DeferredEvent() = default;
  bool over() const;
  std::string name() const;

 private:
  friend class DeferredLane;
  DeferredEvent(std::shared_ptr<const DeferredQueue> queue, Size place)
      : queue_(std::move(queue)), place_(place) {}

  std::shared_ptr<const DeferredQueue> queue_;
  Size place_ = 0;
};

// What one lane still has to do.
class DeferredQueue {
 public:
  DeferredQueue(int of_rank, LaneKind of_kind) : rank(of_rank), kind(of_kind) {}

  struct Item {
    std::string name;
    std::function<void()> work;  // none: this item is a wait
    DeferredEvent event;
    Size number = 0;  // in the order of all lanes
  };

  std::string name() const;

  const int rank;
  const LaneKind kind;
  std::deque<Item> items;
  Size done = 0;
  Size priority = 0;
};

// All lanes and host threads of a team.
class Scheduler {
 public:
  Scheduler(int ranks, const Schedule& schedule);
  ~Scheduler();
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  const Schedule& schedule() const { return schedule_; }

  // A rank's host thread calls begin() before anything else and end() after it.
  void begin(int rank);
  void end(int rank);
  // Gives way to others until `until` holds; it is evaluated in any thread. Throws a
  // CommunicationError if that cannot be, or if the team has failed.
  void wait(int rank, std::string what, std::function<bool()> until);

  // Only the first failure counts. May be called by any thread.
  void fail(const std::string& reason);
  // Throws the failure, if there is one.
  void check() const;

  std::shared_ptr<DeferredQueue> make_queue(int rank, LaneKind kind);
  void put(DeferredQueue& queue, DeferredQueue::Item item);

 private:
  struct Host {
    std::condition_variable its_turn;
    bool ended = false;
    std::string waits_for;
    std::function<bool()> until;  // none: it can go on
  };

  Host& host(int rank) { return hosts_[static_cast<std::size_t>(rank)]; }
  Size random(Size count);
  void fail_locked(const std::string& reason);
  // Finds the host that goes on; does the work of lanes until there is one.
  void pass_on();
  bool end_waits();
  bool run_one();
  DeferredQueue& choose(const std::vector<DeferredQueue*>& able);
  std::string standstill() const;

  const Schedule schedule_;
  mutable std::mutex mutex_;
  std::vector<Host> hosts_;
  int turn_ = 0;
  std::vector<std::shared_ptr<DeferredQueue>> queues_;
  Size items_ = 0;
  std::uint64_t state_;
  std::optional<std::string> failure_;
};

class DeferredLane;

// As tile::CudaTicket.
class DeferredTicket {
 public:
  class State {
   public:
    virtual ~State() = default;
    virtual void wait(DeferredLane& lane) = 0;
    virtual void abandon() noexcept = 0;
  };

  DeferredTicket() = default;
  DeferredTicket(std::unique_ptr<State> state, DeferredLane& lane)
      : state_(std::move(state)), lane_(&lane), exceptions_(std::uncaught_exceptions()) {}
  DeferredTicket(DeferredTicket&& other) noexcept = default;
  DeferredTicket& operator=(DeferredTicket&& other) noexcept;
  DeferredTicket(const DeferredTicket&) = delete;
  DeferredTicket& operator=(const DeferredTicket&) = delete;
  ~DeferredTicket();

  void wait(DeferredLane& lane);
  // Makes the call's own lane wait, if it has not yet, and forgets the call.
  void release();

 private:
  std::unique_ptr<State> state_;
  DeferredLane* lane_ = nullptr;
  bool own_lane_waited_ = false;
  int exceptions_ = 0;
};

class DeferredLane {
 public:
  DeferredLane(Scheduler& scheduler, int rank, LaneKind kind);
  ~DeferredLane() = default;
  DeferredLane(const DeferredLane&) = delete;
  DeferredLane& operator=(const DeferredLane&) = delete;

  void put(std::string name, std::function<void()> work);
  void wait(const DeferredEvent& event);
  void wait(DeferredTicket& ticket) { ticket.wait(*this); }
  DeferredEvent record() const;
  // Holds the host until all that is in the lane has been done.
  void synchronise() const;
  // Holds the host until a condition is true that another rank's host sees to.
  void wait_until(std::string what, std::function<bool()> until) const;

 private:
  Scheduler& scheduler_;
  std::shared_ptr<DeferredQueue> queue_;
};

struct DeferredLanes {
  DeferredLanes(Scheduler& scheduler, int rank)
      : panel(scheduler, rank, LaneKind::panel),
        update(scheduler, rank, LaneKind::update),
        copy(scheduler, rank, LaneKind::copy),
        side(scheduler, rank, LaneKind::side) {}

  DeferredLane panel;
  DeferredLane update;
  DeferredLane copy;
  DeferredLane side;
};

// The end of a rank program, as in a call of the GPU engine: the update lane follows all others.
// Holds the host until it is through.
void settle(DeferredLanes& lanes);

}  // namespace jaxmg::test
