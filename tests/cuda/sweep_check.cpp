// Bulge chasing and its reflectors on one GPU:  B Q = Q T,  Q^H Q = I.
#include <chrono>
#include <memory>

#include "check.h"
#include "core/plan.h"
#include "gpu_ranks.h"
#include "host_matrix.h"
#include "tile/cuda/cuda.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;

template <class T>
using Wide = std::conditional_t<is_complex_v<T>, std::complex<double>, double>;

enum class Kind { random, zero, graded, clustered };

// A band matrix in the storage of Cuda::chase.
template <class T>
std::vector<T> band_matrix(Size n, Size b, Kind kind) {
  std::vector<T> band(static_cast<std::size_t>(2 * b * n), T(0));
  for (Size j = 0; j < n; ++j) {
    for (Size d = 0; d <= b && j + d < n; ++d) {
      T x = random_entry<T>(7, j + d, j);
      if (d == 0) {
        x = T(std::real(x));
      }
      const double place = static_cast<double>(2 * j + d) / static_cast<double>(2 * n);
      x = kind == Kind::zero        ? T(0)
          : kind == Kind::graded    ? x * T(static_cast<Real<T>>(std::pow(10, -12 * place)))
          : kind == Kind::clustered ? (d == 0 ? T(1) : x * T(static_cast<Real<T>>(1e-9)))
                                    : x;
      band[static_cast<std::size_t>(d + 2 * b * j)] = x;
    }
  }
  return band;
}

struct Times {
  double chase = 0, pack = 0, apply = 0;
};

// Seconds since `begin`, when all work of the device is done.
double since(std::chrono::steady_clock::time_point& begin) {
  JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
  const auto now = std::chrono::steady_clock::now();
  const std::chrono::duration<double> took = now - begin;
  begin = now;
  return took.count();
}

// band <- tridiagonal, x <- Q x, as the algorithm does it; panels of groups in one launch if
// `together`, else in two.
template <class T>
Times chase_and_apply(GpuRank& gpu, Size n, Size b, DeviceArray<T>& band, T* x, Size columns,
                      bool together, Info* info) {
  auto& lane = gpu.context.lanes().update;
  const Size size = sweep_group(b), width = size * sweep_panel_groups(Platform::cuda, n);
  const auto batch = [&](Size first, Size count) {
    return SweepBatch{n, b, first, std::min(count, n - 1 - first), size};
  };
  const Size step = together ? n : ceil_div(ceil_div(n, Size{2}), width) * width;
  std::vector<std::unique_ptr<DeviceArray<T>>> kept;
  DeviceArray<double> work(n + 64);
  DeviceArray<T> packed(packed_sweep_panel(dtype_of<T>, n, b)), products(size * columns);
  for (Size first = 0; first < n - 1; first += step) {
    kept.push_back(std::make_unique<DeviceArray<T>>(batch(first, step).elements()));
  }
  Times times;
  JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
  auto clock = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < kept.size(); ++i) {
    Cuda::chase<T>(lane, batch(static_cast<Size>(i) * step, step), band.get(), 2 * b,
                   kept[i]->get(), work.get(), info);
  }
  times.chase = since(clock);
  for (Size first = (n - 2) / width * width; first >= 0; first -= width) {
    const auto i = static_cast<std::size_t>(first / step);
    const T* v = kept[i]->get();
    for (Size f = static_cast<Size>(i) * step; f < first; f += width) {
      v += batch(f, width).elements();
    }
    Cuda::pack_sweeps<T>(lane, batch(first, width), v, packed.get());
    if (n > 2000) {
      times.pack += since(clock);
    }
    Cuda::apply_sweeps<T>(lane, batch(first, width), packed.get(), columns, x, n, products.get(),
                          info);
    if (n > 2000) {
      times.apply += since(clock);
    }
  }
  return times;
}

template <class T>
void check_band(Group& group, GpuRank& gpu, Size n, Size b, Kind kind, bool together) {
  const std::string name = "n " + std::to_string(n) + " b " + std::to_string(b) + " kind " +
                           std::to_string(static_cast<int>(kind));
  const std::vector<T> before = band_matrix<T>(n, b, kind);
  DeviceArray<T> band(before), q(n * n);
  DeviceArray<Info> info(1);
  auto& lane = gpu.context.lanes().update;
  Cuda::reset(lane, info.get());
  Cuda::fill<T>(lane, n, n, T(0), T(1), q.get(), n);
  chase_and_apply<T>(gpu, n, b, band, q.get(), n, together, info.get());
  const std::vector<T> after = band.download(), z = q.download();
  group.expect(info.download()[0].kind == 0, name + ": no wait was given up");
  const auto at = [&](Size i, Size j) { return Wide<T>(z[static_cast<std::size_t>(i + j * n)]); };
  const auto element = [&](const std::vector<T>& m, Size i, Size j) {
    return i >= j ? Wide<T>(m[static_cast<std::size_t>(i - j + 2 * b * j)])
                  : conjugate(Wide<T>(m[static_cast<std::size_t>(j - i + 2 * b * i)]));
  };
  double norm = 0, residual = 0, orthogonality = 0, outside = 0;
  for (Size j = 0; j < n; ++j) {
    double column = 0, sum = 0, unit = 0;
    for (Size i = 0; i < n; ++i) {
      Wide<T> x(0), y(0), product(0);
      for (Size l = std::max<Size>(0, i - b); l <= std::min(n - 1, i + b); ++l) {
        x += element(before, i, l) * at(l, j);
      }
      for (Size l = std::max<Size>(0, j - 1); l <= std::min(n - 1, j + 1); ++l) {
        y += at(i, l) * element(after, l, j);
      }
      for (Size l = 0; l < n; ++l) {
        product += conjugate(at(l, i)) * at(l, j);
      }
      sum += std::abs(x - y);
      unit += std::abs(product - Wide<T>(i == j ? 1 : 0));
      if (std::abs(i - j) <= b) {
        column += std::abs(element(before, i, j));
      }
    }
    for (Size d = 2; d <= b && j + d < n; ++d) {
      outside = std::max(outside, std::abs(element(after, j + d, j)));
    }
    norm = std::max(norm, column);
    residual = std::max(residual, sum);
    orthogonality = std::max(orthogonality, unit);
  }
  const double scale = static_cast<double>(n) * epsilon<T>;
  group.expect_small(residual == 0 ? 0 : residual / (scale * norm), 25, name + " residual");
  group.expect_small(orthogonality / scale, 25, name + " orthogonality");
  group.expect_small(outside, 0, name + " outside the tridiagonal");
}

template <class T>
void check_type(GpuRank& gpu) {
  Group group("bulge chasing " + type_name<T>());
  for (const Size b :
       {Size{2}, Size{5}, Size{8}, Size{16}, Size{31}, Size{32}, Size{50}, Size{64}}) {
    for (const Size n : {Size{2}, Size{3}, Size{33}, Size{97}, Size{260}}) {
      if (n >= b) {
        check_band<T>(group, gpu, n, b, Kind::random, n % 2 == 0);
      }
    }
    for (const Kind kind : {Kind::zero, Kind::graded, Kind::clustered}) {
      check_band<T>(group, gpu, 130, b, kind, false);
    }
  }
  check_band<T>(group, gpu, 701, 64, Kind::random, true);
}

template <class T>
void time_type(GpuRank& gpu, Size n, Size columns) {
  for (const Size b : {Size{32}, Size{64}}) {
    DeviceArray<T> band(band_matrix<T>(n, b, Kind::random)), x(n * columns);
    DeviceArray<Info> info(1);
    auto& lane = gpu.context.lanes().update;
    Cuda::reset(lane, info.get());
    Cuda::fill<T>(lane, n, columns, T(0), T(1), x.get(), n);
    for (int turn = 0; turn < 2; ++turn) {
      const std::vector<T> fresh = band_matrix<T>(n, b, Kind::random);
      band.upload(fresh);
      const Times t = chase_and_apply<T>(gpu, n, b, band, x.get(), columns, true, info.get());
      const double flops = (is_complex_v<T> ? 8.0 : 2.0) * static_cast<double>(n) *
                           static_cast<double>(n) * static_cast<double>(columns);
      std::printf(
          "%s n %lld b %lld: chase %.4f s (%.2f us a sweep), pack %.4f, apply to %lld columns "
          "%.4f s (%.1f TF/s), info %d\n",
          type_name<T>().c_str(), static_cast<long long>(n), static_cast<long long>(b), t.chase,
          t.chase / static_cast<double>(n) * 1e6, t.pack, static_cast<long long>(columns), t.apply,
          flops / t.apply * 1e-12, info.download()[0].kind);
      std::fflush(stdout);
    }
  }
}

// Memory for the libraries of a rank's lanes, which may have been given another that is gone.
class LibraryMemory {
 public:
  explicit LibraryMemory(GpuRank& gpu)
      : bytes_(gpu.context.lanes().library_bytes(DType::c128, tile_)), memory_(bytes_) {
    gpu.context.prepare(DType::f64, tile::Kernels::common);
    gpu.context.lanes().bind(memory_.get(), bytes_, DType::c128, tile_);
  }

 private:
  static constexpr Size tile_ = 64;
  Size bytes_;
  DeviceArray<char> memory_;
};

}  // namespace

void check_sweeps() {
  run_gpu_ranks(1, 1, true, [](GpuRank& gpu) {
    const LibraryMemory library(gpu);
    check_type<double>(gpu);
    check_type<float>(gpu);
    check_type<std::complex<double>>(gpu);
    check_type<std::complex<float>>(gpu);
  });
}

void time_sweeps(Size n, const std::string& type, Size columns) {
  run_gpu_ranks(1, 1, true, [&](GpuRank& gpu) {
    const LibraryMemory library(gpu);
    type == "f32"    ? time_type<float>(gpu, n, columns)
    : type == "c64"  ? time_type<std::complex<float>>(gpu, n, columns)
    : type == "c128" ? time_type<std::complex<double>>(gpu, n, columns)
                     : time_type<double>(gpu, n, columns);
  });
}

}  // namespace jaxmg::test
