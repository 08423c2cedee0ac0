// Eigenvalues and eigenvectors on thread ranks.
#include "algo/eigen.h"

#include <gtest/gtest.h>

#include "eigen_matrices.h"
#include "eigen_problem.h"

namespace jaxmg::test {
namespace {

template <class T>
class EigenTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(EigenTest, Types);

TYPED_TEST(EigenTest, EverySizeOnEveryNumberOfRanks) {
  for (int ranks : {1, 2, 3, 4, 5, 8}) {
    for (Size n : {0, 1, 2, 3, 4, 7, 8, 9, 17, 20, 33}) {
      expect_solves(hermitian<TypeParam>(n, 1), ranks, 4);
    }
  }
}

TYPED_TEST(EigenTest, EveryTile) {
  for (int ranks : {1, 2, 4}) {
    for (Size tile = 1; tile <= 23; ++tile) {
      expect_solves(hermitian<TypeParam>(46, 2), ranks, tile);
    }
  }
}

TYPED_TEST(EigenTest, EveryTileOfEverySmallMatrix) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    for (Size n = 1; n <= 20; n += ranks % 3 + 1) {
      const auto a = hermitian<TypeParam>(n, 10);
      for (Size tile = 2; tile <= std::max<Size>(2, ceil_div(n, ranks)); ++tile) {
        expect_solves(a, ranks, tile);
      }
    }
  }
}

// Updates put off for so many panels; tiles that do not divide a shard, ranks with few rows or
// none.
TYPED_TEST(EigenTest, EveryBlockOfPanels) {
  for (int ranks : {1, 2, 3, 5, 8}) {
    for (Size n : {31, 46, 64}) {
      for (Size tile : {2, 3, 5, 8}) {
        for (Size group : {2, 3, 100}) {
          SCOPED_TRACE(group);
          expect_solves(hermitian<TypeParam>(n, 12), ranks, tile, group);
        }
      }
    }
  }
}

// Panels whose columns vanish, and bands of equal eigenvalues.
TYPED_TEST(EigenTest, EqualEigenvaluesWithEveryTile) {
  for (const auto& [name, a] : hard_matrices<TypeParam>(46)) {
    if (name != "equal pairs" && name != "identity" && name != "identity and a pair") {
      continue;
    }
    SCOPED_TRACE(name);
    for (int ranks : {1, 2, 4}) {
      for (Size tile = 2; tile <= ceil_div(Size{46}, ranks); tile += 3) {
        expect_solves(a, ranks, tile);
      }
    }
  }
}

TYPED_TEST(EigenTest, ChosenTile) {
  for (int ranks : {1, 3, 8}) {
    expect_solves(hermitian<TypeParam>(212, 3), ranks, 0);
  }
}

TYPED_TEST(EigenTest, HardMatrices) {
  for (Size n : {Size{46}, Size{100}}) {
    for (const auto& [name, a] : hard_matrices<TypeParam>(n)) {
      SCOPED_TRACE(name);
      const auto one = expect_solves(a, 1, 0);
      const auto four = expect_solves(a, 4, 7);
      EigenOptions values_only;
      values_only.vectors = false;
      const EigenRun<TypeParam> values(a, 3, 5, values_only);
      expect_same_values(a, one.w, four.w);
      expect_same_values(a, one.w, values.w);
    }
  }
}

TYPED_TEST(EigenTest, ScaledMatrices) {
  using R = Real<TypeParam>;
  const auto a = hermitian<TypeParam>(40, 5);
  const bool small = std::is_same_v<R, float>;
  for (const R factor : {small ? R(1e-30) : R(1e-150), small ? R(1e30) : R(1e150),
                         std::numeric_limits<R>::min() * 64, std::numeric_limits<R>::max() / 64}) {
    auto scaled = a;
    for (auto& x : scaled.data) {
      x *= factor;
    }
    for (int ranks : {1, 3}) {
      const EigenRun<TypeParam> plain(a, ranks, 4), run(scaled, ranks, 4);
      EXPECT_EQ(run.info.kind, 0);
      expect_decomposes(a, plain.w, run.v);
      for (std::size_t i = 0; i < run.w.size(); ++i) {
        EXPECT_NEAR(run.w[i] / factor, plain.w[i], 100 * std::numeric_limits<R>::epsilon() * 10);
      }
    }
  }
}

TYPED_TEST(EigenTest, RangesOfVectors) {
  const auto a = hermitian<TypeParam>(77, 6);
  for (int ranks : {1, 2, 5}) {
    const EigenRun<TypeParam> all(a, ranks, 5);
    for (const auto& [first, count] :
         {std::pair<Size, Size>{0, 0}, {0, 1}, {76, 1}, {10, 33}, {70, 7}, {0, 76}}) {
      EigenOptions range;
      range.first = first;
      range.count = count;
      const EigenRun<TypeParam> run(a, ranks, 5, range);
      EXPECT_EQ(run.w, all.w);
      const std::vector<Real<TypeParam>> w(run.w.begin() + first, run.w.begin() + first + count);
      expect_decomposes(a, w, run.v);
    }
  }
}

// The ranges of a matrix most of whose eigenvalues deflate.
TEST(EigenRange, OfADeflatingMatrix) {
  const auto a = from_entries<double>(
      100, [](Size i, Size j) { return i == j ? static_cast<double>(1 + i % 3) : 0.01; });
  for (Size first = 0; first < 100; first += 9) {
    EigenOptions range;
    range.first = first;
    range.count = std::min<Size>(17, 100 - first);
    const EigenRun<double> run(a, 3, 6, range);
    expect_decomposes(a, {run.w.begin() + first, run.w.begin() + first + range.count}, run.v);
  }
}

TYPED_TEST(EigenTest, ReadsOnlyTheTriangleThatIsNamed) {
  using T = TypeParam;
  const auto a = hermitian<T>(29, 7);
  const T nan(std::numeric_limits<Real<T>>::quiet_NaN());
  for (Triangle valid : {Triangle::lower, Triangle::upper}) {
    auto half = a;
    for (Size i = 0; i < a.rows; ++i) {
      for (Size j = 0; j < a.rows; ++j) {
        if (valid == Triangle::lower ? j > i : j < i) {
          half(i, j) = nan;
        }
      }
    }
    for (int ranks : {1, 2, 8}) {
      EigenOptions options;
      options.valid = valid;
      const EigenRun<T> run(half, ranks, 3, options);
      EXPECT_EQ(run.info.kind, 0);
      expect_decomposes(a, run.w, run.v);
    }
  }
}

// Imaginary parts of the diagonal are no part of a Hermitian matrix.
TEST(EigenDiagonal, ImaginaryPartsAreIgnored) {
  using T = std::complex<double>;
  const auto a = hermitian<T>(31, 8);
  auto other = a;
  for (Size i = 0; i < a.rows; ++i) {
    other(i, i) += T(0, 3);
  }
  const EigenRun<T> run(other, 3, 4);
  EXPECT_EQ(run.info.kind, 0);
  expect_decomposes(a, run.w, run.v);
}

TYPED_TEST(EigenTest, TellsOfBadInput) {
  using T = TypeParam;
  const Real<T> inf = std::numeric_limits<Real<T>>::infinity();
  for (const Real<T> bad : {inf, -inf, std::numeric_limits<Real<T>>::quiet_NaN()}) {
    for (int ranks : {1, 2, 5}) {
      for (const bool vectors : {true, false}) {
        auto a = hermitian<T>(20, 9);
        a(17, 3) = a(3, 17) = T(bad);
        EigenOptions options;
        options.vectors = vectors;
        const EigenRun<T> run(a, ranks, 4, options);
        EXPECT_EQ(status(run.info), static_cast<int>(Kind::non_finite));
        for (const auto x : run.w) {
          EXPECT_TRUE(std::isnan(x));
        }
        for (const T x : run.v.data) {
          EXPECT_TRUE(std::isnan(std::real(x)));
        }
      }
    }
  }
  auto a = hermitian<T>(20, 9);
  for (Size i = 0; i < 20; ++i) {
    std::fill_n(a.data.begin() + i * 20, i, T(0));
  }
  EXPECT_EQ(status(EigenRun<T>(a, 3, 4).info), static_cast<int>(Kind::not_hermitian));
}

TYPED_TEST(EigenTest, SolvesALargeOneOnSharedRoots) {
  for (int ranks : {1, 3}) {
    expect_solves(hermitian<TypeParam>(330, 4), ranks, 0);
  }
}

TEST(EigenRepeated, MixedSizesAllGood) {
  for (int k = 0; k < 20; ++k) {
    expect_solves(hermitian<double>(1 + 17 * (k % 6), static_cast<std::uint64_t>(k)), 1 + k % 8, 0);
  }
}

}  // namespace
}  // namespace jaxmg::test
