// Cholesky factorisation, solution and failure reports on ranks that are GPUs.
#include <array>
#include <sstream>
#include <string>

#include "algo/cholesky.h"
#include "algo/cholesky_inverse.h"
#include "algo/cholesky_logdet.h"
#include "algo/cholesky_posv.h"
#include "algo/cholesky_solve.h"
#include "algo/cyclic.h"
#include "algo/first_failing_minor.h"
#include "check.h"
#include "gpu_ranks.h"
#include "rank_run.h"
#include "tile/cuda/cuda.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;

template <class T>
void check_solve(Group& group, int devices, int ranks, Size n, Size tile, Triangle valid,
                 Precision precision = Precision::native, Size parts = 0) {
  const auto whole = random_hpd<T>(n, 41);
  auto given = whole;
  for (Size i = 0; valid != Triangle::whole && i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      if (valid == Triangle::lower ? j > i : j < i) {
        given(i, j) = T(std::numeric_limits<Real<T>>::quiet_NaN());
      }
    }
  }
  const Size nrhs = 3;
  const auto b = random_matrix<T>(n, nrhs, 42);
  const std::string name = "n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                           std::to_string(tile);
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    RankRun<T> run(gpu, n, tile, valid, 0, precision, parts);
    const Plan plan(run.request(Routine::potrf));
    const Distribution dist = plan.distribution();
    DeviceArray<T> a(shard_of(given, dist, me));
    const Size aux = aux_count(n, ranks, plan.tile()) / 2;
    DeviceArray<T> saved(aux), inverse(aux);
    DeviceArray<Info> info(1);
    run.call(run.request(Routine::potrf), [&](Rank<Cuda>& rank) {
      cholesky_factor<Cuda, T>(rank, valid, a.get(), saved.get(), inverse.get(), info.get());
    });
    group.expect(info.download()[0].kind == 0, name + " factored");
    DeviceArray<T> x(b.data);
    PlanRequest q = run.request(Routine::potrs);
    q.nrhs = nrhs;
    run.call(q, [&](Rank<Cuda>& rank) {
      cholesky_solve<Cuda, T>(rank, a.get(), inverse.get(), info.get(), x.get(), x.get());
    });
    Matrix<T> solution(n, nrhs);
    solution.data = x.download();
    group.expect_small(solve_residual(whole, b, solution), 25, name + " residual");
    DeviceArray<Real<T>> logdet(1);
    run.call(run.request(Routine::logdet), [&](Rank<Cuda>& rank) {
      cholesky_logdet<Cuda, T>(rank, a.get(), info.get(), logdet.get());
    });
    group.expect(std::isfinite(logdet.download()[0]), name + " log-determinant");
    run.call(run.request(Routine::potri), [&](Rank<Cuda>& rank) {
      cholesky_inverse<Cuda, T>(rank, inverse.get(), info.get(), a.get());
    });
    const std::vector<T> rows = a.download();
    const Size own = dist.local_size(me);
    Matrix<T> unit(n, own), found(n, own);
    for (Size j = 0; j < own; ++j) {
      unit(*dist.global(me, LocalIndex(j)), j) = T(1);
      for (Size i = 0; i < n; ++i) {
        found(i, j) = conjugate(rows[static_cast<std::size_t>(i + j * n)]);
      }
    }
    group.expect_small(solve_residual(whole, unit, found), 25, name + " inverse");
  });
}

// Right-hand sides that are eliminated together with the matrix, and the factor that is left.
template <class T>
void check_posv(Group& group, int devices, int ranks, Size n, Size tile, Size nrhs,
                Precision precision = Precision::native, Size parts = 0) {
  const auto whole = random_hpd<T>(n, 41);
  const auto b = random_matrix<T>(n, nrhs, 42);
  const std::string name = "posv, n " + std::to_string(n) + " ranks " + std::to_string(ranks) +
                           " tile " + std::to_string(tile) + " nrhs " + std::to_string(nrhs);
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    RankRun<T> run(gpu, n, tile, Triangle::whole, 0, precision, parts);
    PlanRequest q = run.request(Routine::posv);
    q.nrhs = nrhs;
    const Plan plan(q);
    DeviceArray<T> a(shard_of(whole, plan.distribution(), gpu.comm.rank()));
    const Size aux = aux_count(n, ranks, plan.tile()) / 2;
    DeviceArray<T> saved(aux), inverse(aux), x(b.data);
    DeviceArray<Info> info(1);
    run.call(q, [&](Rank<Cuda>& rank) {
      cholesky_posv<Cuda, T>(rank, Triangle::whole, a.get(), saved.get(), inverse.get(), info.get(),
                             x.get());
    });
    group.expect(info.download()[0].kind == 0, name + " factored");
    Matrix<T> solution(n, nrhs);
    solution.data = x.download();
    group.expect_small(solve_residual(whole, b, solution), 25, name + " residual");
    DeviceArray<T> again(b.data);
    q.routine = Routine::potrs;
    run.call(q, [&](Rank<Cuda>& rank) {
      cholesky_solve<Cuda, T>(rank, a.get(), inverse.get(), info.get(), again.get(), again.get());
    });
    solution.data = again.download();
    group.expect_small(solve_residual(whole, b, solution), 25, name + " residual by its factor");
  });
}

// Products by parts: as accurate as native ones but for a small factor, whatever the sizes of rows
// are (graded, mixed up, up to the ends of what is not scaled, and just beyond), and on a matrix
// with small eigenvalues.
template <class T>
void check_parts(Group& group, int devices, int ranks, Size n, Size tile, int kind) {
  auto whole = random_hpd<T>(n, 41);
  if (kind == 3) {  // of rank n / 2, and a little
    const auto x = random_matrix<T>(n, n / 2, 45);
    for (Size i = 0; i < n; ++i) {
      for (Size j = 0; j <= i; ++j) {
        T sum = T(i == j ? Real<T>(0.01) : Real<T>(0));
        for (Size k = 0; k < n / 2; ++k) {
          sum += x(i, k) * conjugate(x(j, k));
        }
        whole(i, j) = sum;
        whole(j, i) = conjugate(sum);
      }
      whole(i, i) = T(std::real(whole(i, i)));
    }
  }
  constexpr double wide[4] = {5.45, 0.2, -4.45, 5};
  constexpr double wider[4] = {5.6, 0.2, -5, -4};
  std::vector<double> unit;
  for (Size i = 0; i < n; ++i) {
    unit.push_back(-std::log2(static_cast<double>(std::real(whole(i, i)))) / 2);
  }
  for (Size i = 0; i < n && kind != 3; ++i) {
    for (Size j = 0; j < n; ++j) {
      const auto exponent = [&](Size k) {
        return kind == 1   ? -30.0 * static_cast<double>(k) / static_cast<double>(n)
               : kind == 2 ? static_cast<double>(k * 7 % 41) - 20
               : kind == 4 ? unit[static_cast<std::size_t>(k)] + wide[k % 4]
               : kind == 5 ? unit[static_cast<std::size_t>(k)] + wider[k % 4]
                           : 0;
      };
      whole(i, j) *= static_cast<Real<T>>(std::exp2(exponent(i) + exponent(j)));
    }
  }
  const auto b = random_matrix<T>(n, 2, 42);
  const std::string name = type_name<T>() + " n " + std::to_string(n) + " ranks " +
                           std::to_string(ranks) + " tile " + std::to_string(tile) + " kind " +
                           std::to_string(kind);
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    double residuals[2] = {};
    for (const Precision precision : {Precision::native, Precision::split}) {
      RankRun<T> run(gpu, n, tile, Triangle::whole, 0, precision);
      const Plan plan(run.request(Routine::potrf));
      DeviceArray<T> a(shard_of(whole, plan.distribution(), gpu.comm.rank()));
      const Size aux = aux_count(n, ranks, plan.tile()) / 2;
      DeviceArray<T> saved(aux), inverse(aux), x(b.data);
      DeviceArray<Info> info(1);
      run.call(run.request(Routine::potrf), [&](Rank<Cuda>& rank) {
        cholesky_factor<Cuda, T>(rank, Triangle::whole, a.get(), saved.get(), inverse.get(),
                                 info.get());
      });
      group.expect(info.download()[0].kind == 0, name + " factored");
      PlanRequest q = run.request(Routine::potrs);
      q.nrhs = 2;
      run.call(q, [&](Rank<Cuda>& rank) {
        cholesky_solve<Cuda, T>(rank, a.get(), inverse.get(), info.get(), x.get(), x.get());
      });
      Matrix<T> solution(n, 2);
      solution.data = x.download();
      residuals[precision == Precision::split] = solve_residual(whole, b, solution);
    }
    if (gpu.comm.rank() == 0) {
      std::printf("  parts %s: residual %.3g, native %.3g\n", name.c_str(), residuals[1],
                  residuals[0]);
    }
    group.expect_as_native(residuals[0], residuals[1], 1e-4, name);
  });
}

template <class T>
void check_all_parts(int devices) {
  Group group("algorithms: Cholesky by half-precision parts " + type_name<T>());
  for (const int kind : {0, 1, 2, 3, 4, 5}) {
    for (const int ranks : {1, 3}) {
      check_parts<T>(group, devices, ranks, 301, 37, kind);
    }
    check_parts<T>(group, devices, std::min(2, devices), 1001, 256, kind);
  }
}

// An indefinite matrix: NaN solutions and the index of the failing minor on every rank.
template <class T>
void check_failing_minor(Group& group, int devices, int ranks) {
  const Size n = 90;
  const Size place = 61;
  auto whole = random_hpd<T>(n, 43);
  whole(place, place) = T(-5);
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    RankRun<T> run(gpu, n, 16, Triangle::whole);
    const Plan plan(run.request(Routine::potrf));
    DeviceArray<T> a(shard_of(whole, plan.distribution(), gpu.comm.rank()));
    const Size aux = aux_count(n, ranks, plan.tile()) / 2;
    DeviceArray<T> saved(aux), inverse(aux);
    DeviceArray<Info> info(1);
    run.call(run.request(Routine::potrf), [&](Rank<Cuda>& rank) {
      cholesky_factor<Cuda, T>(rank, Triangle::whole, a.get(), saved.get(), inverse.get(),
                               info.get());
    });
    group.expect(info.download()[0].kind == static_cast<int>(Kind::not_positive_definite),
                 "failure seen");
    run.call(run.request(Routine::locate), [&](Rank<Cuda>& rank) {
      first_failing_minor<Cuda, T>(rank, a.get(), saved.get(), info.get());
    });
    const Info report = info.download()[0];
    group.expect(report.position == place + 1, "failing minor " + std::to_string(report.position));
  });
}

template <class T>
void check_cyclic(Group& group, int devices, int ranks) {
  const Size n = 203;
  const Size columns = 37;
  const Size tile = 8;
  const auto a = random_matrix<T>(n, columns, 44);
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    RankRun<T> run(gpu, n, tile, Triangle::whole);
    PlanRequest q = run.request(Routine::cyclic);
    q.columns = columns;
    const int me = gpu.comm.rank();
    const Distribution contiguous(n, ranks, tile, Storage::contiguous);
    const Distribution cyclic(n, ranks, tile, Storage::cyclic);
    auto shard = shard_of(a, contiguous, me);
    const Size capacity = std::max(contiguous.capacity(), cyclic.capacity());
    shard.resize(static_cast<std::size_t>(capacity * columns));
    DeviceArray<T> data(shard);
    run.call(q, [&](Rank<Cuda>& rank) { to_cyclic<Cuda, T>(rank, n, tile, columns, data.get()); });
    const auto there = data.download();
    const auto wanted = shard_of(a, cyclic, me);
    const Size held = cyclic.local_size(me) * columns;
    group.expect(std::equal(there.begin(), there.begin() + held, wanted.begin()), "to cyclic");
    run.call(q,
             [&](Rank<Cuda>& rank) { from_cyclic<Cuda, T>(rank, n, tile, columns, data.get()); });
    const auto back = data.download();
    const Size own = contiguous.local_size(me) * columns;
    group.expect(std::equal(back.begin(), back.begin() + own, shard.begin()), "and back");
  });
}

template <class T>
void check_type(int devices) {
  Group group("algorithms: Cholesky, mirror, cyclic " + type_name<T>());
  for (const int ranks : {1, 2, 3, 8}) {
    for (const auto& [n, tile] : std::vector<std::pair<Size, Size>>{
             {1, 4}, {7, 2}, {65, 8}, {130, 16}, {301, 32}, {301, 200}, {700, 300}}) {
      check_solve<T>(group, devices, ranks, n, tile, Triangle::whole);
    }
    for (const auto& [n, tile, parts] : std::vector<std::array<Size, 3>>{
             {130, 16, 5}, {301, 32, 3}, {700, 150, 2}, {700, 150, 4}}) {
      check_solve<T>(group, devices, ranks, n, tile, Triangle::whole, Precision::native, parts);
    }
    for (const auto& [n, tile, nrhs] : std::vector<std::array<Size, 3>>{{1, 4, 1},
                                                                        {7, 2, 3},
                                                                        {65, 8, 1},
                                                                        {130, 16, 17},
                                                                        {301, 32, 64},
                                                                        {301, 32, 65},
                                                                        {301, 200, 1},
                                                                        {700, 300, 2}}) {
      check_posv<T>(group, devices, ranks, n, tile, nrhs);
    }
    check_posv<T>(group, devices, ranks, 700, 150, 1, Precision::native, 4);
    check_solve<T>(group, devices, ranks, 77, 8, Triangle::lower);
    check_solve<T>(group, devices, ranks, 77, 8, Triangle::upper);
    if constexpr (Cuda::splits<T>) {
      for (const auto& [n, tile] :
           std::vector<std::pair<Size, Size>>{{1, 4}, {130, 16}, {700, 300}}) {
        check_solve<T>(group, devices, ranks, n, tile, Triangle::whole, Precision::split);
        check_posv<T>(group, devices, ranks, n, tile, 3, Precision::split);
      }
    }
    check_failing_minor<T>(group, devices, ranks);
    check_cyclic<T>(group, devices, ranks);
  }
}

// The rank's rows of a symmetric matrix with random entries, shifted to be positive definite.
template <class T>
void fill_shard(tile::CudaLane& lane, const Distribution& dist, int rank, T* a) {
  const Size n = dist.size();
  const auto shift = static_cast<Real<T>>(1.5 * std::sqrt(static_cast<double>(n)));
  const Size own = dist.local_size(rank);
  const Size first = own > 0 ? *dist.global(rank, LocalIndex(0)) : 0;
  // Entry (i, j) is random number i + j: symmetric, and a Hankel matrix, whose norm is like that of
  // independent entries.
  for (Size j = 0; j < own; ++j) {
    Cuda::random_vector<T>(lane, n, first + j, Real<T>(0.5), a + j * n);
  }
  Cuda::fill<T>(lane, 1, own, T(shift * 2), T(shift * 2), a + first, n + 1);
  JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
}

// What is chosen by hand, where not 0, or not less than 0.
struct Choice {
  Size tile = 0;
  Size group = 0;
  Size parts = 0;
};

template <class T>
void time_type(int devices, Size n, const Choice& choice, Precision precision = Precision::native) {
  run_gpu_ranks(devices, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    RankRun<T> run(gpu, n, choice.tile, Triangle::whole, choice.group, precision, choice.parts);
    const Plan plan(run.request(Routine::potrf));
    const Distribution dist = plan.distribution();
    DeviceArray<T> a(dist.capacity() * n);
    const Size aux = aux_count(n, devices, plan.tile()) / 2;
    DeviceArray<T> saved(aux), inverse(aux), x(n);
    DeviceArray<Info> info(1);
    double factor = 1e30;
    double solve = 1e30;
    double together = 1e30;
    double inverted = 1e30;
    for (int repeat = 0; repeat < 3; ++repeat) {
      fill_shard<T>(gpu.context.lanes().update, dist, me, a.get());
      factor = std::min(factor, run.call(run.request(Routine::potrf), [&](Rank<Cuda>& rank) {
        cholesky_factor<Cuda, T>(rank, Triangle::whole, a.get(), saved.get(), inverse.get(),
                                 info.get());
      }));
      solve = std::min(solve, run.call(run.request(Routine::potrs), [&](Rank<Cuda>& rank) {
        cholesky_solve<Cuda, T>(rank, a.get(), inverse.get(), info.get(), x.get(), x.get());
      }));
      inverted = std::min(inverted, run.call(run.request(Routine::potri), [&](Rank<Cuda>& rank) {
        cholesky_inverse<Cuda, T>(rank, inverse.get(), info.get(), a.get());
      }));
      fill_shard<T>(gpu.context.lanes().update, dist, me, a.get());
      together = std::min(together, run.call(run.request(Routine::posv), [&](Rank<Cuda>& rank) {
        cholesky_posv<Cuda, T>(rank, Triangle::whole, a.get(), saved.get(), inverse.get(),
                               info.get(), x.get());
      }));
    }
    const int kind = info.download()[0].kind;
    if (me == 0) {
      std::printf(
          "%s n %lld devices %d tile %lld group %lld parts %lld: factor %.5f s "
          "(%.1f TF/s), solve %.5f s, in one %.5f s (saves %.5f s), inverse %.5f s, kind %d\n",
          (type_name<T>() + (precision == Precision::split ? " by parts" : "")).c_str(),
          static_cast<long long>(n), devices, static_cast<long long>(plan.tile()),
          static_cast<long long>(plan.group()), static_cast<long long>(plan.panel_parts()), factor,
          plan.flops() / factor / 1e12, solve, together, factor + solve - together, inverted, kind);
      std::fflush(stdout);
    }
  });
}

}  // namespace

void check_cholesky(int devices) {
  check_type<float>(devices);
  check_type<double>(devices);
  check_type<std::complex<float>>(devices);
  check_type<std::complex<double>>(devices);
  check_cholesky_parts(devices);
}

void check_cholesky_parts(int devices) {
  check_all_parts<float>(devices);
  check_all_parts<std::complex<float>>(devices);
}

void time_cholesky(int devices, Size n, const std::string& what, Size tile, Size group) {
  std::vector<std::string> fields;  // TYPE[:PARTS]
  std::istringstream stream(what);
  for (std::string field; std::getline(stream, field, ':');) {
    fields.push_back(field);
  }
  fields.resize(2);
  Choice choice{tile, group};
  choice.parts = fields[1].empty() ? 0 : std::stoll(fields[1]);
  const std::string& type = fields[0];
  if (type == "split") {
    time_type<float>(devices, n, choice, Precision::split);
  } else if (type == "splitc64") {
    time_type<std::complex<float>>(devices, n, choice, Precision::split);
  } else if (type == "f32") {
    time_type<float>(devices, n, choice);
  } else if (type == "c64") {
    time_type<std::complex<float>>(devices, n, choice);
  } else if (type == "c128") {
    time_type<std::complex<double>>(devices, n, choice);
  } else {
    time_type<double>(devices, n, choice);
  }
}

}  // namespace jaxmg::test
