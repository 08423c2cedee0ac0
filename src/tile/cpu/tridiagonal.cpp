// Operations of divide and conquer and of bisection.
#include <algorithm>
#include <atomic>
#include <cmath>

#include "tile/cpu/cpu.h"
#include "tile/cpu/pool.h"
#include "tile/secular.h"
#include "tile/sturm.h"

namespace jaxmg::tile {
namespace {

// Real operations, roughly, of a term of the secular equation over the iterations of one root, of a
// factor of a weight, and of an element of a vector: divisions count as several.
constexpr double kRootTerm = 100;
constexpr double kWeightFactor = 20;
constexpr double kVectorElement = 20;

// body(i) for first <= i < first + count, in as many tasks as pay.
template <class Body>
void spread(CpuLane& lane, Size first, Size count, double flops_each, const Body& body) {
  const double flops = flops_each * static_cast<double>(count);
  const bool worth = worth_spreading(flops);
  const Size tasks =
      worth ? std::min<Size>(count, static_cast<Size>(flops / kLeastFlops)) : Size{1};
  const Size length = ceil_div(std::max<Size>(count, 1), std::clamp<Size>(tasks, 1, 64));
  for_each(lane.priority(), worth, ceil_div(count, length), [&](Size task) {
    const Size end = std::min(count, (task + 1) * length);
    for (Size i = task * length; i < end; ++i) {
      body(first + i);
    }
  });
}

}  // namespace

bool Cpu::secular_roots(Lane& lane, Size k, const double* d, const double* z, double rho,
                        Size first, Size count, Size* origin, double* tau, void*) {
  double squares = 0;
  for (Size j = 0; j < k; ++j) {
    squares += z[j] * z[j];
  }
  std::atomic<bool> converged{true};
  spread(lane, first, count, kRootTerm * static_cast<double>(k), [&](Size i) {
    const SecularRoot root = secular_root(k, d, z, rho, squares, i);
    origin[i] = root.origin;
    tau[i] = root.tau;
    if (!root.converged) {
      converged.store(false, std::memory_order_relaxed);
    }
  });
  return converged.load();
}

void Cpu::secular_weights(Lane& lane, Size k, const double* d, const double* z, const Size* origin,
                          const double* tau, Size first, Size count, double* weights, void*) {
  spread(lane, first, count, kWeightFactor * static_cast<double>(k),
         [&](Size j) { weights[j] = secular_weight(k, d, z, origin, tau, j); });
}

template <class R>
void Cpu::secular_vectors(Lane& lane, Size k, const double* d, const double* weights,
                          const Size* origin, const double* tau, const Size* place, Size count,
                          const Size* roots, R* u, Size ldu, void*) {
  spread(lane, 0, count, kVectorElement * static_cast<double>(k), [&](Size c) {
    const double pole = d[origin[roots[c]]], shift = tau[roots[c]];
    double squares = 0;
    for (Size j = 0; j < k; ++j) {
      const double x = weights[j] / ((d[j] - pole) - shift);
      squares += x * x;
    }
    const double scale = 1 / std::sqrt(squares);
    for (Size j = 0; j < k; ++j) {
      u[place[j] + c * ldu] = static_cast<R>(weights[j] / ((d[j] - pole) - shift) * scale);
    }
  });
}

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

template <class R>
void Cpu::rotate_rows(Lane& lane, Size count, const Rotation* rotations, Size n, R* a, Size lda,
                      void*) {
  spread(lane, 0, n, 6 * static_cast<double>(count), [&](Size j) {
    R* const column = a + j * lda;
    for (Size r = 0; r < count; ++r) {
      const Rotation& rotation = rotations[r];
      const R c = static_cast<R>(rotation.c), s = static_cast<R>(rotation.s);
      const R x = column[rotation.first], y = column[rotation.second];
      column[rotation.first] = c * x + s * y;
      column[rotation.second] = c * y - s * x;
    }
  });
}

#define JAXMG_INSTANTIATE(R)                                                                     \
  template void Cpu::secular_vectors<R>(Lane&, Size, const double*, const double*, const Size*,  \
                                        const double*, const Size*, Size, const Size*, R*, Size, \
                                        void*);                                                  \
  template void Cpu::to_host<R>(Lane&, Size, const R*, double*);                                 \
  template void Cpu::from_host<R>(Lane&, Size, Size, const double*, Size, R*, Size);             \
  template void Cpu::gather_rows<R>(Lane&, Size, const Size*, Size, const R*, Size, R*, Size,    \
                                    void*);                                                      \
  template void Cpu::rotate_rows<R>(Lane&, Size, const Rotation*, Size, R*, Size, void*);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)

}  // namespace jaxmg::tile
