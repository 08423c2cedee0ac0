// Lanes that run late, and their communicator: that forgotten order shows, that order asked for is
// kept, and that programs which cannot go on are told so.
#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

#include "deferred_ranks.h"

namespace jaxmg::test {
namespace {

using Comm = Communicator<Deferred>;

// How many schedules find a difference.
int found(int ranks, const std::function<double(Comm&, DeferredLanes&)>& program) {
  int differ = 0;
  for (const Schedule& schedule : schedules(ranks, 3)) {
    std::vector<double> results(static_cast<std::size_t>(ranks));
    const auto errors =
        collect_deferred_ranks(ranks, schedule, [&](Comm& comm, DeferredLanes& lanes) {
          results[static_cast<std::size_t>(comm.rank())] = program(comm, lanes);
        });
    expect_no_errors(errors);
    differ += std::accumulate(results.begin(), results.end(), 0.0) == ranks ? 0 : 1;
  }
  return differ;
}

// 1 if the value that one lane makes has reached another lane.
double hand_over(DeferredLanes& lanes, bool wait) {
  double made = 0, taken = 0;
  Deferred::fill<double>(lanes.panel, 1, 1, 1, 1, &made, 1);
  const auto event = lanes.panel.record();
  if (wait) {
    lanes.update.wait(event);
  }
  Deferred::copy<double>(lanes.update, 1, 1, &made, 1, &taken, 1);
  settle(lanes);
  return taken;
}

TEST(DeferredLaneTest, ForgottenEventsShow) {
  EXPECT_EQ(found(1, [](Comm&, DeferredLanes& lanes) { return hand_over(lanes, true); }), 0);
  EXPECT_GT(found(1, [](Comm&, DeferredLanes& lanes) { return hand_over(lanes, false); }), 3);
}

enum class Forgotten { nothing, receiver, sender };

// 1 if a message has reached all ranks and the sender's buffer is its own again.
double send(Comm& comm, DeferredLanes& lanes, Forgotten forgotten) {
  double data = comm.rank() == 0 ? 1 : 0, kept = 0;
  auto sent = comm.broadcast(lanes.copy, &data, 1, DType::f64, 0);
  if (forgotten != (comm.rank() == 0 ? Forgotten::sender : Forgotten::receiver)) {
    lanes.update.wait(sent);
  }
  Deferred::copy<double>(lanes.update, 1, 1, &data, 1, &kept, 1);
  Deferred::fill<double>(lanes.update, 1, 1, 7, 7, &data, 1);
  settle(lanes);
  comm.barrier();
  return kept;
}

TEST(DeferredLaneTest, ForgottenTicketsShow) {
  for (const int ranks : {2, 3, 4}) {
    const auto with = [&](Forgotten forgotten) {
      return found(ranks,
                   [&](Comm& comm, DeferredLanes& lanes) { return send(comm, lanes, forgotten); });
    };
    EXPECT_EQ(with(Forgotten::nothing), 0);
    EXPECT_GT(with(Forgotten::receiver), 3);
    EXPECT_GT(with(Forgotten::sender), 3);
  }
}

// A ticket that is dropped orders what comes in its own lane, and no other.
TEST(DeferredLaneTest, DroppedTicketsWaitInTheirLane) {
  const auto program = [](Comm& comm, DeferredLanes& lanes, bool own) {
    double data = 1, kept = 0;
    comm.all_reduce(lanes.copy, &data, 1, DType::f64, Reduction::sum);
    Deferred::copy<double>(own ? lanes.copy : lanes.update, 1, 1, &data, 1, &kept, 1);
    settle(lanes);
    comm.barrier();
    return kept / comm.size();
  };
  const auto with = [&](bool own) {
    return found(3, [&](Comm& comm, DeferredLanes& lanes) { return program(comm, lanes, own); });
  };
  EXPECT_EQ(with(true), 0);
  EXPECT_GT(with(false), 3);
}

// All calls, one after the other, in different lanes.
double talk(Comm& comm, DeferredLanes& lanes) {
  const int me = comm.rank(), size = comm.size();
  const auto ranks = static_cast<std::size_t>(size);
  const Size count = 40;  // a chain of chunks
  auto& lane = lanes.update;
  const auto filled = [](Size n, double first) {
    std::vector<double> v(static_cast<std::size_t>(n));
    std::iota(v.begin(), v.end(), first);
    return v;
  };
  const auto wait = [&](auto ticket) { lane.wait(ticket); };
  std::vector<double> sent = filled(count, Size{100} * (me + 1)), all(ranks * sent.size());
  std::vector<double> sum = sent, least = sent, whole = filled(Size{3} * size, me), part(3),
                      one = sent;
  wait(comm.broadcast(lanes.copy, one.data(), count, DType::f64, size - 1, 0));
  wait(comm.all_gather(lanes.panel, sent.data(), all.data(), count, DType::f64));
  wait(comm.all_reduce(lanes.copy, sum.data(), count, DType::f64, Reduction::sum));
  wait(comm.reduce(lanes.panel, least.data(), count, DType::f64, Reduction::min, size - 1));
  wait(comm.reduce_scatter(lane, whole.data(), part.data(), 3, DType::f64, Reduction::max));
  // Element r of each rank goes to rank r.
  std::vector<double> turned(ranks, 0.0);
  std::vector<Size> ones(ranks, 1), places(ranks);
  std::iota(places.begin(), places.end(), Size{0});
  wait(comm.all_to_all_v(lanes.copy, sent.data(), ones, places, turned.data(), ones, places,
                         DType::f64));
  double value = -1.0 - me;
  std::int64_t location = 10 + me;
  wait(comm.max_location(lane, &value, &location, DType::f64));
  Info info;
  info.kind = me > 0 ? 1 : 0;
  info.position = 10 - me;
  wait(comm.agree(lane, &info));
  settle(lanes);
  comm.barrier();
  bool right = value == size && location == 9 + size && part[2] == 3 * me + 2 + size - 1;
  right = right && (size == 1 || info.position == 11 - size) &&
          least[1] == 101 + (me == size - 1 ? 0 : 100 * me);
  for (int r = 0; r < size; ++r) {
    const auto at = static_cast<std::size_t>(r);
    right =
        right && all[at * sent.size() + 5] == 100 * (r + 1) + 5 && turned[at] == 100 * (r + 1) + me;
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const auto offset = static_cast<double>(i);
    right =
        right && one[i] == 100 * size + offset && sum[i] == 50 * size * (size + 1) + size * offset;
  }
  return right ? 1 : 0;
}

TEST(DeferredLaneTest, CallsDoWhatTheyAreFor) {
  for (const int ranks : {1, 2, 3, 5}) {
    EXPECT_EQ(found(ranks, talk), 0);
    EXPECT_EQ(found(ranks,
                    [](Comm& comm, DeferredLanes& lanes) {
                      const auto half = comm.split(comm.rank() % 2, -comm.rank());
                      return talk(*half, lanes);
                    }),
              0);
  }
}

std::string failure(int ranks, const DeferredProgram& program) {
  const auto errors = collect_deferred_ranks(ranks, {}, program);
  return errors[0] ? message_of(errors[0]) : "";
}

TEST(DeferredLaneTest, ProgramsThatCannotGoOnAreTold) {
  // A rank that leaves, while another one waits for it.
  EXPECT_NE(failure(2,
                    [](Comm& comm, DeferredLanes&) {
                      if (comm.rank() == 0) {
                        comm.barrier();
                      }
                    })
                .find("rank 0 waits for rank 1 in barrier"),
            std::string::npos);
  EXPECT_NE(failure(2,
                    [](Comm& comm, DeferredLanes& lanes) {
                      double x = 0;
                      comm.broadcast(lanes.copy, &x, 1 + comm.rank(), DType::f64, 0);
                    })
                .find("of a peer"),
            std::string::npos);
  EXPECT_NE(failure(3,
                    [](Comm& comm, DeferredLanes&) {
                      if (comm.rank() == 2) {
                        throw std::runtime_error("no more");
                      }
                      comm.barrier();
                    })
                .find("rank 2 failed: no more"),
            std::string::npos);
}

TEST(DeferredLaneTest, OperationsThatFailAreTold) {
  const std::string told = failure(2, [](Comm& comm, DeferredLanes& lanes) {
    lanes.panel.put("failing", [] { throw std::runtime_error("no memory"); });
    settle(lanes);
    comm.barrier();
  });
  EXPECT_NE(told.find("an operation failed: no memory"), std::string::npos) << told;
}

}  // namespace
}  // namespace jaxmg::test
