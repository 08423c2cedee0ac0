// Numbers in host memory that a device writes while it works and the host reads meanwhile.
#pragma once

#include <cstdint>
#include <memory>

#include "tile/cuda/lane.h"

namespace jaxmg::tile {

// `count` zeros that every device can write to. May be let go of when no write is under way.
std::shared_ptr<float[]> make_marks(int count);

// *where <- value when all that has been put into the lane before is done. A failure is not told:
// it shows in the next call of the lane.
void set_mark(CudaLane& lane, float* where, float value) noexcept;

// `count` zeros for times, as above.
std::shared_ptr<std::uint64_t[]> make_stamps(int count);

// *where <- the device's time in nanoseconds when all that has been put into the lane before is
// done. The clocks of a host's devices agree to about a microsecond.
void set_stamp(CudaLane& lane, std::uint64_t* where) noexcept;

}  // namespace jaxmg::tile
