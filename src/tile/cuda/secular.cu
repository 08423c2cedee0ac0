// The secular equations of one level of divide and conquer: a warp for each root and for each
// weight, a block of threads for each vector. See tile/secular.h.
#include "tile/secular.h"

#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"

namespace jaxmg::tile {
namespace {

constexpr int kWarps = kThreads / 32;
constexpr int kVectorThreads = 128;

// The lanes of a warp share the terms of a sum.
struct WarpWorker {
  __device__ static Size first() { return threadIdx.x % 32; }
  __device__ static Size step() { return 32; }
  __device__ static double sum(double x) { return warp_sum(x); }
  __device__ static double product(double x) {
    for (int offset = 16; offset > 0; offset /= 2) {
      x *= __shfl_xor_sync(~0u, x, offset);
    }
    return x;
  }
};

// The pole of this warp in node blockIdx.y, or -1 if there is none in the places first .. last - 1.
__device__ Size own_pole(const MergeLevel& level, const MergeState& s, Size first, Size last) {
  const Size i = static_cast<Size>(blockIdx.x) * kWarps + threadIdx.x / 32;
  const Size place = level.begin(blockIdx.y) + i;
  return i < s.counts[blockIdx.y].poles && first <= place && place < last ? i : -1;
}

__global__ void __launch_bounds__(kThreads)
    roots_kernel(MergeLevel level, MergeState s, Size first, Size last) {
  const Size i = own_pole(level, s, first, last);
  if (i < 0) {
    return;
  }
  const Size from = level.begin(blockIdx.y);
  const SecularRoot root =
      secular_root(WarpWorker{}, s.counts[blockIdx.y].poles, s.pole + from, s.pole_z + from,
                   fabs(s.e[level.middle(blockIdx.y) - 1]), i);
  if (threadIdx.x % 32 == 0) {
    s.tau[from + i] = root.tau;
    s.next[from + i] = static_cast<double>(root.origin - i);
    if (!root.converged) {
      *s.failed = 1;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    weights_kernel(MergeLevel level, MergeState s, Size first, Size last) {
  const Size i = own_pole(level, s, first, last);
  if (i < 0) {
    return;
  }
  const Size from = level.begin(blockIdx.y);
  const double weight =
      secular_weight(WarpWorker{}, s.counts[blockIdx.y].poles, s.pole + from, s.pole_z + from,
                     SecularPlace{s.tau + from, s.next + from}, i);
  if (threadIdx.x % 32 == 0) {
    s.weight[from + i] = weight;
  }
}

// Unit eigenvector `root` of a node with k poles, by all threads of the block.
template <class R>
__device__ void store_vector(const MergeState& s, Size from, Size k, Size root, R* u) {
  __shared__ double sums[kVectorThreads / 32];
  const double* const d = s.pole + from;
  const double* const weights = s.weight + from;
  const double pole = d[root + (s.next[from + root] != 0 ? 1 : 0)], shift = s.tau[from + root];
  double squares = 0;
  for (Size j = threadIdx.x; j < k; j += kVectorThreads) {
    const double x = weights[j] / ((d[j] - pole) - shift);
    squares += x * x;
  }
  squares = warp_sum(squares);
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = squares;
  }
  __syncthreads();
  squares = 0;
  for (int w = 0; w < kVectorThreads / 32; ++w) {
    squares += sums[w];
  }
  const double scale = 1 / sqrt(squares);
  for (Size j = threadIdx.x; j < k; j += kVectorThreads) {
    u[s.place[from + j]] = static_cast<R>(weights[j] / ((d[j] - pole) - shift) * scale);
  }
}

template <class R>
__global__ void __launch_bounds__(kVectorThreads)
    vectors_kernel(MergeLevel level, MergeState s, Size node, Size k, Size first, const Size* roots,
                   R* u, Size ldu) {
  const Size c = blockIdx.x;
  const Size root = roots != nullptr ? roots[c] : first + c;
  store_vector(s, level.begin(node), k, root, u + c * ldu);
}

template <class R>
__global__ void __launch_bounds__(kVectorThreads)
    whole_kernel(MergeLevel level, MergeState s, Size first, R* u) {
  const Size node = first + blockIdx.y, c = blockIdx.x;
  const Size from = level.begin(node), k = s.counts[node].poles;
  R* const column = u + blockIdx.y * level.size * level.size + c * level.size;
  for (Size j = threadIdx.x; j < level.size; j += kVectorThreads) {
    if (c >= k || j >= k) {
      column[j] = c >= k && j == c ? R{1} : R{0};
    }
  }
  if (c < k) {
    store_vector(s, from, k, c, column);
  }
}

dim3 warps_for(const MergeLevel& level) {
  return {static_cast<unsigned>(ceil_div(std::min(level.size, level.n), Size{kWarps})),
          static_cast<unsigned>(level.count())};
}

}  // namespace

void Cuda::secular_roots(Lane& lane, const MergeLevel& level, const MergeState& s, Size first,
                         Size last) {
  roots_kernel<<<warps_for(level), kThreads, 0, lane.stream()>>>(level, s, first, last);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

void Cuda::secular_weights(Lane& lane, const MergeLevel& level, const MergeState& s, Size first,
                           Size last) {
  weights_kernel<<<warps_for(level), kThreads, 0, lane.stream()>>>(level, s, first, last);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template <class R>
void Cuda::secular_vectors(Lane& lane, const MergeLevel& level, const MergeState& s, Size node,
                           Size k, Size first, Size count, const Size* roots, R* u, Size ldu,
                           double* work) {
  if (k <= 0 || count <= 0) {
    return;
  }
  Size* const list = roots != nullptr ? reinterpret_cast<Size*>(work) : nullptr;
  if (roots != nullptr) {
    JAXMG_CUDA_CHECK(cudaMemcpyAsync(list, roots + first,
                                     static_cast<std::size_t>(count) * sizeof(Size),
                                     cudaMemcpyHostToDevice, lane.stream()));
  }
  vectors_kernel<R><<<static_cast<unsigned>(count), kVectorThreads, 0, lane.stream()>>>(
      level, s, node, k, first, list, u, ldu);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template <class R>
void Cuda::merge_vectors(Lane& lane, const MergeLevel& level, const MergeState& s, Size first,
                         Size count, R* u) {
  if (count <= 0) {
    return;
  }
  const dim3 grid(static_cast<unsigned>(level.size), static_cast<unsigned>(count));
  whole_kernel<R><<<grid, kVectorThreads, 0, lane.stream()>>>(level, s, first, u);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

#define JAXMG_INSTANTIATE(R)                                                                      \
  template void Cuda::secular_vectors<R>(Lane&, const MergeLevel&, const MergeState&, Size, Size, \
                                         Size, Size, const Size*, R*, Size, double*);             \
  template void Cuda::merge_vectors<R>(Lane&, const MergeLevel&, const MergeState&, Size, Size, R*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
