// How the blocks of one kernel agree on the pivot of a column: each puts forward its best candidate
// and that candidate's row, and all end up with the row of the best one of all. Rows belong to
// other places after each interchange, so that of equal candidates the first need not be that of
// the first block.
//
// Messages of a column stay until the next but one is put forward, which happens only after all
// blocks have read them: so two places take turns.
#pragma once

#include "tile/cuda/cluster_memory.h"
#include "tile/cuda/lu_pivot.h"
#include "tile/cuda/mailbox.h"

namespace jaxmg::tile {

inline constexpr int kMostBlocks = 160;
inline constexpr int kMostWords = 64;  // of a row
inline constexpr int kMostInCluster = 16;

// One of each lane.
struct LuMailbox {
  Packet weight[2][kMostBlocks][2];
  Packet row[2][kMostBlocks][kMostWords + 2];  // behind its words, the row's number
};

#ifdef __CUDACC__

__device__ inline int lane_index() {
  return static_cast<int>(threadIdx.x) % 32;
}

// The members of an exchange are called by whole warps: put_row() by the one that has the candidate
// in shared memory, the others by a warp that has no rows. Column j of a kernel has the tag
// first + j. Packets through the second-level cache: for any number of blocks, all of which must be
// on the device.
template <class D, int kWidth>
class MailExchange {
 public:
  struct Shared {};

  __device__ MailExchange(Shared&, LuMailbox* mail, Word first, const Info* info)
      : mail_(*mail), first_(first), patience_(info) {}

  __device__ void open() {}
  __device__ void close() {}

  __device__ void put_row(int j, const D* row, Word number) {
    const int lane = lane_index();
    Packet* const to = mail_.row[j % 2][blockIdx.x];
    if (lane < kWidth) {
      post_element(to + lane * kWords<D>, row[lane], first_ + j);
    }
    if (lane == 0) {
      post(to + kMostWords, packet(number, first_ + j));
    }
  }

  // Element `lane` of the winner's row, and its number; kNoRow if others did not answer. `mine`:
  // the candidate that this block puts forward, if there is one.
  __device__ Word agree(int j, const Candidate& mine, D& x) {
    if (lane_index() == 0) {
      post(mail_.weight[j % 2][blockIdx.x], packet(mine.weight.high, first_ + j),
           packet(mine.weight.low, first_ + j));
    }
    const int winner = await_winner(j);
    return winner < 0 ? kNoRow : await_row(j, winner, x);
  }

 private:
  static constexpr int kEach = kMostBlocks / 32;  // blocks that a lane of the warp looks at

  // The block that has the best candidate; -1: no patience left.
  __device__ int await_winner(int j) {
    const int lane = lane_index();
    const int blocks = static_cast<int>(gridDim.x);
    const Word tag = first_ + j;
    Packet high[kEach], low[kEach];
    for (;;) {
      bool whole = true;
#pragma unroll
      for (int q = 0; q < kEach; ++q) {
        if (lane + 32 * q < blocks) {
          look(mail_.weight[j % 2][lane + 32 * q], high[q], low[q]);
        }
      }
#pragma unroll
      for (int q = 0; q < kEach; ++q) {
        if (lane + 32 * q < blocks) {
          whole = whole && has_tag(high[q], tag) && has_tag(low[q], tag);
        }
      }
      if (__all_sync(~0u, whole)) {
        break;
      }
      if (patience_.exhausted()) {
        return -1;
      }
    }
    Candidate best;
    Weight weight[kEach];
#pragma unroll
    for (int q = 0; q < kEach; ++q) {
      weight[q] = lane + 32 * q < blocks ? Weight{value_of(high[q]), value_of(low[q])} : Weight{};
      if (exceeds(weight[q], best.weight)) {
        best = {weight[q], static_cast<Word>(lane + 32 * q)};
      }
    }
    best = best_of_warp<kTwoWords<D>>(best);
    unsigned equal = 0;  // bit q: the q-th block of this lane
#pragma unroll
    for (int q = 0; q < kEach; ++q) {
      equal |= exceeds(best.weight, weight[q]) ? 0u : 1u << q;
    }
    const bool only = __reduce_add_sync(~0u, static_cast<unsigned>(__popc(equal))) == 1;
    return only ? static_cast<int>(best.place) : await_first(j, equal);
  }

  // The block whose row comes first among those with the bits set; -1: no patience left. The rows
  // say where they belong.
  __device__ int await_first(int j, unsigned equal) {
    const int lane = lane_index();
    for (;;) {
      bool whole = true;
      Word place = kNoRow;
      int block = -1;
#pragma unroll
      for (int q = 0; q < kEach; ++q) {
        if ((equal >> q & 1u) != 0) {
          Packet number;
          look(mail_.row[j % 2][lane + 32 * q] + kMostWords, number);
          whole = whole && has_tag(number, first_ + j);
          if (value_of(number) < place) {
            place = value_of(number);
            block = lane + 32 * q;
          }
        }
      }
      if (__all_sync(~0u, whole)) {
        const Word first = __reduce_min_sync(~0u, place);
        const int holder = __ffs(static_cast<int>(__ballot_sync(~0u, place == first))) - 1;
        return __shfl_sync(~0u, block, holder);
      }
      if (patience_.exhausted()) {
        return -1;
      }
    }
  }

  __device__ Word await_row(int j, int block, D& x) {
    const int lane = lane_index();
    const Word tag = first_ + j;
    const Packet* const row = mail_.row[j % 2][block];
    for (;;) {
      Packet number;
      look(row + kMostWords, number);
      bool whole = has_tag(number, tag);
      if (lane < kWidth) {
        whole = look_for_element(row + lane * kWords<D>, tag, x) && whole;
      }
      if (__all_sync(~0u, whole)) {
        return value_of(number);
      }
      if (patience_.exhausted()) {
        return kNoRow;
      }
    }
  }

  LuMailbox& mail_;
  Word first_;
  Patience patience_;
};

#if __CUDA_ARCH__ >= 900 || !defined(__CUDA_ARCH__)

// Stores into the shared memory of other blocks of a cluster (cluster_memory.h). Shorter ways than
// through the cache, for up to kMostInCluster blocks.
template <class D, int kWidth>
class ClusterExchange {
 public:
  struct Shared {
    alignas(16) D row[2][kMostInCluster][kWidth];
    alignas(16) Packet weight[2][kMostInCluster];
    alignas(16) Packet number[2][kMostInCluster];
    alignas(16) Packet arrived[2];
  };

  __device__ ClusterExchange(Shared& shared, LuMailbox*, Word, const Info*) : shared_(shared) {}

  __device__ void open() {
    if (threadIdx.x == 0) {
      init_barriers(shared_.arrived);
    }
    meet_cluster();
  }
  // No block leaves while others may reach for its memory.
  __device__ void close() { meet_cluster(); }

  __device__ void put_row(int j, const D* row, Word number) {
    const int lane = lane_index();
    const unsigned barrier = shared_address(&shared_.arrived[j % 2]);
    const unsigned to = shared_address(&shared_.row[j % 2][blockIdx.x][lane < kWidth ? lane : 0]);
    const unsigned to_number = shared_address(&shared_.number[j % 2][blockIdx.x]);
    const D x = row[lane < kWidth ? lane : 0];
    for (unsigned q = 0; q < gridDim.x; ++q) {
      const unsigned there = in_block(barrier, q);
      if (lane < kWidth) {
        store_in_block(in_block(to, q), x, there);
      }
      if (lane == 0) {
        store_in_block(in_block(to_number, q), static_cast<Packet>(number), there);
      }
    }
  }

  __device__ Word agree(int j, const Candidate& mine, D& x) {
    constexpr unsigned kBytes = kWidth * sizeof(D) + 2 * sizeof(Packet);
    const int lane = lane_index();
    const auto blocks = static_cast<int>(gridDim.x);
    const unsigned barrier = shared_address(&shared_.arrived[j % 2]);
    if (lane == 0) {
      expect_bytes(barrier, gridDim.x * kBytes);
    }
    if (lane < blocks) {
      const auto weight = static_cast<Packet>(mine.weight.high) << 32 | mine.weight.low;
      store_in_block(in_block(shared_address(&shared_.weight[j % 2][blockIdx.x]), lane), weight,
                     in_block(barrier, lane));
    }
    if (mine.place == kNoRow) {  // bytes that the others wait for
      put_row(j, shared_.row[j % 2][blockIdx.x], kNoRow);
    }
    wait_for_bytes(barrier, (j / 2) % 2);
    Candidate best;
    if (lane < blocks) {
      const Packet weight = shared_.weight[j % 2][lane];
      best = {{static_cast<Word>(weight >> 32), static_cast<Word>(weight)},
              static_cast<Word>(shared_.number[j % 2][lane])};
    }
    const Word place = best_of_warp<kTwoWords<D>>(best).place;
    const int winner = __ffs(static_cast<int>(__ballot_sync(~0u, best.place == place))) - 1;
    x = lane < kWidth ? shared_.row[j % 2][winner][lane] : D{};
    return place;
  }

 private:
  Shared& shared_;
};

#else

// Not on these devices; never launched.
template <class D, int kWidth>
using ClusterExchange = MailExchange<D, kWidth>;

#endif

#endif  // __CUDACC__

}  // namespace jaxmg::tile
