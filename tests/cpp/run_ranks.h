// Runs a rank program on threads of this process.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/thread_communicator.h"
#include "tile/cpu/lane.h"

namespace jaxmg {

using RankProgram = std::function<void(Communicator<tile::Cpu>&, tile::CpuLanes&)>;

struct RunOptions {
  std::chrono::seconds time_limit{60};     // of the whole run
  std::chrono::nanoseconds wait_limit{0};  // of each wait of the communicators; 0: none
};

inline std::string message_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& e) {
    return e.what();
  } catch (...) {
    return "unknown exception";
  }
}

// Ranks of a device, as collect_ranks wants them. All members but abort() are called by the rank's
// thread, abort() by any.
class CpuTeam {
 public:
  CpuTeam(int ranks, std::chrono::nanoseconds wait_limit)
      : communicators_(make_thread_communicators(ranks, wait_limit)),
        lanes_(static_cast<std::size_t>(ranks)) {}

  void begin(std::size_t) {}
  Communicator<tile::Cpu>& communicator(std::size_t r) { return *communicators_[r]; }
  tile::CpuLanes& lanes(std::size_t r) { return lanes_[r]; }
  // Throws if the team has failed.
  void check(std::size_t r) { check_team(*communicators_[r]); }
  // Who still expects something of this rank fails at once.
  void end(std::size_t r) {
    const std::lock_guard lock(mutex_);
    communicators_[r].reset();
  }
  void abort(const std::string& reason) {
    const std::lock_guard lock(mutex_);
    for (const auto& communicator : communicators_) {
      if (communicator) {
        return abort_team(*communicator, reason);
      }
    }
  }

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Communicator<tile::Cpu>>> communicators_;
  std::vector<tile::CpuLanes> lanes_;
};

// Runs program on one thread a rank and returns what each rank threw (null: nothing). A rank that
// throws, or that returns with a fatal assertion failed, aborts the others. When the time limit
// has passed, the test fails and the ranks are aborted; if even that does not end them, so is the
// process.
template <class Team, class Program>
std::vector<std::exception_ptr> collect_ranks_of(Team& team, int ranks, const Program& program,
                                                 std::chrono::seconds time_limit) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  std::condition_variable ended;
  int running = ranks;

  std::vector<std::thread> threads;
  threads.reserve(errors.size());
  for (std::size_t r = 0; r < errors.size(); ++r) {
    threads.emplace_back([&, r] {
      team.begin(r);
      try {
        program(team.communicator(r), team.lanes(r));
        team.check(r);
        if (::testing::Test::HasFatalFailure()) {
          team.abort("a fatal assertion failed");
        }
      } catch (...) {
        errors[r] = std::current_exception();
        team.abort("rank " + std::to_string(r) + " failed: " + message_of(errors[r]));
      }
      team.end(r);
      const std::lock_guard lock(mutex);
      --running;
      ended.notify_all();
    });
  }

  std::unique_lock lock(mutex);
  const auto all_ended = [&] { return running == 0; };
  if (!ended.wait_for(lock, time_limit, all_ended)) {
    ADD_FAILURE() << running << " of " << ranks << " ranks still ran after " << time_limit.count()
                  << " s";
    team.abort("the time limit of the test has passed");
    if (!ended.wait_for(lock, std::chrono::seconds(10), all_ended)) {
      std::fprintf(stderr, "run_ranks: ranks do not end; giving up\n");
      std::abort();
    }
  }
  lock.unlock();
  for (std::thread& thread : threads) {
    thread.join();
  }
  return errors;
}

inline std::vector<std::exception_ptr> collect_ranks(int ranks, const RankProgram& program,
                                                     const RunOptions& options = {}) {
  CpuTeam team(ranks, options.wait_limit);
  return collect_ranks_of(team, ranks, program, options.time_limit);
}

inline void expect_no_errors(const std::vector<std::exception_ptr>& errors) {
  for (std::size_t r = 0; r < errors.size(); ++r) {
    if (errors[r]) {
      ADD_FAILURE() << "rank " << r << " of " << errors.size() << ": " << message_of(errors[r]);
    }
  }
}

// As above, for programs that must not throw: what they throw fails the test.
inline void run_ranks(int ranks, const RankProgram& program, const RunOptions& options = {}) {
  expect_no_errors(collect_ranks(ranks, program, options));
}

}  // namespace jaxmg
