// How the rows of an n-row matrix lie on the ranks, how they are cut in tiles, and in which order
// the tiles are eliminated. A value: no data, no communicator, no device.
#pragma once

#include <span>
#include <vector>

#include "core/index.h"
#include "core/types.h"

namespace jaxmg {

// Where the rows lie.
enum class Storage {
  contiguous,  // rank r holds rows [r L, (r+1) L), L = ceil(n / ranks): a row-sharded jax.Array
  cyclic,      // global tile t lies on rank t mod ranks, as its local tile t div ranks
};

// In which order the tiles are eliminated.
enum class Order {
  relabelled,  // local tile 0 of rank 0, of rank 1, ..., local tile 1 of rank 0, ...: the load
               // balance of a block-cyclic layout with no element moved
  natural,     // by global index
};

// A run of consecutive rows, and where it starts in a packed panel.
struct RowRange {
  GlobalIndex begin;
  Size count = 0;
  Size packed = 0;
  bool operator==(const RowRange&) const = default;
};

// Conversions. With n = 10, 3 ranks, tile 2, contiguous, relabelled (L = 4):
//
//   global row        0 1 | 2 3 || 4 5 | 6 7 || 8 9
//   rank              0   | 0   || 1   | 1   || 2
//   local tile        0   | 1   || 0   | 1   || 0
//   elimination step  0   | 3   || 1   | 4   || 2
//
//   from                 to                     member
//   -------------------  ---------------------  -----------------------------------------
//   global element       rank                   owner(g)
//   global element       local element          local(g)
//   rank, local element  global element         global(rank, l)
//   local element        local tile             tile_of(l)
//   tile                 local element (first)  begin(tile)
//   tile                 global element (first) global_begin(tile)
//   tile                 number of rows         rows(tile)
//   step                 tile                   tile(step)
//   tile                 step                   step(tile)
//   step                 rows eliminated before eliminated(step)
//   step                 rows eliminated at it rows_from(step), remaining(step)
//                        or later, as ranges
//
// n need not be divisible by anything: trailing ranks may hold fewer rows or none, and the last
// tile of each rank (contiguous) or of the matrix (cyclic) may be narrower.
class Distribution {
 public:
  Distribution(Size n, int ranks, Size tile, Storage storage = Storage::contiguous,
               Order order = Order::relabelled);

  // The same rows and tiles, eliminated in the order given: used when rows have been appended.
  // Each rank's tiles must come in local order, and in cyclic storage all in global order.
  Distribution(const Distribution& like, std::vector<Tile> elimination_order);

  Size size() const { return n_; }
  int ranks() const { return ranks_; }
  Size tile_size() const { return tile_; }
  Storage storage() const { return storage_; }
  Size steps() const { return static_cast<Size>(order_.size()); }
  std::span<const Tile> elimination_order() const { return order_; }

  // Rows that every rank has room for, and rows that it really holds.
  Size capacity() const { return capacity_; }
  Size local_size(int rank) const;
  Size local_tiles(int rank) const { return ceil_div(local_size(rank), tile_); }
  Size capacity_tiles() const { return ceil_div(capacity_, tile_); }

  int owner(GlobalIndex g) const;
  LocalIndex local(GlobalIndex g) const;
  GlobalIndex global(int rank, LocalIndex l) const;

  LocalTile tile_of(LocalIndex l) const { return LocalTile(*l / tile_); }
  LocalIndex begin(LocalTile t) const { return LocalIndex(*t * tile_); }
  GlobalIndex global_begin(Tile t) const { return global(t.rank, begin(t.local)); }
  Size rows(Tile t) const;

  Tile tile(Step s) const { return order_[static_cast<std::size_t>(*s)]; }
  Step step(Tile t) const;
  Size eliminated(Step s) const { return eliminated_[static_cast<std::size_t>(*s)]; }

  // The rows eliminated at steps s, ..., t - 1, in ascending order, adjacent runs merged: at most
  // one run per rank. Requires that each rank eliminates its own tiles in local order, as both
  // orders above do. s and t may be steps().
  std::vector<RowRange> rows_between(Step s, Step t) const;
  // The rows eliminated at step s or later: in natural order a single run.
  std::vector<RowRange> rows_from(Step s) const { return rows_between(s, Step(steps())); }
  Size remaining(Step s) const { return *s < steps() ? n_ - eliminated(s) : 0; }

  // First tile of `rank` eliminated at step s or later (local_tiles(rank) if there is none).
  LocalTile first_tile_from(Step s, int rank) const;

  bool operator==(const Distribution&) const = default;

 private:
  void index_order();

  Size n_;
  int ranks_;
  Size tile_;
  Storage storage_;
  Size capacity_;
  std::vector<Tile> order_;              // step -> tile
  std::vector<std::vector<Size>> step_;  // rank, local tile -> step
  std::vector<Size> eliminated_;         // step -> rows eliminated before it
};

// Where row g lies in a panel packed from `ranges`.
Size packed_position(std::span<const RowRange> ranges, GlobalIndex g);

}  // namespace jaxmg
