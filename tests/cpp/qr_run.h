// One QR factorisation on ranks of a device, and what its results must fulfil.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "algo/qr.h"
#include "algo/qr_form.h"
#include "algo/qr_solve.h"
#include "matrices.h"
#include "run_plan.h"
#include "tile/cpu/cpu.h"

namespace jaxmg::test {

template <class T>
using Wide = std::conditional_t<is_complex_v<T>, std::complex<double>, double>;

template <class T>
Matrix<Wide<T>> widened(const Matrix<T>& a) {
  Matrix<Wide<T>> w(a.rows, a.cols);
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    w.data[i] = Wide<T>(a.data[i]);
  }
  return w;
}

template <class T>
Matrix<T> product(const Matrix<T>& a, const Matrix<T>& b) {
  Matrix<T> c(a.rows, b.cols);
  for (Size i = 0; i < a.rows; ++i) {
    for (Size k = 0; k < a.cols; ++k) {
      for (Size j = 0; j < b.cols; ++j) {
        c(i, j) += a(i, k) * b(k, j);
      }
    }
  }
  return c;
}

template <class T>
Matrix<T> adjoint(const Matrix<T>& a) {
  Matrix<T> c(a.cols, a.rows);
  for (Size i = 0; i < a.rows; ++i) {
    for (Size j = 0; j < a.cols; ++j) {
      c(j, i) = conjugate(a(i, j));
    }
  }
  return c;
}

template <class T>
Matrix<T> difference(Matrix<T> a, const Matrix<T>& b) {
  for (std::size_t i = 0; i < a.data.size(); ++i) {
    a.data[i] -= b.data[i];
  }
  return a;
}

template <class T>
Matrix<T> identity(Size n) {
  Matrix<T> a(n, n);
  for (Size i = 0; i < n; ++i) {
    a(i, i) = T(1);
  }
  return a;
}

inline double ratio(double error, double scale) {
  return error == 0 ? 0 : error / scale;
}

// One factorisation on ranks of a device and everything that can be asked of it.
template <class T, class Device = tile::Cpu>
struct QrRun {
  Size m, n;
  int ranks;
  Size tile;
  std::vector<std::vector<T>> shard, aux;
  std::vector<Info> info, report;

  QrRun(const Matrix<T>& a, int ranks_, Size tile_)
      : m(a.rows), n(a.cols), ranks(ranks_), tile(tile_) {
    const Plan plan(make_request(Routine::geqrf, 1));
    tile = plan.tile();
    info.resize(static_cast<std::size_t>(ranks));
    report = info;
    for (int r = 0; r < ranks; ++r) {
      shard.push_back(split(a, r));
      aux.emplace_back(static_cast<std::size_t>(qr_aux_count(m, n, tile)));
    }
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      qr_factor<Device, T>(rank, shard[r].data(), aux[r].data(), &info[r]);
    });
    for (int r = 1; r < ranks; ++r) {
      const auto& other = aux[static_cast<std::size_t>(r)];
      EXPECT_EQ(0, std::memcmp(aux[0].data(), other.data(), sizeof(T) * other.size()));
    }
  }

  // The rows of rank r, ceil(rows / ranks) of them with NaN for those that there are not.
  std::vector<T> split(const Matrix<T>& a, int r) const {
    const Size per = ceil_div(a.rows, ranks);
    std::vector<T> mine(static_cast<std::size_t>(per * a.cols),
                        T(std::numeric_limits<Real<T>>::quiet_NaN()));
    for (Size i = 0; i < per && r * per + i < a.rows; ++i) {
      std::copy_n(a.data.begin() + (r * per + i) * a.cols, a.cols, mine.begin() + i * a.cols);
    }
    return mine;
  }
  std::vector<std::vector<T>> all_split(const Matrix<T>& a) const {
    std::vector<std::vector<T>> parts;
    parts.reserve(static_cast<std::size_t>(ranks));
    for (int r = 0; r < ranks; ++r) {
      parts.push_back(split(a, r));
    }
    return parts;
  }
  Matrix<T> joined(const std::vector<std::vector<T>>& parts, Size rows, Size cols) const {
    const Size per = ceil_div(rows, ranks);
    Matrix<T> a(rows, cols);
    for (Size i = 0; i < rows; ++i) {
      std::copy_n(parts[static_cast<std::size_t>(i / per)].begin() + i % per * cols, cols,
                  a.data.begin() + i * cols);
    }
    return a;
  }

  PlanRequest make_request(Routine routine, Size nrhs) const {
    PlanRequest request;
    request.routine = routine;
    request.type = dtype_of<T>;
    request.n = m;
    request.columns = n;
    request.nrhs = nrhs;
    request.ranks = ranks;
    request.tile = tile;
    request.platform = OnRanks<Device>::platform;
    return request;
  }

  template <class Program>
  void each_rank(const Plan& plan, const Program& program) {
    run_plan<Device>(plan, program);
  }

  // A result of rows x cols in shards, made by program(rank, r, out) from a fresh copy of what the
  // factorisation left.
  Matrix<T> collect(Routine routine, Size nrhs, Size rows, Size cols,
                    const std::function<void(Rank<Device>&, std::size_t, T*)>& program) {
    const Plan plan(make_request(routine, nrhs));
    std::vector<std::vector<T>> parts(
        static_cast<std::size_t>(ranks),
        std::vector<T>(static_cast<std::size_t>(ceil_div(rows, ranks) * cols), T(77)));
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) { program(rank, r, parts[r].data()); });
    return joined(parts, rows, cols);
  }

  Size k() const { return std::min(m, n); }

  Matrix<T> r_factor() {
    return collect(Routine::qr_r, 1, k(), n, [&](Rank<Device>& rank, std::size_t r, T* out) {
      qr_triangle<Device, T>(rank, shard[r].data(), &info[r], out);
    });
  }
  Matrix<T> q_factor(Size columns, bool in_place) {
    std::vector<std::vector<T>> triangle(
        static_cast<std::size_t>(ranks),
        std::vector<T>(static_cast<std::size_t>(ceil_div(k(), ranks) * n)));
    return collect(Routine::orgqr, columns, m, columns,
                   [&](Rank<Device>& rank, std::size_t r, T* out) {
                     if (in_place) {
                       std::copy(shard[r].begin(), shard[r].end(), out);
                     }
                     qr_form<Device, T>(rank, in_place ? out : shard[r].data(), aux[r].data(),
                                        &info[r], columns, out, triangle[r].data());
                   });
  }
  Matrix<T> times_q(const Matrix<T>& c) {
    const auto mine = all_split(c);
    return collect(Routine::ormqr, c.cols, m, c.cols,
                   [&](Rank<Device>& rank, std::size_t r, T* out) {
                     qr_multiply<Device, T>(rank, false, shard[r].data(), aux[r].data(), &info[r],
                                            mine[r].data(), out);
                   });
  }
  Matrix<T> times_adjoint(const Matrix<T>& c) {
    const auto mine = all_split(c);
    return collect(Routine::ormqr, c.cols, k(), c.cols,
                   [&](Rank<Device>& rank, std::size_t r, T* out) {
                     qr_multiply<Device, T>(rank, true, shard[r].data(), aux[r].data(), &info[r],
                                            mine[r].data(), out);
                   });
  }
  Matrix<T> least_squares(const Matrix<T>& b) {
    const Plan plan(make_request(Routine::geqrs, b.cols));
    const auto mine = all_split(b);
    std::vector<Matrix<T>> x(static_cast<std::size_t>(ranks), Matrix<T>(n, b.cols));
    each_rank(plan, [&](Rank<Device>& rank, std::size_t r) {
      qr_solve<Device, T>(rank, false, shard[r].data(), aux[r].data(), &info[r], mine[r].data(),
                          x[r].data.data(), &report[r]);
    });
    for (const auto& other : x) {  // all ranks hold the same bits
      EXPECT_EQ(0, std::memcmp(x[0].data.data(), other.data.data(), sizeof(T) * other.data.size()));
    }
    return x[0];
  }
  Matrix<T> minimum_norm(const Matrix<T>& c) {
    return collect(Routine::geqrs, c.cols, m, c.cols,
                   [&](Rank<Device>& rank, std::size_t r, T* out) {
                     qr_solve<Device, T>(rank, true, shard[r].data(), aux[r].data(), &info[r],
                                         c.data.data(), out, &report[r]);
                   });
  }
};

template <class T>
double unit(Size m) {
  return static_cast<double>(std::max<Size>(m, 1)) * std::numeric_limits<Real<T>>::epsilon();
}

// ||A - Q R||_1 / (m eps ||A||_1), and ||I - Q^H Q||_1 / (m eps)
template <class T>
void expect_factors(const Matrix<T>& a, const Matrix<T>& q, const Matrix<T>& r) {
  const auto wq = widened(q), wr = widened(r), wa = widened(a);
  EXPECT_LE(ratio(norm1(difference(wa, product(wq, wr))), unit<T>(a.rows) * norm1(wa)), 25);
  const auto gram = product(adjoint(wq), wq);
  EXPECT_LE(ratio(norm1(difference(gram, identity<Wide<T>>(q.cols))), unit<T>(a.rows)), 25);
  for (Size i = 0; i < r.rows; ++i) {
    for (Size j = 0; j < std::min(i, r.cols); ++j) {
      EXPECT_EQ(r(i, j), T(0));
    }
    if (i < r.cols) {
      EXPECT_EQ(std::imag(r(i, i)), 0);
    }
  }
}

// Matrices on which a factorisation that is not unconditionally stable fails.
template <class T>
std::vector<Matrix<T>> hard_matrices(Size m, Size n) {
  using R = Real<T>;
  const auto random = random_matrix<T>(m, n, 5);
  const R small = std::is_same_v<R, float> ? R(1e-15) : R(1e-150);
  std::vector<Matrix<T>> list;
  auto add = [&](const std::function<T(Size, Size)>& entry) {
    Matrix<T> a(m, n);
    for (Size i = 0; i < m; ++i) {
      for (Size j = 0; j < n; ++j) {
        a(i, j) = entry(i, j);
      }
    }
    list.push_back(a);
  };
  add([&](Size, Size) { return T(0); });
  add([&](Size, Size) { return T(1); });
  add([&](Size i, Size j) { return j % 3 == 1 ? T(0) : random(i, j); });
  add([&](Size i, Size j) { return random(i, j / 2); });
  add([&](Size i, Size j) { return random(i, 0) * T(R(j + 1)) + T(R(1e-9)) * random(i, j); });
  add([&](Size i, Size j) { return random(i, j) * T(std::pow(R(10), R(-double(j)))); });
  add([&](Size i, Size j) { return random(i, j) * T(std::pow(R(10), R(-double(i % 12)))); });
  add([&](Size i, Size j) { return random(i, j) * T(small); });
  add([&](Size i, Size j) { return random(i, j) * T(R(1) / small); });
  add([&](Size i, Size j) { return T(R(i < n && i == j)); });
  add([&](Size i, Size j) { return T(R(m - 1 - i == j)); });
  add([&](Size i, Size j) { return T(R(1) / R(i + j + 1)); });
  return list;
}

}  // namespace jaxmg::test
