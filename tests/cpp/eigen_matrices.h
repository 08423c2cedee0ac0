// Symmetric matrices on which eigensolvers have failed.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "matrices.h"

namespace jaxmg::test {

// Q diag(w) Q^H with Q a product of a few random reflectors.
template <class T>
Matrix<T> with_spectrum(const std::vector<double>& w, std::uint64_t seed) {
  using Wide = std::conditional_t<is_complex_v<T>, std::complex<double>, double>;
  const auto n = static_cast<Size>(w.size());
  Matrix<Wide> a(n, n);
  for (Size i = 0; i < n; ++i) {
    a(i, i) = Wide(w[static_cast<std::size_t>(i)]);
  }
  for (int k = 0; k < 4; ++k) {
    std::vector<Wide> u;
    double squares = 0;
    for (Size i = 0; i < n; ++i) {
      u.push_back(random_entry<Wide>(seed + static_cast<std::uint64_t>(k), i, 0));
      squares += std::norm(u.back());
    }
    // A <- H A H, H = I - 2 u u^H / |u|^2
    for (const bool left : {true, false}) {
      for (Size j = 0; j < n; ++j) {
        Wide sum(0);
        for (Size i = 0; i < n; ++i) {
          const Wide x = u[static_cast<std::size_t>(i)];
          sum += left ? conjugate(x) * a(i, j) : a(j, i) * x;
        }
        for (Size i = 0; i < n && squares > 0; ++i) {
          const Wide x = u[static_cast<std::size_t>(i)];
          (left ? a(i, j) : a(j, i)) -= 2 / squares * (left ? x * sum : sum * conjugate(x));
        }
      }
    }
  }
  Matrix<T> result(n, n);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j <= i; ++j) {
      result(i, j) = static_cast<T>(a(i, j));
      result(j, i) = conjugate(result(i, j));
    }
    result(i, i) = T(std::real(result(i, i)));
  }
  return result;
}

template <class T>
Matrix<T> from_entries(Size n, const std::function<double(Size, Size)>& entry) {
  Matrix<T> a(n, n);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      a(i, j) = T(static_cast<Real<T>>(entry(std::max(i, j), std::min(i, j))));
    }
  }
  return a;
}

inline std::vector<double> spectrum(Size n, const std::function<double(Size)>& value) {
  std::vector<double> w;
  for (Size i = 0; i < n; ++i) {
    w.push_back(value(i));
  }
  return w;
}

template <class T>
struct NamedMatrix {
  std::string name;
  Matrix<T> a;
};

template <class T>
std::vector<NamedMatrix<T>> hard_matrices(Size n) {
  const auto real = [](Size i) { return static_cast<double>(i); };
  const double size = real(n);
  const auto known = [&](const std::function<double(Size)>& value) {
    return with_spectrum<T>(spectrum(n, value), 11);
  };
  const auto diagonal = [&](const std::function<double(Size)>& value) {
    return from_entries<T>(n, [&](Size i, Size j) { return i == j ? value(i) : 0.0; });
  };
  // W21+ in a row, joined by small elements.
  const auto wilkinson = [&](double glue) {
    return from_entries<T>(n, [&](Size i, Size j) {
      return i == j ? std::fabs(real(i % 21) - 10) : i != j + 1 ? 0.0 : i % 21 == 0 ? glue : 1.0;
    });
  };
  const auto tridiagonal = [&](const std::function<double(Size)>& off) {
    return from_entries<T>(n, [&](Size i, Size j) {
      return i == j ? 2.0 : i == j + 1 ? off(j) : 0;
    });
  };
  const auto unit = [](double u) { return u + 0.5; };
  return {
      {"zero", diagonal([](Size) { return 0; })},
      {"identity", diagonal([](Size) { return 1; })},
      {"diagonal", diagonal([&](Size i) { return real((i * 7) % n) - size / 2; })},
      {"equal pairs", known([&](Size i) { return real(i / 2 + 1); })},
      {"plus and minus", known([&](Size i) { return (i % 2 == 0 ? 1 : -1) * real(i / 2 + 1); })},
      {"two values", known([](Size i) { return i % 2 == 0 ? 1 : -1; })},
      {"clusters", known([&](Size i) { return real(i % 5) + 1e-10 * real(i); })},
      {"geometric", known([&](Size i) { return std::pow(10, -15 * real(i) / size); })},
      {"one large", known([](Size i) { return i == 0 ? 1 : 1e-8; })},
      {"one small", known([](Size i) { return i == 0 ? 1e-12 : 1; })},
      {"rank one", from_entries<T>(n, [](Size, Size) { return 1; })},
      {"wilkinson", wilkinson(1e-7)},
      {"wilkinson apart", wilkinson(1e-14)},
      {"hilbert", from_entries<T>(n, [&](Size i, Size j) { return 1 / (real(i + j) + 1); })},
      {"nearly diagonal", from_entries<T>(n,
                                          [&](Size i, Size j) {
                                            return i == j ? 1 + 1e-9 * real(i)
                                                          : 1e-13 * random_number(3, i, j);
                                          })},
      {"identity and a pair",
       from_entries<T>(
           n, [&](Size i, Size j) { return i == j                     ? 1.0
                                           : i == n - 1 && j == n / 2 ? 0.5
                                                                      : 0.0; })},
      {"laplacian", tridiagonal([](Size) { return -1; })},
      {"tridiagonal with zeros", tridiagonal([](Size j) { return j % 3 == 0 ? 0.0 : -1.0; })},
      {"graded tridiagonal", tridiagonal([&](Size j) { return std::pow(10, -real(j) / 3); })},
      {"toeplitz", from_entries<T>(n, [&](Size i, Size j) { return std::pow(0.5, real(i - j)); })},
      {"kernel", from_entries<T>(n,
                                 [&](Size i, Size j) {
                                   const double x = real(i - j) / size / 0.2;
                                   return std::exp(-x * x / 2);
                                 })},
      {"gram", from_entries<T>(n,
                               [&](Size i, Size j) {
                                 double sum = 0;
                                 for (Size k = 0; k < 5; ++k) {
                                   sum +=
                                       unit(random_number(8, i, k)) * unit(random_number(8, j, k));
                                 }
                                 return sum;
                               })},
      {"block diagonal", from_entries<T>(n,
                                         [&](Size i, Size j) {
                                           return i / 7 == j / 7 ? random_number(9, i % 7, j % 7)
                                                                 : 0.0;
                                         })},
  };
}

}  // namespace jaxmg::test
