// The QR of a panel where it does not fit the registers of a device (householder_grid.h): one
// kernel per column, over all multiprocessors. And the triangular factor of its reflectors.
#include <limits>
#include <stdexcept>

#include "tile/cuda/cuda.h"
#include "tile/cuda/householder_grid.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"
#include "tile/cuda/reflector.h"
#include "tile/cuda/scalar.h"
#include "tile/eigen.h"

namespace jaxmg::tile {
namespace {

constexpr Size kMostRows = 1024;    // of a block
constexpr Size kMostBlocks = 1024;  // room in eigen_work, see plan_eigen.cpp
constexpr int kWarps = kThreads / 32;

template <class D>
struct PanelArguments {
  Size m;
  int w;
  int k;
  D* a;
  Size lda;
  D* r;
  Size ldr;
  D* tau;
  Size rows;  // of a block
  int blocks;
  D* sums;  // blocks x w
  D* row;   // 2 x w: the row of the next pivot, in turns
};

// What the threads of a block know of their part.
template <class D>
struct PanelPart {
  int lane;
  int warp;
  Size begin;  // rows
  Size end;
  D* v;     // own rows of the reflector
  D* dots;  // w
};

// dots <- v_j^H a_l for the columns after j, from the sums over rows below j that the launch before
// has left, s_l = sum_i>j conj(a_ij) a_il:   v_j^H a_l = a_jl + conj(scale) s_l
template <class D, class R>
__device__ ReflectorScalars<D, R> find_reflector(const PanelArguments<D>& p,
                                                 const PanelPart<D>& part, int j, const D* sums,
                                                 const D* row, R smallest) {
  for (int l = j + part.warp; l < p.w; l += kWarps) {
    D sum = element<D>(R{0});
    for (int block = part.lane; block < p.blocks; block += 32) {
      sum = sum + sums[static_cast<Size>(block) * p.w + l];
    }
    sum = warp_sum(sum);
    if (part.lane == 0) {
      part.dots[l] = sum;
    }
  }
  __syncthreads();
  const ReflectorScalars<D, R> h = reflector_scalars(row[j], real_part(part.dots[j]), smallest);
  for (Size i = part.begin + threadIdx.x; i < part.end; i += kThreads) {
    part.v[i - part.begin] = i > j ? h.scale * p.a[i + j * p.lda] : element<D>(R(i == j ? 1 : 0));
  }
  __syncthreads();
  for (int l = j + 1 + static_cast<int>(threadIdx.x); l < p.w; l += kThreads) {
    part.dots[l] = row[l] + conjugate(h.scale) * part.dots[l];
  }
  __syncthreads();
  return h;
}

// Own rows of the panel: reflector j in column j, the columns after it updated, row j to R.
template <class D, class R>
__device__ void apply_reflector(const PanelArguments<D>& p, const PanelPart<D>& part,
                                const ReflectorScalars<D, R>& h, int j) {
  const D zero = element<D>(R{0});
  for (int l = part.warp; l < p.w; l += kWarps) {
    const D factor = conjugate(h.tau) * part.dots[l];
    for (Size i = part.begin + part.lane; i < part.end; i += 32) {
      D& x = p.a[i + l * p.lda];
      if (i > j) {
        const D v = part.v[i - part.begin];
        x = l == j ? v : l > j ? x - v * factor : x;
      } else if (i == j) {
        p.r[j + l * p.ldr] = l == j ? element<D>(h.beta) : l > j ? x - factor : zero;
        x = l == j ? element<D>(R{1}) : l > j ? zero : x;
      }
    }
  }
}

// Applies reflector j (none if j < 0) and leaves the sums for column j + 1.
template <class D, class R>
__global__ void __launch_bounds__(kThreads) panel_kernel(PanelArguments<D> p, int j, R smallest) {
  extern __shared__ char memory[];
  PanelPart<D> part;
  part.lane = static_cast<int>(threadIdx.x) % 32;
  part.warp = static_cast<int>(threadIdx.x) / 32;
  part.begin = static_cast<Size>(blockIdx.x) * p.rows;
  part.end = part.begin + p.rows < p.m ? part.begin + p.rows : p.m;
  part.v = reinterpret_cast<D*>(memory);
  part.dots = part.v + p.rows;
  // Sums of launches alternate between two places, since blocks read all of them.
  const Size all = static_cast<Size>(p.blocks) * p.w;
  if (j >= 0) {
    const ReflectorScalars<D, R> h = find_reflector(p, part, j, p.sums + ((j + 1) & 1) * all,
                                                    p.row + ((j + 1) & 1) * p.w, smallest);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
      p.tau[j] = h.tau;
    }
    apply_reflector(p, part, h, j);
    __syncthreads();
  }
  if (j + 1 >= p.k) {
    return;
  }
  D* const out = p.sums + (j & 1) * all + static_cast<Size>(blockIdx.x) * p.w;
  D* const next_row = p.row + (j & 1) * p.w;
  for (int l = j + 1 + part.warp; l < p.w; l += kWarps) {
    D sum = element<D>(R{0});
    for (Size i = part.begin + part.lane; i < part.end; i += 32) {
      const D x = p.a[i + l * p.lda];
      if (i > j + 1) {
        sum = sum + conjugate(p.a[i + (j + 1) * p.lda]) * x;
      } else if (i == j + 1) {
        next_row[l] = x;
      }
    }
    sum = warp_sum(sum);
    if (part.lane == 0) {
      out[l] = sum;
    }
  }
}

constexpr int kFactorThreads = 1024;
constexpr int kFactorEdge = 64;  // the most reflectors of reflector_factor

// With N the strict upper triangle of V^H V and D = diag(tau):
//
//   T = inv(inv(D) + N) = D inv(I + N D)
//
// Blocks of s x s on the diagonal of X = inv(I + N D) are inverses of those of I + N D; two
// neighbours make one of twice the size: X_12 = -X_11 (N D)_12 X_22.
template <class D, class R>
__global__ void __launch_bounds__(kFactorThreads)
    factor_kernel(int k, const D* gram, Size ldg, const D* tau, D* t, Size ldt) {
  extern __shared__ __align__(16) char memory[];
  constexpr int ld = kFactorEdge + 1;
  D* const x = reinterpret_cast<D*>(memory);  // row i, column j at i + j ld
  D* const y = x + kFactorEdge * ld;
  const D zero = element<D>(R{0});
  const int thread = static_cast<int>(threadIdx.x);
  for (int e = thread; e < kFactorEdge * kFactorEdge; e += kFactorThreads) {
    const int i = e % kFactorEdge, j = e / kFactorEdge;
    x[i + j * ld] = i == j ? element<D>(R{1}) : i < j && j < k ? gram[i + j * ldg] * tau[j] : zero;
  }
  __syncthreads();
  for (int s = 1; s < kFactorEdge && s < k; s *= 2) {
    // Element (i, j) of the upper right block of each pair.
    for (int e = thread; e < kFactorEdge / 2 * s; e += kFactorThreads) {
      const int i = e % s, j = e / s % s, first = e / (s * s) * 2 * s;
      D sum = zero;
      for (int l = 0; l <= j; ++l) {
        sum = sum + x[first + i + (first + s + l) * ld] * x[first + s + l + (first + s + j) * ld];
      }
      y[e] = sum;
    }
    __syncthreads();
    for (int e = thread; e < kFactorEdge / 2 * s; e += kFactorThreads) {
      const int i = e % s, j = e / s % s, pair = e / (s * s), first = pair * 2 * s;
      D sum = zero;
      for (int l = i; l < s; ++l) {
        sum = sum - x[first + i + (first + l) * ld] * y[pair * s * s + l + j * s];
      }
      x[first + i + (first + s + j) * ld] = sum;
    }
    __syncthreads();
  }
  for (int e = thread; e < k * k; e += kFactorThreads) {
    const int i = e % k, j = e / k;
    t[i + j * ldt] = i <= j ? tau[i] * x[i + j * ld] : zero;
  }
}

// The QR of a tall panel of kEdge columns, whose halves fit the registers of a device:
//
//   [A_1 A_2],   A_1 = Q_1 R_11,   Q_1^H A_2 = A_2 - V_1 T_1^H (V_1^H A_2) = [R_12; A_22],   A_22 =
//   Q_2 R_22
//
// The place of R holds V_1^H [V_1 A_2] and T_1 meanwhile.
template <class T>
bool panel_by_halves(CudaLane& lane, Size m, Size w, T* a, Size lda, T* r, Size ldr, T* tau,
                     void* work) {
  constexpr Size h = kFactorEdge / 2;
  if (w != 2 * h || m < 2 * w || !householder_grid(lane, m, h, a, lda, r, ldr, tau, work)) {
    return false;
  }
  T* const a2 = a + h * lda;
  T* const r21 = r + h;
  T* const r12 = r + h * ldr;
  T* const r22 = r12 + h;
  Cuda::gemm<T>(lane, Op::conj_transpose, Op::none, h, w, m, T(1), a, lda, a, lda, T(0), r21, ldr);
  Cuda::reflector_factor<T>(lane, h, r21, ldr, tau, r12, ldr);
  Cuda::gemm<T>(lane, Op::conj_transpose, Op::none, h, h, h, T(1), r12, ldr, r22, ldr, T(0), r21,
                ldr);
  Cuda::gemm<T>(lane, Op::none, Op::none, m, h, h, T(-1), a, lda, r21, ldr, T(1), a2, lda);
  Cuda::copy<T>(lane, h, h, a2, lda, r12, ldr);
  Cuda::fill<T>(lane, h, h, T(0), T(0), a2, lda);
  Cuda::fill<T>(lane, h, h, T(0), T(0), r21, ldr);
  if (!householder_grid(lane, m - h, h, a2 + h, lda, r22, ldr, tau + h, work)) {
    throw std::logic_error("householder_panel: the second half does not fit");
  }
  return true;
}

}  // namespace

template <class T>
void Cuda::householder_panel(Lane& lane, Size m, Size w, T* a, Size lda, T* r, Size ldr, T* tau,
                             void* work) {
  using D = DeviceType<T>;
  using R = Real<T>;
  const Size k = std::min(m, w);
  if (k <= 0 || householder_grid(lane, m, w, a, lda, r, ldr, tau, work) ||
      panel_by_halves(lane, m, w, a, lda, r, ldr, tau, work)) {
    return;
  }
  PanelArguments<D> p{m, narrow(w), narrow(k), on_device(a), lda, on_device(r), ldr, on_device(tau),
                      0, 0,         nullptr,   nullptr};
  p.rows = std::clamp<Size>(ceil_div(m, Size{128}), 32, kMostRows);
  p.blocks = narrow(ceil_div(m, p.rows));
  if (p.blocks > kMostBlocks) {
    throw std::logic_error("householder_panel: too many rows");
  }
  p.sums = static_cast<D*>(work);
  p.row = p.sums + 2 * static_cast<Size>(p.blocks) * w;
  const std::size_t shared = static_cast<std::size_t>(p.rows + w) * sizeof(D);
  for (int j = -1; j < p.k; ++j) {
    panel_kernel<D, R><<<static_cast<unsigned>(p.blocks), kThreads, shared, lane.stream()>>>(
        p, j, kLeastSquare<R>);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

template <class T>
void Cuda::reflector_factor(Lane& lane, Size k, const T* gram, Size ldg, const T* tau, T* t,
                            Size ldt) {
  using D = DeviceType<T>;
  if (k <= 0) {
    return;
  }
  if (k > kFactorEdge) {
    throw std::logic_error("reflector_factor: too many reflectors");
  }
  constexpr std::size_t shared = kFactorEdge * (kFactorEdge + 1 + kFactorEdge / 4) * sizeof(D);
  const auto kernel = factor_kernel<D, Real<T>>;
  allow_shared_memory(kernel, shared);
  kernel<<<1, kFactorThreads, shared, lane.stream()>>>(narrow(k), on_device(gram), ldg,
                                                       on_device(tau), on_device(t), ldt);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void Cuda::reflector_diagonal(Lane& lane, Size k, const T* tau, T* u, Size ldu) {
  using D = DeviceType<T>;
  const D* from = on_device(tau);
  D* to = on_device(u);
  for_each(lane, k, 1, [=] __device__(Size i, Size) {
    const D x = from[i];
    to[i * (ldu + 1)] = square(x) == Real<T>(0) ? element<D>(kNoReflector<Real<T>>) : reciprocal(x);
  });
}

#define JAXMG_INSTANTIATE(T)                                                                  \
  template void Cuda::householder_panel<T>(Lane&, Size, Size, T*, Size, T*, Size, T*, void*); \
  template void Cuda::reflector_factor<T>(Lane&, Size, const T*, Size, const T*, T*, Size);   \
  template void Cuda::reflector_diagonal<T>(Lane&, Size, const T*, T*, Size);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
