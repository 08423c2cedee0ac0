// The CPU engine through its C boundary, called as XLA calls it: one part per device, from any
// thread, in any order.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "core/plan.h"
#include "ffi/call.h"
#include "ffi/operands.h"

namespace jaxmg {
namespace {

// Scratch holds NaN at first in all of these tests.
const int poisoned = setenv("JAXMG_POISON_SCRATCH", "1", 1);

template <class T>
jaxmg_buffer buffer(std::vector<T>& data, std::vector<Size> dims) {
  jaxmg_buffer b = {data.data(),
                    static_cast<std::int32_t>(dtype_of<T>),
                    static_cast<std::int32_t>(dims.size()),
                    {}};
  std::copy(dims.begin(), dims.end(), b.dims);
  return b;
}

// How one device's part ended.
struct Ending {
  std::int32_t code = -1;
  std::string message;
  int times = 0;
  std::thread::id thread;
  std::latch* done = nullptr;
  std::latch* together = nullptr;  // the rest of the device's program waits for the other devices
};

void complete(void* token, std::int32_t code, const char* message) {
  Ending& ending = *static_cast<Ending*>(token);
  ending.code = code;
  ending.message = message;
  ++ending.times;
  ending.thread = std::this_thread::get_id();
  if (ending.together) {
    ending.together->arrive_and_wait();
  }
  ending.done->count_down();
}

class Site {
 public:
  void* handle() const { return handle_; }
  Site() = default;
  ~Site() { jaxmg_site_destroy(handle_); }
  Site(const Site&) = delete;

 private:
  void* handle_ = jaxmg_site_create();
};

std::int64_t next_run() {
  static std::int64_t run = 1000;
  return ++run;
}

// A group of devices that make one call. Parts of the calls are set up by the tests.
struct Group {
  explicit Group(int count, std::int32_t group = 0)
      : contexts(static_cast<std::size_t>(count), std::vector<std::int32_t>(16, 0)),
        calls(static_cast<std::size_t>(count)),
        endings(static_cast<std::size_t>(count)) {
    const std::int64_t run = next_run();
    for (int r = 0; r < count; ++r) {
      std::vector<std::int32_t>& c = contexts[static_cast<std::size_t>(r)];
      c[0] = r, c[1] = group, c[2] = count, c[3] = count, c[7] = 1;
      jaxmg_call& call = calls[static_cast<std::size_t>(r)];
      call = {};
      call.run_id = run;
      call.site = site.handle();
      call.complete = complete;
    }
  }

  void set(std::size_t r, std::int32_t routine, const std::vector<jaxmg_buffer>& arguments,
           const std::vector<jaxmg_buffer>& results) {
    calls[r].routine = routine;
    calls[r].argument_count = static_cast<std::int32_t>(arguments.size()) + 1;
    calls[r].result_count = static_cast<std::int32_t>(results.size());
    calls[r].arguments[0] = buffer(contexts[r], {16});
    std::copy(arguments.begin(), arguments.end(), calls[r].arguments + 1);
    std::copy(results.begin(), results.end(), calls[r].results);
  }

  // Submits in a random order from one thread, so that a handler that blocks would hang.
  void run(bool program_goes_on_together = false) {
    std::latch done(static_cast<std::ptrdiff_t>(calls.size()));
    std::latch together(static_cast<std::ptrdiff_t>(calls.size()));
    std::vector<std::size_t> order(calls.size());
    for (std::size_t r = 0; r < calls.size(); ++r) {
      order[r] = r;
      endings[r] = {};
      endings[r].done = &done;
      endings[r].together = program_goes_on_together ? &together : nullptr;
      calls[r].token = &endings[r];
    }
    static std::mt19937 random(1);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t r : order) {
      jaxmg_submit(&calls[r]);
    }
    done.wait();
  }

  void expect_all(std::int32_t code, const std::string& part = "") const {
    for (const Ending& e : endings) {
      EXPECT_EQ(e.code, code) << e.message;
      EXPECT_EQ(e.times, 1);
      EXPECT_EQ(e.message, endings[0].message);
      EXPECT_NE(e.message.find(part), std::string::npos) << e.message;
    }
    EXPECT_EQ(jaxmg_counter("pending"), 0);
  }

  Site site;
  std::vector<std::vector<std::int32_t>> contexts;
  std::vector<jaxmg_call> calls;
  std::vector<Ending> endings;
};

// A positive definite system spread over ranks, with room for what potrf makes of it.
template <class T>
struct System {
  System(Size size, int count) : n(size), ranks(count), rows(ceil_div(size, count)) {
    PlanRequest request;
    request.n = n;
    request.ranks = ranks;
    request.type = dtype_of<T>;
    tile = Plan(request).tile();
    std::mt19937 random(5);
    std::uniform_real_distribution<Real<T>> uniform(Real<T>(-0.5), Real<T>(0.5));
    const auto entry = [&]() -> T {
      if constexpr (is_complex_v<T>) {
        return T(uniform(random), uniform(random));
      } else {
        return uniform(random);
      }
    };
    const std::size_t total = static_cast<std::size_t>(rows * ranks * n);
    matrix.resize(total, T(0));
    for (Size i = 0; i < n; ++i) {
      for (Size j = 0; j < i; ++j) {
        at(i, j) = entry();
        if constexpr (is_complex_v<T>) {
          at(j, i) = std::conj(at(i, j));
        } else {
          at(j, i) = at(i, j);
        }
      }
      at(i, i) = T(Real<T>(n));
      right.push_back(entry());
    }
    for (int r = 0; r < ranks; ++r) {
      const auto first = matrix.begin() + r * rows * n;
      shards.emplace_back(first, first + rows * n);
      aux.emplace_back(static_cast<std::size_t>(aux_count(n, ranks, tile)));
      info.emplace_back(8, -7);
      solutions.push_back(right);
    }
  }

  T& at(Size i, Size j) { return matrix[static_cast<std::size_t>(i * n + j)]; }

  void set_factor(Group& group, std::vector<std::vector<T>>& into) {
    for (std::size_t r = 0; r < shards.size(); ++r) {
      group.calls[r].n = n;
      group.calls[r].tile = tile;
      group.calls[r].triangle = -1;
      group.set(
          r, JAXMG_POTRF, {buffer(shards[r], {rows, n})},
          {buffer(into[r], {rows, n}), buffer(aux[r], {std::ssize(aux[r])}), buffer(info[r], {8})});
    }
  }
  void set_solve(Group& group, std::vector<std::vector<T>>& factor) {
    for (std::size_t r = 0; r < shards.size(); ++r) {
      group.calls[r].n = n;
      group.calls[r].tile = tile;
      group.calls[r].replicated = 1;
      group.set(r, JAXMG_POTRS,
                {buffer(factor[r], {rows, n}), buffer(aux[r], {std::ssize(aux[r])}),
                 buffer(info[r], {8}), buffer(solutions[r], {n, 1})},
                {buffer(solutions[r], {n, 1})});
    }
  }

  // max |b - A x| over all ranks' copies of x.
  double residual() {
    double worst = 0;
    for (const std::vector<T>& x : solutions) {
      for (Size i = 0; i < n; ++i) {
        T sum = right[static_cast<std::size_t>(i)];
        for (Size j = 0; j < n; ++j) {
          sum -= at(i, j) * x[static_cast<std::size_t>(j)];
        }
        const double size = std::abs(sum);
        worst = size <= worst ? worst : size;  // NaN stays
      }
    }
    return worst;
  }

  Size n;
  int ranks;
  Size rows;
  Size tile = 1;
  std::vector<T> matrix;
  std::vector<T> right;
  std::vector<std::vector<T>> shards, aux, solutions;
  std::vector<std::vector<std::int32_t>> info;
};

template <class T>
void expect_solves(Size n, int ranks) {
  SCOPED_TRACE(testing::Message() << "n = " << n << ", ranks = " << ranks);
  System<T> system(n, ranks);
  Group factor(ranks), solve(ranks);
  system.set_factor(factor, system.shards);
  factor.run(ranks > 1);
  factor.expect_all(JAXMG_OK);
  system.set_solve(solve, system.shards);
  solve.run(ranks > 1);
  solve.expect_all(JAXMG_OK);
  const double eps = std::numeric_limits<Real<T>>::epsilon();
  EXPECT_LE(system.residual(), 25 * eps * static_cast<double>(std::max<Size>(1, n)));
  for (const auto& info : system.info) {
    EXPECT_EQ(info, system.info[0]);
    EXPECT_EQ(info[0], 0);
  }
}

TEST(CpuEngine, FactorsAndSolves) {
  for (int ranks : {1, 2, 3, 8}) {
    for (Size n : {0, 1, 5, 40, 97}) {
      expect_solves<double>(n, ranks);
      expect_solves<std::complex<float>>(n, ranks);
    }
  }
}

// A promise is completed on a thread of its own: the rest of a device's program may block there.
TEST(CpuEngine, RanksCompleteOnDifferentThreads) {
  System<double> system(20, 4);
  Group group(4);
  system.set_factor(group, system.shards);
  group.run(true);
  group.expect_all(JAXMG_OK);
  for (std::size_t a = 0; a < 4; ++a) {
    EXPECT_NE(group.endings[a].thread, std::this_thread::get_id());
    for (std::size_t b = 0; b < a; ++b) {
      EXPECT_NE(group.endings[a].thread, group.endings[b].thread);
    }
  }
}

TEST(CpuEngine, OperandIsKeptWhereTheResultIsAnotherBuffer) {
  System<double> system(33, 4);
  auto apart = system.shards;
  for (auto& shard : apart) {
    std::fill(shard.begin(), shard.end(), 1e300);
  }
  const auto before = system.shards;
  Group factor(4), solve(4);
  system.set_factor(factor, apart);
  factor.run();
  factor.expect_all(JAXMG_OK);
  EXPECT_EQ(system.shards, before);
  system.set_solve(solve, apart);
  solve.run();
  EXPECT_LE(system.residual(), 1e-12);
}

TEST(CpuEngine, MismatchedCallsFailAlikeOnAllRanks) {
  const auto mismatch = [](auto&& change) {
    System<double> system(30, 3);
    Group group(3);
    system.set_factor(group, system.shards);
    change(system, group);
    group.run();
    group.expect_all(JAXMG_INVALID_ARGUMENT, "jaxmg_pot");
  };
  mismatch([](auto&, Group& g) { g.calls[1].n = 29; });
  mismatch([](auto&, Group& g) { g.calls[2].tile = 1; });
  mismatch([](auto&, Group& g) { g.calls[0].triangle = 0; });
  mismatch([](auto&, Group& g) { g.calls[2].arguments[1].dtype = JAXMG_C64; });
  mismatch([](auto& system, Group& g) {
    Group other(3);
    system.set_solve(other, system.shards);
    for (int i = 0; i < 5; ++i) {
      g.calls[1].arguments[i] = other.calls[1].arguments[i];
    }
    g.calls[1].arguments[0].data = g.contexts[1].data();
    g.calls[1].routine = JAXMG_POTRS;
    g.calls[1].argument_count = 5;
    g.calls[1].result_count = 1;
  });
}

TEST(CpuEngine, WrongOperandsAreNamed) {
  const auto wrong = [](auto&& change, const std::string& message) {
    System<double> system(30, 3);
    Group group(3);
    system.set_factor(group, system.shards);
    for (std::size_t r = 0; r < 3; ++r) {
      change(group, group.calls[r], r);
    }
    group.run();
    group.expect_all(JAXMG_INVALID_ARGUMENT, message);
  };
  wrong([](Group&, jaxmg_call& c, auto) { c.results[1].dims[0] += 1; }, "'aux' is float64[");
  wrong([](Group&, jaxmg_call& c, auto) { c.arguments[1].dims[1] = 31; },
        "operand 'a' is float64[10,31], expected float64[10,30]");
  wrong([](Group&, jaxmg_call& c, auto) { c.arguments[1].dtype = JAXMG_OTHER_DTYPE; },
        "float32, float64, complex64 and complex128");
  wrong([](Group&, jaxmg_call& c, auto) { c.argument_count = 3; }, "3 operands");
  wrong([](Group&, jaxmg_call& c, auto) { c.argument_count = 0; }, "context");
  wrong([](Group&, jaxmg_call& c, auto) { c.results[2].dtype = JAXMG_F32; }, "'info'");
  wrong([](Group&, jaxmg_call& c, auto) { c.triangle = 2; }, "triangle");
  wrong([](Group&, jaxmg_call& c, auto) { c.tile = 0; }, "tile");
  wrong([](Group&, jaxmg_call& c, auto) { c.arguments[1].data = nullptr; }, "no data");
  wrong([](Group& g, jaxmg_call&, std::size_t r) { g.contexts[r][7] = 2; }, "version 2");
  wrong([](Group& g, jaxmg_call&, std::size_t r) { g.contexts[r][0] = 3; }, "rank 3 of 3");
  wrong([](Group& g, jaxmg_call&, std::size_t r) { g.contexts[r][3] = 2; }, "2 of 3");
}

TEST(CpuEngine, LackOfScratchIsToldToAllRanks) {
  System<double> system(64, 4);
  Group group(4);
  system.set_factor(group, system.shards);
  group.calls[2].allocate = [](void*, std::size_t) -> void* { return nullptr; };
  group.run();
  PlanRequest request;
  request.n = 64;
  request.ranks = 4;
  request.tile = system.tile;
  group.expect_all(JAXMG_RESOURCE_EXHAUSTED, std::to_string(Plan(request).scratch_bytes()));
  expect_solves<double>(64, 4);  // the next call is not affected
}

TEST(CpuEngine, CallThatAPeerNeverMakesFailsInTime) {
  System<double> system(12, 4);
  Group group(4);
  system.set_factor(group, system.shards);
  std::latch done(3);
  jaxmg_set_timeout(0.05);
  for (std::size_t r : {0u, 1u, 3u}) {
    group.endings[r].done = &done;
    group.calls[r].token = &group.endings[r];
    jaxmg_submit(&group.calls[r]);
  }
  done.wait();
  jaxmg_set_timeout(0);
  for (std::size_t r : {0u, 1u, 3u}) {
    EXPECT_EQ(group.endings[r].code, JAXMG_DEADLINE_EXCEEDED);
    EXPECT_NE(group.endings[r].message.find(": 2"), std::string::npos) << group.endings[r].message;
  }
  EXPECT_EQ(jaxmg_counter("pending"), 0);
}

TEST(CpuEngine, CountersCountOncePerGroup) {
  jaxmg_reset_counters();
  const std::int64_t sites = jaxmg_counter("sites");
  System<double> system(12, 3);
  {
    Group group(3);
    EXPECT_EQ(jaxmg_counter("sites"), sites + 1);
    system.set_factor(group, system.shards);
    group.run();
    EXPECT_EQ(jaxmg_counter("potrf"), 1);
    group.calls[1].n = 11;
    group.run();  // fails
  }
  EXPECT_EQ(jaxmg_counter("potrf"), 1);
  EXPECT_EQ(jaxmg_counter("sites"), sites);
  EXPECT_GE(jaxmg_counter("threads"), 1);
  EXPECT_EQ(jaxmg_counter("nonsense"), -1);
  EXPECT_EQ(jaxmg_counter(nullptr), -1);
}

TEST(CpuEngine, PlanAsJson) {
  std::vector<char> out(1 << 14);
  const auto plan = [&](std::int32_t routine, Size n, std::int64_t capacity) {
    jaxmg_plan_request request = {};
    request.routine = routine;
    request.dtype = JAXMG_F64;
    request.ranks = 4;
    request.replicated_rhs = 1;
    request.n = n;
    request.nrhs = 1;
    return jaxmg_plan(&request, out.data(), capacity);
  };
  const std::int64_t bytes = plan(JAXMG_POTRF, 100, std::ssize(out));
  ASSERT_GT(bytes, 0);
  EXPECT_EQ(std::strlen(out.data()), static_cast<std::size_t>(bytes));
  EXPECT_NE(std::string(out.data()).find("\"aux_count\":"), std::string::npos);
  EXPECT_LT(plan(JAXMG_POTRF, -1, std::ssize(out)), 0);
  EXPECT_NE(std::string(out.data()).find("n = -1"), std::string::npos);
  EXPECT_LT(plan(99, 5, std::ssize(out)), 0);
  EXPECT_LT(plan(JAXMG_POTRF, 100, 10), 0);
  EXPECT_LT(plan(JAXMG_POTRF, 100, 0), 0);
}

}  // namespace
}  // namespace jaxmg
