// Test matrices, made entry by entry from a seed and the indices alone, and the norms that the
// acceptance formulas need.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>
#include <vector>

#include "core/dtype.h"
#include "core/types.h"

namespace jaxmg::test {

// Row-major n x m matrix.
template <class T>
struct Matrix {
  Size rows = 0;
  Size cols = 0;
  std::vector<T> data;

  Matrix() = default;
  Matrix(Size r, Size c, T value = T(0))
      : rows(r), cols(c), data(static_cast<std::size_t>(r * c), value) {}
  T& operator()(Size i, Size j) { return data[static_cast<std::size_t>(i * cols + j)]; }
  const T& operator()(Size i, Size j) const { return data[static_cast<std::size_t>(i * cols + j)]; }
};

// In (-0.5, 0.5), a function of its arguments alone.
inline double random_number(std::uint64_t seed, std::uint64_t i, std::uint64_t j) {
  std::uint64_t x = seed * 0x9E3779B97F4A7C15ull + i * 0xD1B54A32D192ED03ull + j + 1;
  for (int round = 0; round < 3; ++round) {
    x ^= x >> 31;
    x *= 0xBF58476D1CE4E5B9ull;
    x ^= x >> 29;
  }
  return static_cast<double>(x >> 11) * 0x1.0p-53 - 0.5;
}

template <class T>
T random_entry(std::uint64_t seed, Size i, Size j) {
  const auto a = static_cast<std::uint64_t>(i);
  const auto b = static_cast<std::uint64_t>(j);
  if constexpr (is_complex_v<T>) {
    return T(static_cast<Real<T>>(random_number(seed, a, b)),
             static_cast<Real<T>>(random_number(seed + 77, a, b)));
  } else {
    return static_cast<T>(random_number(seed, a, b));
  }
}

template <class T>
T conjugate(T x) {
  if constexpr (is_complex_v<T>) {
    return std::conj(x);
  } else {
    return x;
  }
}

template <class T>
Matrix<T> random_matrix(Size rows, Size cols, std::uint64_t seed) {
  Matrix<T> a(rows, cols);
  for (Size i = 0; i < rows; ++i) {
    for (Size j = 0; j < cols; ++j) {
      a(i, j) = random_entry<T>(seed, i, j);
    }
  }
  return a;
}

// Hermitian, uniform entries, shifted to be positive definite without being diagonally dominant.
template <class T>
Matrix<T> random_hpd(Size n, std::uint64_t seed) {
  Matrix<T> a(n, n);
  const auto shift = static_cast<Real<T>>(1.0 + (is_complex_v<T> ? 0.9 : 0.62) *
                                                    std::sqrt(static_cast<double>(n)));
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < i; ++j) {
      a(i, j) = random_entry<T>(seed, i, j);
      a(j, i) = conjugate(a(i, j));
    }
    a(i, i) = T(std::real(random_entry<T>(seed, i, i)) + shift);
  }
  return a;
}

template <class T>
double norm1(const Matrix<T>& a) {
  double norm = 0;
  for (Size j = 0; j < a.cols; ++j) {
    double sum = 0;
    for (Size i = 0; i < a.rows; ++i) {
      sum += std::abs(a(i, j));
    }
    norm = std::isnan(sum) ? sum : std::max(norm, sum);
  }
  return norm;
}

// norm1(B - A X) / (n eps norm1(A) norm1(X)), 0/0 counted as 0.
template <class T>
double solve_residual(const Matrix<T>& a, const Matrix<T>& b, const Matrix<T>& x) {
  using Wide = std::conditional_t<is_complex_v<T>, std::complex<double>, double>;
  Matrix<Wide> r(b.rows, b.cols);
  for (Size i = 0; i < b.rows; ++i) {
    for (Size k = 0; k < b.cols; ++k) {
      Wide sum = Wide(b(i, k));
      for (Size j = 0; j < a.cols; ++j) {
        sum -= Wide(a(i, j)) * Wide(x(j, k));
      }
      r(i, k) = sum;
    }
  }
  const double top = norm1(r);
  const double eps = std::numeric_limits<Real<T>>::epsilon();
  return top == 0 ? 0 : top / (static_cast<double>(a.rows) * eps * norm1(a) * norm1(x));
}

}  // namespace jaxmg::test
