#include "comm/cuda/combine.h"

#include <stdexcept>

#include "tile/cuda/launch.h"

namespace jaxmg::peers {
namespace {

// The sources in a form that device code can index.
struct DeviceSources {
  explicit DeviceSources(const Sources& sources) : size(sources.size) {
    for (int r = 0; r < size; ++r) {
      data[r] = sources.data[static_cast<std::size_t>(r)];
    }
  }
  const void* data[kMaxRanks] = {};
  int size = 0;
};

template <class T>
__device__ const T* source(const DeviceSources& sources, int rank) {
  return static_cast<const T*>(sources.data[rank]);
}

// Whether b takes the place of a.
template <Reduction kOp, class T>
__device__ bool precedes(T b, T a) {
  const bool extreme = kOp == Reduction::min ? b < a : b > a;
  return extreme || (b != b && a == a);
}

template <Reduction kOp, class T>
__device__ T joined(T a, T b) {
  if constexpr (kOp != Reduction::sum) {
    return precedes<kOp>(b, a) ? b : a;
  } else if constexpr (std::is_same_v<T, std::int32_t>) {
    return static_cast<T>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
  } else {
    return a + b;
  }
}

template <Reduction kOp, class T>
__global__ void reduce_kernel(DeviceSources sources, Size count, T* out) {
  const Size step = static_cast<Size>(gridDim.x) * blockDim.x;
  for (Size i = static_cast<Size>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    T value = source<T>(sources, 0)[i];
    for (int r = 1; r < sources.size; ++r) {
      value = joined<kOp>(value, source<T>(sources, r)[i]);
    }
    out[i] = value;
  }
}

template <class T>
void launch_reduce(tile::CudaLane& lane, const DeviceSources& sources, Size count, Reduction op,
                   void* out) {
  const auto blocks = static_cast<unsigned>(std::min<Size>(ceil_div(count, tile::kThreads), 2048));
  T* const target = static_cast<T*>(out);
  switch (op) {
    case Reduction::sum:
      reduce_kernel<Reduction::sum, T>
          <<<blocks, tile::kThreads, 0, lane.stream()>>>(sources, count, target);
      break;
    case Reduction::min:
      reduce_kernel<Reduction::min, T>
          <<<blocks, tile::kThreads, 0, lane.stream()>>>(sources, count, target);
      break;
    case Reduction::max:
      reduce_kernel<Reduction::max, T>
          <<<blocks, tile::kThreads, 0, lane.stream()>>>(sources, count, target);
      break;
  }
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

__device__ float absolute(float x) {
  return fabsf(x);
}
__device__ double absolute(double x) {
  return fabs(x);
}
__device__ std::int32_t absolute(std::int32_t x) {
  return x == INT32_MIN ? INT32_MAX : (x < 0 ? -x : x);
}

template <Reduction kOp, class T>
__global__ void locate_kernel(DeviceSources values, DeviceSources locations, T* value,
                              std::int64_t* location) {
  T best = absolute(*source<T>(values, 0));
  std::int64_t where = *source<std::int64_t>(locations, 0);
  for (int r = 1; r < values.size; ++r) {
    const T candidate = absolute(*source<T>(values, r));
    if (precedes<kOp>(candidate, best)) {
      best = candidate;
      where = *source<std::int64_t>(locations, r);
    }
  }
  *value = best;
  *location = where;
}

template <class T>
void launch_locate(tile::CudaLane& lane, const DeviceSources& values,
                   const DeviceSources& locations, Reduction op, void* value,
                   std::int64_t* location) {
  if (op == Reduction::min) {
    locate_kernel<Reduction::min, T>
        <<<1, 1, 0, lane.stream()>>>(values, locations, static_cast<T*>(value), location);
  } else {
    locate_kernel<Reduction::max, T>
        <<<1, 1, 0, lane.stream()>>>(values, locations, static_cast<T*>(value), location);
  }
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

// severity() of core/status.h.
__device__ std::int64_t severity_of(const Info& info) {
  if (info.kind == 0) {
    return std::int64_t{1} << 62;
  }
  return static_cast<std::int64_t>(info.kind) * (std::int64_t{1} << 32) + info.position;
}

__global__ void least_severe_kernel(DeviceSources infos, Info* info) {
  Info least = *source<Info>(infos, 0);
  for (int r = 1; r < infos.size; ++r) {
    const Info other = *source<Info>(infos, r);
    if (severity_of(other) < severity_of(least)) {
      least = other;
    }
  }
  *info = least;
}

}  // namespace

void reduce(tile::CudaLane& lane, const Sources& sources, Size count, DType type, Reduction op,
            void* out) {
  if (count <= 0) {
    return;
  }
  const DeviceSources on_device(sources);
  switch (type) {
    case DType::i32:
      return launch_reduce<std::int32_t>(lane, on_device, count, op, out);
    case DType::f32:
      return launch_reduce<float>(lane, on_device, count, op, out);
    case DType::f64:
      return launch_reduce<double>(lane, on_device, count, op, out);
    case DType::c64:  // pairs of real values, which is all that a sum has to know
      return launch_reduce<float>(lane, on_device, 2 * count, op, out);
    case DType::c128:
      return launch_reduce<double>(lane, on_device, 2 * count, op, out);
  }
}

void locate_extreme(tile::CudaLane& lane, const Sources& values, const Sources& locations,
                    DType type, Reduction op, void* value, std::int64_t* location) {
  const DeviceSources candidates(values);
  const DeviceSources places(locations);
  switch (type) {
    case DType::i32:
      return launch_locate<std::int32_t>(lane, candidates, places, op, value, location);
    case DType::f32:
      return launch_locate<float>(lane, candidates, places, op, value, location);
    case DType::f64:
      return launch_locate<double>(lane, candidates, places, op, value, location);
    case DType::c64:
    case DType::c128:
      throw std::invalid_argument("complex values have no extremes");
  }
}

void least_severe(tile::CudaLane& lane, const Sources& infos, Info* info) {
  least_severe_kernel<<<1, 1, 0, lane.stream()>>>(DeviceSources(infos), info);
  JAXMG_CUDA_CHECK(cudaGetLastError());
}

}  // namespace jaxmg::peers
