// The rotation of one diagonal block in the update of a Cholesky factor.
#include <cmath>

#include "tile/cpu/cpu.h"
#include "tile/cpu/element.h"

namespace jaxmg::tile {
namespace {

// H = the unitary matrix of order 1 + k with [alpha v] H = [beta 0], alpha >= 0 and
// beta = |[alpha v]| > 0:
//
//   h_11 = alpha / beta,  H_21 = v^H / beta,  H_12 = -v / beta,
//   H_22 = I - v^H v / (beta (alpha + beta))
template <class T>
struct Reflection {
  Real<T> alpha;
  Real<T> beta;
  const T* v;  // a row, with leading dimension ldv
  Size ldv;
  Size k;

  T product(const T* row, Size ld) const {
    T sum(0);
    for (Size i = 0; i < k; ++i) {
      sum += row[i * ld] * conjugate(v[i * ldv]);
    }
    return sum;
  }
  // row <- x H_12 + row H_22, where `dot` is row v^H.
  void finish(T x, T dot, T* row, Size ld) const {
    const T factor = (x + dot / (alpha + beta)) / beta;
    for (Size i = 0; i < k; ++i) {
      row[i * ld] -= factor * v[i * ldv];
    }
  }
  // [x row] <- [x row] H
  void apply(T& x, T* row, Size ld) const {
    const T dot = product(row, ld);
    const T old = x;
    x = (alpha * x + dot) / beta;
    finish(old, dot, row, ld);
  }
  // x of [x row] H known, that of [x row] wanted; row as above.
  void apply_mixed(T& x, T* row, Size ld) const {
    const T dot = product(row, ld);
    x = (beta * x - dot) / alpha;
    finish(x, dot, row, ld);
  }
};

template <class T>
void rotate_block(CpuLane& lane, bool downdate, Size w, Size k, T* l, Size ldl, T* v, Size ldv,
                  T* theta, Size ldt, Size position, Info* info) {
  for (Size j = 0; j < w; ++j) {
    const Real<T> old = std::real(l[j + j * ldl]);
    Real<T> norm = 0;
    for (Size i = 0; i < k; ++i) {
      norm = std::hypot(norm, std::abs(v[j + i * ldv]));
    }
    Reflection<T> h{old, std::hypot(old, norm), v + j, ldv, k};
    if (downdate) {
      // A difference of squares as a product.
      h = {std::sqrt((old - norm) * (old + norm)), old, v + j, ldv, k};
      if (!(h.alpha > 0)) {
        Cpu::set_if_ok(lane, Kind::not_positive_definite, position + j + 1, info);
      }
    }
    l[j + j * ldl] = T(downdate ? h.alpha : h.beta);
    if (h.beta == Real<T>(0)) {
      continue;  // nothing to be moved
    }
    for (Size i = j + 1; i < w; ++i) {
      downdate ? h.apply_mixed(l[i + j * ldl], v + i, ldv) : h.apply(l[i + j * ldl], v + i, ldv);
    }
    for (Size i = 0; i < w + k; ++i) {
      h.apply(theta[i + j * ldt], theta + i + w * ldt, ldt);
    }
  }
}

}  // namespace

template <class T>
void Cpu::rotate(Lane& lane, bool downdate, Size w, Size k, T* l, Size ldl, T* v, Size ldv,
                 T* theta, Size ldt, Size position, Info* info) {
  fill<T>(lane, w + k, w + k, T(0), T(1), theta, ldt);
  rotate_block(lane, downdate, w, k, l, ldl, v, ldv, theta, ldt, position, info);
}

#define JAXMG_INSTANTIATE(T) \
  template void Cpu::rotate<T>(Lane&, bool, Size, Size, T*, Size, T*, Size, T*, Size, Size, Info*);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)

}  // namespace jaxmg::tile
