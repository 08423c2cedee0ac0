// The functions of cuSOLVERMg, looked up at run time.
#pragma once

#define DISABLE_CUSOLVERMG_DEPRECATED  // we know; it is chosen by the user
#include <cusolverMg.h>

#include <string>

namespace jaxmg::vendor {

struct CusolverMg {
  // Throws UnavailableError, the first time and ever after, if the library is not to be had.
  static const CusolverMg& get();
  static std::string soname();

  decltype(&cusolverMgCreate) create;
  decltype(&cusolverMgDestroy) destroy;
  decltype(&cusolverMgDeviceSelect) select;
  decltype(&cusolverMgCreateDeviceGrid) create_grid;
  decltype(&cusolverMgDestroyGrid) destroy_grid;
  decltype(&cusolverMgCreateMatrixDesc) describe;
  decltype(&cusolverMgDestroyMatrixDesc) destroy_description;
  decltype(&cusolverMgPotrf_bufferSize) potrf_size;
  decltype(&cusolverMgPotrf) potrf;
  decltype(&cusolverMgPotrs_bufferSize) potrs_size;
  decltype(&cusolverMgPotrs) potrs;
  decltype(&cusolverMgPotri_bufferSize) potri_size;
  decltype(&cusolverMgPotri) potri;
  decltype(&cusolverMgGetrf_bufferSize) getrf_size;
  decltype(&cusolverMgGetrf) getrf;
  decltype(&cusolverMgGetrs_bufferSize) getrs_size;
  decltype(&cusolverMgGetrs) getrs;
  decltype(&cusolverMgSyevd_bufferSize) syevd_size;
  decltype(&cusolverMgSyevd) syevd;
};

}  // namespace jaxmg::vendor
