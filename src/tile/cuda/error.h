// Failures of the CUDA runtime and its libraries as one exception.
#pragma once

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#include <cusolverDn.h>

#include <stdexcept>
#include <string>

namespace jaxmg::tile {

class CudaError : public std::runtime_error {
 public:
  CudaError(const std::string& name, const char* call, const char* file, int line,
            bool out_of_memory);
  bool out_of_memory() const { return out_of_memory_; }

 private:
  bool out_of_memory_;
};

// Throws CudaError, which carries the name of the error, the call and the place, unless all is
// well.
void check_cuda(cudaError_t status, const char* call, const char* file, int line);
void check_cuda(cublasStatus_t status, const char* call, const char* file, int line);
void check_cuda(cusolverStatus_t status, const char* call, const char* file, int line);

}  // namespace jaxmg::tile

// Every call of the runtime, cuBLAS and cuSOLVER goes through this.
#define JAXMG_CUDA_CHECK(call) ::jaxmg::tile::check_cuda((call), #call, __FILE__, __LINE__)
