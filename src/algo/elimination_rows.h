// Rows of a Distribution by their position in the elimination order, where that need not be the
// beginning of a tile.
#pragma once

#include <algorithm>
#include <vector>

#include "core/distribution.h"

namespace jaxmg {

class EliminationRows {
 public:
  // `dist` must outlive this.
  explicit EliminationRows(const Distribution& dist) : dist_(dist) {}

  // Consecutive rows of the matrix at consecutive positions.
  struct Piece {
    GlobalIndex row;
    Size position = 0;
    Size count = 0;
  };

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

  // Rows at position p or later, in the order of the matrix; `packed` counts them.
  std::vector<RowRange> from(Size p) const {
    std::vector<RowRange> ranges;
    Size packed = 0;
    for (int r = 0; r < dist_.ranks(); ++r) {
      const Size first = first_local(r, p);
      const Size count = dist_.local_size(r) - first;
      if (count <= 0) {
        continue;
      }
      const GlobalIndex g = dist_.global(r, LocalIndex(first));
      if (!ranges.empty() && ranges.back().begin + ranges.back().count == g) {
        ranges.back().count += count;
      } else {
        ranges.push_back({g, count, packed});
      }
      packed += count;
    }
    return ranges;
  }

  // Rows at positions p .. q - 1, in the order of elimination.
  std::vector<Piece> between(Size p, Size q) const {
    std::vector<Piece> pieces;
    q = std::min(q, dist_.size());
    while (p < q) {
      const Step s = step_at(p);
      const Tile tile = dist_.tile(s);
      const Size skipped = p - dist_.eliminated(s);
      const Size count = std::min(q - p, dist_.rows(tile) - skipped);
      pieces.push_back({dist_.global_begin(tile) + skipped, p, count});
      p += count;
    }
    return pieces;
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
