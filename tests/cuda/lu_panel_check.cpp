// The panel of LU by our own kernels: factors, pivots, inverses and reports, and its speed beside
// that of the library's.
#include <bit>
#include <cstring>
#include <functional>
#include <numeric>

#include "check.h"
#include "host_matrix.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/device_context.h"
#include "tile/cuda/lu_base.h"
#include "tile/cuda/scratch.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;

// What one call leaves.
template <class T>
struct Factored {
  HostMatrix<T> lu;
  HostMatrix<T> inverse;
  std::vector<std::int32_t> pivots;
  Info info;
};

// A lane that may use kernels whose blocks wait for each other, with scratch for panels of m x n.
class PanelLane {
 public:
  PanelLane(tile::CudaLane& lane, DType type, Size m, Size n, bool alone)
      : lane_(lane), memory_(2 * tile::getrf_bytes(lane, type, m, n)) {
    lane_.set_workspace(nullptr, 0, memory_.get(), memory_.count());
    lane_.set_alone(alone);
  }
  ~PanelLane() {
    lane_.set_alone(false);
    lane_.set_workspace(nullptr, 0, nullptr, 0);
  }
  PanelLane(const PanelLane&) = delete;
  PanelLane& operator=(const PanelLane&) = delete;

 private:
  tile::CudaLane& lane_;
  DeviceArray<char> memory_;
};

constexpr Size kFirst = 100;  // number of the panel's first row

template <class T>
Factored<T> factored(tile::CudaLane& lane, const HostMatrix<T>& a, bool alone = true) {
  const PanelLane scratch(lane, dtype_of<T>, a.m, a.n, alone);
  OnDevice<T> device(a);
  OnDevice<T> inverse(HostMatrix<T>(a.n, a.n));
  DeviceArray<std::int32_t> pivots(std::vector<std::int32_t>(static_cast<std::size_t>(a.n), -1));
  DeviceArray<Info> info(1);
  Cuda::reset(lane, info.get());
  Cuda::getrf<T>(lane, a.m, a.n, device.get(), device.ld(), kFirst, pivots.get(), inverse.get(),
                 inverse.ld(), 10, 20, info.get());
  return {device.back(), inverse.back(), pivots.download(), info.download()[0]};
}

std::string text(Size m, Size n) {
  return std::to_string(m) + " x " + std::to_string(n);
}

// The largest of |P A - L U| (where it is: `place`), and the largest multiplier.
template <class T>
double residual(const HostMatrix<T>& a, const Factored<T>& f, double& multiplier, Size& place) {
  std::vector<Size> order(static_cast<std::size_t>(a.m));
  std::iota(order.begin(), order.end(), Size{0});
  for (Size j = 0; j < a.n; ++j) {
    std::swap(order[static_cast<std::size_t>(j)],
              order[static_cast<std::size_t>(f.pivots[static_cast<std::size_t>(j)] - kFirst)]);
  }
  double error = 0;
  multiplier = 0;
  place = -1;
  std::vector<T> sum(static_cast<std::size_t>(a.m));
  for (Size j = 0; j < a.n; ++j) {
    std::fill(sum.begin(), sum.end(), T(0));
    for (Size k = 0; k <= j; ++k) {
      const T u = f.lu(k, j);
      sum[static_cast<std::size_t>(k)] += u;
      for (Size i = k + 1; i < a.m; ++i) {
        sum[static_cast<std::size_t>(i)] += f.lu(i, k) * u;
      }
    }
    for (Size i = 0; i < a.m; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const double gap = std::abs(sum[at] - a(order[at], j));
      if (std::isnan(gap) || gap > error) {
        error = std::isnan(error) ? error : gap;
        place = i + j * a.m;
      }
      multiplier = i > j ? std::max<double>(multiplier, std::abs(f.lu(i, j))) : multiplier;
    }
  }
  return error;
}

bool in_range(const std::vector<std::int32_t>& pivots, Size m) {
  for (Size j = 0; j < std::ssize(pivots); ++j) {
    const Size row = pivots[static_cast<std::size_t>(j)] - kFirst;
    if (row < j || row >= m) {
      return false;
    }
  }
  return true;
}

// Of the blocks D on the diagonal of L: |D X - I| for their inverses and |D X - L| left of them.
template <class T>
double inverse_error(const Factored<T>& f) {
  const Size n = f.inverse.n;
  double error = 0;
  for (Size j = 0; j < n; j += Cuda::inverse_block) {
    const Size w = std::min(Cuda::inverse_block, n - j);
    for (Size c = 0; c < j + w; ++c) {
      for (Size i = 0; i < w; ++i) {
        T sum = f.inverse(j + i, c);
        for (Size k = 0; k < i; ++k) {
          sum += f.lu(j + i, j + k) * f.inverse(j + k, c);
        }
        const T wanted = c < j ? f.lu(j + i, c) : T(Real<T>(c == j + i));
        const double gap = std::abs(sum - wanted);
        error = std::isnan(gap) ? gap : std::max(error, gap);
      }
    }
  }
  return error;
}

template <class T>
void check_random(Group& group, tile::CudaLane& lane, Size m, Size n) {
  const auto a = HostMatrix<T>::random(m, n, 3);
  const auto f = factored(lane, a);
  const std::string name = text(m, n);
  group.expect(f.info.kind == 0, name + " kind " + std::to_string(f.info.kind));
  if (!in_range(f.pivots, m)) {
    group.expect(false, name + " pivots out of range");
    return;
  }
  double multiplier = 0;
  Size place = 0;
  const double error = residual(a, f, multiplier, place);
  const std::string where =
      " at (" + std::to_string(place % m) + ", " + std::to_string(place / m) + ")";
  group.expect_small(error, 40 * static_cast<double>(n + 1) * epsilon<T>,
                     name + " P A - L U" + where);
  group.expect_small(multiplier, is_complex_v<T> ? 1.5 : 1.0001, name + " multipliers");
  group.expect_small(inverse_error(f), 400 * static_cast<double>(n + 1) * epsilon<T>,
                     name + " inverse of the triangle");
  group.expect(f.lu.padding_untouched() && f.inverse.padding_untouched(), name + " padding");
  const auto again = factored(lane, a);
  group.expect(
      f.lu.data.size() == again.lu.data.size() &&
          std::memcmp(f.lu.data.data(), again.lu.data.data(), f.lu.data.size() * sizeof(T)) == 0 &&
          f.pivots == again.pivots,
      name + " the same bits again");
}

// Rows of a Hadamard matrix, each many times: all sizes are powers of two, exact, and equal in most
// rows, of which LAPACK takes the first as they lie by then. displaced: before that, a few columns
// of one number each take rows from all over the panel to its top.
template <class T>
void check_ties(Group& group, tile::CudaLane& lane, Size m, Size n, bool displaced) {
  constexpr Size kDisplaced = 5;
  HostMatrix<T> a(m, n);
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < m; ++i) {
      const Size column = displaced ? j - kDisplaced : j;
      const auto common = static_cast<std::uint64_t>((i * 7 + i / 64) % 64 & column);
      a(i, j) = column < 0 ? T(Real<T>(i == (37 * j + m / 3) % m ? 2 : 0))
                           : T(Real<T>(std::popcount(common) % 2 == 0 ? 1 : -1));
    }
  }
  HostMatrix<T> work = a;
  std::vector<std::int32_t> expected;
  for (Size j = 0; j < n; ++j) {
    Size best = j;
    for (Size i = j; i < m; ++i) {
      best = std::abs(work(i, j)) > std::abs(work(best, j)) ? i : best;
    }
    expected.push_back(static_cast<std::int32_t>(kFirst + best));
    for (Size c = 0; c < n; ++c) {
      std::swap(work(j, c), work(best, c));
    }
    for (Size i = j + 1; i < m && work(j, j) != T(0); ++i) {
      const T l = work(i, j) / work(j, j);
      work(i, j) = l;
      for (Size c = j + 1; l != T(0) && c < n; ++c) {
        work(i, c) -= l * work(j, c);
      }
    }
  }
  const auto f = factored(lane, a);
  Size wrong = 0;
  while (wrong < n &&
         f.pivots[static_cast<std::size_t>(wrong)] == expected[static_cast<std::size_t>(wrong)]) {
    ++wrong;
  }
  const std::string name = text(m, n) + (displaced ? " ties of displaced rows" : " ties");
  group.expect(wrong == n, name + ": pivot of column " + std::to_string(wrong));
  group.expect(distance(f.lu, work) == 0, name + ": exact factors");
}

// A column of zeros and one that repeats another, and NaN.
template <class T>
void check_degenerate(Group& group, tile::CudaLane& lane, Size m, Size n) {
  const std::string name = text(m, n);
  const Size zero = n / 2;
  HostMatrix<T> a = HostMatrix<T>::random(m, n, 4);
  for (Size i = 0; i < m; ++i) {
    a(i, zero) = T(0);
  }
  const auto f = factored(lane, a);
  group.expect(f.info.kind == static_cast<int>(Kind::singular) &&
                   f.info.position == 10 + zero + 1 && f.info.spare[1] == 20 + zero + 1,
               name + " zero column: kind " + std::to_string(f.info.kind) + " position " +
                   std::to_string(f.info.position));
  group.expect(in_range(f.pivots, m), name + " zero column: pivots");
  double multiplier = 0;
  Size place = 0;
  group.expect_small(residual(a, f, multiplier, place),
                     40 * static_cast<double>(n + 1) * epsilon<T>,
                     name + " zero column: P A - L U");

  HostMatrix<T> b = HostMatrix<T>::random(m, n, 5);
  b(m - 1, n / 3) = T(std::numeric_limits<Real<T>>::quiet_NaN());
  const auto g = factored(lane, b);
  group.expect(in_range(g.pivots, m), name + " NaN: pivots");
  group.expect(std::isnan(std::abs(g.lu(n - 1, n - 1))), name + " NaN spreads");

  // Numbers whose reciprocals are infinite.
  HostMatrix<T> c = HostMatrix<T>::random(m, n, 6);
  const auto tiny = std::numeric_limits<Real<T>>::denorm_min() * 8;
  for (Size i = 0; i < m; ++i) {
    c(i, 0) = T(Real<T>(i % 3) * tiny);
  }
  if (m > 2) {
    const auto h = factored(lane, c);
    group.expect(h.info.kind == 0 && std::isfinite(h.lu.largest()), name + " subnormal pivot");
    group.expect(h.pivots[0] == kFirst + 2, name + " subnormal pivot is the largest");
  }
}

template <class T>
void check_type(tile::DeviceContext& context) {
  Group group("tiles: LU panel " + type_name<T>());
  context.prepare(dtype_of<T>, tile::Kernels::common);
  context.prepare(dtype_of<T>, tile::Kernels::lu);
  auto& lane = context.lanes().panel;
  for (const auto& [m, n] : std::vector<std::pair<Size, Size>>{{1, 1},
                                                               {7, 5},
                                                               {33, 33},
                                                               {500, 32},
                                                               {481, 40},
                                                               {961, 100},
                                                               {500, 300},
                                                               {1200, 1024},
                                                               {3000, 129},
                                                               {8191, 256},
                                                               {8192, 70},
                                                               {65536, 64},
                                                               {70001, 48}}) {
    check_random<T>(group, lane, m, n);
  }
  check_ties<T>(group, lane, 64, 64, false);
  check_ties<T>(group, lane, 5000, 50, false);
  check_ties<T>(group, lane, 70000, 20, false);
  check_ties<T>(group, lane, 24, 12, true);  // one block
  check_ties<T>(group, lane, 64, 32, true);
  check_ties<T>(group, lane, 5000, 37, true);   // a cluster
  check_ties<T>(group, lane, 70000, 20, true);  // blocks that exchange messages
  for (const auto& [m, n] :
       std::vector<std::pair<Size, Size>>{{33, 33}, {500, 64}, {8191, 100}, {70000, 40}}) {
    check_degenerate<T>(group, lane, m, n);
  }
}

// Best of some repeats, in microseconds.
template <class Operation>
double microseconds(tile::CudaLane& lane, const std::function<void()>& restore,
                    const Operation& operation) {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  JAXMG_CUDA_CHECK(cudaEventCreate(&begin));
  JAXMG_CUDA_CHECK(cudaEventCreate(&end));
  float best = 1e30F;
  for (int i = 0; i < 4; ++i) {
    restore();
    JAXMG_CUDA_CHECK(cudaEventRecord(begin, lane.stream()));
    operation();
    JAXMG_CUDA_CHECK(cudaEventRecord(end, lane.stream()));
    JAXMG_CUDA_CHECK(cudaEventSynchronize(end));
    float milliseconds = 0;
    JAXMG_CUDA_CHECK(cudaEventElapsedTime(&milliseconds, begin, end));
    best = std::min(best, milliseconds);
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return best * 1e3;
}

template <class T>
void time_panel(tile::DeviceContext& context, Size m, Size n) {
  context.prepare(dtype_of<T>, tile::Kernels::common);
  context.prepare(dtype_of<T>, tile::Kernels::lu);
  auto& lane = context.lanes().panel;
  const PanelLane scratch(lane, dtype_of<T>, m, n, true);
  DeviceArray<T> a(m * n), x(n * n);
  DeviceArray<std::int32_t> pivots(n);
  DeviceArray<Info> info(1);
  Cuda::reset(lane, info.get());
  const auto restore = [&] {
    for (Size j = 0; j < n; ++j) {
      Cuda::random_vector<T>(lane, m, j * m, Real<T>(0.5), a.get() + j * m);
    }
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
  };
  const int width = tile::lu_base_width<T>(lane, m);
  const double own = microseconds(lane, restore, [&] {
    Cuda::getrf<T>(lane, m, n, a.get(), m, 0, pivots.get(), x.get(), n, 0, 0, info.get());
  });
  const int kind = info.download()[0].kind;
  const double base = width == 0 ? 0 : microseconds(lane, restore, [&] {
    tile::lu_base<T>(lane, width, m, std::min<Size>(width, n), a.get(), m, 0, pivots.get(), x.get(),
                     n, {0, 0, info.get()});
  });
  const double library = microseconds(lane, restore, [&] {
    tile::getrf_by_library<T>(lane, m, n, a.get(), m, 0, pivots.get(), x.get(), n,
                              {0, 0, info.get()});
  });
  const double columns = static_cast<double>(n);
  std::printf(
      "LU panel %s %lld x %lld: own %.2f us a column (base of %d columns alone %.2f), library "
      "%.2f; "
      "kind %d\n",
      type_name<T>().c_str(), static_cast<long long>(m), static_cast<long long>(n), own / columns,
      width, width == 0 ? 0 : base / std::min<double>(width, columns), library / columns, kind);
  std::fflush(stdout);
}

}  // namespace

void check_lu_panel() {
  const auto set = tile::DeviceSet::get({0});
  const tile::DeviceGuard guard(0);
  check_type<float>(set->context(0));
  check_type<double>(set->context(0));
  check_type<std::complex<float>>(set->context(0));
  check_type<std::complex<double>>(set->context(0));
}

void time_lu_panel(Size m, Size n, const std::string& type) {
  const auto set = tile::DeviceSet::get({0});
  const tile::DeviceGuard guard(0);
  if (type == "f32") {
    time_panel<float>(set->context(0), m, n);
  } else if (type == "c64") {
    time_panel<std::complex<float>>(set->context(0), m, n);
  } else if (type == "c128") {
    time_panel<std::complex<double>>(set->context(0), m, n);
  } else {
    time_panel<double>(set->context(0), m, n);
  }
}

}  // namespace jaxmg::test
