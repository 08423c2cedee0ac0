// The QR of a panel of few rows, as in householder_grid.cu, by the blocks of one cluster: they tell
// each other their sums and the pivot row by stores into each other's shared memory, which takes
// less than half the time of the way through the cache.
//
// What comes for column j lies in two places in turns: nobody sends for j + 2 before it has what
// all blocks send for j + 1, which they do after they have used what was there for j.
#include "tile/cuda/cluster_memory.h"
#include "tile/cuda/dependent_launch.h"
#include "tile/cuda/householder_grid.h"
#include "tile/cuda/householder_grid_memory.h"
#include "tile/cuda/householder_grid_rows.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/shuffle.h"
#include "tile/eigen.h"

namespace jaxmg::tile {
namespace {

constexpr int kClusterBlocks = 8;  // what every device has that has clusters

template <class D, class R, int kRows>
struct alignas(16) ClusterMemory {
  D next[2][kGridWarps * kRows];  // the rows' elements of the present column and the next one
  D warps[kGridWarps][kGridColumns];
  D told[kGridColumns];  // the row that the first block tells
  D sums[kGridColumns];
  D blocks[2][kClusterBlocks][kGridColumns];  // all blocks' sums
  D row[2][kGridColumns];
  ReflectorScalars<D, R> scalars;
  unsigned long long arrived[2];
};

#if __CUDA_ARCH__ >= 900 || !defined(__CUDA_ARCH__)

// To all blocks: this block's sums for the columns from j on, and row j if it is here.
template <class D, class Memory>
__device__ void tell_sums(const GridPanel<D>& p, Memory& shared, int j) {
  const int column = static_cast<int>(threadIdx.x) % kGridColumns;
  const unsigned group = threadIdx.x / kGridColumns;
  const unsigned barrier = shared_address(&shared.arrived[j & 1]);
  if (threadIdx.x == 0) {  // a part of each block, and the row
    expect_bytes(barrier, (gridDim.x + 1) * static_cast<unsigned>((p.w - j) * sizeof(D)));
  }
  if (column < j || column >= p.w) {
    return;
  }
  D sum = shared.warps[0][column];
#pragma unroll
  for (int warp = 1; warp < kGridWarps; ++warp) {
    sum = sum + shared.warps[warp][column];
  }
  const unsigned to = shared_address(&shared.blocks[j & 1][blockIdx.x][column]);
  const unsigned to_row = shared_address(&shared.row[j & 1][column]);
  for (unsigned q = group; q < gridDim.x; q += kGridGroups) {
    const unsigned there = in_block(barrier, q);
    store_in_block(in_block(to, q), sum, there);
    if (blockIdx.x == 0) {
      store_in_block(in_block(to_row, q), shared.told[column], there);
    }
  }
}

// By the first threads, one a column: what the blocks have told, and what it makes of column j.
template <class D, class R, class Memory>
__device__ void add_sums(Memory& shared, int j, R smallest) {
  const int column = static_cast<int>(threadIdx.x);
  wait_for_bytes(shared_address(&shared.arrived[j & 1]), static_cast<unsigned>(j / 2) & 1u);
  D part[kClusterBlocks];
#pragma unroll
  for (int q = 0; q < kClusterBlocks; ++q) {
    part[q] = q < static_cast<int>(gridDim.x) ? shared.blocks[j & 1][q][column] : element<D>(R{0});
  }
#pragma unroll
  for (int step = 1; step < kClusterBlocks; step *= 2) {
#pragma unroll
    for (int q = 0; q < kClusterBlocks; q += 2 * step) {
      part[q] = part[q] + part[q + step];
    }
  }
  shared.sums[column] = part[0];
  if (column / 32 == j / 32) {  // a warp, for all others
    const ReflectorScalars<D, R> scalars =
        reflector_scalars(shared.row[j & 1][j], real_part(from_lane(part[0], j & 31)), smallest);
    if (column % 32 == 0) {
      shared.scalars = scalars;
    }
  }
}

#endif

template <class D, class R, int kRows, int kSpans>
__global__ void __launch_bounds__(kGridThreads, 1)
    cluster_panel_kernel([[maybe_unused]] const GridPanel<D> p, [[maybe_unused]] R smallest) {
#if __CUDA_ARCH__ >= 900 || !defined(__CUDA_ARCH__)
  constexpr int block_rows = kRows * kGridWarps;
  static_assert(block_rows >= kGridColumns);  // pivots lie in the first block
  static_assert(kSpans <= kGridSpans && kRows % GridPack<D>::count == 0);
  __shared__ ClusterMemory<D, R, kRows> shared;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (threadIdx.x == 0) {
    init_barriers(shared.arrived);
  }
  await_predecessor();
  GridRows<D, R, kRows, kSpans> rows;
  rows.first = static_cast<int>(blockIdx.x) * block_rows + warp * kRows;
  rows.lane = lane;
  rows.load(p);
  const auto column = [&](int j) { return shared.next[j & 1] + warp * kRows; };
  rows.show(0, 0, column(0));
  rows.template add_up<true, 0>(0, column(0));
  D own_scale[kSpans];
#pragma unroll
  for (int c = 0; c < kSpans; ++c) {
    own_scale[c] = element<D>(R{0});
  }
  meet_cluster();  // the barriers are there
  for (int j = 0; j < p.k; ++j) {
#pragma unroll
    for (int c = 0; c < kSpans; ++c) {
      shared.warps[warp][lane + 32 * c] = rows.sums[c];
    }
    if (blockIdx.x == 0) {
      rows.copy_row(j, shared.told);
    }
    __syncthreads();
    tell_sums(p, shared, j);
    if (threadIdx.x < 32 * kSpans) {
      add_sums<D, R>(shared, j, smallest);
    }
    __syncthreads();
    const ReflectorScalars<D, R> h = shared.scalars;
    D factor[kSpans];
#pragma unroll
    for (int c = 0; c < kSpans; ++c) {
      const int l = lane + 32 * c;
      factor[c] =
          l > j && l < p.w
              ? conjugate(h.tau) * (shared.row[j & 1][l] + conjugate(h.scale) * shared.sums[l])
              : element<D>(R{0});
      own_scale[c] = l == j ? h.scale : own_scale[c];
    }
    if (blockIdx.x == 0) {
      rows.template apply<true>(j, h.scale, factor, column(j), column(j + 1));
      rows.store_row(p, j, h.beta);
      if (threadIdx.x == 0) {
        p.tau[j] = h.tau;
      }
    } else {
      rows.template apply<false>(j, h.scale, factor, column(j), column(j + 1));
    }
  }
  rows.store(p, own_scale);
  meet_cluster();  // no block leaves while others may reach for its memory
#else
  __trap();  // made for devices without clusters: nothing would have been done
#endif
}

template <class D, class R, int kRows>
void launch(CudaLane& lane, const GridPanel<D>& p, unsigned blocks) {
  const auto kernel = p.w <= 32 ? &cluster_panel_kernel<D, R, kRows, 1>
                                : &cluster_panel_kernel<D, R, kRows, kGridSpans>;
  launch_dependent(lane, kernel, blocks, kGridThreads, blocks, p, kLeastSquare<R>);
}

}  // namespace

template <class T>
bool householder_cluster(CudaLane& lane, Size m, Size w, T* a, Size lda, T* r, Size ldr, T* tau) {
  using D = DeviceType<T>;
  using R = Real<T>;
  constexpr Size few = 8 * kGridWarps, many = 16 * kGridWarps;  // rows of a block
  constexpr bool has_many = sizeof(D) <= 8;  // larger elements are sooner done by more blocks
  const Size most = (has_many ? many : few) * kClusterBlocks;
  if (w > kGridColumns || m > most || compute_capability_major(lane) < 9) {
    return false;
  }
  const GridPanel<D> p{narrow(m),    narrow(w), narrow(std::min(m, w)), on_device(a), lda,
                       on_device(r), ldr,       on_device(tau),         nullptr,      nullptr};
  if (m <= few * kClusterBlocks) {
    launch<D, R, 8>(lane, p, static_cast<unsigned>(ceil_div(m, few)));
  } else if constexpr (has_many) {
    launch<D, R, 16>(lane, p, static_cast<unsigned>(ceil_div(m, many)));
  }
  return true;
}

#define JAXMG_INSTANTIATE(T) \
  template bool householder_cluster<T>(CudaLane&, Size, Size, T*, Size, T*, Size, T*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
