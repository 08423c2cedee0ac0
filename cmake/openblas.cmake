# OpenBLAS as the scipy-openblas32 package ships it: symbols carry the prefix scipy_.
#
# The library that we load at run time must be our own copy, since we set its number of threads: it
# goes beside the engine under a name and soname of its own.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
if(NOT JAXMG_OPENBLAS_ROOT)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c
      "import scipy_openblas32, os; print(os.path.dirname(scipy_openblas32.__file__))"
    OUTPUT_VARIABLE JAXMG_OPENBLAS_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE
    RESULT_VARIABLE found)
  if(NOT found EQUAL 0)
    message(FATAL_ERROR "the Python package scipy-openblas32 is needed to build: "
                        "${Python3_EXECUTABLE} -m pip install scipy-openblas32")
  endif()
endif()

set(JAXMG_OPENBLAS_LIBRARY ${CMAKE_BINARY_DIR}/libjaxmg_openblas.so)
if(NOT EXISTS ${JAXMG_OPENBLAS_LIBRARY})
  find_program(PATCHELF patchelf REQUIRED)
  configure_file(${JAXMG_OPENBLAS_ROOT}/lib/libscipy_openblas.so ${JAXMG_OPENBLAS_LIBRARY} COPYONLY)
  execute_process(COMMAND ${PATCHELF} --set-soname libjaxmg_openblas.so ${JAXMG_OPENBLAS_LIBRARY}
                  COMMAND_ERROR_IS_FATAL ANY)
endif()

add_library(jaxmg_openblas SHARED IMPORTED GLOBAL)
set_target_properties(jaxmg_openblas PROPERTIES
  IMPORTED_LOCATION ${JAXMG_OPENBLAS_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES ${JAXMG_OPENBLAS_ROOT}/include)
