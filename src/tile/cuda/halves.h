// Products of matrices of half-precision parts; see split.cu.
#pragma once

#include "tile/cuda/cuda.h"

namespace jaxmg::tile {

// What numbers are multiplied by before they are split.
inline constexpr float kSplitScale = 1024;

// One factor: column-major, `stride` elements from one product to the next.
struct Halves {
  const Cuda::Half* data;
  Size ld;
  Size stride;
};

// c (m x n) <- c - left right^T / kSplitScale^2, k being the inner dimension; for `count` blocks.
void subtract_halves(CudaLane& lane, Size m, Size n, Size k, const Halves& left,
                     const Halves& right, float* c, Size ldc, Size stride_c, Size count);

}  // namespace jaxmg::tile
