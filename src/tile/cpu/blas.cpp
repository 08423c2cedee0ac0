#include "tile/cpu/blas.h"

#include <algorithm>
#include <cstddef>
#include <vector>

// The library's own C implementations of the Fortran interfaces: they take no lengths of strings.
// Complex values are passed by address only; how a complex number is returned differs between
// compilers.
#define JAXMG_DECLARE_BLAS(letter, herk, orgqr, T, R)                                             \
  void scipy_##letter##gemm_(const char*, const char*, const int*, const int*, const int*,        \
                             const T*, const T*, const int*, const T*, const int*, const T*, T*,  \
                             const int*);                                                         \
  void scipy_##letter##gemv_(const char*, const int*, const int*, const T*, const T*, const int*, \
                             const T*, const int*, const T*, T*, const int*);                     \
  void scipy_##letter##trsm_(const char*, const char*, const char*, const char*, const int*,      \
                             const int*, const T*, const T*, const int*, T*, const int*);         \
  void scipy_##herk##_(const char*, const char*, const int*, const int*, const R*, const T*,      \
                       const int*, const R*, T*, const int*);                                     \
  void scipy_##letter##potrf_(const char*, const int*, T*, const int*, int*);                     \
  void scipy_##letter##getrf_(const int*, const int*, T*, const int*, int*, int*);                \
  void scipy_##letter##geqrf_(const int*, const int*, T*, const int*, T*, T*, const int*, int*);  \
  void scipy_##orgqr##_(const int*, const int*, const int*, T*, const int*, const T*, T*,         \
                        const int*, int*);                                                        \
  void scipy_##letter##geqrt_(const int*, const int*, const int*, T*, const int*, T*, const int*, \
                              T*, int*);

extern "C" {
JAXMG_DECLARE_BLAS(s, ssyrk, sorgqr, float, float)
JAXMG_DECLARE_BLAS(d, dsyrk, dorgqr, double, double)
JAXMG_DECLARE_BLAS(c, cherk, cungqr, std::complex<float>, float)
JAXMG_DECLARE_BLAS(z, zherk, zungqr, std::complex<double>, double)
void scipy_openblas_set_num_threads(int);
}

namespace jaxmg::tile::blas {
namespace {

// Runs when the engine is loaded, hence once and before any call.
[[maybe_unused]] const bool single_threaded = [] {
  scipy_openblas_set_num_threads(1);
  return true;
}();

template <class T>
struct Routines;

#define JAXMG_BLAS_ROUTINES(letter, herk_name, orgqr_name, T) \
  template <>                                                 \
  struct Routines<T> {                                        \
    static constexpr auto gemm = scipy_##letter##gemm_;       \
    static constexpr auto gemv = scipy_##letter##gemv_;       \
    static constexpr auto trsm = scipy_##letter##trsm_;       \
    static constexpr auto herk = scipy_##herk_name##_;        \
    static constexpr auto potrf = scipy_##letter##potrf_;     \
    static constexpr auto getrf = scipy_##letter##getrf_;     \
    static constexpr auto geqrf = scipy_##letter##geqrf_;     \
    static constexpr auto orgqr = scipy_##orgqr_name##_;      \
    static constexpr auto geqrt = scipy_##letter##geqrt_;     \
  };

JAXMG_BLAS_ROUTINES(s, ssyrk, sorgqr, float)
JAXMG_BLAS_ROUTINES(d, dsyrk, dorgqr, double)
JAXMG_BLAS_ROUTINES(c, cherk, cungqr, std::complex<float>)
JAXMG_BLAS_ROUTINES(z, zherk, zungqr, std::complex<double>)

template <class T>
char letter(Op op) {
  switch (op) {
    case Op::none:
      return 'N';
    case Op::transpose:
      return 'T';
    case Op::conj_transpose:
      return is_complex_v<T> ? 'C' : 'T';
  }
  return 'N';
}
char letter(Side side) {
  return side == Side::left ? 'L' : 'R';
}
char letter(Uplo uplo) {
  return uplo == Uplo::lower ? 'L' : 'U';
}
char letter(Diag diag) {
  return diag == Diag::unit ? 'U' : 'N';
}

}  // namespace

template <class T>
void gemm(Op op_a, Op op_b, Size m, Size n, Size k, T alpha, const T* a, Size lda, const T* b,
          Size ldb, T beta, T* c, Size ldc) {
  const char ta = letter<T>(op_a), tb = letter<T>(op_b);
  const int m_ = narrow(m), n_ = narrow(n), k_ = narrow(k);
  const int lda_ = narrow(lda), ldb_ = narrow(ldb), ldc_ = narrow(ldc);
  Routines<T>::gemm(&ta, &tb, &m_, &n_, &k_, &alpha, a, &lda_, b, &ldb_, &beta, c, &ldc_);
}

template <class T>
void gemv(Op op, Size m, Size n, T alpha, const T* a, Size lda, const T* x, Size incx, T beta, T* y,
          Size incy) {
  const char t = letter<T>(op);
  const int m_ = narrow(m), n_ = narrow(n), lda_ = narrow(lda);
  const int incx_ = narrow(incx), incy_ = narrow(incy);
  Routines<T>::gemv(&t, &m_, &n_, &alpha, a, &lda_, x, &incx_, &beta, y, &incy_);
}

template <class T>
void trsm(Side side, Uplo uplo, Op op, Diag diag, Size m, Size n, T alpha, const T* a, Size lda,
          T* b, Size ldb) {
  const char s = letter(side), u = letter(uplo), t = letter<T>(op), d = letter(diag);
  const int m_ = narrow(m), n_ = narrow(n), lda_ = narrow(lda), ldb_ = narrow(ldb);
  Routines<T>::trsm(&s, &u, &t, &d, &m_, &n_, &alpha, a, &lda_, b, &ldb_);
}

template <class T>
void herk(Size n, Size k, Real<T> alpha, const T* a, Size lda, Real<T> beta, T* c, Size ldc) {
  const char u = 'L', t = 'N';
  const int n_ = narrow(n), k_ = narrow(k), lda_ = narrow(lda), ldc_ = narrow(ldc);
  Routines<T>::herk(&u, &t, &n_, &k_, &alpha, a, &lda_, &beta, c, &ldc_);
}

template <class T>
int potrf(Size n, T* a, Size lda) {
  const char u = 'L';
  const int n_ = narrow(n), lda_ = narrow(lda);
  int info = 0;
  Routines<T>::potrf(&u, &n_, a, &lda_, &info);
  return info;
}

template <class T>
int getrf(Size m, Size n, T* a, Size lda, int* pivots) {
  const int m_ = narrow(m), n_ = narrow(n), lda_ = narrow(lda);
  int info = 0;
  Routines<T>::getrf(&m_, &n_, a, &lda_, pivots, &info);
  return info;
}

// Columns that the library takes together when it is given this much workspace a column.
namespace {
constexpr int kBlock = 64;
}

template <class T>
void geqrf(Size m, Size n, T* a, Size lda, T* tau) {
  const int m_ = narrow(m), n_ = narrow(n), lda_ = narrow(lda);
  const int length = narrow(std::max<Size>(n, 1) * kBlock);
  std::vector<T> work(static_cast<std::size_t>(length));
  int info = 0;
  Routines<T>::geqrf(&m_, &n_, a, &lda_, tau, work.data(), &length, &info);
}

template <class T>
void orgqr(Size m, Size n, T* a, Size lda, const T* tau) {
  const int m_ = narrow(m), n_ = narrow(n), lda_ = narrow(lda);
  const int length = narrow(std::max<Size>(n, 1) * kBlock);
  std::vector<T> work(static_cast<std::size_t>(length));
  int info = 0;
  Routines<T>::orgqr(&m_, &n_, &n_, a, &lda_, tau, work.data(), &length, &info);
}

template <class T>
void geqrt(Size m, Size n, Size nb, T* a, Size lda, T* t, Size ldt, T* work) {
  const int m_ = narrow(m), n_ = narrow(n), nb_ = narrow(nb);
  const int lda_ = narrow(lda), ldt_ = narrow(ldt);
  int info = 0;
  Routines<T>::geqrt(&m_, &n_, &nb_, a, &lda_, t, &ldt_, work, &info);
}

#define JAXMG_INSTANTIATE(T)                                                                       \
  template void gemm<T>(Op, Op, Size, Size, Size, T, const T*, Size, const T*, Size, T, T*, Size); \
  template void gemv<T>(Op, Size, Size, T, const T*, Size, const T*, Size, T, T*, Size);           \
  template void trsm<T>(Side, Uplo, Op, Diag, Size, Size, T, const T*, Size, T*, Size);            \
  template void herk<T>(Size, Size, Real<T>, const T*, Size, Real<T>, T*, Size);                   \
  template int potrf<T>(Size, T*, Size);                                                           \
  template int getrf<T>(Size, Size, T*, Size, int*);                                               \
  template void geqrf<T>(Size, Size, T*, Size, T*);                                                \
  template void orgqr<T>(Size, Size, T*, Size, const T*);                                          \
  template void geqrt<T>(Size, Size, Size, T*, Size, T*, Size, T*);

JAXMG_INSTANTIATE(float)
JAXMG_INSTANTIATE(double)
JAXMG_INSTANTIATE(std::complex<float>)
JAXMG_INSTANTIATE(std::complex<double>)

}  // namespace jaxmg::tile::blas
