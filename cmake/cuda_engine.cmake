# The CUDA engine library and the thin FFI libraries around it, one set per CUDA major version:
#
#   libjaxmg_cuda13.so             GPU ranks and tiles behind the C functions of src/ffi/call.h
#   libjaxmg_cuda13_ffi_0_1.so ... XLA's handlers, once per generation of FFI headers
if(NOT JAXMG_HAS_CUDA)
  return()
endif()

set(JAXMG_CUDA_ENGINE jaxmg_cuda${CUDAToolkit_VERSION_MAJOR})
add_library(${JAXMG_CUDA_ENGINE} SHARED
  src/ffi/c_api.cpp
  src/ffi/cuda_engine.cpp
  ${JAXMG_CALL_SOURCES})
target_compile_definitions(${JAXMG_CUDA_ENGINE} PRIVATE JAXMG_VERSION="${JAXMG_VERSION}")
target_include_directories(${JAXMG_CUDA_ENGINE} PUBLIC src)
target_link_libraries(${JAXMG_CUDA_ENGINE} PRIVATE jaxmg_cuda_base jaxmg_warnings)
jaxmg_relocatable(${JAXMG_CUDA_ENGINE})
jaxmg_ffi_libraries(${JAXMG_CUDA_ENGINE}_ffi ${JAXMG_CUDA_ENGINE} JAXMG_CUDA_HANDLERS)
