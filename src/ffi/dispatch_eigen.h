// From a call to the rank program of the eigensolver.
#pragma once

#include <stdexcept>

#include "algo/eigen.h"
#include "algo/rank.h"
#include "ffi/operands.h"

namespace jaxmg {

template <class Device, class T>
void run_eigen(Rank<Device>& rank, const CallKind& kind, const Operands& o) {
  if constexpr (Device::solves_eigenproblems) {
    const PlanRequest& q = rank.plan.request();
    syevd<Device, T>(rank, static_cast<Triangle>(kind.triangle), {q.vectors, kind.first, q.columns},
                     static_cast<T*>(o.matrix), static_cast<Real<T>*>(o.values),
                     static_cast<T*>(o.vectors), o.info);
  } else {
    throw std::logic_error("no eigensolver for this device");
  }
}

}  // namespace jaxmg
