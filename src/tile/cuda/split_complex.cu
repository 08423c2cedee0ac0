// complex64 products by tensor cores: those of real matrices of half-precision parts (split.cu),
// with two rows for each complex one. A complex matrix of m rows is, as it lies in memory, a real
// one of 2 m rows (Re and Im by turns), so that C is updated where it is, by one real product.
//
//   Re (a conj b) = [Re a,  Im a] [Re b, Im b]^T
//   Im (a conj b) = [Im a, -Re a] [Re b, Im b]^T
//
// Accuracy is that of the real product of twice the inner dimension.
#include <cuda_fp16.h>

#include <algorithm>

#include "tile/cuda/halves.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

struct ComplexHalves {
  __half2 hi;  // Re, Im
  __half2 lo;
};

__device__ ComplexHalves halves_of(DeviceComplex<float> z) {
  const float re = kSplitScale * z.re;
  const float im = kSplitScale * z.im;
  const __half2 hi = __floats2half2_rn(re, im);
  return {hi, __floats2half2_rn(re - __low2float(hi), im - __high2float(hi))};
}

// z -> -i z and z -> i z, z being (Re, Im)
__device__ __half2 times_minus_i(__half2 z) {
  return __halves2half2(__high2half(z), __hneg(__low2half(z)));
}
__device__ __half2 times_i(__half2 z) {
  return __halves2half2(__hneg(__high2half(z)), __low2half(z));
}

template <class Store>
__global__ void __launch_bounds__(kThreads)
    split_complex_kernel(Size m, Size n, const DeviceComplex<float>* src, Size lds, Store store) {
  const Size step = static_cast<Size>(gridDim.x) * kThreads;
  for (Size j = blockIdx.y; j < n; j += gridDim.y) {
    for (Size i = static_cast<Size>(blockIdx.x) * kThreads + threadIdx.x; i < m; i += step) {
      store(i, j, halves_of(src[i + j * lds]));
    }
  }
}

template <class Store>
void split_complex(CudaLane& lane, Size m, Size n, const std::complex<float>* src, Size lds,
                   Store store) {
  if (m <= 0 || n <= 0) {
    return;
  }
  const dim3 grid(static_cast<unsigned>(std::min<Size>(ceil_div(m, kThreads), 1 << 16)),
                  static_cast<unsigned>(std::min<Size>(n, kMaxGridY)));
  split_complex_kernel<<<grid, kThreads, 0, lane.stream()>>>(m, n, on_device(src), lds, store);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

// Columns of the left factor, which comes first, have 2 ldd rows, those of the right one ldd:
//
//   left  [lo, -i lo, hi, -i hi, hi, -i hi]
//   right [Re hi, Im hi, Re lo, Im lo, Re hi, Im hi]     n columns each
constexpr Size kBlocks = 6;

template <class Half>
Half* right_factor(Half* parts, Size n, Size ldd) {
  return parts + kBlocks * n * 2 * ldd;
}

}  // namespace

void Cuda::split(Lane& lane, Size m, Size n, const std::complex<float>* src, Size lds, Half* dst,
                 Size ldd) {
  auto* const left = reinterpret_cast<__half2*>(dst);
  auto* const right = reinterpret_cast<__half*>(right_factor(dst, n, ldd));
  const Size block = n * ldd;
  split_complex(lane, m, n, src, lds, [=] __device__(Size i, Size j, const ComplexHalves& z) {
    __half2* const l = left + i + j * ldd;
    __half* const r = right + i + j * ldd;
    const __half2 turned = times_minus_i(z.hi);
    l[0] = z.lo;
    l[block] = times_minus_i(z.lo);
    l[2 * block] = z.hi;
    l[3 * block] = turned;
    l[4 * block] = z.hi;
    l[5 * block] = turned;
    r[0] = __low2half(z.hi);
    r[block] = __high2half(z.hi);
    r[2 * block] = __low2half(z.lo);
    r[3 * block] = __high2half(z.lo);
    r[4 * block] = __low2half(z.hi);
    r[5 * block] = __high2half(z.hi);
  });
}

void Cuda::subtract_split_product(Lane& lane, Size m, Size n, Size k, const Half* parts, Size ld,
                                  Size row, Size row_stride, Size col, Size col_stride,
                                  std::complex<float>* c, Size ldc, Size stride_c, Size count) {
  subtract_halves(lane, 2 * m, n, kBlocks * k, {parts + 2 * row, 2 * ld, 2 * row_stride},
                  {right_factor(parts, k, ld) + col, ld, col_stride}, reinterpret_cast<float*>(c),
                  2 * ldc, 2 * stride_c, count);
}

// For a product that does not conjugate, whose other factor has Re and Im by turns along the inner
// dimension (split_lu.cu): columns [lo, i lo] of each number by turns, then twice those of hi.
void Cuda::split_left(Lane& lane, Size m, Size n, const std::complex<float>* src, Size lds,
                      Half* dst, Size ldd) {
  auto* const left = reinterpret_cast<__half2*>(dst);
  const Size block = 2 * n * ldd;
  split_complex(lane, m, n, src, lds, [=] __device__(Size i, Size j, const ComplexHalves& z) {
    __half2* const l = left + i + 2 * j * ldd;
    const __half2 turned = times_i(z.hi);
    l[0] = z.lo;
    l[ldd] = times_i(z.lo);
    l[block] = z.hi;
    l[block + ldd] = turned;
    l[2 * block] = z.hi;
    l[2 * block + ldd] = turned;
  });
}

}  // namespace jaxmg::tile
