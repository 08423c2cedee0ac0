// The arithmetic of reductions, element by element.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "comm/communicator.h"
#include "core/dtype.h"
#include "core/types.h"

namespace jaxmg::threads {

// a + b; integers wrap around.
template <class T>
T sum_of(T a, T b) {
  if constexpr (std::is_same_v<T, std::int32_t>) {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  } else {
    return a + b;
  }
}

// Whether b takes the place of a. A NaN comes before everything, and the first one stays.
template <class T>
bool precedes(Reduction op, T b, T a) {
  const bool extreme = op == Reduction::min ? b < a : b > a;
  return extreme || (std::isnan(b) && !std::isnan(a));
}

// a <- a (op) x, real types.
template <class T>
void accumulate_real(Reduction op, Size n, const T* x, T* a) {
  switch (op) {
    case Reduction::sum:
      for (Size i = 0; i < n; ++i) {
        a[i] = sum_of(a[i], x[i]);
      }
      return;
    case Reduction::min:
      for (Size i = 0; i < n; ++i) {
        a[i] = precedes(Reduction::min, x[i], a[i]) ? x[i] : a[i];
      }
      return;
    case Reduction::max:
      for (Size i = 0; i < n; ++i) {
        a[i] = precedes(Reduction::max, x[i], a[i]) ? x[i] : a[i];
      }
      return;
  }
}

// a <- a (op) x. Complex values are pairs of real ones, which is all that a sum has to know.
inline void accumulate(DType type, Reduction op, Size n, const void* x, void* a) {
  switch (type) {
    case DType::i32:
      return accumulate_real(op, n, static_cast<const std::int32_t*>(x),
                             static_cast<std::int32_t*>(a));
    case DType::f32:
      return accumulate_real(op, n, static_cast<const float*>(x), static_cast<float*>(a));
    case DType::f64:
      return accumulate_real(op, n, static_cast<const double*>(x), static_cast<double*>(a));
    case DType::c64:
      return accumulate_real(op, 2 * n, static_cast<const float*>(x), static_cast<float*>(a));
    case DType::c128:
      return accumulate_real(op, 2 * n, static_cast<const double*>(x), static_cast<double*>(a));
  }
}

// |x|, of the type of x.
template <class T>
T magnitude(T x) {
  if constexpr (std::is_same_v<T, std::int32_t>) {
    return x == std::numeric_limits<T>::min() ? std::numeric_limits<T>::max() : (x < 0 ? -x : x);
  } else {
    return std::abs(x);
  }
}

// A value and where it is.
struct Located {
  void* value;
  std::int64_t* location;
};

// All entries <- the one of extreme magnitude, the first such one, with its magnitude as value.
template <class T, class Entries>
void locate_extreme(Reduction op, const Entries& entries) {
  T best{};
  std::int64_t location = 0;
  bool first = true;
  for (const Located& e : entries) {
    const T value = magnitude(*static_cast<const T*>(e.value));
    if (first || precedes(op, value, best)) {
      best = value;
      location = *e.location;
      first = false;
    }
  }
  for (const Located& e : entries) {
    *static_cast<T*>(e.value) = best;
    *e.location = location;
  }
}

template <class Entries>
void locate_extreme(DType type, Reduction op, const Entries& entries) {
  switch (type) {
    case DType::i32:
      return locate_extreme<std::int32_t>(op, entries);
    case DType::f32:
      return locate_extreme<float>(op, entries);
    case DType::f64:
      return locate_extreme<double>(op, entries);
    case DType::c64:
    case DType::c128:
      throw std::invalid_argument("complex values have no extremes");
  }
}

}  // namespace jaxmg::threads
