// Operands of the Cholesky family.
#include "ffi/operand_reader.h"

namespace jaxmg {

void read_cholesky_kind(const jaxmg_call& call, CallKind& kind) {
  const OperandReader reader(call);
  PlanRequest& q = kind.request;
  switch (q.routine) {
    case Routine::potrf:
      kind.triangle = reader.triangle();
      q.precision = reader.precision();
      q.mirror = kind.triangle >= 0;
      break;
    case Routine::posv:
      reader.counts(3, 4);
      kind.triangle = reader.triangle();
      q.precision = reader.precision();
      q.mirror = kind.triangle >= 0;
      q.replicated_rhs = call.replicated != 0;
      q.nrhs = reader.argument(2, "b", q.type, {kAny, kAny}).dims[1];
      break;
    case Routine::potrs:
      reader.counts(5, 1);
      q.replicated_rhs = call.replicated != 0;
      q.nrhs = reader.argument(4, "b", q.type, {kAny, kAny}).dims[1];
      break;
    default:
      break;
  }
}

void sort_cholesky_operands(const jaxmg_call& call, const Plan& plan, Operands& o) {
  const OperandReader r(call);
  const PlanRequest& q = plan.request();
  const Size n = q.n;
  const Size rows = ceil_div(n, q.ranks);
  const Size held = plan.factor_rows();
  const Size aux = plan.aux_count();
  switch (q.routine) {
    case Routine::potrf:
      r.counts(2, 3);
      o.matrix = in_place(o, r.argument(1, "a", q.type, {plan.matrix_rows(), n}),
                          r.result(0, "work", q.type, {plan.matrix_rows(), n}));
      o.aux = r.result(1, "aux", q.type, {aux}).data;
      o.info = static_cast<Info*>(r.result(2, "info", DType::i32, {8}).data);
      break;
    case Routine::posv: {
      r.counts(3, 4);
      const Size given = q.replicated_rhs ? n : rows;
      o.matrix = in_place(o, r.argument(1, "a", q.type, {plan.matrix_rows(), n}),
                          r.result(1, "work", q.type, {plan.matrix_rows(), n}));
      o.solution = in_place(o, r.argument(2, "b", q.type, {given, q.nrhs}),
                            r.result(0, "x", q.type, {given, q.nrhs}));
      o.aux = r.result(2, "aux", q.type, {aux}).data;
      o.info = static_cast<Info*>(r.result(3, "info", DType::i32, {8}).data);
      break;
    }
    case Routine::potrs: {
      r.counts(5, 1);
      const Size given = q.replicated_rhs ? n : rows;
      o.matrix = r.argument(1, "work", q.type, {held, n}).data;
      o.aux = r.argument(2, "aux", q.type, {aux}).data;
      o.info = static_cast<Info*>(r.argument(3, "info", DType::i32, {8}).data);
      o.solution = in_place(o, r.argument(4, "b", q.type, {given, q.nrhs}),
                            r.result(0, "x", q.type, {given, q.nrhs}));
      break;
    }
    case Routine::logdet:
      r.counts(3, 1);
      o.matrix = r.argument(1, "work", q.type, {held, n}).data;
      o.info = static_cast<Info*>(r.argument(2, "info", DType::i32, {8}).data);
      o.scalar = r.result(0, "result", real_of(q.type), {}).data;
      break;
    case Routine::locate:
      r.counts(4, 2);
      o.matrix = in_place(o, r.argument(1, "work", q.type, {rows, n}),
                          r.result(0, "work", q.type, {rows, n}));
      o.aux = r.argument(2, "aux", q.type, {aux}).data;
      o.info = static_cast<Info*>(in_place(o, r.argument(3, "info", DType::i32, {8}),
                                           r.result(1, "info", DType::i32, {8})));
      break;
    case Routine::potri:
      r.counts(4, 1);
      o.matrix = in_place(o, r.argument(1, "work", q.type, {held, n}),
                          r.result(0, "inverse", q.type, {held, n}));
      o.aux = r.argument(2, "aux", q.type, {aux}).data;
      o.info = static_cast<Info*>(r.argument(3, "info", DType::i32, {8}).data);
      break;
    default:
      r.fail("is no routine of the Cholesky family");
  }
}

}  // namespace jaxmg
