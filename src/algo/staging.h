// Data moved between ranks in chunks that fit two small buffers. Where they hold two chunks, the
// next one is packed while the present one travels.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string>

#include "algo/rank.h"

namespace jaxmg {

// The staging buffers of a plan, cut in as many chunks (one or two) as can be under way at once.
template <class T>
class Staging {
 public:
  // `least`: elements without which a chunk is of no use.
  Staging(const Workspace& workspace, Size least)
      : send_(workspace.get_as<T>(Buffer::send_staging)),
        receive_(workspace.get_as<T>(Buffer::receive_staging)) {
    const Size count = std::min(workspace.count_as<T>(Buffer::send_staging),
                                workspace.count_as<T>(Buffer::receive_staging));
    if (count < least) {
      throw std::invalid_argument("staging buffers hold " + std::to_string(count) +
                                  " elements, at least " + std::to_string(least) + " are needed");
    }
    depth_ = count >= 2 * least ? 2 : 1;
    capacity_ = count / depth_;
  }

  int depth() const { return depth_; }
  Size capacity() const { return capacity_; }  // elements of one chunk
  T* send(Size chunk) const { return send_ + chunk % depth_ * capacity_; }
  T* receive(Size chunk) const { return receive_ + chunk % depth_ * capacity_; }

 private:
  T* send_;
  T* receive_;
  int depth_ = 1;
  Size capacity_ = 0;
};

// For each chunk c: pack(c) and unpack(c) put work into the update lane, start(c) puts a
// communication call into the copy lane and returns its ticket. Every rank must name the same
// number of chunks. Packing runs ahead of unpacking by depth - 1 chunks, so chunk c may use
// whatever unpack(c - depth) has let go of. On return the update lane follows everything.
template <class D, class Pack, class Start, class Unpack>
void pipeline(Rank<D>& rank, Size chunks, int depth, Pack&& pack, Start&& start, Unpack&& unpack) {
  std::array<std::optional<typename D::Ticket>, 2> tickets;
  const auto slot = [&](Size chunk) -> auto& {
    return tickets[static_cast<std::size_t>(chunk % depth)];
  };
  const Size steps = chunks > 0 ? chunks + depth - 1 : 0;
  for (Size c = 0; c < steps; ++c) {
    const Watch watch(rank.observer, rank.comm.rank(), Observer::Task::exchange, c, steps);
    if (c < chunks) {
      pack(c);
      // The buffers are ready when the packing, and the unpacking before it, is over.
      rank.lanes.copy.wait(rank.lanes.update.record());
      slot(c).emplace(start(c));
    }
    if (const Size done = c - depth + 1; done >= 0) {
      rank.lanes.update.wait(*slot(done));
      unpack(done);
      slot(done).reset();
    }
  }
}

}  // namespace jaxmg
