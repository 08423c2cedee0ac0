// Triangular systems on ranks of a device.
#pragma once

#include <utility>
#include <vector>

#include "algo/triangular_solve.h"
#include "matrices.h"
#include "run_plan.h"
#include "split_rows.h"
#include "tile/cpu/cpu.h"

namespace jaxmg::test {

// x of op(A) x = b.
template <class T, class Device = tile::Cpu>
Matrix<T> solve_triangular(const Matrix<T>& a, const Matrix<T>& b, const TriangularForm& form,
                           int ranks, Size tile, bool replicated, Order order = Order::natural) {
  PlanRequest q;
  q.routine = Routine::trsm;
  q.type = dtype_of<T>;
  q.n = a.rows;
  q.nrhs = b.cols;
  q.ranks = ranks;
  q.tile = tile;
  q.order = order;
  q.replicated_rhs = replicated;
  q.platform = OnRanks<Device>::platform;
  const Plan plan(q);
  const Distribution dist = plan.distribution();
  std::vector<Matrix<T>> parts(static_cast<std::size_t>(ranks)), shards;
  for (int r = 0; r < ranks; ++r) {
    shards.push_back(rows_of_rank(a, dist, r, false));
  }
  run_plan<Device>(plan, [&](Rank<Device>& rank, std::size_t r) {
    parts[r] = rows_of_rank(b, dist, rank.comm.rank(), replicated);
    triangular_solve<Device, T>(rank, form, shards[r].data.data(), parts[r].data.data());
  });
  return joined_rows(parts, dist, replicated);
}

// What a system of this form means, and NaN where it must not be read.
template <class T>
std::pair<Matrix<T>, Matrix<T>> triangular_system(Size n, const TriangularForm& form) {
  Matrix<T> given(n, n, T(std::numeric_limits<Real<T>>::quiet_NaN()));
  Matrix<T> meant(n, n);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      if (i != j && (form.uplo == Uplo::lower) != (j < i)) {
        continue;
      }
      T value = random_entry<T>(4, i, j);
      if (i == j) {
        value += T(static_cast<Real<T>>(std::sqrt(static_cast<double>(n))));
      }
      const bool one = i == j && form.diag == Diag::unit;
      if (!one) {
        given(i, j) = value;
      }
      value = one ? T(1) : value;
      if (form.op == Op::none) {
        meant(i, j) = value;
      } else {
        meant(j, i) = form.op == Op::transpose ? value : conjugate(value);
      }
    }
  }
  return {given, meant};
}

// Rows and columns of a in the places that an order of elimination gives them.
template <class T>
Matrix<T> relabelled(const Matrix<T>& a, const Distribution& dist) {
  std::vector<Size> row(static_cast<std::size_t>(a.rows));  // by position in the order
  for (Step k(0); *k < dist.steps(); ++k) {
    const Tile tile = dist.tile(k);
    for (Size i = 0; i < dist.rows(tile); ++i) {
      row[static_cast<std::size_t>(dist.eliminated(k) + i)] = *dist.global_begin(tile) + i;
    }
  }
  Matrix<T> moved(a.rows, a.cols);
  for (Size i = 0; i < a.rows; ++i) {
    for (Size j = 0; j < a.cols; ++j) {
      moved(row[static_cast<std::size_t>(i)], row[static_cast<std::size_t>(j)]) = a(i, j);
    }
  }
  return moved;
}

}  // namespace jaxmg::test
