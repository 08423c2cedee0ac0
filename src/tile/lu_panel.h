// The panel of one step of an LU factorisation: the factored columns and their pivots, packed as
// they travel, and what it does to other columns.
#pragma once

#include <algorithm>

#include "comm/communicator.h"
#include "core/index.h"
#include "core/workspace.h"
#include "tile/device.h"

namespace jaxmg {

// m x w, column-major, without gaps; behind it, where the device has a use for them
// (inverse_block), w x w numbers that getrf makes of the triangle's inverse, and w pivots, as
// 32-bit integers that count rows from the top of the matrix.
template <class Device, class T>
class LuPanel {
 public:
  using Lane = typename Device::Lane;
  static constexpr bool by_parts = false;

  static LuPanel from(const Workspace& workspace, Size tile, bool odd) {
    std::int32_t* const moves =
        workspace.template get<std::int32_t>(odd ? Buffer::moves_odd : Buffer::moves_even);
    return LuPanel(workspace.template get<T>(odd ? Buffer::panel_odd : Buffer::panel_even),
                   {moves, moves + 2 * tile}, workspace.template get<T>(Buffer::row_block), tile);
  }

  // top: tile x L elements, or null where the device has no use for them (inverse_block).
  LuPanel(T* buffer, RowMoves moves, T* top, Size tile)
      : buffer_(buffer), moves_(moves), top_(top), tile_(tile) {
    message_.buffer = buffer;
  }

  // first: where the panel's rows begin in the matrix.
  void reshape(Size first, Size rows, Size width) {
    first_ = first;
    rows_ = rows;
    width_ = width;
    message_.view = buffer_;
  }

  // LU factors of a (rows x width) in place, and its copy here. `pivots` count rows from the top of
  // the matrix; for the rest see getrf of tile/device.h.
  void factor(Lane& lane, T* a, Size lda, std::int32_t* pivots, Size equation, Info* info) {
    Device::template getrf<T>(lane, rows_, width_, a, lda, first_, pivots, buffer_ + rows_ * width_,
                              width_, first_, equation, info);
    Device::template copy<T>(lane, rows_, width_, a, lda, buffer_, rows_);
    Device::template copy<std::int32_t>(lane, width_, 1, pivots, width_,
                                        reinterpret_cast<std::int32_t*>(buffer_ + elements()),
                                        width_);
  }

  // How it travels.
  Message& message() { return message_; }
  Size count() const {
    return elements() + ceil_div(width_ * size_of(DType::i32), size_of(dtype_of<T>));
  }
  static constexpr DType type() { return dtype_of<T>; }

  const T* view() const { return static_cast<const T*>(message_.view); }
  const T* inverse() const { return view() + rows_ * width_; }
  const std::int32_t* pivots() const {
    return reinterpret_cast<const std::int32_t*>(view() + elements());
  }
  const RowMoves& moves() const { return moves_; }
  Size width() const { return width_; }

  // Once it has arrived, before the first update.
  void prepare(Lane& lane) { Device::trace_pivots(lane, width_, pivots(), first_, moves_); }

  // The panel's step on `columns` of this rank's columns from `begin` on: a (rows x columns) begins
  // at the panel's first row.
  //
  //   [B1; B2] = P a,   a1 = inv(L11) B1,   a2 = B2 - L21 a1
  void apply(Lane& lane, LocalIndex begin, Size columns, T* a, Size lda) const {
    solve_top(lane, begin, columns, a, lda);
    Device::template gemm<T>(lane, Op::none, Op::none, below(), columns, width_, T(-1),
                             view() + width_, rows_, a, lda, T(1), a + width_, lda);
  }

 protected:
  Size rows() const { return rows_; }
  // Rows of L21.
  Size below() const { return rows_ - width_; }
  Size tile() const { return tile_; }

  // The rows in their order, and a1.
  void solve_top(Lane& lane, LocalIndex begin, Size columns, T* a, Size lda) const {
    if constexpr (Device::inverse_block == 0) {
      Device::template move_rows<T>(lane, width_, moves_, columns, a, lda, nullptr, 0);
      Device::template trsm<T>(lane, Side::left, Uplo::lower, Op::none, Diag::unit, width_, columns,
                               T(1), view(), rows_, a, lda);
    } else {
      T* const top = top_ + *begin * tile_;
      Device::template move_rows<T>(lane, width_, moves_, columns, a, lda, top, width_);
      solve_by_blocks(lane, columns, top, a, lda);
    }
  }

 private:
  // Numbers of T that travel before the pivots.
  Size elements() const { return (rows_ + (Device::inverse_block > 0 ? width_ : 0)) * width_; }

  // With L11 in blocks, D_j its diagonal ones and B_j, X_j rows of block j:
  //   X_j = inv(D_j) (B_j - L_j< X_<j) = inv(D_j) B_j - (inv(D_j) L_j<) X_<j
  // which is all products, and as accurate as a triangular solve with small blocks is.
  void solve_by_blocks(Lane& lane, Size columns, const T* b, T* x, Size ldx) const {
    for (Size j = 0; j < width_; j += Device::inverse_block) {
      const Size w = std::min(Device::inverse_block, width_ - j);
      Device::template gemm<T>(lane, Op::none, Op::none, w, columns, w, T(1),
                               inverse() + j * (width_ + 1), width_, b + j, width_, T(0), x + j,
                               ldx);
      if (j > 0) {
        Device::template gemm<T>(lane, Op::none, Op::none, w, columns, j, T(-1), inverse() + j,
                                 width_, x, ldx, T(1), x + j, ldx);
      }
    }
  }

  T* buffer_;
  RowMoves moves_;
  T* top_;
  Size tile_;
  Message message_;
  Size first_ = 0;
  Size rows_ = 0;
  Size width_ = 0;
};

}  // namespace jaxmg
