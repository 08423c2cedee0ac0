// The solution of a triangular system with one right-hand side.
#pragma once

#include "tile/cuda/cuda.h"

namespace jaxmg::tile {

// b <- b inv(op(L)), a row of n elements `stride` apart; x: the inverse of the lower triangle L.
// What is above L's diagonal is not read. work: n elements. Uses as much of the lane's scratch.
template <class T>
void solve_vector(CudaLane& lane, Op op, Size n, const T* l, Size ldl, const T* x, Size ldx, T* b,
                  Size stride, T* work);

}  // namespace jaxmg::tile
