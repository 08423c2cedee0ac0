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
#include <atomic>
#include <limits>

#include "tile/cuda/grid_turn.h"
#include "tile/cuda/householder_grid.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"
#include "tile/cuda/reflector.h"
#include "tile/cuda/tagged.h"
#include "tile/eigen.h"

namespace jaxmg::tile {
namespace {

constexpr int kBlockThreads = 256;
constexpr int kBlockWarps = kBlockThreads / 32;
constexpr int kSpans = 2;  // columns of a lane
constexpr int kColumns = 32 * kSpans;
constexpr int kGroups = kBlockThreads / kColumns;  // of threads that add up the blocks' sums
// Registers of a thread for its rows, at most.
constexpr int kRowRegisters = 128;

// Reads of a thread under way: what registers are left for beside those of its rows.
template <class D, int kRows>
struct Reads {
  static constexpr int rows = kRows * kSpans * Tagged<D>::kWords;
  static constexpr int fitting = (rows > kRowRegisters / 2 ? 32 : 64) / (2 * Tagged<D>::kWords);
  static constexpr int count = fitting < 16 ? fitting : 16;
};

constexpr int kMostPolls = 1 << 21;  // more than a second
// Fewer blocks have less to tell each other, more of them less to do, and more rows of a warp than
// this leave few registers for anything else.
constexpr Size kGoodBlocks = 72;
constexpr Size kGoodRows = 16;
constexpr Size kMostBlocks = 256;  // room in the workspace, see plan_eigen.cpp

template <class D>
struct GridPanel {
  int m;
  int w;
  int k;
  D* a;
  Size lda;
  D* r;
  Size ldr;
  D* tau;
  Tagged<D>* sums;  // 2 x blocks x kColumns
  Tagged<D>* row;   // 2 x kColumns
};

template <class D, class R, int kRows>
struct BlockMemory {
  D next[2][kBlockWarps * kRows];  // the rows' elements of the present column and the next one
  D warps[kBlockWarps][kColumns];
  D groups[kGroups][kColumns];
  D sums[kColumns];
  D row[kColumns];
  ReflectorScalars<D, R> scalars;
};

// As many numbers as are read from shared memory at once.
template <class D>
struct alignas(16) Pack {
  static constexpr int count = 16 / sizeof(D);
  D x[count];
};

template <class R>
__device__ R from_lane(R x, int lane) {
  return __shfl_sync(~0u, x, lane);
}
template <class R>
__device__ DeviceComplex<R> from_lane(DeviceComplex<R> x, int lane) {
  return {from_lane(x.re, lane), from_lane(x.im, lane)};
}

// x + conj(a) b
template <class R>
__device__ R plus_product(R x, R a, R b) {
  return fma(a, b, x);
}
template <class R>
__device__ DeviceComplex<R> plus_product(DeviceComplex<R> x, DeviceComplex<R> a,
                                         DeviceComplex<R> b) {
  return {fma(a.im, b.im, fma(a.re, b.re, x.re)), fma(-a.im, b.re, fma(a.re, b.im, x.im))};
}
// x - a b
template <class R>
__device__ R minus_product(R x, R a, R b) {
  return fma(-a, b, x);
}
template <class R>
__device__ DeviceComplex<R> minus_product(DeviceComplex<R> x, DeviceComplex<R> a,
                                          DeviceComplex<R> b) {
  return {fma(a.im, b.im, fma(-a.re, b.re, x.re)), fma(-a.im, b.re, fma(-a.re, b.im, x.im))};
}

// The sum over blocks first, first + kGroups, ... of what they tell of a column. False if it did
// not come.
template <class D, int kRows>
__device__ bool collect(const Tagged<D>* sums, int first, int blocks, std::uint32_t tag, D& sum) {
  constexpr int reads = Reads<D, kRows>::count;
  for (int begin = first; begin < blocks; begin += reads * kGroups) {
    Tagged<D> found[reads];
    bool all = false;
    for (int polls = 0; !all; ++polls) {
      if (polls == kMostPolls) {
        return false;
      }
      all = true;
#pragma unroll
      for (int i = 0; i < reads; ++i) {
        const int block = begin + i * kGroups;
        if (block < blocks) {
          found[i] = look(sums + static_cast<Size>(block) * kColumns);
        }
      }
#pragma unroll
      for (int i = 0; i < reads; ++i) {
        all = all && (begin + i * kGroups >= blocks || has_tag(found[i], tag));
      }
    }
#pragma unroll
    for (int i = 0; i < reads; ++i) {
      if (begin + i * kGroups < blocks) {
        sum = sum + value_of(found[i]);
      }
    }
  }
  return true;
}

// Tells the others this block's sums for column j, and reads theirs, row j and what they make of
// column j into shared memory. False if a block is missing.
template <class D, class R, int kRows>
__device__ bool exchange(const GridPanel<D>& p, BlockMemory<D, R, kRows>& shared, int j,
                         R smallest) {
  const int column = static_cast<int>(threadIdx.x) % kColumns;
  const int group = static_cast<int>(threadIdx.x) / kColumns;
  const int blocks = static_cast<int>(gridDim.x);
  const auto tag = static_cast<std::uint32_t>(j + 1);
  const int turn = j & 1;
  Tagged<D>* const sums = p.sums + static_cast<Size>(turn) * blocks * kColumns + column;
  const bool of_use = column >= j && column < p.w;
  D sum = element<D>(R{0});
  if (group == 0 && of_use) {
#pragma unroll 4
    for (int warp = 0; warp < kBlockWarps; ++warp) {
      sum = sum + shared.warps[warp][column];
    }
    put(sums + static_cast<Size>(blockIdx.x) * kColumns, sum, tag);
    sum = element<D>(R{0});
  }
  bool here = true;
  if (of_use) {
    here = collect<D, kRows>(sums, group, blocks, tag, sum);
    if (group == kGroups - 1 && here) {
      const Tagged<D>* const row = p.row + turn * kColumns + column;
      Tagged<D> found = look(row);
      for (int polls = 0; !has_tag(found, tag) && polls < kMostPolls; ++polls) {
        found = look(row);
      }
      here = has_tag(found, tag);
      shared.row[column] = value_of(found);
    }
    shared.groups[group][column] = sum;
  }
  if (__syncthreads_or(here ? 0 : 1) != 0) {
    return false;
  }
  if (group == 0) {
    sum = element<D>(R{0});
    if (of_use) {
#pragma unroll 4
      for (int g = 0; g < kGroups; ++g) {
        sum = sum + shared.groups[g][column];
      }
      shared.sums[column] = sum;
    }
    if (column / 32 == j / 32) {  // a warp, for all others
      const ReflectorScalars<D, R> scalars =
          reflector_scalars(shared.row[j], real_part(from_lane(sum, j & 31)), smallest);
      if (column % 32 == 0) {
        shared.scalars = scalars;
      }
    }
  }
  __syncthreads();
  return true;
}

// The rows of a warp: kRows consecutive ones from `first` on, a lane's columns lane, lane + 32.
template <class D, class R, int kRows>
struct WarpRows {
  D x[kRows][kSpans];
  D sums[kSpans];  // over rows below the pivot, of conj(next column) times own columns
  int first;
  int lane;

  __device__ void load(const GridPanel<D>& p) {
#pragma unroll
    for (int q = 0; q < kRows; ++q) {
#pragma unroll
      for (int c = 0; c < kSpans; ++c) {
        const int l = lane + 32 * c;
        x[q][c] = first + q < p.m && l < p.w ? p.a[first + q + l * p.lda] : element<D>(R{0});
      }
    }
  }

  // next <- column j, which is in span c, for all lanes.
  __device__ void show(int j, int c, D* next) const {
    if (lane == (j & 31)) {
#pragma unroll
      for (int q = 0; q < kRows; q += Pack<D>::count) {
        Pack<D> pack;
#pragma unroll
        for (int i = 0; i < Pack<D>::count; ++i) {
          pack.x[i] = c == 0 ? x[q + i][0] : x[q + i][kSpans - 1];
        }
        *reinterpret_cast<Pack<D>*>(next + q) = pack;
      }
    }
    __syncwarp();
  }

  // Sums over rows below row j of conj(next) times the columns from span kFrom on.
  template <bool kNear, int kFrom>
  __device__ void add_up(int j, const D* next) {
#pragma unroll
    for (int c = kFrom; c < kSpans; ++c) {
      sums[c] = element<D>(R{0});
    }
#pragma unroll
    for (int q = 0; q < kRows; q += Pack<D>::count) {
      const Pack<D> pack = *reinterpret_cast<const Pack<D>*>(next + q);
#pragma unroll
      for (int i = 0; i < Pack<D>::count; ++i) {
        if (!kNear || first + q + i > j) {
#pragma unroll
          for (int c = kFrom; c < kSpans; ++c) {
            sums[c] = plus_product(sums[c], pack.x[i], x[q + i][c]);
          }
        }
      }
    }
  }

  // Tells all blocks row j, if it is one of these.
  __device__ void tell_row(const GridPanel<D>& p, int j) const {
#pragma unroll
    for (int q = 0; q < kRows; ++q) {
      if (first + q == j) {
#pragma unroll
        for (int c = 0; c < kSpans; ++c) {
          put(p.row + (j & 1) * kColumns + lane + 32 * c, x[q][c],
              static_cast<std::uint32_t>(j + 1));
        }
      }
    }
  }

  // a_l <- a_l - v factor_l for the columns after j, whose factors are 0 elsewhere; v below row j
  // is scale times column j, which lies in `column`. Then the sums for column j + 1, by way of
  // `next`. kNear: some rows are not below row j + 1. kFrom: no column after j lies in an earlier
  // span.
  template <bool kNear, int kFrom>
  __device__ void apply(int j, D scale, const D (&factor)[kSpans], const D* column, D* next) {
    D scaled[kSpans];
#pragma unroll
    for (int c = kFrom; c < kSpans; ++c) {
      scaled[c] = scale * factor[c];
    }
#pragma unroll
    for (int q = 0; q < kRows; q += Pack<D>::count) {
      const Pack<D> pack = *reinterpret_cast<const Pack<D>*>(column + q);
#pragma unroll
      for (int i = 0; i < Pack<D>::count; ++i) {
        const int row = first + q + i;
#pragma unroll
        for (int c = kFrom; c < kSpans; ++c) {
          if (!kNear || row > j) {
            x[q + i][c] = minus_product(x[q + i][c], pack.x[i], scaled[c]);
          } else if (row == j) {
            x[q + i][c] = x[q + i][c] - factor[c];
          }
        }
      }
    }
    if (j + 1 < kColumns) {
      show(j + 1, (j + 1) / 32, next);
      add_up<kNear, kFrom>(j + 1, next);
    }
  }

  template <bool kNear>
  __device__ void apply(int j, D scale, const D (&factor)[kSpans], const D* column, D* next) {
    if (j < 31) {
      apply<kNear, 0>(j, scale, factor, column, next);
    } else {
      apply<kNear, kSpans - 1>(j, scale, factor, column, next);
    }
  }

  // Row j of R, if it is one of these.
  __device__ void store_row(const GridPanel<D>& p, int j, R beta) const {
#pragma unroll
    for (int q = 0; q < kRows; ++q) {
      if (first + q == j) {
#pragma unroll
        for (int c = 0; c < kSpans; ++c) {
          const int l = lane + 32 * c;
          if (l < p.w) {
            p.r[j + l * p.ldr] = l == j ? element<D>(beta) : l > j ? x[q][c] : element<D>(R{0});
          }
        }
      }
    }
  }

  // The reflectors.
  __device__ void store(const GridPanel<D>& p, const D (&scale)[kSpans]) const {
#pragma unroll
    for (int c = 0; c < kSpans; ++c) {
      const int l = lane + 32 * c;
#pragma unroll
      for (int q = 0; q < kRows; ++q) {
        const int row = first + q;
        if (row < p.m && l < p.k) {
          p.a[row + l * p.lda] = row > l ? scale[c] * x[q][c] : element<D>(R(row == l ? 1 : 0));
        }
      }
    }
  }
};

// Leaves NaN in this block's part of the result.
template <class D, class R>
__device__ void give_up(const GridPanel<D>& p, int rows) {
  const D nan = element<D>(R(NAN));
  const int begin = static_cast<int>(blockIdx.x) * rows;
  for (int i = static_cast<int>(threadIdx.x); i < rows * p.k; i += kBlockThreads) {
    if (begin + i % rows < p.m) {
      p.a[begin + i % rows + (i / rows) * p.lda] = nan;
    }
  }
  for (int i = static_cast<int>(threadIdx.x); blockIdx.x == 0 && i < p.k * p.w;
       i += kBlockThreads) {
    p.r[i % p.k + (i / p.k) * p.ldr] = nan;
    p.tau[i % p.k] = nan;
  }
}

template <class D, class R, int kRows>
__global__ void __launch_bounds__(kBlockThreads, 1)
    grid_panel_kernel(const GridPanel<D> p, R smallest) {
  extern __shared__ __align__(16) char memory[];
  auto& shared = *reinterpret_cast<BlockMemory<D, R, kRows>*>(memory);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  constexpr int block_rows = kRows * kBlockWarps;
  static_assert(block_rows >= kColumns);  // pivots lie in the first block
  static_assert(kSpans == 2 && kRows % Pack<D>::count == 0);
  WarpRows<D, R, kRows> rows;
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
    if (!exchange<D, R, kRows>(p, shared, j, smallest)) {
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

template <class D, class R, int kRows>
void launch(CudaLane& lane, GridPanel<D> p, int blocks) {
  constexpr std::size_t shared = sizeof(BlockMemory<D, R, kRows>);
  const auto kernel = reinterpret_cast<const void*>(&grid_panel_kernel<D, R, kRows>);
  if (shared > kPlainSharedMemory) {
    allow_shared_memory(kernel, shared);
  }
  R smallest = kLeastSquare<R>;
  void* arguments[] = {&p, &smallest};
  const GridTurn turn(lane);
  JAXMG_CUDA_CHECK(cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(blocks)),
                                               dim3(kBlockThreads), arguments, shared,
                                               lane.stream()));
}

std::atomic<Size> good_blocks{kGoodBlocks};

}  // namespace

void set_panel_blocks(Size blocks) {
  good_blocks = blocks < 0 ? kGoodBlocks : blocks;
}

template <class T>
bool householder_grid(CudaLane& lane, Size m, Size w, T* a, Size lda, T* r, Size ldr, T* tau,
                      void* work) {
  using D = DeviceType<T>;
  using R = Real<T>;
  constexpr int widest = kRowRegisters / (kSpans * Tagged<D>::kWords);
  constexpr int most = widest < 32 ? widest : 32;
  int processors = 0;
  JAXMG_CUDA_CHECK(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, lane.device()));
  const Size room = std::min<Size>(processors, kMostBlocks);
  const Size good = good_blocks;
  if (w > kColumns || good == 0 || m > room * most * kBlockWarps) {
    return false;
  }
  Size rows = kColumns / kBlockWarps;
  const auto blocks_of = [m](Size count) { return ceil_div(m, count * kBlockWarps); };
  while (rows < most && (blocks_of(rows) > room || (rows < kGoodRows && blocks_of(rows) > good))) {
    rows *= 2;
  }
  const int blocks = narrow(blocks_of(rows));
  auto* const sums = static_cast<Tagged<D>*>(work);
  const Size count = 2 * (Size{blocks} + 1) * kColumns;
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
                 sums + 2 * Size{blocks} * kColumns};
  if (rows == 8) {
    launch<D, R, 8>(lane, p, blocks);
  } else if (rows == 16) {
    launch<D, R, 16>(lane, p, blocks);
  } else if constexpr (most >= 32) {
    launch<D, R, 32>(lane, p, blocks);
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
