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
// all busy; this one waits once for up to 512 columns.
#include "tile/cuda/panel_rows.h"

#include <algorithm>

#include "tile/cuda/launch.h"
#include "tile/cuda/panel_block.h"

namespace jaxmg::tile {
namespace {

constexpr int kEdge = kBlockEdge;
constexpr int kDepth = kBlockDepth;
constexpr int kSlot = kBlockSlot;
constexpr int kSlots = kRingSlots;  // of the ring
constexpr Size kColumns = 512;      // of one launch: later ones get a product of the library before

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

// Columns begin .. n - 1. Block column j takes j / 32 operands for its update, then two each for M
// and, if corrected, for L_jj and M again.
template <class R>
__global__ void __launch_bounds__(kThreads)
    solve_rows_of_panel_kernel(Size m, int begin, int n, const R* l, Size ldl, const R* inverses,
                               const int* corrected, R* a, Size lda) {
  extern __shared__ double2 shared[];
  R* const ring = reinterpret_cast<R*>(shared);
  R* const rest = ring + 2 * kSlots * kSlot;  // R, 64 columns
  R* const solved = rest + 2 * kSlot;         // X_j, 64 columns
  const Size first = static_cast<Size>(blockIdx.x) * kEdge;
  const int rows = static_cast<int>(m - first < kEdge ? m - first : kEdge);
  a += first;
  const Operands<R> operands{l, ldl, inverses, a, lda, rows};
  for (int j = begin; j < n; j += kEdge) {
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
void solve_panel_rows(CudaLane& lane, Size m, Size first, Size last, Size n, const R* l, Size ldl,
                      R* a, Size lda) {
  if (m <= 0) {
    return;
  }
  constexpr std::size_t bytes = kRowMemory<R>;
  allow_shared_memory(solve_rows_of_panel_kernel<R>, bytes);
  const auto known = tile_inverses<R>(lane, n);
  const auto blocks = static_cast<unsigned>(ceil_div(m, kRowBlock));
  for (Size begin = first, end = 0; begin < last; begin = end) {
    const Size base = begin / kColumns * kColumns;
    end = std::min(last, base + kColumns);
    if (base > 0) {
      Cuda::gemm<R>(lane, Op::none, Op::conj_transpose, m, end - begin, base, R(-1), a, lda,
                    l + begin, ldl, R(1), a + begin * lda, lda);
    }
    solve_rows_of_panel_kernel<R><<<blocks, kThreads, bytes, lane.stream()>>>(
        m, narrow(begin - base), narrow(end - base), l + base * (ldl + 1), ldl,
        known.inverses + base * kRowBlock, known.corrected + base / kRowBlock, a + base * lda, lda);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

template void solve_panel_rows<float>(CudaLane&, Size, Size, Size, Size, const float*, Size, float*,
                                      Size);
template void solve_panel_rows<double>(CudaLane&, Size, Size, Size, Size, const double*, Size,
                                       double*, Size);

}  // namespace jaxmg::tile
