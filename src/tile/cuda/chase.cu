// Bulge chasing on a GPU: a block of threads takes one sweep at a time, see tile/cpu/chase.cpp for
// what a sweep is. Blocks draw sweeps in order and each waits only for the sweep before its own,
// which has been drawn already: it does not matter how many of them run at once.
//
// A sweep is a chain of short dependent steps, and the next one follows two steps behind: the time
// of the whole is that of two steps for each row of the matrix. The block below a reflector and the
// lower triangle of the diagonal block are in registers, a row to a thread. All of their rows but
// the last are final once the sweep before has done one step fewer than it must have done for the
// last, so that they are loaded ahead of the wait for it.
#include <limits>

#include "tile/cuda/column_sums.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/flags.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"
#include "tile/cuda/reflector.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

constexpr int kGroups = 4;  // of columns
constexpr int kAllDone = std::numeric_limits<int>::max();

// What blocks tell each other: the next sweep to be taken, whether one has given up, and the steps
// that each sweep has done.
struct ChaseFlags {
  int* ticket;
  int* failed;
  int* done;
};

// What the threads of a block share. B rows at most, in H = B / 32 halves.
template <class D, class R, int B>
struct ChaseMemory {
  static constexpr int kHalves = B / 32;
  D v[B];                          // the last reflector
  D x[B];                          // the column that becomes the next one
  D below[kGroups][B];             // parts of the block below times v
  D diagonal[kGroups][B];          // parts of the diagonal block's lower triangle times v
  D below_columns[kHalves][B];     // parts of v^H times the block below
  D diagonal_columns[kHalves][B];  // parts of the strict upper triangle times v
  D w[kGroups * kHalves][B];       // a copy for each warp
};

// Thread (i, g) has row i of the blocks in the columns of group g.
template <class D, class R, int B>
class Chase {
 public:
  static constexpr int kColumns = B / kGroups;
  static constexpr int kHalves = B / 32;
  using Memory = ChaseMemory<D, R, B>;

  __device__ Chase(Memory& memory, const SweepBatch& batch, D* band, Size ld, R smallest)
      : s_(memory),
        n_(batch.n),
        b_(static_cast<int>(batch.b)),
        band_(band),
        stride_(ld - 1),
        smallest_(smallest),
        row_(static_cast<int>(threadIdx.x) % B),
        group_(static_cast<int>(threadIdx.x) / B),
        lane_(static_cast<int>(threadIdx.x) % 32),
        half_(row_ / 32),
        warp_(static_cast<int>(threadIdx.x) / 32),
        first_column_(group_ * kColumns) {}

  // Rows other than the last one of step k of a sweep, before it is its turn (k > 0).
  __device__ void load_diagonal_ahead(Size begin) {
    if (row_ < b_ - 1) {
      load_diagonal(begin);
    }
  }
  // What is left to load when it is.
  __device__ void load_rest(Size sweep, Size begin, bool first) {
    if (first) {
      if (group_ == 0) {
        s_.x[row_] = row_ < b_ && begin + row_ < n_
                         ? load_shared_by_all(band_ + 1 + row_ + sweep * (stride_ + 1))
                         : zero();
      }
      load_diagonal(begin);
    } else if (row_ >= b_ - 1) {
      load_below(begin);
      load_diagonal(begin);
    }
  }

  // One step: rows begin .. begin + b - 1. Block, reflector and diagonal block as in the CPU's.
  __device__ void step(Size sweep, Size begin, bool first) {
    const Size left = n_ - begin;
    const int rows = left < b_ ? static_cast<int>(left) : b_;
    const bool active = row_ < rows;
    if (first) {
      __syncthreads();
    } else {
      finish_bulge();
    }
    const ReflectorScalars<D, R> h = find_reflector();
    multiply(h, first);
    __syncthreads();
    if (first) {
      if (group_ == 0 && active) {
        store_for_all(band_ + 1 + row_ + sweep * (stride_ + 1),
                      row_ == 0 ? element<D>(h.beta) : zero());
      }
    } else {
      update_below(h, begin, active);
    }
    if (begin + b_ < n_ && row_ < b_ - 1) {
      load_below(begin + b_);
    }
    update_diagonal(h, begin, active);
    if (group_ == 0) {
      s_.v[row_] = own_;
    }
    tau_ = h.tau;
  }

  __device__ void keep(D* target, Size begin) const {
    if (group_ == 0 && row_ < b_ && begin + row_ < n_) {
      target[row_] = row_ == 0 ? tau_ : own_;
    }
  }

 private:
  __device__ static D zero() { return element<D>(R{0}); }

  // Element (row, first_column + c) of the block below rows begin - b ..: at distance
  // b + row - column from the diagonal.
  __device__ D* below_at(Size begin) const {
    return band_ + (b_ + row_) + (begin - b_) * (stride_ + 1) + first_column_ * stride_;
  }
  __device__ D* diagonal_at(Size begin) const {
    return band_ + row_ + begin * (stride_ + 1) + first_column_ * stride_;
  }
  __device__ void load_below(Size begin) {
    const D* const p = below_at(begin);
    const bool active = row_ < b_ && begin + row_ < n_;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      below_[c] = active && first_column_ + c < b_ ? load_shared_by_all(p + c * stride_) : zero();
    }
  }
  __device__ void load_diagonal(Size begin) {
    const D* const p = diagonal_at(begin);
    const bool active = row_ < b_ && begin + row_ < n_;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int j = first_column_ + c;
      diagonal_[c] = active && row_ >= j ? load_shared_by_all(p + c * stride_) : zero();
      if (row_ == j) {
        diagonal_[c] = element<D>(real_part(diagonal_[c]));
      }
    }
  }

  // B <- B - (B v) (tau v^H) with the last reflector; x <- its first column.
  __device__ void finish_bulge() {
    D part = zero();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      part = part + below_[c] * s_.v[first_column_ + c];
    }
    s_.below[group_][row_] = part;
    __syncthreads();
    D w = zero();
#pragma unroll
    for (int q = 0; q < kGroups; ++q) {
      w = w + s_.below[q][row_];
    }
    w = w * tau_;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      below_[c] = below_[c] - w * conjugate(s_.v[first_column_ + c]);
    }
    if (group_ == 0) {
      s_.x[row_] = below_[0];
    }
    __syncthreads();
  }

  // Each warp for itself: lane l has elements l and l + 32.
  __device__ ReflectorScalars<D, R> find_reflector() {
    R tail = 0;
#pragma unroll
    for (int q = 0; q < kHalves; ++q) {
      v_[q] = s_.x[lane_ + 32 * q];
      tail += q > 0 || lane_ > 0 ? square(v_[q]) : R{0};
    }
    const ReflectorScalars<D, R> h = reflector_scalars(s_.x[0], warp_sum(tail), smallest_);
#pragma unroll
    for (int q = 0; q < kHalves; ++q) {
      v_[q] = q == 0 && lane_ == 0 ? element<D>(R{1}) : h.scale * v_[q];
    }
    own_ = v_[0];
    if (kHalves > 1 && half_ > 0) {
      own_ = v_[kHalves - 1];
    }
    return h;
  }
  __device__ D reflector_at(const ReflectorScalars<D, R>& h, int j) const {
    return j == 0 ? element<D>(R{1}) : h.scale * s_.x[j];
  }

  // Parts of v^H B and of D v.
  __device__ void multiply(const ReflectorScalars<D, R>& h, bool first) {
    D r[kColumns];
    if (!first) {
      const D left = conjugate(own_);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        r[c] = left * below_[c];
      }
      const D sum = sum_columns<kColumns>(r, lane_);
      if (keeps_sum<kColumns>(lane_)) {
        s_.below_columns[half_][first_column_ + summed_column<kColumns>(lane_)] = sum;
      }
    }
    D part = zero();
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int j = first_column_ + c;
      part = part + diagonal_[c] * reflector_at(h, j);
      r[c] = row_ > j ? conjugate(diagonal_[c]) * own_ : zero();
    }
    s_.diagonal[group_][row_] = part;
    const D sum = sum_columns<kColumns>(r, lane_);
    if (keeps_sum<kColumns>(lane_)) {
      s_.diagonal_columns[half_][first_column_ + summed_column<kColumns>(lane_)] = sum;
    }
  }

  // B <- B - conj(tau) v (v^H B), whose first column is known.
  __device__ void update_below(const ReflectorScalars<D, R>& h, Size begin, bool active) {
    const D factor = conjugate(h.tau) * own_;
    D* const p = below_at(begin);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int j = first_column_ + c;
      D sum = s_.below_columns[0][j];
      if (kHalves > 1) {
        sum = sum + s_.below_columns[kHalves - 1][j];
      }
      D value = below_[c] - factor * sum;
      if (j == 0) {
        value = row_ == 0 ? element<D>(h.beta) : zero();
      }
      if (active && j < b_) {
        store_for_all(p + c * stride_, value);
      }
    }
  }

  // w = tau D v - |tau|^2 (v^H D v) v / 2,   D <- D - w v^H - v w^H
  __device__ void update_diagonal(const ReflectorScalars<D, R>& h, Size begin, bool active) {
    D w[kHalves];
    R product = 0;
#pragma unroll
    for (int q = 0; q < kHalves; ++q) {
      const int i = lane_ + 32 * q;
      w[q] = s_.diagonal_columns[0][i];
      if (kHalves > 1) {
        w[q] = w[q] + s_.diagonal_columns[kHalves - 1][i];
      }
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        w[q] = w[q] + s_.diagonal[g][i];
      }
      product += real_part(conjugate(v_[q]) * w[q]);
    }
    const D half = element<D>(square(h.tau) * warp_sum(product) / 2);
#pragma unroll
    for (int q = 0; q < kHalves; ++q) {
      w[q] = h.tau * w[q] - half * v_[q];
      s_.w[warp_][lane_ + 32 * q] = w[q];
    }
    __syncwarp();
    D own = w[0];
    if (kHalves > 1 && half_ > 0) {
      own = w[kHalves - 1];
    }
    D* const p = diagonal_at(begin);
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int j = first_column_ + c;
      const D value =
          diagonal_[c] - own * conjugate(reflector_at(h, j)) - own_ * conjugate(s_.w[warp_][j]);
      if (active && row_ >= j) {
        store_for_all(p + c * stride_, row_ == j ? element<D>(real_part(value)) : value);
      }
    }
  }

  Memory& s_;
  Size n_;
  int b_;
  D* band_;
  Size stride_;  // from column to column in one row
  R smallest_;
  int row_, group_, lane_, half_, warp_, first_column_;
  D below_[kColumns], diagonal_[kColumns];
  D v_[kHalves];  // this lane's elements of the reflector
  D own_;         // that of this thread's row
  D tau_;
};

template <class D, class R, int B>
__global__ void __launch_bounds__(B* kGroups, sizeof(D) > 8 ? 1 : 2)
    chase_kernel(SweepBatch batch, D* band, Size ld, D* kept, ChaseFlags flags, R smallest) {
  __shared__ ChaseMemory<D, R, B> memory;
  __shared__ int drawn;
  Chase<D, R, B> chase(memory, batch, band, ld, smallest);
  for (;;) {
    if (threadIdx.x == 0) {
      drawn = atomicAdd(flags.ticket, 1);
    }
    __syncthreads();
    const int number = drawn;
    if (number >= batch.count) {
      return;
    }
    const Size sweep = batch.first + number;
    const Size steps = (batch.n - 1 - sweep + batch.b - 1) / batch.b;
    D* const target = kept != nullptr ? kept + batch.place(sweep) : nullptr;
    int seen = number == 0 ? kAllDone : 0;  // of the sweep before
    for (Size k = 0; k < steps; ++k) {
      const Size begin = sweep + 1 + k * batch.b;
      const int needed = static_cast<int>(k) + 2;
      if (k > 0) {
        chase.load_diagonal_ahead(begin);
      }
      if (seen < needed) {  // the same in all lanes of a warp
        if (threadIdx.x % 32 == 0) {
          seen = wait_for(flags.done + number - 1, needed, flags.failed);
        }
        seen = __shfl_sync(~0u, seen, 0);
      }
      chase.load_rest(sweep, begin, k == 0);
      chase.step(sweep, begin, k == 0);
      __syncthreads();
      if (threadIdx.x == 0) {
        store_release(flags.done + number, k + 1 == steps ? kAllDone : needed - 1);
      }
      if (target != nullptr) {
        chase.keep(target + k * batch.b, begin);
      }
    }
  }
}

template <class D, class R, int B>
void launch_chase(CudaLane& lane, const SweepBatch& batch, D* band, Size ld, D* kept,
                  const ChaseFlags& flags) {
  int processors = 0, resident = 0;
  JAXMG_CUDA_CHECK(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, lane.device()));
  JAXMG_CUDA_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, chase_kernel<D, R, B>,
                                                                 B * kGroups, 0));
  // More sweeps than this are never under way: each is two steps behind the one before. One more
  // is about to begin.
  const Size together = ceil_div(ceil_div(batch.rows(), batch.b), Size{2}) + 2;
  const auto blocks = static_cast<unsigned>(
      std::min({batch.count, together, static_cast<Size>(resident) * processors}));
  chase_kernel<D, R, B><<<blocks, B * kGroups, 0, lane.stream()>>>(batch, band, ld, kept, flags,
                                                                   std::numeric_limits<R>::min());
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
