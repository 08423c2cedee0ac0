// A device whose operations are those of tile::Cpu, done when a lane's turn comes
// (deferred_lane.h). Where GPUs go other ways than the CPU it goes theirs, with the CPU's numbers:
// ranks do not read each other's memory, triangles have inverses that stand for them, panels travel
// with theirs, 32-bit panels are split in parts, and products leave room for panels.
#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include "core/parts.h"
#include "deferred_lane.h"
#include "gram_verdict.h"
#include "tile/cpu/cpu.h"
#include "tile/device.h"
#include "tile/householder.h"

namespace jaxmg::test {

// Puts a call of an operation into a lane; values, lists of moves and the like are copied.
template <auto operation>
struct Deferring;
template <class... Parameters, void (*operation)(tile::CpuLane&, Parameters...)>
struct Deferring<operation> {
  const char* name;
  void operator()(DeferredLane& lane, Parameters... arguments) const {
    lane.put(name, [=] {
      tile::CpuLane now(tile::Priority::normal);
      operation(now, arguments...);
    });
  }
};

#define JAXMG_DEFER(name)                                \
  template <class T>                                     \
  static constexpr Deferring<&tile::Cpu::name<T>> name { \
#name                                                \
  }
#define JAXMG_DEFER_ONE(name)                         \
  static constexpr Deferring<&tile::Cpu::name> name { \
#name                                             \
  }

struct Deferred {
  using Cpu = tile::Cpu;
  using Lane = DeferredLane;
  using Event = DeferredEvent;
  using Ticket = DeferredTicket;
  using Lanes = DeferredLanes;
  static constexpr Size rows_by_parts = 6;
  template <class T>
  static constexpr Size run_by_parts = 3;
  static constexpr Size inverse_block = 2;
  static constexpr bool partitions = true;
  static constexpr bool gram_panels = true;
  static constexpr Size split_rows = 5;
  static constexpr bool reads_in_place = false;
  static constexpr bool solves_eigenproblems = true;
  static constexpr bool halves_herk = false;
  static constexpr bool overlaps_products = true;
  template <class T>
  static constexpr Size mirrored_rows = 1;
  static constexpr Size least_update_columns = 20;
  template <class T>
  static constexpr bool splits = has_parts(dtype_of<T>);
  struct Half {
    std::uint16_t bits;
  };
  static constexpr Size lu_block = Cpu::lu_block;
  template <class T>
  static constexpr Size gradient_columns = 7;
  static constexpr Size tridiagonal_leaf = 4;
  static constexpr Size merge_alone = 8;
  static constexpr Size merge_whole = Cpu::merge_whole;

  // Those whose element type callers leave to be deduced.
  template <class T>
  static void copy(Lane& lane, Size m, Size n, const T* src, Size lds, T* dst, Size ldd) {
    Deferring<&Cpu::copy<T>>{"copy"}(lane, m, n, src, lds, dst, ldd);
  }
  template <class T>
  static void copy_blocks(Lane& lane, Size m, Size n, Size count, const T* src, Size lds,
                          Size src_step, T* dst, Size ldd, Size dst_step) {
    Deferring<&Cpu::copy_blocks<T>>{"copy_blocks"}(lane, m, n, count, src, lds, src_step, dst, ldd,
                                                   dst_step);
  }
  template <class T>
  static void transpose(Lane& lane, Size m, Size n, const T* src, Size lds, T* dst, Size ldd,
                        bool conj) {
    Deferring<&Cpu::transpose<T>>{"transpose"}(lane, m, n, src, lds, dst, ldd, conj);
  }
  template <class T>
  static void transpose_blocks(Lane& lane, Size m, Size n, Size count, const T* src, Size lds,
                               Size src_step, T* dst, Size ldd, Size dst_step, bool conj) {
    Deferring<&Cpu::transpose_blocks<T>>{"transpose_blocks"}(lane, m, n, count, src, lds, src_step,
                                                             dst, ldd, dst_step, conj);
  }
  template <class T>
  static void fill(Lane& lane, Size m, Size n, T off, T diag, T* a, Size lda) {
    Deferring<&Cpu::fill<T>>{"fill"}(lane, m, n, off, diag, a, lda);
  }

  template <class T, class U>
  static void convert(Lane& lane, Size m, Size n, const T* src, Size lds, U* dst, Size ldd) {
    Deferring<&Cpu::convert<T, U>>{"convert"}(lane, m, n, src, lds, dst, ldd);
  }

  JAXMG_DEFER(fill_if_failed);
  JAXMG_DEFER(add);
  JAXMG_DEFER(gemm);
  JAXMG_DEFER(gemm_strided);
  JAXMG_DEFER(multiply_both);
  JAXMG_DEFER(gradient);
  JAXMG_DEFER(row_norms);
  JAXMG_DEFER(trsm);
  JAXMG_DEFER(potrf);
  JAXMG_DEFER(factor_panel);
  JAXMG_DEFER(copy_triangle);
  JAXMG_DEFER(scale);
  JAXMG_DEFER(orthonormalise);
  JAXMG_DEFER(signed_lu);
  JAXMG_DEFER(check_finite);
  JAXMG_DEFER(check_diagonal);
  JAXMG_DEFER_ONE(trace_pivots);
  JAXMG_DEFER(move_rows);
  JAXMG_DEFER(put_rows);
  JAXMG_DEFER(put_columns);
  JAXMG_DEFER(take_columns);
  JAXMG_DEFER_ONE(iota);
  JAXMG_DEFER(log_phase);
  JAXMG_DEFER(pivot_sign);
  JAXMG_DEFER_ONE(name_equation);
  JAXMG_DEFER(fill_if_kind);
  JAXMG_DEFER(rotate);
  JAXMG_DEFER(log_diagonal);
  JAXMG_DEFER(check_hermitian);
  JAXMG_DEFER(judge_hermitian);
  JAXMG_DEFER(random_vector);
  JAXMG_DEFER(max_abs);
  JAXMG_DEFER(multiply);
  JAXMG_DEFER(real_diagonal);
  JAXMG_DEFER(mirror);
  JAXMG_DEFER(householder_panel);
  JAXMG_DEFER(reflector_factor);
  JAXMG_DEFER(reflector_diagonal);
  JAXMG_DEFER(store_band);
  JAXMG_DEFER(chase);
  JAXMG_DEFER(pack_sweeps);
  JAXMG_DEFER(apply_sweeps);
  JAXMG_DEFER(widen);
  JAXMG_DEFER(tridiagonal_leaves);
  JAXMG_DEFER(merge_weights);
  JAXMG_DEFER_ONE(deflate);
  JAXMG_DEFER(rotate_columns);
  JAXMG_DEFER(arrange_columns);
  JAXMG_DEFER_ONE(secular_roots);
  JAXMG_DEFER_ONE(secular_weights);
  JAXMG_DEFER_ONE(merged_values);
  JAXMG_DEFER_ONE(reset);
  JAXMG_DEFER_ONE(set_if_ok);
  JAXMG_DEFER_ONE(set_phase);

  // The triangle itself stands for its inverse; solves read nothing else. `work` is used.
  template <class T>
  static void invert_lower(Lane& lane, Size n, const T* l, Size ldl, T* x, Size ldx) {
    fill<T>(lane, n, n, T(0), T(1), x, ldx);
    trsm<T>(lane, Side::left, Uplo::lower, Op::none, Diag::non_unit, n, n, T(1), l, ldl, x, ldx);
  }
  template <class T>
  static void solve_diagonal(Lane& lane, Op op, Size m, Size n, const T*, Size, const T* x,
                             Size ldx, T* b, Size ldb, T* work) {
    copy<T>(lane, m, n, b, ldb, work, m);
    gemm<T>(lane, Op::none, op, m, n, n, T(1), work, m, x, ldx, T(0), b, ldb);
  }
  template <class T>
  static void invert_triangle(Lane& lane, Uplo, Diag, Size n, const T* a, Size lda, T* x,
                              Size ldx) {
    copy(lane, n, n, a, lda, x, ldx);
  }
  template <class T>
  static void solve_triangle(Lane& lane, Uplo uplo, Op op, Diag diag, Size m, Size n, const T*,
                             Size, const T* x, Size ldx, T* b, Size ldb, T* work) {
    copy<T>(lane, m, n, b, ldb, work, m);
    trsm<T>(lane, Side::right, uplo, op, diag, m, n, T(1), x, ldx, work, m);
    copy<T>(lane, m, n, work, m, b, ldb);
  }
  template <class T>
  static void getrf(Lane& lane, Size m, Size n, T* a, Size lda, Size first, std::int32_t* pivots,
                    T* inverse, Size ldi, Size position, Size equation, Info* info) {
    Deferring<&Cpu::getrf<T>>{"getrf"}(lane, m, n, a, lda, first, pivots, inverse, ldi, position,
                                       equation, info);
    lane.put("inverses of a triangle's blocks", [=] { invert_blocks(n, a, lda, inverse, ldi); });
  }

  // A number of the panel is two of the four parts.
  template <class T>
  static void split(Lane& lane, Size m, Size n, const T* src, Size lds, Half* dst, Size ldd);
  template <class T>
  static void subtract_split_product(Lane& lane, Size m, Size n, Size k, const Half* parts, Size ld,
                                     Size row, Size row_stride, Size col, Size col_stride, T* c,
                                     Size ldc, Size stride_c, Size count);
  template <class T>
  static void split_left(Lane& lane, Size m, Size n, const T* src, Size lds, Half* dst, Size ldd);
  template <class T>
  static void subtract_split_rows(Lane& lane, Size m, Size n, Size k, const Half* a, Size lda,
                                  const T* b, Size ldb, Half* parts, T* c, Size ldc);
  static void multiply_split_adjoint(Lane& lane, Size m, Size n, Size k, const Half* a, Size lda,
                                     const float* b, Size ldb, Half* parts, float* c, Size ldc);

  template <class T>
  static Size columns_beside_panel(Lanes&, bool, Size, Size, Size, Size n) {
    return n - n / 3;
  }
  static void leave_room(Lanes&, bool) {}
  static void share_with_panels(Lanes&, bool) {}

  template <class R>
  static void unit_size(Lane& lane, Size n, const R* size, R* scale, R* inverse, R* needed);
  template <class T>
  static void row_max(Lane& lane, Size m, Size n, const T* a, Size lda, Real<T>* result);
  template <class T>
  static void column_max(Lane& lane, Size m, Size n, const Real<T>* rows, const T* a, Size lda,
                         Real<T>* result);
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
  static void doubt_factor(Lane& lane, Size n, const T* l, Size ldl, const Info* info, T* g) {
    lane.put("doubt_factor", [=] { test::doubt_factor(n, l, ldl, info, g); });
  }
  template <class T>
  static void make_reflectors(Lane& lane, Size n, Size m, T* a, Size lda, Real<T>* signs, T* t,
                              Size ldt) {
    signed_lu_blocked<Deferred, T>(lane, n, m, a, lda, signs);
    reflector_triangle<Deferred, T>(lane, n, a, lda, signs, t, ldt);
  }
  static inline std::atomic<int> good_verdicts = 0, bad_verdicts = 0;
  class Verdict {
   public:
    Verdict(Lane& lane, std::shared_ptr<const bool> found)
        : lane_(lane), found_(std::move(found)) {}
    bool good() const {
      lane_.synchronise();
      ++(*found_ ? good_verdicts : bad_verdicts);
      return *found_;
    }

   private:
    Lane& lane_;
    std::shared_ptr<const bool> found_;
  };
  template <class T>
  static Verdict judge_gram(Lane& lane, Size n, const T* g, Size ldg) {
    const auto found = std::make_shared<bool>(false);
    lane.put("judge_gram", [=] { *found = is_near_identity(n, g, ldg); });
    return {lane, found};
  }

  // Results for the host wait for the lane. What the host hands in is copied at once.
  template <class T>
  static void tridiagonal_part(Lane& lane, Size n, const T* band, Size ld, double* d, double* e) {
    Deferring<&Cpu::tridiagonal_part<T>>{"tridiagonal_part"}(lane, n, band, ld, d, e);
    lane.synchronise();
  }
  template <class R>
  static void to_host(Lane& lane, Size n, const R* src, double* dst) {
    Deferring<&Cpu::to_host<R>>{"to_host"}(lane, n, src, dst);
    lane.synchronise();
  }
  static void merge_counts(Lane& lane, const MergeLevel& level, const MergeState& state,
                           MergeCounts* counts) {
    Deferring<&Cpu::merge_counts>{"merge_counts"}(lane, level, state, counts);
    lane.synchronise();
  }
  static void bisect(Lane& lane, Size n, const double* d, const double* e2, double low, double high,
                     double tolerance, Size first, Size count, double* w, void* work) {
    Deferring<&Cpu::bisect>{"bisect"}(lane, n, d, e2, low, high, tolerance, first, count, w, work);
    lane.synchronise();
  }
  template <class R>
  static void from_host(Lane& lane, Size m, Size n, const double* src, Size lds, R* dst, Size ldd) {
    std::vector<double> kept(src, src + (m > 0 && n > 0 ? (n - 1) * lds + m : 0));
    lane.put("from_host", [=, kept = std::move(kept)] {
      tile::CpuLane now(tile::Priority::normal);
      Cpu::from_host<R>(now, m, n, kept.data(), lds, dst, ldd);
    });
  }
  // Lists of the host go through `work`.
  template <class R>
  static void gather_rows(Lane& lane, Size m, const Size* index, Size n, const R* src, Size lds,
                          R* dst, Size ldd, void* work) {
    const Size* const list = upload(lane, m, index, work);
    Deferring<&Cpu::gather_rows<R>>{"gather_rows"}(lane, m, list, n, src, lds, dst, ldd, work);
  }
  template <class R>
  static void secular_vectors(Lane& lane, const MergeLevel& level, const MergeState& state,
                              Size node, Size k, Size first, Size count, const Size* roots, R* u,
                              Size ldu, double* work) {
    const Size* const list = roots ? upload(lane, first + count, roots, work) : nullptr;
    Deferring<&Cpu::secular_vectors<R>>{"secular_vectors"}(lane, level, state, node, k, first,
                                                           count, list, u, ldu, work);
  }

 private:
  static const Size* upload(Lane& lane, Size n, const Size* list, void* work) {
    lane.put("upload", [work, kept = std::vector<Size>(list, list + n)] {
      std::ranges::copy(kept, static_cast<Size*>(work));
    });
    return static_cast<const Size*>(work);
  }

  // With L the unit lower triangle of a, and B its block diagonal: x <- inv(B) on the diagonal
  // blocks, inv(B) L left of them, zeros above.
  template <class T>
  static void invert_blocks(Size n, const T* a, Size lda, T* x, Size ldx) {
    tile::CpuLane now(tile::Priority::normal);
    for (Size j = 0; j < n; j += inverse_block) {
      const Size w = std::min(inverse_block, n - j);
      Cpu::fill<T>(now, w, n, T(0), T(0), x + j, ldx);
      Cpu::copy<T>(now, w, j, a + j, lda, x + j, ldx);
      Cpu::fill<T>(now, w, w, T(0), T(1), x + j * (ldx + 1), ldx);
      Cpu::trsm<T>(now, Side::left, Uplo::lower, Op::none, Diag::unit, w, j + w, T(1),
                   a + j * (lda + 1), lda, x + j, ldx);
    }
  }
};

#undef JAXMG_DEFER
#undef JAXMG_DEFER_ONE

}  // namespace jaxmg::test

#include "deferred_split.h"  // IWYU pragma: export
