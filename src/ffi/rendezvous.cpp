#include "ffi/rendezvous.h"

#include <algorithm>
#include <sstream>
#include <utility>

namespace jaxmg {

Rendezvous::~Rendezvous() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (watchdog_.joinable()) {
    watchdog_.join();
  }
}

Rendezvous::Party Rendezvous::arrive(const MeetingKey& key, int rank, int ranks,
                                     std::unique_ptr<Arrival> arrival) {
  Party party;
  if (ranks == 1) {
    party.push_back(std::move(arrival));
    return party;
  }
  std::unique_lock lock(mutex_);
  const auto [entry, first] = meetings_.try_emplace(key);
  Meeting& meeting = entry->second;
  if (first) {
    meeting.resize(static_cast<std::size_t>(ranks));
  } else if (meeting.size() != static_cast<std::size_t>(ranks)) {
    const Outcome why{JAXMG_INVALID_ARGUMENT,
                      arrival->name() + ": the devices of a group disagree on how many they are: " +
                          std::to_string(ranks) + " and " + std::to_string(meeting.size())};
    party = take_all(meeting);
    party.push_back(std::move(arrival));
    meetings_.erase(entry);
    lock.unlock();
    give_up_(std::move(party), why);
    return {};
  }
  meeting[static_cast<std::size_t>(rank)].push_back({std::move(arrival), Clock::now()});
  const auto empty = [](const auto& queue) { return queue.empty(); };
  if (std::none_of(meeting.begin(), meeting.end(), empty)) {
    for (auto& queue : meeting) {
      party.push_back(std::move(queue.front().arrival));
      queue.pop_front();
    }
    if (std::all_of(meeting.begin(), meeting.end(), empty)) {
      meetings_.erase(entry);
    }
  } else if (first && limit_ > Clock::duration::zero()) {
    changed_.notify_all();
  }
  return party;
}

std::size_t Rendezvous::pending() const {
  std::lock_guard lock(mutex_);
  return meetings_.size();
}

void Rendezvous::set_timeout(std::chrono::duration<double> limit) {
  std::lock_guard lock(mutex_);
  constexpr std::chrono::duration<double> longest(1e9);  // 1e10 s overflow the clock
  const bool none = !(limit.count() > 0);
  limit_ = none ? Clock::duration::zero()
                : std::chrono::duration_cast<Clock::duration>(std::min(limit, longest));
  if (limit_ > Clock::duration::zero() && !watchdog_.joinable()) {
    watchdog_ = std::thread([this] { watch(); });
  }
  changed_.notify_all();
}

// Queues are in order of arrival, so their fronts are enough.
std::optional<Rendezvous::Clock::time_point> Rendezvous::oldest(const Meeting& meeting) {
  std::optional<Clock::time_point> found;
  for (const auto& queue : meeting) {
    if (!queue.empty() && (!found || queue.front().since < *found)) {
      found = queue.front().since;
    }
  }
  return found;
}

Rendezvous::Party Rendezvous::take_all(Meeting& meeting) {
  Party party;
  for (auto& queue : meeting) {
    for (Waiting& waiting : queue) {
      party.push_back(std::move(waiting.arrival));
    }
    queue.clear();
  }
  return party;
}

std::string Rendezvous::missing(const MeetingKey& key, const Meeting& meeting) const {
  std::ostringstream ranks;
  std::string name;
  for (std::size_t rank = 0; rank < meeting.size(); ++rank) {
    if (meeting[rank].empty()) {
      ranks << (ranks.tellp() > 0 ? ", " : "") << rank;
    } else if (name.empty()) {
      name = meeting[rank].front().arrival->name();
    }
  }
  std::ostringstream text;
  text << name << ": of the " << meeting.size() << " ranks of group " << key.group << ", these did "
       << "not make the call within " << std::chrono::duration<double>(limit_).count()
       << " s: " << ranks.str();
  return text.str();
}

void Rendezvous::watch() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const Clock::time_point now = Clock::now();
    std::optional<Clock::time_point> deadline;
    std::vector<std::pair<Party, Outcome>> given_up;
    if (limit_ > Clock::duration::zero()) {
      for (auto entry = meetings_.begin(); entry != meetings_.end();) {
        const Clock::time_point end = oldest(entry->second).value_or(now) + limit_;
        if (end > now) {
          deadline = std::min(end, deadline.value_or(end));
          ++entry;
          continue;
        }
        const Outcome why{JAXMG_DEADLINE_EXCEEDED, missing(entry->first, entry->second)};
        given_up.emplace_back(take_all(entry->second), why);
        entry = meetings_.erase(entry);
      }
    }
    if (!given_up.empty()) {
      lock.unlock();
      for (auto& [party, why] : given_up) {
        give_up_(std::move(party), why);
      }
      lock.lock();
    } else if (deadline) {
      changed_.wait_until(lock, *deadline);
    } else {
      changed_.wait(lock);
    }
  }
}

}  // namespace jaxmg
