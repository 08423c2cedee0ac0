# The engine library and the thin FFI libraries around it.
#
#   libjaxmg_engine.so      CPU ranks and tiles behind the C functions of src/ffi/call.h
#   libjaxmg_ffi_0_1.so ... XLA's handlers, once per generation of FFI headers
set(JAXMG_FFI_GENERATIONS "0_1;0_3;0_4" CACHE STRING "Generations of XLA's FFI headers to build for")
set(JAXMG_FFI_HEADERS "" CACHE PATH
    "Directory with <generation>/xla/ffi/api/*.h; empty: fetched into the user's cache")
set(JAXMG_FFI_WHEELS "" CACHE PATH "Directory with jaxlib wheels to take headers from")
option(JAXMG_IN_TREE "Install the libraries into the source tree, for editable installs" OFF)

if(JAXMG_IN_TREE)
  set(JAXMG_LIB_DESTINATION ${CMAKE_SOURCE_DIR}/python/jaxmg/_lib)
else()
  set(JAXMG_LIB_DESTINATION jaxmg/_lib)
endif()

set(JAXMG_FFI_INCLUDE ${JAXMG_FFI_HEADERS})
if(NOT JAXMG_FFI_INCLUDE)
  if(DEFINED ENV{XDG_CACHE_HOME})
    set(JAXMG_FFI_INCLUDE $ENV{XDG_CACHE_HOME}/jaxmg/ffi)
  elseif(DEFINED ENV{HOME})
    set(JAXMG_FFI_INCLUDE $ENV{HOME}/.cache/jaxmg/ffi)
  else()
    set(JAXMG_FFI_INCLUDE ${CMAKE_BINARY_DIR}/ffi_headers)
  endif()
  set(fetch ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/fetch_ffi_headers.py
      ${JAXMG_FFI_INCLUDE})
  foreach(generation ${JAXMG_FFI_GENERATIONS})
    list(APPEND fetch --generation ${generation})
  endforeach()
  if(JAXMG_FFI_WHEELS)
    list(APPEND fetch --find-links ${JAXMG_FFI_WHEELS})
  endif()
  execute_process(COMMAND ${fetch} RESULT_VARIABLE failed)
  if(failed)
    message(FATAL_ERROR "the headers of XLA's FFI could not be fetched: see above")
  endif()
endif()

# The wheel's version, or what pyproject.toml says.
if(SKBUILD_PROJECT_VERSION)
  set(JAXMG_VERSION ${SKBUILD_PROJECT_VERSION})
else()
  file(STRINGS ${CMAKE_SOURCE_DIR}/pyproject.toml line REGEX "^version *= *\"" LIMIT_COUNT 1)
  string(REGEX REPLACE ".*\"(.*)\".*" "\\1" JAXMG_VERSION "${line}")
endif()

# What engines have in common and needs no C boundary, so that tests can use it.
file(GLOB JAXMG_CALL_SOURCES CONFIGURE_DEPENDS src/ffi/operand*.cpp)
list(APPEND JAXMG_CALL_SOURCES
  src/ffi/elastic_pool.cpp
  src/ffi/outcome.cpp
  src/ffi/progress.cpp
  src/ffi/trace.cpp
  src/ffi/rendezvous.cpp)
target_sources(jaxmg_base PRIVATE ${JAXMG_CALL_SOURCES})

# A shared library that finds its own kind beside itself, wherever that is.
function(jaxmg_relocatable target)
  set_target_properties(${target} PROPERTIES
    BUILD_RPATH_USE_ORIGIN ON
    INSTALL_RPATH "$ORIGIN")
  # Only the C functions leave a library: nothing of the archives in it, the C++ library's included
  # where that is linked statically, meets its like from other libraries of the process.
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
  install(TARGETS ${target} LIBRARY DESTINATION ${JAXMG_LIB_DESTINATION} COMPONENT python)
endfunction()

add_library(jaxmg_engine SHARED
  src/ffi/c_api.cpp
  src/ffi/cpu_engine.cpp
  src/ffi/cpu_scratch.cpp
  src/ffi/cpu_threads.cpp)
target_compile_definitions(jaxmg_engine PRIVATE JAXMG_VERSION="${JAXMG_VERSION}")
target_include_directories(jaxmg_engine PUBLIC src)
target_link_libraries(jaxmg_engine PRIVATE jaxmg_base jaxmg_warnings)
jaxmg_relocatable(jaxmg_engine)
install(FILES ${JAXMG_OPENBLAS_LIBRARY} DESTINATION ${JAXMG_LIB_DESTINATION} COMPONENT python)

# One thin library per generation around `engine`, named <prefix>_<generation>. Further arguments
# are compile definitions.
function(jaxmg_ffi_libraries prefix engine)
  foreach(generation ${JAXMG_FFI_GENERATIONS})
    set(target ${prefix}_${generation})
    add_library(${target} SHARED ${CMAKE_SOURCE_DIR}/src/ffi/handlers.cpp)
    target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/src)
    target_include_directories(${target} SYSTEM PRIVATE ${JAXMG_FFI_INCLUDE}/${generation})
    # XLA's headers name members like their types, which GCC takes for an error.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpermissive>)
    target_compile_definitions(${target} PRIVATE ${ARGN})
    target_link_libraries(${target} PRIVATE ${engine} jaxmg_warnings)
    jaxmg_relocatable(${target})
  endforeach()
endfunction()
jaxmg_ffi_libraries(jaxmg_ffi jaxmg_engine)
