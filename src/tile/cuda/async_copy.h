// Copies from global to shared memory that run beside the arithmetic.
#pragma once

#ifdef __CUDACC__

namespace jaxmg::tile {

// 16 bytes, both places aligned to 16.
__device__ inline void copy_async(void* shared, const void* global) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
}
// The same, or zeros in their place.
__device__ inline void copy_async_or_zeros(void* shared, const void* global, bool copy) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int bytes = copy ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(bytes)
               : "memory");
}
// One element of 4 or 8 bytes, or 0 in its place.
template <class R>
__device__ void copy_async_or_zero(R* shared, const R* global, bool copy) {
  const auto to = static_cast<unsigned>(__cvta_generic_to_shared(shared));
  const int bytes = copy ? static_cast<int>(sizeof(R)) : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global),
               "n"(sizeof(R)), "r"(bytes)
               : "memory");
}
// This thread's copies since the last call are a group.
__device__ inline void commit_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
// All but the last N groups of this thread have arrived.
template <int N>
__device__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// A hint that what lies there will be read.
__device__ inline void prefetch(const void* global) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(global));
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
