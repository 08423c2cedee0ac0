// A band matrix becomes tridiagonal: stage 2 of the eigensolver.
//
//   B = Q T Q^H,  T real
//
// The band lies on rank 0, which chases the bulges (about 6 n^2 b operations; sweeps depend on each
// other so closely that ranks could not share them). The reflectors, n^2 / 2 elements in all, go to
// the ranks in turn, a panel of sweeps to each.
#pragma once

#include <algorithm>
#include <vector>

#include "algo/rank.h"
#include "core/plan.h"
#include "tile/device.h"
#include "tile/eigen.h"

namespace jaxmg {

// The sweeps of a matrix of order n in groups, whose reflectors are applied together, and panels of
// some groups, which are dealt out to the ranks in turn.
class SweepGroups {
 public:
  explicit SweepGroups(const Plan& plan)
      : n_(plan.request().n),
        b_(plan.tile()),
        size_(sweep_group(b_)),
        width_(size_ * sweep_panel_groups(plan.request().platform, n_)),
        ranks_(plan.request().ranks) {}

  // None where the band is tridiagonal already.
  Size panels() const { return b_ > 1 ? ceil_div(std::max<Size>(n_ - 1, 0), width_) : 0; }
  // Panels i .. i + count - 1.
  SweepBatch batch(Size i, Size count) const {
    return {n_, b_, i * width_, std::min(count * width_, n_ - 1 - i * width_), size_};
  }
  SweepBatch panel(Size i) const { return batch(i, 1); }
  int owner(Size i) const { return static_cast<int>(i % ranks_); }
  // Where a panel lies in its owner's share.
  Size offset(Size i) const {
    Size sum = 0;
    for (Size j = i % ranks_; j < i; j += ranks_) {
      sum += panel(j).elements();
    }
    return sum;
  }
  // How many panels from i on have no more than `room` elements; 1 at least.
  Size fitting(Size i, Size room) const {
    Size count = 1;
    for (Size sum = panel(i).elements(); i + count < panels(); ++count) {
      sum += panel(i + count).elements();
      if (sum > room) {
        break;
      }
    }
    return count;
  }

 private:
  Size n_, b_, size_, width_;
  int ranks_;
};

// d (n) and e (n - 1), on every host; with `keep`, reflectors to Buffer::sweep_reflectors. Until
// they are sent, those of several ranks wait where the eigenvectors will be.
template <class Device, class T>
void chase_band(Rank<Device>& rank, const SweepGroups& groups, Size n, Size b, bool keep,
                std::vector<double>& d, std::vector<double>& e, Info* info) {
  auto& lane = rank.lanes.update;
  const int me = rank.comm.rank();
  T* const band = rank.workspace.template get<T>(Buffer::band);
  T* const kept = rank.workspace.template get<T>(Buffer::sweep_reflectors);
  void* const work = rank.workspace.template get<double>(Buffer::eigen_work);
  const bool staged_first = keep && rank.comm.size() > 1;
  T* const staged = staged_first ? rank.workspace.template get<T>(Buffer::eigenvectors) : nullptr;
  for (Size i = 0; i < groups.panels();) {
    Watch watch(rank.observer, me, Observer::Task::panel, i, groups.panels());
    const Size end = staged_first
                         ? i + groups.fitting(i, rank.workspace.count(Buffer::eigenvectors))
                         : groups.panels();
    T* source = staged_first ? staged : kept;
    if (me == 0) {
      Device::template chase<T>(lane, groups.batch(i, end - i), band, 2 * b,
                                keep ? source : nullptr, work, info);
    }
    for (Size j = i; staged_first && j < end; ++j) {
      const Size count = groups.panel(j).elements();
      const int owner = groups.owner(j);
      if (me == 0 && owner == 0) {
        Device::template copy<T>(lane, count, 1, source, count, kept + groups.offset(j), count);
      }
      const Transfer sent{source, count, owner}, received{kept + groups.offset(j), count, 0};
      auto moved =
          rank.comm.exchange(lane, {&sent, me == 0 && owner != 0 ? 1u : 0u},
                             {&received, me == owner && owner != 0 ? 1u : 0u}, dtype_of<T>);
      lane.wait(moved);
      source += count;
    }
    i = end;
  }
  std::vector<double> both(static_cast<std::size_t>(2 * n), 0.0);
  if (me == 0) {
    Device::template tridiagonal_part<T>(lane, n, band, 2 * b, both.data(), both.data() + n);
  }
  if (rank.comm.size() > 1) {
    double* const scalars = rank.workspace.template get<double>(Buffer::scalars);
    Device::template from_host<double>(lane, 2 * n, 1, both.data(), 2 * n, scalars, 2 * n);
    auto sent = rank.comm.broadcast(lane, scalars, 2 * n, DType::f64, 0);
    lane.wait(sent);
    Device::template to_host<double>(lane, 2 * n, scalars, both.data());
  }
  d.assign(both.begin(), both.begin() + n);
  e.assign(both.begin() + n, both.begin() + std::max<Size>(n, 2 * n - 1));
}

}  // namespace jaxmg
