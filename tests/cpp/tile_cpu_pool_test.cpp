// The worker threads that all ranks share.
#include "tile/cpu/pool.h"

#include <sys/wait.h>
#include <unistd.h>

#include <latch>
#include <stdexcept>

#include "tile/cpu/cpu.h"
#include "tile_matrix.h"

namespace jaxmg::testing {
namespace {

using tile::Cpu;
using tile::Pool;
using tile::Priority;

TEST(Pool, RunsEachTaskOnce) {
  for (int threads : {1, 2, 5}) {
    Pool pool(threads);
    for (Size count : {0, 1, 2, 100}) {
      std::vector<std::atomic<int>> times(static_cast<std::size_t>(count));
      pool.run(Priority::normal, count, [&](Size i) { ++times[static_cast<std::size_t>(i)]; });
      for (const auto& t : times) {
        EXPECT_EQ(t.load(), 1);
      }
    }
  }
}

TEST(Pool, NeverMoreTasksAtOnceThanWorkers) {
  Pool pool(2);
  std::atomic<int> running{0}, most{0};
  const auto task = [&](Size) {
    const int now = ++running;
    int seen = most.load();
    while (seen < now && !most.compare_exchange_weak(seen, now)) {
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100));
    --running;
  };
  std::vector<std::jthread> ranks;
  for (int r = 0; r < 8; ++r) {
    ranks.emplace_back([&] { pool.run(Priority::normal, 20, task); });
  }
  ranks.clear();
  EXPECT_EQ(most.load(), 2);
}

TEST(Pool, HighPriorityFirstThenFirstComeFirstServed) {
  Pool pool(1);
  std::latch started(1), go(1);
  std::vector<int> order;  // written by the one worker
  std::vector<std::jthread> ranks;
  ranks.emplace_back([&] {
    pool.run(Priority::normal, 1, [&](Size) {
      started.count_down();
      go.wait();
    });
  });
  started.wait();
  const auto submit = [&](Priority priority, int name) {
    const Size before = pool.queued();
    ranks.emplace_back(
        [&, priority, name] { pool.run(priority, 2, [&, name](Size) { order.push_back(name); }); });
    while (pool.queued() == before) {
      std::this_thread::yield();
    }
  };
  submit(Priority::normal, 3);
  submit(Priority::normal, 4);
  submit(Priority::high, 1);
  submit(Priority::high, 2);
  go.count_down();
  ranks.clear();
  EXPECT_EQ(order, (std::vector<int>{1, 1, 2, 2, 3, 3, 4, 4}));
}

TEST(Pool, HandsOnExceptionsAndGoesOn) {
  Pool pool(2);
  EXPECT_THROW(pool.run(Priority::high, 10,
                        [](Size i) {
                          if (i == 3) {
                            throw std::runtime_error("three");
                          }
                        }),
               std::runtime_error);
  std::atomic<int> done{0};
  pool.run(Priority::high, 10, [&](Size) { ++done; });
  EXPECT_EQ(done.load(), 10);
}

TEST(Pool, ATaskMayCallThePool) {
  Pool pool(2);
  std::atomic<int> done{0};
  pool.run(Priority::normal, 4,
           [&](Size) { pool.run(Priority::normal, 3, [&](Size) { ++done; }); });
  EXPECT_EQ(done.load(), 12);
}

TEST(Pool, SizeMayChangeWhileRanksWork) {
  Pool pool(1);
  std::atomic<int> done{0};
  std::vector<std::jthread> ranks;
  for (int r = 0; r < 4; ++r) {
    ranks.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        pool.run(i % 2 == 0 ? Priority::high : Priority::normal, 5, [&](Size) { ++done; });
      }
    });
  }
  for (int threads : {4, 1, 3, 2, 6, 1, 2}) {
    pool.resize(threads);
    EXPECT_EQ(pool.threads(), threads);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ranks.clear();
  EXPECT_EQ(done.load(), 4 * 200 * 5);
}

TEST(Pool, RunsInTheCallingThreadOnceStopped) {
  Pool pool(2);
  pool.run(Priority::normal, 2, [](Size) {});
  pool.stop();
  const auto caller = std::this_thread::get_id();
  pool.run(Priority::normal, 3, [&](Size) { EXPECT_EQ(std::this_thread::get_id(), caller); });
}

// A product and a factorisation on each of many ranks at once, in lanes of both priorities.
template <class T>
void work_of_rank(int rank, int rounds) {
  Cpu::Lanes lanes;
  const unsigned seed = static_cast<unsigned>(rank);
  const auto a = Matrix<T>::random(150, 90, seed), b = Matrix<T>::random(90, 130, seed + 100);
  const auto c = Matrix<T>::random(150, 130, seed + 200);
  const auto expected = product(Op::none, Op::none, 90, T(-1), a, b, T(1), c);
  for (int round = 0; round < rounds; ++round) {
    auto mine = c;
    Cpu::Lane& lane = (rank + round) % 2 == 0 ? lanes.panel : lanes.update;
    Cpu::gemm(lane, Op::none, Op::none, 150, 130, 90, T(-1), a.get(), a.ld, b.get(), b.ld, T(1),
              mine.get(), mine.ld);
    EXPECT_LE(distance(mine, expected), 400 * epsilon<T>);

    // A^H A + I is positive definite; its trailing minor of order 4 made negative is found.
    Matrix<T> gram(90, 90);
    Cpu::fill(lane, 90, 90, T(0), T(1), gram.get(), gram.ld);
    Cpu::gemm(lane, Op::conj_transpose, Op::none, 90, 90, 150, T(1), a.get(), a.ld, a.get(), a.ld,
              T(1), gram.get(), gram.ld);
    gram(86, 86) = T(-1);
    Info info;
    Cpu::potrf(lanes.panel, 90, gram.get(), gram.ld, 0, &info);
    EXPECT_EQ(info.position, 87);
  }
}

TEST(Pool, ManyRanksAtOnce) {
  for (int threads : {1, 2, 4}) {
    tile::set_pool_threads(threads);
    std::vector<std::jthread> ranks;
    for (int r = 0; r < 8; ++r) {
      ranks.emplace_back([r] {
        work_of_rank<double>(r, 5);
        work_of_rank<std::complex<float>>(r, 5);
      });
    }
  }
}

TEST(Pool, DefaultSizeFollowsTheEnvironment) {
  ASSERT_EQ(setenv("JAXMG_NUM_THREADS", "3", 1), 0);
  tile::set_pool_threads(0);
  EXPECT_EQ(Pool::instance().threads(), 3);
  for (const char* nonsense : {"", "0", "-2", "many", "2x"}) {
    ASSERT_EQ(setenv("JAXMG_NUM_THREADS", nonsense, 1), 0);
    tile::set_pool_threads(0);
    EXPECT_GE(Pool::instance().threads(), 1);
    EXPECT_LE(Pool::instance().threads(), static_cast<int>(sysconf(_SC_NPROCESSORS_CONF)));
  }
  ASSERT_EQ(unsetenv("JAXMG_NUM_THREADS"), 0);
}

TEST(Pool, AForkedChildHasItsOwn) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer ends children that start threads";
#else
  tile::set_pool_threads(2);
  work_of_rank<double>(0, 1);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    tile::set_pool_threads(2);
    work_of_rank<double>(1, 1);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  work_of_rank<double>(2, 1);
#endif
}

}  // namespace
}  // namespace jaxmg::testing
