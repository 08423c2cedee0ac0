// Looks the buffers of a call up by place and checks their form.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "ffi/operands.h"

namespace jaxmg {

constexpr Size kAny = -1;  // a dimension that may be anything

std::string type_name(std::int32_t dtype);

// Each member throws std::invalid_argument for what does not fit.
class OperandReader {
 public:
  explicit OperandReader(const jaxmg_call& call) : call_(call) {}

  void counts(std::int32_t arguments, std::int32_t results) const;
  const jaxmg_buffer& argument(int place, const char* name, DType type,
                               std::initializer_list<Size> dims) const {
    check(call_.arguments[place], "operand", name, type, dims);
    return call_.arguments[place];
  }
  const jaxmg_buffer& result(int place, const char* name, DType type,
                             std::initializer_list<Size> dims) const {
    check(call_.results[place], "result", name, type, dims);
    return call_.results[place];
  }
  // The type of argument 1.
  DType matrix_type() const;
  // Attributes.
  std::int64_t triangle() const;
  Precision precision() const;
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void check(const jaxmg_buffer& b, const char* role, const char* name, DType type,
             std::initializer_list<Size> dims) const;

  const jaxmg_call& call_;
};

// The parts of call_kind and sort_operands that belong to one family.
void read_cholesky_kind(const jaxmg_call& call, CallKind& kind);
void sort_cholesky_operands(const jaxmg_call& call, const Plan& plan, Operands& operands);
void read_lu_kind(const jaxmg_call& call, CallKind& kind);
void sort_lu_operands(const jaxmg_call& call, const Plan& plan, Operands& operands);
void read_qr_kind(const jaxmg_call& call, CallKind& kind);
void sort_qr_operands(const jaxmg_call& call, const Plan& plan, Operands& operands);
void read_eigen_kind(const jaxmg_call& call, CallKind& kind);
void sort_eigen_operands(const jaxmg_call& call, const Plan& plan, Operands& operands);
// mirror, trsm, cholupdate
void read_triangular_kind(const jaxmg_call& call, CallKind& kind);
void sort_triangular_operands(const jaxmg_call& call, const Plan& plan, Operands& operands);

// The result of an aliased pair, which the rank program then uses in place.
void* in_place(Operands& operands, const jaxmg_buffer& argument, const jaxmg_buffer& result);

}  // namespace jaxmg
