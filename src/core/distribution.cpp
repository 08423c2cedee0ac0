#include "core/distribution.h"

#include <algorithm>
#include <stdexcept>

namespace jaxmg {
namespace {

Size capacity_of(Size n, int ranks, Size tile, Storage storage) {
  if (storage == Storage::contiguous) {
    return ceil_div(n, ranks);
  }
  return ceil_div(ceil_div(n, tile), ranks) * tile;
}

std::vector<Tile> make_order(const Distribution& d, Order order) {
  std::vector<Tile> tiles;
  Size most = 0;
  for (int r = 0; r < d.ranks(); ++r) {
    most = std::max(most, d.local_tiles(r));
  }
  // In cyclic storage round-robin over the ranks is the natural order.
  if (order == Order::natural && d.storage() == Storage::contiguous) {
    for (int r = 0; r < d.ranks(); ++r) {
      for (Size t = 0; t < d.local_tiles(r); ++t) {
        tiles.push_back({r, LocalTile(t)});
      }
    }
    return tiles;
  }
  for (Size t = 0; t < most; ++t) {
    for (int r = 0; r < d.ranks(); ++r) {
      if (t < d.local_tiles(r)) {
        tiles.push_back({r, LocalTile(t)});
      }
    }
  }
  return tiles;
}

}  // namespace

Distribution::Distribution(Size n, int ranks, Size tile, Storage storage, Order order)
    : n_(n), ranks_(ranks), tile_(tile), storage_(storage), capacity_(0) {
  if (n < 0 || ranks < 1 || tile < 1) {
    throw std::invalid_argument("Distribution: n = " + std::to_string(n) + ", ranks = " +
                                std::to_string(ranks) + ", tile = " + std::to_string(tile));
  }
  capacity_ = capacity_of(n, ranks, tile, storage);
  order_ = make_order(*this, order);
  index_order();
}

Distribution::Distribution(const Distribution& like, std::vector<Tile> elimination_order)
    : n_(like.n_),
      ranks_(like.ranks_),
      tile_(like.tile_),
      storage_(like.storage_),
      capacity_(like.capacity_),
      order_(std::move(elimination_order)) {
  if (order_.size() != like.order_.size()) {
    throw std::invalid_argument("Distribution: the elimination order names " +
                                std::to_string(order_.size()) + " tiles of " +
                                std::to_string(like.order_.size()));
  }
  if (storage_ == Storage::cyclic && order_ != like.order_) {
    throw std::invalid_argument("Distribution: cyclic storage is eliminated by global index");
  }
  index_order();
}

void Distribution::index_order() {
  step_.assign(static_cast<std::size_t>(ranks_), {});
  for (int r = 0; r < ranks_; ++r) {
    step_[static_cast<std::size_t>(r)].assign(static_cast<std::size_t>(local_tiles(r)), -1);
  }
  eliminated_.clear();
  Size rows_before = 0;
  for (std::size_t s = 0; s < order_.size(); ++s) {
    const Tile t = order_[s];
    if (t.rank < 0 || t.rank >= ranks_ || *t.local < 0 || *t.local >= local_tiles(t.rank)) {
      throw std::invalid_argument("Distribution: there is no tile " + std::to_string(*t.local) +
                                  " on rank " + std::to_string(t.rank));
    }
    std::vector<Size>& steps = step_[static_cast<std::size_t>(t.rank)];
    const auto place = static_cast<std::size_t>(*t.local);
    if (steps[place] != -1 || (place > 0 && steps[place - 1] == -1)) {
      throw std::invalid_argument("Distribution: the tiles of rank " + std::to_string(t.rank) +
                                  " are not eliminated once each, in local order");
    }
    steps[place] = static_cast<Size>(s);
    eliminated_.push_back(rows_before);
    rows_before += rows(t);
  }
}

Size Distribution::local_size(int rank) const {
  if (storage_ == Storage::contiguous) {
    return std::clamp<Size>(n_ - rank * capacity_, 0, capacity_);
  }
  const Size tiles = ceil_div(n_, tile_);
  const Size mine = tiles > rank ? ceil_div(tiles - rank, ranks_) : 0;
  const bool has_last = tiles > 0 && (tiles - 1) % ranks_ == rank;
  return mine * tile_ - (has_last ? tiles * tile_ - n_ : 0);
}

int Distribution::owner(GlobalIndex g) const {
  if (storage_ == Storage::contiguous) {
    return static_cast<int>(*g / capacity_);
  }
  return static_cast<int>((*g / tile_) % ranks_);
}

LocalIndex Distribution::local(GlobalIndex g) const {
  if (storage_ == Storage::contiguous) {
    return LocalIndex(*g % capacity_);
  }
  return LocalIndex(*g / tile_ / ranks_ * tile_ + *g % tile_);
}

GlobalIndex Distribution::global(int rank, LocalIndex l) const {
  if (storage_ == Storage::contiguous) {
    return GlobalIndex(rank * capacity_ + *l);
  }
  return GlobalIndex((*l / tile_ * ranks_ + rank) * tile_ + *l % tile_);
}

Size Distribution::rows(Tile t) const {
  return std::min(tile_, local_size(t.rank) - *begin(t.local));
}

Step Distribution::step(Tile t) const {
  return Step(step_[static_cast<std::size_t>(t.rank)][static_cast<std::size_t>(*t.local)]);
}

LocalTile Distribution::first_tile_from(Step s, int rank) const {
  const auto& steps = step_[static_cast<std::size_t>(rank)];
  const auto it = std::lower_bound(steps.begin(), steps.end(), *s);
  return LocalTile(it - steps.begin());
}

std::vector<RowRange> Distribution::rows_between(Step s, Step t) const {
  std::vector<RowRange> ranges;
  if (storage_ == Storage::cyclic) {  // rows are eliminated by global index
    const Size count = remaining(s) - remaining(t);
    if (count > 0) {
      ranges.push_back({GlobalIndex(n_ - remaining(s)), count, 0});
    }
    return ranges;
  }
  Size packed = 0;
  for (int r = 0; r < ranks_; ++r) {
    const LocalIndex first = begin(first_tile_from(s, r));
    const LocalIndex last = std::min(begin(first_tile_from(t, r)), LocalIndex(local_size(r)));
    const Size count = last - first;
    if (count <= 0) {
      continue;
    }
    const GlobalIndex g = global(r, first);
    if (!ranges.empty() && ranges.back().begin + ranges.back().count == g) {
      ranges.back().count += count;
    } else {
      ranges.push_back({g, count, packed});
    }
    packed += count;
  }
  return ranges;
}

Size packed_position(std::span<const RowRange> ranges, GlobalIndex g) {
  for (const RowRange& range : ranges) {
    if (range.begin <= g && g < range.begin + range.count) {
      return range.packed + (g - range.begin);
    }
  }
  throw std::out_of_range("row " + std::to_string(*g) + " is not in this panel");
}

}  // namespace jaxmg
