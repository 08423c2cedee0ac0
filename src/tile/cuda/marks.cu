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

// Pinned blocks by size, kept for the life of the process: giving them back would wait for the
// devices.
class PinnedBlocks {
 public:
  float* take(int count) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<float*>& free = free_[count];
      if (!free.empty()) {
        float* const block = free.back();
        free.pop_back();
        return block;
      }
    }
    void* block = nullptr;
    // Under unified addressing the host's address of such memory is that of every device.
    JAXMG_CUDA_CHECK(cudaHostAlloc(&block, static_cast<std::size_t>(count) * sizeof(float),
                                   cudaHostAllocPortable | cudaHostAllocMapped));
    return static_cast<float*>(block);
  }

  void give_back(float* block, int count) {
    const std::lock_guard lock(mutex_);
    free_[count].push_back(block);
  }

 private:
  std::mutex mutex_;
  std::map<int, std::vector<float*>> free_;
};

PinnedBlocks& blocks() {
  static PinnedBlocks* const instance = new PinnedBlocks;
  return *instance;
}

}  // namespace

std::shared_ptr<float[]> make_marks(int count) {
  float* const block = blocks().take(count);
  std::fill_n(block, count, 0.0F);
  return {block, [count](float* given) { blocks().give_back(given, count); }};
}

void set_mark(CudaLane& lane, float* where, float value) noexcept {
  store<<<1, 1, 0, lane.stream()>>>(where, value);
}

}  // namespace jaxmg::tile
