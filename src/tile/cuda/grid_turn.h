// Grids whose blocks wait for each other need all of them on the device at once. Two such grids
// that have got a part of it each would wait for ever, so they take turns: one begins when the one
// that was put before it into any lane of the device has ended. Work is ordered by the time at
// which it is put into its lane, hence no circle of waits can come of it.
#pragma once

#include "tile/cuda/lane.h"

namespace jaxmg::tile {

class GridTurn {
 public:
  // To be destroyed when the grid has been put into `lane`.
  explicit GridTurn(CudaLane& lane);
  ~GridTurn();
  GridTurn(const GridTurn&) = delete;
  GridTurn& operator=(const GridTurn&) = delete;

  struct Device;

 private:
  CudaLane& lane_;
  Device& device_;
};

}  // namespace jaxmg::tile
