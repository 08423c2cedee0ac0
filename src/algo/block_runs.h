// Blocks of a trailing update that have one shape and lie at constant distances from each other,
// found so that each such run can be a single batched product: the blocks near the diagonal are
// many and too small to fill a device one by one.
#pragma once

#include <vector>

#include "core/types.h"

namespace jaxmg {

// C (m x n at `offset` of the matrix) -= P[row : row + m, :] P[col : col + n, :]^H.
struct UpdateBlock {
  Size row = 0;
  Size m = 0;
  Size col = 0;
  Size n = 0;
  Size offset = 0;
};

// Several sequences of blocks; blocks of one sequence are candidates for a run.
class BlockRuns {
 public:
  explicit BlockRuns(Size sequences) : sequences_(static_cast<std::size_t>(sequences)) {}

  void add(Size sequence, const UpdateBlock& block) {
    sequences_[static_cast<std::size_t>(sequence)].push_back(block);
  }

  // visit(first block, distance to the next as a block of differences, number of blocks).
  template <class Visit>
  void for_each(const Visit& visit) const {
    for (const auto& blocks : sequences_) {
      for (std::size_t i = 0; i < blocks.size();) {
        std::size_t count = 1;
        UpdateBlock stride;
        if (i + 1 < blocks.size() && same_shape(blocks[i], blocks[i + 1])) {
          stride = difference(blocks[i], blocks[i + 1]);
          for (; i + count < blocks.size() &&
                 follows(blocks[i + count - 1], blocks[i + count], stride);
               ++count) {
          }
        }
        visit(blocks[i], stride, static_cast<Size>(count));
        i += count;
      }
    }
  }

 private:
  static bool same_shape(const UpdateBlock& a, const UpdateBlock& b) {
    return a.m == b.m && a.n == b.n;
  }
  static UpdateBlock difference(const UpdateBlock& a, const UpdateBlock& b) {
    return {b.row - a.row, 0, b.col - a.col, 0, b.offset - a.offset};
  }
  static bool follows(const UpdateBlock& a, const UpdateBlock& b, const UpdateBlock& stride) {
    const UpdateBlock d = difference(a, b);
    return same_shape(a, b) && d.row == stride.row && d.col == stride.col &&
           d.offset == stride.offset;
  }

  std::vector<std::vector<UpdateBlock>> sequences_;
};

}  // namespace jaxmg
