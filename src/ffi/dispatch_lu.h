// Rank programs of the LU family.
#pragma once

#include <stdexcept>

#include "algo/lu.h"
#include "algo/lu_det.h"
#include "algo/lu_gesv.h"
#include "algo/lu_inverse.h"
#include "algo/lu_solve.h"
#include "algo/rank.h"
#include "ffi/operands.h"

namespace jaxmg {

template <class Device, class T>
void run_lu_routine(Rank<Device>& rank, const Operands& o) {
  T* const matrix = static_cast<T*>(o.matrix);
  const bool inverts = lu_inverts(rank.plan.request());
  T* const inverse = inverts ? static_cast<T*>(o.aux) : nullptr;
  if (factors_by_lu(rank.plan.routine()) && !inverts) {
    const Size count = lu_aux_count(rank.plan.request(), rank.plan.tile());
    Device::template fill<T>(rank.lanes.update, count, 1, T(0), T(0), static_cast<T*>(o.aux),
                             count);
  }
  switch (rank.plan.routine()) {
    case Routine::gesv:
      return lu_gesv<Device, T>(rank, matrix, inverse, o.pivots, o.info,
                                static_cast<T*>(o.solution));
    case Routine::getrf:
      return lu_factor<Device, T>(rank, matrix, inverse, o.pivots, o.info);
    case Routine::getrs:
      return lu_solve<Device, T>(rank, matrix, inverse, o.pivots, o.info,
                                 static_cast<T*>(o.solution));
    case Routine::getdet:
      return lu_determinant<Device, T>(rank, matrix, o.pivots, o.info, static_cast<T*>(o.phase),
                                       static_cast<Real<T>*>(o.scalar));
    case Routine::getri:
      return lu_inverse<Device, T>(rank, o.pivots, o.info, matrix);
    default:
      throw std::logic_error("no LU routine");
  }
}

}  // namespace jaxmg
