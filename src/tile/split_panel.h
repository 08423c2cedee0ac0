// A float32 or complex64 panel whose products run on tensor cores, each number as the sum of two
// half-precision ones. It is made, sent and kept like a native panel; each rank splits what it has
// received, when all its work with the panel before is over: even and odd ones share the room for
// the parts.
#pragma once

#include "core/parts.h"
#include "tile/panel.h"

namespace jaxmg {

template <class Device, class T>
class SplitPanel : public Panel<Device, T> {
 public:
  using Lane = typename Device::Lane;
  using Half = typename Device::Half;
  static constexpr bool by_parts = true;

  SplitPanel(T* buffer, Half* split) : Panel<Device, T>(buffer), split_(split) {}

  static SplitPanel from(const Workspace& workspace, bool odd) {
    return SplitPanel(workspace.template get<T>(odd ? Buffer::panel_odd : Buffer::panel_even),
                      reinterpret_cast<Half*>(workspace.template get<float>(Buffer::split_even)));
  }

  void prepare(Lane& lane) {
    Device::split(lane, this->rows(), this->width(), this->view(), this->ld(), split_,
                  parts_ld(this->rows()));
  }

  void update(Lane& lane, Size row, Size m, Size col, Size n, T* c, Size ldc) const {
    update_strided(lane, row, 0, m, col, 0, n, c, ldc, 0, 1);
  }

  // The parts of numbers are kept together for all columns: such a panel is made and sent in one.
  void update_by(Lane& lane, Size, Size row, Size m, Size col, Size n, T* c, Size ldc) const {
    update(lane, row, m, col, n, c, ldc);
  }

  void update_strided(Lane& lane, Size row, Size row_stride, Size m, Size col, Size col_stride,
                      Size n, T* c, Size ldc, Size c_stride, Size count) const {
    Device::subtract_split_product(lane, m, n, this->width(), split_, parts_ld(this->rows()), row,
                                   row_stride, col, col_stride, c, ldc, c_stride, count);
  }

 private:
  Half* split_;
};

}  // namespace jaxmg
