// Eigenvalues and eigenvectors on thread ranks.
#include "algo/eigen.h"

#include <gtest/gtest.h>

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

TYPED_TEST(EigenTest, ChosenTile) {
  for (int ranks : {1, 3, 8}) {
    expect_solves(hermitian<TypeParam>(212, 3), ranks, 0);
  }
}

}  // namespace
}  // namespace jaxmg::test
