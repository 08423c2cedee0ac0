// The rows of a panel in the registers of the threads that factor it, and what the threads of a
// block share. See lu_base.cu.
#pragma once

#include <cstdint>

#include "core/status.h"
#include "core/types.h"
#include "tile/cuda/lu_exchange.h"
#include "tile/cuda/lu_pivot.h"
#include "tile/cuda/scalar.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

inline constexpr int kLuBaseThreads = 512;  // more would leave each with too few registers
inline constexpr int kLuRowThreads = kLuBaseThreads - 32;  // the last warp has no rows
inline constexpr int kLuRowWarps = kLuRowThreads / 32;

// Rows of a thread, so that they fill about half of its registers.
template <class D, int kWidth>
inline constexpr int kLuRowsEach = kMostWords / (kWidth * kWords<D>);

template <class D>
struct LuBaseTask {
  D* a;
  Size lda;
  int rows;
  int columns;
  Size first;
  std::int32_t* pivots;
  D* x;
  Size ldx;
  LuMailbox* mail;
  Word tag;  // of column 0; the others follow
  Size position;
  Size equation;
  Info* info;
};

// What the threads of a block share.
template <class D, int kWidth>
struct LuBaseShared {
  Word high[kLuRowWarps], low[kLuRowWarps], place[kLuRowWarps];  // the best candidate of each warp
  D upper[kWidth][kWidth + 1];  // rows of pivots, as chosen: L and U
  D inverse[kWidth][kWidth + 1];
  D candidate[kWidth];
  Divisor<D> divisor;
  Word pivot_row[kWidth];  // as LAPACK numbers them: after the interchanges of earlier columns
  bool gave_up;
};

// The rows of a thread. Numbers stay where they are, in registers; what moves with each interchange
// is the place where a row belongs. At step j rows at places before j are eliminated, and rows that
// lie beyond the panel are at kOutside.
template <class D, int kWidth>
class LuBaseRows {
 public:
  static constexpr int kEach = kLuRowsEach<D, kWidth>;
  static constexpr int kOutside = -1;

  __device__ LuBaseRows(const LuBaseTask<D>& task, LuBaseShared<D, kWidth>& shared)
      : shared_(shared) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const int row = static_cast<int>(blockIdx.x) * kLuRowThreads * kEach + r * kLuRowThreads +
                      static_cast<int>(threadIdx.x);
      place_[r] = row < task.rows ? row : kOutside;
      const D* from = task.a + row;
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        a_[r][c] = row < task.rows && c < task.columns ? *from : D{};
        next_column(from, task.lda);
      }
    }
  }

  // The best row of column j in each warp; of equal ones the first as they lie by now.
  __device__ void vote(int j) {
    Candidate best;
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      const Candidate row = {weight_of(a_[r][j]), static_cast<Word>(place_[r])};
      if (place_[r] >= j && comes_before(row, best)) {
        best = row;
      }
    }
    best = best_of_warp<kTwoWords<D>>(best);
    if (lane_index() == 0) {
      const unsigned warp = threadIdx.x / 32;
      shared_.high[warp] = best.weight.high;
      shared_.low[warp] = best.weight.low;
      shared_.place[warp] = best.place;
    }
  }

  // What step j - 1 does to the columns from j + 1 on: column j could not wait.
  __device__ void catch_up(int j) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
#pragma unroll
      for (int c = j + 1; c < kWidth; ++c) {
        a_[r][c] = minus_product(a_[r][c], l_[r], shared_.upper[j - 1][c]);
      }
    }
  }

  // Whether this warp has the row at a place, which is then where others can see it; kNoRow: none.
  __device__ bool show(Word place) {
    bool mine = false;
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      if (place_[r] >= 0 && static_cast<Word>(place_[r]) == place) {
        mine = true;
#pragma unroll
        for (int c = 0; c < kWidth; ++c) {
          shared_.candidate[c] = a_[r][c];
        }
      }
    }
    const bool found = __any_sync(~0u, mine) != 0;
    __syncwarp();
    return found;
  }

  // The interchange of step j, column j <- multipliers, and its step for the next column.
  __device__ void eliminate(int j) {
    const Divisor<D> by = shared_.divisor;
    const int chosen = static_cast<int>(shared_.pivot_row[j]);
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      place_[r] = place_[r] == chosen ? j : place_[r] == j ? chosen : place_[r];
      const bool active = place_[r] > j;
      l_[r] = active ? times(a_[r][j], by.scale) * by.inverse : D{};
      a_[r][j] = active ? l_[r] : a_[r][j];
      if (j + 1 < kWidth) {
        a_[r][j + 1] = minus_product(a_[r][j + 1], l_[r], shared_.upper[j][j + 1]);
      }
    }
  }

  // Each row to its place after all interchanges.
  __device__ void store(const LuBaseTask<D>& task) {
#pragma unroll
    for (int r = 0; r < kEach; ++r) {
      if (place_[r] == kOutside) {
        continue;
      }
      D* out = task.a + place_[r];
#pragma unroll
      for (int c = 0; c < kWidth; ++c) {
        if (c < task.columns) {
          *out = a_[r][c];
        }
        next_column(out, task.lda);
      }
    }
  }

 private:
  LuBaseShared<D, kWidth>& shared_;
  D a_[kEach][kWidth];
  D l_[kEach];
  int place_[kEach];
};

}  // namespace jaxmg::tile

#endif  // __CUDACC__
