// Rows below a factored tile in few launches: X = A L^-H.
//
// Rows do not depend on each other, so a thread block takes 64 of them from the first column to the
// last. For each block of 64 columns j:
//
//   R <- A_j - sum_{i < j} X_i L_ji^H
//   X_j <- R M^H,   R <- R - X_j L_jj^H,   X_j <- X_j + R M^H       M = inv(L_jj)
//
// The correction makes up for the error of the inverse: the result is as good as that of
// substitution unless L_jj is singular to working precision.
//
// A panel of many small launches waits for processors at each of them while a trailing update keeps
// all busy; this one waits once for 512 columns.
#include "tile/cuda/panel_rows.h"

#include <algorithm>
#include <type_traits>

#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"
#include "tile/cuda/scratch.h"
#include "tile/cuda/tensor_core.h"

namespace jaxmg::tile {
namespace {

constexpr int kEdge = static_cast<int>(kRowBlock);
constexpr int kDepth = 32;         // columns that are in shared memory at a time
constexpr int kPitch = kEdge + 4;  // keeps lanes that read together apart
constexpr Size kColumns = 512;     // of one launch: later ones get a product of the library before

// x + sign a conj(b)
template <int sign, class R>
__device__ void add_product(R& x, R a, R b) {
  x = fma(sign > 0 ? a : -a, b, x);
}
template <int sign, class R>
__device__ void add_product(DeviceComplex<R>& x, DeviceComplex<R> a, DeviceComplex<R> b) {
  const R re = sign > 0 ? a.re : -a.re, im = sign > 0 ? a.im : -a.im;
  x = {fma(im, b.im, fma(re, b.re, x.re)), fma(-re, b.im, fma(im, b.re, x.im))};
}

// A 64 x 64 block in the registers of a thread block, 4 x 4 elements a thread.
template <class D>
class Block {
 public:
  // block += sign A B^H with A (64 x depth) and B (64 x depth) in shared memory, column by column.
  template <int sign>
  __device__ void add(const D* a, const D* b) {
    const int row = static_cast<int>(threadIdx.x) % 16, column = static_cast<int>(threadIdx.x) / 16;
#pragma unroll 4
    for (int k = 0; k < kDepth; ++k) {
      D left[4], right[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = a[k * kPitch + row + 16 * i];
        right[i] = b[k * kPitch + column + 16 * i];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          add_product<sign>(x_[i][j], left[i], right[j]);
        }
      }
    }
  }
  // f(row, column, element) for the thread's elements.
  template <class F>
  __device__ void for_each(F&& f) {
    const int row = static_cast<int>(threadIdx.x) % 16, column = static_cast<int>(threadIdx.x) / 16;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        f(row + 16 * i, column + 16 * j, x_[i][j]);
      }
    }
  }

 private:
  D x_[4][4] = {};
};

// On tensor cores: 8 warps have 16 x 32 elements each.
template <>
class Block<double> {
 public:
  template <int sign>
  __device__ void add(const double* a, const double* b) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
    const double* const left = a + t * kPitch + first_row() + g;
    const double* const right = b + t * kPitch + first_column() + g;
#pragma unroll
    for (int k = 0; k < kDepth; k += 8) {
      const double* const p = left + k * kPitch;
      const double* const q = right + k * kPitch;
      const double a0 = sign * p[0], a1 = sign * p[8];
      const double a2 = sign * p[4 * kPitch], a3 = sign * p[4 * kPitch + 8];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        multiply_add(x_[j], a0, a1, a2, a3, q[8 * j], q[4 * kPitch + 8 * j]);
      }
    }
  }
  template <class F>
  __device__ void for_each(F&& f) {
    const int row = first_row() + static_cast<int>(threadIdx.x) % 32 / 4;
    const int column = first_column() + 2 * (static_cast<int>(threadIdx.x) % 4);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      f(row, column + 8 * j, x_[j][0]);
      f(row, column + 8 * j + 1, x_[j][1]);
      f(row + 8, column + 8 * j, x_[j][2]);
      f(row + 8, column + 8 * j + 1, x_[j][3]);
    }
  }

 private:
  __device__ static int first_row() {
    return static_cast<int>(threadIdx.x) / 32 % 4 * 16;
  }
  __device__ static int first_column() {
    return static_cast<int>(threadIdx.x) / 128 * 32;
  }

  double x_[4][4] = {};
};

// 64 x depth elements on their way to shared memory.
template <class D>
class Piece {
 public:
  // Element (row, k) of the source if it is wanted, else 0.
  template <class Wanted>
  __device__ void fetch(const D* source, Size ld, Wanted wanted) {
#pragma unroll
    for (int e = 0; e < kShare; ++e) {
      x_[e] = wanted(row(), column(e)) ? source[row() + column(e) * ld] : D{};
    }
  }
  __device__ void put(D* shared) const {
#pragma unroll
    for (int e = 0; e < kShare; ++e) {
      shared[column(e) * kPitch + row()] = x_[e];
    }
  }

 private:
  static constexpr int kShare = kEdge * kDepth / kThreads;
  __device__ static int row() {
    return static_cast<int>(threadIdx.x) % kEdge;
  }
  __device__ static int column(int e) {
    return static_cast<int>(threadIdx.x) / kEdge + e * (kThreads / kEdge);
  }

  D x_[kShare];
};

// block += sign left M^H with M (64 x 64) in memory; left: in shared memory, right: room there.
template <int sign, class D, class Wanted>
__device__ void add_square(Block<D>& block, const D* left, const D* m, Size ldm, Wanted wanted,
                           D* right) {
#pragma unroll
  for (int k = 0; k < kEdge; k += kDepth) {
    Piece<D> piece;
    piece.fetch(m + k * ldm, ldm, [&](int i, int j) { return wanted(i, k + j); });
    __syncthreads();
    piece.put(right);
    __syncthreads();
    block.template add<sign>(left + k * kPitch, right);
  }
}

template <class D>
__device__ void keep(Block<D>& block, D* shared) {
  block.for_each([&](int i, int j, D x) { shared[j * kPitch + i] = x; });
}

template <class D>
__global__ void __launch_bounds__(kThreads, sizeof(D) > 8 ? 1 : 2)
    solve_rows_of_panel_kernel(Size m, int n, const D* l, Size ldl, const D* inverses, D* a,
                               Size lda) {
  extern __shared__ double2 shared[];
  D* const rest = reinterpret_cast<D*>(shared);  // 64 columns
  D* const left = rest + kEdge * kPitch;         // 64 columns
  D* const right = left + kEdge * kPitch;        // 32 columns
  const Size first = static_cast<Size>(blockIdx.x) * kEdge;
  const int rows = static_cast<int>(m - first < kEdge ? m - first : kEdge);
  a += first;
  for (int j = 0; j < n; j += kEdge) {
    const int width = n - j < kEdge ? n - j : kEdge;
    Block<D> r;
    r.for_each([&](int row, int column, D& x) {
      x = row < rows && column < width ? a[row + (j + column) * lda] : D{};
    });
    Piece<D> solved, factor;
    const auto fetch = [&](int k) {
      solved.fetch(a + k * lda, lda, [&](int i, int) { return i < rows; });
      factor.fetch(l + j + k * ldl, ldl, [&](int i, int) { return i < width; });
    };
    if (j > 0) {
      fetch(0);
    }
    for (int k = 0; k < j; k += kDepth) {
      solved.put(left);
      factor.put(right);
      __syncthreads();
      if (k + kDepth < j) {
        fetch(k + kDepth);
      }
      r.template add<-1>(left, right);
      __syncthreads();
    }
    const D* const inverse = inverses + static_cast<Size>(j) * kEdge;
    const auto whole = [](int, int) { return true; };
    Block<D> x;
    keep(r, rest);
    add_square<1>(x, rest, inverse, kEdge, whole, right);
    keep(x, left);
    add_square<-1>(
        r, left, l + j + j * ldl, ldl, [&](int i, int k) { return k <= i && i < width; }, right);
    keep(r, rest);
    add_square<1>(x, rest, inverse, kEdge, whole, right);
    x.for_each([&](int row, int column, D value) {
      if (row < rows && column < width) {
        a[row + (j + column) * lda] = value;
      }
    });
    __syncthreads();
  }
}

}  // namespace

template <class T>
void solve_panel_rows(CudaLane& lane, Size m, Size n, const T* l, Size ldl, T* a, Size lda) {
  if (m <= 0) {
    return;
  }
  using D = DeviceType<T>;
  constexpr int bytes = static_cast<int>(sizeof(D)) * (2 * kEdge + kDepth) * kPitch;
  JAXMG_CUDA_CHECK(cudaFuncSetAttribute(solve_rows_of_panel_kernel<D>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  // Behind what a product with a vector may use.
  char* const scratch = static_cast<char*>(lane.scratch(triangle_bytes(dtype_of<T>, n)));
  T* const inverses = reinterpret_cast<T*>(scratch + round_up(n * size_of(dtype_of<T>), 256));
  invert_row_blocks<T>(lane, n, l, ldl, inverses);
  const auto blocks = static_cast<unsigned>(ceil_div(m, kEdge));
  for (Size j = 0; j < n; j += kColumns) {
    const Size w = std::min(kColumns, n - j);
    Cuda::gemm<T>(lane, Op::none, Op::conj_transpose, m, w, j, T(-1), a, lda, l + j, ldl, T(1),
                  a + j * lda, lda);
    solve_rows_of_panel_kernel<D><<<blocks, kThreads, bytes, lane.stream()>>>(
        m, narrow(w), on_device(l + j * (ldl + 1)), ldl, on_device(inverses + j * kEdge),
        on_device(a + j * lda), lda);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

#define JAXMG_INSTANTIATE(T) \
  template void solve_panel_rows<T>(CudaLane&, Size, Size, const T*, Size, T*, Size);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
