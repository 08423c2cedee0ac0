// Products of the transpose of a panel with many rows, by half-precision parts: see split.cu.
//
//   A^T B ~ (hi_A^T hi_B + lo_A^T hi_B + hi_A^T lo_B) / 2^20
//
// for factors with elements of at most 1. A tensor core's sum is not rounded as a float32 one is:
// the rows are added up a slice at a time, and slices in float32.
#include <cuda_fp16.h>

#include <algorithm>

#include "tile/cuda/halves.h"
#include "tile/cuda/launch.h"

namespace jaxmg::tile {
namespace {

constexpr Size kSlice = 8192;  // rows

// dst <- hi, dst + block <- lo of the scaled elements.
__global__ void __launch_bounds__(kThreads)
    split_pair_kernel(Size m, Size n, const float* src, Size lds, __half* dst, Size ldd,
                      Size block) {
  const Size step = static_cast<Size>(gridDim.x) * kThreads;
  for (Size j = blockIdx.y; j < n; j += gridDim.y) {
    for (Size i = static_cast<Size>(blockIdx.x) * kThreads + threadIdx.x; i < m; i += step) {
      const float x = kSplitScale * src[i + j * lds];
      const __half hi = __float2half_rn(x);
      dst[i + j * ldd] = hi;
      dst[i + j * ldd + block] = __float2half_rn(x - __half2float(hi));
    }
  }
}

}  // namespace

void Cuda::multiply_split_adjoint(Lane& lane, Size m, Size n, Size k, const Half* a, Size lda,
                                  const float* b, Size ldb, Half* parts, float* c, Size ldc) {
  if (m <= 0 || n <= 0 || k <= 0) {
    return;
  }
  const Size block = lda * n;
  const dim3 grid(static_cast<unsigned>(std::min<Size>(ceil_div(m, kThreads), 1 << 16)),
                  static_cast<unsigned>(std::min<Size>(n, kMaxGridY)));
  split_pair_kernel<<<grid, kThreads, 0, lane.stream()>>>(
      m, n, b, ldb, reinterpret_cast<__half*>(parts), lda, block);
  JAXMG_CUDA_CHECK(cudaGetLastError());
  const float alpha = 1 / (kSplitScale * kSplitScale);
  const auto add = [&](const Half* left, const Half* right, Size rows, float beta) {
    JAXMG_CUDA_CHECK(cublasGemmEx_64(lane.blas(), CUBLAS_OP_T, CUBLAS_OP_N, k, n, rows, &alpha,
                                     left, CUDA_R_16F, lda, right, CUDA_R_16F, lda, &beta, c,
                                     CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
  };
  const Half* const low = a + k * lda;
  for (Size i = 0; i < m; i += kSlice) {
    const Size rows = std::min(kSlice, m - i);
    add(low + i, parts + i, rows, i == 0 ? 0.0f : 1.0f);
    add(a + i, parts + block + i, rows, 1);
    add(a + i, parts + i, rows, 1);
  }
}

}  // namespace jaxmg::tile
