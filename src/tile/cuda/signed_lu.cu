// LU factors of A - S, with signs S that make pivots needless, and the triangular factor T of the
// reflectors that they stand for:
//
//   L T^H = -S U^H
//
// Columns are taken 32 at a time, by one launch for each block of them. Its thread blocks have a
// tile of 64 x 64 of what is left to update; each of them factors the diagonal block for itself,
// and takes the rows of L and the columns of U that its tile wants, which is quicker than to wait
// for another to tell it. Nothing that a launch reads is written by it: factors go to a place of
// their own.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"
#include "tile/cuda/scratch.h"
#include "tile/cuda/shuffle.h"

namespace jaxmg::tile {
namespace {

constexpr int kEdge = 32;      // of a diagonal block: a warp's
constexpr int kTileEdge = 64;  // of a tile
constexpr int kTileThreads = 256;

template <class R>
__device__ R inverse_of(R x) {
  return R{1} / x;
}
// |x| >= 1 and of moderate size, so that the square is harmless.
template <class R>
__device__ DeviceComplex<R> inverse_of(DeviceComplex<R> x) {
  const R scale = R{1} / (x.re * x.re + x.im * x.im);
  return {x.re * scale, -x.im * scale};
}

template <class D, class R>
struct SignedLuStep {
  int rows;     // of a and out
  int columns;  // of a and out: the order of U
  int first;    // column of the diagonal block
  D* a;
  Size lda;
  D* out;
  Size ldo;
  R* signs;
  int ahead;   // tiles in a row that have columns behind the diagonal block, one at least
  D* pending;  // what T^H is to be solved from, ld columns, but for -S U^H
  D* t;        // none: T is not wanted
  Size ldt;
};

// Columns lie one behind the other, but for one element.
template <class D, class R>
struct SignedLuMemory {
  D diagonal[kEdge][kEdge + 1];   // column, row
  D inverse[kEdge];               // of its pivots
  D lower[kEdge][kTileEdge + 1];  // column, row of the tile
  D upper[kEdge][kTileEdge + 1];  // row, column of the tile
  R signs[kEdge];
};

// What a tile of T^H is solved from, its columns beginning at `column0`: s.upper <- rows of the
// diagonal block of -S U^H less what earlier ones make of it. Behind the diagonal block both are
// zero.
template <class D, class R>
__device__ void prepare_factor(SignedLuMemory<D, R>& s, const SignedLuStep<D, R>& p, int w,
                               int column0) {
  const D zero = element<D>(R{0});
  for (int e = static_cast<int>(threadIdx.x); e < kEdge * kTileEdge; e += kTileThreads) {
    const int i = e / kTileEdge, j = column0 + e % kTileEdge;
    D x = zero;
    if (i < w && j < p.first) {
      const D u = p.out[j + (p.first + i) * p.ldo];
      x = p.pending[p.first + i + static_cast<Size>(j) * p.columns] +
          times(conjugate(u), -s.signs[i]);
    } else if (i < w && j <= p.first + i) {
      x = times(conjugate(s.diagonal[i][j - p.first]), -s.signs[i]);
    }
    s.upper[i][e % kTileEdge] = x;
  }
}

// Its rows to T as columns.
template <class D, class R>
__device__ void store_factor(const SignedLuMemory<D, R>& s, const SignedLuStep<D, R>& p, int w,
                             int column0) {
  for (int e = static_cast<int>(threadIdx.x); e < kEdge * kTileEdge; e += kTileThreads) {
    const int i = e / kTileEdge, j = column0 + e % kTileEdge;
    if (i < w && j < p.first + w) {
      p.t[j + (p.first + i) * p.ldt] = conjugate(s.upper[i][e % kTileEdge]);
    }
  }
}

// The diagonal block by one warp, lane i holding row i. Beyond w there are zeros.
template <class D, class R>
__device__ void factor_diagonal(SignedLuMemory<D, R>& s, int w, int lane) {
  D row[kEdge];
#pragma unroll
  for (int j = 0; j < kEdge; ++j) {
    row[j] = s.diagonal[j][lane];
  }
#pragma unroll
  for (int k = 0; k < kEdge; ++k) {
    if (k < w) {
      const D found = from_lane(row[k], k);
      const R sign = real_part(found) < R{0} ? R{1} : R{-1};
      const D pivot = found + element<D>(-sign);
      const D inverse = inverse_of(pivot);
      if (lane == k) {
        row[k] = pivot;
        s.inverse[k] = inverse;
        s.signs[k] = sign;
      } else if (lane > k) {
        row[k] = row[k] * inverse;
      }
      const D factor = lane > k ? row[k] : element<D>(R{0});
#pragma unroll
      for (int j = k + 1; j < kEdge; ++j) {
        row[j] = minus_product(row[j], factor, from_lane(row[j], k));
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kEdge; ++j) {
    s.diagonal[j][lane] = row[j];
  }
}

// A row of the tile's part of L: x U = a.
template <class D, class R>
__device__ void solve_lower(SignedLuMemory<D, R>& s, int w, int row) {
  D x[kEdge];
#pragma unroll
  for (int j = 0; j < kEdge; ++j) {
    x[j] = s.lower[j][row];
  }
#pragma unroll
  for (int k = 0; k < kEdge; ++k) {
    if (k < w) {
      x[k] = x[k] * s.inverse[k];
#pragma unroll
      for (int j = k + 1; j < kEdge; ++j) {
        x[j] = minus_product(x[j], x[k], s.diagonal[j][k]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kEdge; ++j) {
    s.lower[j][row] = x[j];
  }
}

// A column of the tile's part of U: L y = a.
template <class D, class R>
__device__ void solve_upper(SignedLuMemory<D, R>& s, int w, int column) {
  D y[kEdge];
#pragma unroll
  for (int i = 0; i < kEdge; ++i) {
    y[i] = s.upper[i][column];
  }
#pragma unroll
  for (int k = 0; k < kEdge; ++k) {
    if (k < w) {
#pragma unroll
      for (int i = k + 1; i < kEdge; ++i) {
        y[i] = minus_product(y[i], s.diagonal[k][i], y[k]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kEdge; ++i) {
    s.upper[i][column] = y[i];
  }
}

// What a thread block works at.
struct LuTile {
  int w;           // columns of the diagonal block
  int behind;      // the first column behind it
  int row;         // the first one of the tile
  int column;      // likewise
  bool of_factor;  // of T^H
};

template <class D, class R>
__device__ void load_blocks(SignedLuMemory<D, R>& s, const SignedLuStep<D, R>& p,
                            const LuTile& tile) {
  const int tid = static_cast<int>(threadIdx.x);
  const D zero = element<D>(R{0});
  for (int e = tid; e < kEdge * kEdge; e += kTileThreads) {
    const int i = e % kEdge, j = e / kEdge;
    s.diagonal[j][i] = i < tile.w && j < tile.w ? p.a[p.first + i + (p.first + j) * p.lda] : zero;
  }
  for (int e = tid; e < kEdge * kTileEdge; e += kTileThreads) {
    const int i = e % kTileEdge, j = e / kTileEdge;
    s.lower[j][i] =
        j < tile.w && tile.row + i < p.rows ? p.a[tile.row + i + (p.first + j) * p.lda] : zero;
  }
  for (int e = tid; e < kEdge * kTileEdge; e += kTileThreads) {
    const int i = e % kEdge, j = e / kEdge;
    s.upper[i][j] = !tile.of_factor && i < tile.w && tile.column + j < p.columns
                        ? p.a[p.first + i + (tile.column + j) * p.lda]
                        : zero;
  }
}

// The factors, each by one of the blocks that have found them.
template <class D, class R>
__device__ void store_blocks(const SignedLuMemory<D, R>& s, const SignedLuStep<D, R>& p,
                             const LuTile& tile) {
  const int tid = static_cast<int>(threadIdx.x);
  if (blockIdx.y == 0) {
    for (int e = tid; e < kEdge * kTileEdge; e += kTileThreads) {
      const int i = e % kTileEdge, j = e / kTileEdge;
      if (j < tile.w && tile.row + i < p.rows) {
        p.out[tile.row + i + (p.first + j) * p.ldo] = s.lower[j][i];
      }
    }
  }
  if (tile.of_factor && blockIdx.x == 0) {
    store_factor(s, p, tile.w, tile.column);
  } else if (blockIdx.x == 0) {
    for (int e = tid; e < kEdge * kTileEdge; e += kTileThreads) {
      const int i = e % kEdge, j = e / kEdge;
      if (i < tile.w && tile.column + j < p.columns) {
        p.out[p.first + i + (tile.column + j) * p.ldo] = s.upper[i][j];
      }
    }
  }
  if (blockIdx.x == 0 && blockIdx.y == 0) {
    for (int e = tid; e < kEdge * kEdge; e += kTileThreads) {
      const int i = e % kEdge, j = e / kEdge;
      if (i < tile.w && j < tile.w) {
        p.out[p.first + i + (p.first + j) * p.ldo] = s.diagonal[j][i];
      }
    }
    if (tid < tile.w) {
      p.signs[p.first + tid] = s.signs[tid];
    }
  }
}

// The tile, or what T^H is solved from, less the product; a thread has 4 x 4 elements, 16 apart.
template <class D, class R>
__device__ void update_tile(const SignedLuMemory<D, R>& s, const SignedLuStep<D, R>& p,
                            const LuTile& tile) {
  const int tid = static_cast<int>(threadIdx.x);
  D* const target = tile.of_factor ? p.pending : p.a;
  const Size ld = tile.of_factor ? p.columns : p.lda;
  const int last_row = tile.of_factor ? p.columns : p.rows;
  const int last_column = tile.of_factor ? tile.behind : p.columns;
  const int known = tile.of_factor ? p.first : p.columns;  // columns that hold something already
  constexpr int each = kTileEdge / 16;
  const int i0 = tid % 16, j0 = tid / 16;
  D x[each][each];
#pragma unroll
  for (int c = 0; c < each; ++c) {
#pragma unroll
    for (int r = 0; r < each; ++r) {
      const int i = tile.row + i0 + 16 * r, j = tile.column + j0 + 16 * c;
      x[r][c] = i < last_row && j < known ? target[i + j * ld] : element<D>(R{0});
    }
  }
#pragma unroll 4
  for (int k = 0; k < kEdge; ++k) {  // zeros beyond w
    D l[each], u[each];
#pragma unroll
    for (int q = 0; q < each; ++q) {
      l[q] = s.lower[k][i0 + 16 * q];
      u[q] = s.upper[k][j0 + 16 * q];
    }
#pragma unroll
    for (int c = 0; c < each; ++c) {
#pragma unroll
      for (int r = 0; r < each; ++r) {
        x[r][c] = minus_product(x[r][c], l[r], u[c]);
      }
    }
  }
#pragma unroll
  for (int c = 0; c < each; ++c) {
#pragma unroll
    for (int r = 0; r < each; ++r) {
      const int i = tile.row + i0 + 16 * r, j = tile.column + j0 + 16 * c;
      if (i < last_row && j < last_column) {
        target[i + j * ld] = x[r][c];
      }
    }
  }
}

// blockIdx: tile of the rows behind the diagonal block, and of the columns there; then of those of
// T^H up to it.
template <class D, class R>
__global__ void __launch_bounds__(kTileThreads) signed_lu_kernel(const SignedLuStep<D, R> p) {
  extern __shared__ __align__(16) char memory[];
  auto& s = *reinterpret_cast<SignedLuMemory<D, R>*>(memory);
  const int tid = static_cast<int>(threadIdx.x);
  const int y = static_cast<int>(blockIdx.y);
  LuTile tile;
  tile.w = p.columns - p.first < kEdge ? p.columns - p.first : kEdge;
  tile.behind = p.first + tile.w;
  tile.row = tile.behind + static_cast<int>(blockIdx.x) * kTileEdge;
  tile.of_factor = y >= p.ahead;
  tile.column = tile.of_factor ? (y - p.ahead) * kTileEdge : tile.behind + y * kTileEdge;
  load_blocks(s, p, tile);
  __syncthreads();
  if (tid < kEdge) {
    factor_diagonal(s, tile.w, tid);
  }
  __syncthreads();
  if (tile.of_factor) {
    prepare_factor(s, p, tile.w, tile.column);
    __syncthreads();
  }
  if (tid < kTileEdge) {
    solve_lower(s, tile.w, tid);
  } else if (tid < 2 * kTileEdge) {
    solve_upper(s, tile.w, tid - kTileEdge);
  }
  __syncthreads();
  store_blocks(s, p, tile);
  update_tile(s, p, tile);
}

}  // namespace

Size signed_lu_bytes(DType type, Size n) {
  const Size columns = std::min(n, Cuda::lu_block);
  return 3 * columns * columns * size_of(type);
}

namespace {

// t: null, or n x n.
template <class T>
void take_signed_lu(CudaLane& lane, Size n, Size m, T* a, Size lda, Real<T>* signs, T* t,
                    Size ldt) {
  using D = DeviceType<T>;
  using R = Real<T>;
  if (n <= 0) {
    return;
  }
  const Size rows = n + m;
  T* const out =
      static_cast<T*>(lane.scratch((rows + (t != nullptr ? n : 0)) * n * Size{sizeof(T)}));
  if (t != nullptr) {
    Cuda::fill<T>(lane, n, n, T(0), T(0), t, ldt);
  }
  constexpr std::size_t shared = sizeof(SignedLuMemory<D, R>);
  const auto kernel = signed_lu_kernel<D, R>;
  if constexpr (shared > kPlainSharedMemory) {
    allow_shared_memory(kernel, shared);
  }
  for (Size first = 0; first < n; first += kEdge) {
    const Size behind = std::min(n, first + kEdge);
    // One tile at least, which leaves the factors of the diagonal block.
    const Size high = std::max<Size>(1, ceil_div(rows - behind, kTileEdge));
    const Size ahead = std::max<Size>(1, ceil_div(n - behind, kTileEdge));
    const Size back = t != nullptr ? ceil_div(behind, kTileEdge) : 0;
    const SignedLuStep<D, R> step{
        narrow(rows),   narrow(n), narrow(first), on_device(a),  lda,
        on_device(out), rows,      signs,         narrow(ahead), on_device(out + rows * n),
        on_device(t),   ldt};
    kernel<<<dim3(static_cast<unsigned>(high), static_cast<unsigned>(ahead + back)), kTileThreads,
             shared, lane.stream()>>>(step);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
  Cuda::copy(lane, rows, n, out, rows, a, lda);
}

}  // namespace

template <class T>
void Cuda::signed_lu(Lane& lane, Size n, Size m, T* a, Size lda, Real<T>* signs) {
  take_signed_lu<T>(lane, n, m, a, lda, signs, nullptr, 1);
}

template <class T>
void Cuda::make_reflectors(Lane& lane, Size n, Size m, T* a, Size lda, Real<T>* signs, T* t,
                           Size ldt) {
  take_signed_lu<T>(lane, n, m, a, lda, signs, t, ldt);
}

#define JAXMG_INSTANTIATE(T)                                               \
  template void Cuda::signed_lu<T>(Lane&, Size, Size, T*, Size, Real<T>*); \
  template void Cuda::make_reflectors<T>(Lane&, Size, Size, T*, Size, Real<T>*, T*, Size);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
