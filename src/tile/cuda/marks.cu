#include <algorithm>
#include <map>
#include <mutex>
#include <vector>

#include "tile/cuda/error.h"
#include "tile/cuda/marks.h"

namespace jaxmg::tile {
namespace {

__global__ void store(volatile float* where, float value) {
  *where = value;
  __threadfence_system();
}

__global__ void store_time(volatile std::uint64_t* where) {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  *where = now;
  __threadfence_system();
}

// Pinned blocks by size, kept for the life of the process: giving them back would wait for the
// devices.
template <class E>
class PinnedBlocks {
 public:
  E* take(int count) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<E*>& free = free_[count];
      if (!free.empty()) {
        E* const block = free.back();
        free.pop_back();
        return block;
      }
    }
    void* block = nullptr;
    // Under unified addressing the host's address of such memory is that of every device.
    JAXMG_CUDA_CHECK(cudaHostAlloc(&block, static_cast<std::size_t>(count) * sizeof(E),
                                   cudaHostAllocPortable | cudaHostAllocMapped));
    return static_cast<E*>(block);
  }

  void give_back(E* block, int count) {
    const std::lock_guard lock(mutex_);
    free_[count].push_back(block);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<E*>> free_;
};

template <class E>
PinnedBlocks<E>& blocks() {
  static PinnedBlocks<E>* const instance = new PinnedBlocks<E>;
  return *instance;
}

template <class E>
std::shared_ptr<E[]> make_zeros(int count) {
  E* const block = blocks<E>().take(count);
  std::fill_n(block, count, E{0});
  return {block, [count](E* given) { blocks<E>().give_back(given, count); }};
}

}  // namespace

std::shared_ptr<float[]> make_marks(int count) {
  return make_zeros<float>(count);
}

void set_mark(CudaLane& lane, float* where, float value) noexcept {
  store<<<1, 1, 0, lane.stream()>>>(where, value);
}

std::shared_ptr<std::uint64_t[]> make_stamps(int count) {
  return make_zeros<std::uint64_t>(count);
}

void set_stamp(CudaLane& lane, std::uint64_t* where) noexcept {
  store_time<<<1, 1, 0, lane.stream()>>>(where);
}

}  // namespace jaxmg::tile
