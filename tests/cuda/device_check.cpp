// Checks tiles, communication and algorithms on the GPUs of this machine.
//
//   device_check                         everything, one line a group; exit status 1 on a failure
//   device_check --time N [TYPE [TILE [GROUP [DEVICES]]]]
//                                        seconds of a factorisation of order N, on 1 .. all devices
//   device_check --tiles ROWS TILE       microseconds of the operations of a panel
#include <cstdlib>
#include <cstring>
#include <exception>

#include "check.h"

int main(int argc, char** argv) {
  using namespace jaxmg;
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    std::printf("no GPU here\n");
    return 2;
  }
  try {
    if (argc > 2 && std::strcmp(argv[1], "--time") == 0) {
      const std::string type = argc > 3 ? argv[3] : "f64";
      const Size tile = argc > 4 ? std::atoll(argv[4]) : 0;
      const Size group = argc > 5 ? std::atoll(argv[5]) : 0;
      if (argc > 6) {
        test::time_cholesky(std::atoi(argv[6]), std::atoll(argv[2]), type, tile, group);
        return 0;
      }
      for (int used = 1; used <= devices; used *= 2) {
        test::time_cholesky(used, std::atoll(argv[2]), type, tile, group);
      }
      return 0;
    }
    if (argc > 3 && std::strcmp(argv[1], "--tiles") == 0) {
      test::time_tiles(std::atoll(argv[2]), std::atoll(argv[3]));
      return 0;
    }
    std::printf("%d devices\n", devices);
    test::check_tiles();
    test::check_panel_operations();
    test::check_communicator(devices);
    test::check_cholesky(devices);
    test::check_factors(devices);
  } catch (const std::exception& e) {
    std::printf("stopped by: %s\n", e.what());
    return 1;
  }
  const int failures = test::Group::total_failures();
  std::printf(failures == 0 ? "all ok\n" : "%d checks failed\n", failures);
  return failures == 0 ? 0 : 1;
}
