// What the buffers and attributes of a call mean: the one place that knows the form of each target.
//
//   target         arguments after the context               results
//   -------------  ----------------------------------------  ---------------------------------
//   jaxmg_potrf    a (rows, n)                               work = a, aux (count), info int32[8]
//   jaxmg_potrs    work, aux, info, b (n or rows, nrhs)      x = b
//   jaxmg_posv     a (rows, n), b (n or rows, nrhs)          x = b, work = a, aux, info int32[8]
//   jaxmg_logdet   work, info                                real scalar
//   jaxmg_locate   work, aux, info                           work, info
//   jaxmg_potri    work, aux, info                           inverse = work
//   jaxmg_cyclic   a (rows, columns)                         a
//   jaxmg_getrf    a (rows, n)                               work = a, aux, pivots int32[2 n], info
//   jaxmg_getrs    work, aux, pivots, info, b                x = b
//   jaxmg_gesv     a (rows, n), b                            x = b, then as jaxmg_getrf
//   jaxmg_getdet   work, pivots, info                        sign, logarithm (real)
//   jaxmg_getri    work, pivots, info                        inverse = work
//   jaxmg_geqrf    a (rows, columns)                         work = a, aux (count), info int32[8]
//   jaxmg_orgqr    work, aux, info                           q (rows, c), r (per, columns)
//   jaxmg_qr_r     work, info                                r (per, columns)
//   jaxmg_ormqr    work, aux, info, c (rows, nrhs), or       (per, nrhs), or
//                  without adjoint (per, nrhs)               (rows, nrhs)
//   jaxmg_geqrs    work, aux, info, b (rows, nrhs), or       (columns, nrhs), or (rows, nrhs), and
//                  with adjoint (columns, nrhs)              info int32[8]
//   jaxmg_gels     a (rows, columns), b (rows, nrhs)         x (columns, nrhs), info int32[8]
//   jaxmg_syevd    a (rows, n)                               w (n), work = a, V (rows, count),
//                                                            info int32[8]
//   jaxmg_mirror   a (rows, n)                               a
//   jaxmg_trsm     a (rows, n), b (n or rows, nrhs)          x = b
//   jaxmg_cholupdate   work, aux, info, v (n, k)             work, aux, info
//
// `rows` of jaxmg_potrf and of a in jaxmg_posv in natural order are those that the plan calls
// matrix_rows; of what a vendor's library works on, a factor or the matrix of an eigenproblem,
// factor_rows.
//
// Matrices are row-major shards. A result that has an argument's name is aliased to it: they are
// one buffer, unless XLA could not arrange it. In the QR family n is the number of rows of A,
// per = ceil(min(n, columns) / ranks), and q and work may be one buffer. V is absent without
// vectors, and where count = n: then it is in `work`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/plan.h"
#include "core/status.h"
#include "ffi/call.h"

namespace jaxmg {

// Argument 0 of every call, int32[16]: which device this is, found at run time. It lies with the
// data.
struct Context {
  std::int32_t rank;
  std::int32_t group;        // devices of different groups do independent calls
  std::int32_t ranks;        // in the group
  std::int32_t local_ranks;  // of these, in this process
  std::int32_t call_id;      // the same in all processes
  std::int32_t communicator_id[2];
  std::int32_t version;
  std::int32_t spare[8];
};
static_assert(sizeof(Context) == 64);
inline constexpr std::int32_t kContextVersion = 1;

// An argument that must be copied to the result that it is aliased to.
struct AliasedPair {
  const void* from;
  void* to;
  std::size_t bytes;
};

// The buffers of a rank program, by role; null where the routine has none.
struct Operands {
  void* matrix = nullptr;  // A, the factor, or the matrix that is redistributed
  void* aux = nullptr;     // saved diagonal tiles, then tile inverses
  Info* info = nullptr;
  void* solution = nullptr;  // b on entry
  void* scalar = nullptr;
  std::int32_t* pivots = nullptr;
  void* phase = nullptr;
  const void* right_hand_side = nullptr;  // where the solution has another shape
  void* triangular = nullptr;             // R
  Info* report = nullptr;                 // info of the operation itself
  void* values = nullptr;                 // eigenvalues
  void* vectors = nullptr;                // eigenvectors, or null
  const void* added = nullptr;            // what is added to a factor
  std::vector<AliasedPair> aliased;
};

// What ranks of one call must have in common.
struct CallKind {
  PlanRequest request;
  std::int64_t triangle = -1;
  bool inverse = false;
  bool adjoint = false;
  std::int64_t first = 0;  // eigenvector
  std::int64_t transpose = 0;
  bool unit = false;
  bool downdate = false;
  bool operator==(const CallKind& other) const;
};

// "jaxmg_potrf".
std::string target_name(const jaxmg_call& call);

// Each throws std::invalid_argument with a message that names the target and the operand, what was
// found and what is expected.
void check_context_operand(const jaxmg_call& call);
void check_context(const jaxmg_call& call, const Context& context);
// `devices`: what is not supported across processes.
void check_one_process(const jaxmg_call& call, const Context& context, const char* devices);
CallKind call_kind(const jaxmg_call& call, const Context& context, Platform platform);

// Checks all buffers against the plan, and sorts them.
Operands sort_operands(const jaxmg_call& call, const Plan& plan);

}  // namespace jaxmg
