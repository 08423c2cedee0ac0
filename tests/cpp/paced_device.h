// CPU ranks whose pace a test sets while they solve triangular systems tile by tile.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "algo/rank.h"
#include "comm/communicator.h"
#include "tile/cpu/cpu.h"

namespace jaxmg::test {

// Shared by the ranks of a run.
class Pace {
 public:
  explicit Pace(Size tile) : tile_(tile) {}
  virtual ~Pace() = default;
  // A tile's system has been solved; a product of this many elements of the factor, or a call of
  // the communicator, is about to be made.
  virtual void solved() {}
  virtual void product(Size) {}
  virtual void call() {}

 protected:
  // Whether a product has to do with more than one tile.
  bool is_far(Size elements) const { return elements > tile_ * tile_; }

 private:
  Size tile_;
};

// Products with more than one tile are out of the chain between ranks if
//   - ranks get on with the next tile while one is being made: here it begins when another rank has
//     solved a tile after this rank's last one, and
//   - none is made between the two calls of a rank amidst which it solves a tile, unless calls are
//     made `ahead` of the work.
class OthersFirst final : public Pace {
 public:
  OthersFirst(Size tile, bool ahead) : Pace(tile), ahead_(ahead) {}
  void solved() override {
    const std::lock_guard lock(mutex_);
    mine_ = ++solved_;
    has_solved_ = true;
    chained_ = chained_ || (is_far_ && !ahead_);
    changed_.notify_all();
  }
  void product(Size elements) override {
    std::unique_lock lock(mutex_);
    if (!is_far(elements)) {
      return;
    }
    ++far_products_;
    is_far_ = true;
    chained_ = chained_ || has_solved_ || !changed_.wait_for(lock, std::chrono::seconds(10), [&] {
      return chained_ || solved_ > mine_;
    });
    changed_.notify_all();
  }
  void call() override { has_solved_ = is_far_ = false; }

  bool chained() const { return chained_; }
  Size far_products() const { return far_products_; }

 private:
  // Of this rank: tiles solved by all when it solved its last one; since its last call.
  static inline thread_local Size mine_ = 0;
  static inline thread_local bool has_solved_ = false;
  static inline thread_local bool is_far_ = false;
  bool ahead_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Size solved_ = 0;
  Size far_products_ = 0;
  bool chained_ = false;
};

// Everything takes a while, now longer on this rank, now on that.
class Shaken final : public Pace {
 public:
  Shaken(Size tile, std::uint64_t seed) : Pace(tile), seed_(seed) {}
  void product(Size) override { sleep(); }
  void call() override { sleep(); }

 private:
  void sleep() {
    static thread_local std::uint64_t state = 0;
    state += 0x9E3779B97F4A7C15ull + seed_ +
             std::hash<std::thread::id>{}(std::this_thread::get_id()) % 1000;
    const std::uint64_t x = (state ^ (state >> 29)) * 0xBF58476D1CE4E5B9ull;
    if ((x >> 60) < 4) {
      std::this_thread::sleep_for(std::chrono::microseconds((x >> 32) % 200));
    }
  }

  std::uint64_t seed_;
};

// tile::Cpu as the pace wills, as long as a step of a solve is watched.
struct Paced : tile::Cpu {
  static inline thread_local Pace* pace = nullptr;

  template <class T>
  static void gemm(Lane& lane, Op op_a, Op op_b, Size m, Size n, Size k, T alpha, const T* a,
                   Size lda, const T* b, Size ldb, T beta, T* c, Size ldc) {
    if (pace) {
      pace->product(n * k);
    }
    Cpu::gemm<T>(lane, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  }
  template <class T>
  static void trsm(Lane& lane, Side side, Uplo uplo, Op op, Diag diag, Size m, Size n, T alpha,
                   const T* a, Size lda, T* b, Size ldb) {
    Cpu::trsm<T>(lane, side, uplo, op, diag, m, n, alpha, a, lda, b, ldb);
    note_solved();
  }
  template <class T>
  static void solve_triangle(Lane& lane, Uplo uplo, Op op, Diag diag, Size m, Size n, const T* a,
                             Size lda, const T* x, Size ldx, T* b, Size ldb, T* work) {
    Cpu::solve_triangle<T>(lane, uplo, op, diag, m, n, a, lda, x, ldx, b, ldb, work);
    note_solved();
  }
  template <class T>
  static void solve_diagonal(Lane& lane, Op op, Size m, Size n, const T* l, Size ldl, const T* x,
                             Size ldx, T* b, Size ldb, T* work) {
    Cpu::solve_diagonal<T>(lane, op, m, n, l, ldl, x, ldx, b, ldb, work);
    note_solved();
  }

 private:
  static void note_solved() {
    if (pace) {
      pace->solved();
    }
  }
};

class PacedObserver final : public Observer {
 public:
  explicit PacedObserver(Pace& pace) : pace_(pace) {}
  void begin(int, Task task, Size, Size) override {
    Paced::pace = task == Task::solve ? &pace_ : nullptr;
  }
  void end(int, Task, Size, Size) override { Paced::pace = nullptr; }

 private:
  Pace& pace_;
};

class PacedCommunicator final : public Communicator<Paced> {
 public:
  explicit PacedCommunicator(Communicator<tile::Cpu>& comm) : comm_(comm) {}

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  std::unique_ptr<Communicator> split(int, int) override { return nullptr; }  // no solve does it
  void barrier() override { comm_.barrier(); }
  Ticket broadcast(Lane& lane, void* data, Size count, DType type, int root, int first) override {
    return paced().broadcast(lane, data, count, type, root, first);
  }
  Ticket publish(Lane& lane, Message& message, Size count, DType type, int root,
                 int first) override {
    return paced().publish(lane, message, count, type, root, first);
  }
  Ticket all_reduce(Lane& lane, void* data, Size count, DType type, Reduction op) override {
    return paced().all_reduce(lane, data, count, type, op);
  }
  Ticket reduce(Lane& lane, void* data, Size count, DType type, Reduction op, int root) override {
    return paced().reduce(lane, data, count, type, op, root);
  }
  Ticket reduce_scatter(Lane& lane, const void* in, void* out, Size count, DType type,
                        Reduction op) override {
    return paced().reduce_scatter(lane, in, out, count, type, op);
  }
  Ticket all_gather(Lane& lane, const void* in, void* out, Size count, DType type) override {
    return paced().all_gather(lane, in, out, count, type);
  }
  Ticket all_to_all_v(Lane& lane, const void* in, std::span<const Size> send_counts,
                      std::span<const Size> send_offsets, void* out,
                      std::span<const Size> recv_counts, std::span<const Size> recv_offsets,
                      DType type) override {
    return paced().all_to_all_v(lane, in, send_counts, send_offsets, out, recv_counts, recv_offsets,
                                type);
  }
  Ticket exchange(Lane& lane, std::span<const Transfer> sends, std::span<const Transfer> receives,
                  DType type) override {
    return paced().exchange(lane, sends, receives, type);
  }
  Ticket min_location(Lane& lane, void* value, std::int64_t* location, DType type) override {
    return paced().min_location(lane, value, location, type);
  }
  Ticket max_location(Lane& lane, void* value, std::int64_t* location, DType type) override {
    return paced().max_location(lane, value, location, type);
  }
  Ticket agree(Lane& lane, Info* info) override { return paced().agree(lane, info); }

 private:
  Communicator<tile::Cpu>& paced() {
    if (Paced::pace) {
      Paced::pace->call();
    }
    return comm_;
  }

  Communicator<tile::Cpu>& comm_;
};

}  // namespace jaxmg::test
