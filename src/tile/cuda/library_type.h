// The vendor libraries' names of element types: as values, and as C types of the same layout.
#pragma once

#include <cuComplex.h>
#include <library_types.h>

#include <complex>
#include <stdexcept>

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
    case DType::c128:
      return CUDA_C_64F;
    case DType::i32:
      break;
  }
  throw std::logic_error("the libraries compute with no such element type");
}

template <class T>
struct LibraryTypeOf {
  using type = T;
};
template <>
struct LibraryTypeOf<std::complex<float>> {
  using type = cuComplex;
};
template <>
struct LibraryTypeOf<std::complex<double>> {
  using type = cuDoubleComplex;
};
template <class T>
using LibraryType = typename LibraryTypeOf<T>::type;

// An operand as functions of cuBLAS and cuSOLVER for one element type take it.
template <class T>
LibraryType<T>* for_library(T* p) {
  return reinterpret_cast<LibraryType<T>*>(p);
}
template <class T>
const LibraryType<T>* for_library(const T* p) {
  return reinterpret_cast<const LibraryType<T>*>(p);
}

}  // namespace jaxmg::tile
