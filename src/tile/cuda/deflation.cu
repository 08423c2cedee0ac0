// What becomes of the poles of the merges of one level, all merges together: their order, and which
// of them are eigenvalues already. See tile/deflation.h.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"

namespace jaxmg::tile {
namespace {

constexpr int kMostThreads = 1024;

// Bit patterns as integers that are ordered as the numbers are, NaN among them: ranks of any
// numbers are a permutation.
__device__ long long ordered(double x) {
  const long long bits = __double_as_longlong(x);
  return bits < 0 ? bits ^ 0x7fffffffffffffffLL : bits;
}

// Each thread counts what comes before its own eigenvalue.
__global__ void __launch_bounds__(kThreads) sort_kernel(MergeLevel level, MergeState s) {
  __shared__ long long others[kThreads];
  const Size from = level.begin(blockIdx.y), count = level.end(blockIdx.y) - from;
  if (static_cast<Size>(blockIdx.x) * kThreads >= count) {
    return;
  }
  const Size i = static_cast<Size>(blockIdx.x) * kThreads + threadIdx.x;
  const double value = i < count ? s.d[from + i] : 0;
  const long long mine = ordered(value);
  Size rank = 0;
  for (Size base = 0; base < count; base += kThreads) {
    __syncthreads();
    const Size other = base + threadIdx.x;
    others[threadIdx.x] = other < count ? ordered(s.d[from + other]) : 0;
    __syncthreads();
    const int length = static_cast<int>(count - base < kThreads ? count - base : kThreads);
    const int before = base + length <= i ? length : i < base ? 0 : static_cast<int>(i - base);
    for (int j = 0; j < length; ++j) {
      rank += others[j] < mine || (others[j] == mine && j < before) ? 1 : 0;
    }
  }
  if (i < count) {
    s.sorted[from + rank] = value;
    s.sorted_z[from + rank] = s.z[from + i];
    s.column[from + rank] = i;
  }
}

// How many threads of the block before this one have the flag, and how many in all.
struct BlockRank {
  int rank;
  int total;
};
__device__ BlockRank block_rank(bool flag, int* counts) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const unsigned flags = __ballot_sync(~0u, flag);
  if (lane == 0) {
    counts[warp] = __popc(flags);
  }
  __syncthreads();
  BlockRank result{__popc(flags & ((1u << lane) - 1)), 0};
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) {
    result.rank += w < warp ? counts[w] : 0;
    result.total += counts[w];
  }
  __syncthreads();
  return result;
}
__device__ double block_largest(double x, double* shared) {
  x = warp_max(x);
  if (threadIdx.x % 32 == 0) {
    shared[threadIdx.x / 32] = x;
  }
  __syncthreads();
  for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) {
    x = fmax(x, shared[w]);
  }
  __syncthreads();
  return x;
}

// What has become of a pole that has some weight, while the merge is being deflated (in `place`).
enum PoleState { kKept = 1, kRotated = 2, kHead = 4 };
// Where the column of a pole is not zero (in `half`).
enum Half { kAbove = 0, kBoth = 1, kBelow = 2 };

// The parts of a node, and its size and tolerance.
struct Node {
  double *d, *sorted, *sorted_z, *pole, *pole_z;
  Size *source, *place, *column, *half;
  Rotation* rotations;
  Size size, top;
  double tolerance;
};

// Poles in order from `i` to the next head: of two that are next to equal one becomes an
// eigenvalue, see tile/deflation.h.
__device__ void deflate_chain(const Node& a, Size i, Size count) {
  double pole = a.pole[i], z = a.pole_z[i];
  double least = pole;  // rotated poles may be out of order by rounding errors
  Size column = a.column[i], half = a.half[i];
  Size last = i;
  for (Size j = i + 1; j < count && (a.place[j] & kHead) == 0; ++j) {
    double next = a.pole[j], next_z = a.pole_z[j];
    Size next_half = a.half[j];
    const double length = hypot(next_z, z), c = next_z / length, s = -z / length;
    if (fabs((next - pole) * c * s) <= a.tolerance) {
      // The weight moves from the last one to j.
      a.rotations[j] = {column, a.column[j], c, s};
      a.place[j] |= kRotated;
      a.pole[last] = pole * c * c + next * s * s;
      next = pole * s * s + next * c * c;
      a.pole_z[j] = next_z = length;
      a.half[j] = next_half = half != next_half ? static_cast<Size>(kBoth) : half;
    } else {
      a.pole[last] = least = fmax(pole, least);
      a.place[last] |= kKept;
    }
    last = j;
    pole = next;
    z = next_z;
    column = a.column[j];
    half = next_half;
  }
  a.pole[last] = fmax(pole, least);
  a.place[last] |= kKept;
}

// Poles of negligible weight go to the end; returns how many are left, side by side in order.
__device__ Size drop_light_poles(const Node& a, double rho, int* counts) {
  Size kept = 0, dropped = 0;
  for (Size base = 0; base < a.size; base += blockDim.x) {
    const Size i = base + threadIdx.x;
    const bool valid = i < a.size;
    const double d = valid ? a.sorted[i] : 0, z = valid ? a.sorted_z[i] : 0;
    const Size column = valid ? a.column[i] : 0;
    const bool light = valid && !(rho * fabs(z) > a.tolerance), heavy = valid && !light;
    const BlockRank in_kept = block_rank(heavy, counts), in_dropped = block_rank(light, counts);
    if (heavy) {
      const Size to = kept + in_kept.rank;
      a.pole[to] = d;
      a.pole_z[to] = z;
      a.column[to] = column;
      a.half[to] = column < a.top ? kAbove : kBelow;
    } else if (light) {
      const Size to = a.size - 1 - (dropped + in_dropped.rank);
      a.d[to] = d;
      a.source[to] = column;
    }
    kept += in_kept.total;
    dropped += in_dropped.total;
  }
  return kept;
}

// Poles that are kept close ranks, others go to the end before those that went there already.
__device__ MergeCounts close_ranks(const Node& a, Size count, int* counts) {
  MergeCounts sums;
  for (Size base = 0; base < count; base += blockDim.x) {
    const Size i = base + threadIdx.x;
    const bool kept = i < count && (a.place[i] & kKept) != 0;
    sums.poles += block_rank(kept, counts).total;
    sums.above += block_rank(kept && a.half[i] == kAbove, counts).total;
    sums.both += block_rank(kept && a.half[i] == kBoth, counts).total;
  }
  Size dropped = a.size - count, poles = 0;
  Size next[3] = {0, sums.above, sums.above + sums.both};
  for (Size base = 0; base < count; base += blockDim.x) {
    const Size i = base + threadIdx.x;
    const bool valid = i < count;
    const Size state = valid ? a.place[i] : 0, column = valid ? a.column[i] : 0;
    const double pole = valid ? a.pole[i] : 0, z = valid ? a.pole_z[i] : 0;
    const Size half = valid ? a.half[i] : 0;
    const bool kept = (state & kKept) != 0, rotated = (state & kRotated) != 0;
    const Rotation rotation = rotated ? a.rotations[i] : Rotation{};
    const BlockRank in_poles = block_rank(kept, counts);
    const BlockRank in_dropped = block_rank(valid && !kept, counts);
    const BlockRank in_rotations = block_rank(rotated, counts);
    Size place = 0;
    for (int h = 0; h < 3; ++h) {
      const BlockRank in_half = block_rank(kept && half == h, counts);
      if (half == h) {
        place = next[h] + in_half.rank;
      }
      next[h] += in_half.total;
    }
    if (kept) {
      const Size to = poles + in_poles.rank;
      a.pole[to] = pole;
      a.pole_z[to] = z;
      a.place[to] = place;
      a.source[place] = column;
    } else if (valid) {
      const Size to = a.size - 1 - (dropped + in_dropped.rank);
      a.d[to] = pole;
      a.source[to] = column;
    }
    if (rotated) {
      a.rotations[sums.rotations + in_rotations.rank] = rotation;
    }
    poles += in_poles.total;
    dropped += in_dropped.total;
    sums.rotations += in_rotations.total;
  }
  return sums;
}

// One block of threads a node.
__global__ void __launch_bounds__(kMostThreads)
    deflate_kernel(MergeLevel level, MergeState s, double eps, double norm) {
  __shared__ double largest[32];
  __shared__ int counts[32];
  const Size from = level.begin(blockIdx.x), middle = level.middle(blockIdx.x);
  const double rho = fabs(s.e[middle - 1]);
  Node a{s.d + from,
         s.sorted + from,
         s.sorted_z + from,
         s.pole + from,
         s.pole_z + from,
         s.source + from,
         s.place + from,
         s.column + from,
         s.half + from,
         s.rotations + from,
         level.end(blockIdx.x) - from,
         middle - from,
         0};
  double largest_d = 0, largest_z = 0;
  for (Size i = threadIdx.x; i < a.size; i += blockDim.x) {
    largest_d = fmax(largest_d, fabs(a.sorted[i]));
    largest_z = fmax(largest_z, fabs(a.sorted_z[i]));
  }
  largest_d = block_largest(largest_d, largest);
  largest_z = block_largest(largest_z, largest);
  a.tolerance = 4 * eps * fmax(fmax(largest_d, rho * largest_z), eps * norm);

  const Size count = drop_light_poles(a, rho, counts);
  // Poles further apart than twice the tolerance have nothing to do with each other, and rotations
  // only widen the gap to the next one: chains between such gaps are independent.
  for (Size i = threadIdx.x; i < count; i += blockDim.x) {
    const bool head = i == 0 || a.pole[i] - a.pole[i - 1] > 2.5 * a.tolerance;
    a.place[i] = head ? kHead : 0;
  }
  __syncthreads();
  for (Size i = threadIdx.x; i < count; i += blockDim.x) {
    if ((a.place[i] & kHead) != 0) {
      deflate_chain(a, i, count);
    }
  }
  __syncthreads();
  const MergeCounts sums = close_ranks(a, count, counts);
  if (threadIdx.x == 0) {
    s.counts[blockIdx.x] = sums;
  }
}

}  // namespace

void Cuda::deflate(Lane& lane, const MergeLevel& level, const MergeState& s, double eps,
                   double norm) {
  const auto nodes = static_cast<unsigned>(level.count());
  const dim3 grid(static_cast<unsigned>(ceil_div(std::min(level.size, level.n), kThreads)), nodes);
  sort_kernel<<<grid, kThreads, 0, lane.stream()>>>(level, s);
  JAXMG_CUDA_CHECK(cudaGetLastError());
  const int threads = level.size <= kThreads ? kThreads : kMostThreads;
  deflate_kernel<<<nodes, threads, 0, lane.stream()>>>(level, s, eps, norm);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

}  // namespace jaxmg::tile
