// Diagonal tiles of real types and the rows below them, by products on tensor cores.
#pragma once

#include "tile/cuda/cuda.h"
#include "tile/cuda/scratch.h"

namespace jaxmg::tile {

// Edge of the blocks that both work in, and of the smallest tile that they take.
inline constexpr Size kRowBlock = 64;
inline constexpr Size kRowTile = 2 * kRowBlock;
// Their shared memory is slots of some columns of a block: a ring of three for both factors of
// products, and two for each of two blocks.
inline constexpr int kBlockEdge = static_cast<int>(kRowBlock);
inline constexpr int kBlockDepth = 32;              // columns of a slot
inline constexpr int kBlockPitch = kBlockEdge + 4;  // keeps lanes that read together apart
inline constexpr int kBlockSlot = kBlockDepth * kBlockPitch;
inline constexpr int kRingSlots = 3;
template <class R>
inline constexpr std::size_t kRowMemory = sizeof(R) * (2 * kRingSlots + 4) * kBlockSlot;

// Whether there is a factor_tile for tiles of this edge, on this device.
template <class R>
bool factors_tile(const CudaLane& lane, Size n) {
  return n >= kRowTile && lane.shared_memory() >= kRowMemory<R> &&
         lane.has_scratch(triangle_bytes(dtype_of<R>, n));
}

// What is left of a factored tile in a lane's scratch until anything else uses that: the inverses
// of the blocks on its diagonal, one behind the other, with zeros above the diagonal and beyond the
// last row, and how badly conditioned they are.
template <class R>
struct TileInverses {
  R* inverses;
  int* corrected;  // 1 for a block of which products with the inverse want a correction, else 0
  int* progress;   // finished blocks of each block row, while a tile is being factored
  int* failed;     // behind it: 1 if somebody has given up

#ifdef __CUDACC__
  __device__ R* of(int block) const {
    return inverses + static_cast<Size>(block) * kRowBlock * kRowBlock;
  }
#endif
};

// In triangle_bytes of scratch, n >= kRowTile.
template <class R>
TileInverses<R> tile_inverses(CudaLane& lane, Size n) {
  char* const scratch = static_cast<char*>(lane.scratch(triangle_bytes(dtype_of<R>, n)));
  int* const numbers = reinterpret_cast<int*>(scratch);
  const Size blocks = ceil_div(n, kRowBlock);
  return {reinterpret_cast<R*>(scratch + round_up(n * size_of(dtype_of<R>), 256)), numbers,
          numbers + blocks, numbers + 2 * blocks};
}

// Up to so many rows are solved by the launch that factors the tile: each block of them as soon as
// its triangle is there. They keep multiprocessors meanwhile, which updates could use.
inline constexpr Size kRowsBeside = 8192;

// Lower Cholesky factor of a tile in place, n >= kRowTile, and its inverses; info as for potrf. The
// m rows below it <- (the rows) L^-H.
template <class R>
void factor_tile(CudaLane& lane, Size n, Size m, R* a, Size lda, Size position, Info* info);

// Columns first .. last - 1, multiples of kRowBlock but for the last, of a (m x n) <- a L^-H, those
// before being done, after factor_tile in the same lane.
template <class R>
void solve_panel_rows(CudaLane& lane, Size m, Size first, Size last, Size n, const R* l, Size ldl,
                      R* a, Size lda);

}  // namespace jaxmg::tile
