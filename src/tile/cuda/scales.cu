// Scales of rows and columns, powers of two by which nothing is rounded, and whether any are
// needed. What is not needed is found out on the device, and costs a launch.
#include <algorithm>
#include <cmath>

#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

constexpr int kMostScaling = 60;  // exponents of row and column scales, of which four may meet

// Rows of a column that a thread loads before it stores the first, which keeps the memory busy;
// and blocks of a launch, about as many as there is room for at once.
constexpr int kBatch = 8;
constexpr Size kMostBlocks = 1024;

// a_ij <- factor(i, j) a_ij, if that is needed.
template <class D, class R, class Factor>
__global__ void __launch_bounds__(kThreads)
    scale_if_kernel(const R* needed, Size m, Size n, D* a, Size lda, Factor factor) {
  if (*needed == R{0}) {
    return;
  }
  constexpr Size rows = Size{kBatch} * kThreads;
  for (Size j = blockIdx.y; j < n; j += gridDim.y) {
    D* const column = a + j * lda;
    for (Size first = static_cast<Size>(blockIdx.x) * rows; first < m; first += gridDim.x * rows) {
      const Size begin = first + threadIdx.x;
      if (first + rows > m) {
        for (Size i = begin; i < m; i += kThreads) {
          column[i] = element<D>(factor(i, j)) * column[i];
        }
        continue;
      }
      D x[kBatch];
      R by[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        x[u] = column[begin + u * kThreads];
        by[u] = factor(begin + u * kThreads, j);
      }
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        column[begin + u * kThreads] = element<D>(by[u]) * x[u];
      }
    }
  }
}

template <class D, class R, class Factor>
void scale_if_needed(CudaLane& lane, const R* needed, Size m, Size n, D* a, Size lda,
                     Factor factor) {
  if (m > 0 && n > 0) {
    const Size along = std::min<Size>(ceil_div(m, Size{kBatch} * kThreads), 32);
    const dim3 grid(static_cast<unsigned>(along),
                    static_cast<unsigned>(std::min<Size>(n, kMostBlocks / along)));
    scale_if_kernel<<<grid, kThreads, 0, lane.stream()>>>(needed, m, n, a, lda, factor);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

}  // namespace

template <class R>
void Cuda::unit_size(Lane& lane, Size n, const R* size, R* scale, R* inverse, R* needed) {
  for_each(lane, n, 1, [=] __device__(Size i, Size) {
    const R x = size[i];
    if (x > 0 && isfinite(x) && (x < R(0x1p-4) || x > R(0x1p4))) {
      *needed = 1;
    }
  });
  for_each(lane, n, 1, [=] __device__(Size i, Size) {
    const R x = size[i];
    const bool scales = x > 0 && isfinite(x) && *needed != R{0};
    const int exponent = scales ? max(-kMostScaling, min(kMostScaling, ilogb(x))) : 0;
    scale[i] = ldexp(R{1}, -exponent);
    inverse[i] = ldexp(R{1}, exponent);
  });
}

template <class T>
void Cuda::unit_scale(Lane& lane, Size n, const T* diagonal, Size stride, Real<T>* scale) {
  using R = Real<T>;
  const DeviceType<T>* d = on_device(diagonal);
  for_each(lane, n, 1, [=] __device__(Size i, Size) {
    const R x = real_part(d[i * stride]);
    const int exponent = x > 0 && isfinite(x) ? static_cast<int>(rint(log2(x) / 2)) : 0;
    scale[i] = ldexp(R{1}, -exponent);
  });
}

template <class R>
void Cuda::judge_scales(Lane& lane, Size n, R least, R most, R* scale, R* inverse, R* needed) {
  fill<R>(lane, 1, 1, R(0), R(0), needed, 1);
  for_each(lane, n, 1, [=] __device__(Size i, Size) {
    if (scale[i] < least || scale[i] > most) {
      *needed = 1;
    }
  });
  for_each(lane, n, 1, [=] __device__(Size i, Size) {
    const R x = *needed != R{0} ? scale[i] : R{1};
    scale[i] = x;
    inverse[i] = R{1} / x;
  });
}

template <class T>
void Cuda::scale(Lane& lane, Size m, Size n, const Real<T>* rows, const Real<T>* columns, T* a,
                 Size lda) {
  DeviceType<T>* x = on_device(a);
  move_each(
      lane, m, n,
      [=] __device__(Size i, Size j) {
        const Real<T> factor = (rows ? rows[i] : Real<T>(1)) * (columns ? columns[j] : Real<T>(1));
        return element<DeviceType<T>>(factor) * x[i + j * lda];
      },
      [=] __device__(Size i, Size j, DeviceType<T> y) { x[i + j * lda] = y; });
}

template <class T>
void Cuda::scale_if(Lane& lane, const Real<T>* needed, Size m, Size n, const Real<T>* rows,
                    const Real<T>* columns, T* a, Size lda) {
  scale_if_needed(lane, needed, m, n, on_device(a), lda, [=] __device__(Size i, Size j) {
    return (rows ? rows[i] : Real<T>(1)) * (columns ? columns[j] : Real<T>(1));
  });
}

template <class T>
void Cuda::scale_factors_if(Lane& lane, const Real<T>* needed, Size m, Size n, Size diagonal,
                            const Real<T>* rows, const Real<T>* upper, const Real<T>* lower, T* a,
                            Size lda) {
  scale_if_needed(lane, needed, m, n, on_device(a), lda, [=] __device__(Size i, Size j) {
    return rows[i] * (i <= diagonal + j ? upper[j] : lower[j]);
  });
}

template void Cuda::unit_size<float>(Lane&, Size, const float*, float*, float*, float*);
template void Cuda::judge_scales<float>(Lane&, Size, float, float, float*, float*, float*);

#define JAXMG_INSTANTIATE(T)                                                                       \
  template void Cuda::unit_scale<T>(Lane&, Size, const T*, Size, float*);                          \
  template void Cuda::scale_if<T>(Lane&, const float*, Size, Size, const float*, const float*, T*, \
                                  Size);                                                           \
  template void Cuda::scale_factors_if<T>(Lane&, const float*, Size, Size, Size, const float*,     \
                                          const float*, const float*, T*, Size);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(std::complex<float>)
#undef JAXMG_INSTANTIATE

#define JAXMG_INSTANTIATE(T) \
  template void Cuda::scale<T>(Lane&, Size, Size, const Real<T>*, const Real<T>*, T*, Size);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
