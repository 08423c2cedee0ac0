// The panel of one elimination step: the factor's rows after the step, packed, in the form in which
// it travels and enters the trailing update. An algorithm packs, publishes and updates with it and
// does not see how its numbers are represented.
#pragma once

#include <span>
#include <vector>

#include "comm/communicator.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

// Numbers as they are: m x w, column-major, without gaps.
template <class Device, class T>
class Panel {
 public:
  using Lane = typename Device::Lane;

  explicit Panel(T* buffer) : buffer_(buffer) { message_.buffer = buffer; }

  // The step's remaining rows, in the order in which they are packed, and the panel's width.
  void reshape(std::vector<RowRange> rows, Size width) {
    ranges_ = std::move(rows);
    width_ = width;
    rows_ = ranges_.empty() ? 0 : ranges_.back().packed + ranges_.back().count;
    message_.view = buffer_;
  }

  Size rows() const { return rows_; }
  Size width() const { return width_; }
  std::span<const RowRange> ranges() const { return ranges_; }
  T* data() { return buffer_; }

  // panel <- the ranges' rows of a; a has leading dimension lda and `width` columns.
  void pack(Lane& lane, const T* a, Size lda) {
    for (const RowRange& r : ranges_) {
      Device::template copy<T>(lane, r.count, width_, a + *r.begin, lda, buffer_ + r.packed, rows_);
    }
  }
  // The way back.
  void unpack(Lane& lane, T* a, Size lda) const {
    for (const RowRange& r : ranges_) {
      Device::template copy<T>(lane, r.count, width_, buffer_ + r.packed, rows_, a + *r.begin, lda);
    }
  }

  // How it travels.
  Message& message() { return message_; }
  Size count() const { return rows_ * width_; }
  static constexpr DType type() { return dtype_of<T>; }

  // C (m x n) <- C - P[row : row + m, :] P[col : col + n, :]^H, row and col being packed positions.
  void update(Lane& lane, Size row, Size m, Size col, Size n, T* c, Size ldc) const {
    const T* p = static_cast<const T*>(message_.view);
    Device::template gemm<T>(lane, Op::none, Op::conj_transpose, m, n, width_, T(-1), p + row,
                             rows_, p + col, rows_, T(1), c, ldc);
  }
  // The same for `count` blocks at constant distances, of which none overlaps another.
  void update_strided(Lane& lane, Size row, Size row_stride, Size m, Size col, Size col_stride,
                      Size n, T* c, Size ldc, Size c_stride, Size count) const {
    const T* p = static_cast<const T*>(message_.view);
    Device::template gemm_strided<T>(lane, Op::none, Op::conj_transpose, m, n, width_, T(-1),
                                     p + row, rows_, row_stride, p + col, rows_, col_stride, T(1),
                                     c, ldc, c_stride, count);
  }

 private:
  T* buffer_;
  Message message_;
  std::vector<RowRange> ranges_;
  Size rows_ = 0;
  Size width_ = 0;
};

}  // namespace jaxmg
