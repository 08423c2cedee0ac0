// The transpose of a row-sharded matrix, row-sharded.
#pragma once

#include <algorithm>

#include "algo/rank.h"
#include "algo/tile_exchange.h"
#include "core/distribution.h"

namespace jaxmg {

// b <- a^T, or a^H if `conj`. a is m x n, its rows distributed as `rows` (of size m) says; b is
// n x m, its rows distributed as `columns` (of size n) says. Both are row-major, a and b must not
// overlap. Rows of b between its local size and its capacity are set to zero.
template <class D, class T>
void distributed_transpose(Rank<D>& rank, const Distribution& rows, const Distribution& columns,
                           bool conj, const T* a, T* b) {
  const Size m = rows.size();
  const Size n = columns.size();
  if (m == 0 || n == 0) {
    return;
  }
  // Column-major, a is a^T (n x its rows) and b is b^T (m x its rows). What two ranks have for each
  // other is one block where both store their rows in one piece, else one for each pair of tiles.
  const bool in_one_piece =
      rows.storage() == Storage::contiguous && columns.storage() == Storage::contiguous;
  const auto blocks = [&](int from, int to, auto&& visit) {
    const auto tiles = [&](const Distribution& dist, int r) {
      return in_one_piece ? std::min<Size>(1, dist.local_size(r)) : dist.local_tiles(r);
    };
    const auto width = [&](const Distribution& dist, Tile tile) {
      return in_one_piece ? dist.local_size(tile.rank) : dist.rows(tile);
    };
    for (Size jt = 0; jt < tiles(rows, from); ++jt) {
      const Tile j{from, LocalTile(jt)};
      for (Size it = 0; it < tiles(columns, to); ++it) {
        const Tile i{to, LocalTile(it)};
        visit(TransposedBlock{.row = columns.global_begin(i),
                              .column = rows.begin(j.local),
                              .rows = width(columns, i),
                              .columns = width(rows, j),
                              .image_row = rows.global_begin(j),
                              .image_column = columns.begin(i.local)});
      }
    }
  };
  exchange_transposed<D, T>(rank, blocks, conj, a, n, b, m);
  const Size held = columns.local_size(rank.comm.rank());
  D::fill(rank.lanes.update, m, columns.capacity() - held, T(0), T(0), b + held * m, m);
}

}  // namespace jaxmg
