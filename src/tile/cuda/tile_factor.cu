// Cholesky factorisation of a diagonal tile in one launch, a thread block for each 64 rows, with or
// without rows below it.
//
// Thread block b, with D = A_bb at first (none, and j to the last one, for rows below the tile):
//
//   for j < b:   R <- A_bj - sum_{i < j} L_bi L_ji^H
//                L_bj <- R M_j^H,   D <- D - L_bj L_bj^H        M_j = inv(L_jj)
//   D = L_bb L_bb^H,   M_b
//
// and, where L_jj is not well conditioned, L_bj is corrected as in panel_rows.cu. Block b + 1 waits
// for M_b, and has done all else by then: between one 64 x 64 factor and the next there are two
// products of that size. A thread block says in `progress` how many of its blocks are done, and
// waits only for those of the tile before it, which are on the device earlier: there need not be
// room for all.
#include <algorithm>

#include "tile/cuda/block_factor.h"
#include "tile/cuda/flags.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/panel_block.h"
#include "tile/cuda/panel_rows.h"

namespace jaxmg::tile {
namespace {

constexpr int kEdge = kBlockEdge;
constexpr int kDepth = kBlockDepth;
constexpr int kSlot = kBlockSlot;
constexpr int kSlots = kRingSlots;  // of the ring
// Product of the Frobenius norms of a block and of its inverse (64 for an identity) up to which
// products with the inverse need no correction.
constexpr double kGood = 512;

// What one thread block works with.
template <class R>
struct Row {
  R* a;  // the tile, n x n
  Size lda;
  int n;
  TileInverses<R> inverses;
  R* own;  // first of its rows
  int rows;

  __device__ R* element(int i, int column) const { return own + i + column * lda; }
  __device__ R* block(int i, int j) const { return a + i * kEdge + j * kEdge * lda; }
  // Columns of block column j.
  __device__ int width(int j) const { return n - j * kEdge < kEdge ? n - j * kEdge : kEdge; }
};

// R <- A_bj - sum_{i < j} L_bi L_ji^H, the factors coming through the ring, 32 columns at a time.
template <class R>
__device__ void update_block(const Row<R>& row, int j, R* ring, Block& r) {
  const R* const other = row.block(j, 0);
  const int width = row.width(j);
  const int count = j * (kEdge / kDepth);
  int done = 0;  // blocks of row j, as far as thread 0 knows
  const auto require = [&](int index) {
    const int wanted = index / (kEdge / kDepth) + 1;
    if (threadIdx.x == 0 && index < count && done < wanted) {
      done = wait_for(row.inverses.progress + j, wanted, row.inverses.failed);
    }
  };
  const auto start = [&](int index) {
    if (index < count) {
      R* const slot = ring + index % kSlots * 2 * kSlot;
      const Size k = index * kDepth;
      start_copy(slot, row.own + k * row.lda, row.lda, [&](int i, int) { return i < row.rows; });
      start_copy(slot + kSlot, other + k * row.lda, row.lda, [&](int i, int) { return i < width; });
    }
    commit_copies();
  };
  require(0);
  require(1);
  __syncthreads();
  start(0);
  start(1);
  r.for_each([&](int i, int column, double& e) {
    e = i < row.rows && column < width ? static_cast<double>(*row.element(i, j * kEdge + column))
                                       : 0;
  });
  for (int index = 0; index < count; ++index) {
    wait_for_copies<kSlots - 2>();
    require(index + kSlots - 1);
    __syncthreads();
    start(index + kSlots - 1);
    const R* const left = ring + index % kSlots * 2 * kSlot;
    r.template add<-1>(left, left + kSlot);
  }
}

// x += (what is in shared memory) M^H or r -= (that) L_jj^H, both of 64 columns.
template <int sign, class R>
__device__ void add_whole(Block& block, const R* left, const R* right) {
  block.template add<sign>(left, right);
  block.template add<sign>(left + kSlot, right + kSlot);
}

// X <- R M_j^H, corrected if need be, as soon as M_j is there. In registers and in `solved`, which
// all see on return. Uses four slots of the ring.
template <class R>
__device__ void solve_block(const Row<R>& row, int j, R* ring, R* rest, R* solved, Block& r,
                            Block& x) {
  const TileInverses<R>& inverses = row.inverses;
  r.keep(rest);
  if (threadIdx.x == 0) {
    wait_for(inverses.progress + j, j + 1, inverses.failed);
  }
  __syncthreads();
  const R* const m = inverses.of(j);
  for (int half = 0; half < 2; ++half) {
    start_copy(ring + half * kSlot, m + half * kDepth * kEdge, kEdge,
               [](int, int) { return true; });
  }
  commit_copies();
  const bool corrected = load_shared_by_all(inverses.corrected + j) != 0;
  wait_for_copies<0>();
  __syncthreads();
  add_whole<1>(x, rest, ring);
  if (corrected) {
    const R* const l = row.block(j, j);
    const int width = row.width(j);
    R* const triangle = ring + 2 * kSlot;
    for (int half = 0; half < 2; ++half) {
      const int first = half * kDepth;
      start_copy(triangle + half * kSlot, l + first * row.lda, row.lda,
                 [&](int i, int k) { return i < width && first + k <= i; });
    }
    commit_copies();
    x.keep(solved);
    wait_for_copies<0>();
    __syncthreads();
    add_whole<-1>(r, solved, triangle);
    r.keep(rest);
    __syncthreads();
    add_whole<1>(x, rest, ring);
  }
  x.keep(solved);
  __syncthreads();
}

// L_bj to its place, column by column.
template <class R>
__device__ void store_block(const Row<R>& row, int j, Block& x) {
  const int width = row.width(j);
  x.for_each([&](int i, int column, double e) {
    if (i < row.rows && column < width) {
      *row.element(i, j * kEdge + column) = static_cast<R>(e);
    }
  });
}

// D = L_bb L_bb^H and M_b. room: D, see factor_with_inverse.
template <class R>
__device__ void factor_diagonal(const Row<R>& row, int b, double* room, Size position, Info* info) {
  const TileInverses<R>& inverses = row.inverses;
  const BlockOutcome found =
      factor_with_inverse(room, row.rows, row.block(b, b), row.lda, inverses.of(b));
  if (threadIdx.x == 0) {
    const double condition = found.factor_squares * found.inverse_squares;
    inverses.corrected[b] = condition < kGood * kGood ? 0 : 1;
    if (found.failing < row.rows && info->kind == 0) {
      info->kind = static_cast<std::int32_t>(Kind::not_positive_definite);
      info->position = static_cast<std::int32_t>(position + b * kEdge + found.failing + 1);
    }
    if (load_relaxed(inverses.failed) != 0) {
      info->kind = static_cast<std::int32_t>(Kind::communication);
    }
    store_release(inverses.progress + b, b + 1);
  }
}

// The tile, n x n, and m rows below it.
template <class R>
__global__ void __launch_bounds__(kThreads, 1)
    factor_tile_kernel(int n, Size m, R* a, Size lda, TileInverses<R> inverses, Size position,
                       Info* info) {
  extern __shared__ double2 shared[];
  R* const ring = reinterpret_cast<R*>(shared);
  R* const rest = ring + 2 * kSlots * kSlot;  // R, 64 columns
  R* const solved = rest + 2 * kSlot;         // L_bj, 64 columns
  const int b = static_cast<int>(blockIdx.x), tile_rows = (n + kEdge - 1) / kEdge;
  const bool below = b >= tile_rows;
  const Size first = below ? n + static_cast<Size>(b - tile_rows) * kEdge : b * kEdge;
  const Size left = (below ? n + m : n) - first;
  const Row<R> row{a, lda, n, inverses, a + first, static_cast<int>(left < kEdge ? left : kEdge)};
  Block d;
  if (!below) {
    d.for_each([&](int i, int j, double& e) {
      e = j <= i && i < row.rows ? static_cast<double>(*row.element(i, b * kEdge + j)) : i == j;
    });
  }
  for (int j = 0; j < (below ? tile_rows : b); ++j) {
    Block r, x;
    update_block(row, j, ring, r);
    solve_block(row, j, ring, rest, solved, r, x);
    store_block(row, j, x);
    if (!below) {
      add_whole<-1>(d, solved, solved);
    }
    __syncthreads();
    if (!below && static_cast<int>(threadIdx.x) == kThreads - 1) {
      store_release(inverses.progress + b, j + 1);
    }
  }
  if (!below) {
    double* const room = reinterpret_cast<double*>(shared);
    static_assert(kBlockFactorRoom * sizeof(double) <= kRowMemory<R>);
    d.for_each([&](int i, int j, double e) { room[j * kStripPitch + i] = e; });
    __syncthreads();
    factor_diagonal(row, b, room, position, info);
  }
}

}  // namespace

template <class R>
void factor_tile(CudaLane& lane, Size n, Size m, R* a, Size lda, Size position, Info* info) {
  constexpr std::size_t bytes = kRowMemory<R>;
  allow_shared_memory(factor_tile_kernel<R>, bytes);
  const auto inverses = tile_inverses<R>(lane, n);
  const Size blocks = ceil_div(n, kRowBlock);
  JAXMG_CUDA_CHECK(cudaMemsetAsync(
      inverses.progress, 0, static_cast<std::size_t>(blocks + 1) * sizeof(int), lane.stream()));
  const auto grid = static_cast<unsigned>(blocks + ceil_div(m, kRowBlock));
  factor_tile_kernel<R>
      <<<grid, kThreads, bytes, lane.stream()>>>(narrow(n), m, a, lda, inverses, position, info);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template void factor_tile<float>(CudaLane&, Size, Size, float*, Size, Size, Info*);
template void factor_tile<double>(CudaLane&, Size, Size, double*, Size, Size, Info*);

}  // namespace jaxmg::tile
