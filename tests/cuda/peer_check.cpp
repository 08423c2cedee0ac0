// The communicator's operations on ranks that are GPUs, with what every rank must then hold.
#include <atomic>

#include "check.h"
#include "comm/cuda/stream_fork.h"
#include "gpu_ranks.h"
#include "tile/cuda/cuda.h"

namespace jaxmg::test {
namespace {

// What rank r sends in element i of a call with this number; small integers, so that sums are
// exact.
double value_of(int rank, int call, Size i) {
  return static_cast<double>((rank * 131 + call * 17 + static_cast<int>(i % 1009)) % 64);
}

template <class T>
std::vector<T> values(int rank, int call, Size count) {
  std::vector<T> v(static_cast<std::size_t>(count));
  for (Size i = 0; i < count; ++i) {
    v[static_cast<std::size_t>(i)] = T(static_cast<Real<T>>(value_of(rank, call, i)));
  }
  return v;
}

// The checks of one rank; expectations go to the group, which all ranks share.
class RankChecks {
 public:
  RankChecks(Group& group, GpuRank& rank)
      : group_(group), comm_(rank.comm), lanes_(rank.context.lanes()), context_(rank.context) {}

  void run() {
    for (const Size count : {Size{1}, Size{7}, Size{5000}, Size{1200000}}) {
      spread(count);
      reductions<double>(count);
      reductions<std::complex<float>>(count);
      reductions<std::int32_t>(count);
      gathers(count);
    }
    extremes();
    exchanges();
    small();
    reuse();
    fork();
  }

 private:
  int me() const { return comm_.rank(); }
  int size() const { return comm_.size(); }
  void expect(bool ok, const std::string& what) {
    group_.expect(ok, what + ", rank " + std::to_string(me()));
  }

  void spread(Size count) {
    for (int root = 0; root < size(); ++root) {
      const int first = (root + size() - 1) % size();
      const auto wanted = values<double>(root, 1, count);
      DeviceArray<double> data(me() == root ? wanted : values<double>(me(), 2, count));
      auto ticket = comm_.broadcast(lanes_.copy, data.get(), count, DType::f64, root,
                                    root % 2 == 0 ? first : -1);
      lanes_.update.wait(ticket);
      JAXMG_CUDA_CHECK(cudaStreamSynchronize(lanes_.update.stream()));
      expect(data.download() == wanted, "broadcast " + std::to_string(count));
      comm_.barrier();

      DeviceArray<double> panel(me() == root ? wanted : values<double>(me(), 3, count));
      Message message{panel.get(), nullptr};
      auto published =
          comm_.publish(lanes_.panel, message, count, DType::f64, root, root % 2 == 0 ? first : -1);
      lanes_.panel.wait(published);
      published.release();
      expect(panel.download() == wanted && message.view == panel.get(),
             "publish " + std::to_string(count));
      comm_.barrier();
    }
  }

  template <class T>
  void reductions(Size count) {
    const auto mine = values<T>(me(), 4, count);
    std::vector<T> total(mine.size(), T(0));
    for (int r = 0; r < size(); ++r) {
      const auto other = values<T>(r, 4, count);
      for (std::size_t i = 0; i < total.size(); ++i) {
        total[i] += other[i];
      }
    }
    const std::string name = type_name<T>() + " " + std::to_string(count);
    DeviceArray<T> data(mine);
    auto ticket = comm_.all_reduce(lanes_.update, data.get(), count, dtype_of<T>, Reduction::sum);
    lanes_.update.wait(ticket);
    expect(data.download() == total, "all_reduce " + name);
    comm_.barrier();

    const int root = size() - 1;
    data.upload(mine);
    auto reduced = comm_.reduce(lanes_.copy, data.get(), count, dtype_of<T>, Reduction::sum, root);
    lanes_.copy.wait(reduced);
    expect(data.download() == (me() == root ? total : mine), "reduce " + name);
    comm_.barrier();

    // Block b of rank r is `mine` of rank r shifted by b.
    std::vector<T> blocks;
    for (int b = 0; b < size(); ++b) {
      for (const T& x : mine) {
        blocks.push_back(x + T(static_cast<Real<T>>(b)));
      }
    }
    DeviceArray<T> in(blocks);
    DeviceArray<T> out(count);
    auto scattered = comm_.reduce_scatter(lanes_.update, in.get(), out.get(), count, dtype_of<T>,
                                          Reduction::sum);
    lanes_.update.wait(scattered);
    auto wanted = total;
    for (T& x : wanted) {
      x += T(static_cast<Real<T>>(me() * size()));
    }
    expect(out.download() == wanted, "reduce_scatter " + name);
    comm_.barrier();
  }

  void gathers(Size count) {
    const auto mine = values<double>(me(), 5, count);
    std::vector<double> wanted;
    for (int r = 0; r < size(); ++r) {
      const auto other = values<double>(r, 5, count);
      wanted.insert(wanted.end(), other.begin(), other.end());
    }
    DeviceArray<double> in(mine);
    DeviceArray<double> out(count * size());
    auto ticket = comm_.all_gather(lanes_.copy, in.get(), out.get(), count, DType::f64);
    lanes_.copy.wait(ticket);
    expect(out.download() == wanted, "all_gather " + std::to_string(count));
    comm_.barrier();
  }

  void extremes() {
    for (const Reduction op : {Reduction::min, Reduction::max}) {
      std::vector<double> mine{static_cast<double>((me() * 7) % 5), 1.0,
                               static_cast<double>(-me())};
      if (me() == size() / 2) {
        mine[1] = std::numeric_limits<double>::quiet_NaN();
      }
      DeviceArray<double> data(mine);
      auto ticket = comm_.all_reduce(lanes_.update, data.get(), 3, DType::f64, op);
      lanes_.update.wait(ticket);
      double extreme = 0;
      for (int r = 0; r < size(); ++r) {
        const double x = (r * 7) % 5;
        extreme = r == 0 ? x : op == Reduction::min ? std::min(extreme, x) : std::max(extreme, x);
      }
      const auto out = data.download();
      expect(out[0] == extreme && std::isnan(out[1]) &&
                 out[2] == (op == Reduction::min ? 1.0 - size() : 0.0),
             "all_reduce of extremes");
      comm_.barrier();
    }
    DeviceArray<float> value(std::vector<float>{me() % 2 == 0 ? -3.0f : 1.0f});
    DeviceArray<std::int64_t> place(std::vector<std::int64_t>{100 + me()});
    auto ticket = comm_.max_location(lanes_.panel, value.get(), place.get(), DType::f32);
    lanes_.panel.wait(ticket);
    expect(value.download()[0] == 3.0f && place.download()[0] == 100, "max_location");
    comm_.barrier();
    value.upload({me() % 2 == 0 ? -3.0f : 1.0f});
    place.upload({100 + me()});
    auto least = comm_.min_location(lanes_.panel, value.get(), place.get(), DType::f32);
    lanes_.panel.wait(least);
    const bool alone = size() == 1;
    expect(
        value.download()[0] == (alone ? 3.0f : 1.0f) && place.download()[0] == (alone ? 100 : 101),
        "min_location");
    comm_.barrier();

    Info info;
    if (me() == size() - 1) {
      info.kind = static_cast<int>(Kind::not_positive_definite);
      info.position = 9;
    } else if (me() == size() - 2) {
      info.kind = static_cast<int>(Kind::non_finite);
      info.position = 77;
    }
    DeviceArray<Info> report(std::vector<Info>{info});
    auto agreed = comm_.agree(lanes_.update, report.get());
    lanes_.update.wait(agreed);
    expect(report.download()[0].position == (alone ? 9 : 77), "agree");
    comm_.barrier();
  }

  void exchanges() {
    // Rank a sends 10 (a + 1) + b elements to rank b.
    std::vector<Size> send_counts, send_offsets, recv_counts, recv_offsets;
    std::vector<double> sent, wanted;
    for (int r = 0; r < size(); ++r) {
      send_offsets.push_back(static_cast<Size>(sent.size()));
      recv_offsets.push_back(static_cast<Size>(wanted.size()));
      send_counts.push_back(r == me() ? 0 : 10 * (me() + 1) + r);
      recv_counts.push_back(r == me() ? 0 : 10 * (r + 1) + me());
      const auto out = values<double>(me() * 16 + r, 6, send_counts.back());
      const auto in = values<double>(r * 16 + me(), 6, recv_counts.back());
      sent.insert(sent.end(), out.begin(), out.end());
      wanted.insert(wanted.end(), in.begin(), in.end());
    }
    DeviceArray<double> in(sent);
    DeviceArray<double> out(static_cast<Size>(wanted.size()));
    auto ticket = comm_.all_to_all_v(lanes_.copy, in.get(), send_counts, send_offsets, out.get(),
                                     recv_counts, recv_offsets, DType::f64);
    lanes_.copy.wait(ticket);
    expect(out.download() == wanted, "all_to_all_v");
    comm_.barrier();

    // Two messages to the next rank, which match in order, and one to myself.
    const int next = (me() + 1) % size();
    const int before = (me() + size() - 1) % size();
    DeviceArray<float> source(values<float>(me(), 7, 300));
    DeviceArray<float> target(300);
    const std::vector<Transfer> sends{
        {source.get(), 100, next}, {source.get() + 200, 50, me()}, {source.get() + 100, 70, next}};
    const std::vector<Transfer> receives{{target.get(), 100, before},
                                         {target.get() + 100, 70, before},
                                         {target.get() + 200, 50, me()}};
    if (size() > 1) {
      auto exchanged = comm_.exchange(lanes_.update, sends, receives, DType::f32);
      lanes_.update.wait(exchanged);
      auto expected = values<float>(before, 7, 170);
      auto result = target.download();
      const auto own = values<float>(me(), 7, 300);
      const bool self = std::equal(own.begin() + 200, own.begin() + 250, result.begin() + 200);
      result.resize(170);
      expect(result == expected && self, "exchange");
    }
    comm_.barrier();
  }

  void small() {
    auto half = comm_.split(me() % 2, -me());
    const int members = (size() + (me() % 2 == 0 ? 1 : 0)) / 2;
    expect(half->size() == members && half->rank() == members - 1 - me() / 2, "split");
    DeviceArray<double> data(std::vector<double>{static_cast<double>(me())});
    auto ticket = half->all_reduce(lanes_.update, data.get(), 1, DType::f64, Reduction::max);
    lanes_.update.wait(ticket);
    expect(data.download()[0] == 2 * (members - 1) + me() % 2, "all_reduce of a part");
    half->barrier();
  }

  // Buffers are written again as soon as tickets allow, with no host synchronisation at all: any
  // copy that is not ordered shows as a wrong sum.
  void reuse() {
    constexpr Size count = 400000;
    constexpr int rounds = 60;
    DeviceArray<double> buffer(count);
    DeviceArray<double> sum(count);
    auto& lane = lanes_.update;
    tile::Cuda::fill<double>(lane, count, 1, 0.0, 0.0, sum.get(), count);
    for (int k = 0; k < rounds; ++k) {
      const int root = k % size();
      if (me() == root) {
        tile::Cuda::fill<double>(lane, count, 1, k + 1.0, k + 1.0, buffer.get(), count);
      }
      Message message{buffer.get(), nullptr};
      lanes_.copy.wait(lane.record());
      auto ticket = comm_.publish(lanes_.copy, message, count, DType::f64, root,
                                  k % 3 == 0 ? (root + 1) % size() : -1);
      lane.wait(ticket);
      tile::Cuda::add<double>(lane, count, 1, 1.0, buffer.get(), count, sum.get(), count);
      tile::Cuda::fill<double>(lane, count, 1, -1e9, -1e9, buffer.get(), count);
    }
    const auto result = sum.download();
    bool ok = true;
    for (const double x : result) {
      ok = ok && x == rounds * (rounds + 1) / 2.0;
    }
    expect(ok, "published buffers reused at once");
    comm_.barrier();
  }

  // Streams of different speeds: a peer's buffer is read only after its stream has written it, and
  // written again only when all have read.
  void fork() {
    constexpr Size count = 2000000;
    tile::CudaLane stream(tile::StreamPriority::lowest, std::make_shared<tile::EventPool>());
    DeviceArray<double> mine(count);
    DeviceArray<double> sum(count);
    bool ok = true;
    for (int k = 0; k < 10; ++k) {
      for (int slow = 0; slow < (me() + k) % 3 * 20; ++slow) {
        tile::Cuda::fill<double>(stream, count, 1, -7.0, -7.0, mine.get(), count);
      }
      tile::Cuda::fill<double>(stream, count, 1, me() + k, me() + k, mine.get(), count);
      StreamFork region(comm_, lanes_, context_.events(), stream.stream());
      tile::Cuda::copy<double>(lanes_.update, count, 1, mine.get(), count, sum.get(), count);
      auto ticket = comm_.all_reduce(lanes_.update, sum.get(), count, DType::f64, Reduction::sum);
      lanes_.update.wait(ticket);
      region.join();
      DeviceArray<double> seen(count);
      tile::Cuda::copy<double>(stream, count, 1, sum.get(), count, seen.get(), count);
      tile::Cuda::fill<double>(stream, count, 1, -1e9, -1e9, mine.get(), count);
      tile::Cuda::fill<double>(stream, count, 1, -1e9, -1e9, sum.get(), count);
      for (const double x : seen.download()) {
        ok = ok && x == size() * (size() - 1) / 2 + size() * k;
      }
    }
    expect(ok, "fork and join of streams");
    comm_.barrier();
  }

  Group& group_;
  PeerCommunicator& comm_;
  tile::CudaLanes& lanes_;
  tile::DeviceContext& context_;
};

void check_failures(int devices) {
  Group group("communicator: failures end in errors, not in hangs");
  const auto all_fail = [&](const std::vector<std::string>& errors, const std::string& what) {
    for (const std::string& error : errors) {
      group.expect(!error.empty(), what);
    }
  };
  const auto limit = std::chrono::seconds(2);
  all_fail(collect_gpu_ranks(
               3, devices, true,
               [](GpuRank& rank) {
                 if (rank.comm.rank() == 1) {
                   throw std::runtime_error("a fault");
                 }
                 rank.comm.barrier();
               },
               limit),
           "a rank throws");
  all_fail(collect_gpu_ranks(
               3, devices, true,
               [](GpuRank& rank) {
                 DeviceArray<double> data(10);
                 auto t = rank.comm.broadcast(rank.context.lanes().copy, data.get(),
                                              rank.comm.rank() == 2 ? 9 : 10, DType::f64, 0, -1);
                 rank.comm.barrier();
               },
               limit),
           "ranks make different calls");
  all_fail(collect_gpu_ranks(
               2, devices, true,
               [](GpuRank& rank) {
                 if (rank.comm.rank() == 0) {
                   rank.comm.barrier();
                 } else {
                   std::this_thread::sleep_for(std::chrono::seconds(4));
                   rank.comm.barrier();
                 }
               },
               limit),
           "a rank is late");
  const auto good = collect_gpu_ranks(2, devices, true, [](GpuRank& rank) { rank.comm.barrier(); });
  group.expect(good[0].empty() && good[1].empty(), "the next good call works");
}

}  // namespace

void check_communicator(int devices) {
  for (const bool direct : {true, false}) {
    for (const int ranks : {1, 2, 3, 5, 8}) {
      Group group("communicator: " + std::to_string(ranks) + " ranks" +
                  (direct ? "" : ", operands staged"));
      run_gpu_ranks(ranks, devices, direct, [&](GpuRank& rank) { RankChecks(group, rank).run(); });
    }
  }
  check_failures(devices);
}

}  // namespace jaxmg::test
