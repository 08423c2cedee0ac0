// What src/vendor/eigen.h does around a library: scaling, redistribution, the way back to rows of
// eigenvectors, statuses.
#include "vendor/eigen.h"

#include <gtest/gtest.h>

#include "eigen_problem.h"
#include "vendor_run.h"

namespace jaxmg::test {
namespace {

using tile::Cpu;

template <class T>
struct VendorEigenRun {
  std::vector<Real<T>> w;
  Matrix<T> v;  // n x count
  std::vector<Info> info;

  VendorEigenRun(const Matrix<T>& a, int ranks, Size tile, const EigenOptions& options = {}) {
    const Size n = a.rows;
    const Size count = options.count < 0 ? n : options.count;
    PlanRequest request = VendorProblem{dtype_of<T>, n, ranks, tile}.request(Routine::syevd);
    request.vectors = options.vectors;
    request.columns = options.vectors ? count : 0;
    request.mirror = options.valid != Triangle::whole;
    const Plan plan(request);
    auto shard = shards_of(a, plan);
    std::vector<std::vector<T>> part(
        shard.size(),
        std::vector<T>(static_cast<std::size_t>(plan.distribution().capacity() * count)));
    std::vector<std::vector<Real<T>>> values(
        shard.size(), std::vector<Real<T>>(static_cast<std::size_t>(n), Real<T>(-7)));
    info.resize(shard.size());
    run_with_library<T>(plan, [&](Rank<Cpu>& rank, vendor::Session& session, std::size_t r) {
      T* const target = count == n ? shard[r].data() : part[r].data();
      vendor::syevd<Cpu, T>(rank, session, options.valid, options.first, shard[r].data(),
                            values[r].data(), options.vectors ? target : nullptr, &info[r]);
    });
    w = values[0];
    for (std::size_t r = 0; r < shard.size(); ++r) {
      EXPECT_EQ(info[r].kind, info[0].kind);
      for (std::size_t i = 0; i < w.size(); ++i) {
        EXPECT_TRUE(values[r][i] == w[i] || std::isnan(w[i]));
      }
    }
    if (options.vectors) {
      v = joined_shards(count == n ? shard : part, plan, count);
    }
  }
};

template <class T>
class VendorEigenTest : public testing::Test {};
using Types = testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(VendorEigenTest, Types);

TYPED_TEST(VendorEigenTest, DecomposesOnEveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 8}) {
    for (const Size n : {1, 2, 7, 20}) {
      for (const Size tile : {Size{1}, Size{3}, Size{0}}) {
        SCOPED_TRACE("n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                     std::to_string(tile));
        const auto a = hermitian<TypeParam>(n, 3);
        const VendorEigenRun<TypeParam> run(a, ranks, tile);
        ASSERT_EQ(run.info[0].kind, 0);
        EXPECT_TRUE(std::ranges::is_sorted(run.w));
        expect_decomposes(a, run.w, run.v);
      }
    }
  }
}

TYPED_TEST(VendorEigenTest, ValuesAloneAndSomeVectorsAreThoseOfAll) {
  using T = TypeParam;
  const Size n = 17;
  const auto a = hermitian<T>(n, 9);
  for (const int ranks : {1, 3}) {
    const VendorEigenRun<T> all(a, ranks, 4);
    EXPECT_EQ(VendorEigenRun<T>(a, ranks, 4, {.vectors = false}).w, all.w);
    const VendorEigenRun<T> some(a, ranks, 4, {.first = 5, .count = 6});
    EXPECT_EQ(some.w, all.w);
    for (Size i = 0; i < n; ++i) {
      for (Size j = 0; j < 6; ++j) {
        EXPECT_EQ(some.v(i, j), all.v(i, 5 + j));
      }
    }
  }
}

TYPED_TEST(VendorEigenTest, ReadsOnlyTheTriangleThatIsNamed) {
  using T = TypeParam;
  const Size n = 13;
  const auto a = hermitian<T>(n, 4);
  for (const Triangle valid : {Triangle::lower, Triangle::upper}) {
    Matrix<T> half = a;
    for (Size i = 0; i < n; ++i) {
      for (Size j = 0; j < n; ++j) {
        if (valid == Triangle::lower ? j > i : j < i) {
          half(i, j) = T(std::numeric_limits<Real<T>>::quiet_NaN());
        }
      }
    }
    for (const int ranks : {1, 3}) {
      const VendorEigenRun<T> run(half, ranks, 2, {.valid = valid});
      ASSERT_EQ(run.info[0].kind, 0);
      expect_decomposes(a, run.w, run.v);
    }
  }
}

TYPED_TEST(VendorEigenTest, ExtremeScalesAndImaginaryDiagonals) {
  using T = TypeParam;
  const Size n = 9;
  const auto a = hermitian<T>(n, 6);
  const int large = std::numeric_limits<Real<T>>::max_exponent - 4;
  for (const int exponent : {0, large, -large}) {
    auto given = a;
    for (T& x : given.data) {
      x *= std::ldexp(Real<T>(1), exponent);
    }
    if constexpr (is_complex_v<T>) {
      given(2, 2) += T(0, std::real(given(2, 2)));
    }
    const VendorEigenRun<T> run(given, 2, 2);
    ASSERT_EQ(run.info[0].kind, 0);
    std::vector<Real<T>> w = run.w;
    for (Real<T>& x : w) {
      x = std::ldexp(x, -exponent);
    }
    expect_decomposes(a, w, run.v);
  }
}

TYPED_TEST(VendorEigenTest, FailuresAreReportedAsByTheNativeEngine) {
  using T = TypeParam;
  const Size n = 12;
  for (const int ranks : {1, 2, 5}) {
    auto bad = hermitian<T>(n, 2);
    bad(1, 7) = bad(7, 1) = T(std::numeric_limits<Real<T>>::quiet_NaN());
    auto half = hermitian<T>(n, 2);
    for (Size i = 0; i < n; ++i) {
      std::fill_n(&half(i, 0), i, T(0));
    }
    for (const auto& [a, kind] : {std::pair{bad, Kind::non_finite}, {half, Kind::not_hermitian}}) {
      for (const bool vectors : {true, false}) {
        const VendorEigenRun<T> run(a, ranks, 3, {.vectors = vectors});
        EXPECT_EQ(run.info[0].kind, static_cast<int>(kind));
        EXPECT_TRUE(std::ranges::all_of(run.w, [](Real<T> x) { return std::isnan(x); }));
        EXPECT_TRUE(std::ranges::all_of(run.v.data, [](T x) { return std::isnan(std::real(x)); }));
      }
    }
  }
}

}  // namespace
}  // namespace jaxmg::test
