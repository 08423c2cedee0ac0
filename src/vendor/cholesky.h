// The Cholesky routines by a vendor's library, with the operands and results of those in src/algo.
//
// The first failing minor that the library finds is LAPACK's, since the order is the natural one.
#pragma once

#include <limits>
#include <stdexcept>
#include <string>

#include "algo/cholesky_logdet.h"
#include "algo/cyclic.h"
#include "algo/hermitian_probe.h"
#include "algo/mirror.h"
#include "vendor/factor_probe.h"
#include "vendor/hermitian.h"
#include "vendor/partner.h"
#include "vendor/split_columns.h"

namespace jaxmg::vendor {

// a <- the factor in cyclic storage. *info is the same on all ranks.
template <class D, class T>
void potrf(Rank<D>& rank, Session& session, Triangle valid, T* a, Info* info) {
  auto& lane = rank.lanes.update;
  const Distribution dist = contiguous(rank);
  D::reset(lane, info);
  make_whole<D, T>(rank, valid, a);
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
  } else if (dist.size() > 0) {
    probe_factor<D, T>(rank, dist, block_cyclic(rank), a);
  }
}

// x <- A^-1 x:  conj(A) conj(X) = conj(B), and M = conj(A).
template <class D, class T>
void potrs(Rank<D>& rank, Session& session, T* l, const Info* info, T* x) {
  auto& lane = rank.lanes.update;
  const PlanRequest& q = rank.plan.request();
  if (Host<D>::finish(lane, info).kind == 0) {
    Partner<D> partner(rank, session);
    SplitColumns<D, T>(rank, x).run(/*conj=*/true, [&](Size columns, T* mine) {
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
