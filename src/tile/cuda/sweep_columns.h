// The columns that reflectors of bulge chasing are applied to, as the threads of a warp load and
// store them: in memory of the type S, in registers as accumulators of tensor cores.
#pragma once

#include <cstdint>
#include <cstring>
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
  // Rows that are wanted next come by way of shared memory, 16 bytes at a time, where pairs of them
  // have so many.
  static constexpr bool kFetches = sizeof(S) >= 8;
  static constexpr int kPieces = kFetches ? std::is_same_v<S, DeviceComplex<float>> ? 1 : 2 : 0;
  // Bytes for `tiles` tiles of each of `threads` threads.
  static constexpr Size fetch_bytes(Size tiles, Size threads) {
    return 16 * kPieces * tiles * threads;
  }

  // `first` is the warp's first column. Lanes whose column does not exist read another one.
  __device__ SweepColumns(S* x, Size ldx, int n, Size columns, Size first) : n_(n) {
    const Size column = first + threadIdx.x % 32 / 4;
    const int row = 2 * static_cast<int>(threadIdx.x % 4);
    const Size last = columns - 1;
    here_ = column < columns;
    there_ = column + 8 < columns;
    const bool paired = ldx % 2 == 0 && reinterpret_cast<std::uintptr_t>(x) % (2 * sizeof(S)) == 0;
    whole_ = __all_sync(~0u, here_ && (kComplex || there_) && paired);
    left_ = x + (here_ ? column : last) * ldx + row;
    right_ = x + (there_ ? column + 8 : last) * ldx + row;
    row_ = row;
  }

  // Tiles tile(0), ... of 8 rows each from row `row` on: the thread's four numbers of each.
  template <int Count, class Tile>
  __device__ void load(int row, const Tile& tile) const {
    const S* const left = left_ + row;
    const S* const right = right_ + row;
    const int there = n_ - row - row_;  // rows of the thread's columns from here on
    if constexpr (!kSingly) {
      if (in_pieces(row, Count)) {
#pragma unroll
        for (int r = 0; r < Count; ++r) {
          load_whole(left + 8 * r, right + 8 * r, tile(r));
        }
        return;
      }
    }
#pragma unroll
    for (int r = 0; r < Count; ++r) {
      load_part(left + 8 * r, right + 8 * r, there - 8 * r, tile(r));
    }
  }
  // Begins to copy the same to `place`, as far as all of it exists; the caller commits the copies.
  template <int Count>
  __device__ void fetch(int row, double2* place) const {
    if constexpr (kSingly) {
      const int there = n_ - row - row_;
#pragma unroll
      for (int r = 0; r < Count; ++r) {
        copy_async_or_zeros(piece(place, r, 0), source(row + 8 * r, 0), there > 8 * r);
        copy_async_or_zeros(piece(place, r, 1), source(row + 8 * r, 1), there > 8 * r + 1);
      }
    } else if (kFetches && in_pieces(row, Count)) {
#pragma unroll
      for (int r = 0; r < Count; ++r) {
#pragma unroll
        for (int i = 0; i < kPieces; ++i) {
          copy_async(piece(place, r, i), source(row + 8 * r, i));
        }
      }
    }
  }
  // load() when the copies have arrived.
  template <int Count, class Tile>
  __device__ void take(int row, double2* place, const Tile& tile) const {
    if (kSingly || (kFetches && in_pieces(row, Count))) {
#pragma unroll
      for (int r = 0; r < Count; ++r) {
        double(&e)[4] = tile(r);
        const double2 a = *piece(place, r, 0);
        if constexpr (kPieces == 1) {
          float4 x;
          memcpy(&x, &a, sizeof(x));
          e[0] = x.x, e[1] = x.z, e[2] = x.y, e[3] = x.w;
        } else {
          const double2 b = *piece(place, r, 1);
          e[0] = a.x, e[1] = kComplex ? b.x : a.y, e[2] = kComplex ? a.y : b.x, e[3] = b.y;
        }
      }
    } else {
      load<Count>(row, tile);
    }
  }
  template <int Count, class Tile>
  __device__ void store(int row, const Tile& tile) const {
    S* const left = left_ + row;
    S* const right = right_ + row;
    const int there = n_ - row - row_;
    if constexpr (!kSingly) {
      if (in_pieces(row, Count)) {
#pragma unroll
        for (int r = 0; r < Count; ++r) {
          store_whole(left + 8 * r, right + 8 * r, tile(r));
        }
        return;
      }
    }
#pragma unroll
    for (int r = 0; r < Count; ++r) {
      store_part(left + 8 * r, right + 8 * r, there - 8 * r, tile(r));
    }
  }
  // Tells the cache that rows row .. row + Rows - 1 will be loaded.
  template <int Rows>
  __device__ void announce(int row) const {
    constexpr int line = 128 / sizeof(S);
    for (int i = row + line * static_cast<int>(threadIdx.x % 4); i < row + Rows && i < n_;
         i += 4 * line) {
      prefetch(left_ - row_ + i);
      if constexpr (!kComplex) {
        prefetch(right_ - row_ + i);
      }
    }
  }

 private:
  using Pair = std::conditional_t<sizeof(S) == (kComplex ? 8 : 4), float2, double2>;
  // One element has 16 bytes, which is all that is ever moved at once.
  static constexpr bool kSingly = sizeof(S) == 16;
  // Whether `tiles` tiles from row `row` on can be moved in larger pieces than elements.
  __device__ bool in_pieces(int row, int tiles) const {
    return whole_ && row + 8 * tiles <= n_;
  }
  __device__ static double2* piece(double2* place, int tile, int i) {
    return place + (tile * kPieces + i) * static_cast<int>(blockDim.x) + threadIdx.x;
  }
  __device__ const S* source(int row, int i) const {
    return kComplex ? left_ + row + i : (i == 0 ? left_ : right_) + row;
  }
  // Of a tile that exists as a whole, in as few accesses as there can be.
  __device__ static void load_whole(const S* left, const S* right, double (&e)[4]) {
    if constexpr (std::is_same_v<S, DeviceComplex<float>>) {
      const float4 x = __ldcg(reinterpret_cast<const float4*>(left));
      e[0] = x.x, e[1] = x.z, e[2] = x.y, e[3] = x.w;
    } else {
      const Pair a = __ldcg(reinterpret_cast<const Pair*>(left));
      const Pair b = __ldcg(reinterpret_cast<const Pair*>(right));
      e[0] = a.x, e[1] = a.y, e[2] = b.x, e[3] = b.y;
    }
  }
  __device__ static void store_whole(S* left, S* right, const double (&e)[4]) {
    if constexpr (std::is_same_v<S, DeviceComplex<float>>) {
      *reinterpret_cast<float4*>(left) = {static_cast<float>(e[0]), static_cast<float>(e[2]),
                                          static_cast<float>(e[1]), static_cast<float>(e[3])};
    } else {
      *reinterpret_cast<Pair*>(left) = {static_cast<S>(e[0]), static_cast<S>(e[1])};
      *reinterpret_cast<Pair*>(right) = {static_cast<S>(e[2]), static_cast<S>(e[3])};
    }
  }
  // The same element by element, of columns of which `rows` rows are left.
  __device__ void load_part(const S* left, const S* right, int rows, double (&e)[4]) const {
    const bool first = rows > 0, second = rows > 1;
    if constexpr (kComplex) {
      const Pair a = first ? __ldcg(reinterpret_cast<const Pair*>(left)) : Pair{0, 0};
      const Pair b = second ? __ldcg(reinterpret_cast<const Pair*>(left + 1)) : Pair{0, 0};
      e[0] = a.x, e[1] = b.x, e[2] = a.y, e[3] = b.y;
    } else {
      e[0] = first ? load_shared_by_all(left) : S{0};
      e[1] = second ? load_shared_by_all(left + 1) : S{0};
      e[2] = first ? load_shared_by_all(right) : S{0};
      e[3] = second ? load_shared_by_all(right + 1) : S{0};
    }
  }
  __device__ void store_part(S* left, S* right, int rows, const double (&e)[4]) const {
    const bool first = rows > 0, second = rows > 1;
    if constexpr (kComplex) {
      using R = decltype(S::re);
      if (here_ && first) {
        left[0] = {static_cast<R>(e[0]), static_cast<R>(e[2])};
      }
      if (here_ && second) {
        left[1] = {static_cast<R>(e[1]), static_cast<R>(e[3])};
      }
    } else {
      put(left, here_ && first, e[0]);
      put(left + 1, here_ && second, e[1]);
      put(right, there_ && first, e[2]);
      put(right + 1, there_ && second, e[3]);
    }
  }
  __device__ static void put(S* p, bool exists, double x) {
    if (exists) {
      *p = static_cast<S>(x);
    }
  }

  int n_;
  bool here_, there_;
  bool whole_;  // all columns of the warp exist and can be accessed in pairs of rows
  S* left_;
  S* right_;
  int row_;
};

}  // namespace jaxmg::tile

#endif  // __CUDACC__
