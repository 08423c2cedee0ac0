// Right-hand sides as the ranks hold them, and solutions put together again.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "core/distribution.h"
#include "matrices.h"

namespace jaxmg::test {

// All of b, or the rank's rows of it.
template <class T>
Matrix<T> rows_of_rank(const Matrix<T>& b, const Distribution& dist, int rank, bool replicated) {
  if (replicated) {
    return b;
  }
  Matrix<T> mine(dist.capacity(), b.cols);
  for (Size i = 0; i < dist.local_size(rank); ++i) {
    const Size row = *dist.global(rank, LocalIndex(i));
    std::copy_n(b.data.begin() + row * b.cols, b.cols, mine.data.begin() + i * b.cols);
  }
  return mine;
}

// The way back. Where every rank holds all rows, all must hold the same bits.
template <class T>
Matrix<T> joined_rows(const std::vector<Matrix<T>>& parts, const Distribution& dist,
                      bool replicated) {
  const Size cols = parts[0].cols;
  Matrix<T> x(dist.size(), cols);
  for (int r = 0; r < dist.ranks(); ++r) {
    const Matrix<T>& mine = parts[static_cast<std::size_t>(r)];
    for (Size i = 0; i < dist.local_size(r); ++i) {
      const Size row = *dist.global(r, LocalIndex(i));
      std::copy_n(mine.data.begin() + (replicated ? row : i) * cols, cols,
                  x.data.begin() + row * cols);
    }
    if (replicated && !mine.data.empty()) {
      EXPECT_EQ(0,
                std::memcmp(mine.data.data(), parts[0].data.data(), sizeof(T) * mine.data.size()));
    }
  }
  return x;
}

}  // namespace jaxmg::test
