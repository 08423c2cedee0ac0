// Operations of divide and conquer and of bisection. Their small operands come from the host and go
// back there.
#include <vector>

#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"
#include "tile/secular.h"
#include "tile/sturm.h"

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

template <class R>
__global__ void vectors_kernel(Size k, const double* d, const double* weights, const Size* origin,
                               const double* tau, const Size* place, const Size* roots, R* u,
                               Size ldu) {
  __shared__ double shared[kThreads];
  const Size root = roots[blockIdx.x];
  const double pole = d[origin[root]], shift = tau[root];
  double squares = 0;
  for (Size j = threadIdx.x; j < k; j += kThreads) {
    const double x = weights[j] / ((d[j] - pole) - shift);
    squares += x * x;
  }
  shared[threadIdx.x] = squares;
  for (unsigned width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      shared[threadIdx.x] += shared[threadIdx.x + width];
    }
  }
  __syncthreads();
  const double scale = 1 / sqrt(shared[0]);
  for (Size j = threadIdx.x; j < k; j += kThreads) {
    u[place[j] + blockIdx.x * ldu] = static_cast<R>(weights[j] / ((d[j] - pole) - shift) * scale);
  }
}

// One thread a column, all rotations in turn.
template <class R>
__global__ void rotate_kernel(Size count, const Rotation* rotations, Size n, R* a, Size lda) {
  const Size j = static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (j >= n) {
    return;
  }
  R* const column = a + j * lda;
  for (Size r = 0; r < count; ++r) {
    const Rotation rotation = rotations[r];
    const R c = static_cast<R>(rotation.c), s = static_cast<R>(rotation.s);
    const R x = column[rotation.first], y = column[rotation.second];
    column[rotation.first] = c * x + s * y;
    column[rotation.second] = c * y - s * x;
  }
}

constexpr int kSmallBlock = 64;  // for threads that each do much

}  // namespace

bool Cuda::secular_roots(Lane& lane, Size k, const double* d, const double* z, double rho,
                         Size first, Size count, Size* origin, double* tau, void* work) {
  if (count <= 0) {
    return true;
  }
  Upload upload(lane, work);
  const double* const dd = upload.put(k, d);
  const double* const dz = upload.put(k, z);
  double* const dtau = upload.room<double>(count);
  Size* const dorigin = upload.room<Size>(count);
  Size* const failed = upload.room<Size>(1);
  JAXMG_CUDA_CHECK(cudaMemsetAsync(failed, 0, sizeof(Size), lane.stream()));
  double squares = 0;
  for (Size j = 0; j < k; ++j) {
    squares += z[j] * z[j];
  }
  for_each(lane, count, 1, [=] __device__(Size i, Size) {
    const SecularRoot root = secular_root(k, dd, dz, rho, squares, first + i);
    dorigin[i] = root.origin;
    dtau[i] = root.tau;
    if (!root.converged) {
      *failed = 1;
    }
  });
  Size any = 0;
  upload.get(count, dorigin, origin + first);
  upload.get(count, dtau, tau + first);
  upload.get(Size{1}, failed, &any);
  return any == 0;
}

void Cuda::secular_weights(Lane& lane, Size k, const double* d, const double* z, const Size* origin,
                           const double* tau, Size first, Size count, double* weights, void* work) {
  if (count <= 0) {
    return;
  }
  Upload upload(lane, work);
  const double* const dd = upload.put(k, d);
  const double* const dz = upload.put(k, z);
  const double* const dtau = upload.put(k, tau);
  const Size* const dorigin = upload.put(k, origin);
  double* const result = upload.room<double>(count);
  for_each(lane, count, 1, [=] __device__(Size i, Size) {
    result[i] = secular_weight(k, dd, dz, dorigin, dtau, first + i);
  });
  upload.get(count, result, weights + first);
}

template <class R>
void Cuda::secular_vectors(Lane& lane, Size k, const double* d, const double* weights,
                           const Size* origin, const double* tau, const Size* place, Size count,
                           const Size* roots, R* u, Size ldu, void* work) {
  if (k <= 0 || count <= 0) {
    return;
  }
  Upload upload(lane, work);
  const double* const dd = upload.put(k, d);
  const double* const dweights = upload.put(k, weights);
  const double* const dtau = upload.put(k, tau);
  const Size* const dorigin = upload.put(k, origin);
  const Size* const dplace = upload.put(k, place);
  const Size* const droots = upload.put(count, roots);
  vectors_kernel<R><<<static_cast<unsigned>(count), kThreads, 0, lane.stream()>>>(
      k, dd, dweights, dorigin, dtau, dplace, droots, u, ldu);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

void Cuda::bisect(Lane& lane, Size n, const double* d, const double* e2, double low, double high,
                  double tolerance, Size first, Size count, double* w, void* work) {
  if (count <= 0) {
    return;
  }
  Upload upload(lane, work);
  const double* const dd = upload.put(n, d);
  const double* const de2 = upload.put(n - 1, e2);
  double* const result = upload.room<double>(round_up(count, kSturmWidth));
  const double least = least_pivot(n, e2);
  for_each(lane, ceil_div(count, Size{kSturmWidth}), 1, [=] __device__(Size i, Size) {
    sturm_bisect(n, dd, de2, low, high, tolerance, least, first + i * kSturmWidth,
                 result + i * kSturmWidth);
  });
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

template <class R>
void Cuda::rotate_rows(Lane& lane, Size count, const Rotation* rotations, Size n, R* a, Size lda,
                       void* work) {
  if (count <= 0 || n <= 0) {
    return;
  }
  const Rotation* const list = Upload(lane, work).put(count, rotations);
  rotate_kernel<R>
      <<<static_cast<unsigned>(ceil_div(n, kSmallBlock)), kSmallBlock, 0, lane.stream()>>>(
          count, list, n, a, lda);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

#define JAXMG_INSTANTIATE(R)                                                                      \
  template void Cuda::secular_vectors<R>(Lane&, Size, const double*, const double*, const Size*,  \
                                         const double*, const Size*, Size, const Size*, R*, Size, \
                                         void*);                                                  \
  template void Cuda::to_host<R>(Lane&, Size, const R*, double*);                                 \
  template void Cuda::from_host<R>(Lane&, Size, Size, const double*, Size, R*, Size);             \
  template void Cuda::gather_rows<R>(Lane&, Size, const Size*, Size, const R*, Size, R*, Size,    \
                                     void*);                                                      \
  template void Cuda::rotate_rows<R>(Lane&, Size, const Rotation*, Size, R*, Size, void*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
