// What the process keeps for its GPUs between calls: lanes with their library handles, event pools
// and staging blocks.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "tile/cuda/lane.h"
#include "tile/cuda/staging.h"

namespace jaxmg::tile {

// What is loaded together: what every routine may use, and what is LU's or QR's alone.
enum class Kernels { common, lu, qr };

// One device's, owned once per process.
class DeviceContext {
 public:
  explicit DeviceContext(int device);
  ~DeviceContext();
  DeviceContext(const DeviceContext&) = delete;
  DeviceContext& operator=(const DeviceContext&) = delete;

  int device() const { return device_; }
  CudaLanes& lanes() { return *lanes_; }
  EventPool& events() { return *events_; }
  CudaStaging& staging() { return *staging_; }

  // Held by the call that uses the lanes.
  std::mutex& busy() { return busy_; }

  // Loads the libraries' and our own kernels of a type by using them once, so that no module is
  // loaded, nor a handle made, while ranks wait for each other. The device must be current, and
  // busy() held.
  void prepare(DType type, Kernels kernels);

  // Makes the staging block at least this large.
  void reserve_staging(Size bytes);

 private:
  int device_;
  std::shared_ptr<EventPool> events_;
  std::unique_ptr<CudaLanes> lanes_;
  std::unique_ptr<CudaStaging> staging_;
  std::mutex busy_;
  std::array<std::array<bool, 4>, 3> prepared_{};  // by Kernels and DType
};

// The devices of a group of ranks, in rank order.
class DeviceSet {
 public:
  // Made on first use for each list of devices. Sets that share a device share its context; a
  // device that is named several times has a context for each.
  static std::shared_ptr<DeviceSet> get(const std::vector<int>& devices);

  int size() const { return static_cast<int>(devices_.size()); }
  const std::vector<int>& devices() const { return devices_; }
  DeviceContext& context(int rank) { return *contexts_[static_cast<std::size_t>(rank)]; }
  // Whether no other rank has the same device.
  bool alone(int rank) const;
  // Whether kernels on each device can read the memory of all.
  bool direct() const { return direct_; }

 private:
  DeviceSet(std::vector<int> devices, bool direct,
            std::vector<std::shared_ptr<DeviceContext>> contexts)
      : devices_(std::move(devices)), direct_(direct), contexts_(std::move(contexts)) {}

  std::vector<int> devices_;
  bool direct_;
  std::vector<std::shared_ptr<DeviceContext>> contexts_;
};

}  // namespace jaxmg::tile
