// The eigensolver on lanes that run late.
#include <gtest/gtest.h>

#include <cmath>

#include "deferred_ranks.h"
#include "eigen_matrices.h"
#include "eigen_problem.h"

namespace jaxmg::test {
namespace {

template <class T>
void expect_ordered(Size n, int ranks, Size tile, const EigenOptions& options, int seeds) {
  SCOPED_TRACE("n " + std::to_string(n) + " tile " + std::to_string(tile) + " group " +
               std::to_string(options.group));
  auto a = hermitian<T>(n, 4);
  a(0, 0) = T(50);  // so that ranks have something to tell each other about the size of the matrix
  expect_same_with_every_schedule(ranks, seeds, [&](bool judge) {
    const EigenRun<T, Deferred> run(a, ranks, tile, options);
    EXPECT_EQ(run.info.kind, 0);
    if (judge) {
      const EigenRun<T> alone(a, 1, tile, {.vectors = false});
      for (std::size_t i = 0; i < run.w.size(); ++i) {
        EXPECT_NEAR(run.w[i], alone.w[i],
                    static_cast<double>(n) * std::numeric_limits<Real<T>>::epsilon() * norm1(a));
      }
      if (options.vectors) {
        const auto first = run.w.begin() + options.first;
        expect_decomposes(a, std::vector<Real<T>>(first, first + run.v.cols), run.v);
      }
    }
    Bytes bytes;
    append(bytes, run.w);
    append(bytes, run.v.data);
    return bytes;
  });
}

TEST(DeferredEigenTest, EveryNumberOfRanks) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const Size tile : {Size{2}, Size{3}}) {
      expect_ordered<double>(30, ranks, tile, {}, 2);
    }
  }
}

TEST(DeferredEigenTest, EightRanks) {
  expect_ordered<std::complex<double>>(44, 8, 3, {}, 1);
}

TEST(DeferredEigenTest, BlocksOfPanels) {
  for (const int ranks : {2, 3}) {
    expect_ordered<std::complex<float>>(41, ranks, 3, {.group = 3}, 2);
  }
}

TEST(DeferredEigenTest, SomeVectorsFromOneTriangle) {
  for (const Triangle valid : {Triangle::lower, Triangle::upper}) {
    expect_ordered<double>(33, 3, 4, {.first = 5, .count = 9, .valid = valid}, 2);
  }
}

TEST(DeferredEigenTest, ProductsByParts) {
  for (const int ranks : {1, 2, 3}) {
    expect_ordered<float>(41, ranks, 3, {.group = 3, .precision = Precision::split}, 2);
  }
  expect_ordered<float>(30, 2, 4, {.first = 3, .count = 11, .precision = Precision::split}, 2);
}

// Parts of numbers are those of a GPU, bit by bit: the accuracy is that of tensor cores.
TEST(DeferredEigenTest, ProductsByPartsOfHardMatrices) {
  present_schedule() = Schedule{};
  for (const auto& [name, given] : hard_matrices<float>(46)) {
    for (const float scale : {1.0F, 1e30F, 1e-30F}) {
      SCOPED_TRACE(name + " times " + std::to_string(std::log10(scale)));
      auto a = given;
      for (float& x : a.data) {
        x *= scale;
      }
      const EigenRun<float, Deferred> run(a, 2, 4, {.precision = Precision::split});
      EXPECT_EQ(run.info.kind, 0);
      expect_decomposes(a, run.w, run.v);
    }
  }
}

TEST(DeferredEigenTest, ValuesAlone) {
  for (const int ranks : {1, 3}) {
    expect_ordered<float>(26, ranks, 3, {.vectors = false}, 3);
  }
}

}  // namespace
}  // namespace jaxmg::test
