#include "tile/cpu/pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <system_error>

namespace jaxmg::tile {
namespace {

std::atomic<Pool*> current{nullptr};
thread_local bool is_worker = false;

int processors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    return std::max(1, CPU_COUNT(&set));
  }
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int default_threads() {
  if (const char* text = std::getenv("JAXMG_NUM_THREADS")) {
    char* end = nullptr;
    const long value = std::strtol(text, &end, 10);
    if (end != text && *end == '\0' && value > 0) {
      return static_cast<int>(std::min(value, 4096L));
    }
  }
  return processors();
}

// What has to happen around the life of the process; see pool.h.
struct Process {
  Process() {
    pthread_atfork(nullptr, nullptr, [] { current.store(nullptr); });
  }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;
  ~Process() {
    if (Pool* pool = current.load()) {
      pool->stop();  // but not deleted: other threads may still come to it
    }
  }
};
const Process process;

}  // namespace

Pool& Pool::instance() {
  Pool* pool = current.load(std::memory_order_acquire);
  if (pool == nullptr) {
    // No lock, which a fork could leave locked for ever: whoever is first wins.
    auto made = std::make_unique<Pool>(default_threads());
    if (current.compare_exchange_strong(pool, made.get(), std::memory_order_acq_rel)) {
      pool = made.release();
    }
  }
  return *pool;
}

bool Pool::start_workers() {
  while (workers_.size() < static_cast<std::size_t>(threads())) {
    auto worker = std::make_unique<Worker>();
    Worker& self = *worker;
    try {
      worker->thread = std::thread([this, &self] { work(self); });
    } catch (const std::system_error&) {
      break;  // go on with those that there are
    }
    workers_.push_back(std::move(worker));
  }
  return !workers_.empty();
}

void Pool::run(Priority priority, Size count, const std::function<void(Size)>& task) {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (!is_worker) {
    lock.lock();
  }
  if (count > 0 && !is_worker && !stopping_ && start_workers()) {
    Job job{.task = task, .count = count, .error = nullptr, .done = {}};
    (priority == Priority::high ? high_ : normal_).push_back(&job);
    const Size wanted = std::min(count, static_cast<Size>(workers_.size()));
    for (Size i = 0; i < wanted; ++i) {
      wake_.notify_one();
    }
    job.done.wait(lock, [&job] { return job.finished == job.count; });
    if (job.error) {
      std::rethrow_exception(job.error);
    }
    return;
  }
  if (lock.owns_lock()) {
    lock.unlock();
  }
  for (Size i = 0; i < count; ++i) {
    task(i);
  }
}

void Pool::work(const Worker& self) {
  is_worker = true;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return self.leave || !high_.empty() || !normal_.empty(); });
    const bool last = stopping_ && !(high_.empty() && normal_.empty());
    if (self.leave && !last) {
      return;
    }
    run_one_task(lock);
  }
}

void Pool::run_one_task(std::unique_lock<std::mutex>& lock) {
  std::deque<Job*>& queue = high_.empty() ? normal_ : high_;
  Job& job = *queue.front();
  const Size number = job.taken++;
  if (job.taken == job.count) {
    queue.pop_front();
  }
  lock.unlock();
  std::exception_ptr error;
  try {
    job.task(number);
  } catch (...) {
    error = std::current_exception();
  }
  lock.lock();
  if (error && !job.error) {
    job.error = error;
  }
  if (++job.finished == job.count) {
    job.done.notify_one();  // under the lock: the job is gone as soon as its owner wakes
  }
}

// Lets go of all workers but the first `keep`.
void Pool::dismiss(std::size_t keep, std::unique_lock<std::mutex>& lock) {
  std::vector<std::unique_ptr<Worker>> leaving;
  while (workers_.size() > keep) {
    workers_.back()->leave = true;
    leaving.push_back(std::move(workers_.back()));
    workers_.pop_back();
  }
  lock.unlock();
  wake_.notify_all();
  for (const auto& worker : leaving) {
    worker->thread.join();
  }
}

void Pool::resize(int threads) {
  std::unique_lock lock(mutex_);
  threads_.store(std::max(1, threads), std::memory_order_relaxed);
  dismiss(static_cast<std::size_t>(this->threads()), lock);
}

void Pool::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  dismiss(0, lock);
}

Size Pool::queued() const {
  const std::lock_guard lock(mutex_);
  return static_cast<Size>(high_.size() + normal_.size());
}

void set_pool_threads(int threads) {
  Pool::instance().resize(threads > 0 ? threads : default_threads());
}

}  // namespace jaxmg::tile
