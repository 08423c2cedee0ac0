// Rows below a factored tile.
#pragma once

#include "tile/cuda/cuda.h"

namespace jaxmg::tile {

// Edge of the blocks that solve_panel_rows works in, and of the smallest tile that it takes.
inline constexpr Size kRowBlock = 64;
inline constexpr Size kRowTile = 2 * kRowBlock;
// Rows from which it is faster than launches for each block of columns.
inline constexpr Size kManyRows = 16384;

// a (m x n) <- a L^-H for real types and n >= kRowTile. Uses the lane's scratch, triangle_bytes of
// order n.
template <class R>
void solve_panel_rows(CudaLane& lane, Size m, Size n, const R* l, Size ldl, R* a, Size lda);

// x_b (edge x edge, one behind the other) <- the inverse of the b-th block of edge kRowBlock on the
// diagonal of the lower triangle L, with zeros above it and beyond the last row. corrected[b] <- 1
// if that block is so ill-conditioned that products with the inverse want a correction, else 0.
template <class R>
void invert_row_blocks(CudaLane& lane, Size n, const R* l, Size ldl, R* x, int* corrected);

}  // namespace jaxmg::tile
