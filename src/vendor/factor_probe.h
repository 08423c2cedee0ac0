// Is what a library has left the factor of the matrix that it was given? One vector tells.
//
// cusolverMgPotrf has been found not to wait for a device that lags behind the others, as one that
// other work shares does: the next panel is sent to the place of the one that the device still
// works with, and the factor is wrong without a word. With two GPUs, rank r = k mod 2 has updated
// its columns with
//
//   L(:, k)  overwritten from its top on by  L(:, k + 1)
//
// which gave wrong answers to all of their digits. Nothing that its caller can do puts the devices
// in step, so its results are looked at.
#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>

#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"
#include "vendor/host.h"

namespace jaxmg::vendor {

// The largest |L L^H v - M v| that rounding may leave, against the largest |M v|. For matrices of
// all kinds with up to 3000 rows it was at most a tenth of this, and falls with n.
template <class T>
double factor_tolerance(Size n) {
  return 64 * std::sqrt(static_cast<double>(n)) * std::numeric_limits<Real<T>>::epsilon();
}

// What is not right is thrown, on all ranks.
inline void judge_factor(double difference, double largest, bool finite, double tolerance) {
  if (!finite || !(difference <= tolerance * largest)) {
    throw std::runtime_error(
        "potrf: the factor that the vendor's library has left is not one of the matrix (L L^H v "
        "differs from A v by " +
        std::to_string(difference / largest) +
        " of its size). cuSOLVERMg does not wait for a GPU that lags behind the others because "
        "other work shares it; backend='native' does");
  }
}

// l: the factor, in cyclic storage; what is above its diagonal within diagonal tiles is set to 0.
// To be called after hermitian_probe(), of which the vector v and, with M = A^T in contiguous
// storage, y_own = M_own^T v are still there:
//
//   u = L^H v, each rank for its columns;   w = L u, summed over ranks;   w = M v = conj(y)
template <class D, class T>
void probe_factor(Rank<D>& rank, const Distribution& contiguous, const Distribution& cyclic, T* l) {
  using R = Real<T>;
  const Size n = cyclic.size();
  const int me = rank.comm.rank();
  auto& lane = rank.lanes.update;
  const T* const v = rank.workspace.template get<T>(Buffer::probe_vector);
  const T* const y = rank.workspace.template get<T>(Buffer::probe_product);
  T* const w = rank.workspace.template get<T>(Buffer::probe_transpose);
  T* const u = rank.workspace.template get<T>(Buffer::probe_factor);
  R* const result = rank.workspace.template get<R>(Buffer::probe_result);

  D::template fill<T>(lane, n, 1, T(0), T(0), w, n);
  for (LocalTile t(0); *t < cyclic.local_tiles(me); ++t) {
    const Tile tile{me, t};
    const Size width = cyclic.rows(tile);
    const Size first = *cyclic.global_begin(tile);
    T* const diagonal = l + *cyclic.begin(t) * n + first;
    // One column of zeros stands for all.
    D::template fill<T>(lane, width, 1, T(0), T(0), u, width);
    D::template copy_triangle<T>(lane, Uplo::upper, Diag::unit, width, width, u, 0, diagonal, n);
    D::template gemm<T>(lane, Op::conj_transpose, Op::none, width, 1, n - first, T(1), diagonal, n,
                        v + first, n, T(0), u, width);
    D::template gemm<T>(lane, Op::none, Op::none, n - first, 1, width, T(1), diagonal, n, u, width,
                        T(1), w + first, n);
  }
  auto summed = rank.comm.all_reduce(lane, w, n, dtype_of<T>, Reduction::sum);
  lane.wait(summed);

  D::template fill<R>(lane, 3, 1, R(0), R(0), result, 3);
  if (const Size own = contiguous.local_size(me); own > 0) {
    const Size first = *contiguous.global(me, LocalIndex(0));
    // v is real, as the diagonal of M is.
    D::template check_hermitian<T>(lane, own, v + first, 1, v + first, y, w + first, result);
  }
  auto joined = rank.comm.all_reduce(lane, result, 3, dtype_of<R>, Reduction::max);
  lane.wait(joined);
  std::array<R, 3> found{};
  Host<D>::read(lane, 3, result, found.data());
  judge_factor(static_cast<double>(found[0]), static_cast<double>(found[1]), found[2] == R(0),
               factor_tolerance<T>(n));
}

}  // namespace jaxmg::vendor
