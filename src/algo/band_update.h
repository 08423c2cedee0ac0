// The matrix that is left after a block of panels of a band reduction (band_reduction.h):
//
//   M <- M - X X'^H    at all positions from `first` on
//
// with X and X' of the same columns in pairs the other way round, so that the product is Hermitian.
// One rank makes the lower triangle, by block columns, and its image, or all of it where one such
// block would be. Several ranks have columns each; where the matrix is large enough for its
// products to take longer than its way to other ranks, they make what lies in or below the blocks
// of the diagonal and send each other the images.
#pragma once

#include <algorithm>
#include <vector>

#include "algo/elimination_rows.h"
#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class BandUpdate {
 public:
  BandUpdate(Rank<Device>& rank, const Distribution& dist, T* a)
      : rank_(rank),
        lane_(rank.lanes.update),
        dist_(dist),
        rows_(dist),
        me_(rank.comm.rank()),
        n_(dist.size()),
        own_(dist.local_size(me_)),
        width_(2 * rank.plan.group() * dist.tile_size()),
        a_(a),
        x_(rank.workspace.template get<T>(Buffer::reflector_rows)),
        x_own_(rank.workspace.template get<T>(Buffer::reflector_own_rows)) {}

  // X has `used` columns. They may be gone afterwards.
  void apply(Size first, Size used) {
    if (first >= n_) {
      return;
    }
    const Size left = n_ - first;
    if (rank_.comm.size() == 1) {
      const Size width = std::max(
          {width_ / 2, round_up(left / 8, dist_.tile_size()), Device::least_update_columns});
      if (width >= left) {
        return multiply(first, n_, used);
      }
      for (Size c = first; c < n_; c += width) {
        multiply(c, std::min(c + width, n_), used);
      }
      return Device::template mirror<T>(lane_, left, a_ + first * n_ + first, n_);
    }
    if (left < Device::template mirrored_rows<T> || left <= 2 * width_) {
      return multiply(first, n_, used);
    }
    for (Size c = first; c < n_; c += width_) {
      multiply(c, std::min(c + width_, n_), used);
    }
    for (Size c = first; c + width_ < n_; c += width_) {
      mirror(c, c + width_);
    }
  }

 private:
  // Own columns at positions from .. to - 1, rows from `from` on.
  void multiply(Size from, Size to, Size used) {
    const Size first = rows_.first_local(me_, from), last = rows_.first_local(me_, to);
    Device::template gemm<T>(lane_, Op::none, Op::conj_transpose, n_ - from, last - first, used,
                             T(-1), x_ + from, n_, x_own_ + first, own_, T(1),
                             a_ + first * n_ + from, n_);
  }

  // Columns from .. to - 1, in which all ranks have some, to rows from .. to - 1: each rank gets
  // those of its later columns. The places of X and X' hold what is sent and what has come.
  void mirror(Size from, Size to) {
    const auto ranks = static_cast<std::size_t>(rank_.comm.size());
    std::vector<Size> sent(ranks, 0), sent_at(ranks, 0), received(ranks, 0), received_at(ranks, 0);
    const Size begin = rows_.first_local(me_, from), end = rows_.first_local(me_, to);
    const Size rows = own_ - end;
    Size place = 0;
    for (int r = 0; r < rank_.comm.size(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      received_at[i] = place;
      received[i] = rows * (rows_.first_local(r, to) - rows_.first_local(r, from));
      place += received[i];
    }
    place = 0;
    for (int r = 0; r < rank_.comm.size(); ++r) {
      const auto i = static_cast<std::size_t>(r);
      const Size theirs = rows_.first_local(r, to), count = dist_.local_size(r) - theirs;
      T* const target = r == me_ ? x_own_ + received_at[i] : x_ + place;
      for (const LocalRun& run : rows_.runs(r, theirs)) {
        Device::template copy_blocks<T>(lane_, run.rows, end - begin, run.count,
                                        a_ + begin * n_ + run.position, n_, run.stride,
                                        target + run.local - theirs, count, run.rows);
      }
      if (r == me_) {
        received[i] = 0;
        continue;
      }
      sent_at[i] = place;
      sent[i] = count * (end - begin);
      place += sent[i];
    }
    auto moved = rank_.comm.all_to_all_v(lane_, x_, sent, sent_at, x_own_, received, received_at,
                                         dtype_of<T>);
    lane_.wait(moved);
    for (int r = 0; r < rank_.comm.size(); ++r) {
      const Size first = rows_.first_local(r, from);
      const T* const source = x_own_ + received_at[static_cast<std::size_t>(r)];
      for (const LocalRun& run : rows_.runs(r, first, rows_.first_local(r, to))) {
        Device::template transpose_blocks<T>(
            lane_, rows, run.rows, run.count, source + (run.local - first) * rows, rows,
            run.rows * rows, a_ + end * n_ + run.position, n_, run.stride, true);
      }
    }
  }

  Rank<Device>& rank_;
  typename Device::Lane& lane_;
  const Distribution& dist_;
  EliminationRows rows_;
  int me_;
  Size n_;
  Size own_;
  Size width_;  // columns that X has room for; of blocks of the diagonal
  T* a_;
  T* x_;      // n x width
  T* x_own_;  // own x width
};

}  // namespace jaxmg
