#include "tile/cuda/narrow_stream.h"

#include <dlfcn.h>

namespace jaxmg::tile {
namespace {

// The driver's functions, by name: older drivers do not have them.
struct Driver {
  decltype(&cuDeviceGet) device_get = nullptr;
  decltype(&cuDeviceGetDevResource) resource = nullptr;
  decltype(&cuDevSmResourceSplitByCount) split = nullptr;
  decltype(&cuDevResourceGenerateDesc) describe = nullptr;
  decltype(&cuGreenCtxCreate) create = nullptr;
  decltype(&cuGreenCtxDestroy) destroy = nullptr;
  decltype(&cuGreenCtxStreamCreate) stream = nullptr;
  bool complete = false;

  Driver() {
    // The runtime has it open already.
    void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    complete = library != nullptr && find(library, "cuDeviceGet", device_get) &&
               find(library, "cuDeviceGetDevResource", resource) &&
               find(library, "cuDevSmResourceSplitByCount", split) &&
               find(library, "cuDevResourceGenerateDesc", describe) &&
               find(library, "cuGreenCtxCreate", create) &&
               find(library, "cuGreenCtxDestroy", destroy) &&
               find(library, "cuGreenCtxStreamCreate", stream);
  }

  template <class Function>
  static bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
  }
};

const Driver& driver() {
  static const Driver instance;
  return instance;
}

}  // namespace

std::unique_ptr<NarrowStream> NarrowStream::make(int device, int multiprocessors, int reserve,
                                                 int priority) {
  const Driver& d = driver();
  CUdevice handle = 0;
  CUdevResource all, group, rest;
  unsigned groups = 1;
  CUdevResourceDesc description = nullptr;
  CUgreenCtx context = nullptr;
  CUstream stream = nullptr;
  if (!d.complete || d.device_get(&handle, device) != CUDA_SUCCESS ||
      d.resource(handle, &all, CU_DEV_RESOURCE_TYPE_SM) != CUDA_SUCCESS ||
      d.split(&group, &groups, &all, &rest, 0, static_cast<unsigned>(multiprocessors - reserve)) !=
          CUDA_SUCCESS ||
      groups != 1 || d.describe(&description, &group, 1) != CUDA_SUCCESS ||
      d.create(&context, description, handle, CU_GREEN_CTX_DEFAULT_STREAM) != CUDA_SUCCESS) {
    return nullptr;
  }
  if (d.stream(&stream, context, CU_STREAM_NON_BLOCKING, priority) != CUDA_SUCCESS) {
    d.destroy(context);
    return nullptr;
  }
  const int open = static_cast<int>(group.sm.smCount);
  return std::unique_ptr<NarrowStream>(new NarrowStream(context, stream, open));
}

NarrowStream::~NarrowStream() {
  cudaStreamDestroy(stream_);
  driver().destroy(context_);
}

}  // namespace jaxmg::tile
