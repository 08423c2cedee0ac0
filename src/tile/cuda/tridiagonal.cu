// Bisection, and numbers that come from the host or go there. LAPACK: xSTEBZ.
#include <algorithm>
#include <cmath>
#include <vector>

#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

// Arrays of the host copied to consecutive places of the device. The copies of pageable memory are
// over, or staged, when they return.
class Upload {
 public:
  Upload(CudaLane& lane, void* work) : lane_(lane), next_(static_cast<char*>(work)) {}

  template <class V>
  V* room(Size count) {
    V* const place = reinterpret_cast<V*>(next_);
    next_ += round_up(count * static_cast<Size>(sizeof(V)), 8);
    return place;
  }
  template <class V>
  const V* put(Size count, const V* host) {
    V* const place = room<V>(count);
    if (count > 0) {
      JAXMG_CUDA_CHECK(cudaMemcpyAsync(place, host, static_cast<std::size_t>(count) * sizeof(V),
                                       cudaMemcpyHostToDevice, lane_.stream()));
    }
    return place;
  }
  // host <- device, when it is there.
  template <class V>
  void get(Size count, const V* device, V* host) {
    if (count > 0) {
      JAXMG_CUDA_CHECK(cudaMemcpyAsync(host, device, static_cast<std::size_t>(count) * sizeof(V),
                                       cudaMemcpyDeviceToHost, lane_.stream()));
    }
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane_.stream()));
  }

 private:
  CudaLane& lane_;
  char* next_;
};

constexpr int kBisectThreads = 64;
constexpr int kBisectRows = 512;  // in shared memory at a time
constexpr int kUnscaled = 8;      // rows between two changes of scale

// The power of two that brings max(|a|, |b|) to [1, 2).
__device__ double normalising(double a, double b) {
  const int high = __double2hiint(fmax(fabs(a), fabs(b))) & 0x7ff00000;
  return __hiloint2double(0x7fe00000 - high, 0);
}

// One thread an eigenvalue. With p_i the leading principal minors of T - x I,
//
//   p_i = (d_i - x) p_i-1 - e_i-1^2 p_i-2,
//
// the number of changes of sign is the number of eigenvalues below x; there are no divisions to
// wait for. T is scaled by 2^-exponent to a norm of about 1 and its e^2 are at least 2^-120, which
// perturbs it by less than a rounding error: then kUnscaled minors neither overflow nor vanish.
__global__ void __launch_bounds__(kBisectThreads)
    bisect_kernel(Size n, const double* d, const double* e2, int exponent, double low, double high,
                  int turns, Size first, Size count, double* w) {
  __shared__ double diagonal[kBisectRows];
  __shared__ double square[kBisectRows];
  const double least = ldexp(1.0, -120);
  const Size own = static_cast<Size>(blockIdx.x) * kBisectThreads + threadIdx.x;
  const int index = static_cast<int>(first + (own < count ? own : count - 1));
  double lo = ldexp(low, -exponent), hi = ldexp(high, -exponent);
  for (int turn = 0; turn < turns; ++turn) {
    const double x = 0.5 * (lo + hi);
    double before = 0, last = 1;
    int changes = 0;
    for (Size base = 0; base < n; base += kBisectRows) {
      const int rows = static_cast<int>(n - base < kBisectRows ? n - base : kBisectRows);
      __syncthreads();
      for (int i = static_cast<int>(threadIdx.x); i < rows; i += kBisectThreads) {
        diagonal[i] = ldexp(d[base + i], -exponent);
        const double scaled = base + i > 0 ? ldexp(e2[base + i - 1], -2 * exponent) : 0;
        square[i] = base + i > 0 ? fmax(scaled, least) : 0;
      }
      __syncthreads();
      const auto minor = [&](int i) {
        const double next = fma(diagonal[i] - x, last, -(square[i] * before));
        changes += static_cast<unsigned>(__double2hiint(next) ^ __double2hiint(last)) >> 31;
        before = last;
        last = next;
      };
      const auto scale = [&] {
        const double factor = normalising(before, last);
        before *= factor;
        last *= factor;
      };
      int i = 0;
      for (; i + kUnscaled <= rows; i += kUnscaled) {
#pragma unroll
        for (int j = 0; j < kUnscaled; ++j) {
          minor(i + j);
        }
        scale();
      }
      for (; i < rows; ++i) {
        minor(i);
      }
      scale();
    }
    (changes > index ? hi : lo) = x;
  }
  if (own < count) {
    w[own] = ldexp(0.5 * (lo + hi), exponent);
  }
}

}  // namespace

void Cuda::bisect(Lane& lane, Size n, const double* d, const double* e2, double low, double high,
                  double tolerance, Size first, Size count, double* w, void* work) {
  if (count <= 0) {
    return;
  }
  Upload upload(lane, work);
  const double* const dd = upload.put(n, d);
  const double* const de2 = upload.put(n - 1, e2);
  double* const result = upload.room<double>(count);
  const double largest = std::max(std::fabs(low), std::fabs(high));
  const int exponent = largest > 0 ? std::ilogb(largest) : 0;
  int turns = 0;
  for (double width = high - low; width > tolerance; width *= 0.5) {
    ++turns;
  }
  bisect_kernel<<<static_cast<unsigned>(ceil_div(count, Size{kBisectThreads})), kBisectThreads, 0,
                  lane.stream()>>>(n, dd, de2, exponent, low, high, turns, first, count, result);
  JAXMG_CUDA_CHECK(cudaGetLastError());
  upload.get(count, result, w + first);
}

template <class R>
void Cuda::to_host(Lane& lane, Size n, const R* src, double* dst) {
  std::vector<R> host(static_cast<std::size_t>(n));
  if (n > 0) {
    JAXMG_CUDA_CHECK(cudaMemcpyAsync(host.data(), src, static_cast<std::size_t>(n) * sizeof(R),
                                     cudaMemcpyDeviceToHost, lane.stream()));
  }
  JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
  std::copy(host.begin(), host.end(), dst);
}

template <class R>
void Cuda::from_host(Lane& lane, Size m, Size n, const double* src, Size lds, R* dst, Size ldd) {
  if (m <= 0 || n <= 0) {
    return;
  }
  std::vector<R> host(static_cast<std::size_t>(m * n));
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < m; ++i) {
      host[static_cast<std::size_t>(i + j * m)] = static_cast<R>(src[i + j * lds]);
    }
  }
  const std::size_t width = static_cast<std::size_t>(m) * sizeof(R);
  JAXMG_CUDA_CHECK(cudaMemcpy2DAsync(dst, static_cast<std::size_t>(ldd) * sizeof(R), host.data(),
                                     width, width, static_cast<std::size_t>(n),
                                     cudaMemcpyHostToDevice, lane.stream()));
  // The memory of the host goes away.
  JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
}

template <class R>
void Cuda::gather_rows(Lane& lane, Size m, const Size* index, Size n, const R* src, Size lds,
                       R* dst, Size ldd, void* work) {
  if (m <= 0 || n <= 0) {
    return;
  }
  const Size* const rows = Upload(lane, work).put(m, index);
  for_each(lane, m, n,
           [=] __device__(Size i, Size j) { dst[i + j * ldd] = src[rows[i] + j * lds]; });
}

#define JAXMG_INSTANTIATE(R)                                                                   \
  template void Cuda::to_host<R>(Lane&, Size, const R*, double*);                              \
  template void Cuda::from_host<R>(Lane&, Size, Size, const double*, Size, R*, Size);          \
  template void Cuda::gather_rows<R>(Lane&, Size, const Size*, Size, const R*, Size, R*, Size, \
                                     void*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
