// What an algorithm may ask of a device. tile::Cpu and tile::Cuda have these members, with the same
// meaning; an algorithm is a template over the device and uses nothing else of it.
//
// Matrices are column-major, sizes are in elements, the first argument of each operation is the
// lane that it runs in. Work of one lane runs in order; lanes are ordered only by events and
// tickets. An operation with a dimension of 0 does nothing.
//
// clang-format off
//   class Lane    wait(const Event&), wait(const Ticket&): later work of this lane follows it
//                 record() -> Event: everything put into this lane so far
//   class Event   copyable
//   class Ticket  movable; what a communicator's operation returns
//   struct Lanes  { Lane panel, update, copy; }  panel work goes before update work
//   reads_in_place   true if ranks read each other's memory where it lies, so that publish() never
//                    writes into a reader's buffer
//
//   copy(lane, m, n, src, lds, dst, ldd)               dst <- src, m x n
//   copy_blocks(lane, m, n, count, src, lds, src_step, dst, ldd, dst_step)
//     the same for `count` blocks, each so many elements behind the last
//   transpose(lane, m, n, src, lds, dst, ldd, conj)    dst (n x m) <- src^T, or src^H
//   transpose_blocks(lane, m, n, count, src, lds, src_step, dst, ldd, dst_step, conj)
//     the same for `count` blocks, each so many elements behind the last
//   fill(lane, m, n, off, diag, a, lda)                a <- off everywhere, diag on the diagonal
//   fill_if_failed(lane, info, m, n, value, a, lda)    a <- value if info->kind != 0
//   add(lane, m, n, alpha, src, lds, dst, ldd)         dst <- dst + alpha src
//   gemm(lane, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
//   gemm_strided(lane, op_a, op_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc,
//                stride_c, count)                      count products, the i-th at a + i stride_a, ...
//   multiply_both(lane, m, n, a, lda, v, w, y, z, work, count)
//                    y (n) <- A^T v, z (m) <- z + A w; work holds `count` elements, as many as help
//   gradient(lane, n, m, a, lda, x, d, g, work, count)
//                    g (n) <- conj(A) (d - A^T x), for which A (n x m) is read once; x may be null,
//                    which stands for zeros. n <= gradient_columns<T>; work holds `count` elements,
//                    n at least
//   row_norms(lane, m, n, a, lda, result)    result_i <- 2-norm of row i, without overflow in between
//   convert<T, U>(lane, m, n, src, lds, dst, ldd)      dst (of U) <- src, in another precision
//   halves_herk      whether the lower triangle of a product is cheaper than all of it; only then:
//   herk_strided(lane, n, k, a, lda, stride_a, c, ldc, stride_c, count)
//                    lower triangles of count blocks c (n x n) <- c - a a^H, a being n x k
//   overlaps_products  whether lanes have one, `side`, for products beside those of the update lane
//   splits<T>        whether products of T can run in half precision parts; only then:
//   class Half       storage of a half-precision number
//   split(lane, m, n, src, lds, dst, ldd)
//                    dst <- the parts of src (m x n), ldd numbers to a column: room for
//                    cholesky_halves(type) ldd n halves, see core/parts.h
//   subtract_split_product(lane, m, n, k, parts, ld, row, row_stride, col, col_stride, c, ldc,
//                          c_stride, count)
//                    c <- c - P[row : row + m, :] P[col : col + n, :]^H, P being a split panel of k
//                    columns; for `count` blocks at the given distances
//   rows_by_parts, run_by_parts<T>
//                    panels of Cholesky of so many rows, or more, are made by runs of at most so
//                    many columns, with products by parts between them
//   split_left(lane, m, n, src, lds, dst, ldd)
//                    the same for the first factor of subtract_split_rows, lower_halves(type) each
//   subtract_split_rows(lane, m, n, k, a, lda, b, ldb, parts, c, ldc)
//                    c <- c - A b, a being what split_left made of m rows and k columns whose real
//                    and imaginary parts are at most about 1, and b a k x n matrix; parts: room for
//                    upper_halves(type) k n halves
//   multiply_split_adjoint(lane, m, n, k, a, lda, b, ldb, parts, c, ldc)
//                    float32 only: c (k x n) <- A^T b, a being what split_left made of m rows and k
//                    columns, b m x n, elements of both at most 1; parts: room for 2 lda n halves
//   partitions       whether products of the update lane can be kept from taking all of the device
//                    while a panel is made, which else waits for them at each of its steps; only then:
//   share_with_panels(lanes, share)          from now on panels take a few multiprocessors only
//   leave_room(lanes, room)                  work of the update lane leaves those alone
//   columns_beside_panel(lanes, split, order, m, k, n)
//                    how many of n columns (m rows, inner dimension k, products by parts or native;
//                    of a matrix of that order) are best updated with such room while a panel of k
//                    columns is made; 0: it does not pay
//   row_max(lane, m, n, a, lda, result)      result_i <- max_j of max(|Re a_ij|, |Im a_ij|)
//   column_max(lane, m, n, rows, a, lda, result)
//                    result_j <- max_i of rows_i max(|Re a_ij|, |Im a_ij|)
//   unit_size(lane, n, size, scale, inverse, needed)
//                    sets *needed, a number of that type, to 1 if a size is not between 2^-4 and 2^4;
//                    scale_i <- 2^-floor(log2 size_i), exponents up to 60 (1 if size_i is not
//                    positive and finite, or *needed is 0), inverse_i <- 1 / scale_i; scale may be
//                    size
//   scale_if(lane, needed, m, n, rows, columns, a, lda)
//                    a_ij <- rows_i columns_j a_ij unless *needed is 0; rows or columns may be null,
//                    which stands for ones
//   scale_factors_if(lane, needed, m, n, diagonal, rows, upper, lower, a, lda)
//                    unless *needed is 0: a_ij <- rows_i upper_j a_ij for i <= diagonal + j,
//                    rows_i lower_j a_ij below
//   unit_scale(lane, n, diagonal, stride, scale)
//                    scale_i <- 2^-round(log2(Re a_ii) / 2) (1 if a_ii is not positive and finite)
//   judge_scales(lane, n, least, most, scale, inverse, needed)
//                    *needed, a number of that type, <- 1 if a scale is not between `least` and
//                    `most`; else 0, and scale_i <- 1; inverse_i <- 1 / scale_i
//   scale(lane, m, n, rows, columns, a, lda)              a_ij <- rows_i columns_j a_ij; either may
//                                                         be null, which stands for ones
//   trsm(lane, side, uplo, op, diag, m, n, alpha, a, lda, b, ldb)
//   potrf(lane, n, a, lda, position, info)
//                    lower Cholesky factor in place, strict upper part of a untouched; a failing
//                    minor j sets *info, unless it is set already, to
//                    (not_positive_definite, position + j)
//   factor_panel(lane, first, last, n, m, a, lda, position, info)
//                    columns first .. last - 1, those before being done, of: of the n + m rows of a,
//                    the first n <- their lower Cholesky factor L (what is above the diagonal loses
//                    its meaning), the others <- (the others) inv(L)^H; info as for potrf. Runs of
//                    columns of one panel follow each other in the lane, and nothing between them
//                    uses its scratch
//   inverse_block    edge of the blocks that getrf inverts; 0: triangular solves are better
//   invert_lower(lane, n, l, ldl, x, ldx)
//                    x <- inv(L), or nothing where solve_diagonal needs none
//   solve_diagonal(lane, op, m, n, l, ldl, x, ldx, b, ldb, work)
//                    b (m x n) <- b inv(op(L)); x is what invert_lower made; work holds m n elements
//   getrf(lane, m, n, a, lda, first, pivots, inverse, ldi, position, equation, info)
//                    LU factors of a panel with m >= n rows in place, L unit lower: row j changes
//                    places with row pivots_j - first >= j. A pivot that is exactly zero divides
//                    nothing and sets *info, unless it is set already, to (singular,
//                    position + j + 1), with equation + j + 1 noted beside it. With L the triangle
//                    and B its block diagonal of edge inverse_block: inverse (n x n) <- inv(B) on
//                    the diagonal blocks, inv(B) L left of them, unless inverse_block is 0
//   trace_pivots(lane, n, pivots, first, moves)
//                    moves <- what n interchanges do in all: row moves.from_i goes to row moves.to_i
//                    for i < 2 n (-1: no row); to_i = i for i < n. Rows count from `first`
//   move_rows(lane, n, moves, columns, a, lda, top, ldt)
//                    rows of a move at once. New rows i < n of the list go to row i of top instead,
//                    unless top is null, which may be a itself
//   put_rows(lane, m, n, index, first, src, lds, dst, ldd)
//                    row index_i - first of dst <- row i of src
//   put_columns(lane, m, n, index, first, count, src, lds, dst, ldd)
//                    column index_j - first of dst <- column j of src, where that is in 0 .. count-1
//   take_columns(lane, m, n, index, first, count, src, lds, dst, ldd)
//                    column j of dst <- column index_j - first of src, or 0 where there is none
//   iota(lane, n, index)                     index_i <- i
//   invert_triangle(lane, uplo, diag, n, a, lda, x, ldx)
//                    x <- what solve_triangle needs of the triangle, or nothing
//   solve_triangle(lane, uplo, op, diag, m, n, a, lda, x, ldx, b, ldb, work)
//                    b (m x n) <- b inv(op(A)), op none or transpose; work holds m n elements
//   log_phase(lane, n, x, stride, log, phase)
//                    *log (real) += sum log|x_i|, *phase *= product of x_i / |x_i|, 0 for 0
//   pivot_sign(lane, n, pivots, phase)       *phase *= (-1)^(number of i with pivots_i != i)
//   check_finite(lane, m, n, a, lda, info)   sets *info, if ok, to non_finite if a is not finite
//   name_equation(lane, info)                position of a singular *info <- what getrf noted
//   fill_if_kind(lane, info, kind, m, n, value, a, lda)    a <- value if info->kind is `kind`
//   copy_triangle(lane, uplo, diag, m, n, src, lds, dst, ldd)
//                    dst <- src within the triangle, without its diagonal if that is unit; the rest
//                    of dst stays
//   orthonormalise(lane, m, n, a, lda, r, ldr)
//                    m >= n: a <- Q, r <- R of a = Q R with orthonormal columns of Q, whatever the
//                    rank of a; zeros below R, whose diagonal is real
//   gram_panels      whether the QR of a panel is best taken by way of its Gram matrices where that
//                    is safe; only then:
//   doubt_factor(lane, n, l, ldl, info, g)
//                    *g <- NaN if *info has failed, or if the diagonal of the lower triangle L is so
//                    wide that squares lose too much: L L^H was a Gram matrix
//   class Verdict    movable; good() holds the host until it is there
//   judge_gram(lane, n, g, ldg) -> Verdict
//                    whether the lower triangle of g is near that of I; it depends on g alone
//   mirrored_rows<T> rows from which half of a Hermitian update, and its image by way of other ranks,
//                    are better than all of it
//   least_update_columns
//                    the fewest columns of such an update that are worth a product of their own
//   split_rows       rows of a product from which it is worth while to add them up over the ranks in
//                    two parts, one of them being on its way while the other is made
//   make_reflectors(lane, n, m, a, lda, signs, t, ldt)
//                    as signed_lu, and t <- T = -U S inv(L)^H, zeros below its diagonal
//   lu_block         largest n of signed_lu and make_reflectors
//   signed_lu(lane, n, m, a, lda, signs)
//                    the first n rows of a <- L \ U of a - S = L U, L of unit diagonal, S =
//                    diag(signs) of +-1 chosen so that no pivot is less than 1 in magnitude, for a
//                    with columns of norm <= 1; the m <= n rows C below them <- C inv(U)
//   check_diagonal(lane, n, a, lda, position, info)
//                    sets *info, if ok, to (singular, position + j) for the first zero a_jj, 1-based
//   rotate(lane, downdate, w, k, l, ldl, v, ldv, theta, ldt, position, info)
//                    with L lower triangular (w x w), V w x k and Theta unitary of order w + k:
//                    [L V] Theta = [L' 0], or downdate: [L' V] Theta = [L 0];  l <- L', theta <-
//                    Theta, whose part (1, 1) is upper triangular; v is destroyed. Diagonals stay
//                    real. A downdate that loses definiteness at row j sets *info, unless it is set
//                    already, to (not_positive_definite, position + j)
//   log_diagonal(lane, n, l, ldl, result)    *result (real) += 2 sum log Re l_ii
//   check_hermitian(lane, n, diagonal, stride, v, y, z, result)
//                    result[0] = max |y - conj(z)| with Im a_ii left out of both (v is real;
//                    diagonal has the given stride), result[1] = max |y|, result[2] = 1 if y or z is
//                    not finite, else 0 (each joined with what result holds)
//   judge_hermitian(lane, result, threshold, info)
//                    sets *info, if ok, to non_finite or not_hermitian
//   reset(lane, info)                        *info <- success
//   set_if_ok(lane, kind, position, info)    *info <- (kind, position) unless it has failed already
//   set_phase(lane, phase, rank, info)       marks a failed info that has no phase yet
//
// For eigenproblems (a device without them says so by solves_eigenproblems = false). Arrays marked
// "host" are in the host's memory; operations that return them wait for the lane. `work` is
// Buffer::eigen_work of a plan, which may be null where a device needs none.
//
//   max_abs(lane, m, n, a, lda, result)      result[0] = max(result[0], |Re a_ij|, |Im a_ij|),
//                                            result[1] = 1 if an element is not finite
//   multiply(lane, m, n, factor, a, lda)     a <- factor a, factor being real
//   real_diagonal(lane, n, a, stride)        Im a_i <- 0 for n elements at this distance
//   mirror(lane, n, a, lda)                  upper triangle of a <- the lower one's conjugate transpose
//   householder_panel(lane, m, w, a, lda, r, ldr, tau, work)
//                    QR of a (m x w), k = min(m, w): a <- V (m x k, unit lower trapezoid, zeros
//                    above), r (k x w) <- R with real diagonal, zeros below it, tau (k) <- scalars
//                    of the reflectors, Q = (I - tau_0 v_0 v_0^H) (I - tau_1 v_1 v_1^H) ...
//   reflector_factor(lane, k, gram, ldg, tau, t, ldt)
//                    t <- T, zeros below its diagonal, with Q = I - V T V^H; gram is V^H V, of which
//                    the strict upper triangle is read
//   reflector_diagonal(lane, k, tau, u, ldu) u_ii <- 1 / tau_i, or so large a number that it makes
//                    nothing of a reflector that has tau_i = 0: then T = inv(upper triangle of u)
//                    if u was V^H V
//   store_band(lane, m, w, b, block, ldb, band, ld)
//                    band[i - j + j ld] <- block_ij for 0 <= i - j <= b
//   chase(lane, batch, band, ld, v, work, info)  the sweeps of a SweepBatch (tile/eigen.h) on a band
//                    matrix, A_ij at band[i - j + j ld], ld = 2 b, zero below its half width b; v
//                    (null: not kept) <- their reflectors
//   pack_sweeps(lane, batch, v, packed)      packed <- what apply_sweeps wants of their reflectors
//   apply_sweeps(lane, batch, packed, columns, x, ldx, products, info)
//                    x <- the product of all reflectors times x: groups last to first, in each by
//                    rising number; products holds batch.size x columns elements
//   tridiagonal_part(lane, n, band, ld, d, e)    host d, e <- (real) diagonal and sub-diagonal
//   widen(lane, n, src, dst)                 dst <- src, real numbers to the element type
//   to_host(lane, n, src, host dst), from_host(lane, m, n, host src, lds, dst, ldd)
//                    between real numbers of the device and doubles of the host
//   gather_rows(lane, m, host index, n, src, lds, dst, ldd, work)  row i of dst <- row index_i of src
//
// Divide and conquer. A rank has rows begin .. end - 1 of Q as columns of q (leading dimension ldq),
// rows and columns of T are those of Q; state is a MergeState, whose arrays lie with the data; the
// operations work on all nodes of a level (tile/eigen.h).
//   tridiagonal_leaf, merge_alone, merge_whole
//                    the largest matrices that are not cut; merges that are not worth sharing; and
//                    those whose products run together, with nothing known of them on the host
//   tridiagonal_leaves(lane, n, size, state, begin, end, q, ldq)
//                    of the diagonal blocks of this size of T: state.d <- eigenvalues, q <- own rows
//                    of eigenvectors; state.failed <- 1 if one does not converge
//   merge_weights(lane, level, state, begin, end, q, ldq)
//                    state.z <- what the own rows tell of it, 0 elsewhere
//   deflate(lane, level, state, eps, norm)
//                    from d, e, z: poles, place, source, rotations, counts; d <- the eigenvalues
//                    that are known, behind as many places as there are poles. See tile/deflation.h
//   rotate_columns(lane, level, state, begin, end, q, ldq)
//   arrange_columns(lane, level, state, begin, end, q, work, ld)    row i of work <- row source_i of q
//   secular_roots(lane, level, state, first, last), secular_weights(...)
//                    tau and next, or weight, of poles in the places first .. last - 1
//   merged_values(lane, level, state)         d <- roots, in the places of the poles
//   merge_counts(lane, level, state, host counts)
//   secular_vectors(lane, level, state, node, k, first, count, host roots, u, ldu, work)
//                    column c of u (k x count) <- unit eigenvector roots[first + c] (null: first +
//                    c) of a node with k poles, element j in row place_j; see tile/secular.h
//   merge_vectors(lane, level, state, first, count, u)
//                    those of nodes first .. first + count - 1, each as a matrix of edge level.size,
//                    with unit vectors for what was deflated
//
//   bisect(lane, n, host d, e2, low, high, tolerance, first, count, host w, work)
//                    w[first + i] <- eigenvalues, see tile/sturm.h
//   random_vector(lane, n, first, scale, v)  v_i <- scale times a real number in (-1, 1) made from
//                                            first + i alone
// clang-format on
#pragma once

#include <cstdint>

namespace jaxmg {

// Rows that change places, 2 n of them for n interchanges; the lists lie with the data.
struct RowMoves {
  std::int32_t* to;
  std::int32_t* from;
  RowMoves inverse() const { return {from, to}; }
};

enum class Op { none, transpose, conj_transpose };
enum class Side { left, right };
enum class Uplo { lower, upper };
enum class Diag { non_unit, unit };

}  // namespace jaxmg
