// Eigenvalues and eigenvectors by a vendor's library, with the operands and results of
// src/algo/eigen.h.
//
// The library is given M = conj(A), scaled; M Z = Z diag(w), so that V = conj(Z). Its columns are
// dealt back to the ranks, and transposed: a rank has rows of V.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "algo/cyclic.h"
#include "algo/hermitian_probe.h"
#include "algo/transpose.h"
#include "algo/unit_scale.h"
#include "vendor/hermitian.h"
#include "vendor/partner.h"

namespace jaxmg::vendor {

// The eigenproblem of one call: all of A's eigenvalues, and those eigenvectors that are wanted.
template <class D, class T>
class Eigensolver {
 public:
  // a: as many columns as either storage has room for, destroyed. w: n. v: as of
  // jaxmg::Eigensolver, it may be a. first: of the eigenvectors that the plan counts.
  Eigensolver(Rank<D>& rank, Session& session, Size first, T* a, Real<T>* w, T* v, Info* info)
      : rank_(rank),
        session_(session),
        lane_(rank.lanes.update),
        dist_(contiguous(rank)),
        n_(dist_.size()),
        vectors_(rank.plan.request().vectors),
        first_(first),
        count_(rank.plan.request().columns),
        a_(a),
        w_(w),
        v_(v),
        info_(info) {}

  void run(Triangle valid) {
    D::reset(lane_, info_);
    if (n_ == 0) {
      return;
    }
    prepare(valid);
    if (Host<D>::finish(lane_, info_).kind == 0) {
      solve();
    }
    const Real<T> nan = std::numeric_limits<Real<T>>::quiet_NaN();
    D::template fill_if_failed<Real<T>>(lane_, info_, n_, 1, nan, w_, n_);
    if (vectors_) {
      D::template fill_if_failed<T>(lane_, info_, count_, dist_.capacity(), T(nan), v_, count_);
    }
  }

 private:
  // A scaled, with a real diagonal, in cyclic storage; or *info says why not.
  void prepare(Triangle valid) {
    make_whole<D, T>(rank_, valid, a_);
    const auto exponent = scale_to_unit<D, T>(rank_, dist_, a_, info_);
    if (!exponent) {
      return;
    }
    exponent_ = *exponent;
    make_diagonal_real<D, T>(rank_, a_);
    if (valid == Triangle::whole) {
      hermitian_probe<D, T>(rank_, dist_, a_, info_);
    }
    to_cyclic<D, T>(rank_, n_, dist_.tile_size(), n_, a_);
  }

  void solve() {
    std::vector<Real<T>> w(static_cast<std::size_t>(n_));
    const Size failed =
        Partner<D>(rank_, session_).run({.a = a_}, info_, [&](auto& library, auto& p) {
          return library.syevd(vectors_, p.a, w.data(), p.workspace);
        });
    if (failed > 0) {
      return D::set_if_ok(lane_, Kind::no_convergence, failed, info_);
    }
    put_values(w);
    if (vectors_ && count_ > 0) {
      put_vectors();
    }
  }

  // Those of rank 0, which has called the library.
  void put_values(std::vector<Real<T>>& w) {
    if (rank_.comm.rank() == 0) {
      for (Real<T>& x : w) {
        x = std::ldexp(x, exponent_);
      }
      Host<D>::write(lane_, n_, w.data(), w_);
    }
    auto sent = rank_.comm.broadcast(lane_, w_, n_, dtype_of<Real<T>>, 0);
    lane_.wait(sent);
  }

  void put_vectors() {
    T* const rows = rank_.workspace.template get<T>(Buffer::eigenvectors);
    from_cyclic<D, T>(rank_, n_, dist_.tile_size(), n_, a_);
    distributed_transpose<D, T>(rank_, dist_, dist_, /*conj=*/true, a_, rows);
    D::template copy<T>(lane_, count_, dist_.capacity(), rows + first_, n_, v_, count_);
  }

  Rank<D>& rank_;
  Session& session_;
  typename D::Lane& lane_;
  Distribution dist_;
  Size n_;
  bool vectors_;
  Size first_, count_;
  T* a_;
  Real<T>* w_;
  T* v_;
  Info* info_;
  int exponent_ = 0;
};

template <class D, class T>
void syevd(Rank<D>& rank, Session& session, Triangle valid, Size first, T* a, Real<T>* w, T* v,
           Info* info) {
  Eigensolver<D, T>(rank, session, first, a, w, v, info).run(valid);
}

}  // namespace jaxmg::vendor
