// Scaling of a Hermitian matrix to a diagonal of about 1, by powers of two and hence without
// rounding, for arithmetic with a narrow range of exponents.
//
//   M' = D M D,  d_i = 2^-round(log2(m_ii) / 2);   M' = L' L'^H  =>  M = L L^H with L = D^-1 L'
//   B' = B D,                              Y' = B' L'^-H  =  B L^-H = Y
#pragma once

#include "algo/rank.h"
#include "core/distribution.h"

namespace jaxmg {

template <class Device, class T>
class UnitDiagonal {
 public:
  UnitDiagonal(Rank<Device>& rank, const Distribution& dist)
      : rank_(rank),
        dist_(dist),
        scale_(rank.workspace.template get<Real<T>>(Buffer::row_scale)),
        inverse_(rank.workspace.template get<Real<T>>(Buffer::inverse_scale)) {}

  // a (n x L, ld n) <- D M D.
  void scale(T* a) {
    auto& lane = rank_.lanes.update;
    const int me = rank_.comm.rank();
    const Size n = dist_.size();
    const Size own = dist_.local_size(me);
    const Size capacity = dist_.capacity();
    // Every rank's part, in rank order, is what all need: rows are contiguous.
    Real<T>* const mine = scale_ + me * capacity;
    Real<T>* const my_inverse = inverse_ + me * capacity;
    Device::template unit_scale<T>(lane, own, a + (own > 0 ? first() : 0), n + 1, mine, my_inverse);
    for (Real<T>* whole : {scale_, inverse_}) {
      auto gathered =
          rank_.comm.all_gather(lane, whole + me * capacity, whole, capacity, dtype_of<Real<T>>);
      lane.wait(gathered);
    }
    Device::template scale<T>(lane, n, own, scale_, mine, a, n);
  }

  // b (m x L) <- B D, after scale().
  void scale_rhs(Size m, T* b) {
    const int me = rank_.comm.rank();
    Device::template scale<T>(rank_.lanes.update, m, dist_.local_size(me), nullptr,
                              scale_ + me * dist_.capacity(), b, m);
  }

  // What a factorisation of the scaled matrix left, as if it had not been scaled: L in the tiles
  // on and below the diagonal of the elimination order, M above it.
  void unscale_factor(T* a) {
    auto& lane = rank_.lanes.update;
    const int me = rank_.comm.rank();
    const Size n = dist_.size();
    for (LocalTile t(0); *t < dist_.local_tiles(me); ++t) {
      const Tile tile{me, t};
      T* const columns = a + *dist_.begin(t) * n;
      const Real<T>* const own = inverse_ + first() + *dist_.begin(t);
      for (const RowRange& r : dist_.rows_from(dist_.step(tile))) {
        Device::template scale<T>(lane, r.count, dist_.rows(tile), inverse_ + *r.begin, nullptr,
                                  columns + *r.begin, n);
      }
      for (const RowRange& r : dist_.rows_between(Step(0), dist_.step(tile))) {
        Device::template scale<T>(lane, r.count, dist_.rows(tile), inverse_ + *r.begin, own,
                                  columns + *r.begin, n);
      }
    }
  }

 private:
  Size first() const { return *dist_.global(rank_.comm.rank(), LocalIndex(0)); }

  Rank<Device>& rank_;
  const Distribution& dist_;
  Real<T>* scale_;
  Real<T>* inverse_;
};

}  // namespace jaxmg
