#include "ffi/progress.h"

#include <algorithm>

#include "core/work_done.h"

namespace jaxmg {

void CallProgress::set_all(float done) const {
  for (int rank = 0; rank < request_.ranks; ++rank) {
    set(rank, done);
  }
}

bool CallProgress::through() const {
  for (int rank = 0; rank < request_.ranks; ++rank) {
    if (get(rank) < kThrough) {
      return false;
    }
  }
  return true;
}

bool CallProgress::describe(jaxmg_call_progress& out) const {
  double sum = 0;
  for (int rank = 0; rank < request_.ranks; ++rank) {
    sum += std::min(get(rank), 1.0F);
  }
  if (sum == 0 || abandoned_.load(std::memory_order_relaxed) || through()) {
    return false;
  }
  out.number = number_;
  out.n = request_.n;
  out.routine = static_cast<std::int32_t>(request_.routine);
  out.dtype = static_cast<std::int32_t>(request_.type);
  out.ranks = request_.ranks;
  out.spare = 0;
  out.done = sum / static_cast<double>(request_.ranks);
  return true;
}

std::shared_ptr<CallProgress> ProgressBoard::begin(const PlanRequest& request,
                                                   const MakeMarks& make_marks) {
  if (watchers() <= 0) {
    return nullptr;
  }
  auto marks = make_marks(request.ranks);
  const std::lock_guard lock(mutex_);
  forget_what_is_through();
  calls_.push_back(std::make_shared<CallProgress>(++next_, request, std::move(marks)));
  return calls_.back();
}

std::size_t ProgressBoard::list(std::span<jaxmg_call_progress> out) {
  const std::lock_guard lock(mutex_);
  forget_what_is_through();
  std::size_t count = 0;
  for (const auto& call : calls_) {
    if (count < out.size() && call->describe(out[count])) {
      ++count;
    }
  }
  return count;
}

void ProgressBoard::forget_what_is_through() {
  std::erase_if(calls_, [](const auto& call) { return call->through(); });
}

namespace {

// A routine may prepare its matrix by other tasks, with steps of their own.
bool is_main_task(Routine routine, Observer::Task task) {
  if (routine == Routine::cyclic) {
    return task == Observer::Task::exchange;
  }
  return task == Observer::Task::update || task == Observer::Task::solve;
}

}  // namespace

void ProgressObserver::end(int, Task task, Size step, Size steps) {
  if (!report_ || !is_main_task(routine_, task)) {
    return;
  }
  const double done = work_done(routine_, step + 1, steps);
  if (done > done_) {  // a routine may go through its steps more than once
    done_ = done;
    report_(static_cast<float>(done));
  }
}

}  // namespace jaxmg
