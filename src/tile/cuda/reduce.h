// Over the threads of a block: maxima, also over blocks, and the first of some numbers; over a
// warp: sums and maxima.
#pragma once

#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// Joins `value` into *result. Bit patterns of non-negative numbers are ordered as the numbers are,
// and a maximum does not depend on the order in which it is taken.
__device__ inline void join_max(float* result, float value) {
  atomicMax(reinterpret_cast<int*>(result), __float_as_int(value));
}
__device__ inline void join_max(double* result, double value) {
  atomicMax(reinterpret_cast<long long*>(result), __double_as_longlong(value));
}

template <class R>
__device__ R block_max(R value, R* shared) {
  shared[threadIdx.x] = value;
  for (unsigned width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      shared[threadIdx.x] = fmax(shared[threadIdx.x], shared[threadIdx.x + width]);
    }
  }
  __syncthreads();
  const R result = shared[0];
  __syncthreads();
  return result;
}

// The smallest j + 1 for which bad(j) is true, j = 0 .. n - 1, or `first` if that is smaller.
template <class Bad>
__device__ int first_of_block(Size n, int first, const Bad& bad) {
  __shared__ int found;
  if (threadIdx.x == 0) {
    found = first;
  }
  __syncthreads();
  for (Size j = threadIdx.x; j < n; j += kThreads) {
    if (bad(j)) {
      atomicMin(&found, static_cast<int>(j + 1));
    }
  }
  __syncthreads();
  return found;
}

// The largest number of a warp, in all of its lanes.
template <class R>
__device__ R warp_max(R x) {
  for (int offset = 16; offset > 0; offset /= 2) {
    x = fmax(x, __shfl_xor_sync(~0u, x, offset));
  }
  return x;
}

// Sums over the lanes of a warp, in all of them; the same bits in every run.
template <class R>
__device__ R warp_sum(R x) {
  for (int offset = 16; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(~0u, x, offset);
  }
  return x;
}
template <class R>
__device__ DeviceComplex<R> warp_sum(DeviceComplex<R> x) {
  return {warp_sum(x.re), warp_sum(x.im)};
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
