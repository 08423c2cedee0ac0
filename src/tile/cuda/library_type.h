// The vendor libraries' names of element types.
#pragma once

#include <library_types.h>

#include "core/dtype.h"

namespace jaxmg::tile {

constexpr cudaDataType_t library_type(DType type) {
  switch (type) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::f64:
      return CUDA_R_64F;
    case DType::c64:
      return CUDA_C_32F;
    default:
      return CUDA_C_64F;
  }
}

}  // namespace jaxmg::tile
