# The CUDA engine, if it is wanted and there is a compiler for it.
#
# CUDA's libraries are linked dynamically and found at run time by soname, among those that JAX has
# loaded already: nothing of them is bundled, and no search path is left in what we build.
set(JAXMG_CUDA_ARCHITECTURES "80-real;86-real;89-real;90-real;100-real;120" CACHE STRING
    "GPU architectures to compile for")

set(JAXMG_HAS_CUDA OFF)
if(NOT JAXMG_CUDA)
  message(STATUS "CUDA engine: off")
  return()
endif()

find_program(JAXMG_NVCC nvcc HINTS ENV CUDACXX ENV CUDA_PATH PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(NOT JAXMG_NVCC)
  if(JAXMG_CUDA STREQUAL "AUTO")
    message(STATUS "CUDA engine: off (no nvcc found)")
    return()
  endif()
  message(FATAL_ERROR "JAXMG_CUDA is ON, but there is no nvcc: set CUDACXX or CMAKE_CUDA_COMPILER")
endif()

if(NOT CMAKE_CUDA_COMPILER)
  set(CMAKE_CUDA_COMPILER ${JAXMG_NVCC})
endif()
set(CMAKE_CUDA_ARCHITECTURES ${JAXMG_CUDA_ARCHITECTURES})
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# CMake up to 3.25.1 does not know that nvcc has C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_EXTENSIONS OFF)
set(CMAKE_CUDA_VISIBILITY_PRESET hidden)
set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)
set(JAXMG_HAS_CUDA ON)
message(STATUS "CUDA engine: on (CUDA ${CUDAToolkit_VERSION}, for ${JAXMG_CUDA_ARCHITECTURES})")

file(GLOB JAXMG_CUDA_SOURCES CONFIGURE_DEPENDS
  src/core/*.cpp src/tile/cuda/*.cpp src/tile/cuda/*.cu src/comm/cuda/*.cpp src/comm/cuda/*.cu
  src/vendor/cuda/*.cpp)

# Tiles on GPUs and communication between them: what the CUDA engine and its checks share.
add_library(jaxmg_cuda_base STATIC ${JAXMG_CUDA_SOURCES})
target_include_directories(jaxmg_cuda_base PUBLIC src)
target_compile_options(jaxmg_cuda_base PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:--extended-lambda>
  $<$<AND:$<COMPILE_LANGUAGE:CUDA>,$<BOOL:${JAXMG_WERROR}>>:-Werror=all-warnings>
  $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra,-Wshadow>)
target_link_libraries(jaxmg_cuda_base
  PUBLIC CUDA::cudart CUDA::cublas CUDA::cusolver Threads::Threads ${CMAKE_DL_LIBS}
  PRIVATE jaxmg_warnings)

if(JAXMG_TESTS)
  # A plain program for machines with GPUs.
  file(GLOB JAXMG_DEVICE_CHECK_SOURCES CONFIGURE_DEPENDS tests/cuda/*.cpp)
  add_executable(device_check ${JAXMG_DEVICE_CHECK_SOURCES})
  target_include_directories(device_check PRIVATE tests/cuda tests/cpp)
  target_link_libraries(device_check PRIVATE jaxmg_cuda_base jaxmg_warnings)
endif()
