// The rank programs of the QR family.
#pragma once

#include <stdexcept>

#include "algo/gram_least_squares.h"
#include "algo/qr.h"
#include "algo/qr_form.h"
#include "algo/qr_solve.h"
#include "algo/rank.h"
#include "ffi/operands.h"

namespace jaxmg {

template <class Device, class T>
void run_qr_routine(Rank<Device>& rank, const CallKind& kind, const Operands& o) {
  T* const matrix = static_cast<T*>(o.matrix);
  T* const aux = static_cast<T*>(o.aux);
  T* const result = static_cast<T*>(o.solution);
  T* const triangle = static_cast<T*>(o.triangular);
  const T* const rhs = static_cast<const T*>(o.right_hand_side);
  switch (kind.request.routine) {
    case Routine::geqrf:
      return qr_factor<Device, T>(rank, matrix, aux, o.info);
    case Routine::orgqr:
      return qr_form<Device, T>(rank, matrix, aux, o.info, kind.request.nrhs, result, triangle);
    case Routine::qr_r:
      return qr_triangle<Device, T>(rank, matrix, o.info, triangle);
    case Routine::ormqr:
      return qr_multiply<Device, T>(rank, kind.adjoint, matrix, aux, o.info, rhs, result);
    case Routine::geqrs:
      return qr_solve<Device, T>(rank, kind.adjoint, matrix, aux, o.info, rhs, result, o.report);
    case Routine::gels:
      return gram_least_squares<Device, T>(rank, matrix, rhs, result, o.info);
    default:
      throw std::logic_error("no rank program for this routine");
  }
}

}  // namespace jaxmg
