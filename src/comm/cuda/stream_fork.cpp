#include "comm/cuda/stream_fork.h"

#include <array>

namespace jaxmg {

StreamFork::StreamFork(PeerCommunicator& comm, tile::CudaLanes& lanes, tile::EventPool& events,
                       cudaStream_t stream)
    : comm_(comm), lanes_(lanes), stream_(stream) {
  const std::array all{&lanes_.panel, &lanes_.update, &lanes_.copy};
  comm_.meet(events.record(stream_), all);
}

StreamFork::~StreamFork() {
  if (!joined_) {
    for (const tile::CudaLane* lane : {&lanes_.panel, &lanes_.update, &lanes_.copy}) {
      cudaStreamSynchronize(lane->stream());
    }
  }
}

void StreamFork::join() {
  lanes_.update.wait(lanes_.panel.record());
  lanes_.update.wait(lanes_.copy.record());
  comm_.meet(lanes_.update.record(), stream_);
  joined_ = true;
}

}  // namespace jaxmg
