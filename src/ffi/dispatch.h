// From a call to its rank program: the routine and the element type become a function.
#pragma once

#include <stdexcept>
#include <type_traits>

#include "algo/cholesky.h"
#include "algo/cholesky_inverse.h"
#include "algo/cholesky_logdet.h"
#include "algo/cholesky_posv.h"
#include "algo/cholesky_solve.h"
#include "algo/cholesky_update.h"
#include "algo/cyclic.h"
#include "algo/first_failing_minor.h"
#include "algo/mirror.h"
#include "algo/rank.h"
#include "algo/triangular_solve.h"
#include "core/with_type.h"
#include "ffi/dispatch_eigen.h"
#include "ffi/dispatch_lu.h"
#include "ffi/dispatch_qr.h"
#include "ffi/operands.h"

namespace jaxmg {

template <class Device, class T>
void run_routine(Rank<Device>& rank, const CallKind& kind, const Operands& o) {
  const Plan& plan = rank.plan;
  const PlanRequest& q = plan.request();
  T* const matrix = static_cast<T*>(o.matrix);
  T* const saved_diagonal = static_cast<T*>(o.aux);
  T* const tile_inverse =
      saved_diagonal ? saved_diagonal + aux_count(q.n, q.ranks, plan.tile()) / 2 : nullptr;
  switch (q.routine) {
    case Routine::potrf:
      return cholesky_factor<Device, T>(rank, static_cast<Triangle>(kind.triangle), matrix,
                                        saved_diagonal, tile_inverse, o.info);
    case Routine::posv: {
      T* const x = static_cast<T*>(o.solution);
      return cholesky_posv<Device, T>(rank, static_cast<Triangle>(kind.triangle), matrix,
                                      saved_diagonal, tile_inverse, o.info, x);
    }
    case Routine::potrs: {
      T* const x = static_cast<T*>(o.solution);
      return cholesky_solve<Device, T>(rank, matrix, tile_inverse, o.info, x, x);
    }
    case Routine::logdet:
      return cholesky_logdet<Device, T>(rank, matrix, o.info, static_cast<Real<T>*>(o.scalar));
    case Routine::locate:
      return first_failing_minor<Device, T>(rank, matrix, saved_diagonal, o.info);
    case Routine::potri:
      return cholesky_inverse<Device, T>(rank, tile_inverse, o.info, matrix);
    case Routine::cyclic:
      return kind.inverse ? from_cyclic<Device, T>(rank, q.n, plan.tile(), q.columns, matrix)
                          : to_cyclic<Device, T>(rank, q.n, plan.tile(), q.columns, matrix);
    case Routine::getrf:
    case Routine::getrs:
    case Routine::getdet:
    case Routine::getri:
    case Routine::gesv:
      return run_lu_routine<Device, T>(rank, o);
    case Routine::geqrf:
    case Routine::ormqr:
    case Routine::orgqr:
    case Routine::qr_r:
    case Routine::geqrs:
    case Routine::gels:
      return run_qr_routine<Device, T>(rank, kind, o);
    case Routine::syevd:
      return run_eigen<Device, T>(rank, kind, o);
    case Routine::mirror:
      return mirror_triangle<Device, T>(rank, plan.distribution(Order::natural),
                                        kind.triangle == 0 ? Uplo::lower : Uplo::upper, matrix);
    case Routine::trsm: {
      constexpr Op ops[] = {Op::none, Op::transpose, Op::conj_transpose};
      const TriangularForm form = {kind.triangle == 0 ? Uplo::lower : Uplo::upper,
                                   ops[kind.transpose], kind.unit ? Diag::unit : Diag::non_unit};
      return triangular_solve<Device, T>(rank, form, matrix, static_cast<T*>(o.solution));
    }
    case Routine::cholupdate:
      return cholesky_update<Device, T>(rank, kind.downdate, matrix, tile_inverse,
                                        static_cast<const T*>(o.added), o.info);
  }
  throw std::logic_error("no rank program for this routine");
}

// Puts rank.plan's routine into the lanes of `rank`. Aliased operands must have been copied.
template <class Device>
void run_rank_program(Rank<Device>& rank, const CallKind& kind, const Operands& operands) {
  with_type(rank.plan.request().type,
            [&]<class T>() { run_routine<Device, T>(rank, kind, operands); });
}

}  // namespace jaxmg
