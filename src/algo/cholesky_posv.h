// Solution of A X = B with a Hermitian positive definite A that has not been factored: half of the
// solution goes along with the factorisation.
//
// Substitution with a distributed factor is a chain of messages, one for each tile, in both sweeps,
// and each of them waits for the one before. The first sweep, Y = B^T L^-H, needs none of them if
// B^T is eliminated with the matrix (cholesky.h): its rows travel in the panels. LAPACK: xPOSV.
#pragma once

#include <limits>

#include "algo/cholesky.h"
#include "algo/cholesky_solve.h"
#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

// x (b on entry) <- A^-1 b on the form of b that the plan names; NaN if the factorisation failed.
// All else as of cholesky_factor.
template <class Device, class T>
void cholesky_posv(Rank<Device>& rank, Triangle valid, T* a, T* saved_diagonal, T* tile_inverse,
                   Info* info, T* x) {
  const Size nrhs = rank.plan.request().nrhs;
  if (rank.plan.eliminated_rhs() == 0) {
    cholesky_factor<Device, T>(rank, valid, a, saved_diagonal, tile_inverse, info);
    return cholesky_solve<Device, T>(rank, a, tile_inverse, info, x, x);
  }
  const Distribution dist = rank.plan.distribution();
  const int me = rank.comm.rank();
  const bool whole = rank.plan.request().replicated_rhs;
  const bool holds_rows = dist.local_size(me) > 0;
  T* const mine = whole && holds_rows ? x + *dist.global(me, LocalIndex(0)) * nrhs : x;
  cholesky_factor<Device, T>(rank, valid, a, saved_diagonal, tile_inverse, info,
                             EliminatedRhs<T>{mine, nrhs});
  CholeskySolve<Device, T>(rank, dist, a, tile_inverse, x).run_backward();
  Device::template fill_if_failed<T>(rank.lanes.update, info, nrhs,
                                     whole ? dist.size() : dist.capacity(),
                                     T(std::numeric_limits<Real<T>>::quiet_NaN()), x, nrhs);
}

}  // namespace jaxmg
