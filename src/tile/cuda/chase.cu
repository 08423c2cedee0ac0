// Bulge chasing on a GPU: a block of threads takes one sweep at a time, see tile/cpu/chase.cpp for
// what a sweep is. Blocks draw sweeps in order and each waits only for the sweep before its own,
// which has been drawn already: it does not matter how many of them run at once.
//
// A sweep is a chain of short dependent steps, and the next one follows two steps behind: the time
// of the whole is that of two steps for each row of the matrix. The block below a reflector and the
// lower triangle of the diagonal block are in registers, a row to a thread. All of their rows but
// the last are final once the sweep before has done one step fewer than it must have done for the
// last, so that they are loaded ahead of the wait for it. Waiting for that, fetching the last row,
// and telling the next sweep, each of which takes a memory's answer, are the work of two more
// warps, where registers for them are left.
#include "tile/cuda/chase_threads.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"

namespace jaxmg::tile {
namespace {

// The threads of the rows.
template <class D, class R, int B>
__device__ void work_on(Chase<D, R, B>& chase, ChaseMemory<D, B>& memory, const SweepBatch& batch,
                        const DrawnSweep& own, D* kept) {
  D* const target = kept != nullptr ? kept + batch.place(own.sweep) : nullptr;
  for (int k = 0; k < own.steps; ++k) {
    const Size begin = own.sweep + 1 + k * batch.b;
    if (k > 0) {
      chase.load_diagonal_ahead(begin);
    }
    while (load_acquire_block(&memory.heard) <= k) {
    }
    chase.load_rest(own.sweep, begin, k);
    chase.step(own.sweep, begin, k == 0);
    sync_first<Chase<D, R, B>::kRowThreads>();
    if (threadIdx.x == 0) {
      store_release_block(&memory.finished, k + 1);
    }
    if (target != nullptr) {
      chase.keep(target + k * batch.b, begin);
    }
  }
}

// The warp that tells the next sweep.
template <class Memory>
__device__ void tell(Memory& memory, const DrawnSweep& own, const ChaseFlags& flags) {
  for (int told = 0; told < own.steps;) {
    const int finished = __shfl_sync(~0u, load_acquire_block(&memory.finished), 0);
    if (finished > told && threadIdx.x % 32 == 0) {
      store_release(flags.done + own.number, finished == own.steps ? kAllDone : finished);
    }
    told = finished;
  }
}

// The warp that listens to the sweep before and fetches the last rows.
template <class D, class R, class Memory>
__device__ void listen(Memory& memory, const SweepBatch& batch, const DrawnSweep& own,
                       const ChaseFlags& flags, const D* band, Size ld) {
  const int lane = static_cast<int>(threadIdx.x) % 32, b = static_cast<int>(batch.b);
  const D zero = element<D>(R{0});
  int seen = own.number == 0 ? kAllDone : 0;
  for (int k = 0; k < own.steps; ++k) {
    const Size begin = own.sweep + 1 + k * batch.b;
    if (seen < k + 2) {
      if (lane == 0) {
        seen = wait_for(flags.done + own.number - 1, k + 2, flags.failed);
      }
      seen = __shfl_sync(~0u, seen, 0);
    }
    while (load_acquire_block(&memory.finished) < k - 1) {  // the place is still in use
    }
    const bool exists = begin + b - 1 < batch.n;
    for (int j = lane; j < b; j += 32) {
      const D x = exists ? load_shared_by_all(band + (b - 1 - j) + (begin + j) * ld) : zero;
      memory.last_row[k % 2][j] = j == b - 1 ? element<D>(real_part(x)) : x;
    }
    if (lane == 0) {
      memory.last_below[k % 2] = exists ? load_shared_by_all(band + b + (begin - 1) * ld) : zero;
    }
    __syncwarp();
    if (lane == 0) {
      store_release_block(&memory.heard, k + 1);
    }
  }
}

// The threads of the rows without those: each warp waits for itself.
template <class D, class R, int B>
__device__ void work_alone(Chase<D, R, B>& chase, const SweepBatch& batch, const DrawnSweep& own,
                           const ChaseFlags& flags, D* kept) {
  D* const target = kept != nullptr ? kept + batch.place(own.sweep) : nullptr;
  int seen = own.number == 0 ? kAllDone : 0;
  for (int k = 0; k < own.steps; ++k) {
    const Size begin = own.sweep + 1 + k * batch.b;
    if (k > 0) {
      chase.load_diagonal_ahead(begin);
    }
    if (seen < k + 2) {  // the same in all lanes of a warp
      if (threadIdx.x % 32 == 0) {
        seen = wait_for(flags.done + own.number - 1, k + 2, flags.failed);
      }
      seen = __shfl_sync(~0u, seen, 0);
    }
    chase.load_rest_alone(own.sweep, begin, k);
    chase.step(own.sweep, begin, k == 0);
    __syncthreads();
    if (threadIdx.x == 0) {
      store_release(flags.done + own.number, k + 1 == own.steps ? kAllDone : k + 1);
    }
    if (target != nullptr) {
      chase.keep(target + k * batch.b, begin);
    }
  }
}

template <class D, class R, int B>
__global__ void __launch_bounds__(Chase<D, R, B>::kThreads, B > 32 ? 1 : 2)
    chase_kernel(SweepBatch batch, D* band, Size ld, D* kept, ChaseFlags flags, R smallest) {
  __shared__ ChaseMemory<D, B> memory;
  __shared__ int drawn;
  Chase<D, R, B> chase(memory, batch, band, ld, smallest);
  const int role = static_cast<int>(threadIdx.x) - Chase<D, R, B>::kRowThreads;
  for (;;) {
    if (threadIdx.x == 0) {
      drawn = atomicAdd(flags.ticket, 1);
      memory.heard = 0;
      memory.finished = 0;
    }
    __syncthreads();
    DrawnSweep own{drawn, batch.first + drawn, 0};
    if (own.number >= batch.count) {
      return;
    }
    own.steps = static_cast<int>((batch.n - 1 - own.sweep + batch.b - 1) / batch.b);
    if constexpr (Chase<D, R, B>::kAlone) {
      work_alone(chase, batch, own, flags, kept);
    } else if (role < 0) {
      work_on(chase, memory, batch, own, kept);
    } else if (role < 32) {
      tell(memory, own, flags);
    } else {
      listen<D, R>(memory, batch, own, flags, band, ld);
    }
    __syncthreads();
  }
}

template <class D, class R, int B>
void launch_chase(CudaLane& lane, const SweepBatch& batch, D* band, Size ld, D* kept,
                  const ChaseFlags& flags) {
  constexpr int threads = Chase<D, R, B>::kThreads;
  int processors = 0, resident = 0;
  JAXMG_CUDA_CHECK(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, lane.device()));
  JAXMG_CUDA_CHECK(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, chase_kernel<D, R, B>, threads, 0));
  // More sweeps than this are never under way: each is two steps behind the one before. One more
  // is about to begin.
  const Size together = ceil_div(ceil_div(batch.rows(), batch.b), Size{2}) + 2;
  const auto blocks = static_cast<unsigned>(
      std::min({batch.count, together, static_cast<Size>(resident) * processors}));
  chase_kernel<D, R, B>
      <<<blocks, threads, 0, lane.stream()>>>(batch, band, ld, kept, flags, kLeastSquare<R>);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

template <class T>
void Cuda::chase(Lane& lane, const SweepBatch& batch, T* band, Size ld, T* v, void* work,
                 Info* info) {
  using D = DeviceType<T>;
  using R = Real<T>;
  if (batch.count <= 0) {
    return;
  }
  if (v != nullptr) {
    JAXMG_CUDA_CHECK(cudaMemsetAsync(v, 0, static_cast<std::size_t>(batch.elements()) * sizeof(T),
                                     lane.stream()));
  }
  int* const numbers = static_cast<int*>(work);
  const ChaseFlags flags{numbers, numbers + 1, numbers + 2};
  JAXMG_CUDA_CHECK(cudaMemsetAsync(
      numbers, 0, static_cast<std::size_t>(batch.count + 2) * sizeof(int), lane.stream()));
  if (batch.b <= 32) {
    launch_chase<D, R, 32>(lane, batch, on_device(band), ld, on_device(v), flags);
  } else if (batch.b <= 64) {
    launch_chase<D, R, 64>(lane, batch, on_device(band), ld, on_device(v), flags);
  } else {
    throw std::invalid_argument("chase: half width " + std::to_string(batch.b));
  }
  for_each(lane, 1, 1, [=] __device__(Size, Size) {
    if (*flags.failed != 0 && info->kind == 0) {
      info->kind = static_cast<std::int32_t>(Kind::no_convergence);
      info->position = static_cast<std::int32_t>(batch.first + 1);
    }
  });
}

#define JAXMG_INSTANTIATE(T) \
  template void Cuda::chase<T>(Lane&, const SweepBatch&, T*, Size, T*, void*, Info*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
