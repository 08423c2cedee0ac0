// Eigenvalues and eigenvectors of a real symmetric tridiagonal matrix by divide and conquer.
//
//   T = diag(T_1, T_2) + rho u u^T = Q (D + rho z z^T) Q^T,  Q = diag(Q_1, Q_2)
//
// with z made of the last row of Q_1 and the first of Q_2. The eigenvectors of D + rho z z^T are
// known in closed form once the secular equation is solved (tile/secular.h); Q times these are the
// eigenvectors of T. All merges of one size are made together. Each rank has some rows of Q: the
// products are its own, and ranks tell each other only z, the roots of the secular equation and the
// weights, which they share out. Poles, roots and weights are doubles whatever the type of Q is,
// and lie with the data: the host hears no more of a level than the numbers of poles of large
// merges. In float32 the products of large ones run on tensor cores where the plan says so.
//
//   M. Gu, S. Eisenstat, A divide-and-conquer algorithm for the symmetric tridiagonal eigenproblem.
//   LAPACK: xSTEDC.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <type_traits>
#include <utility>
#include <vector>

#include "algo/rank.h"
#include "core/distribution.h"
#include "core/parts.h"
#include "core/plan.h"
#include "tile/device.h"
#include "tile/eigen.h"

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
        width_(
            std::max<Size>(1, rank.workspace.count(Buffer::secular_block) / std::max<Size>(1, n_))),
        scratch_(rank.workspace.template get<double>(Buffer::eigen_work)),
        state_(scratch_, n_) {}

  // work <- rows of the eigenvectors first .. first + count - 1 of T, ascending, as columns with
  // leading dimension count. False, on all ranks, if it does not converge.
  bool run(Size first, Size count) {
    first_ = first;
    count_ = count;
    Size size = cut();
    Device::template fill<R>(lane_, n_, end_ - begin_, R(0), R(0), q_, n_);
    Device::template tridiagonal_leaves<R>(lane_, n_, size, state_, begin_, end_, q_, n_);
    for (size *= 2; size / 2 < n_; size *= 2) {
      merge({n_, size});
    }
    if (order_.empty()) {
      sort_values();
    }
    std::vector<Size> wanted(order_.begin() + first, order_.begin() + first + count);
    if (!row_.empty()) {
      for (Size& i : wanted) {
        i = row_[at(i)];
      }
    }
    Device::template gather_rows<R>(lane_, count, wanted.data(), end_ - begin_, q_, n_, work_,
                                    count, scratch_ + MergeState::doubles(n_));
    std::sort(d_.begin(), d_.end());
    return converged_;
  }

  // Ascending, after run().
  const std::vector<double>& eigenvalues() const { return d_; }

 private:
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

  // Cuts T into pieces of one size (the last may be smaller), which it returns. The halves of every
  // merge but the last are then of one size, too.
  Size cut() {
    for (Size i = 0; i < n_; ++i) {
      norm_ = std::max(norm_, std::fabs(d_[at(i)]) + (i + 1 < n_ ? std::fabs(e_[at(i)]) : 0.0));
    }
    Size pieces = 1;
    while (ceil_div(n_, pieces) > Device::tridiagonal_leaf) {
      pieces *= 2;
    }
    const Size size = ceil_div(n_, pieces);
    for (Size i = size; i < n_; i += size) {
      const double rho = std::fabs(e_[at(i - 1)]);
      d_[at(i - 1)] -= rho;
      d_[at(i)] -= rho;
    }
    std::vector<double> both = d_;
    both.insert(both.end(), e_.begin(), e_.end());
    both.resize(2 * d_.size());
    Device::template from_host<double>(lane_, 2 * n_, 1, both.data(), 2 * n_, state_.d, 2 * n_);
    Device::template fill<double>(lane_, 1, 1, 0, 0, state_.failed, 1);
    return size;
  }

  void all_sum(double* values, Size count) {
    if (rank_.comm.size() > 1) {
      auto summed = rank_.comm.all_reduce(lane_, values, count, DType::f64, Reduction::sum);
      lane_.wait(summed);
    }
  }

  void merge(const MergeLevel& level) {
    Watch watch(rank_.observer, rank_.comm.rank(), Observer::Task::update, level.size, 2 * n_);
    Device::template merge_weights<R>(lane_, level, state_, begin_, end_, q_, n_);
    all_sum(state_.z, n_);
    Device::deflate(lane_, level, state_, std::numeric_limits<R>::epsilon(), norm_);
    Device::template rotate_columns<R>(lane_, level, state_, begin_, end_, q_, n_);
    Device::template arrange_columns<R>(lane_, level, state_, begin_, end_, q_, work_, n_);
    // Of large merges each rank finds the roots at its own rows.
    const bool shared = rank_.comm.size() > 1 && level.size > Device::merge_alone;
    const Size from = shared ? begin_ : 0, to = shared ? end_ : n_;
    if (shared) {
      Device::template fill<double>(lane_, 2 * n_, 1, 0, 0, state_.tau, 2 * n_);
    }
    Device::secular_roots(lane_, level, state_, from, to);
    if (shared) {
      all_sum(state_.tau, 2 * n_ + 1);
      Device::template fill<double>(lane_, n_, 1, 0, 0, state_.weight, n_);
    }
    Device::secular_weights(lane_, level, state_, from, to);
    if (shared) {
      all_sum(state_.weight, n_);
    }
    Device::merged_values(lane_, level, state_);
    const bool some = level.size >= n_ && count_ < n_;
    if (some) {
      sort_values();
    }
    if constexpr (Device::merge_whole > 0) {
      if (level.size <= std::min(Device::merge_whole, width_) && !some) {
        return multiply_whole(level);
      }
    }
    std::vector<MergeCounts> counts(at(level.count()));
    Device::merge_counts(lane_, level, state_, counts.data());
    for (Size i = 0; i < level.count(); ++i) {
      multiply(level, i, counts[at(i)], some);
    }
  }

  // The eigenvalues of T, as they lie after the last merge, and their order.
  void sort_values() {
    double failed = 0;
    Device::template to_host<double>(lane_, 1, state_.failed, &failed);
    Device::template to_host<double>(lane_, n_, state_.d, d_.data());
    converged_ = failed == 0;
    order_.resize(d_.size());
    std::iota(order_.begin(), order_.end(), Size{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](Size i, Size j) { return d_[at(i)] < d_[at(j)]; });
  }

  // Numbers of the roots whose eigenvectors are needed by the last merge, which has k of them.
  std::vector<Size> wanted_roots(Size k) {
    std::vector<Size> wanted;
    row_.resize(d_.size());
    std::iota(row_.begin(), row_.end(), Size{0});
    for (Size i = first_; i < first_ + count_; ++i) {
      if (order_[at(i)] < k) {
        row_[at(order_[at(i)])] = static_cast<Size>(wanted.size());
        wanted.push_back(order_[at(i)]);
      }
    }
    return wanted;
  }

  // Rows of q <- eigenvectors of D + rho z z^T times work, those that were deflated among them, for
  // all nodes that own rows meet. A product for all of them that are whole.
  void multiply_whole(const MergeLevel& level) {
    if (begin_ >= end_) {
      return;
    }
    const Size size = level.size;
    const Size first = begin_ / size, last = std::min(level.count(), ceil_div(end_, size));
    Device::template merge_vectors<R>(lane_, level, state_, first, last - first, u_);
    for (Size i = first; i < last;) {
      const Size from = level.begin(i);
      const Columns mine = own(from, level.end(i));
      Size together = 1;
      while (mine.count == size && i + together < last &&
             own(level.begin(i + together), level.end(i + together)).count == size) {
        ++together;
      }
      const Size rows = level.end(i) - from, place = from + mine.first * n_;
      Device::template gemm_strided<R>(lane_, Op::transpose, Op::none, rows, mine.count, rows, R(1),
                                       u_ + (i - first) * size * size, size, size * size,
                                       work_ + place, n_, size * (n_ + 1), R(0), q_ + place, n_,
                                       size * (n_ + 1), together);
      i += together;
    }
  }

  // The same for one node, a block of wanted eigenvectors at a time; half of the rows of U meet
  // zeros of Q only.
  void multiply(const MergeLevel& level, Size node, const MergeCounts& counts, bool some) {
    const Size from = level.begin(node), k = counts.poles;
    const Columns above = own(from, level.middle(node)),
                  below = own(level.middle(node), level.end(node));
    std::vector<Size> wanted;
    if (some) {
      wanted = wanted_roots(k);
    }
    if (above.count + below.count == 0) {
      return;
    }
    const Size total = some ? static_cast<Size>(wanted.size()) : k;
    for (Size i = 0; i < total; i += width_) {
      const Size count = std::min(width_, total - i);
      Device::template secular_vectors<R>(lane_, level, state_, node, k, i, count,
                                          some ? wanted.data() : nullptr, u_, n_,
                                          scratch_ + MergeState::doubles(n_));
      const auto product = [&](const Columns& c, Size first, Size length) {
        const Size offset = from + c.first * n_;
        if (length == 0) {
          return Device::template fill<R>(lane_, count, c.count, R(0), R(0), q_ + offset + i, n_);
        }
        if constexpr (std::is_same_v<R, float> && Device::template splits<R>) {
          if (rank_.plan.precision() == Precision::split) {
            return multiply_by_parts(count, c.count, length, u_ + first, work_ + offset + first,
                                     q_ + offset + i);
          }
        }
        Device::template gemm<R>(lane_, Op::transpose, Op::none, count, c.count, length, R(1),
                                 u_ + first, n_, work_ + offset + first, n_, R(0), q_ + offset + i,
                                 n_);
      };
      product(above, 0, counts.above + counts.both);
      product(below, counts.above, k - counts.above);
    }
    const Columns mine = own(from, level.end(node));
    const Size offset = from + mine.first * n_ + k;
    Device::template copy<R>(lane_, level.end(node) - from - k, mine.count, work_ + offset, n_,
                             q_ + offset, n_);
  }

  // q (count x columns) <- u^T work, the inner dimension being `length`, by half-precision parts:
  // both factors have orthonormal columns. As many columns of the second one at a time as the place
  // of X has room for; columns of parts begin at multiples of 16 bytes.
  void multiply_by_parts(Size count, Size columns, Size length, const R* u, const R* work, R* q) {
    using Half = typename Device::Half;
    const auto halves = [&](Buffer buffer) {
      return reinterpret_cast<Half*>(rank_.workspace.template get<float>(buffer));
    };
    Half* const parts = halves(Buffer::split_even);
    const Size ld = parts_ld(length);
    const Size most =
        std::max<Size>(1, rank_.workspace.count(Buffer::reflector_rows) / parts_ld(n_));
    Device::split_left(lane_, length, count, u, n_, parts, ld);
    for (Size j = 0; j < columns; j += most) {
      Device::multiply_split_adjoint(lane_, length, std::min(most, columns - j), count, parts, ld,
                                     work + j * n_, n_, halves(Buffer::reflector_rows), q + j * n_,
                                     n_);
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
  Size width_;  // columns of u
  double* scratch_;
  MergeState state_;
  Size first_ = 0, count_ = 0;
  std::vector<Size> order_;  // of the eigenvalues
  std::vector<Size> row_;    // where eigenvectors lie after the last merge, if not all are needed
  double norm_ = 0;
  bool converged_ = true;
};

}  // namespace jaxmg
