// The meeting place of the ranks: parts that belong together come out together, whatever the order
// in which they come, and nothing stays behind.
#include "ffi/rendezvous.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <mutex>
#include <numeric>
#include <random>
#include <thread>

namespace jaxmg {
namespace {

using namespace std::chrono_literals;

struct Note : Arrival {
  Note(MeetingKey k, int r, int v) : key(k), rank(r), visit(v) {}
  std::string name() const override { return "test_call"; }
  MeetingKey key;
  int rank;
  int visit;
};

const Note& note(const std::unique_ptr<Arrival>& arrival) {
  return static_cast<const Note&>(*arrival);
}

// What was given up, in order.
struct GivenUp {
  Rendezvous::GiveUp collect() {
    return [this](Rendezvous::Party party, const Outcome& why) {
      std::lock_guard lock(mutex);
      for (const auto& arrival : party) {
        ranks.push_back(note(arrival).rank);
      }
      outcomes.push_back(why);
    };
  }
  bool wait_for(std::size_t count) {
    for (int i = 0; i < 2000; ++i) {
      {
        std::lock_guard lock(mutex);
        if (outcomes.size() >= count) {
          return true;
        }
      }
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  std::mutex mutex;
  std::vector<int> ranks;
  std::vector<Outcome> outcomes;
};

Rendezvous::Party arrive(Rendezvous& place, const MeetingKey& key, int rank, int ranks,
                         int visit = 0) {
  return place.arrive(key, rank, ranks, std::make_unique<Note>(key, rank, visit));
}

// A party is whole, in rank order, and of one call.
void expect_together(const Rendezvous::Party& party, const MeetingKey& key, int ranks) {
  ASSERT_EQ(std::ssize(party), ranks);
  for (int r = 0; r < ranks; ++r) {
    const Note& n = note(party[static_cast<std::size_t>(r)]);
    EXPECT_EQ(n.rank, r);
    EXPECT_TRUE(n.key == key);
    EXPECT_EQ(n.visit, note(party[0]).visit);
  }
}

TEST(Rendezvous, LastToArriveTakesAllInEveryOrder) {
  GivenUp given_up;
  Rendezvous place(given_up.collect());
  int site = 0;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    std::vector<int> order(static_cast<std::size_t>(ranks));
    std::iota(order.begin(), order.end(), 0);
    do {
      const MeetingKey key{7, &site, 0};
      for (int i = 0; i < ranks; ++i) {
        const auto party = arrive(place, key, order[static_cast<std::size_t>(i)], ranks);
        if (i + 1 < ranks) {
          EXPECT_TRUE(party.empty());
          EXPECT_EQ(place.pending(), 1u);
        } else {
          expect_together(party, key, ranks);
        }
      }
      EXPECT_EQ(place.pending(), 0u);
    } while (std::next_permutation(order.begin(), order.end()));
  }
  EXPECT_TRUE(given_up.outcomes.empty());
}

TEST(Rendezvous, RunsSitesAndGroupsAreApart) {
  GivenUp given_up;
  Rendezvous place(given_up.collect());
  int sites[2] = {};
  std::vector<std::pair<MeetingKey, int>> arrivals;
  for (std::int64_t run : {1, 2, -3}) {
    for (const int& site : sites) {
      for (std::int64_t group : {0, 1, 5}) {
        for (int rank = 0; rank < 3; ++rank) {
          arrivals.push_back({{run, &site, group}, rank});
        }
      }
    }
  }
  std::mt19937 random(3);
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::shuffle(arrivals.begin(), arrivals.end(), random);
    int parties = 0;
    for (const auto& [key, rank] : arrivals) {
      if (const auto party = arrive(place, key, rank, 3); !party.empty()) {
        expect_together(party, key, 3);
        ++parties;
      }
    }
    EXPECT_EQ(parties, 18);
    EXPECT_EQ(place.pending(), 0u);
  }
}

TEST(Rendezvous, RankThatComesAgainQueuesBehindItself) {
  GivenUp given_up;
  Rendezvous place(given_up.collect());
  int site = 0;
  const MeetingKey key{1, &site, 0};
  constexpr int visits = 4;
  for (int visit = 0; visit < visits; ++visit) {
    EXPECT_TRUE(arrive(place, key, 0, 3, visit).empty());
    EXPECT_TRUE(arrive(place, key, 2, 3, visit).empty());
  }
  for (int visit = 0; visit < visits; ++visit) {
    const auto party = arrive(place, key, 1, 3, visit);
    expect_together(party, key, 3);
    EXPECT_EQ(note(party[0]).visit, visit);
    EXPECT_EQ(place.pending(), visit + 1 < visits ? 1u : 0u);
  }
}

// Each rank is a thread that visits the sites of several launches in an order of its own, some of
// them again and again, as loops do.
TEST(Rendezvous, ThreadsInOrdersOfTheirOwn) {
  GivenUp given_up;
  Rendezvous place(given_up.collect());
  constexpr int ranks = 4, programs = 3, visits = 20;
  int sites[5] = {};
  std::atomic<int> parties = 0;
  std::vector<std::thread> threads;
  for (int program = 0; program < programs; ++program) {
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, program, rank] {
        std::vector<std::size_t> order;
        for (std::size_t s = 0; s < std::size(sites); ++s) {
          order.insert(order.end(), visits, s);
        }
        std::mt19937 random(static_cast<unsigned>(100 * program + rank));
        std::shuffle(order.begin(), order.end(), random);
        int visit[std::size(sites)] = {};
        for (const std::size_t s : order) {
          // Programs share the sites, as two launches of one executable do.
          const MeetingKey key{program, &sites[s], 0};
          const auto party = arrive(place, key, rank, ranks, visit[s]++);
          if (!party.empty()) {
            expect_together(party, key, ranks);
            ++parties;
          }
        }
      });
    }
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(parties, programs * visits * static_cast<int>(std::size(sites)));
  EXPECT_EQ(place.pending(), 0u);
  EXPECT_TRUE(given_up.outcomes.empty());
}

TEST(Rendezvous, WatchdogNamesTheMissingRanks) {
  GivenUp given_up;
  Rendezvous place(given_up.collect());
  int site = 0;
  place.set_timeout(50ms);
  for (int rank : {0, 2, 5}) {
    EXPECT_TRUE(arrive(place, {1, &site, 4}, rank, 6).empty());
  }
  ASSERT_TRUE(given_up.wait_for(1));
  EXPECT_EQ(given_up.ranks, (std::vector<int>{0, 2, 5}));
  EXPECT_EQ(given_up.outcomes[0].code, JAXMG_DEADLINE_EXCEEDED);
  EXPECT_NE(given_up.outcomes[0].message.find("test_call"), std::string::npos);
  EXPECT_NE(given_up.outcomes[0].message.find("group 4"), std::string::npos);
  EXPECT_NE(given_up.outcomes[0].message.find(": 1, 3, 4"), std::string::npos)
      << given_up.outcomes[0].message;
  EXPECT_EQ(place.pending(), 0u);

  // The next call is not affected.
  arrive(place, {2, &site, 4}, 1, 2);
  expect_together(arrive(place, {2, &site, 4}, 0, 2), {2, &site, 4}, 2);
}

TEST(Rendezvous, TimeLimitHoldsForThoseWhoWaitAlready) {
  GivenUp given_up;
  Rendezvous place(given_up.collect());
  int site = 0;
  arrive(place, {1, &site, 0}, 1, 2);
  std::this_thread::sleep_for(30ms);
  EXPECT_EQ(place.pending(), 1u);
  place.set_timeout(10ms);
  ASSERT_TRUE(given_up.wait_for(1));
  place.set_timeout(0ms);
  arrive(place, {2, &site, 0}, 1, 2);
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(place.pending(), 1u);
  place.set_timeout(std::chrono::duration<double>(1e300));  // does not overflow
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(place.pending(), 1u);
  EXPECT_EQ(given_up.outcomes.size(), 1u);
}

TEST(Rendezvous, DisagreementOnTheNumberOfRanksFailsAllWhoCame) {
  GivenUp given_up;
  Rendezvous place(given_up.collect());
  int site = 0;
  arrive(place, {1, &site, 0}, 0, 4);
  arrive(place, {1, &site, 0}, 3, 4);
  EXPECT_TRUE(arrive(place, {1, &site, 0}, 1, 3).empty());
  EXPECT_EQ(given_up.ranks, (std::vector<int>{0, 3, 1}));
  ASSERT_EQ(given_up.outcomes.size(), 1u);
  EXPECT_EQ(given_up.outcomes[0].code, JAXMG_INVALID_ARGUMENT);
  EXPECT_EQ(place.pending(), 0u);
}

}  // namespace
}  // namespace jaxmg
