// Operations of a thread team that move blocks from rank to rank.
#pragma once

#include <vector>

#include "comm/thread_team.h"

namespace jaxmg::threads {

// A block that a rank sends to, or receives from, a peer.
struct Block {
  std::byte* data = nullptr;
  Size bytes = 0;
  int peer = 0;
  bool taken_along = false;
};

// Broadcast, all_gather, all_to_all_v and exchange: the i-th block that a sends to b goes into the
// i-th block that b receives from a. A copy is possible when both have made the call. Small blocks
// are copied by the second of the two at its call; if that is the receiver, from a copy that the
// sender left, so that senders of small blocks have nothing to wait for.
class Exchange final : public Operation {
 public:
  static constexpr Size small = 4096;  // bytes

  Exchange(Team& team, const Signature& signature);

  // `first` is the peer to wake first, or -1.
  void post(int rank, std::vector<Block> sends, std::vector<Block> receives, int first);

  bool complete(int rank) const override;
  bool claim(int rank, Work& work) override;
  void run(const Work& work) override;
  void finish(const Work& work) override;
  bool busy(int rank) const override;
  std::vector<int> missing(int rank) const override;

 private:
  struct Part {
    bool arrived = false;
    std::vector<Block> sends;     // by peer
    std::vector<Block> receives;  // by peer
    std::vector<std::byte> taken_along;
    Size remaining = 0;  // blocks that the rank has to wait for
    int active = 0;      // copies amidst which a thread is
  };

  Part& part(int rank) { return parts_[static_cast<std::size_t>(rank)]; }
  const Part& part(int rank) const { return parts_[static_cast<std::size_t>(rank)]; }
  void match(int sender, int receiver);
  void take_along(int rank);

  std::vector<Part> parts_;
  std::vector<Work> ready_;
};

// The root's memory, seen by its readers.
class Publish final : public Operation {
 public:
  Publish(Team& team, const Signature& signature);

  // message must stay where it is until waited() or dropped().
  void post(int rank, Message& message, int first);

  bool complete(int rank) const override;
  bool claim(int, Work&) override { return false; }
  void run(const Work&) override {}
  void finish(const Work&) override {}
  bool busy(int rank) const override;
  std::vector<int> missing(int rank) const override;
  bool lends(int rank) const override { return rank != root_; }
  void waited(int rank) override;
  void dropped(int rank) override;

 private:
  enum class State { away, arrived, reading, released };

  struct Reader {
    Message* message = nullptr;
    State state = State::away;
  };

  int root_;
  const void* view_ = nullptr;
  bool published_ = false;
  int readers_left_;  // that have not released
  int reading_ = 0;
  std::vector<Reader> readers_;
};

}  // namespace jaxmg::threads
