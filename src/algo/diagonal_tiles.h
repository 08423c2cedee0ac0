// The diagonal tiles of a square matrix that lie on a rank, and blocks of memory that go with them.
#pragma once

#include "algo/rank.h"
#include "core/distribution.h"

namespace jaxmg {

// visit(tile, diagonal, beside) for each own tile: where it lies in a (n x L columns, ld n), and
// the tile x tile block that belongs to it in `blocks`, which holds one for each local tile.
template <class T, class U, class Visit>
void for_each_diagonal_tile(const Distribution& dist, int rank, T* a, U* blocks,
                            const Visit& visit) {
  const Size block = dist.tile_size() * dist.tile_size();
  for (LocalTile t(0); *t < dist.local_tiles(rank); ++t) {
    const Tile tile{rank, t};
    visit(tile, a + *dist.begin(t) * dist.size() + *dist.global_begin(tile), blocks + *t * block);
  }
}

}  // namespace jaxmg
