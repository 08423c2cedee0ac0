// Numbers as sums of two half-precision ones, whose products run on tensor cores: which element
// types have them, and how much room a panel of them takes. See tile/cuda/split.cu.
#pragma once

#include "core/dtype.h"

namespace jaxmg {

constexpr bool has_parts(DType t) {
  return t == DType::f32 || t == DType::c64;
}

// Columns of the parts of a panel begin at multiples of 16 bytes.
constexpr Size parts_ld(Size rows) {
  return round_up(rows, 8);
}

// Halves for each number of a panel. Of Cholesky: a real one gives [hi, lo, hi, hi], three of which
// are either factor of a product; a complex one has two rows and two columns in the one factor, two
// columns in the other, three times each.
constexpr Size cholesky_halves(DType t) {
  return t == DType::c64 ? 3 * (4 + 2) : 4;
}
// Whether long panels of Cholesky factors on GPUs are made by products by parts, too, which takes
// room for those of half a panel: runs of so many columns are made with numbers as they are, and
// complex panels wait for other things.
constexpr Size kNativeRun = 256;
constexpr bool makes_panels_by_parts(DType t, Size tile) {
  return t == DType::f32 && tile > kNativeRun;
}
// Of LU: the factor L.
constexpr Size lower_halves(DType t) {
  return t == DType::c64 ? 3 * 4 : 4;
}
// And what is multiplied by it.
constexpr Size upper_halves(DType t) {
  return t == DType::c64 ? 3 * 2 : 3;
}

}  // namespace jaxmg
