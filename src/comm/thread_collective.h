// Operations of a thread team that need all its ranks.
#pragma once

#include <functional>
#include <utility>
#include <vector>

#include "comm/thread_team.h"

namespace jaxmg::threads {

// Begins when all ranks have made the call. The last one does what is small; the rest is cut in
// chunks, which the ranks that wait share out among them.
class Collective : public Operation {
 public:
  Collective(Team& team, const Signature& signature);

  bool complete(int rank) const override;
  bool claim(int rank, Work& work) override;
  void run(const Work& work) override { run_chunk(work.chunk); }
  void finish(const Work& work) override;
  bool busy(int) const override { return active_ > 0; }
  std::vector<int> missing(int rank) const override;

 protected:
  // The rank has made the call; begins if it is the last one.
  void join(int rank);
  // The rank need not wait.
  void excuse(int rank) { excused_[static_cast<std::size_t>(rank)] = true; }

  // All ranks are there. Returns the number of chunks that are left to do.
  virtual Size begin() = 0;
  virtual void run_chunk(Size) {}

 private:
  std::vector<bool> arrived_;
  std::vector<bool> excused_;
  int missing_;
  Size chunks_ = 0;
  Size claimed_ = 0;
  Size done_ = 0;
  int active_ = 0;
};

// A reduction to all ranks (all_reduce), to one (reduce), or of one block to each (reduce_scatter).
class Reduce final : public Collective {
 public:
  static constexpr Size small = 4096;         // bytes that a sender leaves rather than waits for
  static constexpr Size chunk_bytes = 16384;  // of one chunk of the result

  Reduce(Team& team, const Signature& signature);

  void post(int rank, const void* in, void* out);

 private:
  struct Part {
    const std::byte* in = nullptr;
    std::byte* out = nullptr;
    std::vector<std::byte> taken_along;
  };

  Size begin() override;
  void run_chunk(Size chunk) override;

  bool scatters_;
  Size blocks_;           // in each input
  Size chunk_elements_;   // elements of a chunk
  Size chunks_of_block_;  // chunks of a block
  std::vector<Part> parts_;
};

// Something small that is done once, when all ranks are there, with what each of them has brought.
template <class Part>
class Meeting final : public Collective {
 public:
  using Action = std::function<void(std::vector<Part>&)>;

  Meeting(Team& team, const Signature& signature, Action action)
      : Collective(team, signature),
        action_(std::move(action)),
        parts_(static_cast<std::size_t>(team.size())) {}

  void post(int rank, Part part) {
    this->part(rank) = std::move(part);
    join(rank);
  }
  Part& part(int rank) { return parts_[static_cast<std::size_t>(rank)]; }

 private:
  Size begin() override {
    if (action_) {
      action_(parts_);
    }
    return 0;
  }

  Action action_;
  std::vector<Part> parts_;
};

}  // namespace jaxmg::threads
