// What ranks send each other in tests: values that tell who made them, and whose sums show the
// order in which they were added.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <complex>
#include <cstdint>
#include <cstring>
#include <vector>

#include "comm/communicator.h"
#include "core/dtype.h"
#include "core/types.h"

namespace jaxmg::rank_data {

// Element i of what rank r contributes. Sums of these depend on the order of the summands, but for
// integers.
template <class T>
T value(int r, Size i) {
  const auto real = [&](std::uint64_t salt) {
    std::uint64_t h = static_cast<std::uint64_t>(i) * 0x9e3779b97f4a7c15U +
                      (static_cast<std::uint64_t>(r) << 8 | salt) * 0xbf58476d1ce4e5b9U;
    h = (h ^ (h >> 29)) * 0x94d049bb133111ebU;
    return static_cast<double>(static_cast<std::int64_t>(h)) * 0x1p-63 *
           static_cast<double>(1 << (h & 15));
  };
  if constexpr (std::is_same_v<T, std::int32_t>) {
    return static_cast<T>(10000 * real(0));
  } else if constexpr (is_complex_v<T>) {
    return T(static_cast<Real<T>>(real(1)), static_cast<Real<T>>(real(2)));
  } else {
    return static_cast<T>(real(3));
  }
}

template <class T>
std::vector<T> block(int r, Size count) {
  std::vector<T> data(static_cast<std::size_t>(count));
  for (Size i = 0; i < count; ++i) {
    data[static_cast<std::size_t>(i)] = value<T>(r, i);
  }
  return data;
}

// Equal in every bit.
template <class T>
void expect_same(const std::vector<T>& got, const std::vector<T>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  if (!got.empty()) {
    EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(T)), 0);
  }
}

// The reduction in rank order, one operation at a time.
template <class T>
std::vector<T> reduced(int ranks, Size count, Reduction op) {
  std::vector<T> result = block<T>(0, count);
  for (int r = 1; r < ranks; ++r) {
    const std::vector<T> x = block<T>(r, count);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (op == Reduction::sum) {
        result[i] = result[i] + x[i];
      } else if constexpr (!is_complex_v<T>) {
        result[i] = op == Reduction::min ? std::min(result[i], x[i]) : std::max(result[i], x[i]);
      }
    }
  }
  return result;
}

template <class T>
std::vector<Reduction> reductions() {
  if (is_complex_v<T>) {
    return {Reduction::sum};
  }
  return {Reduction::sum, Reduction::min, Reduction::max};
}

}  // namespace jaxmg::rank_data
