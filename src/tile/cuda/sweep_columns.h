// The columns that reflectors of bulge chasing are applied to, as the threads of a warp load and
// store them: in memory of the type S, in registers as accumulators of tensor cores.
#pragma once

#include <cstdint>
#include <type_traits>

#include "tile/cuda/async_copy.h"
#include "tile/cuda/flags.h"
#include "tile/cuda/scalar.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// Columns of X that belong to one thread: one complex column, or two real ones of which the second
// is in the other half of the accumulator. Memory holds them in the type S.
template <class S>
class SweepColumns {
 public:
  static constexpr bool kComplex = !std::is_same_v<S, float> && !std::is_same_v<S, double>;
  static constexpr Size kWidth = kComplex ? 8 : 16;  // of a warp

  // `first` is the warp's first column. Lanes whose column does not exist read another one.
  __device__ SweepColumns(S* x, Size ldx, Size n, Size columns, Size first)
      : n_(n), paired_(ldx % 2 == 0 && reinterpret_cast<std::uintptr_t>(x) % (2 * sizeof(S)) == 0) {
    const Size column = first + threadIdx.x % 32 / 4;
    const Size row = 2 * (threadIdx.x % 4);
    const Size last = columns - 1;
    here_ = column < columns;
    there_ = column + 8 < columns;
    left_ = x + (here_ ? column : last) * ldx + row;
    right_ = x + (there_ ? column + 8 : last) * ldx + row;
    row_ = row;
  }

  // e: the thread's four numbers of the tile of rows row .. row + 7.
  __device__ void load(Size row, double (&e)[4]) const {
    if constexpr (kComplex) {
      const bool first = row + row_ < n_, second = row + row_ + 1 < n_;
      const S a = first ? load_shared_by_all(left_ + row) : S{0, 0};
      const S b = second ? load_shared_by_all(left_ + row + 1) : S{0, 0};
      e[0] = a.re, e[1] = b.re, e[2] = a.im, e[3] = b.im;
    } else {
      load_pair(left_ + row, row, e[0], e[1]);
      load_pair(right_ + row, row, e[2], e[3]);
    }
  }
  // Tells the cache that rows row .. row + Rows - 1 will be loaded.
  template <int Rows>
  __device__ void announce(Size row) const {
    constexpr int line = 128 / sizeof(S);
    for (Size i = row + line * (threadIdx.x % 4); i < row + Rows && i < n_; i += 4 * line) {
      prefetch(left_ - row_ + i);
      if constexpr (!kComplex) {
        prefetch(right_ - row_ + i);
      }
    }
  }
  __device__ void store(Size row, const double (&e)[4]) const {
    if constexpr (kComplex) {
      using R = decltype(S::re);
      if (here_ && row + row_ < n_) {
        left_[row] = {static_cast<R>(e[0]), static_cast<R>(e[2])};
      }
      if (here_ && row + row_ + 1 < n_) {
        left_[row + 1] = {static_cast<R>(e[1]), static_cast<R>(e[3])};
      }
    } else {
      if (here_) {
        store_pair(left_ + row, row, e[0], e[1]);
      }
      if (there_) {
        store_pair(right_ + row, row, e[2], e[3]);
      }
    }
  }

 private:
  using Pair = std::conditional_t<sizeof(S) == sizeof(float), float2, double2>;
  // Other multiprocessors may have written it.
  __device__ void load_pair(const S* p, Size row, double& a, double& b) const {
    if (paired_ && row + row_ + 1 < n_) {
      const Pair pair = __ldcg(reinterpret_cast<const Pair*>(p));
      a = pair.x, b = pair.y;
    } else {
      a = row + row_ < n_ ? load_shared_by_all(p) : S{0};
      b = row + row_ + 1 < n_ ? load_shared_by_all(p + 1) : S{0};
    }
  }
  __device__ void store_pair(S* p, Size row, double a, double b) const {
    if (paired_ && row + row_ + 1 < n_) {
      *reinterpret_cast<Pair*>(p) = {static_cast<S>(a), static_cast<S>(b)};
    } else {
      if (row + row_ < n_) {
        p[0] = static_cast<S>(a);
      }
      if (row + row_ + 1 < n_) {
        p[1] = static_cast<S>(b);
      }
    }
  }

  Size n_;
  bool paired_;
  bool here_, there_;
  S* left_;
  S* right_;
  Size row_;
};

}  // namespace jaxmg::tile

#endif  // __CUDACC__
