// Bisection, and numbers on their way between the types.
#include <algorithm>
#include <cmath>

#include "tile/cpu/cpu.h"
#include "tile/cpu/spread.h"
#include "tile/sturm.h"

namespace jaxmg::tile {
void Cpu::bisect(Lane& lane, Size n, const double* d, const double* e2, double low, double high,
                 double tolerance, Size first, Size count, double* w, void*) {
  const double least = least_pivot(n, e2);
  const double steps = std::max(1.0, std::log2(std::max(1.0, (high - low) / tolerance)));
  spread(lane, 0, ceil_div(count, Size{kSturmWidth}), 40 * steps * static_cast<double>(n),
         [&](Size chunk) {
           double found[kSturmWidth];
           const Size begin = chunk * kSturmWidth;
           sturm_bisect(n, d, e2, low, high, tolerance, least, first + begin, found);
           std::copy_n(found, std::min<Size>(kSturmWidth, count - begin), w + first + begin);
         });
}

template <class R>
void Cpu::to_host(Lane&, Size n, const R* src, double* dst) {
  std::copy_n(src, n, dst);
}

template <class R>
void Cpu::from_host(Lane&, Size m, Size n, const double* src, Size lds, R* dst, Size ldd) {
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < m; ++i) {
      dst[i + j * ldd] = static_cast<R>(src[i + j * lds]);
    }
  }
}

template <class R>
void Cpu::gather_rows(Lane& lane, Size m, const Size* index, Size n, const R* src, Size lds, R* dst,
                      Size ldd, void*) {
  spread(lane, 0, n, 4 * static_cast<double>(m), [&](Size j) {
    for (Size i = 0; i < m; ++i) {
      dst[i + j * ldd] = src[index[i] + j * lds];
    }
  });
}

#define JAXMG_INSTANTIATE(R)                                                                  \
  template void Cpu::to_host<R>(Lane&, Size, const R*, double*);                              \
  template void Cpu::from_host<R>(Lane&, Size, Size, const double*, Size, R*, Size);          \
  template void Cpu::gather_rows<R>(Lane&, Size, const Size*, Size, const R*, Size, R*, Size, \
                                    void*);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)

}  // namespace jaxmg::tile
