// Numbers that thread blocks of a running grid tell each other by way of memory. Each 32-bit word
// travels with a tag, so that one read tells whether the number is there and what it is: no fence
// and no second trip. Aligned 64-bit pairs of a word and its tag are never torn.
#pragma once

#include <cstdint>

#include "tile/cuda/scalar.h"

namespace jaxmg::tile {

// A number of type D with its tags.
template <class D>
struct alignas(2 * sizeof(D) < 16 ? 2 * sizeof(D) : 16) Tagged {
  static constexpr int kWords = sizeof(D) / 4;
  std::uint32_t words[2 * kWords];  // word, tag, word, tag, ...
};

#ifdef __CUDACC__

__device__ inline void store_pair(std::uint32_t* p, std::uint32_t word, std::uint32_t tag) {
  asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(word), "r"(tag)
               : "memory");
}
__device__ inline void store_pairs(std::uint32_t* p, std::uint32_t a, std::uint32_t b,
                                   std::uint32_t tag) {
  asm volatile("st.volatile.global.v4.u32 [%0], {%1, %3, %2, %3};" ::"l"(p), "r"(a), "r"(b),
               "r"(tag)
               : "memory");
}

template <class D>
__device__ void put(Tagged<D>* to, D value, std::uint32_t tag) {
  constexpr int words = Tagged<D>::kWords;
  std::uint32_t w[words];
  memcpy(w, &value, sizeof(D));
  if constexpr (words == 1) {
    store_pair(to->words, w[0], tag);
  } else {
#pragma unroll
    for (int i = 0; i < words; i += 2) {
      store_pairs(to->words + 2 * i, w[i], w[i + 1], tag);
    }
  }
}

// What lies there now.
template <class D>
__device__ Tagged<D> look(const Tagged<D>* from) {
  Tagged<D> found;
  if constexpr (Tagged<D>::kWords == 1) {
    asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];"
                 : "=r"(found.words[0]), "=r"(found.words[1])
                 : "l"(from->words)
                 : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < 2 * Tagged<D>::kWords; i += 4) {
      asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(found.words[i]), "=r"(found.words[i + 1]), "=r"(found.words[i + 2]),
                     "=r"(found.words[i + 3])
                   : "l"(from->words + i)
                   : "memory");
    }
  }
  return found;
}

template <class D>
__device__ bool has_tag(const Tagged<D>& found, std::uint32_t tag) {
  bool all = true;
#pragma unroll
  for (int i = 0; i < Tagged<D>::kWords; ++i) {
    all = all && found.words[2 * i + 1] == tag;
  }
  return all;
}

template <class D>
__device__ D value_of(const Tagged<D>& found) {
  std::uint32_t w[Tagged<D>::kWords];
#pragma unroll
  for (int i = 0; i < Tagged<D>::kWords; ++i) {
    w[i] = found.words[2 * i];
  }
  D value;
  memcpy(&value, w, sizeof(D));
  return value;
}

#endif  // __CUDACC__

}  // namespace jaxmg::tile
