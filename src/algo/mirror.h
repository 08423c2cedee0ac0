// A Hermitian matrix of which one half is valid made whole again.
//
// A row-sharded A (rows of `capacity`, row-major) is read column-major as M = A^T, n x L with
// leading dimension n: column j of M on a rank is the user's row global(rank, j).
#pragma once

#include <algorithm>

#include "algo/diagonal_tiles.h"
#include "algo/rank.h"
#include "algo/staging.h"
#include "algo/tile_exchange.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

// For all tiles i != j with before(i, j): M(rows of j, columns of i) <- M(rows of i, columns of
// j)^H. before(i, j) or before(j, i) must hold, not both. Diagonal tiles are left alone.
template <class D, class T, class Before>
void mirror_tiles(Rank<D>& rank, const Distribution& dist, const Before& before, T* a) {
  const auto blocks = [&](int from, int to, auto&& visit) {
    for (Size jt = 0; jt < dist.local_tiles(from); ++jt) {
      const Tile j{from, LocalTile(jt)};
      for (Size it = 0; it < dist.local_tiles(to); ++it) {
        const Tile i{to, LocalTile(it)};
        if (i == j || !before(i, j)) {
          continue;
        }
        visit(TransposedBlock{.row = dist.global_begin(i),
                              .column = dist.begin(j.local),
                              .rows = dist.rows(i),
                              .columns = dist.rows(j),
                              .image_row = dist.global_begin(j),
                              .image_column = dist.begin(i.local)});
      }
    }
  };
  exchange_transposed<D, T>(rank, blocks, /*conj=*/true, a, dist.size(), a, dist.size());
}

namespace mirror_detail {

// Columns of a diagonal tile that are mirrored together below their own triangle.
inline constexpr Size kStrip = 16;

// Below the strip's triangle: blocks of one diagonal tile of `size` rows that starts at `tile`.
// valid: which triangle of M is.
template <class D, class T>
void mirror_strips(Rank<D>& rank, Uplo valid, Size size, T* tile, Size ld) {
  for (Size s = 0; s + kStrip < size; s += kStrip) {
    const Size rest = size - s - kStrip;
    T* lower = tile + s * ld + s + kStrip;    // rest x kStrip
    T* upper = tile + (s + kStrip) * ld + s;  // kStrip x rest
    if (valid == Uplo::lower) {
      D::transpose(rank.lanes.update, rest, kStrip, lower, ld, upper, ld, true);
    } else {
      D::transpose(rank.lanes.update, kStrip, rest, upper, ld, lower, ld, true);
    }
  }
}

// The triangles of all strips at once: sub-diagonal k of a square diagonal block of `size` rows is
// a vector of stride ld + 1, and so is its image; it goes by way of `buffer` (`room` elements).
// Pairs of elements that lie in two tiles are mirrored too, which does no harm.
template <class D, class T>
void mirror_subdiagonals(Rank<D>& rank, Uplo valid, Size width, Size size, T* block, Size ld,
                         T* buffer, Size room) {
  auto& lane = rank.lanes.update;
  const Size stride = ld + 1;
  for (Size k = 1; k < std::min(width, size); ++k) {
    T* lower = block + k;
    T* upper = block + k * ld;
    const T* from = valid == Uplo::lower ? lower : upper;
    T* to = valid == Uplo::lower ? upper : lower;
    for (Size first = 0; first < size - k; first += room) {
      const Size count = std::min(room, size - k - first);
      D::transpose(lane, 1, count, from + first * stride, stride, buffer, count, true);
      D::transpose(lane, count, 1, static_cast<const T*>(buffer), count, to + first * stride,
                   stride, false);
    }
  }
}

}  // namespace mirror_detail

// Diagonal tiles of this rank: the other triangle <- conjugate transpose of the valid one (of M).
// Elements of the other triangle are not read.
template <class D, class T>
void mirror_diagonal_tiles(Rank<D>& rank, const Distribution& dist, Uplo valid, T* a) {
  const int me = rank.comm.rank();
  const Size ld = dist.size();
  const Size width = std::min(mirror_detail::kStrip, dist.tile_size());
  const Staging<T> staging(rank.workspace, 1);
  const auto at = [&](Tile t) { return a + *dist.begin(t.local) * ld + *dist.global_begin(t); };
  for (Size first = 0, next = 0; first < dist.local_tiles(me); first = next) {
    // Tiles whose global rows follow each other lie on one diagonal.
    const Tile start{me, LocalTile(first)};
    Size size = 0;
    for (next = first; next < dist.local_tiles(me); ++next) {
      const Tile t{me, LocalTile(next)};
      if (dist.global_begin(t) - dist.global_begin(start) != size) {
        break;
      }
      mirror_detail::mirror_strips(rank, valid, dist.rows(t), at(t), ld);
      size += dist.rows(t);
    }
    mirror_detail::mirror_subdiagonals(rank, valid, width, size, at(start), ld, staging.send(0),
                                       staging.capacity());
  }
}

// Only the triangle `valid` of A, in natural order and with the diagonal, holds data: its conjugate
// transpose is written to the other half, which is not read. The diagonal is left as it is.
template <class D, class T>
void mirror_triangle(Rank<D>& rank, const Distribution& dist, Uplo valid, T* a) {
  if (dist.size() == 0) {
    return;
  }
  // A(g, h) = M(h, g): the lower triangle of A is the upper one of M. M's tile (i, j) is valid
  //   lower A: above M's diagonal, i before j;   upper A: below it.
  const auto before = [&](Tile i, Tile j) {
    const bool above = dist.global_begin(i) < dist.global_begin(j);
    return valid == Uplo::lower ? above : !above;
  };
  mirror_tiles<D, T>(rank, dist, before, a);
  mirror_diagonal_tiles(rank, dist, valid == Uplo::lower ? Uplo::upper : Uplo::lower, a);
}

// A as it was before a Cholesky factorisation in the elimination order of `dist`, which has never
// written M's tiles (i, j) with step(i) < step(j) and has saved the diagonal tiles: tile t of this
// rank at saved_diagonal + t tile^2, column-major with leading dimension tile.
template <class D, class T>
void mirror_elimination(Rank<D>& rank, const Distribution& dist, const T* saved_diagonal, T* a) {
  const auto before = [&](Tile i, Tile j) { return dist.step(i) < dist.step(j); };
  mirror_tiles<D, T>(rank, dist, before, a);
  for_each_diagonal_tile(
      dist, rank.comm.rank(), a, saved_diagonal, [&](Tile tile, T* diagonal, const T* saved) {
        const Size w = dist.rows(tile);
        D::copy(rank.lanes.update, w, w, saved, dist.tile_size(), diagonal, dist.size());
      });
}

}  // namespace jaxmg
