#include "ffi/operands.h"

#include "ffi/operand_reader.h"

namespace jaxmg {

std::string target_name(const jaxmg_call& call) {
  return "jaxmg_" + std::string(name(static_cast<Routine>(call.routine)));
}

bool CallKind::operator==(const CallKind& other) const {
  const PlanRequest& a = request;
  const PlanRequest& b = other.request;
  return a.routine == b.routine && a.type == b.type && a.n == b.n && a.nrhs == b.nrhs &&
         a.ranks == b.ranks && a.tile == b.tile && a.mirror == b.mirror &&
         a.precision == b.precision && a.backend == b.backend &&
         a.replicated_rhs == b.replicated_rhs && a.order == b.order && a.transpose == b.transpose &&
         a.columns == b.columns && a.vectors == b.vectors && triangle == other.triangle &&
         inverse == other.inverse && adjoint == other.adjoint && first == other.first &&
         transpose == other.transpose && unit == other.unit && downdate == other.downdate;
}

void check_context_operand(const jaxmg_call& call) {
  const OperandReader reader(call);
  if (call.argument_count < 1) {
    reader.fail("got no operands: the context is missing");
  }
  reader.argument(0, "context", DType::i32, {16});
}

void check_context(const jaxmg_call& call, const Context& c) {
  const OperandReader reader(call);
  if (c.version != kContextVersion) {
    reader.fail("the context has version " + std::to_string(c.version) + ", this library reads " +
                std::to_string(kContextVersion) + ": Python package and library do not match");
  }
  if (c.ranks < 1 || c.rank < 0 || c.rank >= c.ranks) {
    reader.fail("the context names rank " + std::to_string(c.rank) + " of " +
                std::to_string(c.ranks));
  }
}

void check_one_process(const jaxmg_call& call, const Context& c, const char* devices) {
  if (c.local_ranks != c.ranks) {
    OperandReader(call).fail("only " + std::to_string(c.local_ranks) + " of " +
                             std::to_string(c.ranks) + " ranks are in this process; " + devices +
                             " of several processes are not supported");
  }
}

CallKind call_kind(const jaxmg_call& call, const Context& context, Platform platform) {
  const OperandReader reader(call);
  CallKind kind;
  PlanRequest& q = kind.request;
  q.routine = static_cast<Routine>(call.routine);
  q.type = reader.matrix_type();
  q.n = call.n;
  q.ranks = context.ranks;
  q.tile = call.tile;
  q.platform = platform;
  if (call.backend < 0 || call.backend > (platform == Platform::cuda ? 1 : 0)) {
    reader.fail("attribute backend = " + std::to_string(call.backend) +
                ", expected 0 (native) or, on GPUs, 1 (cuSOLVERMg)");
  }
  q.backend = static_cast<Backend>(call.backend);
  const std::int64_t least = q.routine == Routine::syevd ? 0 : 1;  // 0: the plan chooses
  if (q.n < 0 || q.tile < least) {
    reader.fail("attributes n = " + std::to_string(q.n) + ", tile = " + std::to_string(q.tile) +
                "; expected n >= 0 and tile >= " + std::to_string(least));
  }
  q.order = call.natural != 0 ? Order::natural : Order::relabelled;
  switch (q.routine) {
    case Routine::potrf:
    case Routine::potrs:
    case Routine::logdet:
    case Routine::locate:
    case Routine::potri:
    case Routine::posv:
      read_cholesky_kind(call, kind);
      break;
    case Routine::cyclic:
      reader.counts(2, 1);
      kind.inverse = call.inverse != 0;
      q.columns = reader.argument(1, "a", q.type, {kAny, kAny}).dims[1];
      break;
    case Routine::getrf:
    case Routine::getrs:
    case Routine::getdet:
    case Routine::getri:
    case Routine::gesv:
      read_lu_kind(call, kind);
      break;
    case Routine::geqrf:
    case Routine::ormqr:
    case Routine::orgqr:
    case Routine::qr_r:
    case Routine::geqrs:
    case Routine::gels:
      read_qr_kind(call, kind);
      break;
    case Routine::syevd:
      read_eigen_kind(call, kind);
      break;
    case Routine::mirror:
    case Routine::trsm:
    case Routine::cholupdate:
      read_triangular_kind(call, kind);
      break;
  }
  return kind;
}

Operands sort_operands(const jaxmg_call& call, const Plan& plan) {
  const OperandReader r(call);
  const PlanRequest& q = plan.request();
  Operands o;
  switch (q.routine) {
    case Routine::potrf:
    case Routine::potrs:
    case Routine::logdet:
    case Routine::locate:
    case Routine::potri:
    case Routine::posv:
      sort_cholesky_operands(call, plan, o);
      break;
    case Routine::cyclic: {
      r.counts(2, 1);
      // Room for the rows of either storage; more does not hurt.
      const jaxmg_buffer& a = r.argument(1, "a", q.type, {kAny, q.columns});
      if (a.dims[0] * q.columns < plan.entry(Buffer::matrix).count) {
        r.fail("operand 'a' has " + std::to_string(a.dims[0]) + " rows; " +
               std::to_string(plan.entry(Buffer::matrix).count / q.columns) + " are needed");
      }
      o.matrix = in_place(o, a, r.result(0, "a", q.type, {a.dims[0], q.columns}));
      break;
    }
    case Routine::getrf:
    case Routine::getrs:
    case Routine::getdet:
    case Routine::getri:
    case Routine::gesv:
      sort_lu_operands(call, plan, o);
      break;
    case Routine::geqrf:
    case Routine::ormqr:
    case Routine::orgqr:
    case Routine::qr_r:
    case Routine::geqrs:
    case Routine::gels:
      sort_qr_operands(call, plan, o);
      break;
    case Routine::syevd:
      sort_eigen_operands(call, plan, o);
      break;
    case Routine::mirror:
    case Routine::trsm:
    case Routine::cholupdate:
      sort_triangular_operands(call, plan, o);
      break;
  }
  return o;
}

}  // namespace jaxmg
