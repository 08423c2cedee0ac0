// What an engine keeps for the whole process, whatever devices are in use: counters, threads and
// the place where ranks meet. Each engine library has its own.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "core/plan.h"
#include "ffi/call.h"
#include "ffi/elastic_pool.h"
#include "ffi/progress.h"
#include "ffi/rendezvous.h"
#include "ffi/trace.h"

namespace jaxmg {

class Counters {
 public:
  void completed(Routine routine) {
    completed_[static_cast<std::size_t>(routine)].fetch_add(1, std::memory_order_relaxed);
  }
  std::int64_t completed_calls(Routine routine) const {
    return completed_[static_cast<std::size_t>(routine)].load(std::memory_order_relaxed);
  }
  void reset() {
    for (auto& count : completed_) {
      count.store(0, std::memory_order_relaxed);
    }
  }
  std::atomic<std::int64_t> sites{0};

 private:
  std::array<std::atomic<std::int64_t>, kRoutines> completed_{};
};

// None of these is ever destroyed, since threads may outlive the process's static objects.
Counters& counters();
ElasticPool& elastic_pool();
ProgressBoard& progress_board();
TraceBoard& trace_board();
Rendezvous& rendezvous();  // defined by each engine

// Takes a call; defined by each engine. Throws for what the device's peers find too.
void submit(const jaxmg_call& call);

}  // namespace jaxmg
