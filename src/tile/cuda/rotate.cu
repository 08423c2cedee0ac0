// The rotation of one diagonal block in the update of a Cholesky factor: one thread block, since
// each row's reflection needs the one before it.
#include <stdexcept>

#include "core/plan.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

template <class R>
__device__ R scaled(R factor, R x) {
  return factor * x;
}
template <class R>
__device__ DeviceComplex<R> scaled(R factor, DeviceComplex<R> x) {
  return {factor * x.re, factor * x.im};
}
template <class R>
__device__ R minus(R a, R b) {
  return a - b;
}
template <class R>
__device__ DeviceComplex<R> minus(DeviceComplex<R> a, DeviceComplex<R> b) {
  return {a.re - b.re, a.im - b.im};
}

// The unitary matrix H of order 1 + k with [alpha v] H = [beta 0]: see tile/cpu/rotate.cpp. v is a
// row of leading dimension ldv.
template <class D, class R>
struct Reflection {
  R alpha;
  R beta;
  const D* v;
  Size ldv;
  Size k;

  __device__ D product(const D* row, Size ld) const {
    D sum = element<D>(R{0});
    for (Size i = 0; i < k; ++i) {
      sum = sum + row[i * ld] * conjugate(v[i * ldv]);
    }
    return sum;
  }
  __device__ void finish(D x, D dot, D* row, Size ld) const {
    const D factor = scaled(R{1} / beta, x + scaled(R{1} / (alpha + beta), dot));
    for (Size i = 0; i < k; ++i) {
      row[i * ld] = minus(row[i * ld], factor * v[i * ldv]);
    }
  }
  __device__ void apply(D& x, D* row, Size ld) const {
    const D dot = product(row, ld);
    const D old = x;
    x = scaled(R{1} / beta, scaled(alpha, old) + dot);
    finish(old, dot, row, ld);
  }
  __device__ void apply_mixed(D& x, D* row, Size ld) const {
    const D dot = product(row, ld);
    x = scaled(R{1} / alpha, minus(scaled(beta, x), dot));
    finish(x, dot, row, ld);
  }
};

template <class D, class R>
__device__ R row_norm(const D* row, Size ld, Size k) {
  R norm{0};
  for (Size i = 0; i < k; ++i) {
    norm = hypot(norm, magnitude(real_part(row[i * ld]), imaginary_part(row[i * ld])));
  }
  return norm;
}

// Thread t takes rows t, t + kThreads, ... of what comes after row j in the block and of theta.
template <class D, class R>
__global__ void rotate_kernel(bool downdate, Size w, Size k, D* l, Size ldl, D* given, Size ldg,
                              D* theta, Size ldt, Size position, Info* info) {
  __shared__ D v[kUpdateWidth * kUpdateColumns];  // w x k, ld w
  for (Size t = threadIdx.x; t < w * k; t += kThreads) {
    v[t] = given[t % w + t / w * ldg];
  }
  for (Size t = threadIdx.x; t < (w + k) * (w + k); t += kThreads) {
    const Size i = t % (w + k);
    const Size j = t / (w + k);
    theta[i + j * ldt] = element<D>(i == j ? R{1} : R{0});
  }
  __syncthreads();
  for (Size j = 0; j < w; ++j) {
    const R old = real_part(l[j + j * ldl]);
    const R norm = row_norm<D, R>(v + j, w, k);
    Reflection<D, R> h{old, hypot(old, norm), v + j, w, k};
    if (downdate) {
      h.alpha = sqrt((old - norm) * (old + norm));
      h.beta = old;
    }
    __syncthreads();  // everybody has read the diagonal
    if (threadIdx.x == 0) {
      l[j + j * ldl] = element<D>(downdate ? h.alpha : h.beta);
      if (downdate && !(h.alpha > R{0}) && info->kind == 0) {
        info->kind = static_cast<std::int32_t>(Kind::not_positive_definite);
        info->position = static_cast<std::int32_t>(position + j + 1);
      }
    }
    if (h.beta == R{0}) {
      continue;
    }
    const Size below = w - j - 1;
    for (Size t = threadIdx.x; t < below + w + k; t += kThreads) {
      if (t >= below) {
        const Size i = t - below;
        h.apply(theta[i + j * ldt], theta + i + w * ldt, ldt);
      } else if (downdate) {
        h.apply_mixed(l[j + 1 + t + j * ldl], v + j + 1 + t, w);
      } else {
        h.apply(l[j + 1 + t + j * ldl], v + j + 1 + t, w);
      }
    }
    __syncthreads();
  }
}

}  // namespace

template <class T>
void Cuda::rotate(Lane& lane, bool downdate, Size w, Size k, T* l, Size ldl, T* v, Size ldv,
                  T* theta, Size ldt, Size position, Info* info) {
  if (w > kUpdateWidth || k > kUpdateColumns) {
    throw std::invalid_argument("rotate: a block of " + std::to_string(w) + " rows and " +
                                std::to_string(k) + " columns is too large");
  }
  if (w <= 0 || k <= 0) {
    return;
  }
  rotate_kernel<DeviceType<T>, Real<T>><<<1, kThreads, 0, lane.stream()>>>(
      downdate, w, k, on_device(l), ldl, on_device(v), ldv, on_device(theta), ldt, position, info);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

#define JAXMG_INSTANTIATE(T) \
  template void Cuda::rotate<T>(Lane&, bool, Size, Size, T*, Size, T*, Size, T*, Size, Size, Info*);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)

}  // namespace jaxmg::tile
