// Bulge chasing on a GPU: a block of threads takes one sweep at a time, see tile/cpu/chase.cpp for
// what a sweep is. Blocks draw sweeps in order and each waits only for the sweep before its own,
// which has been drawn already: it does not matter how many of them run at once.
#include <limits>

#include "tile/cuda/clang_intrinsics.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/reduce.h"
#include "tile/cuda/reflector.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

constexpr int kParts = 4;  // threads that share a row of a product
constexpr int kRows = kThreads / kParts;
constexpr int kWarps = kThreads / 32;
constexpr int kAllDone = std::numeric_limits<int>::max();

__device__ int load_acquire(const int* p) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
__device__ void store_release(int* p, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

// Other multiprocessors write the band: it is read and written where all of them see it.
template <class R>
__device__ R load_shared_by_all(const R* p) {
  return __ldcg(p);
}
template <class R>
__device__ DeviceComplex<R> load_shared_by_all(const DeviceComplex<R>* p) {
  return {__ldcg(&p->re), __ldcg(&p->im)};
}
template <class R>
__device__ void store_for_all(R* p, R x) {
  __stcg(p, x);
}
template <class R>
__device__ void store_for_all(DeviceComplex<R>* p, DeviceComplex<R> x) {
  __stcg(&p->re, x.re);
  __stcg(&p->im, x.im);
}

// What the threads of a block share.
template <class D, class R>
struct ChaseMemory {
  D* tile;   // b x b
  D* v;      // b: the reflector
  D* w;      // b
  D* parts;  // kParts x b
  ReflectorScalars<D, R>* h;
};

// w <- tile v over `columns` columns.
template <class D, class R>
__device__ void tile_times_v(const ChaseMemory<D, R>& s, int rows, int columns, int ld) {
  const int part = static_cast<int>(threadIdx.x) / kRows;
  for (int i = static_cast<int>(threadIdx.x) % kRows; i < rows; i += kRows) {
    D sum = element<D>(R{0});
    for (int j = part; j < columns; j += kParts) {
      sum = sum + s.tile[i + j * ld] * s.v[j];
    }
    s.parts[part * ld + i] = sum;
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < rows; i += kThreads) {
    D sum = s.parts[i];
    for (int q = 1; q < kParts; ++q) {
      sum = sum + s.parts[q * ld + i];
    }
    s.w[i] = sum;
  }
  __syncthreads();
}

// v <- the reflector of x (n elements in shared memory); by the first warp, for all.
template <class D, class R>
__device__ void make_reflector(const ChaseMemory<D, R>& s, const D* x, int n, R smallest) {
  if (threadIdx.x < 32) {
    R tail = 0;
    for (int i = 1 + static_cast<int>(threadIdx.x); i < n; i += 32) {
      tail += square(x[i]);
    }
    tail = warp_sum(tail);
    const ReflectorScalars<D, R> h = reflector_scalars(x[0], tail, smallest);
    for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) {
      s.v[i] = i == 0 ? element<D>(R{1}) : h.scale * x[i];
    }
    if (threadIdx.x == 0) {
      *s.h = h;
    }
  }
  __syncthreads();
}

// Step 0: the column of the sweep itself.
template <class D, class R>
__device__ void first_column(const ChaseMemory<D, R>& s, D* column, int n, R smallest) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    s.w[i] = load_shared_by_all(column + i);
  }
  __syncthreads();
  make_reflector(s, s.w, n, smallest);
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) {
    store_for_all(column + i, element<D>(i == 0 ? s.h->beta : R{0}));
  }
}

// The block below the last reflector's: `rows` x b.
template <class D, class R>
__device__ void block_below(const ChaseMemory<D, R>& s, D* block, Size stride, int rows, int b,
                            R smallest) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  for (int x = static_cast<int>(threadIdx.x); x < rows * b; x += kThreads) {
    const int i = x % rows, j = x / rows;
    s.tile[i + j * b] = load_shared_by_all(block + i + j * stride);
  }
  __syncthreads();
  tile_times_v(s, rows, b, b);
  const D tau = s.h->tau;
  for (int x = static_cast<int>(threadIdx.x); x < rows * b; x += kThreads) {
    const int i = x % rows, j = x / rows;
    s.tile[i + j * b] = s.tile[i + j * b] - s.w[i] * (tau * conjugate(s.v[j]));
  }
  __syncthreads();
  make_reflector(s, s.tile, rows, smallest);
  const D factor = conjugate(s.h->tau);
  for (int j = warp; j < b; j += kWarps) {
    D sum = element<D>(R{0});
    for (int i = lane; i < rows; i += 32) {
      sum = sum + conjugate(s.v[i]) * s.tile[i + j * b];
    }
    const D x = factor * warp_sum(sum);
    for (int i = lane; i < rows; i += 32) {
      const D value =
          j == 0 ? element<D>(i == 0 ? s.h->beta : R{0}) : s.tile[i + j * b] - s.v[i] * x;
      store_for_all(block + i + j * stride, value);
    }
  }
  __syncthreads();
}

// The diagonal block of the reflector's rows, from both sides.
template <class D, class R>
__device__ void diagonal_block(const ChaseMemory<D, R>& s, D* block, Size stride, int n, int b) {
  for (int x = static_cast<int>(threadIdx.x); x < n * n; x += kThreads) {
    const int i = x % n, j = x / n;
    if (i >= j) {
      const D value = load_shared_by_all(block + i + j * stride);
      s.tile[i + j * b] = i == j ? element<D>(real_part(value)) : value;
      s.tile[j + i * b] = i == j ? element<D>(real_part(value)) : conjugate(value);
    }
  }
  __syncthreads();
  tile_times_v(s, n, n, b);
  if (threadIdx.x < 32) {
    R product = 0;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) {
      product += real_part(conjugate(s.v[i]) * s.w[i]);
    }
    product = warp_sum(product);
    const D half = element<D>(square(s.h->tau) * product / 2);
    for (int i = static_cast<int>(threadIdx.x); i < n; i += 32) {
      s.w[i] = s.h->tau * s.w[i] - half * s.v[i];
    }
  }
  __syncthreads();
  for (int x = static_cast<int>(threadIdx.x); x < n * n; x += kThreads) {
    const int i = x % n, j = x / n;
    if (i >= j) {
      const D value = s.tile[i + j * b] - s.w[i] * conjugate(s.v[j]) - s.v[i] * conjugate(s.w[j]);
      store_for_all(block + i + j * stride, i == j ? element<D>(real_part(value)) : value);
    }
  }
}

template <class D, class R>
__global__ void __launch_bounds__(kThreads)
    chase_kernel(SweepBatch batch, D* band, Size ld, D* kept, int* ticket, int* done, R smallest) {
  extern __shared__ char memory[];
  __shared__ int drawn;
  __shared__ ReflectorScalars<D, R> scalars;
  const int b = static_cast<int>(batch.b);
  ChaseMemory<D, R> s;
  s.tile = reinterpret_cast<D*>(memory);
  s.v = s.tile + b * b;
  s.w = s.v + b;
  s.parts = s.w + b;
  s.h = &scalars;
  const Size stride = ld - 1;  // from column to column in one row
  for (;;) {
    if (threadIdx.x == 0) {
      drawn = atomicAdd(ticket, 1);
    }
    __syncthreads();
    const int number = drawn;
    __syncthreads();
    if (number >= batch.count) {
      return;
    }
    const Size sweep = batch.first + number;
    const Size steps = (batch.n - 1 - sweep + batch.b - 1) / batch.b;
    int ahead = number == 0 ? kAllDone : 0;
    for (Size k = 0; k < steps; ++k) {
      if (threadIdx.x == 0) {
        while (ahead < k + 2) {
          ahead = load_acquire(done + number - 1);
        }
      }
      __syncthreads();
      const Size row = sweep + 1 + k * batch.b;
      const int length = static_cast<int>(batch.n - row < batch.b ? batch.n - row : batch.b);
      if (k == 0) {
        first_column(s, band + 1 + sweep * ld, length, smallest);
      } else {
        block_below(s, band + batch.b + (row - batch.b) * ld, stride, length, b, smallest);
      }
      diagonal_block(s, band + row * ld, stride, length, b);
      if (kept != nullptr) {
        D* const target = kept + batch.place(sweep) + k * batch.b;
        for (int i = static_cast<int>(threadIdx.x); i < length; i += kThreads) {
          target[i] = i == 0 ? s.h->tau : s.v[i];
        }
      }
      __syncthreads();
      if (threadIdx.x == 0) {
        store_release(done + number, k + 1 == steps ? kAllDone : static_cast<int>(k + 1));
      }
    }
  }
}

// One block of threads a window: V with its ones and zeros, T column by column, V T.
template <class D, class R>
__global__ void __launch_bounds__(kThreads)
    pack_kernel(SweepGroup group, const D* kept, D* packed) {
  extern __shared__ char memory[];
  const int count = static_cast<int>(group.count);
  D* const gram = reinterpret_cast<D*>(memory);  // count x count
  D* const t = gram + count * count;
  D* const tau = t + count * count;
  const Size rows = group.n - 1 - group.first;
  const Size ld = group.b + group.count - 1;
  const Size first = static_cast<Size>(blockIdx.x) * group.b;
  D* const v = packed + static_cast<Size>(blockIdx.x) * 2 * ld * count;
  D* const vt = v + ld * count;
  const D zero = element<D>(R{0});
  for (Size x = threadIdx.x; x < ld * count; x += kThreads) {
    const Size i = x % ld, j = x / ld;
    const bool inside = i >= j && i < j + group.b && first + i < rows;
    v[x] = !inside ? zero : i == j ? element<D>(R{1}) : kept[first + i + j * rows];
  }
  for (int j = static_cast<int>(threadIdx.x); j < count; j += kThreads) {
    tau[j] = first + j < rows ? kept[first + j + j * rows] : zero;
  }
  __syncthreads();
  for (int x = static_cast<int>(threadIdx.x); x < count * count; x += kThreads) {
    const int i = x % count, j = x / count;
    D sum = zero;
    for (Size l = j; i < j && l < i + group.b; ++l) {
      sum = sum + conjugate(v[l + i * ld]) * v[l + j * ld];
    }
    gram[x] = sum;
    t[x] = zero;
  }
  __syncthreads();
  for (int j = 0; j < count; ++j) {
    for (int i = static_cast<int>(threadIdx.x); i <= j; i += kThreads) {
      D sum = zero;
      for (int l = i; l < j; ++l) {
        sum = sum + t[i + l * count] * gram[l + j * count];
      }
      t[i + j * count] = i == j ? tau[j] : zero - tau[j] * sum;
    }
    __syncthreads();
  }
  for (Size x = threadIdx.x; x < ld * count; x += kThreads) {
    const Size i = x % ld, j = x / ld;
    D sum = zero;
    for (Size l = 0; l <= j; ++l) {
      sum = sum + v[i + l * ld] * t[l + j * count];
    }
    vt[x] = sum;
  }
}

template <class Kernel>
void allow_shared_memory(Kernel kernel, std::size_t bytes) {
  JAXMG_CUDA_CHECK(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                                        cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(bytes)));
}

}  // namespace

template <class T>
void Cuda::chase(Lane& lane, const SweepBatch& batch, T* band, Size ld, T* v, void* work) {
  using D = DeviceType<T>;
  using R = Real<T>;
  if (batch.count <= 0) {
    return;
  }
  if (v != nullptr) {
    JAXMG_CUDA_CHECK(cudaMemsetAsync(v, 0, static_cast<std::size_t>(batch.elements()) * sizeof(T),
                                     lane.stream()));
  }
  int* const ticket = static_cast<int*>(work);
  JAXMG_CUDA_CHECK(cudaMemsetAsync(
      ticket, 0, static_cast<std::size_t>(batch.count + 1) * sizeof(int), lane.stream()));
  const std::size_t shared = static_cast<std::size_t>(batch.b * (batch.b + 2 + kParts)) * sizeof(D);
  allow_shared_memory(chase_kernel<D, R>, shared);
  int processors = 0;
  JAXMG_CUDA_CHECK(
      cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, lane.device()));
  // More sweeps than this are never under way: each is two steps behind the one before.
  const Size together = ceil_div(ceil_div(batch.rows(), batch.b), Size{2}) + 1;
  const auto blocks =
      static_cast<unsigned>(std::min({batch.count, together, Size{2} * processors}));
  chase_kernel<D, R><<<blocks, kThreads, shared, lane.stream()>>>(
      batch, on_device(band), ld, on_device(v), ticket, ticket + 1, kLeastSquare<R>);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

template <class T>
void Cuda::pack_sweeps(Lane& lane, const SweepGroup& group, const T* v, T* packed) {
  using D = DeviceType<T>;
  const std::size_t shared =
      static_cast<std::size_t>(group.count * (2 * group.count + 1)) * sizeof(D);
  allow_shared_memory(pack_kernel<D, Real<T>>, shared);
  pack_kernel<D, Real<T>>
      <<<static_cast<unsigned>(group.steps()), kThreads, shared, lane.stream()>>>(
          group, on_device(v), on_device(packed));
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

#define JAXMG_INSTANTIATE(T)                                                   \
  template void Cuda::chase<T>(Lane&, const SweepBatch&, T*, Size, T*, void*); \
  template void Cuda::pack_sweeps<T>(Lane&, const SweepGroup&, const T*, T*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
