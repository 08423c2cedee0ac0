// Launches in a chain of short kernels: a kernel is brought to the device while the one before it
// in the stream comes to its end, and waits there for its results.
#pragma once

#include <cstddef>

#include "tile/cuda/error.h"
#include "tile/cuda/lane.h"

namespace jaxmg::tile {

// First of all in a kernel that is launched so: what was enqueued before is over and visible.
#ifdef __CUDACC__
__device__ inline void await_predecessor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// From here on the next kernel may be brought in.
__device__ inline void admit_successor() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
#endif

inline int compute_capability_major(const CudaLane& lane) {
  int major = 0;
  JAXMG_CUDA_CHECK(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, lane.device()));
  return major;
}

struct DependentLaunch {
  unsigned blocks;
  unsigned threads;
  unsigned cluster = 0;    // blocks that form one, or 0
  std::size_t shared = 0;  // bytes of dynamic shared memory
};

template <class... Parameters, class... Arguments>
void launch_dependent(CudaLane& lane, void (*kernel)(Parameters...), const DependentLaunch& launch,
                      const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2];
  unsigned count = 0;
  if (compute_capability_major(lane) >= 9) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (launch.cluster > 0) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = launch.cluster;
    attributes[count].val.clusterDim.y = 1;
    attributes[count++].val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(launch.blocks);
  config.blockDim = dim3(launch.threads);
  config.dynamicSmemBytes = launch.shared;
  config.stream = lane.stream();
  config.attrs = attributes;
  config.numAttrs = count;
  JAXMG_CUDA_CHECK(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...));
}
template <class... Parameters, class... Arguments>
void launch_dependent(CudaLane& lane, void (*kernel)(Parameters...), unsigned blocks,
                      unsigned threads, unsigned cluster, const Arguments&... arguments) {
  launch_dependent(lane, kernel, DependentLaunch{blocks, threads, cluster}, arguments...);
}

}  // namespace jaxmg::tile
