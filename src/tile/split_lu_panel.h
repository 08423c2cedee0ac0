// A float32 or complex64 panel of LU whose product with other columns runs on tensor cores, each
// number as the sum of two half-precision ones; see cuda/split_lu.cu. It is made and sent like a
// native panel; each rank splits what it has received.
#pragma once

#include "core/parts.h"
#include "tile/lu_panel.h"

namespace jaxmg {

template <class Device, class T>
class SplitLuPanel : public LuPanel<Device, T> {
 public:
  using Base = LuPanel<Device, T>;
  using Lane = typename Device::Lane;
  using Half = typename Device::Half;
  static constexpr bool by_parts = true;

  // parts: room for those of L21; top_parts: for those of U12, for tile x L numbers.
  SplitLuPanel(Base native, Half* parts, Half* top_parts)
      : Base(std::move(native)), parts_(parts), top_parts_(top_parts) {}

  static SplitLuPanel from(const Workspace& workspace, Size tile, bool odd) {
    const auto halves = [&](Buffer buffer) {
      return reinterpret_cast<Half*>(workspace.template get<float>(buffer));
    };
    return SplitLuPanel(Base::from(workspace, tile, odd),
                        halves(odd ? Buffer::split_odd : Buffer::split_even),
                        halves(Buffer::split_block));
  }

  void prepare(Lane& lane) {
    Base::prepare(lane);
    Device::split_left(lane, this->below(), this->width(), this->view() + this->width(),
                       this->rows(), parts_, parts_ld(this->below()));
  }

  void apply(Lane& lane, LocalIndex begin, Size columns, T* a, Size lda) const {
    this->solve_top(lane, begin, columns, a, lda);
    Device::subtract_split_rows(
        lane, this->below(), columns, this->width(), parts_, parts_ld(this->below()), a, lda,
        top_parts_ + upper_halves(dtype_of<T>) * this->tile() * *begin, a + this->width(), lda);
  }

 private:
  Half* parts_;
  Half* top_parts_;
};

}  // namespace jaxmg
