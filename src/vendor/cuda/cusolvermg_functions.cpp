#include "vendor/cuda/cusolvermg_functions.h"

#include <dlfcn.h>

#include "vendor/library.h"

namespace jaxmg::vendor {
namespace {

// Stays open for the rest of the process: it keeps state of its own on the devices.
void* open() {
  const std::string name = CusolverMg::soname();
  void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* const why = dlerror();
    throw UnavailableError("backend 'cusolvermg': " + name +
                           " cannot be loaded: " + (why ? why : "no reason given"));
  }
  return library;
}

template <class Function>
void look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (!function) {
    throw UnavailableError("backend 'cusolvermg': " + CusolverMg::soname() + " has no " + name);
  }
}

CusolverMg load() {
  void* const library = open();
  CusolverMg f;
  look_up(library, "cusolverMgCreate", f.create);
  look_up(library, "cusolverMgDestroy", f.destroy);
  look_up(library, "cusolverMgDeviceSelect", f.select);
  look_up(library, "cusolverMgCreateDeviceGrid", f.create_grid);
  look_up(library, "cusolverMgDestroyGrid", f.destroy_grid);
  look_up(library, "cusolverMgCreateMatrixDesc", f.describe);
  look_up(library, "cusolverMgDestroyMatrixDesc", f.destroy_description);
  look_up(library, "cusolverMgPotrf_bufferSize", f.potrf_size);
  look_up(library, "cusolverMgPotrf", f.potrf);
  look_up(library, "cusolverMgPotrs_bufferSize", f.potrs_size);
  look_up(library, "cusolverMgPotrs", f.potrs);
  look_up(library, "cusolverMgPotri_bufferSize", f.potri_size);
  look_up(library, "cusolverMgPotri", f.potri);
  look_up(library, "cusolverMgGetrf_bufferSize", f.getrf_size);
  look_up(library, "cusolverMgGetrf", f.getrf);
  look_up(library, "cusolverMgGetrs_bufferSize", f.getrs_size);
  look_up(library, "cusolverMgGetrs", f.getrs);
  look_up(library, "cusolverMgSyevd_bufferSize", f.syevd_size);
  look_up(library, "cusolverMgSyevd", f.syevd);
  return f;
}

}  // namespace

std::string CusolverMg::soname() {
  return "libcusolverMg.so." + std::to_string(CUSOLVER_VER_MAJOR);
}

const CusolverMg& CusolverMg::get() {
  static const CusolverMg functions = load();
  return functions;
}

}  // namespace jaxmg::vendor
