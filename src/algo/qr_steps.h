// The geometry of a QR factorisation whose rows lie on ranks and stay there.
//
// A is m x n, k = min(m, n). Step s takes the columns [first, first + width) and eliminates below
// the first `width` rows of the tile that the Distribution of the m rows names for it: tiles go
// round the ranks, so that the rows that are left are spread evenly. The order of rows is free in
// a QR factorisation; columns are taken as they come. Row i of R lies where the i-th eliminated row
// of A lay.
#pragma once

#include <algorithm>

#include "core/distribution.h"
#include "core/plan.h"

namespace jaxmg {

struct QrStep {
  Tile tile;
  Size first = 0;
  Size width = 0;
};

class QrSteps {
 public:
  explicit QrSteps(const Plan& plan)
      : dist_(plan.distribution()),
        columns_(plan.request().columns),
        rank_(std::min(plan.request().n, columns_)) {
    while (count_ < dist_.steps() && dist_.eliminated(Step(count_)) < rank_) {
      ++count_;
    }
  }

  const Distribution& distribution() const { return dist_; }
  int ranks() const { return dist_.ranks(); }
  Size rows() const { return dist_.size(); }
  Size columns() const { return columns_; }
  Size rank() const { return rank_; }  // min(m, n): rows of R
  Size tile_size() const { return dist_.tile_size(); }
  Size count() const { return count_; }

  QrStep step(Size s) const {
    const Tile tile = dist_.tile(Step(s));
    const Size first = dist_.eliminated(Step(s));
    return {tile, first, std::min(dist_.rows(tile), rank_ - first)};
  }
  // The first local row of a rank that is left when step s begins, and how many there are. The
  // rows that step s eliminates to are the first of these on their rank.
  Size begin(Size s, int rank) const {
    return std::min(*dist_.begin(dist_.first_tile_from(Step(s), rank)), dist_.local_size(rank));
  }
  Size remaining(Size s, int rank) const { return dist_.local_size(rank) - begin(s, rank); }

 private:
  Distribution dist_;
  Size columns_;
  Size rank_;
  Size count_ = 0;
};

}  // namespace jaxmg
