// How much of a routine is done after so many of its steps, which are not of equal length.
#pragma once

#include "core/routine.h"
#include "core/types.h"

namespace jaxmg {

// The part of all operations, from 0 to 1, that `step` of `steps` steps take: with s = step / steps
// and operations that grow with the square of what remains, 1 - (1 - s)^3, and so on. Routines that
// are not named here have steps of equal length.
constexpr double work_done(Routine routine, Size step, Size steps) {
  if (steps <= 0 || step >= steps) {
    return 1;
  }
  const double s = static_cast<double>(step) / static_cast<double>(steps);
  switch (routine) {
    case Routine::potrf:
    case Routine::posv:  // what it solves is little
    case Routine::gesv:
    case Routine::getrf:
    case Routine::geqrf:  // of a square matrix; a tall one is a little ahead of what is told
      return 1 - (1 - s) * (1 - s) * (1 - s);
    case Routine::potri: {
      // Two sweeps, in which step k takes k (n - k).
      const double t = s < 0.5 ? 2 * s : 2 * s - 1;
      return (s < 0.5 ? 0 : 0.5) + (3 - 2 * t) * t * t / 2;
    }
    case Routine::getri: {
      // The first sweep, as those of potri, a quarter; the second grows towards its end.
      const double t = s < 0.5 ? 2 * s : 2 * s - 1;
      return s < 0.5 ? (3 - 2 * t) * t * t / 4 : 0.25 + 0.75 * t * t;
    }
    default:
      return s;
  }
}

}  // namespace jaxmg
