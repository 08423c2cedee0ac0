#include "tile/cuda/lane.h"

#include <algorithm>
#include <string>

#include "tile/cuda/scratch.h"

namespace jaxmg::tile {
namespace {

// What cuBLAS asks for on Hopper to have all of its kernels to choose from.
constexpr Size kBlasWorkspace = Size{32} << 20;
constexpr Size kAlignment = 256;

// Whether processes run on the device side by side, and not in turn.
bool is_shared_by_processes(int device) {
  int shared = 0;
  if (cudaDeviceGetAttribute(&shared, cudaDevAttrMpsEnabled, device) != cudaSuccess) {
    cudaGetLastError();  // a driver that does not know the question
    return false;
  }
  return shared != 0;
}

}  // namespace

DeviceGuard::DeviceGuard(int device) {
  JAXMG_CUDA_CHECK(cudaGetDevice(&previous_));
  JAXMG_CUDA_CHECK(cudaSetDevice(device));
}

DeviceGuard::~DeviceGuard() {
  cudaSetDevice(previous_);
}

EventPool::~EventPool() {
  for (cudaEvent_t event : free_) {
    cudaEventDestroy(event);
  }
}

CudaEvent EventPool::record(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      event = free_.back();
      free_.pop_back();
    }
  }
  if (event == nullptr) {
    JAXMG_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  std::shared_ptr<CudaEvent::Handle> handle(event,
                                            [pool = shared_from_this()](cudaEvent_t returned) {
                                              const std::lock_guard lock(pool->mutex_);
                                              pool->free_.push_back(returned);
                                            });
  JAXMG_CUDA_CHECK(cudaEventRecord(event, stream));
  return CudaEvent(std::move(handle));
}

CudaTicket& CudaTicket::operator=(CudaTicket&& other) noexcept {
  if (this != &other) {
    CudaTicket old(std::move(*this));
    state_ = std::move(other.state_);
    lane_ = other.lane_;
    exceptions_ = other.exceptions_;
    own_lane_waited_ = other.own_lane_waited_;
  }
  return *this;
}

CudaTicket::~CudaTicket() {
  if (!state_) {
    return;
  }
  if (std::uncaught_exceptions() > exceptions_) {
    // The rank is on its way out, and its peers may never make their parts.
    state_->abandon();
    return;
  }
  // A failure here is not lost: the communicator remembers it and fails its next call.
  try {
    release();
  } catch (const std::exception&) {
    state_.reset();
  }
}

void CudaTicket::wait(CudaLane& lane) {
  if (state_) {
    state_->wait(lane);
    own_lane_waited_ = own_lane_waited_ || &lane == lane_;
  }
}

void CudaTicket::release() {
  if (!state_) {
    return;
  }
  const std::unique_ptr<State> state = std::move(state_);
  if (!own_lane_waited_) {
    state->wait(*lane_);
  }
}

bool CudaVerdict::good() const {
  JAXMG_CUDA_CHECK(cudaEventSynchronize(event_.get()));
  return *bad_ == 0;
}

std::int32_t* CudaLane::host_flag() {
  if (host_flag_ == nullptr) {
    JAXMG_CUDA_CHECK(cudaHostAlloc(reinterpret_cast<void**>(&host_flag_), sizeof(std::int32_t),
                                   cudaHostAllocPortable | cudaHostAllocMapped));
  }
  return host_flag_;
}

CudaLane::CudaLane(StreamPriority priority, std::shared_ptr<EventPool> events)
    : events_(std::move(events)) {
  int lowest = 0;
  int highest = 0;
  JAXMG_CUDA_CHECK(cudaGetDevice(&device_));
  JAXMG_CUDA_CHECK(cudaDeviceGetStreamPriorityRange(&lowest, &highest));
  priority_ = priority == StreamPriority::highest ? highest : lowest;
  JAXMG_CUDA_CHECK(cudaStreamCreateWithPriority(&wide_, cudaStreamNonBlocking, priority_));
  stream_ = wide_;
  JAXMG_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&library_info_), kAlignment));
  JAXMG_CUDA_CHECK(
      cudaDeviceGetAttribute(&multiprocessors_, cudaDevAttrMultiProcessorCount, device_));
  JAXMG_CUDA_CHECK(
      cudaDeviceGetAttribute(&shared_memory_, cudaDevAttrMaxSharedMemoryPerBlockOptin, device_));
  shared_ = is_shared_by_processes(device_);
}

CudaLane::~CudaLane() {
  int previous = 0;
  cudaGetDevice(&previous);
  cudaSetDevice(device_);
  cudaStreamSynchronize(stream_);
  stream_ = wide_;
  if (parameters_ != nullptr) {
    cusolverDnDestroyParams(parameters_);
  }
  if (solver_ != nullptr) {
    cusolverDnDestroy(solver_);
  }
  if (blas_ != nullptr) {
    cublasDestroy(blas_);
  }
  cudaFree(mailbox_);
  cudaFree(library_info_);
  cudaFreeHost(host_flag_);
  narrow_.reset();
  cudaStreamDestroy(wide_);
  cudaSetDevice(previous);
}

void CudaLane::wait(const CudaEvent& event) {
  if (event) {
    JAXMG_CUDA_CHECK(cudaStreamWaitEvent(stream_, event.get(), 0));
  }
}

cublasHandle_t CudaLane::blas() {
  if (blas_ == nullptr) {
    JAXMG_CUDA_CHECK(cublasCreate(&blas_));
    JAXMG_CUDA_CHECK(cublasSetStream(blas_, stream_));  // before the workspace, which it resets
    JAXMG_CUDA_CHECK(cublasSetPointerMode(blas_, CUBLAS_POINTER_MODE_HOST));
    JAXMG_CUDA_CHECK(cublasSetAtomicsMode(blas_, CUBLAS_ATOMICS_NOT_ALLOWED));
    // The default mode computes in the precision of the operands: no TF32.
    JAXMG_CUDA_CHECK(cublasSetMathMode(blas_, CUBLAS_DEFAULT_MATH));
    if (blas_workspace_ != nullptr) {
      JAXMG_CUDA_CHECK(
          cublasSetWorkspace(blas_, blas_workspace_, static_cast<std::size_t>(blas_bytes_)));
    }
  }
  return blas_;
}

// The handle's workspace goes with its stream.
void CudaLane::use(cudaStream_t stream, int multiprocessors) {
  const CudaEvent before = record();
  stream_ = stream;
  wait(before);
  cublasHandle_t const handle = blas();
  JAXMG_CUDA_CHECK(cublasSetStream(handle, stream));
  if (blas_workspace_ != nullptr) {
    JAXMG_CUDA_CHECK(
        cublasSetWorkspace(handle, blas_workspace_, static_cast<std::size_t>(blas_bytes_)));
  }
  JAXMG_CUDA_CHECK(cublasSetSmCountTarget(handle, multiprocessors));
}

void CudaLane::leave_room(int reserve) {
  if (reserve <= 0) {
    if (stream_ != wide_) {
      use(wide_, 0);
    }
    return;
  }
  if (narrow_reserve_ != reserve) {
    narrow_reserve_ = reserve;
    narrow_ = NarrowStream::make(device_, multiprocessors_, reserve, priority_);
  }
  if (narrow_ && stream_ == wide_) {
    use(narrow_->get(), narrow_->multiprocessors());
  }
}

cusolverDnHandle_t CudaLane::solver() {
  if (solver_ == nullptr) {
    JAXMG_CUDA_CHECK(cusolverDnCreate(&solver_));
    JAXMG_CUDA_CHECK(cusolverDnSetStream(solver_, stream_));
  }
  return solver_;
}

cusolverDnParams_t CudaLane::solver_parameters() {
  if (parameters_ == nullptr) {
    JAXMG_CUDA_CHECK(cusolverDnCreateParams(&parameters_));
  }
  return parameters_;
}

void CudaLane::set_workspace(void* blas, Size blas_bytes, void* scratch, Size scratch_bytes) {
  blas_workspace_ = blas;
  blas_bytes_ = blas_bytes;
  scratch_ = scratch;
  scratch_bytes_ = scratch_bytes;
  if (blas_ == nullptr) {
    return;
  }
  if (blas != nullptr) {
    JAXMG_CUDA_CHECK(cublasSetWorkspace(blas_, blas, static_cast<std::size_t>(blas_bytes)));
  } else {
    JAXMG_CUDA_CHECK(cublasSetStream(blas_, stream_));  // goes back to the library's own
  }
}

void* CudaLane::scratch(Size bytes) const {
  if (bytes > scratch_bytes_) {
    throw std::logic_error("lane: " + std::to_string(bytes) + " bytes of scratch needed, " +
                           std::to_string(scratch_bytes_) + " bound");
  }
  return scratch_;
}

void* CudaLane::mailbox(Size bytes) {
  if (mailbox_bytes_ < bytes) {
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(stream_));  // its readers, once in the lane's life
    JAXMG_CUDA_CHECK(cudaFree(mailbox_));
    mailbox_ = nullptr;
    mailbox_bytes_ = 0;
    JAXMG_CUDA_CHECK(cudaMalloc(&mailbox_, static_cast<std::size_t>(bytes)));
    mailbox_bytes_ = bytes;
    JAXMG_CUDA_CHECK(cudaMemsetAsync(mailbox_, 0, static_cast<std::size_t>(bytes), stream_));
  }
  return mailbox_;
}

std::uint32_t CudaLane::next_tags(int count) {
  const std::uint32_t first = tags_;
  tags_ += static_cast<std::uint32_t>(count);
  if (tags_ >= first) {
    return first;
  }
  // They begin again, and must not meet what is left of the first round.
  if (mailbox_ != nullptr) {
    JAXMG_CUDA_CHECK(
        cudaMemsetAsync(mailbox_, 0, static_cast<std::size_t>(mailbox_bytes_), stream_));
  }
  tags_ = 1 + static_cast<std::uint32_t>(count);
  return 1;
}

CudaLanes::CudaLanes(const std::shared_ptr<EventPool>& events)
    : panel(StreamPriority::highest, events),
      update(StreamPriority::lowest, events),
      copy(StreamPriority::highest, events),
      side(StreamPriority::lowest, events) {}

Size CudaLanes::scratch_bytes(DType type, Size tile, PanelRows rows) {
  Size& known = scratch_bytes_[{type, tile, rows.qr, rows.lu}];
  if (known == 0) {
    const Size bytes = rows.lu > 0 ? lu_scratch_bytes(type, tile, rows.lu)
                                   : tile_scratch_bytes(type, tile, rows.qr);
    known = round_up(std::max<Size>(bytes, 1), kAlignment);
  }
  return known;
}

// One tile for the operations that need a masked copy of it, or what cuSOLVER works in. The last
// tile of a rank may be narrower, and the library chooses its algorithm by size.
Size CudaLanes::tile_scratch_bytes(DType type, Size tile, Size qr_rows) {
  Size bytes = triangle_bytes(type, tile);
  for (Size n = tile; n > 0; n /= 2) {
    bytes = std::max(bytes, potrf_bytes(panel, type, n));
  }
  if (qr_rows > 0) {
    bytes = std::max(bytes, qr_bytes(panel, type, qr_rows, tile));
  }
  return bytes;
}

// Panels become lower with each step. Sizes in between those that are asked for may need more than
// their neighbours: hence a quarter more than the most.
Size CudaLanes::lu_scratch_bytes(DType type, Size tile, Size rows) {
  Size library = 0;
  for (Size m = rows; m > 0; m /= 2) {
    for (Size n = std::min(m, tile); n > 0; n /= 2) {
      library = std::max(library, getrf_bytes(panel, type, m, n));
    }
  }
  return std::max(inversion_bytes(type, tile), library + library / 4);
}

Size CudaLanes::library_bytes(DType type, Size tile, PanelRows rows) {
  return 3 * kBlasWorkspace + 2 * scratch_bytes(type, tile, rows);
}

void CudaLanes::bind(void* base, Size bytes, DType type, Size tile, PanelRows rows) {
  const Size scratch = scratch_bytes(type, tile, rows);
  if (bytes < 3 * kBlasWorkspace + 2 * scratch) {
    throw std::logic_error("lanes: " + std::to_string(bytes) + " bytes handed in for tiles of " +
                           std::to_string(tile));
  }
  char* at = static_cast<char*>(base);
  for (CudaLane* lane : {&panel, &update}) {
    lane->set_workspace(at, kBlasWorkspace, at + kBlasWorkspace, scratch);
    at += kBlasWorkspace + scratch;
  }
  side.set_workspace(at, kBlasWorkspace, nullptr, 0);
}

void CudaLanes::set_alone(bool alone) {
  for (CudaLane* lane : {&panel, &update, &copy, &side}) {
    lane->set_alone(alone);
    lane->set_blocks(0);  // what a call that failed may have left
    lane->leave_room(0);
  }
}

}  // namespace jaxmg::tile
