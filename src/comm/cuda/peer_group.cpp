#include "comm/cuda/peer_group.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace jaxmg::peers {
namespace {

// A solution by tiles hands its turn from rank to rank every few tens of microseconds, and a thread
// that sleeps takes about as long to wake.
constexpr std::chrono::microseconds kMoment{100};
// Of each rank: what else runs in the process must not wait for those that look out.
constexpr unsigned kProcessors = 4;

std::size_t at(int rank) {
  return static_cast<std::size_t>(rank);
}
std::size_t at(Stage stage) {
  return static_cast<std::size_t>(stage);
}

std::string describe(const Signature& s) {
  std::string text(s.name);
  text +=
      "(count " + std::to_string(s.count) + ", dtype " + std::to_string(static_cast<int>(s.type));
  if (s.root >= 0) {
    text += ", root " + std::to_string(s.root) + ", first " + std::to_string(s.first);
  }
  return text + ", reduction " + std::to_string(static_cast<int>(s.op)) + ")";
}

}  // namespace

PeerFamily::PeerFamily(std::chrono::nanoseconds time_limit, int ranks)
    : time_limit_(time_limit),
      looks_out_(std::thread::hardware_concurrency() >=
                 kProcessors * static_cast<unsigned>(ranks)) {}

void PeerFamily::fail(const CommunicationError& error) {
  const std::lock_guard lock(mutex_);
  fail_locked(error);
}

void PeerFamily::fail_locked(const CommunicationError& error) {
  if (!failure_) {
    failure_.emplace(error);
  }
  ++news_;
  for (std::condition_variable* sleeper : sleepers_) {
    sleeper->notify_all();
  }
}

template <class Over>
void PeerFamily::look_out(std::unique_lock<std::mutex>& lock, const Over& over) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point end = Clock::now() + kMoment;
  while (looks_out_ && !over() && Clock::now() < end) {
    const std::uint64_t seen = news_;
    lock.unlock();
    while (news_ == seen && Clock::now() < end) {
      std::this_thread::yield();  // to whom this thread may be waiting for
    }
    lock.lock();
  }
}

void PeerFamily::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) {
    throw CommunicationError(*failure_);
  }
}

PeerGroup::PeerGroup(std::shared_ptr<PeerFamily> family, std::vector<int> devices, bool direct)
    : family_(std::move(family)),
      devices_(std::move(devices)),
      direct_(direct),
      calls_made_(devices_.size(), 0),
      sleepers_(devices_.size()),
      left_(devices_.size(), false) {}

std::shared_ptr<PeerGroup> PeerGroup::subgroup(const std::vector<int>& ranks) const {
  std::vector<int> devices;
  devices.reserve(ranks.size());
  for (const int rank : ranks) {
    devices.push_back(device(rank));
  }
  return std::make_shared<PeerGroup>(family_, std::move(devices), direct_);
}

std::shared_ptr<PeerCall> PeerGroup::enter(int rank, const Signature& signature) {
  const std::lock_guard lock(family_->mutex_);
  if (family_->failure_) {
    throw CommunicationError(*family_->failure_);
  }
  const Size number = calls_made_[at(rank)]++;
  std::shared_ptr<PeerCall>& slot = calls_[number];
  if (!slot) {
    slot = std::make_shared<PeerCall>(signature, devices_.size());
  }
  const std::shared_ptr<PeerCall> call = slot;
  if (call->signature_ != signature) {
    family_->fail_locked(
        CommunicationError("ranks make different calls: call " + std::to_string(number) +
                               " of rank " + std::to_string(rank) + " is " + describe(signature) +
                               ", that of a peer is " + describe(call->signature_),
                           Kind::mismatched_calls));
    throw CommunicationError(*family_->failure_);
  }
  call->entered_[at(rank)] = true;
  if (std::ranges::all_of(call->entered_, [](bool entered) { return entered; })) {
    calls_.erase(number);
  }
  return call;
}

void PeerGroup::offer(PeerCall& call, int rank, Stage stage, Offer offer) {
  const std::lock_guard lock(family_->mutex_);
  call.offers_[at(rank)][at(stage)].emplace(std::move(offer));
  ++family_->news_;
  for (Sleeper& sleeper : sleepers_) {
    if (sleeper.call == &call && sleeper.from == rank && sleeper.stage == stage) {
      sleeper.wake.notify_all();
    }
  }
}

const Offer& PeerGroup::await(PeerCall& call, int rank, int from, Stage stage) {
  std::unique_lock lock(family_->mutex_);
  const std::optional<Offer>& offer = call.offers_[at(from)][at(stage)];
  const auto over = [&] { return offer || family_->failure_ || left_[at(from)]; };
  family_->look_out(lock, over);
  if (!over()) {
    Sleeper& sleeper = sleepers_[at(rank)];
    sleeper.call = &call;
    sleeper.from = from;
    sleeper.stage = stage;
    family_->sleepers_.insert(&sleeper.wake);
    if (family_->time_limit_ > std::chrono::nanoseconds::zero()) {
      if (!sleeper.wake.wait_for(lock, family_->time_limit_, over)) {
        family_->fail_locked(CommunicationError(waiting_message(call, rank, from)));
      }
    } else {
      sleeper.wake.wait(lock, over);
    }
    family_->sleepers_.erase(&sleeper.wake);
    sleeper.call = nullptr;
  }
  if (!offer && !family_->failure_) {
    family_->fail_locked(CommunicationError("rank " + std::to_string(from) + " left while rank " +
                                            std::to_string(rank) + " waited for it in " +
                                            describe(call.signature_)));
  }
  if (family_->failure_) {
    throw CommunicationError(*family_->failure_);
  }
  return *offer;
}

std::string PeerGroup::waiting_message(const PeerCall& call, int rank, int from) const {
  const double seconds = std::chrono::duration<double>(family_->time_limit_).count();
  std::string text = "rank " + std::to_string(rank) + " waited " + std::to_string(seconds) +
                     " s in " + describe(call.signature_) + " for rank " + std::to_string(from);
  std::string missing;
  for (int r = 0; r < size(); ++r) {
    if (!call.entered_[at(r)]) {
      missing.append(" ").append(std::to_string(r));
    }
  }
  return missing.empty() ? text : text + "; ranks that have not made the call:" + missing;
}

void PeerGroup::leave(int rank) {
  const std::lock_guard lock(family_->mutex_);
  left_[at(rank)] = true;
  ++family_->news_;
  for (Sleeper& sleeper : sleepers_) {
    if (sleeper.from == rank) {
      sleeper.wake.notify_all();
    }
  }
}

void PeerGroup::mismatch(const std::string& what) {
  family_->fail(CommunicationError(what, Kind::mismatched_calls));
  throw CommunicationError(what, Kind::mismatched_calls);
}

}  // namespace jaxmg::peers
