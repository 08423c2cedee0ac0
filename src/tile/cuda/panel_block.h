// Blocks of 64 x 64 elements in the registers of a thread block, and their operands in shared
// memory.
#pragma once

#include "tile/cuda/async_copy.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/panel_rows.h"
#include "tile/cuda/tensor_core.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// A 64 x 64 block in the registers of a thread block: 8 warps have 16 x 32 elements each.
class Block {
 public:
  // block += sign A B^H with A and B (64 x 32) in shared memory, column by column.
  template <int sign, class R>
  __device__ void add(const R* a, const R* b) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
    const R* const left = a + t * kBlockPitch + first_row() + g;
    const R* const right = b + t * kBlockPitch + first_column() + g;
#pragma unroll
    for (int k = 0; k < kBlockDepth; k += 8) {
      const R* const p = left + k * kBlockPitch;
      const R* const q = right + k * kBlockPitch;
      const double a0 = sign * p[0], a1 = sign * p[8];
      const double a2 = sign * p[4 * kBlockPitch], a3 = sign * p[4 * kBlockPitch + 8];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        multiply_add(x_[j], a0, a1, a2, a3, q[8 * j], q[4 * kBlockPitch + 8 * j]);
      }
    }
  }
  // f(row, column, element) for the thread's elements.
  template <class F>
  __device__ void for_each(F&& f) {
    const int row = first_row() + static_cast<int>(threadIdx.x) % 32 / 4;
    const int column = first_column() + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      f(row, column + 8 * j, x_[j][0]);
      f(row, column + 8 * j + 1, x_[j][1]);
      f(row + 8, column + 8 * j, x_[j][2]);
      f(row + 8, column + 8 * j + 1, x_[j][3]);
    }
  }
  // To shared memory, column by column.
  template <class R>
  __device__ void keep(R* shared) {
    for_each([&](int i, int j, double x) { shared[j * kBlockPitch + i] = static_cast<R>(x); });
  }

 private:
  __device__ static int first_row() {
    return static_cast<int>(threadIdx.x) / 32 % 4 * 16;
  }
  __device__ static int first_column() {
    return static_cast<int>(threadIdx.x) / 128 * 32;
  }

  double x_[4][4] = {};
};

// Starts to copy 64 x 32 elements to shared memory; 0 comes in place of those not wanted.
template <class R, class Wanted>
__device__ void start_copy(R* shared, const R* source, Size ld, Wanted wanted) {
  const int row = static_cast<int>(threadIdx.x) % kBlockEdge;
#pragma unroll
  for (int e = 0; e < kBlockEdge * kBlockDepth / kThreads; ++e) {
    const int column = static_cast<int>(threadIdx.x) / kBlockEdge + e * (kThreads / kBlockEdge);
    const bool here = wanted(row, column);
    copy_async_or_zero(shared + column * kBlockPitch + row,
                       here ? source + row + column * ld : source, here);
  }
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
