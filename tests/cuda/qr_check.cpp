// QR factorisation, its factors in full and least squares on ranks that are GPUs, and the tile
// operations under them.
#include <algorithm>
#include <chrono>
#include <functional>

#include "algo/qr.h"
#include "algo/qr_form.h"
#include "algo/qr_solve.h"
#include "check.h"
#include "gpu_ranks.h"
#include "host_matrix.h"
#include "qr_gpu_run.h"
#include "stage_times.h"
#include "tile/cuda/cuda.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;
using tile::CudaLane;

// ||I - Q^H Q|| in the largest element.
template <class T>
double departure(const HostMatrix<T>& q) {
  auto gram = product(q.applied(Op::conj_transpose), q);
  for (Size i = 0; i < q.n; ++i) {
    gram(i, i) -= T(1);
  }
  return gram.largest();
}

// Columns that are hard to orthonormalise, by the power `kind` of ten between them: 0 random, 1
// graded, 2 nearly equal, 3 with zeros, 4 all equal, 5 tiny, 6 huge.
template <class T>
HostMatrix<T> hard_block(Size m, Size n, int kind) {
  using R = Real<T>;
  auto a = HostMatrix<T>::random(m, n, 7);
  const R tiny = std::is_same_v<R, float> ? R(1e-15) : R(1e-150);
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < m; ++i) {
      const T x = a(i, j);
      switch (kind) {
        case 1:
          a(i, j) = x * T(std::pow(R(10), R(-12.0 * double(j) / double(n))));
          break;
        case 2:
          a(i, j) = a(i, 0) + (j > 0 ? x * T(R(1e-5)) : T(0));
          break;
        case 3:
          a(i, j) = j % 3 == 1 ? T(0) : x;
          break;
        case 4:
          a(i, j) = a(i, 0);
          break;
        case 5:
          a(i, j) = x * T(tiny);
          break;
        case 6:
          a(i, j) = x / T(tiny);
          break;
        default:
          break;
      }
    }
  }
  return a;
}

template <class T>
void check_orthonormalise(CudaLane& lane) {
  Group group("tiles: orthonormalise " + type_name<T>());
  for (const auto& [m, n] : std::vector<std::pair<Size, Size>>{
           {1, 1}, {7, 1}, {5, 5}, {64, 33}, {300, 64}, {1500, 100}, {1024, 128}}) {
    for (int kind = 0; kind <= 6; ++kind) {
      const auto a = hard_block<T>(m, n, kind);
      OnDevice<T> q(a);
      OnDevice<T> r(HostMatrix<T>(n, n));
      Cuda::orthonormalise<T>(lane, m, n, q.get(), q.ld(), r.get(), r.ld());
      const auto hq = q.back(), hr = r.back();
      const std::string name =
          std::to_string(m) + " x " + std::to_string(n) + " kind " + std::to_string(kind);
      const double unit = epsilon<T> * static_cast<double>(m);
      group.expect_small(departure(hq), 25 * unit, name + " orthonormal");
      const double largest = a.largest();
      const double error = distance(product(hq, hr), a);
      group.expect(error <= 25 * unit * largest,
                   name + " product " + std::to_string(error / largest));
      bool form = hq.padding_untouched() && hr.padding_untouched();
      for (Size j = 0; j < n; ++j) {
        form = form && std::imag(hr(j, j)) == 0;
        for (Size i = j + 1; i < n; ++i) {
          form = form && hr(i, j) == T(0);
        }
      }
      group.expect(form, name + " triangle");
    }
  }
}

template <class T>
void check_small_operations(CudaLane& lane) {
  Group group("tiles: signed LU, triangles, checks " + type_name<T>());
  for (const auto& [n, m] : std::vector<std::pair<Size, Size>>{
           {1, 0}, {2, 1}, {31, 0}, {32, 32}, {33, 7}, {64, 64}, {100, 100}, {128, 60}}) {
    // The top of an orthonormal block, and further rows.
    auto a = HostMatrix<T>::random(n + m, n, 8);
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < n + m; ++i) {
        a(i, j) = a(i, j) / T(Real<T>(n));
      }
    }
    OnDevice<T> lu(a), again(a), t(HostMatrix<T>(n, n));
    DeviceArray<Real<T>> signs(n);
    Cuda::signed_lu<T>(lane, n, m, again.get(), again.ld(), signs.get());
    Cuda::make_reflectors<T>(lane, n, m, lu.get(), lu.ld(), signs.get(), t.get(), t.ld());
    const auto out = lu.back(), factor = t.back();
    group.expect(again.back().data == out.data, "the same without T");
    const auto s = signs.download();
    HostMatrix<T> l(n + m, n), u(n, n);
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < n + m; ++i) {
        l(i, j) = i > j || i >= n ? out(i, j) : T(i == j ? 1 : 0);
      }
      for (Size i = 0; i < n; ++i) {
        u(i, j) = i <= j ? out(i, j) : T(0);
      }
      a(j, j) -= T(s[static_cast<std::size_t>(j)]);
      group.expect(std::abs(out(j, j)) >= 1 - 100 * epsilon<T>, "pivot");
    }
    group.expect_small(distance(product(l, u), a), 100 * epsilon<T>, "L U");
    // T L^H = -U S
    auto top = l;
    top.m = n;
    auto rest = product(factor, top.applied(Op::conj_transpose));
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < n; ++i) {
        rest(i, j) += u(i, j) * T(s[static_cast<std::size_t>(j)]);
        group.expect(i <= j || factor(i, j) == T(0), "zeros of T");
      }
    }
    group.expect_small(rest.largest(), 100 * epsilon<T>, "T");
    group.expect(out.padding_untouched() && factor.padding_untouched(), "padding");
  }
  const auto a = HostMatrix<T>::random(9, 6, 9);
  const OnDevice<T> da(a);
  for (const Uplo uplo : {Uplo::lower, Uplo::upper}) {
    for (const Diag diag : {Diag::unit, Diag::non_unit}) {
      OnDevice<T> b(HostMatrix<T>::random(9, 6, 10));
      const auto before = b.shape;
      Cuda::copy_triangle<T>(lane, uplo, diag, 9, 6, da.get(), da.ld(), b.get(), b.ld());
      const auto after = b.back();
      bool ok = after.padding_untouched();
      for (Size j = 0; j < 6; ++j) {
        for (Size i = 0; i < 9; ++i) {
          const bool inside = i == j ? diag == Diag::non_unit : (i > j) == (uplo == Uplo::lower);
          ok = ok && after(i, j) == (inside ? a(i, j) : before(i, j));
        }
      }
      group.expect(ok, "copy_triangle");
    }
  }
  DeviceArray<Info> info(1);
  const auto kind = [&] { return info.download()[0].kind; };
  auto x = a;
  Cuda::reset(lane, info.get());
  Cuda::check_finite<T>(lane, 9, 6, da.get(), da.ld(), info.get());
  Cuda::check_diagonal<T>(lane, 6, da.get(), da.ld(), 10, info.get());
  group.expect(kind() == 0, "nothing to be found");
  x(4, 4) = T(0);
  x(5, 5) = T(0);
  const OnDevice<T> zero(x);
  Cuda::check_diagonal<T>(lane, 6, zero.get(), zero.ld(), 10, info.get());
  group.expect(kind() == static_cast<int>(Kind::singular) && info.download()[0].position == 15,
               "first zero of a diagonal");
  x(8, 5) = T(std::numeric_limits<Real<T>>::infinity());
  const OnDevice<T> infinite(x);
  Cuda::reset(lane, info.get());
  Cuda::check_finite<T>(lane, 9, 6, infinite.get(), infinite.ld(), info.get());
  group.expect(kind() == static_cast<int>(Kind::non_finite), "infinity");
}

template <class T>
void check_factors(Group& group, int devices, int ranks, Size m, Size n, Size tile, int kind) {
  const auto a = hard_block<T>(m, n, kind);
  const auto b = HostMatrix<T>::random(m, 3, 11);
  const Size k = std::min(m, n);
  const Size per = ceil_div(k, ranks);
  Joined<T> q(m, k, ranks), r(k, n, ranks);
  HostMatrix<T> x(n, 3, 0);
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    QrRun<T> run(gpu, m, n, tile);
    const Size chosen = Plan(run.request(Routine::geqrf)).tile();
    DeviceArray<T> work(rows_of(a, me, ranks));
    DeviceArray<T> aux(qr_aux_count(m, n, chosen));
    DeviceArray<T> form(ceil_div(m, ranks) * k), triangle(per * n);
    DeviceArray<Info> info(1), report(1);
    run.call(run.request(Routine::geqrf), [&](Rank<Cuda>& rank) {
      qr_factor<Cuda, T>(rank, work.get(), aux.get(), info.get());
    });
    if (m >= n) {
      DeviceArray<T> rhs(rows_of(b, me, ranks)), solution(n * 3);
      run.call(run.request(Routine::geqrs, 3), [&](Rank<Cuda>& rank) {
        qr_solve<Cuda, T>(rank, false, work.get(), aux.get(), info.get(), rhs.get(), solution.get(),
                          report.get());
      });
      const auto host = solution.download();
      for (Size i = 0; me == 0 && i < n * 3; ++i) {
        x(i / 3, i % 3) = host[static_cast<std::size_t>(i)];
      }
    }
    run.call(run.request(Routine::orgqr, k), [&](Rank<Cuda>& rank) {
      qr_form<Cuda, T>(rank, work.get(), aux.get(), info.get(), k, form.get(), triangle.get());
    });
    gpu.in_turn([&] {
      q.put(me, form.download());
      r.put(me, triangle.download());
      group.expect(info.download()[0].kind == 0, "factored");
    });
  });
  const std::string name = std::to_string(m) + " x " + std::to_string(n) + " ranks " +
                           std::to_string(ranks) + " tile " + std::to_string(tile) + " kind " +
                           std::to_string(kind);
  const double unit = epsilon<T> * static_cast<double>(m);
  const double error = distance(product(q.host(), r.host()), a);
  group.expect_small(departure(q.host()), 25 * unit, name + " orthonormal");
  group.expect(error <= 25 * unit * a.largest(), name + " product " + std::to_string(error));
  if (kind == 0 && m >= n) {
    auto residual = product(a, x);
    for (Size j = 0; j < 3; ++j) {
      for (Size i = 0; i < m; ++i) {
        residual(i, j) -= b(i, j);
      }
    }
    const double normal = product(a.applied(Op::conj_transpose), residual).largest();
    group.expect_small(normal, 25 * unit * static_cast<double>(m) * (x.largest() + 1),
                       name + " least squares");
  }
}

template <class T>
void check_type(int devices) {
  {
    const auto set = tile::DeviceSet::get({0});
    const tile::DeviceGuard guard(0);
    auto& context = set->context(0);
    context.prepare(dtype_of<T>, tile::Kernels::common);
    context.prepare(dtype_of<T>, tile::Kernels::qr);
    auto& lanes = context.lanes();
    DeviceArray<char> library(lanes.library_bytes(dtype_of<T>, 128, {.qr = 2000}));
    lanes.bind(library.get(), library.count(), dtype_of<T>, 128, {.qr = 2000});
    check_small_operations<T>(lanes.update);
    check_orthonormalise<T>(lanes.panel);
  }
  Group group("algorithms: QR " + type_name<T>());
  for (const int ranks : {1, 2, 3, 8}) {
    for (const auto& [m, n, tile] : std::vector<std::array<Size, 3>>{{1, 1, 4},
                                                                     {7, 3, 2},
                                                                     {3, 7, 2},
                                                                     {65, 65, 8},
                                                                     {130, 60, 16},
                                                                     {60, 130, 16},
                                                                     {301, 200, 40},
                                                                     {900, 50, 0},
                                                                     {300, 290, 0}}) {
      check_factors<T>(group, devices, ranks, m, n, tile, 0);
    }
    for (int kind = 1; kind <= 6; ++kind) {
      check_factors<T>(group, devices, ranks, 130, 60, 16, kind);
    }
  }
}

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T>
void time_type(int devices, Size m, Size n, Size tile) {
  run_gpu_ranks(devices, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    auto& lanes = gpu.context.lanes();
    QrRun<T> run(gpu, m, n, tile);
    const Plan plan(run.request(Routine::geqrf));
    const Size rows = plan.distribution().capacity();
    DeviceArray<T> a(rows * n), aux(qr_aux_count(m, n, plan.tile()));
    DeviceArray<T> triangle(ceil_div(std::min(m, n), devices) * n);
    DeviceArray<Info> info(1);
    double begin = 0;
    const auto factor_observed = [&](Observer& observer) {
      Cuda::random_vector<T>(lanes.update, rows * n, me * rows * n, Real<T>(0.5), a.get());
      JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
      run.call(run.request(Routine::geqrf), observer, [&](Rank<Cuda>& rank) {
        rank.comm.barrier();
        begin = now();
        qr_factor<Cuda, T>(rank, a.get(), aux.get(), info.get());
      });
      return now() - begin;
    };
    double factor = 1e30, form = 1e30;
    for (int repeat = 0; repeat < 3; ++repeat) {
      Observer nobody;
      factor = std::min(factor, factor_observed(nobody));
      if (m < n) {
        continue;
      }
      run.call(run.request(Routine::orgqr, n), [&](Rank<Cuda>& rank) {
        rank.comm.barrier();
        begin = now();
        qr_form<Cuda, T>(rank, a.get(), aux.get(), info.get(), n, a.get(), triangle.get());
      });
      form = std::min(form, now() - begin);
    }
    if (me == 0) {
      std::printf(
          "%s qr %lld x %lld devices %d tile %lld: factor %.4f s (%.1f TF/s), Q %.4f s, "
          "together %.4f s\n",
          type_name<T>().c_str(), static_cast<long long>(m), static_cast<long long>(n), devices,
          static_cast<long long>(plan.tile()), factor, plan.flops() / factor / 1e12, form,
          factor + form);
      std::fflush(stdout);
    }
    TaskTimes times(lanes);
    factor_observed(times);
    gpu.in_turn([&] { times.print("  rank " + std::to_string(me)); });
  });
}

}  // namespace

void check_qr(int devices) {
  check_type<float>(devices);
  check_type<double>(devices);
  check_type<std::complex<float>>(devices);
  check_type<std::complex<double>>(devices);
}

void time_qr(int devices, Size m, Size n, const std::string& type, Size tile) {
  if (type == "f32") {
    time_type<float>(devices, m, n, tile);
  } else if (type == "c64") {
    time_type<std::complex<float>>(devices, m, n, tile);
  } else if (type == "c128") {
    time_type<std::complex<double>>(devices, m, n, tile);
  } else {
    time_type<double>(devices, m, n, tile);
  }
}

}  // namespace jaxmg::test
