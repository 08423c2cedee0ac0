// The threads that compute CPU tiles, across the C boundary.
#include "ffi/call.h"
#include "tile/cpu/pool.h"

void jaxmg_set_threads(int count) {
  jaxmg::tile::set_pool_threads(count);
}

int jaxmg_threads() {
  return jaxmg::tile::Pool::instance().threads();
}
