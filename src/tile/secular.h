// The secular equation of divide and conquer, for host and device alike. Between a matrix
// diag(d) + rho z z^T (d ascending and apart, no z_j negligible, rho > 0) and its eigenvalues
// stands
//
//   f(x) = 1 / rho + sum_j z_j^2 / (d_j - x) = 0,     d_i < x_i < d_i+1,   x_last < d_last + rho
//   |z|^2
//
// An eigenvalue is kept as x = d[origin] + tau with the nearer pole as origin, so that all its
// distances d_j - x = (d_j - d[origin]) - tau are accurate to the last digits, which the
// eigenvectors need. LAPACK: xLAED4; R.-C. Li, Solving Secular Equations Stably and Efficiently.
#pragma once

#include <cmath>

#include "core/types.h"
#include "tile/random.h"

namespace jaxmg::tile {

struct SecularRoot {
  Size origin = 0;
  double tau = 0;
  bool converged = false;
};

// All roots: next_i is 1 if the origin of root i is pole i + 1, else 0. (Ranks add these up.)
struct SecularPlace {
  const double* tau = nullptr;
  const double* next = nullptr;
  JAXMG_HOST_DEVICE Size origin(Size i) const { return i + (next[i] != 0 ? 1 : 0); }
};

namespace secular {

inline constexpr double kEps = 1.1102230246251565e-16;  // unit roundoff
inline constexpr int kMaxIterations = 100;

// f and what belongs to it at x = d[origin] + tau.
struct Value {
  double f = 0;
  double slope = 0;
  double error = 0;  // a bound of the rounding error of f, in units of kEps
};

// Who adds up the terms: one thread, or several of which each takes every step()-th.
struct OneWorker {
  JAXMG_HOST_DEVICE static constexpr Size first() { return 0; }
  JAXMG_HOST_DEVICE static constexpr Size step() { return 1; }
  JAXMG_HOST_DEVICE static double sum(double x) { return x; }
  JAXMG_HOST_DEVICE static double product(double x) { return x; }
};

template <class Worker>
JAXMG_HOST_DEVICE inline Value evaluate(const Worker& worker, Size k, const double* d,
                                        const double* z, double inverse, Size origin, double tau) {
  double sum = 0, slope = 0, size = 0;
  const double pole = d[origin];
  for (Size j = worker.first(); j < k; j += worker.step()) {
    const double t = z[j] / ((d[j] - pole) - tau);
    const double term = z[j] * t;
    sum += term;
    slope += t * t;
    size += std::fabs(term);
  }
  slope = worker.sum(slope);
  return {inverse + worker.sum(sum), slope,
          8 * worker.sum(size) + 2 * inverse + std::fabs(tau) * slope};
}

// The zero of a function c + s / (left - t) + S / (right - t) that agrees with f and its slope at
// t = 0, with the weight of the pole `near` as it is in f: the step to take from there.
JAXMG_HOST_DEVICE inline double step(const Value& at, double left, double right, bool near_left,
                                     double near_term, double gap) {
  // near_term = (z / distance)^2 of the near pole.
  const double c = near_left ? at.f - right * at.slope + gap * near_term
                             : at.f - left * at.slope - gap * near_term;
  const double a = (left + right) * at.f - left * right * at.slope;
  const double b = left * right * at.f;
  if (c == 0) {
    return b / a;
  }
  const double root = std::sqrt(std::fabs(a * a - 4 * b * c));
  return a <= 0 ? (a - root) / (2 * c) : 2 * b / (a + root);
}

}  // namespace secular

// Root i of k, the same for all workers.
template <class Worker>
JAXMG_HOST_DEVICE inline SecularRoot secular_root(const Worker& worker, Size k, const double* d,
                                                  const double* z, double rho, Size i) {
  const double inverse = 1 / rho;
  if (k == 1) {
    return {0, rho * z[0] * z[0], true};
  }
  const bool last = i == k - 1;
  double squares = 0;
  for (Size j = worker.first(); last && j < k; j += worker.step()) {
    squares += z[j] * z[j];
  }
  const double gap = last ? rho * worker.sum(squares) : d[i + 1] - d[i];
  SecularRoot root;
  double low = 0, high = gap;
  root.origin = i;
  if (!last) {  // f rises from pole to pole: its sign in the middle tells the nearer one
    if (secular::evaluate(worker, k, d, z, inverse, i, 0.5 * gap).f >= 0) {
      high = 0.5 * gap;
    } else {
      root.origin = i + 1;
      low = -0.5 * gap;
      high = 0;
    }
  }
  double tau = 0.5 * (low + high);
  for (int n = 0; n < secular::kMaxIterations; ++n) {
    const secular::Value at = secular::evaluate(worker, k, d, z, inverse, root.origin, tau);
    if (std::fabs(at.f) <= secular::kEps * at.error) {
      root.converged = true;
      break;
    }
    (at.f < 0 ? low : high) = tau;
    if (high - low <= 2 * secular::kEps * std::fmax(std::fabs(low), std::fabs(high))) {
      root.converged = true;
      break;
    }
    const double left = (d[i] - d[root.origin]) - tau;
    const double right = left + gap;
    const bool near_left = root.origin == i;
    const double weight = z[root.origin] / (near_left ? left : right);
    double eta = secular::step(at, left, right, near_left, weight * weight, gap);
    if (!(at.f * eta < 0)) {
      eta = -at.f / at.slope;
    }
    double next = tau + eta;
    if (!(next > low && next < high) || n % 8 == 7) {
      next = 0.5 * (low + high);
    }
    if (next == tau) {
      root.converged = true;
      break;
    }
    tau = next;
  }
  root.tau = tau;
  return root;
}

// The z_j for which the computed roots are the exact ones (Gu and Eisenstat): the eigenvectors made
// from it are orthogonal to working precision, however close the roots are.
//
//   z_j^2 = prod_i (x_i - d_j) / prod_i!=j (d_i - d_j)
template <class Worker>
JAXMG_HOST_DEVICE inline double secular_weight(const Worker& worker, Size k, const double* d,
                                               const double* z, const SecularPlace& roots, Size j) {
  double product = 1;
  for (Size i = worker.first(); i < k; i += worker.step()) {
    const double distance = (d[j] - d[roots.origin(i)]) - roots.tau[i];  // d_j - x_i
    product *= i == j ? distance : distance / (d[j] - d[i]);
  }
  return std::copysign(std::sqrt(std::fabs(worker.product(product))), z[j]);
}

}  // namespace jaxmg::tile
