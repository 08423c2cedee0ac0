// Eigenvectors of a tridiagonal matrix turned into those of the band matrix that it was made from:
// the reflectors of stage 2 are applied to the columns that a rank holds, while they pass by in
// panels. No rank waits for the columns of another, so that the time falls with their number.
#pragma once

#include "algo/band_chase.h"
#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"

namespace jaxmg {

template <class Device, class T>
class SweepBackTransformation {
 public:
  // v: n x columns, ld n, this rank's eigenvectors.
  SweepBackTransformation(Rank<Device>& rank, const SweepGroups& groups, T* v, Size columns,
                          Info* info)
      : rank_(rank),
        lane_(rank.lanes.update),
        groups_(groups),
        me_(rank.comm.rank()),
        n_(rank.plan.distribution().size()),
        v_(v),
        columns_(columns),
        info_(info),
        kept_(rank.workspace.template get<T>(Buffer::sweep_reflectors)),
        panel_(rank.workspace.template get<T>(Buffer::sweep_panel)),
        products_(rank.workspace.template get<T>(Buffer::back_products)),
        packed_(packed_sweep_panel(dtype_of<T>, n_, rank.plan.tile())) {}

  // v <- Q_stage2 v: groups of sweeps last to first, in each the reflectors by rising number (two
  // that act on the same rows and are not in the same group or window stand in this order). The
  // next panel of groups is on its way while one is applied.
  void apply() {
    const Size count = groups_.panels();
    if (count == 0) {
      return;
    }
    auto& copy = rank_.lanes.copy;
    copy.wait(lane_.record());
    send(count - 1);
    for (Size i = count - 1; i >= 0; --i) {
      Watch watch(rank_.observer, me_, Observer::Task::solve, count - 1 - i, count);
      Sent& present = sent_[i % 2];
      if (!present.mine) {
        lane_.wait(present.ticket);
      }
      if (i > 0) {
        copy.wait(lane_.record());  // the next one's place has been left
        send(i - 1);
      }
      const T* const source =
          static_cast<const T*>(present.mine ? present.message.buffer : present.message.view);
      apply(groups_.panel(i), source);
      present.ticket.release();
    }
    lane_.wait(copy.record());
  }

 private:
  struct Sent {
    bool mine = false;
    Message message;
    typename Device::Ticket ticket;
  };

  // Where ranks read each other's memory a panel is packed once, for all; else every rank packs
  // what it has got, which is less.
  static constexpr bool packed_by_owner = Device::reads_in_place;

  void apply(const SweepBatch& batch, const T* source) {
    if constexpr (packed_by_owner) {
      Device::template apply_sweeps<T>(lane_, batch, source, columns_, v_, n_, products_, info_);
    } else {
      Device::template pack_sweeps<T>(lane_, batch, source, panel_);
      Device::template apply_sweeps<T>(lane_, batch, panel_, columns_, v_, n_, products_, info_);
    }
  }

  void send(Size i) {
    const SweepBatch batch = groups_.panel(i);
    Sent& sent = sent_[i % 2];
    const int owner = groups_.owner(i);
    sent.mine = owner == me_;
    T* const own = sent.mine ? kept_ + groups_.offset(i) : nullptr;
    // Places for two panels: packed ones, or other ranks' behind the one that is packed here.
    const Size most = packed_by_owner ? groups_.panel(0).packed() : groups_.panel(0).elements();
    T* const place = panel_ + (packed_by_owner ? 0 : packed_) + i % 2 * most;
    T* const buffer = packed_by_owner || !sent.mine ? place : own;
    if (packed_by_owner && sent.mine) {
      Device::template pack_sweeps<T>(rank_.lanes.copy, batch, own, buffer);
    }
    sent.message = {buffer, buffer};
    sent.ticket =
        rank_.comm.publish(rank_.lanes.copy, sent.message,
                           packed_by_owner ? batch.packed() : batch.elements(), dtype_of<T>, owner);
  }

  Rank<Device>& rank_;
  typename Device::Lane& lane_;
  const SweepGroups& groups_;
  int me_;
  Size n_;
  T* v_;
  Size columns_;
  Info* info_;
  T* kept_;
  T* panel_;
  T* products_;  // group x columns
  Size packed_;
  Sent sent_[2];
};

}  // namespace jaxmg
