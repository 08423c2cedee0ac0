// Values that the tile operations of eigenproblems share with the algorithms.
#pragma once

#include <algorithm>
#include <limits>

#include "core/types.h"
#include "tile/random.h"

namespace jaxmg {

// Rows first and second of a matrix of which the first is (c, s) times both, and the second (-s,
// c).
struct Rotation {
  Size first = 0;
  Size second = 0;
  double c = 1;
  double s = 0;
};

// Stands for 1 / tau of a reflector that does nothing: products with its inverse vanish beside
// numbers of about 1, and none overflows.
template <class R>
inline constexpr R kNoReflector = sizeof(R) == 4 ? R(1e30) : R(1e100);

// A sum of squares below which a vector is nothing beside a matrix of norm about 1. Squares that
// vanish, where small numbers are flushed to zero, are nothing beside greater sums.
template <class R>
inline constexpr R kLeastSquare = std::numeric_limits<R>::min() /
                                  (std::numeric_limits<R>::epsilon() *
                                   std::numeric_limits<R>::epsilon());

// One level of divide and conquer on a tridiagonal matrix of order n: node i has rows i size ..
// (i + 1) size - 1, as far as they exist, and merges its first size / 2 rows with the others. A
// last node without others is left alone.
struct MergeLevel {
  Size n = 0;
  Size size = 2;

  JAXMG_HOST_DEVICE Size count() const { return (n - size / 2 + size - 1) / size; }
  JAXMG_HOST_DEVICE Size begin(Size i) const { return i * size; }
  JAXMG_HOST_DEVICE Size middle(Size i) const { return i * size + size / 2; }
  JAXMG_HOST_DEVICE Size end(Size i) const { return (i + 1) * size < n ? (i + 1) * size : n; }
};

// What is left of one merge after deflation: poles, with zeros in the bottom half or without zeros
// in their columns (the others have zeros in the top half), and rotations of columns.
struct MergeCounts {
  Size poles = 0;
  Size above = 0;
  Size both = 0;
  Size rotations = 0;
};

// What the merges of a level work with, beside the data. Arrays have n elements; those of node i
// begin at its first row, and indices in them count from there.
struct MergeState {
  double* d = nullptr;     // eigenvalues of the nodes, in no order
  double* e = nullptr;     // off-diagonal elements of the whole matrix; directly after d
  double* z = nullptr;     // last row of Q_1 and first row of Q_2, which meet at the cut
  double* pole = nullptr;  // those left, ascending
  double* pole_z = nullptr;
  double* tau = nullptr;  // roots: see SecularPlace. These three lie side by side
  double* next = nullptr;
  double* failed = nullptr;  // one number: not 0 if something did not converge
  double* weight = nullptr;  // of the poles, those that belong to the roots
  double* sorted = nullptr;  // scratch
  double* sorted_z = nullptr;
  Size* source = nullptr;  // column that takes place i: poles in groups, then the deflated ones
  Size* place = nullptr;   // where the column of pole i goes
  Size* column = nullptr;  // scratch
  Size* half = nullptr;
  Rotation* rotations = nullptr;
  MergeCounts* counts = nullptr;  // of each node

  static Size doubles(Size n) { return 10 * n + 1 + 4 * n + 4 * n + 4 * n; }

  // Cut from doubles(n) numbers.
  MergeState(double* work, Size n) {
    for (double** const array :
         {&d, &e, &z, &pole, &pole_z, &tau, &next, &failed, &weight, &sorted, &sorted_z}) {
      *array = work;
      work += array == &failed ? 1 : n;
    }
    for (Size** const array : {&source, &place, &column, &half}) {
      *array = reinterpret_cast<Size*>(work);
      work += n;
    }
    rotations = reinterpret_cast<Rotation*>(work);
    counts = reinterpret_cast<MergeCounts*>(work + 4 * n);
  }
};

// The reflectors of `count` sweeps of bulge chasing from sweep `first` on, of a matrix of order n
// and half width b. They are kept as a matrix of rows() x count, whose column j belongs to sweep
// first + j and whose row i belongs to row first + 1 + i of the matrix. Below its j leading zeros,
// column j holds one reflector of b elements (the last one may be shorter) after the other; in the
// place of the leading 1 of each stands its tau.
//
// Reflectors number k of all sweeps act on neighbouring rows and are applied together, as
// I - V T V^H, in a window of b + count - 1 rows.
struct SweepGroup {
  Size n = 0;
  Size b = 1;
  Size first = 0;
  Size count = 0;

  Size rows() const { return n - 1 - first; }
  Size elements() const { return rows() * count; }
  // Windows, and the rows of each.
  Size steps() const { return (rows() + b - 1) / b; }
  Size window() const { return b + count - 1; }
  Size window_begin(Size k) const { return first + 1 + k * b; }
  Size window_rows(Size k) const { return std::min(window(), rows() - k * b); }
  // Packed for application: V, then V T, each window() x count, for each step.
  Size packed_step() const { return 2 * window() * count; }
  Size packed() const { return steps() * packed_step(); }
};

// Sweeps that are carried out in one go: groups of `size` of them, whose reflectors lie one after
// the other.
struct SweepBatch {
  Size n = 0;
  Size b = 1;
  Size first = 0;
  Size count = 0;
  Size size = 1;

  Size rows() const { return n - 1 - first; }
  // Where group i begins: those before it have size x (rows() - j size) elements, j = 0 .. i - 1.
  JAXMG_HOST_DEVICE Size offset(Size i) const {
    return size * (i * (n - 1 - first) - size * (i * (i - 1) / 2));
  }
  // Where the first reflector of sweep s begins.
  JAXMG_HOST_DEVICE Size place(Size s) const {
    const Size i = (s - first) / size, j = (s - first) % size;
    return offset(i) + j * (n - 1 - first - i * size) + j;
  }
  Size elements() const {
    Size sum = 0;
    for (Size i = 0; i < count; i += size) {
      sum += (rows() - i) * (count - i < size ? count - i : size);
    }
    return sum;
  }
  Size groups() const { return (count + size - 1) / size; }
  SweepGroup group(Size i) const {
    return {n, b, first + i * size, std::min(size, count - i * size)};
  }
  // Packed, one group after the other.
  Size packed() const {
    Size sum = 0;
    for (Size i = 0; i < groups(); ++i) {
      sum += group(i).packed();
    }
    return sum;
  }
};

}  // namespace jaxmg
