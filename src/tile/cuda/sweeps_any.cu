// Reflectors of bulge chasing applied to eigenvectors by matrix products, for bands of any width.
#include "tile/cuda/cuda.h"
#include "tile/cuda/launch.h"
#include "tile/cuda/scalar.h"
#include "tile/sweep_products.h"

namespace jaxmg::tile {
namespace {

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

}  // namespace

template <class T>
void Cuda::pack_any_sweeps(Lane& lane, const SweepBatch& batch, const T* v, T* packed) {
  using D = DeviceType<T>;
  for (Size i = 0; i < batch.groups(); ++i) {
    const SweepGroup group = batch.group(i);
    const std::size_t shared =
        static_cast<std::size_t>(group.count * (2 * group.count + 1)) * sizeof(D);
    allow_shared_memory(pack_kernel<D, Real<T>>, shared);
    pack_kernel<D, Real<T>>
        <<<static_cast<unsigned>(group.steps()), kThreads, shared, lane.stream()>>>(
            group, on_device(v + batch.offset(i)), on_device(packed));
    JAXMG_CUDA_CHECK(cudaGetLastError());
    packed += group.packed();
  }
}

template <class T>
void Cuda::apply_any_sweeps(Lane& lane, const SweepBatch& batch, const T* packed, Size columns,
                            T* x, Size ldx, T* products) {
  apply_sweeps_by_products<Cuda>(lane, batch, packed, columns, x, ldx, products);
}

#define JAXMG_INSTANTIATE(T)                                                      \
  template void Cuda::pack_any_sweeps<T>(Lane&, const SweepBatch&, const T*, T*); \
  template void Cuda::apply_any_sweeps<T>(Lane&, const SweepBatch&, const T*, Size, T*, Size, T*);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
