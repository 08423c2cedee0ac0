// Inverses from LU factors on ranks that are GPUs.
#include "algo/lu.h"
#include "algo/lu_inverse.h"
#include "check.h"
#include "gpu_ranks.h"
#include "rank_run.h"
#include "tile/cuda/cuda.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;

template <class T>
void check_inverse(Group& group, int devices, int ranks, Size n, Size tile) {
  const auto whole = random_matrix<T>(n, n, 21);
  Matrix<T> inverse(n, n), one(n, n);
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    RankRun<T> run(gpu, n, tile);
    const Plan plan(run.request(Routine::getrf));
    const Distribution dist = plan.distribution();
    DeviceArray<T> a(shard_of(whole, dist, me));
    DeviceArray<T> aux(lu_aux_count(plan.request(), plan.tile()));
    DeviceArray<std::int32_t> pivots(2 * n);
    DeviceArray<Info> info(1);
    run.call(run.request(Routine::getrf), [&](Rank<Cuda>& rank) {
      lu_factor<Cuda, T>(rank, a.get(), aux.get(), pivots.get(), info.get());
    });
    run.call(run.request(Routine::getri), [&](Rank<Cuda>& rank) {
      lu_inverse<Cuda, T>(rank, pivots.get(), info.get(), a.get());
    });
    const auto shard = a.download();
    for (Size i = 0; i < dist.local_size(me); ++i) {
      std::copy_n(shard.begin() + i * n, n,
                  inverse.data.begin() + *dist.global(me, LocalIndex(i)) * n);
    }
  });
  for (Size i = 0; i < n; ++i) {
    one(i, i) = T(1);
  }
  group.expect_small(solve_residual(whole, one, inverse), 25,
                     "n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                         std::to_string(tile));
}

template <class T>
void check_type(int devices) {
  Group group("algorithms: inverse by LU " + type_name<T>());
  for (const int ranks : {1, 2, 3, 8}) {
    for (const auto& [n, tile] :
         std::vector<std::pair<Size, Size>>{{1, 4}, {7, 2}, {65, 8}, {130, 16}, {301, 64}}) {
      check_inverse<T>(group, devices, ranks, n, std::min(tile, ceil_div(n, ranks)));
    }
  }
}

}  // namespace

void check_inverse(int devices) {
  check_type<float>(devices);
  check_type<double>(devices);
  check_type<std::complex<float>>(devices);
  check_type<std::complex<double>>(devices);
}

}  // namespace jaxmg::test
