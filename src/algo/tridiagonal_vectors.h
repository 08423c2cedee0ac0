// Eigenvalues and eigenvectors of a real symmetric tridiagonal matrix by divide and conquer.
//
//   T = diag(T_1, T_2) + rho u u^T = Q (D + rho z z^T) Q^T,  Q = diag(Q_1, Q_2)
//
// with z made of the last row of Q_1 and the first of Q_2. The eigenvectors of D + rho z z^T are
// known in closed form once the secular equation is solved (tile/secular.h); Q times these are the
// eigenvectors of T. Each rank has some rows of Q: the products are its own, and ranks tell each
// other only z, the roots of the secular equation, which they share out, and the weights. Poles,
// roots and weights are doubles in the host's memory whatever the type of Q is.
//
//   M. Gu, S. Eisenstat, A divide-and-conquer algorithm for the symmetric tridiagonal eigenproblem.
//   LAPACK: xSTEDC.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "algo/deflation.h"
#include "algo/rank.h"
#include "algo/tridiagonal_ql.h"
#include "core/distribution.h"
#include "core/plan.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class R>
class TridiagonalVectors {
 public:
  // d (n) and e (n - 1), the same on all ranks. q and work: n x L each, ld n, where the rank's L
  // rows of Q are columns; `rows` says which.
  TridiagonalVectors(Rank<Device>& rank, const Distribution& rows, std::vector<double> d,
                     std::vector<double> e, R* q, R* work)
      : rank_(rank),
        lane_(rank.lanes.update),
        n_(rows.size()),
        begin_(std::min(n_, rank.comm.rank() * rows.capacity())),
        end_(begin_ + rows.local_size(rank.comm.rank())),
        d_(std::move(d)),
        e_(std::move(e)),
        q_(q),
        work_(work),
        u_(rank.workspace.template get<R>(Buffer::secular_block)),
        scalars_(rank.workspace.template get<double>(Buffer::scalars)),
        eigen_work_(rank.workspace.template get<double>(Buffer::eigen_work)) {}

  // work <- rows of the eigenvectors first .. first + count - 1 of T, ascending, as columns with
  // leading dimension count. False, on all ranks, if it does not converge.
  bool run(Size first, Size count) {
    first_ = first;
    count_ = count;
    for (Size i = 0; i < n_; ++i) {
      norm_ = std::max(norm_, std::fabs(d_[at(i)]) + (i + 1 < n_ ? std::fabs(e_[at(i)]) : 0.0));
    }
    Device::template fill<R>(lane_, n_, end_ - begin_, R(0), R(0), q_, n_);
    solve(0, n_);
    // What was made of the last merge lies in no order.
    std::vector<Size> order(d_.size());
    std::iota(order.begin(), order.end(), Size{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](Size i, Size j) { return d_[at(i)] < d_[at(j)]; });
    std::vector<Size> wanted(order.begin() + first, order.begin() + first + count);
    if (!row_.empty()) {
      for (Size& i : wanted) {
        i = row_[at(i)];
      }
    }
    Device::template gather_rows<R>(lane_, count, wanted.data(), end_ - begin_, q_, n_, work_,
                                    count, eigen_work_);
    std::sort(d_.begin(), d_.end());
    return converged_;
  }

  // Ascending, after run().
  const std::vector<double>& eigenvalues() const { return d_; }

 private:
  // Matrices that are not cut further.
  static constexpr Size kLeaf = 32;
  // From so many roots on they are shared out.
  static constexpr Size kShared = 256;

  static std::size_t at(Size i) { return static_cast<std::size_t>(i); }
  // Own rows among from .. to - 1, as columns of q.
  struct Columns {
    Size first;
    Size count;
  };
  Columns own(Size from, Size to) const {
    const Size first = std::clamp(from, begin_, end_), last = std::clamp(to, begin_, end_);
    return {first - begin_, last - first};
  }

  void solve(Size from, Size to) {
    if (to - from <= kLeaf) {
      return leaf(from, to);
    }
    const Size middle = from + (to - from) / 2;
    const double rho = e_[at(middle - 1)];
    d_[at(middle - 1)] -= std::fabs(rho);
    d_[at(middle)] -= std::fabs(rho);
    solve(from, middle);
    solve(middle, to);
    merge(from, middle, to, rho);
  }

  void leaf(Size from, Size to) {
    const Size n = to - from;
    const Columns mine = own(from, to);
    std::vector<double> z(at(n * mine.count), 0.0);
    for (Size c = 0; c < mine.count; ++c) {
      z[at(begin_ + mine.first + c - from + c * n)] = 1;
    }
    std::vector<double> e(e_.begin() + from, e_.begin() + std::max(from, to - 1));
    if (!tridiagonal_ql(n, d_.data() + from, e.data(), z.data(), mine.count)) {
      converged_ = false;
    }
    Device::template from_host<R>(lane_, n, mine.count, z.data(), n, q_ + from + mine.first * n_,
                                  n_);
  }

  // Last row of Q_1 and first row of Q_2, on all ranks.
  std::vector<double> coupling(Size from, Size middle, Size to, double sign) {
    std::vector<double> z(at(to - from), 0.0);
    if (begin_ < middle && middle <= end_) {
      Device::template to_host<R>(lane_, middle - from, q_ + from + (middle - 1 - begin_) * n_,
                                  z.data());
    }
    if (begin_ <= middle && middle < end_) {
      Device::template to_host<R>(lane_, to - middle, q_ + middle + (middle - begin_) * n_,
                                  z.data() + (middle - from));
    }
    all_sum(z);
    for (Size i = middle - from; i < to - from; ++i) {
      z[at(i)] *= sign;
    }
    return z;
  }

  // Each element is 0 on all ranks but one.
  void all_sum(std::vector<double>& values) {
    if (rank_.comm.size() == 1 || values.empty()) {
      return;
    }
    const Size count = static_cast<Size>(values.size());
    Device::template from_host<double>(lane_, count, 1, values.data(), count, scalars_, count);
    auto summed = rank_.comm.all_reduce(lane_, scalars_, count, DType::f64, Reduction::sum);
    lane_.wait(summed);
    Device::template to_host<double>(lane_, count, scalars_, values.data());
  }

  // This rank's part of `count` equal pieces of work.
  Columns share(Size count) const {
    if (rank_.comm.size() == 1 || count < kShared) {
      return {0, count};
    }
    const Size part = ceil_div(count, rank_.comm.size());
    const Size first = std::min(count, rank_.comm.rank() * part);
    return {first, std::min(count, first + part) - first};
  }

  // The roots of the secular equation and the weights that belong to them.
  struct Roots {
    std::vector<Size> origin;
    std::vector<double> tau, weight;
  };
  Roots roots(const Deflation& left, double rho) {
    const Size k = static_cast<Size>(left.d.size());
    Roots r{std::vector<Size>(at(k)), std::vector<double>(at(k)), std::vector<double>(at(k))};
    const Columns mine = share(k);
    const bool all = mine.count == k;
    // The last one counts failures.
    std::vector<double> message(at(2 * k + 1), 0.0);
    if (!Device::secular_roots(lane_, k, left.d.data(), left.z.data(), rho, mine.first, mine.count,
                               r.origin.data(), r.tau.data(), eigen_work_)) {
      message.back() = 1;
    }
    if (!all) {
      for (Size i = mine.first; i < mine.first + mine.count; ++i) {
        message[at(i)] = r.tau[at(i)];
        message[at(k + i)] = static_cast<double>(r.origin[at(i)] - i);
      }
      all_sum(message);
      for (Size i = 0; i < k; ++i) {
        r.tau[at(i)] = message[at(i)];
        r.origin[at(i)] = i + static_cast<Size>(message[at(k + i)]);
      }
    }
    converged_ = converged_ && message.back() == 0;
    Device::secular_weights(lane_, k, left.d.data(), left.z.data(), r.origin.data(), r.tau.data(),
                            mine.first, mine.count, r.weight.data(), eigen_work_);
    if (!all) {
      all_sum(r.weight);
    }
    return r;
  }

  void merge(Size from, Size middle, Size to, double rho) {
    Watch watch(rank_.observer, rank_.comm.rank(), Observer::Task::update, from, n_);
    const Size n = to - from, top = middle - from;
    const std::vector<double> z = coupling(from, middle, to, rho < 0 ? -1.0 : 1.0);
    const std::vector<double> d(d_.begin() + from, d_.begin() + to);
    const Deflation left =
        deflate(d, z, std::fabs(rho), top, std::numeric_limits<R>::epsilon(), norm_);
    const Size k = static_cast<Size>(left.d.size());
    const Columns mine = own(from, to);
    R* const q = q_ + from + mine.first * n_;
    R* const w = work_ + from + mine.first * n_;

    Device::template rotate_rows<R>(lane_, static_cast<Size>(left.rotations.size()),
                                    left.rotations.data(), mine.count, q, n_, eigen_work_);
    // work <- the poles' columns in groups, then the deflated ones.
    std::vector<Size> source(at(n));
    for (Size i = 0; i < k; ++i) {
      source[at(left.place[at(i)])] = left.column[at(i)];
    }
    std::copy(left.deflated_column.begin(), left.deflated_column.end(), source.begin() + k);
    Device::template gather_rows<R>(lane_, n, source.data(), mine.count, q, n_, w, n_, eigen_work_);

    Roots r;
    if (k > 0) {
      r = roots(left, std::fabs(rho));
    }
    for (Size i = 0; i < k; ++i) {
      d_[at(from + i)] = left.d[at(r.origin[at(i)])] + r.tau[at(i)];
    }
    std::copy(left.deflated.begin(), left.deflated.end(), d_.begin() + from + k);
    const std::vector<Size> wanted = wanted_roots(from, to, k);
    multiply(from, middle, to, left, r, wanted);
    Device::template copy<R>(lane_, n - k, mine.count, w + k, n_, q + k, n_);
  }

  // Numbers of the roots whose eigenvectors are needed: all, but for the last merge.
  std::vector<Size> wanted_roots(Size from, Size to, Size k) {
    std::vector<Size> wanted(at(k));
    std::iota(wanted.begin(), wanted.end(), Size{0});
    if (to - from < n_ || count_ == n_) {
      return wanted;
    }
    std::vector<Size> order(d_.size());
    std::iota(order.begin(), order.end(), Size{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](Size i, Size j) { return d_[at(i)] < d_[at(j)]; });
    wanted.clear();
    row_.resize(d_.size());
    std::iota(row_.begin(), row_.end(), Size{0});
    for (Size i = first_; i < first_ + count_; ++i) {
      if (order[at(i)] < k) {
        row_[at(order[at(i)])] = static_cast<Size>(wanted.size());
        wanted.push_back(order[at(i)]);
      }
    }
    return wanted;
  }

  // Rows of q <- the wanted eigenvectors times work, a block of them at a time. Half of the rows of
  // U meet zeros of Q only.
  void multiply(Size from, Size middle, Size to, const Deflation& left, const Roots& r,
                const std::vector<Size>& wanted) {
    const Size k = static_cast<Size>(left.d.size());
    const Columns above = own(from, middle), below = own(middle, to);
    if (above.count + below.count == 0 || k == 0) {
      return;
    }
    const Size block = std::max<Size>(1, rank_.workspace.count(Buffer::secular_block) / n_);
    const Size total = static_cast<Size>(wanted.size());
    for (Size i = 0; i < total; i += block) {
      const Size count = std::min(block, total - i);
      Device::template secular_vectors<R>(lane_, k, left.d.data(), r.weight.data(), r.origin.data(),
                                          r.tau.data(), left.place.data(), count, wanted.data() + i,
                                          u_, n_, eigen_work_);
      const auto product = [&](const Columns& c, Size first, Size length) {
        const Size offset = from + c.first * n_;
        if (length == 0) {
          return Device::template fill<R>(lane_, count, c.count, R(0), R(0), q_ + offset + i, n_);
        }
        Device::template gemm<R>(lane_, Op::transpose, Op::none, count, c.count, length, R(1),
                                 u_ + first, n_, work_ + offset + first, n_, R(0), q_ + offset + i,
                                 n_);
      };
      product(above, 0, left.above + left.both);
      product(below, left.above, k - left.above);
    }
  }

  Rank<Device>& rank_;
  typename Device::Lane& lane_;
  Size n_;
  Size begin_, end_;  // own rows
  std::vector<double> d_, e_;
  R* q_;
  R* work_;
  R* u_;
  double* scalars_;
  void* eigen_work_;
  Size first_ = 0, count_ = 0;
  std::vector<Size> row_;  // where eigenvectors lie after the last merge, if not all are needed
  double norm_ = 0;
  bool converged_ = true;
};

}  // namespace jaxmg
