// Least squares by a Gram matrix on ranks of a device.
#pragma once

#include <cstring>
#include <vector>

#include "algo/gram_least_squares.h"
#include "qr_run.h"

namespace jaxmg::test {

template <class T>
struct GelsResult {
  Matrix<T> x;
  Info info;
  bool good() const { return info.kind == 0; }
};

// Checks that all ranks have the same bits, and that A is only read.
template <class T, class Device = tile::Cpu>
GelsResult<T> gram_solution(const Matrix<T>& a, const Matrix<T>& b, int ranks, Size tile = 0) {
  PlanRequest request;
  request.routine = Routine::gels;
  request.type = dtype_of<T>;
  request.n = a.rows;
  request.columns = a.cols;
  request.nrhs = b.cols;
  request.ranks = ranks;
  request.tile = tile;
  request.platform = OnRanks<Device>::platform;
  const Plan plan(request);
  const Size per = ceil_div(a.rows, ranks);
  // Rows of rank r, NaN for those that there are not.
  const auto split = [&](const Matrix<T>& all, int r) {
    std::vector<T> mine(static_cast<std::size_t>(per * all.cols),
                        T(std::numeric_limits<Real<T>>::quiet_NaN()));
    for (Size i = 0; i < per && r * per + i < all.rows; ++i) {
      std::copy_n(all.data.begin() + (r * per + i) * all.cols, all.cols,
                  mine.begin() + i * all.cols);
    }
    return mine;
  };
  std::vector<GelsResult<T>> results(static_cast<std::size_t>(ranks));
  std::vector<std::vector<T>> matrix, rhs;
  for (int r = 0; r < ranks; ++r) {
    matrix.push_back(split(a, r));
    rhs.push_back(split(b, r));
    results[static_cast<std::size_t>(r)].x = Matrix<T>(a.cols, b.cols);
  }
  const auto given = matrix;
  run_plan<Device>(plan, [&](Rank<Device>& rank, std::size_t r) {
    gram_least_squares<Device, T>(rank, matrix[r].data(), rhs[r].data(), results[r].x.data.data(),
                                  &results[r].info);
  });
  for (std::size_t r = 0; r < results.size(); ++r) {
    const auto& x = results[r].x.data;
    EXPECT_EQ(0, std::memcmp(results[0].x.data.data(), x.data(), sizeof(T) * x.size()));
    EXPECT_EQ(0, std::memcmp(&results[0].info, &results[r].info, sizeof(Info)));
    EXPECT_EQ(0, std::memcmp(given[r].data(), matrix[r].data(), sizeof(T) * given[r].size()));
  }
  return results[0];
}

// ||A^H r||_1 / (m eps ||A||_1 (||A||_1 ||x||_1 + ||b||_1)), which is to be at most 25.
template <class T>
double normal_residual(const Matrix<T>& a, const Matrix<T>& x, const Matrix<T>& b) {
  const auto wa = widened(a);
  const auto r = difference(product(wa, widened(x)), widened(b));
  return ratio(norm1(product(adjoint(wa), r)),
               unit<T>(a.rows) * norm1(a) * (norm1(a) * norm1(x) + norm1(b)));
}

}  // namespace jaxmg::test
