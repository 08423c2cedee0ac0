// One eigenproblem on ranks of a device, and what its solution must fulfil.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "algo/eigen.h"
#include "matrices.h"
#include "run_plan.h"
#include "tile/cpu/cpu.h"

namespace jaxmg::test {

template <class T>
Matrix<T> hermitian(Size n, std::uint64_t seed) {
  Matrix<T> a(n, n);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < i; ++j) {
      a(i, j) = random_entry<T>(seed, i, j);
      a(j, i) = conjugate(a(i, j));
    }
    a(i, i) = T(std::real(random_entry<T>(seed, i, i)));
  }
  return a;
}

struct EigenOptions {
  bool vectors = true;
  Size first = 0;
  Size count = -1;  // all
  Triangle valid = Triangle::whole;
  Size group = 0;  // panels of a block; 0: as the plan chooses
  Precision precision = Precision::native;
};

template <class T, class Device = tile::Cpu>
struct EigenRun {
  std::vector<Real<T>> w;
  Matrix<T> v;  // n x count
  Info info;
  Size tile = 0;

  EigenRun(const Matrix<T>& a, int ranks, Size tile_, const EigenOptions& options = {}) {
    const Size n = a.rows;
    const Size count = options.count < 0 ? n : options.count;
    PlanRequest request;
    request.routine = Routine::syevd;
    request.type = dtype_of<T>;
    request.n = n;
    request.ranks = ranks;
    request.tile = tile_;
    request.group = options.group;
    request.precision = options.precision;
    request.vectors = options.vectors;
    request.columns = options.vectors ? count : 0;
    request.mirror = options.valid != Triangle::whole;
    request.platform = OnRanks<Device>::platform;
    const Plan plan(request);
    tile = plan.tile();
    const Distribution dist = plan.distribution();
    const T nan(std::numeric_limits<Real<T>>::quiet_NaN());
    std::vector<std::vector<T>> shard(static_cast<std::size_t>(ranks)), part(shard.size());
    std::vector<std::vector<Real<T>>> values(shard.size());
    std::vector<Info> infos(shard.size());
    for (int r = 0; r < ranks; ++r) {
      auto& mine = shard[static_cast<std::size_t>(r)];
      mine.assign(static_cast<std::size_t>(dist.capacity() * n), nan);
      for (Size i = 0; i < dist.local_size(r); ++i) {
        std::copy_n(a.data.begin() + *dist.global(r, LocalIndex(i)) * n, n, mine.begin() + i * n);
      }
      part[static_cast<std::size_t>(r)].assign(static_cast<std::size_t>(dist.capacity() * count),
                                               nan);
      values[static_cast<std::size_t>(r)].resize(static_cast<std::size_t>(n));
    }
    run_plan<Device>(plan, [&](Rank<Device>& rank, std::size_t r) {
      T* const target = count == n ? shard[r].data() : part[r].data();
      syevd<Device, T>(rank, options.valid, {options.vectors, options.first, count},
                       shard[r].data(), values[r].data(), options.vectors ? target : nullptr,
                       &infos[r]);
    });
    w = values[0];
    info = infos[0];
    v = Matrix<T>(n, options.vectors ? count : 0);
    for (int r = 0; r < ranks; ++r) {
      const auto place = static_cast<std::size_t>(r);
      EXPECT_EQ(infos[place].kind, info.kind);
      if (n > 0) {  // the same bits everywhere
        EXPECT_EQ(std::memcmp(values[place].data(), w.data(), w.size() * sizeof(Real<T>)), 0);
      }
      const std::vector<T>& source = count == n ? shard[place] : part[place];
      for (Size i = 0; options.vectors && i < dist.local_size(r); ++i) {
        std::copy_n(source.begin() + i * count, count,
                    v.data.begin() + *dist.global(r, LocalIndex(i)) * count);
      }
    }
  }
};

// norm1(A V - V w) / (n eps norm1(A)) and norm1(I - V^H V) / (n eps); w of the columns of V.
template <class T>
void expect_decomposes(const Matrix<T>& a, const std::vector<Real<T>>& w, const Matrix<T>& v) {
  using Wide = std::conditional_t<is_complex_v<T>, std::complex<double>, double>;
  const Size n = a.rows, k = v.cols;
  const double unit = static_cast<double>(n) * std::numeric_limits<Real<T>>::epsilon();
  Matrix<Wide> residual(n, k), gram(k, k);
  for (Size i = 0; i < n; ++i) {
    for (Size l = 0; l < n; ++l) {
      const Wide x(a(i, l));
      for (Size j = 0; j < k; ++j) {
        residual(i, j) += x * Wide(v(l, j));
      }
    }
    for (Size j = 0; j < k; ++j) {
      residual(i, j) -= Wide(v(i, j)) * static_cast<double>(w[static_cast<std::size_t>(j)]);
    }
    for (Size j = 0; j < k; ++j) {
      const Wide x = conjugate(Wide(v(i, j)));
      for (Size l = 0; l < k; ++l) {
        gram(j, l) += x * Wide(v(i, l));
      }
    }
  }
  for (Size j = 0; j < k; ++j) {
    gram(j, j) -= Wide(1);
  }
  const double norm = norm1(a);
  const double top = norm1(residual);
  EXPECT_LE(top == 0 ? 0 : top / (unit * norm), 25);
  EXPECT_LE(k == 0 ? 0 : norm1(gram) / unit, 25);
}

// Eigenvalues of one matrix found in two ways.
template <class T>
void expect_same_values(const Matrix<T>& a, const std::vector<Real<T>>& w,
                        const std::vector<Real<T>>& other) {
  ASSERT_EQ(w.size(), other.size());
  const double bound =
      10 * static_cast<double>(a.rows) * std::numeric_limits<Real<T>>::epsilon() * norm1(a);
  for (std::size_t i = 0; i < w.size(); ++i) {
    EXPECT_NEAR(w[i], other[i], bound);
  }
}

template <class T>
EigenRun<T> expect_solves(const Matrix<T>& a, int ranks, Size tile, Size group = 0) {
  SCOPED_TRACE("n " + std::to_string(a.rows) + " ranks " + std::to_string(ranks) + " tile " +
               std::to_string(tile));
  EigenOptions options;
  options.group = group;
  EigenRun<T> run(a, ranks, tile, options);
  EXPECT_EQ(run.info.kind, 0);
  EXPECT_TRUE(std::is_sorted(run.w.begin(), run.w.end()));
  expect_decomposes(a, run.w, run.v);
  return run;
}

}  // namespace jaxmg::test
