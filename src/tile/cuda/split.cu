// float32 products by tensor cores: each factor as a sum of two half-precision numbers.
//
//   x = (hi + lo) / 2^10,   x y^T ~ (lo hi^T + hi lo^T + hi hi^T) / 2^20
//
// hi and lo hold 11 bits each, products are exact in float32 and are added there: some 22 bits of x
// enter, against 24 of a native product. Meant for factors of about unit size, as those of a matrix
// with a diagonal of about 1 are. Half precision holds numbers up to 65504 and below 2^-14
// multiples of 2^-24: entries up to 2^10 2^-4 do not overflow, and what is lost of a smaller one
// is, but for the 22 bits, at most 2^-35. See algo/unit_diagonal.h for what that asks of a matrix.
#include <cuda_fp16.h>

#include "tile/cuda/cuda.h"
#include "tile/cuda/halves.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

constexpr float kProductScale = 1 / (kSplitScale * kSplitScale);

// Columns [hi, lo, hi, hi], each block m x n: the first three are one factor of the product, the
// last three the other one.
__global__ void split_kernel(Size m, Size n, const float* src, Size lds, __half* dst, Size ldd) {
  const Size step = static_cast<Size>(gridDim.x) * blockDim.x;
  const Size block = n * ldd;
  for (Size j = blockIdx.y; j < n; j += gridDim.y) {
    for (Size i = static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x; i < m; i += step) {
      const float x = kSplitScale * src[i + j * lds];
      const __half hi = __float2half_rn(x);
      const __half lo = __float2half_rn(x - __half2float(hi));
      __half* const out = dst + i + j * ldd;
      out[0] = hi;
      out[block] = lo;
      out[2 * block] = hi;
      out[3 * block] = hi;
    }
  }
}

}  // namespace

void Cuda::split(Lane& lane, Size m, Size n, const float* src, Size lds, Half* dst, Size ldd) {
  if (m <= 0 || n <= 0) {
    return;
  }
  const dim3 grid(static_cast<unsigned>(std::min<Size>(ceil_div(m, kThreads), 1 << 16)),
                  static_cast<unsigned>(std::min<Size>(n, kMaxGridY)));
  split_kernel<<<grid, kThreads, 0, lane.stream()>>>(m, n, src, lds, reinterpret_cast<__half*>(dst),
                                                     ldd);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

void subtract_halves(CudaLane& lane, Size m, Size n, Size k, const Halves& left,
                     const Halves& right, float* c, Size ldc, Size stride_c, Size count) {
  if (m <= 0 || n <= 0 || count <= 0) {
    return;
  }
  const float alpha = -kProductScale;
  const float beta = 1;
  if (count == 1) {
    JAXMG_CUDA_CHECK(cublasGemmEx_64(lane.blas(), CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, &alpha,
                                     left.data, CUDA_R_16F, left.ld, right.data, CUDA_R_16F,
                                     right.ld, &beta, c, CUDA_R_32F, ldc, CUBLAS_COMPUTE_32F,
                                     CUBLAS_GEMM_DEFAULT));
    return;
  }
  JAXMG_CUDA_CHECK(cublasGemmStridedBatchedEx_64(
      lane.blas(), CUBLAS_OP_N, CUBLAS_OP_T, m, n, k, &alpha, left.data, CUDA_R_16F, left.ld,
      left.stride, right.data, CUDA_R_16F, right.ld, right.stride, &beta, c, CUDA_R_32F, ldc,
      stride_c, count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

void Cuda::subtract_split_product(Lane& lane, Size m, Size n, Size k, const Half* parts, Size ld,
                                  Size row, Size row_stride, Size col, Size col_stride, float* c,
                                  Size ldc, Size stride_c, Size count) {
  const Half* const lo_hi_hi = parts + k * ld;
  subtract_halves(lane, m, n, 3 * k, {lo_hi_hi + row, ld, row_stride},
                  {parts + col, ld, col_stride}, c, ldc, stride_c, count);
}

}  // namespace jaxmg::tile
