// What LU needs to let its products run on tensor cores: sizes of rows and columns (for scales.cu),
// and products of parts (see split.cu) whose second factor may have grown.
//
// The first factor L has elements of at most 1. The second one is scaled by a power of two that
// brings its largest element to 2^14 .. 2^15, just below what half precision can hold: nothing can
// overflow, and what is lost of an element is 2^-40 of the largest one at most.
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>

#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

constexpr int kLeftExponent = 10;   // that of Cuda::split
constexpr int kRightExponent = 14;  // of the largest element of the other factor

// In the lane's memory, so that the host need not know.
struct Scalars {
  float largest;
  float minus;  // what takes the scales out of the product
  float one;
};

Scalars* scalars_of(CudaLane& lane) {
  return reinterpret_cast<Scalars*>(lane.scalars());
}

__global__ void __launch_bounds__(kThreads)
    largest_kernel(Size m, Size n, const float* a, Size lda, float* result) {
  __shared__ float shared[kThreads];
  float largest = 0;
  for (Size j = blockIdx.x; j < n; j += gridDim.x) {
    for (Size i = threadIdx.x; i < m; i += kThreads) {
      largest = fmaxf(largest, fabsf(a[i + j * lda]));
    }
  }
  largest = block_max(largest, shared);
  if (threadIdx.x == 0) {
    join_max(result, largest);
  }
}

// dst (3 m x n) <- [hi; lo; hi] of the scaled elements.
__global__ void __launch_bounds__(kThreads)
    split_rows_kernel(Size m, Size n, const float* src, Size lds, __half* dst, Scalars* scalars) {
  const float largest = scalars->largest;
  const int exponent =
      largest > 0 && isfinite(largest) ? min(kRightExponent - ilogbf(largest), 100) : 0;
  const float scale = ldexpf(1, exponent);
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    scalars->minus = -ldexpf(1, -exponent - kLeftExponent);
    scalars->one = 1;
  }
  for (Size j = blockIdx.x; j < n; j += gridDim.x) {
    __half* const out = dst + 3 * m * j;
    for (Size i = threadIdx.x; i < m; i += kThreads) {
      const float x = scale * src[i + j * lds];
      const __half hi = __float2half_rn(x);
      out[i] = hi;
      out[i + m] = __float2half_rn(x - __half2float(hi));
      out[i + 2 * m] = hi;
    }
  }
}

// A warp takes 32 rows of a slice of the columns.
template <class D, class R>
__global__ void __launch_bounds__(kThreads)
    row_max_kernel(Size m, Size n, const D* a, Size lda, R* result) {
  const Size i = static_cast<Size>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= m) {
    return;
  }
  R largest = 0;
#pragma unroll 4
  for (Size j = blockIdx.y; j < n; j += gridDim.y) {
    const D x = a[i + j * lda];
    largest = fmax(largest, fmax(fabs(real_part(x)), fabs(imaginary_part(x))));
  }
  join_max(&result[i], largest);
}

template <class D, class R>
__global__ void __launch_bounds__(kThreads)
    column_max_kernel(Size m, Size n, const R* rows, const D* a, Size lda, R* result) {
  __shared__ R shared[kThreads];
  for (Size j = blockIdx.x; j < n; j += gridDim.x) {
    R largest = 0;
    for (Size i = threadIdx.x; i < m; i += kThreads) {
      const D x = a[i + j * lda];
      largest = fmax(largest, rows[i] * fmax(fabs(real_part(x)), fabs(imaginary_part(x))));
    }
    largest = block_max(largest, shared);
    if (threadIdx.x == 0) {
      result[j] = largest;
    }
  }
}

// c (m x n) <- c - A b, the parts of A (k columns) being [lo, hi, hi], k columns each.
void subtract_scaled(CudaLane& lane, Size m, Size n, Size k, const Cuda::Half* a, Size lda,
                     const float* b, Size ldb, Cuda::Half* parts, float* c, Size ldc) {
  if (m <= 0 || n <= 0 || k <= 0) {
    return;
  }
  Scalars* const scalars = scalars_of(lane);
  JAXMG_CUDA_CHECK(cudaMemsetAsync(scalars, 0, sizeof(Scalars), lane.stream()));
  const auto blocks = static_cast<unsigned>(std::min<Size>(n, 2048));
  largest_kernel<<<blocks, kThreads, 0, lane.stream()>>>(k, n, b, ldb, &scalars->largest);
  JAXMG_CUDA_CHECK(cudaGetLastError());
  split_rows_kernel<<<blocks, kThreads, 0, lane.stream()>>>(
      k, n, b, ldb, reinterpret_cast<__half*>(parts), scalars);
  JAXMG_CUDA_CHECK(cudaGetLastError());
  cublasHandle_t const blas = lane.blas();
  JAXMG_CUDA_CHECK(cublasSetPointerMode(blas, CUBLAS_POINTER_MODE_DEVICE));
  const cublasStatus_t status =
      cublasGemmEx_64(blas, CUBLAS_OP_N, CUBLAS_OP_N, m, n, 3 * k, &scalars->minus, a, CUDA_R_16F,
                      lda, parts, CUDA_R_16F, 3 * k, &scalars->one, c, CUDA_R_32F, ldc,
                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
  JAXMG_CUDA_CHECK(cublasSetPointerMode(blas, CUBLAS_POINTER_MODE_HOST));
  JAXMG_CUDA_CHECK(status);
}

}  // namespace

void Cuda::split_left(Lane& lane, Size m, Size n, const float* src, Size lds, Half* dst, Size ldd) {
  split(lane, m, n, src, lds, dst, ldd);
}

void Cuda::subtract_split_rows(Lane& lane, Size m, Size n, Size k, const Half* a, Size lda,
                               const float* b, Size ldb, Half* parts, float* c, Size ldc) {
  subtract_scaled(lane, m, n, k, a + k * lda, lda, b, ldb, parts, c, ldc);
}

// The two rows of a complex number of L, and of b and c as they are:
//
//   Re (L b) = [Re L, -Im L] [Re b; Im b],   Im (L b) = [Im L, Re L] [Re b; Im b]
void Cuda::subtract_split_rows(Lane& lane, Size m, Size n, Size k, const Half* a, Size lda,
                               const std::complex<float>* b, Size ldb, Half* parts,
                               std::complex<float>* c, Size ldc) {
  subtract_scaled(lane, 2 * m, n, 2 * k, a, 2 * lda, reinterpret_cast<const float*>(b), 2 * ldb,
                  parts, reinterpret_cast<float*>(c), 2 * ldc);
}

template <class T>
void Cuda::row_max(Lane& lane, Size m, Size n, const T* a, Size lda, Real<T>* result) {
  fill<Real<T>>(lane, m, 1, 0, 0, result, m);
  if (m > 0 && n > 0) {
    const dim3 grid(static_cast<unsigned>(ceil_div(m, kThreads)),
                    static_cast<unsigned>(std::clamp<Size>(n / 64, 1, 256)));
    row_max_kernel<<<grid, kThreads, 0, lane.stream()>>>(m, n, on_device(a), lda, result);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

template <class T>
void Cuda::column_max(Lane& lane, Size m, Size n, const Real<T>* rows, const T* a, Size lda,
                      Real<T>* result) {
  if (n > 0) {
    column_max_kernel<<<static_cast<unsigned>(std::min<Size>(n, 1 << 16)), kThreads, 0,
                        lane.stream()>>>(m, n, rows, on_device(a), lda, result);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

#define JAXMG_INSTANTIATE(T)                                                 \
  template void Cuda::row_max<T>(Lane&, Size, Size, const T*, Size, float*); \
  template void Cuda::column_max<T>(Lane&, Size, Size, const float*, const T*, Size, float*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(std::complex<float>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
