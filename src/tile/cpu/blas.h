// The BLAS and LAPACK routines that the CPU tiles stand on, as one overload set over the four
// element types. Sizes are checked on their way to the library's 32-bit integers.
//
// Each call runs on the calling thread alone: the engine's pool does the spreading, and the copy of
// OpenBLAS that is linked is private to the engine.
#pragma once

#include <complex>

#include "core/dtype.h"
#include "core/types.h"
#include "tile/device.h"

namespace jaxmg::tile::blas {

// c <- alpha op(a) op(b) + beta c
template <class T>
void gemm(Op op_a, Op op_b, Size m, Size n, Size k, T alpha, const T* a, Size lda, const T* b,
          Size ldb, T beta, T* c, Size ldc);

// y <- alpha op(a) x + beta y; a is m x n
template <class T>
void gemv(Op op, Size m, Size n, T alpha, const T* a, Size lda, const T* x, Size incx, T beta, T* y,
          Size incy);

// b <- alpha inv(op(a)) b or alpha b inv(op(a))
template <class T>
void trsm(Side side, Uplo uplo, Op op, Diag diag, Size m, Size n, T alpha, const T* a, Size lda,
          T* b, Size ldb);

// Lower triangle of c (n x n) <- alpha a a^H + beta c; a is n x k. The imaginary parts of the
// diagonal come out as zero.
template <class T>
void herk(Size n, Size k, Real<T> alpha, const T* a, Size lda, Real<T> beta, T* c, Size ldc);

// Lower Cholesky factor in place. Returns LAPACK's info; a NaN may pass unnoticed.
template <class T>
int potrf(Size n, T* a, Size lda);

// LU factors of an m x n matrix in place; row j was exchanged with row pivots_j (from 1). Returns
// LAPACK's info.
template <class T>
int getrf(Size m, Size n, T* a, Size lda, int* pivots);

// Householder reflectors of a (m x n) below its triangle R, their factors in tau: LAPACK's xGEQRF.
template <class T>
void geqrf(Size m, Size n, T* a, Size lda, T* tau);

// The first n columns of the product of the n reflectors that geqrf left in a: xORGQR, xUNGQR.
template <class T>
void orgqr(Size m, Size n, T* a, Size lda, const T* tau);

// QR of a (m x n) by blocks of nb columns: Householder vectors below the diagonal, R on and above
// it, the triangles T of the blocks side by side in t (nb rows). work holds nb n elements.
template <class T>
void geqrt(Size m, Size n, Size nb, T* a, Size lda, T* t, Size ldt, T* work);

}  // namespace jaxmg::tile::blas
