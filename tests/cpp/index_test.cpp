// Typed indices: what may be done with them, and above all what may not.
#include "core/index.h"

#include <gtest/gtest.h>

#include <concepts>
#include <limits>
#include <stdexcept>
#include <type_traits>

#include "core/types.h"

namespace jaxmg {
namespace {

template <class A, class B>
concept Comparable = requires(A a, B b) {
  a == b;
}
|| requires(A a, B b) {
  a < b;
};
template <class A, class B>
concept Subtractable = requires(A a, B b) {
  a - b;
};
template <class A, class B>
concept Addable = requires(A a, B b) {
  a + b;
};

// A and B are different kinds of index: nothing leads from one to the other.
template <class A, class B>
constexpr bool kApart =
    !std::convertible_to<A, B> && !std::constructible_from<A, B> && !std::assignable_from<A&, B> &&
    !Comparable<A, B> && !Subtractable<A, B> && !Addable<A, B>;

template <class A, class... Others>
constexpr bool kApartFromAll = (kApart<A, Others> && ...);

static_assert(kApartFromAll<GlobalIndex, LocalIndex, LocalTile, Step>);
static_assert(kApartFromAll<LocalIndex, GlobalIndex, LocalTile, Step>);
static_assert(kApartFromAll<LocalTile, GlobalIndex, LocalIndex, Step>);
static_assert(kApartFromAll<Step, GlobalIndex, LocalIndex, LocalTile>);
static_assert(kApart<GlobalIndex2D, LocalIndex2D>);

// Bare numbers become indices only when asked for, indices become numbers only by *.
static_assert(!std::convertible_to<Size, GlobalIndex>);
static_assert(!std::convertible_to<GlobalIndex, Size>);
static_assert(std::constructible_from<GlobalIndex, Size>);
static_assert(!Comparable<GlobalIndex, Size>);

// Distances are numbers; two places have no sum.
static_assert(std::same_as<decltype(Step(3) - Step(1)), Size>);
static_assert(std::same_as<decltype(Step(3) - Size{1}), Step>);
static_assert(std::same_as<decltype(Step(3) + Size{1}), Step>);
static_assert(!Addable<Step, Step>);

// As cheap as the number inside.
static_assert(sizeof(GlobalIndex) == sizeof(Size));
static_assert(std::is_trivially_copyable_v<GlobalIndex>);

TEST(Index, Arithmetic) {
  LocalIndex i(5);
  EXPECT_EQ(*i, 5);
  EXPECT_EQ(*(i + 2), 7);
  EXPECT_EQ(*(i - 2), 3);
  EXPECT_EQ((i + 9) - i, 9);
  EXPECT_EQ(*++i, 6);
  EXPECT_EQ(*(i += -4), 2);
  EXPECT_EQ(*LocalIndex(), 0);
}

TEST(Index, Order) {
  EXPECT_LT(Step(1), Step(2));
  EXPECT_GE(Step(2), Step(2));
  EXPECT_EQ(Step(2), Step(2));
  EXPECT_NE(Step(2), Step(3));
}

TEST(Index, HoldsWhat32BitsCannot) {
  const Size n = 65536;
  EXPECT_EQ(*(GlobalIndex(n * n) + n), n * n + n);
}

TEST(Index, PlacesOfTwoCoordinates) {
  const GlobalIndex2D a{GlobalIndex(1), GlobalIndex(2)};
  EXPECT_EQ(a, (GlobalIndex2D{GlobalIndex(1), GlobalIndex(2)}));
  EXPECT_NE(a, (GlobalIndex2D{GlobalIndex(2), GlobalIndex(1)}));
  EXPECT_EQ((Tile{1, LocalTile(2)}), (Tile{1, LocalTile(2)}));
  EXPECT_NE((Tile{1, LocalTile(2)}), (Tile{2, LocalTile(2)}));
}

TEST(Sizes, NarrowPassesWhatFitsAndThrowsForTheRest) {
  constexpr Size most = std::numeric_limits<int>::max();
  constexpr Size least = std::numeric_limits<int>::min();
  EXPECT_EQ(narrow(0), 0);
  EXPECT_EQ(narrow(most), most);
  EXPECT_EQ(narrow(least), least);
  EXPECT_THROW(narrow(most + 1), std::overflow_error);
  EXPECT_THROW(narrow(least - 1), std::overflow_error);
}

TEST(Sizes, Rounding) {
  EXPECT_EQ(ceil_div(0, 3), 0);
  EXPECT_EQ(ceil_div(1, 3), 1);
  EXPECT_EQ(ceil_div(3, 3), 1);
  EXPECT_EQ(ceil_div(4, 3), 2);
  EXPECT_EQ(round_up(0, 256), 0);
  EXPECT_EQ(round_up(1, 256), 256);
  EXPECT_EQ(round_up(257, 256), 512);
  EXPECT_EQ(ceil_div(Size{1} << 62, 2), Size{1} << 61);
}

}  // namespace
}  // namespace jaxmg
