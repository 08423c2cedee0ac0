// Multiprocessors for panels while trailing updates run.
//
// A panel is many small kernels one after the other. Products of half-precision parts run as one
// block on each multiprocessor from beginning to end, whatever the priority of others, so that a
// panel would wait for the whole of one; blocks of other products end sooner, but a panel waits for
// some of them at each of its kernels.
#include <algorithm>

#include "tile/cuda/cuda.h"

namespace jaxmg::tile {
namespace {

// Up to here native updates are so short that the chain of panels decides.
constexpr Size kChainBound = 24576;

// Measured on an H200: what a panel takes a column on the multiprocessors left to it, and products
// on all of them.
struct Speed {
  double panel;  // seconds
  double flops;  // real operations a second
};
template <class T>
Speed speed_of(bool split) {
  if (split) {
    return {9e-6, 187e12};
  }
  return {4e-6, is_complex_v<T> ? 14e12 : 54e12};  // a complex one is four
}

}  // namespace

void Cuda::share_with_panels(Lanes& lanes, bool share) {
  lanes.panel.set_blocks(share ? lanes.reserve() : 0);
}

void Cuda::leave_room(Lanes& lanes, bool room) {
  lanes.update.leave_room(room ? lanes.reserve() : 0);
}

template <class T>
Size Cuda::columns_beside_panel(Lanes& lanes, bool split, Size order, Size m, Size k, Size n) {
  const int all = lanes.update.multiprocessors();
  const int open = all - lanes.reserve();
  if (lanes.reserve() <= 0 || open <= 0 || (!split && order > kChainBound)) {
    return 0;
  }
  const Speed speed = speed_of<T>(split);
  const double seconds = 2.0 * static_cast<double>(m) * static_cast<double>(k) / speed.flops *
                         static_cast<double>(all) / static_cast<double>(open);
  const double columns = speed.panel * static_cast<double>(k) / std::max(seconds, 1e-30);
  return columns >= static_cast<double>(n) ? n
                                           : std::min(n, round_up(static_cast<Size>(columns), 128));
}

#define JAXMG_INSTANTIATE(T) \
  template Size Cuda::columns_beside_panel<T>(Lanes&, bool, Size, Size, Size, Size);
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
