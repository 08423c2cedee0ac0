// The host's side of GPU lanes, for programs that hand their data to a library.
#pragma once

#include "tile/cuda/cuda.h"
#include "vendor/host.h"

namespace jaxmg::vendor {

template <>
struct Host<tile::Cuda> {
  static Info finish(tile::CudaLane& lane, const Info* info) {
    Info found;
    read(lane, 1, info, &found);
    return found;
  }

  template <class X>
  static void read(tile::CudaLane& lane, Size count, const X* from, X* host) {
    copy(lane, host, from, bytes<X>(count), cudaMemcpyDeviceToHost);
  }
  template <class X>
  static void write(tile::CudaLane& lane, Size count, const X* host, X* to) {
    copy(lane, to, host, bytes<X>(count), cudaMemcpyHostToDevice);
  }
  template <class Until>
  static void wait(tile::CudaLane&, std::unique_lock<std::mutex>& lock,
                   std::condition_variable& changed, const Until& until) {
    changed.wait(lock, until);
  }

 private:
  template <class X>
  static std::size_t bytes(Size count) {
    return static_cast<std::size_t>(count) * sizeof(X);
  }
  static void copy(tile::CudaLane& lane, void* to, const void* from, std::size_t bytes,
                   cudaMemcpyKind kind) {
    JAXMG_CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, kind, lane.stream()));
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
  }
};

}  // namespace jaxmg::vendor
