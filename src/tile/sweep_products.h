// Reflectors of bulge chasing applied by matrix products, for devices and blocks that have no
// kernel of their own for it.
#pragma once

#include "tile/device.h"
#include "tile/eigen.h"

namespace jaxmg::tile {

// x <- x - W (V^H x) with W = V T, window by window. products: count x columns elements.
template <class Device, class T>
void apply_sweeps_by_products(typename Device::Lane& lane, const SweepBatch& batch, const T* packed,
                              Size columns, T* x, Size ldx, T* products) {
  const T* end = packed + batch.packed();
  for (Size i = batch.groups() - 1; i >= 0; --i) {
    const SweepGroup group = batch.group(i);
    const Size ld = group.window(), k = group.count;
    end -= group.packed();
    for (Size step = 0; step < group.steps(); ++step) {
      const T* const v = end + step * group.packed_step();
      T* const rows = x + group.window_begin(step);
      const Size m = group.window_rows(step);
      Device::template gemm<T>(lane, Op::conj_transpose, Op::none, k, columns, m, T(1), v, ld, rows,
                               ldx, T(0), products, k);
      Device::template gemm<T>(lane, Op::none, Op::none, m, columns, k, T(-1), v + ld * k, ld,
                               products, k, T(1), rows, ldx);
    }
  }
}

}  // namespace jaxmg::tile
