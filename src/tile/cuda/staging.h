// A fixed block of device memory that one rank's calls use one after the other.
#pragma once

#include "core/types.h"
#include "tile/cuda/lane.h"

namespace jaxmg::tile {

class CudaStaging {
 public:
  // On the current device.
  explicit CudaStaging(Size bytes);
  ~CudaStaging();
  CudaStaging(const CudaStaging&) = delete;
  CudaStaging& operator=(const CudaStaging&) = delete;

  char* data() const { return data_; }
  Size bytes() const { return bytes_; }

  // Use of the block by the lane's work between construction and destruction follows earlier uses
  // and precedes later ones, whatever their lanes.
  class Use {
   public:
    Use(CudaStaging& staging, CudaLane& lane) : staging_(staging), lane_(lane) {
      lane_.wait(staging_.last_use_);
    }
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    CudaStaging& staging_;
    CudaLane& lane_;
  };

 private:
  char* data_ = nullptr;
  Size bytes_ = 0;
  CudaEvent last_use_;
};

}  // namespace jaxmg::tile
