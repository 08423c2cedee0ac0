// The merges of one level of divide and conquer, one after the other.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "tile/cpu/cpu.h"
#include "tile/cpu/spread.h"
#include "tile/deflation.h"
#include "tile/secular.h"
#include "tile/tridiagonal_ql.h"

namespace jaxmg::tile {
namespace {

// Real operations, roughly, of a term of the secular equation over the iterations of one root, of a
// factor of a weight, and of an element of a vector: divisions count as several.
constexpr double kRootTerm = 100;
constexpr double kWeightFactor = 20;
constexpr double kVectorElement = 20;

constexpr secular::OneWorker kAlone;

// Own columns first .. first + count - 1 that are rows of a node.
struct Share {
  Size first;
  Size count;
};
Share share(Size from, Size to, Size begin, Size end) {
  const Size first = std::clamp(from, begin, end), last = std::clamp(to, begin, end);
  return {first - begin, last - first};
}

// The part of node i in the places first .. last - 1.
struct Part {
  Size from;   // first place of the node
  Size first;  // of the part, counted from there
  Size count;
};
Part part(const MergeLevel& level, const MergeState& s, Size i, Size first, Size last) {
  const Size from = level.begin(i), to = from + s.counts[i].poles;
  const Size low = std::clamp(first, from, to), high = std::clamp(last, from, to);
  return {from, low - from, high - low};
}

}  // namespace

template <class R>
void Cpu::tridiagonal_leaves(Lane& lane, Size n, Size size, const MergeState& s, Size begin,
                             Size end, R* q, Size ldq) {
  std::atomic<bool> converged{true};
  spread(lane, 0, ceil_div(n, size), 100.0 * static_cast<double>(size * size), [&](Size leaf) {
    const Size from = leaf * size, length = std::min(size, n - from);
    const Share mine = share(from, from + length, begin, end);
    std::vector<double> z(static_cast<std::size_t>(length * mine.count), 0.0);
    for (Size c = 0; c < mine.count; ++c) {
      z[static_cast<std::size_t>(begin + mine.first + c - from + c * length)] = 1;
    }
    std::vector<double> e(s.e + from, s.e + from + length - 1);
    if (!tridiagonal_ql(length, s.d + from, e.data(), z.data(), mine.count)) {
      converged.store(false, std::memory_order_relaxed);
    }
    for (Size c = 0; c < mine.count; ++c) {
      std::copy_n(z.begin() + c * length, length, q + from + (mine.first + c) * ldq);
    }
  });
  if (!converged.load()) {
    *s.failed = 1;
  }
}

template <class R>
void Cpu::merge_weights(Lane&, const MergeLevel& level, const MergeState& s, Size begin, Size end,
                        const R* q, Size ldq) {
  std::fill_n(s.z, level.n, 0.0);
  for (Size i = 0; i < level.count(); ++i) {
    const Size from = level.begin(i), middle = level.middle(i);
    if (begin < middle && middle <= end) {
      std::copy_n(q + from + (middle - 1 - begin) * ldq, middle - from, s.z + from);
    }
    if (begin <= middle && middle < end) {
      const double sign = s.e[middle - 1] < 0 ? -1 : 1;
      const R* const row = q + middle + (middle - begin) * ldq;
      std::transform(row, row + (level.end(i) - middle), s.z + middle,
                     [=](R x) { return sign * static_cast<double>(x); });
    }
  }
}

void Cpu::deflate(Lane& lane, const MergeLevel& level, const MergeState& s, double eps,
                  double norm) {
  spread(lane, 0, level.count(), 100.0 * static_cast<double>(level.size), [&](Size i) {
    const Size from = level.begin(i), middle = level.middle(i);
    const Deflation left = tile::deflate(std::vector<double>(s.d + from, s.d + level.end(i)),
                                         std::vector<double>(s.z + from, s.z + level.end(i)),
                                         std::fabs(s.e[middle - 1]), middle - from, eps, norm);
    const Size k = static_cast<Size>(left.d.size());
    std::copy(left.d.begin(), left.d.end(), s.pole + from);
    std::copy(left.z.begin(), left.z.end(), s.pole_z + from);
    std::copy(left.place.begin(), left.place.end(), s.place + from);
    for (std::size_t j = 0; j < left.column.size(); ++j) {
      s.source[from + left.place[j]] = left.column[j];
    }
    std::copy(left.deflated_column.begin(), left.deflated_column.end(), s.source + from + k);
    std::copy(left.deflated.begin(), left.deflated.end(), s.d + from + k);
    std::copy(left.rotations.begin(), left.rotations.end(), s.rotations + from);
    s.counts[i] = {k, left.above, left.both, static_cast<Size>(left.rotations.size())};
  });
}

template <class R>
void Cpu::rotate_columns(Lane& lane, const MergeLevel& level, const MergeState& s, Size begin,
                         Size end, R* q, Size ldq) {
  for (Size i = 0; i < level.count(); ++i) {
    const Size from = level.begin(i), count = s.counts[i].rotations;
    const Share mine = share(from, level.end(i), begin, end);
    spread(lane, mine.first, count > 0 ? mine.count : 0, 6 * static_cast<double>(count),
           [&](Size j) {
             R* const column = q + from + j * ldq;
             for (Size r = 0; r < count; ++r) {
               const Rotation& rotation = s.rotations[from + r];
               const R c = static_cast<R>(rotation.c), sine = static_cast<R>(rotation.s);
               const R x = column[rotation.first], y = column[rotation.second];
               column[rotation.first] = c * x + sine * y;
               column[rotation.second] = c * y - sine * x;
             }
           });
  }
}

template <class R>
void Cpu::arrange_columns(Lane& lane, const MergeLevel& level, const MergeState& s, Size begin,
                          Size end, const R* q, R* work, Size ld) {
  for (Size i = 0; i < level.count(); ++i) {
    const Size from = level.begin(i), rows = level.end(i) - from;
    const Share mine = share(from, level.end(i), begin, end);
    spread(lane, mine.first, mine.count, 4 * static_cast<double>(rows), [&](Size j) {
      for (Size l = 0; l < rows; ++l) {
        work[from + l + j * ld] = q[from + s.source[from + l] + j * ld];
      }
    });
  }
}

void Cpu::secular_roots(Lane& lane, const MergeLevel& level, const MergeState& s, Size first,
                        Size last) {
  std::atomic<bool> converged{true};
  for (Size i = 0; i < level.count(); ++i) {
    const Part p = part(level, s, i, first, last);
    const Size k = s.counts[i].poles;
    const double rho = std::fabs(s.e[level.middle(i) - 1]);
    spread(lane, p.first, p.count, kRootTerm * static_cast<double>(k), [&](Size j) {
      const SecularRoot root = secular_root(kAlone, k, s.pole + p.from, s.pole_z + p.from, rho, j);
      s.tau[p.from + j] = root.tau;
      s.next[p.from + j] = static_cast<double>(root.origin - j);
      if (!root.converged) {
        converged.store(false, std::memory_order_relaxed);
      }
    });
  }
  if (!converged.load()) {
    *s.failed = 1;
  }
}

void Cpu::secular_weights(Lane& lane, const MergeLevel& level, const MergeState& s, Size first,
                          Size last) {
  for (Size i = 0; i < level.count(); ++i) {
    const Part p = part(level, s, i, first, last);
    const Size k = s.counts[i].poles;
    const SecularPlace roots{s.tau + p.from, s.next + p.from};
    spread(lane, p.first, p.count, kWeightFactor * static_cast<double>(k), [&](Size j) {
      s.weight[p.from + j] =
          secular_weight(kAlone, k, s.pole + p.from, s.pole_z + p.from, roots, j);
    });
  }
}

void Cpu::merged_values(Lane&, const MergeLevel& level, const MergeState& s) {
  for (Size i = 0; i < level.count(); ++i) {
    const Size from = level.begin(i);
    const SecularPlace roots{s.tau + from, s.next + from};
    for (Size j = 0; j < s.counts[i].poles; ++j) {
      s.d[from + j] = s.pole[from + roots.origin(j)] + roots.tau[j];
    }
  }
}

void Cpu::merge_counts(Lane&, const MergeLevel& level, const MergeState& s, MergeCounts* counts) {
  std::copy_n(s.counts, level.count(), counts);
}

template <class R>
void Cpu::secular_vectors(Lane& lane, const MergeLevel& level, const MergeState& s, Size node,
                          Size k, Size first, Size count, const Size* roots, R* u, Size ldu,
                          double*) {
  const Size from = level.begin(node);
  const SecularPlace places{s.tau + from, s.next + from};
  spread(lane, 0, count, kVectorElement * static_cast<double>(k), [&](Size c) {
    const Size root = roots != nullptr ? roots[first + c] : first + c;
    const double* const d = s.pole + from;
    const double* const weights = s.weight + from;
    const double pole = d[places.origin(root)], shift = places.tau[root];
    double squares = 0;
    for (Size j = 0; j < k; ++j) {
      const double x = weights[j] / ((d[j] - pole) - shift);
      squares += x * x;
    }
    const double scale = 1 / std::sqrt(squares);
    for (Size j = 0; j < k; ++j) {
      u[s.place[from + j] + c * ldu] = static_cast<R>(weights[j] / ((d[j] - pole) - shift) * scale);
    }
  });
}

#define JAXMG_INSTANTIATE(R)                                                                     \
  template void Cpu::tridiagonal_leaves<R>(Lane&, Size, Size, const MergeState&, Size, Size, R*, \
                                           Size);                                                \
  template void Cpu::merge_weights<R>(Lane&, const MergeLevel&, const MergeState&, Size, Size,   \
                                      const R*, Size);                                           \
  template void Cpu::rotate_columns<R>(Lane&, const MergeLevel&, const MergeState&, Size, Size,  \
                                       R*, Size);                                                \
  template void Cpu::arrange_columns<R>(Lane&, const MergeLevel&, const MergeState&, Size, Size, \
                                        const R*, R*, Size);                                     \
  template void Cpu::secular_vectors<R>(Lane&, const MergeLevel&, const MergeState&, Size, Size, \
                                        Size, Size, const Size*, R*, Size, double*);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)

}  // namespace jaxmg::tile
