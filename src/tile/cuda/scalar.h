// Element types inside kernels. std::complex has no device functions; DeviceComplex has its layout.
#pragma once

#include <complex>
#include <type_traits>

#include "core/dtype.h"

namespace jaxmg::tile {

template <class R>
struct alignas(2 * sizeof(R)) DeviceComplex {
  R re;
  R im;
};

template <class T>
struct DeviceTypeOf {
  using type = T;
};
template <class R>
struct DeviceTypeOf<std::complex<R>> {
  using type = DeviceComplex<R>;
};
template <class T>
using DeviceType = typename DeviceTypeOf<T>::type;

template <class T>
DeviceType<T>* on_device(T* p) {
  return reinterpret_cast<DeviceType<T>*>(p);
}
template <class T>
const DeviceType<T>* on_device(const T* p) {
  return reinterpret_cast<const DeviceType<T>*>(p);
}
template <class R>
R on_device_value(R x) {
  return x;
}
template <class R>
DeviceComplex<R> on_device_value(std::complex<R> x) {
  return {x.real(), x.imag()};
}

#ifdef __CUDACC__

template <class R>
__device__ R real_part(R x) {
  return x;
}
template <class R>
__device__ R real_part(DeviceComplex<R> x) {
  return x.re;
}
template <class R>
__device__ R imaginary_part(R) {
  return R{0};
}
template <class R>
__device__ R imaginary_part(DeviceComplex<R> x) {
  return x.im;
}

// The element of type D with the given real part.
template <class D, class R>
__device__ D element(R re) {
  if constexpr (std::is_same_v<D, R>) {
    return re;
  } else {
    return {re, R{0}};
  }
}

template <class D>
__device__ bool is_zero(D x) {
  return real_part(x) == 0 && imaginary_part(x) == 0;
}

template <class R>
__device__ R conjugate(R x) {
  return x;
}
template <class R>
__device__ DeviceComplex<R> conjugate(DeviceComplex<R> x) {
  return {x.re, -x.im};
}

template <class R>
__device__ DeviceComplex<R> operator+(DeviceComplex<R> a, DeviceComplex<R> b) {
  return {a.re + b.re, a.im + b.im};
}
template <class R>
__device__ DeviceComplex<R> operator-(DeviceComplex<R> a, DeviceComplex<R> b) {
  return {a.re - b.re, a.im - b.im};
}
template <class R>
__device__ DeviceComplex<R> operator*(DeviceComplex<R> a, DeviceComplex<R> b) {
  return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

// x times a real number.
template <class R>
__device__ R times(R x, R scale) {
  return x * scale;
}
template <class R>
__device__ DeviceComplex<R> times(DeviceComplex<R> x, R scale) {
  return {x.re * scale, x.im * scale};
}

// x - a b
template <class R>
__device__ R minus_product(R x, R a, R b) {
  return fma(-a, b, x);
}
template <class R>
__device__ DeviceComplex<R> minus_product(DeviceComplex<R> x, DeviceComplex<R> a,
                                          DeviceComplex<R> b) {
  return {fma(a.im, b.im, fma(-a.re, b.re, x.re)), fma(-a.im, b.re, fma(-a.re, b.im, x.im))};
}

template <class R>
__device__ R square(R x) {
  return x * x;
}
template <class R>
__device__ R square(DeviceComplex<R> x) {
  return x.re * x.re + x.im * x.im;
}

template <class R>
__device__ R reciprocal(R x) {
  return R{1} / x;
}
template <class R>
__device__ DeviceComplex<R> reciprocal(DeviceComplex<R> x) {
  const R size = square(x);
  return {x.re / size, -x.im / size};
}

template <class R>
__device__ R magnitude(R re, R im) {
  return im == R{0} ? fabs(re) : hypot(re, im);
}

#endif  // __CUDACC__

}  // namespace jaxmg::tile
