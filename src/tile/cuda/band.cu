// Operations on a matrix and on its band that an eigenproblem needs.
#include <vector>

#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

template <class D, class R>
__global__ void max_abs_kernel(Size m, Size n, const D* a, Size lda, R* result) {
  __shared__ R shared[kThreads];
  R largest = 0;
  R bad = 0;
  for (Size j = blockIdx.y; j < n; j += gridDim.y) {
    for (Size i = static_cast<Size>(blockIdx.x) * kThreads + threadIdx.x; i < m;
         i += static_cast<Size>(gridDim.x) * kThreads) {
      const R re = real_part(a[i + j * lda]), im = imaginary_part(a[i + j * lda]);
      if (!isfinite(re) || !isfinite(im)) {
        bad = 1;
      } else {
        largest = fmax(largest, fmax(fabs(re), fabs(im)));
      }
    }
  }
  largest = block_max(largest, shared);
  bad = block_max(bad, shared);
  if (threadIdx.x == 0) {
    join_max(&result[0], largest);
    join_max(&result[1], bad);
  }
}

}  // namespace

template <class T>
void Cuda::max_abs(Lane& lane, Size m, Size n, const T* a, Size lda, Real<T>* result) {
  if (m <= 0 || n <= 0) {
    return;
  }
  const dim3 grid(static_cast<unsigned>(std::min<Size>(ceil_div(m, kThreads), 16)),
                  static_cast<unsigned>(std::min<Size>(n, 256)));
  max_abs_kernel<<<grid, kThreads, 0, lane.stream()>>>(m, n, on_device(a), lda, result);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void Cuda::multiply(Lane& lane, Size m, Size n, Real<T> factor, T* a, Size lda) {
  using D = DeviceType<T>;
  D* to = on_device(a);
  for_each(lane, m, n, [=] __device__(Size i, Size j) {
    D& x = to[i + j * lda];
    x = element<D>(factor) * x;
  });
}

template <class T>
void Cuda::real_diagonal(Lane& lane, Size n, T* a, Size stride) {
  using D = DeviceType<T>;
  D* to = on_device(a);
  for_each(lane, n, 1, [=] __device__(Size i, Size) {
    to[i * stride] = element<D>(real_part(to[i * stride]));
  });
}

template <class T>
void Cuda::store_band(Lane& lane, Size m, Size w, Size b, const T* block, Size ldb, T* band,
                      Size ld) {
  const DeviceType<T>* from = on_device(block);
  DeviceType<T>* to = on_device(band);
  for_each(lane, b + 1, w, [=] __device__(Size d, Size j) {
    if (j + d < m) {
      to[d + j * ld] = from[j + d + j * ldb];
    }
  });
}

template <class T>
void Cuda::tridiagonal_part(Lane& lane, Size n, const T* band, Size ld, double* d, double* e) {
  if (n <= 0) {
    return;
  }
  std::vector<T> host(static_cast<std::size_t>(2 * n));
  JAXMG_CUDA_CHECK(cudaMemcpy2DAsync(
      host.data(), 2 * sizeof(T), band, static_cast<std::size_t>(ld) * sizeof(T), 2 * sizeof(T),
      static_cast<std::size_t>(n), cudaMemcpyDeviceToHost, lane.stream()));
  JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
  for (Size j = 0; j < n; ++j) {
    const auto at = static_cast<std::size_t>(2 * j);
    d[j] = static_cast<double>(std::real(host[at]));
    if (j + 1 < n) {
      e[j] = static_cast<double>(std::real(host[at + 1]));
    }
  }
}

template <class T>
void Cuda::widen(Lane& lane, Size n, const Real<T>* src, T* dst) {
  using D = DeviceType<T>;
  D* to = on_device(dst);
  for_each(lane, n, 1, [=] __device__(Size i, Size) { to[i] = element<D>(src[i]); });
}

#define JAXMG_INSTANTIATE(T)                                                              \
  template void Cuda::max_abs<T>(Lane&, Size, Size, const T*, Size, Real<T>*);            \
  template void Cuda::multiply<T>(Lane&, Size, Size, Real<T>, T*, Size);                  \
  template void Cuda::real_diagonal<T>(Lane&, Size, T*, Size);                            \
  template void Cuda::store_band<T>(Lane&, Size, Size, Size, const T*, Size, T*, Size);   \
  template void Cuda::tridiagonal_part<T>(Lane&, Size, const T*, Size, double*, double*); \
  template void Cuda::widen<T>(Lane&, Size, const Real<T>*, T*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
