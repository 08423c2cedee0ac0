// Reflectors of bulge chasing made into the blocks of sweep_blocks.h.
#include <cstddef>
#include <type_traits>

#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"
#include "tile/cuda/sweep_blocks.h"

namespace jaxmg::tile {
namespace {

template <class D>
struct Wide {  // the same number in double precision
  using type = double;
};
template <class R>
struct Wide<DeviceComplex<R>> {
  using type = DeviceComplex<double>;
};
template <class R>
__device__ double widened(R x) {
  return static_cast<double>(x);
}
template <class R>
__device__ DeviceComplex<double> widened(DeviceComplex<R> x) {
  return {static_cast<double>(x.re), static_cast<double>(x.im)};
}

// What a block of threads works on, in shared memory: all row-major.
template <int Q, class W>
struct PackMemory {
  static constexpr bool kComplex = !std::is_same_v<W, double>;
  using Block = SweepBlock<Q, kComplex>;
  static constexpr int kStride = Block::kCount + 1;
  static constexpr int kProducts = Block::kCount * Block::kCount / 4;
  static constexpr std::size_t kBytes =
      static_cast<std::size_t>((Block::kHeight + Block::kCount) * kStride + kProducts +
                               Block::kCount) *
      sizeof(W);

  W* v;    // kHeight x kCount
  W* t;    // kCount x kCount
  W* tau;  // kCount
  W* products;

  __device__ explicit PackMemory(char* memory)
      : v(reinterpret_cast<W*>(memory)),
        t(v + Block::kHeight * kStride),
        tau(t + Block::kCount * kStride),
        products(tau + Block::kCount) {}
};

// V and tau of a group's reflectors in one step; zero where there are none.
template <int Q, class W, class D>
__device__ void load_reflectors(const PackMemory<Q, W>& s, const SweepPasses& passes, Size group,
                                Size step, const D* kept) {
  using Block = typename PackMemory<Q, W>::Block;
  constexpr int g = Block::kCount, height = Block::kHeight, ld = g + 1;
  const SweepBatch& batch = passes.batch;
  const Size first = batch.first + group * batch.size;
  const Size rows = batch.n - 1 - first;  // of the group's matrix
  const Size left = batch.first + batch.count - first;
  const int count = left < g ? static_cast<int>(left < 0 ? 0 : left) : g;
  const D* const source = kept + (count > 0 ? batch.offset(group) : 0);
  const W zero = element<W>(0.0), one = element<W>(1.0);
  const Size above = step * Block::kRows;  // row of the group's matrix where the window begins, + 1
  for (int x = static_cast<int>(threadIdx.x); x < height * g; x += kThreads) {
    const int r = x % height, q = x / height;
    const Size i = above + r - 1;
    const bool inside = q < count && r > q && r <= q + Block::kRows && i < rows;
    W value = zero;
    if (inside) {
      value = r == q + 1 ? one : widened(source[i + q * rows]);
    }
    s.v[r * ld + q] = value;
  }
  for (int q = static_cast<int>(threadIdx.x); q < g; q += kThreads) {
    s.tau[q] = q < count && above + q < rows ? widened(source[above + q + q * rows]) : zero;
  }
}

// T = diag(tau) inv(U), where U is upper triangular with a unit diagonal and U_ij = v_i^H v_j tau_j
// above it. Inverses of blocks of the diagonal are joined in pairs:
//
//   inv(U) = [ A  -A U_12 B ]    A = inv(U_11), B = inv(U_22)
//            [ 0      B     ]
template <int Q, class W>
__device__ void form_factor(const PackMemory<Q, W>& s) {
  using Block = typename PackMemory<Q, W>::Block;
  constexpr int g = Block::kCount, ld = g + 1;
  const W zero = element<W>(0.0);
  const int thread = static_cast<int>(threadIdx.x);
  for (int x = thread; x < g * g; x += kThreads) {
    const int i = x / g, j = x % g;
    W sum = zero;
    for (int r = j + 1; i < j && r <= i + Block::kRows; ++r) {
      sum = sum + conjugate(s.v[r * ld + i]) * s.v[r * ld + j];
    }
    s.t[i * ld + j] = i == j ? element<W>(1.0) : sum * s.tau[j];
  }
  __syncthreads();
  for (int size = 1; size < g; size *= 2) {
    // Element (i, j) of U_12 B, then of A times that, for each pair of blocks.
    for (int x = thread; x < g / 2 * size; x += kThreads) {
      const int i = x % size, j = x / size % size, first = x / (size * size) * 2 * size;
      const W* const u = s.t + (first + i) * ld + first + size;
      W sum = zero;
      for (int l = 0; l <= j; ++l) {
        sum = sum + u[l] * s.t[(first + size + l) * ld + first + size + j];
      }
      s.products[x] = sum;
    }
    __syncthreads();
    for (int x = thread; x < g / 2 * size; x += kThreads) {
      const int i = x % size, j = x / size % size, first = x / (size * size) * 2 * size;
      const W* const column = s.products + x - i;
      W sum = zero;
      for (int l = i; l < size; ++l) {
        sum = sum - s.t[(first + i) * ld + first + l] * column[l];
      }
      s.t[(first + i) * ld + first + size + j] = sum;
    }
    __syncthreads();
  }
  for (int x = thread; x < g * g; x += kThreads) {
    s.t[x / g * ld + x % g] = s.tau[x / g] * s.t[x / g * ld + x % g];
  }
}

// Element (r, j) of V T.
template <int Q, class W>
__device__ W factor_element(const PackMemory<Q, W>& s, int r, int j) {
  using Block = typename PackMemory<Q, W>::Block;
  constexpr int ld = Block::kCount + 1;
  W sum = element<W>(0.0);
  for (int q = r > Block::kRows ? r - Block::kRows : 0; q < r && q <= j; ++q) {
    sum = sum + s.v[r * ld + q] * s.t[q * ld + j];
  }
  return sum;
}

// The tiles of conj(V) and -V T as number `block` of those packed.
template <int Q, class W>
__device__ void store_tiles(const PackMemory<Q, W>& s, Size block, double* packed) {
  using Block = typename PackMemory<Q, W>::Block;
  constexpr int ld = Block::kCount + 1;
  double* const target = packed + block * Block::kSize;
  for (int x = static_cast<int>(threadIdx.x); x < Block::kTiles * 64; x += kThreads) {
    const int tile = x / 64, e = x % 2, lane = x / 2 % 32, row = lane / 4,
              pair = 2 * (lane % 4) + e;
    const bool conj = tile < Block::kV;
    W value;
    if (conj) {
      const int c = tile / Block::kTall, r = c + tile % Block::kTall;
      value = s.v[(8 * r + pair) * ld + 8 * c + row];
    } else {
      int c = 0;
      while (c + 1 < Block::kColumns && Block::factor(0, c + 1) <= tile) {
        ++c;
      }
      const int r = tile - Block::factor(0, c);
      value = element<W>(0.0) - factor_element<Q>(s, 8 * r + row, 8 * c + pair);
    }
    double* const place = target + tile * Block::kTile + x % 64;
    place[0] = real_part(value);
    if constexpr (PackMemory<Q, W>::kComplex) {
      place[64] = conj ? value.im : -value.im;
    }
  }
}

// One block of threads makes one block of a group.
template <int Q, class D>
__global__ void __launch_bounds__(kThreads)
    pack_blocks_kernel(SweepPasses passes, const D* kept, double* packed) {
  using W = typename Wide<D>::type;
  extern __shared__ char memory[];
  const PackMemory<Q, W> s(memory);
  const Size step = blockIdx.x, group = blockIdx.y;
  load_reflectors(s, passes, group, step, kept);
  __syncthreads();
  form_factor(s);
  __syncthreads();
  store_tiles(s, group * passes.steps + step, packed);
}

template <int Q, class D>
void pack_blocks(CudaLane& lane, const SweepPasses& passes, const D* v, double* packed) {
  const auto kernel = pack_blocks_kernel<Q, D>;
  constexpr std::size_t bytes = PackMemory<Q, typename Wide<D>::type>::kBytes;
  allow_shared_memory(kernel, bytes);
  const dim3 grid(static_cast<unsigned>(passes.steps), static_cast<unsigned>(2 * passes.count()));
  kernel<<<grid, kThreads, bytes, lane.stream()>>>(passes, v, packed);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

template <class T>
void Cuda::pack_sweeps(Lane& lane, const SweepBatch& batch, const T* v, T* packed) {
  if (batch.count > 0 && !with_sweep_tiles(lane, batch, [&](auto quarter) {
        pack_blocks<decltype(quarter)::value>(lane, sweep_passes(batch), on_device(v),
                                              reinterpret_cast<double*>(packed));
      })) {
    pack_any_sweeps<T>(lane, batch, v, packed);
  }
}

#define JAXMG_INSTANTIATE(T) \
  template void Cuda::pack_sweeps<T>(Lane&, const SweepBatch&, const T*, T*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
