// Cholesky factorisation of a panel: a diagonal tile and all rows below it, by blocks of columns.
//
//   for each block column j, rows from the diagonal block down:
//     A_j <- A_j - A_<j L_j<^H         one product
//     L_jj L_jj^H = A_jj               one thread block
//     A_ij <- A_ij L_jj^-H             a thread a row
//
// Substitution with the small triangles, not products with their inverses: the result is as good
// as that of a triangular solve for tiles of any condition, and three launches a block column make
// the chain of panels short; of each three, the last two come to the device while the one before
// ends. Real types have a shorter way for all but the smallest tiles: the tile in one launch
// (tile_factor.cu), and then the rows below it (panel_rows.cu).
#include "tile/cuda/cuda.h"
#include "tile/cuda/dependent_launch.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/panel_rows.h"
#include "tile/cuda/scalar.h"
#include "tile/cuda/shuffle.h"

namespace jaxmg::tile {
namespace {

constexpr int kWarp = 32;
constexpr int kRowThreads = 64;  // rows that a thread block of the solve takes

// Columns of a block, and columns that the solve keeps in registers.
template <class D>
struct Blocking {
  static constexpr int edge = sizeof(D) > 8 ? 32 : 64;
  static constexpr int chunk = sizeof(D) > 8 ? 8 : 16;
};

// x - a conj(b)
template <class R>
__device__ R minus_product_conjugate(R x, R a, R b) {
  return fma(-a, b, x);
}
template <class R>
__device__ DeviceComplex<R> minus_product_conjugate(DeviceComplex<R> x, DeviceComplex<R> a,
                                                    DeviceComplex<R> b) {
  return {fma(-a.im, b.im, fma(-a.re, b.re, x.re)), fma(a.re, b.im, fma(-a.im, b.re, x.im))};
}

// The factor of a 32 x 32 triangle by one warp, lane i holding row i. Returns the first failing
// minor, 32 if there is none.
template <class D>
__device__ int factor_warp(D (&row)[kWarp], int lane) {
  using R = decltype(real_part(D{}));
  int failing = kWarp;
#pragma unroll
  for (int k = 0; k < kWarp; ++k) {
    const R pivot = from_lane(real_part(row[k]), k);
    if (failing == kWarp && !(pivot > R{0} && isfinite(pivot))) {
      failing = k;
    }
    const R inverse = rsqrt(pivot);
    row[k] = lane == k ? element<D>(pivot * inverse) : times(row[k], inverse);
#pragma unroll
    for (int j = k + 1; j < kWarp; ++j) {
      row[j] = minus_product_conjugate(row[j], row[k], from_lane(row[k], j));
    }
  }
  return failing;
}

// A triangle of a block in shared memory: column, row.
template <class D>
using Square = D[Blocking<D>::edge][Blocking<D>::edge + 1];

// The 32 x 32 triangle at row `first`, a lane a row.
template <class D>
__device__ void load_corner(const Square<D>& s, int first, int lane, D (&row)[kWarp]) {
#pragma unroll
  for (int j = 0; j < kWarp; ++j) {
    row[j] = s[first + j][first + lane];
  }
}
template <class D>
__device__ void store_corner(const D (&row)[kWarp], int first, int lane, Square<D>& s) {
#pragma unroll
  for (int j = 0; j < kWarp; ++j) {
    if (j <= lane) {
      s[first + j][first + lane] = row[j];
    }
  }
}

// The rows below the first corner by its triangle, a lane a row; inverse: of its diagonal.
template <class D, class R>
__device__ void solve_below_corner(Square<D>& s, const R* inverse, int lane) {
  constexpr int half = kWarp;
  D x[kWarp];
#pragma unroll
  for (int j = 0; j < kWarp; ++j) {
    x[j] = s[j][half + lane];
  }
#pragma unroll
  for (int k = 0; k < kWarp; ++k) {
    x[k] = times(x[k], inverse[k]);
#pragma unroll
    for (int j = k + 1; j < kWarp; ++j) {
      x[j] = minus_product_conjugate(x[j], x[k], s[k][j]);
    }
    s[k][half + lane] = x[k];
  }
}

// The triangle that follows, less what those rows do to it; by all threads.
template <class D>
__device__ void update_second_corner(Square<D>& s, int tid) {
  constexpr int half = kWarp;
  const int lane = tid % kWarp;
  for (int j = tid / kWarp; j < kWarp; j += kThreads / kWarp) {
    D sum = s[half + j][half + lane];
#pragma unroll 8
    for (int k = 0; k < kWarp; ++k) {
      sum = minus_product_conjugate(sum, s[k][half + lane], s[k][half + j]);
    }
    if (j <= lane) {
      s[half + j][half + lane] = sum;
    }
  }
}

// The lower triangle of a; beyond n there is an identity. All loads are on their way before the
// first is waited for.
template <class D>
__device__ void load_block(int n, const D* a, Size lda, int tid, Square<D>& s) {
  using R = decltype(real_part(D{}));
  constexpr int edge = Blocking<D>::edge;
  constexpr int each = edge * edge / kThreads;
  D x[each];
#pragma unroll
  for (int u = 0; u < each; ++u) {
    const int i = (tid + u * kThreads) % edge, j = (tid + u * kThreads) / edge;
    x[u] = i < n && j <= i ? a[i + j * lda] : element<D>(i == j ? R{1} : R{0});
  }
#pragma unroll
  for (int u = 0; u < each; ++u) {
    s[(tid + u * kThreads) / edge][(tid + u * kThreads) % edge] = x[u];
  }
}

// The factor of the lower triangle of a (n x n, n <= edge) in place; its strict upper part stays.
template <class D>
__global__ void __launch_bounds__(kThreads)
    factor_block_kernel(int n, D* a, Size lda, Size position, Info* info) {
  using R = decltype(real_part(D{}));
  constexpr int edge = Blocking<D>::edge;
  __shared__ Square<D> s;
  __shared__ R inverse[kWarp];  // of the first half's diagonal
  __shared__ int failing;
  const int tid = static_cast<int>(threadIdx.x);
  const int lane = tid % kWarp;
  if (tid == 0) {
    failing = edge;
  }
  await_predecessor();
  load_block<D>(n, a, lda, tid, s);
  __syncthreads();
  for (int first = 0; first < edge; first += kWarp) {
    if (tid < kWarp) {
      D row[kWarp];
      load_corner<D>(s, first, lane, row);
      const int found = factor_warp(row, lane);
      if (lane == 0 && found < kWarp && failing == edge) {
        failing = first + found;
      }
      store_corner<D>(row, first, lane, s);
    }
    __syncthreads();
    if (tid < kWarp && first == 0) {
      inverse[tid] = R{1} / real_part(s[tid][tid]);
    }
    __syncthreads();
    if (first + kWarp < edge) {  // the other half: rows below, then the triangle
      if (tid < kWarp) {
        solve_below_corner<D>(s, inverse, lane);
      }
      __syncthreads();
      update_second_corner<D>(s, tid);
      __syncthreads();
    }
  }
  admit_successor();
  for (int e = tid; e < edge * edge; e += kThreads) {
    const int i = e % edge, j = e / edge;
    if (i < n && j <= i) {
      a[i + j * lda] = s[j][i];
    }
  }
  if (tid == 0 && failing < n && info->kind == 0) {
    info->kind = static_cast<std::int32_t>(Kind::not_positive_definite);
    info->position = static_cast<std::int32_t>(position + failing + 1);
  }
}

// The triangle l (n x n, n <= edge) without its diagonal, lower[k * edge + j] = l_jk, and the
// inverses of that; enough loads at a time to wait for few of them.
template <class D, class R>
__device__ void load_triangle(int n, const D* l, Size ldl, int tid, D* lower, R* inverse) {
  constexpr int edge = Blocking<D>::edge;
  constexpr int batch = 16;
  static_assert(edge <= kRowThreads && edge * edge % (batch * kRowThreads) == 0);
  const R diagonal = tid < n ? real_part(l[tid + tid * ldl]) : R{1};
  for (int e0 = tid; e0 < edge * edge; e0 += batch * kRowThreads) {
    D x[batch];
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const int j = (e0 + u * kRowThreads) % edge, k = (e0 + u * kRowThreads) / edge;
      x[u] = j < n && k < j ? l[j + k * ldl] : element<D>(R{0});
    }
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      lower[e0 + u * kRowThreads] = x[u];
    }
  }
  if (tid < edge) {
    inverse[tid] = R{1} / diagonal;
  }
}

// a (m x n, n <= edge) <- a L^-H, a thread a row: x_j = (a_j - sum_{k < j} x_k conj(l_jk)) / l_jj.
// A chunk of columns is in registers, and the next one is on its way; those before it are read back
// from shared memory.
template <class D>
__global__ void __launch_bounds__(kRowThreads)
    solve_rows_kernel(Size m, int n, const D* l, Size ldl, D* a, Size lda) {
  using R = decltype(real_part(D{}));
  constexpr int edge = Blocking<D>::edge;
  constexpr int chunk = Blocking<D>::chunk;
  extern __shared__ double2 shared[];
  D* const lower = reinterpret_cast<D*>(shared);
  D* const solved = lower + edge * edge;  // solved[k * kRowThreads + thread] = x_k
  R* const inverse = reinterpret_cast<R*>(solved + edge * kRowThreads);
  const int tid = static_cast<int>(threadIdx.x);
  const Size i = static_cast<Size>(blockIdx.x) * kRowThreads + tid;
  D next[chunk];
  const auto load = [&](int first) {
#pragma unroll
    for (int j = 0; j < chunk; ++j) {
      next[j] = i < m && first + j < n ? a[i + (first + j) * lda] : element<D>(R{0});
    }
  };
  await_predecessor();
  load(0);
  load_triangle<D>(n, l, ldl, tid, lower, inverse);
  __syncthreads();
  if (i >= m) {
    return;
  }
  for (int first = 0; first < n; first += chunk) {
    D x[chunk];
#pragma unroll
    for (int j = 0; j < chunk; ++j) {
      x[j] = next[j];
    }
    load(first + chunk);
#pragma unroll 2
    for (int k = 0; k < first; ++k) {
      const D known = solved[k * kRowThreads + tid];
#pragma unroll
      for (int j = 0; j < chunk; ++j) {
        x[j] = minus_product_conjugate(x[j], known, lower[k * edge + first + j]);
      }
    }
#pragma unroll
    for (int k = 0; k < chunk; ++k) {
      x[k] = times(x[k], inverse[first + k]);
#pragma unroll
      for (int j = k + 1; j < chunk; ++j) {
        x[j] = minus_product_conjugate(x[j], x[k], lower[(first + k) * edge + first + j]);
      }
      solved[(first + k) * kRowThreads + tid] = x[k];
    }
#pragma unroll
    for (int j = 0; j < chunk; ++j) {
      if (first + j < n) {
        a[i + (first + j) * lda] = x[j];
      }
    }
  }
}

template <class D>
constexpr int solve_rows_bytes() {
  constexpr int edge = Blocking<D>::edge;
  return static_cast<int>(sizeof(D)) * edge * (edge + kRowThreads) +
         static_cast<int>(sizeof(double)) * edge;
}

template <class D>
void solve_rows(CudaLane& lane, Size m, int n, const D* l, Size ldl, D* a, Size lda) {
  if (m <= 0) {
    return;
  }
  constexpr int bytes = solve_rows_bytes<D>();
  allow_shared_memory(solve_rows_kernel<D>, bytes);
  const auto blocks = static_cast<unsigned>(ceil_div(m, kRowThreads));
  launch_dependent(lane, solve_rows_kernel<D>,
                   DependentLaunch{.blocks = blocks, .threads = kRowThreads, .shared = bytes}, m, n,
                   l, ldl, a, lda);
}

// The rows below a factored tile by its triangles, where columns do not come in whole blocks.
template <class T>
void solve_by_triangles(CudaLane& lane, Size m, Size first, Size last, const T* l, Size ldl, T* a,
                        Size lda) {
  using D = DeviceType<T>;
  constexpr Size edge = Blocking<D>::edge;
  for (Size j = first; j < last; j += edge) {
    const Size w = std::min(edge, last - j);
    if (j > 0) {
      Cuda::gemm<T>(lane, Op::none, Op::conj_transpose, m, w, j, T(-1), a, lda, l + j, ldl, T(1),
                    a + j * lda, lda);
    }
    solve_rows<D>(lane, m, narrow(w), on_device(l + j * (ldl + 1)), ldl, on_device(a + j * lda),
                  lda);
  }
}

// The tile in one launch with the first columns, and the rows below with it or after it.
template <class R>
void factor_real_panel(CudaLane& lane, Size first, Size last, Size n, Size m, R* a, Size lda,
                       Size position, Info* info) {
  const bool beside = first == 0 && last == n && m <= kRowsBeside;
  if (first == 0) {
    factor_tile<R>(lane, n, beside ? m : 0, a, lda, position, info);
  }
  if (beside) {
    return;
  }
  if (m > 0 && first % kRowBlock == 0 && (last % kRowBlock == 0 || last == n)) {
    solve_panel_rows<R>(lane, m, first, last, n, a, lda, a + n, lda);
  } else if (m > 0) {
    solve_by_triangles<R>(lane, m, first, last, a, lda, a + n, lda);
  }
}

}  // namespace

template <class T>
void Cuda::factor_panel(Lane& lane, Size first, Size last, Size n, Size m, T* a, Size lda,
                        Size position, Info* info) {
  if constexpr (!is_complex_v<T>) {
    if (factors_tile<T>(lane, n)) {
      return factor_real_panel<T>(lane, first, last, n, m, a, lda, position, info);
    }
  }
  using D = DeviceType<T>;
  constexpr Size edge = Blocking<D>::edge;
  const Size rows = n + m;
  for (Size j = first; j < last; j += edge) {
    const Size w = std::min(edge, last - j);
    T* const block = a + j + j * lda;
    if (j > 0) {
      gemm<T>(lane, Op::none, Op::conj_transpose, rows - j, w, j, T(-1), a + j, lda, a + j, lda,
              T(1), block, lda);
    }
    launch_dependent(lane, factor_block_kernel<D>,
                     DependentLaunch{.blocks = 1, .threads = kThreads}, narrow(w), on_device(block),
                     lda, position + j, info);
    solve_rows<D>(lane, rows - j - w, narrow(w), on_device(block), lda, on_device(block + w), lda);
  }
}

#define JAXMG_INSTANTIATE(T) \
  template void Cuda::factor_panel<T>(Lane&, Size, Size, Size, Size, T*, Size, Size, Info*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
