// LU factors of a few columns, which stay in registers from beginning to end: a thread has whole
// rows.
//
// For each column the blocks agree on a pivot by one exchange (lu_exchange.h). There is no barrier
// over the grid, and rows do not move before the end: only their places do, and each row is written
// once, to where the interchanges of LAPACK would have brought it. A warp without rows does the
// waiting, and inverts the triangle while others update their rows.
//
// Blocks wait for each other, so all of them must be on the device at once: a cluster, or else one
// on each multiprocessor at most and nothing else there that does not end by itself.
#include <algorithm>

#include "tile/cuda/dependent_launch.h"
#include "tile/cuda/lu_base.h"
#include "tile/cuda/lu_base_rows.h"
#include "tile/cuda/lu_exchange.h"
#include "tile/cuda/lu_pivot.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

constexpr int kMostColumns = 32;

template <class D, int kWidth>
inline constexpr Size kRowsOfBlock = kLuRowThreads* kLuRowsEach<D, kWidth>;

// Columns of the kernels for all but the highest panels.
template <class D>
inline constexpr int kWidest = kWords<D> <= 2 ? 32 : 16;

// All threads of the block, some of which come here from other places than others.
__device__ void meet() {
  asm volatile("bar.sync 1, %0;" ::"n"(kLuBaseThreads) : "memory");
}

template <class D, int kWidth>
__device__ Candidate best_of_block(const LuBaseShared<D, kWidth>& shared) {
  const int lane = lane_index();
  Candidate best;
  if (lane < kLuRowWarps) {
    best = {{shared.high[lane], shared.low[lane]}, shared.place[lane]};
  }
  return best_of_warp<kTwoWords<D>>(best);
}

// The part of the warp without rows in the step of column j: the exchange with other blocks, then,
// while others update their rows, a row of the inverse and the report of a zero.
template <class D, int kWidth, class Exchange>
__device__ void find_pivot(Exchange& exchange, int j, LuBaseShared<D, kWidth>& shared,
                           bool& going) {
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
__device__ void after_pivot(const LuBaseTask<D>& task, int j, LuBaseShared<D, kWidth>& shared) {
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

// The part of the threads that have rows.
template <class D, int kWidth, class Exchange>
__device__ void factor_rows(int tid, const LuBaseTask<D>& task, Exchange& exchange,
                            LuBaseShared<D, kWidth>& shared) {
  LuBaseRows<D, kWidth> rows(task, shared);
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
  admit_successor();
  meet();
  if (!shared.gave_up) {
    rows.store(task);
  }
}

// The part of the warp that has none.
template <class D, int kWidth, class Exchange>
__device__ void find_pivots(int tid, const LuBaseTask<D>& task, Exchange& exchange,
                            LuBaseShared<D, kWidth>& shared) {
  const int kind = *static_cast<const volatile std::int32_t*>(&task.info->kind);
  bool going = kind != static_cast<int>(Kind::communication);
#pragma unroll 1
  for (int j = 0; j < task.columns; ++j) {
    meet();
    find_pivot(exchange, j, shared, going);
    meet();
    after_pivot(task, j, shared);
  }
  admit_successor();
  if (tid == kLuRowThreads) {
    shared.gave_up = !going;
    if (!going) {
      atomicExch(&task.info->kind, static_cast<std::int32_t>(Kind::communication));
    }
  }
  meet();
}

template <class D, int kWidth, template <class, int> class Exchange>
__global__ void __launch_bounds__(kLuBaseThreads, 1) lu_base_kernel(const LuBaseTask<D> task) {
  __shared__ typename Exchange<D, kWidth>::Shared meeting;
  __shared__ LuBaseShared<D, kWidth> shared;
  const int tid = static_cast<int>(threadIdx.x);
  Exchange<D, kWidth> exchange(meeting, task.mail, task.tag, task.info);
  exchange.open();
  await_predecessor();
  if (tid < kLuRowThreads) {
    factor_rows(tid, task, exchange, shared);
  } else {
    find_pivots(tid, task, exchange, shared);
  }
  if (blockIdx.x == 0 && tid < task.columns) {
    const int other = shared.gave_up ? tid : static_cast<int>(shared.pivot_row[tid]);
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
  const int major = compute_capability_major(lane);
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
void launch(CudaLane& lane, const LuBaseTask<D>& task) {
  const auto blocks = static_cast<unsigned>(ceil_div(task.rows, kRowsOfBlock<D, kWidth>));
  if constexpr (kWidth == kWidest<D>) {
    if (takes_cluster<D, kWidth>(lane, blocks)) {
      return launch_dependent(lane, lu_base_kernel<D, kWidth, ClusterExchange>, blocks,
                              kLuBaseThreads, blocks, task);
    }
  }
  launch_dependent(lane, lu_base_kernel<D, kWidth, MailExchange>, blocks, kLuBaseThreads, 0, task);
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
  LuBaseTask<D> task;
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
