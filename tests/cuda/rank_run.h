// Rank programs on GPUs as the engine calls them: scratch from a plan, lanes bound to it.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <vector>

#include "algo/rank.h"
#include "check.h"
#include "comm/cuda/stream_fork.h"
#include "gpu_ranks.h"
#include "tile/cuda/cuda.h"

namespace jaxmg::test {

// One rank's buffers and its calls.
template <class T>
class RankRun {
 public:
  RankRun(GpuRank& gpu, Size n, Size tile, Triangle valid = Triangle::whole, Size group = 0,
          Precision precision = Precision::native, Size parts = 0)
      : gpu_(gpu),
        n_(n),
        tile_(tile),
        valid_(valid),
        group_(group),
        precision_(precision),
        parts_(parts) {
    gpu_.context.prepare(dtype_of<T>, tile::Kernels::common);
    gpu_.context.prepare(dtype_of<T>, tile::Kernels::lu);
  }

  PlanRequest request(Routine routine) const {
    PlanRequest q;
    q.routine = routine;
    q.type = dtype_of<T>;
    q.n = n_;
    q.ranks = gpu_.comm.size();
    q.tile = tile_;
    q.group = group_;
    q.parts = parts_;
    q.precision = precision_;
    q.platform = Platform::cuda;
    q.mirror = valid_ != Triangle::whole;
    q.library_bytes =
        gpu_.context.lanes().library_bytes(dtype_of<T>, Plan(q).tile(), {.lu = lu_rows(routine)});
    return q;
  }

  // Runs a rank program with scratch that is full of NaN, between a fork and a join of the stream.
  // Returns the seconds from where all ranks begin it to its end on the device.
  template <class Program>
  double call(const PlanRequest& q, Program program) {
    const Plan plan(q);
    tile_ = plan.tile();
    DeviceArray<char> scratch(std::max<Size>(1, plan.scratch_bytes()));
    JAXMG_CUDA_CHECK(cudaMemset(scratch.get(), 0xff, scratch.bytes()));
    JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
    auto& lanes = gpu_.context.lanes();
    const Entry library = plan.entry(Buffer::library);
    lanes.bind(scratch.get() + library.offset, library.bytes(), dtype_of<T>, tile_,
               {.lu = lu_rows(q.routine)});
    Observer observer;
    Rank<tile::Cuda> rank{gpu_.comm, lanes, plan, Workspace(plan, scratch.get()), observer};
    tile::CudaLane stream(tile::StreamPriority::lowest, std::make_shared<tile::EventPool>());
    StreamFork region(gpu_.comm, lanes, gpu_.context.events(), stream.stream());
    gpu_.comm.barrier();
    const auto begin = std::chrono::steady_clock::now();
    program(rank);
    region.join();
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(stream.stream()));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

  Size tile() const { return tile_; }

 private:
  Size lu_rows(Routine routine) const { return factors_by_lu(routine) ? n_ : 0; }

  GpuRank& gpu_;
  Size n_;
  Size tile_;
  Triangle valid_;
  Size group_;
  Precision precision_;
  Size parts_;
};

template <class T>
std::vector<T> shard_of(const Matrix<T>& a, const Distribution& dist, int rank) {
  std::vector<T> shard(static_cast<std::size_t>(dist.capacity() * a.cols), T(0));
  for (Size i = 0; i < dist.local_size(rank); ++i) {
    const Size row = *dist.global(rank, LocalIndex(i));
    std::copy_n(a.data.begin() + row * a.cols, a.cols, shard.begin() + i * a.cols);
  }
  return shard;
}

}  // namespace jaxmg::test
