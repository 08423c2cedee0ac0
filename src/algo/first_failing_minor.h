// LAPACK's answer to "which leading minor of A is not positive definite", after a factorisation in
// another elimination order has failed.
#pragma once

#include "algo/cholesky.h"

namespace jaxmg {

// work: what cholesky_factor left; its untouched half and the saved diagonal tiles hold A.
// *info <- (not_positive_definite, 1-based index in the user's order); the same on all ranks. work
// is destroyed. Only for calls whose *info says not_positive_definite.
//
// A is put together again and factored in natural order: one rank after the other, so slowly, but
// only after a failure. Should that order succeed by rounding, the last minor is named.
template <class Device, class T>
void first_failing_minor(Rank<Device>& rank, T* work, const T* saved_diagonal, Info* info) {
  auto& lane = rank.lanes.update;
  mirror_elimination<Device, T>(rank, rank.plan.distribution(), saved_diagonal, work);
  const Distribution natural = rank.plan.distribution(Order::natural);
  Device::reset(lane, info);
  Cholesky<Device, T>(rank, natural, work, nullptr, info).run();
  Device::set_phase(lane, Phase::natural_order, rank.comm.rank(), info);
  auto agreed = rank.comm.agree(lane, info);
  lane.wait(agreed);
  Device::set_if_ok(lane, Kind::not_positive_definite, natural.size(), info);
  Device::set_phase(lane, Phase::natural_order, 0, info);  // of the case just above
}

}  // namespace jaxmg
