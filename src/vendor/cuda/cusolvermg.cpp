#include "vendor/cuda/cusolvermg.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>

#include "tile/cuda/lane.h"
#include "vendor/cuda/cusolvermg_functions.h"

namespace jaxmg::vendor {
namespace {

constexpr cublasFillMode_t kLower = CUBLAS_FILL_MODE_LOWER;

cudaDataType data_type(DType type) {
  switch (type) {
    case DType::f32:
      return CUDA_R_32F;
    case DType::f64:
      return CUDA_R_64F;
    case DType::c64:
      return CUDA_C_32F;
    case DType::c128:
      return CUDA_C_64F;
    case DType::i32:
      break;
  }
  throw std::logic_error("cuSOLVERMg: no such element type");
}

// A handle and a grid for a list of devices; used by one thread at a time.
class Devices {
 public:
  explicit Devices(std::vector<int> devices)
      : devices_(std::move(devices)), mg_(CusolverMg::get()) {
    try {
      JAXMG_CUDA_CHECK(mg_.create(&handle_));
      const int count = narrow(static_cast<Size>(devices_.size()));
      JAXMG_CUDA_CHECK(mg_.select(handle_, count, devices_.data()));
      JAXMG_CUDA_CHECK(
          mg_.create_grid(&grid_, 1, count, devices_.data(), CUDALIBMG_GRID_MAPPING_COL_MAJOR));
    } catch (...) {
      close();
      throw;
    }
  }
  ~Devices() { close(); }
  Devices(const Devices&) = delete;
  Devices& operator=(const Devices&) = delete;

  const CusolverMg& functions() const { return mg_; }
  cusolverMgHandle_t handle() const { return handle_; }
  cudaLibMgGrid_t grid() const { return grid_; }
  std::mutex& busy() { return busy_; }

  // The library promises to have ended when it returns; what it leaves in its streams all the same
  // must not meet what comes next.
  void synchronize() const {
    for (const int device : devices_) {
      const tile::DeviceGuard guard(device);
      JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
    }
  }

 private:
  void close() {
    if (grid_) {
      mg_.destroy_grid(grid_);
    }
    if (handle_) {
      mg_.destroy(handle_);
    }
  }

  std::vector<int> devices_;
  const CusolverMg& mg_;
  cusolverMgHandle_t handle_ = nullptr;
  cudaLibMgGrid_t grid_ = nullptr;
  std::mutex busy_;
};

// The handles of the process. One that has seen a failure is given up.
class Registry {
 public:
  std::shared_ptr<Devices> get(const std::vector<int>& devices) {
    const std::lock_guard lock(mutex_);
    std::shared_ptr<Devices>& found = made_[devices];
    if (!found) {
      found = std::make_shared<Devices>(devices);
    }
    return found;
  }
  void give_up(const std::shared_ptr<Devices>& devices) {
    const std::lock_guard lock(mutex_);
    std::erase_if(made_, [&](const auto& entry) { return entry.second == devices; });
  }

 private:
  std::mutex mutex_;
  std::map<std::vector<int>, std::shared_ptr<Devices>> made_;
};

// Never destroyed: at the end of the process the driver may be gone before we are.
Registry& registry() {
  static Registry* const instance = new Registry;
  return *instance;
}

// A matrix of n rows in tiles of columns.
class Description {
 public:
  Description(const Devices& devices, Size rows, Size columns, Size tile, cudaDataType type)
      : devices_(devices) {
    JAXMG_CUDA_CHECK(devices.functions().describe(&description_, rows, columns, rows, tile, type,
                                                  devices.grid()));
  }
  ~Description() { devices_.functions().destroy_description(description_); }
  Description(const Description&) = delete;
  Description& operator=(const Description&) = delete;

  cudaLibMgMatrixDesc_t get() const { return description_; }

 private:
  const Devices& devices_;
  cudaLibMgMatrixDesc_t description_ = nullptr;
};

class Problem final : public Library {
 public:
  Problem(const std::vector<int>& devices, const Plan& plan)
      : devices_(registry().get(devices)),
        mg_(devices_->functions()),
        ranks_(static_cast<Size>(devices.size())),
        n_(narrow(plan.request().n)),
        size_(size_of(plan.request().type)),
        type_(data_type(plan.request().type)),
        a_(*devices_, n_, n_, plan.tile(), type_) {
    guarded([&] { query(plan); });
  }

  Size workspace_bytes() const override { return elements_ * size_; }

  Size potrf(Pointers a, Pointers workspace) override {
    int info = 0;
    guarded([&] {
      const cusolverStatus_t status =
          mg_.potrf(devices_->handle(), kLower, n_, a.data(), 1, 1, a_.get(), type_,
                    workspace.data(), elements_, &info);
      devices_->synchronize();
      if (info <= 0) {
        tile::check_cuda(status, "cusolverMgPotrf", __FILE__, __LINE__);
      } else if (status != CUSOLVER_STATUS_SUCCESS) {
        registry().give_up(devices_);
      }
    });
    refuse_argument("cusolverMgPotrf", info);
    return info;
  }

  void potrs(Size columns, Pointers l, Pointers b, Pointers workspace) override {
    int info = 0;
    guarded([&] {
      const Description rhs(*devices_, n_, columns, ceil_div(columns, ranks_), type_);
      JAXMG_CUDA_CHECK(mg_.potrs(devices_->handle(), kLower, n_, narrow(columns), l.data(), 1, 1,
                                 a_.get(), b.data(), 1, 1, rhs.get(), type_, workspace.data(),
                                 elements_, &info));
      devices_->synchronize();
    });
    refuse_argument("cusolverMgPotrs", info);
  }

  Size potri(Pointers a, Pointers workspace) override {
    int info = 0;
    guarded([&] {
      JAXMG_CUDA_CHECK(mg_.potri(devices_->handle(), kLower, n_, a.data(), 1, 1, a_.get(), type_,
                                 workspace.data(), elements_, &info));
      devices_->synchronize();
    });
    refuse_argument("cusolverMgPotri", info);
    return info;
  }

 private:
  // One thread at a time; after a failure the next call begins with a new handle.
  template <class Calls>
  void guarded(const Calls& calls) {
    const std::lock_guard lock(devices_->busy());
    try {
      calls();
    } catch (...) {
      registry().give_up(devices_);
      throw;
    }
  }

  // The library counts elements, of one device, and takes no account of where operands lie.
  void query(const Plan& plan) {
    const cusolverMgHandle_t handle = devices_->handle();
    Pointers none(static_cast<std::size_t>(ranks_), nullptr);
    std::int64_t elements = 0;
    switch (plan.routine()) {
      case Routine::potrf:
        JAXMG_CUDA_CHECK(
            mg_.potrf_size(handle, kLower, n_, none.data(), 1, 1, a_.get(), type_, &elements));
        break;
      case Routine::potrs: {
        const Size columns = plan.rhs_block();
        const Description rhs(*devices_, n_, columns, ceil_div(columns, ranks_), type_);
        JAXMG_CUDA_CHECK(mg_.potrs_size(handle, kLower, n_, narrow(columns), none.data(), 1, 1,
                                        a_.get(), none.data(), 1, 1, rhs.get(), type_, &elements));
        break;
      }
      case Routine::potri:
        JAXMG_CUDA_CHECK(
            mg_.potri_size(handle, kLower, n_, none.data(), 1, 1, a_.get(), type_, &elements));
        break;
      default:
        break;
    }
    elements_ = elements;
  }

  static void refuse_argument(const char* function, int info) {
    if (info < 0) {
      throw std::runtime_error(std::string(function) + " refused its argument " +
                               std::to_string(-info));
    }
  }

  std::shared_ptr<Devices> devices_;
  const CusolverMg& mg_;
  Size ranks_;
  int n_;
  Size size_;  // of an element
  cudaDataType type_;
  Description a_;
  Size elements_ = 0;
};

}  // namespace

std::unique_ptr<Library> make_cusolvermg(const std::vector<int>& devices, const Plan& plan) {
  return std::make_unique<Problem>(devices, plan);
}

}  // namespace jaxmg::vendor
