// What the threads of a block that takes a sweep of bulge chasing share, and what the blocks tell
// each other. See chase.cu.
#pragma once

#include <limits>

#include "core/types.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

inline constexpr int kChaseGroups = 4;  // of columns
// Warps beside those of the rows: none where elements are so large that they would take registers
// from these that there are not.
template <class D, int B>
inline constexpr int kChaseHelpers = sizeof(D) > 8 && B > 32 ? 0 : 2;
inline constexpr int kAllDone = std::numeric_limits<int>::max();

// What blocks tell each other: the next sweep to be taken, whether one has given up, and the steps
// that each sweep has done.
struct ChaseFlags {
  int* ticket;
  int* failed;
  int* done;
};

// A sweep that a block has drawn.
struct DrawnSweep {
  int number;
  Size sweep;
  int steps;
};

// What the threads of a block share. B rows at most, in B / 32 halves.
template <class D, int B>
struct alignas(16) ChaseMemory {
  static constexpr int kHalves = B / 32;
  static constexpr int kParts = kChaseGroups;
  D v[B];                          // the last reflector
  D x[B];                          // the column that becomes the next one
  D below[kParts][B];              // parts of the block below times v
  D diagonal[kParts][B];           // parts of the diagonal block's lower triangle times v
  D below_columns[kHalves][B];     // parts of v^H times the block below
  D diagonal_columns[kHalves][B];  // parts of the strict upper triangle times v
  D w[kParts * kHalves][B];        // a copy for each warp
  D last_row[2][B];                // of the diagonal block, in even and odd steps
  D last_below[2];                 // the only element of that row in the block below
  int heard;                       // steps whose last rows have been fetched
  int finished;                    // steps that are done
};

}  // namespace jaxmg::tile

#endif  // __CUDACC__
