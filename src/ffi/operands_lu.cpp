// Operands of the LU family.
#include "ffi/operand_reader.h"

namespace jaxmg {

void read_lu_kind(const jaxmg_call& call, CallKind& kind) {
  const OperandReader r(call);
  PlanRequest& q = kind.request;
  if (q.routine == Routine::getrf) {
    q.precision = r.precision();
  }
  if (q.routine == Routine::gesv) {
    r.counts(3, 5);
    q.precision = r.precision();
    q.replicated_rhs = call.replicated != 0;
    q.nrhs = r.argument(2, "b", q.type, {kAny, kAny}).dims[1];
  }
  if (q.routine == Routine::getrs) {
    r.counts(6, 1);
    q.replicated_rhs = call.replicated != 0;
    q.transpose = call.transpose != 0;
    q.nrhs = r.argument(5, "b", q.type, {kAny, kAny}).dims[1];
  }
}

void sort_lu_operands(const jaxmg_call& call, const Plan& plan, Operands& o) {
  const OperandReader r(call);
  const PlanRequest& q = plan.request();
  const Size n = q.n;
  const Size rows = ceil_div(n, q.ranks);
  const Size room = plan.factor_rows();  // of a factor: as many rows as a shard, or more
  const Size aux = plan.aux_count();
  const auto integers = [](const jaxmg_buffer& b) { return static_cast<std::int32_t*>(b.data); };
  switch (q.routine) {
    case Routine::getrf:
      r.counts(2, 4);
      o.matrix = in_place(o, r.argument(1, "a", q.type, {room, n}),
                          r.result(0, "work", q.type, {room, n}));
      o.aux = r.result(1, "aux", q.type, {aux}).data;
      o.pivots = integers(r.result(2, "pivots", DType::i32, {2 * n}));
      o.info = static_cast<Info*>(r.result(3, "info", DType::i32, {8}).data);
      break;
    case Routine::gesv: {
      r.counts(3, 5);
      const Size held = q.replicated_rhs ? n : rows;
      o.matrix = in_place(o, r.argument(1, "a", q.type, {room, n}),
                          r.result(1, "work", q.type, {room, n}));
      o.solution = in_place(o, r.argument(2, "b", q.type, {held, q.nrhs}),
                            r.result(0, "x", q.type, {held, q.nrhs}));
      o.aux = r.result(2, "aux", q.type, {aux}).data;
      o.pivots = integers(r.result(3, "pivots", DType::i32, {2 * n}));
      o.info = static_cast<Info*>(r.result(4, "info", DType::i32, {8}).data);
      break;
    }
    case Routine::getrs: {
      r.counts(6, 1);
      const Size held = q.replicated_rhs ? n : rows;
      o.matrix = r.argument(1, "work", q.type, {room, n}).data;
      o.aux = r.argument(2, "aux", q.type, {aux}).data;
      o.pivots = integers(r.argument(3, "pivots", DType::i32, {2 * n}));
      o.info = static_cast<Info*>(r.argument(4, "info", DType::i32, {8}).data);
      o.solution = in_place(o, r.argument(5, "b", q.type, {held, q.nrhs}),
                            r.result(0, "x", q.type, {held, q.nrhs}));
      break;
    }
    case Routine::getdet:
      r.counts(4, 2);
      o.matrix = r.argument(1, "work", q.type, {room, n}).data;
      o.pivots = integers(r.argument(2, "pivots", DType::i32, {2 * n}));
      o.info = static_cast<Info*>(r.argument(3, "info", DType::i32, {8}).data);
      o.phase = r.result(0, "sign", q.type, {}).data;
      o.scalar = r.result(1, "log", real_of(q.type), {}).data;
      break;
    case Routine::getri:
      r.counts(4, 1);
      o.matrix = in_place(o, r.argument(1, "work", q.type, {rows, n}),
                          r.result(0, "inverse", q.type, {rows, n}));
      o.pivots = integers(r.argument(2, "pivots", DType::i32, {2 * n}));
      o.info = static_cast<Info*>(r.argument(3, "info", DType::i32, {8}).data);
      break;
    default:
      r.fail("is no LU routine");
  }
}

}  // namespace jaxmg
