// A stream whose kernels leave some multiprocessors of the device alone.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <memory>

namespace jaxmg::tile {

class NarrowStream {
 public:
  // On the current device, which has `multiprocessors`: at least about `reserve` of them are left
  // alone. Null where the driver has no such streams (before CUDA 12.4).
  static std::unique_ptr<NarrowStream> make(int device, int multiprocessors, int reserve,
                                            int priority);
  ~NarrowStream();
  NarrowStream(const NarrowStream&) = delete;
  NarrowStream& operator=(const NarrowStream&) = delete;

  cudaStream_t get() const { return stream_; }
  // Those that its kernels run on.
  int multiprocessors() const { return multiprocessors_; }

 private:
  NarrowStream(CUgreenCtx context, cudaStream_t stream, int multiprocessors)
      : context_(context), stream_(stream), multiprocessors_(multiprocessors) {}

  CUgreenCtx context_;
  cudaStream_t stream_;
  int multiprocessors_;
};

}  // namespace jaxmg::tile
