// Orthogonal factors of tall blocks: CholeskyQR2 where it is safe, else Householder's method by
// cuSOLVER.
#include <cstdint>

#include "core/with_type.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/qr_library.h"
#include "tile/cuda/scalar.h"
#include "tile/cuda/scratch.h"

namespace jaxmg::tile {
namespace {

// What tile operations called from here take from the beginning of the lane's scratch.
Size inner_bytes(CudaLane& lane, DType type, Size n) {
  return round_up(std::max(potrf_bytes(lane, type, n), triangle_bytes(type, n)), 256);
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

// Whether the factor L (n x n, lower) neither failed nor has too wide a diagonal; what thread 0 of
// a block finds.
template <class R, class D>
__device__ bool is_good_factor(Size n, const D* l, Size ldl, const Info* info) {
  __shared__ R most[kThreads];
  __shared__ R least[kThreads];
  R largest = 0;
  R smallest = INFINITY;
  bool finite = true;
  for (Size j = threadIdx.x; j < n; j += kThreads) {
    const R x = real_part(l[j * (ldl + 1)]);
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
  // Not the other way round: infinity times zero must count as bad.
  return threadIdx.x == 0 && info->kind == 0 && least[0] > 0 && most[0] <= kWidest<R> * least[0];
}

template <class R, class D>
__global__ void judge_factor_kernel(Size n, const D* l, const Info* info, std::int32_t* bad) {
  const bool good = is_good_factor<R>(n, l, n, info);
  if (threadIdx.x == 0) {
    *bad = good ? 0 : 1;
  }
}

template <class R, class D>
__global__ void doubt_factor_kernel(Size n, const D* l, Size ldl, const Info* info, D* g) {
  const bool good = is_good_factor<R>(n, l, ldl, info);
  if (threadIdx.x == 0 && !good) {
    *g = element<D>(R(NAN));
  }
}

// What an element of G - I may be, so that its norm is no more than 0.1.
template <class R>
__host__ __device__ R gram_limit(Size n) {
  return R(0.1) / static_cast<R>(n);
}

constexpr int kJudges = 1024;

// *bad, in the host's memory, <- whether the lower triangle of G is far from that of I.
template <class R, class D>
__global__ void __launch_bounds__(kJudges)
    judge_gram_kernel(Size n, const D* g, Size ldg, std::int32_t* bad) {
  bool far = false;
  for (Size j = threadIdx.x / 32; j < n; j += kJudges / 32) {
    for (Size i = j + threadIdx.x % 32; i < n; i += 32) {
      const D x = g[i + j * ldg];
      const R re = real_part(x) - (i == j ? R(1) : R(0));
      far = far || !(magnitude(re, imaginary_part(x)) <= gram_limit<R>(n));
    }
  }
  const int any = __syncthreads_or(far ? 1 : 0);
  if (threadIdx.x == 0) {
    *bad = any;
  }
}

// *bad <- whether G (n x n) may be further from I than 0.1, in the norm of Frobenius.
template <class R, class D>
void judge_product(CudaLane& lane, Size n, const D* g, std::int32_t* bad) {
  const R limit = gram_limit<R>(n);
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
  return std::max(signed_lu_bytes(type, tile),
                  with_type(type, [&]<class T>() { return qr_bytes_of<T>(lane, rows, tile); }));
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
  judge_product<R>(lane, n, on_device(s.other), s.bad);
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
void Cuda::doubt_factor(Lane& lane, Size n, const T* l, Size ldl, const Info* info, T* g) {
  if (n > 0) {
    doubt_factor_kernel<Real<T>>
        <<<1, kThreads, 0, lane.stream()>>>(n, on_device(l), ldl, info, on_device(g));
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

template <class T>
CudaVerdict Cuda::judge_gram(Lane& lane, Size n, const T* g, Size ldg) {
  std::int32_t* const bad = lane.host_flag();
  judge_gram_kernel<Real<T>><<<1, kJudges, 0, lane.stream()>>>(n, on_device(g), ldg, bad);
  JAXMG_CUDA_CHECK(cudaGetLastError());
  return {bad, lane.record()};
}

#define JAXMG_INSTANTIATE(T)                                                         \
  template void Cuda::orthonormalise<T>(Lane&, Size, Size, T*, Size, T*, Size);      \
  template void Cuda::doubt_factor<T>(Lane&, Size, const T*, Size, const Info*, T*); \
  template CudaVerdict Cuda::judge_gram<T>(Lane&, Size, const T*, Size);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
