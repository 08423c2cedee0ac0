// The functions of the C boundary that are the same for every engine.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <span>
#include <string_view>

#include "ffi/call.h"
#include "ffi/engine.h"
#include "ffi/outcome.h"

namespace jaxmg {

Counters& counters() {
  static Counters* const instance = new Counters;
  return *instance;
}

ElasticPool& elastic_pool() {
  static ElasticPool* const instance = new ElasticPool;
  return *instance;
}

ProgressBoard& progress_board() {
  static ProgressBoard* const instance = new ProgressBoard;
  return *instance;
}

TraceBoard& trace_board() {
  static TraceBoard* const instance = new TraceBoard;
  return *instance;
}

namespace {

// Copies text with a closing zero; false if it does not fit.
bool put(std::string_view text, char* out, std::int64_t capacity) {
  if (!out || capacity < 1) {
    return false;
  }
  const std::size_t count = std::min(text.size(), static_cast<std::size_t>(capacity - 1));
  std::memcpy(out, text.data(), count);
  out[count] = '\0';
  return count == text.size();
}

}  // namespace
}  // namespace jaxmg

using namespace jaxmg;

std::int64_t jaxmg_plan(const jaxmg_plan_request* q, char* out, std::int64_t capacity) {
  try {
    if (q->routine < 0 || q->routine >= static_cast<std::int32_t>(kRoutines) || q->dtype < 0 ||
        q->dtype > static_cast<std::int32_t>(DType::c128) || q->platform < 0 || q->platform > 1 ||
        q->precision < 0 || q->precision > 1 || q->backend < 0 || q->backend > 1 || q->order < 0 ||
        q->order > 1) {
      put("plan: unknown routine, dtype, platform, precision, backend or order", out, capacity);
      return -1;
    }
    PlanRequest request;
    request.routine = static_cast<Routine>(q->routine);
    request.type = static_cast<DType>(q->dtype);
    request.n = q->n;
    request.nrhs = q->nrhs;
    request.ranks = q->ranks;
    request.tile = q->tile;
    request.platform = static_cast<Platform>(q->platform);
    request.mirror = q->mirror != 0;
    request.replicated_rhs = q->replicated_rhs != 0;
    request.library_bytes = q->library_bytes;
    request.columns = q->columns;
    request.vectors = q->vectors != 0;
    request.precision = static_cast<Precision>(q->precision);
    request.order = static_cast<Order>(q->order);
    request.backend = static_cast<Backend>(q->backend);
    const std::string json = Plan(request).json();
    if (!put(json, out, capacity)) {
      put("plan: " + std::to_string(json.size() + 1) + " bytes are needed", out, capacity);
      return -1;
    }
    return static_cast<std::int64_t>(json.size());
  } catch (const std::exception& e) {
    put(e.what(), out, capacity);
    return -1;
  }
}

void jaxmg_submit(const jaxmg_call* call) {
  jaxmg::Outcome failure;
  try {
    jaxmg::submit(*call);
    return;
  } catch (...) {
    failure = jaxmg::outcome_of_current_exception();
  }
  call->complete(call->token, failure.code, failure.message.c_str());
}

std::int64_t jaxmg_counter(const char* counter) {
  const std::string_view wanted = counter ? counter : "";
  if (wanted == "pending") {
    return static_cast<std::int64_t>(rendezvous().pending());
  }
  if (wanted == "sites") {
    return counters().sites.load();
  }
  if (wanted == "threads") {
    return elastic_pool().made();
  }
  if (wanted == "watchers") {
    return progress_board().watchers();
  }
  for (std::size_t i = 0; i < kRoutines; ++i) {
    if (wanted == kRoutineNames[i]) {
      return counters().completed_calls(static_cast<Routine>(i));
    }
  }
  return -1;
}

void jaxmg_reset_counters() {
  counters().reset();
}

void jaxmg_watch_progress(int change) {
  progress_board().watch(change);
}

std::int64_t jaxmg_progress(jaxmg_call_progress* out, std::int64_t capacity) {
  if (!out || capacity < 1) {
    return 0;
  }
  return static_cast<std::int64_t>(
      progress_board().list(std::span(out, static_cast<std::size_t>(capacity))));
}

void jaxmg_record_tasks(int on) {
  trace_board().record(on != 0);
}

std::int64_t jaxmg_take_tasks(jaxmg_task_times* out, std::int64_t capacity) {
  if (!out || capacity < 1) {
    return 0;
  }
  return static_cast<std::int64_t>(
      trace_board().take(std::span(out, static_cast<std::size_t>(capacity))));
}

void jaxmg_set_timeout(double seconds) {
  rendezvous().set_timeout(std::chrono::duration<double>(seconds));
}

const char* jaxmg_version() {
  return JAXMG_VERSION;
}
