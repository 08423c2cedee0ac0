#include "tile/cuda/shared_memory.h"

#include <map>
#include <mutex>
#include <utility>

#include "tile/cuda/error.h"

namespace jaxmg::tile {

// What is allowed holds for all threads that work on the device, and each may need another size: it
// may only grow.
void allow_shared_memory(const void* kernel, std::size_t bytes) {
  static thread_local std::map<std::pair<const void*, int>, std::size_t> known;
  int device = 0;
  JAXMG_CUDA_CHECK(cudaGetDevice(&device));
  std::size_t& allowed = known[{kernel, device}];
  if (bytes <= allowed) {
    return;
  }
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  cudaFuncAttributes now = {};
  JAXMG_CUDA_CHECK(cudaFuncGetAttributes(&now, kernel));
  if (static_cast<std::size_t>(now.maxDynamicSharedSizeBytes) < bytes) {
    JAXMG_CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                          static_cast<int>(bytes)));
  }
  allowed = bytes;
}

}  // namespace jaxmg::tile
