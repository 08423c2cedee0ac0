// Eigenvalues and rows of the eigenvectors of a small symmetric tridiagonal matrix, by QL with
// implicit shifts. LAPACK: xSTEQR.
#pragma once

#include <cmath>

#include "core/types.h"

namespace jaxmg::tile {

// One sweep of QL on rows l .. m, whose off-diagonal elements are not negligible.
inline void ql_sweep(Size n, double* d, double* e, double* z, Size rows, Size l, Size m) {
  // The shift is the eigenvalue of the leading 2 x 2 block that is nearer to d_l.
  const double half = (d[l + 1] - d[l]) / (2 * e[l]);
  double g = d[m] - d[l] + e[l] / (half + std::copysign(std::hypot(half, 1.0), half));
  double c = 1, s = 1, p = 0;
  bool deflated = false;
  for (Size i = m - 1; i >= l; --i) {
    const double f = s * e[i], b = c * e[i];
    const double r = std::hypot(f, g);
    if (i + 1 < m) {
      e[i + 1] = r;
    }
    if (r == 0) {  // the matrix has fallen apart on the way
      d[i + 1] -= p;
      deflated = true;
      break;
    }
    s = f / r;
    c = g / r;
    g = d[i + 1] - p;
    const double t = (d[i] - g) * s + 2 * c * b;
    p = s * t;
    d[i + 1] = g + p;
    g = c * t - b;
    for (Size k = 0; k < rows; ++k) {
      double* const row = z + k * n;
      const double upper = row[i + 1];
      row[i + 1] = s * row[i] + c * upper;
      row[i] = c * row[i] - s * upper;
    }
  }
  if (!deflated) {
    d[l] -= p;
    e[l] = g;
  }
  if (m + 1 < n) {
    e[m] = 0;
  }
}

// d (n) <- eigenvalues, not sorted; e (n - 1) is destroyed; z (n x rows, column-major, leading
// dimension n) holds the transposes of some rows of a matrix Z and becomes those of Z times the
// eigenvectors. False if it does not converge.
inline bool tridiagonal_ql(Size n, double* d, double* e, double* z, Size rows) {
  constexpr double kEps = 1.1102230246251565e-16;
  constexpr int kMaxIterations = 60;
  double norm = 0;
  for (Size i = 0; i < n; ++i) {
    norm = std::fmax(norm, std::fabs(d[i]) + (i + 1 < n ? std::fabs(e[i]) : 0.0));
  }
  // Below the first bound an element is nothing beside its neighbours. The second lets matrices
  // pass whose diagonal is rounding errors.
  const auto negligible = [&](Size i) {
    return std::fabs(e[i]) <= kEps * (std::fabs(d[i]) + std::fabs(d[i + 1])) ||
           std::fabs(e[i]) <= 0.5 * kEps * norm;
  };
  for (Size l = 0; l < n; ++l) {
    for (int iteration = 0;; ++iteration) {
      Size m = l;
      while (m + 1 < n && !negligible(m)) {
        ++m;
      }
      if (m == l) {
        break;
      }
      if (iteration == kMaxIterations) {
        return false;
      }
      ql_sweep(n, d, e, z, rows, l, m);
    }
  }
  return true;
}

}  // namespace jaxmg::tile
