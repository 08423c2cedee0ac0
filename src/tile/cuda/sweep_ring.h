// The way of blocks of reflectors to the kernel that applies them: a ring in shared memory.
#pragma once

#include <cstddef>

#include "tile/cuda/async_copy.h"
#include "tile/cuda/sweep_blocks.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// The blocks of passes from `pass` down to `last` in the order of use, copied ahead by all threads
// together.
template <int Q, bool Complex, int Slots>
class SweepRing {
 public:
  static_assert(Slots == 2 || Slots == 4);
  using Block = SweepBlock<Q, Complex>;
  static constexpr std::size_t kBytes =
      static_cast<std::size_t>(Slots) * Block::kSize * sizeof(double);

  __device__ SweepRing(const SweepPasses& passes, int pass, int last, const double* packed,
                       double* slots)
      : passes_(passes), packed_(packed), slots_(slots), pass_(pass), last_(last) {
    for (int i = 0; i < kTogether; ++i) {
      copy_next();
    }
  }
  // The blocks of a step, for all threads: that of the later group, then that of the earlier one.
  // Those before are not looked at any more, or that one where there are two slots only.
  __device__ const double* first() {
    await();
    return present();
  }
  __device__ const double* second() {
    if constexpr (kTogether == 1) {
      await();
    }
    return present();
  }

 private:
  static constexpr int kTogether = Slots / 2;  // blocks that are copied while as many are used

  __device__ void await() {
    wait_for_copies<0>();
    __syncthreads();
    for (int i = 0; i < kTogether; ++i) {
      copy_next();
    }
  }
  __device__ const double* present() {
    const double* const block = slots_ + read_ * Block::kSize;
    read_ = read_ + 1 == Slots ? 0 : read_ + 1;
    return block;
  }
  __device__ void copy_next() {
    if (pass_ >= last_) {
      const double* const source = packed_ + passes_.block(pass_, half_, step_) * Block::kSize;
      double* const target = slots_ + written_ * Block::kSize;
      for (int x = 2 * static_cast<int>(threadIdx.x); x < Block::kSize;
           x += 2 * static_cast<int>(blockDim.x)) {
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
  int pass_, last_, step_ = 0;
  int half_ = 1;
  int written_ = 0, read_ = 0;
};

}  // namespace jaxmg::tile

#endif  // __CUDACC__
