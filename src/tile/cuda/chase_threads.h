// The threads that carry out the steps of a sweep of bulge chasing, see chase.cu.
#pragma once

#include <cstring>

#include "tile/cuda/chase_memory.h"
#include "tile/cuda/column_sums.h"
#include "tile/cuda/flags.h"
#include "tile/cuda/reduce.h"
#include "tile/cuda/reflector.h"
#include "tile/cuda/scalar.h"
#include "tile/eigen.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// Thread (i, g) has row i of the blocks in the columns of group g.
template <class D, class R, int B>
class Chase {
 public:
  static constexpr int kParts = kChaseGroups;
  static constexpr int kRowThreads = B * kParts;
  static constexpr bool kAlone = kChaseHelpers<D, B> == 0;
  static constexpr int kThreads = kRowThreads + 32 * kChaseHelpers<D, B>;
  static constexpr int kColumns = B / kParts;
  static constexpr int kHalves = B / 32;
  using Memory = ChaseMemory<D, B>;

  __device__ Chase(Memory& memory, const SweepBatch& batch, D* band, Size ld, R smallest)
      : s_(memory),
        n_(batch.n),
        b_(static_cast<int>(batch.b)),
        band_(band),
        stride_(ld - 1),
        smallest_(smallest),
        row_(static_cast<int>(threadIdx.x) % B),
        group_(static_cast<int>(threadIdx.x) / B),
        lane_(static_cast<int>(threadIdx.x) % 32),
        half_(row_ / 32),
        warp_(static_cast<int>(threadIdx.x) / 32),
        first_column_(group_ * kColumns) {}

  // Rows of the diagonal block other than the last one, before it is the step's turn.
  __device__ void load_diagonal_ahead(Size begin) {
    if (row_ != b_ - 1) {
      load_diagonal(begin);
    }
  }
  // What is left to load when it is.
  __device__ void load_rest(Size sweep, Size begin, int step) {
    if (step == 0) {
      load_diagonal_ahead(begin);
      if (group_ == 0) {
        const bool active = row_ < b_ - 1 && begin + row_ < n_;
        const D x = active ? load_shared_by_all(band_ + 1 + row_ + sweep * (stride_ + 1)) : zero();
        s_.x[row_] = row_ == b_ - 1 ? s_.last_below[0] : x;
      }
    }
    if (row_ == b_ - 1) {
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int j = first_column_ + c;
        below_[c] = j == b_ - 1 ? s_.last_below[step % 2] : zero();
        diagonal_[c] = j < b_ ? s_.last_row[step % 2][j] : zero();
      }
    }
  }
  // The same where nobody else has fetched anything: each warp has waited for itself.
  __device__ void load_rest_alone(Size sweep, Size begin, int step) {
    if (step == 0) {
      load_diagonal(begin);
      if (group_ == 0) {
        const bool active = row_ < b_ && begin + row_ < n_;
        s_.x[row_] = active ? load_shared_by_all(band_ + 1 + row_ + sweep * (stride_ + 1)) : zero();
      }
    } else if (row_ == b_ - 1) {
      load_below(begin);
      load_diagonal(begin);
    }
  }

  // One step: rows begin .. begin + b - 1. Block, reflector and diagonal block as in the CPU's.
  __device__ void step(Size sweep, Size begin, bool first) {
    const Size left = n_ - begin;
    const int rows = left < b_ ? static_cast<int>(left) : b_;
    const bool active = row_ < rows;
    if (first) {
      sync_first<kRowThreads>();
    } else {
      finish_bulge();
    }
    const ReflectorScalars<D, R> h = find_reflector();
    multiply(h, first);
    sync_first<kRowThreads>();
    if (first) {
      if (group_ == 0 && active) {
        store_for_all(band_ + 1 + row_ + sweep * (stride_ + 1),
                      row_ == 0 ? element<D>(h.beta) : zero());
      }
    } else {
      update_below(h, begin, active);
    }
    if (begin + b_ < n_ && row_ != b_ - 1) {
      load_below(begin + b_);
    }
    update_diagonal(h, begin, active);
    if (group_ == 0) {
      s_.v[row_] = own_;
    }
    tau_ = h.tau;
  }

  __device__ void keep(D* target, Size begin) const {
    if (group_ == 0 && row_ < b_ && begin + row_ < n_) {
      target[row_] = row_ == 0 ? tau_ : own_;
    }
  }

 private:
  __device__ static D zero() {
    return element<D>(R{0});
  }

  // Element (row, first_column + c) of the block below rows begin - b ..: at distance
  // b + row - column from the diagonal.
  __device__ D* below_at(Size begin) const {
    return band_ + (b_ + row_) + (begin - b_) * (stride_ + 1) + first_column_ * stride_;
  }
  __device__ D* diagonal_at(Size begin) const {
    return band_ + row_ + begin * (stride_ + 1) + first_column_ * stride_;
  }
  __device__ void load_below(Size begin) {
    const D* const p = below_at(begin);
    const bool active = row_ < b_ && begin + row_ < n_;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      below_[c] = active && first_column_ + c < b_ ? load_shared_by_all(p + c * stride_) : zero();
    }
  }
  __device__ void load_diagonal(Size begin) {
    const D* const p = diagonal_at(begin);
    const bool active = row_ < b_ && begin + row_ < n_;
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int j = first_column_ + c;
      diagonal_[c] = active && row_ >= j ? load_shared_by_all(p + c * stride_) : zero();
      if (row_ == j) {
        diagonal_[c] = element<D>(real_part(diagonal_[c]));
      }
    }
  }

  // f(c, p[first_column_ + c]) for the own columns, 16 bytes at a time.
  template <class F>
  __device__ void for_columns(const D* p, F f) const {
    constexpr int together = 16 / sizeof(D);
#pragma unroll
    for (int c = 0; c < kColumns; c += together) {
      const int4 bits = *reinterpret_cast<const int4*>(p + first_column_ + c);
      D x[together];
      memcpy(&x, &bits, 16);
#pragma unroll
      for (int i = 0; i < together; ++i) {
        f(c + i, x[i]);
      }
    }
  }

  // All groups' parts of row i; in pairs, since each sum waits for the one before.
  __device__ static D sum_of_parts(const D (&parts)[kParts][B], int i) {
    D sum = parts[0][i] + parts[1][i];
#pragma unroll
    for (int q = 2; q < kParts; q += 2) {
      sum = sum + (parts[q][i] + parts[q + 1][i]);
    }
    return sum;
  }

  // B <- B - (B v) (tau v^H) with the last reflector; x <- its first column.
  __device__ void finish_bulge() {
    D parts[4] = {zero(), zero(), zero(), zero()};
    for_columns(s_.v, [&](int c, D v) { parts[c % 4] = parts[c % 4] + below_[c] * v; });
    s_.below[group_][row_] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    sync_first<kRowThreads>();
    const D w = sum_of_parts(s_.below, row_) * tau_;
    for_columns(s_.v, [&](int c, D v) { below_[c] = below_[c] - w * conjugate(v); });
    if (group_ == 0) {
      s_.x[row_] = below_[0];
    }
    sync_first<kRowThreads>();
  }

  // Each warp for itself: lane l has elements l and l + 32.
  __device__ ReflectorScalars<D, R> find_reflector() {
    R tail = 0;
#pragma unroll
    for (int q = 0; q < kHalves; ++q) {
      v_[q] = s_.x[lane_ + 32 * q];
      tail += q > 0 || lane_ > 0 ? square(v_[q]) : R{0};
    }
    const ReflectorScalars<D, R> h = reflector_scalars(s_.x[0], warp_sum(tail), smallest_);
#pragma unroll
    for (int q = 0; q < kHalves; ++q) {
      v_[q] = q == 0 && lane_ == 0 ? element<D>(R{1}) : h.scale * v_[q];
    }
    own_ = v_[0];
    if (kHalves > 1 && half_ > 0) {
      own_ = v_[kHalves - 1];
    }
    return h;
  }
  // Element j of the reflector, made from x_j.
  __device__ static D reflector_from(const ReflectorScalars<D, R>& h, int j, D x) {
    return j == 0 ? element<D>(R{1}) : h.scale * x;
  }

  // Parts of v^H B and of D v.
  __device__ void multiply(const ReflectorScalars<D, R>& h, bool first) {
    D r[kColumns];
    if (!first) {
      const D left = conjugate(own_);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        r[c] = left * below_[c];
      }
      const D sum = sum_columns<kColumns>(r, lane_);
      if (keeps_sum<kColumns>(lane_)) {
        s_.below_columns[half_][first_column_ + summed_column<kColumns>(lane_)] = sum;
      }
    }
    D parts[4] = {zero(), zero(), zero(), zero()};
    for_columns(s_.x, [&](int c, D x) {
      const int j = first_column_ + c;
      parts[c % 4] = parts[c % 4] + diagonal_[c] * reflector_from(h, j, x);
      r[c] = row_ > j ? conjugate(diagonal_[c]) * own_ : zero();
    });
    s_.diagonal[group_][row_] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
    const D sum = sum_columns<kColumns>(r, lane_);
    if (keeps_sum<kColumns>(lane_)) {
      s_.diagonal_columns[half_][first_column_ + summed_column<kColumns>(lane_)] = sum;
    }
  }

  // B <- B - conj(tau) v (v^H B), whose first column is known.
  __device__ void update_below(const ReflectorScalars<D, R>& h, Size begin, bool active) {
    const D factor = conjugate(h.tau) * own_;
    D* const p = below_at(begin);
    D sums[kColumns];
    for_columns(s_.below_columns[0], [&](int c, D sum) { sums[c] = sum; });
    if (kHalves > 1) {
      for_columns(s_.below_columns[kHalves - 1], [&](int c, D sum) { sums[c] = sums[c] + sum; });
    }
#pragma unroll
    for (int c = 0; c < kColumns; ++c) {
      const int j = first_column_ + c;
      D value = below_[c] - factor * sums[c];
      if (j == 0) {
        value = row_ == 0 ? element<D>(h.beta) : zero();
      }
      if (active && j < b_) {
        store_for_all(p + c * stride_, value);
      }
    }
  }

  // w = tau D v - |tau|^2 (v^H D v) v / 2,   D <- D - w v^H - v w^H
  __device__ void update_diagonal(const ReflectorScalars<D, R>& h, Size begin, bool active) {
    D w[kHalves];
    R product = 0;
#pragma unroll
    for (int q = 0; q < kHalves; ++q) {
      const int i = lane_ + 32 * q;
      w[q] = sum_of_parts(s_.diagonal, i);
      D upper = s_.diagonal_columns[0][i];
      if (kHalves > 1) {
        upper = upper + s_.diagonal_columns[kHalves - 1][i];
      }
      w[q] = w[q] + upper;
      product += real_part(conjugate(v_[q]) * w[q]);
    }
    const D half = element<D>(square(h.tau) * warp_sum(product) / 2);
#pragma unroll
    for (int q = 0; q < kHalves; ++q) {
      w[q] = h.tau * w[q] - half * v_[q];
      s_.w[warp_][lane_ + 32 * q] = w[q];
    }
    __syncwarp();
    D own = w[0];
    if (kHalves > 1 && half_ > 0) {
      own = w[kHalves - 1];
    }
    D* const p = diagonal_at(begin);
    for_columns(s_.x, [&](int c, D x) {
      diagonal_[c] = diagonal_[c] - own * conjugate(reflector_from(h, first_column_ + c, x));
    });
    for_columns(s_.w[warp_], [&](int c, D wj) {
      const int j = first_column_ + c;
      const D value = diagonal_[c] - own_ * conjugate(wj);
      if (active && row_ >= j) {
        store_for_all(p + c * stride_, row_ == j ? element<D>(real_part(value)) : value);
      }
    });
  }

  Memory& s_;
  Size n_;
  int b_;
  D* band_;
  Size stride_;  // from column to column in one row
  R smallest_;
  int row_, group_, lane_, half_, warp_, first_column_;
  D below_[kColumns], diagonal_[kColumns];
  D v_[kHalves];  // this lane's elements of the reflector
  D own_;         // that of this thread's row
  D tau_;
};

}  // namespace jaxmg::tile

#endif  // __CUDACC__
