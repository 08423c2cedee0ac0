#include "comm/cuda/peer_communicator.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace jaxmg {

using peers::Offer;

namespace {

// A kernel that reads a peer's memory takes less time for so few bytes than it takes to start a
// copy engine.
constexpr Size kKernelBytes = 32768;

// A rank's part in a call: its own work in the call's lane, and that of the ranks that read from
// it.
class PeerTicket final : public tile::CudaTicket::State {
 public:
  PeerTicket(std::shared_ptr<peers::PeerGroup> group, std::shared_ptr<peers::PeerCall> call,
             int rank, const tile::CudaLane& lane, tile::CudaEvent own, std::vector<int> readers)
      : group_(std::move(group)),
        call_(std::move(call)),
        rank_(rank),
        lane_(lane),
        own_(std::move(own)),
        readers_(std::move(readers)) {}

  void wait(tile::CudaLane& lane) override {
    while (!readers_.empty()) {
      events_.push_back(group_->await(*call_, rank_, readers_.back(), peers::Stage::done).event);
      readers_.pop_back();
    }
    if (&lane != &lane_) {
      lane.wait(own_);
    }
    for (const tile::CudaEvent& event : events_) {
      lane.wait(event);
    }
  }

  void abandon() noexcept override {
    try {
      group_->family().fail(
          CommunicationError("rank " + std::to_string(rank_) + " gave up during a call"));
    } catch (const std::exception&) {
      // Out of memory for the message: the peers' time limit tells them.
    }
  }

 private:
  std::shared_ptr<peers::PeerGroup> group_;
  std::shared_ptr<peers::PeerCall> call_;
  int rank_;
  const tile::CudaLane& lane_;  // the call's, whose own work is in order anyway
  tile::CudaEvent own_;
  std::vector<int> readers_;  // those whose events are still to come
  std::vector<tile::CudaEvent> events_;
};

}  // namespace

PeerCommunicator::PeerCommunicator(std::shared_ptr<peers::PeerGroup> group, int rank,
                                   tile::CudaStaging& staging)
    : group_(std::move(group)), rank_(rank), staging_(staging) {}

PeerCommunicator::~PeerCommunicator() {
  group_->leave(rank_);
}

std::vector<int> PeerCommunicator::others() const {
  std::vector<int> ranks;
  for (int i = 1; i < size(); ++i) {  // from the next on, so that not all turn to rank 0 first
    ranks.push_back((rank_ + i) % size());
  }
  return ranks;
}

void PeerCommunicator::check_rank(int rank, const char* what) const {
  if (rank < 0 || rank >= size()) {
    throw std::invalid_argument(std::string(what) + ": no rank " + std::to_string(rank) +
                                " among " + std::to_string(size()));
  }
}

void PeerCommunicator::pull(Lane& lane, int from, const void* source, void* target, Size bytes) {
  if (bytes <= 0 || source == target) {
    return;
  }
  const auto count = static_cast<std::size_t>(bytes);
  const int device = group_->device(from);
  if (device != lane.device() && group_->direct() && bytes <= kKernelBytes && bytes % 4 == 0) {
    peers::Sources one{.size = 1};
    one.data[0] = source;
    peers::reduce(lane, one, bytes / 4, DType::i32, Reduction::max, target);  // of one: a copy
  } else if (device == lane.device()) {
    JAXMG_CUDA_CHECK(
        cudaMemcpyAsync(target, source, count, cudaMemcpyDeviceToDevice, lane.stream()));
  } else {
    JAXMG_CUDA_CHECK(
        cudaMemcpyPeerAsync(target, lane.device(), source, device, count, lane.stream()));
  }
}

PeerCommunicator::Ticket PeerCommunicator::finish(Lane& lane, const Call& call,
                                                  std::vector<int> readers) {
  tile::CudaEvent own = lane.record();
  offer(call, Stage::done, {.event = own});
  return Ticket(
      std::make_unique<PeerTicket>(group_, call, rank_, lane, std::move(own), std::move(readers)),
      lane);
}

void PeerCommunicator::barrier() {
  const Call call = enter({.name = "barrier"});
  offer(call, Stage::ready, {});
  for (const int r : others()) {
    await(call, r, Stage::ready);
  }
}

// The lowest rank of each color makes its group and offers it.
std::unique_ptr<Communicator<tile::Cuda>> PeerCommunicator::split(int color, int key) {
  const Call call = enter({.name = "split"});
  offer(call, Stage::ready, {.color = color, .key = key});
  std::vector<std::pair<int, int>> members;  // key, rank
  int lowest = size();
  for (int r = 0; r < size(); ++r) {
    const Offer& other = await(call, r, Stage::ready);
    if (other.color == color) {
      members.emplace_back(other.key, r);
      lowest = std::min(lowest, r);
    }
  }
  std::ranges::sort(members);
  std::vector<int> ranks;
  ranks.reserve(members.size());
  for (const auto& member : members) {
    ranks.push_back(member.second);
  }
  if (rank_ == lowest) {
    offer(call, Stage::middle, {.group = group_->subgroup(ranks)});
  }
  const auto place = std::ranges::find(ranks, rank_) - ranks.begin();
  return std::make_unique<PeerCommunicator>(await(call, lowest, Stage::middle).group,
                                            static_cast<int>(place), staging_);
}

void PeerCommunicator::meet(const tile::CudaEvent& mine, std::span<Lane* const> lanes) {
  const Call call = enter({.name = "meeting of lanes"});
  offer(call, Stage::ready, {.event = mine});
  for (int r = 0; r < size(); ++r) {
    const tile::CudaEvent& event = await(call, r, Stage::ready).event;
    for (Lane* lane : lanes) {
      lane->wait(event);
    }
  }
}

void PeerCommunicator::meet(const tile::CudaEvent& mine, cudaStream_t stream) {
  const Call call = enter({.name = "meeting of streams"});
  offer(call, Stage::ready, {.event = mine});
  for (int r = 0; r < size(); ++r) {
    JAXMG_CUDA_CHECK(cudaStreamWaitEvent(stream, await(call, r, Stage::ready).event.get(), 0));
  }
}

std::vector<std::unique_ptr<PeerCommunicator>> make_peer_communicators(
    const std::vector<int>& devices, std::span<tile::CudaStaging* const> staging, bool direct,
    std::chrono::nanoseconds time_limit) {
  if (devices.size() != staging.size() || devices.empty() || devices.size() > peers::kMaxRanks) {
    throw std::invalid_argument("peer communicator: " + std::to_string(devices.size()) +
                                " devices, " + std::to_string(staging.size()) +
                                " staging blocks; 1 to " + std::to_string(peers::kMaxRanks) +
                                " ranks, with a block each, are possible");
  }
  const auto group = std::make_shared<peers::PeerGroup>(
      std::make_shared<peers::PeerFamily>(time_limit, static_cast<int>(devices.size())), devices,
      direct);
  std::vector<std::unique_ptr<PeerCommunicator>> communicators;
  communicators.reserve(devices.size());
  for (std::size_t r = 0; r < devices.size(); ++r) {
    communicators.push_back(
        std::make_unique<PeerCommunicator>(group, static_cast<int>(r), *staging[r]));
  }
  return communicators;
}

void abort_team(Communicator<tile::Cuda>& any, const std::string& reason) {
  dynamic_cast<PeerCommunicator&>(any).group().family().fail(CommunicationError(reason));
}

void check_team(const Communicator<tile::Cuda>& any) {
  dynamic_cast<const PeerCommunicator&>(any).group().family().check();
}

}  // namespace jaxmg
