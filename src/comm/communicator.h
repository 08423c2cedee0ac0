// What ranks say to each other. One interface for threads of a process (CPU), peer copies (GPUs of
// a process) and, later, NCCL and MPI. It moves buffers and knows nothing of matrices.
//
// Rules common to all implementations:
//  - Every rank of the communicator calls the same operations in the same order from its host
//    thread; that order, not the lane, is what matches calls.
//  - An operation reads and writes its buffers in the order of the lane that it is given, and
//    returns a ticket at once. lane.wait(ticket) makes later work of that lane follow the
//    operation: results are there, and buffers that were sent may be overwritten.
//  - Reductions run in rank order: the result has the same bits on every rank and in every run.
//  - A ticket that is dropped is waited for by its destructor.
#pragma once

#include <memory>
#include <span>

#include "core/dtype.h"
#include "core/status.h"
#include "core/types.h"

namespace jaxmg {

enum class Reduction { sum, min, max };

// One message of a group of sends and receives.
struct Transfer {
  void* buffer = nullptr;
  Size count = 0;
  int peer = 0;
};

// A message that its readers may see where it lies. `buffer` is this rank's own memory; after
// lane.wait(ticket), `view` is where to read: the root's memory if this rank can reach it without
// cost, else `buffer`.
struct Message {
  void* buffer = nullptr;
  const void* view = nullptr;
};

template <class Device>
class Communicator {
 public:
  using Lane = typename Device::Lane;
  using Ticket = typename Device::Ticket;

  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Ranks that pass the same color form a communicator, ordered by (key, rank).
  virtual std::unique_ptr<Communicator> split(int color, int key) = 0;

  // Host-side meeting of all ranks.
  virtual void barrier() = 0;

  // data <- root's data. `first` is the rank that needs it soonest, or -1.
  virtual Ticket broadcast(Lane& lane, void* data, Size count, DType type, int root,
                           int first = -1) = 0;

  // As broadcast, but readers may look into the root's memory. The root's ticket completes when
  // every reader has released its own by dropping it; readers read between wait and release.
  virtual Ticket publish(Lane& lane, Message& message, Size count, DType type, int root,
                         int first = -1) = 0;

  // data <- sum, minimum or maximum over ranks of data, on every rank (all_reduce) or on root.
  virtual Ticket all_reduce(Lane& lane, void* data, Size count, DType type, Reduction op) = 0;
  virtual Ticket reduce(Lane& lane, void* data, Size count, DType type, Reduction op, int root) = 0;

  // out <- this rank's block of the reduction; in holds size() blocks of `count` elements.
  virtual Ticket reduce_scatter(Lane& lane, const void* in, void* out, Size count, DType type,
                                Reduction op) = 0;

  // out <- the ranks' blocks of `count` elements, in rank order.
  virtual Ticket all_gather(Lane& lane, const void* in, void* out, Size count, DType type) = 0;

  // Block r of `in` (send_counts[r] elements at send_offsets[r]) goes to rank r.
  virtual Ticket all_to_all_v(Lane& lane, const void* in, std::span<const Size> send_counts,
                              std::span<const Size> send_offsets, void* out,
                              std::span<const Size> recv_counts, std::span<const Size> recv_offsets,
                              DType type) = 0;

  // All sends and receives as one operation; the i-th send from a to b meets the i-th receive at b
  // from a. Only the ranks named take part, but every rank makes the call.
  virtual Ticket exchange(Lane& lane, std::span<const Transfer> sends,
                          std::span<const Transfer> receives, DType type) = 0;

  // value <- extreme of |value| over ranks, and location <- that rank's location; ties go to the
  // lowest rank. value has the real type named, location is int64; both lie with the data.
  virtual Ticket min_location(Lane& lane, void* value, std::int64_t* location, DType type) = 0;
  virtual Ticket max_location(Lane& lane, void* value, std::int64_t* location, DType type) = 0;

  // info <- the ranks' Info of least severity(); the same on all ranks.
  virtual Ticket agree(Lane& lane, Info* info) = 0;
};

}  // namespace jaxmg
