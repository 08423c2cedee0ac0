// Half-precision numbers (IEEE 754 binary16) by hand, for devices that have none.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace jaxmg::test {

// To nearest, ties to even, as GPUs round.
inline std::uint16_t to_half(float x) {
  const auto sign = static_cast<std::uint16_t>(std::signbit(x) ? 0x8000 : 0);
  const float size = std::abs(x);
  if (std::isnan(x)) {
    return static_cast<std::uint16_t>(sign | 0x7e00);
  }
  if (size >= 65520.0F) {  // half way from the largest number to what would be the next one
    return static_cast<std::uint16_t>(sign | 0x7c00);
  }
  // 11 bits of normal numbers, less below 2^-14: multiples of 2^(exponent - 10).
  const int exponent = size < 0x1p-14F ? -14 : std::ilogb(size);
  const auto multiple = static_cast<std::uint16_t>(std::nearbyint(std::ldexp(size, 10 - exponent)));
  const int bits = multiple + (exponent == -14 && multiple < 1024 ? 0 : (exponent + 14) * 1024);
  return static_cast<std::uint16_t>(sign | bits);
}

inline float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int fraction = bits & 1023;
  float size = 0;
  if (exponent == 31) {
    size = fraction == 0 ? std::numeric_limits<float>::infinity()
                         : std::numeric_limits<float>::quiet_NaN();
  } else if (exponent == 0) {
    size = std::ldexp(static_cast<float>(fraction), -24);
  } else {
    size = std::ldexp(static_cast<float>(fraction + 1024), exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -size : size;
}

}  // namespace jaxmg::test
