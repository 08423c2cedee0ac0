// QR factorisations and what is made with them on ranks that are GPUs.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <vector>

#include "algo/rank.h"
#include "check.h"
#include "comm/cuda/stream_fork.h"
#include "gpu_ranks.h"
#include "host_matrix.h"
#include "tile/cuda/cuda.h"

namespace jaxmg::test {

// One rank's buffers and its calls.
template <class T>
class QrRun {
 public:
  QrRun(GpuRank& gpu, Size m, Size n, Size tile) : gpu_(gpu), m_(m), n_(n), tile_(tile) {
    gpu_.context.prepare(dtype_of<T>, tile::Kernels::common);
    gpu_.context.prepare(dtype_of<T>, tile::Kernels::qr);
  }

  PlanRequest request(Routine routine, Size nrhs = 1) const {
    PlanRequest q;
    q.routine = routine;
    q.type = dtype_of<T>;
    q.n = m_;
    q.columns = n_;
    q.nrhs = nrhs;
    q.ranks = gpu_.comm.size();
    q.tile = tile_;
    q.platform = Platform::cuda;
    const Size tile = Plan(q).tile();
    q.library_bytes =
        gpu_.context.lanes().library_bytes(tile_type(q), tile, {.qr = orthonormal_rows(q, tile)});
    return q;
  }

  // Runs a rank program with scratch that is full of NaN, between a fork and a join of the stream.
  void call(const PlanRequest& q, const std::function<void(Rank<tile::Cuda>&)>& program) {
    Observer nobody;
    call(q, nobody, program);
  }
  void call(const PlanRequest& q, Observer& observer,
            const std::function<void(Rank<tile::Cuda>&)>& program) {
    const Plan plan(q);
    tile_ = plan.tile();
    DeviceArray<char> scratch(std::max<Size>(1, plan.scratch_bytes()));
    JAXMG_CUDA_CHECK(cudaMemset(scratch.get(), 0xff, scratch.bytes()));
    JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
    auto& lanes = gpu_.context.lanes();
    const Entry library = plan.entry(Buffer::library);
    lanes.bind(scratch.get() + library.offset, library.bytes(), tile_type(q), tile_,
               {.qr = orthonormal_rows(q, tile_)});
    Rank<tile::Cuda> rank{gpu_.comm, lanes, plan, Workspace(plan, scratch.get()), observer};
    tile::CudaLane stream(tile::StreamPriority::lowest, std::make_shared<tile::EventPool>());
    StreamFork region(gpu_.comm, lanes, gpu_.context.events(), stream.stream());
    program(rank);
    region.join();
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(stream.stream()));
  }

 private:
  GpuRank& gpu_;
  Size m_;
  Size n_;
  Size tile_;
};

// Row-major shards put together by the ranks, one after another.
template <class T>
class Joined {
 public:
  Joined(Size rows, Size cols, int ranks)
      : host_(rows, cols, 0), per_(ceil_div(rows, ranks)), cols_(cols) {}
  void put(int rank, const std::vector<T>& shard) {
    for (Size i = 0; i < per_ && rank * per_ + i < host_.m; ++i) {
      for (Size j = 0; j < cols_; ++j) {
        host_(rank * per_ + i, j) = shard[static_cast<std::size_t>(i * cols_ + j)];
      }
    }
  }
  const HostMatrix<T>& host() const { return host_; }

 private:
  HostMatrix<T> host_;
  Size per_;
  Size cols_;
};

template <class T>
std::vector<T> rows_of(const HostMatrix<T>& a, int rank, int ranks) {
  const Size per = ceil_div(a.m, ranks);
  std::vector<T> shard(static_cast<std::size_t>(per * a.n), T(0));
  for (Size i = 0; i < per && rank * per + i < a.m; ++i) {
    for (Size j = 0; j < a.n; ++j) {
      shard[static_cast<std::size_t>(i * a.n + j)] = a(rank * per + i, j);
    }
  }
  return shard;
}

}  // namespace jaxmg::test
