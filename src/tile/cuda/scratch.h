// Lane scratch that tile operations need.
#pragma once

#include "core/dtype.h"
#include "core/types.h"

namespace jaxmg::tile {

class CudaLane;

// Bytes for Cuda::potrf of order n.
Size potrf_bytes(CudaLane& lane, DType type, Size n);

// Bytes for Cuda::solve_diagonal and Cuda::solve_triangle with a tile of edge n.
Size triangle_bytes(DType type, Size n);

// Bytes for Cuda::orthonormalise of up to `rows` rows and `tile` columns.
Size qr_bytes(CudaLane& lane, DType type, Size rows, Size tile);

// Bytes for Cuda::signed_lu and Cuda::make_reflectors of order up to n, with as many further rows.
Size signed_lu_bytes(DType type, Size n);

// A panel of an LU factorisation: the columns that the library factors as one, and all of them.
inline constexpr Size kLuLeaf = 256;
inline constexpr Size kWidestPanel = 1024;

// Bytes for Cuda::getrf of an m x n panel.
Size getrf_bytes(CudaLane& lane, DType type, Size m, Size n);

// Bytes for Cuda::invert_triangle and Cuda::invert_unit_blocks of order n: a triangle behind what
// inversion works in.
inline Size inversion_bytes(DType type, Size n) {
  return 2 * triangle_bytes(type, n);
}

}  // namespace jaxmg::tile
