// Threads for jobs that may block for as long as they like.
//
// Completing a call runs the rest of that device's program on the completing thread, where it may
// wait for other devices' programs. With a bounded number of threads some of these would wait for
// jobs that have none. Hence: a job takes an idle thread if there is one, else a new one, and never
// queues behind another job. Threads are kept for reuse.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace jaxmg {

class ElasticPool {
 public:
  ElasticPool() = default;
  // Waits for all jobs. A pool that lives as long as the process is better never destroyed, since
  // its jobs may never end: idle threads do not keep a process alive.
  ~ElasticPool();
  ElasticPool(const ElasticPool&) = delete;
  ElasticPool& operator=(const ElasticPool&) = delete;

  // Starts the job at once. Jobs must not throw. Throws std::system_error, with the job not taken,
  // if a thread is needed and cannot be made.
  void run(std::function<void()> job);

  // Threads made so far.
  std::int64_t made() const { return made_.load(std::memory_order_relaxed); }

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable wake_;
  // Jobs that nobody has begun. Each has a thread to itself among the idle and the starting ones:
  // jobs_.size() <= idle_ + starting_.
  std::deque<std::function<void()>> jobs_;
  std::size_t idle_ = 0;
  std::size_t starting_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
  std::atomic<std::int64_t> made_{0};
};

}  // namespace jaxmg
