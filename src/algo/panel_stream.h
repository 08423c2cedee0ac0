// Panels of a matrix, one after the other on every rank: for algorithms that read each column tile
// once, in elimination order, and do not make the next one depend on the present one.
#pragma once

#include "algo/panel_buffers.h"
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
        panels_(rank, dist, PanelType::from(rank.workspace, false),
                PanelType::from(rank.workspace, true)) {}

  // visit(k, panel) for every step, with all its work in the update lane.
  template <class Visit>
  void for_each(const Visit& visit) {
    panels_.begin();
    const Step end(dist_.steps());
    if (Step(0) < end) {
      send(Step(0));
    }
    for (Step k(0); k < end; ++k) {
      panels_.await(k, rank_.lanes.update);
      if (k + 1 < end) {
        send(k + 1);
      }
      visit(k, panels_[k]);
      panels_.updated(k);
    }
    panels_.end();
  }

 private:
  void send(Step k) {
    PanelType& panel = panels_[k];
    const Tile tile = dist_.tile(k);
    panels_.claim(k);
    panel.reshape(dist_.rows_from(k), dist_.rows(tile));
    if (panels_.mine(k)) {
      panel.pack(rank_.lanes.panel, a_ + *dist_.begin(tile.local) * dist_.size(), dist_.size());
      panels_.made(k);
    }
    panels_.publish(k);
    if (panels_.mine(k)) {  // column tile k may change now
      panels_.await(k, rank_.lanes.update);
    }
  }

  Rank<Device>& rank_;
  const Distribution& dist_;
  const T* a_;
  PanelBuffers<Device, PanelType> panels_;
};

}  // namespace jaxmg
