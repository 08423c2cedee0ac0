// LU factorisation, solutions, determinants and failure reports on ranks that are GPUs.
#include "algo/lu.h"
#include "algo/lu_det.h"
#include "algo/lu_gesv.h"
#include "algo/lu_solve.h"
#include "check.h"
#include "gpu_ranks.h"
#include "rank_run.h"
#include "tile/cuda/cuda.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;

// One rank's factor.
template <class T>
struct Factor {
  Factor(RankRun<T>& run_, const std::vector<T>& shard, Size n, bool natural = false)
      : run(run_),
        plan(request(run_, natural)),
        a(shard),
        inverse(lu_aux_count(plan.request(), plan.tile())),
        pivots(2 * n),
        info(1) {
    run.call(request(run, natural), [&](Rank<Cuda>& rank) {
      lu_factor<Cuda, T>(rank, a.get(), inverse.get(), pivots.get(), info.get());
    });
  }
  static PlanRequest request(const RankRun<T>& run, bool natural) {
    PlanRequest q = run.request(Routine::getrf);
    q.order = natural ? Order::natural : Order::relabelled;
    return q;
  }

  RankRun<T>& run;
  Plan plan;
  DeviceArray<T> a;
  DeviceArray<T> inverse;
  DeviceArray<std::int32_t> pivots;
  DeviceArray<Info> info;

  // x (whole) <- the solution.
  std::vector<T> solve(const std::vector<T>& b, Size nrhs, bool replicated, bool transpose) {
    DeviceArray<T> x(b);
    PlanRequest q = run.request(Routine::getrs);
    q.nrhs = nrhs;
    q.replicated_rhs = replicated;
    q.transpose = transpose;
    run.call(q, [&](Rank<Cuda>& rank) {
      lu_solve<Cuda, T>(rank, a.get(), inverse.get(), pivots.get(), info.get(), x.get());
    });
    return x.download();
  }
  std::pair<T, double> determinant() {
    DeviceArray<T> phase(1);
    DeviceArray<Real<T>> log(1);
    run.call(run.request(Routine::getdet), [&](Rank<Cuda>& rank) {
      lu_determinant<Cuda, T>(rank, a.get(), pivots.get(), info.get(), phase.get(), log.get());
    });
    return {phase.download()[0], static_cast<double>(log.download()[0])};
  }
};

// A solution that goes along with the factorisation; the factor must be that of one alone.
template <class T>
void check_gesv(Group& group, int devices, int ranks, Size n, Size tile, Size nrhs,
                Precision precision = Precision::native) {
  const auto whole = random_matrix<T>(n, n, 41);
  const auto b = random_matrix<T>(n, nrhs, 42);
  const std::string name = "gesv, n " + std::to_string(n) + " ranks " + std::to_string(ranks) +
                           " tile " + std::to_string(tile) + " nrhs " + std::to_string(nrhs);
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    RankRun<T> run(gpu, n, tile, Triangle::whole, 0, precision);
    const Distribution dist = Plan(run.request(Routine::getrf)).distribution();
    Factor<T> factor(run, shard_of(whole, dist, me), n);
    const std::vector<T> expected = factor.a.download();
    const std::vector<std::int32_t> pivots = factor.pivots.download();
    DeviceArray<T> a(shard_of(whole, dist, me)), x(b.data);
    PlanRequest q = run.request(Routine::gesv);
    q.nrhs = nrhs;
    run.call(q, [&](Rank<Cuda>& rank) {
      lu_gesv<Cuda, T>(rank, a.get(), factor.inverse.get(), factor.pivots.get(), factor.info.get(),
                       x.get());
    });
    group.expect(factor.info.download()[0].kind == 0, name + " factored");
    group.expect(factor.pivots.download() == pivots, name + " same pivots");
    group.expect(a.download() == expected, name + " same factor");
    Matrix<T> solution(n, nrhs);
    solution.data = x.download();
    group.expect_small(solve_residual(whole, b, solution), 25, name + " residual");
  });
}

template <class T>
Matrix<T> transposed(const Matrix<T>& a) {
  Matrix<T> t(a.cols, a.rows);
  for (Size i = 0; i < a.rows; ++i) {
    for (Size j = 0; j < a.cols; ++j) {
      t(j, i) = a(i, j);
    }
  }
  return t;
}

template <class T>
void check_solve(Group& group, int devices, int ranks, Size n, Size tile) {
  const auto whole = random_matrix<T>(n, n, 41);
  const auto other = transposed(whole);
  const Size nrhs = 3;
  const auto b = random_matrix<T>(n, nrhs, 42);
  const std::string name = "n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                           std::to_string(tile);
  std::vector<std::vector<T>> parts(static_cast<std::size_t>(2 * ranks));
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    RankRun<T> run(gpu, n, tile);
    const Distribution dist = Plan(run.request(Routine::getrf)).distribution();
    Factor<T> factor(run, shard_of(whole, dist, me), n);
    group.expect(factor.info.download()[0].kind == 0, name + " factored");
    for (const bool transpose : {false, true}) {
      Matrix<T> x(n, nrhs);
      x.data = factor.solve(b.data, nrhs, true, transpose);
      group.expect_small(solve_residual(transpose ? other : whole, b, x), 25, name + " residual");
      parts[static_cast<std::size_t>(2 * me + transpose)] =
          factor.solve(shard_of(b, dist, me), nrhs, false, transpose);
    }
  });
  const Distribution dist(n, ranks, tile);
  for (const bool transpose : {false, true}) {
    Matrix<T> x(n, nrhs);
    for (int r = 0; r < ranks; ++r) {
      const auto& mine = parts[static_cast<std::size_t>(2 * r + transpose)];
      for (Size i = 0; i < dist.local_size(r); ++i) {
        std::copy_n(mine.begin() + i * nrhs, nrhs,
                    x.data.begin() + *dist.global(r, LocalIndex(i)) * nrhs);
      }
    }
    group.expect_small(solve_residual(transpose ? other : whole, b, x), 25,
                       name + " residual by rows");
  }
}

// Cyclic shifts by one have determinant (-1)^(n-1).
template <class T>
void check_determinant(Group& group, int devices, int ranks, Size n, Size tile) {
  Matrix<T> shift(n, n);
  for (Size i = 0; i < n; ++i) {
    shift(i, (i + 1) % n) = T(2);
  }
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    RankRun<T> run(gpu, n, tile);
    const Distribution dist = Plan(run.request(Routine::getrf)).distribution();
    Factor<T> factor(run, shard_of(shift, dist, gpu.comm.rank()), n);
    const auto [sign, log] = factor.determinant();
    const T expected = T(n % 2 == 1 ? Real<T>(1) : Real<T>(-1));
    group.expect_small(std::abs(sign - expected), 1e-5, "sign, n " + std::to_string(n));
    group.expect_small(std::abs(log - static_cast<double>(n) * std::log(2.0)), 1e-3,
                       "logarithm, n " + std::to_string(n));
  });
}

template <class T>
void check_singular(Group& group, int devices, int ranks) {
  const Size n = 90;
  const Size row = 61;
  auto whole = random_matrix<T>(n, n, 43);
  for (Size j = 0; j < n; ++j) {
    whole(row, j) = T(0);
  }
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    RankRun<T> run(gpu, n, 16);
    const Distribution dist = Plan(run.request(Routine::getrf)).distribution();
    Factor<T> factor(run, shard_of(whole, dist, gpu.comm.rank()), n);
    const Info report = factor.info.download()[0];
    group.expect(report.kind == static_cast<int>(Kind::singular) && report.position == row + 1,
                 "dependent equation " + std::to_string(report.position));
    const auto x = factor.solve(std::vector<T>(static_cast<std::size_t>(n), T(1)), 1, true, false);
    group.expect(std::isnan(std::real(x[0])) && std::isnan(std::real(x[n - 1])), "NaN");
    const auto [sign, log] = factor.determinant();
    group.expect(sign == T(0) && log == -std::numeric_limits<double>::infinity(), "zero");
  });
}

// In natural order the factors are those of LAPACK for the transposed matrix.
template <class T>
void check_natural(Group& group, int devices, int ranks) {
  const Size n = 75;
  const auto whole = random_matrix<T>(n, n, 45);
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    RankRun<T> run(gpu, n, 16);
    const Distribution dist = Plan(Factor<T>::request(run, true)).distribution();
    Factor<T> factor(run, shard_of(whole, dist, me), n, true);
    group.expect(factor.info.download()[0].kind == 0, "natural order");
    const auto lu = factor.a.download();
    const auto rows = factor.pivots.download();
    if (ranks == 1) {
      double error = 0;
      for (Size j = 0; j < n; ++j) {
        for (Size i = 0; i < n; ++i) {
          T sum(0);
          for (Size k = 0; k <= std::min(i, j); ++k) {
            const auto at = [&](Size r, Size c) { return lu[static_cast<std::size_t>(r + c * n)]; };
            sum += (k == i ? T(1) : at(i, k)) * at(k, j);
          }
          const Size row = rows[static_cast<std::size_t>(n + i)];
          error = std::max<double>(error, std::abs(sum - whole(j, row)));
        }
      }
      group.expect_small(error, 2000 * epsilon<T>, "P A^T - L U");
    }
  });
}

template <class T>
void check_type(int devices) {
  Group group("algorithms: LU " + type_name<T>());
  for (const int ranks : {1, 2, 3, 8}) {
    for (const auto& [n, tile] : std::vector<std::pair<Size, Size>>{
             {1, 4}, {7, 2}, {65, 8}, {130, 16}, {301, 32}, {301, 200}, {700, 300}}) {
      check_solve<T>(group, devices, ranks, n, std::min(tile, ceil_div(n, ranks)));
      for (const Size nrhs : {1, 3, 65}) {
        check_gesv<T>(group, devices, ranks, n, std::min(tile, ceil_div(n, ranks)), nrhs);
      }
    }
    for (const Size n : {6, 7, 30, 101}) {
      check_determinant<T>(group, devices, ranks, n, 3);
    }
    check_singular<T>(group, devices, ranks);
    check_natural<T>(group, devices, ranks);
  }
}

// By parts: as accurate as native products but for a small factor, whatever the sizes of
// rows and columns are.
template <class T>
void check_split(Group& group, int devices, int ranks, Size n, Size tile, int kind) {
  auto whole = random_matrix<T>(n, n, 51);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      const double rows = kind == 1 || kind == 3 ? std::exp2(static_cast<double>(i % 41 - 20)) : 1;
      const double columns = kind >= 2 ? std::exp2(static_cast<double>(j % 37 - 18)) : 1;
      whole(i, j) *= static_cast<Real<T>>(rows * columns);
      if (kind == 4) {  // growth by 2 with each step, as far as it goes
        whole(i, j) = i == j || j == n - 1 ? T(1) : i > j && j < 20 ? T(-1) : T(0);
      }
    }
  }
  const auto b = random_matrix<T>(n, 2, 52);
  const std::string name = type_name<T>() + " n " + std::to_string(n) + " ranks " +
                           std::to_string(ranks) + " tile " + std::to_string(tile) + " kind " +
                           std::to_string(kind);
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    double residuals[2] = {};
    for (const Precision precision : {Precision::native, Precision::split}) {
      RankRun<T> run(gpu, n, tile, Triangle::whole, 0, precision);
      const Distribution dist = Plan(run.request(Routine::getrf)).distribution();
      Factor<T> factor(run, shard_of(whole, dist, gpu.comm.rank()), n);
      group.expect(factor.info.download()[0].kind == 0, name + " factored");
      Matrix<T> x(n, 2);
      x.data = factor.solve(b.data, 2, true, false);
      residuals[precision == Precision::split] = solve_residual(whole, b, x);
    }
    if (gpu.comm.rank() == 0) {
      std::printf("  parts %s: residual %.3g, native %.3g\n", name.c_str(), residuals[1],
                  residuals[0]);
    }
    group.expect_as_native(residuals[0], residuals[1], 1e-3, name);
  });
}

template <class T>
void check_all_split(int devices) {
  Group group("algorithms: LU by half-precision parts " + type_name<T>());
  for (const int ranks : {1, 2, 3}) {
    for (const int kind : {0, 1, 2, 3, 4}) {
      check_split<T>(group, devices, ranks, 700, 128, kind);
      check_split<T>(group, devices, ranks, 301, 37, kind);
    }
  }
  const Size n = is_complex_v<T> ? 1500 : 3000;
  check_split<T>(group, devices, 1, n, 256, 0);
  check_split<T>(group, devices, std::min(2, devices), n + 1, 256, 3);
}

template <class T>
void time_type(int devices, Size n, Size tile, Precision precision = Precision::native,
               int reserve = -1) {
  run_gpu_ranks(devices, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    const int usual = gpu.context.lanes().reserve();
    gpu.context.lanes().set_reserve(reserve >= 0 ? reserve : usual);
    RankRun<T> run(gpu, n, tile, Triangle::whole, 0, precision);
    const Plan plan(run.request(Routine::getrf));
    const Distribution dist = plan.distribution();
    DeviceArray<T> a(dist.capacity() * n), x(n);
    DeviceArray<T> inverse(lu_aux_count(plan.request(), plan.tile()));
    DeviceArray<std::int32_t> pivots(2 * n);
    DeviceArray<Info> info(1);
    double factor = 1e30;
    double solve[2] = {1e30, 1e30};  // plain, transposed
    double together = 1e30;
    const auto refill = [&] {
      auto& lane = gpu.context.lanes().update;
      for (Size j = 0; j < dist.local_size(me); ++j) {
        const Size row = *dist.global(me, LocalIndex(j));
        Cuda::random_vector<T>(lane, n, row * n, Real<T>(0.5), a.get() + j * n);
      }
      JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
    };
    for (int repeat = 0; repeat < 3; ++repeat) {
      refill();
      factor = std::min(factor, run.call(run.request(Routine::getrf), [&](Rank<Cuda>& rank) {
        lu_factor<Cuda, T>(rank, a.get(), inverse.get(), pivots.get(), info.get());
      }));
      for (const bool transpose : {false, true}) {
        PlanRequest q = run.request(Routine::getrs);
        q.transpose = transpose;
        solve[transpose] = std::min(solve[transpose], run.call(q, [&](Rank<Cuda>& rank) {
          lu_solve<Cuda, T>(rank, a.get(), inverse.get(), pivots.get(), info.get(), x.get());
        }));
      }
      refill();
      together = std::min(together, run.call(run.request(Routine::gesv), [&](Rank<Cuda>& rank) {
        lu_gesv<Cuda, T>(rank, a.get(), inverse.get(), pivots.get(), info.get(), x.get());
      }));
    }
    const int kind = info.download()[0].kind;
    if (me == 0) {
      std::printf(
          "LU %s%s reserve %d n %lld devices %d tile %lld: factor %.4f s (%.1f TF/s), solve %.5f "
          "s, transposed %.5f s, in one %.4f s (saves %.5f s), kind %d\n",
          type_name<T>().c_str(), precision == Precision::split ? " by parts" : "",
          gpu.context.lanes().reserve(), static_cast<long long>(n), devices,
          static_cast<long long>(plan.tile()), factor, plan.flops() / factor / 1e12, solve[0],
          solve[1], together, factor + solve[0] - together, kind);
      std::fflush(stdout);
    }
  });
}

}  // namespace

void check_lu(int devices) {
  check_type<float>(devices);
  check_type<double>(devices);
  check_type<std::complex<float>>(devices);
  check_type<std::complex<double>>(devices);
  check_lu_parts(devices);
}

void check_lu_parts(int devices) {
  check_all_split<float>(devices);
  check_all_split<std::complex<float>>(devices);
}

void time_lu(int devices, Size n, const std::string& type, Size tile) {
  const auto colon = type.find(':');
  const int reserve = colon == std::string::npos ? -1 : std::stoi(type.substr(colon + 1));
  const std::string name = type.substr(0, colon);
  if (name == "f32") {
    time_type<float>(devices, n, tile, Precision::split, reserve);
  } else if (name == "f32-native") {
    time_type<float>(devices, n, tile, Precision::native, reserve);
  } else if (name == "splitc64") {
    time_type<std::complex<float>>(devices, n, tile, Precision::split, reserve);
  } else if (name == "c64") {
    time_type<std::complex<float>>(devices, n, tile, Precision::native, reserve);
  } else if (name == "c128") {
    time_type<std::complex<double>>(devices, n, tile, Precision::native, reserve);
  } else {
    time_type<double>(devices, n, tile, Precision::native, reserve);
  }
}

}  // namespace jaxmg::test
