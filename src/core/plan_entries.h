// How a plan collects the buffers of a call: one function per family of routines.
#pragma once

#include <vector>

#include "core/plan.h"

namespace jaxmg {

// Gives buffers of scratch memory their places, one after the other.
class EntryList {
 public:
  void argument(Buffer buffer, DType type, Size count) {
    add(buffer, Place::argument, type, count);
  }
  void result(Buffer buffer, DType type, Size count) { add(buffer, Place::result, type, count); }
  void scratch(Buffer buffer, DType type, Size count) { add(buffer, Place::scratch, type, count); }

  const std::vector<Entry>& entries() const { return entries_; }
  Size scratch_bytes() const { return scratch_bytes_; }

 private:
  void add(Buffer buffer, Place place, DType type, Size count);

  std::vector<Entry> entries_;
  Size scratch_bytes_ = 0;
};

// What has been decided before buffers are counted.
struct Decisions {
  Size tile;
  Size group;
  Precision precision;
  Size rhs_block;
  Size matrix_rows;
  Size eliminated_rhs;
};

// Elements of one staging buffer of a redistribution.
Size staging_count(const PlanRequest& request);
// The same for a mirror: one tile at least, and no more than two ranks have to tell each other.
Size mirror_staging_count(const PlanRequest& request, Size rows, Size tile);
// Enough for a mirror and for tiles of whole rows dealt out to the ranks.
Size dealing_staging_count(const PlanRequest& request, Size rows, Size tile);

// A vendor's library on block-cyclic storage: the tile that suits it, rows of a shard whose tiles
// all have their full width, right-hand sides that are solved for together.
Size choose_vendor_tile(const PlanRequest& request);
Size vendor_rows(Size n, int ranks, Size tile);
Size vendor_rhs_block(const PlanRequest& request);
void add_vendor_entries(const PlanRequest& request, const Decisions& decided, EntryList& list);

// From this order on native updates of a Cholesky factorisation take so long that nothing else
// counts.
inline constexpr Size kLongUpdates = 49152;

// potrf, potrs, logdet, locate, potri, posv
void add_cholesky_entries(const PlanRequest& request, const Decisions& decided, EntryList& list);
// Into how many parts a panel is made, and from how many rows on a look-ahead is by parts.
Size choose_panel_parts(const PlanRequest& request, Precision precision, Size tile);
Size choose_parted_rows(const PlanRequest& request);
// getrf, getrs, getdet, getri, gesv
void add_lu_entries(const PlanRequest& request, const Decisions& decided, EntryList& list);
Size choose_lu_tile(const PlanRequest& request);
Size widest_lu_tile(const PlanRequest& request);
// trsm, cholupdate
void add_triangular_entries(const PlanRequest& request, const Decisions& decided, EntryList& list);
// mirror, cyclic
void add_redistribution_entries(const PlanRequest& request, const Decisions& decided,
                                EntryList& list);
// syevd; tile: that of the request, or any if it leaves the choice
Size choose_band(const PlanRequest& request, Size tile);
Size choose_reflector_group(const PlanRequest& request, Size tile);
void add_eigen_entries(const PlanRequest& request, const Decisions& decided, EntryList& list);

// geqrf, ormqr, orgqr, qr_r, geqrs, gels: n is the number of rows; nrhs, for orgqr, that of columns
// of Q.
void add_qr_entries(const PlanRequest& request, const Decisions& decided, EntryList& list);
// Columns that a QR factorisation eliminates together.
Size choose_qr_tile(const PlanRequest& request);

}  // namespace jaxmg
