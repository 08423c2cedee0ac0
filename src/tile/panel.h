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
  static constexpr bool by_parts = false;  // of numbers

  static Panel from(const Workspace& workspace, bool odd) {
    return Panel(workspace.template get<T>(odd ? Buffer::panel_odd : Buffer::panel_even));
  }
  explicit Panel(T* buffer) : buffer_(buffer), messages_{{buffer, buffer}} {}

  // The step's remaining rows, in the order in which they are packed, and the panel's width. The
  // head is as many rows before them that are no part of the panel but travel with it. Parts are
  // runs of columns that can be made and sent one after the other. Where a panel is wide enough the
  // last is about half as wide as the others, since nothing goes on beside its way.
  // Right-hand sides are rows after them that go through the same operations: `rhs` of them, and
  // room for `rhs_room`.
  void reshape(std::vector<RowRange> rows, Size width, Size head = 0, Size parts = 1, Size rhs = 0,
               Size rhs_room = 0) {
    ranges_ = std::move(rows);
    width_ = width;
    head_ = head;
    rhs_ = rhs;
    rhs_room_ = rhs_room;
    rows_ = ranges_.empty() ? 0 : ranges_.back().packed + ranges_.back().count;
    part_width_ = std::max<Size>(1, ceil_div(width, parts));
    parts_ = std::max<Size>(1, ceil_div(width, part_width_));
    last_width_ = parts_ > 1 && width >= (2 * parts_ - 1) * kEdge
                      ? round_up(ceil_div(width, 2 * parts_), kEdge)
                      : 0;
    messages_.resize(static_cast<std::size_t>(parts_));
    for (Size p = 0; p < parts_; ++p) {
      T* const columns = buffer_ + part_begin(p) * ld();
      messages_[static_cast<std::size_t>(p)] = {columns, columns};
    }
  }

  Size rows() const { return rows_; }
  Size ld() const { return head_ + rows_ + rhs_room_; }
  Size width() const { return width_; }
  Size parts() const { return parts_; }
  std::span<const RowRange> ranges() const { return ranges_; }
  T* data() { return buffer_ + head_; }
  T* head() { return buffer_; }

  // panel <- the ranges' rows of a; a has leading dimension lda and `width` columns.
  void pack(Lane& lane, const T* a, Size lda) {
    for (const RowRange& r : ranges_) {
      Device::template copy<T>(lane, r.count, width_, a + *r.begin, lda, buffer_ + head_ + r.packed,
                               ld());
    }
  }
  // The way back.
  void unpack(Lane& lane, T* a, Size lda) const {
    for (const RowRange& r : ranges_) {
      Device::template copy<T>(lane, r.count, width_, buffer_ + head_ + r.packed, ld(),
                               a + *r.begin, lda);
    }
  }

  // With the diagonal tile of a in the head.
  void pack_with_head(Lane& lane, const T* a, Size lda, const T* diagonal) {
    Device::template copy<T>(lane, head_, width_, diagonal, lda, buffer_, ld());
    pack(lane, a, lda);
  }
  // Head, rows and right-hand sides are factored, part by part, see factor_panel of tile/device.h.
  // So is all of the room for right-hand sides, since products of an odd number of rows are slower;
  // no row depends on what another holds.
  void factor(Lane& lane, Size part, Size position, Info* info) {
    Device::template factor_panel<T>(lane, part_begin(part), part_begin(part + 1), head_,
                                     rows_ + rhs_room_, buffer_, ld(), position, info);
  }
  // The factor of the diagonal tile goes back to its place.
  void unpack_head(Lane& lane, T* diagonal, Size lda) const {
    Device::template copy_triangle<T>(lane, Uplo::lower, Diag::non_unit, head_, head_, buffer_,
                                      ld(), diagonal, lda);
  }

  // Columns of right-hand sides, b (rhs x width), to their rows, and back.
  void pack_rhs(Lane& lane, const T* b, Size ldb) {
    Device::template copy<T>(lane, rhs_, width_, b, ldb, buffer_ + head_ + rows_, ld());
  }
  void unpack_rhs(Lane& lane, T* b, Size ldb) const {
    Device::template copy<T>(lane, rhs_, width_, buffer_ + head_ + rows_, ld(), b, ldb);
  }

  // How it travels.
  Message& message(Size part = 0) { return messages_[static_cast<std::size_t>(part)]; }
  Size count(Size part = 0) const { return ld() * (part_begin(part + 1) - part_begin(part)); }
  static constexpr DType type() { return dtype_of<T>; }

  // Once it has arrived, before the first update.
  void prepare(Lane&) {}
  const T* view() const { return static_cast<const T*>(messages_.front().view) + head_; }

  // C (m x n) <- C - P[row : row + m, :] P[col : col + n, :]^H, row and col being packed positions.
  void update(Lane& lane, Size row, Size m, Size col, Size n, T* c, Size ldc) const {
    Device::template gemm<T>(lane, Op::none, Op::conj_transpose, m, n, width_, T(-1), view() + row,
                             ld(), view() + col, ld(), T(1), c, ldc);
  }
  // What one part contributes to that.
  void update_by(Lane& lane, Size part, Size row, Size m, Size col, Size n, T* c, Size ldc) const {
    const T* const columns = view() + part_begin(part) * ld();
    Device::template gemm<T>(lane, Op::none, Op::conj_transpose, m, n,
                             part_begin(part + 1) - part_begin(part), T(-1), columns + row, ld(),
                             columns + col, ld(), T(1), c, ldc);
  }
  // The same for other columns of the right-hand sides, b (rhs x n), with numbers as they are.
  void update_rhs(Lane& lane, Size col, Size n, T* b, Size ldb) const {
    Panel::update(lane, rows_, rhs_, col, n, b, ldb);
  }
  // All of it for `count` blocks at constant distances, of which none overlaps another.
  void update_strided(Lane& lane, Size row, Size row_stride, Size m, Size col, Size col_stride,
                      Size n, T* c, Size ldc, Size c_stride, Size count) const {
    Device::template gemm_strided<T>(lane, Op::none, Op::conj_transpose, m, n, width_, T(-1),
                                     view() + row, ld(), row_stride, view() + col, ld(), col_stride,
                                     T(1), c, ldc, c_stride, count);
  }
  // The lower triangles of `count` blocks on the diagonal: row = col, m = n.
  void update_diagonal(Lane& lane, Size row, Size row_stride, Size n, T* c, Size ldc, Size c_stride,
                       Size count) const {
    Device::template herk_strided<T>(lane, n, width_, view() + row, ld(), row_stride, c, ldc,
                                     c_stride, count);
  }

 private:
  static constexpr Size kEdge = 64;  // parts of wide panels are made of so many columns at a time

  Size part_begin(Size part) const {
    if (last_width_ == 0 || part == parts_) {
      return std::min(width_, part * part_width_);
    }
    const Size begin = part * (width_ - last_width_) / (parts_ - 1);
    return (begin + kEdge / 2) / kEdge * kEdge;
  }

  T* buffer_;
  std::vector<Message> messages_;  // of the parts
  std::vector<RowRange> ranges_;
  Size rows_ = 0;
  Size head_ = 0;
  Size rhs_ = 0;
  Size rhs_room_ = 0;
  Size width_ = 0;
  Size parts_ = 1;
  Size part_width_ = 1;  // if all are of one width
  Size last_width_ = 0;  // of the last one, about; 0: they are
};

}  // namespace jaxmg
