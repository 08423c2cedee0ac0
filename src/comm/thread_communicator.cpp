#include "comm/thread_communicator.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <map>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "comm/elementwise.h"
#include "comm/thread_collective.h"
#include "comm/thread_exchange.h"
#include "comm/thread_team.h"

namespace jaxmg {

namespace {

using threads::Block;
using threads::Call;
using threads::Exchange;
using threads::Family;
using threads::Located;
using threads::Meeting;
using threads::Operation;
using threads::Publish;
using threads::Reduce;
using threads::Signature;
using threads::Team;
using tile::CpuLane;
using tile::CpuTicket;

struct Nothing {};

// What a rank brings to a split, and what it gets.
struct Membership {
  int color = 0;
  int key = 0;
  std::shared_ptr<Team> team;
  int rank = 0;
};

// A rank's part in one operation.
class Participation final : public CpuTicket::State {
 public:
  Participation(std::shared_ptr<Team> team, std::shared_ptr<Operation> op, int rank)
      : team_(std::move(team)), op_(std::move(op)), rank_(rank) {}
  Participation(const Participation&) = delete;
  Participation& operator=(const Participation&) = delete;

  void wait() override {
    settled_ = true;
    team_->wait(*op_, rank_);
  }

  ~Participation() override {
    if (!settled_ && std::uncaught_exceptions() > exceptions_) {
      // The others may wait for calls that this rank will not make, and it for them.
      fail_quietly();
    }
    if (!settled_ && !op_->lends(rank_)) {
      team_->wait_quietly(*op_, rank_);
    }
    const std::lock_guard lock(team_->mutex());
    op_->dropped(rank_);
  }

 private:
  void fail_quietly() noexcept {
    team_->family()->fail(CommunicationError("rank " + std::to_string(rank_) +
                                             " left by an exception during " +
                                             describe(op_->signature())));
  }

  std::shared_ptr<Team> team_;
  std::shared_ptr<Operation> op_;
  int rank_;
  int exceptions_ = std::uncaught_exceptions();
  bool settled_ = false;
};

std::byte* bytes_at(const void* base, Size offset, DType type) {
  // Blocks that are sent are only read.
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(base));
  return bytes == nullptr ? nullptr : bytes + offset * size_of(type);
}

void require(bool holds, const char* message) {
  if (!holds) {
    throw std::invalid_argument(message);
  }
}

void require_reduction(DType type, Reduction op) {
  require(op == Reduction::sum || !is_complex(type), "complex values have no extremes");
}

class ThreadCommunicator final : public Communicator<tile::Cpu> {
 public:
  ThreadCommunicator(std::shared_ptr<Team> team, int rank) : team_(std::move(team)), rank_(rank) {}
  ThreadCommunicator(const ThreadCommunicator&) = delete;
  ThreadCommunicator& operator=(const ThreadCommunicator&) = delete;
  ~ThreadCommunicator() override { team_->leave(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return team_->size(); }
  Team& team() const { return *team_; }

  std::unique_ptr<Communicator<tile::Cpu>> split(int color, int key) override;
  void barrier() override;
  CpuTicket broadcast(CpuLane&, void* data, Size count, DType type, int root, int first) override;
  CpuTicket publish(CpuLane&, Message& message, Size count, DType type, int root,
                    int first) override;
  CpuTicket all_reduce(CpuLane&, void* data, Size count, DType type, Reduction op) override;
  CpuTicket reduce(CpuLane&, void* data, Size count, DType type, Reduction op, int root) override;
  CpuTicket reduce_scatter(CpuLane&, const void* in, void* out, Size count, DType type,
                           Reduction op) override;
  CpuTicket all_gather(CpuLane&, const void* in, void* out, Size count, DType type) override;
  CpuTicket all_to_all_v(CpuLane&, const void* in, std::span<const Size> send_counts,
                         std::span<const Size> send_offsets, void* out,
                         std::span<const Size> recv_counts, std::span<const Size> recv_offsets,
                         DType type) override;
  CpuTicket exchange(CpuLane&, std::span<const Transfer> sends, std::span<const Transfer> receives,
                     DType type) override;
  CpuTicket min_location(CpuLane&, void* value, std::int64_t* location, DType type) override;
  CpuTicket max_location(CpuLane&, void* value, std::int64_t* location, DType type) override;
  CpuTicket agree(CpuLane&, Info* info) override;

 private:
  // Takes part in the operation that is this rank's next call: makes it with args if this rank is
  // the first one there, and puts this rank's part into it. A call that does not fit fails all.
  template <class Op, class Post, class... Args>
  std::shared_ptr<Op> join(const Signature& signature, const Post& post, const Args&... args) {
    std::unique_lock lock(team_->mutex());
    try {
      const std::shared_ptr<Op> op = team_->template enter<Op>(rank_, signature, args...);
      post(*op);
      return op;
    } catch (const CommunicationError& error) {
      lock.unlock();
      team_->family()->fail(error);
      throw;
    }
  }

  template <class Op, class Post, class... Args>
  CpuTicket start(const Signature& signature, const Post& post, const Args&... args) {
    bool over = false;
    auto op = join<Op>(
        signature,
        [&](Op& joined) {
          post(joined);
          over = joined.complete(rank_) && !joined.lends(rank_);
        },
        args...);
    return over ? CpuTicket()
                : CpuTicket(std::make_unique<Participation>(team_, std::move(op), rank_));
  }

  CpuTicket move_blocks(const Signature& signature, std::vector<Block> sends,
                        std::vector<Block> receives, int first = -1) {
    return start<Exchange>(signature, [&](Exchange& op) {
      op.post(rank_, std::move(sends), std::move(receives), first);
    });
  }

  CpuTicket locate(Call call, Reduction op, void* value, std::int64_t* location, DType type);
  std::vector<Block> blocks_of(std::span<const Transfer> transfers, DType type) const;
  bool has(int r) const { return 0 <= r && r < size(); }
  void require_root(int root) const { require(has(root), "the root is no rank"); }
  void require_first(int first) const {
    require(first == -1 || has(first), "the rank to serve first is no rank");
  }

  std::shared_ptr<Team> team_;
  int rank_;
};

std::unique_ptr<Communicator<tile::Cpu>> ThreadCommunicator::split(int color, int key) {
  const std::shared_ptr<Family> family = team_->family();
  const auto form_teams = [family](std::vector<Membership>& members) {
    // color -> (key, rank), ascending
    std::map<int, std::vector<std::pair<int, int>>> groups;
    for (std::size_t r = 0; r < members.size(); ++r) {
      groups[members[r].color].emplace_back(members[r].key, static_cast<int>(r));
    }
    for (auto& [_, group] : groups) {
      std::ranges::sort(group);
      const std::shared_ptr<Team> team = Team::make(static_cast<int>(group.size()), family);
      for (std::size_t place = 0; place < group.size(); ++place) {
        Membership& member = members[static_cast<std::size_t>(group[place].second)];
        member.team = team;
        member.rank = static_cast<int>(place);
      }
    }
  };
  using Split = Meeting<Membership>;
  const auto op = join<Split>(
      Signature{.call = Call::split},
      [&](Split& meeting) {
        meeting.post(rank_, {color, key, nullptr, 0});
      },
      Split::Action(form_teams));
  team_->wait(*op, rank_);
  Membership& member = op->part(rank_);
  return std::make_unique<ThreadCommunicator>(std::move(member.team), member.rank);
}

void ThreadCommunicator::barrier() {
  using Barrier = Meeting<Nothing>;
  const auto op = join<Barrier>(
      Signature{.call = Call::barrier}, [&](Barrier& meeting) { meeting.post(rank_, {}); },
      Barrier::Action());
  team_->wait(*op, rank_);
}

CpuTicket ThreadCommunicator::broadcast(CpuLane&, void* data, Size count, DType type, int root,
                                        int first) {
  require(count >= 0, "broadcast: negative count");
  require_root(root);
  require_first(first);
  std::vector<Block> sends;
  std::vector<Block> receives;
  const Block block{bytes_at(data, 0, type), count * size_of(type), root};
  if (rank_ == root) {
    sends.assign(static_cast<std::size_t>(size() - 1), block);
    int peer = 0;
    for (Block& b : sends) {
      peer += peer == root ? 1 : 0;
      b.peer = peer++;
    }
  } else {
    receives.push_back(block);
  }
  return move_blocks({.call = Call::broadcast, .type = type, .count = count, .root = root},
                     std::move(sends), std::move(receives), rank_ == root ? first : -1);
}

CpuTicket ThreadCommunicator::publish(CpuLane&, Message& message, Size count, DType type, int root,
                                      int first) {
  require(count >= 0, "publish: negative count");
  require_root(root);
  require_first(first);
  return start<Publish>({.call = Call::publish, .type = type, .count = count, .root = root},
                        [&](Publish& op) { op.post(rank_, message, first); });
}

CpuTicket ThreadCommunicator::all_reduce(CpuLane&, void* data, Size count, DType type,
                                         Reduction op) {
  require(count >= 0, "all_reduce: negative count");
  require_reduction(type, op);
  return start<Reduce>({.call = Call::all_reduce, .type = type, .count = count, .op = op},
                       [&](Reduce& r) { r.post(rank_, data, data); });
}

CpuTicket ThreadCommunicator::reduce(CpuLane&, void* data, Size count, DType type, Reduction op,
                                     int root) {
  require(count >= 0, "reduce: negative count");
  require_root(root);
  require_reduction(type, op);
  return start<Reduce>({.call = Call::reduce, .type = type, .count = count, .root = root, .op = op},
                       [&](Reduce& r) { r.post(rank_, data, data); });
}

CpuTicket ThreadCommunicator::reduce_scatter(CpuLane&, const void* in, void* out, Size count,
                                             DType type, Reduction op) {
  require(count >= 0, "reduce_scatter: negative count");
  require_reduction(type, op);
  return start<Reduce>({.call = Call::reduce_scatter, .type = type, .count = count, .op = op},
                       [&](Reduce& r) { r.post(rank_, in, out); });
}

CpuTicket ThreadCommunicator::all_gather(CpuLane&, const void* in, void* out, Size count,
                                         DType type) {
  require(count >= 0, "all_gather: negative count");
  std::vector<Block> sends;
  std::vector<Block> receives;
  const Size bytes = count * size_of(type);
  for (int peer = 0; peer < size(); ++peer) {
    sends.push_back({bytes_at(in, 0, type), bytes, peer});
    receives.push_back({bytes_at(out, peer * count, type), bytes, peer});
  }
  return move_blocks({.call = Call::all_gather, .type = type, .count = count}, std::move(sends),
                     std::move(receives));
}

CpuTicket ThreadCommunicator::all_to_all_v(CpuLane&, const void* in,
                                           std::span<const Size> send_counts,
                                           std::span<const Size> send_offsets, void* out,
                                           std::span<const Size> recv_counts,
                                           std::span<const Size> recv_offsets, DType type) {
  const auto ranks = static_cast<std::size_t>(size());
  require(send_counts.size() == ranks && send_offsets.size() == ranks &&
              recv_counts.size() == ranks && recv_offsets.size() == ranks,
          "all_to_all_v: counts and offsets need one entry a rank");
  std::vector<Block> sends;
  std::vector<Block> receives;
  for (std::size_t r = 0; r < ranks; ++r) {
    require(send_counts[r] >= 0 && recv_counts[r] >= 0, "all_to_all_v: negative count");
    const int peer = static_cast<int>(r);
    sends.push_back({bytes_at(in, send_offsets[r], type), send_counts[r] * size_of(type), peer});
    receives.push_back(
        {bytes_at(out, recv_offsets[r], type), recv_counts[r] * size_of(type), peer});
  }
  return move_blocks({.call = Call::all_to_all_v, .type = type}, std::move(sends),
                     std::move(receives));
}

std::vector<Block> ThreadCommunicator::blocks_of(std::span<const Transfer> transfers,
                                                 DType type) const {
  std::vector<Block> blocks;
  for (const Transfer& t : transfers) {
    require(t.count >= 0, "exchange: negative count");
    require(has(t.peer), "exchange: the peer is no rank");
    blocks.push_back({bytes_at(t.buffer, 0, type), t.count * size_of(type), t.peer});
  }
  return blocks;
}

CpuTicket ThreadCommunicator::exchange(CpuLane&, std::span<const Transfer> sends,
                                       std::span<const Transfer> receives, DType type) {
  return move_blocks({.call = Call::exchange, .type = type}, blocks_of(sends, type),
                     blocks_of(receives, type));
}

CpuTicket ThreadCommunicator::locate(Call call, Reduction op, void* value, std::int64_t* location,
                                     DType type) {
  require_reduction(type, op);
  using Locate = Meeting<Located>;
  return start<Locate>(
      {.call = call, .type = type},
      [&](Locate& m) {
        m.post(rank_, {value, location});
      },
      Locate::Action(
          [type, op](std::vector<Located>& all) { threads::locate_extreme(type, op, all); }));
}

CpuTicket ThreadCommunicator::min_location(CpuLane&, void* value, std::int64_t* location,
                                           DType type) {
  return locate(Call::min_location, Reduction::min, value, location, type);
}

CpuTicket ThreadCommunicator::max_location(CpuLane&, void* value, std::int64_t* location,
                                           DType type) {
  return locate(Call::max_location, Reduction::max, value, location, type);
}

CpuTicket ThreadCommunicator::agree(CpuLane&, Info* info) {
  using Agree = Meeting<Info*>;
  return start<Agree>(
      {.call = Call::agree}, [&](Agree& m) { m.post(rank_, info); },
      Agree::Action([](std::vector<Info*>& infos) {
        const Info least =
            **std::ranges::min_element(infos, {}, [](const Info* i) { return severity(*i); });
        for (Info* i : infos) {
          *i = least;
        }
      }));
}

Team& team_of(const Communicator<tile::Cpu>& communicator) {
  const auto* threads = dynamic_cast<const ThreadCommunicator*>(&communicator);
  require(threads != nullptr, "the ranks of this communicator are no threads");
  return threads->team();
}

}  // namespace

std::vector<std::unique_ptr<Communicator<tile::Cpu>>> make_thread_communicators(
    int ranks, std::chrono::nanoseconds time_limit) {
  require(ranks >= 1, "a communicator has one rank at least");
  require(time_limit.count() >= 0, "negative time limit");
  const std::shared_ptr<Team> team = Team::make(ranks, std::make_shared<Family>(time_limit));
  std::vector<std::unique_ptr<Communicator<tile::Cpu>>> communicators;
  communicators.reserve(static_cast<std::size_t>(ranks));
  for (int r = 0; r < ranks; ++r) {
    communicators.push_back(std::make_unique<ThreadCommunicator>(team, r));
  }
  return communicators;
}

void abort_team(Communicator<tile::Cpu>& any, const std::string& reason) {
  team_of(any).family()->fail(CommunicationError(reason));
}

void check_team(const Communicator<tile::Cpu>& any) {
  Team& team = team_of(any);
  const std::lock_guard lock(team.mutex());
  team.check();
}

}  // namespace jaxmg
