// Element types: their names, sizes and the real type that belongs to each.
#pragma once

#include <complex>
#include <type_traits>

#include "core/types.h"

namespace jaxmg {

enum class DType : std::int32_t { f32 = 0, f64 = 1, c64 = 2, c128 = 3, i32 = 4 };

constexpr Size size_of(DType t) {
  switch (t) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
    case DType::c64:
      return 8;
    case DType::c128:
      return 16;
  }
  return 0;
}

constexpr bool is_complex(DType t) {
  return t == DType::c64 || t == DType::c128;
}

// The type of double precision.
constexpr DType wide_of(DType t) {
  return is_complex(t) ? DType::c128 : DType::f64;
}

// The type of real and imaginary parts.
constexpr DType real_of(DType t) {
  return t == DType::c64 ? DType::f32 : t == DType::c128 ? DType::f64 : t;
}

template <class T>
struct TypeTraits;
template <>
struct TypeTraits<std::int32_t> {
  using Real = std::int32_t;
  static constexpr DType dtype = DType::i32;
};
template <>
struct TypeTraits<float> {
  using Real = float;
  static constexpr DType dtype = DType::f32;
};
template <>
struct TypeTraits<double> {
  using Real = double;
  static constexpr DType dtype = DType::f64;
};
template <>
struct TypeTraits<std::complex<float>> {
  using Real = float;
  static constexpr DType dtype = DType::c64;
};
template <>
struct TypeTraits<std::complex<double>> {
  using Real = double;
  static constexpr DType dtype = DType::c128;
};

template <class T>
using Real = typename TypeTraits<T>::Real;
template <class T>
inline constexpr DType dtype_of = TypeTraits<T>::dtype;
template <class T>
inline constexpr bool is_complex_v = !std::is_same_v<T, Real<T>>;
// The type of double precision.
template <class T>
using Wide = std::conditional_t<is_complex_v<T>, std::complex<double>, double>;

}  // namespace jaxmg
