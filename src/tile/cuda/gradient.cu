// Residuals of least squares and their products with the matrix, for which it is read once; norms
// of rows.
#include <limits>

#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;
// Bytes of A that a thread holds at once: enough of them are on their way to keep memory busy.
constexpr int kHeldBytes = 128;

// Sums over a warp, or over the whole block, of kCount numbers at once, in all threads.
template <bool kWhole, int kCount, class D>
__device__ void sum_over_group(D (&r)[kCount], D (&shared)[2][kWarps][kCount], int turn) {
#pragma unroll
  for (int u = 0; u < kCount; ++u) {
    r[u] = warp_sum(r[u]);
  }
  if constexpr (kWhole) {
    const int warp = static_cast<int>(threadIdx.x) / kWarp;
    D(&mine)[kWarps][kCount] = shared[turn & 1];
    if (threadIdx.x % kWarp == 0) {
#pragma unroll
      for (int u = 0; u < kCount; ++u) {
        mine[warp][u] = r[u];
      }
    }
    __syncthreads();  // the other half is not written before all are through with it
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      D sum = mine[0][u];
      for (int w = 1; w < kWarps; ++w) {
        sum = sum + mine[w][u];
      }
      r[u] = sum;
    }
  }
}

// Share of each block in g_i = sum_j conj(a_ij) (d_j - sum_i a_ij x_i). A column belongs to a warp,
// or to the whole block, each of whose threads holds kRows elements of each of kColumns columns.
template <bool kWhole, int kRows, int kColumns, class D>
__global__ void __launch_bounds__(kThreads, 2)
    gradient_kernel(int n, Size m, const D* a, Size lda, const D* x, const D* d, D* shares) {
  constexpr int group = kWhole ? kThreads : kWarp;
  constexpr int groups = kThreads / group;
  __shared__ D of_x[kRows * group];
  __shared__ D of_groups[2][kWarps][kColumns];
  __shared__ D partial[kWhole ? 1 : groups][kWhole ? 1 : kRows * kWarp];
  const int lane = static_cast<int>(threadIdx.x) % group;
  const int mine = static_cast<int>(threadIdx.x) / group;
  D sums[kRows] = {};
  for (int i = static_cast<int>(threadIdx.x); i < kRows * group; i += kThreads) {
    of_x[i] = x && i < n ? x[i] : D{};
  }
  __syncthreads();
  const Size step = static_cast<Size>(gridDim.x) * groups * kColumns;
  int turn = 0;
  for (Size j = (static_cast<Size>(blockIdx.x) * groups + mine) * kColumns; j < m; j += step) {
    D held[kColumns][kRows];
#pragma unroll
    for (int u = 0; u < kColumns; ++u) {
#pragma unroll
      for (int e = 0; e < kRows; ++e) {
        const int i = lane + e * group;
        held[u][e] = i < n && j + u < m ? a[i + (j + u) * lda] : D{};
      }
    }
    D product[kColumns];
#pragma unroll
    for (int u = 0; u < kColumns; ++u) {
      product[u] = D{};
#pragma unroll
      for (int e = 0; e < kRows; ++e) {
        product[u] = product[u] + held[u][e] * of_x[lane + e * group];
      }
    }
    if (x) {
      sum_over_group<kWhole>(product, of_groups, turn++);
    }
#pragma unroll
    for (int u = 0; u < kColumns; ++u) {
      const D residual = j + u < m ? d[j + u] - product[u] : D{};
#pragma unroll
      for (int e = 0; e < kRows; ++e) {
        sums[e] = sums[e] + conjugate(held[u][e]) * residual;
      }
    }
  }
  D* const share = shares + static_cast<Size>(blockIdx.x) * n;
  if constexpr (kWhole) {
#pragma unroll
    for (int e = 0; e < kRows; ++e) {
      if (lane + e * group < n) {
        share[lane + e * group] = sums[e];
      }
    }
  } else {
#pragma unroll
    for (int e = 0; e < kRows; ++e) {
      partial[mine][lane + e * group] = sums[e];
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
      D sum = partial[0][i];
      for (int w = 1; w < groups; ++w) {
        sum = sum + partial[w][i];
      }
      share[i] = sum;
    }
  }
}

// g <- the sum of all shares, a thread of each warp to an element.
template <class D>
__global__ void __launch_bounds__(kThreads)
    sum_shares_kernel(int n, int count, const D* shares, D* g) {
  __shared__ D partial[kWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int i = static_cast<int>(blockIdx.x) * kWarp + lane;
  D sum{};
#pragma unroll 8
  for (int s = warp; s < count; s += kWarps) {
    sum = sum + (i < n ? shares[i + static_cast<Size>(s) * n] : D{});
  }
  partial[warp][lane] = sum;
  __syncthreads();
  if (warp == 0 && i < n) {
    for (int w = 1; w < kWarps; ++w) {
      sum = sum + partial[w][lane];
    }
    g[i] = sum;
  }
}

template <bool kWhole, int kRows, class D>
void launch_gradient(CudaLane& lane, unsigned blocks, int n, Size m, const D* a, Size lda,
                     const D* x, const D* d, D* work) {
  constexpr int held = kHeldBytes / static_cast<int>(sizeof(D));
  constexpr int columns = kRows >= held ? 1 : held / kRows;
  gradient_kernel<kWhole, kRows, columns, D>
      <<<blocks, kThreads, 0, lane.stream()>>>(n, m, a, lda, x, d, work);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

// The smallest number of rows a thread, a power of two, with which the columns fit.
template <bool kWhole, int kRows, class D>
void choose_gradient(CudaLane& lane, unsigned blocks, int n, Size m, const D* a, Size lda,
                     const D* x, const D* d, D* work) {
  constexpr int group = kWhole ? kThreads : kWarp;
  constexpr int most = kHeldBytes / static_cast<int>(sizeof(D));
  if constexpr (kRows >= most) {
    launch_gradient<kWhole, kRows>(lane, blocks, n, m, a, lda, x, d, work);
  } else if (n <= group * kRows) {
    launch_gradient<kWhole, kRows>(lane, blocks, n, m, a, lda, x, d, work);
  } else {
    choose_gradient<kWhole, 2 * kRows>(lane, blocks, n, m, a, lda, x, d, work);
  }
}

// A block to a row. By its largest element, so that no square leaves the range of numbers.
template <class D, class R>
__global__ void __launch_bounds__(kThreads)
    row_norms_kernel(Size n, const D* a, Size lda, R* result) {
  __shared__ R shared[kThreads];
  const D* const row = a + blockIdx.x;
  R largest = 0;
  R bad = 0;
  for (Size j = threadIdx.x; j < n; j += kThreads) {
    const R size = fmax(fabs(real_part(row[j * lda])), fabs(imaginary_part(row[j * lda])));
    bad = isfinite(real_part(row[j * lda])) && isfinite(imaginary_part(row[j * lda])) ? bad : R(1);
    largest = fmax(largest, size);
  }
  largest = block_max(largest, shared);
  bad = block_max(bad, shared);
  if (bad > 0 || largest == 0) {
    if (threadIdx.x == 0) {
      result[blockIdx.x] = bad > 0 ? R(NAN) : R(0);
    }
    return;
  }
  R sum = 0;
  for (Size j = threadIdx.x; j < n; j += kThreads) {
    const R re = real_part(row[j * lda]) / largest, im = imaginary_part(row[j * lda]) / largest;
    sum += re * re + im * im;
  }
  sum = warp_sum(sum);
  if (threadIdx.x % kWarp == 0) {
    shared[threadIdx.x / kWarp] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kWarps; ++w) {
      sum += shared[w];
    }
    result[blockIdx.x] = largest * sqrt(sum);
  }
}

}  // namespace

template <class T>
void Cuda::gradient(Lane& lane, Size n, Size m, const T* a, Size lda, const T* x, const T* d, T* g,
                    T* work, Size count) {
  if (n <= 0) {
    return;
  }
  if (m <= 0) {
    return fill<T>(lane, n, 1, T(0), T(0), g, n);
  }
  using D = DeviceType<T>;
  constexpr Size narrow_columns = kWarp * kHeldBytes / static_cast<Size>(sizeof(T));
  const bool whole = n > narrow_columns;
  const Size busy = std::min<Size>(count / n, 2 * Size{lane.multiprocessors()});
  const auto blocks = static_cast<unsigned>(
      std::clamp<Size>(whole ? m : ceil_div(m, kWarps), 1, std::max<Size>(1, busy)));
  const int rows = narrow(n);
  if (whole) {
    choose_gradient<true, 2, D>(lane, blocks, rows, m, on_device(a), lda, on_device(x),
                                on_device(d), on_device(work));
  } else {
    choose_gradient<false, 1, D>(lane, blocks, rows, m, on_device(a), lda, on_device(x),
                                 on_device(d), on_device(work));
  }
  sum_shares_kernel<D><<<static_cast<unsigned>(ceil_div(n, kWarp)), kThreads, 0, lane.stream()>>>(
      rows, static_cast<int>(blocks), on_device(static_cast<const T*>(work)), on_device(g));
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void Cuda::row_norms(Lane& lane, Size m, Size n, const T* a, Size lda, Real<T>* result) {
  if (m <= 0) {
    return;
  }
  row_norms_kernel<<<static_cast<unsigned>(narrow(m)), kThreads, 0, lane.stream()>>>(
      n, on_device(a), lda, result);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

#define JAXMG_INSTANTIATE(T)                                                                     \
  template void Cuda::gradient<T>(Lane&, Size, Size, const T*, Size, const T*, const T*, T*, T*, \
                                  Size);                                                         \
  template void Cuda::row_norms<T>(Lane&, Size, Size, const T*, Size, Real<T>*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
