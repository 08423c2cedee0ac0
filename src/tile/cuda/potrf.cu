// Cholesky factor of a tile by cuSOLVER. What the library reports stays on the device.
#include <climits>

#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/library_type.h"
#include "tile/cuda/scalar.h"
#include "tile/cuda/scratch.h"

namespace jaxmg::tile {
namespace {

struct PotrfBytes {
  std::size_t device = 0;
  std::size_t host = 0;
};

PotrfBytes query(CudaLane& lane, DType type, Size n, const void* a, Size lda) {
  PotrfBytes bytes;
  JAXMG_CUDA_CHECK(cusolverDnXpotrf_bufferSize(
      lane.solver(), lane.solver_parameters(), CUBLAS_FILL_MODE_LOWER, n, library_type(type), a,
      lda, library_type(type), &bytes.device, &bytes.host));
  return bytes;
}

// Joins the library's report into *info. A diagonal element of the factor that is not a positive
// finite number counts as a failing minor too: comparisons with NaN hide it from the library.
template <class D>
__global__ void merge_info_kernel(Size n, const D* a, Size lda, Size position, const int* reported,
                                  Info* info) {
  __shared__ int first;
  if (threadIdx.x == 0) {
    first = *reported > 0 ? *reported : INT_MAX;
  }
  __syncthreads();
  for (Size j = threadIdx.x; j < n; j += kThreads) {
    const auto pivot = real_part(a[j + j * lda]);
    if (!(pivot > 0) || !isfinite(pivot)) {
      atomicMin(&first, static_cast<int>(j + 1));
    }
  }
  __syncthreads();
  if (threadIdx.x == 0 && first != INT_MAX && info->kind == 0) {
    info->kind = static_cast<std::int32_t>(Kind::not_positive_definite);
    info->position = static_cast<std::int32_t>(position + first);
  }
}

}  // namespace

Size potrf_bytes(CudaLane& lane, DType type, Size n) {
  return static_cast<Size>(query(lane, type, n, nullptr, n).device);
}

template <class T>
void Cuda::potrf(Lane& lane, Size n, T* a, Size lda, Size position, Info* info) {
  if (n <= 0) {
    return;
  }
  constexpr DType type = dtype_of<T>;
  const PotrfBytes bytes = query(lane, type, n, a, lda);
  std::vector<char>& host = lane.host_workspace();
  if (host.size() < bytes.host) {
    host.resize(bytes.host);
  }
  JAXMG_CUDA_CHECK(cusolverDnXpotrf(lane.solver(), lane.solver_parameters(), CUBLAS_FILL_MODE_LOWER,
                                    n, library_type(type), a, lda, library_type(type),
                                    lane.scratch(static_cast<Size>(bytes.device)), bytes.device,
                                    host.data(), bytes.host, lane.library_info()));
  merge_info_kernel<<<1, kThreads, 0, lane.stream()>>>(n, on_device(a), lda, position,
                                                       lane.library_info(), info);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template void Cuda::potrf<float>(Lane&, Size, float*, Size, Size, Info*);
template void Cuda::potrf<double>(Lane&, Size, double*, Size, Size, Info*);
template void Cuda::potrf<std::complex<float>>(Lane&, Size, std::complex<float>*, Size, Size,
                                               Info*);
template void Cuda::potrf<std::complex<double>>(Lane&, Size, std::complex<double>*, Size, Size,
                                                Info*);

}  // namespace jaxmg::tile
