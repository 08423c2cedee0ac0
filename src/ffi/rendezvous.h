// Where the ranks of a group meet: each device's handler brings its part of a call, and the one
// that completes the set takes all parts. Nobody blocks.
//
// Parts belong together if they come from the same launch (run), the same call site of the same
// executable (site) and the same group of devices. Devices may reach independent call sites in
// different orders, and a site in a loop more than once in a launch; neither an order of arrival
// nor a number given at trace time would tell those apart. A rank that comes again before its peers
// queues behind itself.
#pragma once

#include <chrono>
#include <compare>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ffi/outcome.h"

namespace jaxmg {

struct MeetingKey {
  std::int64_t run = 0;
  const void* site = nullptr;
  std::int64_t group = 0;
  std::strong_ordering operator<=>(const MeetingKey&) const = default;
};

// One rank's part of a call.
class Arrival {
 public:
  virtual ~Arrival() = default;
  // The name of the call, for messages.
  virtual std::string name() const = 0;
};

class Rendezvous {
 public:
  using Clock = std::chrono::steady_clock;
  using Party = std::vector<std::unique_ptr<Arrival>>;
  // Told of parts that will never be complete. Called with no lock held, from the watchdog's thread
  // or from an arriving one; must not block.
  using GiveUp = std::function<void(Party, const Outcome&)>;

  explicit Rendezvous(GiveUp give_up) : give_up_(std::move(give_up)) {}
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Brings the part of `rank`, one of `ranks`. Returns all parts, in rank order, if this was the
  // last one missing, else nothing. Peers must agree on `ranks`; all who have come fail otherwise.
  Party arrive(const MeetingKey& key, int rank, int ranks, std::unique_ptr<Arrival> arrival);

  // Groups that wait for a rank.
  std::size_t pending() const;

  // How long a part waits for its peers; zero: for ever.
  void set_timeout(std::chrono::duration<double> limit);

 private:
  struct Waiting {
    std::unique_ptr<Arrival> arrival;
    Clock::time_point since;
  };
  using Meeting = std::vector<std::deque<Waiting>>;  // a queue per rank
  using Meetings = std::map<MeetingKey, Meeting>;

  static std::optional<Clock::time_point> oldest(const Meeting& meeting);
  static Party take_all(Meeting& meeting);
  std::string missing(const MeetingKey& key, const Meeting& meeting) const;
  void watch();

  GiveUp give_up_;
  mutable std::mutex mutex_;
  Meetings meetings_;  // none without a waiting part
  Clock::duration limit_{0};
  std::condition_variable changed_;
  std::thread watchdog_;
  bool stopping_ = false;
};

}  // namespace jaxmg
