// Scratch memory of one CPU rank.
#pragma once

#include <cstddef>
#include <string>

#include "ffi/call.h"

namespace jaxmg {

class CpuScratch {
 public:
  // Throws ScratchError, with the number of bytes in it, if there is not enough memory. With
  // JAXMG_POISON_SCRATCH=1 in the environment the block is filled with NaN, so that what reads
  // before it writes is found.
  CpuScratch(const jaxmg_call& call, std::size_t bytes);
  ~CpuScratch();
  CpuScratch(const CpuScratch&) = delete;
  CpuScratch& operator=(const CpuScratch&) = delete;

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  bool own_ = false;
};

}  // namespace jaxmg
