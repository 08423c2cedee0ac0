// The end of a call: no rank may go on while a peer still reads its buffers, and all report alike.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "ffi/outcome.h"

namespace jaxmg {

class FinalMeeting {
 public:
  // `settled` is called once, when all have arrived and before any of them leaves.
  FinalMeeting(int ranks, std::function<void(const Outcome&)> settled)
      : outcomes_(static_cast<std::size_t>(ranks)), missing_(ranks), settled_(std::move(settled)) {}

  void arrive(int rank, Outcome outcome) {
    std::lock_guard lock(mutex_);
    outcomes_[static_cast<std::size_t>(rank)] = std::move(outcome);
    if (--missing_ == 0) {
      common_ = agreed(outcomes_);
      settled_(common_);
      all_here_.notify_all();
    }
  }

  // Blocks until all have arrived; the same for all.
  const Outcome& wait() {
    std::unique_lock lock(mutex_);
    all_here_.wait(lock, [this] { return missing_ == 0; });
    return common_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::vector<Outcome> outcomes_;
  Outcome common_;
  int missing_;
  std::function<void(const Outcome&)> settled_;
};

}  // namespace jaxmg
