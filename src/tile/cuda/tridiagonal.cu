// Bisection, and numbers that come from the host or go there.
#include <vector>

#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"
#include "tile/sturm.h"

namespace jaxmg::tile {
namespace {

// Arrays of the host copied to consecutive places of the device. The copies of pageable memory are
// over, or staged, when they return.
class Upload {
 public:
  Upload(CudaLane& lane, void* work) : lane_(lane), next_(static_cast<char*>(work)) {}

  template <class V>
  V* room(Size count) {
    V* const place = reinterpret_cast<V*>(next_);
    next_ += round_up(count * static_cast<Size>(sizeof(V)), 8);
    return place;
  }
  template <class V>
  const V* put(Size count, const V* host) {
    V* const place = room<V>(count);
    if (count > 0) {
      JAXMG_CUDA_CHECK(cudaMemcpyAsync(place, host, static_cast<std::size_t>(count) * sizeof(V),
                                       cudaMemcpyHostToDevice, lane_.stream()));
    }
    return place;
  }
  // host <- device, when it is there.
  template <class V>
  void get(Size count, const V* device, V* host) {
    if (count > 0) {
      JAXMG_CUDA_CHECK(cudaMemcpyAsync(host, device, static_cast<std::size_t>(count) * sizeof(V),
                                       cudaMemcpyDeviceToHost, lane_.stream()));
    }
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane_.stream()));
  }

 private:
  CudaLane& lane_;
  char* next_;
};

}  // namespace

void Cuda::bisect(Lane& lane, Size n, const double* d, const double* e2, double low, double high,
                  double tolerance, Size first, Size count, double* w, void* work) {
  if (count <= 0) {
    return;
  }
  Upload upload(lane, work);
  const double* const dd = upload.put(n, d);
  const double* const de2 = upload.put(n - 1, e2);
  double* const result = upload.room<double>(round_up(count, kSturmWidth));
  const double least = least_pivot(n, e2);
  for_each(lane, ceil_div(count, Size{kSturmWidth}), 1, [=] __device__(Size i, Size) {
    sturm_bisect(n, dd, de2, low, high, tolerance, least, first + i * kSturmWidth,
                 result + i * kSturmWidth);
  });
  upload.get(count, result, w + first);
}

template <class R>
void Cuda::to_host(Lane& lane, Size n, const R* src, double* dst) {
  std::vector<R> host(static_cast<std::size_t>(n));
  if (n > 0) {
    JAXMG_CUDA_CHECK(cudaMemcpyAsync(host.data(), src, static_cast<std::size_t>(n) * sizeof(R),
                                     cudaMemcpyDeviceToHost, lane.stream()));
  }
  JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
  std::copy(host.begin(), host.end(), dst);
}

template <class R>
void Cuda::from_host(Lane& lane, Size m, Size n, const double* src, Size lds, R* dst, Size ldd) {
  if (m <= 0 || n <= 0) {
    return;
  }
  std::vector<R> host(static_cast<std::size_t>(m * n));
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < m; ++i) {
      host[static_cast<std::size_t>(i + j * m)] = static_cast<R>(src[i + j * lds]);
    }
  }
  const std::size_t width = static_cast<std::size_t>(m) * sizeof(R);
  JAXMG_CUDA_CHECK(cudaMemcpy2DAsync(dst, static_cast<std::size_t>(ldd) * sizeof(R), host.data(),
                                     width, width, static_cast<std::size_t>(n),
                                     cudaMemcpyHostToDevice, lane.stream()));
  // The memory of the host goes away.
  JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
}

template <class R>
void Cuda::gather_rows(Lane& lane, Size m, const Size* index, Size n, const R* src, Size lds,
                       R* dst, Size ldd, void* work) {
  if (m <= 0 || n <= 0) {
    return;
  }
  const Size* const rows = Upload(lane, work).put(m, index);
  for_each(lane, m, n,
           [=] __device__(Size i, Size j) { dst[i + j * ldd] = src[rows[i] + j * lds]; });
}

#define JAXMG_INSTANTIATE(R)                                                                   \
  template void Cuda::to_host<R>(Lane&, Size, const R*, double*);                              \
  template void Cuda::from_host<R>(Lane&, Size, Size, const double*, Size, R*, Size);          \
  template void Cuda::gather_rows<R>(Lane&, Size, const Size*, Size, const R*, Size, R*, Size, \
                                     void*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
