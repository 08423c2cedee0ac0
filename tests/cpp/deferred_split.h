// 32-bit numbers in half-precision parts on lanes that run late, as GPUs have them: the parts and
// the scaling are theirs, bit by bit; their products are added up by the CPU. The end of
// deferred_device.h, which includes it.
#pragma once

#include "half.h"

namespace jaxmg::test {

using Halves = Deferred::Half;

// hi and lo of 2^10 x.
struct Parts {
  Halves hi;
  Halves lo;
  explicit Parts(float x, float scale = 1024) {
    hi.bits = to_half(scale * x);
    lo.bits = to_half(scale * x - from_half(hi.bits));
  }
};
inline Halves minus(Halves x) {
  x.bits = static_cast<std::uint16_t>(x.bits ^ 0x8000);
  return x;
}

inline std::vector<float> floats(Size m, Size n, const Halves* src, Size ld) {
  std::vector<float> numbers;
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < m; ++i) {
      numbers.push_back(from_half(src[i + j * ld].bits));
    }
  }
  return numbers;
}

// c <- c - scale A op(B)
inline void subtract_halves(Size m, Size n, Size k, float scale, const Halves* a, Size lda, Op op,
                            const Halves* b, Size ldb, float* c, Size ldc) {
  tile::CpuLane now(tile::Priority::normal);
  const bool transposed = op == Op::transpose;
  const auto left = floats(m, k, a, lda);
  const auto right = transposed ? floats(n, k, b, ldb) : floats(k, n, b, ldb);
  Deferred::Cpu::gemm<float>(now, Op::none, op, m, n, k, -scale, left.data(), m, right.data(),
                             transposed ? n : k, 1, c, ldc);
}

// [hi, lo, hi, hi]; complex: as tile/cuda/split_complex.cu has them.
template <class T>
void Deferred::split(Lane& lane, Size m, Size n, const T* src, Size lds, Half* dst, Size ldd) {
  lane.put("split", [=] {
    const Size block = n * ldd;
    Half* const right = dst + 12 * block;
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        const Parts re(std::real(src[i + j * lds]));
        const Size place = i + j * ldd;
        if constexpr (is_complex_v<T>) {
          const Parts im(std::imag(src[i + j * lds]));
          for (const Size which : {0, 1, 2}) {
            const bool small = which == 0;
            Half* const straight = dst + 4 * which * block + 2 * place;
            Half* const turned = straight + 2 * block;
            straight[0] = small ? re.lo : re.hi;
            straight[1] = small ? im.lo : im.hi;
            turned[0] = straight[1];
            turned[1] = minus(straight[0]);
            right[2 * which * block + place] = which == 1 ? re.lo : re.hi;
            right[(2 * which + 1) * block + place] = which == 1 ? im.lo : im.hi;
          }
        } else {
          for (const Size which : {0, 1, 2, 3}) {
            dst[which * block + place] = which == 1 ? re.lo : re.hi;
          }
        }
      }
    }
  });
}

template <class T>
void Deferred::subtract_split_product(Lane& lane, Size m, Size n, Size k, const Half* parts,
                                      Size ld, Size row, Size row_stride, Size col, Size col_stride,
                                      T* c, Size ldc, Size stride_c, Size count) {
  lane.put("subtract_split_product", [=] {
    constexpr Size two = is_complex_v<T> ? 2 : 1;
    const Half* const left = is_complex_v<T> ? parts : parts + k * ld;
    const Half* const right = is_complex_v<T> ? parts + 12 * k * ld : parts;
    for (Size i = 0; m > 0 && n > 0 && i < count; ++i) {
      subtract_halves(two * m, n, 3 * two * k, 0x1p-20F, left + two * (row + i * row_stride),
                      two * ld, Op::transpose, right + col + i * col_stride, ld,
                      reinterpret_cast<float*>(c + i * stride_c), two * ldc);
    }
  });
}

// [hi, lo, hi, hi]; complex: [lo, hi, hi], columns x and i x by turns.
template <class T>
void Deferred::split_left(Lane& lane, Size m, Size n, const T* src, Size lds, Half* dst, Size ldd) {
  if constexpr (!is_complex_v<T>) {
    return split<T>(lane, m, n, src, lds, dst, ldd);
  }
  lane.put("split_left", [=] {
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        const Parts re(std::real(src[i + j * lds])), im(std::imag(src[i + j * lds]));
        for (const Size which : {0, 1, 2}) {
          Half* const straight = dst + 4 * which * n * ldd + 4 * j * ldd + 2 * i;
          Half* const turned = straight + 2 * ldd;
          straight[0] = which == 0 ? re.lo : re.hi;
          straight[1] = which == 0 ? im.lo : im.hi;
          turned[0] = minus(straight[1]);
          turned[1] = straight[0];
        }
      }
    }
  });
}

template <class T>
void Deferred::subtract_split_rows(Lane& lane, Size m, Size n, Size k, const Half* a, Size lda,
                                   const T* b, Size ldb, Half* parts, T* c, Size ldc) {
  if (m <= 0 || n <= 0) {
    return;
  }
  // The largest element of b comes to 2^14 .. 2^15.
  const auto scale = std::make_shared<float>(1.0F);
  constexpr Size two = is_complex_v<T> ? 2 : 1;
  const auto* const x = reinterpret_cast<const float*>(b);
  const Size inner = two * k;
  lane.put("split of rows", [=] {
    float largest = 0;
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < inner; ++i) {
        largest = std::max(largest, std::abs(x[i + two * j * ldb]));
      }
    }
    if (largest > 0 && std::isfinite(largest)) {
      *scale = std::ldexp(1.0F, std::min(14 - std::ilogb(largest), 100));
    }
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < inner; ++i) {
        const Parts y(x[i + two * j * ldb], *scale);
        Half* const out = parts + i + 3 * inner * j;
        out[0] = y.hi;
        out[inner] = y.lo;
        out[2 * inner] = y.hi;
      }
    }
  });
  lane.put("subtract_split_rows", [=] {
    subtract_halves(two * m, n, 3 * inner, 0x1p-10F / *scale, is_complex_v<T> ? a : a + k * lda,
                    two * lda, Op::none, parts, 3 * inner, reinterpret_cast<float*>(c), two * ldc);
  });
}

inline void Deferred::multiply_split_adjoint(Lane& lane, Size m, Size n, Size k, const Half* a,
                                             Size lda, const float* b, Size ldb, Half* parts,
                                             float* c, Size ldc) {
  if (m <= 0 || n <= 0 || k <= 0) {
    return;
  }
  Half* const low = parts + lda * n;
  lane.put("split of a factor", [=] {
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        const Parts y(b[i + j * ldb]);
        parts[i + j * lda] = y.hi;
        low[i + j * lda] = y.lo;
      }
    }
  });
  lane.put("multiply_split_adjoint", [=] {
    tile::CpuLane now(tile::Priority::normal);
    const auto add = [&](const Half* left, const Half* right, float beta) {
      const auto x = floats(m, k, left, lda), y = floats(m, n, right, lda);
      Cpu::gemm<float>(now, Op::transpose, Op::none, k, n, m, 0x1p-20F, x.data(), m, y.data(), m,
                       beta, c, ldc);
    };
    add(a + k * lda, parts, 0);
    add(a, low, 1);
    add(a, parts, 1);
  });
}

template <class T>
void Deferred::unit_scale(Lane& lane, Size n, const T* diagonal, Size stride, Real<T>* scale) {
  lane.put("unit_scale", [=] {
    for (Size i = 0; i < n; ++i) {
      const Real<T> x = std::real(diagonal[i * stride]);
      const int exponent =
          x > 0 && std::isfinite(x) ? static_cast<int>(std::rint(std::log2(x) / 2)) : 0;
      scale[i] = std::ldexp(Real<T>(1), -exponent);
    }
  });
}

template <class R>
void Deferred::judge_scales(Lane& lane, Size n, R least, R most, R* scale, R* inverse, R* needed) {
  lane.put("judge_scales", [=] {
    const bool far = std::any_of(scale, scale + n, [&](R x) { return x < least || x > most; });
    *needed = R(far ? 1 : 0);
    for (Size i = 0; i < n; ++i) {
      scale[i] = far ? scale[i] : R(1);
      inverse[i] = 1 / scale[i];
    }
  });
}

// max(|Re x|, |Im x|)
template <class T>
Real<T> larger_part(T x) {
  return std::max(std::abs(std::real(x)), std::abs(std::imag(x)));
}

template <class R>
void Deferred::unit_size(Lane& lane, Size n, const R* size, R* scale, R* inverse, R* needed) {
  lane.put("unit_size", [=] {
    const auto usable = [](R x) { return x > 0 && std::isfinite(x); };
    for (Size i = 0; i < n; ++i) {
      if (usable(size[i]) && (size[i] < R(1) / 16 || size[i] > R(16))) {
        *needed = R(1);
      }
    }
    for (Size i = 0; i < n; ++i) {
      const int exponent =
          usable(size[i]) && *needed != 0 ? std::clamp(std::ilogb(size[i]), -60, 60) : 0;
      scale[i] = std::ldexp(R(1), -exponent);
      inverse[i] = std::ldexp(R(1), exponent);
    }
  });
}

template <class T>
void Deferred::row_max(Lane& lane, Size m, Size n, const T* a, Size lda, Real<T>* result) {
  lane.put("row_max", [=] {
    std::fill_n(result, m, Real<T>(0));
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        result[i] = std::max(result[i], larger_part(a[i + j * lda]));
      }
    }
  });
}

template <class T>
void Deferred::column_max(Lane& lane, Size m, Size n, const Real<T>* rows, const T* a, Size lda,
                          Real<T>* result) {
  lane.put("column_max", [=] {
    std::fill_n(result, n, Real<T>(0));
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        result[j] = std::max(result[j], rows[i] * larger_part(a[i + j * lda]));
      }
    }
  });
}

template <class T>
void Deferred::scale_if(Lane& lane, const Real<T>* needed, Size m, Size n, const Real<T>* rows,
                        const Real<T>* columns, T* a, Size lda) {
  lane.put("scale_if", [=] {
    for (Size j = 0; *needed != 0 && j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        a[i + j * lda] *= (rows ? rows[i] : Real<T>(1)) * (columns ? columns[j] : Real<T>(1));
      }
    }
  });
}

template <class T>
void Deferred::scale_factors_if(Lane& lane, const Real<T>* needed, Size m, Size n, Size diagonal,
                                const Real<T>* rows, const Real<T>* upper, const Real<T>* lower,
                                T* a, Size lda) {
  lane.put("scale_factors_if", [=] {
    for (Size j = 0; *needed != 0 && j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        a[i + j * lda] *= rows[i] * (i <= diagonal + j ? upper[j] : lower[j]);
      }
    }
  });
}

}  // namespace jaxmg::test
