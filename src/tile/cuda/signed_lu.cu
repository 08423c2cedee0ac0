// LU factors of A - S by one block of threads, with signs S that make pivots needless.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

template <class R>
__device__ R inverse_of(R x) {
  return R{1} / x;
}
// |x| >= 1 and of moderate size, so that the square is harmless.
template <class R>
__device__ DeviceComplex<R> inverse_of(DeviceComplex<R> x) {
  const R scale = R{1} / (x.re * x.re + x.im * x.im);
  return {x.re * scale, -x.im * scale};
}

constexpr int kLuEdge = static_cast<int>(Cuda::lu_block);
constexpr int kLuRows = 8;

template <class R, class D>
__global__ void signed_lu_kernel(int n, D* a, Size lda, R* signs) {
  __shared__ D s[kLuEdge][kLuEdge + 1];  // row, column
  const int i = static_cast<int>(threadIdx.x);
  for (int j = static_cast<int>(threadIdx.y); j < n; j += kLuRows) {
    if (i < n) {
      s[i][j] = a[i + j * lda];
    }
  }
  __syncthreads();
  for (int k = 0; k < n; ++k) {
    if (i == k && threadIdx.y == 0) {
      const R sign = real_part(s[k][k]) < R(0) ? R(1) : R(-1);
      signs[k] = sign;
      s[k][k] = s[k][k] + element<D>(-sign);
    }
    __syncthreads();
    if (threadIdx.y == 0 && i > k && i < n) {
      s[i][k] = s[i][k] * inverse_of(s[k][k]);
    }
    __syncthreads();
    for (int j = k + 1 + static_cast<int>(threadIdx.y); j < n; j += kLuRows) {
      if (i > k && i < n) {
        s[i][j] = s[i][j] + element<D>(R(-1)) * (s[i][k] * s[k][j]);
      }
    }
    __syncthreads();
  }
  for (int j = static_cast<int>(threadIdx.y); j < n; j += kLuRows) {
    if (i < n) {
      a[i + j * lda] = s[i][j];
    }
  }
}

}  // namespace

template <class T>
void Cuda::signed_lu(Lane& lane, Size n, T* a, Size lda, Real<T>* signs) {
  if (n <= 0) {
    return;
  }
  signed_lu_kernel<<<1, dim3(kLuEdge, kLuRows), 0, lane.stream()>>>(static_cast<int>(n),
                                                                    on_device(a), lda, signs);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

#define JAXMG_INSTANTIATE(T) template void Cuda::signed_lu<T>(Lane&, Size, T*, Size, Real<T>*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
