// How long an operation takes, alone on a device.
#pragma once

#include "check.h"
#include "tile/cuda/lane.h"

namespace jaxmg::test {

// Mean microseconds of `operation` in the lane.
template <class Operation>
double microseconds(tile::CudaLane& lane, const Operation& operation) {
  constexpr int repeats = 20;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  JAXMG_CUDA_CHECK(cudaEventCreate(&begin));
  JAXMG_CUDA_CHECK(cudaEventCreate(&end));
  operation();
  JAXMG_CUDA_CHECK(cudaEventRecord(begin, lane.stream()));
  for (int i = 0; i < repeats; ++i) {
    operation();
  }
  JAXMG_CUDA_CHECK(cudaEventRecord(end, lane.stream()));
  JAXMG_CUDA_CHECK(cudaEventSynchronize(end));
  float milliseconds = 0;
  JAXMG_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return milliseconds * 1e3 / repeats;
}

}  // namespace jaxmg::test
