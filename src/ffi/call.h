// The C boundary between an engine library and whoever calls it: the thin FFI libraries, which are
// compiled once per generation of XLA's FFI headers, and Python, which opens the engine by ctypes.
// Nothing here depends on XLA, JAX or CUDA, so one engine serves all of them.
#pragma once

#include <cstddef>
#include <cstdint>

#define JAXMG_EXPORT __attribute__((visibility("default")))

extern "C" {

// Values of core/plan.h's Routine and core/dtype.h's DType.
enum jaxmg_routine : std::int32_t {
  JAXMG_POTRF,
  JAXMG_POTRS,
  JAXMG_LOGDET,
  JAXMG_LOCATE,
  JAXMG_MIRROR,
  JAXMG_CYCLIC,
  JAXMG_POTRI,
  JAXMG_GETRF,
  JAXMG_GETRS,
  JAXMG_GETDET,
  JAXMG_GEQRF,
  JAXMG_ORMQR,
  JAXMG_ORGQR,
  JAXMG_QR_R,
  JAXMG_GEQRS,
  JAXMG_SYEVD,
  JAXMG_TRSM,
  JAXMG_CHOLUPDATE,
  JAXMG_GETRI,
  JAXMG_POSV,
  JAXMG_GESV,
  JAXMG_GELS,
};
enum jaxmg_dtype : std::int32_t {
  JAXMG_F32 = 0,
  JAXMG_F64 = 1,
  JAXMG_C64 = 2,
  JAXMG_C128 = 3,
  JAXMG_I32 = 4,
  JAXMG_OTHER_DTYPE = -1,
};

// How a call ended. The numbers are those of XLA's error codes.
enum jaxmg_code : std::int32_t {
  JAXMG_OK = 0,
  JAXMG_INVALID_ARGUMENT = 3,
  JAXMG_DEADLINE_EXCEEDED = 4,
  JAXMG_RESOURCE_EXHAUSTED = 8,
  JAXMG_ABORTED = 10,
  JAXMG_UNIMPLEMENTED = 12,
  JAXMG_INTERNAL = 13,
};

enum { JAXMG_MAX_OPERANDS = 6, JAXMG_MAX_DIMS = 4 };

struct jaxmg_buffer {
  void* data;
  std::int32_t dtype;  // jaxmg_dtype
  std::int32_t rank;   // number of dimensions, at most JAXMG_MAX_DIMS
  std::int64_t dims[JAXMG_MAX_DIMS];
};

// One device's part of a call. A plain value: the engine copies it and nothing that it points to,
// apart from what the pointers say.
struct jaxmg_call {
  std::int32_t routine;  // jaxmg_routine
  std::int32_t device_ordinal;
  std::int64_t run_id;  // the same on all devices of one launch, different in each launch
  void* site;           // from jaxmg_site_create: one call site of one executable
  void* stream;         // the device's stream; null on CPU

  std::int32_t argument_count;
  std::int32_t result_count;
  jaxmg_buffer arguments[JAXMG_MAX_OPERANDS];
  jaxmg_buffer results[JAXMG_MAX_OPERANDS];

  // Attributes; those that the routine does not have are 0.
  std::int64_t n;
  std::int64_t tile;
  std::int64_t precision;   // Precision of core/plan.h
  std::int64_t triangle;    // -1 whole matrix, 0 only the lower triangle is valid, 1 the upper
  std::int64_t replicated;  // right-hand sides and solutions are whole on every rank
  std::int64_t inverse;     // redistribute back
  std::int64_t natural;     // tiles are eliminated, or have been, by global index
  std::int64_t transpose;   // solve with 0 A, 1 A^T, 2 A^H
  std::int64_t adjoint;     // Q^H instead of Q; minimum norm instead of least squares
  std::int64_t backend;     // Backend of core/plan.h
  std::int64_t vectors;     // eigenvectors too
  std::int64_t first;       // first of them that is wanted
  std::int64_t count;       // number of them
  std::int64_t unit;        // the diagonal counts as ones
  std::int64_t downdate;    // take away instead of add

  // Scratch memory that lives until the call completes, or null if there is not enough. A null
  // function means that the engine allocates by itself.
  void* (*allocate)(void* allocator, std::size_t bytes);
  void* allocator;

  // Called exactly once for each call: before jaxmg_submit returns (GPU) or at any time on any
  // thread (CPU). It may run the rest of the device's program, and block. The message is "" on
  // success and lives until the function returns.
  void (*complete)(void* token, std::int32_t code, const char* message);
  void* token;
};

// Takes the call. What goes wrong is told by `complete`, to all ranks of the group alike.
JAXMG_EXPORT void jaxmg_submit(const jaxmg_call* call);

// Identity of a call site, alive as long as the executable.
JAXMG_EXPORT void* jaxmg_site_create();
JAXMG_EXPORT void jaxmg_site_destroy(void* site);

// What a plan is asked for: see PlanRequest of core/plan.h. 0 stands for "choose" or "none".
struct jaxmg_plan_request {
  std::int32_t routine;
  std::int32_t dtype;
  std::int32_t ranks;
  std::int32_t platform;
  std::int32_t mirror;
  std::int32_t replicated_rhs;
  std::int32_t precision;
  std::int32_t backend;
  std::int32_t vectors;
  std::int32_t spare;
  std::int64_t n;
  std::int64_t nrhs;
  std::int64_t tile;
  std::int64_t library_bytes;
  std::int64_t columns;
  std::int64_t order;  // Order of core/distribution.h
};

// The plan of a call as one JSON object (core/plan.h): returns the number of bytes written, without
// the closing zero, or a negative number, with a message in out instead.
JAXMG_EXPORT std::int64_t jaxmg_plan(const jaxmg_plan_request* request, char* out,
                                     std::int64_t capacity);

// Counters by name: "potrf", "getrf", ..., as in core/routine.h: distributed operations completed,
// counted once per group; "pending": calls that wait for peers, by group; "sites": call sites
// alive; "threads": engine threads made so far; "watchers": of progress. -1 for any other name.
JAXMG_EXPORT std::int64_t jaxmg_counter(const char* name);
JAXMG_EXPORT void jaxmg_reset_counters();

// How far a call is. Calls are numbered in the order in which they came.
struct jaxmg_call_progress {
  std::int64_t number;
  std::int64_t n;
  std::int32_t routine;
  std::int32_t dtype;
  std::int32_t ranks;
  std::int32_t spare;
  double done;  // part of the work, 0 to 1
};

// Calls that come from now on are watched, if `change` is 1; -1 takes that back. Being watched
// costs a device a few microseconds a step.
JAXMG_EXPORT void jaxmg_watch_progress(int change);
// Describes the watched calls that are being worked on, at most `capacity`; returns how many.
JAXMG_EXPORT std::int64_t jaxmg_progress(jaxmg_call_progress* out, std::int64_t capacity);

// When a task of a rank was worked on, in nanoseconds of the clock of its device.
struct jaxmg_task_times {
  std::int64_t number;  // of the call
  std::int64_t n;
  std::int64_t step;
  std::int64_t begin;
  std::int64_t end;
  std::int32_t routine;
  std::int32_t rank;
  std::int32_t ranks;
  std::int32_t task;  // Observer::Task of algo/rank.h
};

// Records the tasks of calls that come from now on, or no more. It costs a device a few
// microseconds a task.
JAXMG_EXPORT void jaxmg_record_tasks(int on);
// Moves at most `capacity` recorded tasks to out; returns how many: 0 when there are no more. All
// calls must be over.
JAXMG_EXPORT std::int64_t jaxmg_take_tasks(jaxmg_task_times* out, std::int64_t capacity);

// Threads that compute CPU tiles.
JAXMG_EXPORT void jaxmg_set_threads(int count);
JAXMG_EXPORT int jaxmg_threads();

// How long a rank waits for its peers to make the same call before all of those that did fail;
// 0 means for ever.
JAXMG_EXPORT void jaxmg_set_timeout(double seconds);

JAXMG_EXPORT const char* jaxmg_version();

}  // extern "C"
