// Both products of a matrix with a vector, for which it is read once.
#include <algorithm>

#include "tile/cuda/column_sums.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

constexpr int kStrip = 16;  // columns that a thread block reads from the first row to the last
constexpr Size kLeastBlocks = 256;  // that keep the memory busy
constexpr int kWarp = 32;
constexpr int kWarps = kThreads / kWarp;

// y_j <- sum_i a_ij v_i for the columns of this block's strips, `run` of them one after the other,
// and their share of A w to row blockIdx.x of `shares`.
template <class D>
__global__ void __launch_bounds__(kThreads)
    both_products_kernel(Size m, Size n, int run, const D* a, Size lda, const D* v, const D* w,
                         D* y, D* shares) {
  __shared__ D partial[kWarps][kStrip];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  D* const share = shares + static_cast<Size>(blockIdx.x) * m;
  const Size begin = static_cast<Size>(blockIdx.x) * run * kStrip;
  const Size end = begin + Size{run} * kStrip < n ? begin + Size{run} * kStrip : n;
  for (Size first = begin; first < end; first += kStrip) {
    const int count = static_cast<int>(end - first < kStrip ? end - first : kStrip);
    const D* const columns = a + first * lda;
    D of_w[kStrip];
    D sums[kStrip] = {};
#pragma unroll
    for (int j = 0; j < kStrip; ++j) {
      of_w[j] = j < count ? w[first + j] : D{};
    }
    for (Size i = threadIdx.x; i < m; i += kThreads) {
      D x[kStrip];
#pragma unroll
      for (int j = 0; j < kStrip; ++j) {
        x[j] = j < count ? columns[i + j * lda] : D{};
      }
      const D of_v = v[i];
      D sum = first > begin ? share[i] : D{};  // this thread's own
#pragma unroll
      for (int j = 0; j < kStrip; ++j) {
        sum = sum + x[j] * of_w[j];
        sums[j] = sums[j] + x[j] * of_v;
      }
      share[i] = sum;
    }
    const D total = sum_columns<kStrip>(sums, lane);
    if (keeps_sum<kStrip>(lane)) {
      partial[warp][summed_column<kStrip>(lane)] = total;
    }
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < count) {
      D sum = partial[0][threadIdx.x];
      for (int k = 1; k < kWarps; ++k) {
        sum = sum + partial[k][threadIdx.x];
      }
      y[first + threadIdx.x] = sum;
    }
    __syncthreads();
  }
}

// z <- z + the sum of all blocks' shares, a thread of each warp to an element.
template <class D>
__global__ void __launch_bounds__(kThreads)
    add_shares_kernel(Size m, int blocks, const D* shares, D* z) {
  constexpr int batch = 8;
  __shared__ D partial[kWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const Size i = static_cast<Size>(blockIdx.x) * kWarp + lane;
  D sum{};
  for (int first = warp; first < blocks; first += batch * kWarps) {
    D x[batch];
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const int s = first + u * kWarps;
      x[u] = i < m && s < blocks ? shares[i + s * m] : D{};
    }
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      sum = sum + x[u];
    }
  }
  partial[warp][lane] = sum;
  __syncthreads();
  if (warp == 0 && i < m) {
    sum = z[i];
    for (int k = 0; k < kWarps; ++k) {
      sum = sum + partial[k][lane];
    }
    z[i] = sum;
  }
}

}  // namespace

template <class T>
void Cuda::multiply_both(Lane& lane, Size m, Size n, const T* a, Size lda, const T* v, const T* w,
                         T* y, T* z, T* work, Size count) {
  if (m <= 0 || n <= 0) {
    return;
  }
  // A share for each strip, or for each run of them, as there is room.
  const Size strips = ceil_div(n, kStrip);
  const Size most = count / m;
  if (most < std::min(strips, kLeastBlocks)) {
    gemm<T>(lane, Op::transpose, Op::none, n, 1, m, T(1), a, lda, v, m, T(0), y, n);
    return gemm<T>(lane, Op::none, Op::none, m, 1, n, T(1), a, lda, w, n, T(1), z, m);
  }
  using D = DeviceType<T>;
  const Size run = ceil_div(strips, most);
  const Size blocks = ceil_div(strips, run);
  both_products_kernel<D><<<static_cast<unsigned>(blocks), kThreads, 0, lane.stream()>>>(
      m, n, narrow(run), on_device(a), lda, on_device(v), on_device(w), on_device(y),
      on_device(work));
  JAXMG_CUDA_CHECK(cudaGetLastError());
  add_shares_kernel<D><<<static_cast<unsigned>(ceil_div(m, kWarp)), kThreads, 0, lane.stream()>>>(
      m, narrow(blocks), on_device(static_cast<const T*>(work)), on_device(z));
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

#define JAXMG_INSTANTIATE(T)                                                                      \
  template void Cuda::multiply_both<T>(Lane&, Size, Size, const T*, Size, const T*, const T*, T*, \
                                       T*, T*, Size);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
