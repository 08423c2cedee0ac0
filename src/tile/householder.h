// Householder reflectors of an orthonormal basis, without forming them one by one.
//
// Q (m x n) has orthonormal columns, Q1 is its top n x n block. There are a diagonal S of signs, Y
// (m x n) with a unit lower triangle Y1 on top, and upper triangular U, T with
//
//   Q - [S; 0] = Y U          elimination without pivoting, S chosen on the way
//   T = -U S Y1^-H            so that (I - Y T Y^H) [I; 0] S = Q
//
// No pivot is less than 1 in magnitude, which makes it as stable as Householder QR itself.
// Ballard, Demmel, Grigori, Jacquelin, Knight, Nguyen: Reconstructing Householder vectors from
// tall-skinny QR (2015).
#pragma once

#include <algorithm>

#include "core/dtype.h"
#include "core/types.h"
#include "tile/device.h"

namespace jaxmg {

// The first n rows of q (holding Q1) <- Y1 \ U, the m rows below them: C <- C inv(U).
template <class Device, class T>
void signed_lu_blocked(typename Device::Lane& lane, Size n, Size m, T* q, Size ldq,
                       Real<T>* signs) {
  for (Size j = 0; j < n; j += Device::lu_block) {
    const Size w = std::min(Device::lu_block, n - j);
    const Size rest = n - j - w;
    if (rest == 0 && j == 0) {
      return Device::template signed_lu<T>(lane, n, m, q, ldq, signs);
    }
    T* const diagonal = q + j + j * ldq;
    T* const below = diagonal + w;
    T* const right = diagonal + w * ldq;
    Device::template signed_lu<T>(lane, w, 0, diagonal, ldq, signs + j);
    Device::template trsm<T>(lane, Side::right, Uplo::upper, Op::none, Diag::non_unit, rest + m, w,
                             T(1), diagonal, ldq, below, ldq);
    Device::template trsm<T>(lane, Side::left, Uplo::lower, Op::none, Diag::unit, w, rest, T(1),
                             diagonal, ldq, right, ldq);
    Device::template gemm<T>(lane, Op::none, Op::none, rest + m, rest, w, T(-1), below, ldq, right,
                             ldq, T(1), below + w * ldq, ldq);
  }
}

// t <- T. q holds Y1 \ U, all are n x n.
template <class Device, class T>
void reflector_triangle(typename Device::Lane& lane, Size n, const T* q, Size ldq,
                        const Real<T>* signs, T* t, Size ldt) {
  Device::template fill<T>(lane, n, n, T(0), T(0), t, ldt);
  Device::template copy_triangle<T>(lane, Uplo::upper, Diag::non_unit, n, n, q, ldq, t, ldt);
  Device::template scale<T>(lane, n, n, nullptr, signs, t, ldt);
  Device::template trsm<T>(lane, Side::right, Uplo::lower, Op::conj_transpose, Diag::unit, n, n,
                           T(-1), q, ldq, t, ldt);
}

// q (holding Q1) <- Y1 \ U, t <- T, r <- S r. All n x n.
template <class Device, class T>
void reconstruct_reflectors(typename Device::Lane& lane, Size n, T* q, Size ldq, Real<T>* signs,
                            T* r, Size ldr, T* t, Size ldt) {
  signed_lu_blocked<Device, T>(lane, n, 0, q, ldq, signs);
  Device::template scale<T>(lane, n, n, signs, nullptr, r, ldr);
  reflector_triangle<Device, T>(lane, n, q, ldq, signs, t, ldt);
}

}  // namespace jaxmg
