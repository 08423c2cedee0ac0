// The probe for input that is not Hermitian or not finite, and what is kept of a failure.
#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>

#include "tile/cpu/cpu.h"
#include "tile/cpu/element.h"
#include "tile/random.h"

namespace jaxmg::tile {

// With v real, y = M v and z = M^T v, both y_i and z_i hold i Im(m_ii) v_i; conj(z) = M^H v.
template <class T>
void Cpu::check_hermitian(Lane&, Size n, const T* diagonal, Size stride, const T* v, const T* y,
                          const T* z, Real<T>* result) {
  using R = Real<T>;
  for (Size i = 0; i < n; ++i) {
    T yi = y[i], zi = z[i];
    if (!finite(yi) || !finite(zi)) {
      result[2] = R(1);
    }
    if constexpr (is_complex_v<T>) {
      const T left_out(R(0), diagonal[i * stride].imag() * v[i].real());
      yi -= left_out;
      zi = std::conj(zi - left_out);
    }
    result[0] = std::max(result[0], R(std::abs(yi - zi)));
    result[1] = std::max(result[1], R(std::abs(yi)));
  }
}

template <class R>
void Cpu::judge_hermitian(Lane& lane, const R* result, R threshold, Info* info) {
  if (result[2] != R(0)) {
    set_if_ok(lane, Kind::non_finite, 0, info);
  } else if (result[0] > threshold * result[1]) {
    set_if_ok(lane, Kind::not_hermitian, 0, info);
  }
}

template <class T>
void Cpu::random_vector(Lane&, Size n, Size first, Real<T> scale, T* v) {
  for (Size i = 0; i < n; ++i) {
    v[i] = T(scale * static_cast<Real<T>>(random_real(first + i)));
  }
}

void Cpu::reset(Lane&, Info* info) {
  *info = Info{};
}

void Cpu::set_if_ok(Lane&, Kind kind, Size position, Info* info) {
  if (info->kind == 0) {
    info->kind = static_cast<std::int32_t>(kind);
    info->position = narrow(position);
  }
}

void Cpu::set_phase(Lane&, Phase phase, int rank, Info* info) {
  if (info->kind != 0 && info->phase == static_cast<std::int32_t>(Phase::none)) {
    info->phase = static_cast<std::int32_t>(phase);
    info->rank = rank;
  }
}

#define JAXMG_INSTANTIATE(T)                                                                       \
  template void Cpu::check_hermitian<T>(Lane&, Size, const T*, Size, const T*, const T*, const T*, \
                                        Real<T>*);                                                 \
  template void Cpu::random_vector<T>(Lane&, Size, Size, Real<T>, T*);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)
template void Cpu::judge_hermitian<float>(Lane&, const float*, float, Info*);
template void Cpu::judge_hermitian<double>(Lane&, const double*, double, Info*);

}  // namespace jaxmg::tile
