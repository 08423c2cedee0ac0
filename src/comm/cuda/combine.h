// Kernels that combine what lies on several ranks, in rank order.
#pragma once

#include <array>

#include "comm/communicator.h"
#include "tile/cuda/lane.h"

namespace jaxmg::peers {

inline constexpr int kMaxRanks = 64;

// Where each rank's operand lies; passed to kernels by value.
struct Sources {
  std::array<const void*, kMaxRanks> data{};
  int size = 0;
};

// out[i] <- x_0[i] (op) x_1[i] (op) ...; out may be one of the sources. Complex values have sums
// only. Of extremes: a NaN is both the least and the largest of all values.
void reduce(tile::CudaLane& lane, const Sources& sources, Size count, DType type, Reduction op,
            void* out);

// *value <- the extreme of |value_r|, *location <- its location_r; the first one of equals.
void locate_extreme(tile::CudaLane& lane, const Sources& values, const Sources& locations,
                    DType type, Reduction op, void* value, std::int64_t* location);

// *info <- the Info of least severity, the first one of equals.
void least_severe(tile::CudaLane& lane, const Sources& infos, Info* info);

}  // namespace jaxmg::peers
