// Bulge chasing: a band matrix becomes tridiagonal, one sweep a column.
//
// Sweep s makes column s tridiagonal by a reflector on rows s + 1 .. s + b. Applied from both sides
// it fills the b x b block below with a bulge, whose first column the next reflector clears, b rows
// further down, and so on to the end. What the bulge has left over is met by the next sweep, one
// row further down. Sweep s may do step k when sweep s - 1 has done its step k + 1.
//
//   S. Bischof, B. Lang, X. Sun, A framework for symmetric band reduction. LAPACK: xHB2ST_KERNELS.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <complex>
#include <limits>
#include <thread>
#include <vector>

#include "tile/cpu/blas.h"
#include "tile/cpu/cpu.h"
#include "tile/cpu/element.h"
#include "tile/cpu/pool.h"
#include "tile/sweep_products.h"

namespace jaxmg::tile {
namespace {

// Products of complex numbers without the library's care for infinities.
template <class R>
R times(R x, R y) {
  return x * y;
}
template <class R>
std::complex<R> times(std::complex<R> x, std::complex<R> y) {
  return {x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real()};
}
template <class T>
Real<T> square(T x) {
  return std::real(x) * std::real(x) + std::imag(x) * std::imag(x);
}

// x (n elements) <- v with v_0 = 1; returns tau and sets beta, which is real, so that
//   (I - tau v v^H)^H x = beta e_0.
template <class T>
T reflector(Size n, T* x, T& beta) {
  using R = Real<T>;
  R tail = 0;
  for (Size i = 1; i < n; ++i) {
    tail += square(x[i]);
  }
  const T alpha = x[0];
  const R imaginary = is_complex_v<T> ? std::imag(alpha) : R(0);
  x[0] = T(1);
  // A matrix of norm about 1: what is this small does not count.
  if (tail + imaginary * imaginary <= kLeastSquare<R>) {
    std::fill(x + 1, x + n, T(0));
    beta = T(std::real(alpha));
    return T(0);
  }
  const R norm = std::sqrt(square(alpha) + tail);
  const R b = std::real(alpha) > 0 ? -norm : norm;
  const T scale = T(1) / (alpha - T(b));
  for (Size i = 1; i < n; ++i) {
    x[i] = times(x[i], scale);
  }
  beta = T(b);
  return (T(b) - alpha) / T(b);
}

// One sweep's place in the band, and memory for a few vectors.
template <class T>
class Sweep {
 public:
  Sweep(const SweepBatch& batch, Size s, T* band, Size ld, T* v)
      : n_(batch.n),
        b_(batch.b),
        s_(s),
        band_(band),
        ld_(ld),
        kept_(v ? v + batch.place(s) : nullptr),
        v_(static_cast<std::size_t>(b_)),
        next_(static_cast<std::size_t>(b_)),
        w_(static_cast<std::size_t>(b_)) {}

  Size steps() const { return ceil_div(n_ - 1 - s_, b_); }

  void step(Size k) {
    const Size row = s_ + 1 + k * b_;
    const Size length = std::min(b_, n_ - row);
    if (k == 0) {
      T* const column = at(row, s_);
      std::copy_n(column, length, v_.begin());
      tau_ = reflector(length, v_.data(), column[0]);
      std::fill(column + 1, column + length, T(0));
    } else {
      below(row, length);
    }
    diagonal(row, length);
    if (kept_) {
      T* const target = kept_ + k * b_;
      std::copy_n(v_.begin(), length, target);
      target[0] = tau_;
    }
  }

 private:
  T* at(Size row, Size column) const { return band_ + (row - column) + column * ld_; }

  // The block below the one that the last reflector acted on: from the right with that, from the
  // left with a new one that clears its first column.
  void below(Size row, Size length) {
    const Size stride = ld_ - 1;  // to the next column, same row
    T* const block = at(row, row - b_);
    // B <- B - tau (B v) v^H
    std::fill_n(w_.begin(), length, T(0));
    for (Size j = 0; j < b_; ++j) {
      const T x = v_[index(j)];
      const T* const column = block + j * stride;
      for (Size i = 0; i < length; ++i) {
        w_[index(i)] += times(column[i], x);
      }
    }
    for (Size j = 0; j < b_; ++j) {
      const T x = times(tau_, conjugate(v_[index(j)]));
      T* const column = block + j * stride;
      for (Size i = 0; i < length; ++i) {
        column[i] -= times(w_[index(i)], x);
      }
    }
    std::copy_n(block, length, next_.begin());
    tau_ = reflector(length, next_.data(), block[0]);
    std::fill(block + 1, block + length, T(0));
    v_.swap(next_);
    // B <- B - conj(tau) v (v^H B), but for the first column
    const T factor = conjugate(tau_);
    for (Size j = 1; j < b_; ++j) {
      T* const column = block + j * stride;
      T sum(0);
      for (Size i = 0; i < length; ++i) {
        sum += times(conjugate(v_[index(i)]), column[i]);
      }
      const T x = times(factor, sum);
      for (Size i = 0; i < length; ++i) {
        column[i] -= times(v_[index(i)], x);
      }
    }
  }

  // D <- (I - tau v v^H)^H D (I - tau v v^H), of which the lower triangle is kept:
  //   w = tau D v - |tau|^2 (v^H D v) v / 2,   D <- D - w v^H - v w^H
  void diagonal(Size row, Size length) {
    const Size stride = ld_ - 1;
    T* const block = at(row, row);
    std::fill_n(w_.begin(), length, T(0));
    for (Size j = 0; j < length; ++j) {
      const T* const column = block + j * stride;
      const T x = v_[index(j)];
      T sum = times(T(std::real(column[j])), x);
      for (Size i = j + 1; i < length; ++i) {
        w_[index(i)] += times(column[i], x);
        sum += times(conjugate(column[i]), v_[index(i)]);
      }
      w_[index(j)] += sum;
    }
    Real<T> product = 0;
    for (Size i = 0; i < length; ++i) {
      product += std::real(times(conjugate(v_[index(i)]), w_[index(i)]));
    }
    const T half(square(tau_) * product / 2);
    for (Size i = 0; i < length; ++i) {
      w_[index(i)] = times(tau_, w_[index(i)]) - times(half, v_[index(i)]);
    }
    for (Size j = 0; j < length; ++j) {
      T* const column = block + j * stride;
      const T x = conjugate(v_[index(j)]), y = conjugate(w_[index(j)]);
      for (Size i = j; i < length; ++i) {
        column[i] -= times(w_[index(i)], x) + times(v_[index(i)], y);
      }
      if constexpr (is_complex_v<T>) {
        column[j] = T(std::real(column[j]));
      }
    }
  }

  static std::size_t index(Size i) { return static_cast<std::size_t>(i); }

  Size n_, b_, s_;
  T* band_;
  Size ld_;
  T* kept_;  // where this sweep's reflectors go
  std::vector<T> v_, next_, w_;
  T tau_{};
};

// Threads take sweeps in turn and follow each other at two steps' distance.
template <class T>
void chase_in_parallel(CpuLane& lane, const SweepBatch& batch, T* band, Size ld, T* v) {
  std::vector<std::atomic<Size>> done(static_cast<std::size_t>(batch.count));
  for_each(lane.priority(), true, batch.count, [&](Size task) {
    Sweep<T> sweep(batch, batch.first + task, band, ld, v);
    auto& mine = done[static_cast<std::size_t>(task)];
    const Size steps = sweep.steps();
    Size ahead = 0;  // steps of the sweep before that are known to be done
    for (Size k = 0; k < steps; ++k) {
      while (task > 0 && ahead < k + 2) {
        ahead = done[static_cast<std::size_t>(task - 1)].load(std::memory_order_acquire);
        if (ahead < k + 2) {
          std::this_thread::yield();
        }
      }
      sweep.step(k);
      mine.store(k + 1, std::memory_order_release);
    }
    mine.store(std::numeric_limits<Size>::max(), std::memory_order_release);
  });
}

}  // namespace

template <class T>
void Cpu::chase(Lane& lane, const SweepBatch& batch, T* band, Size ld, T* v, void*, Info*) {
  if (batch.count <= 0) {
    return;
  }
  if (v) {
    std::fill_n(v, batch.elements(), T(0));
  }
  const double size = static_cast<double>(batch.rows()) * static_cast<double>(batch.count);
  if (batch.count > 1 && batch.rows() > 4 * batch.b &&
      worth_spreading(12 * size * static_cast<double>(batch.b)) && Pool::instance().threads() > 1) {
    return chase_in_parallel(lane, batch, band, ld, v);
  }
  for (Size s = batch.first; s < batch.first + batch.count; ++s) {
    Sweep<T> sweep(batch, s, band, ld, v);
    for (Size k = 0; k < sweep.steps(); ++k) {
      sweep.step(k);
    }
  }
}

namespace {

// T of the product of the reflectors, column by column:
//   T_jj = tau_j,  T(0:j, j) = -tau_j T(0:j, 0:j) (V(:, 0:j)^H v_j)
template <class T>
void pack_group(CpuLane& lane, const SweepGroup& group, const T* v, T* packed) {
  const Size ld = group.window(), count = group.count, rows = group.rows();
  const double size = static_cast<double>(group.packed()) * static_cast<double>(count);
  for_each(lane.priority(), worth_spreading(4 * size), group.steps(), [&](Size k) {
    const auto index = [](Size i) { return static_cast<std::size_t>(i); };
    T* const vk = packed + k * group.packed_step();
    T* const vt = vk + ld * count;
    std::vector<T> t(index(count * count)), tau(index(count)), gram(index(count * count));
    std::fill_n(vk, group.packed_step(), T(0));
    for (Size j = 0; j < count; ++j) {
      const Size begin = k * group.b + j;  // in the rows of the group
      if (begin < rows) {
        const T* const source = v + begin + j * rows;
        tau[index(j)] = source[0];
        vk[j + j * ld] = T(1);
        const Size length = std::min(group.b, rows - begin);
        std::copy(source + 1, source + length, vk + j + 1 + j * ld);
      }
    }
    blas::gemm(Op::conj_transpose, Op::none, count, count, ld, T(1), vk, ld, vk, ld, T(0),
               gram.data(), count);
    for (Size j = 0; j < count; ++j) {
      for (Size i = 0; i < j; ++i) {
        T sum(0);
        for (Size l = i; l < j; ++l) {
          sum += times(t[index(i + l * count)], gram[index(l + j * count)]);
        }
        t[index(i + j * count)] = times(-tau[index(j)], sum);
      }
      t[index(j + j * count)] = tau[index(j)];
    }
    blas::gemm(Op::none, Op::none, ld, count, count, T(1), vk, ld, t.data(), count, T(0), vt, ld);
  });
}

}  // namespace

template <class T>
void Cpu::pack_sweeps(Lane& lane, const SweepBatch& batch, const T* v, T* packed) {
  for (Size i = 0; i < batch.groups(); ++i) {
    pack_group(lane, batch.group(i), v + batch.offset(i), packed);
    packed += batch.group(i).packed();
  }
}

template <class T>
void Cpu::apply_sweeps(Lane& lane, const SweepBatch& batch, const T* packed, Size columns, T* x,
                       Size ldx, T* products, Info*) {
  apply_sweeps_by_products<Cpu>(lane, batch, packed, columns, x, ldx, products);
}

#define JAXMG_INSTANTIATE(T)                                                         \
  template void Cpu::chase<T>(Lane&, const SweepBatch&, T*, Size, T*, void*, Info*); \
  template void Cpu::pack_sweeps<T>(Lane&, const SweepBatch&, const T*, T*);         \
  template void Cpu::apply_sweeps<T>(Lane&, const SweepBatch&, const T*, Size, T*, Size, T*, Info*);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)

}  // namespace jaxmg::tile
