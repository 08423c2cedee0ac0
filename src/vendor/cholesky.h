// The Cholesky routines by a vendor's library, with the operands and results of those in src/algo.
//
// Read column-major, a row-major shard is M = A^T = conj(A) with columns owned (algo/cholesky.h).
// Its columns are dealt out anew as the library wants them; the factor of M stays so, since all
// that follows wants it so, and the inverse goes back. The order is the natural one: the first
// failing minor that the library finds is LAPACK's.
//
// A host thread waits here for its device, as the library's calls are no work of a stream.
#pragma once

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "algo/cholesky_logdet.h"
#include "algo/cyclic.h"
#include "algo/hermitian_probe.h"
#include "algo/mirror.h"
#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"
#include "vendor/host.h"
#include "vendor/session.h"

namespace jaxmg::vendor {

// One rank's access to the library.
template <class D>
class Partner {
 public:
  Partner(Rank<D>& rank, Session& session) : rank_(rank), session_(session) {}

  // Blocks until this rank's work is done, all others' is, and then the library's.
  Size run(Part part, const Info* info, const Session::Work& work) {
    part.workspace = rank_.workspace.template get<float>(Buffer::vendor_workspace);
    Host<D>::finish(rank_.lanes.update, info);
    return session_.run(
        rank_.comm.rank(), part, [this] { rank_.comm.barrier(); }, work);
  }

 private:
  Rank<D>& rank_;
  Session& session_;
};

template <class D>
Distribution contiguous(const Rank<D>& rank) {
  const PlanRequest& q = rank.plan.request();
  return Distribution(q.n, q.ranks, rank.plan.tile(), Storage::contiguous);
}

template <class D>
Distribution block_cyclic(const Rank<D>& rank) {
  const PlanRequest& q = rank.plan.request();
  return Distribution(q.n, q.ranks, rank.plan.tile(), Storage::cyclic);
}

// Own diagonal elements <- their real parts: x / 2 + conj(x) / 2, exactly.
template <class D, class T>
void make_diagonal_real(Rank<D>& rank, T* a) {
  if constexpr (is_complex_v<T>) {
    auto& lane = rank.lanes.update;
    const Distribution dist = contiguous(rank);
    const int me = rank.comm.rank();
    const Size count = dist.local_size(me);
    const Size stride = dist.size() + 1;
    if (count > 0) {
      T* const diagonal = a + *dist.global(me, LocalIndex(0));
      T* const conjugate = rank.workspace.template get<T>(Buffer::send_staging);
      D::template transpose<T>(lane, 1, count, diagonal, stride, conjugate, count, true);
      D::template add<T>(lane, 1, count, T(Real<T>(-0.5)), diagonal, stride, diagonal, stride);
      D::template add<T>(lane, 1, count, T(Real<T>(0.5)), conjugate, 1, diagonal, stride);
    }
  }
}

// a <- the factor in cyclic storage. *info is the same on all ranks.
template <class D, class T>
void potrf(Rank<D>& rank, Session& session, Triangle valid, T* a, Info* info) {
  auto& lane = rank.lanes.update;
  const Distribution dist = contiguous(rank);
  D::reset(lane, info);
  if (valid != Triangle::whole) {
    mirror_triangle<D, T>(rank, dist, valid == Triangle::lower ? Uplo::lower : Uplo::upper, a);
  }
  make_diagonal_real<D, T>(rank, a);
  hermitian_probe<D, T>(rank, dist, a, info);
  to_cyclic<D, T>(rank, dist.size(), rank.plan.tile(), dist.size(), a);
  if (Host<D>::finish(lane, info).kind != 0) {
    return;
  }
  const Size failed = Partner<D>(rank, session).run({.a = a}, info, [](Library& library, auto& p) {
    return library.potrf(p.a, p.workspace);
  });
  if (failed > 0) {
    D::set_if_ok(lane, Kind::not_positive_definite, failed, info);
    D::set_phase(lane, Phase::natural_order, 0, info);
  }
}

// Solves for right-hand sides (row-major, whole on every rank or its rows) some columns at a time:
// each rank takes its share of them, as columns.
template <class D, class T>
class Solve {
 public:
  Solve(Rank<D>& rank, T* x)
      : rank_(rank),
        lane_(rank.lanes.update),
        dist_(contiguous(rank)),
        nrhs_(rank.plan.request().nrhs),
        whole_(rank.plan.request().replicated_rhs),
        x_(x),
        all_(rank.workspace.template get<T>(Buffer::gathered_rhs)),
        mine_(rank.workspace.template get<T>(Buffer::rhs_columns)) {}

  // solve(columns, mine): mine (n x own columns) <- the solution of all ranks' columns together.
  template <class Program>
  void run(bool conj, const Program& solve) {
    for (Size first = 0; first < nrhs_; first += rank_.plan.rhs_block()) {
      const Size width = std::min(rank_.plan.rhs_block(), nrhs_ - first);
      const Size tile = ceil_div(width, rank_.comm.size());
      const Size begin = std::min(rank_.comm.rank() * tile, width);
      take(first, width, begin, std::min(tile, width - begin), conj);
      solve(width, mine_);
      give(first, width, tile, conj);
    }
  }

 private:
  // mine <- columns [begin, begin + count) of those from `first` on.
  void take(Size first, Size width, Size begin, Size count, bool conj) {
    const T* rows = x_ + first;
    Size ld = nrhs_;
    if (!whole_) {
      T* const own = all_ + rank_.comm.rank() * dist_.capacity() * width;
      D::template copy<T>(lane_, width, dist_.capacity(), rows, nrhs_, own, width);
      auto gathered =
          rank_.comm.all_gather(lane_, own, all_, dist_.capacity() * width, dtype_of<T>);
      lane_.wait(gathered);
      rows = all_;
      ld = width;
    }
    D::template transpose<T>(lane_, count, dist_.size(), rows + begin, ld, mine_, dist_.size(),
                             conj);
  }

  // x <- the columns of all ranks, `tile` of each.
  void give(Size first, Size width, Size tile, bool conj) {
    const Size n = dist_.size();
    auto gathered = rank_.comm.all_gather(lane_, mine_, all_, n * tile, dtype_of<T>);
    lane_.wait(gathered);
    const int me = rank_.comm.rank();
    const Size count = whole_ ? n : dist_.local_size(me);
    const Size row = whole_ || count == 0 ? 0 : *dist_.global(me, LocalIndex(0));
    D::template transpose<T>(lane_, count, width, all_ + row, n, x_ + first, nrhs_, conj);
  }

  Rank<D>& rank_;
  typename D::Lane& lane_;
  Distribution dist_;
  Size nrhs_;
  bool whole_;
  T* x_;     // nrhs x n or nrhs x L, read column-major
  T* all_;   // gathered rows, then gathered columns
  T* mine_;  // n x ceil(width / ranks)
};

// x <- A^-1 x:  conj(A) conj(X) = conj(B), and M = conj(A).
template <class D, class T>
void potrs(Rank<D>& rank, Session& session, T* l, const Info* info, T* x) {
  auto& lane = rank.lanes.update;
  const PlanRequest& q = rank.plan.request();
  if (Host<D>::finish(lane, info).kind == 0) {
    Partner<D> partner(rank, session);
    Solve<D, T>(rank, x).run(/*conj=*/true, [&](Size columns, T* mine) {
      partner.run({.a = l, .b = mine}, info, [columns](Library& library, auto& p) {
        library.potrs(columns, p.a, p.b, p.workspace);
        return Size{0};
      });
    });
  }
  const Size rows = q.replicated_rhs ? q.n : contiguous(rank).capacity();
  D::template fill_if_failed<T>(lane, info, q.nrhs, rows,
                                T(std::numeric_limits<Real<T>>::quiet_NaN()), x, q.nrhs);
}

// a <- A^-1 in contiguous storage, all of it.
template <class D, class T>
void potri(Rank<D>& rank, Session& session, const Info* info, T* a) {
  auto& lane = rank.lanes.update;
  const Distribution dist = contiguous(rank);
  const Size n = dist.size();
  if (Host<D>::finish(lane, info).kind == 0) {
    const Size failed =
        Partner<D>(rank, session).run({.a = a}, info, [](Library& library, auto& p) {
          return library.potri(p.a, p.workspace);
        });
    if (failed != 0) {
      throw std::runtime_error("potri: the vendor's library found element " +
                               std::to_string(failed) + " of the factor's diagonal to be zero");
    }
    from_cyclic<D, T>(rank, n, rank.plan.tile(), n, a);
    // The lower triangle of M is the upper one of A. The library had the other one as scratch.
    mirror_triangle<D, T>(rank, dist, Uplo::upper, a);
  }
  D::template fill_if_failed<T>(lane, info, n, rank.plan.factor_rows(),
                                T(std::numeric_limits<Real<T>>::quiet_NaN()), a, n);
}

// *result <- log det A.
template <class D, class T>
void logdet(Rank<D>& rank, const T* l, const Info* info, Real<T>* result) {
  cholesky_logdet<D, T>(rank, block_cyclic(rank), l, info, result);
}

}  // namespace jaxmg::vendor
