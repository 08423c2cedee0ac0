// Sign and logarithm of the determinant from an LU factor.
#pragma once

#include <limits>
#include <vector>

#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

// Whether the elimination order is an odd permutation of the natural order: it is even if the
// number of elements less that of cycles is.
inline bool is_odd_order(const Distribution& dist) {
  std::vector<Size> image;  // place in the elimination order -> index
  for (const Tile tile : dist.elimination_order()) {
    for (Size i = 0; i < dist.rows(tile); ++i) {
      image.push_back(*dist.global_begin(tile) + i);
    }
  }
  bool odd = false;
  for (std::size_t i = 0; i < image.size(); ++i) {
    while (image[i] != static_cast<Size>(i)) {
      std::swap(image[i], image[static_cast<std::size_t>(image[i])]);
      odd = !odd;
    }
  }
  return odd;
}

// *phase <- det A / |det A|, *log <- log |det A| on every rank (both in the data's memory), so that
// a singular matrix has 0 and -infinity; NaN for input that is not finite.
//
//   det A = sign(P) sign(Q) product of u_ii
template <class Device, class T>
void lu_determinant(Rank<Device>& rank, const T* lu, const std::int32_t* pivots, const Info* info,
                    T* phase, Real<T>* log) {
  using R = Real<T>;
  const Distribution dist = rank.plan.distribution();
  const int me = rank.comm.rank();
  const Size n = dist.size();
  auto& lane = rank.lanes.update;
  T* const phases = rank.workspace.template get<T>(Buffer::phases);
  const T sign(is_odd_order(dist) ? R(-1) : R(1));
  Device::template fill<R>(lane, 1, 1, R(0), R(0), log, 1);
  Device::template fill<T>(lane, 1, 1, T(1), T(1), phase, 1);
  for (LocalTile t(0); *t < dist.local_tiles(me); ++t) {
    const Tile tile{me, t};
    const T* const diagonal = lu + *dist.begin(t) * n + dist.eliminated(dist.step(tile));
    Device::template log_phase<T>(lane, dist.rows(tile), diagonal, n + 1, log, phase);
  }
  auto summed = rank.comm.all_reduce(lane, log, 1, dtype_of<R>, Reduction::sum);
  lane.wait(summed);
  auto gathered = rank.comm.all_gather(lane, phase, phases, 1, dtype_of<T>);
  lane.wait(gathered);
  // Numbers of magnitude 1, whose logarithms are rounding errors at most, or 0.
  Device::template fill<T>(lane, 1, 1, sign, sign, phase, 1);
  Device::template log_phase<T>(lane, rank.comm.size(), phases, 1, log, phase);
  Device::template pivot_sign<T>(lane, n, pivots, phase);
  // After a zero pivot the rest of U may be anything.
  Device::template fill_if_kind<T>(lane, info, Kind::singular, 1, 1, T(0), phase, 1);
  Device::template fill_if_kind<R>(lane, info, Kind::singular, 1, 1,
                                   -std::numeric_limits<R>::infinity(), log, 1);
  const R nan = std::numeric_limits<R>::quiet_NaN();
  Device::template fill_if_kind<T>(lane, info, Kind::non_finite, 1, 1, T(nan), phase, 1);
  Device::template fill_if_kind<R>(lane, info, Kind::non_finite, 1, 1, nan, log, 1);
}

}  // namespace jaxmg
