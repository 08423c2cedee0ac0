// What cuSOLVERMg keeps for a list of devices: its handle and grid, and descriptions of matrices
// that are spread over them.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "core/types.h"
#include "vendor/cuda/cusolvermg_functions.h"

namespace jaxmg::vendor {

// A handle and a grid for a list of devices; used by one thread at a time.
class Devices {
 public:
  // The most that the library takes.
  static constexpr int kMost = 32;

  // Of this process, made on first use. Throws UnavailableError for too many devices.
  static std::shared_ptr<Devices> get(const std::vector<int>& devices);
  // A handle that has seen a failure is not used again.
  static void give_up(const std::shared_ptr<Devices>& devices);

  explicit Devices(std::vector<int> devices);
  ~Devices() { close(); }
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  const CusolverMg& functions() const { return mg_; }
  cusolverMgHandle_t handle() const { return handle_; }
  cudaLibMgGrid_t grid() const { return grid_; }
  Size count() const { return static_cast<Size>(devices_.size()); }
  std::mutex& busy() { return busy_; }

  // The library promises to have ended when it returns; what it leaves in its streams all the same
  // must not meet what comes next.
  void synchronize() const;

 private:
  void close();

  std::vector<int> devices_;
  const CusolverMg& mg_;
  cusolverMgHandle_t handle_ = nullptr;
  cudaLibMgGrid_t grid_ = nullptr;
  std::mutex busy_;
};

// While the library works for this thread: what it changes of the thread's CUDA state, the current
// device and the last error (as of peer access that is there already), is as before afterwards.
class OwnState {
 public:
  OwnState();
  ~OwnState();
  OwnState(const OwnState&) = delete;
  OwnState& operator=(const OwnState&) = delete;

 private:
  int device_ = 0;
};

// A matrix of whole columns in tiles of columns.
class Description {
 public:
  Description(const Devices& devices, Size rows, Size columns, Size tile, cudaDataType type);
  ~Description() { devices_.functions().destroy_description(description_); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  cudaLibMgMatrixDesc_t get() const { return description_; }

 private:
  const Devices& devices_;
  cudaLibMgMatrixDesc_t description_ = nullptr;
};

}  // namespace jaxmg::vendor
