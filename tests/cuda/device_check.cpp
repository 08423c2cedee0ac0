// Checks tiles, communication and algorithms on the GPUs of this machine.
//
//   device_check                         everything, one line a group; exit status 1 on a failure
//   device_check --time N [TYPE [TILE [GROUP [DEVICES]]]]
//                                        seconds of a factorisation of order N, on 1 .. all
//                                        devices; TYPE:P for panels in P parts (0: as planned);
//                                        TYPE split for f32 by parts of numbers, splitc64 for c64
//   device_check --qr M N [TYPE [TILE [DEVICES]]]
//                                        seconds of a QR factorisation, on 1 .. all devices
//   device_check --qr                    the groups of QR alone
//   device_check --gels M N [TYPE [NRHS [TILE [DEVICES]]]]
//                                        seconds of least squares by a Gram matrix, on all devices
//   device_check --gels                  its groups alone
//   device_check --qr-panel ROWS TILE    microseconds of the operations of its panels and updates
//   device_check --time-lu N [TYPE [TILE [DEVICES]]]
//                                        the same for LU; f32 by half-precision parts, unless
//                                        TYPE is f32-native; f32:R keeps R multiprocessors for
//                                        panels; splitc64 is c64 by parts
//   device_check --parts                 the groups of half-precision parts alone
//   device_check --lu                    the groups of LU alone
//   device_check --lu-panel [M NB [TYPE]]
//                                        microseconds a column of its panels; without sizes, the
//                                        groups of panels alone
//   device_check --inverse, --vendor     the groups of inverses by LU, and of cuSOLVERMg, alone
//   device_check --eigen                 the group of eigenproblems alone
//   device_check --eigen-time N [TYPE [TILE [DEVICES]]]
//                                        seconds of an eigenproblem of order N
//   device_check --sweeps N [TYPE [COLUMNS]]
//                                        seconds of bulge chasing and of its reflectors
//   device_check --householder           the QR of panels alone: checks, then microseconds
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
    if (argc > 2 && std::strcmp(argv[1], "--time-lu") == 0) {
      const std::string type = argc > 3 ? argv[3] : "f64";
      const Size tile = argc > 4 ? std::atoll(argv[4]) : 0;
      const int most = argc > 5 ? std::atoi(argv[5]) : devices;
      for (int used = argc > 5 ? most : 1; used <= most; used *= 2) {
        test::time_lu(used, std::atoll(argv[2]), type, tile);
      }
      return 0;
    }
    if (argc > 3 && std::strcmp(argv[1], "--lu-panel") == 0) {
      test::time_lu_panel(std::atoll(argv[2]), std::atoll(argv[3]), argc > 4 ? argv[4] : "f64");
      return 0;
    }
    if (argc > 3 && std::strcmp(argv[1], "--tiles") == 0) {
      test::time_tiles(std::atoll(argv[2]), std::atoll(argv[3]));
      return 0;
    }
    if (argc > 3 && std::strcmp(argv[1], "--qr") == 0) {
      const std::string type = argc > 4 ? argv[4] : "f64";
      const int most = argc > 6 ? std::atoi(argv[6]) : devices;
      for (int used = argc > 6 ? most : 1; used <= most; used *= 2) {
        test::time_qr(used, std::atoll(argv[2]), std::atoll(argv[3]), type,
                      argc > 5 ? std::atoll(argv[5]) : 0);
      }
      return 0;
    }
    if (argc > 3 && std::strcmp(argv[1], "--gels") == 0) {
      test::time_gels(argc > 7 ? std::atoi(argv[7]) : devices, std::atoll(argv[2]),
                      std::atoll(argv[3]), argc > 4 ? argv[4] : "f64",
                      argc > 5 ? std::atoll(argv[5]) : 1, argc > 6 ? std::atoll(argv[6]) : 0);
      return 0;
    }
    if (argc > 3 && std::strcmp(argv[1], "--qr-panel") == 0) {
      test::time_qr_panel(std::atoll(argv[2]), std::atoll(argv[3]));
      return 0;
    }
    if (argc > 2 && std::strcmp(argv[1], "--eigen-time") == 0) {
      const int used = argc > 5 ? std::atoi(argv[5]) : devices;
      test::time_eigen(used, std::atoll(argv[2]), argc > 3 ? argv[3] : "f64",
                       argc > 4 ? std::atoll(argv[4]) : 0);
      return 0;
    }
    if (argc > 2 && std::strcmp(argv[1], "--sweeps") == 0) {
      test::time_sweeps(std::atoll(argv[2]), argc > 3 ? argv[3] : "f64",
                        argc > 4 ? std::atoll(argv[4]) : std::atoll(argv[2]));
      return 0;
    }
    if (argc > 1 && std::strcmp(argv[1], "--householder") == 0) {
      test::check_householder();
      test::time_householder();
      return test::Group::total_failures() == 0 ? 0 : 1;
    }
    std::printf("%d devices\n", devices);
    if (argc > 1 && std::strcmp(argv[1], "--eigen") == 0) {
      test::check_sweeps();
      test::check_eigen(devices);
      return test::Group::total_failures() == 0 ? 0 : 1;
    }
    if (argc > 1 && std::strcmp(argv[1], "--qr") == 0) {
      test::check_qr(devices);
      return test::Group::total_failures() == 0 ? 0 : 1;
    }
    if (argc > 1 && std::strcmp(argv[1], "--parts") == 0) {
      test::check_panel_operations();
      test::check_part_operations();
      test::check_cholesky_parts(devices);
      test::check_lu_parts(devices);
      return test::Group::total_failures() == 0 ? 0 : 1;
    }
    if (argc > 1 && std::strcmp(argv[1], "--gels") == 0) {
      test::check_gels(devices);
      return test::Group::total_failures() == 0 ? 0 : 1;
    }
    if (argc > 1 && std::strcmp(argv[1], "--inverse") == 0) {
      test::check_inverse(devices);
      return test::Group::total_failures() == 0 ? 0 : 1;
    }
    if (argc > 1 && std::strcmp(argv[1], "--vendor") == 0) {
      test::check_vendor(devices);
      return test::Group::total_failures() == 0 ? 0 : 1;
    }
    if (argc > 1 && std::strncmp(argv[1], "--lu", 4) == 0) {
      test::check_lu_panel();
      if (std::strcmp(argv[1], "--lu") == 0) {
        test::check_lu_tiles();
        test::check_lu(devices);
      }
      return test::Group::total_failures() == 0 ? 0 : 1;
    }
    test::check_tiles();
    test::check_panel_operations();
    test::check_part_operations();
    test::check_communicator(devices);
    test::check_lu_tiles();
    test::check_lu_panel();
    test::check_cholesky(devices);
    test::check_factors(devices);
    test::check_qr(devices);
    test::check_gels(devices);
    test::check_lu(devices);
    test::check_inverse(devices);
    test::check_sweeps();
    test::check_householder();
    test::check_eigen(devices);
  } catch (const std::exception& e) {
    std::printf("stopped by: %s\n", e.what());
    return 1;
  }
  const int failures = test::Group::total_failures();
  std::printf(failures == 0 ? "all ok\n" : "%d checks failed\n", failures);
  return failures == 0 ? 0 : 1;
}
