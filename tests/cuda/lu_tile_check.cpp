// Tile operations of the LU family on a GPU.
#include <algorithm>
#include <numeric>

#include "check.h"
#include "host_matrix.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/device_context.h"
#include "tile/cuda/scratch.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;

// A lane with scratch for LU panels of m x n.
class Scratch {
 public:
  Scratch(tile::CudaLane& lane, DType type, Size m, Size n)
      : lane_(lane),
        memory_(std::max(tile::inversion_bytes(type, n), 2 * tile::getrf_bytes(lane, type, m, n))) {
    lane_.set_workspace(nullptr, 0, memory_.get(), memory_.count());
  }
  ~Scratch() { lane_.set_workspace(nullptr, 0, nullptr, 0); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

 private:
  tile::CudaLane& lane_;
  DeviceArray<char> memory_;
};

std::string size_text(Size m, Size n) {
  return std::to_string(m) + " x " + std::to_string(n);
}

// The order of rows after interchanges.
std::vector<Size> interchanged(Size m, const std::vector<std::int32_t>& pivots, Size first) {
  std::vector<Size> order(static_cast<std::size_t>(m));
  std::iota(order.begin(), order.end(), Size{0});
  for (std::size_t j = 0; j < pivots.size(); ++j) {
    std::swap(order[j], order[static_cast<std::size_t>(pivots[j] - first)]);
  }
  return order;
}

// P A = L U, multipliers of at most 1, and a report of the first zero pivot.
template <class T>
void check_getrf(Group& group, tile::CudaLane& lane, Size m, Size n, Size zero_column) {
  const Size first = 100;
  HostMatrix<T> a = HostMatrix<T>::random(m, n, 3);
  for (Size i = 0; zero_column >= 0 && i < m; ++i) {
    a(i, zero_column) = T(0);
  }
  const Scratch scratch(lane, dtype_of<T>, m, n);
  OnDevice<T> device(a);
  DeviceArray<std::int32_t> pivots(n);
  DeviceArray<Info> info(1);
  Cuda::reset(lane, info.get());
  OnDevice<T> inverse(HostMatrix<T>(n, n));
  Cuda::getrf<T>(lane, m, n, device.get(), device.ld(), first, pivots.get(), inverse.get(),
                 inverse.ld(), 10, 20, info.get());
  const auto lu = device.back();
  const auto order = interchanged(m, pivots.download(), first);
  const std::string name = size_text(m, n);
  double error = 0;
  double largest = 0;
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < m; ++i) {
      T sum(0);
      for (Size k = 0; k <= std::min(i, j); ++k) {
        sum += (k == i ? T(1) : lu(i, k)) * lu(k, j);
      }
      const double gap = std::abs(sum - a(order[static_cast<std::size_t>(i)], j));
      error = std::isnan(gap) ? gap : std::max(error, gap);
      largest = i > j ? std::max<double>(largest, std::abs(lu(i, j))) : largest;
    }
  }
  const Info report = info.download()[0];
  if (zero_column < 0) {
    group.expect_small(error, 40 * static_cast<double>(n + 1) * epsilon<T>, name + " P A - L U");
    group.expect_small(largest, is_complex_v<T> ? 1.5 : 1.0001, name + " multipliers");
    group.expect(report.kind == 0, name + " no failure");
  } else {
    group.expect(report.kind == static_cast<int>(Kind::singular) &&
                     report.position == 10 + zero_column + 1 &&
                     report.spare[1] == 20 + zero_column + 1,
                 name + " zero pivot " + std::to_string(report.position));
  }
  group.expect(lu.padding_untouched(), name + " padding");
}

template <class T>
void check_moves(Group& group, tile::CudaLane& lane, Size m, Size n) {
  const Size first = 7;
  std::vector<std::int32_t> pivots;
  for (Size j = 0; j < n; ++j) {
    const double u = random_number(5, static_cast<std::uint64_t>(j), 1) + 0.5;
    pivots.push_back(
        static_cast<std::int32_t>(first + j + static_cast<Size>(u * static_cast<double>(m - j))));
  }
  const auto order = interchanged(m, pivots, first);
  DeviceArray<std::int32_t> on_device(pivots);
  DeviceArray<std::int32_t> lists(4 * n);
  const RowMoves moves{lists.get(), lists.get() + 2 * n};
  Cuda::trace_pivots(lane, n, on_device.get(), first, moves);
  const auto a = HostMatrix<T>::random(m, 5, 8);
  const auto expect = [&](const HostMatrix<T>& got, Size from, const std::string& what) {
    bool same = true;
    for (Size j = 0; j < 5; ++j) {
      for (Size i = from; i < m; ++i) {
        same = same && got(i, j) == a(order[static_cast<std::size_t>(i)], j);
      }
    }
    group.expect(same, size_text(m, n) + " " + what);
  };
  OnDevice<T> device(a);
  Cuda::move_rows<T>(lane, n, moves, 5, device.get(), device.ld(), nullptr, 0);
  expect(device.back(), 0, "moved");
  Cuda::move_rows<T>(lane, n, moves.inverse(), 5, device.get(), device.ld(), nullptr, 0);
  group.expect(distance(device.back(), a) == 0, size_text(m, n) + " moved back");
  OnDevice<T> top(HostMatrix<T>(n, 5));
  Cuda::move_rows<T>(lane, n, moves, 5, device.get(), device.ld(), top.get(), top.ld());
  expect(device.back(), n, "moved below");
  const auto above = top.back();
  bool same = true;
  for (Size j = 0; j < 5; ++j) {
    for (Size i = 0; i < n; ++i) {
      same = same && above(i, j) == a(order[static_cast<std::size_t>(i)], j);
    }
  }
  group.expect(same, size_text(m, n) + " moved to the top");
}

// b inv(op(A)) for both triangles, with rubbish in the other one.
template <class T>
void check_triangles(Group& group, tile::CudaLane& lane, Size n, Size m) {
  const Scratch scratch(lane, dtype_of<T>, n, n);
  HostMatrix<T> a = HostMatrix<T>::random_lower(n, 4);
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < n; ++i) {
      if (i != j) {
        a(i, j) /= std::sqrt(static_cast<Real<T>>(n));
      }
    }
  }
  const auto b = HostMatrix<T>::random(m, n, 6);
  OnDevice<T> factor(a);
  OnDevice<T> x(HostMatrix<T>(n, n));
  OnDevice<T> work(HostMatrix<T>(m, n, 0));
  for (const Uplo uplo : {Uplo::lower, Uplo::upper}) {
    const Diag diag = uplo == Uplo::lower ? Diag::unit : Diag::non_unit;
    HostMatrix<T> clean = a;
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < n; ++i) {
        if (i == j) {
          clean(i, i) = diag == Diag::unit ? T(1) : a(i, i);
        } else if ((i > j) != (uplo == Uplo::lower)) {
          clean(i, j) = T(0);
        }
      }
    }
    Cuda::invert_triangle<T>(lane, uplo, diag, n, factor.get(), factor.ld(), x.get(), x.ld());
    for (const Op op : {Op::none, Op::transpose}) {
      OnDevice<T> solution(b);
      Cuda::solve_triangle<T>(lane, uplo, op, diag, m, n, factor.get(), factor.ld(), x.get(),
                              x.ld(), solution.get(), solution.ld(), work.get());
      const auto back = product(solution.back(), clean.applied(op));
      group.expect_small(distance(back, b), 100 * static_cast<double>(n + 4) * epsilon<T>,
                         size_text(m, n) + " triangular solve");
    }
  }
}

// A row times a tall matrix, as substitutions make them. Added up one after the other, k products
// of such numbers have errors of k eps / 20 (root of the mean square; partial sums grow as the root
// of their length): ten times that is allowed. The host adds in a longer type, or else its own
// error would be as large.
template <class T>
void check_row_product(Group& group, tile::CudaLane& lane, Size k, Size n) {
  const auto a = HostMatrix<T>::random(1, k, 21, 0);
  const auto b = HostMatrix<T>::random(k, n, 22);
  const auto c = HostMatrix<T>::random(1, n, 23, 0);
  OnDevice<T> left(a), right(b), result(c);
  Cuda::gemm<T>(lane, Op::none, Op::none, 1, n, k, T(-1), left.get(), left.ld(), right.get(),
                right.ld(), T(2), result.get(), result.ld());
  using Long = std::conditional_t<is_complex_v<T>, std::complex<long double>, long double>;
  const auto found = result.back();
  double error = 0;
  for (Size j = 0; j < n; ++j) {
    Long wanted = Long(2) * Long(c(0, j));
    for (Size i = 0; i < k; ++i) {
      wanted -= Long(a(0, i)) * Long(b(i, j));
    }
    const auto gap = static_cast<double>(std::abs(Long(found(0, j)) - wanted));
    error = std::isnan(gap) ? gap : std::max(error, gap);
  }
  group.expect_small(error, static_cast<double>(k) / 2 * epsilon<T>,
                     size_text(k, n) + " row product");
}

template <class T>
void check_small(Group& group, tile::CudaLane& lane) {
  const Size n = 300;
  DeviceArray<Info> info(1);
  Cuda::reset(lane, info.get());
  HostMatrix<T> a = HostMatrix<T>::random(n, 4, 5);
  OnDevice<T> device(a);
  Cuda::check_finite<T>(lane, n, 4, device.get(), device.ld(), info.get());
  group.expect(info.download()[0].kind == 0, "all finite");
  a(n - 1, 3) = T(std::numeric_limits<Real<T>>::infinity());
  OnDevice<T> infinite(a);
  Cuda::check_finite<T>(lane, n, 4, infinite.get(), infinite.ld(), info.get());
  group.expect(info.download()[0].kind == static_cast<int>(Kind::non_finite), "infinity seen");

  double log = 0.25;
  std::complex<double> phase(1);
  std::vector<T> x(static_cast<std::size_t>(2 * n));
  for (Size i = 0; i < n; ++i) {
    const T value = random_entry<T>(3, i, 0) + T(Real<T>(0.01));
    x[static_cast<std::size_t>(2 * i)] = value;
    log += std::log(std::abs(value));
    phase *= std::complex<double>(value) / std::abs(std::complex<double>(value));
  }
  DeviceArray<T> values(x);
  DeviceArray<Real<T>> sum(std::vector<Real<T>>{Real<T>(0.25)});
  DeviceArray<T> sign(std::vector<T>{T(1)});
  Cuda::log_phase<T>(lane, n, values.get(), 2, sum.get(), sign.get());
  group.expect_small(std::abs(sum.download()[0] - log), 100 * epsilon<T> * (1 + std::abs(log)),
                     "logarithms");
  group.expect_small(std::abs(std::complex<double>(sign.download()[0]) - phase), 1000 * epsilon<T>,
                     "phases");
  std::vector<std::int32_t> pivots(static_cast<std::size_t>(n));
  std::iota(pivots.begin(), pivots.end(), 0);
  pivots[3] = 200;
  pivots[258] = 270;
  pivots[299] = 1;
  DeviceArray<std::int32_t> three(pivots);
  Cuda::pivot_sign<T>(lane, n, three.get(), sign.get());
  group.expect_small(std::abs(std::complex<double>(sign.download()[0]) + phase), 1000 * epsilon<T>,
                     "parity of interchanges");

  DeviceArray<std::int32_t> order(n);
  Cuda::iota(lane, n, order.get());
  std::vector<std::int32_t> reversed = order.download();
  group.expect(reversed[0] == 0 && reversed[n - 1] == n - 1, "iota");
  std::ranges::reverse(reversed);
  order.upload(reversed);
  const auto wide = HostMatrix<T>::random(3, n, 9);
  OnDevice<T> source(wide), put(HostMatrix<T>(3, n)), taken(HostMatrix<T>(3, n));
  Cuda::put_columns<T>(lane, 3, n, order.get(), 10, 50, source.get(), source.ld(), put.get(),
                       put.ld());
  Cuda::take_columns<T>(lane, 3, n, order.get(), 10, 50, source.get(), source.ld(), taken.get(),
                        taken.ld());
  const auto put_back = put.back();
  const auto taken_back = taken.back();
  bool same = true;
  for (Size j = 0; j < n; ++j) {
    const Size place = n - 1 - j - 10;  // of column j, and where column j comes from
    const bool inside = 0 <= place && place < 50;
    same = same && (!inside || put_back(1, place) == wide(1, j));
    same = same && taken_back(2, j) == (inside ? wide(2, place) : T(0));
  }
  group.expect(same, "columns put and taken");
}

template <class T>
void check_type(tile::DeviceContext& context) {
  Group group("tiles: LU " + type_name<T>());
  for (tile::CudaLane* lane : {&context.lanes().panel, &context.lanes().update}) {
    for (const auto& [m, n] : std::vector<std::pair<Size, Size>>{
             {1, 1}, {5, 5}, {40, 32}, {300, 64}, {700, 257}, {600, 600}}) {
      check_getrf<T>(group, *lane, m, n, -1);
      check_getrf<T>(group, *lane, m, n, n / 2);
    }
    for (const auto& [m, n] :
         std::vector<std::pair<Size, Size>>{{1, 1}, {9, 9}, {50, 7}, {400, 130}, {3000, 1024}}) {
      check_moves<T>(group, *lane, m, n);
    }
    for (const Size n : {1, 31, 33, 130, 300}) {
      for (const Size m : {1, 4}) {
        check_triangles<T>(group, *lane, n, m);
      }
    }
    check_row_product<T>(group, *lane, 9000, 37);
    check_row_product<T>(group, *lane, 300, 37);
    check_small<T>(group, *lane);
  }
}

}  // namespace

void check_lu_tiles() {
  const auto set = tile::DeviceSet::get({0});
  const tile::DeviceGuard guard(0);
  check_type<float>(set->context(0));
  check_type<double>(set->context(0));
  check_type<std::complex<float>>(set->context(0));
  check_type<std::complex<double>>(set->context(0));
}

}  // namespace jaxmg::test
