// The CPU as a device: tiles by OpenBLAS, one thread a call, spread over the engine's own pool.
// The operations are described in tile/device.h.
#pragma once

#include "core/dtype.h"
#include "core/status.h"
#include "core/types.h"
#include "tile/cpu/lane.h"
#include "tile/device.h"

namespace jaxmg::tile {

// Each member is instantiated for the four element types.
struct Cpu {
  using Lane = CpuLane;
  using Event = CpuEvent;
  using Ticket = CpuTicket;
  using Lanes = CpuLanes;
  static constexpr Size inverse_block = 0;
  static constexpr bool reads_in_place = true;
  template <class T>
  static constexpr bool splits = false;

  template <class T>
  static void copy(Lane& lane, Size m, Size n, const T* src, Size lds, T* dst, Size ldd);
  template <class T>
  static void transpose(Lane& lane, Size m, Size n, const T* src, Size lds, T* dst, Size ldd,
                        bool conj);
  template <class T>
  static void fill(Lane& lane, Size m, Size n, T off, T diag, T* a, Size lda);
  template <class T>
  static void fill_if_failed(Lane& lane, const Info* info, Size m, Size n, T value, T* a, Size lda);
  template <class T>
  static void add(Lane& lane, Size m, Size n, T alpha, const T* src, Size lds, T* dst, Size ldd);

  template <class T>
  static void gemm(Lane& lane, Op op_a, Op op_b, Size m, Size n, Size k, T alpha, const T* a,
                   Size lda, const T* b, Size ldb, T beta, T* c, Size ldc);
  template <class T>
  static void gemm_strided(Lane& lane, Op op_a, Op op_b, Size m, Size n, Size k, T alpha,
                           const T* a, Size lda, Size stride_a, const T* b, Size ldb, Size stride_b,
                           T beta, T* c, Size ldc, Size stride_c, Size count);
  template <class T>
  static void trsm(Lane& lane, Side side, Uplo uplo, Op op, Diag diag, Size m, Size n, T alpha,
                   const T* a, Size lda, T* b, Size ldb);
  template <class T>
  static void potrf(Lane& lane, Size n, T* a, Size lda, Size position, Info* info);
  template <class T>
  static void factor_panel(Lane& lane, Size n, Size m, T* a, Size lda, Size position, Info* info);
  template <class T>
  static void invert_blocks(Lane& lane, Size n, const T* l, Size ldl, T* x, Size ldx);
  template <class T>
  static void invert_lower(Lane& lane, Size n, const T* l, Size ldl, T* x, Size ldx);
  template <class T>
  static void solve_diagonal(Lane& lane, Op op, Size m, Size n, const T* l, Size ldl, const T* x,
                             Size ldx, T* b, Size ldb, T* work);

  static constexpr Size lu_block = 64;
  template <class T>
  static void copy_triangle(Lane& lane, Uplo uplo, Diag diag, Size m, Size n, const T* src,
                            Size lds, T* dst, Size ldd);
  template <class T>
  static void scale(Lane& lane, Size m, Size n, const Real<T>* rows, const Real<T>* columns, T* a,
                    Size lda);
  template <class T>
  static void orthonormalise(Lane& lane, Size m, Size n, T* a, Size lda, T* r, Size ldr);
  template <class T>
  static void signed_lu(Lane& lane, Size n, T* a, Size lda, Real<T>* signs);
  template <class T>
  static void check_finite(Lane& lane, Size m, Size n, const T* a, Size lda, Info* info);
  template <class T>
  static void check_diagonal(Lane& lane, Size n, const T* a, Size lda, Size position, Info* info);

  template <class T>
  static void getrf(Lane& lane, Size m, Size n, T* a, Size lda, Size first, std::int32_t* pivots,
                    Size position, Size equation, Info* info);
  static void trace_pivots(Lane& lane, Size n, const std::int32_t* pivots, Size first,
                           RowMoves moves);
  // Also for 32-bit integers.
  template <class T>
  static void move_rows(Lane& lane, Size n, RowMoves moves, Size columns, T* a, Size lda, T* top,
                        Size ldt);
  template <class T>
  static void put_rows(Lane& lane, Size m, Size n, const std::int32_t* index, Size first,
                       const T* src, Size lds, T* dst, Size ldd);
  template <class T>
  static void put_columns(Lane& lane, Size m, Size n, const std::int32_t* index, Size first,
                          Size count, const T* src, Size lds, T* dst, Size ldd);
  template <class T>
  static void take_columns(Lane& lane, Size m, Size n, const std::int32_t* index, Size first,
                           Size count, const T* src, Size lds, T* dst, Size ldd);
  static void iota(Lane& lane, Size n, std::int32_t* index);
  template <class T>
  static void invert_triangle(Lane& lane, Uplo uplo, Diag diag, Size n, const T* a, Size lda, T* x,
                              Size ldx);
  template <class T>
  static void invert_unit_blocks(Lane& lane, Size n, const T* l, Size ldl, T* x, Size ldx);
  template <class T>
  static void solve_triangle(Lane& lane, Uplo uplo, Op op, Diag diag, Size m, Size n, const T* a,
                             Size lda, const T* x, Size ldx, T* b, Size ldb, T* work);
  template <class T>
  static void log_phase(Lane& lane, Size n, const T* x, Size stride, Real<T>* log, T* phase);
  template <class T>
  static void pivot_sign(Lane& lane, Size n, const std::int32_t* pivots, T* phase);
  static void name_equation(Lane& lane, Info* info);
  template <class T>
  static void fill_if_kind(Lane& lane, const Info* info, Kind kind, Size m, Size n, T value, T* a,
                           Size lda);

  template <class T>
  static void rotate(Lane& lane, bool downdate, Size w, Size k, T* l, Size ldl, T* v, Size ldv,
                     T* theta, Size ldt, Size position, Info* info);

  template <class T>
  static void log_diagonal(Lane& lane, Size n, const T* l, Size ldl, Real<T>* result);
  template <class T>
  static void check_hermitian(Lane& lane, Size n, const T* diagonal, Size stride, const T* v,
                              const T* y, const T* z, Real<T>* result);
  template <class R>
  static void judge_hermitian(Lane& lane, const R* result, R threshold, Info* info);
  template <class T>
  static void random_vector(Lane& lane, Size n, Size first, Real<T> scale, T* v);

  static void reset(Lane& lane, Info* info);
  static void set_if_ok(Lane& lane, Kind kind, Size position, Info* info);
  static void set_phase(Lane& lane, Phase phase, int rank, Info* info);
};

}  // namespace jaxmg::tile
