// Whether the QR of a panel may go by way of its Gram matrices, as GPUs decide it.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

#include "core/status.h"
#include "tile/cpu/cpu.h"

namespace jaxmg::test {

template <class T>
void doubt_factor(Size n, const T* l, Size ldl, const Info* info, T* g) {
  using R = Real<T>;
  R most = 0, least = std::numeric_limits<R>::infinity();
  bool good = info->kind == 0;
  for (Size j = 0; j < n; ++j) {
    const R x = std::real(l[j * (ldl + 1)]);
    good = good && std::isfinite(x) && x > 0;
    most = std::max(most, x);
    least = std::min(least, x);
  }
  const R widest = std::is_same_v<R, float> ? R(100) : R(1e6);
  if (!good || !(most <= widest * least)) {
    *g = T(std::numeric_limits<R>::quiet_NaN());
  }
}

template <class T>
bool is_near_identity(Size n, const T* g, Size ldg) {
  bool near = true;
  for (Size j = 0; j < n; ++j) {
    for (Size i = j; i < n; ++i) {
      near = near && std::abs(g[i + j * ldg] - T(i == j ? 1 : 0)) <= Real<T>(0.1) / Real<T>(n);
    }
  }
  return near;
}

}  // namespace jaxmg::test
