// Where the host threads of a group of GPU ranks meet: they hand each other pointers and events.
//
// The n-th call of each rank belongs to the n-th call of every other. In a call a rank makes
// offers, one a stage, and waits for those of the ranks that it has to do with. An offer's event
// has been recorded before the offer is made, as it must be before another rank's stream can wait
// for it. Threads that wait look out for a moment if there are processors enough, then sleep. How
// calls fail: see comm/thread_communicator.h; the rules are the same.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communication_error.h"
#include "comm/communicator.h"
#include "tile/cuda/lane.h"

namespace jaxmg::peers {

// What has to be the same on all ranks that make a call.
struct Signature {
  std::string_view name;
  Size count = 0;
  DType type = DType::i32;
  int root = -1;
  int first = -1;
  Reduction op = Reduction::sum;
  bool operator==(const Signature&) const = default;
};

enum class Stage : std::size_t {
  ready,   // the rank's operand is in place
  middle,  // the rank's intermediate result is, or it has read what it needs
  done,    // the rank has read all that it wants from others
};

class PeerGroup;

struct Offer {
  tile::CudaEvent event{};
  const void* data = nullptr;
  const void* more = nullptr;
  std::vector<Transfer> parts{};          // pieces for single ranks
  std::vector<tile::CudaEvent> chunks{};  // data is in place piece by piece
  int color = 0;
  int key = 0;
  std::shared_ptr<PeerGroup> group{};
};

// All groups that come from one, by splits: they fail together.
class PeerFamily {
 public:
  // Of so many ranks in all.
  PeerFamily(std::chrono::nanoseconds time_limit, int ranks);

  // Only the first failure counts.
  void fail(const CommunicationError& error);
  // Throws the failure, if there is one.
  void check() const;

 private:
  friend class PeerGroup;
  void fail_locked(const CommunicationError& error);
  // Waits a moment for `over`, which the lock guards, without falling asleep, if processors are to
  // spare.
  template <class Over>
  void look_out(std::unique_lock<std::mutex>& lock, const Over& over);

  const std::chrono::nanoseconds time_limit_;  // of one wait; zero: none
  const bool looks_out_;
  std::atomic<std::uint64_t> news_{0};  // changes with all that is waited for
  mutable std::mutex mutex_;            // guards the whole family's calls
  std::optional<CommunicationError> failure_;
  std::set<std::condition_variable*> sleepers_;
};

// One call, shared by its ranks.
class PeerCall {
 public:
  PeerCall(const Signature& signature, std::size_t ranks)
      : signature_(signature), offers_(ranks), entered_(ranks, false) {}

 private:
  friend class PeerGroup;
  Signature signature_;
  std::vector<std::array<std::optional<Offer>, 3>> offers_;  // by rank and stage
  std::vector<bool> entered_;                                // by rank
};

class PeerGroup {
 public:
  // devices[r] is rank r's; direct: kernels on each of them can read the memory of all.
  PeerGroup(std::shared_ptr<PeerFamily> family, std::vector<int> devices, bool direct);

  int size() const { return static_cast<int>(devices_.size()); }
  int device(int rank) const { return devices_[static_cast<std::size_t>(rank)]; }
  bool direct() const { return direct_; }
  PeerFamily& family() { return *family_; }
  // The group of some of the ranks.
  std::shared_ptr<PeerGroup> subgroup(const std::vector<int>& ranks) const;

  // The rank's next call.
  std::shared_ptr<PeerCall> enter(int rank, const Signature& signature);
  void offer(PeerCall& call, int rank, Stage stage, Offer offer);
  // The offer of rank `from`; blocks until it is there. It stays where it is as long as the call.
  const Offer& await(PeerCall& call, int rank, int from, Stage stage);
  // The rank will make no more calls.
  void leave(int rank);
  // Fails the family because ranks' arguments do not fit together.
  [[noreturn]] void mismatch(const std::string& what);

 private:
  // What a rank's thread sleeps for.
  struct Sleeper {
    std::condition_variable wake;
    const PeerCall* call = nullptr;
    int from = -1;
    Stage stage = Stage::ready;
  };

  std::string waiting_message(const PeerCall& call, int rank, int from) const;

  std::shared_ptr<PeerFamily> family_;
  std::vector<int> devices_;
  bool direct_;
  std::vector<Size> calls_made_;                     // by rank
  std::map<Size, std::shared_ptr<PeerCall>> calls_;  // those that not all ranks have entered
  std::vector<Sleeper> sleepers_;                    // by rank
  std::vector<bool> left_;                           // by rank
};

}  // namespace jaxmg::peers
