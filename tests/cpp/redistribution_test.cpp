// Mirroring, transposition and block-cyclic redistribution on thread ranks. Elements encode their
// place in the user's matrix, so one that goes astray is seen.
#include <gtest/gtest.h>

#include <complex>
#include <limits>
#include <sstream>
#include <vector>

#include "algo/cyclic.h"
#include "algo/mirror.h"
#include "algo/transpose.h"
#include "run_ranks.h"
#include "tile/cpu/cpu.h"

namespace jaxmg {
namespace {

using tile::Cpu;

const std::vector<Size> kSizes = {0, 1, 2, 3, 7, 8, 9, 16, 17, 33, 100};

template <class T>
T make(Size re, Size im) {
  if constexpr (is_complex_v<T>) {
    return {static_cast<Real<T>>(re), static_cast<Real<T>>(im)};
  } else {
    return static_cast<T>(re);
  }
}

template <class T>
T conjugate(T x) {
  if constexpr (is_complex_v<T>) {
    return std::conj(x);
  } else {
    return x;
  }
}

// Element (i, j) of a general matrix, exact in every type.
template <class T>
T general(Size i, Size j) {
  return make<T>(1 + 1000 * i + j, 1 + 1000 * j + i);
}

// Element (i, j) of a Hermitian matrix. The diagonal has imaginary parts: nobody may change them.
template <class T>
T hermitian(Size i, Size j) {
  return i >= j ? general<T>(i, j) : conjugate(general<T>(j, i));
}

template <class T>
T nan() {
  const Real<T> x = std::numeric_limits<Real<T>>::quiet_NaN();
  if constexpr (is_complex_v<T>) {
    return {x, x};
  } else {
    return x;
  }
}

// Everything that a rank program is given, on one rank.
template <class T>
class RankSetup {
 public:
  RankSetup(Communicator<Cpu>& comm, tile::CpuLanes& lanes, PlanRequest request)
      : plan_(typed(request, comm.size())),
        scratch_(static_cast<std::size_t>(plan_.scratch_bytes())),
        rank_{comm, lanes, plan_, Workspace(plan_, scratch_.data()), observer_} {}

  Rank<Cpu>& rank() { return rank_; }

 private:
  static PlanRequest typed(PlanRequest request, int ranks) {
    request.type = dtype_of<T>;
    request.ranks = ranks;
    return request;
  }

  Plan plan_;
  std::vector<std::byte> scratch_;
  Observer observer_;
  Rank<Cpu> rank_;
};

// The shard of rows x columns elements, row-major, that `value(local row, column)` gives.
template <class T, class Value>
std::vector<T> make_shard(Size rows, Size columns, const Value& value) {
  std::vector<T> shard;
  for (Size l = 0; l < rows; ++l) {
    for (Size c = 0; c < columns; ++c) {
      shard.push_back(value(l, c));
    }
  }
  return shard;
}

// How many elements differ; a NaN differs from everything.
template <class T>
Size differences(const std::vector<T>& a, const std::vector<T>& b) {
  Size count = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    count += a[i] == b[i] ? 0 : 1;
  }
  return count;
}

std::string describe(const Distribution& d, int rank) {
  std::ostringstream out;
  out << "n " << d.size() << ", ranks " << d.ranks() << ", tile " << d.tile_size() << ", "
      << (d.storage() == Storage::cyclic ? "cyclic" : "contiguous") << ", rank " << rank;
  return out.str();
}

// All tiles of small matrices; some of large ones, where tiny tiles would take long.
std::vector<Size> tiles_of(Size n) {
  std::vector<Size> tiles;
  if (n <= 9) {
    for (Size t = 1; t <= std::max<Size>(n, 1); ++t) {
      tiles.push_back(t);
    }
    return tiles;
  }
  return n <= 17 ? std::vector<Size>{1, 3, 8, n} : std::vector<Size>{7, 16, 18, n};
}

// Staging: the least that the plan grants, one that cuts tiles in odd places, and plenty.
const std::vector<Size> kStagingBytes = {1, 1000, 0};

// A value for rows that no rank owns.
template <class T>
const T kPadding = make<T>(-7, -8);

template <class T>
class Redistribution : public ::testing::Test {
 public:
  // The user's A is `hermitian` where valid(i, j); whatever is not is NaN.
  template <class Valid>
  static std::vector<T> shard(const Distribution& d, int rank, const Valid& valid) {
    return make_shard<T>(d.capacity(), d.size(), [&](Size l, Size c) {
      if (l >= d.local_size(rank)) {
        return kPadding<T>;
      }
      const Size g = *d.global(rank, LocalIndex(l));
      return valid(g, c) ? hermitian<T>(g, c) : nan<T>();
    });
  }
  static std::vector<T> whole(const Distribution& d, int rank) {
    return shard(d, rank, [](Size, Size) { return true; });
  }
};
using Types = ::testing::Types<float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(Redistribution, Types);

template <class T>
void check_mirror_triangle(RankSetup<T>& setup, const Distribution& d, Uplo valid) {
  using Fixture = Redistribution<T>;
  const int me = setup.rank().comm.rank();
  std::vector<T> a =
      Fixture::shard(d, me, [&](Size i, Size j) { return valid == Uplo::lower ? i >= j : i <= j; });
  mirror_triangle(setup.rank(), d, valid, a.data());
  EXPECT_EQ(differences(a, Fixture::whole(d, me)), 0)
      << (valid == Uplo::lower ? "lower, " : "upper, ") << describe(d, me);
}

TYPED_TEST(Redistribution, MirrorTriangleFillsTheOtherHalfWithoutReadingIt) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    run_ranks(ranks, [&](auto& comm, auto& lanes) {
      for (const Size n : kSizes) {
        for (const Size tile : tiles_of(n)) {
          for (const Size bytes : kStagingBytes) {
            RankSetup<TypeParam> setup(
                comm, lanes,
                {.routine = Routine::mirror, .n = n, .tile = tile, .staging_bytes = bytes});
            for (const Storage storage : {Storage::contiguous, Storage::cyclic}) {
              const Distribution d(n, ranks, tile, storage);
              check_mirror_triangle<TypeParam>(setup, d, Uplo::lower);
              check_mirror_triangle<TypeParam>(setup, d, Uplo::upper);
            }
          }
        }
      }
    });
  }
}

// The original matrix as a factorisation leaves it: NaN wherever it may have written.
template <class T>
void check_mirror_elimination(RankSetup<T>& setup, const Distribution& d) {
  using Fixture = Redistribution<T>;
  const int me = setup.rank().comm.rank();
  const Size tile = d.tile_size();
  const auto step = [&](Size g) {
    const GlobalIndex i{g};
    return d.step({d.owner(i), d.tile_of(d.local(i))});
  };
  // Row g of A is column g of M: the element of column c of A lies in M's row c.
  std::vector<T> a = Fixture::shard(d, me, [&](Size g, Size c) { return step(c) < step(g); });
  std::vector<T> saved(static_cast<std::size_t>(d.local_tiles(me) * tile * tile), nan<T>());
  for (Size t = 0; t < d.local_tiles(me); ++t) {
    const Tile self{me, LocalTile(t)};
    const Size first = *d.global_begin(self);
    for (Size j = 0; j < d.rows(self); ++j) {
      for (Size i = 0; i < d.rows(self); ++i) {
        saved[static_cast<std::size_t>((t * tile + j) * tile + i)] =
            hermitian<T>(first + j, first + i);
      }
    }
  }
  mirror_elimination(setup.rank(), d, saved.data(), a.data());
  EXPECT_EQ(differences(a, Fixture::whole(d, me)), 0) << describe(d, me);
}

TYPED_TEST(Redistribution, MirrorEliminationRestoresTheMatrix) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    run_ranks(ranks, [&](auto& comm, auto& lanes) {
      for (const Size n : kSizes) {
        for (const Size tile : tiles_of(n)) {
          const Distribution relabelled(n, ranks, tile);
          std::vector<Tile> order(relabelled.elimination_order().begin(),
                                  relabelled.elimination_order().end());
          std::stable_sort(order.begin(), order.end(), [](Tile a, Tile b) {
            return a.rank % 2 == b.rank % 2 ? a.rank > b.rank : a.rank % 2 > b.rank % 2;
          });
          const Distribution custom(relabelled, order);
          const Distribution natural(n, ranks, tile, Storage::contiguous, Order::natural);
          const Distribution cyclic(n, ranks, tile, Storage::cyclic);
          for (const Size bytes : kStagingBytes) {
            RankSetup<TypeParam> setup(
                comm, lanes,
                {.routine = Routine::mirror, .n = n, .tile = tile, .staging_bytes = bytes});
            for (const Distribution* d : {&relabelled, &custom, &natural, &cyclic}) {
              check_mirror_elimination<TypeParam>(setup, *d);
            }
          }
        }
      }
    });
  }
}

template <class T>
void check_transpose(RankSetup<T>& setup, const Distribution& rows, const Distribution& columns,
                     bool conj) {
  const int me = setup.rank().comm.rank();
  const auto a = make_shard<T>(rows.capacity(), columns.size(), [&](Size l, Size c) {
    return l < rows.local_size(me) ? general<T>(*rows.global(me, LocalIndex(l)), c) : nan<T>();
  });
  const auto expected = make_shard<T>(columns.capacity(), rows.size(), [&](Size l, Size c) {
    if (l >= columns.local_size(me)) {
      return T(0);
    }
    const T x = general<T>(c, *columns.global(me, LocalIndex(l)));
    return conj ? conjugate(x) : x;
  });
  std::vector<T> b(expected.size(), nan<T>());
  distributed_transpose(setup.rank(), rows, columns, conj, a.data(), b.data());
  EXPECT_EQ(differences(b, expected), 0)
      << "rows: " << describe(rows, me) << "; columns: " << describe(columns, me);
}

TYPED_TEST(Redistribution, TransposeOfAnyShape) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    run_ranks(ranks, [&](auto& comm, auto& lanes) {
      for (const Size m : {0, 1, 3, 8, 17, 33}) {
        for (const Size n : {0, 1, 2, 9, 16, 50}) {
          for (const Size bytes : kStagingBytes) {
            RankSetup<TypeParam> setup(comm, lanes,
                                       {.routine = Routine::mirror,
                                        .n = std::max(m, n),
                                        .tile = bytes == 1 ? 2 : 5,
                                        .staging_bytes = bytes});
            const Distribution contiguous(m, ranks, 5);
            const Distribution cyclic(m, ranks, 3, Storage::cyclic);
            const Distribution columns(n, ranks, 4);
            check_transpose<TypeParam>(setup, contiguous, columns, false);
            check_transpose<TypeParam>(setup, contiguous, columns, true);
            check_transpose<TypeParam>(setup, cyclic, columns, true);
          }
        }
      }
    });
  }
}

// To cyclic storage, where each row must be where the Distribution says, and back.
template <class T>
void check_cyclic(RankSetup<T>& setup, Size n, Size tile, Size columns) {
  const int me = setup.rank().comm.rank();
  const int ranks = setup.rank().comm.size();
  const Distribution contiguous(n, ranks, tile);
  const Distribution cyclic(n, ranks, tile, Storage::cyclic);
  const Size capacity = std::max(contiguous.capacity(), cyclic.capacity());
  const auto shard = [&](const Distribution& d, T padding) {
    return make_shard<T>(capacity, columns, [&](Size l, Size c) {
      return l < d.local_size(me) ? general<T>(*d.global(me, LocalIndex(l)), c) : padding;
    });
  };
  std::vector<T> a = shard(contiguous, nan<T>());
  to_cyclic(setup.rank(), n, tile, columns, a.data());
  EXPECT_EQ(differences(a, shard(cyclic, T(0))), 0) << describe(cyclic, me);
  a = shard(cyclic, nan<T>());
  from_cyclic(setup.rank(), n, tile, columns, a.data());
  EXPECT_EQ(differences(a, shard(contiguous, T(0))), 0) << describe(contiguous, me);
}

TYPED_TEST(Redistribution, CyclicThereAndBack) {
  for (int ranks = 1; ranks <= 8; ++ranks) {
    run_ranks(ranks, [&](auto& comm, auto& lanes) {
      for (const Size n : kSizes) {
        std::vector<Size> tiles = tiles_of(n);
        tiles.push_back(n + 3);
        if (n == 100) {
          tiles = {1, 2, 7, 64};
        }
        for (const Size tile : tiles) {
          for (const Size columns : {1, 5}) {
            for (const Size bytes : kStagingBytes) {
              RankSetup<TypeParam> setup(comm, lanes,
                                         {.routine = Routine::cyclic,
                                          .n = n,
                                          .tile = tile,
                                          .columns = columns,
                                          .staging_bytes = bytes});
              check_cyclic<TypeParam>(setup, n, tile, columns);
            }
          }
        }
      }
    });
  }
}

TEST(Cyclic, RowsOfAllPairsOfRanksMakeUpBothStorages) {
  for (Size n = 0; n <= 40; ++n) {
    for (int ranks = 1; ranks <= 8; ++ranks) {
      for (Size tile = 1; tile <= n + 1; ++tile) {
        const Distribution contiguous(n, ranks, tile);
        const Distribution cyclic(n, ranks, tile, Storage::cyclic);
        for (int owner = 0; owner < ranks; ++owner) {
          Size next = 0;  // in cyclic storage, ascending holders follow each other
          for (int holder = 0; holder < ranks; ++holder) {
            const CyclicRows rows = cyclic_rows(contiguous, cyclic, holder, owner);
            for (Size k = 0; k < rows.count; ++k) {
              ASSERT_EQ(*rows.cyclic + k, next);
              ASSERT_EQ(contiguous.owner(cyclic.global(owner, LocalIndex(next))), holder);
              ++next;
            }
          }
          ASSERT_EQ(next, cyclic.local_size(owner));
        }
      }
    }
  }
}

TEST(BlockChunks, HoldEveryElementOnceAndNoMoreThanFits) {
  for (Size capacity = 1; capacity <= 14; ++capacity) {
    BlockChunks chunks(capacity);
    std::vector<int> seen(6 * 11, 0);
    for (const Size column : {0, 3}) {
      for (const Size row : {0, 4, 8}) {
        chunks.add({.row = GlobalIndex(row),
                    .column = LocalIndex(column),
                    .rows = std::min<Size>(4, 11 - row),
                    .columns = 3,
                    .image_row = GlobalIndex(column),
                    .image_column = LocalIndex(row)});
      }
    }
    for (Size c = 0; c < chunks.count(); ++c) {
      Size held = 0;
      for (const TransposedBlock& b : chunks.chunk(c)) {
        held += b.rows * b.columns;
        EXPECT_EQ(*b.row, *b.image_column);
        EXPECT_EQ(*b.column, *b.image_row);
        for (Size j = 0; j < b.columns; ++j) {
          for (Size i = 0; i < b.rows; ++i) {
            ++seen[static_cast<std::size_t>((*b.column + j) * 11 + *b.row + i)];
          }
        }
      }
      EXPECT_GT(held, 0);
      EXPECT_LE(held, capacity);
    }
    for (const int times : seen) {
      EXPECT_EQ(times, 1) << "capacity " << capacity;
    }
    EXPECT_TRUE(chunks.chunk(chunks.count()).empty());
  }
}

TEST(Staging, WithoutRoomIsRefusedOnEveryRank) {
  const auto errors = collect_ranks(3, [](auto& comm, auto& lanes) {
    RankSetup<double> setup(comm, lanes, {.routine = Routine::logdet, .n = 12});
    std::vector<double> a(12 * 12);
    to_cyclic(setup.rank(), 12, 2, 12, a.data());
  });
  for (const auto& error : errors) {
    ASSERT_TRUE(error);
    EXPECT_THROW(std::rethrow_exception(error), std::invalid_argument);
  }
}

}  // namespace
}  // namespace jaxmg
