// Stores into the shared memory of the blocks of a cluster, each of which tells a barrier there how
// many bytes have come: no fence, and no way through the cache. The blocks of a cluster start
// together, so that nobody waits in vain.
#pragma once

#include "tile/cuda/scalar.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

#if __CUDA_ARCH__ >= 900 || !defined(__CUDA_ARCH__)

// Where something of this block lies in shared memory, and where the same thing of block `block`
// does.
__device__ inline unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}
__device__ inline unsigned in_block(unsigned here, unsigned block) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(here), "r"(block));
  return there;
}

// Barriers for one arrival each; by one thread, before the blocks meet for the first time.
template <int kCount>
__device__ void init_barriers(const unsigned long long (&barriers)[kCount]) {
  for (const unsigned long long& barrier : barriers) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&barrier))
                 : "memory");
  }
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// The arrival: so many bytes are to come.
__device__ inline void expect_bytes(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}
__device__ inline void wait_for_bytes(unsigned barrier, unsigned parity) {
  unsigned done = 0;
  while (done == 0) {
    asm volatile(
        "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
        "selp.u32 %0, 1, 0, p; }"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

__device__ inline void store_in_block(unsigned to, float x, unsigned barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to),
      "r"(__float_as_uint(x)), "r"(barrier)
      : "memory");
}
__device__ inline void store_in_block(unsigned to, unsigned long long x, unsigned barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];" ::"r"(to),
      "l"(x), "r"(barrier)
      : "memory");
}
__device__ inline void store_in_block(unsigned to, double x, unsigned barrier) {
  store_in_block(to, static_cast<unsigned long long>(__double_as_longlong(x)), barrier);
}
template <class R>
__device__ void store_in_block(unsigned to, DeviceComplex<R> x, unsigned barrier) {
  store_in_block(to, x.re, barrier);
  store_in_block(to + static_cast<unsigned>(sizeof(R)), x.im, barrier);
}

// All threads of all blocks.
__device__ inline void meet_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::
                   : "memory");
}

#endif

}  // namespace jaxmg::tile

#endif  // __CUDACC__
