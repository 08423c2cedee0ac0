// Plans: sizes of every buffer in 64 bits, scratch that is laid out without overlap.
#include "core/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/workspace.h"

namespace jaxmg {
namespace {

constexpr Routine kRoutines[] = {Routine::potrf,  Routine::potrs,  Routine::logdet, Routine::locate,
                                 Routine::mirror, Routine::cyclic, Routine::getrf,  Routine::getrs,
                                 Routine::getdet, Routine::getri,  Routine::posv,   Routine::gesv};
constexpr DType kTypes[] = {DType::f32, DType::f64, DType::c64, DType::c128};

// Plans of every routine and type, for sizes on both sides of where 32 bits end, and small ones.
template <class Check>
void for_plans(const Check& check) {
  const std::vector<Size> sizes = {0, 1, 2, 7, 100, 46340, 46341, 65535, 65536, Size{1} << 20};
  for (const Routine routine : kRoutines) {
    for (const DType type : kTypes) {
      for (const Size n : sizes) {
        for (const int ranks : {1, 3, 8}) {
          for (const Platform platform : {Platform::cpu, Platform::cuda}) {
            for (const bool mirror : {false, true}) {
              SCOPED_TRACE(::testing::Message()
                           << name(routine) << ", type " << static_cast<int>(type) << ", n " << n
                           << ", ranks " << ranks << ", cuda " << (platform == Platform::cuda)
                           << ", mirror " << mirror);
              check(Plan({.routine = routine,
                          .type = type,
                          .n = n,
                          .nrhs = 3,
                          .ranks = ranks,
                          .platform = platform,
                          .mirror = mirror}));
            }
          }
        }
      }
    }
  }
}

Plan plan_of(Routine routine, DType type, Size n, int ranks, Size tile) {
  return Plan({.routine = routine, .type = type, .n = n, .ranks = ranks, .tile = tile});
}

TEST(Plan, PartsOfLuPanelsOnlyWhereProductsAreSplit) {
  PlanRequest q{.routine = Routine::getrf, .type = DType::f32, .n = 1001, .ranks = 2};
  q.precision = Precision::split;
  for (const Platform platform : {Platform::cpu, Platform::cuda}) {
    q.platform = platform;
    for (const DType type : kTypes) {
      q.type = type;
      const Plan plan(q);
      const bool split = platform == Platform::cuda && (type == DType::f32 || type == DType::c64);
      EXPECT_EQ(plan.precision(), split ? Precision::split : Precision::native);
      // Four halves for a number of L, whose columns have a multiple of eight rows, three for one
      // of U; twelve and six for complex ones.
      const Size tile = plan.tile();
      const Size lower = !split ? 0 : type == DType::c64 ? 12 : 4;
      const Size upper = !split ? 0 : type == DType::c64 ? 6 : 3;
      EXPECT_EQ(plan.entry(Buffer::split_even).bytes(), lower * 2 * 1008 * tile);
      EXPECT_EQ(plan.entry(Buffer::split_odd).bytes(), lower * 2 * 1008 * tile);
      EXPECT_EQ(plan.entry(Buffer::split_block).bytes(), upper * 2 * 501 * tile);
      EXPECT_EQ(plan.entry(Buffer::row_scale).bytes(), split ? 4 * (1001 + 501) : 0);
      EXPECT_EQ(plan.entry(Buffer::inverse_scale).bytes(), split ? 4 * (1001 + 501 + 1) : 0);
    }
  }
  q.platform = Platform::cuda;
  for (const DType type : {DType::f32, DType::c64}) {
    q.type = type;
    q.precision = Precision::split;
    const Size tile = Plan(q).tile();
    q.precision = Precision::native;
    EXPECT_EQ(Plan(q).tile(), tile);  // solutions do not know how the factor was made
  }
}

TEST(Plan, PartsOfCholeskyPanels) {
  for (const DType type : kTypes) {
    PlanRequest q{.routine = Routine::potrf, .type = type, .n = 1001, .ranks = 2};
    q.precision = Precision::split;
    q.platform = Platform::cuda;
    const Plan plan(q);
    const Size halves = type == DType::f32 ? 4 : type == DType::c64 ? 18 : 0;
    EXPECT_EQ(plan.precision(), halves > 0 ? Precision::split : Precision::native);
    EXPECT_EQ(plan.entry(Buffer::split_even).bytes(), halves * 2 * 1008 * plan.tile());
    // Panels of up to 256 columns, and complex ones, are made with numbers as they are.
    EXPECT_LE(plan.tile(), 256);
    EXPECT_EQ(plan.entry(Buffer::split_block).count, 0);
    q.tile = 500;
    EXPECT_EQ(Plan(q).entry(Buffer::split_block).bytes(),
              type == DType::f32 ? halves * 1008 * 500 : 0);
    EXPECT_EQ(plan.entry(Buffer::row_scale).bytes(), halves > 0 ? 4 * 1002 : 0);
    EXPECT_EQ(plan.entry(Buffer::inverse_scale).bytes(), halves > 0 ? 4 * (1002 + 1) : 0);
  }
}

TEST(Plan, MatrixBytesBeyond32Bits) {
  for (const DType type : kTypes) {
    for (const Size n : {46340, 46341, 65535, 65536, 1 << 20}) {
      for (const int ranks : {1, 3, 8}) {
        const Plan plan = plan_of(Routine::potrf, type, n, ranks, 512);
        const Size rows = (n + ranks - 1) / ranks;
        EXPECT_EQ(plan.entry(Buffer::matrix).count, rows * n);
        EXPECT_EQ(plan.entry(Buffer::matrix).bytes(), rows * n * size_of(type));
        EXPECT_GE(plan.total_bytes(), rows * n * size_of(type));
      }
    }
  }
  EXPECT_EQ(
      plan_of(Routine::potrf, DType::c128, Size{1} << 20, 1, 512).entry(Buffer::matrix).bytes(),
      Size{1} << 44);
}

TEST(Plan, ScratchIsAlignedDisjointAndInside) {
  for_plans([](const Plan& plan) {
    std::vector<Entry> scratch;
    for (const Entry& e : plan.entries()) {
      ASSERT_GE(e.count, 0);
      if (e.place == Place::scratch) {
        scratch.push_back(e);
      }
    }
    std::sort(scratch.begin(), scratch.end(),
              [](const Entry& a, const Entry& b) { return a.offset < b.offset; });
    Size end = 0;
    for (const Entry& e : scratch) {
      ASSERT_EQ(e.offset % 256, 0);
      ASSERT_GE(e.offset, end);
      end = e.offset + e.bytes();
    }
    ASSERT_LE(end, plan.scratch_bytes());
  });
}

TEST(Plan, TotalIsScratchAndWhatLiesOutside) {
  for_plans([](const Plan& plan) {
    Size outside = 0;
    for (const Entry& e : plan.entries()) {
      outside += e.place == Place::scratch ? 0 : e.bytes();
    }
    ASSERT_EQ(plan.total_bytes(), plan.scratch_bytes() + outside);
  });
}

TEST(Plan, EachBufferHasOneEntry) {
  for_plans([](const Plan& plan) {
    std::map<Buffer, int> seen;
    for (const Entry& e : plan.entries()) {
      ASSERT_EQ(++seen[e.buffer], 1) << name(e.buffer);
      ASSERT_EQ(plan.entry(e.buffer).count, e.count);
    }
  });
}

TEST(Plan, TilesSuitTheShard) {
  for_plans([](const Plan& plan) {
    ASSERT_GE(plan.tile(), 1);
    ASSERT_GE(plan.group(), 1);
    ASSERT_GE(plan.rhs_block(), 1);
    const Size rows = ceil_div(plan.request().n, plan.request().ranks);
    ASSERT_LE(plan.tile(), std::max<Size>(rows, 1));
    const Distribution d = plan.distribution();
    ASSERT_EQ(d.tile_size(), plan.tile());
    ASSERT_EQ(d.size(), plan.request().n);
    ASSERT_EQ(d.ranks(), plan.request().ranks);
  });
  EXPECT_EQ(plan_of(Routine::potrf, DType::f64, 100, 4, 7).tile(), 7);
  EXPECT_EQ(plan_of(Routine::potrf, DType::f64, 100, 4, 70).tile(), 25);
}

TEST(Plan, ComplexPanelsOfWideTilesComeInPartsWhereTheirChainDecides) {
  const auto plan = [](Size n, int ranks, Size tile = 0, DType type = DType::c128) {
    PlanRequest q{.routine = Routine::potrf, .type = type, .n = n, .ranks = ranks};
    q.platform = Platform::cuda;
    q.tile = tile;
    return Plan(q);
  };
  EXPECT_EQ(plan(16384, 2).tile(), 512);
  EXPECT_EQ(plan(16384, 2).panel_parts(), 4);
  EXPECT_EQ(plan(16384, 2, 384).panel_parts(), 2);
  EXPECT_EQ(plan(16384, 2, 256).panel_parts(), 1);
  EXPECT_EQ(plan(5000, 2).panel_parts(), 1);
  EXPECT_EQ(plan(16384, 1).panel_parts(), 1);
  EXPECT_EQ(plan(65536, 2).panel_parts(), 1);
  EXPECT_EQ(plan(16384, 2, 0, DType::f64).panel_parts(), 1) << "made in one launch";
  // Longer updates hide a panel and its way.
  EXPECT_EQ(plan(16384, 2).panel_parts(1000), 4);
  EXPECT_EQ(plan(16384, 2).panel_parts(16000), 1);
}

TEST(Plan, TilesOfProductsByPartsAreNarrowerOnSeveralGpus) {
  const auto tile = [](Size n, int ranks, Precision precision) {
    PlanRequest q{.routine = Routine::potrf, .type = DType::f32, .n = n, .ranks = ranks};
    q.platform = Platform::cuda;
    q.precision = precision;
    return Plan(q).tile();
  };
  EXPECT_EQ(tile(32768, 2, Precision::split), 512);
  EXPECT_EQ(tile(32768, 2, Precision::native), 1024);
  EXPECT_EQ(tile(32768, 1, Precision::split), 1024);
  EXPECT_EQ(tile(65536, 2, Precision::split), 1024);
}

// Their inner dimension is twice that of real ones.
TEST(Plan, TilesOfComplexProductsByParts) {
  const auto tile = [](Size n, Precision precision) {
    PlanRequest q{.routine = Routine::potrf, .type = DType::c64, .n = n, .ranks = 2};
    q.platform = Platform::cuda;
    q.precision = precision;
    return Plan(q).tile();
  };
  EXPECT_EQ(tile(65536, Precision::native), 1024);
  EXPECT_EQ(tile(65536, Precision::split), 512);
  EXPECT_EQ(tile(8192, Precision::native), 512);
  EXPECT_EQ(tile(8192, Precision::split), 256);
  EXPECT_EQ(tile(1000, Precision::split), tile(1000, Precision::native));
}

TEST(Plan, RightHandSidesThatAreEliminatedWithTheMatrix) {
  for (const int ranks : {1, 2, 8}) {
    PlanRequest q{.routine = Routine::posv, .type = DType::f64, .n = 1000, .ranks = ranks};
    q.tile = 64;
    for (const Size nrhs : {0, 1, 16, 17, 64, 65, 1000}) {
      q.nrhs = nrhs;
      q.order = Order::relabelled;
      const Plan plan(q);
      EXPECT_EQ(plan.eliminated_rhs(), nrhs <= 64 ? nrhs : 0);
      const Size rows = 1000 + (nrhs <= 64 ? (nrhs + 15) / 16 * 16 : 0);
      EXPECT_EQ(plan.entry(Buffer::panel_even).count, rows * 64);
      EXPECT_EQ(plan.entry(Buffer::panel_odd).count, rows * 64);
      q.order = Order::natural;
      EXPECT_EQ(Plan(q).eliminated_rhs(), ranks == 1 && nrhs <= 64 ? nrhs : 0);
    }
    // All else as in the calls that it stands for.
    q.order = Order::relabelled;
    q.tile = 0;
    q.nrhs = 3;
    const Plan both(q);
    EXPECT_EQ(both.tile(), plan_of(Routine::potrf, DType::f64, 1000, ranks, 0).tile());
    EXPECT_DOUBLE_EQ(both.flops(), 1e9 / 3 + 2e6 * 3);
    q.routine = Routine::gesv;
    EXPECT_EQ(Plan(q).eliminated_rhs(), 3);
    EXPECT_DOUBLE_EQ(Plan(q).flops(), 2e9 / 3 + 2e6 * 3);
    EXPECT_EQ(Plan(q).tile(), plan_of(Routine::getrf, DType::f64, 1000, ranks, 0).tile());
    EXPECT_EQ(Plan(q).aux_count(), plan_of(Routine::getrf, DType::f64, 1000, ranks, 0).aux_count());
    q.routine = Routine::potrs;
    EXPECT_EQ(both.entry(Buffer::partial_sums).count, Plan(q).entry(Buffer::partial_sums).count);
    EXPECT_EQ(both.entry(Buffer::right_hand_side).count, 3000);
    EXPECT_EQ(Plan(q).eliminated_rhs(), 0);
  }
}

TEST(Plan, FactorAndSolveAgreeOnTheAuxOperand) {
  for (const Size n : {0, 1, 9, 100, 46341}) {
    for (const int ranks : {1, 3, 8}) {
      for (const Size tile : {1, 4, 64}) {
        const Plan factor = plan_of(Routine::potrf, DType::f32, n, ranks, tile);
        const Plan solve = plan_of(Routine::potrs, DType::f32, n, ranks, tile);
        const Size aux = aux_count(n, ranks, factor.tile());
        for (const Plan* plan : {&factor, &solve}) {
          EXPECT_EQ(
              plan->entry(Buffer::saved_diagonal).count + plan->entry(Buffer::tile_inverse).count,
              aux);
        }
        EXPECT_EQ(solve.entry(Buffer::tile_inverse).count, aux / 2);
        EXPECT_GE(aux / 2, factor.distribution().capacity_tiles() * factor.tile() * factor.tile());
      }
    }
  }
}

TEST(Plan, MirrorStagingHoldsATileAndObeysTheRequest) {
  for (const Routine routine : {Routine::mirror, Routine::locate}) {
    for (const DType type : kTypes) {
      const auto staging = [&](Size n, int ranks, Size tile, Size bytes) {
        const Plan plan({.routine = routine,
                         .type = type,
                         .n = n,
                         .ranks = ranks,
                         .tile = tile,
                         .staging_bytes = bytes});
        EXPECT_EQ(plan.entry(Buffer::send_staging).count,
                  plan.entry(Buffer::receive_staging).count);
        return plan.entry(Buffer::send_staging).count;
      };
      EXPECT_EQ(staging(1000, 2, 10, 1), 100);  // raised to a tile
      EXPECT_EQ(staging(1000, 2, 10, 16000), 16000 / size_of(type));
      EXPECT_EQ(staging(100, 10, 5, 0), 100);  // two shards share no more than rows^2 elements
      EXPECT_GE(staging(Size{1} << 20, 8, 4096, 0), Size{1} << 24);  // a tile above the usual size
    }
  }
}

TEST(Plan, CyclicHasRoomForBothStorages) {
  for (const Size n : {0, 1, 7, 100, 46341}) {
    for (const int ranks : {1, 3, 8}) {
      for (const Size tile : {1, 5, 64, 200}) {
        for (const Size columns : {1, 9, 70000}) {
          const Plan plan({.routine = Routine::cyclic,
                           .type = DType::f64,
                           .n = n,
                           .ranks = ranks,
                           .tile = tile,
                           .columns = columns,
                           .staging_bytes = 1});
          EXPECT_EQ(plan.tile(), tile);  // what the caller asked for, however small the shards
          const Size capacity = std::max(Distribution(n, ranks, tile).capacity(),
                                         Distribution(n, ranks, tile, Storage::cyclic).capacity());
          EXPECT_EQ(plan.entry(Buffer::matrix).count, capacity * columns);
          EXPECT_EQ(plan.entry(Buffer::send_staging).count, capacity);
          EXPECT_EQ(plan.entry(Buffer::receive_staging).count, capacity);
        }
      }
    }
  }
}

TEST(Plan, RefusesImpossibleRequests) {
  EXPECT_THROW(Plan({.n = -1}), std::invalid_argument);
  EXPECT_THROW(Plan({.n = 4, .nrhs = -1}), std::invalid_argument);
  EXPECT_THROW(Plan({.n = 4, .ranks = 0}), std::invalid_argument);
  EXPECT_THROW(Plan({.n = 4, .tile = -2}), std::invalid_argument);
  EXPECT_THROW(Plan({.n = 4, .columns = -1}), std::invalid_argument);
  // Bytes would not fit in 64 bits.
  EXPECT_THROW(Plan({.n = Size{1} << 32}), std::invalid_argument);
  EXPECT_THROW(Plan({.n = 4, .nrhs = Size{1} << 62}), std::invalid_argument);
  const Plan largest({.type = DType::c128, .n = Size{1} << 28, .nrhs = Size{1} << 28});
  EXPECT_GT(largest.total_bytes(), Size{1} << 60);
  EXPECT_NO_THROW(Plan({.n = 4, .nrhs = 0}));
}

TEST(Plan, FlopsGrowBeyond64BitIntegers) {
  const double n = 1 << 20;
  EXPECT_DOUBLE_EQ(plan_of(Routine::potrf, DType::f64, 1 << 20, 8, 512).flops(), n * n * n / 3);
  EXPECT_DOUBLE_EQ(plan_of(Routine::potrf, DType::c64, 1 << 20, 8, 512).flops(), n * n * n / 3 * 4);
  EXPECT_GT(plan_of(Routine::potrf, DType::f64, Size{1} << 26, 8, 512).flops(), 1e23);
}

TEST(Workspace, HandsOutWhatThePlanLaidOut) {
  const Plan plan = plan_of(Routine::potrf, DType::c64, 50, 2, 8);
  std::vector<std::byte> block(static_cast<std::size_t>(plan.scratch_bytes()));
  const Workspace workspace(plan, block.data());
  using C = std::complex<float>;
  const Entry panel = plan.entry(Buffer::panel_odd);
  EXPECT_EQ(reinterpret_cast<std::byte*>(workspace.get<C>(Buffer::panel_odd)),
            block.data() + panel.offset);
  EXPECT_EQ(workspace.count(Buffer::panel_odd), panel.count);
  EXPECT_EQ(workspace.get<C>(Buffer::tile_rhs), nullptr);  // not in this plan
  EXPECT_EQ(workspace.count(Buffer::tile_rhs), 0);
  EXPECT_THROW(workspace.get<float>(Buffer::panel_odd), std::logic_error);  // not its type
  EXPECT_THROW(workspace.get<C>(Buffer::matrix), std::logic_error);         // not scratch
}

// A reader of JSON that checks the grammar and collects "key": value pairs of one object.
class Json {
 public:
  explicit Json(std::string text) : text_(std::move(text)) {
    valid_ = value("") && (skip(), at_ == text_.size());
  }
  bool valid() const { return valid_; }
  const std::map<std::string, std::string>& numbers() const { return numbers_; }
  int objects() const { return objects_; }

 private:
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) {
      ++at_;
    }
  }
  bool take(char c) {
    skip();
    if (at_ < text_.size() && text_[at_] == c) {
      ++at_;
      return true;
    }
    return false;
  }
  bool string(std::string& out) {
    if (!take('"')) {
      return false;
    }
    const std::size_t end = text_.find('"', at_);
    if (end == std::string::npos) {
      return false;
    }
    out = text_.substr(at_, end - at_);
    at_ = end + 1;
    return out.find('\\') == std::string::npos;
  }
  bool value(const std::string& key) {
    skip();
    if (at_ == text_.size()) {
      return false;
    }
    std::string word;
    if (text_[at_] == '{') {
      return object();
    }
    if (text_[at_] == '[') {
      return array();
    }
    if (text_[at_] == '"') {
      return string(word);
    }
    std::size_t used = 0;
    try {
      static_cast<void>(std::stod(text_.substr(at_), &used));
    } catch (const std::exception&) {
      return false;
    }
    numbers_[key] = text_.substr(at_, used);
    at_ += used;
    return word.empty();
  }
  bool object() {
    ++objects_;
    take('{');
    if (take('}')) {
      return true;
    }
    do {
      std::string key;
      if (!string(key) || !take(':') || !value(key)) {
        return false;
      }
    } while (take(','));
    return take('}');
  }
  bool array() {
    take('[');
    if (take(']')) {
      return true;
    }
    do {
      if (!value("")) {
        return false;
      }
    } while (take(','));
    return take(']');
  }

  std::string text_;
  std::size_t at_ = 0;
  bool valid_ = false;
  int objects_ = 0;
  std::map<std::string, std::string> numbers_;
};

TEST(Plan, JsonParsesAndSaysWhatThePlanSays) {
  for_plans([](const Plan& plan) {
    const Json json(plan.json());
    ASSERT_TRUE(json.valid()) << plan.json();
    ASSERT_EQ(json.objects(), 1 + static_cast<int>(plan.entries().size()));
    const auto number = [&](const char* key) { return json.numbers().at(key); };
    ASSERT_EQ(number("n"), std::to_string(plan.request().n));
    ASSERT_EQ(number("ranks"), std::to_string(plan.request().ranks));
    ASSERT_EQ(number("tile"), std::to_string(plan.tile()));
    ASSERT_EQ(number("scratch_bytes"), std::to_string(plan.scratch_bytes()));
    ASSERT_EQ(number("total_bytes"), std::to_string(plan.total_bytes()));
    ASSERT_NE(plan.json().find("\"routine\":\"" + std::string(name(plan.routine())) + "\""),
              std::string::npos);
  });
  EXPECT_FALSE(Json("{\"a\":1,}").valid());
  EXPECT_FALSE(Json("{\"a\":inf2}").valid());
}

TEST(Plan, NamesAreDifferent) {
  std::map<std::string_view, int> names;
  for (int b = 0; b <= static_cast<int>(Buffer::library); ++b) {
    EXPECT_EQ(++names[name(static_cast<Buffer>(b))], 1);
  }
  EXPECT_EQ(name(Buffer::matrix), "matrix");
  EXPECT_EQ(name(Buffer::library), "library");
  EXPECT_EQ(name(Routine::potrf), "potrf");
  EXPECT_EQ(name(Routine::cyclic), "cyclic");
}

TEST(Plan, LeastSquaresByAGramMatrix) {
  PlanRequest request;
  request.routine = Routine::gels;
  request.n = 4000256;
  request.columns = 512;
  request.ranks = 2;
  request.platform = Platform::cuda;
  const Plan plan(request);
  // 132 runs of 15152 rows for each of the four block columns.
  EXPECT_EQ(plan.tile(), 128);
  const GramCut cut = gram_cut(request, plan.tile());
  EXPECT_EQ(cut.parts, 132);
  EXPECT_EQ(cut.rows, 0);
  EXPECT_EQ(plan.entry(Buffer::gram_parts).count, 133 * 512 * 128);
  EXPECT_EQ(plan.entry(Buffer::gram_blocks).count, 128 * (512 + 384 + 256 + 128));
  // Scratch is little beside A.
  EXPECT_LT(plan.scratch_bytes(), plan.entry(Buffer::matrix).bytes() / 50);

  request.type = DType::f32;
  const Plan narrow(request);
  EXPECT_EQ(tile_type(request), DType::f64);
  EXPECT_EQ(gram_cut(request, narrow.tile()).rows, 132 * kLeastGramRows);
  EXPECT_EQ(narrow.entry(Buffer::gram_parts).type, DType::f64);
  EXPECT_EQ(narrow.entry(Buffer::local_rhs).type, DType::f32);

  // Runs are not short, and there is at least one.
  request.n = 100;
  EXPECT_EQ(gram_cut(request, 32).parts, 1);
  request.n = 5 * kLeastGramRows;
  request.ranks = 1;
  EXPECT_EQ(gram_cut(request, 512).parts, 5);
}

}  // namespace
}  // namespace jaxmg
