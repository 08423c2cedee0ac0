// Whoever observes a rank in a call: always its progress, and its tasks if they are recorded.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>

#include "algo/rank.h"
#include "core/plan.h"
#include "ffi/progress.h"
#include "ffi/trace.h"

namespace jaxmg {

class RankObserver {
 public:
  // trace: null if nothing is recorded.
  RankObserver(Routine routine, ProgressObserver::Report report, const CallTrace* trace, int rank,
               RankTrace::MakeStamps make_stamps, TraceObserver::Stamp stamp)
      : progress_(routine, std::move(report)) {
    if (trace) {
      recorded_.emplace(progress_, *trace->ranks[static_cast<std::size_t>(rank)],
                        std::move(make_stamps), std::move(stamp));
    }
  }
  RankObserver(const RankObserver&) = delete;
  RankObserver& operator=(const RankObserver&) = delete;
  ~RankObserver() = default;

  Observer& get() {
    if (recorded_) {
      return *recorded_;
    }
    return progress_;
  }

 private:
  ProgressObserver progress_;
  std::optional<TraceObserver> recorded_;  // tells progress_
};

}  // namespace jaxmg
