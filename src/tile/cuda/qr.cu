// Orthogonal factors of tall blocks: CholeskyQR2 where it is safe, else Householder's method by
// cuSOLVER; and the small operations that Householder QR is made of.
#include <cstdint>

#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/library_type.h"
#include "tile/cuda/scalar.h"
#include "tile/cuda/scratch.h"

namespace jaxmg::tile {
namespace {

template <class T>
struct Solver;
template <>
struct Solver<float> {
  static constexpr auto geqrf_size = cusolverDnSgeqrf_bufferSize;
  static constexpr auto geqrf = cusolverDnSgeqrf;
  static constexpr auto orgqr_size = cusolverDnSorgqr_bufferSize;
  static constexpr auto orgqr = cusolverDnSorgqr;
};
template <>
struct Solver<double> {
  static constexpr auto geqrf_size = cusolverDnDgeqrf_bufferSize;
  static constexpr auto geqrf = cusolverDnDgeqrf;
  static constexpr auto orgqr_size = cusolverDnDorgqr_bufferSize;
  static constexpr auto orgqr = cusolverDnDorgqr;
};
template <>
struct Solver<std::complex<float>> {
  static constexpr auto geqrf_size = cusolverDnCgeqrf_bufferSize;
  static constexpr auto geqrf = cusolverDnCgeqrf;
  static constexpr auto orgqr_size = cusolverDnCungqr_bufferSize;
  static constexpr auto orgqr = cusolverDnCungqr;
};
template <>
struct Solver<std::complex<double>> {
  static constexpr auto geqrf_size = cusolverDnZgeqrf_bufferSize;
  static constexpr auto geqrf = cusolverDnZgeqrf;
  static constexpr auto orgqr_size = cusolverDnZungqr_bufferSize;
  static constexpr auto orgqr = cusolverDnZungqr;
};

// Elements that the library works in for m x n.
template <class T>
int library_count(CudaLane& lane, Size m, Size n, T* a, Size lda) {
  int factor = 0, form = 0;
  JAXMG_CUDA_CHECK(Solver<T>::geqrf_size(lane.solver(), narrow(m), narrow(n), for_library(a),
                                         narrow(lda), &factor));
  JAXMG_CUDA_CHECK(Solver<T>::orgqr_size(lane.solver(), narrow(m), narrow(n), narrow(n),
                                         for_library(a), narrow(lda), for_library(a), &form));
  return std::max(factor, form);
}

// What tile operations called from here take from the beginning of the lane's scratch.
Size inner_bytes(CudaLane& lane, DType type, Size n) {
  return round_up(std::max(potrf_bytes(lane, type, n), triangle_bytes(type, n)), 256);
}

template <class T>
Size householder_bytes(CudaLane& lane, Size m, Size n) {
  return (n + library_count<T>(lane, m, n, nullptr, m)) * static_cast<Size>(sizeof(T));
}

// In the lane's scratch, behind inner_bytes.
template <class T>
struct QrScratch {
  T* gram;            // n x n
  T* other;           // n x n
  Info* info;         // of potrf
  std::int32_t* bad;  // whether CholeskyQR must not be trusted

  static Size bytes(Size n) { return round_up(2 * n * n * Size{sizeof(T)}, 256) + 256; }
  QrScratch(CudaLane& lane, Size n) {
    const Size inner = inner_bytes(lane, dtype_of<T>, n);
    char* const base = static_cast<char*>(lane.scratch(inner + bytes(n))) + inner;
    gram = reinterpret_cast<T*>(base);
    other = gram + n * n;
    char* const end = base + bytes(n) - 256;
    info = reinterpret_cast<Info*>(end);
    bad = reinterpret_cast<std::int32_t*>(end + 64);
  }
};

// What a diagonal of R tells of the condition of A. Beyond, squares lose too much.
template <class R>
constexpr R kWidest = std::is_same_v<R, float> ? R(100) : R(1e6);

// *bad <- whether the factor L (n x n, lower) failed or has too wide a diagonal.
template <class R, class D>
__global__ void judge_factor_kernel(Size n, const D* l, const Info* info, std::int32_t* bad) {
  __shared__ R most[kThreads];
  __shared__ R least[kThreads];
  R largest = 0;
  R smallest = INFINITY;
  bool finite = true;
  for (Size j = threadIdx.x; j < n; j += kThreads) {
    const R x = real_part(l[j * (n + 1)]);
    finite = finite && isfinite(x) && x > 0;
    largest = fmax(largest, x);
    smallest = fmin(smallest, x);
  }
  most[threadIdx.x] = finite ? largest : R(INFINITY);
  least[threadIdx.x] = finite ? smallest : R(0);
  for (unsigned width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      most[threadIdx.x] = fmax(most[threadIdx.x], most[threadIdx.x + width]);
      least[threadIdx.x] = fmin(least[threadIdx.x], least[threadIdx.x + width]);
    }
  }
  if (threadIdx.x == 0) {
    // Not the other way round: infinity times zero must count as bad.
    const bool good = info->kind == 0 && least[0] > 0 && most[0] <= kWidest<R> * least[0];
    *bad = good ? 0 : 1;
  }
}

// *bad <- whether G (n x n) may be further from I than 0.1, in the norm of Frobenius.
template <class R, class D>
void judge_gram(CudaLane& lane, Size n, const D* g, std::int32_t* bad) {
  const R limit = R(0.1) / static_cast<R>(n);
  for_each(lane, n, n, [=] __device__(Size i, Size j) {
    const D x = g[i + j * n];
    const R re = real_part(x) - (i == j ? R(1) : R(0));
    if (!(magnitude(re, imaginary_part(x)) <= limit)) {
      *bad = 1;
    }
  });
}

// Waits for the lane: what is to be done next depends on the numbers.
bool is_bad(CudaLane& lane, const std::int32_t* bad) {
  std::int32_t host = 1;
  JAXMG_CUDA_CHECK(cudaMemcpyAsync(&host, bad, sizeof host, cudaMemcpyDeviceToHost, lane.stream()));
  JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
  return host != 0;
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

// l <- L with zeros above.
template <class T>
void clear_upper(CudaLane& lane, Size n, T* l) {
  using D = DeviceType<T>;
  D* x = on_device(l);
  for_each(lane, n, n, [=] __device__(Size i, Size j) {
    if (i < j) {
      x[i + j * n] = element<D>(Real<T>(0));
    }
  });
}

// gram <- L of L L^H = A^H A
template <class T>
void gram_factor(CudaLane& lane, Size m, Size n, const T* a, Size lda, T* gram, Info* info) {
  Cuda::gemm<T>(lane, Op::conj_transpose, Op::none, n, n, m, T(1), a, lda, a, lda, T(0), gram, n);
  Cuda::potrf<T>(lane, n, gram, n, 0, info);
}

// a <- Q, r <- R by the library. tau and workspace lie where the scratch of others begins.
template <class T>
void householder_qr(CudaLane& lane, Size m, Size n, T* a, Size lda, T* r, Size ldr) {
  const int count = library_count(lane, m, n, a, lda);
  T* const tau = static_cast<T*>(lane.scratch((n + count) * Size{sizeof(T)}));
  T* const work = tau + n;
  const int rows = narrow(m), columns = narrow(n), ld = narrow(lda);
  JAXMG_CUDA_CHECK(Solver<T>::geqrf(lane.solver(), rows, columns, for_library(a), ld,
                                    for_library(tau), for_library(work), count,
                                    lane.library_info()));
  take_upper(lane, n, a, lda, r, ldr);
  JAXMG_CUDA_CHECK(Solver<T>::orgqr(lane.solver(), rows, columns, columns, for_library(a), ld,
                                    for_library(tau), for_library(work), count,
                                    lane.library_info()));
}

template <class R>
__device__ R inverse_of(R x) {
  return R{1} / x;
}
// |x| >= 1 and of moderate size, so that the square is harmless.
template <class R>
__device__ DeviceComplex<R> inverse_of(DeviceComplex<R> x) {
  const R scale = R{1} / (x.re * x.re + x.im * x.im);
  return {x.re * scale, -x.im * scale};
}

constexpr int kLuEdge = static_cast<int>(Cuda::lu_block);
constexpr int kLuRows = 8;

template <class R, class D>
__global__ void signed_lu_kernel(int n, D* a, Size lda, R* signs) {
  __shared__ D s[kLuEdge][kLuEdge + 1];  // row, column
  const int i = static_cast<int>(threadIdx.x);
  for (int j = static_cast<int>(threadIdx.y); j < n; j += kLuRows) {
    if (i < n) {
      s[i][j] = a[i + j * lda];
    }
  }
  __syncthreads();
  for (int k = 0; k < n; ++k) {
    if (i == k && threadIdx.y == 0) {
      const R sign = real_part(s[k][k]) < R(0) ? R(1) : R(-1);
      signs[k] = sign;
      s[k][k] = s[k][k] + element<D>(-sign);
    }
    __syncthreads();
    if (threadIdx.y == 0 && i > k && i < n) {
      s[i][k] = s[i][k] * inverse_of(s[k][k]);
    }
    __syncthreads();
    for (int j = k + 1 + static_cast<int>(threadIdx.y); j < n; j += kLuRows) {
      if (i > k && i < n) {
        s[i][j] = s[i][j] + element<D>(R(-1)) * (s[i][k] * s[k][j]);
      }
    }
    __syncthreads();
  }
  for (int j = static_cast<int>(threadIdx.y); j < n; j += kLuRows) {
    if (i < n) {
      a[i + j * lda] = s[i][j];
    }
  }
}

template <class D>
__global__ void check_diagonal_kernel(Size n, const D* a, Size lda, Size position, Info* info) {
  __shared__ int first;
  if (threadIdx.x == 0) {
    first = INT32_MAX;
  }
  __syncthreads();
  for (Size j = threadIdx.x; j < n; j += kThreads) {
    const D x = a[j * (lda + 1)];
    if (real_part(x) == 0 && imaginary_part(x) == 0) {
      atomicMin(&first, static_cast<int>(j + 1));
    }
  }
  __syncthreads();
  if (threadIdx.x == 0 && first != INT32_MAX && info->kind == 0) {
    info->kind = static_cast<std::int32_t>(Kind::singular);
    info->position = static_cast<std::int32_t>(position + first);
  }
}

template <class T>
Size qr_bytes_of(CudaLane& lane, Size rows, Size tile) {
  Size bytes = 0;
  // The last panel and the last rows are narrower, and the library chooses its algorithm by size.
  for (Size n = tile; n > 0; n /= 2) {
    bytes = std::max(bytes, inner_bytes(lane, dtype_of<T>, n) + QrScratch<T>::bytes(n));
    for (Size m = std::max(rows, n); m >= n; m /= 2) {
      bytes = std::max(bytes, householder_bytes<T>(lane, m, n));
    }
  }
  return 2 * bytes;
}

}  // namespace

Size qr_bytes(CudaLane& lane, DType type, Size rows, Size tile) {
  switch (type) {
    case DType::f32:
      return qr_bytes_of<float>(lane, rows, tile);
    case DType::f64:
      return qr_bytes_of<double>(lane, rows, tile);
    case DType::c64:
      return qr_bytes_of<std::complex<float>>(lane, rows, tile);
    case DType::c128:
      return qr_bytes_of<std::complex<double>>(lane, rows, tile);
    case DType::i32:
      break;
  }
  return 0;
}

// A = Q1 L1^H, Q1 = Q L2^H, R = L2^H L1^H: orthonormal to rounding as long as Q1^H Q1 is near I
// (Yamamoto, Nakatsukasa, Yanagisawa, Fukaya 2015). Where the first factor fails or is too wide A
// is intact, and where Q1 is too bad it is still far better than A was: the library takes over.
template <class T>
void Cuda::orthonormalise(Lane& lane, Size m, Size n, T* a, Size lda, T* r, Size ldr) {
  using R = Real<T>;
  if (n <= 0) {
    return;
  }
  const QrScratch<T> s(lane, n);
  reset(lane, s.info);
  gram_factor(lane, m, n, a, lda, s.gram, s.info);
  judge_factor_kernel<R><<<1, kThreads, 0, lane.stream()>>>(n, on_device(s.gram), s.info, s.bad);
  JAXMG_CUDA_CHECK(cudaGetLastError());
  if (is_bad(lane, s.bad)) {
    return householder_qr(lane, m, n, a, lda, r, ldr);
  }
  trsm(lane, Side::right, Uplo::lower, Op::conj_transpose, Diag::non_unit, m, n, T(1), s.gram, n, a,
       lda);
  gemm<T>(lane, Op::conj_transpose, Op::none, n, n, m, T(1), a, lda, a, lda, T(0), s.other, n);
  judge_gram<R>(lane, n, on_device(s.other), s.bad);
  clear_upper(lane, n, s.gram);
  if (is_bad(lane, s.bad)) {
    // A = Q1 L1^H, Q1 = Q R2. The workspace is where L1 lies, unless it is moved.
    transpose(lane, n, n, s.gram, n, r, ldr, true);
    const Size kept = n * n * Size{sizeof(T)};
    T* const second =
        static_cast<T*>(lane.scratch(round_up(householder_bytes<T>(lane, m, n), 256) + 2 * kept));
    T* const r2 = reinterpret_cast<T*>(reinterpret_cast<char*>(second) +
                                       round_up(householder_bytes<T>(lane, m, n), 256));
    T* const whole = r2 + n * n;
    householder_qr(lane, m, n, a, lda, r2, n);
    gemm<T>(lane, Op::none, Op::none, n, n, n, T(1), r2, n, r, ldr, T(0), whole, n);
    take_upper(lane, n, whole, n, r, ldr);
    return;
  }
  potrf(lane, n, s.other, n, 0, s.info);
  clear_upper(lane, n, s.other);
  trsm(lane, Side::right, Uplo::lower, Op::conj_transpose, Diag::non_unit, m, n, T(1), s.other, n,
       a, lda);
  // R = (L1 L2)^H
  T* const product = r;
  gemm<T>(lane, Op::conj_transpose, Op::conj_transpose, n, n, n, T(1), s.other, n, s.gram, n, T(0),
          product, ldr);
  take_upper(lane, n, product, ldr, r, ldr);
}

template <class T>
void Cuda::signed_lu(Lane& lane, Size n, T* a, Size lda, Real<T>* signs) {
  if (n <= 0) {
    return;
  }
  signed_lu_kernel<<<1, dim3(kLuEdge, kLuRows), 0, lane.stream()>>>(static_cast<int>(n),
                                                                    on_device(a), lda, signs);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void Cuda::copy_triangle(Lane& lane, Uplo uplo, Diag diag, Size m, Size n, const T* src, Size lds,
                         T* dst, Size ldd) {
  const DeviceType<T>* from = on_device(src);
  DeviceType<T>* to = on_device(dst);
  const bool lower = uplo == Uplo::lower;
  const bool with_diagonal = diag == Diag::non_unit;
  for_each(lane, m, n, [=] __device__(Size i, Size j) {
    if (i == j ? with_diagonal : (i > j) == lower) {
      to[i + j * ldd] = from[i + j * lds];
    }
  });
}

template <class T>
void Cuda::check_diagonal(Lane& lane, Size n, const T* a, Size lda, Size position, Info* info) {
  if (n <= 0) {
    return;
  }
  check_diagonal_kernel<<<1, kThreads, 0, lane.stream()>>>(n, on_device(a), lda, position, info);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

#define JAXMG_INSTANTIATE(T)                                                                     \
  template void Cuda::orthonormalise<T>(Lane&, Size, Size, T*, Size, T*, Size);                  \
  template void Cuda::signed_lu<T>(Lane&, Size, T*, Size, Real<T>*);                             \
  template void Cuda::copy_triangle<T>(Lane&, Uplo, Diag, Size, Size, const T*, Size, T*, Size); \
  template void Cuda::check_diagonal<T>(Lane&, Size, const T*, Size, Size, Info*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
