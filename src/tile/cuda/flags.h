// How blocks of threads of one kernel follow each other: numbers that only grow, in the memory that
// all multiprocessors share, and data that is read and written there.
#pragma once

#include "tile/cuda/clang_intrinsics.h"
#include "tile/cuda/scalar.h"

#ifdef __CUDACC__

namespace jaxmg::tile {

// What the block's threads have written before a __syncthreads() is seen by whoever sees the
// number.
__device__ inline void store_release(int* p, int value) {
  asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
__device__ inline int load_acquire(const int* p) {
  int value;
  asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
// A look that holds nobody up; whoever acts on it has to load_acquire() first.
__device__ inline int load_relaxed(const int* p) {
  int value;
  asm volatile("ld.relaxed.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(p));
  return value;
}

// The same among the threads of a block, for numbers in shared memory.
__device__ inline void store_release_block(int* p, int value) {
  asm volatile("st.release.cta.s32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
__device__ inline int load_acquire_block(const int* p) {
  int value;
  asm volatile("ld.acquire.cta.s32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
  return value;
}
// A barrier of the first `Threads` threads of a block.
template <int Threads>
__device__ void sync_first() {
  asm volatile("bar.sync 1, %0;" ::"n"(Threads) : "memory");
}

// A wait takes microseconds; after so many looks, which take seconds, something is wrong.
inline constexpr unsigned kMostPolls = 1u << 24;

// Waits for *p >= value and returns *p, or gives up: then *failed, which makes all others give up
// too. A kernel that has given up ends soon, with results of no use.
__device__ inline int wait_for(const int* p, int value, int* failed) {
  for (unsigned polls = 0;; ++polls) {
    const int seen = load_acquire(p);
    if (seen >= value) {
      return seen;
    }
    if (polls % 1024 == 1023 && (polls >= kMostPolls || load_relaxed(failed) != 0)) {
      store_release(failed, 1);
      return value;
    }
  }
}

template <class R>
__device__ R load_shared_by_all(const R* p) {
  return __ldcg(p);
}
template <class R>
__device__ DeviceComplex<R> load_shared_by_all(const DeviceComplex<R>* p) {
  return {__ldcg(&p->re), __ldcg(&p->im)};
}
template <class R>
__device__ void store_for_all(R* p, R x) {
  __stcg(p, x);
}
template <class R>
__device__ void store_for_all(DeviceComplex<R>* p, DeviceComplex<R> x) {
  __stcg(&p->re, x.re);
  __stcg(&p->im, x.im);
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
