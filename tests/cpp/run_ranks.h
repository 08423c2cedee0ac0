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

// Runs program on one thread a rank and returns what each rank threw (null: nothing). A rank that
// throws, or that returns with a fatal assertion failed, aborts the others. When the time limit
// has passed, the test fails and the ranks are aborted; if even that does not end them, so is the
// process.
inline std::vector<std::exception_ptr> collect_ranks(int ranks, const RankProgram& program,
                                                     const RunOptions& options = {}) {
  auto communicators = make_thread_communicators(ranks, options.wait_limit);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(ranks));
  std::mutex mutex;
  std::condition_variable ended;
  int running = ranks;

  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < communicators.size(); ++r) {
    threads.emplace_back([&, r] {
      tile::CpuLanes lanes;
      try {
        program(*communicators[r], lanes);
        check_team(*communicators[r]);
        if (::testing::Test::HasFatalFailure()) {
          abort_team(*communicators[r], "a fatal assertion failed");
        }
      } catch (...) {
        errors[r] = std::current_exception();
        abort_team(*communicators[r],
                   "rank " + std::to_string(r) + " failed: " + message_of(errors[r]));
      }
      const std::lock_guard lock(mutex);
      communicators[r].reset();  // who still expects something of this rank fails at once
      --running;
      ended.notify_all();
    });
  }

  std::unique_lock lock(mutex);
  const auto all_ended = [&] { return running == 0; };
  if (!ended.wait_for(lock, options.time_limit, all_ended)) {
    ADD_FAILURE() << running << " of " << ranks << " ranks still ran after "
                  << options.time_limit.count() << " s";
    for (const auto& communicator : communicators) {
      if (communicator) {
        abort_team(*communicator, "the time limit of the test has passed");
      }
    }
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

// As above, for programs that must not throw: what they throw fails the test.
inline void run_ranks(int ranks, const RankProgram& program, const RunOptions& options = {}) {
  const auto errors = collect_ranks(ranks, program, options);
  for (std::size_t r = 0; r < errors.size(); ++r) {
    if (errors[r]) {
      ADD_FAILURE() << "rank " << r << " of " << ranks << ": " << message_of(errors[r]);
    }
  }
}

}  // namespace jaxmg
