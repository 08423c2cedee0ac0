// From a call to its program by a vendor's library.
#pragma once

#include "algo/rank.h"
#include "ffi/operands.h"
#include "vendor/cholesky.h"
#include "vendor/eigen.h"
#include "vendor/lu.h"

namespace jaxmg::vendor {

template <class Device, class T>
void run_routine(Rank<Device>& rank, Session& session, const CallKind& kind, const Operands& o) {
  T* const matrix = static_cast<T*>(o.matrix);
  switch (rank.plan.routine()) {
    case Routine::potrf:
      return potrf<Device, T>(rank, session, static_cast<Triangle>(kind.triangle), matrix, o.info);
    case Routine::potrs:
      return potrs<Device, T>(rank, session, matrix, o.info, static_cast<T*>(o.solution));
    case Routine::logdet:
      return logdet<Device, T>(rank, matrix, o.info, static_cast<Real<T>*>(o.scalar));
    case Routine::potri:
      return potri<Device, T>(rank, session, o.info, matrix);
    case Routine::getrf:
      return getrf<Device, T>(rank, session, matrix, static_cast<T*>(o.aux), o.pivots, o.info);
    case Routine::getrs:
      return getrs<Device, T>(rank, session, matrix, static_cast<const T*>(o.aux), o.pivots, o.info,
                              static_cast<T*>(o.solution));
    case Routine::syevd:
      return syevd<Device, T>(rank, session, static_cast<Triangle>(kind.triangle), kind.first,
                              matrix, static_cast<Real<T>*>(o.values), static_cast<T*>(o.vectors),
                              o.info);
    default:
      break;
  }
  throw std::logic_error("no program of a vendor's library for this routine");
}

}  // namespace jaxmg::vendor
