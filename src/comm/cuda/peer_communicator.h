// Ranks that are GPUs of one process, driven by a host thread each.
//
// How calls run:
//  - Data moves by copies that the receiver enqueues in the lane it gives, ordered by events; no
//    kernel waits for another rank. A call blocks its host thread until the ranks that it reads
//    from have made the call; a wait for a ticket, until those that read from this rank have
//    enqueued their copies.
//  - Large broadcasts run along a chain in chunks, so that each link carries the message once; the
//    rank named as first to need it comes first.
//  - Reductions are kernels that read all operands where they lie, if all devices reach each
//  other's
//    memory; else operands are first pulled, chunk by chunk, into the rank's staging block.
//  - Buffers of a call may not overlap, but for: all_gather with in == out + rank() * count, and
//    reduce_scatter with out == in + rank() * count.
//  - Extremes: a NaN is both the least and the largest of all values. Sums of i32 wrap around.
//  - Complex values have sums but no extremes: std::invalid_argument, as for negative counts and
//    ranks that do not exist.
//  - Several ranks may share a device.
//
// How calls fail: as those of thread ranks do (comm/thread_communicator.h), and with
// tile::CudaError. What has been enqueued by then may still run: whoever handles the failure must
// synchronise with all ranks' lanes before any rank's buffers go.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/cuda/combine.h"
#include "comm/cuda/peer_group.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/staging.h"

namespace jaxmg {

class PeerCommunicator final : public Communicator<tile::Cuda> {
 public:
  // staging lies on the rank's device and may be shared with its other communicators.
  PeerCommunicator(std::shared_ptr<peers::PeerGroup> group, int rank, tile::CudaStaging& staging);
  ~PeerCommunicator() override;
  PeerCommunicator(const PeerCommunicator&) = delete;
  PeerCommunicator& operator=(const PeerCommunicator&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return group_->size(); }
  peers::PeerGroup& group() const { return *group_; }

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

  // Hands over an event and waits for those of all other ranks: later work of each lane follows
  // what every rank had recorded.
  void meet(const tile::CudaEvent& mine, std::span<Lane* const> lanes);
  // The same for a stream that is not a lane.
  void meet(const tile::CudaEvent& mine, cudaStream_t stream);

 private:
  using Call = std::shared_ptr<peers::PeerCall>;
  using Stage = peers::Stage;

  Call enter(const peers::Signature& signature) { return group_->enter(rank_, signature); }
  void offer(const Call& call, Stage stage, peers::Offer offer) {
    group_->offer(*call, rank_, stage, std::move(offer));
  }
  const peers::Offer& await(const Call& call, int from, Stage stage) {
    return group_->await(*call, rank_, from, stage);
  }
  std::vector<int> others() const;
  void check_rank(int rank, const char* what) const;

  // target <- source on rank `from`, enqueued in the lane.
  void pull(Lane& lane, int from, const void* source, void* target, Size bytes);
  // Offers Stage::done and makes the ticket of a call in which `readers` read from this rank.
  Ticket finish(Lane& lane, const Call& call, std::vector<int> readers);

  Ticket spread(Lane& lane, std::string_view name, void* data, Size count, DType type, int root,
                int first);
  Ticket spread_star(Lane& lane, const Call& call, void* data, Size bytes, int root, int first);
  Ticket spread_chain(Lane& lane, const Call& call, void* data, Size bytes, int root, int first);

  // out <- the reduction of elements [begin, begin + count) of the ranks' offered data.
  void reduce_part(Lane& lane, const std::vector<const void*>& operands, Size begin, Size count,
                   DType type, Reduction op, void* out);
  // Waits until all ranks' operands are ready; where they lie, by rank.
  std::vector<const void*> await_operands(Lane& lane, const Call& call);
  // Small operands of `bytes` bytes in a form that this rank's kernels can read.
  peers::Sources readable(Lane& lane, const std::vector<const void*>& operands, Size bytes,
                          char* staging);
  Ticket locate(Lane& lane, std::string_view name, void* value, std::int64_t* location, DType type,
                Reduction op);
  // All ranks have read each other's small operands, so that results may take their place.
  void await_read(Lane& lane, const Call& call);

  std::shared_ptr<peers::PeerGroup> group_;
  int rank_;
  tile::CudaStaging& staging_;
};

// Element r belongs to rank r, whose device and staging block are given; it is used by that rank's
// host thread with the device current. direct: what tile::enable_peer_access returned. time_limit
// bounds each wait; zero means none.
std::vector<std::unique_ptr<PeerCommunicator>> make_peer_communicators(
    const std::vector<int>& devices, std::span<tile::CudaStaging* const> staging, bool direct,
    std::chrono::nanoseconds time_limit = std::chrono::nanoseconds::zero());

// Makes all present and later calls of the whole family of `any` fail for this reason. May be
// called from any thread, any number of times; the first reason stays.
void abort_team(Communicator<tile::Cuda>& any, const std::string& reason);

// Throws the family's CommunicationError, if there is one.
void check_team(const Communicator<tile::Cuda>& any);

}  // namespace jaxmg
