// Right-hand sides as a library wants them: each rank has some of them, as columns.
#pragma once

#include <algorithm>

#include "vendor/partner.h"

namespace jaxmg::vendor {

// all (width x ranks * capacity) <- `width` right-hand sides from every rank's rows, of which this
// one's lie at x.
template <class D, class T>
void gather_rows(Rank<D>& rank, const Distribution& dist, Size width, const T* x, Size ldx,
                 T* all) {
  auto& lane = rank.lanes.update;
  const Size count = dist.capacity() * width;
  T* const own = all + rank.comm.rank() * count;
  D::template copy<T>(lane, width, dist.capacity(), x, ldx, own, width);
  auto gathered = rank.comm.all_gather(lane, own, all, count, dtype_of<T>);
  lane.wait(gathered);
}

// Right-hand sides (row-major, whole on every rank or its rows), a block of columns at a time.
template <class D, class T>
class SplitColumns {
 public:
  SplitColumns(Rank<D>& rank, T* x)
      : rank_(rank),
        lane_(rank.lanes.update),
        dist_(contiguous(rank)),
        nrhs_(rank.plan.request().nrhs),
        whole_(rank.plan.request().replicated_rhs),
        x_(x),
        all_(rank.workspace.template get<T>(Buffer::gathered_rhs)),
        mine_(rank.workspace.template get<T>(Buffer::rhs_columns)) {}

  // solve(columns, mine): mine (n x own columns) <- the solution of all ranks' columns together.
  // conj: it is given, and gives, their conjugates.
  template <class Program>
  void run(bool conj, const Program& solve) {
    for (Size first = 0; first < nrhs_; first += rank_.plan.rhs_block()) {
      const Size width = std::min(rank_.plan.rhs_block(), nrhs_ - first);
      const Size tile = ceil_div(width, rank_.comm.size());
      const Size begin = std::min(rank_.comm.rank() * tile, width);
      take(first, width, begin, std::min(tile, width - begin), conj);
      solve(width, mine_);
      give(first, width, tile, conj);
    }
  }

 private:
  // mine <- columns [begin, begin + count) of those from `first` on.
  void take(Size first, Size width, Size begin, Size count, bool conj) {
    const T* rows = x_ + first;
    Size ld = nrhs_;
    if (!whole_) {
      gather_rows<D, T>(rank_, dist_, width, x_ + first, nrhs_, all_);
      rows = all_;
      ld = width;
    }
    D::template transpose<T>(lane_, count, dist_.size(), rows + begin, ld, mine_, dist_.size(),
                             conj);
  }

  // x <- the columns of all ranks, `tile` of each.
  void give(Size first, Size width, Size tile, bool conj) {
    const Size n = dist_.size();
    auto gathered = rank_.comm.all_gather(lane_, mine_, all_, n * tile, dtype_of<T>);
    lane_.wait(gathered);
    const int me = rank_.comm.rank();
    const Size count = whole_ ? n : dist_.local_size(me);
    const Size row = whole_ || count == 0 ? 0 : *dist_.global(me, LocalIndex(0));
    D::template transpose<T>(lane_, count, width, all_ + row, n, x_ + first, nrhs_, conj);
  }

  Rank<D>& rank_;
  typename D::Lane& lane_;
  Distribution dist_;
  Size nrhs_;
  bool whole_;
  T* x_;     // nrhs x n or nrhs x L, read column-major
  T* all_;   // gathered rows, then gathered columns
  T* mine_;  // n x ceil(width / ranks)
};

}  // namespace jaxmg::vendor
