// What a rank program needs of the host beyond tile/device.h, since a library of this kind is no
// part of any lane. Specialised for each device.
#pragma once

#include "core/status.h"

namespace jaxmg::vendor {

template <class Device>
struct Host {
  // Blocks until everything in the lane is done, and returns what *info holds then.
  static Info finish(typename Device::Lane& lane, const Info* info);
};

}  // namespace jaxmg::vendor
