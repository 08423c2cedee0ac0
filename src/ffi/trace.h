// When the tasks of rank programs begin and end: on the host's clock, or in the lanes of a device.
// Nothing is recorded unless somebody asked for it before the call.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "algo/rank.h"
#include "core/plan.h"
#include "ffi/call.h"

namespace jaxmg {

// The tasks of one rank in one call. Times are written by whoever does the work, nanoseconds; 0:
// not yet.
class RankTrace {
 public:
  struct Task {
    Observer::Task kind;
    Size step;
    std::uint64_t* times;  // begin, end
  };
  // Zeros that the device of the rank can write to.
  using MakeStamps = std::function<std::shared_ptr<std::uint64_t[]>(int count)>;

  Task begin(Observer::Task kind, Size step, const MakeStamps& make_stamps);
  std::vector<Task> tasks() const;

 private:
  static constexpr int kTasksPerBlock = 512;

  mutable std::mutex mutex_;
  std::vector<Task> tasks_;
  std::vector<std::shared_ptr<std::uint64_t[]>> blocks_;
  int used_ = kTasksPerBlock;  // of the last block
};

struct CallTrace {
  CallTrace(std::int64_t number, const PlanRequest& request);

  std::int64_t number;
  PlanRequest request;
  std::vector<std::unique_ptr<RankTrace>> ranks;
};

// The calls that have been recorded and not been taken yet.
class TraceBoard {
 public:
  void record(bool on) { on_.store(on, std::memory_order_relaxed); }

  // Null if nothing is recorded.
  std::shared_ptr<CallTrace> begin(const PlanRequest& request);
  // Moves tasks of recorded calls, in the order of the calls, to out; returns how many. All calls
  // must be over. What is left over comes with the next call of this.
  std::size_t take(std::span<jaxmg_task_times> out);

 private:
  std::atomic<bool> on_{false};
  std::mutex mutex_;
  std::int64_t next_ = 0;
  std::vector<std::shared_ptr<CallTrace>> calls_;
  std::deque<jaxmg_task_times> taken_;
};

// Records the tasks of a rank, and tells another observer of them.
class TraceObserver final : public Observer {
 public:
  // Puts the time at which work of a task gets to this point to *where. Must not throw.
  using Stamp = std::function<void(Task, std::uint64_t* where)>;

  TraceObserver(Observer& other, RankTrace& trace, RankTrace::MakeStamps make_stamps, Stamp stamp)
      : other_(other),
        trace_(trace),
        make_stamps_(std::move(make_stamps)),
        stamp_(std::move(stamp)) {}

  void begin(int rank, Task task, Size step, Size steps) override;
  void end(int rank, Task task, Size step, Size steps) override;

 private:
  Observer& other_;
  RankTrace& trace_;
  RankTrace::MakeStamps make_stamps_;
  Stamp stamp_;
  std::vector<RankTrace::Task> open_;  // tasks may hold others
};

}  // namespace jaxmg
