// How the ranks of one call let a library work on the data of all of them: each rank's host thread
// brings its pointers, that of rank 0 makes the library's call, and all go on with its result.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/types.h"
#include "vendor/library.h"

namespace jaxmg::vendor {

// A rank's operands, as far as the routine has them.
struct Part {
  void* a = nullptr;
  void* b = nullptr;
  void* pivots = nullptr;
  void* workspace = nullptr;
};

// The operands of all ranks.
struct Parts {
  explicit Parts(std::size_t ranks) : a(ranks), b(ranks), pivots(ranks), workspace(ranks) {}
  Pointers a;
  Pointers b;
  Pointers pivots;
  Pointers workspace;
};

// How a rank waits for another's result, of which `changed` tells.
struct Sleep {
  template <class Until>
  void operator()(std::unique_lock<std::mutex>& lock, std::condition_variable& changed,
                  const Until& until) const {
    changed.wait(lock, until);
  }
};

class Session {
 public:
  using Work = std::function<Size(Library&, const Parts&)>;

  Session(int ranks, std::unique_ptr<Library> library)
      : library_(std::move(library)), parts_(static_cast<std::size_t>(ranks)) {}

  const Library& library() const { return *library_; }

  // Called by all ranks, in the same order. `barrier` returns when all ranks have come, or throws.
  // Between that and the result nobody's patience is tested: a library takes as long as it takes.
  template <class Barrier, class Wait = Sleep>
  Size run(int rank, const Part& part, const Barrier& barrier, const Work& work,
           const Wait& wait = {}) {
    const auto r = static_cast<std::size_t>(rank);
    parts_.a[r] = part.a;
    parts_.b[r] = part.b;
    parts_.pivots[r] = part.pivots;
    parts_.workspace[r] = part.workspace;
    const Size round = rank == 0 ? 0 : rounds();
    barrier();
    if (rank == 0) {
      return lead(work);
    }
    return follow(round, wait);
  }

 private:
  Size rounds() {
    const std::lock_guard lock(mutex_);
    return rounds_;
  }

  Size lead(const Work& work) {
    Size result = 0;
    std::exception_ptr failure;
    try {
      result = work(*library_, parts_);
    } catch (...) {
      failure = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      result_ = result;
      failure_ = failure;
      ++rounds_;
    }
    done_.notify_all();
    if (failure) {
      std::rethrow_exception(failure);
    }
    return result;
  }

  // The result of the round after `round`.
  template <class Wait>
  Size follow(Size round, const Wait& wait) {
    std::unique_lock lock(mutex_);
    wait(lock, done_, [&] { return rounds_ > round; });
    if (failure_) {
      std::rethrow_exception(failure_);
    }
    return result_;
  }

  std::unique_ptr<Library> library_;
  Parts parts_;  // each rank writes its own before a barrier, rank 0 reads them after it
  std::mutex mutex_;
  std::condition_variable done_;
  Size rounds_ = 0;
  Size result_ = 0;
  std::exception_ptr failure_;
};

}  // namespace jaxmg::vendor
