// Numbers in host memory that a device writes while it works and the host reads meanwhile.
#pragma once

#include <memory>

#include "tile/cuda/lane.h"

namespace jaxmg::tile {

// `count` zeros that every device can write to. May be let go of when no write is under way.
std::shared_ptr<float[]> make_marks(int count);

// *where <- value when all that has been put into the lane before is done. A failure is not told:
// it shows in the next call of the lane.
void set_mark(CudaLane& lane, float* where, float value) noexcept;

}  // namespace jaxmg::tile
