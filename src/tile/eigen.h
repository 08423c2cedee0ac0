// Values that the tile operations of eigenproblems share with the algorithms.
#pragma once

#include <algorithm>

#include "core/types.h"

namespace jaxmg {

// Rows first and second of a matrix of which the first is (c, s) times both, and the second (-s,
// c).
struct Rotation {
  Size first = 0;
  Size second = 0;
  double c = 1;
  double s = 0;
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

}  // namespace jaxmg
