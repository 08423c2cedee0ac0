// log det A from its Cholesky factor: 2 sum log l_ii.
#pragma once

#include <limits>

#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

// *result (in the data's memory) <- log det A, on every rank; NaN if the factorisation failed.
// `dist` says where the factor's diagonal lies.
template <class Device, class T>
void cholesky_logdet(Rank<Device>& rank, const Distribution& dist, const T* l, const Info* info,
                     Real<T>* result) {
  using R = Real<T>;
  const int me = rank.comm.rank();
  auto& lane = rank.lanes.update;
  Device::template fill<R>(lane, 1, 1, R(0), R(0), result, 1);
  for (LocalTile t(0); *t < dist.local_tiles(me); ++t) {
    const Tile tile{me, t};
    Device::template log_diagonal<T>(lane, dist.rows(tile),
                                     l + *dist.begin(t) * dist.size() + *dist.global_begin(tile),
                                     dist.size(), result);
  }
  auto summed = rank.comm.all_reduce(lane, result, 1, dtype_of<R>, Reduction::sum);
  lane.wait(summed);
  Device::template fill_if_failed<R>(lane, info, 1, 1, std::numeric_limits<R>::quiet_NaN(), result,
                                     1);
}

template <class Device, class T>
void cholesky_logdet(Rank<Device>& rank, const T* l, const Info* info, Real<T>* result) {
  cholesky_logdet<Device, T>(rank, rank.plan.distribution(), l, info, result);
}

}  // namespace jaxmg
