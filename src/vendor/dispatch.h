// From a call to its program by a vendor's library.
#pragma once

#include "algo/rank.h"
#include "ffi/operands.h"
#include "vendor/cholesky.h"

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
    default:
      break;
  }
  throw std::logic_error("no program of a vendor's library for this routine");
}

}  // namespace jaxmg::vendor
