// A panel whose QR one grid takes: how it is divided, and what the threads of a block and the
// blocks share. See householder_grid.cu.
#pragma once

#include "core/types.h"
#include "tile/cuda/reflector.h"
#include "tile/cuda/tagged.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

inline constexpr int kGridThreads = 256;
inline constexpr int kGridWarps = kGridThreads / 32;
inline constexpr int kGridSpans = 2;  // columns of a lane, at most
inline constexpr int kGridColumns = 32 * kGridSpans;
// Of threads that add up the blocks' sums.
inline constexpr int kGridGroups = kGridThreads / kGridColumns;
// Registers of a thread for its rows, at most.
inline constexpr int kGridRegisters = 128;

template <class D>
struct GridPanel {
  int m;
  int w;
  int k;
  D* a;
  Size lda;
  D* r;
  Size ldr;
  D* tau;
  Tagged<D>* sums;  // 2 x blocks x kGridColumns
  Tagged<D>* row;   // 2 x kGridColumns
};

template <class D, class R, int kRows>
struct GridMemory {
  D next[2][kGridWarps * kRows];  // the rows' elements of the present column and the next one
  D warps[kGridWarps][kGridColumns];
  D groups[kGridGroups][kGridColumns];
  D sums[kGridColumns];
  D row[kGridColumns];
  ReflectorScalars<D, R> scalars;
};

}  // namespace jaxmg::tile

#endif  // __CUDACC__
