// From an element type that is known when the program runs to a function for it.
#pragma once

#include <complex>
#include <stdexcept>

#include "core/dtype.h"

namespace jaxmg {

// visit.template operator()<T>() for the type of a matrix.
template <class Visit>
auto with_type(DType type, const Visit& visit) {
  switch (type) {
    case DType::f32:
      return visit.template operator()<float>();
    case DType::f64:
      return visit.template operator()<double>();
    case DType::c64:
      return visit.template operator()<std::complex<float>>();
    case DType::c128:
      return visit.template operator()<std::complex<double>>();
    case DType::i32:
      break;
  }
  throw std::logic_error("matrices have no such element type");
}

}  // namespace jaxmg
