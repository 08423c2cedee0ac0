// Rows below a factored tile in few launches: X = A L^-H.
//
// Rows do not depend on each other, so a thread block takes 64 of them from the first column to the
// last. For each block of 64 columns j, with M = inv(L_jj):
//
//   R <- A_j - sum_{i < j} X_i L_ji^H,   X_j <- R M^H
//
// and, where L_jj is not well conditioned,
//
//   R <- R - X_j L_jj^H,   X_j <- X_j + R M^H
//
// which makes up for the error of the inverse: the result is as good as that of substitution. The
// factors of these products come through a ring in shared memory, 32 columns at a time, which
// copies fill ahead. Products run on the tensor cores of double precision, for float32 too.
//
// A panel of many small launches waits for processors at each of them while a trailing update keeps
// all busy; this one waits once for 512 columns.
#include "tile/cuda/panel_rows.h"

#include <algorithm>

#include "tile/cuda/async_copy.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scratch.h"
#include "tile/cuda/tensor_core.h"

namespace jaxmg::tile {
namespace {

constexpr int kEdge = static_cast<int>(kRowBlock);
constexpr int kDepth = 32;         // columns of a slot
constexpr int kSlots = 3;          // of the ring
constexpr int kPitch = kEdge + 4;  // keeps lanes that read together apart
constexpr int kSlot = kDepth * kPitch;
constexpr Size kColumns = 512;  // of one launch: later ones get a product of the library before

// A 64 x 64 block in the registers of a thread block: 8 warps have 16 x 32 elements each.
class Block {
 public:
  // block += sign A B^H with A and B (64 x 32) in shared memory, column by column.
  template <int sign, class R>
  __device__ void add(const R* a, const R* b) {
    const int g = static_cast<int>(threadIdx.x) % 32 / 4, t = static_cast<int>(threadIdx.x) % 4;
    const R* const left = a + t * kPitch + first_row() + g;
    const R* const right = b + t * kPitch + first_column() + g;
#pragma unroll
    for (int k = 0; k < kDepth; k += 8) {
      const R* const p = left + k * kPitch;
      const R* const q = right + k * kPitch;
      const double a0 = sign * p[0], a1 = sign * p[8];
      const double a2 = sign * p[4 * kPitch], a3 = sign * p[4 * kPitch + 8];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        multiply_add(x_[j], a0, a1, a2, a3, q[8 * j], q[4 * kPitch + 8 * j]);
      }
    }
  }
  // f(row, column, element) for the thread's elements.
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
  // To shared memory, column by column.
  template <class R>
  __device__ void keep(R* shared) {
    for_each([&](int i, int j, double x) { shared[j * kPitch + i] = static_cast<R>(x); });
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

// Starts to copy 64 x 32 elements to shared memory; 0 comes in place of those not wanted.
template <class R, class Wanted>
__device__ void start_copy(R* shared, const R* source, Size ld, Wanted wanted) {
  const int row = static_cast<int>(threadIdx.x) % kEdge;
#pragma unroll
  for (int e = 0; e < kEdge * kDepth / kThreads; ++e) {
    const int column = static_cast<int>(threadIdx.x) / kEdge + e * (kThreads / kEdge);
    const bool here = wanted(row, column);
    copy_async_or_zero(shared + column * kPitch + row, here ? source + row + column * ld : source,
                       here);
  }
}

// The operands of a thread block's products, in the order in which they are needed.
template <class R>
struct Operands {
  const R* l;
  Size ldl;
  const R* inverses;
  const R* a;  // first of the block's rows
  Size lda;
  int rows;  // of the block

  // The slot's share of the update of block column j (width columns) by columns k .. k + 31.
  __device__ void start_update(R* slot, int j, int width, int k) const {
    start_copy(slot, a + k * lda, lda, [&](int i, int) { return i < rows; });
    start_copy(slot + kSlot, l + j + k * ldl, ldl, [&](int i, int) { return i < width; });
  }
  // Columns 32 half .. of M, or of L_jj without what is above its diagonal.
  __device__ void start_inverse(R* slot, int j, int half) const {
    const R* const m = inverses + static_cast<Size>(j) * kEdge;
    start_copy(slot + kSlot, m + half * kDepth * kEdge, kEdge, [](int, int) { return true; });
  }
  __device__ void start_triangle(R* slot, int j, int width, int half) const {
    const int first = half * kDepth;
    start_copy(slot + kSlot, l + j + (j + first) * ldl, ldl,
               [&](int i, int k) { return i < width && first + k <= i; });
  }
  // Operand `index` of block column j; see solve_rows_of_panel_kernel.
  __device__ void start(R* slot, int j, int width, int index) const {
    const int updates = j / kDepth;
    if (index < updates) {
      return start_update(slot, j, width, index * kDepth);
    }
    const int step = (index - updates) / 2, half = (index - updates) % 2;
    if (step == 1) {
      return start_triangle(slot, j, width, half);
    }
    start_inverse(slot, j, half);
  }
};

// Block column j takes j / 32 operands for its update, then two each for M and, if corrected, for
// L_jj and M again.
template <class R>
__global__ void __launch_bounds__(kThreads)
    solve_rows_of_panel_kernel(Size m, int n, const R* l, Size ldl, const R* inverses,
                               const int* corrected, R* a, Size lda) {
  extern __shared__ double2 shared[];
  R* const ring = reinterpret_cast<R*>(shared);
  R* const rest = ring + 2 * kSlots * kSlot;  // R, 64 columns
  R* const solved = rest + 2 * kSlot;         // X_j, 64 columns
  const Size first = static_cast<Size>(blockIdx.x) * kEdge;
  const int rows = static_cast<int>(m - first < kEdge ? m - first : kEdge);
  a += first;
  const Operands<R> operands{l, ldl, inverses, a, lda, rows};
  for (int j = 0; j < n; j += kEdge) {
    const int width = n - j < kEdge ? n - j : kEdge;
    const int updates = j / kDepth;
    const int count = updates + (corrected[j / kEdge] != 0 ? 6 : 2);
    const auto start = [&](int index) {
      if (index < count) {
        operands.start(ring + index % kSlots * 2 * kSlot, j, width, index);
      }
      commit_copies();
    };
    for (int index = 0; index < kSlots - 1; ++index) {
      start(index);
    }
    Block r, x;
    r.for_each([&](int row, int column, double& e) {
      e = row < rows && column < width ? static_cast<double>(a[row + (j + column) * lda]) : 0;
    });
    for (int index = 0; index < count; ++index) {
      wait_for_copies<kSlots - 2>();
      const int step = index - updates;
      if (step == 0 || step == 4) {
        r.keep(rest);
      } else if (step == 2) {
        x.keep(solved);
      }
      __syncthreads();
      start(index + kSlots - 1);
      const R* const left = ring + index % kSlots * 2 * kSlot;
      const R* const right = left + kSlot;
      if (step < 0) {
        r.template add<-1>(left, right);
      } else if (step == 2 || step == 3) {
        r.template add<-1>(solved + step % 2 * kSlot, right);
      } else {
        x.template add<1>(rest + step % 2 * kSlot, right);
      }
    }
    x.for_each([&](int row, int column, double e) {
      if (row < rows && column < width) {
        a[row + (j + column) * lda] = static_cast<R>(e);
      }
    });
    __syncthreads();
  }
}

}  // namespace

template <class R>
void solve_panel_rows(CudaLane& lane, Size m, Size n, const R* l, Size ldl, R* a, Size lda) {
  if (m <= 0) {
    return;
  }
  constexpr int bytes = static_cast<int>(sizeof(R)) * (2 * kSlots + 4) * kSlot;
  allow_shared_memory(solve_rows_of_panel_kernel<R>, bytes);
  char* const scratch = static_cast<char*>(lane.scratch(triangle_bytes(dtype_of<R>, n)));
  int* const corrected = reinterpret_cast<int*>(scratch);
  R* const inverses = reinterpret_cast<R*>(scratch + round_up(n * size_of(dtype_of<R>), 256));
  invert_row_blocks<R>(lane, n, l, ldl, inverses, corrected);
  const auto blocks = static_cast<unsigned>(ceil_div(m, kEdge));
  for (Size j = 0; j < n; j += kColumns) {
    const Size w = std::min(kColumns, n - j);
    if (j > 0) {
      Cuda::gemm<R>(lane, Op::none, Op::conj_transpose, m, w, j, R(-1), a, lda, l + j, ldl, R(1),
                    a + j * lda, lda);
    }
    solve_rows_of_panel_kernel<R><<<blocks, kThreads, bytes, lane.stream()>>>(
        m, narrow(w), l + j * (ldl + 1), ldl, inverses + j * kEdge, corrected + j / kEdge,
        a + j * lda, lda);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

template void solve_panel_rows<float>(CudaLane&, Size, Size, const float*, Size, float*, Size);
template void solve_panel_rows<double>(CudaLane&, Size, Size, const double*, Size, double*, Size);

}  // namespace jaxmg::tile
