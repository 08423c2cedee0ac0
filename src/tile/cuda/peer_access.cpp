#include "tile/cuda/peer_access.h"

#include "tile/cuda/lane.h"

namespace jaxmg::tile {
namespace {

bool enable(int device, int peer) {
  int can = 0;
  JAXMG_CUDA_CHECK(cudaDeviceCanAccessPeer(&can, device, peer));
  if (can == 0) {
    return false;
  }
  const DeviceGuard guard(device);
  const cudaError_t status = cudaDeviceEnablePeerAccess(peer, 0);
  if (status == cudaErrorPeerAccessAlreadyEnabled) {
    cudaGetLastError();
    return true;
  }
  if (status == cudaErrorTooManyPeers) {  // the machine has more links than the driver maps
    cudaGetLastError();
    return false;
  }
  JAXMG_CUDA_CHECK(status);
  return true;
}

}  // namespace

bool enable_peer_access(const std::vector<int>& devices) {
  bool all = true;
  for (const int device : devices) {
    for (const int peer : devices) {
      all = (device == peer || enable(device, peer)) && all;
    }
  }
  return all;
}

}  // namespace jaxmg::tile
