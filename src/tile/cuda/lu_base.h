// LU factors of a few columns of any height, by one kernel whose blocks are all on the device at
// once: the base of the panel's recursion.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "core/status.h"
#include "core/types.h"

namespace jaxmg::tile {

class CudaLane;

// Columns that the base kernel takes from a panel of m rows; 0 if it cannot be used, since its
// blocks would not all find a place: the panel is too high, or others may hold places and wait for
// more of them as well.
template <class T>
int lu_base_width(const CudaLane& lane, Size m);

// What a panel of LU reports to, and the numbers of its first column there.
struct PanelReport {
  Size position;
  Size equation;
  Info* info;
  PanelReport after(Size columns) const { return {position + columns, equation + columns, info}; }
};

// LU factors of a (m x n, n <= width, m >= n) in place as Cuda::getrf says, with pivots counted
// from `first`, and x (n x n) <- the inverse of the unit lower triangle, zeros above it. A kernel
// whose blocks have waited too long for each other sets info to Kind::communication and gives up.
template <class T>
void lu_base(CudaLane& lane, int width, Size m, Size n, T* a, Size lda, Size first,
             std::int32_t* pivots, T* x, Size ldx, const PanelReport& report);

// Loads the kernels, which might wait for the device later on.
template <class T>
void load_lu_base(const CudaLane& lane);

// LU factors of a panel by halves of its columns down to bases of `width` columns, and the inverses
// that Cuda::getrf leaves. See lu_recursion.cu.
template <class T>
void lu_recursion(CudaLane& lane, int width, Size m, Size n, T* a, Size lda, Size first,
                  std::int32_t* pivots, T* x, Size ldx, const PanelReport& report);
// Scratch of the lane that it takes.
Size lu_recursion_bytes(DType type, Size n);

// Cuda::getrf by halves of columns down to a width that the vendor's library factors.
template <class T>
void getrf_by_library(CudaLane& lane, Size m, Size n, T* a, Size lda, Size first,
                      std::int32_t* pivots, T* inverse, Size ldi, const PanelReport& report);

}  // namespace jaxmg::tile
