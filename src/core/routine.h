// The operations that ranks carry out together, as they are known to plans, handlers and counters.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>

namespace jaxmg {

// The values are part of the C boundary: new ones come at the end.
enum class Routine {
  potrf,       // Cholesky factorisation
  potrs,       // solution with a Cholesky factor
  logdet,      // log-determinant from one
  locate,      // the first failing leading minor of what could not be factored
  mirror,      // the other triangle of a Hermitian matrix
  cyclic,      // block-cyclic storage and back
  potri,       // inverse from a Cholesky factor
  trsm,        // solution with a triangular matrix
  cholupdate,  // factor of a matrix to which something of low rank has been added
};

inline constexpr std::array<std::string_view, 9> kRoutineNames = {
    "potrf", "potrs", "logdet", "locate", "mirror", "cyclic", "potri", "trsm", "cholupdate"};
inline constexpr std::size_t kRoutines = kRoutineNames.size();

constexpr std::string_view name(Routine routine) {
  return kRoutineNames[static_cast<std::size_t>(routine)];
}

}  // namespace jaxmg
