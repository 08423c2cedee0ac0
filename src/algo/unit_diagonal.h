// Scaling of a Hermitian matrix to a diagonal of about 1, by powers of two and hence without
// rounding, for arithmetic with a narrow range of exponents.
//
//   M' = D M D,  d_i = 2^-round(log2(m_ii) / 2);   M' = L' L'^H  =>  M = L L^H with L = D^-1 L'
//   B' = B D,                              Y' = B' L'^-H  =  B L^-H = Y
//
// Where all of the diagonal is near 1 already, D = 1 and nothing is touched. How near that has to
// be follows from what is made of a number x of a panel, which is fp16(2^10 x) and what that
// leaves, likewise rounded:
//
//   |l_ij| <= sqrt(m_ii), and parts of either sign of it do not overflow up to 65504 / 2^10
//   = 63.97; what is lost of an l_ij below half precision's normal range is at most 2^-35.
//
// With all d_i between 2^-5 and 2^4, sqrt(m_ii) is from 2^-4.5 to 2^5.5 = 45.3. That leaves
// rounding room for a factor of 1.4, and the loss is 2^-30.5 sqrt(m_ii) at most, while the 22 bits
// of the parts leave 2^-23 |l_ij|. Numbers of one row are compared with each other alone, so that
// rows of different sizes within these bounds need nothing more; Re and Im of a complex number are
// bounded by the same, and it is these alone that become halves (Re + Im would not fit).
#pragma once

#include "algo/diagonal_tiles.h"
#include "algo/rank.h"
#include "core/distribution.h"

namespace jaxmg {

template <class Device, class T>
class UnitDiagonal {
 public:
  using R = Real<T>;

  UnitDiagonal(Rank<Device>& rank, const Distribution& dist)
      : rank_(rank),
        dist_(dist),
        scale_(rank.workspace.template get<R>(Buffer::row_scale)),
        inverse_(rank.workspace.template get<R>(Buffer::inverse_scale)),
        needed_(inverse_ + dist.capacity() * dist.ranks()) {}

  // a (n x L, ld n) <- D M D, on and below the diagonal tiles of the elimination order: all that a
  // factorisation reads.
  void scale(T* a) {
    auto& lane = rank_.lanes.update;
    const int me = rank_.comm.rank();
    const Size n = dist_.size();
    const Size own = dist_.local_size(me);
    const Size capacity = dist_.capacity();
    // Every rank's part, in rank order, is what all need: rows are contiguous.
    R* const mine = scale_ + me * capacity;
    Device::template unit_scale<T>(lane, own, a + (own > 0 ? first() : 0), n + 1, mine);
    auto gathered = rank_.comm.all_gather(lane, mine, scale_, capacity, dtype_of<R>);
    lane.wait(gathered);
    Device::template judge_scales<R>(lane, n, kLeast, kMost, scale_, inverse_, needed_);
    scale_lower(scale_, own > 0 ? scale_ + first() : nullptr, a);
  }

  // b (m x L) <- B D, after scale().
  void scale_rhs(Size m, T* b) {
    const int me = rank_.comm.rank();
    Device::template scale<T>(rank_.lanes.update, m, dist_.local_size(me), nullptr,
                              scale_ + me * dist_.capacity(), b, m);
  }

  // L in the place of L', on and below the diagonal tiles.
  void unscale_factor(T* a) { scale_lower(inverse_, nullptr, a); }

  // Inverses of the diagonal tiles of L in the place of those of L':  L^-1 = L'^-1 D
  void unscale_inverses(T* inverse) {
    for_each_diagonal_tile(
        dist_, rank_.comm.rank(), inverse, inverse, [&](Tile tile, const T*, T* block) {
          const Size w = dist_.rows(tile);
          Device::template scale_if<T>(rank_.lanes.update, needed_, w, w, nullptr,
                                       scale_ + *dist_.global_begin(tile), block,
                                       dist_.tile_size());
        });
  }

 private:
  static constexpr R kLeast = R(0x1p-5);
  static constexpr R kMost = R(0x1p4);

  // By rows and, unless null, by own columns.
  void scale_lower(const R* rows, const R* columns, T* a) {
    const int me = rank_.comm.rank();
    const Size n = dist_.size();
    for (LocalTile t(0); *t < dist_.local_tiles(me); ++t) {
      const Tile tile{me, t};
      const Size begin = *dist_.begin(t);
      for (const RowRange& r : dist_.rows_from(dist_.step(tile))) {
        Device::template scale_if<T>(rank_.lanes.update, needed_, r.count, dist_.rows(tile),
                                     rows + *r.begin, columns ? columns + begin : nullptr,
                                     a + begin * n + *r.begin, n);
      }
    }
  }

  Size first() const { return *dist_.global(rank_.comm.rank(), LocalIndex(0)); }

  Rank<Device>& rank_;
  const Distribution& dist_;
  R* scale_;
  R* inverse_;
  R* needed_;  // 0 where nothing has to be scaled: the same on all ranks
};

}  // namespace jaxmg
