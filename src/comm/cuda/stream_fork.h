// The passage between the streams that a call of all ranks is enqueued in and the ranks' lanes.
#pragma once

#include "comm/cuda/peer_communicator.h"

namespace jaxmg {

// A rank's lanes begin when ALL ranks' streams have come here, and its stream goes on when ALL
// ranks' lanes are through: peers read and write each other's buffers, which are safe only while no
// rank's stream has gone on to use them otherwise. Every rank makes one, and joins it, at the same
// place in its sequence of calls.
class StreamFork {
 public:
  StreamFork(PeerCommunicator& comm, tile::CudaLanes& lanes, tile::EventPool& events,
             cudaStream_t stream);
  // Without join() (a failure) the destructor waits, on the host, for what this rank has enqueued.
  // Peers may have enqueued reads of its buffers too: see peer_communicator.h.
  ~StreamFork();
  StreamFork(const StreamFork&) = delete;
  StreamFork& operator=(const StreamFork&) = delete;

  void join();

 private:
  PeerCommunicator& comm_;
  tile::CudaLanes& lanes_;
  cudaStream_t stream_;
  bool joined_ = false;
};

}  // namespace jaxmg
