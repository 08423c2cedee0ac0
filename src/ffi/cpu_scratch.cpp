#include "ffi/cpu_scratch.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "core/types.h"
#include "ffi/operands.h"
#include "ffi/outcome.h"

namespace jaxmg {
namespace {

constexpr std::size_t kAlignment = 256;

bool poison() {
  static const bool wanted = [] {
    const char* text = std::getenv("JAXMG_POISON_SCRATCH");
    return text != nullptr && std::string_view(text) == "1";
  }();
  return wanted;
}

}  // namespace

CpuScratch::CpuScratch(const jaxmg_call& call, std::size_t bytes) {
  if (bytes == 0) {
    return;
  }
  own_ = call.allocate == nullptr;
  // aligned_alloc wants a multiple of the alignment.
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  data_ = own_ ? std::aligned_alloc(kAlignment, rounded) : call.allocate(call.allocator, bytes);
  if (data_ == nullptr) {
    throw ScratchError(target_name(call) + ": could not get " + std::to_string(bytes) +
                       " bytes of scratch memory");
  }
  if (poison()) {
    std::memset(data_, 0xff, bytes);  // all ones is a NaN of every floating type
  }
}

CpuScratch::~CpuScratch() {
  if (own_) {
    std::free(data_);
  }
}

}  // namespace jaxmg
