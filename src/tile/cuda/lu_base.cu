// LU factors of a few columns, which stay in registers from beginning to end: a thread has whole
// rows.
//
// For each column the blocks agree on a pivot by one exchange (lu_exchange.h). There is no barrier
// over the grid, and rows do not move before the end: pivots are only marked, and each row is
// written once, to where the interchanges of LAPACK would have brought it. A warp without rows does
// the waiting, and inverts the triangle while others update their rows.
//
// Blocks wait for each other, so all of them must be on the device at once: a cluster, or else one
// on each multiprocessor at most and nothing else there that does not end by itself.
#include <algorithm>

#include "tile/cuda/launch.h"
#include "tile/cuda/lu_base.h"
#include "tile/cuda/lu_exchange.h"
#include "tile/cuda/lu_pivot.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

constexpr int kBaseThreads = 512;               // more would leave each with too few registers
constexpr int kRowThreads = kBaseThreads - 32;  // the last warp has no rows
constexpr int kRowWarps = kRowThreads / 32;
constexpr int kMostColumns = 32;

// Rows of a thread, so that they fill about half of its registers.
template <class D, int kWidth>
inline constexpr int kRowsEach = kMostWords / (kWidth * kWords<D>);
template <class D, int kWidth>
inline constexpr Size kRowsOfBlock = kRowThreads* kRowsEach<D, kWidth>;

// Columns of the kernels for all but the highest panels.
template <class D>
inline constexpr int kWidest = kWords<D> <= 2 ? 32 : 16;

template <class D>
struct BaseTask {
  D* a;
  Size lda;
  int rows;
  int columns;
  Size first;
  std::int32_t* pivots;
  D* x;
  Size ldx;
  LuMailbox* mail;
  Word tag;  // of column 0; the others follow
  Size position;
  Size equation;
  Info* info;
};

// What the threads of a block share.
template <class D, int kWidth>
struct BaseShared {
  Word high[kRowWarps], low[kRowWarps], place[kRowWarps];  // the best candidate of each warp
  D upper[kWidth][kWidth + 1];                             // rows of pivots, as chosen: L and U
  D inverse[kWidth][kWidth + 1];
  D candidate[kWidth];
  Divisor<D> divisor;
  Word pivot_row[kWidth];
  int swaps[kWidth];
  bool gave_up;
};

// All threads of the block, some of which come here from other places than others.
__device__ void meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kBaseThreads) : "memory");
}

template <class D, int kWidth>
__device__ Candidate best_of_block(const BaseShared<D, kWidth>& shared) {
  const int lane = lane_index();
  Candidate best;
  if (lane < kRowWarps) {
    best = {{shared.high[lane], shared.low[lane]}, shared.place[lane]};
  }
  return best_of_warp<kTwoWords<D>>(best);
}

constexpr int kActive = -1, kOutside = -2;

// The rows of a thread.
template <class D, int kWidth>
class Rows {
 public:
  static constexpr int kEach = kRowsEach<D, kWidth>;

  __device__ Rows(const BaseTask<D>& task, BaseShared<D, kWidth>& shared) : shared_(shared) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      row_[r] = blockIdx.x * static_cast<Word>(kRowThreads * kEach) +
                static_cast<Word>(r * kRowThreads) + threadIdx.x;
      place_[r] = row_[r] < static_cast<Word>(task.rows) ? kActive : kOutside;
      const D* from = task.a + row_[r];
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        a_[r][c] = place_[r] == kActive && c < task.columns ? *from : D{};
        next_column(from, task.lda);
      }
    }
  }

  // The best row of column j in each warp.
  __device__ void vote(int j) {
    Candidate best;
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const Weight weight = weight_of(a_[r][j]);
      if (place_[r] == kActive && (best.place == kNoRow || exceeds(weight, best.weight))) {
        best = {weight, row_[r]};
      }
    }
    best = best_of_warp<kTwoWords<D>>(best);
    if (lane_index() == 0) {
      const unsigned warp = threadIdx.x / 32;
      shared_.high[warp] = best.weight.high;
      shared_.low[warp] = best.weight.low;
      shared_.place[warp] = best.place;
    }
  }

  // What step j - 1 does to the columns from j + 1 on: column j could not wait.
  __device__ void catch_up(int j) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
#pragma unroll
      for (int c = j + 1; c < kWidth; ++c) {
        a_[r][c] = minus_product(a_[r][c], l_[r], shared_.upper[j - 1][c]);
      }
    }
  }

  // Whether this warp has a row, which is then where others can see it.
  __device__ bool show(Word row) {
    bool mine = false;
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      if (place_[r] == kActive && row_[r] == row) {
        mine = true;
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
          shared_.candidate[c] = a_[r][c];
        }
      }
    }
    const bool found = __any_sync(~0u, mine) != 0;
    __syncwarp();
    return found;
  }

  // Column j <- multipliers, and its step for the next column.
  __device__ void eliminate(int j) {
    const Divisor<D> by = shared_.divisor;
    const Word chosen = shared_.pivot_row[j];
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      place_[r] = row_[r] == chosen && place_[r] == kActive ? j : place_[r];
      const bool active = place_[r] == kActive;
      l_[r] = active ? times(a_[r][j], by.scale) * by.inverse : D{};
      a_[r][j] = active ? l_[r] : a_[r][j];
      if (j + 1 < kWidth) {
        a_[r][j + 1] = minus_product(a_[r][j + 1], l_[r], shared_.upper[j][j + 1]);
      }
    }
  }

  // Each row to its place after all interchanges.
  __device__ void store(const BaseTask<D>& task) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      if (place_[r] == kOutside) {
        continue;
      }
      int to = place_[r] == kActive ? static_cast<int>(row_[r]) : place_[r];
      if (place_[r] == kActive && to < task.columns) {
#pragma unroll 2
        for (int s = 0; s < task.columns; ++s) {
          const int other = shared_.swaps[s];
          to = to == s ? other : to == other ? s : to;
        }
      }
      D* out = task.a + to;
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        if (c < task.columns) {
          *out = a_[r][c];
        }
        next_column(out, task.lda);
      }
    }
  }

 private:
  BaseShared<D, kWidth>& shared_;
  D a_[kEach][kWidth];
  D l_[kEach];
  Word row_[kEach];
  int place_[kEach];  // where an eliminated row goes
};

// The part of the warp without rows in the step of column j: the exchange with other blocks, then,
// while others update their rows, a row of the inverse and the report of a zero.
template <class D, int kWidth, class Exchange>
__device__ void find_pivot(Exchange& exchange, int j, BaseShared<D, kWidth>& shared, bool& going) {
  const int lane = lane_index();
  const Candidate best = best_of_block(shared);
  D x{};
  const Word number = going ? exchange.agree(j, best, x) : kNoRow;
  going = number != kNoRow;
  if (lane < kWidth) {
    shared.upper[j][lane] = x;
  }
  if (lane == j) {
    shared.divisor = divisor_of(x);
  }
  if (lane == 0) {
    shared.pivot_row[j] = going ? number : static_cast<Word>(j);
  }
}

template <class D, int kWidth>
__device__ void after_pivot(const BaseTask<D>& task, int j, BaseShared<D, kWidth>& shared) {
  const int lane = lane_index();
  if (blockIdx.x == gridDim.x - 1) {
    const D x = inverse_row<D, kWidth>(j, shared.upper, shared.inverse);
    if (lane < task.columns) {
      task.x[j + lane * task.ldx] = x;
    }
  }
  const D pivot = shared.upper[j][j];
  if (blockIdx.x == 0 && lane == 0 && real_part(pivot) == 0 && imaginary_part(pivot) == 0 &&
      task.info->kind == 0) {
    task.info->kind = static_cast<std::int32_t>(Kind::singular);
    task.info->position = static_cast<std::int32_t>(task.position + j + 1);
    task.info->spare[1] = static_cast<std::int32_t>(task.equation + j + 1);
  }
}

template <class D, int kWidth, template <class, int> class Exchange>
__global__ void __launch_bounds__(kBaseThreads, 1) lu_base_kernel(const BaseTask<D> task) {
  __shared__ typename Exchange<D, kWidth>::Shared meeting;
  __shared__ BaseShared<D, kWidth> shared;
  const int tid = static_cast<int>(threadIdx.x);
  const bool has_rows = tid < kRowThreads;
  Exchange<D, kWidth> exchange(meeting, task.mail, task.tag, task.info);
  if (tid < kWidth) {
    shared.pivot_row[tid] = static_cast<Word>(tid);
  }
  exchange.open();
  if (has_rows) {
    Rows<D, kWidth> rows(task, shared);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      if (j >= task.columns) {
        break;
      }
      rows.vote(j);
      meet();
      const Word best = best_of_block(shared).place;
      if (j > 0) {
        rows.catch_up(j);
      }
      if (rows.show(best)) {
        exchange.put_row(j, shared.candidate, best);
      }
      meet();
      rows.eliminate(j);
    }
    meet();
    if (tid < 32) {
      trace_swaps<kWidth>(shared.pivot_row, shared.swaps);
    }
    meet();
    if (!shared.gave_up) {
      rows.store(task);
    }
  } else {
    const int kind = *static_cast<const volatile std::int32_t*>(&task.info->kind);
    bool going = kind != static_cast<int>(Kind::communication);
#pragma unroll 1
    for (int j = 0; j < task.columns; ++j) {
      meet();
      find_pivot(exchange, j, shared, going);
      meet();
      after_pivot(task, j, shared);
    }
    if (tid == kRowThreads) {
      shared.gave_up = !going;
      if (!going) {
        atomicExch(&task.info->kind, static_cast<std::int32_t>(Kind::communication));
      }
    }
    meet();
    meet();
  }
  if (blockIdx.x == 0 && tid < task.columns) {
    const int other = shared.gave_up ? tid : shared.swaps[tid];
    task.pivots[tid] = static_cast<std::int32_t>(task.first + other);
  }
  exchange.close();
}

// visit.template operator()<kWidth>() for the widths that suit the type, wide ones first, until
// one returns true.
template <class D, class Visit>
void any_width(const Visit& visit) {
  if constexpr (kWidest < D >> 16) {
    if (visit.template operator()<kWidest<D>>()) {
      return;
    }
  }
  if (!visit.template operator()<16>()) {
    visit.template operator()<8>();
  }
}

// Blocks of a cluster: more than eight are for data centre GPUs.
int most_in_cluster(const CudaLane& lane) {
  int major = 0;
  JAXMG_CUDA_CHECK(
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, lane.device()));
  return major < 9 ? 0 : major <= 10 ? kMostInCluster : kMostInCluster / 2;
}

// Clusters start together, and hence wait for that many multiprocessors near each other: not where
// panels have to do with a few.
template <class D, int kWidth>
bool takes_cluster(const CudaLane& lane, Size blocks) {
  return kWidth == kWidest<D> && blocks <= most_in_cluster(lane) &&
         lane.blocks() == lane.multiprocessors();
}

template <class D, int kWidth>
void launch(CudaLane& lane, const BaseTask<D>& task) {
  const Size blocks = ceil_div(task.rows, kRowsOfBlock<D, kWidth>);
  if (!takes_cluster<D, kWidth>(lane, blocks)) {
    lu_base_kernel<D, kWidth, MailExchange>
        <<<static_cast<unsigned>(blocks), kBaseThreads, 0, lane.stream()>>>(task);
    return;
  }
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(blocks);
  cluster.val.clusterDim.y = 1;
  cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(blocks));
  config.blockDim = dim3(kBaseThreads);
  config.stream = lane.stream();
  config.attrs = &cluster;
  config.numAttrs = 1;
  if constexpr (kWidth == kWidest<D>) {
    JAXMG_CUDA_CHECK(cudaLaunchKernelEx(&config, lu_base_kernel<D, kWidth, ClusterExchange>, task));
  }
}

}  // namespace

template <class T>
int lu_base_width(const CudaLane& lane, Size m) {
  using D = DeviceType<T>;
  int found = 0;
  for (const int blocks : {lane.blocks(), lane.multiprocessors()}) {
    any_width<D>([&]<int kWidth>() {
      const Size needed = ceil_div(m, kRowsOfBlock<D, kWidth>);
      const bool fits = lane.alone() ? needed <= std::min(kMostBlocks, blocks)
                                     : needed == 1 || takes_cluster<D, kWidth>(lane, needed);
      found = found == 0 && fits ? kWidth : found;
      return found > 0;
    });
  }
  return found;
}

template <class T>
void lu_base(CudaLane& lane, int width, Size m, Size n, T* a, Size lda, Size first,
             std::int32_t* pivots, T* x, Size ldx, const PanelReport& report) {
  using D = DeviceType<T>;
  BaseTask<D> task;
  task.a = on_device(a);
  task.lda = lda;
  task.rows = narrow(m);
  task.columns = narrow(n);
  task.first = first;
  task.pivots = pivots;
  task.x = on_device(x);
  task.ldx = ldx;
  task.mail = static_cast<LuMailbox*>(lane.mailbox(static_cast<Size>(sizeof(LuMailbox))));
  task.tag = lane.next_tags(kMostColumns);
  task.position = report.position;
  task.equation = report.equation;
  task.info = report.info;
  any_width<D>([&]<int kWidth>() {
    if (kWidth == width) {
      launch<D, kWidth>(lane, task);
      JAXMG_CUDA_CHECK(cudaGetLastError());
    }
    return kWidth == width;
  });
}

template <class T>
void load_lu_base(const CudaLane& lane) {
  using D = DeviceType<T>;
  any_width<D>([&]<int kWidth>() {
    cudaFuncAttributes attributes;
    const auto by_mail = &lu_base_kernel<D, kWidth, MailExchange>;
    JAXMG_CUDA_CHECK(cudaFuncGetAttributes(&attributes, by_mail));
    if constexpr (kWidth == kWidest<D>) {
      if (most_in_cluster(lane) > 0) {
        const auto by_cluster = &lu_base_kernel<D, kWidth, ClusterExchange>;
        JAXMG_CUDA_CHECK(
            cudaFuncSetAttribute(by_cluster, cudaFuncAttributeNonPortableClusterSizeAllowed, 1));
      }
    }
    return false;
  });
}

#define JAXMG_INSTANTIATE(T)                                                                    \
  template int lu_base_width<T>(const CudaLane&, Size);                                         \
  template void lu_base<T>(CudaLane&, int, Size, Size, T*, Size, Size, std::int32_t*, T*, Size, \
                           const PanelReport&);                                                 \
  template void load_lu_base<T>(const CudaLane&);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
