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
// lie together with leading dimension n. Of a Hermitian one only the lower triangle is read and
// written; the other one may serve as scratch. Calls find their operands in place, block until
// everything is done, and return LAPACK's info. What is no result but a failure of the library is
// thrown.
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

  // a <- L and U with P A = L U, L of unit diagonal: row i changes places with row pivots_i - 1.
  // The pivots (32-bit, 1-based) lie as a matrix of one row would, dealt out as A's columns are.
  // After a pivot of zero, neither factors nor pivots mean anything.
  virtual Size getrf(Pointers a, Pointers pivots, Pointers workspace) = 0;
  // b <- A^-1 b, b as for potrs. Transposed systems are beyond it.
  virtual void getrs(Size columns, Pointers lu, Pointers pivots, Pointers b,
                     Pointers workspace) = 0;

  // values (n real numbers in the host's memory) <- eigenvalues, ascending; a <- eigenvectors, or
  // nothing of use without `vectors`.
  virtual Size syevd(bool vectors, Pointers a, void* values, Pointers workspace) = 0;
};

// The library is not there, or not for these devices.
class UnavailableError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace jaxmg::vendor
