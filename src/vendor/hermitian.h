// What Hermitian matrices need before they are handed over.
#pragma once

#include "algo/mirror.h"
#include "core/plan.h"
#include "vendor/partner.h"

namespace jaxmg::vendor {

// Only `valid` holds data: the other triangle <- its conjugate transpose.
template <class D, class T>
void make_whole(Rank<D>& rank, Triangle valid, T* a) {
  if (valid != Triangle::whole) {
    const Uplo uplo = valid == Triangle::lower ? Uplo::lower : Uplo::upper;
    mirror_triangle<D, T>(rank, contiguous(rank), uplo, a);
  }
}

// Own diagonal elements <- their real parts: x / 2 + conj(x) / 2, exactly.
template <class D, class T>
void make_diagonal_real(Rank<D>& rank, T* a) {
  if constexpr (is_complex_v<T>) {
    auto& lane = rank.lanes.update;
    const Distribution dist = contiguous(rank);
    const int me = rank.comm.rank();
    const Size count = dist.local_size(me);
    const Size stride = dist.size() + 1;
    if (count > 0) {
      T* const diagonal = a + *dist.global(me, LocalIndex(0));
      T* const conjugate = rank.workspace.template get<T>(Buffer::send_staging);
      D::template transpose<T>(lane, 1, count, diagonal, stride, conjugate, count, true);
      D::template add<T>(lane, 1, count, T(Real<T>(-0.5)), diagonal, stride, diagonal, stride);
      D::template add<T>(lane, 1, count, T(Real<T>(0.5)), conjugate, 1, diagonal, stride);
    }
  }
}

}  // namespace jaxmg::vendor
