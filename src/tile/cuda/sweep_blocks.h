// Block reflectors of bulge chasing in the form in which a kernel with tensor cores applies them.
//
// The reflectors number k of a group of g = b / 2 sweeps are I - V T V^H in a window of b + g rows,
// which begins one row above the first reflector, at an even row of the matrix. In tiles of 8 x 8,
// with Q = b / 8 and C = g / 8 columns of them, V has tiles in rows c .. c + Q of tile column c
// only, and V T in rows 0 .. c + Q, T being upper triangular. Kept are the tiles of conj(V) and
// those of -V T; each as 64 numbers in the order of the operands b of multiply_add(), whose lane
// (g, t) wants rows 2 t and 2 t + 1. Complex tiles have 64 more numbers, which multiply (Im x,
// -Re x) where the first ones multiply (Re x, Im x).
#pragma once

#include <type_traits>

#include "core/types.h"
#include "tile/eigen.h"

namespace jaxmg::tile {

// Of half width b = 8 Q.
template <int Q, bool Complex>
struct SweepBlock {
  static constexpr int kRows = 8 * Q;
  static constexpr int kCount = 4 * Q;         // sweeps of a group
  static constexpr int kHeight = 12 * Q;       // of a window
  static constexpr int kColumns = Q / 2;       // columns of tiles
  static constexpr int kTall = Q + 1;          // tiles of V in one of them
  static constexpr int kV = kColumns * kTall;  // tiles
  static constexpr int kTiles = 2 * kV + kColumns * (kColumns - 1) / 2;
  static constexpr int kTile = Complex ? 128 : 64;  // numbers
  static constexpr int kSize = kTiles * kTile;
  // Numbers of the tiles (row, column) of V and of V T.
  JAXMG_HOST_DEVICE static constexpr int reflector(int row, int column) {
    return column * kTall + row - column;
  }
  JAXMG_HOST_DEVICE static constexpr int factor(int row, int column) {
    return kV + column * kTall + column * (column - 1) / 2 + row;
  }
};

// Where a pass begins: two groups of sweeps whose blocks are applied in turn.
struct SweepPasses {
  SweepBatch batch;
  Size steps;  // of the first pass, which has the most

  JAXMG_HOST_DEVICE Size count() const {
    return (batch.count + 2 * batch.size - 1) / (2 * batch.size);
  }
  JAXMG_HOST_DEVICE Size begin(Size pass) const { return batch.first + 2 * pass * batch.size; }
  JAXMG_HOST_DEVICE Size steps_of(Size pass) const {
    return (batch.n - 1 - begin(pass) + batch.b - 1) / batch.b;
  }
  // Number of the block of one group of a pass in one step.
  JAXMG_HOST_DEVICE Size block(Size pass, Size half, Size step) const {
    return (2 * pass + half) * steps + step;
  }
};

// Shared memory that the kernels for tiles may take: a thread block of compute capability 9.0 has
// it.
inline constexpr std::size_t kSweepMemory = 227 * 1024;

// body(Q) and true, if there are kernels for bands of this width, and on this device.
template <class Body>
bool with_sweep_tiles(const CudaLane& lane, const SweepBatch& batch, const Body& body) {
  if (batch.b != 2 * batch.size || batch.first % 2 != 0 || lane.shared_memory() < kSweepMemory) {
    return false;
  }
  switch (batch.b) {
    case 64:
      body(std::integral_constant<int, 8>{});
      return true;
    case 32:
      body(std::integral_constant<int, 4>{});
      return true;
    case 16:
      body(std::integral_constant<int, 2>{});
      return true;
    default:
      return false;
  }
}

inline SweepPasses sweep_passes(const SweepBatch& batch) {
  SweepPasses passes{batch, 0};
  passes.steps = passes.steps_of(0);
  return passes;
}

}  // namespace jaxmg::tile
