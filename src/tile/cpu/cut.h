// How an operation is cut in tasks.
#pragma once

#include <algorithm>

#include "core/types.h"

namespace jaxmg::tile {

// Blocks start at multiples of this: whole micro-kernels, whole cache lines.
inline constexpr Size kBlockAlign = 32;
// No block is longer: offsets within what one library call sees stay far from 32 bits.
inline constexpr Size kLongestBlock = 1 << 15;

// [0, extent) in blocks of equal length, but for the last.
struct Cut {
  Size extent = 0;
  Size block = 1;

  Cut() = default;
  Cut(Size whole, Size pieces)
      : extent(whole),
        block(std::clamp(round_up(ceil_div(whole, std::max<Size>(pieces, 1)), kBlockAlign),
                         kBlockAlign, kLongestBlock)) {}

  Size count() const { return ceil_div(extent, block); }
  Size begin(Size i) const { return i * block; }
  Size length(Size i) const { return std::min(block, extent - begin(i)); }
};

// m x n in blocks; number i counts down the columns of blocks.
struct Grid {
  Cut rows;
  Cut cols;
  Size count() const { return rows.count() * cols.count(); }
};

// In how many pieces to cut `flops` operations for so many workers.
Size pieces(double flops, int threads);

// The grid for each of `count` products of m x n, `flops` operations in all.
Grid grid(Size m, Size n, Size count, double flops, int threads);

}  // namespace jaxmg::tile
