#include "vendor/cuda/cusolvermg.h"

#include <stdexcept>
#include <string>

#include "tile/cuda/lane.h"
#include "tile/cuda/library_type.h"
#include "vendor/cuda/cusolvermg_devices.h"

namespace jaxmg::vendor {
namespace {

constexpr cublasFillMode_t kLower = CUBLAS_FILL_MODE_LOWER;

cusolverEigMode_t mode(bool vectors) {
  return vectors ? CUSOLVER_EIG_MODE_VECTOR : CUSOLVER_EIG_MODE_NOVECTOR;
}

int** integers(Pointers& pointers) {
  return reinterpret_cast<int**>(pointers.data());
}

class Problem final : public Library {
 public:
  Problem(const std::vector<int>& devices, const Plan& plan)
      : devices_(Devices::get(devices)),
        mg_(devices_->functions()),
        n_(narrow(plan.request().n)),
        size_(size_of(plan.request().type)),
        type_(tile::library_type(plan.request().type)),
        real_(tile::library_type(real_of(plan.request().type))),
        a_(*devices_, n_, n_, plan.tile(), type_) {
    guarded([&] { elements_ = query(plan); });
  }

  Size workspace_bytes() const override { return elements_ * size_; }

  Size potrf(Pointers a, Pointers workspace) override {
    return call("cusolverMgPotrf", [&](int* info) {
      return mg_.potrf(devices_->handle(), kLower, n_, a.data(), 1, 1, a_.get(), type_,
                       workspace.data(), elements_, info);
    });
  }

  void potrs(Size columns, Pointers l, Pointers b, Pointers workspace) override {
    const Description rhs = describe(columns);
    call("cusolverMgPotrs", [&](int* info) {
      return mg_.potrs(devices_->handle(), kLower, n_, narrow(columns), l.data(), 1, 1, a_.get(),
                       b.data(), 1, 1, rhs.get(), type_, workspace.data(), elements_, info);
    });
  }

  Size potri(Pointers a, Pointers workspace) override {
    return call("cusolverMgPotri", [&](int* info) {
      return mg_.potri(devices_->handle(), kLower, n_, a.data(), 1, 1, a_.get(), type_,
                       workspace.data(), elements_, info);
    });
  }

  Size getrf(Pointers a, Pointers pivots, Pointers workspace) override {
    return call("cusolverMgGetrf", [&](int* info) {
      return mg_.getrf(devices_->handle(), n_, n_, a.data(), 1, 1, a_.get(), integers(pivots),
                       type_, workspace.data(), elements_, info);
    });
  }

  void getrs(Size columns, Pointers lu, Pointers pivots, Pointers b, Pointers workspace) override {
    const Description rhs = describe(columns);
    call("cusolverMgGetrs", [&](int* info) {
      return mg_.getrs(devices_->handle(), CUBLAS_OP_N, n_, narrow(columns), lu.data(), 1, 1,
                       a_.get(), integers(pivots), b.data(), 1, 1, rhs.get(), type_,
                       workspace.data(), elements_, info);
    });
  }

  Size syevd(bool vectors, Pointers a, void* values, Pointers workspace) override {
    return call("cusolverMgSyevd", [&](int* info) {
      return mg_.syevd(devices_->handle(), mode(vectors), kLower, n_, a.data(), 1, 1, a_.get(),
                       values, real_, type_, workspace.data(), elements_, info);
    });
  }

 private:
  // Right-hand sides, one tile a device.
  Description describe(Size columns) const {
    return Description(*devices_, n_, columns, ceil_div(columns, devices_->count()), type_);
  }

  // One thread at a time; after a failure the next call begins with a new handle.
  template <class Calls>
  void guarded(const Calls& calls) {
    const std::lock_guard lock(devices_->busy());
    const OwnState state;
    try {
      calls();
    } catch (...) {
      Devices::give_up(devices_);
      throw;
    }
  }

  // What LAPACK would say of the data, with info > 0, the library may call an internal error
  // besides: that is a result, but the handle had better not be used again.
  template <class Function>
  Size call(const char* name, const Function& function) {
    int info = 0;
    guarded([&] {
      const cusolverStatus_t status = function(&info);
      devices_->synchronize();
      if (info < 0) {
        throw std::runtime_error(std::string(name) + " refused its argument " +
                                 std::to_string(-info));
      }
      if (info == 0) {
        tile::check_cuda(status, name, __FILE__, __LINE__);
      } else if (status != CUSOLVER_STATUS_SUCCESS) {
        Devices::give_up(devices_);
      }
    });
    return info;
  }

  // The library counts elements, of one device, and takes no account of where operands lie.
  std::int64_t query(const Plan& plan) {
    const cusolverMgHandle_t handle = devices_->handle();
    Pointers none(static_cast<std::size_t>(devices_->count()), nullptr);
    void** const a = none.data();
    std::int64_t elements = 0;
    switch (plan.routine()) {
      case Routine::potrf:
        JAXMG_CUDA_CHECK(mg_.potrf_size(handle, kLower, n_, a, 1, 1, a_.get(), type_, &elements));
        break;
      case Routine::potri:
        JAXMG_CUDA_CHECK(mg_.potri_size(handle, kLower, n_, a, 1, 1, a_.get(), type_, &elements));
        break;
      case Routine::getrf:
        JAXMG_CUDA_CHECK(
            mg_.getrf_size(handle, n_, n_, a, 1, 1, a_.get(), integers(none), type_, &elements));
        break;
      case Routine::syevd: {
        std::vector<double> values(static_cast<std::size_t>(n_));  // they are not looked at
        JAXMG_CUDA_CHECK(mg_.syevd_size(handle, mode(plan.request().vectors), kLower, n_, a, 1, 1,
                                        a_.get(), values.data(), real_, type_, &elements));
        break;
      }
      case Routine::potrs:
      case Routine::getrs:
        return query_solve(plan, none);
      default:
        break;
    }
    return elements;
  }

  // For as many right-hand sides as go through a solve together.
  std::int64_t query_solve(const Plan& plan, Pointers none) {
    const cusolverMgHandle_t handle = devices_->handle();
    void** const p = none.data();
    const int columns = narrow(plan.rhs_block());
    const Description rhs(*devices_, n_, columns, ceil_div(columns, devices_->count()), type_);
    std::int64_t elements = 0;
    if (plan.routine() == Routine::potrs) {
      JAXMG_CUDA_CHECK(mg_.potrs_size(handle, kLower, n_, columns, p, 1, 1, a_.get(), p, 1, 1,
                                      rhs.get(), type_, &elements));
    } else if (plan.request().transpose) {  // else there is nothing for it to do
      JAXMG_CUDA_CHECK(mg_.getrs_size(handle, CUBLAS_OP_N, n_, columns, p, 1, 1, a_.get(),
                                      integers(none), p, 1, 1, rhs.get(), type_, &elements));
    }
    return elements;
  }

  std::shared_ptr<Devices> devices_;
  const CusolverMg& mg_;
  int n_;
  Size size_;  // of an element
  cudaDataType type_;
  cudaDataType real_;
  Description a_;
  Size elements_ = 0;
};

}  // namespace

std::unique_ptr<Library> make_cusolvermg(const std::vector<int>& devices, const Plan& plan) {
  return std::make_unique<Problem>(devices, plan);
}

}  // namespace jaxmg::vendor
