// Buffers and attributes of operations with a triangular matrix.
#include "ffi/operand_reader.h"

namespace jaxmg {
namespace {

void check_range(const OperandReader& reader, const char* attribute, std::int64_t value,
                 std::int64_t last) {
  if (value < 0 || value > last) {
    reader.fail("attribute " + std::string(attribute) + " = " + std::to_string(value) +
                ", expected 0 to " + std::to_string(last));
  }
}

}  // namespace

void read_triangular_kind(const jaxmg_call& call, CallKind& kind) {
  const OperandReader reader(call);
  PlanRequest& q = kind.request;
  switch (q.routine) {
    case Routine::mirror:
      reader.counts(2, 1);
      check_range(reader, "triangle", call.triangle, 1);
      kind.triangle = call.triangle;
      break;
    case Routine::trsm:
      reader.counts(3, 1);
      check_range(reader, "triangle", call.triangle, 1);
      check_range(reader, "transpose", call.transpose, 2);
      kind.triangle = call.triangle;
      kind.transpose = call.transpose;
      kind.unit = call.unit != 0;
      q.replicated_rhs = call.replicated != 0;
      q.nrhs = reader.argument(2, "b", q.type, {kAny, kAny}).dims[1];
      break;
    default:
      reader.counts(5, 3);
      kind.downdate = call.downdate != 0;
      q.nrhs = reader.argument(4, "v", q.type, {kAny, kAny}).dims[1];
      break;
  }
}

void sort_triangular_operands(const jaxmg_call& call, const Plan& plan, Operands& o) {
  const OperandReader r(call);
  const PlanRequest& q = plan.request();
  const Size n = q.n;
  const Size rows = ceil_div(n, q.ranks);
  const Size aux = aux_count(n, q.ranks, plan.tile());
  switch (q.routine) {
    case Routine::mirror:
      o.matrix =
          in_place(o, r.argument(1, "a", q.type, {rows, n}), r.result(0, "a", q.type, {rows, n}));
      break;
    case Routine::trsm: {
      const Size held = q.replicated_rhs ? n : rows;
      o.matrix = r.argument(1, "a", q.type, {rows, n}).data;
      o.solution = in_place(o, r.argument(2, "b", q.type, {held, q.nrhs}),
                            r.result(0, "x", q.type, {held, q.nrhs}));
      break;
    }
    default:
      o.matrix = in_place(o, r.argument(1, "work", q.type, {rows, n}),
                          r.result(0, "work", q.type, {rows, n}));
      o.aux = in_place(o, r.argument(2, "aux", q.type, {aux}), r.result(1, "aux", q.type, {aux}));
      o.info = static_cast<Info*>(in_place(o, r.argument(3, "info", DType::i32, {8}),
                                           r.result(2, "info", DType::i32, {8})));
      o.added = r.argument(4, "v", q.type, {n, q.nrhs}).data;
      break;
  }
}

}  // namespace jaxmg
