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
  // Passes top, top - 1, ... over `columns` sets of columns, of which this is one.
  __device__ PassTurn(const PassFlags& flags, int pass, int top, int columns, int column)
      : flags_(flags), own_(pass * columns + column), before_(pass < top ? own_ + columns : -1) {}

  // Until the pass before has done so many steps.
  __device__ void await(int steps) {
    if (flags_.done != nullptr && before_ >= 0 && seen_ < steps) {
      if (threadIdx.x % 32 == 0) {
        seen_ = wait_for(flags_.done + before_, steps, flags_.failed);
      }
      seen_ = __shfl_sync(~0u, seen_, 0);
    }
  }
  // What the block has stored in these steps, all threads having met since, is there to be read.
  __device__ void tell(int steps) const {
    if (flags_.done != nullptr && threadIdx.x == 0) {
      store_release(flags_.done + own_, steps);
    }
  }
  __device__ void finish() const {
    if (flags_.done != nullptr) {
      __syncthreads();
      tell(INT_MAX);
    }
  }

 private:
  const PassFlags& flags_;
  int own_, before_;
  int seen_ = 0;
};

}  // namespace jaxmg::tile

#endif  // __CUDACC__
