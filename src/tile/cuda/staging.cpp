#include "tile/cuda/staging.h"

namespace jaxmg::tile {

CudaStaging::CudaStaging(Size bytes) : bytes_(bytes) {
  JAXMG_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), static_cast<std::size_t>(bytes)));
}

CudaStaging::~CudaStaging() {
  cudaFree(data_);
}

CudaStaging::Use::~Use() {
  try {
    staging_.last_use_ = lane_.record();
  } catch (const CudaError&) {
    // The stream is broken, and so is everything that would come after.
  }
}

}  // namespace jaxmg::tile
