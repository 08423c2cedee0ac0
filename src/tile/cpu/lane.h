// Lanes, events and tickets of CPU ranks. An operation of a CPU lane is over when the call returns,
// so lanes only carry a priority, events are empty, and a ticket stands for what other ranks still
// have to do.
#pragma once

#include <memory>
#include <utility>

namespace jaxmg::tile {

class CpuEvent {};

// The caller's part in one communication call that may not be over yet.
class CpuTicket {
 public:
  class State {
   public:
    // Waits if nobody has, without throwing, and gives back what the call lent (a root's memory,
    // see Communicator::publish).
    virtual ~State() = default;
    // Blocks until the results of the call are in place on this rank and what it sent may be
    // overwritten. Called once.
    virtual void wait() = 0;
  };

  CpuTicket() = default;
  explicit CpuTicket(std::unique_ptr<State> state) : state_(std::move(state)) {}

  void wait() {
    if (state_ && !waited_) {
      waited_ = true;
      state_->wait();
    }
  }
  // Waits, then gives back what the call lent. A ticket that is dropped does the same, but keeps a
  // failure to itself: it shows in the next call.
  void release() {
    wait();
    state_.reset();
    waited_ = false;
  }

 private:
  std::unique_ptr<State> state_;
  bool waited_ = false;
};

enum class Priority { high, normal };

class CpuLane {
 public:
  explicit CpuLane(Priority priority) : priority_(priority) {}
  Priority priority() const { return priority_; }
  void wait(const CpuEvent&) {}
  void wait(CpuTicket& ticket) { ticket.wait(); }
  CpuEvent record() { return {}; }

 private:
  Priority priority_;
};

struct CpuLanes {
  CpuLane panel{Priority::high};
  CpuLane update{Priority::normal};
  CpuLane copy{Priority::high};
};

}  // namespace jaxmg::tile
