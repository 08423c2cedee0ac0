// Least squares by a Gram matrix on ranks that are GPUs, and the operations under them.
#include <algorithm>
#include <chrono>
#include <cstdlib>

#include "algo/gram_least_squares.h"
#include "check.h"
#include "gpu_ranks.h"
#include "host_matrix.h"
#include "operation_times.h"
#include "qr_gpu_run.h"
#include "stage_times.h"
#include "tile/cuda/cuda.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;
using tile::CudaLane;

// conj(A) (d - A^T x)
template <class T>
void check_gradient(CudaLane& lane) {
  Group group("tiles: gradient " + type_name<T>());
  for (const Size n : {1, 3, 32, 33, 100, 256, 257, 512, 513, 1000, 1025, 2048, 3000, 4096}) {
    if (n > Cuda::gradient_columns<T>) {
      continue;
    }
    for (const Size m : {Size{1}, Size{7}, Size{50}, Size{n > 600 ? 700 : 5000}}) {
      const auto a = HostMatrix<T>::random(n, m, 3);
      const auto x = HostMatrix<T>::random(n, 1, 4), d = HostMatrix<T>::random(m, 1, 5);
      const OnDevice<T> da(a), dx(x), dd(d);
      DeviceArray<T> work(20 * n);
      for (const bool zero : {false, true}) {
        OnDevice<T> dg(HostMatrix<T>(n, 1));
        Cuda::gradient<T>(lane, n, m, da.get(), da.ld(), zero ? nullptr : dx.get(), dd.get(),
                          dg.get(), work.get(), work.count());
        auto r = product(a.applied(Op::transpose), x);
        for (Size j = 0; j < m; ++j) {
          r(j, 0) = d(j, 0) - (zero ? T(0) : r(j, 0));
        }
        const auto want = product(a.applied(Op::conj_transpose).applied(Op::transpose), r);
        const double bound = 4 * epsilon<T> * static_cast<double>((m + 2) * (zero ? 1 : n + 2));
        group.expect_small(distance(dg.back(), want), bound,
                           std::to_string(n) + " x " + std::to_string(m) + (zero ? " zero" : ""));
      }
    }
  }
}

template <class T>
void check_row_norms(CudaLane& lane) {
  Group group("tiles: row_norms, convert " + type_name<T>());
  using R = Real<T>;
  for (const R scale : {R(1), R(1e-30), R(1e30)}) {
    auto a = HostMatrix<T>::random(9, 700, 3);
    for (Size j = 0; j < 700; ++j) {
      for (Size i = 0; i < 9; ++i) {
        a(i, j) = i == 4 ? T(0) : a(i, j) * scale;
      }
    }
    a(7, 600) = T(std::numeric_limits<R>::quiet_NaN());
    a(8, 600) = T(std::numeric_limits<R>::infinity());
    const OnDevice<T> da(a);
    DeviceArray<R> norms(9);
    Cuda::row_norms<T>(lane, 9, 700, da.get(), da.ld(), norms.get());
    const auto found = norms.download();
    for (Size i = 0; i < 9; ++i) {
      double sum = 0;
      for (Size j = 0; j < 700; ++j) {
        sum += std::norm(Wide<T>(a(i, j)) / static_cast<double>(scale));
      }
      const double want = std::sqrt(sum);
      const double norm = static_cast<double>(found[static_cast<std::size_t>(i)] / scale);
      group.expect(i >= 7 ? std::isnan(norm) : std::abs(norm - want) <= 100 * epsilon<T> * want,
                   "row " + std::to_string(i));
    }
  }
  const auto a = HostMatrix<T>::random(33, 20, 3);
  const OnDevice<T> da(a);
  OnDevice<T> back(HostMatrix<T>(33, 20));
  OnDevice<Wide<T>> wide(HostMatrix<Wide<T>>(33, 20));
  if constexpr (!std::is_same_v<T, Wide<T>>) {
    Cuda::convert<T, Wide<T>>(lane, 33, 20, da.get(), da.ld(), wide.get(), wide.ld());
    Cuda::convert<Wide<T>, T>(lane, 33, 20, wide.get(), wide.ld(), back.get(), back.ld());
    const auto there = wide.back();
    const auto here = back.back();
    bool same = there.padding_untouched() && here.padding_untouched();
    for (Size j = 0; j < 20; ++j) {
      for (Size i = 0; i < 33; ++i) {
        same = same && there(i, j) == Wide<T>(a(i, j)) && here(i, j) == a(i, j);
      }
    }
    group.expect(same, "there and back");
  }
}

template <class T>
void prepare_wide(GpuRank& gpu) {
  gpu.context.prepare(dtype_of<Wide<T>>, tile::Kernels::common);
  gpu.context.prepare(dtype_of<Wide<T>>, tile::Kernels::qr);
}

// kind: 0 random, 1 two equal columns, 2 a zero column
template <class T>
void check_solution(Group& group, int devices, int ranks, Size m, Size n, Size nrhs, int kind) {
  auto a = HostMatrix<T>::random(m, n, 7);
  const auto b = HostMatrix<T>::random(m, nrhs, 8);
  for (Size i = 0; kind > 0 && i < m; ++i) {
    a(i, n / 2) = kind == 1 ? a(i, 0) : T(0);
  }
  HostMatrix<T> x(n, nrhs, 0);
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    QrRun<T> run(gpu, m, n, 0);
    prepare_wide<T>(gpu);
    DeviceArray<T> matrix(rows_of(a, me, ranks)), rhs(rows_of(b, me, ranks)), solution(n * nrhs);
    DeviceArray<Info> info(1);
    run.call(run.request(Routine::gels, nrhs), [&](Rank<Cuda>& rank) {
      gram_least_squares<Cuda, T>(rank, matrix.get(), rhs.get(), solution.get(), info.get());
    });
    const bool good = info.download()[0].kind == 0;
    group.expect(good == (kind == 0), "verdict");
    const auto host = solution.download();
    for (Size i = 0; me == 0 && i < n * nrhs; ++i) {
      x(i / nrhs, i % nrhs) = host[static_cast<std::size_t>(i)];
    }
    group.expect(matrix.download() == rows_of(a, me, ranks), "A stays");
  });
  if (kind > 0) {
    group.expect(std::isnan(std::real(x(0, 0))), "no solution");
    return;
  }
  auto residual = product(a, x);
  for (Size j = 0; j < nrhs; ++j) {
    for (Size i = 0; i < m; ++i) {
      residual(i, j) -= b(i, j);
    }
  }
  const double normal = product(a.applied(Op::conj_transpose), residual).largest();
  const double unit = epsilon<T> * static_cast<double>(m);
  group.expect_small(normal, 25 * unit * static_cast<double>(m) * (x.largest() + 1),
                     std::to_string(m) + " x " + std::to_string(n) + " ranks " +
                         std::to_string(ranks) + " nrhs " + std::to_string(nrhs));
}

template <class T>
void check_type(int devices) {
  {
    const auto set = tile::DeviceSet::get({0});
    const tile::DeviceGuard guard(0);
    auto& context = set->context(0);
    context.prepare(dtype_of<T>, tile::Kernels::common);
    context.prepare(dtype_of<T>, tile::Kernels::qr);
    check_gradient<T>(context.lanes().update);
    check_row_norms<T>(context.lanes().update);
  }
  Group group("algorithms: least squares by a Gram matrix " + type_name<T>());
  for (const int ranks : {1, 2, 3, 8}) {
    for (const Size nrhs : {1, 3}) {
      for (const auto& [m, n] : std::vector<std::array<Size, 2>>{
               {1, 1}, {9, 1}, {70, 7}, {900, 50}, {1501, 200}, {20001, 30}}) {
        check_solution<T>(group, devices, ranks, m, n, nrhs, 0);
      }
    }
    check_solution<T>(group, devices, ranks, 300, 20, 1, 1);
    check_solution<T>(group, devices, ranks, 300, 20, 1, 2);
  }
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T>
void time_type(int devices, Size m, Size n, Size nrhs, Size tile) {
  run_gpu_ranks(devices, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    QrRun<T> run(gpu, m, n, tile);
    prepare_wide<T>(gpu);
    auto& lane = gpu.context.lanes().update;
    const PlanRequest request = run.request(Routine::gels, nrhs);
    const Plan plan(request);
    const Size rows = plan.distribution().capacity();
    DeviceArray<T> a(rows * n), b(rows * nrhs), x(n * nrhs);
    DeviceArray<Info> info(1);
    Cuda::random_vector<T>(lane, rows * n, me * rows * n, Real<T>(0.5), a.get());
    Cuda::random_vector<T>(lane, rows * nrhs, (devices + me) * rows * n, Real<T>(0.5), b.get());
    JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
    double best = 1e30;
    const auto solve = [&](Observer& observer) {
      double begin = 0;
      run.call(request, observer, [&](Rank<Cuda>& rank) {
        rank.comm.barrier();
        begin = now();
        gram_least_squares<Cuda, T>(rank, a.get(), b.get(), x.get(), info.get());
        JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
        best = std::min(best, now() - begin);
      });
    };
    Observer nobody;
    for (int repeat = 0; repeat < 4; ++repeat) {
      solve(nobody);
    }
    if (me == 0) {
      std::printf(
          "%s gels %lld x %lld, %lld right-hand sides, devices %d tile %lld: %.2f ms "
          "(%.1f TF/s as QR), kind %d\n",
          type_name<T>().c_str(), static_cast<long long>(m), static_cast<long long>(n),
          static_cast<long long>(nrhs), devices, static_cast<long long>(plan.tile()), best * 1e3,
          (is_complex_v<T> ? 8.0 : 2.0) * static_cast<double>(m) * static_cast<double>(n * n) /
              best / 1e12,
          info.download()[0].kind);
      std::fflush(stdout);
    }
    StageTimes times(lane);
    solve(times);
    gpu.in_turn([&] { times.print("  rank " + std::to_string(me)); });
  });
}

}  // namespace

void check_gels(int devices) {
  check_type<float>(devices);
  check_type<double>(devices);
  check_type<std::complex<float>>(devices);
  check_type<std::complex<double>>(devices);
}

void time_gels(int devices, Size m, Size n, const std::string& type, Size nrhs, Size tile) {
  if (type == "f32") {
    time_type<float>(devices, m, n, nrhs, tile);
  } else if (type == "c64") {
    time_type<std::complex<float>>(devices, m, n, nrhs, tile);
  } else if (type == "c128") {
    time_type<std::complex<double>>(devices, m, n, nrhs, tile);
  } else {
    time_type<double>(devices, m, n, nrhs, tile);
  }
}

}  // namespace jaxmg::test
