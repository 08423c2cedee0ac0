// Lanes, events and tickets of GPU ranks. A lane is a stream with the library handles bound to it;
// the host only enqueues. All work on a lane happens on the host thread that drives its rank, with
// the lane's device current (DeviceGuard).
#pragma once

#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/types.h"
#include "tile/cuda/error.h"
#include "tile/cuda/narrow_stream.h"

namespace jaxmg::tile {

// Makes a device current for the life of the guard.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device);
  ~DeviceGuard();
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int previous_ = 0;
};

// Something that happened in a stream; empty by default. The last copy gives the CUDA event back to
// the pool it came from. That may be while other streams still have to wait for it: a wait that has
// been enqueued refers to what was recorded at that time.
class CudaEvent {
 public:
  CudaEvent() = default;
  explicit operator bool() const { return static_cast<bool>(event_); }
  cudaEvent_t get() const { return event_.get(); }

 private:
  friend class EventPool;
  using Handle = std::remove_pointer_t<cudaEvent_t>;
  explicit CudaEvent(std::shared_ptr<Handle> event) : event_(std::move(event)) {}

  std::shared_ptr<Handle> event_;
};

// Events of one device, without timing. Lives as long as any of its events.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  EventPool() = default;
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool();

  // Records in `stream`, whose device must be current and be the pool's.
  CudaEvent record(cudaStream_t stream);

 private:
  std::mutex mutex_;
  std::vector<cudaEvent_t> free_;
};

class CudaLane;

// The caller's part in one communication call. Waiting makes a lane's later work follow it; the
// host is held only until the peers have enqueued their parts.
class CudaTicket {
 public:
  class State {
   public:
    virtual ~State() = default;
    // Work put into `lane` from now on finds the results in place and may overwrite what was sent.
    virtual void wait(CudaLane& lane) = 0;
    // Nobody will wait, since the rank has failed.
    virtual void abandon() noexcept = 0;
  };

  CudaTicket() = default;
  // `lane` is the one that the call was given; it must outlive the ticket.
  CudaTicket(std::unique_ptr<State> state, CudaLane& lane)
      : state_(std::move(state)), lane_(&lane), exceptions_(std::uncaught_exceptions()) {}
  CudaTicket(CudaTicket&& other) noexcept = default;
  CudaTicket& operator=(CudaTicket&& other) noexcept;
  CudaTicket(const CudaTicket&) = delete;
  CudaTicket& operator=(const CudaTicket&) = delete;
  ~CudaTicket();

  void wait(CudaLane& lane);
  // Makes the call's own lane wait, if it has not yet, and forgets the call.
  void release();

 private:
  std::unique_ptr<State> state_;
  CudaLane* lane_ = nullptr;
  bool own_lane_waited_ = false;
  int exceptions_ = 0;  // in flight when the ticket was made
};

// A decision that the device will have made when an event is over, in the host's memory.
class CudaVerdict {
 public:
  CudaVerdict(const volatile std::int32_t* bad, CudaEvent event)
      : bad_(bad), event_(std::move(event)) {}
  // Waits for it. The next decision in that lane must not have been asked for.
  bool good() const;

 private:
  const volatile std::int32_t* bad_;
  CudaEvent event_;
};

enum class StreamPriority { highest, lowest };

class CudaLane {
 public:
  // On the current device.
  CudaLane(StreamPriority priority, std::shared_ptr<EventPool> events);
  ~CudaLane();
  CudaLane(const CudaLane&) = delete;
  CudaLane& operator=(const CudaLane&) = delete;

  int device() const { return device_; }
  cudaStream_t stream() const { return stream_; }

  void wait(const CudaEvent& event);
  void wait(CudaTicket& ticket) { ticket.wait(*this); }
  CudaEvent record() { return events_->record(stream_); }

  // Library handles bound to the stream, made on first use.
  cublasHandle_t blas();
  cusolverDnHandle_t solver();
  cusolverDnParams_t solver_parameters();

  // The memory that cuBLAS and the tile operations work in, until another is handed in. Without
  // any, cuBLAS uses what it allocates with its handle.
  void set_workspace(void* blas, Size blas_bytes, void* scratch, Size scratch_bytes);
  // Scratch of one tile operation, in the order of the stream; std::logic_error if it is too small.
  void* scratch(Size bytes) const;
  bool has_scratch(Size bytes) const { return bytes <= scratch_bytes_; }

  // Whether nothing else can hold multiprocessors of the device and wait for more: other ranks that
  // have the same device might, and other processes that share it. Kernels whose blocks wait for
  // each other are only for lanes that are alone.
  bool alone() const { return alone_ && !shared_; }
  void set_alone(bool alone) { alone_ = alone; }
  int multiprocessors() const { return multiprocessors_; }
  // Bytes that a thread block can have at most.
  std::size_t shared_memory() const { return static_cast<std::size_t>(shared_memory_); }
  // Multiprocessors that such kernels had better do with, all of them at first.
  int blocks() const { return blocks_ > 0 ? blocks_ : multiprocessors_; }
  void set_blocks(int blocks) { blocks_ = blocks; }
  // From now on work of this lane leaves about `reserve` multiprocessors alone (0: none, again).
  // Its order is kept. Without effect where the driver cannot do it.
  void leave_room(int reserve);
  // Where such blocks meet, zeros at first, and tags for messages that no earlier one there has.
  void* mailbox(Size bytes);
  std::uint32_t next_tags(int count);

  // A few numbers on the device that one tile operation leaves for its next kernel.
  void* scalars() const { return reinterpret_cast<char*>(library_info_) + 128; }

  // In the host's memory, for one number that the device tells the host.
  std::int32_t* host_flag();

  // Where the library reports on the device, and its host workspace.
  int* library_info() const { return library_info_; }
  std::vector<char>& host_workspace() { return host_workspace_; }

 private:
  void use(cudaStream_t stream, int multiprocessors);

  int device_ = 0;
  cudaStream_t stream_ = nullptr;  // the one in use
  cudaStream_t wide_ = nullptr;
  std::unique_ptr<NarrowStream> narrow_;
  int narrow_reserve_ = 0;  // for which it has been made, or tried
  int priority_ = 0;
  std::shared_ptr<EventPool> events_;
  cublasHandle_t blas_ = nullptr;
  cusolverDnHandle_t solver_ = nullptr;
  cusolverDnParams_t parameters_ = nullptr;
  int* library_info_ = nullptr;
  std::int32_t* host_flag_ = nullptr;
  std::vector<char> host_workspace_;
  void* blas_workspace_ = nullptr;
  Size blas_bytes_ = 0;
  void* scratch_ = nullptr;
  Size scratch_bytes_ = 0;
  bool alone_ = false;
  bool shared_ = false;  // with other processes
  int multiprocessors_ = 0;
  int shared_memory_ = 0;
  int blocks_ = 0;
  void* mailbox_ = nullptr;
  Size mailbox_bytes_ = 0;
  std::uint32_t tags_ = 1;
};

// Rows of the panels that the libraries factor in one piece, by kind of panel; 0 for none.
struct PanelRows {
  Size qr = 0;
  Size lu = 0;
};

struct CudaLanes {
  // On the current device.
  explicit CudaLanes(const std::shared_ptr<EventPool>& events);

  // Bytes that bind() must be given for tiles of edge up to `tile` (Buffer::library of a plan).
  Size library_bytes(DType type, Size tile, PanelRows rows = {});
  // Hands the lanes the memory that the libraries work in. The copy lane gets none: it moves data;
  // the side lane has no scratch.
  void bind(void* base, Size bytes, DType type, Size tile, PanelRows rows = {});
  void set_alone(bool alone);

  // Multiprocessors that products on tensor cores leave to panels; 0: none. They run as one block
  // on each multiprocessor from beginning to end, whatever the priority of others.
  int reserve() const { return reserve_; }
  void set_reserve(int multiprocessors) { reserve_ = multiprocessors; }

  CudaLane panel;
  CudaLane update;
  CudaLane copy;
  CudaLane side;  // for products beside those of the update lane

 private:
  Size scratch_bytes(DType type, Size tile, PanelRows rows);
  Size tile_scratch_bytes(DType type, Size tile, Size qr_rows);
  Size lu_scratch_bytes(DType type, Size tile, Size rows);

  int reserve_ = 36;
  // What was found, by type, tile and rows: asking the libraries takes longer than a small solve.
  std::map<std::tuple<DType, Size, Size, Size>, Size> scratch_bytes_;
};

}  // namespace jaxmg::tile
