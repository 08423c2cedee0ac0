// Eigenvectors of the band matrix turned into those of the full one: the reflectors of stage 1 are
// applied to the columns that a rank holds, several panels at a time. No rank waits for the columns
// of another, so that the time falls with their number.
//
// The reflectors V of a block of panels are I - V inv(U) V^H together, where U is the strict upper
// triangle of V^H V with the inverses of the reflectors' scalars on its diagonal.
// float32 products run on tensor cores where the plan says so, each number as two half-precision
// ones: elements of reflectors and of orthonormal vectors are at most 1.
//
// Joffrain, Low, Quintana-Orti, van de Geijn, Van Zee: Accumulating Householder transformations,
// revisited (2006).
#pragma once

#include <algorithm>
#include <type_traits>

#include "algo/band_reduction.h"
#include "algo/rank.h"
#include "algo/row_order.h"
#include "core/distribution.h"
#include "core/parts.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class PanelBackTransformation {
 public:
  // v: n x columns, ld n, this rank's eigenvectors. a: what BandReduction left.
  PanelBackTransformation(Rank<Device>& rank, const Distribution& dist, const T* a, T* v,
                          Size columns)
      : rank_(rank),
        lane_(rank.lanes.update),
        copy_(rank.lanes.copy),
        dist_(dist),
        me_(rank.comm.rank()),
        n_(dist.size()),
        width_(rank.plan.group() * dist.tile_size()),
        a_(a),
        v_(v),
        columns_(columns),
        panel_(rank.workspace.template get<T>(Buffer::panel_even)),
        scalars_(rank.workspace.template get<T>(Buffer::reflector_factors)),
        products_(rank.workspace.template get<T>(Buffer::back_products)),
        triangle_(products_ + width_ * columns) {
    T* const blocks = rank.workspace.template get<T>(Buffer::reflector_rows);
    slots_[0].v = blocks;
    slots_[1].v = blocks + width_ * n_;
  }

  // v <- Q_stage1 v, with rows that go from the order of elimination to that of the matrix. The
  // next block is collected in the copy lane while one is applied.
  void apply() {
    copy_.wait(lane_.record());
    Size end = dist_.steps();
    collect(slots_[0], end);
    for (int turn = 0; slots_[turn].count > 0; turn = 1 - turn) {
      collect(slots_[1 - turn], end);
      lane_.wait(slots_[turn].collected);
      apply_block(slots_[turn]);
      slots_[turn].applied = lane_.record();
    }
    copy_.wait(lane_.record());
    reorder_rows<Device, T>(lane_, dist_, RowOrder::natural, columns_, v_, slots_[0].v,
                            width_ * n_);
  }

 private:
  // Reflectors of consecutive panels.
  struct Slot {
    T* v = nullptr;    // n x width
    Size count = 0;    // none: there are no more
    Size first = 0;    // position of the first row that they act on
    Size scalars = 0;  // and where their scalars begin
    typename Device::Event collected;
    typename Device::Event applied;
  };

  // Whether panel s - 1 is as wide as all others and ends where panel s begins.
  bool continues(Size s) const {
    return reflector_panel(dist_, Step(s - 1)).count == dist_.tile_size();
  }

  // slot <- the reflectors of the last panels before `end`, which becomes the first one of them.
  void collect(Slot& slot, Size& end) {
    slot.count = 0;
    copy_.wait(slot.applied);
    while (end > 0 && slot.count == 0) {
      Size first = end - 1;
      while (first > 0 && end - first < rank_.plan.group() && continues(first)) {
        --first;
      }
      slot.first = reflector_panel(dist_, Step(first)).first;
      slot.scalars = reflector_panel(dist_, Step(first)).begin;
      if (dist_.ranks() == 1) {
        collect_own(slot, first, end);
      } else {
        for (Size k = first; k < end; ++k) {
          collect_panel(slot, reflector_panel(dist_, Step(k)));
        }
      }
      end = first;
    }
    slot.collected = copy_.record();
  }

  // Panels first .. end - 1 where all of them lie side by side, with zeros above each.
  void collect_own(Slot& slot, Size first, Size end) {
    const ReflectorPanel last = reflector_panel(dist_, Step(end - 1));
    slot.count = last.begin + last.count - slot.scalars;
    Device::template copy<T>(copy_, n_ - slot.first, slot.count,
                             a_ + slot.scalars * n_ + slot.first, n_, slot.v + slot.first, n_);
    for (Size k = first + 1; k < end; ++k) {
      const ReflectorPanel p = reflector_panel(dist_, Step(k));
      Device::template fill<T>(copy_, p.first - slot.first, p.count, T(0), T(0),
                               slot.v + (p.begin - slot.scalars) * n_ + slot.first, n_);
    }
  }

  // One panel more, with zeros above.
  void collect_panel(Slot& slot, const ReflectorPanel& p) {
    if (p.count == 0) {
      return;
    }
    const bool mine = p.tile.rank == me_;
    const Size rows = n_ - p.first;
    T* const target = slot.v + slot.count * n_;
    const T* const own = a_ + *dist_.begin(p.tile.local) * n_ + p.first;
    if (mine) {
      Device::template copy<T>(copy_, rows, p.count, own, n_, panel_, rows);
    }
    Message message{panel_, panel_};
    auto sent = rank_.comm.publish(copy_, message, rows * p.count, dtype_of<T>, p.tile.rank);
    if (!mine) {
      copy_.wait(sent);
    }
    Device::template fill<T>(copy_, p.first - slot.first, p.count, T(0), T(0), target + slot.first,
                             n_);
    Device::template copy<T>(copy_, rows, p.count, mine ? own : static_cast<const T*>(message.view),
                             mine ? n_ : rows, target + p.first, n_);
    sent.release();
    slot.count += p.count;
  }

  // v <- v - V inv(U) V^H v in the rows that the reflectors act on
  void apply_block(const Slot& slot) {
    Watch watch(rank_.observer, me_, Observer::Task::solve, n_ - slot.first, n_);
    const Size k = slot.count, rows = n_ - slot.first;
    const T* const block = slot.v + slot.first;
    T* const v = v_ + slot.first;
    Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, k, k, rows, T(1), block, n_,
                             block, n_, T(0), triangle_, width_);
    Device::template reflector_diagonal<T>(lane_, k, scalars_ + slot.scalars, triangle_, width_);
    if constexpr (std::is_same_v<T, float> && Device::template splits<T>) {
      if (rank_.plan.precision() == Precision::split) {
        return apply_by_parts(k, rows, block, v);
      }
    }
    Device::template gemm<T>(lane_, Op::conj_transpose, Op::none, k, columns_, rows, T(1), block,
                             n_, v, n_, T(0), products_, width_);
    solve(k);
    Device::template gemm<T>(lane_, Op::none, Op::none, rows, columns_, k, T(-1), block, n_,
                             products_, width_, T(1), v, n_);
  }

  // products <- inv(U) products
  void solve(Size k) {
    Device::template trsm<T>(lane_, Side::left, Uplo::upper, Op::none, Diag::non_unit, k, columns_,
                             T(1), triangle_, width_, products_, width_);
  }

  // The same by parts. Columns of parts begin at multiples of 16 bytes.
  void apply_by_parts(Size k, Size rows, const T* block, T* v) {
    using Half = typename Device::Half;
    const auto halves = [&](Buffer buffer) {
      return reinterpret_cast<Half*>(rank_.workspace.template get<float>(buffer));
    };
    Half* const parts = halves(Buffer::split_even);
    Half* const product_parts = parts + lower_halves(dtype_of<T>) * parts_ld(n_) * width_;
    const Size ld = parts_ld(rows);
    Device::split_left(lane_, rows, k, block, n_, parts, ld);
    Device::multiply_split_adjoint(lane_, rows, columns_, k, parts, ld, v, n_,
                                   halves(Buffer::tridiagonal_vectors), products_, width_);
    solve(k);
    Device::subtract_split_rows(lane_, rows, columns_, k, parts, ld, products_, width_,
                                product_parts, v, n_);
  }

  Rank<Device>& rank_;
  typename Device::Lane& lane_;
  typename Device::Lane& copy_;
  const Distribution& dist_;
  int me_;
  Size n_;
  Size width_;  // the most reflectors of a block
  const T* a_;
  T* v_;
  Size columns_;
  Slot slots_[2];
  T* panel_;     // n x b
  T* scalars_;   // n
  T* products_;  // width x columns
  T* triangle_;  // width x width
};

}  // namespace jaxmg
