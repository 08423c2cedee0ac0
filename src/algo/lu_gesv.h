// Solution of A x = b with a general A that has not been factored: half of the solution goes along
// with the factorisation.
//
// The forward sweep, Y U = B Q (lu_solve.h), needs of step k of the elimination (lu.h) nothing but
// tile k and the rows of U that are final after it. So each of its steps is put into the update
// lane behind that of the elimination. Its message has the next step's update to arrive, and no
// panel waits for it. The inverses of diagonal tiles are made there too. LAPACK: xGESV.
#pragma once

#include <limits>

#include "algo/lu.h"
#include "algo/lu_solve.h"
#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

// x (b on entry) <- A^-1 b on the form of b that the plan names; NaN if the factorisation failed.
// All else as of lu_factor.
template <class Device, class T>
void lu_gesv(Rank<Device>& rank, T* a, T* inverse, std::int32_t* pivots, Info* info, T* x) {
  if (rank.plan.eliminated_rhs() == 0) {
    lu_factor<Device, T>(rank, a, inverse, pivots, info);
    return lu_solve<Device, T>(rank, a, inverse, pivots, info, x);
  }
  auto& lane = rank.lanes.update;
  const Distribution dist = rank.plan.distribution();
  const int me = rank.comm.rank();
  const Size nrhs = rank.plan.request().nrhs;
  const bool whole = rank.plan.request().replicated_rhs;
  std::int32_t* const rows = pivots + dist.size();
  begin_lu_factor<Device, T>(rank, dist, a, inverse, info);
  LuSolve<Device, T> solve(rank, dist, a, inverse, rows, nrhs, whole, x);
  solve.begin();
  Lu<Device, T>(rank, dist, a, pivots, rows, info).run([&](Step k) {
    const Tile tile = dist.tile(k);
    if (inverse && tile.rank == me) {
      invert_lu_tile<Device, T>(rank, lane, lane, dist, tile.local, a, inverse);
    }
    solve.forward(k);
  });
  solve.backward();
  agree_on_lu_factor(rank, info);
  Device::template fill_if_failed<T>(lane, info, nrhs, whole ? dist.size() : dist.capacity(),
                                     T(std::numeric_limits<Real<T>>::quiet_NaN()), x, nrhs);
}

}  // namespace jaxmg
