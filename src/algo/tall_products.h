// Products of a tall matrix with its own adjoint and with residuals, whose sums run over its rows.
//
// The rows of this rank, read column-major, are the n x L columns of M = A^T. Sums over L columns
// are made in parts, each a product of its own, so that a device finds enough of them to do
// although the results are small; and the shorter a sum, the smaller its rounding errors.
#pragma once

#include <algorithm>
#include <type_traits>

#include "algo/rank.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class TallProducts {
 public:
  using W = Wide<T>;

  // a: n x local columns, ld n.
  TallProducts(Rank<Device>& rank, Size n, Size local, const T* a)
      : rank_(rank),
        n_(n),
        local_(local),
        tile_(std::min(rank.plan.tile(), n)),
        cut_(gram_cut(rank.plan.request(), rank.plan.tile())),
        a_(a),
        gram_parts_(rank.workspace.template get<W>(Buffer::gram_parts)),
        blocks_(rank.workspace.template get<W>(Buffer::gram_blocks)),
        ones_(rank.workspace.template get<W>(Buffer::ones)),
        // Behind those of the other precision.
        own_ones_(rank.workspace.template get_as<T>(Buffer::ones) +
                  (cut_.parts + 1) * static_cast<Size>(sizeof(W) / sizeof(T))),
        gradient_parts_(rank.workspace.template get<T>(Buffer::gradient_parts)) {
    auto& lane = rank.lanes.update;
    Device::template fill<W>(lane, cut_.parts + 1, 1, W(1), W(1), ones_, cut_.parts + 1);
    Device::template fill<T>(lane, cut_.parts + 1, 1, T(1), T(1), own_ones_, cut_.parts + 1);
  }

  // Lower triangle of g (n x n) <- that of M M^H = conj(A^H A) with the rows of all ranks, in
  // double precision. Only blocks on and below the diagonal are made, and sent.
  void gram(W* g, Size ldg) {
    auto& lane = rank_.lanes.update;
    if constexpr (std::is_same_v<T, W>) {
      add_gram(a_, local_, false);
    } else {
      W* const wide = rank_.workspace.template get<W>(Buffer::wide_columns);
      for (Size first = 0; first < local_; first += cut_.rows) {
        const Size count = std::min(cut_.rows, local_ - first);
        Device::template convert<T, W>(lane, n_, count, a_ + first * n_, n_, wide, n_);
        add_gram(wide, count, first > 0);
      }
    }
    const Size all = block_begin(n_);
    if (local_ == 0) {
      Device::template fill<W>(lane, all, 1, W(0), W(0), blocks_, all);
    }
    if (rank_.comm.size() > 1) {
      auto summed = rank_.comm.all_reduce(lane, blocks_, all, dtype_of<W>, Reduction::sum);
      lane.wait(summed);
    }
    for (Size j = 0; j < n_; j += tile_) {
      Device::template copy<W>(lane, n_ - j, width(j), blocks_ + block_begin(j), n_ - j,
                               g + j * (ldg + 1), ldg);
    }
  }

  // g (k x n) <- R M^H for the residuals R = D - X M of this rank's columns; x null: R = D. d: k x
  // L, overwritten unless k = 1.
  void gradient(Size k, const T* x, T* d, T* g) {
    auto& lane = rank_.lanes.update;
    if (local_ == 0) {
      return Device::template fill<T>(lane, k, n_, T(0), T(0), g, k);
    }
    if (k == 1 && n_ <= Device::template gradient_columns<T>) {
      return Device::template gradient<T>(lane, n_, local_, a_, n_, x, d, g, gradient_parts_,
                                          rank_.workspace.count(Buffer::gradient_parts));
    }
    if (x) {
      Device::template gemm<T>(lane, Op::none, Op::none, k, local_, n_, T(-1), x, k, a_, n_, T(1),
                               d, k);
    }
    sum_products<T>(k, n_, local_, d, k, a_, n_, gradient_parts_, own_ones_, T(0), g);
  }

 private:
  Size width(Size j) const { return std::min(tile_, n_ - j); }
  // Where the block column that begins with column j lies: after those of n, n - tile, ... rows.
  Size block_begin(Size j) const {
    const Size before = ceil_div(j, tile_);
    return j == n_ ? block_begin((before - 1) * tile_) + (n_ - (before - 1) * tile_) * last()
                   : before * tile_ * n_ - tile_ * tile_ * before * (before - 1) / 2;
  }
  Size last() const { return n_ - (ceil_div(n_, tile_) - 1) * tile_; }

  // blocks <- (themselves, if `add`, plus) those of m m^H
  void add_gram(const W* m, Size columns, bool add) {
    for (Size j = 0; j < n_; j += tile_) {
      sum_products<W>(n_ - j, width(j), columns, m + j, n_, m + j, n_, gram_parts_, ones_,
                      W(add ? 1 : 0), blocks_ + block_begin(j));
    }
  }

  // c (m x n, contiguous) <- a b^H + beta c, a and b of k > 0 columns, in parts.
  template <class E>
  void sum_products(Size m, Size n, Size k, const E* a, Size lda, const E* b, Size ldb, E* parts,
                    const E* ones, E beta, E* c) {
    auto& lane = rank_.lanes.update;
    const Size count = std::clamp<Size>(k / kLeastGramRows, 1, cut_.parts);
    if (count == 1) {
      return Device::template gemm<E>(lane, Op::none, Op::conj_transpose, m, n, k, E(1), a, lda, b,
                                      ldb, beta, c, m);
    }
    const Size length = k / count, done = length * count;
    Device::template gemm_strided<E>(lane, Op::none, Op::conj_transpose, m, n, length, E(1), a, lda,
                                     length * lda, b, ldb, length * ldb, E(0), parts, m, m * n,
                                     count);
    if (done < k) {  // fewer than there are parts
      Device::template gemm<E>(lane, Op::none, Op::conj_transpose, m, n, k - done, E(1),
                               a + done * lda, lda, b + done * ldb, ldb, E(0),
                               parts + count * m * n, m);
    }
    Device::template gemm<E>(lane, Op::none, Op::none, m * n, 1, count + (done < k ? 1 : 0), E(1),
                             parts, m * n, ones, cut_.parts + 1, beta, c, m * n);
  }

  Rank<Device>& rank_;
  Size n_;
  Size local_;
  Size tile_;
  GramCut cut_;
  const T* a_;
  W* gram_parts_;
  W* blocks_;
  W* ones_;
  T* own_ones_;
  T* gradient_parts_;
};

}  // namespace jaxmg
