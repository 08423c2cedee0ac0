// Launches of kernels over the elements of a matrix.
#pragma once

#include <algorithm>
#include <cstddef>

#include "core/types.h"
#include "tile/cuda/error.h"
#include "tile/cuda/lane.h"
#include "tile/cuda/shared_memory.h"

namespace jaxmg::tile {

inline constexpr int kThreads = 256;
inline constexpr Size kMaxGridY = 65535;
inline constexpr Size kMaxGridZ = 65535;

// Threads for the elements of an m x n matrix: as many along a column as it has use for, the others
// in the next columns; `each`: elements of a row that belong to one.
struct ElementGrid {
  dim3 block;
  dim3 grid;
};
inline ElementGrid element_grid(Size m, Size n, int each) {
  unsigned rows = 1;
  while (rows < kThreads && rows < m) {
    rows *= 2;
  }
  const dim3 block(rows, kThreads / rows);
  const Size columns = Size{each} * block.y;
  const dim3 grid(static_cast<unsigned>(std::min<Size>(ceil_div(m, block.x), 1 << 20)),
                  static_cast<unsigned>(std::min<Size>(ceil_div(n, columns), kMaxGridY)));
  return {block, grid};
}

// f(i, j) for each element of an m x n matrix; a column's elements go to neighbouring threads.
template <class F>
__global__ void for_each_kernel(Size m, Size n, F f) {
  const Size step_i = static_cast<Size>(gridDim.x) * blockDim.x;
  const Size step_j = static_cast<Size>(gridDim.y) * blockDim.y;
  for (Size j = static_cast<Size>(blockIdx.y) * blockDim.y + threadIdx.y; j < n; j += step_j) {
    for (Size i = static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x; i < m; i += step_i) {
      f(i, j);
    }
  }
}

template <class F>
void for_each(CudaLane& lane, Size m, Size n, F f) {
  if (m <= 0 || n <= 0) {
    return;
  }
  const ElementGrid of = element_grid(m, n, 1);
  for_each_kernel<<<of.grid, of.block, 0, lane.stream()>>>(m, n, f);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

inline constexpr int kMovedTogether = 4;

// store(i, j, load(i, j)) for each element. A thread loads several elements before it stores the
// first, so that enough of them are on their way to keep the memory busy.
template <class Load, class Store>
__global__ void move_each_kernel(Size m, Size n, Load load, Store store) {
  constexpr int batch = kMovedTogether;
  using Element = decltype(load(Size{0}, Size{0}));
  const Size step_i = static_cast<Size>(gridDim.x) * blockDim.x;
  const Size step_j = static_cast<Size>(gridDim.y) * blockDim.y * batch;
  for (Size j0 = static_cast<Size>(blockIdx.y) * blockDim.y * batch + threadIdx.y; j0 < n;
       j0 += step_j) {
    for (Size i = static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x; i < m; i += step_i) {
      Element x[batch];
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const Size j = j0 + b * blockDim.y;
        if (j < n) {
          x[b] = load(i, j);
        }
      }
#pragma unroll
      for (int b = 0; b < batch; ++b) {
        const Size j = j0 + b * blockDim.y;
        if (j < n) {
          store(i, j, x[b]);
        }
      }
    }
  }
}

template <class Load, class Store>
void move_each(CudaLane& lane, Size m, Size n, Load load, Store store) {
  if (m <= 0 || n <= 0) {
    return;
  }
  const ElementGrid of = element_grid(m, n, kMovedTogether);
  move_each_kernel<<<of.grid, of.block, 0, lane.stream()>>>(m, n, load, store);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

}  // namespace jaxmg::tile
