// Rows of R, or of anything that belongs to them, between the places where a QR factorisation
// leaves them (the eliminated rows of A, wherever those lie) and contiguous shards in their own
// order.
#pragma once

#include <algorithm>
#include <vector>

#include "algo/qr_steps.h"
#include "algo/rank.h"

namespace jaxmg {

// Rows [index, index + count) of R: at `pivot`, from local row `local` of A on, and in the shard of
// `natural`.
struct PivotPiece {
  int pivot = 0;
  int natural = 0;
  Size index = 0;
  Size local = 0;
  Size count = 0;
};

// Moves rows of `height` elements, which must lie without gaps within a piece. `per`: rows of a
// shard. to_natural: from where they were eliminated to the shards, else back.
// pivot_place(piece) and natural_place(piece) give the addresses on this rank; they may put work
// into the update lane first. Tiles of one round over the ranks travel together.
template <class Device, class T, class PivotPlace, class NaturalPlace>
void move_pivot_rows(Rank<Device>& rank, const QrSteps& steps, Size height, Size per,
                     bool to_natural, const PivotPlace& pivot_place,
                     const NaturalPlace& natural_place) {
  auto& lane = rank.lanes.update;
  const int me = rank.comm.rank();
  for (Size round = 0; round < steps.count();) {
    const Size tile = *steps.step(round).tile.local;
    std::vector<Transfer> sends, receives;
    for (; round < steps.count() && *steps.step(round).tile.local == tile; ++round) {
      const QrStep step = steps.step(round);
      for (Size done = 0; done < step.width;) {
        PivotPiece piece;
        piece.pivot = step.tile.rank;
        piece.index = step.first + done;
        piece.natural = static_cast<int>(piece.index / per);
        piece.local = steps.begin(round, piece.pivot) + done;
        piece.count = std::min(step.width - done, (piece.natural + 1) * per - piece.index);
        done += piece.count;
        const bool from_me = (to_natural ? piece.pivot : piece.natural) == me;
        const bool to_me = (to_natural ? piece.natural : piece.pivot) == me;
        T* const at_pivot = piece.pivot == me ? pivot_place(piece) : nullptr;
        T* const at_home = piece.natural == me ? natural_place(piece) : nullptr;
        T* const source = to_natural ? at_pivot : at_home;
        T* const target = to_natural ? at_home : at_pivot;
        const Size elements = height * piece.count;
        if (from_me && to_me) {
          Device::template copy<T>(lane, height, piece.count, source, height, target, height);
        } else if (from_me) {
          sends.push_back({source, elements, to_natural ? piece.natural : piece.pivot});
        } else if (to_me) {
          receives.push_back({target, elements, to_natural ? piece.pivot : piece.natural});
        }
      }
    }
    if (steps.ranks() > 1) {
      auto moved = rank.comm.exchange(lane, sends, receives, dtype_of<T>);
      lane.wait(moved);
    }
  }
}

}  // namespace jaxmg
