// What cusolverMgPotrf does where a device lags behind: see vendor/factor_probe.h.
#pragma once

#include <algorithm>
#include <vector>

#include "vendor_library.h"

namespace jaxmg::test {

// In step `late` (-1: none), the rank that has made the panel updates its columns when the next
// panel lies on top of it.
template <class T>
class LaggingLibrary final : public NaiveLibrary<T> {
 public:
  LaggingLibrary(Size n, int ranks, Size tile, Size late)
      : NaiveLibrary<T>(n, ranks, tile), tile_(tile), late_(late) {}

  Size potrf(vendor::Pointers a, vendor::Pointers) override {
    Matrix<T> m = this->collect(a, this->dist_);
    const Size n = this->n_;
    const Size steps = ceil_div(n, tile_);
    std::vector<T> kept;  // column-major with leading dimension n, as the library has it
    for (Size k = 0; k < steps; ++k) {
      factor_columns(m, k * tile_, end(k));
      std::vector<T> panel(static_cast<std::size_t>(n * tile_));
      for (Size j = k * tile_; j < end(k); ++j) {
        std::copy_n(&m(j, k * tile_), n - k * tile_, panel.begin() + (j - k * tile_) * n);
      }
      if (late_ >= 0 && k == late_ + 1) {
        for (Size j = 0; j < end(k) - k * tile_; ++j) {
          std::copy_n(panel.begin() + j * n, n - k * tile_, kept.begin() + j * n);
        }
        update(m, late_, kept, /*of_maker=*/true);
      }
      update(m, k, panel, false);
      if (k == late_) {
        kept = panel;
      } else {
        update(m, k, panel, true);
      }
    }
    this->deal(m, a, this->dist_);
    return 0;
  }

 private:
  Size end(Size k) const { return std::min(this->n_, (k + 1) * tile_); }

  // Columns first .. last - 1, which all others have updated.
  void factor_columns(Matrix<T>& m, Size first, Size last) const {
    for (Size j = first; j < last; ++j) {
      for (Size k = first; k < j; ++k) {
        for (Size i = j; i < this->n_; ++i) {
          m(j, i) -= m(k, i) * conjugate(m(k, j));
        }
      }
      m(j, j) = T(std::sqrt(std::real(m(j, j))));
      for (Size i = j + 1; i < this->n_; ++i) {
        m(j, i) /= m(j, j);
      }
    }
  }

  // Columns behind panel k: those of the rank that has made it, or of the others.
  void update(Matrix<T>& m, Size k, const std::vector<T>& panel, bool of_maker) const {
    const Size first = k * tile_;
    for (Size j = end(k); j < this->n_; ++j) {
      if (((j / tile_ - k) % this->ranks_ == 0) != of_maker) {
        continue;
      }
      for (Size c = 0; c < end(k) - first; ++c) {
        const T* const column = panel.data() + c * this->n_ - first;
        for (Size i = j; i < this->n_; ++i) {
          m(j, i) -= column[i] * conjugate(column[j]);
        }
      }
    }
  }

  Size tile_;
  Size late_;
};

}  // namespace jaxmg::test
