// Jobs that may block: none waits for another one's thread.
#include "ffi/elastic_pool.h"

#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <latch>

namespace jaxmg {
namespace {

using namespace std::chrono_literals;

TEST(ElasticPool, JobsThatWaitForEachOtherAllRun) {
  ElasticPool pool;
  for (int repeat = 0; repeat < 20; ++repeat) {
    constexpr int count = 24;
    std::latch together(count);
    std::latch done(count);
    for (int i = 0; i < count; ++i) {
      pool.run([&] {
        together.arrive_and_wait();
        done.count_down();
      });
    }
    done.wait();
  }
  EXPECT_GE(pool.made(), 24);
}

TEST(ElasticPool, JobMayWaitForAJobThatItStarted) {
  ElasticPool pool;
  constexpr int depth = 30;
  std::promise<void> end;
  std::function<void(int)> nest = [&](int level) {
    if (level == depth) {
      return end.set_value();
    }
    std::promise<void> inner;
    pool.run([&, level] {
      nest(level + 1);
      inner.set_value();
    });
    inner.get_future().wait();
  };
  pool.run([&] { nest(0); });
  EXPECT_EQ(end.get_future().wait_for(60s), std::future_status::ready);
}

TEST(ElasticPool, ThreadsAreReused) {
  ElasticPool pool;
  constexpr int jobs = 100;
  for (int i = 0; i < jobs; ++i) {
    std::promise<void> done;
    pool.run([&] { done.set_value(); });
    done.get_future().wait();
    std::this_thread::sleep_for(1ms);  // for the thread to become idle again
  }
  EXPECT_LT(pool.made(), jobs / 2);
}

TEST(ElasticPool, EveryJobRunsOnceAndTheEndWaitsForAll) {
  constexpr int threads = 4, jobs = 500;
  std::atomic<int> runs = 0;
  {
    ElasticPool pool;
    std::vector<std::thread> givers;
    for (int t = 0; t < threads; ++t) {
      givers.emplace_back([&] {
        for (int i = 0; i < jobs; ++i) {
          pool.run([&] { ++runs; });
        }
      });
    }
    for (std::thread& giver : givers) {
      giver.join();
    }
    for (int i = 0; i < 10; ++i) {
      pool.run([&] {
        std::this_thread::sleep_for(20ms);
        ++runs;
      });
    }
  }
  EXPECT_EQ(runs, threads * jobs + 10);
}

TEST(ElasticPool, WhatAJobHoldsIsGivenBackBeforeItsThreadIsReused) {
  ElasticPool pool;
  const auto held = std::make_shared<int>(0);
  std::promise<void> done;
  pool.run([held, &done] { done.set_value(); });
  done.get_future().wait();
  for (int i = 0; i < 2000 && held.use_count() > 1; ++i) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace jaxmg
