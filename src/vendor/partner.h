// A rank's access to a vendor's library, and the two storages between which its data go.
//
// Read column-major, a row-major shard is M = A^T with columns owned (algo/cholesky.h). Its columns
// are dealt out anew as the library wants them; a factor of M stays so, since all that follows
// wants it so, and other results go back. The order is the natural one.
//
// A host thread waits here for its device, as the library's calls are no work of a stream.
#pragma once

#include "algo/rank.h"
#include "core/distribution.h"
#include "tile/device.h"
#include "vendor/host.h"
#include "vendor/session.h"

namespace jaxmg::vendor {

template <class D>
class Partner {
 public:
  Partner(Rank<D>& rank, Session& session) : rank_(rank), session_(session) {}

  // Blocks until this rank's work is done, all others' is, and then the library's.
  Size run(Part part, const Info* info, const Session::Work& work) {
    part.workspace = rank_.workspace.template get<float>(Buffer::vendor_workspace);
    Host<D>::finish(rank_.lanes.update, info);
    const auto wait = [this](auto& lock, auto& changed, const auto& until) {
      Host<D>::wait(rank_.lanes.update, lock, changed, until);
    };
    return session_.run(
        rank_.comm.rank(), part, [this] { rank_.comm.barrier(); }, work, wait);
  }

 private:
  Rank<D>& rank_;
  Session& session_;
};

template <class D>
Distribution contiguous(const Rank<D>& rank) {
  const PlanRequest& q = rank.plan.request();
  return Distribution(q.n, q.ranks, rank.plan.tile(), Storage::contiguous);
}

template <class D>
Distribution block_cyclic(const Rank<D>& rank) {
  const PlanRequest& q = rank.plan.request();
  return Distribution(q.n, q.ranks, rank.plan.tile(), Storage::cyclic);
}

}  // namespace jaxmg::vendor
