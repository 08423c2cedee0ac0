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
//   transpose(lane, m, n, src, lds, dst, ldd, conj)    dst (n x m) <- src^T, or src^H
//   fill(lane, m, n, off, diag, a, lda)                a <- off everywhere, diag on the diagonal
//   fill_if_failed(lane, info, m, n, value, a, lda)    a <- value if info->kind != 0
//   add(lane, m, n, alpha, src, lds, dst, ldd)         dst <- dst + alpha src
//   gemm(lane, op_a, op_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc)
//   gemm_strided(lane, op_a, op_b, m, n, k, alpha, a, lda, stride_a, b, ldb, stride_b, beta, c, ldc,
//                stride_c, count)                      count products, the i-th at a + i stride_a, ...
//   splits<T>        whether products of T can run in half precision parts; only then:
//   class Half       storage of a half-precision number
//   split(lane, m, n, src, lds, dst, ldd)                 dst (m x 4 n) <- the parts of src
//   subtract_split_product(lane, m, n, k, a, b, ld, stride_a, stride_b, c, ldc, stride_c, count)
//                    c <- c - A B^T, a and b pointing to rows of one split panel of k columns; for
//                    `count` blocks at the given distances
//   unit_scale(lane, n, diagonal, stride, scale, inverse)
//                    scale_i <- 2^-round(log2(Re a_ii) / 2) (1 if a_ii is not positive and finite),
//                    inverse_i <- 1 / scale_i
//   scale(lane, m, n, rows, columns, a, lda)              a_ij <- rows_i columns_j a_ij; columns may
//                                                         be null
//   trsm(lane, side, uplo, op, diag, m, n, alpha, a, lda, b, ldb)
//   potrf(lane, n, a, lda, position, info)
//                    lower Cholesky factor in place, strict upper part of a untouched; a failing
//                    minor j sets *info, unless it is set already, to
//                    (not_positive_definite, position + j)
//   invert_lower(lane, n, l, ldl, x, ldx)
//                    x <- inv(L), or nothing where solve_diagonal needs none
//   inverse_block    edge of the blocks that invert_blocks inverts; 0: triangular solves are better
//   invert_blocks(lane, n, l, ldl, x, ldx)
//                    with B the block diagonal of L: x <- inv(B) on its diagonal blocks, inv(B) L
//                    below them, 0 above; nothing if inverse_block is 0
//   solve_diagonal(lane, op, m, n, l, ldl, x, ldx, b, ldb, work)
//                    b (m x n) <- b inv(op(L)); x is what invert_lower made; work holds m n elements
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
//   random_vector(lane, n, first, scale, v)  v_i <- scale times a real number in (-1, 1) made from
//                                            first + i alone
// clang-format on
#pragma once

namespace jaxmg {

enum class Op { none, transpose, conj_transpose };
enum class Side { left, right };
enum class Uplo { lower, upper };
enum class Diag { non_unit, unit };

}  // namespace jaxmg
