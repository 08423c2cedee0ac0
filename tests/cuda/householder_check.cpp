// What the reduction to a band needs of tiles: the QR of panels by either method, the triangular
// factors of reflectors, images of triangles and copies of rows in pieces.
#include <algorithm>
#include <functional>

#include "check.h"
#include "host_matrix.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/device_context.h"
#include "tile/cuda/householder_grid.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;
using tile::CudaLane;

// As much as a panel may ask for.
constexpr Size kWorkBytes = Size{4} << 20;

template <class T>
struct Panel {
  Size m, w, k;
  std::vector<T> a, r, tau;  // leading dimensions m + 3, k
  Size lda() const { return m + 3; }
};

template <class T>
Panel<T> random_panel(Size m, Size w, std::uint64_t seed) {
  Panel<T> p{m, w, std::min(m, w), {}, {}, {}};
  p.a.assign(static_cast<std::size_t>(p.lda() * w), T(7));
  for (Size j = 0; j < w; ++j) {
    for (Size i = 0; i < m; ++i) {
      p.a[static_cast<std::size_t>(i + j * p.lda())] = random_entry<T>(seed, i, j);
    }
  }
  return p;
}

template <class T>
Panel<T> factored(CudaLane& lane, const Panel<T>& given, int times = 1) {
  Panel<T> p = given;
  DeviceArray<T> a(p.a), r(p.k * p.w), tau(p.k);
  DeviceArray<char> work(kWorkBytes);
  for (int i = 0; i < times; ++i) {
    JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
    a.upload(given.a);
    JAXMG_CUDA_CHECK(cudaMemset(work.get(), 0xff, work.bytes()));
    JAXMG_CUDA_CHECK(cudaMemset(r.get(), 0xff, r.bytes()));
    JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
    Cuda::householder_panel<T>(lane, p.m, p.w, a.get(), p.lda(), r.get(), p.k, tau.get(),
                               work.get());
  }
  p.a = a.download();
  p.r = r.download();
  p.tau = tau.download();
  return p;
}

// Largest element of A - Q R, in double precision, relative to the largest column norm of A; 1 if V
// has not the form that it should have.
template <class T>
double residual(const Panel<T>& given, const Panel<T>& p) {
  using W = std::conditional_t<is_complex_v<T>, std::complex<double>, double>;
  double most = 0, norm = 0;
  for (Size j = 0; j < p.k; ++j) {
    for (Size i = 0; i <= j; ++i) {
      if (p.a[static_cast<std::size_t>(i + j * p.lda())] != T(i == j ? 1 : 0)) {
        return 1;
      }
    }
  }
  std::vector<W> x(static_cast<std::size_t>(p.m));
  for (Size l = 0; l < p.w; ++l) {
    std::fill(x.begin(), x.end(), W(0));
    for (Size i = 0; i < p.k; ++i) {
      x[static_cast<std::size_t>(i)] = W(p.r[static_cast<std::size_t>(i + l * p.k)]);
      if (i > l && x[static_cast<std::size_t>(i)] != W(0)) {
        return 1;
      }
    }
    for (Size j = p.k - 1; j >= 0; --j) {  // (I - tau v v^H) x
      const T* const v = p.a.data() + j * p.lda();
      W dot(0);
      for (Size i = j; i < p.m; ++i) {
        dot += conjugate(W(v[i])) * x[static_cast<std::size_t>(i)];
      }
      dot *= W(p.tau[static_cast<std::size_t>(j)]);
      for (Size i = j; i < p.m; ++i) {
        x[static_cast<std::size_t>(i)] -= W(v[i]) * dot;
      }
    }
    double square = 0;
    for (Size i = 0; i < p.m; ++i) {
      const W a(given.a[static_cast<std::size_t>(i + l * p.lda())]);
      const double d = std::abs(a - x[static_cast<std::size_t>(i)]);
      most = d <= most ? most : d;  // NaN stays
      square += std::norm(a);
    }
    norm = std::max(norm, std::sqrt(square));
  }
  return norm == 0 ? most : most / norm;
}

template <class T>
void check_panels(CudaLane& lane, bool grids) {
  Group group(std::string("tiles: householder_panel ") + (grids ? "grid " : "columns ") +
              type_name<T>());
  tile::set_panel_blocks(grids ? -1 : 0);
  for (const auto& [m, w] : {std::pair<Size, Size>{1, 1},
                             {1, 5},
                             {5, 3},
                             {3, 5},
                             {64, 64},
                             {65, 64},
                             {40, 64},
                             {130, 17},
                             {300, 32},
                             {512, 33},
                             {513, 64},
                             {700, 32},
                             {1024, 64},
                             {4097, 64},
                             {9000, 64},
                             {16500, 64},
                             {33000, 64},
                             {40000, 64}}) {
    if (!grids && m > 5000) {
      continue;
    }
    const std::string name = std::to_string(m) + " x " + std::to_string(w);
    auto a = random_panel<T>(m, w, 5);
    group.expect_small(residual(a, factored(lane, a)), 100 * epsilon<T>, name);
    if (w < 3 || m > 1100) {
      continue;
    }
    const auto at = [&](Size i, Size j) -> T& {
      return a.a[static_cast<std::size_t>(i + j * a.lda())];
    };
    for (Size i = 0; i < m; ++i) {  // a column of zeros, and one that depends on another
      at(i, 1) = T(0);
      at(i, w - 1) = at(i, 0);
    }
    group.expect_small(residual(a, factored(lane, a)), 100 * epsilon<T>, name + " of low rank");
    std::fill(a.a.begin(), a.a.end(), T(0));
    const auto zero = factored(lane, a);
    group.expect_small(residual(a, zero), 0, name + " of zeros");
    group.expect(std::ranges::all_of(zero.tau, [](T x) { return x == T(0); }), name + " scalars");
  }
  // The same bits in every run.
  for (const Size m : {Size{700}, Size{3000}}) {
    const auto a = random_panel<T>(m, 64, 6);
    const auto once = factored(lane, a), again = factored(lane, a, 20);
    group.expect(once.a == again.a && once.r == again.r && once.tau == again.tau,
                 "same bits, rows " + std::to_string(m));
  }
  tile::set_panel_blocks(-1);
}

// T (inv(D) + N) = I, with N the strict upper triangle of a Gram matrix.
template <class T>
void check_factors_of_reflectors(CudaLane& lane) {
  Group group("tiles: reflector_factor " + type_name<T>());
  for (const Size k : {Size{1}, Size{2}, Size{7}, Size{33}, Size{64}}) {
    const Size ld = 70;
    std::vector<T> gram(static_cast<std::size_t>(ld * k)), tau(static_cast<std::size_t>(k));
    for (Size j = 0; j < k; ++j) {
      for (Size i = 0; i < ld; ++i) {
        gram[static_cast<std::size_t>(i + j * ld)] = random_entry<T>(8, i, j) * T(Real<T>(0.2));
      }
      tau[static_cast<std::size_t>(j)] =
          j == 2 ? T(0) : T(1) + random_entry<T>(9, j, 0) * T(Real<T>(0.5));
    }
    DeviceArray<T> dg(gram), dtau(tau), dt(ld * k), du(gram);
    Cuda::reflector_factor<T>(lane, k, dg.get(), ld, dtau.get(), dt.get(), ld);
    Cuda::reflector_diagonal<T>(lane, k, dtau.get(), du.get(), ld);
    const auto t = dt.download(), u = du.download();
    double most = 0;
    for (Size j = 0; j < k; ++j) {  // T = D - T N D
      for (Size i = 0; i < k; ++i) {
        T sum = i == j ? T(1) : T(0);
        for (Size l = i; l < j; ++l) {
          sum -=
              t[static_cast<std::size_t>(i + l * ld)] * gram[static_cast<std::size_t>(l + j * ld)];
        }
        most = std::max<double>(most, std::abs(sum * tau[static_cast<std::size_t>(j)] -
                                               t[static_cast<std::size_t>(i + j * ld)]));
      }
      const T x = u[static_cast<std::size_t>(j * (ld + 1))];
      group.expect(j == 2 ? std::abs(x) > Real<T>(1e20)
                          : std::abs(x * tau[static_cast<std::size_t>(j)] - T(1)) <
                                4 * static_cast<Real<T>>(epsilon<T>),
                   "diagonal " + std::to_string(j));
    }
    group.expect_small(most, 100 * epsilon<T>, "k " + std::to_string(k));
  }
}

template <class T>
void check_moves(CudaLane& lane) {
  Group group("tiles: mirror, copy_blocks " + type_name<T>());
  for (const Size n : {Size{1}, Size{2}, Size{31}, Size{33}, Size{200}}) {
    const Size ld = n + 3;
    std::vector<T> a(static_cast<std::size_t>(ld * n));
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = random_entry<T>(3, static_cast<Size>(i), 1);
    }
    DeviceArray<T> da(a);
    Cuda::mirror<T>(lane, n, da.get(), ld);
    const auto out = da.download();
    bool right = true;
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < ld; ++i) {
        const T wanted = i < j ? conjugate(a[static_cast<std::size_t>(j + i * ld)])
                               : a[static_cast<std::size_t>(i + j * ld)];
        right = right && out[static_cast<std::size_t>(i + j * ld)] == wanted;
      }
    }
    group.expect(right, "mirror " + std::to_string(n));
  }
  const Size m = 5, n = 9, count = 7, lds = 120, ldd = 90;
  std::vector<T> from(static_cast<std::size_t>(lds * n)),
      to(static_cast<std::size_t>(ldd * n), T(0));
  for (std::size_t i = 0; i < from.size(); ++i) {
    from[i] = random_entry<T>(4, static_cast<Size>(i), 1);
  }
  DeviceArray<T> dfrom(from), dto(to);
  Cuda::copy_blocks<T>(lane, m, n, count, dfrom.get(), lds, 17, dto.get(), ldd, 12);
  for (Size j = 0; j < n; ++j) {
    for (Size c = 0; c < count; ++c) {
      for (Size i = 0; i < m; ++i) {
        to[static_cast<std::size_t>(i + 12 * c + j * ldd)] =
            from[static_cast<std::size_t>(i + 17 * c + j * lds)];
      }
    }
  }
  group.expect(dto.download() == to, "copy_blocks");
}

double microseconds(CudaLane& lane, int times, const std::function<void()>& work) {
  cudaEvent_t begin = nullptr, end = nullptr;
  JAXMG_CUDA_CHECK(cudaEventCreate(&begin));
  JAXMG_CUDA_CHECK(cudaEventCreate(&end));
  work();
  JAXMG_CUDA_CHECK(cudaEventRecord(begin, lane.stream()));
  for (int i = 0; i < times; ++i) {
    work();
  }
  JAXMG_CUDA_CHECK(cudaEventRecord(end, lane.stream()));
  JAXMG_CUDA_CHECK(cudaEventSynchronize(end));
  float took = 0;
  JAXMG_CUDA_CHECK(cudaEventElapsedTime(&took, begin, end));
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return static_cast<double>(took) * 1000 / times;
}

template <class T>
void time_panels(CudaLane& lane) {
  DeviceArray<char> work(kWorkBytes);
  Size w = 64;
  DeviceArray<T> r(w * w), tau(w), t(w * w);
  for (const Size m : {Size{512}, Size{1024}, Size{4096}, Size{8192}, Size{16384}, Size{32768}}) {
    w = m == 512 ? 32 : 64;
    const auto p = random_panel<T>(m, w, 1);
    DeviceArray<T> a(p.a);
    std::printf("householder_panel %s %lld x %lld us:", type_name<T>().c_str(),
                static_cast<long long>(m), static_cast<long long>(w));
    for (const Size blocks : {0, 9, 18, 36, 72, 132, -1}) {  // 0: a launch for each column
      tile::set_panel_blocks(blocks);
      const double took = microseconds(lane, 10, [&] {
        Cuda::householder_panel<T>(lane, m, w, a.get(), p.lda(), r.get(), w, tau.get(), work.get());
      });
      std::printf(" | %lld blocks %.0f", static_cast<long long>(blocks), took);
    }
    std::printf("\n");
  }
  tile::set_panel_blocks(-1);
  std::printf("reflector_factor %s %lld: %.1f us\n", type_name<T>().c_str(),
              static_cast<long long>(w), microseconds(lane, 10, [&] {
                Cuda::reflector_factor<T>(lane, w, r.get(), w, tau.get(), t.get(), w);
              }));
  std::fflush(stdout);
}

template <class T>
void check_type(CudaLane& lane) {
  check_panels<T>(lane, false);
  check_panels<T>(lane, true);
  check_factors_of_reflectors<T>(lane);
  check_moves<T>(lane);
}

}  // namespace

void check_householder() {
  const tile::DeviceGuard guard(0);
  CudaLane lane(tile::StreamPriority::lowest, std::make_shared<tile::EventPool>());
  check_type<float>(lane);
  check_type<double>(lane);
  check_type<std::complex<float>>(lane);
  check_type<std::complex<double>>(lane);
}

void time_householder() {
  const tile::DeviceGuard guard(0);
  CudaLane lane(tile::StreamPriority::lowest, std::make_shared<tile::EventPool>());
  time_panels<double>(lane);
  time_panels<float>(lane);
  time_panels<std::complex<double>>(lane);
}

}  // namespace jaxmg::test
