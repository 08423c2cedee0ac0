// Runs the rank program of a plan on any device.
#pragma once

#include <cstddef>
#include <vector>

#include "algo/rank.h"
#include "core/plan.h"
#include "run_ranks.h"
#include "tile/cpu/cpu.h"

namespace jaxmg::test {

// How programs run on the ranks of a device: for the others see their headers.
template <class Device>
struct OnRanks;

template <>
struct OnRanks<tile::Cpu> {
  static constexpr Platform platform = Platform::cpu;
  static void run(int ranks, const RankProgram& program) { run_ranks(ranks, program); }
};

// The end of a program, for devices whose lanes run on: work in them is over.
inline void settle(tile::CpuLanes&) {}

// program(rank, number of the rank), with scratch that holds NaN whatever its type.
template <class Device, class Program>
void run_plan(const Plan& plan, const Program& program) {
  OnRanks<Device>::run(plan.request().ranks, [&](Communicator<Device>& comm,
                                                 typename Device::Lanes& lanes) {
    std::vector<std::byte> scratch(static_cast<std::size_t>(plan.scratch_bytes()), std::byte{0xff});
    Observer observer;
    Rank<Device> rank{comm, lanes, plan, Workspace(plan, scratch.data()), observer};
    program(rank, static_cast<std::size_t>(comm.rank()));
    settle(lanes);
    comm.barrier();
  });
}

}  // namespace jaxmg::test
