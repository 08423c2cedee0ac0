// Products and triangular solves by cuBLAS, with 64-bit sizes throughout.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/library_type.h"
#include "tile/cuda/reduce.h"
#include "tile/cuda/scalar.h"
#include "tile/cuda/scratch.h"
#include "tile/cuda/triangle.h"
#include "tile/cuda/vector_solve.h"

namespace jaxmg::tile {
namespace {

template <class T>
struct Blas;
template <>
struct Blas<float> {
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  static constexpr auto trsm = cublasStrsm_v2_64;
  static constexpr auto gemv = cublasSgemv_v2_64;
};
template <>
struct Blas<double> {
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_64F;
  static constexpr auto trsm = cublasDtrsm_v2_64;
  static constexpr auto gemv = cublasDgemv_v2_64;
};
template <>
struct Blas<std::complex<float>> {
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  static constexpr auto trsm = cublasCtrsm_v2_64;
  static constexpr auto gemv = cublasCgemv_v2_64;
};
template <>
struct Blas<std::complex<double>> {
  static constexpr cublasComputeType_t compute = CUBLAS_COMPUTE_64F;
  static constexpr auto trsm = cublasZtrsm_v2_64;
  static constexpr auto gemv = cublasZgemv_v2_64;
};

template <class T>
cublasOperation_t operation(Op op) {
  if (op == Op::none) {
    return CUBLAS_OP_N;
  }
  return op == Op::conj_transpose && is_complex_v<T> ? CUBLAS_OP_C : CUBLAS_OP_T;
}

template <class T>
bool conjugates(Op op) {
  return is_complex_v<T> && op == Op::conj_transpose;
}

// y <- conj(x), vectors of n elements.
template <class T>
void conjugate_vector(CudaLane& lane, Size n, const T* x, Size stride_x, T* y, Size stride_y) {
  const DeviceType<T>* from = on_device(x);
  DeviceType<T>* to = on_device(y);
  for_each(lane, n, 1,
           [=] __device__(Size i, Size) { to[i * stride_y] = conjugate(from[i * stride_x]); });
}

template <class T>
Size vector_bytes(Size n) {
  return round_up(n * static_cast<Size>(sizeof(T)), 256);
}

// Columns from which a product with the transpose is worth a kernel of our own: where the library
// takes a matrix of more than 2^31 elements, its own is far from the speed of memory.
constexpr Size kLongColumn = 8192;

// c_j <- alpha a_j^T b + beta c_j, or alpha a_j^H b + beta c_j, a block to a column a_j.
template <bool kConjugate, class D>
__global__ void __launch_bounds__(kThreads)
    column_dots_kernel(Size m, D alpha, const D* a, Size lda, const D* b, D beta, bool add, D* c) {
  constexpr int batch = 4;
  __shared__ D partial[kThreads / 32];
  const D* const column = a + static_cast<Size>(blockIdx.x) * lda;
  D sum{};
  for (Size i0 = threadIdx.x; i0 < m; i0 += batch * kThreads) {
    D x[batch];
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      x[u] = i0 + u * kThreads < m ? column[i0 + u * kThreads] : D{};
    }
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      if (i0 + u * kThreads < m) {
        sum = sum + (kConjugate ? conjugate(x[u]) : x[u]) * b[i0 + u * kThreads];
      }
    }
  }
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) {
    partial[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < kThreads / 32; ++w) {
      sum = sum + partial[w];
    }
    sum = alpha * sum;
    c[blockIdx.x] = add ? sum + beta * c[blockIdx.x] : sum;
  }
}

template <class T>
void column_dots(CudaLane& lane, bool conjugated, Size m, Size n, T alpha, const T* a, Size lda,
                 const T* b, T beta, T* c) {
  const auto blocks = static_cast<unsigned>(narrow(n));
  const auto kernel = conjugated ? column_dots_kernel<true, DeviceType<T>>
                                 : column_dots_kernel<false, DeviceType<T>>;
  kernel<<<blocks, kThreads, 0, lane.stream()>>>(m, on_device_value(alpha), on_device(a), lda,
                                                 on_device(b), on_device_value(beta), beta != T(0),
                                                 on_device(c));
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

// C is a column: c <- alpha op(A) b + beta c, where b is a column of B, or a row of it.
template <class T>
void column_product(CudaLane& lane, Op op_a, Op op_b, Size m, Size k, const T& alpha, const T* a,
                    Size lda, const T* b, Size ldb, const T& beta, T* c) {
  Size stride = op_b == Op::none ? 1 : ldb;
  if (conjugates<T>(op_b)) {
    T* vector = static_cast<T*>(lane.scratch(vector_bytes<T>(k)));
    conjugate_vector(lane, k, b, stride, vector, 1);
    b = vector;
    stride = 1;
  }
  if (op_a != Op::none && stride == 1 && k >= kLongColumn && m > 0) {
    return column_dots<T>(lane, conjugates<T>(op_a), k, m, alpha, a, lda, b, beta, c);
  }
  JAXMG_CUDA_CHECK(Blas<T>::gemv(lane.blas(), operation<T>(op_a), op_a == Op::none ? m : k,
                                 op_a == Op::none ? k : m, for_library(&alpha), for_library(a), lda,
                                 for_library(b), stride, for_library(&beta), for_library(c), 1));
}

constexpr int kSumRows = 32;

// c_j <- alpha sum_l a_l b_jl + beta c_j, a thread of each warp to a row of B; a or B conjugated if
// so wanted. The elements of a may lie far apart.
template <bool kConjugateA, bool kConjugateB, class D>
__global__ void __launch_bounds__(kThreads)
    row_sums_kernel(Size n, Size k, D alpha, const D* a, Size stride, const D* b, Size ldb, D beta,
                    bool add, D* c, Size ldc) {
  constexpr int batch = 8;
  constexpr int warps = kThreads / kSumRows;
  __shared__ D partial[warps][kSumRows];
  const int lane = static_cast<int>(threadIdx.x) % kSumRows;
  const int warp = static_cast<int>(threadIdx.x) / kSumRows;
  const Size j = static_cast<Size>(blockIdx.x) * kSumRows + lane;
  D sum{};
  for (Size first = warp; first < k; first += batch * warps) {
    D x[batch];
    D v[batch];
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      const Size l = first + u * warps;
      x[u] = j < n && l < k ? b[j + l * ldb] : D{};
      v[u] = l < k ? a[l * stride] : D{};
    }
#pragma unroll
    for (int u = 0; u < batch; ++u) {
      sum = sum + (kConjugateA ? conjugate(v[u]) : v[u]) * (kConjugateB ? conjugate(x[u]) : x[u]);
    }
  }
  partial[warp][lane] = sum;
  __syncthreads();
  if (warp == 0 && j < n) {
    for (int w = 1; w < warps; ++w) {
      sum = sum + partial[w][lane];
    }
    sum = alpha * sum;
    c[j * ldc] = add ? sum + beta * c[j * ldc] : sum;
  }
}

template <class T>
void row_sums(CudaLane& lane, bool conjugates_a, bool conjugates_b, Size n, Size k, T alpha,
              const T* a, Size stride, const T* b, Size ldb, T beta, T* c, Size ldc) {
  using D = DeviceType<T>;
  const auto blocks = static_cast<unsigned>(narrow(ceil_div(n, kSumRows)));
  const auto kernel =
      conjugates_a
          ? (conjugates_b ? row_sums_kernel<true, true, D> : row_sums_kernel<true, false, D>)
          : (conjugates_b ? row_sums_kernel<false, true, D> : row_sums_kernel<false, false, D>);
  kernel<<<blocks, kThreads, 0, lane.stream()>>>(n, k, on_device_value(alpha), on_device(a), stride,
                                                 on_device(b), ldb, on_device_value(beta),
                                                 beta != T(0), on_device(c), ldc);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

// C is a row: c^T <- alpha op(B)^T op(a)^T + beta c^T. The library has no product with conj(B), and
// is slow where the elements of a are far apart.
template <class T>
void row_product(CudaLane& lane, Op op_a, Op op_b, Size n, Size k, T alpha, const T* a, Size lda,
                 const T* b, Size ldb, T beta, T* c, Size ldc) {
  Size stride = op_a == Op::none ? lda : 1;
  if (op_b != Op::none && (is_complex_v<T> || stride != 1)) {
    return row_sums<T>(lane, conjugates<T>(op_a), conjugates<T>(op_b), n, k, alpha, a, stride, b,
                       ldb, beta, c, ldc);
  }
  if (conjugates<T>(op_a)) {
    T* vector = static_cast<T*>(lane.scratch(vector_bytes<T>(k)));
    conjugate_vector(lane, k, a, stride, vector, 1);
    a = vector;
    stride = 1;
  }
  if (op_b == Op::none && stride == 1 && ldc == 1 && k >= kLongColumn) {
    return column_dots<T>(lane, false, k, n, alpha, b, ldb, a, beta, c);
  }
  JAXMG_CUDA_CHECK(Blas<T>::gemv(lane.blas(), op_b == Op::none ? CUBLAS_OP_T : CUBLAS_OP_N,
                                 op_b == Op::none ? k : n, op_b == Op::none ? n : k,
                                 for_library(&alpha), for_library(b), ldb, for_library(a), stride,
                                 for_library(&beta), for_library(c), ldc));
}

// Matrix-vector products read the matrix at the speed of memory. False if this is none, or needs
// more scratch than there is.
template <class T>
bool vector_product(CudaLane& lane, Op op_a, Op op_b, Size m, Size n, Size k, T alpha, const T* a,
                    Size lda, const T* b, Size ldb, T beta, T* c, Size ldc) {
  const bool needs_scratch = n == 1 ? conjugates<T>(op_b) : conjugates<T>(op_a) && op_b == Op::none;
  if (k <= 0 || (m > 1 && n > 1) || (needs_scratch && !lane.has_scratch(vector_bytes<T>(k)))) {
    return false;
  }
  if (n == 1) {
    column_product(lane, op_a, op_b, m, k, alpha, a, lda, b, ldb, beta, c);
  } else {
    row_product(lane, op_a, op_b, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  }
  return true;
}

// Scratch for a triangle, behind the place of one vector.
template <class T>
T* triangle_scratch(CudaLane& lane, Size n) {
  char* const scratch = static_cast<char*>(lane.scratch(triangle_bytes(dtype_of<T>, n)));
  return reinterpret_cast<T*>(scratch + vector_bytes<T>(n));
}

// b <- b inv(op(L)) for a lower triangle with zeros above it, x being its inverse; see
// solve_diagonal.
template <class T>
void solve_corrected(CudaLane& lane, Op op, Size m, Size n, const T* l, const T* x, Size ldx, T* b,
                     Size ldb, T* work) {
  Cuda::gemm(lane, Op::none, op, m, n, n, T(1), b, ldb, x, ldx, T(0), work, m);
  Cuda::gemm(lane, Op::none, op, m, n, n, T(-1), work, m, l, n, T(1), b, ldb);
  Cuda::gemm(lane, Op::none, op, m, n, n, T(1), b, ldb, x, ldx, T(1), work, m);
  Cuda::copy(lane, m, n, work, m, b, ldb);
}

}  // namespace

Size triangle_bytes(DType type, Size n) {
  return round_up(n * size_of(type), 256) + n * n * size_of(type);
}

template <class T>
void Cuda::gemm(Lane& lane, Op op_a, Op op_b, Size m, Size n, Size k, T alpha, const T* a, Size lda,
                const T* b, Size ldb, T beta, T* c, Size ldc) {
  if (m <= 0 || n <= 0) {
    return;
  }
  if (vector_product(lane, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)) {
    return;
  }
  // A matrix without rows may have none between its columns, which the library does not like.
  lda = std::max<Size>(1, lda);
  ldb = std::max<Size>(1, ldb);
  JAXMG_CUDA_CHECK(
      cublasGemmEx_64(lane.blas(), operation<T>(op_a), operation<T>(op_b), m, n, k, &alpha, a,
                      library_type(dtype_of<T>), lda, b, library_type(dtype_of<T>), ldb, &beta, c,
                      library_type(dtype_of<T>), ldc, Blas<T>::compute, CUBLAS_GEMM_DEFAULT));
}

template <class T>
void Cuda::gemm_strided(Lane& lane, Op op_a, Op op_b, Size m, Size n, Size k, T alpha, const T* a,
                        Size lda, Size stride_a, const T* b, Size ldb, Size stride_b, T beta, T* c,
                        Size ldc, Size stride_c, Size count) {
  if (m <= 0 || n <= 0 || count <= 0) {
    return;
  }
  JAXMG_CUDA_CHECK(cublasGemmStridedBatchedEx_64(
      lane.blas(), operation<T>(op_a), operation<T>(op_b), m, n, k, &alpha, a,
      library_type(dtype_of<T>), lda, stride_a, b, library_type(dtype_of<T>), ldb, stride_b, &beta,
      c, library_type(dtype_of<T>), ldc, stride_c, count, Blas<T>::compute, CUBLAS_GEMM_DEFAULT));
}

template <class T>
void Cuda::trsm(Lane& lane, Side side, Uplo uplo, Op op, Diag diag, Size m, Size n, T alpha,
                const T* a, Size lda, T* b, Size ldb) {
  if (m <= 0 || n <= 0) {
    return;
  }
  JAXMG_CUDA_CHECK(
      Blas<T>::trsm(lane.blas(), side == Side::left ? CUBLAS_SIDE_LEFT : CUBLAS_SIDE_RIGHT,
                    uplo == Uplo::lower ? CUBLAS_FILL_MODE_LOWER : CUBLAS_FILL_MODE_UPPER,
                    operation<T>(op), diag == Diag::unit ? CUBLAS_DIAG_UNIT : CUBLAS_DIAG_NON_UNIT,
                    m, n, for_library(&alpha), for_library(a), lda, for_library(b), ldb));
}

template <class T>
void Cuda::solve_diagonal(Lane& lane, Op op, Size m, Size n, const T* l, Size ldl, const T* x,
                          Size ldx, T* b, Size ldb, T* work) {
  if (m <= 0 || n <= 0) {
    return;
  }
  if (m == 1) {
    return solve_vector<T>(lane, Uplo::lower, op, Diag::non_unit, n, l, ldl, x, ldx, b, ldb, work);
  }
  T* const lower = triangle_scratch<T>(lane, n);
  copy_masked(lane, Uplo::lower, Diag::non_unit, n, l, ldl, lower);
  solve_corrected(lane, op, m, n, lower, x, ldx, b, ldb, work);
}

// b inv(U) = b inv(L)^T with L = U^T.
template <class T>
void Cuda::solve_triangle(Lane& lane, Uplo uplo, Op op, Diag diag, Size m, Size n, const T* a,
                          Size lda, const T* x, Size ldx, T* b, Size ldb, T* work) {
  if (m <= 0 || n <= 0) {
    return;
  }
  if (m == 1) {
    return solve_vector<T>(lane, uplo, op, diag, n, a, lda, x, ldx, b, ldb, work);
  }
  T* const lower = triangle_scratch<T>(lane, n);
  copy_masked(lane, uplo, diag, n, a, lda, lower);
  const bool transposes = (op == Op::none) != (uplo == Uplo::lower);
  solve_corrected(lane, transposes ? Op::transpose : Op::none, m, n, lower, x, ldx, b, ldb, work);
}

#define JAXMG_INSTANTIATE(T)                                                                       \
  template void Cuda::gemm<T>(Lane&, Op, Op, Size, Size, Size, T, const T*, Size, const T*, Size,  \
                              T, T*, Size);                                                        \
  template void Cuda::gemm_strided<T>(Lane&, Op, Op, Size, Size, Size, T, const T*, Size, Size,    \
                                      const T*, Size, Size, T, T*, Size, Size, Size);              \
  template void Cuda::trsm<T>(Lane&, Side, Uplo, Op, Diag, Size, Size, T, const T*, Size, T*,      \
                              Size);                                                               \
  template void Cuda::solve_diagonal<T>(Lane&, Op, Size, Size, const T*, Size, const T*, Size, T*, \
                                        Size, T*);                                                 \
  template void Cuda::solve_triangle<T>(Lane&, Uplo, Op, Diag, Size, Size, const T*, Size,         \
                                        const T*, Size, T*, Size, T*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
