// What panels and their updates need of tiles: batched products, products with vectors and factors
// of panels.
#include <algorithm>
#include <cmath>

#include "check.h"
#include "host_matrix.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/device_context.h"
#include "tile/cuda/panel_rows.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;
using tile::CudaLane;

template <class T>
HostMatrix<T> block_of(const HostMatrix<T>& a, Size row, Size col, Size m, Size n) {
  HostMatrix<T> b(m, n);
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < m; ++i) {
      b(i, j) = a(row + i, col + j);
    }
  }
  return b;
}

template <class T>
void check_strided(CudaLane& lane) {
  Group group("tiles: gemm_strided " + type_name<T>());
  const Size m = 33, n = 17, k = 24, count = 3;
  const auto a = HostMatrix<T>::random(200, k, 51);
  const auto b = HostMatrix<T>::random(150, k, 52);
  const auto c = HostMatrix<T>::random(m, 100, 53);
  const OnDevice<T> da(a), db(b);
  OnDevice<T> dc(c);
  const T alpha(Real<T>(-1));
  Cuda::gemm_strided<T>(lane, Op::none, Op::conj_transpose, m, n, k, alpha, da.get(), da.ld(), 50,
                        db.get(), db.ld(), 40, T(1), dc.get(), dc.ld(), 30 * dc.ld(), count);
  const auto out = dc.back();
  auto wanted = c;
  for (Size which = 0; which < count; ++which) {
    const auto p = product(block_of(a, 50 * which, 0, m, k),
                           block_of(b, 40 * which, 0, n, k).applied(Op::conj_transpose));
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        wanted(i, 30 * which + j) -= p(i, j);
      }
    }
  }
  group.expect_small(distance(out, wanted), 4 * epsilon<T> * static_cast<double>(k), "products");
  group.expect(out.padding_untouched(), "padding");
}

// x holds inv(B) on the diagonal blocks B of L, inv(B) L below them and 0 above.
template <class T>
void check_block_inverses(CudaLane& lane) {
  Group group("tiles: invert_blocks " + type_name<T>());
  const Size edge = Cuda::inverse_block;
  for (const Size n : {Size{1}, Size{31}, edge, edge + 1, Size{200}, 2 * edge}) {
    const std::string name = "n " + std::to_string(n);
    const auto l = HostMatrix<T>::random_lower(n, 54);
    const OnDevice<T> dl(l);
    OnDevice<T> dx(HostMatrix<T>(n, n));
    Cuda::invert_blocks<T>(lane, n, dl.get(), dl.ld(), dx.get(), dx.ld());
    const auto x = dx.back();
    const auto lower = l.lower();
    double worst = x.padding_untouched() ? 0 : std::numeric_limits<double>::infinity();
    for (Size j = 0; j < n; j += edge) {
      const Size w = std::min(edge, n - j);
      // B times a block row of x is [L, 1, 0].
      const auto row = product(block_of(lower, j, j, w, w), block_of(x, j, 0, w, n));
      for (Size c = 0; c < n; ++c) {
        for (Size i = 0; i < w; ++i) {
          const T wanted = c < j ? lower(j + i, c) : T(Real<T>(c == j + i ? 1 : 0));
          worst = std::max<double>(worst, std::abs(row(i, c) - wanted));
        }
      }
    }
    group.expect_small(worst, 30 * epsilon<T> * static_cast<double>(n) * (1 + l.largest()), name);
  }
}

// The factor L of an n x n tile and the rows below it times inv(L)^H, of matrices of any condition.
template <class T>
void check_factor_panel(CudaLane& lane) {
  Group group("tiles: factor_panel " + type_name<T>());
  DeviceArray<Info> info(1);
  for (const Size n : {Size{1}, Size{31}, Size{32}, Size{33}, Size{64}, Size{100}, Size{128},
                       Size{200}, Size{256}, Size{600}}) {
    for (const Size m : {Size{0}, Size{1}, Size{63}, Size{200}, Size{9000}}) {
      if ((n > 512 && m != 63) || (m == 9000 && (n != 256 || is_complex_v<T>))) {
        continue;  // products on the host take long
      }
      const Size parts = m == 63 ? 1 : m == 200 ? 3 : 2;
      const std::string name = "n " + std::to_string(n) + " m " + std::to_string(m);
      const auto l = HostMatrix<T>::random_lower(n, 54).lower();
      auto x = HostMatrix<T>::random(m, n, 58);
      const auto square = product(l, l.applied(Op::conj_transpose));
      const auto below = product(x, l.applied(Op::conj_transpose));
      HostMatrix<T> a(n + m, n);
      for (Size j = 0; j < n; ++j) {
        for (Size i = 0; i < n + m; ++i) {
          a(i, j) = i < n ? square(i, j) : below(i - n, j);
        }
      }
      const OnDevice<T> da(a);
      Cuda::reset(lane, info.get());
      const Size width = ceil_div(n, parts);
      for (Size first = 0; first < n; first += width) {
        Cuda::factor_panel<T>(lane, first, std::min(first + width, n), n, m, da.get(), da.ld(), 0,
                              info.get());
      }
      const auto out = da.back();
      group.expect(info.download()[0].kind == 0, name + ": no failure");
      const auto factor = block_of(out, 0, 0, n, n).lower();
      const double bound = 30 * epsilon<T> * static_cast<double>(n) * (1 + square.largest());
      group.expect_small(distance(product(factor, factor.applied(Op::conj_transpose)), square),
                         bound, name + ": factor");
      if (m > 0) {
        const auto solved = block_of(out, n, 0, m, n);
        group.expect_small(distance(product(solved, factor.applied(Op::conj_transpose)), below),
                           bound * (1 + solved.largest()), name + ": rows");
      }
      group.expect(out.padding_untouched(), name + ": padding");
    }
  }
  for (const Size k : {Size{0}, Size{31}, Size{40}, Size{64}, Size{99}}) {
    HostMatrix<T> a(120, 100);
    for (Size j = 0; j < 100; ++j) {
      for (Size i = 0; i < 120; ++i) {
        a(i, j) = T(Real<T>(i == j ? (i == k ? -1 : 1) : 0));
      }
    }
    OnDevice<T> da(a);
    Cuda::reset(lane, info.get());
    Cuda::factor_panel<T>(lane, 0, 100, 100, 20, da.get(), da.ld(), 1000, info.get());
    const Info found = info.download()[0];
    group.expect(found.kind == static_cast<std::int32_t>(Kind::not_positive_definite) &&
                     found.position == 1000 + k + 1,
                 "failing minor " + std::to_string(k + 1));
  }
}

// a <- a L^-H is as good as substitution, row by row: the residual is within rounding of the
// product of |X| and |L|.
template <class T>
void expect_solved(Group& group, const HostMatrix<T>& l, const HostMatrix<T>& x,
                   const HostMatrix<T>& a, const std::string& name) {
  const auto back = product(x, l.applied(Op::conj_transpose));
  double worst = 0;
  for (Size i = 0; i < a.m; ++i) {
    double largest = 1;
    for (Size j = 0; j < a.n; ++j) {
      largest = std::max(largest, static_cast<double>(std::abs(x(i, j))));
    }
    for (Size j = 0; j < a.n; ++j) {
      worst = std::max(worst, static_cast<double>(std::abs(back(i, j) - a(i, j))) / largest);
    }
  }
  const double size = static_cast<double>(a.n) * std::max(1.0, l.largest());
  group.expect_small(worst, 8 * epsilon<T> * size, name);
}

// Many rows below a tile, of a random matrix and of a smooth kernel, whose diagonal blocks are all
// but singular: products with inverses alone would not do.
template <class T>
void check_panel_rows(CudaLane& lane) {
  Group group("tiles: solve_panel_rows " + type_name<T>());
  DeviceArray<Info> info(1);
  for (const bool smooth : {false, true}) {
    for (const auto& [n, m] : std::vector<std::pair<Size, Size>>{
             {128, 1}, {130, 64}, {256, 100}, {320, 63}, {600, 200}}) {
      HostMatrix<T> tile(n, n);
      const auto random = HostMatrix<T>::random(n, n, 57);
      for (Size j = 0; j < n; ++j) {
        for (Size i = 0; i < n; ++i) {
          const double x = static_cast<double>(i - j) / 64;
          const double nugget = 10 * epsilon<T> * static_cast<double>(n);
          const auto kernel = static_cast<Real<T>>(std::exp(-x * x) + (i == j ? nugget : 0));
          tile(i, j) = smooth ? T(kernel) : random(i, j) + random(j, i);
          tile(i, j) += T(static_cast<Real<T>>(!smooth && i == j ? 2 * n : 0));
        }
      }
      const auto a = HostMatrix<T>::random(m, n, 59);
      OnDevice<T> l(tile);
      OnDevice<T> x(a);
      Cuda::reset(lane, info.get());
      Cuda::factor_panel<T>(lane, 0, n, n, 0, l.get(), l.ld(), 0, info.get());
      tile::solve_panel_rows<T>(lane, m, 0, n, n, l.get(), l.ld(), x.get(), x.ld());
      const std::string name = std::to_string(m) + " x " + std::to_string(n);
      group.expect(info.download()[0].kind == 0, name + ": no failure");
      const auto out = x.back();
      expect_solved(group, l.back().lower(), out, a, name + (smooth ? ", smooth" : ", random"));
      group.expect(out.padding_untouched(), name + ": padding");
    }
  }
}

// Products of a transposed matrix with a vector, by long and by short columns.
template <class T>
void check_column_dots(CudaLane& lane) {
  Group group("tiles: products with the transpose " + type_name<T>());
  for (const Size k : {Size{8191}, Size{8192}, Size{10001}}) {
    for (const Op op : {Op::transpose, Op::conj_transpose}) {
      const auto a = HostMatrix<T>::random(k, 3, 61);
      const auto b = HostMatrix<T>::random(k, 1, 62);
      const auto c = HostMatrix<T>::random(3, 1, 63);
      const OnDevice<T> da(a), db(b);
      OnDevice<T> dc(c);
      Cuda::gemm<T>(lane, op, Op::none, 3, 1, k, T(2), da.get(), da.ld(), db.get(), db.ld(), T(-1),
                    dc.get(), dc.ld());
      auto wanted = product(a.applied(op), b);
      for (Size i = 0; i < 3; ++i) {
        wanted(i, 0) = T(2) * wanted(i, 0) - c(i, 0);
      }
      group.expect_small(distance(dc.back(), wanted), 100 * epsilon<T> * std::sqrt(double(k)),
                         "k " + std::to_string(k));
    }
  }
}

// Both products with vectors, with room for a share of each strip of columns, for fewer and for
// too few.
template <class T>
void check_both_products(CudaLane& lane) {
  Group group("tiles: both products " + type_name<T>());
  const Size m = 300, n = 16 * 300 + 5;
  const auto a = HostMatrix<T>::random(m, n, 64);
  const auto v = HostMatrix<T>::random(m, 1, 65);
  const auto w = HostMatrix<T>::random(n, 1, 66);
  const auto z = HostMatrix<T>::random(m, 1, 67);
  const OnDevice<T> da(a), dv(v), dw(w);
  auto with_w = product(a, w);
  for (Size i = 0; i < m; ++i) {
    with_w(i, 0) += z(i, 0);
  }
  const auto with_v = product(a.applied(Op::transpose), v);
  for (const Size shares : {Size{301}, Size{300}, Size{256}, Size{30}}) {
    OnDevice<T> dy(HostMatrix<T>(n, 1)), dz(z);
    DeviceArray<T> work(shares * m);
    Cuda::multiply_both<T>(lane, m, n, da.get(), da.ld(), dv.get(), dw.get(), dy.get(), dz.get(),
                           work.get(), shares * m);
    const std::string name = std::to_string(shares) + " shares";
    group.expect_small(distance(dy.back(), with_v), 100 * epsilon<T> * std::sqrt(double(m)),
                       name + ": y");
    group.expect_small(distance(dz.back(), with_w), 100 * epsilon<T> * std::sqrt(double(n)),
                       name + ": z");
  }
}

template <class T>
void check_type(tile::DeviceContext& context) {
  auto& lanes = context.lanes();
  const Size tile = 600;
  DeviceArray<char> library(lanes.library_bytes(dtype_of<T>, tile));
  lanes.bind(library.get(), library.count(), dtype_of<T>, tile);
  check_strided<T>(lanes.update);
  check_block_inverses<T>(lanes.panel);
  check_factor_panel<T>(lanes.panel);
  if constexpr (!is_complex_v<T>) {
    check_panel_rows<T>(lanes.panel);
  }
  check_column_dots<T>(lanes.update);
  check_both_products<T>(lanes.update);
}

}  // namespace

void check_panel_operations() {
  const auto set = tile::DeviceSet::get({0});
  const tile::DeviceGuard guard(0);
  check_type<float>(set->context(0));
  check_type<double>(set->context(0));
  check_type<std::complex<float>>(set->context(0));
  check_type<std::complex<double>>(set->context(0));
}

}  // namespace jaxmg::test
