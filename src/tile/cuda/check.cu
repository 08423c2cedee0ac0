// Reductions over vectors, and the operations on Info.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

// v is real, so that the imaginary part of a_ii adds Im a_ii Re v_i to the imaginary parts of y_i
// and of z_i, and nothing else.
template <class R, class D>
__global__ void check_hermitian_kernel(Size n, const D* diagonal, Size stride, const D* v,
                                       const D* y, const D* z, R* result) {
  __shared__ R shared[kThreads];
  R difference = 0;
  R largest = 0;
  R bad = 0;
  const Size step = static_cast<Size>(gridDim.x) * kThreads;
  for (Size i = static_cast<Size>(blockIdx.x) * kThreads + threadIdx.x; i < n; i += step) {
    const R left_out = imaginary_part(diagonal[i * stride]) * real_part(v[i]);
    const R y_re = real_part(y[i]);
    const R y_im = imaginary_part(y[i]) - left_out;
    const R z_re = real_part(z[i]);
    const R z_im = imaginary_part(z[i]) - left_out;
    if (!isfinite(y_re) || !isfinite(y_im) || !isfinite(z_re) || !isfinite(z_im)) {
      bad = 1;
      continue;
    }
    difference = fmax(difference, magnitude(y_re - z_re, y_im + z_im));
    largest = fmax(largest, magnitude(y_re, y_im));
  }
  difference = block_max(difference, shared);
  largest = block_max(largest, shared);
  bad = block_max(bad, shared);
  if (threadIdx.x == 0) {
    join_max(&result[0], difference);
    join_max(&result[1], largest);
    join_max(&result[2], bad);
  }
}

// One block, a fixed tree: the same bits in every run. The sum is taken in double precision.
template <class R, class D>
__global__ void log_diagonal_kernel(Size n, const D* l, Size ldl, R* result) {
  __shared__ double shared[kThreads];
  double sum = 0;
  for (Size i = threadIdx.x; i < n; i += kThreads) {
    sum += log(static_cast<double>(real_part(l[i + i * ldl])));
  }
  shared[threadIdx.x] = sum;
  for (unsigned width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (threadIdx.x < width) {
      shared[threadIdx.x] += shared[threadIdx.x + width];
    }
  }
  if (threadIdx.x == 0) {
    *result = static_cast<R>(static_cast<double>(*result) + 2.0 * shared[0]);
  }
}

template <class D>
__global__ void check_diagonal_kernel(Size n, const D* a, Size lda, Size position, Info* info) {
  const int first = first_of_block(n, INT32_MAX, [&](Size j) { return is_zero(a[j * (lda + 1)]); });
  if (threadIdx.x == 0 && first != INT32_MAX && info->kind == 0) {
    info->kind = static_cast<std::int32_t>(Kind::singular);
    info->position = static_cast<std::int32_t>(position + first);
  }
}

template <class R>
__global__ void judge_hermitian_kernel(const R* result, R threshold, Info* info) {
  if (info->kind != 0) {
    return;
  }
  if (result[2] != R{0}) {
    info->kind = static_cast<std::int32_t>(Kind::non_finite);
  } else if (result[0] > threshold * result[1]) {
    info->kind = static_cast<std::int32_t>(Kind::not_hermitian);
  }
}

__global__ void reset_kernel(Info* info) {
  *info = Info{};
}

__global__ void set_if_ok_kernel(std::int32_t kind, std::int32_t position, Info* info) {
  if (info->kind == 0) {
    info->kind = kind;
    info->position = position;
  }
}

__global__ void set_phase_kernel(std::int32_t phase, std::int32_t rank, Info* info) {
  if (info->kind != 0 && info->phase == 0) {
    info->phase = phase;
    info->rank = rank;
  }
}

}  // namespace

template <class T>
void Cuda::log_diagonal(Lane& lane, Size n, const T* l, Size ldl, Real<T>* result) {
  if (n > 0) {
    log_diagonal_kernel<<<1, kThreads, 0, lane.stream()>>>(n, on_device(l), ldl, result);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

template <class T>
void Cuda::check_hermitian(Lane& lane, Size n, const T* diagonal, Size stride, const T* v,
                           const T* y, const T* z, Real<T>* result) {
  if (n > 0) {
    const auto blocks = static_cast<unsigned>(std::min<Size>(ceil_div(n, kThreads), 1024));
    check_hermitian_kernel<<<blocks, kThreads, 0, lane.stream()>>>(
        n, on_device(diagonal), stride, on_device(v), on_device(y), on_device(z), result);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

template <class T>
void Cuda::check_diagonal(Lane& lane, Size n, const T* a, Size lda, Size position, Info* info) {
  if (n <= 0) {
    return;
  }
  check_diagonal_kernel<<<1, kThreads, 0, lane.stream()>>>(n, on_device(a), lda, position, info);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template <class R>
void Cuda::judge_hermitian(Lane& lane, const R* result, R threshold, Info* info) {
  judge_hermitian_kernel<<<1, 1, 0, lane.stream()>>>(result, threshold, info);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

void Cuda::reset(Lane& lane, Info* info) {
  reset_kernel<<<1, 1, 0, lane.stream()>>>(info);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

void Cuda::set_if_ok(Lane& lane, Kind kind, Size position, Info* info) {
  set_if_ok_kernel<<<1, 1, 0, lane.stream()>>>(static_cast<std::int32_t>(kind), narrow(position),
                                               info);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

void Cuda::set_phase(Lane& lane, Phase phase, int rank, Info* info) {
  set_phase_kernel<<<1, 1, 0, lane.stream()>>>(static_cast<std::int32_t>(phase), rank, info);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

#define JAXMG_INSTANTIATE(T)                                                              \
  template void Cuda::log_diagonal<T>(Lane&, Size, const T*, Size, Real<T>*);             \
  template void Cuda::check_hermitian<T>(Lane&, Size, const T*, Size, const T*, const T*, \
                                         const T*, Real<T>*);                             \
  template void Cuda::check_diagonal<T>(Lane&, Size, const T*, Size, Size, Info*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE
template void Cuda::judge_hermitian<float>(Lane&, const float*, float, Info*);
template void Cuda::judge_hermitian<double>(Lane&, const double*, double, Info*);

}  // namespace jaxmg::tile
