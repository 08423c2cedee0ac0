// Matrices for tests of tile operations, and the same operations as plain loops.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <limits>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "tile/device.h"

namespace jaxmg::testing {

using ElementTypes = ::testing::Types<float, double, std::complex<float>, std::complex<double>>;

template <class T>
inline constexpr double epsilon = std::numeric_limits<Real<T>>::epsilon();

template <class T>
T not_a_number() {
  return T(std::numeric_limits<Real<T>>::quiet_NaN());
}

template <class T>
bool is_nan(T x) {
  return std::isnan(std::real(x)) || std::isnan(std::imag(x));
}

template <class T>
T conjugate(T x) {
  if constexpr (is_complex_v<T>) {
    return std::conj(x);
  } else {
    return x;
  }
}

// A number with both parts, if it is complex.
template <class T>
T number(double re, double im) {
  if constexpr (is_complex_v<T>) {
    return T(static_cast<Real<T>>(re), static_cast<Real<T>>(im));
  } else {
    return static_cast<T>(re);
  }
}

// m x n with `padding` rows below, which hold NaN: whoever reads them spoils the result, whoever
// writes them is found by padding_untouched().
template <class T>
struct Matrix {
  Size m, n, ld;
  std::vector<T> data;

  Matrix(Size rows, Size cols, Size padding = 3)
      : m(rows),
        n(cols),
        ld(std::max<Size>(1, rows + padding)),
        data(static_cast<std::size_t>(ld * cols + 1), not_a_number<T>()) {}

  static Matrix random(Size rows, Size cols, unsigned seed, Size padding = 3) {
    Matrix a(rows, cols, padding);
    std::mt19937 generator(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    for (Size j = 0; j < cols; ++j) {
      for (Size i = 0; i < rows; ++i) {
        const double re = uniform(generator), im = uniform(generator);
        a(i, j) = number<T>(re, im);
      }
    }
    return a;
  }

  T& operator()(Size i, Size j) { return data[static_cast<std::size_t>(i + j * ld)]; }
  const T& operator()(Size i, Size j) const { return data[static_cast<std::size_t>(i + j * ld)]; }
  T* get() { return data.data(); }
  const T* get() const { return data.data(); }

  // Element (i, j) of op(this).
  T element(Op op, Size i, Size j) const {
    if (op == Op::none) {
      return (*this)(i, j);
    }
    return op == Op::transpose ? (*this)(j, i) : conjugate((*this)(j, i));
  }

  bool padding_untouched() const {
    for (Size j = 0; j < n; ++j) {
      for (Size i = m; i < ld; ++i) {
        if (!is_nan((*this)(i, j))) {
          return false;
        }
      }
    }
    return is_nan(data.back());
  }
};

// alpha op(a) op(b) + beta c; c is not looked at if beta is 0.
template <class T>
Matrix<T> product(Op op_a, Op op_b, Size k, T alpha, const Matrix<T>& a, const Matrix<T>& b, T beta,
                  const Matrix<T>& c) {
  Matrix<T> result(c.m, c.n);
  for (Size j = 0; j < c.n; ++j) {
    for (Size i = 0; i < c.m; ++i) {
      T sum(0);
      for (Size l = 0; l < k; ++l) {
        sum += a.element(op_a, i, l) * b.element(op_b, l, j);
      }
      result(i, j) = alpha * sum + (beta == T(0) ? T(0) : beta * c(i, j));
    }
  }
  return result;
}

// Largest difference between elements; NaN counts as infinite.
template <class T>
double distance(const Matrix<T>& a, const Matrix<T>& b) {
  double largest = 0;
  for (Size j = 0; j < a.n; ++j) {
    for (Size i = 0; i < a.m; ++i) {
      const double d = std::abs(a(i, j) - b(i, j));
      largest = std::isnan(d) ? INFINITY : std::max(largest, d);
    }
  }
  return largest;
}

// A triangle that is well conditioned; what must not be read holds NaN.
template <class T>
Matrix<T> triangle(Uplo uplo, Diag diag, Size n, unsigned seed) {
  Matrix<T> a = Matrix<T>::random(n, n, seed);
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < n; ++i) {
      if (i == j) {
        a(i, i) = diag == Diag::unit ? not_a_number<T>() : a(i, i) + T(2);
      } else if ((i > j) == (uplo == Uplo::lower)) {
        a(i, j) /= static_cast<Real<T>>(n);
      } else {
        a(i, j) = not_a_number<T>();
      }
    }
  }
  return a;
}

// The same with zeros and ones written out.
template <class T>
Matrix<T> written_out(Diag diag, Uplo uplo, const Matrix<T>& a) {
  Matrix<T> full = a;
  for (Size j = 0; j < a.n; ++j) {
    for (Size i = 0; i < a.m; ++i) {
      if (i == j && diag == Diag::unit) {
        full(i, j) = T(1);
      } else if (i != j && (i > j) != (uplo == Uplo::lower)) {
        full(i, j) = T(0);
      }
    }
  }
  return full;
}

}  // namespace jaxmg::testing
