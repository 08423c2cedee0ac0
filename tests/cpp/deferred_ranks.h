// Rank programs on lanes that run late, one run for each of many schedules.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "deferred_communicator.h"
#include "run_plan.h"

namespace jaxmg::test {

class DeferredTeam {
 public:
  DeferredTeam(int ranks, const Schedule& schedule)
      : scheduler_(std::make_shared<Scheduler>(ranks, schedule)),
        lanes_(static_cast<std::size_t>(ranks)) {
    std::vector<int> members(static_cast<std::size_t>(ranks));
    std::iota(members.begin(), members.end(), 0);
    const auto group = std::make_shared<DeferredGroup>(scheduler_, members);
    for (const int r : members) {
      communicators_.push_back(std::make_unique<DeferredCommunicator>(group, r));
    }
  }

  void begin(std::size_t r) {
    scheduler_->begin(static_cast<int>(r));
    lanes_[r].emplace(*scheduler_, static_cast<int>(r));
  }
  Communicator<Deferred>& communicator(std::size_t r) { return *communicators_[r]; }
  DeferredLanes& lanes(std::size_t r) { return *lanes_[r]; }
  void check(std::size_t) { scheduler_->check(); }
  void end(std::size_t r) { scheduler_->end(static_cast<int>(r)); }
  void abort(const std::string& reason) { scheduler_->fail(reason); }

 private:
  std::shared_ptr<Scheduler> scheduler_;
  std::vector<std::unique_ptr<DeferredCommunicator>> communicators_;
  std::vector<std::optional<DeferredLanes>> lanes_;
};

using DeferredProgram = std::function<void(Communicator<Deferred>&, DeferredLanes&)>;

inline std::vector<std::exception_ptr> collect_deferred_ranks(int ranks, const Schedule& schedule,
                                                              const DeferredProgram& program) {
  DeferredTeam team(ranks, schedule);
  return collect_ranks_of(team, ranks, program, RunOptions().time_limit);
}

// The schedule of what runs on ranks of Deferred from now on.
inline Schedule& present_schedule() {
  static Schedule schedule;
  return schedule;
}

template <>
struct OnRanks<Deferred> {
  static constexpr Platform platform = Platform::cuda;
  static void run(int ranks, const DeferredProgram& program) {
    expect_no_errors(collect_deferred_ranks(ranks, present_schedule(), program));
  }
};

// More than a solve takes at once.
inline constexpr Size kManyRightHandSides = 600;

// What a program computes, as bytes.
using Bytes = std::vector<std::byte>;

template <class T>
void append(Bytes& bytes, const T* values, std::size_t count) {
  const auto* const first = reinterpret_cast<const std::byte*>(values);
  bytes.insert(bytes.end(), first, first + count * sizeof(T));
}
template <class Container>
void append(Bytes& bytes, const Container& values) {
  append(bytes, values.data(), values.size());
}

// run(judge) returns what it has computed, and, if `judge`, whether that is right is for it to say.
// That must have the same bits with every schedule.
inline void expect_same_with_every_schedule(int ranks, int seeds,
                                            const std::function<Bytes(bool judge)>& run) {
  Bytes expected;
  for (const Schedule& schedule : schedules(ranks, seeds)) {
    SCOPED_TRACE("schedule: " + schedule.name() + "; ranks " + std::to_string(ranks));
    present_schedule() = schedule;
    const bool first = schedule.choice == Schedule::Choice::as_enqueued;
    const Bytes got = run(first);
    if (first) {
      expected = got;
    }
    EXPECT_TRUE(got == expected) << "results depend on the schedule";
    if (testing::Test::HasFailure()) {
      return;  // one report is enough
    }
  }
}

}  // namespace jaxmg::test
