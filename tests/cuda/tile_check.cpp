// Tile operations against plain loops on the host.
#include "check.h"
#include "host_matrix.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/device_context.h"
#include "tile/random.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;
using tile::CudaLane;

const std::vector<std::pair<Size, Size>> kShapes = {
    {0, 3}, {1, 1}, {1, 70}, {70, 1}, {3, 5}, {33, 31}, {32, 64}, {257, 129}, {1000, 3}};

std::string shape_name(Size m, Size n) {
  return std::to_string(m) + " x " + std::to_string(n);
}

template <class T>
void check_moves(CudaLane& lane) {
  Group group("tiles: moves " + type_name<T>());
  for (const auto& [m, n] : kShapes) {
    const std::string name = shape_name(m, n);
    const auto a = HostMatrix<T>::random(m, n, 1);
    const OnDevice<T> da(a);
    {
      OnDevice<T> b(HostMatrix<T>(m, n, 5));
      Cuda::copy<T>(lane, m, n, da.get(), da.ld(), b.get(), b.ld());
      const auto out = b.back();
      group.expect(distance(out, a) == 0 && out.padding_untouched(), "copy " + name);
    }
    for (const bool conj : {false, true}) {
      OnDevice<T> b(HostMatrix<T>(n, m, 2));
      Cuda::transpose<T>(lane, m, n, da.get(), da.ld(), b.get(), b.ld(), conj);
      const auto out = b.back();
      const auto wanted = a.applied(conj ? Op::conj_transpose : Op::transpose);
      group.expect(distance(out, wanted) == 0 && out.padding_untouched(), "transpose " + name);
    }
    {
      OnDevice<T> b(HostMatrix<T>(m, n));
      Cuda::fill<T>(lane, m, n, T(2), T(7), b.get(), b.ld());
      const auto out = b.back();
      bool ok = out.padding_untouched();
      for (Size j = 0; j < n; ++j) {
        for (Size i = 0; i < m; ++i) {
          ok = ok && out(i, j) == (i == j ? T(7) : T(2));
        }
      }
      group.expect(ok, "fill " + name);
    }
    {
      auto c = HostMatrix<T>::random(m, n, 2);
      OnDevice<T> b(c);
      const T alpha = random_entry<T>(9, 1, 1);
      Cuda::add<T>(lane, m, n, alpha, da.get(), da.ld(), b.get(), b.ld());
      for (Size j = 0; j < n; ++j) {
        for (Size i = 0; i < m; ++i) {
          c(i, j) += alpha * a(i, j);
        }
      }
      const auto out = b.back();
      group.expect(distance(out, c) <= 4 * epsilon<T> && out.padding_untouched(), "add " + name);
    }
  }
  DeviceArray<T> v(1000);
  Cuda::random_vector<T>(lane, 1000, 17, Real<T>(0.25), v.get());
  const auto host = v.download();
  bool same = true;
  for (Size i = 0; i < 1000; ++i) {
    same = same && host[static_cast<std::size_t>(i)] ==
                       T(Real<T>(0.25) * static_cast<Real<T>>(tile::random_real(17 + i)));
  }
  group.expect(same, "random_vector makes the host's numbers");
}

// Both by one kernel, or by two where there is no room for its sums.
template <class T>
void check_both_products(CudaLane& lane) {
  Group group("tiles: multiply_both " + type_name<T>());
  const std::vector<std::array<Size, 2>> shapes = {
      {1, 1}, {7, 3}, {300, 16}, {1000, 53}, {40, 300}};
  for (const auto& [m, n] : shapes) {
    for (const Size room : {Size{0}, ceil_div(n, 16) * m}) {
      const auto a = HostMatrix<T>::random(m, n, 3);
      const auto v = HostMatrix<T>::random(m, 1, 4), w = HostMatrix<T>::random(n, 1, 5);
      auto z = HostMatrix<T>::random(m, 1, 6);
      const OnDevice<T> da(a), dv(v), dw(w);
      OnDevice<T> dy(HostMatrix<T>(n, 1)), dz(z);
      DeviceArray<T> work(std::max<Size>(1, room));
      Cuda::multiply_both<T>(lane, m, n, da.get(), da.ld(), dv.get(), dw.get(), dy.get(), dz.get(),
                             work.get(), room);
      const std::string name = shape_name(m, n) + " room " + std::to_string(room);
      group.expect_small(distance(dy.back(), product(a.applied(Op::transpose), v)),
                         4 * epsilon<T> * static_cast<double>(m + 2), name + " y");
      const auto added = product(a, w);
      for (Size i = 0; i < m; ++i) {
        z(i, 0) += added(i, 0);
      }
      group.expect_small(distance(dz.back(), z), 4 * epsilon<T> * static_cast<double>(n + 2),
                         name + " z");
    }
  }
}

template <class T>
void check_gemm(CudaLane& lane) {
  Group group("tiles: gemm " + type_name<T>());
  const std::vector<std::array<Size, 3>> shapes = {
      {0, 3, 2}, {3, 4, 0},    {1, 1, 1},    {1, 37, 50},    {41, 1, 60},
      {5, 7, 9}, {64, 32, 16}, {65, 33, 17}, {130, 70, 100}, {1, 70, 300}};
  for (const auto& [m, n, k] : shapes) {
    for (const Op op_a : {Op::none, Op::transpose, Op::conj_transpose}) {
      for (const Op op_b : {Op::none, Op::transpose, Op::conj_transpose}) {
        for (const int beta_kind : {0, 1, 2}) {
          const auto a =
              op_a == Op::none ? HostMatrix<T>::random(m, k, 3) : HostMatrix<T>::random(k, m, 3);
          const auto b =
              op_b == Op::none ? HostMatrix<T>::random(k, n, 4) : HostMatrix<T>::random(n, k, 4);
          auto c = HostMatrix<T>::random(m, n, 5);
          const T alpha = random_entry<T>(6, 1, 2);
          const T beta = beta_kind == 2 ? random_entry<T>(7, 1, 2) : T(Real<T>(beta_kind));
          const auto p = product(a.applied(op_a), b.applied(op_b));
          auto wanted = c;
          for (Size j = 0; j < n; ++j) {
            for (Size i = 0; i < m; ++i) {
              wanted(i, j) = alpha * p(i, j) + beta * c(i, j);
              if (beta_kind == 0) {  // c must not be read
                c(i, j) = T(std::numeric_limits<Real<T>>::quiet_NaN());
              }
            }
          }
          const OnDevice<T> da(a);
          const OnDevice<T> db(b);
          OnDevice<T> dc(c);
          Cuda::gemm<T>(lane, op_a, op_b, m, n, k, alpha, da.get(), da.ld(), db.get(), db.ld(),
                        beta, dc.get(), dc.ld());
          const auto out = dc.back();
          const std::string name = shape_name(m, n) + " x " + std::to_string(k) + " ops " +
                                   std::to_string(static_cast<int>(op_a)) +
                                   std::to_string(static_cast<int>(op_b)) + " beta " +
                                   std::to_string(beta_kind);
          // TF32 would miss this bound by three orders of magnitude.
          group.expect_small(distance(out, wanted), 4 * epsilon<T> * static_cast<double>(k + 1),
                             name);
          group.expect(out.padding_untouched(), name + " padding");
        }
      }
    }
  }
}

template <class T>
void check_triangular(CudaLane& lane) {
  Group group("tiles: triangular " + type_name<T>());
  for (const auto& [m, n] : std::vector<std::pair<Size, Size>>{
           {0, 4}, {1, 1}, {1, 63}, {7, 5}, {33, 64}, {150, 100}, {1, 128}}) {
    const auto l = HostMatrix<T>::random_lower(n, 11);
    const auto b = HostMatrix<T>::random(m, n, 12);
    const double limit = 30 * epsilon<T> * static_cast<double>(n) * (1 + l.largest());
    const OnDevice<T> dl(l);
    for (const Op op : {Op::none, Op::transpose, Op::conj_transpose}) {
      const std::string name = shape_name(m, n) + " op " + std::to_string(static_cast<int>(op));
      OnDevice<T> right(b);
      Cuda::trsm<T>(lane, Side::right, Uplo::lower, op, Diag::non_unit, m, n, T(1), dl.get(),
                    dl.ld(), right.get(), right.ld());
      const auto x = right.back();
      group.expect_small(distance(product(x, l.lower().applied(op)), b), limit, "trsm " + name);
      group.expect(x.padding_untouched(), "trsm padding " + name);

      OnDevice<T> inverse(HostMatrix<T>(n, n, 1));
      Cuda::invert_lower<T>(lane, n, dl.get(), dl.ld(), inverse.get(), inverse.ld());
      const auto inv = inverse.back();
      bool zeros = inv.padding_untouched();
      for (Size j = 0; j < n; ++j) {
        for (Size i = 0; i < j; ++i) {
          zeros = zeros && inv(i, j) == T(0);
        }
      }
      group.expect(zeros, "invert_lower leaves zeros above the diagonal, " + name);

      OnDevice<T> solved(b);
      DeviceArray<T> work(std::max<Size>(1, m * n));
      Cuda::solve_diagonal<T>(lane, op, m, n, dl.get(), dl.ld(), inverse.get(), inverse.ld(),
                              solved.get(), solved.ld(), work.get());
      const auto y = solved.back();
      group.expect_small(distance(product(y, l.lower().applied(op)), b), limit,
                         "solve_diagonal " + name);
      group.expect(y.padding_untouched(), "solve_diagonal padding " + name);
    }
  }
}

// One correction step must make up for what the inverse of an ill-conditioned tile loses.
template <class T>
void check_solve_accuracy(CudaLane& lane) {
  Group group("tiles: solve_diagonal, ill-conditioned " + type_name<T>());
  const Size n = 128;
  for (const double grade : {1.0, 1e-2, 1e-4}) {
    auto l = HostMatrix<T>::random_lower(n, 13);
    for (Size i = 0; i < n; ++i) {
      const double scale = std::pow(grade, static_cast<double>(i) / static_cast<double>(n));
      for (Size j = 0; j <= i; ++j) {
        l(i, j) *= static_cast<Real<T>>(scale);
      }
    }
    const OnDevice<T> dl(l);
    OnDevice<T> inverse(HostMatrix<T>(n, n));
    Cuda::invert_lower<T>(lane, n, dl.get(), dl.ld(), inverse.get(), inverse.ld());
    for (const Size m : {Size{1}, Size{20}}) {
      for (const Op op : {Op::none, Op::transpose, Op::conj_transpose}) {
        const auto b = HostMatrix<T>::random(m, n, 14);
        OnDevice<T> x(b);
        DeviceArray<T> work(m * n);
        Cuda::solve_diagonal<T>(lane, op, m, n, dl.get(), dl.ld(), inverse.get(), inverse.ld(),
                                x.get(), x.ld(), work.get());
        const auto solved = x.back();
        group.expect_small(
            distance(product(solved, l.lower().applied(op)), b),
            20 * epsilon<T> * static_cast<double>(n) * (1 + l.largest() * solved.largest()),
            "grade " + std::to_string(grade) + " m " + std::to_string(m) + " op " +
                std::to_string(static_cast<int>(op)));
      }
    }
  }
}

template <class T>
HostMatrix<T> hermitian(Size n, std::uint64_t seed) {
  const auto a = random_hpd<T>(n, seed);
  HostMatrix<T> h(n, n);
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < n; ++i) {
      h(i, j) = a(i, j);
    }
  }
  return h;
}

template <class T>
void check_potrf(CudaLane& lane) {
  Group group("tiles: potrf " + type_name<T>());
  for (const Size n : {Size{1}, Size{2}, Size{31}, Size{64}, Size{128}, Size{200}}) {
    const std::string name = "n " + std::to_string(n);
    const auto a = hermitian<T>(n, 21);
    auto given = a;
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < j; ++i) {
        given(i, j) = T(kSentinel);
      }
      if constexpr (is_complex_v<T>) {  // LAPACK's rule: not looked at
        given(j, j) += T(0, 3);
      }
    }
    OnDevice<T> da(given);
    DeviceArray<Info> info(1);
    Cuda::reset(lane, info.get());
    Cuda::potrf<T>(lane, n, da.get(), da.ld(), 100, info.get());
    const auto l = da.back();
    group.expect(info.download()[0].kind == 0, name + " succeeds");
    const auto back = product(l.lower(), l.lower().applied(Op::conj_transpose));
    group.expect_small(distance(back, a),
                       10 * epsilon<T> * static_cast<double>(n + 10) * a.largest(),
                       name + " residual");
    bool above = l.padding_untouched();
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < j; ++i) {
        above = above && l(i, j) == T(kSentinel);
      }
    }
    group.expect(above, name + " leaves the strict upper part alone");

    for (const bool nan : {false, true}) {
      auto bad = a;
      const Size place = n / 2;
      bad(place, place) = nan ? T(std::numeric_limits<Real<T>>::quiet_NaN()) : T(-1);
      OnDevice<T> db(bad);
      Cuda::reset(lane, info.get());
      Cuda::potrf<T>(lane, n, db.get(), db.ld(), 100, info.get());
      Cuda::potrf<T>(lane, n, db.get(), db.ld(), 5000, info.get());  // the first failure stays
      const Info report = info.download()[0];
      group.expect(
          report.kind == static_cast<int>(Kind::not_positive_definite) &&
              report.position == 100 + place + 1,
          name + (nan ? " NaN" : "") + " reports position " + std::to_string(report.position));
    }
  }
  const auto a = hermitian<T>(65, 22);
  OnDevice<T> da(a);
  DeviceArray<Real<T>> result(std::vector<Real<T>>{Real<T>(1.5)});
  Cuda::log_diagonal<T>(lane, 65, da.get(), da.ld(), result.get());
  double wanted = 1.5;
  for (Size i = 0; i < 65; ++i) {
    wanted += 2 * std::log(static_cast<double>(std::real(a(i, i))));
  }
  group.expect_small(std::abs(static_cast<double>(result.download()[0]) - wanted),
                     2 * epsilon<T> * wanted, "log_diagonal");
}

template <class T>
void check_hermitian_test(CudaLane& lane) {
  using R = Real<T>;
  Group group("tiles: check_hermitian, Info " + type_name<T>());
  const Size n = 3000;
  const auto un = static_cast<std::size_t>(n);
  std::vector<T> diagonal(2 * un), v(un), y(un), z(un);
  for (Size i = 0; i < n; ++i) {
    const auto u = static_cast<std::size_t>(i);
    v[u] = T(std::real(random_entry<T>(31, i, 0)));
    diagonal[2 * u] = random_entry<T>(32, i, 0);
    const T clean = random_entry<T>(33, i, 0);
    y[u] = clean;
    z[u] = conjugate(clean);
    if constexpr (is_complex_v<T>) {
      const T extra(R(0), diagonal[2 * u].imag() * v[u].real());
      y[u] += extra;
      z[u] += extra;
    }
  }
  DeviceArray<T> dd(diagonal), dv(v), dy(y), dz(z);
  DeviceArray<R> result(3);
  DeviceArray<Info> info(1);
  const auto judge = [&](const char* what, Kind wanted) {
    result.upload({R(0), R(0), R(0)});
    Cuda::reset(lane, info.get());
    Cuda::check_hermitian<T>(lane, n, dd.get(), 2, dv.get(), dy.get(), dz.get(), result.get());
    Cuda::judge_hermitian<R>(lane, result.get(), R(1e-3), info.get());
    group.expect(info.download()[0].kind == static_cast<int>(wanted), what);
  };
  judge("Hermitian", Kind::ok);
  z[un - 1] += T(R(0.5));
  dz.upload(z);
  judge("not Hermitian", Kind::not_hermitian);
  y[7] = T(std::numeric_limits<R>::infinity());
  dy.upload(y);
  judge("not finite", Kind::non_finite);
  Cuda::set_if_ok(lane, Kind::singular, 4, info.get());
  Cuda::set_phase(lane, Phase::natural_order, 3, info.get());
  Cuda::set_phase(lane, Phase::elimination_order, 4, info.get());
  const Info report = info.download()[0];
  group.expect(report.kind == static_cast<int>(Kind::non_finite) && report.rank == 3 &&
                   report.phase == static_cast<int>(Phase::natural_order),
               "the first failure and the first phase stay");
  DeviceArray<T> out(50);
  Cuda::fill<T>(lane, 5, 5, T(1), T(1), out.get(), 5);
  Cuda::fill_if_failed<T>(lane, info.get(), 5, 5, T(9), out.get(), 5);
  group.expect(out.download()[24] == T(9), "fill_if_failed after a failure");
  Cuda::reset(lane, info.get());
  Cuda::fill_if_failed<T>(lane, info.get(), 5, 5, T(3), out.get(), 5);
  group.expect(out.download()[24] == T(9), "fill_if_failed after success");
}

template <class T>
void check_type(tile::DeviceContext& context) {
  context.prepare(dtype_of<T>, tile::Kernels::common);
  auto& lanes = context.lanes();
  const Size tile = 256;
  DeviceArray<char> library(lanes.library_bytes(dtype_of<T>, tile));
  lanes.bind(library.get(), library.count(), dtype_of<T>, tile);
  check_moves<T>(lanes.update);
  check_gemm<T>(lanes.update);
  check_both_products<T>(lanes.update);
  check_triangular<T>(lanes.panel);
  check_solve_accuracy<T>(lanes.panel);
  check_potrf<T>(lanes.panel);
  check_hermitian_test<T>(lanes.update);
}

}  // namespace

void check_tiles() {
  const auto set = tile::DeviceSet::get({0});
  const tile::DeviceGuard guard(0);
  check_type<float>(set->context(0));
  check_type<double>(set->context(0));
  check_type<std::complex<float>>(set->context(0));
  check_type<std::complex<double>>(set->context(0));
}

}  // namespace jaxmg::test
