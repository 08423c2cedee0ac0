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
  using Block = SweepBlock<Q, Complex>;
  static constexpr std::size_t kBytes =
      static_cast<std::size_t>(Slots) * Block::kSize * sizeof(double);

  __device__ SweepRing(const SweepPasses& passes, Size pass, Size last, const double* packed,
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

}  // namespace jaxmg::tile

#endif  // __CUDACC__
