// The QR of a panel by one grid that holds it in registers: see householder_grid.cu.
#pragma once

#include "tile/cuda/lane.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {

// Cuda::householder_panel where the panel fits the device; else nothing is done and the answer is
// false. work: grid_panel_bytes() bytes.
template <class T>
bool householder_grid(CudaLane& lane, Size m, Size w, T* a, Size lda, T* r, Size ldr, T* tau,
                      void* work);

// The same for few rows, at least one, by one cluster of blocks (householder_cluster.cu), where the
// device has such.
template <class T>
bool householder_cluster(CudaLane& lane, Size m, Size w, T* a, Size lda, T* r, Size ldr, T* tau);

// For checks: blocks from which on each is given more rows, while they fit; 0: householder_grid
// never does anything; negative: as is best, which for few rows is a cluster.
void set_panel_blocks(Size blocks);

}  // namespace jaxmg::tile
