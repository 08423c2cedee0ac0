// Reflectors of bulge chasing made into the blocks of sweep_blocks.h.
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

// One block of threads makes one block of a group, in shared memory: V (kHeight x kCount), its Gram
// matrix, T, tau.
template <int Q, class D>
__global__ void __launch_bounds__(kThreads)
    pack_blocks_kernel(SweepPasses passes, const D* kept, double* packed) {
  using W = typename Wide<D>::type;
  constexpr bool complex = !std::is_same_v<W, double>;
  using Block = SweepBlock<Q, complex>;
  constexpr int g = Block::kCount, height = Block::kHeight, ld = g + 1;
  extern __shared__ char memory[];
  W* const v = reinterpret_cast<W*>(memory);  // row-major, as the others
  W* const gram = v + height * ld;
  W* const t = gram + g * ld;
  W* const tau = t + g * ld;
  const SweepBatch& batch = passes.batch;
  const Size step = blockIdx.x, group = blockIdx.y;
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
    v[r * ld + q] = value;
  }
  for (int q = static_cast<int>(threadIdx.x); q < g; q += kThreads) {
    tau[q] = q < count && above + q < rows ? widened(source[above + q + q * rows]) : zero;
  }
  __syncthreads();
  for (int x = static_cast<int>(threadIdx.x); x < g * g; x += kThreads) {
    const int i = x / g, j = x % g;
    W sum = zero;
    for (int r = j + 1; i < j && r <= i + Block::kRows; ++r) {
      sum = sum + conjugate(v[r * ld + i]) * v[r * ld + j];
    }
    gram[i * ld + j] = sum;
    t[i * ld + j] = zero;
  }
  __syncthreads();
  // T_jj = tau_j,  T(0:j, j) = -tau_j T(0:j, 0:j) (V(:, 0:j)^H v_j)
  if (threadIdx.x < 32) {
    const int i = static_cast<int>(threadIdx.x);
    for (int j = 0; j < g; ++j) {
      W sum = zero;
      for (int l = i; l < j; ++l) {
        sum = sum + t[i * ld + l] * gram[l * ld + j];
      }
      __syncwarp();
      if (i <= j && i < g) {
        t[i * ld + j] = i == j ? tau[j] : zero - tau[j] * sum;
      }
      __syncwarp();
    }
  }
  __syncthreads();
  double* const target = packed + (group * passes.steps + step) * Block::kSize;
  for (int x = static_cast<int>(threadIdx.x); x < Block::kTiles * 64; x += kThreads) {
    const int tile = x / 64, e = x % 2, lane = x / 2 % 32, row = lane / 4,
              pair = 2 * (lane % 4) + e;
    W value;
    bool conj = false;
    if (tile < Block::kV) {
      const int c = tile / Block::kTall, r = c + tile % Block::kTall;
      value = v[(8 * r + pair) * ld + 8 * c + row];
      conj = true;
    } else if (tile < Block::kV + Block::kT) {
      int r = 0, c = tile - Block::kV;
      for (; c >= Block::kColumns - r; ++r) {
        c -= Block::kColumns - r;
      }
      value = zero - t[(8 * r + row) * ld + 8 * (r + c) + pair];
    } else {
      const int n = tile - Block::kV - Block::kT;
      const int c = n / Block::kTall, r = c + n % Block::kTall;
      value = v[(8 * r + row) * ld + 8 * c + pair];
    }
    double* const place = target + tile * Block::kTile + x % 64;
    place[0] = real_part(value);
    if constexpr (complex) {
      place[64] = conj ? value.im : -value.im;
    }
  }
}

template <int Q, class D>
constexpr std::size_t pack_shared_bytes() {
  using W = typename Wide<D>::type;
  using Block = SweepBlock<Q, !std::is_same_v<W, double>>;
  return static_cast<std::size_t>((Block::kHeight + 2 * Block::kCount) * (Block::kCount + 1) +
                                  Block::kCount) *
         sizeof(W);
}

template <int Q, class D>
void pack_blocks(CudaLane& lane, const SweepPasses& passes, const D* v, double* packed) {
  const auto kernel = pack_blocks_kernel<Q, D>;
  constexpr std::size_t bytes = pack_shared_bytes<Q, D>();
  allow_shared_memory(kernel, bytes);
  const dim3 grid(static_cast<unsigned>(passes.steps), static_cast<unsigned>(2 * passes.count()));
  kernel<<<grid, kThreads, bytes, lane.stream()>>>(passes, v, packed);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

}  // namespace

template <class T>
void Cuda::pack_sweeps(Lane& lane, const SweepBatch& batch, const T* v, T* packed) {
  if (batch.count > 0 && !with_sweep_tiles(batch, [&](auto quarter) {
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
