// How thread ranks fail: all of them, at once, with the reason, and never by hanging.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/thread_communicator.h"
#include "run_ranks.h"

namespace jaxmg {
namespace {

using namespace std::chrono_literals;
using Comm = Communicator<tile::Cpu>;
using Lanes = tile::CpuLanes;
using Ticket = tile::CpuTicket;

constexpr Size large = 20000;

// Runs the program and expects a CommunicationError of that kind, with these words in it, on all
// ranks but those excepted.
void expect_failure(int ranks, const RankProgram& program, Kind kind,
                    const std::vector<std::string>& words, std::span<const int> except = {},
                    const RunOptions& options = {.time_limit = 20s}) {
  const auto errors = collect_ranks(ranks, program, options);
  for (int r = 0; r < ranks; ++r) {
    if (std::find(except.begin(), except.end(), r) != except.end()) {
      continue;
    }
    const std::exception_ptr& error = errors[static_cast<std::size_t>(r)];
    ASSERT_TRUE(error) << "rank " << r << " did not fail";
    try {
      std::rethrow_exception(error);
    } catch (const CommunicationError& e) {
      EXPECT_EQ(e.kind(), kind);
      for (const std::string& word : words) {
        EXPECT_NE(std::string(e.what()).find(word), std::string::npos) << e.what();
      }
    }
  }
}

// Each blocks if rank 0 does not take part.
std::vector<RankProgram> blocking_programs() {
  return {
      [](Comm& comm, Lanes&) { comm.barrier(); },
      [](Comm& comm, Lanes&) { comm.split(0, 0); },
      [](Comm& comm, Lanes& lanes) {
        std::vector<double> data(large);
        comm.broadcast(lanes.copy, data.data(), large, DType::f64, 1).wait();
        comm.broadcast(lanes.copy, data.data(), large, DType::f64, 0).wait();
      },
      [](Comm& comm, Lanes& lanes) {
        std::vector<double> data(large);
        Message message{data.data(), nullptr};
        Ticket ticket = comm.publish(lanes.copy, message, large, DType::f64, 1);
        ticket.wait();
        ticket.release();
        comm.publish(lanes.copy, message, large, DType::f64, 0).wait();
      },
      [](Comm& comm, Lanes& lanes) {
        std::vector<double> data(large);
        comm.all_reduce(lanes.copy, data.data(), large, DType::f64, Reduction::sum).wait();
      },
      [](Comm& comm, Lanes& lanes) {
        std::vector<double> in(large), out(large * static_cast<Size>(comm.size()));
        comm.all_gather(lanes.copy, in.data(), out.data(), large, DType::f64).wait();
      },
      [](Comm& comm, Lanes& lanes) {
        Info info;
        comm.agree(lanes.copy, &info).wait();
      },
  };
}

TEST(ThreadCommunicatorFailure, AbortWakesEverybody) {
  for (const RankProgram& program : blocking_programs()) {
    const std::array except{0};
    expect_failure(
        5,
        [&](Comm& comm, Lanes& lanes) {
          if (comm.rank() == 0) {
            std::this_thread::sleep_for(20ms);
            abort_team(comm, "no more coffee");
            abort_team(comm, "a later reason");
            throw std::runtime_error("end of rank 0");
          }
          program(comm, lanes);
        },
        Kind::communication, {"no more coffee"}, except);
  }
}

TEST(ThreadCommunicatorFailure, ARankThatThrowsFailsTheOthers) {
  for (const RankProgram& program : blocking_programs()) {
    const std::array except{0};
    expect_failure(
        3,
        [&](Comm& comm, Lanes& lanes) {
          if (comm.rank() == 0) {
            throw std::runtime_error("out of luck");
          }
          program(comm, lanes);
        },
        Kind::communication, {"rank 0", "out of luck"}, except);
  }
}

TEST(ThreadCommunicatorFailure, EveryLaterCallFails) {
  expect_failure(2,
                 [](Comm& comm, Lanes& lanes) {
                   const auto child = comm.split(0, 0);
                   comm.barrier();
                   abort_team(*child, "once and for all");
                   double x = 0.0;
                   Message message{&x, nullptr};
                   auto& lane = lanes.copy;
                   EXPECT_THROW(comm.barrier(), CommunicationError);
                   EXPECT_THROW(child->barrier(), CommunicationError);
                   EXPECT_THROW(comm.broadcast(lane, &x, 0, DType::f64, comm.rank()),
                                CommunicationError);
                   EXPECT_THROW(comm.publish(lane, message, 1, DType::f64, 0), CommunicationError);
                   EXPECT_THROW(child->all_reduce(lane, &x, 1, DType::f64, Reduction::sum),
                                CommunicationError);
                   EXPECT_THROW(child->split(0, 0), CommunicationError);
                   EXPECT_THROW(check_team(comm), CommunicationError);
                 },
                 Kind::communication, {"once and for all"});
}

TEST(ThreadCommunicatorFailure, AbortReachesParentsAndChildren) {
  const std::array except{0};
  expect_failure(
      4,
      [](Comm& comm, Lanes&) {
        const auto half = comm.split(comm.rank() / 2, 0);
        const auto single = half->split(half->rank(), 0);
        if (comm.rank() == 0) {
          std::this_thread::sleep_for(20ms);
          abort_team(*single, "from below");
          throw std::runtime_error("end of rank 0");
        }
        (comm.rank() == 1 ? *half : comm).barrier();
      },
      Kind::communication, {"from below"}, except);
}

// The root unwinds while readers hold its memory and wait for its next call.
TEST(ThreadCommunicatorFailure, TicketsDroppedByAnExceptionDoNotHang) {
  const std::array except{0};
  expect_failure(
      4,
      [](Comm& comm, Lanes& lanes) {
        std::vector<double> data(large, comm.rank());
        Message message{data.data(), nullptr};
        Ticket ticket = comm.publish(lanes.copy, message, large, DType::f64, 0);
        if (comm.rank() == 0) {
          throw std::runtime_error("in the middle");
        }
        lanes.copy.wait(ticket);
        try {
          comm.barrier();
        } catch (const CommunicationError&) {
          // The view outlives the failure, for as long as the ticket is held.
          std::this_thread::sleep_for(10ms);
          EXPECT_EQ(static_cast<const double*>(message.view)[large - 1], 0.0);
          throw;
        }
      },
      Kind::communication, {"rank 0"}, except);
}

TEST(ThreadCommunicatorFailure, BuffersAreLeftAloneAfterAFailedWait) {
  for (int round = 0; round < 20; ++round) {
    collect_ranks(4, [&](Comm& comm, Lanes& lanes) {
      for (int i = 0;; ++i) {
        // Freed as soon as the wait has thrown: a sanitizer sees who still uses them.
        std::vector<double> sum(large, comm.rank());
        std::vector<double> mine(large, comm.rank());
        std::vector<double> all(large * 4);
        std::vector<double> data(large, comm.rank());
        if (comm.rank() == 0 && i == 3) {
          throw std::runtime_error("gone");
        }
        Ticket a = comm.all_reduce(lanes.copy, sum.data(), large, DType::f64, Reduction::sum);
        Ticket b = comm.all_gather(lanes.copy, mine.data(), all.data(), large, DType::f64);
        Ticket c = comm.broadcast(lanes.copy, data.data(), large, DType::f64, i % 4);
        if (comm.rank() == 3) {
          c.wait();
        }
      }
    });
  }
}

TEST(ThreadCommunicatorFailure, DestroyingACommunicatorFailsWhoStillExpectsACall) {
  auto communicators = make_thread_communicators(3);
  tile::CpuLanes lanes;
  double x = 1.0;
  // Expected by rank 1 before, and by rank 2 after rank 0 is gone.
  Ticket ticket = communicators[1]->all_reduce(lanes.copy, &x, 1, DType::f64, Reduction::sum);
  communicators[0].reset();
  EXPECT_THROW(ticket.wait(), CommunicationError);
  EXPECT_THROW(communicators[2]->barrier(), CommunicationError);

  communicators = make_thread_communicators(3);
  communicators[0].reset();
  EXPECT_NO_THROW(check_team(*communicators[1]));
  EXPECT_THROW(communicators[1]->barrier(), CommunicationError);
  EXPECT_THROW(check_team(*communicators[2]), CommunicationError);
}

TEST(ThreadCommunicatorFailure, DifferentCallsAreFound) {
  const auto mismatch = Kind::mismatched_calls;
  expect_failure(3,
                 [](Comm& comm, Lanes& lanes) {
                   double x = 0.0;
                   if (comm.rank() == 1) {
                     comm.barrier();
                   } else {
                     comm.broadcast(lanes.copy, &x, 1, DType::f64, 1).wait();
                   }
                   comm.barrier();
                 },
                 mismatch, {"barrier", "broadcast(1 f64, root 1)"});
  expect_failure(2,
                 [](Comm& comm, Lanes& lanes) {
                   std::vector<double> x(100);
                   const Size count = comm.rank() == 0 ? 99 : 100;
                   comm.all_reduce(lanes.copy, x.data(), count, DType::f64, Reduction::sum).wait();
                   comm.barrier();
                 },
                 mismatch, {"all_reduce(99 f64, sum)", "all_reduce(100 f64, sum)"});
  expect_failure(2,
                 [](Comm& comm, Lanes& lanes) {
                   std::vector<double> x(100);
                   const std::array transfer{Transfer{x.data(), 50 + comm.rank(), 1 - comm.rank()}};
                   const std::span<const Transfer> none;
                   const bool sends = comm.rank() == 0;
                   comm.exchange(lanes.copy, sends ? transfer : none, sends ? none : transfer,
                                 DType::f64)
                       .wait();
                   comm.barrier();
                 },
                 mismatch, {"rank 0 sends 400 bytes to rank 1, which expects 408"});
  expect_failure(2,
                 [](Comm& comm, Lanes& lanes) {
                   std::vector<double> x(100);
                   const std::array transfer{Transfer{x.data(), 50, 1 - comm.rank()}};
                   comm.exchange(lanes.copy, transfer, {}, DType::f64).wait();
                   comm.barrier();
                 },
                 mismatch, {"sends 1 messages", "expects 0"});
}

TEST(ThreadCommunicatorFailure, TimeLimitNamesTheMissingRanks) {
  const RunOptions options{.time_limit = 20s, .wait_limit = 100ms};
  const std::array except{1, 3};
  expect_failure(
      5,
      [](Comm& comm, Lanes&) {
        if (comm.rank() % 2 == 0) {
          comm.barrier();
        } else {
          std::this_thread::sleep_for(1s);
        }
      },
      Kind::communication, {"waited 0.1 s in barrier for ranks 1, 3 of 5"}, except, options);

  const std::array only_the_root{1, 2};
  expect_failure(
      3,
      [](Comm& comm, Lanes& lanes) {
        double x = 0.0;
        Message message{&x, nullptr};
        Ticket ticket = comm.publish(lanes.copy, message, 1, DType::f64, 0);
        if (comm.rank() == 2) {
          ticket.wait();
          std::this_thread::sleep_for(500ms);
        } else {
          ticket.release();
        }
      },
      Kind::communication, {"rank 0 waited", "publish(1 f64, root 0) for rank 2 of 3"},
      only_the_root, options);
}

TEST(ThreadCommunicatorFailure, WithinTheTimeLimitNothingHappens) {
  run_ranks(3,
            [](Comm& comm, Lanes&) {
              for (int i = 0; i < 5; ++i) {
                std::this_thread::sleep_for(std::chrono::milliseconds(10 * comm.rank()));
                comm.barrier();
              }
            },
            {.time_limit = 20s, .wait_limit = 10s});
}

TEST(ThreadCommunicatorFailure, OtherTeamsAreNotConcerned) {
  auto good = make_thread_communicators(1);
  auto bad = make_thread_communicators(1);
  abort_team(*bad[0], "bad");
  EXPECT_THROW(bad[0]->barrier(), CommunicationError);
  EXPECT_NO_THROW(good[0]->barrier());
}

}  // namespace
}  // namespace jaxmg
