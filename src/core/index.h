// Typed indices. An index of one kind does not convert to, compare with or add to one of another
// kind, so that a local row can never be used where a global one is meant.
//
//   index   + Size  -> index        index - index -> Size
//   index   < index (same kind)     *index        -> the bare number
#pragma once

#include <compare>

#include "core/types.h"

namespace jaxmg {

template <class Kind>
class Index {
 public:
  constexpr Index() = default;
  constexpr explicit Index(Size value) : value_(value) {}

  constexpr Size operator*() const { return value_; }
  constexpr auto operator<=>(const Index&) const = default;

  constexpr Index& operator++() { return *this += 1; }
  constexpr Index& operator+=(Size step) {
    value_ += step;
    return *this;
  }
  friend constexpr Index operator+(Index i, Size step) { return Index(i.value_ + step); }
  friend constexpr Index operator-(Index i, Size step) { return Index(i.value_ - step); }
  friend constexpr Size operator-(Index a, Index b) { return a.value_ - b.value_; }

 private:
  Size value_ = 0;
};

struct GlobalElementKind {};
struct LocalElementKind {};
struct LocalTileKind {};
struct StepKind {};

using GlobalIndex = Index<GlobalElementKind>;  // element of the user's matrix, 0 .. n-1
using LocalIndex = Index<LocalElementKind>;    // element within one rank's shard
using LocalTile = Index<LocalTileKind>;        // tile within one rank's shard
using Step = Index<StepKind>;                  // place of a tile in the elimination order

// Position of a matrix element; both coordinates are of the same kind.
template <class Kind>
struct Index2D {
  Index<Kind> row;
  Index<Kind> col;
  constexpr bool operator==(const Index2D&) const = default;
};

using GlobalIndex2D = Index2D<GlobalElementKind>;
using LocalIndex2D = Index2D<LocalElementKind>;

// A tile named by the rank that holds it and its place there.
struct Tile {
  int rank = 0;
  LocalTile local;
  constexpr bool operator==(const Tile&) const = default;
};

}  // namespace jaxmg
