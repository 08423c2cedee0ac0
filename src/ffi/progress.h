// How far calls in progress are, for whoever watches. Nothing is counted while nobody does.
#pragma once

#include <atomic>
#include <cstdint>
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

// One call. A rank's mark is the part of the work that it has done; 0: it has not begun.
class CallProgress {
 public:
  static constexpr float kBegun = 1e-9F;
  static constexpr float kThrough = 2;

  // marks: one for each rank, all 0.
  CallProgress(std::int64_t number, const PlanRequest& request, std::shared_ptr<float[]> marks)
      : number_(number), request_(request), marks_(std::move(marks)) {}

  float* mark(int rank) const { return &marks_[rank]; }
  void set(int rank, float done) const {
    std::atomic_ref(marks_[rank]).store(done, std::memory_order_relaxed);
  }
  void set_all(float done) const;

  // The call has failed: it is shown no more, but a device may write its marks still.
  void abandon() { abandoned_.store(true, std::memory_order_relaxed); }

  bool through() const;
  // False if there is nothing to be shown.
  bool describe(jaxmg_call_progress& out) const;

 private:
  float get(int rank) const {
    return std::atomic_ref(marks_[rank]).load(std::memory_order_relaxed);
  }

  std::int64_t number_;
  PlanRequest request_;
  std::shared_ptr<float[]> marks_;
  std::atomic<bool> abandoned_{false};
};

// The calls that somebody watches.
class ProgressBoard {
 public:
  using MakeMarks = std::function<std::shared_ptr<float[]>(int count)>;

  void watch(int change) { watchers_.fetch_add(change, std::memory_order_relaxed); }
  int watchers() const { return watchers_.load(std::memory_order_relaxed); }

  // Null if nobody watches.
  std::shared_ptr<CallProgress> begin(const PlanRequest& request, const MakeMarks& make_marks);
  // Describes calls that have begun and are not through, the oldest first; returns how many.
  std::size_t list(std::span<jaxmg_call_progress> out);

 private:
  void forget_what_is_through();

  std::atomic<int> watchers_{0};
  std::mutex mutex_;
  std::int64_t next_ = 0;
  std::vector<std::shared_ptr<CallProgress>> calls_;
};

// Tells `report` what part of a rank's work is done; does nothing without one.
class ProgressObserver final : public Observer {
 public:
  using Report = std::function<void(float)>;  // must not throw

  ProgressObserver(Routine routine, Report report) : routine_(routine), report_(std::move(report)) {
    if (report_) {
      report_(CallProgress::kBegun);
    }
  }
  void end(int rank, Task task, Size step, Size steps) override;

 private:
  Routine routine_;
  Report report_;
  double done_ = 0;
};

}  // namespace jaxmg
