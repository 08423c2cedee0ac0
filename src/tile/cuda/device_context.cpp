#include "tile/cuda/device_context.h"

#include <algorithm>
#include <map>

#include "core/with_type.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/lu_base.h"
#include "tile/cuda/peer_access.h"
#include "tile/cuda/scratch.h"

namespace jaxmg::tile {
namespace {

// Staging of ranks whose kernels read operands where they lie: small results only.
constexpr Size kDirectStaging = Size{2} << 20;
// Else the operands of reductions pass through it.
constexpr Size kCopyStaging = Size{64} << 20;

constexpr Size kWarmUpTile = 64;

// Four tiles, and room for smaller things behind them.
template <class T>
struct WarmUpMemory {
  static constexpr Size kTile = kWarmUpTile * kWarmUpTile * static_cast<Size>(sizeof(T));
  explicit WarmUpMemory(char* memory)
      : a(reinterpret_cast<T*>(memory)),
        b(reinterpret_cast<T*>(memory + kTile)),
        x(reinterpret_cast<T*>(memory + 2 * kTile)),
        work(reinterpret_cast<T*>(memory + 3 * kTile)),
        small(memory + 4 * kTile) {}
  T* a;
  T* b;
  T* x;
  T* work;
  char* small;
};

// Every operation once, on a small tile.
template <class T>
void warm_up(CudaLane& lane, char* memory) {
  constexpr Size n = kWarmUpTile;
  const auto [a, b, x, work, small] = WarmUpMemory<T>(memory);
  auto* const real = reinterpret_cast<Real<T>*>(small);
  auto* const info = reinterpret_cast<Info*>(small + 256);
  Cuda::reset(lane, info);
  Cuda::fill<T>(lane, n, n, T(0), T(1), a, n);
  Cuda::fill<T>(lane, n, n, T(0), T(1), b, n);
  Cuda::fill<Real<T>>(lane, 4, 1, Real<T>(0), Real<T>(0), real, 4);
  Cuda::potrf<T>(lane, n, a, n, 0, info);
  Cuda::invert_lower<T>(lane, n, a, n, x, n);
  Cuda::invert_blocks<T>(lane, n, a, n, x, n);
  Cuda::copy_triangle<T>(lane, Uplo::lower, Diag::non_unit, n, n, a, n, x, n);
  Cuda::factor_panel<T>(lane, 0, n / 2, n / 2, n / 2, b, n, 0, info);
  Cuda::fill<T>(lane, n, n, T(0), T(1), b, n);
  for (const Op op : {Op::none, Op::conj_transpose}) {
    Cuda::solve_diagonal<T>(lane, op, n, n, a, n, x, n, b, n, work);
    Cuda::solve_diagonal<T>(lane, op, 1, n, a, n, x, n, b, n, work);
    Cuda::trsm<T>(lane, Side::right, Uplo::lower, op, Diag::non_unit, n, n, T(1), a, n, b, n);
    Cuda::gemm<T>(lane, Op::none, op, n, n, n, T(-1), a, n, b, n, T(1), work, n);
  }
  Cuda::gemm<T>(lane, Op::transpose, Op::none, n, 1, n, T(1), a, n, b, n, T(0), work, n);
  Cuda::multiply_both<T>(lane, n, n, a, n, b, b, x, x + n, work, n * n);
  if constexpr (Cuda::splits<T>) {
    auto* const s = reinterpret_cast<Real<T>*>(x);
    Cuda::unit_scale<T>(lane, n, a, n + 1, s);
    Cuda::judge_scales<Real<T>>(lane, n, 1, 1, s, s + n, s + 2 * n);
    Cuda::scale_if<T>(lane, s + 2 * n, n, n, s, s, b, n);
    Cuda::scale<T>(lane, 1, 1, s, nullptr, b, n);
  }
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

// What least squares by a Gram matrix need: the kernels for every number of columns, which read as
// many elements of one row, and both precisions.
template <class T>
void warm_up_gels(CudaLane& lane, const WarmUpMemory<T>& tiles) {
  constexpr Size n = kWarmUpTile;
  for (Size columns = 32; columns <= Cuda::gradient_columns<T>; columns *= 2) {
    Cuda::gradient<T>(lane, columns, 1, tiles.a, columns, tiles.x, tiles.x, tiles.b, tiles.work,
                      n * n);
  }
  Cuda::row_norms<T>(lane, 1, n, tiles.a, n, reinterpret_cast<Real<T>*>(tiles.small + 1024));
  Cuda::gemm_strided<T>(lane, Op::none, Op::conj_transpose, n, n, n, T(1), tiles.a, n, n, tiles.a,
                        n, n, T(0), tiles.b, n, n * n, 1);
  if constexpr (!std::is_same_v<T, Wide<T>>) {
    auto* const wide = reinterpret_cast<Wide<T>*>(tiles.b);
    Cuda::convert<T, Wide<T>>(lane, n / 2, n / 2, tiles.a, n, wide, n / 2);
    Cuda::convert<Wide<T>, T>(lane, n / 2, n / 2, wide, n / 2, tiles.x, n);
  }
}

template <class T>
void warm_up_qr(CudaLane& lane, char* memory) {
  constexpr Size n = kWarmUpTile;
  const WarmUpMemory<T> tiles(memory);
  T* const a = tiles.a;
  T* const r = tiles.b;
  auto* const info = reinterpret_cast<Info*>(tiles.small);
  auto* const signs = reinterpret_cast<Real<T>*>(tiles.small + 256);
  Cuda::reset(lane, info);
  for (const T diagonal : {T(1), T(0)}) {  // by either method
    Cuda::fill<T>(lane, n, n, T(0), diagonal, a, n);
    Cuda::orthonormalise<T>(lane, n, n, a, n, r, n);
  }
  Cuda::doubt_factor<T>(lane, n, a, n, info, r);
  Cuda::judge_gram<T>(lane, n, a, n);
  Cuda::signed_lu<T>(lane, n / 2, n / 2, a, n, signs);
  Cuda::make_reflectors<T>(lane, n / 2, n / 2, a, n, signs, r, n);
  Cuda::trsm<T>(lane, Side::right, Uplo::upper, Op::none, Diag::non_unit, n, n, T(1), a, n, r, n);
  Cuda::trsm<T>(lane, Side::left, Uplo::lower, Op::none, Diag::unit, n, n, T(1), a, n, r, n);
  Cuda::gemm<T>(lane, Op::conj_transpose, Op::conj_transpose, n, n, n, T(1), a, n, a, n, T(0), r,
                n);
  Cuda::gemm<T>(lane, Op::none, Op::none, n, n, n, T(1), a, n, a, n, T(0), r, n);
  Cuda::scale<T>(lane, 1, 1, signs, nullptr, a, n);
  Cuda::copy_triangle<T>(lane, Uplo::upper, Diag::unit, n, n, a, n, r, n);
  Cuda::check_finite<T>(lane, n, n, a, n, info);
  Cuda::check_diagonal<T>(lane, n, a, n, 0, info);
  warm_up_gels<T>(lane, tiles);
}

// The same for LU.
template <class T>
void warm_up_lu(CudaLane& lane, char* memory) {
  constexpr Size n = kWarmUpTile;
  const auto [a, b, x, work, small] = WarmUpMemory<T>(memory);
  auto* const real = reinterpret_cast<Real<T>*>(small);
  T* const phase = reinterpret_cast<T*>(small + 64);
  auto* const info = reinterpret_cast<Info*>(small + 256);
  auto* const integers = reinterpret_cast<std::int32_t*>(small + 512);  // 6 n
  const RowMoves moves{integers + n, integers + 3 * n};
  std::int32_t* const order = integers + 5 * n;
  Cuda::reset(lane, info);
  for (T* const tile_of : {a, b, x, work}) {
    Cuda::fill<T>(lane, n, n, T(0), T(1), tile_of, n);
  }
  Cuda::fill<Real<T>>(lane, 1, 1, Real<T>(0), Real<T>(0), real, 1);
  Cuda::fill<T>(lane, 1, 1, T(1), T(1), phase, 1);
  Cuda::check_finite<T>(lane, n, n, a, n, info);
  // By our own kernels, small panels taking one block that waits for nobody, and by the library's.
  Cuda::getrf<T>(lane, n, n, a, n, 0, integers, x, n, 0, 0, info);
  load_lu_base<T>(lane);
  getrf_by_library<T>(lane, n, n, a, n, 0, integers, x, n, {0, 0, info});
  Cuda::trace_pivots(lane, n, integers, 0, moves);
  Cuda::iota(lane, n, order);
  Cuda::move_rows<std::int32_t>(lane, n, moves, 1, order, n, nullptr, 0);
  Cuda::move_rows<T>(lane, n, moves, n, b, n, nullptr, 0);
  Cuda::put_rows<T>(lane, n, n, order, 0, b, n, work, n);
  Cuda::put_columns<T>(lane, n, n, order, 0, n, b, n, work, n);
  Cuda::take_columns<T>(lane, n, n, order, 0, n, b, n, work, n);
  Cuda::copy<std::int32_t>(lane, n - 1, 2, integers, n, integers + n, n);
  for (const Uplo uplo : {Uplo::lower, Uplo::upper}) {
    const Diag diag = uplo == Uplo::lower ? Diag::unit : Diag::non_unit;
    Cuda::invert_triangle<T>(lane, uplo, diag, n, a, n, x, n);
    for (const Op op : {Op::none, Op::transpose}) {
      Cuda::solve_triangle<T>(lane, uplo, op, diag, n, n, a, n, x, n, b, n, work);
      Cuda::solve_triangle<T>(lane, uplo, op, diag, 1, n, a, n, x, n, b, n, work);
    }
  }
  Cuda::trsm<T>(lane, Side::left, Uplo::lower, Op::none, Diag::unit, n, n, T(1), a, n, b, n);
  Cuda::gemm<T>(lane, Op::none, Op::none, n, n, n, T(-1), a, n, b, n, T(1), work, n);
  if constexpr (Cuda::splits<T>) {
    constexpr Size h = n / 2;
    auto* const parts = reinterpret_cast<Cuda::Half*>(x);  // less than a tile
    auto* const more = reinterpret_cast<Cuda::Half*>(work);
    Cuda::split_left(lane, h, h, a, n, parts, h);
    Cuda::subtract_split_rows(lane, h, h, h, parts, h, a, n, more, b, n);
    auto* const s = reinterpret_cast<Real<T>*>(x);
    Cuda::row_max<T>(lane, n, n, a, n, s);
    Cuda::unit_size<Real<T>>(lane, n, s, s, s + n, s + 3 * n);
    Cuda::column_max<T>(lane, n, n, s, a, n, s + 2 * n);
    Cuda::scale_if<T>(lane, s, n, n, s, s, b, n);
    Cuda::scale_factors_if<T>(lane, s, n, n, 0, s, s, s, b, n);
  }
  Cuda::log_phase<T>(lane, n, a, n + 1, real, phase);
  Cuda::pivot_sign<T>(lane, n, integers, phase);
  Cuda::name_equation(lane, info);
  Cuda::fill_if_kind<T>(lane, info, Kind::singular, n, n, T(0), a, n);
}

template <class T>
void warm_up(Kernels kernels, CudaLane& lane, char* memory) {
  switch (kernels) {
    case Kernels::common:
      return warm_up<T>(lane, memory);
    case Kernels::lu:
      return warm_up_lu<T>(lane, memory);
    case Kernels::qr:
      return warm_up_qr<T>(lane, memory);
  }
}

void warm_up(DType type, Kernels kernels, CudaLane& lane, char* memory) {
  with_type(type, [&]<class T>() { warm_up<T>(kernels, lane, memory); });
}

Size warm_up_scratch(DType type, Kernels kernels, CudaLane& lane) {
  switch (kernels) {
    case Kernels::common:
      return std::max(inversion_bytes(type, kWarmUpTile), potrf_bytes(lane, type, kWarmUpTile));
    case Kernels::lu:
      return std::max(inversion_bytes(type, kWarmUpTile),
                      getrf_bytes(lane, type, kWarmUpTile, kWarmUpTile));
    case Kernels::qr:
      return qr_bytes(lane, type, kWarmUpTile, kWarmUpTile);
  }
  return 0;
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

void DeviceContext::prepare(DType type, Kernels kernels) {
  auto& of_kind = prepared_[static_cast<std::size_t>(kernels)];
  const auto slot = static_cast<std::size_t>(type);
  if (slot >= of_kind.size() || of_kind[slot]) {
    return;
  }
  const Size tiles = 4 * kWarmUpTile * kWarmUpTile * size_of(type) + 4096;
  const Size scratch = warm_up_scratch(type, kernels, lanes_->panel);
  CudaStaging memory(tiles + scratch);
  for (CudaLane* lane : {&lanes_->panel, &lanes_->update}) {
    lane->set_workspace(nullptr, 0, memory.data() + tiles, scratch);
    warm_up(type, kernels, *lane, memory.data());
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane->stream()));
    lane->set_workspace(nullptr, 0, nullptr, 0);
  }
  of_kind[slot] = true;
}

void DeviceContext::reserve_staging(Size bytes) {
  if (staging_->bytes() < bytes) {
    const DeviceGuard guard(device_);
    staging_ = std::make_unique<CudaStaging>(bytes);
  }
}

bool DeviceSet::alone(int rank) const {
  return std::ranges::count(devices_, devices_[static_cast<std::size_t>(rank)]) == 1;
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
