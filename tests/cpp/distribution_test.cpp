// Where rows lie, how they are cut and in which order they go.
#include "core/distribution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

namespace jaxmg {
namespace {

// Every distribution of up to `most` rows on up to 8 ranks.
template <class Check>
void for_all(Size most, const Check& check) {
  for (Size n = 0; n <= most; ++n) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (Size tile = 1; tile <= std::max<Size>(n, 1); ++tile) {
        for (const Storage storage : {Storage::contiguous, Storage::cyclic}) {
          for (const Order order : {Order::relabelled, Order::natural}) {
            SCOPED_TRACE(::testing::Message()
                         << "n " << n << ", ranks " << ranks << ", tile " << tile << ", storage "
                         << static_cast<int>(storage) << ", order " << static_cast<int>(order));
            check(Distribution(n, ranks, tile, storage, order), order);
            if (::testing::Test::HasFatalFailure()) {
              return;
            }
          }
        }
      }
    }
  }
}

struct Row {
  int rank;
  Size local;
  Size tile;
  Size step;
};

void expect_rows(const Distribution& d, const std::vector<Row>& rows) {
  ASSERT_EQ(d.size(), static_cast<Size>(rows.size()));
  for (Size g = 0; g < d.size(); ++g) {
    const Row& row = rows[static_cast<std::size_t>(g)];
    const GlobalIndex global{g};
    EXPECT_EQ(d.owner(global), row.rank) << g;
    EXPECT_EQ(*d.local(global), row.local) << g;
    EXPECT_EQ(*d.tile_of(LocalIndex(row.local)), row.tile) << g;
    EXPECT_EQ(*d.step({row.rank, LocalTile(row.tile)}), row.step) << g;
    EXPECT_EQ(d.tile(Step(row.step)), (Tile{row.rank, LocalTile(row.tile)})) << g;
    EXPECT_EQ(d.global(row.rank, LocalIndex(row.local)), global) << g;
  }
}

// n = 10 on 3 ranks, tile 2: the table in the header.
TEST(Distribution, WorkedNumbersOfContiguousStorage) {
  const Distribution d(10, 3, 2);
  EXPECT_EQ(d.capacity(), 4);
  EXPECT_EQ(d.capacity_tiles(), 2);
  EXPECT_EQ(d.steps(), 5);
  expect_rows(d, {{0, 0, 0, 0},
                  {0, 1, 0, 0},
                  {0, 2, 1, 3},
                  {0, 3, 1, 3},
                  {1, 0, 0, 1},
                  {1, 1, 0, 1},
                  {1, 2, 1, 4},
                  {1, 3, 1, 4},
                  {2, 0, 0, 2},
                  {2, 1, 0, 2}});
  EXPECT_EQ(d.local_size(0), 4);
  EXPECT_EQ(d.local_size(1), 4);
  EXPECT_EQ(d.local_size(2), 2);
  EXPECT_EQ(d.eliminated(Step(0)), 0);
  EXPECT_EQ(d.eliminated(Step(3)), 6);
  EXPECT_EQ(d.remaining(Step(3)), 4);
  const std::vector<RowRange> after_two = {{GlobalIndex(2), 2, 0}, {GlobalIndex(6), 4, 2}};
  EXPECT_EQ(d.rows_from(Step(2)), after_two);
  EXPECT_EQ(packed_position(after_two, GlobalIndex(3)), 1);
  EXPECT_EQ(packed_position(after_two, GlobalIndex(8)), 4);
  const std::vector<RowRange> second_and_third = {{GlobalIndex(4), 2, 0}, {GlobalIndex(8), 2, 2}};
  EXPECT_EQ(d.rows_between(Step(1), Step(3)), second_and_third);
}

TEST(Distribution, WorkedNumbersOfNaturalOrder) {
  const Distribution d(10, 3, 2, Storage::contiguous, Order::natural);
  expect_rows(d, {{0, 0, 0, 0},
                  {0, 1, 0, 0},
                  {0, 2, 1, 1},
                  {0, 3, 1, 1},
                  {1, 0, 0, 2},
                  {1, 1, 0, 2},
                  {1, 2, 1, 3},
                  {1, 3, 1, 3},
                  {2, 0, 0, 4},
                  {2, 1, 0, 4}});
  EXPECT_EQ(d.rows_from(Step(1)), (std::vector<RowRange>{{GlobalIndex(2), 8, 0}}));
}

// Tiles 0 .. 4 of rows 01 23 45 67 8 are dealt to the ranks in turn.
TEST(Distribution, WorkedNumbersOfCyclicStorage) {
  const Distribution d(9, 2, 2, Storage::cyclic);
  EXPECT_EQ(d.capacity(), 6);
  EXPECT_EQ(d.local_size(0), 5);
  EXPECT_EQ(d.local_size(1), 4);
  expect_rows(d, {{0, 0, 0, 0},
                  {0, 1, 0, 0},
                  {1, 0, 0, 1},
                  {1, 1, 0, 1},
                  {0, 2, 1, 2},
                  {0, 3, 1, 2},
                  {1, 2, 1, 3},
                  {1, 3, 1, 3},
                  {0, 4, 2, 4}});
  EXPECT_EQ(d.rows({0, LocalTile(2)}), 1);
}

// 5 rows on 4 ranks, 2 a rank: the third has one, the fourth none.
TEST(Distribution, RanksWithoutRows) {
  const Distribution d(5, 4, 2);
  EXPECT_EQ(d.capacity(), 2);
  EXPECT_EQ(d.local_size(2), 1);
  EXPECT_EQ(d.local_size(3), 0);
  EXPECT_EQ(d.local_tiles(3), 0);
  EXPECT_EQ(*d.first_tile_from(Step(0), 3), 0);
  EXPECT_EQ(d.rows({2, LocalTile(0)}), 1);
  EXPECT_EQ(d.steps(), 3);

  const Distribution empty(0, 4, 2);
  EXPECT_EQ(empty.steps(), 0);
  EXPECT_EQ(empty.capacity(), 0);
  EXPECT_EQ(empty.remaining(Step(0)), 0);
  EXPECT_TRUE(empty.rows_from(Step(0)).empty());

  const Distribution dealt(5, 4, 3, Storage::cyclic);
  EXPECT_EQ(dealt.local_size(0), 3);
  EXPECT_EQ(dealt.local_size(1), 2);
  EXPECT_EQ(dealt.local_size(2), 0);
}

TEST(Distribution, EveryRowHasOnePlace) {
  for_all(40, [](const Distribution& d, Order) {
    Size rows = 0;
    for (int r = 0; r < d.ranks(); ++r) {
      ASSERT_GE(d.local_size(r), 0);
      ASSERT_LE(d.local_size(r), d.capacity());
      rows += d.local_size(r);
      for (Size l = 0; l < d.local_size(r); ++l) {
        const GlobalIndex g = d.global(r, LocalIndex(l));
        ASSERT_EQ(d.owner(g), r);
        ASSERT_EQ(*d.local(g), l);
      }
    }
    ASSERT_EQ(rows, d.size());
    for (Size g = 0; g < d.size(); ++g) {
      const GlobalIndex global{g};
      ASSERT_EQ(d.global(d.owner(global), d.local(global)), global);
    }
  });
}

TEST(Distribution, TilesCoverEachRankAndAreOneRunOfRows) {
  for_all(24, [](const Distribution& d, Order) {
    for (int r = 0; r < d.ranks(); ++r) {
      Size next = 0;
      for (Size t = 0; t < d.local_tiles(r); ++t) {
        const Tile tile{r, LocalTile(t)};
        ASSERT_EQ(*d.begin(tile.local), next);
        ASSERT_GT(d.rows(tile), 0);
        ASSERT_LE(d.rows(tile), d.tile_size());
        for (Size i = 0; i < d.rows(tile); ++i) {
          ASSERT_EQ(*d.tile_of(LocalIndex(next)), t);
          ASSERT_EQ(d.global(r, LocalIndex(next)), d.global_begin(tile) + i);
          ++next;
        }
      }
      ASSERT_EQ(next, d.local_size(r));
      ASSERT_LE(d.local_tiles(r), d.capacity_tiles());
    }
  });
}

TEST(Distribution, EveryTileIsEliminatedOnce) {
  for_all(24, [](const Distribution& d, Order order) {
    Size rows = 0;
    Size tiles = 0;
    for (int r = 0; r < d.ranks(); ++r) {
      tiles += d.local_tiles(r);
    }
    ASSERT_EQ(d.steps(), tiles);
    GlobalIndex last(-1);
    for (Size s = 0; s < d.steps(); ++s) {
      const Tile tile = d.tile(Step(s));
      ASSERT_EQ(d.step(tile), Step(s));
      ASSERT_EQ(d.eliminated(Step(s)), rows);
      ASSERT_EQ(d.remaining(Step(s)), d.size() - rows);
      rows += d.rows(tile);
      if (order == Order::natural || d.storage() == Storage::cyclic) {
        ASSERT_LT(last, d.global_begin(tile));
      } else if (s > 0) {
        const Tile before = d.tile(Step(s - 1));
        ASSERT_TRUE(before.local < tile.local ||
                    (before.local == tile.local && before.rank < tile.rank));
      }
      last = d.global_begin(tile);
    }
    ASSERT_EQ(rows, d.size());
    ASSERT_EQ(d.remaining(Step(d.steps())), 0);
  });
}

TEST(Distribution, FirstTileFromIsTheFirstNotYetEliminated) {
  for_all(16, [](const Distribution& d, Order) {
    for (Size s = 0; s <= d.steps(); ++s) {
      for (int r = 0; r < d.ranks(); ++r) {
        const Size first = *d.first_tile_from(Step(s), r);
        for (Size t = 0; t < d.local_tiles(r); ++t) {
          ASSERT_EQ(t >= first, *d.step({r, LocalTile(t)}) >= s);
        }
      }
    }
  });
}

// Ascending, apart from each other by at least one row, packed without gaps.
void check_ranges(const Distribution& d, const std::vector<RowRange>& ranges) {
  Size packed = 0;
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    ASSERT_GT(ranges[i].count, 0);
    ASSERT_EQ(ranges[i].packed, packed);
    packed += ranges[i].count;
    ASSERT_GE(*ranges[i].begin, 0);
    ASSERT_LE(*ranges[i].begin + ranges[i].count, d.size());
    if (i > 0) {
      ASSERT_LT(ranges[i - 1].begin + ranges[i - 1].count, ranges[i].begin);
    }
  }
  ASSERT_LE(ranges.size(), static_cast<std::size_t>(d.ranks()));
}

bool holds(const std::vector<RowRange>& ranges, GlobalIndex g) {
  return std::any_of(ranges.begin(), ranges.end(), [&](const RowRange& range) {
    return range.begin <= g && g < range.begin + range.count;
  });
}

Step step_of(const Distribution& d, GlobalIndex g) {
  return d.step({d.owner(g), d.tile_of(d.local(g))});
}

TEST(Distribution, RangesHoldExactlyTheRowsOfTheirSteps) {
  for_all(14, [](const Distribution& d, Order) {
    for (Size s = 0; s <= d.steps(); ++s) {
      const auto remaining = d.rows_from(Step(s));
      check_ranges(d, remaining);
      Size sum = 0;
      for (const RowRange& range : remaining) {
        sum += range.count;
      }
      ASSERT_EQ(sum, d.remaining(Step(s)));
      for (Size t = s; t <= d.steps(); ++t) {
        const auto ranges = d.rows_between(Step(s), Step(t));
        check_ranges(d, ranges);
        for (Size g = 0; g < d.size(); ++g) {
          const Size step = *step_of(d, GlobalIndex(g));
          ASSERT_EQ(holds(ranges, GlobalIndex(g)), s <= step && step < t);
        }
      }
    }
  });
}

TEST(Distribution, PackedPositionsAreAscendingWithoutGaps) {
  for_all(20, [](const Distribution& d, Order) {
    for (Size s = 0; s <= d.steps(); ++s) {
      const auto ranges = d.rows_from(Step(s));
      Size next = 0;
      for (Size g = 0; g < d.size(); ++g) {
        if (holds(ranges, GlobalIndex(g))) {
          ASSERT_EQ(packed_position(ranges, GlobalIndex(g)), next);
          ++next;
        } else {
          ASSERT_THROW(packed_position(ranges, GlobalIndex(g)), std::out_of_range);
        }
      }
    }
  });
}

// What is left later is part of what is left now: each later range lies inside one earlier range,
// so that a panel can be cut from the one before.
TEST(Distribution, LaterRangesLieInsideEarlierOnes) {
  for_all(20, [](const Distribution& d, Order) {
    for (Size s = 0; s < d.steps(); ++s) {
      const auto now = d.rows_from(Step(s));
      for (const RowRange& later : d.rows_from(Step(s + 1))) {
        ASSERT_TRUE(std::any_of(now.begin(), now.end(), [&](const RowRange& range) {
          return range.begin <= later.begin &&
                 later.begin + later.count <= range.begin + range.count;
        }));
      }
    }
  });
}

TEST(Distribution, CustomEliminationOrder) {
  const Distribution like(10, 3, 2);
  // Rank 2 first, then 0, then 1.
  const std::vector<Tile> order = {{2, LocalTile(0)},
                                   {0, LocalTile(0)},
                                   {0, LocalTile(1)},
                                   {1, LocalTile(0)},
                                   {1, LocalTile(1)}};
  const Distribution d(like, order);
  EXPECT_EQ(d.size(), like.size());
  EXPECT_EQ(d.tile_size(), like.tile_size());
  EXPECT_EQ(d.capacity(), like.capacity());
  EXPECT_NE(d, like);
  EXPECT_EQ(Distribution(like, {like.elimination_order().begin(), like.elimination_order().end()}),
            like);
  for (Size s = 0; s < d.steps(); ++s) {
    EXPECT_EQ(d.tile(Step(s)), order[static_cast<std::size_t>(s)]);
    EXPECT_EQ(d.step(order[static_cast<std::size_t>(s)]), Step(s));
  }
  EXPECT_EQ(d.eliminated(Step(1)), 2);
  EXPECT_EQ(d.rows_from(Step(1)), (std::vector<RowRange>{{GlobalIndex(0), 8, 0}}));
  EXPECT_EQ(d.rows_from(Step(2)), (std::vector<RowRange>{{GlobalIndex(2), 6, 0}}));
  EXPECT_EQ(d.rows_between(Step(0), Step(2)),
            (std::vector<RowRange>{{GlobalIndex(0), 2, 0}, {GlobalIndex(8), 2, 2}}));
}

TEST(Distribution, RefusesWrongEliminationOrders) {
  const Distribution like(6, 2, 2);  // 3 rows a rank: tiles of 2 and 1
  const auto with = [&](std::vector<Tile> order) { return Distribution(like, std::move(order)); };
  const Tile a0{0, LocalTile(0)}, a1{0, LocalTile(1)}, b0{1, LocalTile(0)}, b1{1, LocalTile(1)};
  EXPECT_NO_THROW(with({b0, b1, a0, a1}));
  EXPECT_THROW(with({a0, b0, a1}), std::invalid_argument);          // one is missing
  EXPECT_THROW(with({a0, b0, a1, b1, b1}), std::invalid_argument);  // one too many
  EXPECT_THROW(with({a0, b0, a1, a1}), std::invalid_argument);      // twice the same
  EXPECT_THROW(with({a0, b0, a1, {2, LocalTile(0)}}), std::invalid_argument);
  EXPECT_THROW(with({a0, b0, a1, {1, LocalTile(2)}}), std::invalid_argument);
  EXPECT_THROW(with({a0, b0, a1, {-1, LocalTile(0)}}), std::invalid_argument);
  EXPECT_THROW(with({a1, a0, b0, b1}), std::invalid_argument);  // not in local order

  const Distribution cyclic(6, 2, 2, Storage::cyclic);
  EXPECT_NO_THROW(Distribution(cyclic, {a0, b0, a1}));
  EXPECT_THROW(Distribution(cyclic, {a0, a1, b0}), std::invalid_argument);
}

TEST(Distribution, RefusesImpossibleSizes) {
  EXPECT_THROW(Distribution(-1, 1, 1), std::invalid_argument);
  EXPECT_THROW(Distribution(4, 0, 1), std::invalid_argument);
  EXPECT_THROW(Distribution(4, -2, 1), std::invalid_argument);
  EXPECT_THROW(Distribution(4, 2, 0), std::invalid_argument);
  EXPECT_NO_THROW(Distribution(0, 1, 1));
}

TEST(Distribution, EqualIfEverythingIs) {
  EXPECT_EQ(Distribution(10, 3, 2), Distribution(10, 3, 2));
  EXPECT_NE(Distribution(10, 3, 2), Distribution(11, 3, 2));
  EXPECT_NE(Distribution(10, 3, 2), Distribution(10, 2, 2));
  EXPECT_NE(Distribution(10, 3, 2), Distribution(10, 3, 3));
  EXPECT_NE(Distribution(10, 3, 2), Distribution(10, 3, 2, Storage::cyclic));
  EXPECT_NE(Distribution(10, 3, 2), Distribution(10, 3, 2, Storage::contiguous, Order::natural));
}

TEST(Distribution, LargeIndicesDoNotOverflow) {
  const Size n = Size{3} << 33;
  const Size tile = Size{1} << 30;
  for (const Storage storage : {Storage::contiguous, Storage::cyclic}) {
    const Distribution d(n, 5, tile, storage);
    for (const Size g : {Size{0}, n / 2 + 1, n - 1}) {
      EXPECT_EQ(*d.global(d.owner(GlobalIndex(g)), d.local(GlobalIndex(g))), g);
    }
    EXPECT_EQ(d.remaining(Step(0)), n);
  }
}

}  // namespace
}  // namespace jaxmg
