// When the calls of the thread ranks' communicator block, and when they must not.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <thread>
#include <vector>

#include "comm/thread_communicator.h"
#include "rank_data.h"
#include "run_ranks.h"

namespace jaxmg {
namespace {

using namespace std::chrono_literals;
using rank_data::block;
using rank_data::expect_same;
using rank_data::reduced;
using Comm = Communicator<tile::Cpu>;
using Lanes = tile::CpuLanes;
using Ticket = tile::CpuTicket;

constexpr Size large = 20000;  // elements that no call takes along

// An event that one rank sets and others wait for, outside of the communicator.
class Signal {
 public:
  void set() { promise_.set_value(); }
  void wait() const { future_.wait(); }
  bool is_set_within(std::chrono::milliseconds time) const {
    return future_.wait_for(time) == std::future_status::ready;
  }

 private:
  std::promise<void> promise_;
  std::shared_future<void> future_ = promise_.get_future().share();
};

TEST(ThreadCommunicatorOrder, CallsReturnBeforeTheOthersCome) {
  Signal called;
  run_ranks(3, [&](Comm& comm, Lanes& lanes) {
    if (comm.rank() != 1) {
      called.wait();
    }
    auto data = block<double>(comm.rank(), large);
    auto sum = block<double>(comm.rank(), large);
    std::vector<double> all(3 * large);
    Message message{data.data(), nullptr};
    Ticket published = comm.publish(lanes.copy, message, large, DType::f64, 1);
    Ticket summed = comm.all_reduce(lanes.copy, sum.data(), large, DType::f64, Reduction::sum);
    Ticket gathered = comm.all_gather(lanes.copy, data.data(), all.data(), large, DType::f64);
    if (comm.rank() == 1) {
      called.set();
    } else {
      published.release();
    }
    gathered.wait();
    summed.wait();
    expect_same(sum, reduced<double>(3, large, Reduction::sum));
    expect_same(std::vector<double>(all.end() - large, all.end()), block<double>(2, large));
  });
}

TEST(ThreadCommunicatorOrder, OneRankMayBeManyOperationsAhead) {
  constexpr int operations = 3000;
  run_ranks(5, [](Comm& comm, Lanes& lanes) {
    std::array<std::vector<double>, 2> buffers;
    for (int i = 0; i < operations; ++i) {
      // Small: the root runs ahead without limit, and reuses its buffer at once.
      std::vector<double> data{comm.rank() == 0 ? i : -1.0, 1.0};
      Ticket ticket = comm.broadcast(lanes.copy, data.data(), 2, DType::f64, 0);
      ticket.wait();
      ASSERT_EQ(data[0], i);
    }
    // Large: as many as it has buffers.
    std::vector<std::vector<double>> data(40, std::vector<double>(large, comm.rank()));
    std::vector<Ticket> tickets;
    for (auto& d : data) {
      tickets.push_back(comm.broadcast(lanes.copy, d.data(), large, DType::f64, 0));
      if (comm.rank() != 0) {
        tickets.back().wait();
        EXPECT_EQ(d.back(), 0.0);
      }
    }
  });
}

TEST(ThreadCommunicatorOrder, SendersOfSmallMessagesDoNotWait) {
  Signal waited;
  run_ranks(2, [&](Comm& comm, Lanes& lanes) {
    std::vector<float> a{1, 2}, b{3, 4}, c{5, 6};
    const std::array transfer{Transfer{b.data(), 2, 1 - comm.rank()}};
    const std::span<const Transfer> none;
    const bool first = comm.rank() == 0;
    if (!first) {
      a = b = {0, 0};
      waited.wait();
    }
    comm.broadcast(lanes.copy, a.data(), 2, DType::f32, 0).wait();
    comm.exchange(lanes.copy, first ? transfer : none, first ? none : transfer, DType::f32).wait();
    comm.reduce(lanes.copy, c.data(), 2, DType::f32, Reduction::sum, 1).wait();
    if (first) {
      a = b = c = {-1, -1};
      waited.set();
    } else {
      EXPECT_EQ(a, (std::vector<float>{1, 2}));
      EXPECT_EQ(b, (std::vector<float>{3, 4}));
      EXPECT_EQ(c, (std::vector<float>{10, 12}));
    }
  });
}

// A rank that waits does the work of one that does not: no wait depends on another rank's wait.
TEST(ThreadCommunicatorOrder, WaitsMayBeInAnyOrder) {
  for (const int ranks : {2, 3, 5, 8}) {
    run_ranks(ranks, [](Comm& comm, Lanes& lanes) {
      for (int round = 0; round < 10; ++round) {
        auto sent = block<double>(comm.rank(), large);
        auto sum = block<double>(comm.rank(), large);
        const auto mine = block<double>(comm.rank(), large);
        std::vector<double> all(static_cast<std::size_t>(large * comm.size()));
        std::array<Ticket, 3> tickets;
        tickets[0] = comm.broadcast(lanes.copy, sent.data(), large, DType::f64, 0);
        tickets[1] = comm.all_reduce(lanes.copy, sum.data(), large, DType::f64, Reduction::sum);
        tickets[2] = comm.all_gather(lanes.copy, mine.data(), all.data(), large, DType::f64);
        for (std::size_t i = 0; i < 3; ++i) {
          const auto turn = static_cast<std::size_t>(comm.rank() + round);
          tickets[(i + turn) % 3].wait();
        }
        expect_same(sent, block<double>(0, large));
        expect_same(sum, reduced<double>(comm.size(), large, Reduction::sum));
        for (int r = 0; r < comm.size(); ++r) {
          const auto begin = all.begin() + r * large;
          expect_same(std::vector<double>(begin, begin + large), block<double>(r, large));
        }
      }
    });
  }
}

TEST(ThreadCommunicatorOrder, ARootThatWaitsServesReadersThatCompute) {
  Signal served;
  run_ranks(3, [&](Comm& comm, Lanes& lanes) {
    auto data = block<double>(comm.rank(), large);
    Ticket ticket = comm.broadcast(lanes.copy, data.data(), large, DType::f64, 0);
    if (comm.rank() == 0) {
      ticket.wait();
      served.set();
    } else {
      served.wait();
      ticket.wait();
    }
    expect_same(data, block<double>(0, large));
  });
}

TEST(ThreadCommunicatorOrder, PublishedMemoryIsTheRootsAgainWhenTheLastReaderHasReleased) {
  std::array<Signal, 4> released;
  std::atomic<int> readers = 3;
  Signal over;
  run_ranks(4, [&](Comm& comm, Lanes& lanes) {
    std::vector<double> data(large, comm.rank() == 0 ? 7.0 : 0.0);
    Message message{data.data(), nullptr};
    Ticket ticket = comm.publish(lanes.copy, message, large, DType::f64, 0, 3);
    if (comm.rank() == 0) {
      ticket.wait();
      EXPECT_EQ(readers.load(), 0);
      data.assign(large, -1.0);
      over.set();
      return;
    }
    ticket.wait();
    // Readers release one after another, 3 first; until then the data stays.
    if (comm.rank() < 3) {
      released[static_cast<std::size_t>(comm.rank()) + 1].wait();
    }
    EXPECT_FALSE(over.is_set_within(20ms));
    EXPECT_EQ(static_cast<const double*>(message.view)[large - 1], 7.0);
    --readers;
    ticket = Ticket();
    released[static_cast<std::size_t>(comm.rank())].set();
  });
}

TEST(ThreadCommunicatorOrder, SeveralPublishedBuffersAtOnce) {
  run_ranks(5, [](Comm& comm, Lanes& lanes) {
    std::array<std::vector<double>, 2> buffer;
    std::array<Ticket, 2> tickets;
    std::array<Message, 2> messages;
    for (int step = 0; step < 100; ++step) {
      const auto i = static_cast<std::size_t>(step % 2);
      tickets[i].release();  // the buffer of two steps ago
      buffer[i].assign(500, step);
      messages[i] = {buffer[i].data(), nullptr};
      tickets[i] = comm.publish(lanes.copy, messages[i], 500, DType::f64, step % comm.size(),
                                (step + 1) % comm.size());
      if (comm.rank() != step % comm.size()) {
        tickets[i].wait();
      }
      ASSERT_EQ(static_cast<const double*>(messages[i].view)[499], step);
      if (comm.rank() != step % comm.size()) {
        buffer[i].assign(500, -1.0);  // not what is viewed
        ASSERT_EQ(static_cast<const double*>(messages[i].view)[0], step);
      }
    }
    for (std::size_t i = 0; i < 2; ++i) {
      tickets[i].release();
    }
  });
}

TEST(ThreadCommunicatorOrder, DroppedTicketsAreWaitedFor) {
  run_ranks(3, [](Comm& comm, Lanes& lanes) {
    for (int round = 0; round < 20; ++round) {
      std::vector<double> data(large, comm.rank());
      std::vector<double> sum(large, comm.rank());
      {
        Ticket a = comm.broadcast(lanes.copy, data.data(), large, DType::f64, 2);
        Ticket b = comm.all_reduce(lanes.copy, sum.data(), large, DType::f64, Reduction::max);
        Message message{data.data(), nullptr};
        // Readers that never look do not hold up the root.
        Ticket c = comm.publish(lanes.copy, message, large, DType::f64, 1);
      }
      EXPECT_EQ(data, std::vector<double>(large, 2.0));
      EXPECT_EQ(sum, std::vector<double>(large, 2.0));
      comm.broadcast(lanes.copy, data.data(), large, DType::f64, 0);  // never kept
    }
  });
}

TEST(ThreadCommunicatorOrder, SplitOrdersRanksByKey) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    run_ranks(ranks, [](Comm& comm, Lanes& lanes) {
      // Two colors; within each, descending order by key, then equal keys: ascending.
      const auto group = comm.split(comm.rank() % 2, -comm.rank());
      const int members = (comm.size() + 1 - comm.rank() % 2) / 2;
      EXPECT_EQ(group->size(), members);
      EXPECT_EQ(group->rank(), members - 1 - comm.rank() / 2);
      const auto same = comm.split(-5, 3);
      EXPECT_EQ(same->rank(), comm.rank());
      EXPECT_EQ(same->size(), comm.size());

      // Parent, children and a child's child at once.
      const auto alone = group->split(group->rank(), 0);
      EXPECT_EQ(alone->size(), 1);
      double in_group = comm.rank(), in_all = comm.rank(), by_itself = comm.rank();
      Ticket a = comm.all_reduce(lanes.copy, &in_all, 1, DType::f64, Reduction::sum);
      Ticket b = group->all_reduce(lanes.copy, &in_group, 1, DType::f64, Reduction::sum);
      Ticket c = alone->all_reduce(lanes.copy, &by_itself, 1, DType::f64, Reduction::sum);
      std::vector<double> data(large, comm.rank());
      Ticket d = group->broadcast(lanes.copy, data.data(), large, DType::f64, 0);
      c.wait();
      d.wait();
      b.wait();
      a.wait();
      double expected = 0.0;
      for (int r = comm.rank() % 2; r < comm.size(); r += 2) {
        expected += r;
      }
      EXPECT_EQ(in_group, expected);
      EXPECT_EQ(in_all, comm.size() * (comm.size() - 1) / 2.0);
      EXPECT_EQ(by_itself, comm.rank());
      EXPECT_EQ(data[0], comm.rank() % 2 + 2.0 * (members - 1));
    });
  }
}

TEST(ThreadCommunicatorOrder, ChildrenOutliveTheirParent) {
  auto parents = make_thread_communicators(4);
  std::array<std::unique_ptr<Comm>, 4> children;
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      auto child = parents[r]->split(static_cast<int>(r / 2), 0);
      parents[r].reset();
      for (int i = 0; i < 100; ++i) {
        child->barrier();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

}  // namespace
}  // namespace jaxmg
