#include "ffi/elastic_pool.h"

#include <utility>

namespace jaxmg {

ElasticPool::~ElasticPool() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void ElasticPool::run(std::function<void()> job) {
  std::lock_guard lock(mutex_);
  jobs_.push_back(std::move(job));
  if (jobs_.size() <= idle_ + starting_) {
    wake_.notify_one();
    return;
  }
  try {
    threads_.emplace_back([this] { work(); });
  } catch (...) {
    jobs_.pop_back();
    throw;
  }
  ++starting_;
  made_.fetch_add(1, std::memory_order_relaxed);
}

void ElasticPool::work() {
  std::unique_lock lock(mutex_);
  --starting_;
  ++idle_;
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !jobs_.empty(); });
    if (jobs_.empty()) {
      return;
    }
    --idle_;
    {
      std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
    }
    lock.lock();
    ++idle_;
  }
}

}  // namespace jaxmg
