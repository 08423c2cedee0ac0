#include "ffi/trace.h"

#include <algorithm>

namespace jaxmg {

RankTrace::Task RankTrace::begin(Observer::Task kind, Size step, const MakeStamps& make_stamps) {
  const std::lock_guard lock(mutex_);
  if (used_ == kTasksPerBlock) {
    blocks_.push_back(make_stamps(2 * kTasksPerBlock));
    used_ = 0;
  }
  tasks_.push_back({kind, step, blocks_.back().get() + 2 * static_cast<std::ptrdiff_t>(used_++)});
  return tasks_.back();
}

std::vector<RankTrace::Task> RankTrace::tasks() const {
  const std::lock_guard lock(mutex_);
  return tasks_;
}

CallTrace::CallTrace(std::int64_t n, const PlanRequest& q) : number(n), request(q) {
  for (int rank = 0; rank < q.ranks; ++rank) {
    ranks.push_back(std::make_unique<RankTrace>());
  }
}

std::shared_ptr<CallTrace> TraceBoard::begin(const PlanRequest& request) {
  if (!on_.load(std::memory_order_relaxed)) {
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  calls_.push_back(std::make_shared<CallTrace>(++next_, request));
  return calls_.back();
}

std::size_t TraceBoard::take(std::span<jaxmg_task_times> out) {
  const std::lock_guard lock(mutex_);
  for (const auto& call : calls_) {
    for (std::size_t rank = 0; rank < call->ranks.size(); ++rank) {
      for (const RankTrace::Task& task : call->ranks[rank]->tasks()) {
        const auto time = [&](int which) {
          return static_cast<std::int64_t>(
              std::atomic_ref(task.times[which]).load(std::memory_order_relaxed));
        };
        if (time(0) != 0 && time(1) != 0) {  // a failed call leaves tasks that never ran
          taken_.push_back({call->number, call->request.n, task.step, time(0), time(1),
                            static_cast<std::int32_t>(call->request.routine),
                            static_cast<std::int32_t>(rank),
                            static_cast<std::int32_t>(call->request.ranks),
                            static_cast<std::int32_t>(task.kind)});
        }
      }
    }
  }
  calls_.clear();
  const std::size_t count = std::min(out.size(), taken_.size());
  const auto end = taken_.begin() + static_cast<std::ptrdiff_t>(count);
  std::copy(taken_.begin(), end, out.begin());
  taken_.erase(taken_.begin(), end);
  return count;
}

void TraceObserver::begin(int rank, Task task, Size step, Size steps) {
  other_.begin(rank, task, step, steps);
  open_.push_back(trace_.begin(task, step, make_stamps_));
  stamp_(task, open_.back().times);
}

void TraceObserver::end(int rank, Task task, Size step, Size steps) {
  stamp_(task, open_.back().times + 1);
  open_.pop_back();
  other_.end(rank, task, step, steps);
}

}  // namespace jaxmg
