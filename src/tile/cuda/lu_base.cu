// LU factors of a few columns, which stay in registers from beginning to end: a thread has whole
// rows.
//
// For each column the blocks agree on a pivot by one exchange through a mailbox (mailbox.h): every
// block posts the size of its best candidate and that candidate's row, each reads all sizes and
// then the row of the winner. There is no barrier over the grid, and rows do not move before the
// end: pivots are only marked, and each row is written once, to where the interchanges of LAPACK
// would have brought it. A warp without rows does the waiting, and inverts the triangle while
// others update their rows.
//
// Blocks wait for each other, so all of them must be on the device at once: one on each of its
// multiprocessors at most, and nothing else there that does not end by itself.
#include <algorithm>

#include "tile/cuda/launch.h"
#include "tile/cuda/lu_base.h"
#include "tile/cuda/mailbox.h"
#include "tile/cuda/scalar.h"

namespace jaxmg::tile {
namespace {

constexpr int kBaseThreads = 512;               // more would leave each with too few registers
constexpr int kRowThreads = kBaseThreads - 32;  // the last warp has no rows
constexpr int kRowWarps = kRowThreads / 32;
constexpr int kMostBlocks = 160;
constexpr int kMostWords = 64;  // of a row
constexpr int kMostColumns = 32;
constexpr Word kNone = ~0u;

// Of one lane. Messages of a column stay until the next but one is posted, which happens only after
// all blocks have read them.
struct LuMailbox {
  Packet size[2][kMostBlocks][2];
  Packet row[2][kMostBlocks][kMostWords + 2];  // behind its words, the row's number
};

// Rows of a thread, so that they fill about half of its registers.
template <class D, int kWidth>
inline constexpr int kRowsEach = kMostWords / (kWidth * kWords<D>);

template <class D>
struct BaseTask {
  D* a;
  Size lda;
  int rows;
  int columns;
  Size first;
  std::int32_t* pivots;
  D* x;
  Size ldx;
  LuMailbox* mail;
  Word tag;  // of column 0; the others follow
  Size position;
  Size equation;
  Info* info;
};

// How large a candidate is, as two words that are ordered as the sizes are, NaN last; no candidate
// comes before all.
struct Weight {
  Word high = 0;
  Word low = 0;
};
__device__ Weight weight_of(float x) {
  return {(__float_as_uint(x) & 0x7fffffffu) + 1, 0};
}
__device__ Weight weight_of(double x) {
  return {(static_cast<Word>(__double2hiint(x)) & 0x7fffffffu) + 1,
          static_cast<Word>(__double2loint(x))};
}
template <class R>
__device__ Weight weight_of(DeviceComplex<R> x) {  // LAPACK's measure
  return weight_of(fabs(x.re) + fabs(x.im));
}
template <class D>
inline constexpr bool kTwoWords = sizeof(decltype(real_part(D{}))) == 8;

__device__ bool exceeds(Weight a, Weight b) {
  return a.high > b.high || (a.high == b.high && a.low > b.low);
}

struct Candidate {
  Weight weight;
  Word place = kNone;
};

// The best candidate of a warp's lanes, the lowest place among equal ones.
template <bool kTwo>
__device__ Candidate best_of_warp(Candidate c) {
  const Word high = __reduce_max_sync(~0u, c.weight.high);
  bool best = c.weight.high == high;
  Word low = 0;
  if constexpr (kTwo) {
    low = __reduce_max_sync(~0u, best ? c.weight.low : 0);
    best = best && c.weight.low == low;
  }
  const Word place = __reduce_min_sync(~0u, best ? c.place : kNone);
  return {{high, low}, place};
}

// What divides a column: x / pivot = (x scale) inverse. Only pivots whose reciprocals might
// overflow are scaled; a zero divides nothing.
template <class D>
struct Divisor {
  decltype(real_part(D{})) scale;
  D inverse;
};
template <class R>
inline constexpr R kSmallPivot = sizeof(R) == 4 ? R(1e-37) : R(1e-306);
template <class R>
inline constexpr R kSmallScale = sizeof(R) == 4 ? R(0x1p100) : R(0x1p1000);

template <class R>
__device__ Divisor<R> divisor_of(R x) {
  const R scale = fabs(x) < kSmallPivot<R> ? kSmallScale<R> : R{1};
  return {scale, x == R{0} ? R{0} : R{1} / (x * scale)};
}
// 1 / (p + i q) = (1 - i t) / (p + q t) with t = q / p, |q| <= |p|
template <class R>
__device__ Divisor<DeviceComplex<R>> divisor_of(DeviceComplex<R> x) {
  const R larger = fmax(fabs(x.re), fabs(x.im));
  const R scale = larger < kSmallPivot<R> ? kSmallScale<R> : R{1};
  const R re = x.re * scale, im = x.im * scale;
  if (re == R{0} && im == R{0}) {
    return {scale, {R{0}, R{0}}};
  }
  if (fabs(re) >= fabs(im)) {
    const R t = im / re;
    const R d = R{1} / (re + im * t);
    return {scale, {d, -t * d}};
  }
  const R t = re / im;
  const R d = R{1} / (im + re * t);
  return {scale, {t * d, -d}};
}

template <class R>
__device__ R times(R x, R scale) {
  return x * scale;
}
template <class R>
__device__ DeviceComplex<R> times(DeviceComplex<R> x, R scale) {
  return {x.re * scale, x.im * scale};
}
template <class R>
__device__ R minus_product(R x, R a, R b) {
  return fma(-a, b, x);
}
template <class R>
__device__ DeviceComplex<R> minus_product(DeviceComplex<R> x, DeviceComplex<R> a,
                                          DeviceComplex<R> b) {
  return {fma(a.im, b.im, fma(-a.re, b.re, x.re)), fma(-a.im, b.re, fma(-a.re, b.im, x.im))};
}

// The next column; what the compiler knows of its address would be kept in registers otherwise.
template <class P>
__device__ void advance(P*& p, Size lda) {
  p += lda;
  asm volatile("" : "+l"(p));
}

// The block that has the best candidate, the lowest of equal ones; -1: no patience left.
template <bool kTwo>
__device__ int await_winner(const LuMailbox& mail, int parity, Word tag, Patience& patience) {
  constexpr int kEach = kMostBlocks / 32;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int blocks = static_cast<int>(gridDim.x);
  Packet high[kEach], low[kEach];
  for (;;) {
    bool whole = true;
#pragma unroll
    for (int q = 0; q < kEach; ++q) {
      if (lane + 32 * q < blocks) {
        look(mail.size[parity][lane + 32 * q], high[q], low[q]);
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
    if (patience.exhausted()) {
      return -1;
    }
  }
  Candidate best;
#pragma unroll
  for (int q = 0; q < kEach; ++q) {
    if (lane + 32 * q < blocks) {
      const Weight weight = {value_of(high[q]), value_of(low[q])};
      if (best.place == kNone || exceeds(weight, best.weight)) {
        best = {weight, static_cast<Word>(lane + 32 * q)};
      }
    }
  }
  return static_cast<int>(best_of_warp<kTwo>(best).place);
}

// Element `lane` of a block's row, and the row's number; kNone: no patience left.
template <class D, int kWidth>
__device__ Word await_row(const LuMailbox& mail, int parity, int block, Word tag,
                          Patience& patience, D& element) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const Packet* const row = mail.row[parity][block];
  for (;;) {
    Packet number;
    look(row + kMostWords, number);
    bool whole = has_tag(number, tag);
    if (lane < kWidth) {
      whole = look_for_element(row + lane * kWords<D>, tag, element) && whole;
    }
    if (__all_sync(~0u, whole)) {
      return value_of(number);
    }
    if (patience.exhausted()) {
      return kNone;
    }
  }
}

// Rows pivots_j of step j where no row has moved yet, to those of LAPACK, where they have.
template <int kWidth>
__device__ void trace_swaps(const Word* pivot_row, int* swaps) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int at = lane < kWidth ? static_cast<int>(pivot_row[lane]) : -1;
#pragma unroll
  for (int s = 0; s < kWidth; ++s) {
    const int other = __shfl_sync(~0u, at, s);
    if (lane == 0) {
      swaps[s] = other;
    }
    at = at == s ? other : at == other ? s : at;
  }
}

// Row j of the inverse of a unit lower triangle, a lane a column: x_j = e_j - sum_k<j l_jk x_k.
template <class D, int kWidth>
__device__ D inverse_row(int j, const D (&l)[kWidth][kWidth + 1], D (&x)[kWidth][kWidth + 1]) {
  using R = decltype(real_part(D{}));
  const int lane = static_cast<int>(threadIdx.x) % 32;
  D sum = element<D>(R{0});
  if (lane < kWidth) {
    sum = element<D>(lane == j ? R{1} : R{0});
    D other = element<D>(R{0});
#pragma unroll 4
    for (int k = 0; k + 1 < j; k += 2) {
      sum = minus_product(sum, l[j][k], x[k][lane]);
      other = minus_product(other, l[j][k + 1], x[k + 1][lane]);
    }
    if (j % 2 != 0) {
      sum = minus_product(sum, l[j][j - 1], x[j - 1][lane]);
    }
    sum = j < lane ? element<D>(R{0}) : sum + other;
    x[j][lane] = sum;
  }
  __syncwarp();
  return sum;
}

template <class D, int kWidth>
__global__ void __launch_bounds__(kBaseThreads, 1) lu_base_kernel(const BaseTask<D> task) {
  constexpr int kEach = kRowsEach<D, kWidth>;
  constexpr bool kTwo = kTwoWords<D>;
  constexpr int kActive = -1, kOutside = -2;
  __shared__ Word warp_high[kRowWarps], warp_low[kRowWarps], warp_place[kRowWarps];
  __shared__ D upper[kWidth][kWidth + 1];  // rows of pivots, as they were chosen: L and U
  __shared__ D inverse[kWidth][kWidth + 1];
  __shared__ D candidate[kWidth];
  __shared__ Divisor<D> divisor;
  __shared__ Word pivot_row[kWidth];
  __shared__ int swaps[kWidth];
  __shared__ bool gave_up;
  const int tid = static_cast<int>(threadIdx.x);
  const int lane = tid % 32, warp = tid / 32;
  const bool has_rows = warp < kRowWarps;
  const bool alone = gridDim.x == 1;
  Patience patience(task.info);

  D a[kEach][kWidth];
  Word row[kEach];
  int place[kEach];  // where an eliminated row goes
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    row[r] = blockIdx.x * static_cast<Word>(kRowThreads * kEach) +
             static_cast<Word>(r * kRowThreads + tid);
    place[r] = has_rows && row[r] < static_cast<Word>(task.rows) ? kActive : kOutside;
    const D* from = task.a + row[r];
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      a[r][c] = place[r] == kActive && c < task.columns ? *from : D{};
      advance(from, task.lda);
    }
  }
  if (tid < kWidth) {
    pivot_row[tid] = static_cast<Word>(tid);
  }
  if (tid == 0) {
    const int kind = *static_cast<const volatile std::int32_t*>(&task.info->kind);
    gave_up = kind == static_cast<int>(Kind::communication);
  }
  __syncthreads();
  bool going = !gave_up;

#pragma unroll
  for (int j = 0; j < kWidth; ++j) {
    if (going && j < task.columns) {
      constexpr int parities = 2;
      const int parity = j % parities;
      const Word tag = task.tag + static_cast<Word>(j);
      if (has_rows) {
        Candidate best;
#pragma unroll
        for (int r = 0; r < kEach; ++r) {
          const Weight weight = weight_of(a[r][j]);
          if (place[r] == kActive && (best.place == kNone || exceeds(weight, best.weight))) {
            best = {weight, row[r]};
          }
        }
        best = best_of_warp<kTwo>(best);
        if (lane == 0) {
          warp_high[warp] = best.weight.high;
          warp_low[warp] = best.weight.low;
          warp_place[warp] = best.place;
        }
      }
      __syncthreads();
      Candidate best;
      if (lane < kRowWarps) {
        best = {{warp_high[lane], warp_low[lane]}, warp_place[lane]};
      }
      best = best_of_warp<kTwo>(best);
      if (has_rows) {
        bool mine = false;
#pragma unroll
        for (int r = 0; r < kEach; ++r) {
          if (place[r] == kActive && row[r] == best.place) {
            mine = true;
#pragma unroll
            for (int c = 0; c < kWidth; ++c) {
              candidate[c] = a[r][c];
            }
          }
        }
        if (__any_sync(~0u, mine)) {
          __syncwarp();
          if (alone) {
            if (lane < kWidth) {
              upper[j][lane] = candidate[lane];
            }
            if (lane == 0) {
              pivot_row[j] = best.place;
              divisor = divisor_of(candidate[j]);
            }
          } else {
            Packet* const to = task.mail->row[parity][blockIdx.x];
            if (lane < kWidth) {
              post_element(to + lane * kWords<D>, candidate[lane], tag);
            }
            if (lane == 0) {
              post(to + kMostWords, packet(best.place, tag));
            }
          }
        }
      } else if (!alone) {
        if (lane == 0) {
          post(task.mail->size[parity][blockIdx.x], packet(best.weight.high, tag),
               packet(best.weight.low, tag));
        }
        const int winner = await_winner<kTwo>(*task.mail, parity, tag, patience);
        D x{};
        const Word number =
            winner < 0 ? kNone : await_row<D, kWidth>(*task.mail, parity, winner, tag, patience, x);
        if (lane < kWidth) {
          upper[j][lane] = x;
        }
        if (lane == j) {
          divisor = divisor_of(x);
        }
        if (lane == 0) {
          pivot_row[j] = number == kNone ? static_cast<Word>(j) : number;
          gave_up = number == kNone;
        }
      }
      __syncthreads();
      going = !gave_up;
      if (has_rows) {
        const Divisor<D> by = divisor;
        const Word chosen = pivot_row[j];
#pragma unroll
        for (int r = 0; r < kEach; ++r) {
          place[r] = row[r] == chosen && place[r] == kActive ? j : place[r];
          const bool active = place[r] == kActive;
          const D l = active ? times(a[r][j], by.scale) * by.inverse : D{};
          a[r][j] = active ? l : a[r][j];
#pragma unroll
          for (int c = j + 1; c < kWidth; ++c) {
            a[r][c] = minus_product(a[r][c], l, upper[j][c]);
          }
        }
      } else if (going) {
        if (blockIdx.x == gridDim.x - 1) {
          const D x = inverse_row<D, kWidth>(j, upper, inverse);
          if (lane < task.columns) {
            task.x[j + lane * task.ldx] = x;
          }
        }
        const D pivot = upper[j][j];
        if (blockIdx.x == 0 && lane == 0 && real_part(pivot) == 0 && imaginary_part(pivot) == 0 &&
            task.info->kind == 0) {
          task.info->kind = static_cast<std::int32_t>(Kind::singular);
          task.info->position = static_cast<std::int32_t>(task.position + j + 1);
          task.info->spare[1] = static_cast<std::int32_t>(task.equation + j + 1);
        }
      }
    }
  }

  if (warp == 0) {
    trace_swaps<kWidth>(pivot_row, swaps);
  }
  __syncthreads();
  if (blockIdx.x == 0 && tid < task.columns) {
    const int other = going ? swaps[tid] : tid;
    task.pivots[tid] = static_cast<std::int32_t>(task.first + other);
  }
  if (!going) {
    if (tid == 0) {
      atomicExch(&task.info->kind, static_cast<std::int32_t>(Kind::communication));
    }
    return;
  }
#pragma unroll
  for (int r = 0; r < kEach; ++r) {
    if (place[r] == kOutside) {
      continue;
    }
    int to = place[r] == kActive ? static_cast<int>(row[r]) : place[r];
    if (place[r] == kActive && to < task.columns) {
#pragma unroll 2
      for (int s = 0; s < task.columns; ++s) {
        const int other = swaps[s];
        to = to == s ? other : to == other ? s : to;
      }
    }
    D* out = task.a + to;
#pragma unroll
    for (int c = 0; c < kWidth; ++c) {
      if (c < task.columns) {
        *out = a[r][c];
      }
      advance(out, task.lda);
    }
  }
}

template <class D, int kWidth>
constexpr Size rows_of_block() {
  return kRowThreads * kRowsEach<D, kWidth>;
}

// visit.template operator()<kWidth>() for the widths that suit the type, wide ones first, until
// one returns true.
template <class D, class Visit>
bool any_width(const Visit& visit) {
  if constexpr (kWords<D> <= 2) {
    if (visit.template operator()<32>()) {
      return true;
    }
  }
  return visit.template operator()<16>() || visit.template operator()<8>();
}

}  // namespace

template <class T>
int lu_base_width(const CudaLane& lane, Size m) {
  using D = DeviceType<T>;
  int found = 0;
  for (const int blocks : {lane.blocks(), lane.multiprocessors()}) {
    const Size most = lane.alone() ? std::min(kMostBlocks, blocks) : 1;
    any_width<D>([&]<int kWidth>() {
      if (found == 0 && m <= most * rows_of_block<D, kWidth>()) {
        found = kWidth;
      }
      return found > 0;
    });
  }
  return found;
}

template <class T>
void lu_base(CudaLane& lane, int width, Size m, Size n, T* a, Size lda, Size first,
             std::int32_t* pivots, T* x, Size ldx, const PanelReport& report) {
  using D = DeviceType<T>;
  BaseTask<D> task;
  task.a = on_device(a);
  task.lda = lda;
  task.rows = narrow(m);
  task.columns = narrow(n);
  task.first = first;
  task.pivots = pivots;
  task.x = on_device(x);
  task.ldx = ldx;
  task.mail = static_cast<LuMailbox*>(lane.mailbox(static_cast<Size>(sizeof(LuMailbox))));
  task.tag = lane.next_tags(kMostColumns);
  task.position = report.position;
  task.equation = report.equation;
  task.info = report.info;
  any_width<D>([&]<int kWidth>() {
    if (kWidth != width) {
      return false;
    }
    const auto blocks = static_cast<unsigned>(ceil_div(m, rows_of_block<D, kWidth>()));
    lu_base_kernel<D, kWidth><<<blocks, kBaseThreads, 0, lane.stream()>>>(task);
    JAXMG_CUDA_CHECK(cudaGetLastError());
    return true;
  });
}

template <class T>
void load_lu_base() {
  any_width<DeviceType<T>>([&]<int kWidth>() {
    cudaFuncAttributes attributes;
    const auto kernel = &lu_base_kernel<DeviceType<T>, kWidth>;
    JAXMG_CUDA_CHECK(cudaFuncGetAttributes(&attributes, kernel));
    return false;
  });
}

#define JAXMG_INSTANTIATE(T)                                                                    \
  template int lu_base_width<T>(const CudaLane&, Size);                                         \
  template void lu_base<T>(CudaLane&, int, Size, Size, T*, Size, Size, std::int32_t*, T*, Size, \
                           const PanelReport&);                                                 \
  template void load_lu_base<T>();
JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
#undef JAXMG_INSTANTIATE

}  // namespace jaxmg::tile
