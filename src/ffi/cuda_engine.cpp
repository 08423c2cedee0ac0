// The CUDA engine: one rank per GPU of this process.
//
// XLA runs each device's handlers on a host thread of that device's own, in program order. A
// handler waits on the host for its peers' threads, so that they can hand each other events and
// pointers; then each enqueues its rank program in the lanes of its device and returns. Nothing is
// synchronised with a device, but for the context operand the first time that a call site runs.
#include <chrono>
#include <cstdint>
#include <cstring>
#include <future>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/cuda/peer_communicator.h"
#include "comm/cuda/stream_fork.h"
#include "core/with_type.h"
#include "ffi/call.h"
#include "ffi/dispatch.h"
#include "ffi/engine.h"
#include "ffi/final_meeting.h"
#include "ffi/operands.h"
#include "ffi/outcome.h"
#include "ffi/rank_observer.h"
#include "tile/cuda/cuda.h"
#include "tile/cuda/device_context.h"
#include "tile/cuda/marks.h"
#include "vendor/cuda/cusolvermg.h"
#include "vendor/cuda/host.h"
#include "vendor/dispatch.h"

namespace jaxmg {
namespace {

using tile::Cuda;

// How long a device's thread waits for its peers, unless jaxmg_set_timeout says otherwise. Peers
// come within microseconds; much later means that they never will (programs launched on devices
// in different orders, or one of them lost), which is better told than waited for.
constexpr std::chrono::seconds kPatience{600};

// What belongs to one call site of one executable.
class Site {
 public:
  // The context operand of a device. It is a constant of the executable: rank and group of a device
  // are fixed when the executable is compiled, so it is fetched once.
  Context context(const jaxmg_call& call) {
    const std::lock_guard lock(mutex_);
    const auto found = contexts_.find(call.device_ordinal);
    if (found != contexts_.end()) {
      return found->second;
    }
    Context context;
    const auto stream = static_cast<cudaStream_t>(call.stream);
    JAXMG_CUDA_CHECK(cudaMemcpyAsync(&context, call.arguments[0].data, sizeof context,
                                     cudaMemcpyDeviceToHost, stream));
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(stream));
    check_context(call, context);
    contexts_.emplace(call.device_ordinal, context);
    return context;
  }

 private:
  std::mutex mutex_;
  std::map<std::int32_t, Context> contexts_;
};

// What the ranks of one call share.
struct Team {
  Team(const std::vector<int>& devices_, const CallKind& kind_)
      : kind(kind_),
        devices(tile::DeviceSet::get(devices_)),
        communicators(make_peer_communicators(devices_, staging(), devices->direct(), kPatience)),
        ready(devices->size(), [](const Outcome&) {}),
        end(devices->size(),
            [routine = kind_.request.routine](const Outcome& outcome) {
              if (outcome.ok()) {
                counters().completed(routine);
              }
            }),
        progress(progress_board().begin(kind_.request, tile::make_marks)),
        trace(trace_board().begin(kind_.request)) {
    if (kind.request.backend == Backend::cusolvermg) {
      vendor = std::make_unique<vendor::Session>(
          devices->size(), vendor::make_cusolvermg(devices->devices(), Plan(kind.request)));
    }
  }

  std::vector<tile::CudaStaging*> staging() const {
    std::vector<tile::CudaStaging*> blocks;
    blocks.reserve(static_cast<std::size_t>(devices->size()));
    for (int r = 0; r < devices->size(); ++r) {
      blocks.push_back(&devices->context(r).staging());
    }
    return blocks;
  }

  CallKind kind;
  std::shared_ptr<tile::DeviceSet> devices;
  std::vector<std::unique_ptr<PeerCommunicator>> communicators;
  FinalMeeting ready;  // all ranks have what they need, or none of them starts
  FinalMeeting end;    // all ranks have enqueued everything, or all report the same failure
  std::unique_ptr<vendor::Session> vendor;  // null unless a vendor's library does the work
  std::shared_ptr<CallProgress> progress;   // null if nobody watches
  std::shared_ptr<CallTrace> trace;         // null if nothing is recorded
};

// A device's arrival: whoever completes the set answers all of them.
class Part : public Arrival {
 public:
  Part(const jaxmg_call& call, const CallKind& kind) : call_(call), kind_(kind) {}

  std::string name() const override { return target_name(call_); }
  int device() const { return call_.device_ordinal; }
  const CallKind& kind() const { return kind_; }
  std::future<std::shared_ptr<Team>> answer() { return promise_.get_future(); }
  void accept(std::shared_ptr<Team> team) { promise_.set_value(std::move(team)); }
  void refuse(std::exception_ptr why) { promise_.set_exception(std::move(why)); }

 private:
  const jaxmg_call& call_;  // its handler waits for the answer
  const CallKind& kind_;
  std::promise<std::shared_ptr<Team>> promise_;
};

Part& part_of(const std::unique_ptr<Arrival>& arrival) {
  return static_cast<Part&>(*arrival);
}

std::shared_ptr<Team> make_team(const Rendezvous::Party& party) {
  const Part& first = part_of(party.front());
  std::vector<int> devices;
  for (const auto& arrival : party) {
    if (!(part_of(arrival).kind() == first.kind())) {
      throw std::invalid_argument(
          first.name() + ": device " + std::to_string(part_of(arrival).device()) +
          " made another call than device " + std::to_string(first.device()));
    }
    devices.push_back(part_of(arrival).device());
  }
  return std::make_shared<Team>(std::move(devices), first.kind());
}

std::shared_ptr<Team> meet(const jaxmg_call& call, const Context& context, const CallKind& kind) {
  auto part = std::make_unique<Part>(call, kind);
  auto answer = part->answer();
  Rendezvous::Party party = rendezvous().arrive({call.run_id, call.site, context.group},
                                                context.rank, context.ranks, std::move(part));
  if (!party.empty()) {
    try {
      const auto team = make_team(party);
      for (const auto& arrival : party) {
        part_of(arrival).accept(team);
      }
    } catch (...) {
      for (const auto& arrival : party) {
        part_of(arrival).refuse(std::current_exception());
      }
    }
  }
  return answer.get();
}

// One rank's part, from the moment its team stands.
class RankCall {
 public:
  RankCall(const jaxmg_call& call, const Context& context, Team& team)
      : call_(call),
        team_(team),
        rank_(context.rank),
        device_(team.devices->context(rank_)),
        comm_(*team.communicators[static_cast<std::size_t>(rank_)]),
        busy_(device_.busy()),
        plan_(full_request()) {}

  void run() {
    Outcome outcome;
    try {
      prepare();
    } catch (...) {
      outcome = outcome_of_current_exception();
    }
    team_.ready.arrive(rank_, std::move(outcome));
    outcome = team_.ready.wait();
    if (outcome.ok()) {
      try {
        enqueue();
      } catch (...) {
        outcome = outcome_of_current_exception();
        abort_team(comm_, outcome.message);
      }
    }
    if (!outcome.ok() && team_.progress) {
      team_.progress->abandon();
    }
    team_.end.arrive(rank_, std::move(outcome));
    const Outcome& all = team_.end.wait();
    call_.complete(call_.token, all.code, all.message.c_str());
  }

 private:
  PlanRequest full_request() {
    PlanRequest request = team_.kind.request;
    const Size tile = Plan(request).tile();
    request.library_bytes =
        device_.lanes().library_bytes(tile_type(request), tile, panel_rows(request, tile));
    if (team_.vendor) {
      request.vendor_bytes = team_.vendor->library().workspace_bytes();
    }
    return request;
  }

  static tile::PanelRows panel_rows(const PlanRequest& request, Size tile) {
    return {orthonormal_rows(request, tile), factors_by_lu(request.routine) ? request.n : 0};
  }

  // Everything that can fail before work has been enqueued.
  void prepare() {
    operands_ = sort_operands(call_, plan_);
    using tile::Kernels;
    const DType type = plan_.request().type;
    device_.prepare(type, Kernels::common);
    // A vendor's LU is looked at with a kernel of QR's.
    if (is_qr(plan_.routine()) || (team_.vendor && is_lu(plan_.routine()))) {
      device_.prepare(type, Kernels::qr);
    }
    if (const DType other = tile_type(plan_.request()); other != type) {
      device_.prepare(other, Kernels::common);
      device_.prepare(other, Kernels::qr);
    }
    if (is_lu(plan_.routine())) {
      device_.prepare(type, Kernels::lu);
    }
    const Size bytes = plan_.scratch_bytes();
    scratch_ =
        bytes > 0 ? call_.allocate(call_.allocator, static_cast<std::size_t>(bytes)) : nullptr;
    if (bytes > 0 && !scratch_) {
      throw ScratchError(target_name(call_) + ": " + std::to_string(bytes) +
                         " bytes of scratch on device " + std::to_string(call_.device_ordinal) +
                         " are not to be had; see jaxmg.plan for what a call needs");
    }
  }

  void enqueue() {
    auto& lanes = device_.lanes();
    const Workspace workspace(plan_, scratch_);
    const Entry library = plan_.entry(Buffer::library);
    lanes.bind(workspace.get<float>(Buffer::library), library.bytes(), tile_type(plan_.request()),
               plan_.tile(), panel_rows(plan_.request(), plan_.tile()));
    lanes.set_alone(team_.devices->alone(rank_));
    StreamFork fork(comm_, lanes, device_.events(), static_cast<cudaStream_t>(call_.stream));
    for (const AliasedPair& pair : operands_.aliased) {
      JAXMG_CUDA_CHECK(cudaMemcpyAsync(pair.to, pair.from, pair.bytes, cudaMemcpyDeviceToDevice,
                                       lanes.update.stream()));
    }
    const ProgressObserver::Report report = report_of(lanes.update);
    if (plan_.routine() != Routine::locate || has_failed(lanes.update)) {
      RankObserver observer(plan_.routine(), report, team_.trace.get(), rank_, tile::make_stamps,
                            [&lanes](Observer::Task task, std::uint64_t* where) {
                              tile::set_stamp(lane_of(lanes, task), where);
                            });
      Rank<Cuda> self{comm_, lanes, plan_, workspace, observer.get()};
      if (team_.vendor) {
        with_type(plan_.request().type, [&]<class T>() {
          vendor::run_routine<Cuda, T>(self, *team_.vendor, team_.kind, operands_);
        });
      } else {
        run_rank_program<Cuda>(self, team_.kind, operands_);
      }
    }
    if (report) {
      report(CallProgress::kThrough);
    }
    fork.join();
    check_team(comm_);
  }

  // Where the work of a task goes.
  static tile::CudaLane& lane_of(Cuda::Lanes& lanes, Observer::Task task) {
    switch (task) {
      case Observer::Task::panel:
      case Observer::Task::look_ahead:
        return lanes.panel;
      case Observer::Task::arrival:
        return lanes.copy;
      default:
        return lanes.update;
    }
  }

  // The device itself tells when it has come so far: the host is ahead of it.
  ProgressObserver::Report report_of(tile::CudaLane& lane) const {
    if (!team_.progress) {
      return nullptr;
    }
    return [&lane, where = team_.progress->mark(rank_)](float done) {
      tile::set_mark(lane, where, done);
    };
  }

  // Whether there is a minor to be located: the same on all ranks. Only a call that is made after a
  // failure gets here, so it may wait for the device.
  bool has_failed(tile::CudaLane& lane) const {
    Info info;
    JAXMG_CUDA_CHECK(
        cudaMemcpyAsync(&info, operands_.info, sizeof info, cudaMemcpyDeviceToHost, lane.stream()));
    JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
    return info.kind == static_cast<std::int32_t>(Kind::not_positive_definite);
  }

  const jaxmg_call& call_;
  Team& team_;
  int rank_;
  tile::DeviceContext& device_;
  PeerCommunicator& comm_;
  std::lock_guard<std::mutex> busy_;
  Plan plan_;
  Operands operands_;
  void* scratch_ = nullptr;
};

}  // namespace

void submit(const jaxmg_call& call) {
  check_context_operand(call);
  const tile::DeviceGuard guard(call.device_ordinal);
  const Context context = static_cast<Site*>(call.site)->context(call);
  check_one_process(call, context, "GPUs");
  const CallKind kind = call_kind(call, context, Platform::cuda);
  const std::shared_ptr<Team> team = meet(call, context, kind);
  RankCall(call, context, *team).run();
}

Rendezvous& rendezvous() {
  static Rendezvous* const instance = [] {
    auto* const made = new Rendezvous([](const Rendezvous::Party& party, const Outcome& why) {
      for (const auto& arrival : party) {
        part_of(arrival).refuse(std::make_exception_ptr(std::runtime_error(why.message)));
      }
    });
    made->set_timeout(kPatience);
    return made;
  }();
  return *instance;
}

}  // namespace jaxmg

void* jaxmg_site_create() {
  void* const site = new (std::nothrow) jaxmg::Site;
  if (site) {
    ++jaxmg::counters().sites;
  }
  return site;
}

void jaxmg_site_destroy(void* site) {
  if (site) {
    --jaxmg::counters().sites;
  }
  delete static_cast<jaxmg::Site*>(site);
}
