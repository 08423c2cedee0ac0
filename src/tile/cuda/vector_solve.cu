// Solution of a triangular system with one right-hand side by the triangle's inverse X, corrected:
//
//   y <- b op(X),   r <- b - y op(L),   b <- y + r op(X)
//
// where L is the triangle, or the transpose of an upper one.
//
// A substitution by tiles is a chain of these, so what counts is the time of a launch: each of the
// three products is one, which comes to the device while what is before it ends. The second and the
// third read the first of their triangle meanwhile; what is before the first may have made it.
#include "tile/cuda/vector_solve.h"

#include "tile/cuda/dependent_launch.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"
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

// A triangle, with ones in the place of its diagonal if `unit`; the other half is not read.
template <class D>
struct Triangle {
  const D* t;
  Size ld;
  bool upper;
  bool unit;

  __device__ D at(int i, int j, int n) const {
    using R = decltype(real_part(D{}));
    const bool inside = max(i, j) < n && (upper ? i <= j : i >= j);
    return !inside ? D{} : unit && i == j ? element<D>(R{1}) : t[i + j * ld];
  }
};

// store(c, sum_k v_k t(c, k)), or with conj(t): a thread of each warp to a row. made: the kernel
// before leaves t alone.
template <bool kConjugate, class D, class Store>
__global__ void __launch_bounds__(kWarp* kRowWarps)
    row_sums_kernel(int n, Triangle<D> t, bool made, const D* v, Size stride, Store store) {
  constexpr int batch = 8;
  __shared__ D partial[kRowWarps][kWarp];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int from = static_cast<int>(blockIdx.x) * kWarp;  // first of the rows
  const int c = from + lane;
  const int last = t.upper ? n - 1 : min(n - 1, from + kWarp - 1);
  D x[batch];
  const auto load = [&](int first) {
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      x[u] = t.at(c, first + u * kRowWarps, n);
    }
  };
  D sum{};
  int first = warp + (t.upper ? from : 0);
  if (made) {
    load(first);
  }
  await_predecessor();
  admit_successor();
  if (!made) {
    load(first);
  }
  while (first <= last) {
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const int k = first + u * kRowWarps;
      if (k <= last) {
        sum = sum + v[k * stride] * factor<kConjugate>(x[u]);
      }
    }
    first += batch * kRowWarps;
    load(first);
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

// store(c, sum_k v_k t(k, c)): a warp to a column.
template <class D, class Store>
__global__ void __launch_bounds__(kWarp* kColumnWarps)
    column_sums_kernel(int n, Triangle<D> t, bool made, const D* v, Size stride, Store store) {
  constexpr int batch = 8;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int c = static_cast<int>(blockIdx.x) * kColumnWarps + static_cast<int>(threadIdx.x) / kWarp;
  const int end = t.upper ? min(c + 1, n) : n;
  D x[batch];
  const auto load = [&](int first) {
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      x[u] = t.at(first + lane + u * kWarp, c, n);
    }
  };
  D sum{};
  int first = t.upper ? 0 : c;
  if (made) {
    load(first);
  }
  await_predecessor();
  admit_successor();
  if (!made) {
    load(first);
  }
  if (c >= n) {
    return;
  }
  while (first < end) {
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const int k = first + lane + u * kWarp;
      if (k < end) {
        sum = sum + v[k * stride] * x[u];
      }
    }
    first += batch * kWarp;
    load(first);
  }
  sum = warp_sum(sum);
  if (lane == 0) {
    store(c, sum);
  }
}

// store(c, (v op(T))_c)
template <class D, class Store>
void triangle_product(CudaLane& lane, Op op, Size n, const Triangle<D>& t, bool made, const D* v,
                      Size stride, Store store) {
  const int count = narrow(n);
  const auto row_blocks = static_cast<unsigned>(ceil_div(n, kWarp));
  const auto column_blocks = static_cast<unsigned>(ceil_div(n, kColumnWarps));
  switch (op) {
    case Op::none:
      return launch_dependent(lane, column_sums_kernel<D, Store>, column_blocks,
                              kWarp * kColumnWarps, 0, count, t, made, v, stride, store);
    case Op::transpose:
      return launch_dependent(lane, row_sums_kernel<false, D, Store>, row_blocks, kWarp * kRowWarps,
                              0, count, t, made, v, stride, store);
    case Op::conj_transpose:
      return launch_dependent(lane, row_sums_kernel<true, D, Store>, row_blocks, kWarp * kRowWarps,
                              0, count, t, made, v, stride, store);
  }
}

}  // namespace

template <class T>
void solve_vector(CudaLane& lane, Uplo uplo, Op op, Diag diag, Size n, const T* a, Size lda,
                  const T* x, Size ldx, T* b, Size stride, T* work) {
  using D = DeviceType<T>;
  const bool upper = uplo == Uplo::upper;
  const Op op_x = !upper ? op : op == Op::none ? Op::transpose : Op::none;
  const Triangle<D> inverse = {on_device(x), ldx, false, false};
  const Triangle<D> triangle = {on_device(a), lda, upper, diag == Diag::unit};
  D* const right = on_device(b);
  D* const y = on_device(work);
  D* const r = on_device(static_cast<T*>(lane.scratch(n * static_cast<Size>(sizeof(T)))));
  triangle_product(lane, op_x, n, inverse, false, static_cast<const D*>(right), stride,
                   [=] __device__(int c, D sum) { y[c] = sum; });
  triangle_product(lane, op, n, triangle, true, static_cast<const D*>(y), Size{1},
                   [=] __device__(int c, D sum) {
                     const D b_c = right[c * stride];
                     r[c] = b_c + element<D>(decltype(real_part(D{})){-1}) * sum;
                   });
  triangle_product(lane, op_x, n, inverse, true, static_cast<const D*>(r), Size{1},
                   [=] __device__(int c, D sum) { right[c * stride] = y[c] + sum; });
}

#define JAXMG_INSTANTIATE(T)                                                                     \
  template void solve_vector<T>(CudaLane&, Uplo, Op, Diag, Size, const T*, Size, const T*, Size, \
                                T*, Size, T*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
