// Multiprocessors for panels while trailing updates run.
//
// A panel is many small kernels one after the other. Products of half-precision parts run as one
// block on each multiprocessor from beginning to end, whatever the priority of others, so that a
// panel would wait for the whole of one; blocks of other products end sooner, but a panel waits for
// some of them at each of its kernels.
#include <algorithm>

#include "tile/cuda/cuda.h"
#include "tile/cuda/lu_base.h"

namespace jaxmg::tile {
namespace {

// Up to here native updates are so short that the chain of panels decides.
constexpr Size kChainBound = 24576;

// Operations a second, counted as for real numbers, of products on all multiprocessors of an H200.
template <class T>
double product_speed(bool split) {
  return split ? (is_complex_v<T> ? 47e12 : 187e12) : is_complex_v<T> ? 14e12 : 54e12;
}

// What a panel of that height takes a column there, on the multiprocessors left to it: the narrower
// its bases, the longer.
template <class T>
double panel_seconds(const CudaLane& lane, Size m) {
  const int width = lu_base_width<T>(lane, m);
  return width == 32 ? 4e-6 : width == 16 ? 6e-6 : 9e-6;
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
  const double seconds = 2.0 * static_cast<double>(m) * static_cast<double>(k) /
                         product_speed<T>(split) * static_cast<double>(all) /
                         static_cast<double>(open);
  const double panel = panel_seconds<T>(lanes.panel, m) * static_cast<double>(k);
  const double columns = panel / std::max(seconds, 1e-30);
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
