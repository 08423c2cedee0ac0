// A GPU as a device: tiles by cuBLAS, cuSOLVER and kernels. Every operation is enqueued in its lane
// and returns at once. The operations are described in tile/device.h.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/parts.h"
#include "core/status.h"
#include "core/types.h"
#include "tile/cuda/lane.h"
#include "tile/device.h"
#include "tile/eigen.h"

namespace jaxmg::tile {

// Each member is instantiated for the four element types.
struct Cuda {
  using Lane = CudaLane;
  using Event = CudaEvent;
  using Ticket = CudaTicket;
  using Lanes = CudaLanes;
  static constexpr Size inverse_block = 128;
  static constexpr bool reads_in_place = false;
  static constexpr bool solves_eigenproblems = true;
  static constexpr bool halves_herk = false;
  static constexpr bool overlaps_products = true;
  template <class T>
  static constexpr Size mirrored_rows = is_complex_v<T> ? 8192 : 16384;
  static constexpr Size least_update_columns = 1024;
  template <class T>
  static constexpr bool splits = has_parts(dtype_of<T>);
  // Panels of fewer rows are made sooner with numbers as they are, as are runs of fewer columns.
  static constexpr Size rows_by_parts = 16384;
  template <class T>
  static constexpr Size run_by_parts = kNativeRun;
  // Storage of a half-precision number.
  struct Half {
    std::uint16_t bits;
  };

  template <class T>
  static void copy(Lane& lane, Size m, Size n, const T* src, Size lds, T* dst, Size ldd);
  template <class T>
  static void copy_blocks(Lane& lane, Size m, Size n, Size count, const T* src, Size lds,
                          Size src_step, T* dst, Size ldd, Size dst_step);
  template <class T>
  static void transpose(Lane& lane, Size m, Size n, const T* src, Size lds, T* dst, Size ldd,
                        bool conj);
  template <class T>
  static void transpose_blocks(Lane& lane, Size m, Size n, Size count, const T* src, Size lds,
                               Size src_step, T* dst, Size ldd, Size dst_step, bool conj);
  template <class T>
  static void fill(Lane& lane, Size m, Size n, T off, T diag, T* a, Size lda);
  template <class T>
  static void fill_if_failed(Lane& lane, const Info* info, Size m, Size n, T value, T* a, Size lda);
  template <class T>
  static void add(Lane& lane, Size m, Size n, T alpha, const T* src, Size lds, T* dst, Size ldd);

  // In the precision of the operands. Products with one row or one column are matrix-vector
  // products.
  template <class T>
  static void gemm(Lane& lane, Op op_a, Op op_b, Size m, Size n, Size k, T alpha, const T* a,
                   Size lda, const T* b, Size ldb, T beta, T* c, Size ldc);
  template <class T>
  static void gemm_strided(Lane& lane, Op op_a, Op op_b, Size m, Size n, Size k, T alpha,
                           const T* a, Size lda, Size stride_a, const T* b, Size ldb, Size stride_b,
                           T beta, T* c, Size ldc, Size stride_c, Size count);
  template <class T>
  static void multiply_both(Lane& lane, Size m, Size n, const T* a, Size lda, const T* v,
                            const T* w, T* y, T* z, T* work, Size count);
  // What fits into the registers of a thread block.
  template <class T>
  static constexpr Size gradient_columns = sizeof(T) <= 8 ? 4096 : 2048;
  template <class T>
  static void gradient(Lane& lane, Size n, Size m, const T* a, Size lda, const T* x, const T* d,
                       T* g, T* work, Size count);
  template <class T>
  static void row_norms(Lane& lane, Size m, Size n, const T* a, Size lda, Real<T>* result);
  template <class T, class U>
  static void convert(Lane& lane, Size m, Size n, const T* src, Size lds, U* dst, Size ldd);
  static void split(Lane& lane, Size m, Size n, const float* src, Size lds, Half* dst, Size ldd);
  static void split(Lane& lane, Size m, Size n, const std::complex<float>* src, Size lds, Half* dst,
                    Size ldd);
  static void subtract_split_product(Lane& lane, Size m, Size n, Size k, const Half* parts, Size ld,
                                     Size row, Size row_stride, Size col, Size col_stride, float* c,
                                     Size ldc, Size stride_c, Size count);
  static void subtract_split_product(Lane& lane, Size m, Size n, Size k, const Half* parts, Size ld,
                                     Size row, Size row_stride, Size col, Size col_stride,
                                     std::complex<float>* c, Size ldc, Size stride_c, Size count);
  static constexpr bool partitions = true;
  template <class T>
  static Size columns_beside_panel(Lanes& lanes, bool split, Size order, Size m, Size k, Size n);
  static void leave_room(Lanes& lanes, bool room);
  static void share_with_panels(Lanes& lanes, bool share);
  static void split_left(Lane& lane, Size m, Size n, const float* src, Size lds, Half* dst,
                         Size ldd);
  static void split_left(Lane& lane, Size m, Size n, const std::complex<float>* src, Size lds,
                         Half* dst, Size ldd);
  static void subtract_split_rows(Lane& lane, Size m, Size n, Size k, const Half* a, Size lda,
                                  const float* b, Size ldb, Half* parts, float* c, Size ldc);
  static void subtract_split_rows(Lane& lane, Size m, Size n, Size k, const Half* a, Size lda,
                                  const std::complex<float>* b, Size ldb, Half* parts,
                                  std::complex<float>* c, Size ldc);
  static void multiply_split_adjoint(Lane& lane, Size m, Size n, Size k, const Half* a, Size lda,
                                     const float* b, Size ldb, Half* parts, float* c, Size ldc);
  template <class T>
  static void row_max(Lane& lane, Size m, Size n, const T* a, Size lda, Real<T>* result);
  template <class T>
  static void column_max(Lane& lane, Size m, Size n, const Real<T>* rows, const T* a, Size lda,
                         Real<T>* result);
  template <class R>
  static void unit_size(Lane& lane, Size n, const R* size, R* scale, R* inverse, R* needed);
  template <class T>
  static void scale_if(Lane& lane, const Real<T>* needed, Size m, Size n, const Real<T>* rows,
                       const Real<T>* columns, T* a, Size lda);
  template <class T>
  static void scale_factors_if(Lane& lane, const Real<T>* needed, Size m, Size n, Size diagonal,
                               const Real<T>* rows, const Real<T>* upper, const Real<T>* lower,
                               T* a, Size lda);
  template <class T>
  static void unit_scale(Lane& lane, Size n, const T* diagonal, Size stride, Real<T>* scale);
  template <class R>
  static void judge_scales(Lane& lane, Size n, R least, R most, R* scale, R* inverse, R* needed);
  template <class T>
  static void scale(Lane& lane, Size m, Size n, const Real<T>* rows, const Real<T>* columns, T* a,
                    Size lda);
  template <class T>
  static void trsm(Lane& lane, Side side, Uplo uplo, Op op, Diag diag, Size m, Size n, T alpha,
                   const T* a, Size lda, T* b, Size ldb);
  template <class T>
  static void potrf(Lane& lane, Size n, T* a, Size lda, Size position, Info* info);
  template <class T>
  static void factor_panel(Lane& lane, Size first, Size last, Size n, Size m, T* a, Size lda,
                           Size position, Info* info);
  // As invert_unit_blocks, for a triangle L with any diagonal.
  template <class T>
  static void invert_blocks(Lane& lane, Size n, const T* l, Size ldl, T* x, Size ldx);
  template <class T>
  static void invert_lower(Lane& lane, Size n, const T* l, Size ldl, T* x, Size ldx);
  // With X the inverse of L, whose product alone would lose digits when L is ill-conditioned:
  //
  //   W = B op(X),   R = B - W op(L),   B <- W + R op(X)
  //
  // One step of correction brings back the accuracy of a triangular solve, by products alone.
  template <class T>
  static void solve_diagonal(Lane& lane, Op op, Size m, Size n, const T* l, Size ldl, const T* x,
                             Size ldx, T* b, Size ldb, T* work);

  static constexpr bool gram_panels = true;
  static constexpr Size split_rows = 4096;
  using Verdict = CudaVerdict;
  template <class T>
  static void doubt_factor(Lane& lane, Size n, const T* l, Size ldl, const Info* info, T* g);
  template <class T>
  static Verdict judge_gram(Lane& lane, Size n, const T* g, Size ldg);

  static constexpr Size lu_block = 512;
  template <class T>
  static void copy_triangle(Lane& lane, Uplo uplo, Diag diag, Size m, Size n, const T* src,
                            Size lds, T* dst, Size ldd);
  // Waits for its lane, since its method depends on the numbers.
  template <class T>
  static void orthonormalise(Lane& lane, Size m, Size n, T* a, Size lda, T* r, Size ldr);
  template <class T>
  static void signed_lu(Lane& lane, Size n, Size m, T* a, Size lda, Real<T>* signs);
  template <class T>
  static void make_reflectors(Lane& lane, Size n, Size m, T* a, Size lda, Real<T>* signs, T* t,
                              Size ldt);
  template <class T>
  static void check_diagonal(Lane& lane, Size n, const T* a, Size lda, Size position, Info* info);

  template <class T>
  static void getrf(Lane& lane, Size m, Size n, T* a, Size lda, Size first, std::int32_t* pivots,
                    T* inverse, Size ldi, Size position, Size equation, Info* info);
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
  // With L the unit lower triangle of l and B its block diagonal of edge inverse_block: x <- inv(B)
  // on the diagonal blocks, inv(B) L below them, 0 above.
  template <class T>
  static void invert_unit_blocks(Lane& lane, Size n, const T* l, Size ldl, T* x, Size ldx);
  template <class T>
  static void solve_triangle(Lane& lane, Uplo uplo, Op op, Diag diag, Size m, Size n, const T* a,
                             Size lda, const T* x, Size ldx, T* b, Size ldb, T* work);
  template <class T>
  static void log_phase(Lane& lane, Size n, const T* x, Size stride, Real<T>* log, T* phase);
  template <class T>
  static void pivot_sign(Lane& lane, Size n, const std::int32_t* pivots, T* phase);
  template <class T>
  static void check_finite(Lane& lane, Size m, Size n, const T* a, Size lda, Info* info);
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

  template <class T>
  static void max_abs(Lane& lane, Size m, Size n, const T* a, Size lda, Real<T>* result);
  template <class T>
  static void multiply(Lane& lane, Size m, Size n, Real<T> factor, T* a, Size lda);
  template <class T>
  static void real_diagonal(Lane& lane, Size n, T* a, Size stride);
  template <class T>
  static void mirror(Lane& lane, Size n, T* a, Size lda);
  template <class T>
  static void householder_panel(Lane& lane, Size m, Size w, T* a, Size lda, T* r, Size ldr, T* tau,
                                void* work);
  template <class T>
  static void reflector_factor(Lane& lane, Size k, const T* gram, Size ldg, const T* tau, T* t,
                               Size ldt);
  template <class T>
  static void reflector_diagonal(Lane& lane, Size k, const T* tau, T* u, Size ldu);
  template <class T>
  static void store_band(Lane& lane, Size m, Size w, Size b, const T* block, Size ldb, T* band,
                         Size ld);
  template <class T>
  static void chase(Lane& lane, const SweepBatch& batch, T* band, Size ld, T* v, void* work,
                    Info* info);
  template <class T>
  static void pack_sweeps(Lane& lane, const SweepBatch& batch, const T* v, T* packed);
  template <class T>
  static void apply_sweeps(Lane& lane, const SweepBatch& batch, T* packed, Size columns, T* x,
                           Size ldx, T* products, Info* info);
  // The same by matrix products, for bands of any width.
  template <class T>
  static void pack_any_sweeps(Lane& lane, const SweepBatch& batch, const T* v, T* packed);
  template <class T>
  static void apply_any_sweeps(Lane& lane, const SweepBatch& batch, const T* packed, Size columns,
                               T* x, Size ldx, T* products);
  template <class T>
  static void tridiagonal_part(Lane& lane, Size n, const T* band, Size ld, double* d, double* e);
  template <class T>
  static void widen(Lane& lane, Size n, const Real<T>* src, T* dst);
  template <class R>
  static void to_host(Lane& lane, Size n, const R* src, double* dst);
  template <class R>
  static void from_host(Lane& lane, Size m, Size n, const double* src, Size lds, R* dst, Size ldd);
  template <class R>
  static void gather_rows(Lane& lane, Size m, const Size* index, Size n, const R* src, Size lds,
                          R* dst, Size ldd, void* work);
  static constexpr Size tridiagonal_leaf = 16;
  static constexpr Size merge_alone = 1024;
  static constexpr Size merge_whole = 512;
  template <class R>
  static void tridiagonal_leaves(Lane& lane, Size n, Size size, const MergeState& state, Size begin,
                                 Size end, R* q, Size ldq);
  template <class R>
  static void merge_weights(Lane& lane, const MergeLevel& level, const MergeState& state,
                            Size begin, Size end, const R* q, Size ldq);
  static void deflate(Lane& lane, const MergeLevel& level, const MergeState& state, double eps,
                      double norm);
  template <class R>
  static void rotate_columns(Lane& lane, const MergeLevel& level, const MergeState& state,
                             Size begin, Size end, R* q, Size ldq);
  template <class R>
  static void arrange_columns(Lane& lane, const MergeLevel& level, const MergeState& state,
                              Size begin, Size end, const R* q, R* work, Size ld);
  static void secular_roots(Lane& lane, const MergeLevel& level, const MergeState& state,
                            Size first, Size last);
  static void secular_weights(Lane& lane, const MergeLevel& level, const MergeState& state,
                              Size first, Size last);
  static void merged_values(Lane& lane, const MergeLevel& level, const MergeState& state);
  static void merge_counts(Lane& lane, const MergeLevel& level, const MergeState& state,
                           MergeCounts* counts);
  template <class R>
  static void secular_vectors(Lane& lane, const MergeLevel& level, const MergeState& state,
                              Size node, Size k, Size first, Size count, const Size* roots, R* u,
                              Size ldu, double* work);
  template <class R>
  static void merge_vectors(Lane& lane, const MergeLevel& level, const MergeState& state,
                            Size first, Size count, R* u);
  static void bisect(Lane& lane, Size n, const double* d, const double* e2, double low, double high,
                     double tolerance, Size first, Size count, double* w, void* work);

  static void reset(Lane& lane, Info* info);
  static void set_if_ok(Lane& lane, Kind kind, Size position, Info* info);
  static void set_phase(Lane& lane, Phase phase, int rank, Info* info);
};

}  // namespace jaxmg::tile
