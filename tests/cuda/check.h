// What the groups of the device check share: a place to count failures, and arrays on the device.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cmath>
#include <complex>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "matrices.h"
#include "tile/cuda/error.h"

namespace jaxmg::test {

// A group of checks; prints one line when it ends.
class Group {
 public:
  explicit Group(std::string name) : name_(std::move(name)) {}
  ~Group() {
    std::printf("%-52s %s (%d checks, %d failed)\n", name_.c_str(), failed_ > 0 ? "FAILED" : "ok",
                checks_.load(), failed_.load());
    std::fflush(stdout);
    total_failures() += failed_;
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  void expect(bool ok, const std::string& what) {
    ++checks_;
    if (!ok && ++failed_ <= 10) {
      std::printf("  %s: %s\n", name_.c_str(), what.c_str());
    }
  }
  // value <= limit, and not NaN.
  void expect_small(double value, double limit, const std::string& what) {
    char numbers[64];
    std::snprintf(numbers, sizeof numbers, ": %.3g > %.3g", value, limit);
    expect(value <= limit, what + numbers);
  }

  // Residuals in native arithmetic and by half-precision parts, up to a slack.
  void expect_as_native(double native, double by_parts, double slack, const std::string& what) {
    expect_small(by_parts, 25, what + " residual");
    expect_small(by_parts, 8 * native + slack, what + " beside native");
  }

  static std::atomic<int>& total_failures() {
    static std::atomic<int> total{0};
    return total;
  }

 private:
  std::string name_;
  std::atomic<int> checks_{0};
  std::atomic<int> failed_{0};
};

template <class T>
std::string type_name() {
  switch (dtype_of<T>) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::c64:
      return "c64";
    case DType::c128:
      return "c128";
    case DType::i32:
      return "i32";
  }
  return "";
}

template <class T>
inline constexpr double epsilon = std::numeric_limits<Real<T>>::epsilon();

// An array on the current device.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(Size count) : count_(count) {
    JAXMG_CUDA_CHECK(cudaMalloc(reinterpret_cast<void**>(&data_), bytes() + 16));
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(static_cast<Size>(host.size())) {
    upload(host);
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* get() const { return data_; }
  Size count() const { return count_; }
  std::size_t bytes() const { return static_cast<std::size_t>(count_) * sizeof(T); }
  void upload(const std::vector<T>& host) {
    JAXMG_CUDA_CHECK(cudaMemcpy(data_, host.data(), bytes(), cudaMemcpyHostToDevice));
    JAXMG_CUDA_CHECK(cudaDeviceSynchronize());  // the last piece may still be on its way
  }
  // Follows all work of the device.
  std::vector<T> download() const {
    std::vector<T> host(static_cast<std::size_t>(count_));
    JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
    JAXMG_CUDA_CHECK(cudaMemcpy(host.data(), data_, bytes(), cudaMemcpyDeviceToHost));
    return host;
  }

 private:
  T* data_ = nullptr;
  Size count_ = 0;
};

// The groups.
void check_tiles();
void check_panel_operations();
void check_part_operations();
void check_communicator(int devices);
void check_cholesky(int devices);
void check_cholesky_parts(int devices);
void check_factors(int devices);
void check_qr(int devices);
void check_gels(int devices);
void check_lu_tiles();
void check_lu_panel();
void check_lu(int devices);
void check_lu_parts(int devices);
void check_householder();
void check_eigen(int devices);
void check_inverse(int devices);
void check_vendor(int devices);
void check_sweeps();
// Seconds of a factorisation and a solve of order n on all devices; tile and group: 0 to choose.
// `what` is a type, or type:P for panels in P parts.
void time_cholesky(int devices, Size n, const std::string& what, Size tile, Size group);
void time_lu(int devices, Size n, const std::string& type, Size tile);
// Microseconds a column of an m x n panel of LU.
void time_lu_panel(Size m, Size n, const std::string& type);
// Seconds of a QR factorisation of m x n on that many devices; type:R keeps R multiprocessors for
// panels.
void time_qr(int devices, Size m, Size n, const std::string& type, Size tile);
// The same for least squares by a Gram matrix; tile: columns of a block of it, 0 to choose.
void time_gels(int devices, Size m, Size n, const std::string& type, Size nrhs, Size tile);
// Microseconds of the operations of its panels, of `rows` rows on each device, and updates.
void time_qr_panel(Size rows, Size tile);
// Seconds of an eigenproblem of order n, with and without vectors; type split: float32 by parts.
void time_eigen(int devices, Size n, const std::string& type, Size tile);
// Seconds of bulge chasing in bands of order n and of its reflectors on so many columns.
void time_sweeps(Size n, const std::string& type, Size columns);
// Microseconds of the QR of panels of 64 columns.
void time_householder();
// Microseconds of the operations of one panel of `rows` rows.
void time_tiles(Size rows, Size tile);

}  // namespace jaxmg::test
