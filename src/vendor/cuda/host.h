// The host's side of GPU lanes, for programs that hand their data to a library.
#pragma once

#include "tile/cuda/cuda.h"
#include "vendor/host.h"

namespace jaxmg::vendor {

template <>
struct Host<tile::Cuda> {
  static Info finish(tile::CudaLane& lane, const Info* info) {
    Info found;
    JAXMG_CUDA_CHECK(
        cudaMemcpyAsync(&found, info, sizeof found, cudaMemcpyDeviceToHost, lane.stream()));
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
    return found;
  }
};

}  // namespace jaxmg::vendor
