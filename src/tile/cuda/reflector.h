// The scalars of a Householder reflector inside kernels.
#pragma once

#include "tile/cuda/scalar.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// (I - tau v v^H)^H x = beta e_0, v = (1, scale x_1, scale x_2, ...), beta real.
template <class D, class R>
struct ReflectorScalars {
  D tau;
  D scale;
  R beta;
};

// alpha = x_0, tail = |x_1|^2 + |x_2|^2 + ...; smallest: see kLeastSquare in tile/eigen.h.
template <class D, class R>
__device__ ReflectorScalars<D, R> reflector_scalars(D alpha, R tail, R smallest) {
  const R imaginary = imaginary_part(alpha);
  if (tail + imaginary * imaginary <= smallest) {
    return {element<D>(R{0}), element<D>(R{0}), real_part(alpha)};
  }
  const R norm = sqrt(square(alpha) + tail);
  const R beta = real_part(alpha) > R{0} ? -norm : norm;
  const D difference = alpha - element<D>(beta);
  return {element<D>(R{-1} / beta) * difference, reciprocal(difference), beta};
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
