// How the blocks of one kernel tell each other small things through the second-level cache, without
// a barrier or a fence: every 32 bits travel with a tag that says to which message they belong, in
// one 64-bit word, and a reader waits until all tags are those that it wants.
#pragma once

#include "core/status.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {

using Word = unsigned int;
using Packet = unsigned long long;

#ifdef __CUDACC__

__device__ inline Packet packet(Word value, Word tag) {
  return static_cast<Packet>(tag) << 32 | value;
}
__device__ inline Word value_of(Packet p) {
  return static_cast<Word>(p);
}
__device__ inline bool has_tag(Packet p, Word tag) {
  return static_cast<Word>(p >> 32) == tag;
}

__device__ inline void post(Packet* to, Packet a) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(a) : "memory");
}
// Two at once, at an address that is a multiple of 16.
__device__ inline void post(Packet* to, Packet a, Packet b) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(a), "l"(b) : "memory");
}
__device__ inline void look(const Packet* from, Packet& a) {
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(a) : "l"(from) : "memory");
}
__device__ inline void look(const Packet* from, Packet& a, Packet& b) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(a), "=l"(b)
               : "l"(from)
               : "memory");
}

// Elements as words and back.
template <class D>
inline constexpr int kWords = sizeof(D) / sizeof(Word);

__device__ inline void to_words(float x, Word* w) {
  w[0] = __float_as_uint(x);
}
__device__ inline void to_words(double x, Word* w) {
  w[0] = static_cast<Word>(__double2hiint(x));
  w[1] = static_cast<Word>(__double2loint(x));
}
template <class R>
__device__ void to_words(DeviceComplex<R> x, Word* w) {
  to_words(x.re, w);
  to_words(x.im, w + kWords<R>);
}
__device__ inline void from_words(const Word* w, float& x) {
  x = __uint_as_float(w[0]);
}
__device__ inline void from_words(const Word* w, double& x) {
  x = __hiloint2double(static_cast<int>(w[0]), static_cast<int>(w[1]));
}
template <class R>
__device__ void from_words(const Word* w, DeviceComplex<R>& x) {
  from_words(w, x.re);
  from_words(w + kWords<R>, x.im);
}

template <class D>
__device__ void post_element(Packet* to, D x, Word tag) {
  constexpr int n = kWords<D>;
  Word w[n];
  to_words(x, w);
  if constexpr (n == 1) {
    post(to, packet(w[0], tag));
  } else {
#pragma unroll
    for (int k = 0; k < n; k += 2) {
      post(to + k, packet(w[k], tag), packet(w[k + 1], tag));
    }
  }
}
// False if it has not come yet.
template <class D>
__device__ bool look_for_element(const Packet* from, Word tag, D& x) {
  constexpr int n = kWords<D>;
  Packet p[n];
  if constexpr (n == 1) {
    look(from, p[0]);
  } else {
#pragma unroll
    for (int k = 0; k < n; k += 2) {
      look(from + k, p[k], p[k + 1]);
    }
  }
  bool whole = true;
  Word w[n];
#pragma unroll
  for (int k = 0; k < n; ++k) {
    whole = whole && has_tag(p[k], tag);
    w[k] = value_of(p[k]);
  }
  from_words(w, x);
  return whole;
}

// For how long a warp goes on looking. Its blocks may have to wait for other kernels to make room,
// which takes milliseconds; much more means that there is no room for all of them.
class Patience {
 public:
  __device__ explicit Patience(const Info* info) : info_(info) {}

  // Called by all lanes of a warp after each look in vain; true if it is time to give up, or if
  // another block has.
  __device__ bool exhausted() {
    if (++looks_ % kLooksBetween != 0) {
      return false;
    }
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    since_ = looks_ == kLooksBetween ? now : since_;
    const int kind = *static_cast<const volatile std::int32_t*>(&info_->kind);
    const bool enough = now > since_ + kNanoseconds;
    return __any_sync(~0u, enough || kind == static_cast<int>(Kind::communication)) != 0;
  }

 private:
  static constexpr unsigned kLooksBetween = 256;
  static constexpr unsigned long long kNanoseconds = 10'000'000'000ull;

  const Info* info_;
  unsigned looks_ = 0;
  unsigned long long since_ = 0;
};

#endif  // __CUDACC__

}  // namespace jaxmg::tile
