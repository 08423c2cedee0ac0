// Elements of other lanes of a warp.
#pragma once

#include "tile/cuda/scalar.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

template <class R>
__device__ R from_lane(R x, int lane) {
  return __shfl_sync(~0u, x, lane);
}
template <class R>
__device__ DeviceComplex<R> from_lane(DeviceComplex<R> x, int lane) {
  return {from_lane(x.re, lane), from_lane(x.im, lane)};
}

template <class R>
__device__ R exchange(R x, int mask) {
  return __shfl_xor_sync(~0u, x, mask);
}
template <class R>
__device__ DeviceComplex<R> exchange(DeviceComplex<R> x, int mask) {
  return {exchange(x.re, mask), exchange(x.im, mask)};
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
