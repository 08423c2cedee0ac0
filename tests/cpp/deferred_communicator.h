// Ranks whose lanes run late (deferred_lane.h). Calls have the order of those of GPU ranks, which
// comm/cuda/peer_communicator.h describes: the host threads hand each other pointers and events,
// and the receiver puts copies into the lane that it gives.
//
// Three things are here to bring faults to light:
//  - A buffer that is received is spoilt as soon as the lane comes to the call, long before its
//    message is there.
//  - Messages are cut in chunks, and reductions shared out, from a few elements on.
//  - With a schedule that is `detached` messages have lanes of their own, so that nothing but a
//    ticket makes the lane that was given follow them: what comm/communicator.h promises, no more.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/communicator.h"
#include "deferred_device.h"

namespace jaxmg::test {

// What has to be the same on all ranks that make a call.
struct DeferredSignature {
  std::string_view name;
  Size count = 0;
  DType type = DType::i32;
  int root = -1;
  int first = -1;
  Reduction op = Reduction::sum;
  bool operator==(const DeferredSignature&) const = default;
};

class DeferredGroup;

// What a rank tells the others at one stage of a call.
struct DeferredOffer {
  DeferredEvent event{};
  const void* data = nullptr;
  const void* more = nullptr;
  std::vector<Transfer> parts{};
  std::vector<DeferredEvent> chunks{};
  int color = 0;
  int key = 0;
  std::shared_ptr<DeferredGroup> group{};
};

// ready: the operand is in place. middle: an intermediate result is, or what was needed has been
// read. done: all has been read that is wanted from others.
enum class DeferredStage { ready, middle, done };

struct DeferredCall {
  DeferredSignature signature;
  std::map<std::pair<int, DeferredStage>, DeferredOffer> offers;
};

// Where the ranks of a communicator meet. The n-th call of each belongs to the n-th call of all.
class DeferredGroup {
 public:
  // members: what the scheduler calls the ranks.
  DeferredGroup(std::shared_ptr<Scheduler> scheduler, std::vector<int> members);

  int size() const { return static_cast<int>(members_.size()); }
  Scheduler& scheduler() const { return *scheduler_; }
  int member(int rank) const { return members_[static_cast<std::size_t>(rank)]; }
  std::shared_ptr<DeferredGroup> subgroup(const std::vector<int>& ranks) const;

  std::shared_ptr<DeferredCall> enter(int rank, const DeferredSignature& signature);
  // Holds the host of `rank` until `from` has made its offer.
  const DeferredOffer& await(const std::shared_ptr<DeferredCall>& call, int rank, int from,
                             DeferredStage stage);
  [[noreturn]] void fail(const std::string& reason);

 private:
  std::shared_ptr<Scheduler> scheduler_;
  std::vector<int> members_;
  std::vector<std::size_t> calls_made_;  // by rank
  std::vector<std::shared_ptr<DeferredCall>> calls_;
};

class DeferredCommunicator final : public Communicator<Deferred> {
 public:
  DeferredCommunicator(std::shared_ptr<DeferredGroup> group, int rank)
      : group_(std::move(group)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }

  std::unique_ptr<Communicator> split(int color, int key) override;
  void barrier() override;
  Ticket broadcast(Lane& lane, void* data, Size count, DType type, int root, int first) override;
  Ticket publish(Lane& lane, Message& message, Size count, DType type, int root,
                 int first) override;
  Ticket all_reduce(Lane& lane, void* data, Size count, DType type, Reduction op) override;
  Ticket reduce(Lane& lane, void* data, Size count, DType type, Reduction op, int root) override;
  Ticket reduce_scatter(Lane& lane, const void* in, void* out, Size count, DType type,
                        Reduction op) override;
  Ticket all_gather(Lane& lane, const void* in, void* out, Size count, DType type) override;
  Ticket all_to_all_v(Lane& lane, const void* in, std::span<const Size> send_counts,
                      std::span<const Size> send_offsets, void* out,
                      std::span<const Size> recv_counts, std::span<const Size> recv_offsets,
                      DType type) override;
  Ticket exchange(Lane& lane, std::span<const Transfer> sends, std::span<const Transfer> receives,
                  DType type) override;
  Ticket min_location(Lane& lane, void* value, std::int64_t* location, DType type) override;
  Ticket max_location(Lane& lane, void* value, std::int64_t* location, DType type) override;
  Ticket agree(Lane& lane, Info* info) override;

 private:
  using Call = std::shared_ptr<DeferredCall>;
  using Stage = DeferredStage;
  using Operands = std::vector<const void*>;

  Call enter(const DeferredSignature& signature) { return group_->enter(rank_, signature); }
  void offer(const Call& call, Stage stage, const DeferredOffer& offer) {
    call->offers.insert({{rank_, stage}, offer});
  }
  const DeferredOffer& await(const Call& call, int from, Stage stage) {
    return group_->await(call, rank_, from, stage);
  }
  std::vector<int> others() const;

  // Where the messages of calls in one lane take turns. Calls that follow each other are not
  // ordered by it.
  struct Ways {
    std::array<std::unique_ptr<Lane>, 3> lanes;
    std::size_t calls = 0;
  };

  // The lane that the work of this call is put into, which follows the one that was given.
  Lane& begin(Lane& given);
  // Offers Stage::done; `readers` read from this rank.
  Ticket finish(Lane& given, const Call& call, std::vector<int> readers);
  Ticket spread(Lane& lane, std::string_view name, void* data, Size count, DType type, int root,
                int first);
  void spread_chain(Lane& lane, const Call& call, void* data, Size bytes,
                    const std::vector<int>& order, Size place);
  // The ranks' operands, which the lane then may read.
  Operands await_operands(Lane& lane, const Call& call);
  // Later work of the lane follows all ranks' reading.
  void await_read(Lane& lane, const Call& call);
  Ticket locate(Lane& lane, std::string_view name, void* value, std::int64_t* location, DType type,
                Reduction op);

  std::shared_ptr<DeferredGroup> group_;
  int rank_;
  std::map<const Lane*, Ways> ways_;
  Lane* way_ = nullptr;  // of the present call
};

namespace deferred {

inline std::byte* at(void* p, Size bytes) {
  return static_cast<std::byte*>(p) + bytes;
}
inline const std::byte* at(const void* p, Size bytes) {
  return static_cast<const std::byte*>(p) + bytes;
}

// target <- source.
void pull(DeferredLane& lane, const void* source, void* target, Size bytes);
// target <- NaN: what it holds is not needed any more, and what comes is not there yet.
void spoil(DeferredLane& lane, void* target, Size bytes);

}  // namespace deferred
}  // namespace jaxmg::test
