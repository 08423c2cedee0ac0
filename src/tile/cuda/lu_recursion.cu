// LU factors of a panel by halves of its columns, and the inverse of its triangle on the way.
//
//   [A1  A2]    P1 A1 = L1 U1
//               P1 A2 = [B; C],  U12 = inv(L11) B,  A22 = C - L21 U12
//               P2 A22 = L2 U2,  L21 <- P2 L21
//
// With X the inverses of the blocks of edge Cuda::inverse_block on the diagonal of L: within such a
// block X21 = -X22 L21 X11; rows of later blocks in x hold X22 L21. Everything but the bases is a
// product or an interchange of rows; those of a few columns are joined in one kernel each, since
// what they take is the time of a launch.
#include <algorithm>

#include "tile/cuda/cuda.h"
#include "tile/cuda/dependent_launch.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/lu_base.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

constexpr Size kBlock = Cuda::inverse_block;
constexpr int kSmall = static_cast<int>(kBlock / 2);  // halves whose work is done by small kernels
constexpr int kSlice = 4;                             // columns that one of their blocks takes

template <class D>
__device__ D zero() {
  return element<D>(decltype(real_part(D{})){0});
}

// What becomes of row `source` under interchanges i <-> rows_i, i = 0, ..., n - 1.
__device__ int traced(int source, int n, const int* rows) {
  int at = source;
  for (int i = 0; i < n; ++i) {
    const int other = rows[i];
    at = at == i ? other : at == other ? i : at;
  }
  return at;
}

// Columns j0 .. j0 + count - 1 of a (n rows) <- x times those of `head`, which is in shared memory.
template <class D>
__device__ void multiply_head(int tid, int n, const D* x, Size ldx, const D (&head)[kSlice][kSmall],
                              int j0, int count, D* a, Size lda) {
  const int i = tid % kSmall;
  for (int c = tid / kSmall; c < count; c += kThreads / kSmall) {
    if (i < n) {
      D sum = zero<D>();
#pragma unroll 8
      for (int k = 0; k < n; ++k) {
        sum = sum + x[i + k * ldx] * head[c][k];
      }
      a[i + (j0 + c) * lda] = sum;
    }
  }
}

// Columns of a after n interchanges. kSolve: rows first .. first + n - 1 are multiplied by the
// lower triangle x as well.
template <bool kSolve, class D>
__global__ void __launch_bounds__(kThreads)
    interchange_kernel(int n, const std::int32_t* pivots, Size first, int columns, D* a, Size lda,
                       D* top, Size ldt, const D* x, Size ldx) {
  constexpr int kEach = 4;  // rows of a thread: 2 n <= kEach kThreads
  __shared__ int rows[kEach * kThreads / 2];
  __shared__ D head[kSolve ? kSlice : 1][kSolve ? kSmall : 1];
  const int tid = static_cast<int>(threadIdx.x);
  admit_successor();
  await_predecessor();
  for (int i = tid; i < n; i += kThreads) {
    rows[i] = static_cast<int>(pivots[i] - first);
  }
  __syncthreads();
  int from[kEach], to[kEach];
#pragma unroll
  for (int u = 0; u < kEach; ++u) {
    const int i = tid + u * kThreads;
    from[u] = i < n ? i : i < 2 * n ? rows[i - n] : -1;
    from[u] = i >= n && from[u] < n ? -1 : from[u];  // among the first n rows already
    to[u] = from[u] >= 0 ? traced(from[u], n, rows) : -1;
  }
  for (int j0 = static_cast<int>(blockIdx.x) * kSlice; j0 < columns;
       j0 += static_cast<int>(gridDim.x) * kSlice) {
    const int count = min(kSlice, columns - j0);
    D kept[kEach][kSlice];
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
#pragma unroll
      for (int c = 0; c < kSlice; ++c) {
        if (from[u] >= 0 && c < count) {
          kept[u][c] = a[from[u] + (j0 + c) * lda];
        }
      }
    }
    __syncthreads();
#pragma unroll
    for (int u = 0; u < kEach; ++u) {
#pragma unroll
      for (int c = 0; c < kSlice; ++c) {
        if (from[u] >= 0 && c < count) {
          if constexpr (kSolve) {
            if (to[u] < n) {
              head[c][to[u]] = kept[u][c];
              continue;
            }
          }
          D* const out =
              top && to[u] < n ? top + to[u] + (j0 + c) * ldt : a + to[u] + (j0 + c) * lda;
          *out = kept[u][c];
        }
      }
    }
    if constexpr (kSolve) {
      __syncthreads();
      multiply_head(tid, n, x, ldx, head, j0, count, a, lda);
      __syncthreads();
    }
  }
}

// x21 <- -x22 l21 x11 and x12 <- 0, with x11 h x h and x22 w x w, both at most kSmall.
template <class D>
__global__ void __launch_bounds__(kThreads)
    join_inverses_kernel(int h, int w, const D* l21, Size ldl, D* x, Size ldx) {
  __shared__ D product[kSlice][kSmall];
  const int i = static_cast<int>(threadIdx.x) % kSmall;
  const int c = static_cast<int>(threadIdx.x) / kSmall;
  const int j = static_cast<int>(blockIdx.x) * kSlice + c;
  const D* const x22 = x + h * (ldx + 1);
  admit_successor();
  await_predecessor();
  D sum = zero<D>();
  if (i < w && j < h) {
#pragma unroll 8
    for (int k = 0; k < h; ++k) {
      sum = sum + l21[i + k * ldl] * x[k + j * ldx];
    }
  }
  product[c][i] = sum;
  __syncthreads();
  if (j >= h) {
    return;
  }
  if (i < w) {
    sum = zero<D>();
#pragma unroll 8
    for (int k = 0; k < w; ++k) {
      sum = sum - x22[i + k * ldx] * product[c][k];
    }
    x[h + i + j * ldx] = sum;
  }
  for (int k = i; k < w; k += kSmall) {
    x[j + (h + k) * ldx] = zero<D>();
  }
}
static_assert(kThreads == kSmall * kSlice);

template <class T>
class Recursion {
 public:
  using D = DeviceType<T>;

  Recursion(CudaLane& lane, int width, Size lda, Size ldx, T* top)
      : lane_(lane), width_(width), lda_(lda), ldx_(ldx), top_(top) {}

  void factor(Size m, Size n, T* a, Size first, std::int32_t* pivots, T* x,
              const PanelReport& report) {
    if (n <= width_) {
      return lu_base<T>(lane_, width_, m, n, a, lda_, first, pivots, x, ldx_, report);
    }
    const Size h = round_up(ceil_div(n, 2), n > kBlock ? kBlock : width_);
    const Size w = n - h;
    T* const right = a + h * lda_;
    T* const x22 = x + h * (ldx_ + 1);
    factor(m, h, a, first, pivots, x, report);
    solve(h, w, pivots, first, right, x);
    Cuda::gemm<T>(lane_, Op::none, Op::none, m - h, w, h, T(-1), a + h, lda_, right, lda_, T(1),
                  right + h, lda_);
    factor(m - h, w, right + h, first + h, pivots + h, x22, report.after(h));
    interchange<false>(w, pivots + h, first + h, h, a + h, nullptr, 0, nullptr);
    join(h, w, a + h, x);
  }

 private:
  // The rows of the right columns in their new order, and U12 = inv(L11) B.
  void solve(Size h, Size w, const std::int32_t* pivots, Size first, T* right, const T* x) {
    if (h <= kSmall) {
      return interchange<true>(h, pivots, first, w, right, nullptr, 0, x);
    }
    interchange<false>(h, pivots, first, w, right, top_, h, nullptr);
    for (Size j = 0; j < h; j += kBlock) {
      const Size rows = std::min(kBlock, h - j);
      Cuda::gemm<T>(lane_, Op::none, Op::none, rows, w, rows, T(1), x + j * (ldx_ + 1), ldx_,
                    top_ + j, h, T(0), right + j, lda_);
      if (j > 0) {
        Cuda::gemm<T>(lane_, Op::none, Op::none, rows, w, j, T(-1), x + j, ldx_, right, lda_, T(1),
                      right + j, lda_);
      }
    }
  }

  template <bool kSolve>
  void interchange(Size n, const std::int32_t* pivots, Size first, Size columns, T* a, T* top,
                   Size ldt, const T* x) {
    const auto blocks = static_cast<unsigned>(ceil_div(columns, kSlice));
    launch_dependent(lane_, interchange_kernel<kSolve, D>, blocks, kThreads, 0, narrow(n), pivots,
                     first, narrow(columns), on_device(a), lda_, on_device(top), ldt, on_device(x),
                     ldx_);
  }

  void join(Size h, Size w, const T* l21, T* x) {
    if (h + w <= kBlock) {
      const auto blocks = static_cast<unsigned>(ceil_div(h, kSlice));
      launch_dependent(lane_, join_inverses_kernel<D>, blocks, kThreads, 0, narrow(h), narrow(w),
                       on_device(l21), lda_, on_device(x), ldx_);
      return;
    }
    const Size whole = w / kBlock;  // blocks of rows
    Cuda::gemm_strided<T>(lane_, Op::none, Op::none, kBlock, h, kBlock, T(1), x + h * (ldx_ + 1),
                          ldx_, kBlock * (ldx_ + 1), l21, lda_, kBlock, T(0), x + h, ldx_, kBlock,
                          whole);
    const Size rest = w - whole * kBlock;
    const Size at = h + whole * kBlock;
    Cuda::gemm<T>(lane_, Op::none, Op::none, rest, h, rest, T(1), x + at * (ldx_ + 1), ldx_,
                  l21 + whole * kBlock, lda_, T(0), x + at, ldx_);
  }

  CudaLane& lane_;
  int width_;
  Size lda_;
  Size ldx_;
  T* top_;
};

}  // namespace

Size lu_recursion_bytes(DType type, Size n) {
  return n * n / 4 * size_of(type) + size_of(type);
}

template <class T>
void lu_recursion(CudaLane& lane, int width, Size m, Size n, T* a, Size lda, Size first,
                  std::int32_t* pivots, T* x, Size ldx, const PanelReport& report) {
  T* const top = static_cast<T*>(lane.scratch(lu_recursion_bytes(dtype_of<T>, n)));
  Recursion<T>(lane, width, lda, ldx, top).factor(m, n, a, first, pivots, x, report);
}

#define JAXMG_INSTANTIATE(T)                                                                   \
  template void lu_recursion<T>(CudaLane&, int, Size, Size, T*, Size, Size, std::int32_t*, T*, \
                                Size, const PanelReport&);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
