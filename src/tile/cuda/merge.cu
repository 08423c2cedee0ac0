// The merges of one level of divide and conquer, all together: weights, and what is done to
// columns. The leaves are in tridiagonal_leaves.cu, deflation and the secular equation in
// deflation.cu and secular.cu.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"

namespace jaxmg::tile {
namespace {

// One thread an own row of Q, all rotations of its node in turn.
template <class R>
__global__ void rotate_kernel(MergeLevel level, MergeState s, Size begin, Size end, R* q,
                              Size ldq) {
  const Size j = static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x;
  const Size node = (begin + j) / level.size;
  if (begin + j >= end || node >= level.count()) {
    return;
  }
  const Size from = level.begin(node), count = s.counts[node].rotations;
  R* const column = q + from + j * ldq;
  for (Size r = 0; r < count; ++r) {
    const Rotation rotation = s.rotations[from + r];
    const R c = static_cast<R>(rotation.c), sine = static_cast<R>(rotation.s);
    const R x = column[rotation.first], y = column[rotation.second];
    column[rotation.first] = c * x + sine * y;
    column[rotation.second] = c * y - sine * x;
  }
}

}  // namespace

template <class R>
void Cuda::merge_weights(Lane& lane, const MergeLevel& level, const MergeState& s, Size begin,
                         Size end, const R* q, Size ldq) {
  for_each(lane, level.n, 1, [=] __device__(Size i, Size) {
    const Size node = i / level.size;
    double z = 0;
    if (node < level.count()) {
      const Size middle = level.middle(node), row = i < middle ? middle - 1 : middle;
      if (begin <= row && row < end) {
        const double sign = i >= middle && s.e[middle - 1] < 0 ? -1 : 1;
        z = sign * static_cast<double>(q[i + (row - begin) * ldq]);
      }
    }
    s.z[i] = z;
  });
}

template <class R>
void Cuda::rotate_columns(Lane& lane, const MergeLevel& level, const MergeState& s, Size begin,
                          Size end, R* q, Size ldq) {
  constexpr int threads = 64;
  if (end > begin) {
    rotate_kernel<R><<<static_cast<unsigned>(ceil_div(end - begin, Size{threads})), threads, 0,
                       lane.stream()>>>(level, s, begin, end, q, ldq);
    JAXMG_CUDA_CHECK(cudaGetLastError());
  }
}

template <class R>
void Cuda::arrange_columns(Lane& lane, const MergeLevel& level, const MergeState& s, Size begin,
                           Size end, const R* q, R* work, Size ld) {
  for_each(lane, std::min(level.size, level.n), end - begin, [=] __device__(Size i, Size j) {
    const Size node = (begin + j) / level.size;
    if (node < level.count() && level.begin(node) + i < level.end(node)) {
      const Size from = level.begin(node) + j * ld;
      work[from + i] = q[from + s.source[level.begin(node) + i]];
    }
  });
}

void Cuda::merged_values(Lane& lane, const MergeLevel& level, const MergeState& s) {
  for_each(lane, level.n, 1, [=] __device__(Size i, Size) {
    const Size node = i / level.size;
    if (node < level.count() && i - level.begin(node) < s.counts[node].poles) {
      s.d[i] = s.pole[i + (s.next[i] != 0 ? 1 : 0)] + s.tau[i];
    }
  });
}

void Cuda::merge_counts(Lane& lane, const MergeLevel& level, const MergeState& s,
                        MergeCounts* counts) {
  JAXMG_CUDA_CHECK(cudaMemcpyAsync(counts, s.counts,
                                   static_cast<std::size_t>(level.count()) * sizeof(MergeCounts),
                                   cudaMemcpyDeviceToHost, lane.stream()));
  JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
}

#define JAXMG_INSTANTIATE(R)                                                                      \
  template void Cuda::merge_weights<R>(Lane&, const MergeLevel&, const MergeState&, Size, Size,   \
                                       const R*, Size);                                           \
  template void Cuda::rotate_columns<R>(Lane&, const MergeLevel&, const MergeState&, Size, Size,  \
                                        R*, Size);                                                \
  template void Cuda::arrange_columns<R>(Lane&, const MergeLevel&, const MergeState&, Size, Size, \
                                         const R*, R*, Size);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
