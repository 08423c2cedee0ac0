// What a call will do and how many bytes it takes, worked out before anything is launched. The
// engine cuts its buffers from the same entries that the user is shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/distribution.h"
#include "core/dtype.h"
#include "core/routine.h"
#include "core/types.h"

namespace jaxmg {

enum class Platform { cpu, cuda };

// Which part of a Hermitian matrix holds valid numbers.
enum class Triangle { whole = -1, lower = 0, upper = 1 };

// Columns of a factor that one rotation of an update covers, and columns that are added together.
inline constexpr Size kUpdateWidth = 64;
inline constexpr Size kUpdateColumns = 32;

// Arithmetic of products inside a factorisation.
enum class Precision {
  native,  // that of the element type
  split,   // 32-bit numbers as two half-precision ones, on tensor cores
};

// Who does the work.
enum class Backend {
  native,      // src/algo
  cusolvermg,  // the vendor's library, on block-cyclic storage: src/vendor
};

// Every buffer that a call uses on one rank. New ones come before `library`.
enum class Buffer {
  matrix,           // the shard of A, overwritten by the factor
  right_hand_side,  // b, overwritten by x
  saved_diagonal,   // original diagonal tiles (aux)
  tile_inverse,     // inverses of the factor's diagonal tiles (aux)
  panel_even,       // packed panel of even steps
  panel_odd,        // packed panel of odd steps
  split_even,       // the same panels as half-precision parts; Cholesky's odd ones too
  split_odd,
  row_scale,        // powers of two that make a diagonal about 1
  inverse_scale,    // and their inverses
  partial_sums,     // k x n: sums not yet collected, then the solution
  tile_rhs,         // right-hand sides of one tile
  tile_rhs_other,   // the same, a second one
  row_block,        // one tile of rows of the local columns
  split_block,      // the same as half-precision parts; of Cholesky, half the columns of a panel
  probe_vector,     // n
  probe_product,    // n
  probe_transpose,  // n
  probe_result,     // 4 reals
  probe_factor,     // one tile: what the factor makes of the probe's vector
  send_staging,
  receive_staging,
  pivots,      // 2 n integers: row interchanges of an LU factorisation, then their product
  moves_even,  // the interchanges of one panel as moves of rows
  moves_odd,
  row_order,           // n integers
  later_sums,          // k x n: those of a second sweep, while the first one's are collected
  phases,              // one element for each rank
  panel_columns,       // the rows of a QR panel that are left, as columns
  gathered_triangles,  // one tile a rank
  stacked_triangles,   // the same without gaps
  panel_small,         // tiles that are being worked on
  panel_signs,         // diagonal of +-1
  panel_info,          // what a tile operation of the panel reports
  product,             // of a matrix with a block reflector
  product_other,       // the same, a second one
  ahead_product,       // both, for the next panel
  local_rhs,           // k x L: right-hand sides of this rank's rows
  block_reflectors,    // T of each panel (aux)
  orthogonal,          // Q
  triangular,          // R
  gathered_rhs,        // right-hand sides of all ranks, for a vendor's library
  rhs_columns,         // those that it wants to find on this rank
  update_columns,      // columns of a factor before their rotation
  rotation,            // of one block of an update
  update_even,         // n x k: what is to be added to a factor
  update_odd,
  vendor_workspace,     // what it asks for
  eigenvalues,          // n reals
  result_vectors,       // the rows of the eigenvectors wanted, where not in place of the matrix
  reflector_rows,       // n x 2 group tile: V and W of the panels of a block
  reflector_own_rows,   // L x 2 group tile: own rows of them
  product_rows,         // n x tile: A V
  product_own_rows,     // L x tile
  reflector_factors,    // n: scalars of the reflectors of all panels
  small_blocks,         // tile x tile blocks, and 2 group of them
  band,                 // 2 tile x n
  sweep_reflectors,     // share of the reflectors of bulge chasing
  sweep_panel,          // those of one group of sweeps, packed
  tridiagonal_vectors,  // n x L reals
  eigenvectors,         // n x columns of this rank
  back_products,        // products in the back-transformation
  secular_block,        // some eigenvectors of a secular equation
  scalars,              // doubles that ranks tell each other
  gram_parts,           // of blocks of a Gram matrix, one for each run of rows
  gram_blocks,          // block columns of its lower half, one behind the other
  gram_factor,          // 2 n x n: its Cholesky factor L, and inv(L)^H below it
  ones,                 // a vector of them in each precision
  wide_columns,         // rows of A in double precision
  gradient,             // k x n: A^H times residuals, in A's precision
  gradient_parts,       // sums of it not yet added up
  correction,           // 2 k x n: A^H r, then the correction of the solution; and what is between
  solution_columns,     // k x n: x
  sizes,                // real numbers on which ranks decide
  eigen_work,           // what tile operations of eigenproblems work in
  library,              // what the libraries of the lanes work in
};

enum class Place { argument, result, scratch };

struct Entry {
  Buffer buffer;
  Place place;
  DType type;
  Size count;   // elements per rank
  Size offset;  // bytes from the start of the scratch block, for Place::scratch
  Size bytes() const { return count * size_of(type); }
};

struct PlanRequest {
  Routine routine = Routine::potrf;
  DType type = DType::f64;
  Size n = 0;
  Size nrhs = 1;
  int ranks = 1;
  Size tile = 0;   // 0: choose
  Size group = 0;  // tile columns in one product of the trailing update; 0: choose
  Size parts = 0;  // of a Cholesky panel on its way; 0: choose
  Platform platform = Platform::cpu;
  Precision precision = Precision::native;
  Backend backend = Backend::native;
  bool mirror = false;         // only one triangle is valid
  bool replicated_rhs = true;  // b and x are whole on every rank
  bool transpose = false;      // solve with the transposed matrix
  Size library_bytes = 0;      // scratch that the tile library needs, asked by the caller
  Size columns = 0;            // of a matrix that is not square; where it is redistributed, 0: n
  Size vendor_bytes = 0;       // scratch that a vendor's library needs, likewise
  bool vectors = false;        // eigenvectors too, `columns` of them
  Size staging_bytes = 0;      // of one staging buffer (0: choose); less than the least is raised
  Order order = Order::relabelled;  // in which a factor is, or has been, eliminated
};

class Plan {
 public:
  explicit Plan(const PlanRequest& request);

  const PlanRequest& request() const { return request_; }
  Routine routine() const { return request_.routine; }
  Size tile() const { return tile_; }
  // Tile columns that one product of the trailing update covers; for syevd, panels whose updates
  // are made by one.
  Size group() const { return group_; }
  // Runs of columns in which a panel of a Cholesky factorisation is made and sent.
  Size panel_parts() const { return panel_parts_; }
  // Whether updates are short enough for the ends of their products to count: see ProductLanes.
  bool overlaps_products() const;
  // Of a panel with that many rows below its tile.
  Size panel_parts(Size rows) const { return rows <= parted_rows_ ? panel_parts_ : 1; }
  // Right-hand sides that are eliminated together with the matrix: all of them, or none.
  Size eliminated_rhs() const { return eliminated_rhs_; }
  // What was asked for, where the platform and the element type have it.
  Precision precision() const { return precision_; }
  // Right-hand sides that go through a solve together.
  Size rhs_block() const { return rhs_block_; }
  const std::vector<Entry>& entries() const { return entries_; }

  // The entry of `buffer`; one of count 0 if the call does not use it.
  Entry entry(Buffer buffer) const;
  Size scratch_bytes() const { return scratch_bytes_; }
  // Rows that each rank has room for in the array that a factorisation leaves, and elements of the
  // aux operand beside it.
  Size factor_rows() const;
  Size aux_count() const;
  // Everything that is alive at once on one rank.
  Size total_bytes() const;
  // Rows that the matrix operand has room for on each rank.
  Size matrix_rows() const { return matrix_rows_; }
  // How the rows of the matrix lie, eliminated as was asked for or in another order.
  Distribution distribution() const { return distribution(request_.order); }
  Distribution distribution(Order order) const;
  // The same tiles dealt out to the ranks in turn.
  Distribution cyclic() const;
  double flops() const;  // real operations, all ranks together

  // One JSON object: what Python shows and checks.
  std::string json() const;

 private:
  // What the buffers depend on.
  void decide();

  PlanRequest request_;
  Size tile_ = 1;
  Size group_ = 1;
  Size panel_parts_ = 1;
  Size parted_rows_ = 0;
  Size eliminated_rhs_ = 0;
  Precision precision_ = Precision::native;
  Size rhs_block_ = 1;
  Size matrix_rows_ = 0;
  Size scratch_bytes_ = 0;
  std::vector<Entry> entries_;
};

// Elements per rank of the aux operand that stands beside a Cholesky factor: the original diagonal
// tiles, then the inverses of the factor's.
Size aux_count(Size n, int ranks, Size tile);
// Whether a platform solves with the inverses of the diagonal tiles of L and of U.
bool lu_inverts(const PlanRequest& request);
// The same beside an LU factor: those inverses.
Size lu_aux_count(const PlanRequest& request, Size tile);

// potrf, posv
bool factors_by_cholesky(Routine routine);
// Rows that a panel has room for below those of the matrix, for so many right-hand sides.
Size rhs_rows(Size eliminated_rhs);
// getrf, getrs, getdet, getri, gesv
bool is_lu(Routine routine);
// getrf, gesv
bool factors_by_lu(Routine routine);
// geqrf, ormqr, orgqr, qr_r, geqrs, gels
bool is_qr(Routine routine);

// How the Gram matrix of gels is summed: `parts` runs of rows at once, their blocks of columns
// being of the width of the tile; and rows that are taken to double precision together (0: they
// have it).
struct GramCut {
  Size parts = 1;
  Size rows = 0;
};
// A run has so many of them, unless there are fewer in all.
inline constexpr Size kLeastGramRows = 2048;
GramCut gram_cut(const PlanRequest& request, Size tile);
// The type of the tiles that a call factors.
DType tile_type(const PlanRequest& request);
// The most blocks of a GPU's kernel that has A^H (b - A x) in parts.
inline constexpr Size kGradientBlocks = 264;

// The most rows of a block that a QR factorisation makes orthonormal; 0 for other routines.
Size orthonormal_rows(const PlanRequest& request, Size tile);

// Elements per rank for a QR factorisation of m x n: a tile x width triangle for each panel.
Size qr_aux_count(Size m, Size n, Size tile);

// Sweeps of bulge chasing in a band of half width b that are applied together, and groups of them
// that travel together.
Size sweep_group(Size b);
Size sweep_panel_groups(Platform platform, Size n);
// Elements that a GPU makes of the reflectors of one such panel, of a matrix of order n, in order
// to apply them.
Size packed_sweep_panel(DType type, Size n, Size b);
// Tiles by which an eigenproblem's matrix of which a triangle is given is made whole.
Size mirror_tile(Size rows);

std::string_view name(Buffer buffer);

}  // namespace jaxmg
