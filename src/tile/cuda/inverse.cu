// Inverses of lower triangles: small ones on the diagonal by a kernel, joined by products.
//
//   inv( L11  0  ) = (        X11          0  )     X11 = inv(L11), X22 = inv(L22)
//      ( L21 L22 )   ( -X22 L21 X11       X22 )
//
// A level of joins is two batched products, so a tile of 512 takes ten launches.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"
#include "tile/cuda/scratch.h"
#include "tile/cuda/triangle.h"

namespace jaxmg::tile {
namespace {

constexpr int kBase = 32;  // edge of the triangles that the kernel inverts
constexpr int kThreadsPerColumn = 4;

template <class D>
using RealOf = decltype(real_part(D{}));

template <class R>
__device__ R add_lanes(R x) {
  x += __shfl_xor_sync(0xffffffffu, x, 1);
  return x + __shfl_xor_sync(0xffffffffu, x, 2);
}
template <class R>
__device__ DeviceComplex<R> add_lanes(DeviceComplex<R> x) {
  return {add_lanes(x.re), add_lanes(x.im)};
}

// Block b: the triangle at (edge b, edge b); its inverse goes to x + b step. Column j of it by
// forward substitution,
//   x_ij = (delta_ij - sum_{k < i} l_ik x_kj) / l_ii,
// with four neighbouring threads a column, so that no more than a warp has to wait for anything.
template <class D, int edge>
__global__ void __launch_bounds__(edge* kThreadsPerColumn)
    invert_base_kernel(Size n, const D* l, Size ldl, D* x, Size ldx, Size step) {
  extern __shared__ double2 shared[];
  D(*const lower)[edge + 1] = reinterpret_cast<D(*)[edge + 1]>(shared);
  D(*const inverse)[edge + 1] = lower + edge;
  const Size first = static_cast<Size>(blockIdx.x) * edge;
  const int size = static_cast<int>(n - first < edge ? n - first : edge);
  x += static_cast<Size>(blockIdx.x) * step;
  for (int e = static_cast<int>(threadIdx.x); e < edge * edge; e += edge * kThreadsPerColumn) {
    const int i = e % edge;
    const int j = e / edge;
    if (i < size && j <= i) {
      lower[i][j] = l[first + i + (first + j) * ldl];
    }
  }
  __syncthreads();
  const int column = static_cast<int>(threadIdx.x) / kThreadsPerColumn;
  const int part = static_cast<int>(threadIdx.x) % kThreadsPerColumn;
  for (int i = 0; i < size; ++i) {
    D sum{};
    for (int k = column + part; k < i; k += kThreadsPerColumn) {
      sum = sum + lower[i][k] * inverse[k][column];
    }
    sum = add_lanes(sum);
    if (part == 0) {
      const D right = i == column ? element<D>(RealOf<D>{1}) : element<D>(RealOf<D>{0});
      inverse[i][column] =
          i < column ? element<D>(RealOf<D>{0})
                     : (right + element<D>(RealOf<D>{-1}) * sum) * reciprocal(lower[i][i]);
    }
    __syncwarp();
  }
  __syncthreads();
  for (int e = static_cast<int>(threadIdx.x); e < edge * edge; e += edge * kThreadsPerColumn) {
    const int i = e % edge;
    const int j = e / edge;
    if (i < size && j < size) {
      x[i + j * ldx] = inverse[i][j];
    }
  }
}

template <int edge, class T>
void invert_base(CudaLane& lane, Size n, const T* l, Size ldl, T* x, Size ldx, Size step) {
  using D = DeviceType<T>;
  constexpr int bytes = 2 * edge * (edge + 1) * static_cast<int>(sizeof(D));
  if constexpr (bytes > static_cast<int>(kPlainSharedMemory)) {
    allow_shared_memory(invert_base_kernel<D, edge>, bytes);
  }
  invert_base_kernel<D, edge>
      <<<static_cast<unsigned>(ceil_div(n, edge)), edge * kThreadsPerColumn, bytes,
         lane.stream()>>>(n, on_device(l), ldl, on_device(x), ldx, step);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

// Inverses of edge h on the diagonal of x are joined to such of edge 2 h. t: n h / 2 elements.
template <class T>
void join(CudaLane& lane, Size n, Size h, const T* l, Size ldl, T* x, Size ldx, T* t) {
  const Size pairs = n / (2 * h);
  const Size step_l = 2 * h * (ldl + 1);
  const Size step_x = 2 * h * (ldx + 1);
  Cuda::gemm_strided<T>(lane, Op::none, Op::none, h, h, h, T(1), l + h, ldl, step_l, x, ldx, step_x,
                        T(0), t, h, h * h, pairs);
  Cuda::gemm_strided<T>(lane, Op::none, Op::none, h, h, h, T(-1), x + h * (ldx + 1), ldx, step_x, t,
                        h, h * h, T(0), x + h, ldx, step_x, pairs);
  const Size first = pairs * 2 * h;
  const Size rest = n - first - h;  // rows of an incomplete last pair
  if (rest > 0) {
    const T* l21 = l + first + h + first * ldl;
    T* x11 = x + first * (ldx + 1);
    T* rest_t = t + pairs * h * h;
    Cuda::gemm<T>(lane, Op::none, Op::none, rest, h, h, T(1), l21, ldl, x11, ldx, T(0), rest_t,
                  rest);
    Cuda::gemm<T>(lane, Op::none, Op::none, rest, h, rest, T(-1), x11 + h * (ldx + 1), ldx, rest_t,
                  rest, T(0), x11 + h, ldx);
  }
}

// Inverses of the blocks of edge `edge` on the diagonal of L (the last may be smaller), 0
// elsewhere.
template <class T>
void invert_diagonal(CudaLane& lane, Size n, Size edge, const T* l, Size ldl, T* x, Size ldx) {
  Cuda::fill<T>(lane, n, n, T(0), T(0), x, ldx);
  invert_base<kBase>(lane, n, l, ldl, x, ldx, kBase * (ldx + 1));
  if (n > kBase) {
    T* const t = static_cast<T*>(lane.scratch(triangle_bytes(dtype_of<T>, n)));
    for (Size h = kBase; h < std::min(n, edge); h *= 2) {
      join(lane, n, h, l, ldl, x, ldx, t);
    }
  }
}

}  // namespace

template <class T>
void Cuda::invert_lower(Lane& lane, Size n, const T* l, Size ldl, T* x, Size ldx) {
  if (n > 0) {
    invert_diagonal(lane, n, n, l, ldl, x, ldx);
  }
}

template <class T>
void Cuda::invert_blocks(Lane& lane, Size n, const T* l, Size ldl, T* x, Size ldx) {
  if (n <= 0) {
    return;
  }
  constexpr Size edge = Cuda::inverse_block;
  invert_diagonal(lane, n, edge, l, ldl, x, ldx);
  for (Size j = edge; j < n; j += edge) {
    const Size w = std::min(edge, n - j);
    gemm<T>(lane, Op::none, Op::none, w, j, w, T(1), x + j * (ldx + 1), ldx, l + j, ldl, T(0),
            x + j, ldx);
  }
}

namespace {

// A clean copy of a triangle, as lower one, behind the scratch that inversion works in.
template <class T>
T* copied_triangle(CudaLane& lane, Uplo uplo, Diag diag, Size n, const T* a, Size lda) {
  constexpr DType type = dtype_of<T>;
  char* const scratch = static_cast<char*>(lane.scratch(inversion_bytes(type, n)));
  T* const t = reinterpret_cast<T*>(scratch + triangle_bytes(type, n));
  copy_masked(lane, uplo, diag, n, a, lda, t);
  return t;
}

}  // namespace

template <class T>
void Cuda::invert_triangle(Lane& lane, Uplo uplo, Diag diag, Size n, const T* a, Size lda, T* x,
                           Size ldx) {
  if (n > 0) {
    invert_lower<T>(lane, n, copied_triangle(lane, uplo, diag, n, a, lda), n, x, ldx);
  }
}

template <class T>
void Cuda::invert_unit_blocks(Lane& lane, Size n, const T* l, Size ldl, T* x, Size ldx) {
  if (n > 0) {
    const T* const lower = copied_triangle(lane, Uplo::lower, Diag::unit, n, l, ldl);
    invert_blocks<T>(lane, n, lower, n, x, ldx);
  }
}

#define JAXMG_INSTANTIATE(T)                                                                 \
  template void Cuda::invert_lower<T>(Lane&, Size, const T*, Size, T*, Size);                \
  template void Cuda::invert_blocks<T>(Lane&, Size, const T*, Size, T*, Size);               \
  template void Cuda::invert_triangle<T>(Lane&, Uplo, Diag, Size, const T*, Size, T*, Size); \
  template void Cuda::invert_unit_blocks<T>(Lane&, Size, const T*, Size, T*, Size);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
