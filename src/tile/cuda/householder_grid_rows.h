// The rows of a panel in the registers of a grid that takes its QR, and what is done to them. See
// householder_grid.cu.
#pragma once

#include <cstdint>

#include "tile/cuda/householder_grid_memory.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// As many numbers as are read from shared memory at once.
template <class D>
struct alignas(16) GridPack {
  static constexpr int count = 16 / sizeof(D);
  D x[count];
};

// x + conj(a) b
template <class R>
__device__ R plus_conjugate_product(R x, R a, R b) {
  return fma(a, b, x);
}
template <class R>
__device__ DeviceComplex<R> plus_conjugate_product(DeviceComplex<R> x, DeviceComplex<R> a,
                                                   DeviceComplex<R> b) {
  return {fma(a.im, b.im, fma(a.re, b.re, x.re)), fma(-a.im, b.re, fma(a.re, b.im, x.im))};
}

// The rows of a warp: kRows consecutive ones from `first` on, a lane's columns lane, lane + 32.
template <class D, class R, int kRows, int kSpans>
struct GridRows {
  D x[kRows][kSpans];
  D sums[kSpans];  // over rows below the pivot, of conj(next column) times own columns
  int first;
  int lane;

  __device__ void load(const GridPanel<D>& p) {
#pragma unroll
    for (int q = 0; q < kRows; ++q) {
#pragma unroll
      for (int c = 0; c < kSpans; ++c) {
        const int l = lane + 32 * c;
        x[q][c] = first + q < p.m && l < p.w ? p.a[first + q + l * p.lda] : element<D>(R{0});
      }
    }
  }

  // next <- column j, which is in span c, for all lanes.
  __device__ void show(int j, int c, D* next) const {
    if (lane == (j & 31)) {
#pragma unroll
      for (int q = 0; q < kRows; q += GridPack<D>::count) {
        GridPack<D> pack;
#pragma unroll
        for (int i = 0; i < GridPack<D>::count; ++i) {
          pack.x[i] = c == 0 ? x[q + i][0] : x[q + i][kSpans - 1];
        }
        *reinterpret_cast<GridPack<D>*>(next + q) = pack;
      }
    }
    __syncwarp();
  }

  // Sums over rows below row j of conj(next) times the columns from span kFrom on.
  template <bool kNear, int kFrom>
  __device__ void add_up(int j, const D* next) {
#pragma unroll
    for (int c = kFrom; c < kSpans; ++c) {
      sums[c] = element<D>(R{0});
    }
#pragma unroll
    for (int q = 0; q < kRows; q += GridPack<D>::count) {
      const GridPack<D> pack = *reinterpret_cast<const GridPack<D>*>(next + q);
#pragma unroll
      for (int i = 0; i < GridPack<D>::count; ++i) {
        if (!kNear || first + q + i > j) {
#pragma unroll
          for (int c = kFrom; c < kSpans; ++c) {
            sums[c] = plus_conjugate_product(sums[c], pack.x[i], x[q + i][c]);
          }
        }
      }
    }
  }

  // to <- row j, if it is one of these.
  __device__ void copy_row(int j, D* to) const {
#pragma unroll
    for (int q = 0; q < kRows; ++q) {
      if (first + q == j) {
#pragma unroll
        for (int c = 0; c < kSpans; ++c) {
          to[lane + 32 * c] = x[q][c];
        }
      }
    }
  }

  // Tells all blocks row j, if it is one of these.
  __device__ void tell_row(const GridPanel<D>& p, int j) const {
#pragma unroll
    for (int q = 0; q < kRows; ++q) {
      if (first + q == j) {
#pragma unroll
        for (int c = 0; c < kSpans; ++c) {
          put(p.row + (j & 1) * kGridColumns + lane + 32 * c, x[q][c],
              static_cast<std::uint32_t>(j + 1));
        }
      }
    }
  }

  // a_l <- a_l - v factor_l for the columns after j, whose factors are 0 elsewhere; v below row j
  // is scale times column j, which lies in `column`. Then the sums for column j + 1, by way of
  // `next`. kNear: some rows are not below row j + 1. kFrom: no column after j lies in an earlier
  // span.
  template <bool kNear, int kFrom>
  __device__ void apply(int j, D scale, const D (&factor)[kSpans], const D* column, D* next) {
    D scaled[kSpans];
#pragma unroll
    for (int c = kFrom; c < kSpans; ++c) {
      scaled[c] = scale * factor[c];
    }
#pragma unroll
    for (int q = 0; q < kRows; q += GridPack<D>::count) {
      const GridPack<D> pack = *reinterpret_cast<const GridPack<D>*>(column + q);
#pragma unroll
      for (int i = 0; i < GridPack<D>::count; ++i) {
        const int row = first + q + i;
#pragma unroll
        for (int c = kFrom; c < kSpans; ++c) {
          if (!kNear || row > j) {
            x[q + i][c] = minus_product(x[q + i][c], pack.x[i], scaled[c]);
          } else if (row == j) {
            x[q + i][c] = x[q + i][c] - factor[c];
          }
        }
      }
    }
    if (j + 1 < kGridColumns) {
      show(j + 1, (j + 1) / 32, next);
      add_up<kNear, kFrom>(j + 1, next);
    }
  }

  template <bool kNear>
  __device__ void apply(int j, D scale, const D (&factor)[kSpans], const D* column, D* next) {
    if (j < 31) {
      apply<kNear, 0>(j, scale, factor, column, next);
    } else {
      apply<kNear, kSpans - 1>(j, scale, factor, column, next);
    }
  }

  // Row j of R, if it is one of these.
  __device__ void store_row(const GridPanel<D>& p, int j, R beta) const {
#pragma unroll
    for (int q = 0; q < kRows; ++q) {
      if (first + q == j) {
#pragma unroll
        for (int c = 0; c < kSpans; ++c) {
          const int l = lane + 32 * c;
          if (l < p.w) {
            p.r[j + l * p.ldr] = l == j ? element<D>(beta) : l > j ? x[q][c] : element<D>(R{0});
          }
        }
      }
    }
  }

  // The reflectors.
  __device__ void store(const GridPanel<D>& p, const D (&scale)[kSpans]) const {
#pragma unroll
    for (int c = 0; c < kSpans; ++c) {
      const int l = lane + 32 * c;
#pragma unroll
      for (int q = 0; q < kRows; ++q) {
        const int row = first + q;
        if (row < p.m && l < p.k) {
          p.a[row + l * p.lda] = row > l ? scale[c] * x[q][c] : element<D>(R(row == l ? 1 : 0));
        }
      }
    }
  }
};

}  // namespace jaxmg::tile

#endif  // __CUDACC__
