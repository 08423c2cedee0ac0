// What each operation of the thread ranks' communicator delivers.
#include "comm/thread_communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <complex>
#include <future>
#include <limits>
#include <vector>

#include "rank_data.h"
#include "run_ranks.h"

namespace jaxmg {
namespace {

using rank_data::block;
using rank_data::expect_same;
using rank_data::reduced;
using rank_data::reductions;
using Comm = Communicator<tile::Cpu>;
using Lanes = tile::CpuLanes;
using Ticket = tile::CpuTicket;

constexpr std::array<int, 5> rank_counts{1, 2, 3, 5, 8};
// Nothing, one element, messages that are taken along, and messages that are not.
constexpr std::array<Size, 5> counts{0, 1, 7, 1000, 20001};

template <class T>
class ThreadCommunicator : public ::testing::Test {};
using Types =
    ::testing::Types<std::int32_t, float, double, std::complex<float>, std::complex<double>>;
TYPED_TEST_SUITE(ThreadCommunicator, Types);

TYPED_TEST(ThreadCommunicator, BroadcastGivesTheRootsData) {
  using T = TypeParam;
  for (const int ranks : rank_counts) {
    run_ranks(ranks, [](Comm& comm, Lanes& lanes) {
      for (const Size count : counts) {
        for (int root = 0; root < comm.size(); ++root) {
          std::vector<T> data = block<T>(comm.rank(), count);
          Ticket ticket = comm.broadcast(lanes.copy, data.data(), count, dtype_of<T>, root,
                                         (root + 1) % comm.size());
          lanes.update.wait(ticket);
          expect_same(data, block<T>(root, count));
        }
      }
    });
  }
}

TYPED_TEST(ThreadCommunicator, PublishShowsTheRootsMemory) {
  using T = TypeParam;
  for (const int ranks : rank_counts) {
    std::vector<const void*> roots(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](Comm& comm, Lanes& lanes) {
      for (const Size count : counts) {
        std::vector<T> mine = block<T>(comm.rank(), count);
        roots[static_cast<std::size_t>(comm.rank())] = mine.data();
        comm.barrier();
        for (int root = 0; root < comm.size(); ++root) {
          Message message{mine.data(), nullptr};
          Ticket ticket = comm.publish(lanes.copy, message, count, dtype_of<T>, root);
          if (comm.rank() == root) {
            EXPECT_EQ(message.view, mine.data());
          } else {
            lanes.update.wait(ticket);
            EXPECT_EQ(message.view, roots[static_cast<std::size_t>(root)]);
          }
          const T* view = static_cast<const T*>(message.view);
          expect_same(std::vector<T>(view, view + count), block<T>(root, count));
          expect_same(mine, block<T>(comm.rank(), count));
        }
        comm.barrier();
      }
    });
  }
}

TYPED_TEST(ThreadCommunicator, AllReduceHasTheBitsOfTheSumInRankOrder) {
  using T = TypeParam;
  for (const int ranks : rank_counts) {
    run_ranks(ranks, [](Comm& comm, Lanes& lanes) {
      for (const Reduction op : reductions<T>()) {
        for (const Size count : counts) {
          std::vector<T> data = block<T>(comm.rank(), count);
          comm.all_reduce(lanes.copy, data.data(), count, dtype_of<T>, op).wait();
          expect_same(data, reduced<T>(comm.size(), count, op));
        }
      }
    });
  }
}

TYPED_TEST(ThreadCommunicator, ReduceChangesTheRootAlone) {
  using T = TypeParam;
  for (const int ranks : rank_counts) {
    run_ranks(ranks, [](Comm& comm, Lanes& lanes) {
      for (const Reduction op : reductions<T>()) {
        for (const Size count : counts) {
          const int root = static_cast<int>(count) % comm.size();
          std::vector<T> data = block<T>(comm.rank(), count);
          comm.reduce(lanes.copy, data.data(), count, dtype_of<T>, op, root).wait();
          expect_same(data, comm.rank() == root ? reduced<T>(comm.size(), count, op)
                                                : block<T>(comm.rank(), count));
        }
      }
    });
  }
}

TYPED_TEST(ThreadCommunicator, ReduceScatterGivesEachRankItsBlock) {
  using T = TypeParam;
  for (const int ranks : rank_counts) {
    run_ranks(ranks, [](Comm& comm, Lanes& lanes) {
      for (const Reduction op : reductions<T>()) {
        for (const Size count : {0, 1, 7, 3000, 10001}) {
          for (const bool in_place : {false, true}) {
            std::vector<T> in = block<T>(comm.rank(), count * comm.size());
            std::vector<T> out(static_cast<std::size_t>(count));
            T* mine = in.data() + comm.rank() * count;
            comm.reduce_scatter(lanes.copy, in.data(), in_place ? mine : out.data(), count,
                                dtype_of<T>, op)
                .wait();
            if (in_place) {
              out.assign(mine, mine + count);
            }
            const auto all = reduced<T>(comm.size(), count * comm.size(), op);
            const auto begin = all.begin() + comm.rank() * count;
            expect_same(out, std::vector<T>(begin, begin + count));
          }
        }
      }
    });
  }
}

TYPED_TEST(ThreadCommunicator, AllGatherPutsBlocksInRankOrder) {
  using T = TypeParam;
  for (const int ranks : rank_counts) {
    run_ranks(ranks, [](Comm& comm, Lanes& lanes) {
      for (const Size count : {0, 1, 7, 1000, 10001}) {
        std::vector<T> expected;
        for (int r = 0; r < comm.size(); ++r) {
          const std::vector<T> part = block<T>(r, count);
          expected.insert(expected.end(), part.begin(), part.end());
        }
        const std::vector<T> in = block<T>(comm.rank(), count);
        std::vector<T> out(expected.size());
        comm.all_gather(lanes.copy, in.data(), out.data(), count, dtype_of<T>).wait();
        expect_same(out, expected);

        std::vector<T> whole(expected.size());
        T* mine = whole.data() + comm.rank() * count;
        std::copy(in.begin(), in.end(), mine);
        comm.all_gather(lanes.copy, mine, whole.data(), count, dtype_of<T>).wait();
        expect_same(whole, expected);
      }
    });
  }
}

TYPED_TEST(ThreadCommunicator, AllToAllDeliversBlocksOfAnySize) {
  using T = TypeParam;
  // Sent from a to b; some blocks are empty, and they lie with gaps, last rank first.
  const auto size = [](int a, int b) { return Size{(a * 5 + b * 3) % 4 * ((a + b) % 3) * 400}; };
  for (const int ranks : rank_counts) {
    run_ranks(ranks, [&](Comm& comm, Lanes& lanes) {
      const auto all = static_cast<std::size_t>(comm.size());
      std::vector<Size> send_counts(all), send_offsets(all), recv_counts(all), recv_offsets(all);
      Size sent = 0, received = 0;
      for (std::size_t r = all; r-- > 0;) {
        send_counts[r] = size(comm.rank(), static_cast<int>(r));
        recv_counts[r] = size(static_cast<int>(r), comm.rank());
        send_offsets[r] = sent;
        recv_offsets[r] = received;
        sent += send_counts[r] + 1;
        received += recv_counts[r] + 1;
      }
      std::vector<T> in(static_cast<std::size_t>(sent));
      std::vector<T> out(static_cast<std::size_t>(received), T(-1));
      std::vector<T> expected = out;
      for (std::size_t r = 0; r < all; ++r) {
        const int peer = static_cast<int>(r);
        const auto outgoing = block<T>(100 * comm.rank() + peer, send_counts[r]);
        std::copy(outgoing.begin(), outgoing.end(), in.begin() + send_offsets[r]);
        const auto incoming = block<T>(100 * peer + comm.rank(), recv_counts[r]);
        std::copy(incoming.begin(), incoming.end(), expected.begin() + recv_offsets[r]);
      }
      comm.all_to_all_v(lanes.copy, in.data(), send_counts, send_offsets, out.data(), recv_counts,
                        recv_offsets, dtype_of<T>)
          .wait();
      expect_same(out, expected);
    });
  }
}

// Each rank sends two messages, of different sizes, to every second rank after it, itself included.
TYPED_TEST(ThreadCommunicator, ExchangeMatchesMessagesInOrder) {
  using T = TypeParam;
  for (const int ranks : rank_counts) {
    run_ranks(ranks, [](Comm& comm, Lanes& lanes) {
      const auto talks = [](int from, int to) { return (to - from + 16) % 2 == 0 || from == 1; };
      std::vector<std::vector<T>> out, in, expected;
      std::vector<Transfer> sends, receives;
      for (const Size count : {5, 20000}) {
        for (int peer = comm.size() - 1; peer >= 0; --peer) {
          if (talks(comm.rank(), peer)) {
            out.push_back(block<T>(100 * comm.rank() + peer, count));
            sends.push_back({out.back().data(), count, peer});
          }
          if (talks(peer, comm.rank())) {
            expected.push_back(block<T>(100 * peer + comm.rank(), count));
            in.emplace_back(static_cast<std::size_t>(count));
            receives.push_back({in.back().data(), count, peer});
          }
        }
      }
      Ticket ticket = comm.exchange(lanes.copy, sends, receives, dtype_of<T>);
      sends.clear();
      receives.clear();
      lanes.copy.wait(ticket);
      for (std::size_t i = 0; i < in.size(); ++i) {
        expect_same(in[i], expected[i]);
      }
    });
  }
}

TEST(ThreadCommunicator, ExchangeConcernsOnlyTheRanksNamed) {
  std::promise<void> passed;
  const std::shared_future<void> has_passed = passed.get_future().share();
  run_ranks(3, [&](Comm& comm, Lanes& lanes) {
    std::vector<double> data(10000, comm.rank());
    if (comm.rank() == 2) {
      // Waits for nobody, although the others come later.
      comm.exchange(lanes.copy, {}, {}, DType::f64).wait();
      passed.set_value();
      return;
    }
    has_passed.wait();
    const std::array transfer{Transfer{data.data(), 10000, 1 - comm.rank()}};
    const std::span<const Transfer> none;
    const bool sends = comm.rank() == 0;
    comm.exchange(lanes.copy, sends ? transfer : none, sends ? none : transfer, DType::f64).wait();
    EXPECT_EQ(data, std::vector<double>(10000, 0.0));
  });
}

template <class T>
void check_locations() {
  for (const int ranks : rank_counts) {
    run_ranks(ranks, [](Comm& comm, Lanes& lanes) {
      const int middle = comm.size() / 2;
      // Magnitudes 3, 3, ..., with 5 at the middle and the last rank, and alternating signs.
      const auto magnitude = [&](int r) { return r == middle || r == comm.size() - 1 ? 5 : 3; };
      const int sign = comm.rank() % 2 == 0 ? -1 : 1;
      T value = static_cast<T>(sign * magnitude(comm.rank()));
      std::int64_t location = (std::int64_t{1} << 40) + comm.rank();
      comm.max_location(lanes.copy, &value, &location, dtype_of<T>).wait();
      EXPECT_EQ(value, T(5));
      EXPECT_EQ(location, (std::int64_t{1} << 40) + middle);

      value = static_cast<T>(sign * magnitude(comm.rank()));
      location = comm.rank();
      comm.min_location(lanes.copy, &value, &location, dtype_of<T>).wait();
      int lowest = 0;
      while (lowest < comm.size() - 1 && magnitude(lowest) != 3) {
        ++lowest;
      }
      lowest = magnitude(lowest) == 3 ? lowest : 0;
      EXPECT_EQ(value, static_cast<T>(magnitude(lowest)));
      EXPECT_EQ(location, lowest);
    });
  }
}

TEST(ThreadCommunicator, LocationsAreThoseOfTheLowestRankWithTheExtremeMagnitude) {
  check_locations<float>();
  check_locations<double>();
  check_locations<std::int32_t>();
}

TEST(ThreadCommunicator, NaNIsExtreme) {
  run_ranks(3, [](Comm& comm, Lanes& lanes) {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    for (const Reduction op : {Reduction::min, Reduction::max}) {
      for (int bad = 0; bad < 3; ++bad) {
        double x = comm.rank() == bad ? nan : comm.rank();
        comm.all_reduce(lanes.copy, &x, 1, DType::f64, op).wait();
        EXPECT_TRUE(std::isnan(x));
        x = comm.rank() == bad ? nan : comm.rank();
        std::int64_t location = comm.rank();
        (op == Reduction::min ? comm.min_location(lanes.copy, &x, &location, DType::f64)
                              : comm.max_location(lanes.copy, &x, &location, DType::f64))
            .wait();
        EXPECT_TRUE(std::isnan(x));
        EXPECT_EQ(location, bad);
      }
    }
  });
}

TEST(ThreadCommunicator, AgreeTakesTheLeastSeverity) {
  for (const int ranks : rank_counts) {
    run_ranks(ranks, [](Comm& comm, Lanes& lanes) {
      const auto agreed = [&](Info info) {
        info.rank = comm.rank();
        comm.agree(lanes.copy, &info).wait();
        return info;
      };
      const int last = comm.size() - 1;
      EXPECT_EQ(agreed({}).kind, 0);

      const Info position = agreed({.kind = 1, .position = 100 - comm.rank()});
      EXPECT_EQ(position.position, 100 - last);
      EXPECT_EQ(position.rank, last);

      const Info one = agreed(comm.rank() == last ? Info{.kind = 2, .position = 9} : Info{});
      EXPECT_EQ(one.kind, 2);
      EXPECT_EQ(one.rank, last);

      const Info bad = agreed({.kind = comm.rank() == last ? -1 : 1, .position = 1});
      EXPECT_EQ(bad.kind, -1);
      EXPECT_EQ(bad.rank, last);
    });
  }
}

TEST(ThreadCommunicator, SumsOfIntegersWrapAround) {
  run_ranks(2, [](Comm& comm, Lanes& lanes) {
    std::int32_t x = std::numeric_limits<std::int32_t>::max();
    comm.all_reduce(lanes.copy, &x, 1, DType::i32, Reduction::sum).wait();
    EXPECT_EQ(x, -2);
  });
}

TEST(ThreadCommunicator, BarrierSeparates) {
  for (const int ranks : rank_counts) {
    std::atomic<int> entered = 0;
    run_ranks(ranks, [&](Comm& comm, Lanes&) {
      for (int round = 1; round <= 50; ++round) {
        ++entered;
        comm.barrier();
        EXPECT_GE(entered.load(), round * comm.size());
        comm.barrier();
      }
    });
  }
}

TEST(ThreadCommunicator, ArgumentsThatMakeNoSenseAreRefusedAtOnce) {
  run_ranks(2, [](Comm& comm, Lanes& lanes) {
    std::complex<double> z;
    std::int64_t location = 0;
    auto& lane = lanes.copy;
    EXPECT_THROW(comm.all_reduce(lane, &z, 1, DType::c128, Reduction::max), std::invalid_argument);
    EXPECT_THROW(comm.reduce(lane, &z, 1, DType::c64, Reduction::min, 0), std::invalid_argument);
    EXPECT_THROW(comm.reduce_scatter(lane, &z, &z, 0, DType::c64, Reduction::min),
                 std::invalid_argument);
    EXPECT_THROW(comm.max_location(lane, &z, &location, DType::c64), std::invalid_argument);
    EXPECT_THROW(comm.broadcast(lane, &z, -1, DType::c64, 0), std::invalid_argument);
    EXPECT_THROW(comm.broadcast(lane, &z, 1, DType::c64, 2), std::invalid_argument);
    EXPECT_THROW(comm.all_to_all_v(lane, &z, {}, {}, &z, {}, {}, DType::c64),
                 std::invalid_argument);
    const std::array transfer{Transfer{&z, 1, 7}};
    EXPECT_THROW(comm.exchange(lane, transfer, {}, DType::c64), std::invalid_argument);
    comm.barrier();  // nothing is out of step
  });
  EXPECT_THROW(make_thread_communicators(0), std::invalid_argument);
}

}  // namespace
}  // namespace jaxmg
