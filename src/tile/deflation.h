// What of a merge in divide and conquer needs no work: deflation of diag(d) + rho z z^T.
//
// A pole whose weight is negligible is an eigenvalue already. Of two poles that are next to equal
// one can be made so by a rotation. LAPACK: xLAED2.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "core/types.h"
#include "tile/eigen.h"

namespace jaxmg::tile {

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

// Goes through the poles in ascending order.
class Deflator {
 public:
  Deflator(const std::vector<double>& d, std::vector<double> z, double rho, Size top,
           double tolerance)
      : d_(d), z_(std::move(z)), rho_(rho), tolerance_(tolerance), half_(d.size()) {
    for (std::size_t i = 0; i < half_.size(); ++i) {
      half_[i] = static_cast<Size>(i) < top ? in_upper : in_lower;
    }
  }

  Deflation run() {
    std::vector<Size> order(d_.size());
    std::iota(order.begin(), order.end(), Size{0});
    std::stable_sort(order.begin(), order.end(),
                     [this](Size i, Size j) { return d_[at(i)] < d_[at(j)]; });
    for (const Size j : order) {
      if (rho_ * std::fabs(z_[at(j)]) <= tolerance_) {
        drop(j, d_[at(j)]);
      } else {
        meet(j);
      }
    }
    keep_last();
    // Rotated poles may be out of order by rounding errors only; the secular equation wants order.
    for (std::size_t i = 1; i < result_.d.size(); ++i) {
      result_.d[i] = std::max(result_.d[i], result_.d[i - 1]);
    }
    arrange();
    return std::move(result_);
  }

 private:
  // Where the column of a pole is not zero.
  enum Half : char { in_upper, in_both, in_lower };

  static std::size_t at(Size i) { return static_cast<std::size_t>(i); }

  // Pole j, of some weight, beside the one before it, if there is one.
  void meet(Size j) {
    double next = d_[at(j)];
    if (last_ >= 0) {
      const double length = std::hypot(z_[at(j)], z_[at(last_)]);
      const double c = z_[at(j)] / length, s = -z_[at(last_)] / length;
      if (std::fabs((next - pole_) * c * s) <= tolerance_) {
        // The weight moves from the last one to j.
        result_.rotations.push_back({last_, j, c, s});
        z_[at(j)] = length;
        if (half_[at(last_)] != half_[at(j)]) {
          half_[at(j)] = in_both;
        }
        drop(last_, pole_ * c * c + next * s * s);
        next = pole_ * s * s + next * c * c;
      } else {
        keep_last();
      }
    }
    last_ = j;
    pole_ = next;
  }

  void drop(Size column, double value) {
    result_.deflated.push_back(value);
    result_.deflated_column.push_back(column);
  }
  void keep_last() {
    if (last_ >= 0) {
      result_.d.push_back(pole_);
      result_.z.push_back(z_[at(last_)]);
      result_.column.push_back(last_);
    }
  }

  // Columns of one kind go side by side.
  void arrange() {
    Size counts[3] = {0, 0, 0};
    for (const Size j : result_.column) {
      ++counts[half_[at(j)]];
    }
    result_.above = counts[in_upper];
    result_.both = counts[in_both];
    Size next[3] = {0, counts[in_upper], counts[in_upper] + counts[in_both]};
    for (const Size j : result_.column) {
      result_.place.push_back(next[half_[at(j)]]++);
    }
  }

  const std::vector<double>& d_;
  std::vector<double> z_;
  double rho_;
  double tolerance_;
  std::vector<Half> half_;
  Size last_ = -1;  // the pole that waits for its successor
  double pole_ = 0;
  Deflation result_;
};

// eps: of the precision in which eigenvectors are kept; norm: of the whole matrix, beside which
// eps^2 is nothing. rho >= 0; |z|^2 = 2.
inline Deflation deflate(const std::vector<double>& d, std::vector<double> z, double rho, Size top,
                         double eps, double norm) {
  double largest_d = 0, largest_z = 0;
  for (std::size_t i = 0; i < d.size(); ++i) {
    largest_d = std::max(largest_d, std::fabs(d[i]));
    largest_z = std::max(largest_z, std::fabs(z[i]));
  }
  const double tolerance = 4 * eps * std::max({largest_d, rho * largest_z, eps * norm});
  return Deflator(d, std::move(z), rho, top, tolerance).run();
}

}  // namespace jaxmg::tile
