#include "vendor/cuda/cusolvermg_devices.h"

#include <map>
#include <string>
#include <utility>

#include "tile/cuda/lane.h"
#include "vendor/library.h"

namespace jaxmg::vendor {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::vector<int>, std::shared_ptr<Devices>> made;
};

// Never destroyed: at the end of the process the driver may be gone before we are.
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

}  // namespace

std::shared_ptr<Devices> Devices::get(const std::vector<int>& devices) {
  if (devices.size() > kMost) {
    throw UnavailableError("backend 'cusolvermg': the library takes at most " +
                           std::to_string(kMost) + " devices, not " +
                           std::to_string(devices.size()));
  }
  const std::lock_guard lock(registry().mutex);
  std::shared_ptr<Devices>& found = registry().made[devices];
  if (!found) {
    found = std::make_shared<Devices>(devices);
  }
  return found;
}

void Devices::give_up(const std::shared_ptr<Devices>& devices) {
  const std::lock_guard lock(registry().mutex);
  std::erase_if(registry().made, [&](const auto& entry) { return entry.second == devices; });
}

OwnState::OwnState() {
  JAXMG_CUDA_CHECK(cudaGetDevice(&device_));
}

OwnState::~OwnState() {
  cudaSetDevice(device_);
  cudaGetLastError();
}

Devices::Devices(std::vector<int> devices) : devices_(std::move(devices)), mg_(CusolverMg::get()) {
  const OwnState state;
  try {
    JAXMG_CUDA_CHECK(mg_.create(&handle_));
    const int number = narrow(count());
    JAXMG_CUDA_CHECK(mg_.select(handle_, number, devices_.data()));
    JAXMG_CUDA_CHECK(
        mg_.create_grid(&grid_, 1, number, devices_.data(), CUDALIBMG_GRID_MAPPING_COL_MAJOR));
  } catch (...) {
    close();
    throw;
  }
}

void Devices::close() {
  if (grid_) {
    mg_.destroy_grid(grid_);
  }
  if (handle_) {
    mg_.destroy(handle_);
  }
}

void Devices::synchronize() const {
  for (const int device : devices_) {
    const tile::DeviceGuard guard(device);
    JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
  }
}

Description::Description(const Devices& devices, Size rows, Size columns, Size tile,
                         cudaDataType type)
    : devices_(devices) {
  JAXMG_CUDA_CHECK(
      devices.functions().describe(&description_, rows, columns, rows, tile, type, devices.grid()));
}

}  // namespace jaxmg::vendor
