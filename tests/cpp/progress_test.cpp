// What watchers are told of calls in progress.
#include "ffi/progress.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>
#include <vector>

#include "core/work_done.h"

namespace jaxmg {
namespace {

std::shared_ptr<float[]> zeros(int count) {
  return std::make_shared<float[]>(static_cast<std::size_t>(count), 0.0F);
}

PlanRequest request(Routine routine, Size n, int ranks) {
  PlanRequest q;
  q.routine = routine;
  q.n = n;
  q.ranks = ranks;
  return q;
}

std::vector<jaxmg_call_progress> listed(ProgressBoard& board) {
  std::vector<jaxmg_call_progress> calls(8);
  calls.resize(board.list(calls));
  return calls;
}

TEST(WorkDone, GrowsFromNothingToAll) {
  for (const Routine routine :
       {Routine::potrf, Routine::potrs, Routine::potri, Routine::cyclic, Routine::getrf,
        Routine::geqrf, Routine::orgqr, Routine::posv, Routine::gesv}) {
    constexpr Size steps = 12;
    EXPECT_EQ(work_done(routine, 0, steps), 0);
    EXPECT_EQ(work_done(routine, steps, steps), 1);
    for (Size step = 0; step < steps; ++step) {
      EXPECT_LT(work_done(routine, step, steps), work_done(routine, step + 1, steps));
    }
    EXPECT_EQ(work_done(routine, 0, 0), 1);
  }
}

TEST(WorkDone, CountsOperations) {
  EXPECT_DOUBLE_EQ(work_done(Routine::potrf, 1, 2), 7.0 / 8);  // what is left: half the size
  EXPECT_DOUBLE_EQ(work_done(Routine::potri, 1, 2), 0.5);      // two sweeps
  EXPECT_DOUBLE_EQ(work_done(Routine::potri, 1, 4), 0.25);     // sum of k (n - k) is symmetric
  EXPECT_DOUBLE_EQ(work_done(Routine::potrs, 1, 4), 0.25);
}

TEST(Progress, NothingIsFollowedWhileNobodyWatches) {
  ProgressBoard board;
  EXPECT_EQ(board.begin(request(Routine::potrf, 10, 2), zeros), nullptr);
  board.watch(1);
  EXPECT_NE(board.begin(request(Routine::potrf, 10, 2), zeros), nullptr);
  board.watch(-1);
  EXPECT_EQ(board.begin(request(Routine::potrf, 10, 2), zeros), nullptr);
}

TEST(Progress, TellsTheMeanOfTheRanks) {
  ProgressBoard board;
  board.watch(1);
  const auto call = board.begin(request(Routine::potrs, 10, 2), zeros);
  EXPECT_TRUE(listed(board).empty());  // no rank has begun
  std::vector<ProgressObserver> ranks;
  ranks.reserve(2);
  for (int rank = 0; rank < 2; ++rank) {
    ranks.emplace_back(Routine::potrs, [&call, rank](float done) { call->set(rank, done); });
  }
  ASSERT_EQ(listed(board).size(), 1U);
  EXPECT_NEAR(listed(board)[0].done, 0, 1e-6);
  ranks[0].end(0, Observer::Task::solve, 0, 4);
  ranks[1].end(1, Observer::Task::solve, 2, 4);
  const jaxmg_call_progress told = listed(board)[0];
  EXPECT_NEAR(told.done, (0.25 + 0.75) / 2, 1e-6);
  EXPECT_EQ(told.routine, JAXMG_POTRS);
  EXPECT_EQ(told.dtype, JAXMG_F64);
  EXPECT_EQ(told.n, 10);
  EXPECT_EQ(told.ranks, 2);
  call->set_all(CallProgress::kThrough);
  EXPECT_TRUE(listed(board).empty());
}

TEST(Progress, OtherTasksDoNotCount) {
  float told = -1;
  ProgressObserver observer(Routine::potrf, [&](float done) { told = done; });
  EXPECT_EQ(told, CallProgress::kBegun);
  observer.end(0, Observer::Task::exchange, 3, 4);
  observer.end(0, Observer::Task::probe, 0, 1);
  observer.end(0, Observer::Task::panel, 1, 4);
  observer.end(0, Observer::Task::look_ahead, 1, 4);
  EXPECT_EQ(told, CallProgress::kBegun);
  observer.end(0, Observer::Task::update, 0, 2);
  EXPECT_FLOAT_EQ(told, 7.0F / 8);
  ProgressObserver moving(Routine::cyclic, [&](float done) { told = done; });
  moving.end(0, Observer::Task::exchange, 0, 4);
  EXPECT_FLOAT_EQ(told, 0.25F);
}

TEST(Progress, NeverGoesBack) {
  float told = 0;
  ProgressObserver observer(Routine::geqrs, [&](float done) { told = done; });
  observer.end(0, Observer::Task::solve, 2, 4);
  observer.end(0, Observer::Task::solve, 0, 4);
  EXPECT_FLOAT_EQ(told, 0.75F);
  observer.end(0, Observer::Task::solve, 3, 4);
  EXPECT_FLOAT_EQ(told, 1.0F);
}

TEST(Progress, AnObserverWithoutWatchersDoesNothing) {
  ProgressObserver observer(Routine::potrf, nullptr);
  observer.end(0, Observer::Task::update, 0, 2);
}

TEST(Progress, CallsAreNumberedAndOnlyAsManyToldAsAreAskedFor) {
  ProgressBoard board;
  board.watch(1);
  std::vector<std::shared_ptr<CallProgress>> calls;
  for (int i = 0; i < 3; ++i) {
    calls.push_back(board.begin(request(Routine::potrf, 10 + i, 1), zeros));
    calls.back()->set(0, 0.5F);
  }
  std::array<jaxmg_call_progress, 2> two{};
  EXPECT_EQ(board.list(two), 2U);
  EXPECT_LT(two[0].number, two[1].number);
  EXPECT_EQ(two[0].n, 10);
  calls[0]->set(0, CallProgress::kThrough);
  calls[1]->abandon();
  ASSERT_EQ(listed(board).size(), 1U);
  EXPECT_EQ(listed(board)[0].n, 12);
}

TEST(Progress, RanksAndWatchersMeetSafely) {
  ProgressBoard board;
  board.watch(1);
  constexpr int ranks = 4;
  const auto call = board.begin(request(Routine::potrf, 10, ranks), zeros);
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ProgressObserver observer(Routine::potrf, [&](float done) { call->set(rank, done); });
      for (Size step = 0; step < 500; ++step) {
        observer.end(rank, Observer::Task::update, step, 500);
      }
    });
  }
  double last = 0;
  while (last < 1) {
    for (const auto& told : listed(board)) {
      EXPECT_GE(told.done, last);
      last = told.done;
    }
  }
  for (auto& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace jaxmg
