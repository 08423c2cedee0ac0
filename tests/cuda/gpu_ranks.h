// Runs a rank program on host threads, one a rank, over the GPUs of this machine.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/cuda/peer_communicator.h"
#include "tile/cuda/device_context.h"

namespace jaxmg::test {

struct GpuRank {
  PeerCommunicator& comm;
  tile::DeviceContext& context;

  // Calls f on one rank after the other, when all have come.
  template <class F>
  void in_turn(const F& f) const {
    for (int turn = 0; turn < comm.size(); ++turn) {
      comm.barrier();
      if (turn == comm.rank()) {
        f();
      }
    }
  }
};

using GpuProgram = std::function<void(GpuRank&)>;

// Rank r runs on device r mod devices. direct: let kernels read peers' memory, if they can. What a
// rank throws aborts the others and is returned, "" if none did.
inline std::vector<std::string> collect_gpu_ranks(
    int ranks, int devices, bool direct, const GpuProgram& program,
    std::chrono::seconds limit = std::chrono::seconds(60)) {
  std::vector<int> ordinals;
  for (int r = 0; r < ranks; ++r) {
    ordinals.push_back(r % devices);
  }
  const auto set = tile::DeviceSet::get(ordinals);
  std::vector<tile::CudaStaging*> staging;
  for (int r = 0; r < ranks; ++r) {
    staging.push_back(&set->context(r).staging());
  }
  auto comms = make_peer_communicators(ordinals, staging, direct && set->direct(), limit);
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto i = static_cast<std::size_t>(r);
      try {
        const tile::DeviceGuard guard(ordinals[i]);
        set->context(r).lanes().set_alone(set->alone(r));
        GpuRank rank{*comms[i], set->context(r)};
        program(rank);
        check_team(*comms[i]);
        comms[i]->barrier();
        JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
      } catch (const std::exception& e) {
        errors[i] = e.what();
        abort_team(*comms[i], "rank " + std::to_string(r) + " failed: " + e.what());
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return errors;
}

inline void run_gpu_ranks(int ranks, int devices, bool direct, const GpuProgram& program) {
  for (const std::string& error : collect_gpu_ranks(ranks, devices, direct, program)) {
    if (!error.empty()) {
      throw std::runtime_error(error);
    }
  }
}

}  // namespace jaxmg::test
