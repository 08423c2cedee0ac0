// When least squares by a Gram matrix are as good as by a QR factorisation: decided on the host, of
// numbers that all ranks have.
#pragma once

#include <cmath>
#include <vector>

#include "core/types.h"

namespace jaxmg {

// The condition from which it is doubtful. With D the diagonal of H = L L^H and rho_i the norm of
// row i of inv(L)^H, so that rho_i^2 = (H^-1)_ii:
//
//   sum_i D_i rho_i^2  =  ||inv(D^-1/2 L)||_F^2  >=  1 / (least eigenvalue of D^-1/2 H D^-1/2)
//
// Rounding errors of H and of its factor are some ten times the unit roundoff of double precision,
// relative to D: up to here, corrections shrink by factors of some hundred or more.
inline constexpr double kLargestGramInverse = 1e12;
// Squares of columns outside of this range lose digits on their way, or may.
inline constexpr double kSmallestGramSquare = 1e-200;
inline constexpr double kLargestGramSquare = 1e200;

// sizes: D, then rho. NaN: no factor.
inline bool is_well_conditioned(Size n, const double* sizes) {
  double sum = 0;
  bool in_range = true;
  for (Size i = 0; i < n; ++i) {
    in_range = in_range && sizes[i] >= kSmallestGramSquare && sizes[i] <= kLargestGramSquare;
    const double distance = std::sqrt(sizes[i]) * sizes[n + i];
    sum += distance * distance;
  }
  return in_range && sum <= kLargestGramInverse;  // NaN is not
}

// The corrections of the solutions for some right-hand sides, by the norms of A times them.
class Corrections {
 public:
  enum class State { shrinking, settled, doubtful };

  // eps: of the precision of the solutions.
  Corrections(Size count, double eps)
      : eps_(eps),
        first_(static_cast<std::size_t>(count)),
        settled_(static_cast<std::size_t>(count), false) {}

  // i: which correction this is, the first approximation being number 0.
  State judge(int i, const double* before, const double* now) {
    bool all = true;
    for (std::size_t j = 0; j < first_.size(); ++j) {
      if (i == 1) {
        first_[j] = before[j];
      }
      if (!std::isfinite(now[j]) || !std::isfinite(before[j])) {
        return State::doubtful;
      }
      settled_[j] = settled_[j] || is_settled(i, first_[j], before[j], now[j]);
      all = all && settled_[j];
    }
    return all ? State::settled : State::shrinking;
  }

 private:
  // The next correction would be (now / before) now. What does not shrink any more is rounding
  // errors of the residual, which no method has smaller: convergence is far faster than that.
  bool is_settled(int i, double first, double before, double now) const {
    if (now == 0 || now / before * now <= eps_ * first) {
      return true;
    }
    return i > 1 && now > before / 8 && now <= 8 * before;
  }

  double eps_;
  std::vector<double> first_;
  std::vector<bool> settled_;
};

}  // namespace jaxmg
