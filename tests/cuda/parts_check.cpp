// Numbers in half-precision parts: powers of two as scales, products, and panels made by them.
#include <algorithm>
#include <cmath>

#include "check.h"
#include "host_matrix.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/device_context.h"
#include "tile/split_panel.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;
using tile::CudaLane;

// The scales of a diagonal, whether they are needed, and what is done where they are.
template <class T>
void check_scales(CudaLane& lane) {
  using R = Real<T>;
  Group group("tiles: unit_scale, judge_scales, scale_if " + type_name<T>());
  for (const auto& [m, n] : std::vector<std::pair<Size, Size>>{{40, 40}, {5000, 7}, {2048, 3}}) {
    for (const bool far : {false, true}) {
      const std::string name = std::to_string(m) + " x " + std::to_string(n);
      const Size order = std::min(m, n);
      auto a = HostMatrix<T>::random(m, n, 55);
      for (Size i = 0; i < order; ++i) {
        const int exponent = far ? static_cast<int>(i * 5 - 100) : i % 2 == 0 ? -8 : 10;
        a(i, i) = T(std::ldexp(R(1.5), exponent));
      }
      a(1, 1) = T(R(-1));
      a(2, 2) = T(R(0));
      const OnDevice<T> da(a);
      DeviceArray<R> scale(std::vector<R>(static_cast<std::size_t>(m), R(4)));
      DeviceArray<R> inverse(m), needed(1);
      Cuda::unit_scale<T>(lane, order, da.get(), da.ld() + 1, scale.get());
      const auto before = scale.download();
      Cuda::judge_scales<R>(lane, order, R(0x1p-5), R(0x1p4), scale.get(), inverse.get(),
                            needed.get());
      const auto s = scale.download();
      const auto t = inverse.download();
      bool powers = true;
      for (Size i = 0; i < order; ++i) {
        const auto u = static_cast<std::size_t>(i);
        int exponent = 0;
        powers = powers && std::frexp(before[u], &exponent) == R(0.5) && s[u] * t[u] == R(1);
        powers = powers && s[u] == (far ? before[u] : R(1));
        const double scaled = std::abs(std::real(a(i, i))) * std::pow<double>(before[u], 2);
        powers = powers && (i == 1 || i == 2 ? before[u] == R(1) : scaled >= 0.45 && scaled <= 2.1);
      }
      group.expect(powers, name + ": exact powers of two that bring the diagonal to about 1");
      group.expect(needed.download()[0] == R(far ? 1 : 0), name + ": needed or not");
      for (const bool by_columns : {false, true}) {
        OnDevice<T> dx(a);
        Cuda::scale_if<T>(lane, needed.get(), m, n, scale.get(), by_columns ? scale.get() : nullptr,
                          dx.get(), dx.ld());
        auto wanted = a;
        for (Size j = 0; j < n && far; ++j) {
          for (Size i = 0; i < m; ++i) {
            wanted(i, j) *= s[static_cast<std::size_t>(i)] *
                            (by_columns ? s[static_cast<std::size_t>(j)] : R(1));
          }
        }
        group.expect(distance(dx.back(), wanted) == 0, name + ": scaled, exactly");
        group.expect(dx.back().padding_untouched(), name + ": padding");
      }
    }
  }
}

// Products of half-precision parts, against the exact ones: nearly those of 32-bit numbers.
template <class T>
void check_split_products(CudaLane& lane) {
  using Wide = std::conditional_t<is_complex_v<T>, std::complex<double>, double>;
  Group group("tiles: products by parts " + type_name<T>());
  const Size rows = 300, k = 128, m = 65, n = 40, count = 2;
  const auto p = HostMatrix<T>::random(rows, k, 56, 0);
  const OnDevice<T> dp(p);
  DeviceArray<Cuda::Half> parts(cholesky_halves(dtype_of<T>) * parts_ld(rows) * k);
  Cuda::split(lane, rows, k, dp.get(), dp.ld(), parts.get(), parts_ld(rows));
  for (const Size products : {Size{1}, count}) {
    const auto c = HostMatrix<T>::random(m, 90, 57);
    OnDevice<T> dc(c);
    Cuda::subtract_split_product(lane, m, n, k, parts.get(), parts_ld(rows), 10, 80, 100, 50,
                                 dc.get(), dc.ld(), 45 * dc.ld(), products);
    const auto out = dc.back();
    double worst = 0;
    for (Size which = 0; which < products; ++which) {
      for (Size j = 0; j < n; ++j) {
        for (Size i = 0; i < m; ++i) {
          Wide wanted(c(i, 45 * which + j));
          for (Size l = 0; l < k; ++l) {
            wanted -= Wide(p(10 + 80 * which + i, l)) * conjugate(Wide(p(100 + 50 * which + j, l)));
          }
          worst = std::max(worst, std::abs(Wide(out(i, 45 * which + j)) - wanted));
        }
      }
    }
    // A single half-precision product would be off by 10^-3 here.
    group.expect_small(worst, is_complex_v<T> ? 4e-5 : 1e-5,
                       std::to_string(products) + " products");
    group.expect(out.padding_untouched(), "padding");
  }
}

// A panel that is made by runs of columns with products by parts between them, its rows few rows
// over and over. Right-hand sides are larger than half precision holds.
template <class T>
void check_split_panel(CudaLane& lane) {
  Group group("tiles: panels by parts " + type_name<T>());
  const Size n = 600, m = Cuda::rows_by_parts + 100, distinct = 211, rhs = 3, room = 8;
  const double large = 1e6;
  const auto l = HostMatrix<T>::random_lower(n, 54).lower();
  const auto x = HostMatrix<T>::random(distinct, n, 58);
  const auto square = product(l, l.applied(Op::conj_transpose));
  const auto below = product(x, l.applied(Op::conj_transpose));
  HostMatrix<T> a(n + m + room, n);
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < n + m + room; ++i) {
      const auto size = static_cast<Real<T>>(i < n + m ? 1 : i < n + m + rhs ? large : 0);
      a(i, j) = i < n ? square(i, j) : below((i - n) % distinct, j) * size;
    }
  }
  const std::vector<T> packed = [&] {  // without gaps
    std::vector<T> elements;
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < a.m; ++i) {
        elements.push_back(a(i, j));
      }
    }
    return elements;
  }();
  const DeviceArray<T> panel(packed);
  DeviceArray<Cuda::Half> parts(cholesky_halves(dtype_of<T>) * parts_ld(n + m) * n / 2);
  DeviceArray<Info> info(1);
  Cuda::reset(lane, info.get());
  SplitPanel<Cuda, T> split(panel.get(), nullptr, parts.get());
  split.reshape({RowRange{GlobalIndex(0), m, 0}}, n, n, 1, rhs, room);
  split.factor(lane, 0, 0, info.get());
  group.expect(info.download()[0].kind == 0, "no failure");
  const auto out = panel.download();
  const auto at = [&](Size i, Size j) { return out[static_cast<std::size_t>(i + j * a.m)]; };
  HostMatrix<T> factor(n, n);
  for (Size j = 0; j < n; ++j) {
    for (Size i = j; i < n; ++i) {
      factor(i, j) = at(i, j);
    }
  }
  factor = factor.lower();
  const double bound = 30 * epsilon<T> * static_cast<double>(n) * (1 + square.largest());
  group.expect_small(distance(product(factor, factor.applied(Op::conj_transpose)), square), bound,
                     "factor");
  // Some of the rows, among them the last, and the right-hand sides.
  HostMatrix<T> some(100 + rhs, n), wanted(100 + rhs, n);
  for (Size k = 0; k < some.m; ++k) {
    const Size row = k < 100 ? m - 1 - k * (m / 100) : m + k - 100;
    const auto size = static_cast<Real<T>>(k < 100 ? 1 : 1 / large);
    for (Size j = 0; j < n; ++j) {
      some(k, j) = at(n + row, j) * size;
      wanted(k, j) = below(row % distinct, j);
    }
  }
  group.expect_small(distance(product(some, factor.applied(Op::conj_transpose)), wanted),
                     bound * (1 + some.largest()), "rows and right-hand sides");
}

// The same for those of LU: a second factor of any size, without conjugation.
template <class T>
void check_split_rows(CudaLane& lane) {
  using Wide = std::conditional_t<is_complex_v<T>, std::complex<double>, double>;
  Group group("tiles: products of LU by parts " + type_name<T>());
  const Size m = 301, k = 128, n = 40;
  const auto a = HostMatrix<T>::random(m, k, 56, 0);
  const OnDevice<T> da(a);
  DeviceArray<Cuda::Half> left(lower_halves(dtype_of<T>) * parts_ld(m) * k);
  DeviceArray<Cuda::Half> right(upper_halves(dtype_of<T>) * k * n);
  Cuda::split_left(lane, m, k, da.get(), da.ld(), left.get(), parts_ld(m));
  for (const double size : {1.0, 0x1p-40, 0x1p40}) {
    auto b = HostMatrix<T>::random(k, n, 58);
    auto c = HostMatrix<T>::random(m, n, 57);
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < k; ++i) {
        b(i, j) *= static_cast<Real<T>>(size);
      }
      for (Size i = 0; i < m; ++i) {
        c(i, j) *= static_cast<Real<T>>(size);
      }
    }
    const OnDevice<T> db(b);
    OnDevice<T> dc(c);
    Cuda::subtract_split_rows(lane, m, n, k, left.get(), parts_ld(m), db.get(), db.ld(),
                              right.get(), dc.get(), dc.ld());
    const auto out = dc.back();
    double worst = 0;
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        Wide wanted(c(i, j));
        for (Size l = 0; l < k; ++l) {
          wanted -= Wide(a(i, l)) * Wide(b(l, j));
        }
        worst = std::max(worst, std::abs(Wide(out(i, j)) - wanted) / size);
      }
    }
    group.expect_small(worst, is_complex_v<T> ? 4e-5 : 2e-5,
                       "factor of size " + std::to_string(std::log2(size)));
    group.expect(out.padding_untouched(), "padding");
  }
}

template <class T>
void check_type(tile::DeviceContext& context) {
  auto& lanes = context.lanes();
  const Size tile = 600;
  DeviceArray<char> library(lanes.library_bytes(dtype_of<T>, tile));
  lanes.bind(library.get(), library.count(), dtype_of<T>, tile);
  check_scales<T>(lanes.update);
  check_split_products<T>(lanes.update);
  check_split_rows<T>(lanes.update);
  if constexpr (makes_panels_by_parts(dtype_of<T>, kNativeRun + 1)) {
    check_split_panel<T>(lanes.panel);
  }
}

}  // namespace

void check_part_operations() {
  const auto set = tile::DeviceSet::get({0});
  const tile::DeviceGuard guard(0);
  check_type<float>(set->context(0));
  check_type<std::complex<float>>(set->context(0));
}

}  // namespace jaxmg::test
