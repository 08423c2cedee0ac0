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
  getrf,       // LU factorisation with partial pivoting
  getrs,       // solution with an LU factor
  getdet,      // sign and logarithm of the determinant from one
  geqrf,       // QR factorisation
  ormqr,       // product with Q or Q^H
  orgqr,       // Q and R in full
  qr_r,        // R in full
  geqrs,       // least squares or minimum norm from a QR factorisation
  syevd,       // eigenvalues and eigenvectors
  trsm,        // solution with a triangular matrix
  cholupdate,  // factor of a matrix to which something of low rank has been added
  getri,       // inverse from an LU factor
  posv,        // Cholesky factorisation and solution in one
  gesv,        // LU factorisation and solution in one
  gels,        // least squares by the Gram matrix, where that is safe
};

inline constexpr auto kRoutineNames = std::to_array<std::string_view>({
    "potrf", "potrs",      "logdet", "locate", "mirror", "cyclic", "potri", "getrf",
    "getrs", "getdet",     "geqrf",  "ormqr",  "orgqr",  "qr_r",   "geqrs", "syevd",
    "trsm",  "cholupdate", "getri",  "posv",   "gesv",   "gels",
});
inline constexpr std::size_t kRoutines = kRoutineNames.size();

constexpr std::string_view name(Routine routine) {
  return kRoutineNames[static_cast<std::size_t>(routine)];
}

}  // namespace jaxmg
