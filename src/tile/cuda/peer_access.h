// Access of GPUs to each other's memory.
#pragma once

#include <vector>

namespace jaxmg::tile {

// Lets each of the devices reach the memory of every other one, where the machine can. Returns
// whether all of them now can, so that kernels may read there; copies between devices work in any
// case, staged by the driver. May be called any number of times. Devices may repeat.
bool enable_peer_access(const std::vector<int>& devices);

}  // namespace jaxmg::tile
