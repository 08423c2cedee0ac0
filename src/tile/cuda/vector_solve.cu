// Solution of a triangular system with one right-hand side by the triangle's inverse X, corrected:
//
//   y <- b op(X),   r <- b - y op(L),   b <- y + r op(X)
//
// A substitution by tiles is a chain of these, so what counts is the time of a launch: each of the
// three products is one.
#include "tile/cuda/vector_solve.h"

#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

constexpr int kWarp = 32;
constexpr int kRowWarps = 16;    // that share 32 rows
constexpr int kColumnWarps = 4;  // that have a column each

template <bool kConjugate, class D>
__device__ D factor(D x) {
  return kConjugate ? conjugate(x) : x;
}

template <class R>
__device__ R lane_sum(R x) {
  for (int width = kWarp / 2; width > 0; width /= 2) {
    x += __shfl_xor_sync(0xffffffffu, x, width);
  }
  return x;
}
template <class R>
__device__ DeviceComplex<R> lane_sum(DeviceComplex<R> x) {
  return {lane_sum(x.re), lane_sum(x.im)};
}

// store(c, sum_{k <= c} v_k t(c, k)), or with conj(t): a thread of each warp to a row.
template <bool kConjugate, class D, class Store>
__global__ void __launch_bounds__(kWarp* kRowWarps)
    row_sums_kernel(int n, const D* t, Size ldt, const D* v, Size stride, Store store) {
  constexpr int batch = 8;
  __shared__ D partial[kRowWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int c = static_cast<int>(blockIdx.x) * kWarp + lane;
  const int last = min(n - 1, static_cast<int>(blockIdx.x) * kWarp + kWarp - 1);
  D sum{};
  for (int first = warp; first <= last; first += batch * kRowWarps) {
    D x[batch];
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const int k = first + u * kRowWarps;
      x[u] = k <= c && c < n ? t[c + k * ldt] : D{};
    }
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const int k = first + u * kRowWarps;
      if (k <= last) {
        sum = sum + v[k * stride] * factor<kConjugate>(x[u]);
      }
    }
  }
  partial[warp][lane] = sum;
  __syncthreads();
  if (warp == 0 && c < n) {
    for (int w = 1; w < kRowWarps; ++w) {
      sum = sum + partial[w][lane];
    }
    store(c, sum);
  }
}

// store(c, sum_{k >= c} v_k t(k, c)): a warp to a column.
template <class D, class Store>
__global__ void __launch_bounds__(kWarp* kColumnWarps)
    column_sums_kernel(int n, const D* t, Size ldt, const D* v, Size stride, Store store) {
  constexpr int batch = 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int c = static_cast<int>(blockIdx.x) * kColumnWarps + static_cast<int>(threadIdx.x) / kWarp;
  if (c >= n) {
    return;
  }
  D sum{};
  for (int first = c; first < n; first += batch * kWarp) {
    D x[batch];
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const int k = first + lane + u * kWarp;
      x[u] = k < n ? t[k + c * ldt] : D{};
    }
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const int k = first + lane + u * kWarp;
      if (k < n) {
        sum = sum + v[k * stride] * x[u];
      }
    }
  }
  sum = lane_sum(sum);
  if (lane == 0) {
    store(c, sum);
  }
}

// store(c, (v op(T))_c) for a lower triangle T.
template <class D, class Store>
void triangle_product(CudaLane& lane, Op op, Size n, const D* t, Size ldt, const D* v, Size stride,
                      Store store) {
  const int count = narrow(n);
  const auto row_blocks = static_cast<unsigned>(ceil_div(n, kWarp));
  const auto column_blocks = static_cast<unsigned>(ceil_div(n, kColumnWarps));
  switch (op) {
    case Op::none:
      column_sums_kernel<<<column_blocks, kWarp * kColumnWarps, 0, lane.stream()>>>(
          count, t, ldt, v, stride, store);
      break;
    case Op::transpose:
      row_sums_kernel<false>
          <<<row_blocks, kWarp * kRowWarps, 0, lane.stream()>>>(count, t, ldt, v, stride, store);
      break;
    case Op::conj_transpose:
      row_sums_kernel<true>
          <<<row_blocks, kWarp * kRowWarps, 0, lane.stream()>>>(count, t, ldt, v, stride, store);
      break;
  }
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

template <class T>
void solve_vector(CudaLane& lane, Op op, Size n, const T* l, Size ldl, const T* x, Size ldx, T* b,
                  Size stride, T* work) {
  using D = DeviceType<T>;
  D* const right = on_device(b);
  D* const y = on_device(work);
  D* const r = on_device(static_cast<T*>(lane.scratch(n * static_cast<Size>(sizeof(T)))));
  triangle_product(lane, op, n, on_device(x), ldx, static_cast<const D*>(right), stride,
                   [=] __device__(int c, D sum) { y[c] = sum; });
  triangle_product(lane, op, n, on_device(l), ldl, static_cast<const D*>(y), Size{1},
                   [=] __device__(int c, D sum) {
                     const D b_c = right[c * stride];
                     r[c] = b_c + element<D>(decltype(real_part(D{})){-1}) * sum;
                   });
  triangle_product(lane, op, n, on_device(x), ldx, static_cast<const D*>(r), Size{1},
                   [=] __device__(int c, D sum) { right[c * stride] = y[c] + sum; });
}

#define JAXMG_INSTANTIATE(T) \
  template void solve_vector<T>(CudaLane&, Op, Size, const T*, Size, const T*, Size, T*, Size, T*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
