// Sizes, and the one checked passage to the 32-bit integers of vendor libraries.
#pragma once

#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>

namespace jaxmg {

// Every size, offset and leading dimension is signed and 64 bits wide: n * n overflows 32 bits at
// n = 46341.
using Size = std::int64_t;

// The only way to hand a Size to a library that takes `int`.
inline int narrow(Size value) {
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
    throw std::overflow_error("size " + std::to_string(value) + " does not fit in 32 bits");
  }
  return static_cast<int>(value);
}

constexpr Size ceil_div(Size a, Size b) {
  return (a + b - 1) / b;
}
constexpr Size round_up(Size a, Size b) {
  return ceil_div(a, b) * b;
}

}  // namespace jaxmg
