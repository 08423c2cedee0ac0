// Reorderings, and reductions over the diagonal of an LU factor.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

__device__ bool is_finite(float x) {
  return isfinite(x);
}
__device__ bool is_finite(double x) {
  return isfinite(x);
}
template <class R>
__device__ bool is_finite(DeviceComplex<R> x) {
  return isfinite(x.re) && isfinite(x.im);
}

template <class R>
__device__ R multiple(R x, double factor) {
  return static_cast<R>(factor * static_cast<double>(x));
}
template <class R>
__device__ DeviceComplex<R> multiple(DeviceComplex<R> x, double factor) {
  return {multiple(x.re, factor), multiple(x.im, factor)};
}

// One block, a fixed tree: the same bits in every run. Both are taken in double precision.
template <class R, class D>
__global__ void log_phase_kernel(Size n, const D* x, Size stride, R* log_result, D* phase) {
  using Wide = DeviceComplex<double>;
  __shared__ double sums[kThreads];
  __shared__ Wide products[kThreads];
  double sum = 0;
  Wide product{1, 0};
  for (Size i = threadIdx.x; i < n; i += kThreads) {
    const D value = x[i * stride];
    const double re = static_cast<double>(real_part(value));
    const double im = static_cast<double>(imaginary_part(value));
    const double size = magnitude(re, im);
    sum += log(size);
    product = product * (size == 0 ? Wide{0, 0} : Wide{re / size, im / size});
  }
  sums[threadIdx.x] = sum;
  products[threadIdx.x] = product;
  for (unsigned width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      sums[threadIdx.x] += sums[threadIdx.x + width];
      products[threadIdx.x] = products[threadIdx.x] * products[threadIdx.x + width];
    }
  }
  if (threadIdx.x == 0) {
    *log_result = static_cast<R>(static_cast<double>(*log_result) + sums[0]);
    const Wide before{static_cast<double>(real_part(*phase)),
                      static_cast<double>(imaginary_part(*phase))};
    const Wide after = before * products[0];
    if constexpr (std::is_same_v<D, R>) {
      *phase = static_cast<R>(after.re);
    } else {
      *phase = {static_cast<R>(after.re), static_cast<R>(after.im)};
    }
  }
}

template <class D>
__global__ void pivot_sign_kernel(Size n, const std::int32_t* pivots, D* phase) {
  int odd = 0;
  for (Size i = threadIdx.x; i < n; i += kThreads) {
    odd ^= pivots[i] != i ? 1 : 0;
  }
  if (__syncthreads_count(odd) % 2 != 0 && threadIdx.x == 0) {
    *phase = multiple(*phase, -1);
  }
}

__global__ void name_equation_kernel(Info* info) {
  if (info->kind == static_cast<std::int32_t>(Kind::singular)) {
    info->position = info->spare[1];
  }
  info->spare[1] = 0;
}

}  // namespace

template <class T>
void Cuda::put_rows(Lane& lane, Size m, Size n, const std::int32_t* index, Size first, const T* src,
                    Size lds, T* dst, Size ldd) {
  const DeviceType<T>* from = on_device(src);
  DeviceType<T>* to = on_device(dst);
  for_each(lane, m, n,
           [=] __device__(Size i, Size j) { to[index[i] - first + j * ldd] = from[i + j * lds]; });
}

template <class T>
void Cuda::put_columns(Lane& lane, Size m, Size n, const std::int32_t* index, Size first,
                       Size count, const T* src, Size lds, T* dst, Size ldd) {
  const DeviceType<T>* from = on_device(src);
  DeviceType<T>* to = on_device(dst);
  for_each(lane, m, n, [=] __device__(Size i, Size j) {
    const Size place = index[j] - first;
    if (0 <= place && place < count) {
      to[i + place * ldd] = from[i + j * lds];
    }
  });
}

template <class T>
void Cuda::take_columns(Lane& lane, Size m, Size n, const std::int32_t* index, Size first,
                        Size count, const T* src, Size lds, T* dst, Size ldd) {
  const DeviceType<T>* from = on_device(src);
  DeviceType<T>* to = on_device(dst);
  const DeviceType<T> zero = on_device_value(T(0));
  for_each(lane, m, n, [=] __device__(Size i, Size j) {
    const Size place = index[j] - first;
    to[i + j * ldd] = 0 <= place && place < count ? from[i + place * lds] : zero;
  });
}

void Cuda::iota(Lane& lane, Size n, std::int32_t* index) {
  for_each(lane, n, 1, [=] __device__(Size i, Size) { index[i] = static_cast<std::int32_t>(i); });
}

template <class T>
void Cuda::log_phase(Lane& lane, Size n, const T* x, Size stride, Real<T>* log, T* phase) {
  if (n > 0) {
    log_phase_kernel<<<1, kThreads, 0, lane.stream()>>>(n, on_device(x), stride, log,
                                                        on_device(phase));
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

template <class T>
void Cuda::pivot_sign(Lane& lane, Size n, const std::int32_t* pivots, T* phase) {
  if (n > 0) {
    pivot_sign_kernel<<<1, kThreads, 0, lane.stream()>>>(n, pivots, on_device(phase));
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

template <class T>
void Cuda::check_finite(Lane& lane, Size m, Size n, const T* a, Size lda, Info* info) {
  const DeviceType<T>* x = on_device(a);
  for_each(lane, m, n, [=] __device__(Size i, Size j) {
    if (!is_finite(x[i + j * lda])) {
      atomicCAS(&info->kind, 0, static_cast<std::int32_t>(Kind::non_finite));
    }
  });
}

void Cuda::name_equation(Lane& lane, Info* info) {
  name_equation_kernel<<<1, 1, 0, lane.stream()>>>(info);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void Cuda::fill_if_kind(Lane& lane, const Info* info, Kind kind, Size m, Size n, T value, T* a,
                        Size lda) {
  DeviceType<T>* to = on_device(a);
  const DeviceType<T> element = on_device_value(value);
  for_each(lane, m, n, [=] __device__(Size i, Size j) {
    if (info->kind == static_cast<std::int32_t>(kind)) {
      to[i + j * lda] = element;
    }
  });
}

#define JAXMG_INSTANTIATE(T)                                                                       \
  template void Cuda::put_rows<T>(Lane&, Size, Size, const std::int32_t*, Size, const T*, Size,    \
                                  T*, Size);                                                       \
  template void Cuda::put_columns<T>(Lane&, Size, Size, const std::int32_t*, Size, Size, const T*, \
                                     Size, T*, Size);                                              \
  template void Cuda::take_columns<T>(Lane&, Size, Size, const std::int32_t*, Size, Size,          \
                                      const T*, Size, T*, Size);                                   \
  template void Cuda::log_phase<T>(Lane&, Size, const T*, Size, Real<T>*, T*);                     \
  template void Cuda::pivot_sign<T>(Lane&, Size, const std::int32_t*, T*);                         \
  template void Cuda::check_finite<T>(Lane&, Size, Size, const T*, Size, Info*);                   \
  template void Cuda::fill_if_kind<T>(Lane&, const Info*, Kind, Size, Size, T, T*, Size);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
