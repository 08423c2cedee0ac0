// Tile operations of the LU family on a CPU.
#include <algorithm>
#include <numeric>

#include "tile/cpu/cpu.h"
#include "tile/cpu/pool.h"
#include "tile_matrix.h"

namespace jaxmg::testing {
namespace {

using tile::Cpu;

template <class T>
class LuTile : public ::testing::Test {
 protected:
  void SetUp() override { tile::set_pool_threads(3); }
  void TearDown() override { tile::set_pool_threads(0); }

  Cpu::Lane lane{tile::Priority::high};
};
TYPED_TEST_SUITE(LuTile, ElementTypes);

// The order of rows after interchanges.
std::vector<Size> interchanged(Size m, const std::vector<std::int32_t>& pivots, Size first) {
  std::vector<Size> order(static_cast<std::size_t>(m));
  std::iota(order.begin(), order.end(), Size{0});
  for (std::size_t j = 0; j < pivots.size(); ++j) {
    std::swap(order[j], order[static_cast<std::size_t>(pivots[j] - first)]);
  }
  return order;
}

TYPED_TEST(LuTile, FactorsPanelsOfAnyShape) {
  using T = TypeParam;
  for (const auto& [m, n] : std::vector<std::pair<Size, Size>>{
           {1, 1}, {2, 1}, {7, 7}, {40, 3}, {70, 64}, {100, 65}, {300, 200}, {130, 130}}) {
    SCOPED_TRACE(::testing::Message() << m << " x " << n);
    const auto a = Matrix<T>::random(m, n, 5);
    auto lu = a;
    std::vector<std::int32_t> pivots(static_cast<std::size_t>(n));
    Info info;
    const Size first = 11;
    Cpu::getrf(this->lane, m, n, lu.get(), lu.ld, first, pivots.data(), static_cast<T*>(nullptr), 1,
               0, 0, &info);
    EXPECT_EQ(info.kind, 0);
    EXPECT_TRUE(lu.padding_untouched());
    const auto order = interchanged(m, pivots, first);
    double error = 0;
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        T sum(0);
        for (Size k = 0; k <= std::min(i, j); ++k) {
          sum += (k == i ? T(1) : lu(i, k)) * lu(k, j);
        }
        error = std::max<double>(error, std::abs(sum - a(order[static_cast<std::size_t>(i)], j)));
        if (i > j) {
          EXPECT_LE(std::abs(lu(i, j)), is_complex_v<T> ? 1.5 : 1.0001);
        }
      }
    }
    EXPECT_LE(error, 20 * static_cast<double>(n) * epsilon<T>);
  }
}

TYPED_TEST(LuTile, NamesTheFirstZeroPivotAndGoesOn) {
  using T = TypeParam;
  for (Size n : {1, 5, 70, 130}) {
    for (Size column : {Size{0}, n / 2, n - 1}) {
      auto a = Matrix<T>::random(n + 2, n, 6);
      for (Size i = 0; i < a.m; ++i) {
        a(i, column) = T(0);
        a(i, n - 1) = T(0);
      }
      std::vector<std::int32_t> pivots(static_cast<std::size_t>(n));
      Info info;
      Cpu::getrf(this->lane, a.m, n, a.get(), a.ld, 0, pivots.data(), static_cast<T*>(nullptr), 1,
                 100, 200, &info);
      EXPECT_EQ(info.kind, static_cast<int>(Kind::singular));
      EXPECT_EQ(info.position, 100 + column + 1);
      Cpu::name_equation(this->lane, &info);
      EXPECT_EQ(info.position, 200 + column + 1);
      EXPECT_EQ(info.spare[1], 0);
      for (Size j = 0; j < n; ++j) {
        EXPECT_FALSE(is_nan(a(j, j)));
      }
    }
  }
}

TYPED_TEST(LuTile, PivotsOfWhatIsNotFiniteAreRows) {
  using T = TypeParam;
  auto a = Matrix<T>::random(90, 80, 7);
  a(4, 3) = not_a_number<T>();
  a(50, 20) = T(std::numeric_limits<Real<T>>::infinity());
  std::vector<std::int32_t> pivots(80);
  Info info;
  Cpu::getrf(this->lane, 90, 80, a.get(), a.ld, 0, pivots.data(), static_cast<T*>(nullptr), 1, 0, 0,
             &info);
  for (Size j = 0; j < 80; ++j) {
    EXPECT_GE(pivots[static_cast<std::size_t>(j)], j);
    EXPECT_LT(pivots[static_cast<std::size_t>(j)], 90);
  }
}

TYPED_TEST(LuTile, MovesRowsAsInterchangesDo) {
  using T = TypeParam;
  std::mt19937 generator(3);
  for (const auto& [m, n] :
       std::vector<std::pair<Size, Size>>{{1, 1}, {6, 6}, {50, 7}, {20, 19}, {400, 130}}) {
    const Size first = 9;
    std::vector<std::int32_t> pivots;
    for (Size j = 0; j < n; ++j) {
      std::uniform_int_distribution<Size> any(j, j % 3 == 0 ? m - 1 : std::min(m - 1, j + 4));
      pivots.push_back(static_cast<std::int32_t>(first + any(generator)));
    }
    const auto order = interchanged(m, pivots, first);
    std::vector<std::int32_t> lists(static_cast<std::size_t>(4 * n));
    const RowMoves moves{lists.data(), lists.data() + 2 * n};
    Cpu::trace_pivots(this->lane, n, pivots.data(), first, moves);
    const auto a = Matrix<T>::random(m, 5, 8);
    auto moved = a;
    Cpu::move_rows<T>(this->lane, n, moves, 5, moved.get(), moved.ld, nullptr, 0);
    auto below = a;
    Matrix<T> top(n, 5);
    Cpu::move_rows<T>(this->lane, n, moves, 5, below.get(), below.ld, top.get(), top.ld);
    for (Size j = 0; j < 5; ++j) {
      for (Size i = 0; i < m; ++i) {
        const T expected = a(order[static_cast<std::size_t>(i)], j);
        EXPECT_EQ(moved(i, j), expected);
        EXPECT_EQ(i < n ? top(i, j) : below(i, j), expected);
      }
    }
    Cpu::move_rows<T>(this->lane, n, moves.inverse(), 5, moved.get(), moved.ld, nullptr, 0);
    EXPECT_EQ(distance(moved, a), 0);
    EXPECT_TRUE(moved.padding_untouched() && below.padding_untouched() && top.padding_untouched());
  }
}

TYPED_TEST(LuTile, PutsAndTakes) {
  using T = TypeParam;
  const Size n = 7;
  std::vector<std::int32_t> order(n);
  Cpu::iota(this->lane, n, order.data());
  EXPECT_EQ(order[6], 6);
  order = {3, 0, 6, 1, 5, 2, 4};
  const auto a = Matrix<T>::random(n, 3, 4);
  Matrix<T> rows(n, 3);
  std::vector<std::int32_t> shifted;
  for (const std::int32_t i : order) {
    shifted.push_back(i + 10);
  }
  Cpu::put_rows<T>(this->lane, n, 3, shifted.data(), 10, a.get(), a.ld, rows.get(), rows.ld);
  const auto b = Matrix<T>::random(3, n, 5);
  Matrix<T> put(3, 4), taken(3, n);
  Cpu::put_columns<T>(this->lane, 3, n, order.data(), 2, 4, b.get(), b.ld, put.get(), put.ld);
  Cpu::take_columns<T>(this->lane, 3, n, order.data(), 2, 4, b.get(), b.ld, taken.get(), taken.ld);
  for (Size i = 0; i < n; ++i) {
    const Size to = order[static_cast<std::size_t>(i)];
    EXPECT_EQ(rows(to, 1), a(i, 1));
    if (2 <= to && to < 6) {
      EXPECT_EQ(put(2, to - 2), b(2, i));
      EXPECT_EQ(taken(1, i), b(1, to - 2));
    } else {
      EXPECT_EQ(taken(1, i), T(0));
    }
  }
  EXPECT_TRUE(rows.padding_untouched() && put.padding_untouched() && taken.padding_untouched());
}

TYPED_TEST(LuTile, SignsLogarithmsAndWhatIsNotFinite) {
  using T = TypeParam;
  const std::vector<T> x = {T(2), T(0), T(-3), T(0), number<T>(0.5, 0.25)};
  Real<T> log = 1;
  T phase(1);
  Cpu::log_phase<T>(this->lane, 3, x.data(), 2, &log, &phase);
  const T last = x[4];
  EXPECT_NEAR(log, 1 + std::log(6 * std::abs(last)), 10 * epsilon<T>);
  EXPECT_LE(std::abs(phase + last / std::abs(last)), 10 * epsilon<T>);
  const std::vector<std::int32_t> pivots = {0, 4, 2, 3, 4};
  T sign = phase;
  Cpu::pivot_sign<T>(this->lane, 5, pivots.data(), &sign);
  EXPECT_EQ(sign, -phase);
  Cpu::log_phase<T>(this->lane, 1, x.data() + 1, 1, &log, &phase);
  EXPECT_EQ(phase, T(0));
  EXPECT_EQ(log, -std::numeric_limits<Real<T>>::infinity());

  Info info;
  auto a = Matrix<T>::random(700, 300, 3);  // large enough to be cut in tasks
  a(5, 5) = T(std::numeric_limits<Real<T>>::max());
  Cpu::check_finite<T>(this->lane, a.m, a.n, a.get(), a.ld, &info);
  EXPECT_EQ(info.kind, 0);
  a(699, 299) = T(std::numeric_limits<Real<T>>::infinity());
  Cpu::check_finite<T>(this->lane, a.m, a.n, a.get(), a.ld, &info);
  EXPECT_EQ(info.kind, static_cast<int>(Kind::non_finite));
  T value(7);
  Cpu::fill_if_kind<T>(this->lane, &info, Kind::singular, 1, 1, T(1), &value, 1);
  EXPECT_EQ(value, T(7));
  Cpu::fill_if_kind<T>(this->lane, &info, Kind::non_finite, 1, 1, T(1), &value, 1);
  EXPECT_EQ(value, T(1));
}

TYPED_TEST(LuTile, SolvesWithTrianglesBesideOtherThings) {
  using T = TypeParam;
  const Size n = 40, m = 3;
  for (const Uplo uplo : {Uplo::lower, Uplo::upper}) {
    const Diag diag = uplo == Uplo::lower ? Diag::unit : Diag::non_unit;
    const auto a = triangle<T>(uplo, diag, n, 3);
    const auto full = written_out(diag, uplo, a);
    for (const Op op : {Op::none, Op::transpose}) {
      const auto b = Matrix<T>::random(m, n, 9);
      auto x = b;
      Cpu::solve_triangle<T>(this->lane, uplo, op, diag, m, n, a.get(), a.ld, nullptr, n, x.get(),
                             x.ld, nullptr);
      const auto back = product(Op::none, op, n, T(1), x, full, T(0), b);
      EXPECT_LE(distance(back, b), 100 * static_cast<double>(n) * epsilon<T>);
    }
  }
}

}  // namespace
}  // namespace jaxmg::testing
