// The engine's worker threads on CPU. All ranks of the process share one pool: a rank's host thread
// cuts an operation in tasks, hands them in, and sleeps until they are done, so that as many
// threads compute as the process has processors, however many ranks there are.
//
// Tasks of high-priority lanes are taken before those of normal ones, and first come first served
// within a priority. A task that runs is not interrupted.
//
// The number of workers is JAXMG_NUM_THREADS if that is a positive integer when the pool is first
// used, else the number of processors that the process may run on. Workers start when the first
// operation is handed in. With a single worker, nothing is handed in at all.
//
// fork: a child has no workers of its parent; it gets a pool of its own at its first operation, and
// that of the parent, whose mutex may be in any state, is left alone. A call that was in progress
// in another thread of the parent does not continue in the child.
//
// exit: workers finish what was handed in and are joined before OpenBLAS gives up its memory; what
// comes later runs in the calling thread.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/types.h"
#include "tile/cpu/lane.h"

namespace jaxmg::tile {

class Pool {
 public:
  // The pool of this process.
  static Pool& instance();

  explicit Pool(int threads) : threads_(threads) {}
  ~Pool() { stop(); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return threads_.load(std::memory_order_relaxed); }
  // May be called at any time, by any thread but a worker.
  void resize(int threads);
  // Finishes what was handed in and joins the workers; later calls run in the calling thread.
  void stop();

  // Jobs with tasks that no worker has taken yet.
  Size queued() const;

  // Calls task(0), ..., task(count - 1) on the workers and returns when all of them are over. The
  // first exception that a task throws is thrown here.
  void run(Priority priority, Size count, const std::function<void(Size)>& task);

 private:
  struct Job {
    const std::function<void(Size)>& task;
    Size count;
    Size taken = 0;
    Size finished = 0;
    std::exception_ptr error;
    std::condition_variable done;
  };
  struct Worker {
    std::thread thread;
    bool leave = false;
  };

  bool start_workers();
  void work(const Worker& self);
  void run_one_task(std::unique_lock<std::mutex>& lock);
  void dismiss(std::size_t keep, std::unique_lock<std::mutex>& lock);

  std::atomic<int> threads_;
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable wake_;
  std::deque<Job*> high_;  // jobs with tasks that nobody has taken yet
  std::deque<Job*> normal_;
  std::vector<std::unique_ptr<Worker>> workers_;
  bool stopping_ = false;
};

// Workers of this process's pool; 0 or less: the default.
void set_pool_threads(int threads);

// A task must be worth the 5 to 10 us that it takes to wake a worker and the caller again: so many
// operations, or bytes moved.
inline constexpr double kLeastFlops = 2e6;
inline constexpr double kLeastBytes = 1 << 19;

// Below two such tasks an operation is done before a worker wakes.
inline bool worth_spreading(double flops) {
  return flops >= 2 * kLeastFlops;
}

// task(0), ..., task(count - 1), spread over the workers if they are more than one and `worth` says
// that it pays, else in the calling thread.
template <class Task>
void for_each(Priority priority, bool worth, Size count, const Task& task) {
  if (worth) {
    Pool& pool = Pool::instance();
    if (pool.threads() > 1) {
      pool.run(priority, count, std::function<void(Size)>(std::cref(task)));
      return;
    }
  }
  for (Size i = 0; i < count; ++i) {
    task(i);
  }
}

}  // namespace jaxmg::tile
