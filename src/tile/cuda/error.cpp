#include "tile/cuda/error.h"

namespace jaxmg::tile {
namespace {

// The argument list of a call is of no use in a message.
std::string callee(const char* call) {
  const std::string text(call);
  return text.substr(0, text.find('('));
}

const char* file_name(const char* path) {
  const std::string text(path);
  const auto slash = text.rfind('/');
  return slash == std::string::npos ? path : path + slash + 1;
}

std::string name_of(cusolverStatus_t status) {
  switch (status) {
    case CUSOLVER_STATUS_NOT_INITIALIZED:
      return "CUSOLVER_STATUS_NOT_INITIALIZED";
    case CUSOLVER_STATUS_ALLOC_FAILED:
      return "CUSOLVER_STATUS_ALLOC_FAILED";
    case CUSOLVER_STATUS_INVALID_VALUE:
      return "CUSOLVER_STATUS_INVALID_VALUE";
    case CUSOLVER_STATUS_ARCH_MISMATCH:
      return "CUSOLVER_STATUS_ARCH_MISMATCH";
    case CUSOLVER_STATUS_EXECUTION_FAILED:
      return "CUSOLVER_STATUS_EXECUTION_FAILED";
    case CUSOLVER_STATUS_INTERNAL_ERROR:
      return "CUSOLVER_STATUS_INTERNAL_ERROR";
    case CUSOLVER_STATUS_NOT_SUPPORTED:
      return "CUSOLVER_STATUS_NOT_SUPPORTED";
    default:
      return "cuSOLVER status " + std::to_string(static_cast<int>(status));
  }
}

}  // namespace

CudaError::CudaError(const std::string& name, const char* call, const char* file, int line,
                     bool out_of_memory)
    : std::runtime_error(callee(call) + " failed with " + name + " (" + file_name(file) + ":" +
                         std::to_string(line) + ")"),
      out_of_memory_(out_of_memory) {}

void check_cuda(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) {
    return;
  }
  cudaGetLastError();  // an error that is not sticky must not show up again at the next launch
  throw CudaError(std::string(cudaGetErrorName(status)) + " (" + cudaGetErrorString(status) + ")",
                  call, file, line, status == cudaErrorMemoryAllocation);
}

void check_cuda(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw CudaError(cublasGetStatusName(status), call, file, line,
                    status == CUBLAS_STATUS_ALLOC_FAILED);
  }
}

void check_cuda(cusolverStatus_t status, const char* call, const char* file, int line) {
  if (status != CUSOLVER_STATUS_SUCCESS) {
    throw CudaError(name_of(status), call, file, line, status == CUSOLVER_STATUS_ALLOC_FAILED);
  }
}

}  // namespace jaxmg::tile
