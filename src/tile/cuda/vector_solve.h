// The solution of a triangular system with one right-hand side.
#pragma once

#include "tile/cuda/cuda.h"

namespace jaxmg::tile {

// b <- b inv(op(A)), a row of n elements `stride` apart, with the triangle `uplo` of a, whose other
// half is not read, and x the inverse of the lower triangle A, or of A^T if A is an upper one (op
// is then none or transpose). work: n elements. Uses as much of the lane's scratch.
template <class T>
void solve_vector(CudaLane& lane, Uplo uplo, Op op, Diag diag, Size n, const T* a, Size lda,
                  const T* x, Size ldx, T* b, Size stride, T* work);

}  // namespace jaxmg::tile
