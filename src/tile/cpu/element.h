// Functions of one element of a matrix, real or complex.
#pragma once

#include <cmath>
#include <complex>

#include "core/dtype.h"

namespace jaxmg::tile {

template <class T>
T conjugate(T x) {
  if constexpr (is_complex_v<T>) {
    return std::conj(x);
  } else {
    return x;
  }
}

template <class T>
bool finite(T x) {
  if constexpr (is_complex_v<T>) {
    return std::isfinite(x.real()) && std::isfinite(x.imag());
  } else {
    return std::isfinite(x);
  }
}

}  // namespace jaxmg::tile
