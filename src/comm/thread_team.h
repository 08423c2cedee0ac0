// What the ranks of a thread communicator share: the calls that not all ranks have made yet, one
// lock, and a place for each rank to sleep.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/communication_error.h"
#include "comm/communicator.h"
#include "core/dtype.h"
#include "core/types.h"

namespace jaxmg::threads {

enum class Call {
  barrier,
  split,
  broadcast,
  publish,
  all_reduce,
  reduce,
  reduce_scatter,
  all_gather,
  all_to_all_v,
  exchange,
  min_location,
  max_location,
  agree,
};

// What has to be the same on all ranks that make a call.
struct Signature {
  Call call = Call::barrier;
  DType type = DType::i32;
  Size count = 0;
  int root = -1;
  Reduction op = Reduction::sum;
  bool operator==(const Signature&) const = default;
};

std::string describe(const Signature& signature);

class Team;

// A piece of an operation that one thread does: a copy, or a chunk of a reduction.
struct Work {
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  Size bytes = 0;
  int sender = 0;
  int receiver = 0;
  Size chunk = 0;
};

// One call, shared by its ranks. All members but run() are used with the team's lock held.
class Operation {
 public:
  Operation(Team& team, const Signature& signature) : team_(team), signature_(signature) {}
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  const Signature& signature() const { return signature_; }

  // Whether the rank's part is over.
  virtual bool complete(int rank) const = 0;
  // Takes a piece of work that `rank` would otherwise have to wait for.
  virtual bool claim(int rank, Work& work) = 0;
  virtual void run(const Work& work) = 0;
  virtual void finish(const Work& work) = 0;
  // Whether some thread uses the rank's buffers at this moment.
  virtual bool busy(int rank) const = 0;
  // The ranks that `rank` waits for.
  virtual std::vector<int> missing(int rank) const = 0;

  // Whether the rank's ticket gives something back when it is dropped.
  virtual bool lends(int) const { return false; }
  // The rank's wait has succeeded; its ticket is gone.
  virtual void waited(int) {}
  virtual void dropped(int) {}

 protected:
  Team& team_;

 private:
  friend class Team;
  Signature signature_;
  int arrived_ = 0;
};

// A team and all that were split off from it, directly or not: they fail together.
class Family {
 public:
  explicit Family(std::chrono::nanoseconds time_limit) : time_limit_(time_limit) {}

  std::chrono::nanoseconds time_limit() const { return time_limit_; }
  void add(const std::shared_ptr<Team>& team);
  // Only the first failure counts. Not to be called with a team's lock held.
  void fail(const CommunicationError& error);

 private:
  const std::chrono::nanoseconds time_limit_;
  std::mutex mutex_;
  std::shared_ptr<const CommunicationError> failure_;
  std::vector<std::weak_ptr<Team>> teams_;
};

class Team {
 public:
  static std::shared_ptr<Team> make(int size, std::shared_ptr<Family> family);

  int size() const { return static_cast<int>(next_.size()); }
  const std::shared_ptr<Family>& family() const { return family_; }
  std::mutex& mutex() { return mutex_; }

  // Throws the family's failure. Lock held.
  void check() const;
  bool failed() const { return failure_ != nullptr; }

  // The operation that is the rank's next call, made with `args` if the rank is the first one
  // there. Lock held.
  template <class Op, class... Args>
  std::shared_ptr<Op> enter(int rank, const Signature& signature, const Args&... args) {
    const std::size_t place = next_place(rank);
    if (place == pending_.size()) {
      pending_.push_back(std::make_shared<Op>(*this, signature, args...));
    }
    return std::static_pointer_cast<Op>(arrive(rank, place, signature));
  }

  // Wakes the rank's thread if it waits for this operation, and says whether it does. Lock held.
  bool wake(int rank, const Operation& op);

  // Until the rank's part is over, with the rank's thread helping where it can.
  void wait(Operation& op, int rank);
  // The same for a ticket that is dropped: failures are kept for the next call.
  void wait_quietly(Operation& op, int rank) noexcept;

  // The rank will make no more calls.
  void leave(int rank);
  void set_failure(std::shared_ptr<const CommunicationError> failure);

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  Team(int size, std::shared_ptr<Family> family);

  std::size_t next_place(int rank) const;
  std::shared_ptr<Operation> arrive(int rank, std::size_t place, const Signature& signature);
  void sleep(Lock& lock, const Operation& op, int rank, Clock::time_point deadline);
  std::string time_limit_message(const Operation& op, int rank) const;

  const std::shared_ptr<Family> family_;
  std::mutex mutex_;
  std::shared_ptr<const CommunicationError> failure_;

  // Call number first_ + i is pending_[i]; rank r has made next_[r] calls.
  std::deque<std::shared_ptr<Operation>> pending_;
  Size first_ = 0;
  std::vector<Size> next_;
  std::vector<bool> left_;

  // What each rank waits for, and where.
  std::vector<const Operation*> waiting_;
  std::vector<std::condition_variable> sleepers_;
};

}  // namespace jaxmg::threads
