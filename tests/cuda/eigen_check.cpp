// Eigenvalues and eigenvectors on ranks that are GPUs.
#include "algo/eigen.h"

#include <chrono>

#include "check.h"
#include "comm/cuda/stream_fork.h"
#include "eigen_matrices.h"
#include "gpu_ranks.h"
#include "stage_times.h"
#include "tile/cuda/cuda.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;

struct Wanted {
  bool vectors = true;
  Size first = 0;
  Size count = 0;
  Precision precision = Precision::native;
};

template <class T>
PlanRequest eigen_request(GpuRank& gpu, Size n, Size tile, const Wanted& wanted) {
  PlanRequest q;
  q.routine = Routine::syevd;
  q.type = dtype_of<T>;
  q.n = n;
  q.ranks = gpu.comm.size();
  q.tile = tile;
  q.platform = Platform::cuda;
  q.precision = wanted.precision;
  q.vectors = wanted.vectors;
  q.columns = wanted.vectors ? wanted.count : 0;
  q.library_bytes = gpu.context.lanes().library_bytes(q.type, Plan(q).tile());
  return q;
}

// One rank's call with scratch that is full of NaN; seconds.
template <class T>
double solve(GpuRank& gpu, const Plan& plan, const Wanted& wanted, T* a, Real<T>* w, T* v,
             Info* info, StageTimes* times = nullptr) {
  gpu.context.prepare(dtype_of<T>, tile::Kernels::common);
  DeviceArray<char> scratch(std::max<Size>(1, plan.scratch_bytes()));
  JAXMG_CUDA_CHECK(cudaMemset(scratch.get(), 0xff, scratch.bytes()));
  JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
  auto& lanes = gpu.context.lanes();
  const Entry library = plan.entry(Buffer::library);
  lanes.bind(scratch.get() + library.offset, library.bytes(), dtype_of<T>, plan.tile());
  Observer nobody;
  Observer& observer = times != nullptr ? *times : nobody;
  Rank<Cuda> rank{gpu.comm, lanes, plan, Workspace(plan, scratch.get()), observer};
  tile::CudaLane stream(tile::StreamPriority::lowest, std::make_shared<tile::EventPool>());
  gpu.comm.barrier();
  const auto begin = std::chrono::steady_clock::now();
  StreamFork region(gpu.comm, lanes, gpu.context.events(), stream.stream());
  syevd<Cuda, T>(rank, Triangle::whole, {wanted.vectors, wanted.first, wanted.count}, a, w, v,
                 info);
  region.join();
  JAXMG_CUDA_CHECK(cudaStreamSynchronize(stream.stream()));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  return took.count();
}

template <class T>
struct Solution {
  std::vector<Real<T>> w;
  Matrix<T> v;
  Info info;
};

template <class T>
Solution<T> solve_whole(const Matrix<T>& a, int devices, int ranks, Size tile, Wanted wanted) {
  const Size n = a.rows;
  Solution<T> result;
  result.v = Matrix<T>(n, wanted.vectors ? wanted.count : 0);
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    const Plan plan(eigen_request<T>(gpu, n, tile, wanted));
    const Distribution dist = plan.distribution();
    std::vector<T> shard(static_cast<std::size_t>(dist.capacity() * n));
    for (Size i = 0; i < dist.local_size(me); ++i) {
      std::copy_n(a.data.begin() + *dist.global(me, LocalIndex(i)) * n, n, shard.begin() + i * n);
    }
    DeviceArray<T> da(shard), part(dist.capacity() * wanted.count);
    DeviceArray<Real<T>> dw(n);
    DeviceArray<Info> info(1);
    T* const v = wanted.count == n ? da.get() : part.get();
    solve<T>(gpu, plan, wanted, da.get(), dw.get(), v, info.get());
    if (me == 0) {
      result.w = dw.download();
      result.info = info.download()[0];
    }
    const std::vector<T> rows = wanted.count == n ? da.download() : part.download();
    for (Size i = 0; wanted.vectors && i < dist.local_size(me); ++i) {
      std::copy_n(rows.begin() + i * wanted.count, wanted.count,
                  result.v.data.begin() + *dist.global(me, LocalIndex(i)) * wanted.count);
    }
  });
  return result;
}

// Both acceptance formulas, in double precision.
template <class T>
void expect_decomposes(Group& group, const std::string& name, const Matrix<T>& a,
                       const Solution<T>& s, Size first) {
  using Wide = std::conditional_t<is_complex_v<T>, std::complex<double>, double>;
  const Size n = a.rows, k = s.v.cols;
  const double unit = static_cast<double>(n) * epsilon<T>;
  Matrix<Wide> residual(n, k), gram(k, k);
  for (Size i = 0; i < n; ++i) {
    for (Size l = 0; l < n; ++l) {
      for (Size j = 0; j < k; ++j) {
        residual(i, j) += Wide(a(i, l)) * Wide(s.v(l, j));
      }
    }
    for (Size j = 0; j < k; ++j) {
      residual(i, j) -=
          Wide(s.v(i, j)) * static_cast<double>(s.w[static_cast<std::size_t>(first + j)]);
      const Wide x = conjugate(Wide(s.v(i, j)));
      for (Size l = 0; l < k; ++l) {
        gram(j, l) += x * Wide(s.v(i, l));
      }
    }
  }
  for (Size j = 0; j < k; ++j) {
    gram(j, j) -= Wide(1);
  }
  const double top = norm1(residual);
  group.expect(s.info.kind == 0, name + " succeeds");
  group.expect_small(top == 0 ? 0 : top / (unit * norm1(a)), 25, name + " residual");
  group.expect_small(k == 0 ? 0 : norm1(gram) / unit, 25, name + " orthogonality");
  group.expect(std::is_sorted(s.w.begin(), s.w.end()), name + " ascending");
}

template <class T>
Matrix<T> random_hermitian(Size n, std::uint64_t seed) {
  Matrix<T> a(n, n);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < i; ++j) {
      a(i, j) = random_entry<T>(seed, i, j);
      a(j, i) = conjugate(a(i, j));
    }
    a(i, i) = T(std::real(random_entry<T>(seed, i, i)));
  }
  return a;
}

template <class T>
void check_type(int devices) {
  Group group("eigenproblems " + type_name<T>());
  for (const int ranks : {1, 2, 3}) {
    for (const Size n : {Size{1}, Size{2}, Size{7}, Size{33}, Size{100}, Size{333}}) {
      for (const Size tile : {Size{0}, Size{5}}) {
        const auto a = random_hermitian<T>(n, 1);
        const std::string name = "n " + std::to_string(n) + " ranks " + std::to_string(ranks) +
                                 " tile " + std::to_string(tile);
        const auto all = solve_whole<T>(a, devices, ranks, tile, {true, 0, n});
        expect_decomposes(group, name, a, all, 0);
        const auto values = solve_whole<T>(a, devices, ranks, tile, {false, 0, 0});
        double most = 0;
        for (std::size_t i = 0; i < values.w.size(); ++i) {
          most = std::max(most, std::fabs(static_cast<double>(values.w[i] - all.w[i])));
        }
        group.expect_small(most, 20 * static_cast<double>(n) * epsilon<T> * norm1(a),
                           name + " values only");
        const Size count = (n + 1) / 2;
        expect_decomposes(group, name + " range", a,
                          solve_whole<T>(a, devices, ranks, tile, {true, n - count, count}),
                          n - count);
      }
    }
  }
  for (const auto& [name, a] : hard_matrices<T>(130)) {
    expect_decomposes(group, name, a, solve_whole<T>(a, devices, 2, 0, {true, 0, a.rows}), 0);
  }
  auto bad = random_hermitian<T>(50, 2);
  bad(3, 4) = bad(4, 3) = T(std::numeric_limits<Real<T>>::quiet_NaN());
  const auto failed = solve_whole<T>(bad, devices, 2, 0, {true, 0, 50});
  group.expect(status(failed.info) == static_cast<int>(Kind::non_finite), "NaN is found");
  group.expect(std::isnan(failed.w[7]) && std::isnan(std::real(failed.v(1, 1))), "NaN comes back");
}

// float32 with products by half-precision parts.
void check_parts(int devices) {
  Group group("eigenproblems f32 by parts");
  const auto check = [&](const std::string& name, const Matrix<float>& a, int ranks, Size first,
                         Size count) {
    expect_decomposes(
        group, name, a,
        solve_whole<float>(a, devices, ranks, 0, {true, first, count, Precision::split}), first);
  };
  for (const Size n : {Size{1}, Size{7}, Size{33}, Size{100}, Size{333}}) {
    const auto a = random_hermitian<float>(n, 1);
    for (const int ranks : {1, 2, 3}) {
      check("n " + std::to_string(n) + " ranks " + std::to_string(ranks), a, ranks, 0, n);
    }
    check("n " + std::to_string(n) + " range", a, 2, n / 3, (n + 1) / 2);
  }
  for (const auto& [name, a] : hard_matrices<float>(130)) {
    check(name, a, 2, 0, a.rows);
  }
  const auto large = random_hermitian<float>(1201, 4);
  check("large merges", large, 2, 0, 1201);
  check("large merges, some vectors", large, 2, 700, 80);
}

template <class T>
void time_type(int devices, Size n, Size tile, Precision precision = Precision::native) {
  run_gpu_ranks(devices, devices, true, [&](GpuRank& gpu) {
    for (const bool vectors : {true, false}) {
      const Wanted wanted{vectors, 0, vectors ? n : 0, precision};
      const Plan plan(eigen_request<T>(gpu, n, tile, wanted));
      const Distribution dist = plan.distribution();
      const int me = gpu.comm.rank();
      std::vector<T> shard(static_cast<std::size_t>(dist.capacity() * n));
      for (Size i = 0; i < dist.local_size(me); ++i) {
        const Size row = *dist.global(me, LocalIndex(i));
        for (Size j = 0; j < n; ++j) {
          const T x = random_entry<T>(1, std::max(row, j), std::min(row, j));
          shard[static_cast<std::size_t>(i * n + j)] = row == j  ? T(std::real(x))
                                                       : row > j ? x
                                                                 : conjugate(x);
        }
      }
      DeviceArray<T> a(shard);
      DeviceArray<Real<T>> w(n);
      DeviceArray<Info> info(1);
      // The last turn tells the stages apart, which takes a little longer.
      for (int turn = 0; turn < 3; ++turn) {
        a.upload(shard);
        StageTimes times(gpu.context.lanes().update);
        const double seconds = solve<T>(gpu, plan, wanted, a.get(), w.get(), a.get(), info.get(),
                                        turn == 2 ? &times : nullptr);
        if (turn == 2) {
          gpu.in_turn([&] { times.print("  rank " + std::to_string(me)); });
        }
        gpu.comm.barrier();
        if (me == 0) {
          std::printf("syevd %s n %lld on %d: %s %.4f s, %.2f matrices in all\n",
                      type_name<T>().c_str(), static_cast<long long>(n), devices,
                      vectors ? "vectors" : "values", seconds,
                      static_cast<double>(plan.total_bytes()) * devices /
                          (static_cast<double>(n) * static_cast<double>(n) * sizeof(T)));
          std::fflush(stdout);
        }
      }
    }
  });
}

// Merges so large that the host is asked for the numbers of their poles.
void check_large(int devices) {
  Group group("eigenproblems with large merges");
  const auto random = random_hermitian<double>(1201, 4);
  for (const int ranks : {1, 2}) {
    const std::string name = "random, ranks " + std::to_string(ranks);
    expect_decomposes(group, name, random,
                      solve_whole<double>(random, devices, ranks, 0, {true, 0, 1201}), 0);
  }
  expect_decomposes(group, "random, some vectors", random,
                    solve_whole<double>(random, devices, 2, 0, {true, 700, 80}), 700);
  const auto laplacian = from_entries<double>(1100, [](Size i, Size j) {
    return i == j ? 2.0 : i == j + 1 ? -1.0 : 0.0;
  });
  expect_decomposes(group, "laplacian", laplacian,
                    solve_whole<double>(laplacian, devices, 2, 0, {true, 0, 1100}), 0);
}

}  // namespace

void check_eigen(int devices) {
  check_type<float>(devices);
  check_parts(devices);
  check_type<double>(devices);
  check_type<std::complex<float>>(devices);
  check_type<std::complex<double>>(devices);
  check_large(devices);
}

void time_eigen(int devices, Size n, const std::string& type, Size tile) {
  type == "f32"     ? time_type<float>(devices, n, tile)
  : type == "split" ? time_type<float>(devices, n, tile, Precision::split)
  : type == "c64"   ? time_type<std::complex<float>>(devices, n, tile)
  : type == "c128"  ? time_type<std::complex<double>>(devices, n, tile)
                    : time_type<double>(devices, n, tile);
}

}  // namespace jaxmg::test
