// Reflectors of bulge chasing applied to eigenvectors, by an own kernel with tensor cores.
//
//   X <- X - (V T) (V^H X)    for each block: groups last to first, in each the blocks downwards
//
// A warp has 16 columns of X (8 complex ones), of which a window of 2 b rows is in registers. A
// pass takes two groups down the matrix: in each step the block of the later group, in the lower
// three quarters of the window, and that of the earlier one, in the upper three quarters; then the
// window moves by b rows. The rows of an accumulator are the columns of X, so that the result of
// the first product is an operand of the second without leaving the registers. The blocks come
// through shared memory, in a ring that copies fill ahead, and so do the rows for the next step.
//
// Where warps are fewer than tensor cores can feed, several passes run at once, each some steps
// behind the one before it.
//
// All is in double precision: on these devices tensor cores are as fast with it as other units are
// with single precision.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"
#include "tile/cuda/sweep_blocks.h"
#include "tile/cuda/sweep_columns.h"
#include "tile/cuda/sweep_ring.h"
#include "tile/cuda/sweep_tiles.h"
#include "tile/cuda/sweep_turn.h"

namespace jaxmg::tile {
namespace {

constexpr int kMostWarps = 8;

// One step of a pass whose window begins with tile `First` of the registers. `place` is where rows
// wait for the next step.
template <int Q, int First, class S, class Ring>
__device__ void pass_step(const SweepColumns<S>& columns, Ring& ring, PassTurn& turn,
                          double (&window)[2 * Q][4], double2* place, int pass, int begin, int step,
                          bool last, std::uint64_t none) {
  constexpr bool complex = SweepColumns<S>::kComplex;
  const int row = begin + 8 * Q * step;
  const auto tile = [&](int r) -> double(&)[4] { return window[(First + r) % (2 * Q)]; };
  const double* block = ring.first(pass, step, last);
  if (!last) {
    // It has stored its first step + 2 blocks of rows, which begin one block further down.
    turn.await(step + 2);
    if constexpr (SweepColumns<S>::kFetches) {
      columns.template fetch<Q>(row + 16 * Q, place);
    } else {
      columns.template announce<8 * Q>(row + 16 * Q);
    }
  }
  commit_copies();
  apply_block<Q, complex, (First + Q / 2) % (2 * Q)>(window, block, none);
  block = ring.second(pass, step, last);
  if (step > 0) {
    turn.tell(step);  // by now the stores of the last step have arrived
  }
  apply_block<Q, complex, First>(window, block, none);
  columns.template store<Q>(row, tile);
  if (last) {
    columns.template store<Q>(row + 8 * Q, [&](int r) -> double(&)[4] { return tile(Q + r); });
  } else {
    ring.await_others();
    columns.template take<Q>(row + 16 * Q, place, tile);
  }
}

// Passes top, top - 1, ... over all columns: one for each of `together` > 1 blocks of a set of
// columns, which run at once, or all down to 0 for one block. A block waits for one with a smaller
// number only.
template <int Q, int Slots, class S>
__global__ void __launch_bounds__(32 * kMostWarps, 1)
    apply_sweeps_kernel(const SweepPasses passes, int top, int together, const PassFlags flags,
                        const double* packed, S* x, Size ldx, Size columns, std::uint64_t none) {
  extern __shared__ double slots[];
  const int block = static_cast<int>(blockIdx.x), warps = static_cast<int>(blockDim.x) / 32;
  const int set = block / together, sets = static_cast<int>(gridDim.x) / together;
  const int first = top - block % together, last = together > 1 ? first : 0;
  const int warp = set * warps + static_cast<int>(threadIdx.x) / 32;
  const SweepColumns<S> mine(x, ldx, static_cast<int>(passes.batch.n), columns,
                             Size{warp} * SweepColumns<S>::kWidth);
  SweepRing<Q, SweepColumns<S>::kComplex, Slots> ring(passes, first, last, packed, slots);
  double2* const place = reinterpret_cast<double2*>(slots + ring.kBytes / sizeof(double));
  double window[2 * Q][4];
  for (int pass = first; pass >= last; --pass) {
    PassTurn turn(flags, pass, top, sets, set);
    const int begin = static_cast<int>(passes.begin(pass));
    const int steps = static_cast<int>(passes.steps_of(pass));
    turn.await(1);
    mine.template load<2 * Q>(begin, [&](int r) -> double(&)[4] { return window[r]; });
    for (int step = 0; step < steps; ++step) {
      pass_step<Q, 0>(mine, ring, turn, window, place, pass, begin, step, step + 1 == steps, none);
      if (++step < steps) {
        pass_step<Q, Q>(mine, ring, turn, window, place, pass, begin, step, step + 1 == steps,
                        none);
      }
    }
    turn.finish();
  }
}

// How many threads have a block, and how many passes run at once.
struct SweepGrid {
  Size warps;
  Size together;
};

// Shared memory of a block: for reflectors, and for rows of X.
template <int Q, int Slots, class D>
std::size_t sweep_bytes(Size warps) {
  return SweepRing<Q, SweepColumns<D>::kComplex, Slots>::kBytes +
         static_cast<std::size_t>(SweepColumns<D>::fetch_bytes(Q, 32 * warps));
}

template <int Q, int Slots, class D>
void launch_sweeps(CudaLane& lane, const SweepPasses& passes, const SweepGrid& grid,
                   const double* packed, Size columns, D* x, Size ldx, int* numbers, Info* info) {
  const std::size_t bytes = sweep_bytes<Q, Slots, D>(grid.warps);
  const Size sets = ceil_div(columns, SweepColumns<D>::kWidth * grid.warps);
  PassFlags flags{nullptr, numbers};
  if (grid.together > 1) {
    flags.done = numbers + 1;
    JAXMG_CUDA_CHECK(cudaMemsetAsync(
        numbers, 0, static_cast<std::size_t>(1 + passes.count() * sets) * sizeof(int),
        lane.stream()));
  }
  const auto kernel = apply_sweeps_kernel<Q, Slots, D>;
  allow_shared_memory(kernel, bytes);
  for (Size left = passes.count(); left > 0; left = grid.together > 1 ? left - grid.together : 0) {
    const Size together = std::min(left, grid.together);
    kernel<<<static_cast<unsigned>(sets * together), static_cast<unsigned>(32 * grid.warps), bytes,
             lane.stream()>>>(passes, static_cast<int>(left) - 1, static_cast<int>(together),
                              together > 1 ? flags : PassFlags{nullptr, numbers}, packed, x, ldx,
                              columns, 0);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
  if (grid.together > 1) {
    for_each(lane, 1, 1, [=] __device__(Size, Size) {
      if (*numbers != 0 && info->kind == 0) {
        info->kind = static_cast<std::int32_t>(Kind::no_convergence);
        info->position = static_cast<std::int32_t>(passes.batch.first + 1);
      }
    });
  }
}

// Few columns: blocks of half the size, and as many passes at once as the device holds, since each
// waits for another.
template <int Q, class D>
void apply_blocks(CudaLane& lane, const SweepPasses& passes, double* packed, Size columns, D* x,
                  Size ldx, Info* info) {
  constexpr bool complex = SweepColumns<D>::kComplex;
  constexpr Size half = kMostWarps / 2;
  const std::size_t bytes = sweep_bytes<Q, 2, D>(half);
  const auto kernel = apply_sweeps_kernel<Q, 2, D>;
  allow_shared_memory(kernel, bytes);
  int processors = 0, resident = 0;
  JAXMG_CUDA_CHECK(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, lane.device()));
  JAXMG_CUDA_CHECK(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, 32 * half, bytes));
  const Size sets = ceil_div(columns, SweepColumns<D>::kWidth * half);
  Size together = passes.count();
  while (together > 1 && together * sets > Size{resident} * processors) {
    --together;
  }
  int* const numbers = reinterpret_cast<int*>(packed + 2 * passes.count() * passes.steps *
                                                           SweepBlock<Q, complex>::kSize);
  if (together > 1) {
    return launch_sweeps<Q, 2>(lane, passes, {half, together}, packed, columns, x, ldx, numbers,
                               info);
  }
  launch_sweeps<Q, complex ? 2 : 4>(lane, passes, {sets <= processors ? half : kMostWarps, 1},
                                    packed, columns, x, ldx, numbers, info);
}

}  // namespace

template <class T>
void Cuda::apply_sweeps(Lane& lane, const SweepBatch& batch, T* packed, Size columns, T* x,
                        Size ldx, T* products, Info* info) {
  if (batch.count > 0 && columns > 0 && !with_sweep_tiles(lane, batch, [&](auto quarter) {
        apply_blocks<decltype(quarter)::value>(lane, sweep_passes(batch),
                                               reinterpret_cast<double*>(packed), columns,
                                               on_device(x), ldx, info);
      })) {
    apply_any_sweeps<T>(lane, batch, packed, columns, x, ldx, products);
  }
}

#define JAXMG_INSTANTIATE(T) \
  template void Cuda::apply_sweeps<T>(Lane&, const SweepBatch&, T*, Size, T*, Size, T*, Info*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
