// LU by a vendor's library, with the operands and results of src/algo/lu.h and lu_solve.h.
//
// What is factored is M = A^T, so that equations are eliminated in their order and a pivot of zero
// is the first of them that depends on earlier ones:
//
//   P M = L U
//   A^T x = b    M x = b: the library's own solution
//   A x = b      M^T x = b, which it does not have: by the substitutions of algo/lu_solve.h with
//                its factor where that lies
#pragma once

#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "algo/cyclic.h"
#include "algo/diagonal_tiles.h"
#include "algo/lu_solve.h"
#include "vendor/partner.h"
#include "vendor/split_columns.h"

namespace jaxmg::vendor {

using Integers = std::vector<std::int32_t>;

// From the pivots of all ranks as the library leaves them, one rank's after the other with gaps at
// the end, to 2 n integers as Lu has them: pivots counted from 0, then the order of rows.
inline Integers pivots_of_all(const Distribution& cyclic, const Integers& gathered) {
  const Size n = cyclic.size();
  Integers out(static_cast<std::size_t>(2 * n));
  const auto rows = out.begin() + n;
  std::iota(rows, out.end(), 0);
  for (Size i = 0; i < n; ++i) {
    const GlobalIndex g(i);
    const Size place = cyclic.owner(g) * cyclic.capacity() + *cyclic.local(g);
    const std::int32_t pivot = gathered[static_cast<std::size_t>(place)] - 1;
    if (pivot < i || pivot >= n) {
      throw std::runtime_error("getrf: the vendor's library gave row " + std::to_string(i + 1) +
                               " the pivot " + std::to_string(pivot + 1));
    }
    out[static_cast<std::size_t>(i)] = pivot;
    std::swap(rows[i], rows[pivot]);
  }
  return out;
}

// And back, for one rank.
inline Integers pivots_of_rank(const Distribution& cyclic, int rank, const Integers& pivots) {
  Integers out(static_cast<std::size_t>(cyclic.capacity()), 0);
  for (Size i = 0; i < cyclic.local_size(rank); ++i) {
    const Size g = *cyclic.global(rank, LocalIndex(i));
    out[static_cast<std::size_t>(i)] = pivots[static_cast<std::size_t>(g)] + 1;
  }
  return out;
}

// The aux operand: inverses of the diagonal tiles of L, then of U, where solves use them.
template <class D, class T>
T* inverses(const Rank<D>& rank, T* aux) {
  return lu_inverts(rank.plan.request()) ? aux : nullptr;
}

template <class D, class T>
void invert_triangles(Rank<D>& rank, const Distribution& cyclic, const T* a, T* inverse) {
  auto& lane = rank.lanes.update;
  const Size n = cyclic.size();
  const Size nb = cyclic.tile_size();
  const Size half = cyclic.capacity_tiles() * nb * nb;
  D::template fill<T>(lane, 2 * half, 1, T(0), T(0), inverse, 2 * half);
  for_each_diagonal_tile(
      cyclic, rank.comm.rank(), a, inverse, [&](Tile tile, const T* diagonal, T* x) {
        const Size w = cyclic.rows(tile);
        D::template invert_triangle<T>(lane, Uplo::lower, Diag::unit, w, diagonal, n, x, nb);
        D::template invert_triangle<T>(lane, Uplo::upper, Diag::non_unit, w, diagonal, n, x + half,
                                       nb);
      });
}

// *info <- what the library has found, or else the first zero on the diagonal of U.
template <class D, class T>
void note_singular(Rank<D>& rank, const Distribution& cyclic, Size found, const T* a, Info* info) {
  auto& lane = rank.lanes.update;
  if (found > 0) {
    D::set_if_ok(lane, Kind::singular, found, info);
  }
  for (LocalTile t(0); *t < cyclic.local_tiles(rank.comm.rank()); ++t) {
    const Tile tile{rank.comm.rank(), t};
    const Size first = *cyclic.global_begin(tile);
    D::template check_diagonal<T>(lane, cyclic.rows(tile),
                                  a + *cyclic.begin(t) * cyclic.size() + first, cyclic.size(),
                                  first, info);
  }
  D::set_phase(lane, Phase::natural_order, rank.comm.rank(), info);
  auto agreed = rank.comm.agree(lane, info);
  lane.wait(agreed);
}

// a <- the factors in cyclic storage; aux, pivots: as of jaxmg::lu_factor. *info, the same on all
// ranks: the first equation that depends on earlier ones.
template <class D, class T>
void getrf(Rank<D>& rank, Session& session, T* a, T* aux, std::int32_t* pivots, Info* info) {
  auto& lane = rank.lanes.update;
  const Distribution cyclic = block_cyclic(rank);
  const Size n = cyclic.size();
  const int me = rank.comm.rank();
  std::int32_t* const gathered = rank.workspace.template get<std::int32_t>(Buffer::row_order);
  std::int32_t* const own = gathered + me * cyclic.capacity();
  T* const inverse = inverses(rank, aux);
  D::reset(lane, info);
  D::iota(lane, n, pivots);
  D::iota(lane, n, pivots + n);
  D::template check_finite<T>(lane, n, contiguous(rank).local_size(me), a, n, info);
  auto agreed = rank.comm.agree(lane, info);
  lane.wait(agreed);
  to_cyclic<D, T>(rank, n, cyclic.tile_size(), n, a);
  if (Host<D>::finish(lane, info).kind != 0) {
    return;
  }
  const Size failed =
      Partner<D>(rank, session).run({.a = a, .pivots = own}, info, [](Library& library, auto& p) {
        return library.getrf(p.a, p.pivots, p.workspace);
      });
  note_singular<D, T>(rank, cyclic, failed, a, info);
  if (Host<D>::finish(lane, info).kind != 0) {
    return;
  }
  const Size count = cyclic.capacity();
  auto ready = rank.comm.all_gather(lane, own, gathered, count, DType::i32);
  lane.wait(ready);
  Integers found(static_cast<std::size_t>(rank.comm.size() * count));
  Host<D>::read(lane, rank.comm.size() * count, gathered, found.data());
  Host<D>::write(lane, 2 * n, pivots_of_all(cyclic, found).data(), pivots);
  if (inverse) {
    invert_triangles<D, T>(rank, cyclic, a, inverse);
  }
}

// A x = b, in place of x.
template <class D, class T>
void substitute(Rank<D>& rank, const Distribution& cyclic, const T* lu, const T* inverse,
                const std::int32_t* rows, T* x) {
  auto& lane = rank.lanes.update;
  const PlanRequest& q = rank.plan.request();
  if (q.replicated_rhs) {
    return LuSolve<D, T>(rank, cyclic, lu, inverse, rows, q.nrhs, true, x).run();
  }
  const Distribution dist = contiguous(rank);
  const Size own = dist.local_size(rank.comm.rank());
  T* const all = rank.workspace.template get<T>(Buffer::gathered_rhs);
  for (Size first = 0; first < q.nrhs; first += rank.plan.rhs_block()) {
    const Size width = std::min(rank.plan.rhs_block(), q.nrhs - first);
    gather_rows<D, T>(rank, dist, width, x + first, q.nrhs, all);
    LuSolve<D, T>(rank, cyclic, lu, inverse, rows, width, true, all).run();
    if (own > 0) {
      const T* const mine = all + *dist.global(rank.comm.rank(), LocalIndex(0)) * width;
      D::template copy<T>(lane, width, own, mine, width, x + first, q.nrhs);
    }
  }
}

// A^T x = b, in place of x.
template <class D, class T>
void solve_transposed(Rank<D>& rank, Session& session, const Distribution& cyclic, T* lu,
                      const std::int32_t* pivots, const Info* info, T* x) {
  auto& lane = rank.lanes.update;
  std::int32_t* const own = rank.workspace.template get<std::int32_t>(Buffer::row_order);
  Integers all(static_cast<std::size_t>(cyclic.size()));
  Host<D>::read(lane, cyclic.size(), pivots, all.data());
  const Integers mine = pivots_of_rank(cyclic, rank.comm.rank(), all);
  Host<D>::write(lane, cyclic.capacity(), mine.data(), own);
  Partner<D> partner(rank, session);
  SplitColumns<D, T>(rank, x).run(/*conj=*/false, [&](Size columns, T* b) {
    const Part part{.a = lu, .b = b, .pivots = own};
    partner.run(part, info, [columns](Library& library, auto& p) {
      library.getrs(columns, p.a, p.pivots, p.b, p.workspace);
      return Size{0};
    });
  });
}

// x <- A^-1 x, or A^-T x if the plan says so; NaN if the factorisation failed.
template <class D, class T>
void getrs(Rank<D>& rank, Session& session, T* lu, const T* aux, const std::int32_t* pivots,
           const Info* info, T* x) {
  auto& lane = rank.lanes.update;
  const PlanRequest& q = rank.plan.request();
  const Distribution cyclic = block_cyclic(rank);
  if (Host<D>::finish(lane, info).kind == 0) {
    if (q.transpose) {
      solve_transposed<D, T>(rank, session, cyclic, lu, pivots, info, x);
    } else {
      substitute<D, T>(rank, cyclic, lu, inverses(rank, aux), pivots + q.n, x);
    }
  }
  const Size rows = q.replicated_rhs ? q.n : contiguous(rank).capacity();
  const T nan(std::numeric_limits<Real<T>>::quiet_NaN());
  D::template fill_if_failed<T>(lane, info, q.nrhs, rows, nan, x, q.nrhs);
}

}  // namespace jaxmg::vendor
