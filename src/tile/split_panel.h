// A float32 or complex64 panel whose products run on tensor cores, each number as the sum of two
// half-precision ones. It is sent and kept like a native panel; each rank splits what it has
// received, when all its work with the panel before is over: even and odd ones share the room for
// the parts.
//
// Where there are many rows it is made by halves of its columns, and these likewise, so that here
// too most of the work is products by parts:
//
//   A2 <- A2 - X1 L21^H,  X1 being the rows below the first half's triangle, and L21 the first of
//                         them
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

  // split: room for the parts of a panel; run_split: for those of half its columns, if there is.
  SplitPanel(T* buffer, Half* split, Half* run_split)
      : Panel<Device, T>(buffer), split_(split), run_split_(run_split) {}

  static SplitPanel from(const Workspace& workspace, bool odd) {
    const auto halves = [&](Buffer buffer) {
      return reinterpret_cast<Half*>(workspace.template get<float>(buffer));
    };
    return SplitPanel(workspace.template get<T>(odd ? Buffer::panel_odd : Buffer::panel_even),
                      halves(Buffer::split_even), halves(Buffer::split_block));
  }

  void factor(Lane& lane, Size part, Size position, Info* info) {
    if (run_split_ == nullptr || this->rows() < Device::rows_by_parts || this->parts() > 1) {
      return Panel<Device, T>::factor(lane, part, position, info);
    }
    factor_run(lane, 0, this->width(), position, info);
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
  // Columns first .. last - 1, on which those before have had their effect.
  void factor_run(Lane& lane, Size first, Size last, Size position, Info* info) {
    T* const corner = this->head() + first * (this->ld() + 1);
    const Size width = last - first;
    if (width <= Device::template run_by_parts<T>) {
      return Device::template factor_panel<T>(lane, 0, width, width, this->ld() - last, corner,
                                              this->ld(), position + first, info);
    }
    const Size middle = first + width / 2;
    factor_run(lane, first, middle, position, info);
    update_run(lane, first, middle, last);
    factor_run(lane, middle, last, position, info);
  }

  // What columns first .. middle - 1 do to middle .. last - 1. Right-hand sides may be of any size
  // and are taken as they are.
  void update_run(Lane& lane, Size first, Size middle, Size last) {
    const Size ld = this->ld();
    const Size rows = this->width() - middle + this->rows();
    const T* const x = this->head() + middle + first * ld;
    T* const c = this->head() + middle * (ld + 1);
    Device::split(lane, rows, middle - first, x, ld, run_split_, parts_ld(rows));
    Device::subtract_split_product(lane, rows, last - middle, middle - first, run_split_,
                                   parts_ld(rows), 0, 0, 0, 0, c, ld, 0, 1);
    const Size others = ld - middle - rows;
    if (others > 0) {
      Device::template gemm<T>(lane, Op::none, Op::conj_transpose, others, last - middle,
                               middle - first, T(-1), x + rows, ld, x, ld, T(1), c + rows, ld);
    }
  }

  Half* split_;
  Half* run_split_;
};

}  // namespace jaxmg
