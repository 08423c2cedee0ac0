// Rows of a Distribution by their position in the elimination order, where that need not be the
// beginning of a tile.
#pragma once

#include <algorithm>
#include <vector>

#include "core/distribution.h"

namespace jaxmg {

// `count` pieces of `rows` rows of a rank, which follow each other there and lie `stride` positions
// apart in the order of elimination.
struct LocalRun {
  Size local = 0;
  Size position = 0;
  Size rows = 0;
  Size count = 0;
  Size stride = 0;
};

class EliminationRows {
 public:
  // `dist` must outlive this.
  explicit EliminationRows(const Distribution& dist) : dist_(dist) {}

  // First row of `rank` at position p or later (its local size if there is none). The rows from
  // there on are those of the rank at such positions.
  Size first_local(int rank, Size p) const {
    if (p >= dist_.size()) {
      return dist_.local_size(rank);
    }
    const Step s = step_at(p);
    const LocalTile t = dist_.first_tile_from(s, rank);
    Size first = *dist_.begin(t);
    if (*t < dist_.local_tiles(rank) && dist_.step({rank, t}) == s) {
      first += p - dist_.eliminated(s);
    }
    return std::min(first, dist_.local_size(rank));
  }

  // Rows of `rank` from local row `first` on, or those before `end` of them.
  std::vector<LocalRun> runs(int rank, Size first) const {
    return runs(rank, first, dist_.local_size(rank));
  }
  std::vector<LocalRun> runs(int rank, Size first, Size end) const {
    std::vector<LocalRun> found;
    while (first < end) {
      const Tile tile{rank, dist_.tile_of(LocalIndex(first))};
      const Size skipped = first - *dist_.begin(tile.local);
      const Size rows = std::min(dist_.rows(tile) - skipped, end - first);
      const Size position = dist_.eliminated(dist_.step(tile)) + skipped;
      LocalRun* const last = found.empty() ? nullptr : &found.back();
      if (last != nullptr && last->count == 1 && last->rows == rows) {
        last->stride = position - last->position;
      }
      if (last != nullptr && last->rows == rows &&
          last->position + last->count * last->stride == position) {
        ++last->count;
      } else {
        found.push_back({first, position, rows, 1, rows});
      }
      first += rows;
    }
    return found;
  }

 private:
  // The step that eliminates position p < n.
  Step step_at(Size p) const {
    Size low = 0, high = dist_.steps();
    while (high - low > 1) {
      const Size middle = (low + high) / 2;
      (dist_.eliminated(Step(middle)) <= p ? low : high) = middle;
    }
    return Step(low);
  }

  const Distribution& dist_;
};

}  // namespace jaxmg
