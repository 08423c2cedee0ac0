// Reflectors of bulge chasing applied to eigenvectors, by an own kernel with tensor cores.
//
//   X <- X - V T (V^H X)    for each block: groups last to first, in each the blocks downwards
//
// A warp has 16 columns of X (8 complex ones), of which a window of 2 b rows is in registers. A
// pass takes two groups down the matrix: in each step the block of the later group, in the lower
// three quarters of the window, and that of the earlier one, in the upper three quarters; then the
// window moves by b rows. The rows of an accumulator are the columns of X, so that the result of
// each of the three products is an operand of the next without leaving the registers. Only the
// blocks come through shared memory, in a ring that copies fill ahead.
//
// Where warps are fewer than tensor cores can feed, several passes run at once, each some steps
// behind the one before it.
//
// All is in double precision: on these devices tensor cores are as fast with it as other units are
// with single precision.
#include <climits>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "tile/cuda/async_copy.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/flags.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"
#include "tile/cuda/sweep_blocks.h"
#include "tile/cuda/tensor_core.h"

namespace jaxmg::tile {
namespace {

constexpr int kMostWarps = 8;

// Columns of X that belong to one thread: one complex column, or two real ones of which the second
// is in the other half of the accumulator. Memory holds them in the type S.
template <class S>
class Columns {
 public:
  static constexpr bool kComplex = !std::is_same_v<S, float> && !std::is_same_v<S, double>;
  static constexpr Size kWidth = kComplex ? 8 : 16;  // of a warp

  // `first` is the warp's first column. Lanes whose column does not exist read another one.
  __device__ Columns(S* x, Size ldx, Size n, Size columns, Size first)
      : n_(n), paired_(ldx % 2 == 0 && reinterpret_cast<std::uintptr_t>(x) % (2 * sizeof(S)) == 0) {
    const Size column = first + threadIdx.x % 32 / 4;
    const Size row = 2 * (threadIdx.x % 4);
    const Size last = columns - 1;
    here_ = column < columns;
    there_ = column + 8 < columns;
    left_ = x + (here_ ? column : last) * ldx + row;
    right_ = x + (there_ ? column + 8 : last) * ldx + row;
    row_ = row;
  }

  // e: the thread's four numbers of the tile of rows row .. row + 7.
  __device__ void load(Size row, double (&e)[4]) const {
    if constexpr (kComplex) {
      const bool first = row + row_ < n_, second = row + row_ + 1 < n_;
      const S a = first ? load_shared_by_all(left_ + row) : S{0, 0};
      const S b = second ? load_shared_by_all(left_ + row + 1) : S{0, 0};
      e[0] = a.re, e[1] = b.re, e[2] = a.im, e[3] = b.im;
    } else {
      load_pair(left_ + row, row, e[0], e[1]);
      load_pair(right_ + row, row, e[2], e[3]);
    }
  }
  // Tells the cache that rows row .. row + Rows - 1 will be loaded.
  template <int Rows>
  __device__ void announce(Size row) const {
    constexpr int line = 128 / sizeof(S);
    for (Size i = row + line * (threadIdx.x % 4); i < row + Rows && i < n_; i += 4 * line) {
      prefetch(left_ - row_ + i);
      if constexpr (!kComplex) {
        prefetch(right_ - row_ + i);
      }
    }
  }
  __device__ void store(Size row, const double (&e)[4]) const {
    if constexpr (kComplex) {
      using R = decltype(S::re);
      if (here_ && row + row_ < n_) {
        left_[row] = {static_cast<R>(e[0]), static_cast<R>(e[2])};
      }
      if (here_ && row + row_ + 1 < n_) {
        left_[row + 1] = {static_cast<R>(e[1]), static_cast<R>(e[3])};
      }
    } else {
      if (here_) {
        store_pair(left_ + row, row, e[0], e[1]);
      }
      if (there_) {
        store_pair(right_ + row, row, e[2], e[3]);
      }
    }
  }

 private:
  using Pair = std::conditional_t<sizeof(S) == sizeof(float), float2, double2>;
  // Other multiprocessors may have written it.
  __device__ void load_pair(const S* p, Size row, double& a, double& b) const {
    if (paired_ && row + row_ + 1 < n_) {
      const Pair pair = __ldcg(reinterpret_cast<const Pair*>(p));
      a = pair.x, b = pair.y;
    } else {
      a = row + row_ < n_ ? load_shared_by_all(p) : S{0};
      b = row + row_ + 1 < n_ ? load_shared_by_all(p + 1) : S{0};
    }
  }
  __device__ void store_pair(S* p, Size row, double a, double b) const {
    if (paired_ && row + row_ + 1 < n_) {
      *reinterpret_cast<Pair*>(p) = {static_cast<S>(a), static_cast<S>(b)};
    } else {
      if (row + row_ < n_) {
        p[0] = static_cast<S>(a);
      }
      if (row + row_ + 1 < n_) {
        p[1] = static_cast<S>(b);
      }
    }
  }

  Size n_;
  bool paired_;
  bool here_, there_;
  S* left_;
  S* right_;
  Size row_;
};

// c += a times the tile at p; a and c as accumulators have them.
template <bool Complex>
__device__ void multiply_tile(double (&c)[4], const double (&a)[4], const double* p) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const double2 b = reinterpret_cast<const double2*>(p)[lane];
  multiply_add(c, a[0], a[2], a[1], a[3], b.x, b.y);
  if constexpr (Complex) {
    const double2 d = reinterpret_cast<const double2*>(p + 64)[lane];
    multiply_add(c, a[2], -a[0], a[3], -a[1], d.x, d.y);
  }
}

// One block on the tiles of the window from Base on, cyclically.
template <int Q, bool Complex, int Base>
__device__ void apply_block(double (&window)[2 * Q][4], const double* p) {
  using Block = SweepBlock<Q, Complex>;
  constexpr int columns = Block::kColumns;
  double w[columns][4], x[columns][4];
#pragma unroll
  for (int c = 0; c < columns; ++c) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      w[c][e] = 0;
      x[c][e] = 0;
    }
  }
#pragma unroll
  for (int r = 0; r < Q + columns; ++r) {
    const double(&e)[4] = window[(r + Base) % (2 * Q)];
#pragma unroll
    for (int c = 0; c < columns; ++c) {
      if (c <= r && r <= c + Q) {
        multiply_tile<Complex>(w[c], e, p + (c * Block::kTall + r - c) * Block::kTile);
      }
    }
    // Column r - Q of the first product is complete.
    if (r >= Q) {
#pragma unroll
      for (int c = 0; c < columns; ++c) {
        if (c <= r - Q) {
          multiply_tile<Complex>(x[c], w[r - Q], p + Block::factor(c, r - Q) * Block::kTile);
        }
      }
    }
  }
#pragma unroll
  for (int c = 0; c < columns; ++c) {
#pragma unroll
    for (int r = c; r <= c + Q; ++r) {
      multiply_tile<Complex>(window[(r + Base) % (2 * Q)], x[c],
                             p + (Block::kV + Block::kT + c * Block::kTall + r - c) * Block::kTile);
    }
  }
}

// The blocks of passes from `pass` down to `last` in the order of use, copied ahead by all threads
// together.
template <int Q, bool Complex, int Slots>
class BlockRing {
 public:
  using Block = SweepBlock<Q, Complex>;
  static constexpr std::size_t kBytes =
      static_cast<std::size_t>(Slots) * Block::kSize * sizeof(double);

  __device__ BlockRing(const SweepPasses& passes, Size pass, Size last, const double* packed,
                       double* slots)
      : passes_(passes), packed_(packed), slots_(slots), pass_(pass), last_(last) {
    for (int i = 0; i < Slots - 1; ++i) {
      copy_next();
    }
  }
  // The next block, for all threads. The one before is not looked at any more.
  __device__ const double* next() {
    wait_for_copies<Slots - 2>();
    __syncthreads();
    copy_next();
    const double* const block = slots_ + read_ * Block::kSize;
    read_ = read_ + 1 == Slots ? 0 : read_ + 1;
    return block;
  }

 private:
  __device__ void copy_next() {
    if (pass_ >= last_) {
      const double* const source = packed_ + passes_.block(pass_, half_, step_) * Block::kSize;
      double* const target = slots_ + written_ * Block::kSize;
      for (int x = 2 * static_cast<int>(threadIdx.x); x < Block::kSize; x += 2 * blockDim.x) {
        copy_async(target + x, source + x);
      }
      if (half_ == 1) {
        half_ = 0;
      } else {
        half_ = 1;
        if (++step_ >= passes_.steps_of(pass_)) {
          step_ = 0;
          --pass_;
        }
      }
    }
    commit_copies();
    written_ = written_ + 1 == Slots ? 0 : written_ + 1;
  }

  const SweepPasses& passes_;
  const double* packed_;
  double* slots_;
  Size pass_, last_, step_ = 0;
  int half_ = 1;
  int written_ = 0, read_ = 0;
};

// How passes over the same columns follow each other: the steps that each has done. null: they do
// not run at once.
struct PassFlags {
  int* done;
  int* failed;
};

// One pass beside others.
class PassTurn {
 public:
  __device__ PassTurn(const PassFlags& flags, Size pass, Size top, Size columns, Size column)
      : failed_(flags.failed) {
    if (flags.done != nullptr) {
      own_ = flags.done + pass * columns + column;
      before_ = pass < top ? own_ + columns : nullptr;
    }
  }
  // Until the pass before has done so many steps.
  __device__ void await(Size steps) {
    const int needed = static_cast<int>(steps);
    if (before_ != nullptr && seen_ < needed) {
      if (threadIdx.x % 32 == 0) {
        seen_ = wait_for(before_, needed, failed_);
      }
      seen_ = __shfl_sync(~0u, seen_, 0);
    }
  }
  // What the block has stored in these steps, all threads having met since, is there to be read.
  __device__ void tell(Size steps) const {
    if (own_ != nullptr && threadIdx.x == 0) {
      store_release(own_, static_cast<int>(steps));
    }
  }
  __device__ void finish() const {
    if (own_ != nullptr) {
      __syncthreads();
      tell(INT_MAX);
    }
  }

 private:
  int* own_ = nullptr;
  const int* before_ = nullptr;
  int* failed_;
  int seen_ = 0;
};

// One step of a pass whose window begins with tile `First` of the registers.
template <int Q, int First, class S, class Ring>
__device__ void pass_step(const Columns<S>& columns, Ring& ring, PassTurn& turn,
                          double (&window)[2 * Q][4], Size begin, Size step, bool last) {
  constexpr bool complex = Columns<S>::kComplex;
  const Size row = begin + 8 * Q * step;
  if (!last) {
    columns.template announce<8 * Q>(row + 16 * Q);
  }
  apply_block<Q, complex, (First + Q / 2) % (2 * Q)>(window, ring.next());
  const double* const block = ring.next();
  if (step > 0) {
    turn.tell(step);  // by now the stores of the last step have arrived
  }
  apply_block<Q, complex, First>(window, block);
#pragma unroll
  for (int r = 0; r < Q; ++r) {
    columns.store(row + 8 * r, window[First + r]);
  }
  if (!last) {
    // It has stored its first step + 2 blocks of rows, which begin one block further down.
    turn.await(step + 2);
  }
#pragma unroll
  for (int r = 0; r < Q; ++r) {
    if (last) {
      columns.store(row + 8 * (Q + r), window[(First + Q + r) % (2 * Q)]);
    } else {
      columns.load(row + 8 * (2 * Q + r), window[First + r]);
    }
  }
}

// Passes top, top - 1, ... over all columns: one for each of `together` > 1 blocks of a set of
// columns, which run at once, or all down to 0 for one block. A block waits for one with a smaller
// number only.
template <int Q, int Slots, class S>
__global__ void __launch_bounds__(32 * kMostWarps, 1)
    apply_sweeps_kernel(SweepPasses passes, Size top, int together, PassFlags flags,
                        const double* packed, S* x, Size ldx, Size columns) {
  extern __shared__ double slots[];
  const Size set = blockIdx.x / together, sets = gridDim.x / together;
  const Size first = top - blockIdx.x % together, last = together > 1 ? first : 0;
  const Size warp = set * (blockDim.x / 32) + threadIdx.x / 32;
  const Columns<S> mine(x, ldx, passes.batch.n, columns, warp * Columns<S>::kWidth);
  BlockRing<Q, Columns<S>::kComplex, Slots> ring(passes, first, last, packed, slots);
  double window[2 * Q][4];
  for (Size pass = first; pass >= last; --pass) {
    PassTurn turn(flags, pass, top, sets, set);
    const Size begin = passes.begin(pass), steps = passes.steps_of(pass);
    turn.await(1);
#pragma unroll
    for (int r = 0; r < 2 * Q; ++r) {
      mine.load(begin + 8 * r, window[r]);
    }
    for (Size step = 0; step < steps; ++step) {
      pass_step<Q, 0>(mine, ring, turn, window, begin, step, step + 1 == steps);
      if (++step < steps) {
        pass_step<Q, Q>(mine, ring, turn, window, begin, step, step + 1 == steps);
      }
    }
    turn.finish();
  }
}

template <int Q, class D>
void pack_blocks(CudaLane& lane, const SweepPasses& passes, const D* v, double* packed) {
  const auto kernel = pack_blocks_kernel<Q, D>;
  constexpr std::size_t bytes = pack_shared_bytes<Q, D>();
  allow_shared_memory(kernel, bytes);
  const dim3 grid(static_cast<unsigned>(passes.steps), static_cast<unsigned>(2 * passes.count()));
  kernel<<<grid, kThreads, bytes, lane.stream()>>>(passes, v, packed);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

// How many threads have a block, and how many passes run at once.
struct SweepGrid {
  Size warps;
  Size together;
};

template <int Q, int Slots, class D>
void launch_sweeps(CudaLane& lane, const SweepPasses& passes, const SweepGrid& grid,
                   const double* packed, Size columns, D* x, Size ldx, int* numbers, Info* info) {
  constexpr std::size_t bytes = BlockRing<Q, Columns<D>::kComplex, Slots>::kBytes;
  const Size sets = ceil_div(columns, Columns<D>::kWidth * grid.warps);
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
             lane.stream()>>>(passes, left - 1, static_cast<int>(together),
                              together > 1 ? flags : PassFlags{nullptr, numbers}, packed, x, ldx,
                              columns);
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
  constexpr bool complex = Columns<D>::kComplex;
  constexpr Size half = kMostWarps / 2;
  using Ring = BlockRing<Q, complex, 2>;
  const auto kernel = apply_sweeps_kernel<Q, 2, D>;
  allow_shared_memory(kernel, Ring::kBytes);
  int processors = 0, resident = 0;
  JAXMG_CUDA_CHECK(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, lane.device()));
  JAXMG_CUDA_CHECK(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, 32 * half, Ring::kBytes));
  const Size sets = ceil_div(columns, Columns<D>::kWidth * half);
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

// body(Q) and true, if there are kernels for bands of this width.
template <class Body>
bool with_tiles(const SweepBatch& batch, const Body& body) {
  if (batch.b != 2 * batch.size || batch.first % 2 != 0) {
    return false;
  }
  switch (batch.b) {
    case 64:
      body(std::integral_constant<int, 8>{});
      return true;
    case 32:
      body(std::integral_constant<int, 4>{});
      return true;
    case 16:
      body(std::integral_constant<int, 2>{});
      return true;
    default:
      return false;
  }
}

SweepPasses passes_of(const SweepBatch& batch) {
  SweepPasses passes{batch, 0};
  passes.steps = passes.steps_of(0);
  return passes;
}

}  // namespace

template <class T>
void Cuda::pack_sweeps(Lane& lane, const SweepBatch& batch, const T* v, T* packed) {
  if (batch.count > 0 && !with_tiles(batch, [&](auto quarter) {
        pack_blocks<decltype(quarter)::value>(lane, passes_of(batch), on_device(v),
                                              reinterpret_cast<double*>(packed));
      })) {
    pack_any_sweeps<T>(lane, batch, v, packed);
  }
}

template <class T>
void Cuda::apply_sweeps(Lane& lane, const SweepBatch& batch, T* packed, Size columns, T* x,
                        Size ldx, T* products, Info* info) {
  if (batch.count > 0 && columns > 0 && !with_tiles(batch, [&](auto quarter) {
        apply_blocks<decltype(quarter)::value>(lane, passes_of(batch),
                                               reinterpret_cast<double*>(packed), columns,
                                               on_device(x), ldx, info);
      })) {
    apply_any_sweeps<T>(lane, batch, packed, columns, x, ldx, products);
  }
}

#define JAXMG_INSTANTIATE(T)                                                  \
  template void Cuda::pack_sweeps<T>(Lane&, const SweepBatch&, const T*, T*); \
  template void Cuda::apply_sweeps<T>(Lane&, const SweepBatch&, T*, Size, T*, Size, T*, Info*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
