// Dynamic shared memory of kernels.
#pragma once

#include <cstddef>

namespace jaxmg::tile {

// Bytes of shared memory that a kernel may have without being allowed more.
inline constexpr std::size_t kPlainSharedMemory = 48 * 1024;

// Lets a kernel be launched with so many bytes of dynamic shared memory, on the current device.
void allow_shared_memory(const void* kernel, std::size_t bytes);
template <class Kernel>
void allow_shared_memory(Kernel* kernel, std::size_t bytes) {
  allow_shared_memory(reinterpret_cast<const void*>(kernel), bytes);
}

}  // namespace jaxmg::tile
