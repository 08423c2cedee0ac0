// A library of the kind that src/vendor hands its data to, written down naively: it puts the
// block-cyclic matrix together, works on it, and deals it out again. As the real ones do, it leaves
// scratch above the diagonal.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "core/distribution.h"
#include "matrices.h"
#include "tile/cpu/cpu.h"
#include "vendor/host.h"
#include "vendor/library.h"

namespace jaxmg::vendor {

template <>
struct Host<tile::Cpu> {
  static Info finish(tile::CpuLane&, const Info* info) { return *info; }
  template <class X>
  static void read(tile::CpuLane&, Size count, const X* from, X* host) {
    std::copy_n(from, count, host);
  }
  template <class X>
  static void write(tile::CpuLane&, Size count, const X* host, X* to) {
    std::copy_n(host, count, to);
  }
  template <class Until>
  static void wait(tile::CpuLane&, std::unique_lock<std::mutex>& lock,
                   std::condition_variable& changed, const Until& until) {
    changed.wait(lock, until);
  }
};

}  // namespace jaxmg::vendor

namespace jaxmg::test {

template <class T>
class NaiveLibrary : public vendor::Library {
 public:
  NaiveLibrary(Size n, int ranks, Size tile)
      : n_(n), ranks_(ranks), dist_(n, ranks, tile, Storage::cyclic) {}

  Size workspace_bytes() const override { return 16; }

  Size potrf(vendor::Pointers a, vendor::Pointers) override {
    Matrix<T> m = collect(a, dist_);  // m(j, i): element (i, j), as columns lie one after the other
    Size info = 0;
    for (Size j = 0; j < n_ && info == 0; ++j) {
      Real<T> d = std::real(m(j, j));
      for (Size k = 0; k < j; ++k) {
        d -= std::norm(m(k, j));
      }
      if (!(d > 0)) {
        info = j + 1;
        break;
      }
      m(j, j) = T(std::sqrt(d));
      for (Size i = j + 1; i < n_; ++i) {
        T sum = m(j, i);
        for (Size k = 0; k < j; ++k) {
          sum -= m(k, i) * conjugate(m(k, j));
        }
        m(j, i) = sum / m(j, j);
      }
    }
    spoil_upper(m);
    deal(m, a, dist_);
    return info;
  }

  void potrs(Size columns, vendor::Pointers l, vendor::Pointers b, vendor::Pointers) override {
    const Matrix<T> m = collect(l, dist_);
    const Distribution split(columns, ranks_, ceil_div(columns, ranks_), Storage::cyclic);
    Matrix<T> x = collect(b, split);
    for (Size c = 0; c < columns; ++c) {
      for (Size i = 0; i < n_; ++i) {
        for (Size k = 0; k < i; ++k) {
          x(c, i) -= m(k, i) * x(c, k);
        }
        x(c, i) /= m(i, i);
      }
      for (Size i = n_ - 1; i >= 0; --i) {
        for (Size k = i + 1; k < n_; ++k) {
          x(c, i) -= conjugate(m(i, k)) * x(c, k);
        }
        x(c, i) /= conjugate(m(i, i));
      }
    }
    deal(x, b, split);
  }

  Size potri(vendor::Pointers a, vendor::Pointers workspace) override {
    Matrix<T> x(n_, n_);
    for (Size i = 0; i < n_; ++i) {
      x(i, i) = T(1);
    }
    const Matrix<T> l = collect(a, dist_);
    std::vector<std::vector<T>> identity;
    vendor::Pointers columns;
    const Distribution split(n_, ranks_, ceil_div(n_, ranks_), Storage::cyclic);
    for (int r = 0; r < ranks_; ++r) {
      identity.emplace_back(static_cast<std::size_t>(n_ * split.capacity()));
      columns.push_back(identity.back().data());
    }
    deal(x, columns, split);
    potrs(n_, a, columns, workspace);
    x = collect(columns, split);
    spoil_upper(x);
    deal(x, a, dist_);
    return 0;
  }

  Size getrf(vendor::Pointers a, vendor::Pointers pivots, vendor::Pointers) override {
    Matrix<T> m = collect(a, dist_);
    Size info = 0;
    for (Size k = 0; k < n_ && info == 0; ++k) {
      Size best = k;
      for (Size i = k; i < n_; ++i) {
        best = std::abs(m(k, i)) > std::abs(m(k, best)) ? i : best;
      }
      pivot(pivots, k) = static_cast<std::int32_t>(best + 1);
      if (m(k, best) == T(0)) {
        info = k + 1;
        break;
      }
      for (Size j = 0; j < n_; ++j) {
        std::swap(m(j, k), m(j, best));
      }
      for (Size i = k + 1; i < n_; ++i) {
        m(k, i) /= m(k, k);
        for (Size j = k + 1; j < n_; ++j) {
          m(j, i) -= m(k, i) * m(j, k);
        }
      }
    }
    deal(m, a, dist_);
    return info;
  }

  void getrs(Size columns, vendor::Pointers lu, vendor::Pointers pivots, vendor::Pointers b,
             vendor::Pointers) override {
    const Matrix<T> m = collect(lu, dist_);
    const Distribution split(columns, ranks_, ceil_div(columns, ranks_), Storage::cyclic);
    Matrix<T> x = collect(b, split);
    for (Size c = 0; c < columns; ++c) {
      for (Size i = 0; i < n_; ++i) {
        std::swap(x(c, i), x(c, pivot(pivots, i) - 1));
      }
      for (Size i = 0; i < n_; ++i) {
        for (Size k = 0; k < i; ++k) {
          x(c, i) -= m(k, i) * x(c, k);
        }
      }
      for (Size i = n_ - 1; i >= 0; --i) {
        for (Size k = i + 1; k < n_; ++k) {
          x(c, i) -= m(k, i) * x(c, k);
        }
        x(c, i) /= m(i, i);
      }
    }
    deal(x, b, split);
  }

  // Jacobi's method, from the lower triangle alone.
  Size syevd(bool vectors, vendor::Pointers a, void* values, vendor::Pointers) override {
    Matrix<T> m = collect(a, dist_);
    Matrix<T> v(n_, n_);
    for (Size j = 0; j < n_; ++j) {
      v(j, j) = T(1);
      m(j, j) = T(std::real(m(j, j)));
      for (Size i = j + 1; i < n_; ++i) {
        m(i, j) = conjugate(m(j, i));
      }
    }
    for (int sweep = 0; sweep < 40; ++sweep) {
      for (Size p = 0; p < n_; ++p) {
        for (Size q = p + 1; q < n_; ++q) {
          rotate(m, v, p, q);
        }
      }
    }
    std::vector<Size> order(static_cast<std::size_t>(n_));
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](Size j) { return std::real(m(j, j)); });
    Matrix<T> sorted(n_, n_, T(std::numeric_limits<Real<T>>::quiet_NaN()));
    for (Size j = 0; j < n_; ++j) {
      const Size from = order[static_cast<std::size_t>(j)];
      static_cast<Real<T>*>(values)[j] = std::real(m(from, from));
      if (vectors) {
        std::copy_n(&v(from, 0), n_, &sorted(j, 0));
      }
    }
    deal(sorted, a, dist_);
    return 0;
  }

 protected:
  // Columns p and q of m and v, then rows of m, so that element (p, q) vanishes. Column j of a
  // matrix is row j of its storage.
  void rotate(Matrix<T>& m, Matrix<T>& v, Size p, Size q) {
    const T x = m(q, p);  // element (p, q)
    const Real<T> size = std::abs(x);
    if (size == 0) {
      return;
    }
    const Real<T> theta = (std::real(m(q, q)) - std::real(m(p, p))) / (2 * size);
    const Real<T> t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::hypot(theta, Real<T>(1)));
    const Real<T> c = 1 / std::hypot(t, Real<T>(1));
    const T s = t * c * (x / size);
    for (Matrix<T>* const columns : {&m, &v}) {
      for (Size i = 0; i < n_; ++i) {
        const T a = (*columns)(p, i), b = (*columns)(q, i);
        (*columns)(p, i) = c * a - conjugate(s) * b;
        (*columns)(q, i) = s * a + c * b;
      }
    }
    for (Size j = 0; j < n_; ++j) {
      const T a = m(j, p), b = m(j, q);
      m(j, p) = c * a - s * b;
      m(j, q) = conjugate(s) * a + c * b;
    }
  }

  std::int32_t& pivot(const vendor::Pointers& pivots, Size column) const {
    const GlobalIndex g(column);
    const auto rank = static_cast<std::size_t>(dist_.owner(g));
    return static_cast<std::int32_t*>(pivots[rank])[*dist_.local(g)];
  }

  // Column j of the matrix is row j of what is returned.
  Matrix<T> collect(const vendor::Pointers& from, const Distribution& dist) const {
    Matrix<T> m(dist.size(), n_);
    each_column(dist, [&](Size global, int rank, Size local) {
      const T* column = static_cast<const T*>(from[static_cast<std::size_t>(rank)]) + local * n_;
      std::copy_n(column, n_, &m(global, 0));
    });
    return m;
  }

  void deal(const Matrix<T>& m, const vendor::Pointers& to, const Distribution& dist) const {
    each_column(dist, [&](Size global, int rank, Size local) {
      T* column = static_cast<T*>(to[static_cast<std::size_t>(rank)]) + local * n_;
      std::copy_n(&m(global, 0), n_, column);
    });
  }

  template <class Visit>
  static void each_column(const Distribution& dist, const Visit& visit) {
    for (Size g = 0; g < dist.size(); ++g) {
      visit(g, dist.owner(GlobalIndex(g)), *dist.local(GlobalIndex(g)));
    }
  }

  static void spoil_upper(Matrix<T>& m) {
    for (Size j = 0; j < m.rows; ++j) {
      std::fill_n(&m(j, 0), j, T(std::numeric_limits<Real<T>>::quiet_NaN()));
    }
  }

  Size n_;
  int ranks_;
  Distribution dist_;
};

}  // namespace jaxmg::test
