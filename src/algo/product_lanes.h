// Products of an update that do not depend on each other, in two lanes: while the last thread
// blocks of one are at work, those of the next fill the rest of the device.
#pragma once

namespace jaxmg {

template <class Device>
class ProductLanes {
 public:
  using Lane = typename Device::Lane;
  using Lanes = typename Device::Lanes;

  // Not `both`: all in the update lane.
  ProductLanes(Lanes& lanes, bool both) : lanes_(lanes), both_(Device::overlaps_products && both) {
    if constexpr (Device::overlaps_products) {
      if (both_) {
        lanes_.side.wait(lanes_.update.record());
      }
    }
  }
  ProductLanes(const ProductLanes&) = delete;
  ProductLanes& operator=(const ProductLanes&) = delete;

  // Where the next product goes.
  Lane& next() {
    if constexpr (Device::overlaps_products) {
      beside_ = both_ && !beside_;
      return beside_ ? lanes_.side : lanes_.update;
    } else {
      return lanes_.update;
    }
  }

  // Later work of the update lane follows all of them.
  void join() {
    if constexpr (Device::overlaps_products) {
      if (both_) {
        lanes_.update.wait(lanes_.side.record());
      }
    }
  }

 private:
  Lanes& lanes_;
  bool both_;
  bool beside_ = false;
};

}  // namespace jaxmg
