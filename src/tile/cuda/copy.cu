// Operations that move or set elements.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"
#include "tile/random.h"

namespace jaxmg::tile {
namespace {

constexpr int kTile = 32;
constexpr int kTileRows = 8;

// Through shared memory, so that reads and writes both run along columns; the extra column keeps
// the accesses across it on different banks.
template <bool kConjugate, class D>
__global__ void transpose_kernel(Size m, Size n, const D* src, Size lds, Size src_step, D* dst,
                                 Size ldd, Size dst_step) {
  __shared__ D tile[kTile][kTile + 1];
  src += static_cast<Size>(blockIdx.z) * src_step;
  dst += static_cast<Size>(blockIdx.z) * dst_step;
  const Size i0 = static_cast<Size>(blockIdx.x) * kTile;
  for (Size j0 = static_cast<Size>(blockIdx.y) * kTile; j0 < n;
       j0 += static_cast<Size>(gridDim.y) * kTile) {
    for (int j = static_cast<int>(threadIdx.y); j < kTile; j += kTileRows) {
      if (i0 + threadIdx.x < m && j0 + j < n) {
        tile[j][threadIdx.x] = src[i0 + threadIdx.x + (j0 + j) * lds];
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kTileRows) {
      if (j0 + threadIdx.x < n && i0 + i < m) {
        const D value = tile[threadIdx.x][i];
        dst[j0 + threadIdx.x + (i0 + i) * ldd] = kConjugate ? conjugate(value) : value;
      }
    }
    __syncthreads();
  }
}

template <class D>
__global__ void mirror_kernel(Size n, D* a, Size lda) {
  __shared__ D tile[kTile][kTile + 1];
  const Size i0 = static_cast<Size>(blockIdx.x) * kTile;
  for (Size j0 = static_cast<Size>(blockIdx.y) * kTile; j0 <= i0;
       j0 += static_cast<Size>(gridDim.y) * kTile) {
    for (int j = static_cast<int>(threadIdx.y); j < kTile; j += kTileRows) {
      if (i0 + threadIdx.x < n && j0 + j < n) {
        tile[j][threadIdx.x] = a[i0 + threadIdx.x + (j0 + j) * lda];
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.y); i < kTile; i += kTileRows) {
      const Size row = i0 + i, column = j0 + threadIdx.x;
      if (row < n && column < row) {
        a[column + row * lda] = conjugate(tile[threadIdx.x][i]);
      }
    }
    __syncthreads();
  }
}

template <class R, class S>
__device__ void convert_element(R from, S& to) {
  to = static_cast<S>(from);
}
template <class R, class S>
__device__ void convert_element(DeviceComplex<R> from, DeviceComplex<S>& to) {
  to = {static_cast<S>(from.re), static_cast<S>(from.im)};
}

}  // namespace

template <class T>
void Cuda::copy(Lane& lane, Size m, Size n, const T* src, Size lds, T* dst, Size ldd) {
  if (m <= 0 || n <= 0) {
    return;
  }
  if (n == 1 || (lds == m && ldd == m)) {
    JAXMG_CUDA_CHECK(cudaMemcpyAsync(dst, src, static_cast<std::size_t>(m * n) * sizeof(T),
                                     cudaMemcpyDeviceToDevice, lane.stream()));
    return;
  }
  const DeviceType<T>* from = on_device(src);
  DeviceType<T>* to = on_device(dst);
  move_each(
      lane, m, n, [=] __device__(Size i, Size j) { return from[i + j * lds]; },
      [=] __device__(Size i, Size j, DeviceType<T> x) { to[i + j * ldd] = x; });
}

template <class T, class U>
void Cuda::convert(Lane& lane, Size m, Size n, const T* src, Size lds, U* dst, Size ldd) {
  const DeviceType<T>* from = on_device(src);
  DeviceType<U>* to = on_device(dst);
  move_each(
      lane, m, n, [=] __device__(Size i, Size j) { return from[i + j * lds]; },
      [=] __device__(Size i, Size j, DeviceType<T> x) { convert_element(x, to[i + j * ldd]); });
}

template <class T>
void Cuda::copy_blocks(Lane& lane, Size m, Size n, Size count, const T* src, Size lds,
                       Size src_step, T* dst, Size ldd, Size dst_step) {
  if (count == 1) {
    return copy<T>(lane, m, n, src, lds, dst, ldd);
  }
  const DeviceType<T>* from = on_device(src);
  DeviceType<T>* to = on_device(dst);
  move_each(
      lane, m, n * count,
      [=] __device__(Size i, Size j) { return from[i + j % n * lds + j / n * src_step]; },
      [=] __device__(Size i, Size j, DeviceType<T> x) {
        to[i + j % n * ldd + j / n * dst_step] = x;
      });
}

template <class T>
void Cuda::copy_triangle(Lane& lane, Uplo uplo, Diag diag, Size m, Size n, const T* src, Size lds,
                         T* dst, Size ldd) {
  const DeviceType<T>* from = on_device(src);
  DeviceType<T>* to = on_device(dst);
  const bool lower = uplo == Uplo::lower;
  const bool with_diagonal = diag == Diag::non_unit;
  for_each(lane, m, n, [=] __device__(Size i, Size j) {
    if (i == j ? with_diagonal : (i > j) == lower) {
      to[i + j * ldd] = from[i + j * lds];
    }
  });
}

// Blocks on and below the diagonal, by way of shared memory.
template <class T>
void Cuda::mirror(Lane& lane, Size n, T* a, Size lda) {
  if (n <= 1) {
    return;
  }
  const auto edge = static_cast<unsigned>(ceil_div(n, kTile));
  mirror_kernel<<<dim3(edge, std::min<unsigned>(edge, kMaxGridY)), dim3(kTile, kTileRows), 0,
                  lane.stream()>>>(n, on_device(a), lda);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void Cuda::transpose(Lane& lane, Size m, Size n, const T* src, Size lds, T* dst, Size ldd,
                     bool conj) {
  transpose_blocks(lane, m, n, 1, src, lds, 0, dst, ldd, 0, conj);
}

template <class T>
void Cuda::transpose_blocks(Lane& lane, Size m, Size n, Size count, const T* src, Size lds,
                            Size src_step, T* dst, Size ldd, Size dst_step, bool conj) {
  if (m <= 0 || n <= 0) {
    return;
  }
  const auto kernel = conj && is_complex_v<T> ? transpose_kernel<true, DeviceType<T>>
                                              : transpose_kernel<false, DeviceType<T>>;
  const dim3 block(kTile, kTileRows);
  for (Size first = 0; first < count; first += kMaxGridZ) {
    const dim3 grid(static_cast<unsigned>(ceil_div(m, kTile)),
                    static_cast<unsigned>(std::min(ceil_div(n, kTile), kMaxGridY)),
                    static_cast<unsigned>(std::min(count - first, kMaxGridZ)));
    kernel<<<grid, block, 0, lane.stream()>>>(m, n, on_device(src + first * src_step), lds,
                                              src_step, on_device(dst + first * dst_step), ldd,
                                              dst_step);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

template <class T>
void Cuda::fill(Lane& lane, Size m, Size n, T off, T diag, T* a, Size lda) {
  DeviceType<T>* to = on_device(a);
  const DeviceType<T> outside = on_device_value(off);
  const DeviceType<T> inside = on_device_value(diag);
  for_each(lane, m, n,
           [=] __device__(Size i, Size j) { to[i + j * lda] = i == j ? inside : outside; });
}

template <class T>
void Cuda::fill_if_failed(Lane& lane, const Info* info, Size m, Size n, T value, T* a, Size lda) {
  DeviceType<T>* to = on_device(a);
  const DeviceType<T> element = on_device_value(value);
  for_each(lane, m, n, [=] __device__(Size i, Size j) {
    if (info->kind != 0) {
      to[i + j * lda] = element;
    }
  });
}

template <class T>
void Cuda::add(Lane& lane, Size m, Size n, T alpha, const T* src, Size lds, T* dst, Size ldd) {
  const DeviceType<T>* from = on_device(src);
  DeviceType<T>* to = on_device(dst);
  const DeviceType<T> factor = on_device_value(alpha);
  move_each(
      lane, m, n,
      [=] __device__(Size i, Size j) { return to[i + j * ldd] + factor * from[i + j * lds]; },
      [=] __device__(Size i, Size j, DeviceType<T> x) { to[i + j * ldd] = x; });
}

template <class T>
void Cuda::random_vector(Lane& lane, Size n, Size first, Real<T> scale, T* v) {
  DeviceType<T>* to = on_device(v);
  for_each(lane, n, 1, [=] __device__(Size i, Size) {
    to[i] = element<DeviceType<T>>(scale * static_cast<Real<T>>(random_real(first + i)));
  });
}

#define JAXMG_INSTANTIATE(T)                                                                       \
  template void Cuda::copy<T>(Lane&, Size, Size, const T*, Size, T*, Size);                        \
  template void Cuda::copy_blocks<T>(Lane&, Size, Size, Size, const T*, Size, Size, T*, Size,      \
                                     Size);                                                        \
  template void Cuda::copy_triangle<T>(Lane&, Uplo, Diag, Size, Size, const T*, Size, T*, Size);   \
  template void Cuda::mirror<T>(Lane&, Size, T*, Size);                                            \
  template void Cuda::transpose<T>(Lane&, Size, Size, const T*, Size, T*, Size, bool);             \
  template void Cuda::transpose_blocks<T>(Lane&, Size, Size, Size, const T*, Size, Size, T*, Size, \
                                          Size, bool);                                             \
  template void Cuda::fill<T>(Lane&, Size, Size, T, T, T*, Size);                                  \
  template void Cuda::fill_if_failed<T>(Lane&, const Info*, Size, Size, T, T*, Size);              \
  template void Cuda::add<T>(Lane&, Size, Size, T, const T*, Size, T*, Size);                      \
  template void Cuda::random_vector<T>(Lane&, Size, Size, Real<T>, T*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE
template void Cuda::copy<std::int32_t>(Lane&, Size, Size, const std::int32_t*, Size, std::int32_t*,
                                       Size);

template void Cuda::convert(Lane&, Size, Size, const float*, Size, double*, Size);
template void Cuda::convert(Lane&, Size, Size, const double*, Size, float*, Size);
template void Cuda::convert(Lane&, Size, Size, const std::complex<float>*, Size,
                            std::complex<double>*, Size);
template void Cuda::convert(Lane&, Size, Size, const std::complex<double>*, Size,
                            std::complex<float>*, Size);

}  // namespace jaxmg::tile
