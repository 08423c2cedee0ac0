// What the blocks of a grid that takes the QR of a panel tell each other for each column: their
// sums, and the row of the pivot. See householder_grid.cu.
#pragma once

#include <cstdint>

#include "tile/cuda/householder_grid_memory.h"
#include "tile/cuda/shuffle.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// Reads of a thread under way: what registers are left for beside kHeld elements of its rows.
template <class D, int kHeld>
struct GridReads {
  static constexpr int rows = kHeld * Tagged<D>::kWords;
  static constexpr int fitting = (rows > kGridRegisters / 2 ? 32 : 64) / (2 * Tagged<D>::kWords);
  static constexpr int count = fitting < 16 ? fitting : 16;
};

inline constexpr int kMostGridPolls = 1 << 21;  // more than a second

// The sum over blocks first, first + kGridGroups, ... of what they tell of a column. False if it
// did not come.
template <class D, int kHeld>
__device__ bool collect_sums(const Tagged<D>* sums, int first, int blocks, std::uint32_t tag,
                             D& sum) {
  constexpr int reads = GridReads<D, kHeld>::count;
  for (int begin = first; begin < blocks; begin += reads * kGridGroups) {
    Tagged<D> found[reads];
    bool all = false;
    for (int polls = 0; !all; ++polls) {
      if (polls == kMostGridPolls) {
        return false;
      }
      all = true;
#pragma unroll
      for (int i = 0; i < reads; ++i) {
        const int block = begin + i * kGridGroups;
        if (block < blocks) {
          found[i] = look(sums + static_cast<Size>(block) * kGridColumns);
        }
      }
#pragma unroll
      for (int i = 0; i < reads; ++i) {
        all = all && (begin + i * kGridGroups >= blocks || has_tag(found[i], tag));
      }
    }
#pragma unroll
    for (int i = 0; i < reads; ++i) {
      if (begin + i * kGridGroups < blocks) {
        sum = sum + value_of(found[i]);
      }
    }
  }
  return true;
}

// Tells the others this block's sums for column j, and reads theirs, row j and what they make of
// column j into shared memory. False if a block is missing.
template <class D, class R, int kRows, int kSpans>
__device__ bool exchange_sums(const GridPanel<D>& p, GridMemory<D, R, kRows>& shared, int j,
                              R smallest) {
  const int column = static_cast<int>(threadIdx.x) % kGridColumns;
  const int group = static_cast<int>(threadIdx.x) / kGridColumns;
  const int blocks = static_cast<int>(gridDim.x);
  const auto tag = static_cast<std::uint32_t>(j + 1);
  const int turn = j & 1;
  Tagged<D>* const sums = p.sums + static_cast<Size>(turn) * blocks * kGridColumns + column;
  const bool of_use = column >= j && column < p.w;
  D sum = element<D>(R{0});
  if (group == 0 && of_use) {
#pragma unroll 4
    for (int warp = 0; warp < kGridWarps; ++warp) {
      sum = sum + shared.warps[warp][column];
    }
    put(sums + static_cast<Size>(blockIdx.x) * kGridColumns, sum, tag);
    sum = element<D>(R{0});
  }
  bool here = true;
  if (of_use) {
    here = collect_sums<D, kRows * kSpans>(sums, group, blocks, tag, sum);
    if (group == kGridGroups - 1 && here) {
      const Tagged<D>* const row = p.row + turn * kGridColumns + column;
      Tagged<D> found = look(row);
      for (int polls = 0; !has_tag(found, tag) && polls < kMostGridPolls; ++polls) {
        found = look(row);
      }
      here = has_tag(found, tag);
      shared.row[column] = value_of(found);
    }
    shared.groups[group][column] = sum;
  }
  if (__syncthreads_or(here ? 0 : 1) != 0) {
    return false;
  }
  if (group == 0) {
    sum = element<D>(R{0});
    if (of_use) {
#pragma unroll 4
      for (int g = 0; g < kGridGroups; ++g) {
        sum = sum + shared.groups[g][column];
      }
      shared.sums[column] = sum;
    }
    if (column / 32 == j / 32) {  // a warp, for all others
      const ReflectorScalars<D, R> scalars =
          reflector_scalars(shared.row[j], real_part(from_lane(sum, j & 31)), smallest);
      if (column % 32 == 0) {
        shared.scalars = scalars;
      }
    }
  }
  __syncthreads();
  return true;
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
