// Random operations on random communicators, waited for in random order.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "comm/thread_communicator.h"
#include "rank_data.h"
#include "run_ranks.h"

namespace jaxmg {
namespace {

using rank_data::block;
using rank_data::expect_same;
using rank_data::reduced;
using rank_data::reductions;
using Comm = Communicator<tile::Cpu>;
using Ticket = tile::CpuTicket;

// An operation under way: what it will have to deliver, and whether this rank may wait for it
// before all ranks have made their calls.
struct Flight {
  Ticket ticket;
  std::function<void()> check;  // holds the buffers
  bool lends = false;
};

// Both ranks of a pair draw the same numbers from equal generators: `shared` decides what is done,
// `own` in which order this rank waits.
class Pilot {
 public:
  Pilot(unsigned seed, int rank) : shared_(seed), own_(seed + 77U * static_cast<unsigned>(rank)) {}

  Size draw(Size below) { return static_cast<Size>(shared_() % static_cast<unsigned>(below)); }
  Size draw_own(Size below) { return static_cast<Size>(own_() % static_cast<unsigned>(below)); }

  template <class T>
  Flight take_off(Comm& comm) {
    constexpr std::array<Size, 6> sizes{0, 1, 10, 600, 3000, 20000};
    const Size count = sizes[static_cast<std::size_t>(draw(6))];
    const int root = static_cast<int>(draw(comm.size()));
    const auto ops = reductions<T>();
    const Reduction op = ops[static_cast<std::size_t>(draw(static_cast<Size>(ops.size())))];
    switch (draw(8)) {
      case 0:
        return broadcast<T>(comm, count, root);
      case 1:
        return publish<T>(comm, count, root);
      case 2:
        return all_reduce<T>(comm, count, op);
      case 3:
        return reduce<T>(comm, count, op, root);
      case 4:
        return reduce_scatter<T>(comm, count / 4, op);
      case 5:
        return all_gather<T>(comm, count / 4);
      case 6:
        return exchange<T>(comm, count, root + 1);
      default:
        return agree(comm);
    }
  }

 private:
  template <class T>
  using Data = std::shared_ptr<std::vector<T>>;
  template <class T>
  static Data<T> hold(std::vector<T> data) {
    return std::make_shared<std::vector<T>>(std::move(data));
  }

  template <class T>
  Flight broadcast(Comm& comm, Size count, int root) {
    auto data = hold(block<T>(comm.rank(), count));
    return {comm.broadcast(lane_, data->data(), count, dtype_of<T>, root),
            [=] { expect_same(*data, block<T>(root, count)); }};
  }

  template <class T>
  Flight publish(Comm& comm, Size count, int root) {
    auto data = hold(block<T>(comm.rank(), count));
    auto message = std::make_shared<Message>(Message{data->data(), nullptr});
    return {comm.publish(lane_, *message, count, dtype_of<T>, root),
            [=] {
              const T* view = static_cast<const T*>(message->view);
              expect_same(std::vector<T>(view, view + count), block<T>(root, count));
              (void)data;
            },
            comm.rank() == root};
  }

  template <class T>
  Flight all_reduce(Comm& comm, Size count, Reduction op) {
    auto data = hold(block<T>(comm.rank(), count));
    return {comm.all_reduce(lane_, data->data(), count, dtype_of<T>, op),
            [=, ranks = comm.size()] { expect_same(*data, reduced<T>(ranks, count, op)); }};
  }

  template <class T>
  Flight reduce(Comm& comm, Size count, Reduction op, int root) {
    auto data = hold(block<T>(comm.rank(), count));
    return {comm.reduce(lane_, data->data(), count, dtype_of<T>, op, root),
            [=, ranks = comm.size(), rank = comm.rank()] {
              expect_same(*data,
                          rank == root ? reduced<T>(ranks, count, op) : block<T>(rank, count));
            }};
  }

  template <class T>
  Flight reduce_scatter(Comm& comm, Size count, Reduction op) {
    auto in = hold(block<T>(comm.rank(), count * comm.size()));
    auto out = hold(std::vector<T>(static_cast<std::size_t>(count)));
    return {comm.reduce_scatter(lane_, in->data(), out->data(), count, dtype_of<T>, op),
            [=, ranks = comm.size(), rank = comm.rank()] {
              const auto all = reduced<T>(ranks, count * ranks, op);
              const auto begin = all.begin() + rank * count;
              expect_same(*out, std::vector<T>(begin, begin + count));
              (void)in;
            }};
  }

  template <class T>
  Flight all_gather(Comm& comm, Size count) {
    auto in = hold(block<T>(comm.rank(), count));
    auto out = hold(std::vector<T>(static_cast<std::size_t>(count * comm.size())));
    return {comm.all_gather(lane_, in->data(), out->data(), count, dtype_of<T>),
            [=, ranks = comm.size()] {
              for (int r = 0; r < ranks; ++r) {
                const auto begin = out->begin() + r * count;
                expect_same(std::vector<T>(begin, begin + count), block<T>(r, count));
              }
              (void)in;
            }};
  }

  // Each rank sends to the one `shift` places on.
  template <class T>
  Flight exchange(Comm& comm, Size count, int shift) {
    const int ranks = comm.size();
    const int to = (comm.rank() + shift) % ranks;
    const int from = (comm.rank() + ranks - shift % ranks) % ranks;
    auto out = hold(block<T>(comm.rank(), count));
    auto in = hold(std::vector<T>(out->size()));
    const std::array sends{Transfer{out->data(), count, to}};
    const std::array receives{Transfer{in->data(), count, from}};
    return {comm.exchange(lane_, sends, receives, dtype_of<T>), [=] {
              expect_same(*in, block<T>(from, count));
              (void)out;
            }};
  }

  Flight agree(Comm& comm) {
    auto info = std::make_shared<Info>();
    const int failing = static_cast<int>(draw(comm.size()));
    info->kind = comm.rank() == failing ? 1 : 0;
    info->position = comm.rank();
    return {comm.agree(lane_, info.get()), [=] { EXPECT_EQ(info->position, failing); }};
  }

  tile::CpuLane lane_{tile::Priority::normal};
  std::minstd_rand shared_;
  std::minstd_rand own_;
};

Flight take_off(Pilot& pilot, Comm& comm) {
  switch (pilot.draw(5)) {
    case 0:
      return pilot.take_off<float>(comm);
    case 1:
      return pilot.take_off<double>(comm);
    case 2:
      return pilot.take_off<std::complex<float>>(comm);
    case 3:
      return pilot.take_off<std::complex<double>>(comm);
    default:
      return pilot.take_off<std::int32_t>(comm);
  }
}

void land(std::vector<Flight>& flights, std::size_t which) {
  flights[which].ticket.wait();
  flights[which].check();
  flights.erase(flights.begin() + static_cast<std::ptrdiff_t>(which));
}

void fly(Comm& comm, unsigned seed) {
  Pilot pilot(seed, comm.rank());
  const auto half = comm.split(comm.rank() % 2, -comm.rank());
  const auto shuffled = comm.split(0, (comm.rank() * 3 + 1) % comm.size());
  std::vector<Flight> flights;
  for (int round = 0; round < 200; ++round) {
    // Ranks of the two halves draw the same numbers, so that the halves do the same things.
    const Size which = pilot.draw(4);
    Comm& chosen = which == 0 && comm.size() % 2 == 0 ? *half : which == 1 ? *shuffled : comm;
    flights.push_back(take_off(pilot, chosen));
    // A publishing root waits for its readers, so it does that when it has made all its calls.
    while (flights.size() > 6 && pilot.draw_own(3) > 0) {
      const auto victim =
          static_cast<std::size_t>(pilot.draw_own(static_cast<Size>(flights.size())));
      if (!flights[victim].lends) {
        land(flights, victim);
      }
    }
    if (round % 20 == 19) {
      // Readers before roots: all that a root waits for is released before a rank waits as root.
      for (const bool lends : {false, true}) {
        for (std::size_t i = flights.size(); i-- > 0;) {
          if (flights[i].lends == lends) {
            land(flights, i);
          }
        }
      }
    }
  }
}

TEST(ThreadCommunicatorStress, RandomOperations) {
  for (const int ranks : {1, 2, 3, 5, 8}) {
    for (unsigned seed = 1; seed <= 3; ++seed) {
      run_ranks(ranks, [seed](Comm& comm, tile::CpuLanes&) { fly(comm, seed); });
    }
  }
}

TEST(ThreadCommunicatorStress, ThousandsOfSmallOperations) {
  run_ranks(8, [](Comm& comm, tile::CpuLanes& lanes) {
    for (int i = 0; i < 2000; ++i) {
      double x = comm.rank() + i;
      comm.all_reduce(lanes.copy, &x, 1, DType::f64, Reduction::max).wait();
      ASSERT_EQ(x, 7 + i);
      double y = comm.rank() == i % 8 ? i : -1;
      comm.broadcast(lanes.copy, &y, 1, DType::f64, i % 8).wait();
      ASSERT_EQ(y, i);
    }
  });
}

}  // namespace
}  // namespace jaxmg
