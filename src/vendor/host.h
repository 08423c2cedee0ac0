// What a rank program needs of the host beyond tile/device.h, since a library of this kind is no
// part of any lane. Specialised for each device.
#pragma once

#include <condition_variable>
#include <mutex>

#include "core/status.h"

namespace jaxmg::vendor {

template <class Device>
struct Host {
  // Blocks until everything in the lane is done, and returns what *info holds then.
  static Info finish(typename Device::Lane& lane, const Info* info);

  // Elements copied from the lane's memory to the host's and back. What is already in the lane
  // comes first; both block until the copy is made.
  template <class X>
  static void read(typename Device::Lane& lane, Size count, const X* from, X* host);
  template <class X>
  static void write(typename Device::Lane& lane, Size count, const X* host, X* to);

  // Blocks until the rank whose turn it is has made a condition true and told so.
  template <class Until>
  static void wait(typename Device::Lane& lane, std::unique_lock<std::mutex>& lock,
                   std::condition_variable& changed, const Until& until);
};

}  // namespace jaxmg::vendor
