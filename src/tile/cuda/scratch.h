// Lane scratch that tile operations need.
#pragma once

#include "core/dtype.h"
#include "core/types.h"

namespace jaxmg::tile {

class CudaLane;

// Bytes for Cuda::potrf of order n.
Size potrf_bytes(CudaLane& lane, DType type, Size n);

// Bytes for Cuda::solve_diagonal with a tile of edge n.
Size triangle_bytes(DType type, Size n);

// Bytes for Cuda::orthonormalise of up to `rows` rows and `tile` columns.
Size qr_bytes(CudaLane& lane, DType type, Size rows, Size tile);

}  // namespace jaxmg::tile
