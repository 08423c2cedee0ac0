// The transpose of a row-sharded matrix, row-sharded.
#pragma once

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
  // Column-major, a is a^T (n x its rows) and b is b^T (m x its rows).
  const auto blocks = [&](int from, int to, auto&& visit) {
    for (Size jt = 0; jt < rows.local_tiles(from); ++jt) {
      const Tile j{from, LocalTile(jt)};
      for (Size it = 0; it < columns.local_tiles(to); ++it) {
        const Tile i{to, LocalTile(it)};
        visit(TransposedBlock{.row = columns.global_begin(i),
                              .column = rows.begin(j.local),
                              .rows = columns.rows(i),
                              .columns = rows.rows(j),
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
