// Copies, transposes, fills, sums and checks of CPU tiles.
#include "tile/cpu/cpu.h"
#include "tile/cpu/pool.h"
#include "tile_matrix.h"

namespace jaxmg::testing {
namespace {

using tile::Cpu;

template <class T>
class Elementwise : public ::testing::Test {
 protected:
  void SetUp() override { tile::set_pool_threads(3); }

  // Small shapes, and some that are cut in tasks.
  template <class Check>
  void all_shapes(const Check& check) {
    for (Size m = 0; m <= 9; ++m) {
      for (Size n = 0; n <= 9; ++n) {
        check(m, n);
      }
    }
    check(17, 33);
    check(1031, 257);
    check(257, 1031);
    check(300000, 1);
    check(1, 300000);
  }

  Cpu::Lane lane{tile::Priority::normal};
};
TYPED_TEST_SUITE(Elementwise, ElementTypes);

TYPED_TEST(Elementwise, Copy) {
  using T = TypeParam;
  this->all_shapes([&](Size m, Size n) {
    for (Size padding : {0, 2}) {
      const auto src = Matrix<T>::random(m, n, 1, padding);
      Matrix<T> dst(m, n, padding);
      Cpu::copy(this->lane, m, n, src.get(), src.ld, dst.get(), dst.ld);
      EXPECT_EQ(distance(src, dst), 0) << m << " x " << n;
      EXPECT_TRUE(dst.padding_untouched());
    }
  });
}

TYPED_TEST(Elementwise, Transpose) {
  using T = TypeParam;
  this->all_shapes([&](Size m, Size n) {
    const auto src = Matrix<T>::random(m, n, 1);
    for (bool conj : {false, true}) {
      Matrix<T> dst(n, m), expected(n, m);
      for (Size j = 0; j < n; ++j) {
        for (Size i = 0; i < m; ++i) {
          expected(j, i) = conj ? conjugate(src(i, j)) : src(i, j);
        }
      }
      Cpu::transpose(this->lane, m, n, src.get(), src.ld, dst.get(), dst.ld, conj);
      EXPECT_EQ(distance(dst, expected), 0) << m << " x " << n;
      EXPECT_TRUE(dst.padding_untouched());
    }
  });
}

TYPED_TEST(Elementwise, Fill) {
  using T = TypeParam;
  const T off = number<T>(3, 1), diag = number<T>(5, -2);
  this->all_shapes([&](Size m, Size n) {
    Matrix<T> a(m, n), expected(m, n);
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        expected(i, j) = i == j ? diag : off;
      }
    }
    Cpu::fill(this->lane, m, n, off, diag, a.get(), a.ld);
    EXPECT_EQ(distance(a, expected), 0) << m << " x " << n;
    EXPECT_TRUE(a.padding_untouched());
  });
}

TYPED_TEST(Elementwise, FillIfFailed) {
  using T = TypeParam;
  const auto before = Matrix<T>::random(7, 5, 1);
  auto a = before;
  Info info;
  Cpu::fill_if_failed(this->lane, &info, 7, 5, T(9), a.get(), a.ld);
  EXPECT_EQ(distance(a, before), 0);
  info.kind = static_cast<std::int32_t>(Kind::not_hermitian);
  Cpu::fill_if_failed(this->lane, &info, 7, 5, T(9), a.get(), a.ld);
  for (Size j = 0; j < 5; ++j) {
    for (Size i = 0; i < 7; ++i) {
      EXPECT_EQ(a(i, j), T(9));
    }
  }
  EXPECT_TRUE(a.padding_untouched());
}

TYPED_TEST(Elementwise, Add) {
  using T = TypeParam;
  this->all_shapes([&](Size m, Size n) {
    for (T alpha : {T(1), number<T>(-0.5, 2)}) {
      const auto src = Matrix<T>::random(m, n, 1);
      auto dst = Matrix<T>::random(m, n, 2);
      auto expected = dst;
      for (Size j = 0; j < n; ++j) {
        for (Size i = 0; i < m; ++i) {
          expected(i, j) += alpha * src(i, j);
        }
      }
      Cpu::add(this->lane, m, n, alpha, src.get(), src.ld, dst.get(), dst.ld);
      EXPECT_LE(distance(dst, expected), 8 * epsilon<T>) << m << " x " << n;
      EXPECT_TRUE(dst.padding_untouched());
    }
  });
}

TYPED_TEST(Elementwise, RandomVectorDependsOnTheIndexAlone) {
  using T = TypeParam;
  constexpr Size n = 1000;
  const Real<T> scale = Real<T>(0.25);
  std::vector<T> whole(n), parts(n);
  Cpu::random_vector<T>(this->lane, n, 0, scale, whole.data());
  for (Size first = 0, count = 1; first < n; first += count, count = 2 * count + 1) {
    Cpu::random_vector<T>(this->lane, std::min(count, n - first), first, scale,
                          parts.data() + first);
  }
  EXPECT_EQ(whole, parts);

  double mean = 0, square = 0;
  for (T x : whole) {
    EXPECT_EQ(std::imag(x), 0);
    EXPECT_LE(std::abs(x), scale);
    mean += std::real(x) / n;
    square += std::norm(x) / n;
  }
  EXPECT_NEAR(mean, 0, 0.02);                  // deviation of the mean: 0.0046
  EXPECT_NEAR(square, 0.25 * 0.25 / 3, 2e-3);  // and of the mean square: 6e-4
}

// y = M v and z = M^T v for real v, by loops.
template <class T>
std::vector<T> times(const Matrix<T>& m, Op op, const std::vector<T>& v) {
  std::vector<T> y(v.size());
  for (Size i = 0; i < m.n; ++i) {
    for (Size j = 0; j < m.n; ++j) {
      y[static_cast<std::size_t>(i)] += m.element(op, i, j) * v[static_cast<std::size_t>(j)];
    }
  }
  return y;
}

template <class T>
class HermitianCheck : public Elementwise<T> {
 protected:
  static constexpr Size n = 12;

  // Hermitian, but for the imaginary parts of the diagonal.
  static Matrix<T> hermitian() {
    auto m = Matrix<T>::random(n, n, 3);
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < j; ++i) {
        m(i, j) = conjugate(m(j, i));
      }
      m(j, j) = number<T>(2, 50);
    }
    return m;
  }

  // In two calls, as two ranks would.
  Info judge(const Matrix<T>& m) {
    std::vector<T> v(n);
    Cpu::random_vector<T>(this->lane, n, 0, Real<T>(1), v.data());
    const auto y = times(m, Op::none, v), z = times(m, Op::transpose, v);
    Real<T> result[3] = {0, 0, 0};
    Cpu::check_hermitian(this->lane, 5, m.get(), m.ld + 1, v.data(), y.data(), z.data(), result);
    Cpu::check_hermitian(this->lane, n - 5, &m(5, 5), m.ld + 1, v.data() + 5, y.data() + 5,
                         z.data() + 5, result);
    Info info;
    Cpu::judge_hermitian(this->lane, result, Real<T>(1e-3), &info);
    return info;
  }
};
TYPED_TEST_SUITE(HermitianCheck, ElementTypes);

TYPED_TEST(HermitianCheck, PassesHermitian) {
  EXPECT_EQ(this->judge(this->hermitian()).kind, 0);
}

TYPED_TEST(HermitianCheck, PassesZero) {
  using T = TypeParam;
  Matrix<T> zero(TestFixture::n, TestFixture::n);
  Cpu::fill(this->lane, zero.m, zero.n, T(0), T(0), zero.get(), zero.ld);
  EXPECT_EQ(this->judge(zero).kind, 0);
}

TYPED_TEST(HermitianCheck, FindsASingleTriangle) {
  using T = TypeParam;
  auto m = this->hermitian();
  for (Size j = 1; j < m.n; ++j) {
    std::fill_n(&m(0, j), j, T(0));
  }
  EXPECT_EQ(this->judge(m).kind, static_cast<std::int32_t>(Kind::not_hermitian));
}

TYPED_TEST(HermitianCheck, FindsAComplexSymmetricMatrix) {
  using T = TypeParam;
  auto m = this->hermitian();
  for (Size j = 0; j < m.n; ++j) {
    for (Size i = 0; i < j; ++i) {
      m(i, j) = m(j, i);
    }
  }
  const auto expected = is_complex_v<T> ? Kind::not_hermitian : Kind::ok;
  EXPECT_EQ(this->judge(m).kind, static_cast<std::int32_t>(expected));
}

TYPED_TEST(HermitianCheck, FindsWhatIsNotFinite) {
  using T = TypeParam;
  using R = Real<T>;
  for (R bad : {std::numeric_limits<R>::quiet_NaN(), std::numeric_limits<R>::infinity()}) {
    for (Size at : {0, 7, 11}) {
      auto m = this->hermitian();
      m(at, 2) = T(bad);
      EXPECT_EQ(this->judge(m).kind, static_cast<std::int32_t>(Kind::non_finite));
    }
  }
}

TEST(Status, FirstFailureAndFirstPhaseStay) {
  Cpu::Lane lane(tile::Priority::high);
  Info info;
  Cpu::set_phase(lane, Phase::natural_order, 3, &info);
  EXPECT_EQ(info.phase, 0);
  Cpu::set_if_ok(lane, Kind::singular, 4, &info);
  Cpu::set_if_ok(lane, Kind::memory, 5, &info);
  EXPECT_EQ(info.kind, static_cast<std::int32_t>(Kind::singular));
  EXPECT_EQ(info.position, 4);
  Cpu::set_phase(lane, Phase::elimination_order, 3, &info);
  Cpu::set_phase(lane, Phase::natural_order, 4, &info);
  EXPECT_EQ(info.phase, static_cast<std::int32_t>(Phase::elimination_order));
  EXPECT_EQ(info.rank, 3);
  Cpu::reset(lane, &info);
  EXPECT_EQ(info.kind, 0);
  EXPECT_EQ(info.position, 0);
  EXPECT_EQ(info.phase, 0);
}

}  // namespace
}  // namespace jaxmg::testing
