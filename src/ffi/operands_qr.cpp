// The form of the targets of the QR family.
#include <algorithm>

#include "ffi/operand_reader.h"

namespace jaxmg {

void read_qr_kind(const jaxmg_call& call, CallKind& kind) {
  const OperandReader reader(call);
  PlanRequest& q = kind.request;
  q.columns = reader.argument(1, "matrix", q.type, {kAny, kAny}).dims[1];
  if (q.n < 1 || q.columns < 1) {
    reader.fail("a matrix of " + std::to_string(q.n) + " x " + std::to_string(q.columns) +
                "; expected at least one row and one column");
  }
  kind.adjoint = call.adjoint != 0;
  switch (q.routine) {
    case Routine::orgqr:
      reader.counts(4, 2);
      q.nrhs = reader.result(0, "q", q.type, {kAny, kAny}).dims[1];
      if (q.nrhs < std::min(q.n, q.columns) || q.nrhs > q.n) {
        reader.fail("result 'q' has " + std::to_string(q.nrhs) + " columns");
      }
      break;
    case Routine::ormqr:
      reader.counts(5, 1);
      q.nrhs = reader.argument(4, "c", q.type, {kAny, kAny}).dims[1];
      break;
    case Routine::geqrs:
      reader.counts(5, 2);
      q.nrhs = reader.argument(4, "b", q.type, {kAny, kAny}).dims[1];
      if (q.n < q.columns) {
        reader.fail("needs a factorisation of at least as many rows as columns");
      }
      break;
    case Routine::gels:
      reader.counts(3, 2);
      q.nrhs = reader.argument(2, "b", q.type, {kAny, kAny}).dims[1];
      if (q.n < q.columns) {
        reader.fail("needs at least as many rows as columns");
      }
      break;
    default:
      break;
  }
}

void sort_qr_operands(const jaxmg_call& call, const Plan& plan, Operands& o) {
  const OperandReader r(call);
  const PlanRequest& q = plan.request();
  const Size n = q.columns;
  const Size rows = ceil_div(q.n, q.ranks);
  const Size per = ceil_div(std::min(q.n, n), q.ranks);
  const Size aux = qr_aux_count(q.n, n, plan.tile());
  const bool adjoint = call.adjoint != 0;
  const auto info = [](const jaxmg_buffer& b) { return static_cast<Info*>(b.data); };
  if (q.routine == Routine::geqrf) {
    r.counts(2, 3);
    o.matrix =
        in_place(o, r.argument(1, "a", q.type, {rows, n}), r.result(0, "work", q.type, {rows, n}));
    o.aux = r.result(1, "aux", q.type, {aux}).data;
    o.info = info(r.result(2, "info", DType::i32, {8}));
    return;
  }
  if (q.routine == Routine::gels) {
    r.counts(3, 2);
    o.matrix = r.argument(1, "a", q.type, {rows, n}).data;
    o.right_hand_side = r.argument(2, "b", q.type, {rows, q.nrhs}).data;
    o.solution = r.result(0, "x", q.type, {n, q.nrhs}).data;
    o.info = info(r.result(1, "info", DType::i32, {8}));
    return;
  }
  o.matrix = r.argument(1, "work", q.type, {rows, n}).data;
  if (q.routine == Routine::qr_r) {
    r.counts(3, 1);
    o.info = info(r.argument(2, "info", DType::i32, {8}));
    o.triangular = r.result(0, "r", q.type, {per, n}).data;
    return;
  }
  o.aux = r.argument(2, "aux", q.type, {aux}).data;
  o.info = info(r.argument(3, "info", DType::i32, {8}));
  switch (q.routine) {
    case Routine::orgqr:
      o.solution = r.result(0, "q", q.type, {rows, q.nrhs}).data;
      o.triangular = r.result(1, "r", q.type, {per, n}).data;
      break;
    case Routine::ormqr:
      o.right_hand_side = r.argument(4, "c", q.type, {adjoint ? rows : per, q.nrhs}).data;
      o.solution = r.result(0, "product", q.type, {adjoint ? per : rows, q.nrhs}).data;
      break;
    case Routine::geqrs:
      o.right_hand_side = r.argument(4, "b", q.type, {adjoint ? n : rows, q.nrhs}).data;
      o.solution = r.result(0, "x", q.type, {adjoint ? rows : n, q.nrhs}).data;
      o.report = info(r.result(1, "info", DType::i32, {8}));
      break;
    default:
      break;
  }
}

}  // namespace jaxmg
