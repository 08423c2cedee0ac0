// What of a merge in divide and conquer needs no work: deflation of diag(d) + rho z z^T.
//
// A pole whose weight is negligible is an eigenvalue already. Of two poles that are next to equal
// one can be made so by a rotation. LAPACK: xLAED2.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/types.h"
#include "tile/eigen.h"

namespace jaxmg {

// A merge of two halves of a tridiagonal matrix, `top` rows and columns in the first of them.
// Columns are those of the block diagonal matrix of the halves' eigenvectors.
struct Deflation {
  std::vector<double> d, z;      // poles that are left, ascending, and their weights
  std::vector<Size> column;      // where they come from
  std::vector<Size> place;       // where they go: those with zeros in the bottom half, those
                                 // without zeros, those with zeros in the top half
  Size above = 0, both = 0;      // numbers of the first two kinds
  std::vector<double> deflated;  // eigenvalues found
  std::vector<Size> deflated_column;
  std::vector<Rotation> rotations;  // of columns, to be carried out first
};

// eps: of the precision in which eigenvectors are kept; norm: of the whole matrix, beside which
// eps^2 is nothing. rho >= 0; |z|^2 = 2.
inline Deflation deflate(const std::vector<double>& d, std::vector<double> z, double rho, Size top,
                         double eps, double norm) {
  const auto at = [](Size i) { return static_cast<std::size_t>(i); };
  const Size n = static_cast<Size>(d.size());
  Deflation result;
  std::vector<Size> order(d.size());
  std::iota(order.begin(), order.end(), Size{0});
  std::stable_sort(order.begin(), order.end(), [&](Size i, Size j) { return d[at(i)] < d[at(j)]; });

  double largest_d = 0, largest_z = 0;
  for (Size i = 0; i < n; ++i) {
    largest_d = std::max(largest_d, std::fabs(d[at(i)]));
    largest_z = std::max(largest_z, std::fabs(z[at(i)]));
  }
  const double tolerance = 4 * eps * std::max({largest_d, rho * largest_z, eps * norm});

  enum Half : char { kAbove, kBoth, kBelow };
  std::vector<Half> kind(d.size());
  for (Size i = 0; i < n; ++i) {
    kind[at(i)] = i < top ? kAbove : kBelow;
  }
  const auto drop = [&](Size column, double value) {
    result.deflated.push_back(value);
    result.deflated_column.push_back(column);
  };
  const auto keep = [&](Size column, double pole) {
    result.d.push_back(pole);
    result.z.push_back(z[at(column)]);
    result.column.push_back(column);
  };
  Size last = -1;  // the pole that waits for its successor
  double pole = 0;
  for (const Size j : order) {
    double next = d[at(j)];
    if (rho * std::fabs(z[at(j)]) <= tolerance) {
      drop(j, next);
      continue;
    }
    if (last >= 0) {
      const double length = std::hypot(z[at(j)], z[at(last)]);
      const double c = z[at(j)] / length, s = -z[at(last)] / length;
      if (std::fabs((next - pole) * c * s) <= tolerance) {
        // The weight moves from `last` to j.
        result.rotations.push_back({last, j, c, s});
        z[at(j)] = length;
        if (kind[at(last)] != kind[at(j)]) {
          kind[at(j)] = kBoth;
        }
        const double dropped = pole * c * c + next * s * s;
        next = pole * s * s + next * c * c;
        drop(last, dropped);
      } else {
        keep(last, pole);
      }
    }
    last = j;
    pole = next;
  }
  if (last >= 0) {
    keep(last, pole);
  }
  // Rotated poles may be out of order by rounding errors only; the secular equation wants order.
  for (std::size_t i = 1; i < result.d.size(); ++i) {
    result.d[i] = std::max(result.d[i], result.d[i - 1]);
  }

  Size counts[3] = {0, 0, 0};
  for (const Size j : result.column) {
    ++counts[kind[at(j)]];
  }
  result.above = counts[kAbove];
  result.both = counts[kBoth];
  Size next_place[3] = {0, counts[kAbove], counts[kAbove] + counts[kBoth]};
  for (const Size j : result.column) {
    result.place.push_back(next_place[kind[at(j)]]++);
  }
  return result;
}

}  // namespace jaxmg
