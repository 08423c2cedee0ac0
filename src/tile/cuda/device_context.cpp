#include "tile/cuda/device_context.h"

#include <map>

#include "tile/cuda/cuda.h"
#include "tile/cuda/peer_access.h"
#include "tile/cuda/scratch.h"

namespace jaxmg::tile {
namespace {

// Staging of ranks whose kernels read operands where they lie: small results only.
constexpr Size kDirectStaging = Size{2} << 20;
// Else the operands of reductions pass through it.
constexpr Size kCopyStaging = Size{64} << 20;

constexpr Size kWarmUpTile = 64;

// Every operation once, on a small tile.
template <class T>
void warm_up(CudaLane& lane, char* memory) {
  constexpr Size n = kWarmUpTile;
  constexpr Size tile = n * n * static_cast<Size>(sizeof(T));
  T* const a = reinterpret_cast<T*>(memory);
  T* const b = reinterpret_cast<T*>(memory + tile);
  T* const x = reinterpret_cast<T*>(memory + 2 * tile);
  T* const work = reinterpret_cast<T*>(memory + 3 * tile);
  auto* const real = reinterpret_cast<Real<T>*>(memory + 4 * tile);
  auto* const info = reinterpret_cast<Info*>(memory + 4 * tile + 256);
  Cuda::reset(lane, info);
  Cuda::fill<T>(lane, n, n, T(0), T(1), a, n);
  Cuda::fill<T>(lane, n, n, T(0), T(1), b, n);
  Cuda::fill<Real<T>>(lane, 4, 1, Real<T>(0), Real<T>(0), real, 4);
  Cuda::potrf<T>(lane, n, a, n, 0, info);
  Cuda::invert_lower<T>(lane, n, a, n, x, n);
  Cuda::invert_blocks<T>(lane, n, a, n, x, n);
  Cuda::copy_triangle<T>(lane, Uplo::lower, Diag::non_unit, n, n, a, n, x, n);
  Cuda::factor_panel<T>(lane, n / 2, n / 2, b, n, 0, info);
  Cuda::fill<T>(lane, n, n, T(0), T(1), b, n);
  for (const Op op : {Op::none, Op::conj_transpose}) {
    Cuda::solve_diagonal<T>(lane, op, n, n, a, n, x, n, b, n, work);
    Cuda::solve_diagonal<T>(lane, op, 1, n, a, n, x, n, b, n, work);
    Cuda::trsm<T>(lane, Side::right, Uplo::lower, op, Diag::non_unit, n, n, T(1), a, n, b, n);
    Cuda::gemm<T>(lane, Op::none, op, n, n, n, T(-1), a, n, b, n, T(1), work, n);
  }
  Cuda::gemm<T>(lane, Op::transpose, Op::none, n, 1, n, T(1), a, n, b, n, T(0), work, n);
  Cuda::transpose<T>(lane, n, n, a, n, work, n, true);
  Cuda::transpose<T>(lane, n, n, a, n, work, n, false);
  Cuda::add<T>(lane, n, n, T(1), a, n, work, n);
  Cuda::copy<T>(lane, n - 1, n, a, n, work, n);
  Cuda::log_diagonal<T>(lane, n, a, n, real);
  Cuda::random_vector<T>(lane, n, 0, Real<T>(1), x);
  Cuda::check_hermitian<T>(lane, n, a, n + 1, x, x, x, real);
  Cuda::judge_hermitian<Real<T>>(lane, real, Real<T>(1), info);
  Cuda::set_if_ok(lane, Kind::ok, 0, info);
  Cuda::set_phase(lane, Phase::none, 0, info);
  Cuda::fill_if_failed<T>(lane, info, n, n, T(0), a, n);
}

void warm_up(DType type, CudaLane& lane, char* memory) {
  switch (type) {
    case DType::f32:
      return warm_up<float>(lane, memory);
    case DType::f64:
      return warm_up<double>(lane, memory);
    case DType::c64:
      return warm_up<std::complex<float>>(lane, memory);
    case DType::c128:
      return warm_up<std::complex<double>>(lane, memory);
    case DType::i32:
      return;
  }
}

}  // namespace

DeviceContext::DeviceContext(int device) : device_(device) {
  const DeviceGuard guard(device);
  events_ = std::make_shared<EventPool>();
  lanes_ = std::make_unique<CudaLanes>(events_);
  staging_ = std::make_unique<CudaStaging>(kDirectStaging);
}

DeviceContext::~DeviceContext() {
  int previous = 0;
  cudaGetDevice(&previous);
  cudaSetDevice(device_);
  lanes_.reset();
  staging_.reset();
  events_.reset();
  cudaSetDevice(previous);
}

void DeviceContext::prepare(DType type) {
  const auto slot = static_cast<std::size_t>(type);
  if (slot >= prepared_.size() || prepared_[slot]) {
    return;
  }
  const Size tiles = 4 * kWarmUpTile * kWarmUpTile * size_of(type) + 1024;
  const Size scratch =
      std::max(triangle_bytes(type, kWarmUpTile), potrf_bytes(lanes_->panel, type, kWarmUpTile));
  CudaStaging memory(tiles + scratch);
  for (CudaLane* lane : {&lanes_->panel, &lanes_->update}) {
    lane->set_workspace(nullptr, 0, memory.data() + tiles, scratch);
    warm_up(type, *lane, memory.data());
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane->stream()));
    lane->set_workspace(nullptr, 0, nullptr, 0);
  }
  prepared_[slot] = true;
}

void DeviceContext::reserve_staging(Size bytes) {
  if (staging_->bytes() < bytes) {
    const DeviceGuard guard(device_);
    staging_ = std::make_unique<CudaStaging>(bytes);
  }
}

std::shared_ptr<DeviceSet> DeviceSet::get(const std::vector<int>& devices) {
  struct Registry {
    std::mutex mutex;
    std::map<std::vector<int>, std::shared_ptr<DeviceSet>> sets;
    // By device, and by how many ranks before this one have it too.
    std::map<std::pair<int, int>, std::shared_ptr<DeviceContext>> contexts;
  };
  // Never destroyed: at the end of the process the driver may be gone before we are.
  static Registry& registry = *new Registry;

  const std::lock_guard lock(registry.mutex);
  std::shared_ptr<DeviceSet>& set = registry.sets[devices];
  if (set) {
    return set;
  }
  const bool direct = enable_peer_access(devices);
  std::map<int, int> named;
  std::vector<std::shared_ptr<DeviceContext>> contexts;
  for (const int device : devices) {
    std::shared_ptr<DeviceContext>& context = registry.contexts[{device, named[device]++}];
    if (!context) {
      context = std::make_shared<DeviceContext>(device);
    }
    if (!direct) {
      context->reserve_staging(kCopyStaging);
    }
    contexts.push_back(context);
  }
  set.reset(new DeviceSet(devices, direct, std::move(contexts)));
  return set;
}

}  // namespace jaxmg::tile
