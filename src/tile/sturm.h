// Eigenvalues of a symmetric tridiagonal matrix by bisection, for host and device alike. LAPACK:
// xSTEBZ.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/types.h"
#include "tile/random.h"

namespace jaxmg::tile {

// As many eigenvalues are searched for side by side, since each alone waits for its divisions.
inline constexpr int kSturmWidth = 8;

// Pivots smaller than this are rounding errors of a pivot of 0.
inline double least_pivot(Size n, const double* e2) {
  double largest = 1;
  for (Size i = 0; i + 1 < n; ++i) {
    largest = std::max(largest, e2[i]);
  }
  return std::numeric_limits<double>::min() * 4 * largest;
}

// Eigenvalues first .. first + kSturmWidth - 1 (0-based, ascending; those from n on are copies of
// the last) of diag(d) with squared off-diagonal elements e2, all of which lie in [low, high], to
// `tolerance`. The number of negative pivots of T - x I is the number of eigenvalues below x.
JAXMG_HOST_DEVICE inline void sturm_bisect(Size n, const double* d, const double* e2, double low,
                                           double high, double tolerance, double least_pivot,
                                           Size first, double* w) {
  double lo[kSturmWidth], hi[kSturmWidth], x[kSturmWidth], q[kSturmWidth], below[kSturmWidth];
  for (int l = 0; l < kSturmWidth; ++l) {
    lo[l] = low;
    hi[l] = high;
  }
  double width = high - low;
  while (width > tolerance) {
    for (int l = 0; l < kSturmWidth; ++l) {
      x[l] = 0.5 * (lo[l] + hi[l]);
      q[l] = 1;
      below[l] = 0;
    }
    for (Size i = 0; i < n; ++i) {
      const double square = i > 0 ? e2[i - 1] : 0.0;
      for (int l = 0; l < kSturmWidth; ++l) {
        const double pivot = (d[i] - x[l]) - square / q[l];
        q[l] = std::fabs(pivot) < least_pivot ? -least_pivot : pivot;
        below[l] += q[l] < 0 ? 1.0 : 0.0;
      }
    }
    for (int l = 0; l < kSturmWidth; ++l) {
      const Size index = first + l < n ? first + l : n - 1;
      (below[l] > static_cast<double>(index) ? hi[l] : lo[l]) = x[l];
    }
    width *= 0.5;
  }
  for (int l = 0; l < kSturmWidth; ++l) {
    w[l] = 0.5 * (lo[l] + hi[l]);
  }
}

}  // namespace jaxmg::tile
