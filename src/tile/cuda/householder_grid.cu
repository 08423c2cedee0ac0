// The QR of a panel by one grid, whose threads keep the panel in registers: rows are divided among
// thread blocks and their warps, columns among the lanes of a warp. For each column j the blocks
// tell each other, once, their part of
//
//   s_l = sum_i>j conj(a_ij) a_il     for the columns l >= j that are left,
//
// and the first one the pivot row a_j; from these every block works out the reflector and what it
// does to each column. The sums for column j + 1 are made while column j is applied. Sums are taken
// in the same order by all blocks, so that all find the same numbers, in every run.
//
// What blocks tell each other lies in two places in turns: nobody writes into one before all have
// read what was there, since the sums for j + 1 of a block are told after it has read those for j.
//
// Blocks must all be on the device at once (a cooperative launch, in turns with others of the
// kind). One that waits in vain gives up after a while, and its part of the result is NaN.
#include <algorithm>
#include <atomic>

#include "tile/cuda/grid_turn.h"
#include "tile/cuda/householder_grid.h"
#include "tile/cuda/householder_grid_exchange.h"
#include "tile/cuda/householder_grid_memory.h"
#include "tile/cuda/householder_grid_rows.h"
#include "tile/cuda/launch.h"
#include "tile/eigen.h"

namespace jaxmg::tile {
namespace {

// Fewer blocks have less to tell each other, more of them less to do, and more rows of a warp than
// this leave few registers for anything else.
constexpr Size kGoodBlocks = 72;
constexpr Size kGoodRows = 16;
constexpr Size kMostBlocks = 256;  // room in the workspace, see plan_eigen.cpp

// Leaves NaN in this block's part of the result.
template <class D, class R>
__device__ void give_up(const GridPanel<D>& p, int rows) {
  const D nan = element<D>(R(NAN));
  const int begin = static_cast<int>(blockIdx.x) * rows;
  for (int i = static_cast<int>(threadIdx.x); i < rows * p.k; i += kGridThreads) {
    if (begin + i % rows < p.m) {
      p.a[begin + i % rows + (i / rows) * p.lda] = nan;
    }
  }
  for (int i = static_cast<int>(threadIdx.x); blockIdx.x == 0 && i < p.k * p.w; i += kGridThreads) {
    p.r[i % p.k + (i / p.k) * p.ldr] = nan;
    p.tau[i % p.k] = nan;
  }
}

template <class D, class R, int kRows, int kSpans>
__global__ void __launch_bounds__(kGridThreads, 1)
    grid_panel_kernel(const GridPanel<D> p, R smallest) {
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<GridMemory<D, R, kRows>*>(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int block_rows = kRows * kGridWarps;
  static_assert(block_rows >= kGridColumns);  // pivots lie in the first block
  static_assert(kSpans <= kGridSpans && kRows % GridPack<D>::count == 0);
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
  for (int j = 0; j < p.k; ++j) {
#pragma unroll
    for (int c = 0; c < kSpans; ++c) {
      shared.warps[warp][lane + 32 * c] = rows.sums[c];
    }
    if (blockIdx.x == 0) {
      rows.tell_row(p, j);
    }
    __syncthreads();
    if (!exchange_sums<D, R, kRows, kSpans>(p, shared, j, smallest)) {
      return give_up<D, R>(p, block_rows);
    }
    const ReflectorScalars<D, R> h = shared.scalars;
    D factor[kSpans];
#pragma unroll
    for (int c = 0; c < kSpans; ++c) {
      const int l = lane + 32 * c;
      factor[c] = l > j && l < p.w
                      ? conjugate(h.tau) * (shared.row[l] + conjugate(h.scale) * shared.sums[l])
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
}

template <class D, class R, int kRows, int kSpans>
void launch(CudaLane& lane, GridPanel<D> p, int blocks) {
  constexpr std::size_t shared = sizeof(GridMemory<D, R, kRows>);
  const auto kernel = reinterpret_cast<const void*>(&grid_panel_kernel<D, R, kRows, kSpans>);
  if (shared > kPlainSharedMemory) {
    allow_shared_memory(kernel, shared);
  }
  R smallest = kLeastSquare<R>;
  void* arguments[] = {&p, &smallest};
  const GridTurn turn(lane);
  JAXMG_CUDA_CHECK(cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(blocks)),
                                               dim3(kGridThreads), arguments, shared,
                                               lane.stream()));
}

std::atomic<Size> good_blocks{-1};  // negative: as is best

// As many columns as the lanes of a warp have: twice as many rows as else, where these are few.
constexpr int kFewColumns = 32;

// The rows of a warp, as few as the device has room for; 0: there is none.
Size grid_rows(CudaLane& lane, Size m, Size most) {
  int processors = 0;
  JAXMG_CUDA_CHECK(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, lane.device()));
  const Size room = std::min<Size>(processors, kMostBlocks);
  const Size good = good_blocks < 0 ? kGoodBlocks : good_blocks.load();
  if (good == 0 || m > room * most * kGridWarps) {
    return 0;
  }
  Size rows = kGridColumns / kGridWarps;
  const auto blocks_of = [m](Size count) { return ceil_div(m, count * kGridWarps); };
  while (rows < most && (blocks_of(rows) > room || (rows < kGoodRows && blocks_of(rows) > good))) {
    rows *= 2;
  }
  return rows;
}

}  // namespace

void set_panel_blocks(Size blocks) {
  good_blocks = blocks;
}

template <class T>
bool householder_grid(CudaLane& lane, Size m, Size w, T* a, Size lda, T* r, Size ldr, T* tau,
                      void* work) {
  using D = DeviceType<T>;
  using R = Real<T>;
  constexpr int most_of = kGridRegisters / Tagged<D>::kWords;  // elements of a thread
  constexpr int most = std::min(most_of / kGridSpans, 32);
  constexpr bool narrow_is_taller = most_of > most && most_of <= 64;
  if (good_blocks < 0 && householder_cluster(lane, m, w, a, lda, r, ldr, tau)) {
    return true;
  }
  const bool few = narrow_is_taller && w <= kFewColumns;
  const Size rows = w > kGridColumns ? 0 : grid_rows(lane, m, few ? most_of : most);
  if (rows == 0) {
    return false;
  }
  const int blocks = narrow(ceil_div(m, rows * kGridWarps));
  auto* const sums = static_cast<Tagged<D>*>(work);
  const Size count = 2 * (Size{blocks} + 1) * kGridColumns;
  JAXMG_CUDA_CHECK(
      cudaMemsetAsync(work, 0, static_cast<std::size_t>(count) * sizeof(Tagged<D>), lane.stream()));
  GridPanel<D> p{narrow(m),
                 narrow(w),
                 narrow(std::min(m, w)),
                 on_device(a),
                 lda,
                 on_device(r),
                 ldr,
                 on_device(tau),
                 sums,
                 sums + 2 * Size{blocks} * kGridColumns};
  if (rows == 8) {
    launch<D, R, 8, kGridSpans>(lane, p, blocks);
  } else if (rows == 16) {
    launch<D, R, 16, kGridSpans>(lane, p, blocks);
  } else if (rows <= most) {
    if constexpr (most >= 32) {
      launch<D, R, 32, kGridSpans>(lane, p, blocks);
    }
  } else if constexpr (narrow_is_taller) {
    launch<D, R, most_of, 1>(lane, p, blocks);
  }
  return true;
}

#define JAXMG_INSTANTIATE(T) \
  template bool householder_grid<T>(CudaLane&, Size, Size, T*, Size, T*, Size, T*, void*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
