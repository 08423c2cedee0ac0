// Panels of a matrix, one after the other on every rank: for algorithms that read each column tile
// once, in elimination order, and do not make the next one depend on the present one.
#pragma once

#include <array>
#include <optional>
#include <utility>

#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/panel.h"

namespace jaxmg {

// Panel k holds the columns of tile k in the rows that are eliminated at step k or later. Panel
// k + 1 travels while panel k is worked with.
template <class Device, class T>
class PanelStream {
 public:
  using PanelType = Panel<Device, T>;

  // a: n x L columns, ld n. Column tile k is read when panel k - 1 is being visited, or before.
  PanelStream(Rank<Device>& rank, const Distribution& dist, const T* a)
      : rank_(rank),
        dist_(dist),
        a_(a),
        panels_{PanelType::from(rank.workspace, false), PanelType::from(rank.workspace, true)} {}

  // visit(k, panel) for every step, with all its work in the update lane.
  template <class Visit>
  void for_each(const Visit& visit) {
    auto& lanes = rank_.lanes;
    lanes.panel.wait(lanes.update.record());
    lanes.copy.wait(lanes.update.record());
    const Step end(dist_.steps());
    if (Step(0) < end) {
      send(Step(0));
    }
    for (Step k(0); k < end; ++k) {
      Slot& slot = slots_[parity(k)];
      if (mine(k)) {
        lanes.update.wait(*slot.packed);
      } else {
        lanes.update.wait(slot.ticket);
      }
      if (k + 1 < end) {
        send(k + 1);
      }
      visit(k, panels_[parity(k)]);
      slot.visited = lanes.update.record();
      if (!mine(k)) {
        slot.ticket.release();
      }
    }
    for (Slot& slot : slots_) {
      lanes.panel.wait(slot.ticket);
    }
    lanes.update.wait(lanes.panel.record());
    lanes.update.wait(lanes.copy.record());
  }

 private:
  struct Slot {
    typename Device::Ticket ticket;
    std::optional<typename Device::Event> packed;
    std::optional<typename Device::Event> visited;
  };

  static std::size_t parity(Step k) { return static_cast<std::size_t>(*k & 1); }
  bool mine(Step k) const { return dist_.tile(k).rank == rank_.comm.rank(); }

  void send(Step k) {
    auto& lanes = rank_.lanes;
    Slot& slot = slots_[parity(k)];
    PanelType& panel = panels_[parity(k)];
    const Tile tile = dist_.tile(k);
    auto& writer = mine(k) ? lanes.panel : lanes.copy;
    if (mine(k) || !Device::reads_in_place) {
      writer.wait(slot.ticket);
      if (slot.visited) {
        writer.wait(*slot.visited);
      }
    }
    panel.reshape(dist_.rows_from(k), dist_.rows(tile));
    if (mine(k)) {
      panel.pack(lanes.panel, a_ + *dist_.begin(tile.local) * dist_.size(), dist_.size());
      slot.packed = lanes.panel.record();
    }
    slot.ticket =
        rank_.comm.publish(writer, panel.message(), panel.count(), panel.type(), tile.rank);
    if (mine(k)) {  // column tile k may change now
      lanes.update.wait(*slot.packed);
    }
  }

  Rank<Device>& rank_;
  const Distribution& dist_;
  const T* a_;
  std::array<PanelType, 2> panels_;
  std::array<Slot, 2> slots_;
};

}  // namespace jaxmg
