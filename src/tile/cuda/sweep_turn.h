// The order of passes that run at once over the same columns.
#pragma once

#include <climits>

#include "core/types.h"
#include "tile/cuda/flags.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

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

}  // namespace jaxmg::tile

#endif  // __CUDACC__
