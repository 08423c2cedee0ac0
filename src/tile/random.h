// Reproducible random numbers: each is a function of its index alone, so that every device and
// every rank makes the same ones without keeping a state.
#pragma once

#include <cstdint>

#include "core/types.h"

#ifdef __CUDACC__
#define JAXMG_HOST_DEVICE __host__ __device__
#else
#define JAXMG_HOST_DEVICE
#endif

namespace jaxmg::tile {

// The output function of the SplitMix64 generator at state (index + 1) * golden ratio.
JAXMG_HOST_DEVICE constexpr std::uint64_t random_bits(std::uint64_t index) {
  std::uint64_t z = (index + 1) * 0x9E3779B97F4A7C15ULL;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

// The index-th number, in (-1, 1) and never 0. With u the top 53 bits:
//
//   ((2 u + 1) - 2^53) / 2^53
//
// The numerator is an odd integer below 2^53 in magnitude, so that no step rounds.
JAXMG_HOST_DEVICE constexpr double random_real(Size index) {
  const std::uint64_t u = random_bits(static_cast<std::uint64_t>(index)) >> 11;
  const std::int64_t numerator = static_cast<std::int64_t>(2 * u + 1) - (std::int64_t{1} << 53);
  return static_cast<double>(numerator) * (1.0 / 9007199254740992.0);
}

}  // namespace jaxmg::tile
