// LU factors of a panel, by kernels of our own where these can run and else by halves down to a
// width that cuSOLVER factors, and interchanges of rows.
#include <algorithm>
#include <climits>
#include <stdexcept>
#include <string>

#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/library_type.h"
#include "tile/cuda/lu_base.h"
#include "tile/cuda/reduce.h"
#include "tile/cuda/scalar.h"
#include "tile/cuda/scratch.h"
#include "tile/recursive_lu.h"

namespace jaxmg::tile {
namespace {

struct GetrfBytes {
  std::size_t device = 0;
  std::size_t host = 0;
};

GetrfBytes query(CudaLane& lane, DType type, Size m, Size n, const void* a, Size lda) {
  GetrfBytes bytes;
  JAXMG_CUDA_CHECK(cusolverDnXgetrf_bufferSize(lane.solver(), lane.solver_parameters(), m, n,
                                               library_type(type), a, lda, library_type(type),
                                               &bytes.device, &bytes.host));
  return bytes;
}

// The library's row numbers, which take 64 bits and count from 1, lie before its workspace.
Size row_number_bytes(Size n) {
  return round_up(n * static_cast<Size>(sizeof(std::int64_t)), 256);
}

// Comparisons with NaN may lead the library anywhere: a row is one of those that are left.
__global__ void take_pivots_kernel(Size m, Size n, const std::int64_t* found, Size first,
                                   std::int32_t* pivots) {
  for (Size j = threadIdx.x; j < n; j += kThreads) {
    const Size row = found[j] - 1;
    pivots[j] = static_cast<std::int32_t>(first + (row < j ? j : row >= m ? m - 1 : row));
  }
}

// The first pivot that is exactly zero, whether the library reports it or not.
template <class D>
__global__ void merge_info_kernel(Size n, const D* a, Size lda, Size position, Size equation,
                                  const int* reported, Info* info) {
  const int least = *reported > 0 ? *reported : INT_MAX;
  const int first = first_of_block(n, least, [&](Size j) { return is_zero(a[j + j * lda]); });
  if (threadIdx.x == 0 && first != INT_MAX && info->kind == 0) {
    info->kind = static_cast<std::int32_t>(Kind::singular);
    info->position = static_cast<std::int32_t>(position + first);
    info->spare[1] = static_cast<std::int32_t>(equation + first);
  }
}

// Columns that the library factors as one: it is slower a column the wider its panel is.
template <class T>
void factor_leaf(CudaLane& lane, Size m, Size n, T* a, Size lda, Size first, std::int32_t* pivots,
                 const PanelReport& report) {
  constexpr DType type = dtype_of<T>;
  const GetrfBytes bytes = query(lane, type, m, n, a, lda);
  std::vector<char>& host = lane.host_workspace();
  if (host.size() < bytes.host) {
    host.resize(bytes.host);
  }
  char* const scratch =
      static_cast<char*>(lane.scratch(row_number_bytes(n) + static_cast<Size>(bytes.device)));
  auto* const found = reinterpret_cast<std::int64_t*>(scratch);
  JAXMG_CUDA_CHECK(cusolverDnXgetrf(lane.solver(), lane.solver_parameters(), m, n,
                                    library_type(type), a, lda, found, library_type(type),
                                    scratch + row_number_bytes(n), bytes.device, host.data(),
                                    bytes.host, lane.library_info()));
  take_pivots_kernel<<<1, kThreads, 0, lane.stream()>>>(m, n, found, first, pivots);
  JAXMG_CUDA_CHECK(cudaGetLastError());
  merge_info_kernel<<<1, kThreads, 0, lane.stream()>>>(
      n, on_device(a), lda, report.position, report.equation, lane.library_info(), report.info);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

// The moves of `n` interchanges: a thread for each row that may move asks which row ends there, by
// undoing them from the last to the first.
__global__ void trace_pivots_kernel(int n, const std::int32_t* pivots, Size first, RowMoves moves) {
  __shared__ std::int32_t rows[kWidestPanel];
  for (int j = static_cast<int>(threadIdx.x); j < n; j += kThreads) {
    rows[j] = static_cast<std::int32_t>(pivots[j] - first);
  }
  __syncthreads();
  const int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (i >= 2 * n) {
    return;
  }
  std::int32_t to = i;
  if (i >= n) {  // the pivot of step i - n, once, if it is not among the first n rows
    to = rows[i - n];
    bool listed = to < n;
    for (int j = 0; j < i - n; ++j) {
      listed = listed || rows[j] == to;
    }
    if (listed) {
      moves.to[i] = moves.from[i] = -1;
      return;
    }
  }
  std::int32_t from = to;
  for (int j = n - 1; j >= 0; --j) {
    const std::int32_t other = rows[j];
    from = from == j ? other : from == other ? j : from;
  }
  moves.to[i] = to;
  moves.from[i] = from;
}

// A block takes one column after the other: all of its moved rows are read before any is written.
template <class D>
__global__ void move_rows_kernel(int n, RowMoves moves, Size columns, D* a, Size lda, D* top,
                                 Size ldt) {
  extern __shared__ __align__(16) unsigned char memory[];
  D* const kept = reinterpret_cast<D*>(memory);
  for (Size j = blockIdx.x; j < columns; j += gridDim.x) {
    D* const column = a + j * lda;
    for (int i = static_cast<int>(threadIdx.x); i < 2 * n; i += static_cast<int>(blockDim.x)) {
      const std::int32_t from = moves.from[i];
      if (from >= 0) {
        kept[i] = column[from];
      }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < 2 * n; i += static_cast<int>(blockDim.x)) {
      const std::int32_t to = moves.to[i];
      if (to >= 0) {
        (top && i < n ? top[i + j * ldt] : column[to]) = kept[i];
      }
    }
    __syncthreads();
  }
}

void check_width(Size n) {
  if (n > kWidestPanel) {
    throw std::logic_error("LU panel of " + std::to_string(n) + " columns; the widest is " +
                           std::to_string(kWidestPanel));
  }
}

}  // namespace

Size getrf_bytes(CudaLane& lane, DType type, Size m, Size n) {
  const Size leaf = std::min(n, kLuLeaf);
  const Size moves = 4 * n * static_cast<Size>(sizeof(std::int32_t));
  const Size library =
      row_number_bytes(leaf) + static_cast<Size>(query(lane, type, m, leaf, nullptr, m).device);
  return std::max({moves, library, lu_recursion_bytes(type, n), inversion_bytes(type, n)});
}

template <class T>
void getrf_by_library(CudaLane& lane, Size m, Size n, T* a, Size lda, Size first,
                      std::int32_t* pivots, T* inverse, Size ldi, const PanelReport& report) {
  auto* const rows =
      static_cast<std::int32_t*>(lane.scratch(4 * n * static_cast<Size>(sizeof(std::int32_t))));
  recursive_lu<Cuda>(lane, m, n, a, lda, first, pivots, {rows, rows + 2 * n}, kLuLeaf,
                     [&](Size height, Size width, T* panel, Size from, std::int32_t* found) {
                       factor_leaf(lane, height, width, panel, lda, from, found,
                                   report.after(from - first));
                     });
  Cuda::invert_unit_blocks<T>(lane, n, a, lda, inverse, ldi);
}

template <class T>
void Cuda::getrf(Lane& lane, Size m, Size n, T* a, Size lda, Size first, std::int32_t* pivots,
                 T* inverse, Size ldi, Size position, Size equation, Info* info) {
  if (n <= 0) {
    return;
  }
  check_width(n);
  const PanelReport report = {position, equation, info};
  if (const int width = lu_base_width<T>(lane, m)) {
    lu_recursion<T>(lane, width, m, n, a, lda, first, pivots, inverse, ldi, report);
  } else {
    getrf_by_library<T>(lane, m, n, a, lda, first, pivots, inverse, ldi, report);
  }
}

void Cuda::trace_pivots(Lane& lane, Size n, const std::int32_t* pivots, Size first,
                        RowMoves moves) {
  if (n <= 0) {
    return;
  }
  check_width(n);
  trace_pivots_kernel<<<static_cast<unsigned>(ceil_div(2 * n, kThreads)), kThreads, 0,
                        lane.stream()>>>(static_cast<int>(n), pivots, first, moves);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void Cuda::move_rows(Lane& lane, Size n, RowMoves moves, Size columns, T* a, Size lda, T* top,
                     Size ldt) {
  if (n <= 0 || columns <= 0) {
    return;
  }
  check_width(n);
  const auto threads = static_cast<unsigned>(std::min<Size>(kThreads, round_up(2 * n, 32)));
  const auto blocks = static_cast<unsigned>(std::min<Size>(columns, 1 << 16));
  move_rows_kernel<<<blocks, threads, static_cast<std::size_t>(2 * n) * sizeof(T), lane.stream()>>>(
      static_cast<int>(n), moves, columns, on_device(a), lda, on_device(top), ldt);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

#define JAXMG_INSTANTIATE(T)                                                                     \
  template void getrf_by_library<T>(CudaLane&, Size, Size, T*, Size, Size, std::int32_t*, T*,    \
                                    Size, const PanelReport&);                                   \
  template void Cuda::getrf<T>(Lane&, Size, Size, T*, Size, Size, std::int32_t*, T*, Size, Size, \
                               Size, Info*);                                                     \
  template void Cuda::move_rows<T>(Lane&, Size, RowMoves, Size, T*, Size, T*, Size);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE
template void Cuda::move_rows<std::int32_t>(Lane&, Size, RowMoves, Size, std::int32_t*, Size,
                                            std::int32_t*, Size);

}  // namespace jaxmg::tile
