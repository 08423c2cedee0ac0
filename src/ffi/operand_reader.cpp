#include "ffi/operand_reader.h"

#include <sstream>
#include <stdexcept>

namespace jaxmg {
namespace {

std::string shape(std::int32_t dtype, const std::int64_t* dims, std::size_t rank) {
  std::ostringstream out;
  out << type_name(dtype) << "[";
  for (std::size_t i = 0; i < rank; ++i) {
    out << (i > 0 ? "," : "");
    dims[i] == kAny ? out << "*" : out << dims[i];
  }
  out << "]";
  return out.str();
}

Size elements(const jaxmg_buffer& b) {
  Size count = 1;
  for (std::int32_t i = 0; i < b.rank; ++i) {
    count *= b.dims[i];
  }
  return count;
}

}  // namespace

std::string type_name(std::int32_t dtype) {
  switch (dtype) {
    case JAXMG_F32:
      return "float32";
    case JAXMG_F64:
      return "float64";
    case JAXMG_C64:
      return "complex64";
    case JAXMG_C128:
      return "complex128";
    case JAXMG_I32:
      return "int32";
    default:
      return "another type";
  }
}

void OperandReader::counts(std::int32_t arguments, std::int32_t results) const {
  if (call_.argument_count != arguments || call_.result_count != results) {
    fail("got " + std::to_string(call_.argument_count) + " operands and " +
         std::to_string(call_.result_count) + " results, expected " + std::to_string(arguments) +
         " and " + std::to_string(results));
  }
}

void OperandReader::fail(const std::string& what) const {
  throw std::invalid_argument(target_name(call_) + ": " + what);
}

void OperandReader::check(const jaxmg_buffer& b, const char* role, const char* name, DType type,
                          std::initializer_list<Size> dims) const {
  bool same =
      b.dtype == static_cast<std::int32_t>(type) && static_cast<std::size_t>(b.rank) == dims.size();
  const Size* expected = dims.begin();
  for (std::int32_t i = 0; same && i < b.rank; ++i) {
    same = expected[i] == kAny ? b.dims[i] >= 0 : b.dims[i] == expected[i];
  }
  if (!same) {
    fail(std::string(role) + " '" + name + "' is " +
         shape(b.dtype, b.dims, static_cast<std::size_t>(b.rank)) + ", expected " +
         shape(static_cast<std::int32_t>(type), dims.begin(), dims.size()));
  }
  if (!b.data && elements(b) > 0) {
    fail(std::string(role) + " '" + name + "' has no data");
  }
}

std::int64_t OperandReader::triangle() const {
  if (call_.triangle < -1 || call_.triangle > 1) {
    fail("attribute triangle = " + std::to_string(call_.triangle) +
         ", expected -1 (whole), 0 (lower) or 1 (upper)");
  }
  return call_.triangle;
}

Precision OperandReader::precision() const {
  if (call_.precision < 0 || call_.precision > 1) {
    fail("attribute precision = " + std::to_string(call_.precision) +
         ", expected 0 (native) or 1 (split)");
  }
  return static_cast<Precision>(call_.precision);
}

DType OperandReader::matrix_type() const {
  if (call_.argument_count < 2) {
    fail("got " + std::to_string(call_.argument_count) + " operands: the matrix is missing");
  }
  const std::int32_t t = call_.arguments[1].dtype;
  if (t < JAXMG_F32 || t > JAXMG_C128) {
    fail("the matrix is of " + type_name(t) +
         "; float32, float64, complex64 and complex128 are supported");
  }
  return static_cast<DType>(t);
}

// The result of an aliased pair, which the rank program then uses in place.
void* in_place(Operands& operands, const jaxmg_buffer& argument, const jaxmg_buffer& result) {
  const Size bytes = elements(result) * size_of(static_cast<DType>(result.dtype));
  if (argument.data != result.data && bytes > 0) {
    operands.aliased.push_back({argument.data, result.data, static_cast<std::size_t>(bytes)});
  }
  return result.data;
}

}  // namespace jaxmg
