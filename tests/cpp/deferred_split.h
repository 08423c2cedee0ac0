// float32 in parts on lanes that run late: a number is the upper and the lower half of its bits, so
// that nothing is lost and products are those of the CPU. The scaling that comes before is the
// GPU's. The end of deferred_device.h, which includes it.
#pragma once

namespace jaxmg::test {

// dst, and dst + block, <- the halves of x.
inline void put_halves(float x, Deferred::Half* dst, Size block) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  dst[0].bits = static_cast<std::uint16_t>(bits >> 16);
  dst[block].bits = static_cast<std::uint16_t>(bits & 0xffff);
}
inline float joined_halves(const Deferred::Half* src, Size block) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(src[0].bits) << 16 | src[block].bits);
}

// m x n numbers whose halves are `block` elements apart.
inline std::vector<float> joined(Size m, Size n, const Deferred::Half* src, Size ld, Size block) {
  std::vector<float> numbers;
  for (Size j = 0; j < n; ++j) {
    for (Size i = 0; i < m; ++i) {
      numbers.push_back(joined_halves(src + i + j * ld, block));
    }
  }
  return numbers;
}

inline void Deferred::split(Lane& lane, Size m, Size n, const float* src, Size lds, Half* dst,
                            Size ldd) {
  lane.put("split", [=] {
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        const float x = src[i + j * lds];
        put_halves(x, dst + i + j * ldd, n * ldd);
        put_halves(x, dst + i + (2 * n + j) * ldd, n * ldd);
      }
    }
  });
}

inline void Deferred::subtract_split_product(Lane& lane, Size m, Size n, Size k, const Half* a,
                                             const Half* b, Size ld, Size stride_a, Size stride_b,
                                             float* c, Size ldc, Size stride_c, Size count) {
  lane.put("subtract_split_product", [=] {
    tile::CpuLane now(tile::Priority::normal);
    for (Size i = 0; m > 0 && n > 0 && i < count; ++i) {
      const auto left = joined(m, k, a + i * stride_a, ld, k * ld);
      const auto right = joined(n, k, b + i * stride_b, ld, k * ld);
      Cpu::gemm<float>(now, Op::none, Op::transpose, m, n, k, -1, left.data(), m, right.data(), n,
                       1, c + i * stride_c, ldc);
    }
  });
}

inline void Deferred::subtract_split_rows(Lane& lane, Size m, Size n, Size k, const Half* a,
                                          Size lda, const float* b, Size ldb, Half* parts, float* c,
                                          Size ldc) {
  if (m <= 0 || n <= 0) {
    return;
  }
  lane.put("split of rows", [=] {
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < k; ++i) {
        put_halves(b[i + j * ldb], parts + i + j * k, k * n);
        parts[i + (2 * n + j) * k] = parts[i + j * k];
      }
    }
  });
  lane.put("subtract_split_rows", [=] {
    tile::CpuLane now(tile::Priority::normal);
    const auto left = joined(m, k, a, lda, k * lda);
    const auto right = joined(k, n, parts, k, k * n);
    Cpu::gemm<float>(now, Op::none, Op::none, m, n, k, -1, left.data(), m, right.data(), k, 1, c,
                     ldc);
  });
}

inline void Deferred::multiply_split_adjoint(Lane& lane, Size m, Size n, Size k, const Half* a,
                                             Size lda, const float* b, Size ldb, Half* parts,
                                             float* c, Size ldc) {
  if (m <= 0 || n <= 0 || k <= 0) {
    return;
  }
  lane.put("split of a factor", [=] {
    for (Size j = 0; j < n; ++j) {
      for (Size i = 0; i < m; ++i) {
        put_halves(b[i + j * ldb], parts + i + j * lda, lda * n);
      }
    }
  });
  lane.put("multiply_split_adjoint", [=] {
    tile::CpuLane now(tile::Priority::normal);
    const auto left = joined(m, k, a, lda, k * lda);
    const auto right = joined(m, n, parts, lda, n * lda);
    Cpu::gemm<float>(now, Op::transpose, Op::none, k, n, m, 1, left.data(), m, right.data(), m, 0,
                     c, ldc);
  });
}

template <class T>
void Deferred::unit_scale(Lane& lane, Size n, const T* diagonal, Size stride, Real<T>* scale,
                          Real<T>* inverse) {
  lane.put("unit_scale", [=] {
    for (Size i = 0; i < n; ++i) {
      const Real<T> x = std::real(diagonal[i * stride]);
      const int exponent =
          x > 0 && std::isfinite(x) ? static_cast<int>(std::rint(std::log2(x) / 2)) : 0;
      scale[i] = std::ldexp(Real<T>(1), -exponent);
      inverse[i] = std::ldexp(Real<T>(1), exponent);
    }
  });
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
        result[i] = std::max(result[i], std::abs(a[i + j * lda]));
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
        result[j] = std::max(result[j], rows[i] * std::abs(a[i + j * lda]));
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
        a[i + j * lda] *= rows[i] * columns[j];
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
