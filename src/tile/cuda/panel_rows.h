// Rows below a factored tile.
#pragma once

#include "tile/cuda/cuda.h"

namespace jaxmg::tile {

// Edge of the blocks that solve_panel_rows works in, and of the smallest tile that it takes.
inline constexpr Size kRowBlock = 64;
inline constexpr Size kRowTile = 2 * kRowBlock;

// a (m x n) <- a L^-H, n >= kRowTile. Uses the lane's scratch, triangle_bytes of order n.
template <class T>
void solve_panel_rows(CudaLane& lane, Size m, Size n, const T* l, Size ldl, T* a, Size lda);

// x_b (edge x edge, one behind the other) <- the inverse of the b-th block of edge kRowBlock on the
// diagonal of the lower triangle L, with zeros above it and beyond the last row.
template <class T>
void invert_row_blocks(CudaLane& lane, Size n, const T* l, Size ldl, T* x);

}  // namespace jaxmg::tile
