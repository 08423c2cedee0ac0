// What a rank program is given: the other ranks, its lanes, its scratch and somebody who watches.
#pragma once

#include "comm/communicator.h"
#include "core/workspace.h"

namespace jaxmg {

// Where a rank program is. Hooks are called from the rank's host thread around the calls that put
// work into the lane; they must not block.
class Observer {
 public:
  // panel, look_ahead: in the panel lane; arrival, of another rank's panel: in the copy lane; all
  // others: in the update lane.
  enum class Task { probe, panel, look_ahead, update, solve, exchange, arrival };

  virtual ~Observer() = default;
  virtual void begin(int rank, Task task, Size step, Size steps) {
    (void)rank, (void)task, (void)step, (void)steps;
  }
  virtual void end(int rank, Task task, Size step, Size steps) {
    (void)rank, (void)task, (void)step, (void)steps;
  }
  // What is put into the update lane from now on belongs to this part of the routine.
  virtual void stage(int rank, const char* name) { (void)rank, (void)name; }
};

template <class Device>
struct Rank {
  Communicator<Device>& comm;
  typename Device::Lanes& lanes;
  const Plan& plan;
  Workspace workspace;
  Observer& observer;
};

// begin and end of one task, whatever happens in between.
class Watch {
 public:
  Watch(Observer& observer, int rank, Observer::Task task, Size step, Size steps)
      : observer_(observer), rank_(rank), task_(task), step_(step), steps_(steps) {
    observer_.begin(rank_, task_, step_, steps_);
  }
  ~Watch() { observer_.end(rank_, task_, step_, steps_); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  Observer& observer_;
  int rank_;
  Observer::Task task_;
  Size step_;
  Size steps_;
};

// One of the steps that a solution takes for each block of right-hand sides; `column` is the first
// of the present block.
template <class Device>
Watch watch_solve_step(const Rank<Device>& rank, Size column, Size step, Size steps) {
  const Size width = rank.plan.rhs_block();
  return {rank.observer, rank.comm.rank(), Observer::Task::solve, column / width * steps + step,
          ceil_div(rank.plan.request().nrhs, width) * steps};
}

}  // namespace jaxmg
