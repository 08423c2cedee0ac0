#include "tile/cuda/grid_turn.h"

#include <map>

namespace jaxmg::tile {

struct GridTurn::Device {
  std::mutex mutex;
  CudaEvent last;
  cudaStream_t stream = nullptr;  // of the last grid
};

namespace {

GridTurn::Device& device_state(int device) {
  static std::mutex mutex;
  // Never destroyed: events must not outlive the CUDA runtime.
  static auto* const devices = new std::map<int, GridTurn::Device>;
  const std::lock_guard lock(mutex);
  return (*devices)[device];
}

}  // namespace

GridTurn::GridTurn(CudaLane& lane) : lane_(lane), device_(device_state(lane.device())) {
  device_.mutex.lock();
  if (device_.last && device_.stream != lane.stream()) {
    try {
      lane.wait(device_.last);
    } catch (...) {
      device_.mutex.unlock();
      throw;
    }
  }
}

GridTurn::~GridTurn() {
  try {
    device_.last = lane_.record();
    device_.stream = lane_.stream();
  } catch (const CudaError&) {
    // The device has failed, which the lane's next call tells.
  }
  device_.mutex.unlock();
}

}  // namespace jaxmg::tile
