// Column-major matrices on the host, with a copy on the device, and products as plain loops.
#pragma once

#include <algorithm>
#include <vector>

#include "check.h"
#include "tile/device.h"

namespace jaxmg::test {

inline constexpr double kSentinel = 12345.0;

// m x n with `padding` rows below, which hold a sentinel that must stay.
template <class T>
struct HostMatrix {
  Size m;
  Size n;
  Size ld;
  std::vector<T> data;

  HostMatrix(Size rows, Size cols, Size padding = 3)
      : m(rows),
        n(cols),
        ld(std::max<Size>(1, rows + padding)),
        data(static_cast<std::size_t>(ld * std::max<Size>(1, cols)), T(kSentinel)) {}

  static HostMatrix random(Size rows, Size cols, std::uint64_t seed, Size padding = 3) {
    HostMatrix a(rows, cols, padding);
    for (Size j = 0; j < cols; ++j) {
      for (Size i = 0; i < rows; ++i) {
        a(i, j) = random_entry<T>(seed, i, j);
      }
    }
    return a;
  }
  // Lower triangular, well conditioned, with rubbish above the diagonal.
  static HostMatrix random_lower(Size n, std::uint64_t seed) {
    HostMatrix l = random(n, n, seed);
    for (Size i = 0; i < n; ++i) {
      l(i, i) = T(Real<T>(1) + std::sqrt(static_cast<Real<T>>(n)) * Real<T>(0.3));
    }
    return l;
  }

  T& operator()(Size i, Size j) { return data[static_cast<std::size_t>(i + j * ld)]; }
  const T& operator()(Size i, Size j) const { return data[static_cast<std::size_t>(i + j * ld)]; }

  HostMatrix lower() const {
    HostMatrix l = *this;
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < j; ++i) {
        l(i, j) = T(0);
      }
    }
    return l;
  }
  HostMatrix applied(Op op) const {
    if (op == Op::none) {
      return *this;
    }
    HostMatrix t(n, m);
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        t(j, i) = op == Op::conj_transpose ? conjugate((*this)(i, j)) : (*this)(i, j);
      }
    }
    return t;
  }
  double largest() const {
    double largest = 0;
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        const double x = std::abs((*this)(i, j));
        largest = std::isnan(x) ? x : std::max(largest, x);
      }
    }
    return largest;
  }
  bool padding_untouched() const {
    for (Size j = 0; j < n; ++j) {
      for (Size i = m; i < ld; ++i) {
        if ((*this)(i, j) != T(kSentinel)) {
          return false;
        }
      }
    }
    return true;
  }
};

template <class T>
HostMatrix<T> product(const HostMatrix<T>& a, const HostMatrix<T>& b) {
  HostMatrix<T> c(a.m, b.n);
  for (Size j = 0; j < b.n; ++j) {
    for (Size i = 0; i < a.m; ++i) {
      T sum(0);
      for (Size k = 0; k < a.n; ++k) {
        sum += a(i, k) * b(k, j);
      }
      c(i, j) = sum;
    }
  }
  return c;
}

// The largest difference; NaN if there is one.
template <class T>
double distance(const HostMatrix<T>& a, const HostMatrix<T>& b) {
  HostMatrix<T> d(a.m, a.n);
  for (Size j = 0; j < a.n; ++j) {
    for (Size i = 0; i < a.m; ++i) {
      d(i, j) = a(i, j) - b(i, j);
    }
  }
  return d.largest();
}

// A host matrix's copy on the device.
template <class T>
struct OnDevice {
  explicit OnDevice(const HostMatrix<T>& host) : shape(host), array(host.data) {}
  T* get() const { return array.get(); }
  Size ld() const { return shape.ld; }
  HostMatrix<T> back() const {
    HostMatrix<T> result = shape;
    result.data = array.download();
    return result;
  }

  HostMatrix<T> shape;
  DeviceArray<T> array;
};

}  // namespace jaxmg::test
