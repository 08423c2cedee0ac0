// The smallest matrices of divide and conquer: eigenvalues and eigenvectors of each by QL, a warp a
// matrix. See tile/tridiagonal_ql.h.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"

namespace jaxmg::tile {
namespace {

constexpr int kLeaf = Cuda::tridiagonal_leaf;
constexpr int kLeafStride = kLeaf + 1;

// One warp's tridiagonal matrix; row k of z belongs to lane k mod 32.
struct Leaf {
  double z[kLeaf * kLeafStride];
  double d[kLeaf];
  double e[kLeaf];
};

__device__ bool negligible(const Leaf& a, int i, double norm) {
  constexpr double eps = 1.1102230246251565e-16;
  return fabs(a.e[i]) <= eps * (fabs(a.d[i]) + fabs(a.d[i + 1])) ||
         fabs(a.e[i]) <= 0.5 * eps * norm;
}

// One sweep of QL on rows l .. m.
__device__ void leaf_sweep(Leaf& a, int n, int l, int m) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const double half = (a.d[l + 1] - a.d[l]) / (2 * a.e[l]);
  double g = a.d[m] - a.d[l] + a.e[l] / (half + copysign(hypot(half, 1.0), half));
  double c = 1, s = 1, p = 0;
  bool deflated = false;
  for (int i = m - 1; i >= l; --i) {
    const double f = s * a.e[i], b = c * a.e[i];
    const double upper = a.d[i + 1], lower = a.d[i];
    const double r = hypot(f, g);
    __syncwarp();
    if (lane == 0 && i + 1 < m) {
      a.e[i + 1] = r;
    }
    if (r == 0) {  // the matrix has fallen apart on the way
      if (lane == 0) {
        a.d[i + 1] = upper - p;
      }
      deflated = true;
      break;
    }
    s = f / r;
    c = g / r;
    g = upper - p;
    const double t = (lower - g) * s + 2 * c * b;
    p = s * t;
    if (lane == 0) {
      a.d[i + 1] = g + p;
    }
    g = c * t - b;
    for (int k = lane; k < n; k += 32) {
      double* const row = a.z + k * kLeafStride + i;
      const double x = row[0], y = row[1];
      row[1] = s * x + c * y;
      row[0] = c * x - s * y;
    }
    __syncwarp();
  }
  __syncwarp();
  if (lane == 0) {
    if (!deflated) {
      a.d[l] -= p;
      a.e[l] = g;
    }
    a.e[m] = 0;
  }
  __syncwarp();
}

template <class R>
__global__ void __launch_bounds__(32)
    leaf_kernel(Size n, Size size, MergeState s, Size begin, Size end, R* q, Size ldq) {
  constexpr int kMostIterations = 60;
  __shared__ Leaf a;
  const int lane = static_cast<int>(threadIdx.x);
  const Size from = static_cast<Size>(blockIdx.x) * size;
  const int length = static_cast<int>(n - from < size ? n - from : size);
  for (int x = lane; x < length * kLeafStride; x += 32) {
    a.z[x] = x / kLeafStride == x % kLeafStride ? 1 : 0;
  }
  double norm = 0;
  for (int i = lane; i < length; i += 32) {
    a.d[i] = s.d[from + i];
    a.e[i] = i + 1 < length ? s.e[from + i] : 0;
    norm = fmax(norm, fabs(a.d[i]) + fabs(a.e[i]));
  }
  norm = warp_max(norm);
  __syncwarp();
  for (int l = 0; l < length; ++l) {
    for (int iteration = 0;; ++iteration) {
      int m = l;
      while (m + 1 < length && !negligible(a, m, norm)) {
        ++m;
      }
      if (m == l) {
        break;
      }
      if (iteration == kMostIterations) {
        *s.failed = 1;
        break;
      }
      __syncwarp();
      leaf_sweep(a, length, l, m);
    }
  }
  __syncwarp();
  for (int i = lane; i < length; i += 32) {
    s.d[from + i] = a.d[i];
  }
  for (int x = lane; x < length * length; x += 32) {
    const int j = x % length, k = x / length;
    if (begin <= from + k && from + k < end) {
      q[from + j + (from + k - begin) * ldq] = static_cast<R>(a.z[k * kLeafStride + j]);
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
