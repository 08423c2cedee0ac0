# A second CUDA engine, for CUDA 12, beside that of the toolkit at hand (13): one wheel serves both.
#
#   libjaxmg_cuda12.so             as libjaxmg_cuda13.so
#   libjaxmg_cuda12_ffi_0_1.so ...
#
# Python packages hold everything of CUDA 12 but its compiler. Clang compiles the device code with
# them (headers, libdevice, ptxas): JAXMG_CUDA12_ROOT is a folder that tools/cuda12_toolkit has
# made, which names the compiler too. Without it there is no such engine.
set(JAXMG_CUDA12_ROOT "" CACHE PATH "Folder made by tools/cuda12_toolkit; empty: no CUDA 12 engine")
set(JAXMG_CUDA12_ARCHITECTURES "80;86;89;90" CACHE STRING
    "GPU architectures of the CUDA 12 engine; the last one as PTX too, for newer GPUs")
if(NOT JAXMG_CUDA12_ROOT)
  return()
endif()
if(TARGET jaxmg_cuda12)
  message(FATAL_ERROR "the toolkit at hand is of CUDA 12 and builds that engine itself: "
                      "leave JAXMG_CUDA12_ROOT out")
endif()

set(JAXMG_CLANG ${JAXMG_CUDA12_ROOT}/bin/clang++)
execute_process(COMMAND ${JAXMG_CLANG} --version OUTPUT_VARIABLE version RESULT_VARIABLE failed)
if(failed)
  message(FATAL_ERROR "JAXMG_CUDA12_ROOT=${JAXMG_CUDA12_ROOT} has no compiler: see tools/cuda12_toolkit")
endif()
string(REGEX MATCH "version [0-9.]+" version "${version}")
message(STATUS "CUDA 12 engine: on (clang ${version}, for ${JAXMG_CUDA12_ARCHITECTURES})")

list(GET JAXMG_CUDA12_ARCHITECTURES -1 newest)
set(device_flags
  -x cuda --cuda-path=${JAXMG_CUDA12_ROOT} -std=c++20 -O3 -DNDEBUG -fPIC -fvisibility=hidden
  -I${CMAKE_SOURCE_DIR}/src
  -isystem ${JAXMG_CUDA12_ROOT}/include  # before those of another CUDA in /usr/local/include
  -Wall -Wextra -Wshadow -Wno-unknown-cuda-version
  --no-cuda-include-ptx=all --cuda-include-ptx=sm_${newest})
foreach(architecture ${JAXMG_CUDA12_ARCHITECTURES})
  list(APPEND device_flags --cuda-gpu-arch=sm_${architecture})
endforeach()
if(JAXMG_WERROR)
  list(APPEND device_flags -Werror)
endif()

file(GLOB device_sources CONFIGURE_DEPENDS src/tile/cuda/*.cu src/comm/cuda/*.cu)
file(GLOB host_sources CONFIGURE_DEPENDS
  src/core/*.cpp src/tile/cuda/*.cpp src/comm/cuda/*.cpp src/vendor/cuda/*.cpp)
set(device_objects)
foreach(source ${device_sources})
  file(RELATIVE_PATH name ${CMAKE_SOURCE_DIR} ${source})
  set(object ${CMAKE_BINARY_DIR}/cuda12/${name}.o)
  get_filename_component(folder ${object} DIRECTORY)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${JAXMG_CLANG} ${device_flags} -MD -MF ${object}.d -c ${source} -o ${object}
    DEPENDS ${source}
    DEPFILE ${object}.d
    COMMENT "Compiling ${name} for CUDA 12"
    VERBATIM)
  list(APPEND device_objects ${object})
endforeach()

add_library(jaxmg_cuda12 SHARED
  src/ffi/c_api.cpp src/ffi/cuda_engine.cpp ${JAXMG_CALL_SOURCES} ${host_sources}
  ${device_objects})
target_compile_definitions(jaxmg_cuda12 PRIVATE JAXMG_VERSION="${JAXMG_VERSION}")
target_include_directories(jaxmg_cuda12 PUBLIC src)
target_include_directories(jaxmg_cuda12 SYSTEM PRIVATE ${JAXMG_CUDA12_ROOT}/include)
target_link_libraries(jaxmg_cuda12 PRIVATE
  ${JAXMG_CUDA12_ROOT}/lib/libcudart.so.12
  ${JAXMG_CUDA12_ROOT}/lib/libcublas.so.12
  ${JAXMG_CUDA12_ROOT}/lib/libcusolver.so.11
  Threads::Threads ${CMAKE_DL_LIBS} jaxmg_warnings)
# Those libraries need others of the vendor that are not looked at here.
target_link_options(jaxmg_cuda12 PRIVATE -Wl,--allow-shlib-undefined)
jaxmg_relocatable(jaxmg_cuda12)
jaxmg_ffi_libraries(jaxmg_cuda12_ffi jaxmg_cuda12 JAXMG_CUDA_HANDLERS)
