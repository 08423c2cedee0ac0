#include "tile/cpu/cut.h"

#include <cmath>

#include "tile/cpu/pool.h"

namespace jaxmg::tile {
namespace {

// A worker that is in a task takes no other, more urgent one: a few milliseconds at most.
constexpr double kMostFlops = 3e8;
// Packing an element of a factor costs as much as so many of its multiplications.
constexpr double kPacking = 12;

}  // namespace

Size pieces(double flops, int threads) {
  if (threads == 1) {
    return 1;
  }
  const double affordable = std::max(1.0, std::floor(flops / kLeastFlops));
  const double rounds = std::clamp(std::ceil(flops / (kMostFlops * threads)), 1.0, 64.0);
  return static_cast<Size>(std::min(affordable, rounds * threads));
}

// Time is that of the fullest worker. It gets ceil(tasks / threads) blocks of bm x bn, which cost
//   bm bn k + kPacking (bm + bn) k  each.
Grid grid(Size m, Size n, Size count, double flops, int threads) {
  const Size wanted = ceil_div(pieces(flops, threads), count);
  Grid best{Cut(m, 1), Cut(n, 1)};
  double least = INFINITY;
  for (Size r = 1; r <= wanted; ++r) {
    const Grid candidate{Cut(m, r), Cut(n, ceil_div(wanted, r))};
    const double bm = static_cast<double>(std::min(candidate.rows.block, m));
    const double bn = static_cast<double>(std::min(candidate.cols.block, n));
    const double rounds = static_cast<double>(ceil_div(count * candidate.count(), threads));
    const double cost = rounds * (bm * bn + kPacking * (bm + bn));
    if (cost < least) {
      least = cost;
      best = candidate;
    }
  }
  return best;
}

}  // namespace jaxmg::tile
