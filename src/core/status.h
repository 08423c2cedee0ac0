// What a call reports: eight 32-bit integers that live beside the data (on the device), are agreed
// by all ranks, and are all that Python ever sees of a failure.
#pragma once

#include <cstdint>

#include "core/types.h"

namespace jaxmg {

// Positive kinds carry a position as LAPACK's info does; negative ones are what they are.
enum class Kind : std::int32_t {
  ok = 0,
  not_positive_definite = 1,
  singular = 2,
  no_convergence = 3,
  non_finite = -1,
  not_hermitian = -2,
  communication = -3,
  memory = -4,
  mismatched_calls = -5,
};

// Which numbering `position` uses.
enum class Phase : std::int32_t {
  none = 0,
  elimination_order = 1,  // place in the order in which the tiles were eliminated
  natural_order = 2,      // index in the user's matrix
};

// int32[8]; the layout is read by Python and by kernels.
struct Info {
  std::int32_t kind = 0;
  std::int32_t position = 0;  // 1-based
  std::int32_t rank = 0;      // the rank that saw it
  std::int32_t phase = 0;
  std::int32_t iterations = 0;  // of refinement; < 0: LAPACK's ITER, why there was a fall-back
  std::int32_t path = 0;        // 0: this factor, 1: classical refinement, 2: a Krylov method
  std::int32_t spare[2] = {0, 0};
};
static_assert(sizeof(Info) == 32);

// Ranks agree on the smallest of these: failures before success, bad input before failed
// arithmetic, earlier positions before later ones.
constexpr std::int64_t severity(std::int32_t kind, std::int32_t position) {
  if (kind == 0) {
    return std::int64_t{1} << 62;
  }
  return (std::int64_t{kind} << 32) + position;
}
constexpr std::int64_t severity(const Info& info) {
  return severity(info.kind, info.position);
}

// The scalar that the user sees.
constexpr std::int32_t status(const Info& info) {
  return info.kind > 0 ? info.position : info.kind;
}

}  // namespace jaxmg
