// Triangles without what shares their memory: a factor's other half holds something else.
#pragma once

#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"
#include "tile/device.h"

namespace jaxmg::tile {

// t (n x n, ld n) <- the lower triangle of a, or the transpose of the upper one, with zeros above
// it, and with ones on the diagonal if it is unit.
template <class T>
void copy_masked(CudaLane& lane, Uplo uplo, Diag diag, Size n, const T* a, Size lda, T* t) {
  const DeviceType<T>* from = on_device(a);
  DeviceType<T>* to = on_device(t);
  const DeviceType<T> zero = on_device_value(T(0));
  const DeviceType<T> one = on_device_value(T(1));
  const bool unit = diag == Diag::unit;
  if (uplo == Uplo::lower) {
    for_each(lane, n, n, [=] __device__(Size i, Size j) {
      to[i + j * n] = i < j ? zero : i == j && unit ? one : from[i + j * lda];
    });
  } else {
    for_each(lane, n, n, [=] __device__(Size i, Size j) {  // reads run along columns
      to[j + i * n] = i > j ? zero : i == j && unit ? one : from[i + j * lda];
    });
  }
}

}  // namespace jaxmg::tile
