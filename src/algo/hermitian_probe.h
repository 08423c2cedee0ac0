// Is a matrix Hermitian, and finite? One random vector tells a single valid triangle, or any other
// gross departure, at the cost of reading A once.
#pragma once

#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

// Relative mismatch above which A is not Hermitian. Rounding, also in lower precision, stays far
// below; a matrix with one valid triangle is far above.
inline constexpr double kHermitianThreshold = 1e-3;

// Sets *info to non_finite or not_hermitian (the same on all ranks) and leaves it else.
//
//   y = A v,  z = A^H v   for a real random v with |v_i| < 1 / n, so that sums cannot overflow;
//   max |y - z| > threshold max |y|  =>  not Hermitian
//
// With M = A^T (see cholesky.h), rank by rank: y_own = M_own^T v, conj(z) = sum of M_own v_own.
template <class Device, class T>
void hermitian_probe(Rank<Device>& rank, const Distribution& dist, const T* a, Info* info) {
  const Size n = dist.size();
  if (n == 0) {
    return;
  }
  const int me = rank.comm.rank();
  Watch watch(rank.observer, me, Observer::Task::probe, 0, 1);
  auto& lane = rank.lanes.update;
  const Size own = dist.local_size(me);
  const Size first = *dist.global(me, LocalIndex(0));
  T* const v = rank.workspace.template get<T>(Buffer::probe_vector);
  T* const y = rank.workspace.template get<T>(Buffer::probe_product);
  T* const z = rank.workspace.template get<T>(Buffer::probe_transpose);
  Real<T>* const result = rank.workspace.template get<Real<T>>(Buffer::probe_result);

  Device::template random_vector<T>(lane, n, 0, Real<T>(1) / static_cast<Real<T>>(n), v);
  const T* const v_own = v + (own > 0 ? first : 0);
  Device::template fill<T>(lane, n, 1, T(0), T(0), z, n);
  // No panel has been made yet.
  T* const panel = rank.workspace.template get<T>(Buffer::panel_even);
  Device::template multiply_both<T>(lane, n, own, a, n, v, v_own, y, z, panel,
                                    rank.workspace.count(Buffer::panel_even));
  auto summed = rank.comm.all_reduce(lane, z, n, dtype_of<T>, Reduction::sum);
  lane.wait(summed);

  Device::template fill<Real<T>>(lane, 3, 1, Real<T>(0), Real<T>(0), result, 3);
  if (own > 0) {
    Device::template check_hermitian<T>(lane, own, a + first, n + 1, v_own, y, z + first, result);
  }
  auto joined = rank.comm.all_reduce(lane, result, 3, dtype_of<Real<T>>, Reduction::max);
  lane.wait(joined);
  Device::template judge_hermitian<Real<T>>(lane, result, Real<T>(kHermitianThreshold), info);
}

}  // namespace jaxmg
