// The smallest matrices of divide and conquer: eigenvalues and eigenvectors of each by QL, a warp a
// matrix. See tile/tridiagonal_ql.h.
//
// A sweep is a chain of rotations of which each needs the one before, so that what counts is how
// soon one follows another. Lane i has the elements d_i and e_i and row i of Z; all lanes carry out
// all of the chain. A sweep reads what it has not changed itself: the elements of the next rotation
// are on their way while one is made, and what is new is put in place afterwards.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"

namespace jaxmg::tile {
namespace {

constexpr int kLeaf = Cuda::tridiagonal_leaf;
static_assert(kLeaf <= 32);
constexpr int kLeafStride = kLeaf + 1;

__device__ double from_lane(double x, int lane) {
  return __shfl_sync(~0u, x, lane);
}

// The last row of the block that begins with row l: the first one from there on whose element e is
// negligible, or the last of all. `scale` is that of the whole matrix.
__device__ int last_of_block(double d, double e, double scale, int length, int l) {
  constexpr double eps = 1.1102230246251565e-16;
  const int lane = static_cast<int>(threadIdx.x);
  const double next = __shfl_down_sync(~0u, d, 1), size = fabs(e);
  const bool last =
      lane + 1 >= length || size <= eps * (fabs(d) + fabs(next)) || size <= 0.5 * eps * scale;
  return __ffs(static_cast<int>(__ballot_sync(~0u, last) & (~0u << l))) - 1;
}

// c = g / r, s = f / r, r = (f^2 + g^2)^(1/2)
struct PlaneRotation {
  double c, s, r;
};
__device__ PlaneRotation rotation_of(double f, double g) {
  constexpr double least = kLeastSquare<double>, most = 1 / least;
  const double squares = f * f + g * g;
  if (least <= squares && squares <= most) {  // the reciprocal of a root is one operation
    const double inverse = rsqrt(squares);
    return {g * inverse, f * inverse, squares * inverse};
  }
  const double r = hypot(f, g);
  return {g / r, f / r, r};
}

// One sweep of QL on rows l .. m.
__device__ void leaf_sweep(double& d, double& e, double* row, int l, int m) {
  const int lane = static_cast<int>(threadIdx.x);
  const double first = from_lane(d, l), first_e = from_lane(e, l);
  const double half = (from_lane(d, l + 1) - first) / (2 * first_e);
  double upper = from_lane(d, m), lower = from_lane(d, m - 1), between = from_lane(e, m - 1);
  double g = upper - first + first_e / (half + copysign(sqrt(half * half + 1), half));
  double c = 1, s = 1, p = 0;
  double new_d = d, new_e = lane == m ? 0 : e;
  double y = row[m], x = row[m - 1];
  bool deflated = false;
  int i = m - 1;
  for (; i >= l; --i) {
    const int next = i > 0 ? i - 1 : 0;
    const double next_lower = from_lane(d, next), next_between = from_lane(e, next);
    const double next_x = row[next];
    const double f = s * between, b = c * between;
    const PlaneRotation rotation = rotation_of(f, g);
    if (lane == i + 1 && i + 1 < m) {
      new_e = rotation.r;
    }
    if (rotation.r == 0) {  // the matrix has fallen apart on the way
      if (lane == i + 1) {
        new_d = upper - p;
      }
      deflated = true;
      break;
    }
    s = rotation.s;
    c = rotation.c;
    g = upper - p;
    const double t = (lower - g) * s + 2 * c * b;
    p = s * t;
    if (lane == i + 1) {
      new_d = g + p;
    }
    g = c * t - b;
    row[i + 1] = s * x + c * y;
    y = c * x - s * y;
    x = next_x;
    upper = lower;
    lower = next_lower;
    between = next_between;
  }
  row[i + 1] = y;
  if (!deflated && lane == l) {
    new_d = first - p;
    new_e = g;
  }
  d = new_d;
  e = new_e;
}

template <class R>
__global__ void __launch_bounds__(32)
    leaf_kernel(Size n, Size size, MergeState s, Size begin, Size end, R* q, Size ldq) {
  constexpr int kMostIterations = 60;
  __shared__ double z[32 * kLeafStride];  // also of lanes that have no row
  const int lane = static_cast<int>(threadIdx.x);
  const Size from = static_cast<Size>(blockIdx.x) * size;
  const int length = static_cast<int>(n - from < size ? n - from : size);
  double* const row = z + lane * kLeafStride;
  for (int j = 0; j < length; ++j) {
    row[j] = j == lane ? 1 : 0;
  }
  double d = lane < length ? s.d[from + lane] : 0;
  double e = lane + 1 < length ? s.e[from + lane] : 0;
  const double scale = warp_max(fabs(d) + fabs(e));
  for (int l = 0; l < length; ++l) {
    for (int iteration = 0;; ++iteration) {
      const int m = last_of_block(d, e, scale, length, l);
      if (m == l) {
        break;
      }
      if (iteration == kMostIterations) {
        *s.failed = 1;
        break;
      }
      leaf_sweep(d, e, row, l, m);
    }
  }
  __syncwarp();
  if (lane < length) {
    s.d[from + lane] = d;
  }
  for (int x = lane; x < length * length; x += 32) {
    const int j = x % length, k = x / length;
    if (begin <= from + k && from + k < end) {
      q[from + j + (from + k - begin) * ldq] = static_cast<R>(z[k * kLeafStride + j]);
    }
  }
}

}  // namespace

template <class R>
void Cuda::tridiagonal_leaves(Lane& lane, Size n, Size size, const MergeState& s, Size begin,
                              Size end, R* q, Size ldq) {
  leaf_kernel<R><<<static_cast<unsigned>(ceil_div(n, size)), 32, 0, lane.stream()>>>(
      n, size, s, begin, end, q, ldq);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template void Cuda::tridiagonal_leaves<float>(Lane&, Size, Size, const MergeState&, Size, Size,
                                              float*, Size);
template void Cuda::tridiagonal_leaves<double>(Lane&, Size, Size, const MergeState&, Size, Size,
                                               double*, Size);

}  // namespace jaxmg::tile
