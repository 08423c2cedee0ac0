#include "comm/thread_team.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace jaxmg::threads {

namespace {

const char* name(Call call) {
  switch (call) {
    case Call::barrier:
      return "barrier";
    case Call::split:
      return "split";
    case Call::broadcast:
      return "broadcast";
    case Call::publish:
      return "publish";
    case Call::all_reduce:
      return "all_reduce";
    case Call::reduce:
      return "reduce";
    case Call::reduce_scatter:
      return "reduce_scatter";
    case Call::all_gather:
      return "all_gather";
    case Call::all_to_all_v:
      return "all_to_all_v";
    case Call::exchange:
      return "exchange";
    case Call::min_location:
      return "min_location";
    case Call::max_location:
      return "max_location";
    case Call::agree:
      return "agree";
  }
  return "?";
}

const char* name(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
    case DType::c64:
      return "c64";
    case DType::c128:
      return "c128";
    case DType::i32:
      return "i32";
  }
  return "?";
}

const char* name(Reduction op) {
  switch (op) {
    case Reduction::sum:
      return "sum";
    case Reduction::min:
      return "min";
    case Reduction::max:
      return "max";
  }
  return "?";
}

std::string list(const std::vector<int>& ranks) {
  std::ostringstream out;
  out << (ranks.size() == 1 ? "rank " : "ranks ");
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    out << (i > 0 ? ", " : "") << ranks[i];
  }
  return out.str();
}

}  // namespace

std::string describe(const Signature& s) {
  std::ostringstream out;
  out << name(s.call);
  switch (s.call) {
    case Call::barrier:
    case Call::split:
    case Call::agree:
      break;
    case Call::broadcast:
    case Call::publish:
      out << "(" << s.count << " " << name(s.type) << ", root " << s.root << ")";
      break;
    case Call::all_reduce:
    case Call::reduce_scatter:
      out << "(" << s.count << " " << name(s.type) << ", " << name(s.op) << ")";
      break;
    case Call::reduce:
      out << "(" << s.count << " " << name(s.type) << ", " << name(s.op) << ", root " << s.root
          << ")";
      break;
    case Call::all_gather:
      out << "(" << s.count << " " << name(s.type) << ")";
      break;
    case Call::all_to_all_v:
    case Call::exchange:
    case Call::min_location:
    case Call::max_location:
      out << "(" << name(s.type) << ")";
      break;
  }
  return out.str();
}

void Family::add(const std::shared_ptr<Team>& team) {
  const std::lock_guard lock(mutex_);
  std::erase_if(teams_, [](const std::weak_ptr<Team>& t) { return t.expired(); });
  teams_.push_back(team);
  if (failure_) {
    team->set_failure(failure_);
  }
}

void Family::fail(const CommunicationError& error) {
  std::vector<std::weak_ptr<Team>> teams;
  std::shared_ptr<const CommunicationError> failure;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = std::make_shared<const CommunicationError>(error);
    }
    failure = failure_;
    teams = teams_;
  }
  for (const std::weak_ptr<Team>& weak : teams) {
    if (const std::shared_ptr<Team> team = weak.lock()) {
      team->set_failure(failure);
    }
  }
}

Team::Team(int size, std::shared_ptr<Family> family)
    : family_(std::move(family)),
      next_(static_cast<std::size_t>(size), 0),
      left_(static_cast<std::size_t>(size), false),
      waiting_(static_cast<std::size_t>(size), nullptr),
      sleepers_(static_cast<std::size_t>(size)) {}

std::shared_ptr<Team> Team::make(int size, std::shared_ptr<Family> family) {
  const std::shared_ptr<Team> team(new Team(size, std::move(family)));
  team->family_->add(team);
  return team;
}

void Team::check() const {
  if (failure_) {
    throw CommunicationError(*failure_);
  }
}

void Team::set_failure(std::shared_ptr<const CommunicationError> failure) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(failure);
  for (std::condition_variable& sleeper : sleepers_) {
    sleeper.notify_all();
  }
}

std::size_t Team::next_place(int rank) const {
  check();
  return static_cast<std::size_t>(next_[static_cast<std::size_t>(rank)] - first_);
}

std::shared_ptr<Operation> Team::arrive(int rank, std::size_t place, const Signature& signature) {
  const std::shared_ptr<Operation> op = pending_[place];
  if (op->signature_ != signature) {
    throw CommunicationError("rank " + std::to_string(rank) + " called " + describe(signature) +
                                 " where another rank called " + describe(op->signature_),
                             Kind::mismatched_calls);
  }
  const Size call = next_[static_cast<std::size_t>(rank)]++;
  for (std::size_t r = 0; r < left_.size(); ++r) {
    if (left_[r] && next_[r] <= call) {
      throw CommunicationError("rank " + std::to_string(rank) + " called " + describe(signature) +
                               " after rank " + std::to_string(r) + " had left");
    }
  }
  // Every rank has been at the calls before this one if it has been at this one, so that the call
  // that has them all is the first.
  if (++op->arrived_ == size()) {
    pending_.pop_front();
    ++first_;
  }
  return op;
}

bool Team::wake(int rank, const Operation& op) {
  const bool waits = waiting_[static_cast<std::size_t>(rank)] == &op;
  if (waits) {
    sleepers_[static_cast<std::size_t>(rank)].notify_all();
  }
  return waits;
}

// Returns when woken; past the deadline the family fails.
void Team::sleep(Lock& lock, const Operation& op, int rank, Clock::time_point deadline) {
  const auto r = static_cast<std::size_t>(rank);
  waiting_[r] = &op;
  std::cv_status woken = std::cv_status::no_timeout;
  if (deadline == Clock::time_point::max()) {
    sleepers_[r].wait(lock);
  } else {
    woken = sleepers_[r].wait_until(lock, deadline);
  }
  waiting_[r] = nullptr;
  if (woken == std::cv_status::timeout && !op.complete(rank) && !failure_) {
    const CommunicationError error(time_limit_message(op, rank));
    lock.unlock();
    family_->fail(error);
    lock.lock();
  }
}

std::string Team::time_limit_message(const Operation& op, int rank) const {
  std::ostringstream out;
  out << "rank " << rank << " waited "
      << std::chrono::duration<double>(family_->time_limit()).count() << " s in "
      << describe(op.signature());
  const std::vector<int> missing = op.missing(rank);
  if (!missing.empty()) {
    out << " for " << list(missing) << " of " << size();
  }
  return out.str();
}

void Team::wait(Operation& op, int rank) {
  Lock lock(mutex_);
  const std::chrono::nanoseconds limit = family_->time_limit();
  const Clock::time_point deadline =
      limit.count() > 0 ? Clock::now() + std::chrono::duration_cast<Clock::duration>(limit)
                        : Clock::time_point::max();
  while (!op.complete(rank)) {
    if (failure_) {
      // Others may be amidst a copy from or to this rank's buffers; they start no new one.
      while (op.busy(rank)) {
        sleep(lock, op, rank, Clock::time_point::max());
      }
      check();
    }
    Work work;
    if (op.claim(rank, work)) {
      lock.unlock();
      op.run(work);
      lock.lock();
      op.finish(work);
    } else {
      sleep(lock, op, rank, deadline);
    }
  }
  op.waited(rank);
}

void Team::wait_quietly(Operation& op, int rank) noexcept {
  try {
    wait(op, rank);
  } catch (const std::exception&) {
    // The failure stays with the family.
  }
}

void Team::leave(int rank) {
  Lock lock(mutex_);
  const auto r = static_cast<std::size_t>(rank);
  left_[r] = true;
  const Size called = first_ + static_cast<Size>(pending_.size());
  if (next_[r] < called && !failure_) {
    const Operation& op = *pending_[static_cast<std::size_t>(next_[r] - first_)];
    const CommunicationError error("rank " + std::to_string(rank) +
                                   " left while others expect it in " + describe(op.signature()));
    lock.unlock();
    family_->fail(error);
  }
}

}  // namespace jaxmg::threads
