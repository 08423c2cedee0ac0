// Scaling of a matrix to rows and columns whose largest elements are about 1, by powers of two and
// hence without rounding, for LU in arithmetic with a narrow range of exponents.
//
//   M' = R M D,   P M' Q = L' U'   =>   P M Q = L U
//
// with R' = P R P^T and D' = Q^T D Q:  L = R'^-1 L' R',  U = R'^-1 U' D'^-1, and L is unit lower.
// Where sizes are near 1 already nothing is touched.
#pragma once

#include "algo/rank.h"
#include "core/distribution.h"

namespace jaxmg {

template <class Device, class T>
class UnitRows {
 public:
  using R = Real<T>;

  UnitRows(Rank<Device>& rank, const Distribution& dist)
      : rank_(rank),
        dist_(dist),
        n_(dist.size()),
        scale_(rank.workspace.template get<R>(Buffer::row_scale)),
        inverse_(rank.workspace.template get<R>(Buffer::inverse_scale)),
        needed_(inverse_ + n_ + dist.capacity()) {}

  // a (n x L, ld n) <- R M D.
  void scale(T* a) {
    auto& lane = rank_.lanes.update;
    const Size own = dist_.local_size(rank_.comm.rank());
    Device::template fill<R>(lane, 1, 1, R(0), R(0), needed_, 1);
    Device::template row_max<T>(lane, n_, own, a, n_, scale_);
    auto largest = rank_.comm.all_reduce(lane, scale_, n_, dtype_of<R>, Reduction::max);
    lane.wait(largest);
    Device::template unit_size<R>(lane, n_, scale_, scale_, inverse_, needed_);
    R* const columns = scale_ + n_;
    Device::template column_max<T>(lane, n_, own, scale_, a, n_, columns);
    Device::template unit_size<R>(lane, own, columns, columns, inverse_ + n_, needed_);
    Device::template scale_if<T>(lane, needed_, n_, own, scale_, columns, a, n_);
  }

  // The factors of M in the place of those of M', row i of which belongs to row rows_i of M. Takes
  // the place of a panel.
  void unscale_factors(const std::int32_t* rows, T* a) {
    auto& lane = rank_.lanes.update;
    const int me = rank_.comm.rank();
    // Diagonals of R'^-1 and of R'.
    R* const inverse = rank_.workspace.template get_as<R>(Buffer::panel_even);
    R* const lower = rank_.workspace.template get_as<R>(Buffer::panel_odd);
    Device::template take_columns<R>(lane, 1, n_, rows, 0, n_, inverse_, 1, inverse, 1);
    Device::template take_columns<R>(lane, 1, n_, rows, 0, n_, scale_, 1, lower, 1);
    for (LocalTile t(0); *t < dist_.local_tiles(me); ++t) {
      const Tile tile{me, t};
      const Size first = dist_.eliminated(dist_.step(tile));
      const Size begin = *dist_.begin(t);
      Device::template scale_factors_if<T>(lane, needed_, n_, dist_.rows(tile), first, inverse,
                                           inverse_ + n_ + begin, lower + first, a + begin * n_,
                                           n_);
    }
  }

 private:
  Rank<Device>& rank_;
  const Distribution& dist_;
  Size n_;
  R* scale_;
  R* inverse_;
  R* needed_;  // 0 where nothing has to be scaled; ranks may differ as to their columns
};

}  // namespace jaxmg
