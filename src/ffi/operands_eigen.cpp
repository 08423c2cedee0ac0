// Operands of the eigensolver.
#include "ffi/operand_reader.h"

namespace jaxmg {

void read_eigen_kind(const jaxmg_call& call, CallKind& kind) {
  const OperandReader reader(call);
  PlanRequest& q = kind.request;
  kind.triangle = reader.triangle();
  q.mirror = kind.triangle >= 0;
  q.precision = reader.precision();
  const std::int64_t most = q.n - call.first;
  if (call.first < 0 || call.count < 0 || call.count > most) {
    reader.fail("attributes first = " + std::to_string(call.first) +
                ", count = " + std::to_string(call.count) + " name no range of " +
                std::to_string(q.n) + " eigenvectors");
  }
  q.vectors = call.vectors != 0;
  kind.first = q.vectors ? call.first : 0;
  q.columns = q.vectors ? call.count : 0;
}

void sort_eigen_operands(const jaxmg_call& call, const Plan& plan, Operands& o) {
  const OperandReader r(call);
  const PlanRequest& q = plan.request();
  const Size rows = ceil_div(q.n, q.ranks);
  const bool separate = q.vectors && q.columns != q.n;
  r.counts(2, separate ? 4 : 3);
  o.values = r.result(0, "w", real_of(q.type), {q.n}).data;
  const Size room = plan.factor_rows();
  o.matrix = in_place(o, r.argument(1, "a", q.type, {room, q.n}),
                      r.result(1, "work", q.type, {room, q.n}));
  if (q.vectors) {
    o.vectors = separate ? r.result(2, "V", q.type, {rows, q.columns}).data : o.matrix;
  }
  o.info = static_cast<Info*>(r.result(separate ? 3 : 2, "info", DType::i32, {8}).data);
}

}  // namespace jaxmg
