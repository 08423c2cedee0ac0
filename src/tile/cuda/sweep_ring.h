// The way of blocks of reflectors to the kernel that applies them: a ring in shared memory.
#pragma once

#include <cstddef>

#include "tile/cuda/async_copy.h"
#include "tile/cuda/sweep_blocks.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// Blocks of passes in the order of their use, copied ahead by all threads together: in each step
// that of the later group, which is half 1 of its pass, then that of the earlier one. Of two slots
// each has one half; of four, two have a step.
template <int Q, bool Complex, int Slots>
class SweepRing {
 public:
  static_assert(Slots == 2 || Slots == 4);
  using Block = SweepBlock<Q, Complex>;
  static constexpr std::size_t kBytes =
      static_cast<std::size_t>(Slots) * Block::kSize * sizeof(double);

  // `last`: the pass after which there is none.
  __device__ SweepRing(const SweepPasses& passes, int pass, int last, const double* packed,
                       double* slots)
      : passes_(passes), packed_(packed), slots_(slots), last_(last) {
    copy(pass, 0, 1, 0);
    if constexpr (kWholeSteps) {
      copy(pass, 0, 0, 1);
    }
    commit_copies();
  }
  // The blocks of a step, the last one of its pass or not, for all threads. Those before are not
  // looked at any more. Between the two calls the caller commits one group of copies of its own.
  __device__ const double* first(int pass, int step, bool last_step) {
    await<0>();
    if constexpr (kWholeSteps) {
      const int other = 2 - front_;
      copy_next(pass, step, last_step, 1, other);
      copy_next(pass, step, last_step, 0, other + 1);
    } else {
      copy(pass, step, 0, 1);
    }
    commit_copies();
    return slot(front_);
  }
  __device__ const double* second(int pass, int step, bool last_step) {
    if constexpr (kWholeSteps) {
      const int present = front_ + 1;
      front_ = 2 - front_;
      return slot(present);
    } else {
      await<1>();
      copy_next(pass, step, last_step, 1, 0);
      commit_copies();
      return slot(1);
    }
  }
  // Waits for the caller's copies.
  __device__ void await_others() const { wait_for_copies<kWholeSteps ? 0 : 1>(); }

 private:
  static constexpr bool kWholeSteps = Slots == 4;

  template <int Others>
  __device__ void await() {
    wait_for_copies<Others>();
    __syncthreads();
  }
  __device__ double* slot(int i) const { return slots_ + i * Block::kSize; }
  __device__ void copy_next(int pass, int step, bool last_step, int half, int to) {
    if (!last_step) {
      copy(pass, step + 1, half, to);
    } else if (pass > last_) {
      copy(pass - 1, 0, half, to);
    }
  }
  __device__ void copy(int pass, int step, int half, int to) {
    const double* const source = packed_ + passes_.block(pass, half, step) * Block::kSize;
    double* const target = slot(to);
    for (int x = 2 * static_cast<int>(threadIdx.x); x < Block::kSize;
         x += 2 * static_cast<int>(blockDim.x)) {
      copy_async(target + x, source + x);
    }
  }

  const SweepPasses& passes_;
  const double* packed_;
  double* slots_;
  int last_;
  int front_ = 0;  // of four slots, the first one of the present step
};

}  // namespace jaxmg::tile

#endif  // __CUDACC__
