// Householder's QR of a tall block by cuSOLVER.
#pragma once

#include <algorithm>
#include <complex>

#include "tile/cuda/launch.h"
#include "tile/cuda/library_type.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {

template <class T>
struct QrLibrary;
template <>
struct QrLibrary<float> {
  static constexpr auto geqrf_size = cusolverDnSgeqrf_bufferSize;
  static constexpr auto geqrf = cusolverDnSgeqrf;
  static constexpr auto orgqr_size = cusolverDnSorgqr_bufferSize;
  static constexpr auto orgqr = cusolverDnSorgqr;
};
template <>
struct QrLibrary<double> {
  static constexpr auto geqrf_size = cusolverDnDgeqrf_bufferSize;
  static constexpr auto geqrf = cusolverDnDgeqrf;
  static constexpr auto orgqr_size = cusolverDnDorgqr_bufferSize;
  static constexpr auto orgqr = cusolverDnDorgqr;
};
template <>
struct QrLibrary<std::complex<float>> {
  static constexpr auto geqrf_size = cusolverDnCgeqrf_bufferSize;
  static constexpr auto geqrf = cusolverDnCgeqrf;
  static constexpr auto orgqr_size = cusolverDnCungqr_bufferSize;
  static constexpr auto orgqr = cusolverDnCungqr;
};
template <>
struct QrLibrary<std::complex<double>> {
  static constexpr auto geqrf_size = cusolverDnZgeqrf_bufferSize;
  static constexpr auto geqrf = cusolverDnZgeqrf;
  static constexpr auto orgqr_size = cusolverDnZungqr_bufferSize;
  static constexpr auto orgqr = cusolverDnZungqr;
};

// Elements that the library works in for m x n.
template <class T>
int library_count(CudaLane& lane, Size m, Size n, T* a, Size lda) {
  int factor = 0, form = 0;
  JAXMG_CUDA_CHECK(QrLibrary<T>::geqrf_size(lane.solver(), narrow(m), narrow(n), for_library(a),
                                            narrow(lda), &factor));
  JAXMG_CUDA_CHECK(QrLibrary<T>::orgqr_size(lane.solver(), narrow(m), narrow(n), narrow(n),
                                            for_library(a), narrow(lda), for_library(a), &form));
  return std::max(factor, form);
}

// Of the lane's scratch, from its beginning.
template <class T>
Size householder_bytes(CudaLane& lane, Size m, Size n) {
  return (n + library_count<T>(lane, m, n, nullptr, m)) * static_cast<Size>(sizeof(T));
}

// r <- upper triangle of a, its diagonal made real, 0 below.
template <class T>
void take_upper(CudaLane& lane, Size n, const T* a, Size lda, T* r, Size ldr) {
  using D = DeviceType<T>;
  const D* from = on_device(a);
  D* to = on_device(r);
  for_each(lane, n, n, [=] __device__(Size i, Size j) {
    const D x = from[i + j * lda];
    to[i + j * ldr] = i < j ? x : i == j ? element<D>(real_part(x)) : element<D>(Real<T>(0));
  });
}

// a <- Q, r <- R by the library. tau and workspace lie where the scratch of others begins.
template <class T>
void householder_qr(CudaLane& lane, Size m, Size n, T* a, Size lda, T* r, Size ldr) {
  const int count = library_count(lane, m, n, a, lda);
  T* const tau = static_cast<T*>(lane.scratch((n + count) * Size{sizeof(T)}));
  T* const work = tau + n;
  const int rows = narrow(m), columns = narrow(n), ld = narrow(lda);
  JAXMG_CUDA_CHECK(QrLibrary<T>::geqrf(lane.solver(), rows, columns, for_library(a), ld,
                                       for_library(tau), for_library(work), count,
                                       lane.library_info()));
  take_upper(lane, n, a, lda, r, ldr);
  JAXMG_CUDA_CHECK(QrLibrary<T>::orgqr(lane.solver(), rows, columns, columns, for_library(a), ld,
                                       for_library(tau), for_library(work), count,
                                       lane.library_info()));
}

}  // namespace jaxmg::tile
