// The CPU engine: one rank per JAX CPU device, all of them threads of this process.
//
// Threads of XLA never wait here. A device's handler leaves its part of the call at the rendezvous;
// the last one of a group starts a thread per rank. Each of these runs the rank program, waits for
// its peers' end, and completes its own part: that runs the rest of its device's program on this
// thread, where it may block in a collective of XLA until the other ranks are there too.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "comm/thread_communicator.h"
#include "ffi/call.h"
#include "ffi/cpu_scratch.h"
#include "ffi/dispatch.h"
#include "ffi/engine.h"
#include "ffi/final_meeting.h"
#include "ffi/operands.h"
#include "ffi/outcome.h"
#include "ffi/rank_observer.h"
#include "ffi/running_calls.h"
#include "tile/cpu/cpu.h"

namespace jaxmg {
namespace {

using tile::Cpu;

// One device's part of a call, until it is completed.
class Part : public Arrival {
 public:
  Part(const jaxmg_call& call, const Context& context) : call_(call), context_(context) {}

  std::string name() const override { return target_name(call_); }
  const jaxmg_call& call() const { return call_; }
  const Context& context() const { return context_; }

  void complete(const Outcome& outcome) const {
    call_.complete(call_.token, outcome.code, outcome.message.c_str());
  }

  // Finds out what is asked for. Throws std::invalid_argument.
  void check() { kind_ = call_kind(call_, context_, Platform::cpu); }
  const CallKind& kind() const { return kind_; }

 private:
  jaxmg_call call_;
  Context context_;
  CallKind kind_;
};

// What the parts have in common. Throws std::invalid_argument if they do not belong together.
CallKind common_kind(const std::vector<std::unique_ptr<Part>>& parts) {
  for (const auto& part : parts) {
    part->check();
    if (!(part->kind() == parts.front()->kind())) {
      throw std::invalid_argument(parts.front()->name() + ": rank " +
                                  std::to_string(part->context().rank) + " made another call (" +
                                  part->name() +
                                  ", or another size, tile, element type or option) than rank 0");
    }
  }
  return parts.front()->kind();
}

RunningCalls& running_calls() {
  static RunningCalls* const instance = new RunningCalls;
  return *instance;
}

struct AtExit {
  AtExit() = default;
  AtExit(const AtExit&) = delete;
  AtExit& operator=(const AtExit&) = delete;
  ~AtExit() { running_calls().close(std::chrono::seconds(10)); }
};
const AtExit at_exit;

// A call in progress: its ranks and what they share.
class Team {
 public:
  // Takes the parts, in rank order, or throws and leaves them.
  explicit Team(std::vector<std::unique_ptr<Part>>& parts)
      : kind_(common_kind(parts)),
        plan_(kind_.request),
        scratch_(parts.size()),
        communicators_(make_thread_communicators(narrow(std::ssize(parts)))),
        meeting_(narrow(std::ssize(parts)), [this](const Outcome& outcome) { settle(outcome); }) {
    if (!running_calls().enter()) {
      throw std::runtime_error(parts.front()->name() + ": the process is about to end");
    }
    progress_ = progress_board().begin(
        plan_.request(), [](int count) { return std::make_shared<float[]>(count, 0.0F); });
    trace_ = trace_board().begin(plan_.request());
    parts_.swap(parts);
  }

  int size() const { return static_cast<int>(parts_.size()); }

  void run(int rank) {
    Outcome mine;
    try {
      run_program(rank);
    } catch (...) {
      mine = outcome_of_current_exception();
      abort_team(*communicators_[index(rank)], mine.message);
    }
    finish(rank, std::move(mine));
  }

  // For ranks that could not be started: all of the team fail.
  void give_up_from(int rank, const Outcome& why) {
    abort_team(*communicators_[index(rank)], why.message);
    for (int r = rank; r < size(); ++r) {
      meeting_.arrive(r, why);
    }
    for (int r = rank; r < size(); ++r) {
      parts_[index(r)]->complete(meeting_.wait());
    }
  }

 private:
  static std::size_t index(int rank) { return static_cast<std::size_t>(rank); }

  // All ranks are at their end.
  void settle(const Outcome& outcome) {
    if (progress_) {
      progress_->set_all(CallProgress::kThrough);
    }
    if (outcome.ok()) {
      counters().completed(plan_.routine());
    }
    running_calls().leave();
  }

  static std::shared_ptr<std::uint64_t[]> make_stamps(int count) {
    return std::make_shared<std::uint64_t[]>(static_cast<std::size_t>(count));
  }

  static void stamp(Observer::Task, std::uint64_t* where) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    const auto time = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
    std::atomic_ref(*where).store(static_cast<std::uint64_t>(time), std::memory_order_relaxed);
  }

  ProgressObserver::Report report_of(int rank) const {
    if (!progress_) {
      return nullptr;
    }
    return [this, rank](float done) { progress_->set(rank, done); };
  }

  void run_program(int rank) {
    const Part& part = *parts_[index(rank)];
    const Operands operands = sort_operands(part.call(), plan_);
    scratch_[index(rank)].emplace(part.call(), static_cast<std::size_t>(plan_.scratch_bytes()));
    for (const AliasedPair& pair : operands.aliased) {
      std::memcpy(pair.to, pair.from, pair.bytes);
    }
    if (plan_.routine() == Routine::locate &&
        operands.info->kind != static_cast<std::int32_t>(Kind::not_positive_definite)) {
      return;  // there is nothing to be found; the same on all ranks
    }
    Cpu::Lanes lanes;
    RankObserver observer(plan_.routine(), report_of(rank), trace_.get(), rank, make_stamps, stamp);
    jaxmg::Rank<Cpu> self{*communicators_[index(rank)], lanes, plan_,
                          Workspace(plan_, scratch_[index(rank)]->data()), observer.get()};
    run_rank_program<Cpu>(self, kind_, operands);
    check_team(self.comm);
  }

  void finish(int rank, Outcome mine) {
    meeting_.arrive(rank, std::move(mine));
    const Outcome& all = meeting_.wait();
    scratch_[index(rank)].reset();
    parts_[index(rank)]->complete(all);
  }

  CallKind kind_;
  Plan plan_;
  std::vector<std::unique_ptr<Part>> parts_;
  std::vector<std::optional<CpuScratch>> scratch_;  // peers read it until the meeting is over
  std::vector<std::unique_ptr<Communicator<Cpu>>> communicators_;
  std::shared_ptr<CallProgress> progress_;  // null if nobody watches
  std::shared_ptr<CallTrace> trace_;        // null if nothing is recorded
  FinalMeeting meeting_;
};

// Completes each part on a thread of its own.
void fail_all(std::vector<std::unique_ptr<Part>> parts, const Outcome& why) {
  for (auto& part : parts) {
    const std::shared_ptr<const Part> shared = std::move(part);
    try {
      elastic_pool().run([shared, why] { shared->complete(why); });
    } catch (const std::system_error&) {
      shared->complete(why);
    }
  }
}

std::vector<std::unique_ptr<Part>> as_parts(Rendezvous::Party party) {
  std::vector<std::unique_ptr<Part>> parts;
  for (auto& arrival : party) {
    parts.emplace_back(static_cast<Part*>(arrival.release()));
  }
  return parts;
}

void start(std::vector<std::unique_ptr<Part>> parts) {
  std::shared_ptr<Team> team;
  try {
    team = std::make_shared<Team>(parts);
  } catch (...) {
    return fail_all(std::move(parts), outcome_of_current_exception());
  }
  if (team->size() == 1) {
    return team->run(0);
  }
  for (int rank = 0; rank < team->size(); ++rank) {
    try {
      elastic_pool().run([team, rank] { team->run(rank); });
    } catch (const std::system_error& e) {
      return team->give_up_from(
          rank, {JAXMG_RESOURCE_EXHAUSTED, std::string("a thread could not be made: ") + e.what()});
    }
  }
}

}  // namespace

void submit(const jaxmg_call& call) {
  check_context_operand(call);
  Context context;
  std::memcpy(&context, call.arguments[0].data, sizeof context);
  check_context(call, context);
  check_one_process(call, context, "CPU devices");
  auto part = std::make_unique<Part>(call, context);
  Rendezvous::Party party = rendezvous().arrive({call.run_id, call.site, context.group},
                                                context.rank, context.ranks, std::move(part));
  if (!party.empty()) {
    start(as_parts(std::move(party)));
  }
}

Rendezvous& rendezvous() {
  static Rendezvous* const instance =
      new Rendezvous([](Rendezvous::Party party, const Outcome& why) {
        fail_all(as_parts(std::move(party)), why);
      });
  return *instance;
}

}  // namespace jaxmg

// On CPU a call site needs no memory but its identity.
void* jaxmg_site_create() {
  void* const site = std::malloc(1);
  if (site) {
    ++jaxmg::counters().sites;
  }
  return site;
}

void jaxmg_site_destroy(void* site) {
  if (site) {
    --jaxmg::counters().sites;
  }
  std::free(site);
}
