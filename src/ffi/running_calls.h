// Rank programs in progress, so that the end of the process can wait for them: when static objects
// are destroyed, the tile library gives up memory that its callers still use.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace jaxmg {

class RunningCalls {
 public:
  // False once closed: the call must not begin.
  bool enter() {
    std::lock_guard lock(mutex_);
    running_ += closed_ ? 0 : 1;
    return !closed_;
  }
  void leave() {
    std::lock_guard lock(mutex_);
    if (--running_ == 0) {
      none_.notify_all();
    }
  }
  // Lets nobody in any more, and waits for those inside.
  void close(std::chrono::seconds limit) {
    std::unique_lock lock(mutex_);
    closed_ = true;
    none_.wait_for(lock, limit, [this] { return running_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable none_;
  long running_ = 0;
  bool closed_ = false;
};

}  // namespace jaxmg
