// A vendor's library that solves block-cyclic problems for all ranks from one host thread.
#pragma once

#include <stdexcept>
#include <vector>

#include "core/types.h"

namespace jaxmg::vendor {

// By rank.
using Pointers = std::vector<void*>;

// What a library can do for one problem: element type, order n, tile and ranks are its own.
//
// A matrix is column-major, n x n, in tiles of columns that go round the ranks; a rank's columns
// lie together with leading dimension n. Only the lower triangle is read and written; the other one
// may serve as scratch. Calls find their operands in place, block until everything is done, and
// return LAPACK's info. What is no result but a failure of the library is thrown.
class Library {
 public:
  virtual ~Library() = default;

  // Scratch of each rank for the routine that the library was made for.
  virtual Size workspace_bytes() const = 0;

  // a <- L with A = L L^H.
  virtual Size potrf(Pointers a, Pointers workspace) = 0;
  // b <- A^-1 b; b is n x columns in tiles of ceil(columns / ranks) columns.
  virtual void potrs(Size columns, Pointers l, Pointers b, Pointers workspace) = 0;
  // a <- A^-1 from L.
  virtual Size potri(Pointers a, Pointers workspace) = 0;
};

// The library is not there.
class UnavailableError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace jaxmg::vendor
