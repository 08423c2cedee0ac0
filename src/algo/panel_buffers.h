// The two buffers that the panels of an algorithm take turns in, and their way through the lanes
// and to the other ranks.
//
// Panel k holds columns of tile k. The owner of that tile makes it in its panel lane and publishes
// it to all; panel k + 2 comes to the same place. Before that, these must be over:
//
//   received   the publication; at the owner: all others have it
//   looked     work with the panel in the panel lane, if there was any
//   updated    work with it in the update lane
//   kept       its owner's way back from it to the matrix, if there is one
//
// A panel may be published in parts, one after the other; readers can begin with the first.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "algo/rank.h"
#include "core/distribution.h"

namespace jaxmg {

template <class Device, class PanelType>
class PanelBuffers {
 public:
  using Lane = typename Device::Lane;

  PanelBuffers(Rank<Device>& rank, const Distribution& dist, PanelType even, PanelType odd)
      : rank_(rank), dist_(dist), panels_{std::move(even), std::move(odd)} {}

  PanelType& operator[](Step k) { return panels_[parity(k)]; }
  const PanelType& operator[](Step k) const { return panels_[parity(k)]; }
  int owner(Step k) const { return dist_.tile(k).rank; }
  bool mine(Step k) const { return owner(k) == rank_.comm.rank(); }

  // Before the first panel.
  void begin() {
    rank_.lanes.panel.wait(rank_.lanes.update.record());
    rank_.lanes.copy.wait(rank_.lanes.update.record());
  }

  // The buffer is about to be written: by me, or by the copy that brings panel k.
  void claim(Step k) {
    Slot& slot = slots_[parity(k)];
    if (mine(k) || !Device::reads_in_place) {
      wait_for_all(writer(k), slot);
      wait_for(writer(k), {slot.updated, slot.looked, slot.kept});
    }
    slot.received.clear();
  }

  // Panel k is whole, in my panel lane.
  void made(Step k) { slots_[parity(k)].made = rank_.lanes.panel.record(); }

  // Sends panel k, or gets ready to receive it; `next` is the rank that wants it first, or -1.
  void publish(Step k, int next = -1) {
    PanelType& panel = (*this)[k];
    send(k, panel.message(), panel.count(), next);
  }
  // The same for the parts of a panel that has some, in their order.
  void publish_part(Step k, Size part, int next) {
    PanelType& panel = (*this)[k];
    send(k, panel.message(part), panel.count(part), next);
  }

  // Later work of `lane` finds panel k. (An owner's tickets would wait for all readers.)
  void await(Step k, Lane& lane) {
    Slot& slot = slots_[parity(k)];
    if (mine(k)) {
      lane.wait(*slot.made);
    } else {
      wait_for_all(lane, slot);
    }
  }
  // The same for one part, when those before it have been waited for.
  void await_part(Step k, Size part, Lane& lane) {
    Slot& slot = slots_[parity(k)];
    if (mine(k)) {
      lane.wait(*slot.made);
    } else {
      lane.wait(slot.received[static_cast<std::size_t>(part)]);
    }
  }

  // Later work of `lane` follows that with panel k - 1 in the update lane, and all with panel k -
  // 2: called before there is any with panel k.
  void follow_updates(Step k, Lane& lane) const {
    const Slot& slot = slots_[parity(k)];
    wait_for(lane, {slot.looked, slot.updated, slots_[parity(k + 1)].updated});
  }

  // Later work of `lane` follows that with panel k in the panel lane.
  void follow_look_ahead(Step k, Lane& lane) const { wait_for(lane, {slots_[parity(k)].looked}); }

  void looked(Step k) { slots_[parity(k)].looked = rank_.lanes.panel.record(); }
  void kept(Step k) { slots_[parity(k)].kept = rank_.lanes.panel.record(); }

  // All work with panel k is in the lanes.
  void updated(Step k) {
    Slot& slot = slots_[parity(k)];
    slot.updated = rank_.lanes.update.record();
    if (!mine(k)) {
      for (Ticket& ticket : slot.received) {
        ticket.release();
      }
    }
  }

  // After the last panel: everything is ordered before later work of the update lane.
  void end() {
    for (Slot& slot : slots_) {
      wait_for_all(rank_.lanes.panel, slot);
    }
    rank_.lanes.update.wait(rank_.lanes.panel.record());
    rank_.lanes.update.wait(rank_.lanes.copy.record());
  }

 private:
  using Event = typename Device::Event;
  using Ticket = typename Device::Ticket;

  struct Slot {
    std::vector<Ticket> received;  // of each part
    std::optional<Event> made;
    std::optional<Event> looked;
    std::optional<Event> updated;
    std::optional<Event> kept;
  };

  static std::size_t parity(Step k) { return static_cast<std::size_t>(*k & 1); }
  Lane& writer(Step k) const { return mine(k) ? rank_.lanes.panel : rank_.lanes.copy; }

  void send(Step k, Message& message, Size count, int next) {
    std::optional<Watch> watch;
    if (!mine(k)) {
      watch.emplace(rank_.observer, rank_.comm.rank(), Observer::Task::arrival, *k, dist_.steps());
    }
    slots_[parity(k)].received.push_back(
        rank_.comm.publish(writer(k), message, count, PanelType::type(), owner(k), next));
  }

  static void wait_for_all(Lane& lane, Slot& slot) {
    for (Ticket& ticket : slot.received) {
      lane.wait(ticket);
    }
  }
  // Events that have not been yet are none to wait for.
  static void wait_for(Lane& lane, std::initializer_list<std::optional<Event>> events) {
    for (const auto& event : events) {
      if (event) {
        lane.wait(*event);
      }
    }
  }

  Rank<Device>& rank_;
  const Distribution& dist_;
  std::array<PanelType, 2> panels_;
  std::array<Slot, 2> slots_;
};

}  // namespace jaxmg
