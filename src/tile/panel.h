// The panel of one elimination step: the factor's rows after the step, packed, in the form in which
// it travels and enters the trailing update. An algorithm packs, publishes and updates with it and
// does not see how its numbers are represented.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "core/distribution.h"
#include "core/workspace.h"
#include "tile/device.h"

namespace jaxmg {

// Numbers as they are: m x w, column-major, without gaps.
template <class Device, class T>
class Panel {
 public:
  using Lane = typename Device::Lane;

  static Panel from(const Workspace& workspace, bool odd) {
    return Panel(workspace.template get<T>(odd ? Buffer::panel_odd : Buffer::panel_even));
  }
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

  // panel <- (the ranges' rows of a) inv(L^H), the triangle L being width x width. inverse: as many
  // elements, or null where the device has no use for it (inverse_block).
  //
  // With L in blocks, B_j its diagonal ones and A_j, X_j columns of block j:
  //   X_j = (A_j - X_<j L_j<^H) inv(B_j)^H = A_j inv(B_j)^H - X_<j (inv(B_j) L_j<)^H
  // which is all products, and as accurate as a triangular solve with small blocks is.
  void solve(Lane& lane, const T* a, Size lda, const T* l, Size ldl, T* inverse) {
    if constexpr (Device::inverse_block == 0) {
      pack(lane, a, lda);
      Device::template trsm<T>(lane, Side::right, Uplo::lower, Op::conj_transpose, Diag::non_unit,
                               rows_, width_, T(1), l, ldl, buffer_, rows_);
    } else {
      if (rows_ == 0) {
        return;
      }
      Device::template invert_blocks<T>(lane, width_, l, ldl, inverse, width_);
      for (Size j = 0; j < width_; j += Device::inverse_block) {
        const Size w = std::min(Device::inverse_block, width_ - j);
        T* const x = buffer_ + j * rows_;
        for (const RowRange& r : ranges_) {
          Device::template gemm<T>(lane, Op::none, Op::conj_transpose, r.count, w, w, T(1),
                                   a + *r.begin + j * lda, lda, inverse + j * (width_ + 1), width_,
                                   T(0), x + r.packed, rows_);
        }
        if (j > 0) {
          Device::template gemm<T>(lane, Op::none, Op::conj_transpose, rows_, w, j, T(-1), buffer_,
                                   rows_, inverse + j, width_, T(1), x, rows_);
        }
      }
    }
  }

  // How it travels.
  Message& message() { return message_; }
  Size count() const { return rows_ * width_; }
  static constexpr DType type() { return dtype_of<T>; }

  // Once it has arrived, before the first update.
  void prepare(Lane&) {}
  const T* view() const { return static_cast<const T*>(message_.view); }

  // C (m x n) <- C - P[row : row + m, :] P[col : col + n, :]^H, row and col being packed positions.
  void update(Lane& lane, Size row, Size m, Size col, Size n, T* c, Size ldc) const {
    Device::template gemm<T>(lane, Op::none, Op::conj_transpose, m, n, width_, T(-1), view() + row,
                             rows_, view() + col, rows_, T(1), c, ldc);
  }
  // The same for `count` blocks at constant distances, of which none overlaps another.
  void update_strided(Lane& lane, Size row, Size row_stride, Size m, Size col, Size col_stride,
                      Size n, T* c, Size ldc, Size c_stride, Size count) const {
    Device::template gemm_strided<T>(lane, Op::none, Op::conj_transpose, m, n, width_, T(-1),
                                     view() + row, rows_, row_stride, view() + col, rows_,
                                     col_stride, T(1), c, ldc, c_stride, count);
  }

 private:
  T* buffer_;
  Message message_;
  std::vector<RowRange> ranges_;
  Size rows_ = 0;
  Size width_ = 0;
};

}  // namespace jaxmg
