// Which failure ranks agree on, and what the user sees of it.
#include "core/status.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/dtype.h"

namespace jaxmg {
namespace {

constexpr Kind kBadInput[] = {Kind::non_finite, Kind::not_hermitian, Kind::communication,
                              Kind::memory, Kind::mismatched_calls};
constexpr Kind kFailed[] = {Kind::not_positive_definite, Kind::singular, Kind::no_convergence};

Info info_of(Kind kind, std::int32_t position) {
  return {.kind = static_cast<std::int32_t>(kind), .position = position};
}

TEST(Severity, FailuresComeBeforeSuccess) {
  const auto most = std::numeric_limits<std::int32_t>::max();
  for (const std::int32_t position : {0, 1, most}) {
    for (const Kind kind : kBadInput) {
      EXPECT_LT(severity(info_of(kind, position)), severity(Info{}));
    }
    for (const Kind kind : kFailed) {
      EXPECT_LT(severity(info_of(kind, position)), severity(Info{}));
    }
  }
}

TEST(Severity, BadInputComesBeforeFailedArithmetic) {
  for (const Kind bad : kBadInput) {
    for (const Kind failed : kFailed) {
      EXPECT_LT(severity(info_of(bad, std::numeric_limits<std::int32_t>::max())),
                severity(info_of(failed, 1)));
    }
  }
}

TEST(Severity, EarlierPositionsComeBeforeLaterOnes) {
  for (const Kind kind : kFailed) {
    EXPECT_LT(severity(info_of(kind, 1)), severity(info_of(kind, 2)));
    EXPECT_LT(severity(info_of(kind, 65536)),
              severity(info_of(kind, std::numeric_limits<std::int32_t>::max())));
  }
}

TEST(Severity, SuccessIsSuccessWhateverElseIsSaid) {
  EXPECT_EQ(severity({.kind = 0, .position = 7, .rank = 3}), severity(Info{}));
}

TEST(Severity, IsDifferentForDifferentFailures) {
  std::vector<std::int64_t> all;
  for (std::int32_t kind = -5; kind <= 3; ++kind) {
    for (const std::int32_t position : {0, 1, 2, std::numeric_limits<std::int32_t>::max()}) {
      if (kind != 0) {
        all.push_back(severity(kind, position));
      }
    }
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
}

TEST(Status, IsLapacksInfoOrTheNegativeKind) {
  EXPECT_EQ(status(Info{}), 0);
  EXPECT_EQ(status(info_of(Kind::not_positive_definite, 17)), 17);
  EXPECT_EQ(status(info_of(Kind::singular, 1)), 1);
  EXPECT_EQ(status(info_of(Kind::non_finite, 0)), -1);
  EXPECT_EQ(status(info_of(Kind::not_hermitian, 5)), -2);
  EXPECT_EQ(status(info_of(Kind::communication, 0)), -3);
  EXPECT_EQ(status(info_of(Kind::memory, 0)), -4);
  EXPECT_EQ(status(info_of(Kind::mismatched_calls, 0)), -5);
}

// Python and kernels read it as int32[8].
TEST(Info, IsEightIntegersInTheDocumentedOrder) {
  EXPECT_EQ(sizeof(Info), 8 * sizeof(std::int32_t));
  EXPECT_EQ(offsetof(Info, kind), 0u);
  EXPECT_EQ(offsetof(Info, position), 4u);
  EXPECT_EQ(offsetof(Info, rank), 8u);
  EXPECT_EQ(offsetof(Info, phase), 12u);
  EXPECT_EQ(offsetof(Info, iterations), 16u);
  EXPECT_EQ(offsetof(Info, path), 20u);
}

template <class T>
void check_type(DType type, bool complex) {
  EXPECT_EQ(dtype_of<T>, type);
  EXPECT_EQ(size_of(type), static_cast<Size>(sizeof(T)));
  EXPECT_EQ(is_complex(type), complex);
  EXPECT_EQ(is_complex_v<T>, complex);
  EXPECT_EQ(sizeof(T), (complex ? 2 : 1) * sizeof(Real<T>));
}

TEST(DTypes, NamesSizesAndRealTypesBelongTogether) {
  check_type<float>(DType::f32, false);
  check_type<double>(DType::f64, false);
  check_type<std::complex<float>>(DType::c64, true);
  check_type<std::complex<double>>(DType::c128, true);
  check_type<std::int32_t>(DType::i32, false);
}

}  // namespace
}  // namespace jaxmg
