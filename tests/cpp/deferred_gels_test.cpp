// Least squares by a Gram matrix on lanes that run late.
#include <gtest/gtest.h>

#include "deferred_ranks.h"
#include "gels_run.h"

namespace jaxmg::test {
namespace {

template <class T>
void expect_ordered(Size m, Size n, Size nrhs, int ranks, bool good = true) {
  SCOPED_TRACE("m " + std::to_string(m) + " n " + std::to_string(n) + " ranks " +
               std::to_string(ranks));
  auto a = random_matrix<T>(m, n, 2);
  const auto b = random_matrix<T>(m, nrhs, 3);
  for (Size i = 0; !good && i < m; ++i) {
    a(i, n - 1) = a(i, 0);
  }
  expect_same_with_every_schedule(ranks, 4, [&](bool judge) {
    const auto found = gram_solution<T, Deferred>(a, b, ranks, 4);
    if (judge) {
      EXPECT_EQ(found.good(), good);
      EXPECT_TRUE(!good || normal_residual(a, found.x, b) <= 25);
    }
    Bytes bytes;
    append(bytes, found.x.data);
    return bytes;
  });
}

TEST(DeferredGelsTest, OneRightHandSideAndSome) {
  for (const int ranks : {1, 2, 3, 4}) {
    expect_ordered<double>(33, 6, 1, ranks);  // by the operation for one, and by products
    expect_ordered<double>(40, 11, 1, ranks);
    expect_ordered<double>(40, 6, 3, ranks);
  }
}

TEST(DeferredGelsTest, Types) {
  expect_ordered<float>(33, 6, 1, 3);
  expect_ordered<std::complex<float>>(33, 6, 2, 2);
  expect_ordered<std::complex<double>>(33, 6, 1, 3);
}

TEST(DeferredGelsTest, SumsInParts) {
  for (const int ranks : {1, 2}) {
    expect_ordered<double>(5 * kLeastGramRows + 3, 6, 2, ranks);
    expect_ordered<float>(5 * kLeastGramRows + 3, 6, 1, ranks);
  }
}

TEST(DeferredGelsTest, Doubts) {
  expect_ordered<double>(33, 6, 1, 3, false);
}

}  // namespace
}  // namespace jaxmg::test
