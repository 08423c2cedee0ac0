// How long the operations of one elimination step take, alone on a device.
#include "check.h"
#include "gpu_ranks.h"
#include "operation_times.h"
#include "tile/cuda/cuda.h"
#include "tile/panel.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;

template <class T>
void time_type(GpuRank& gpu, Size rows, Size nb) {
  auto& lanes = gpu.context.lanes();
  auto& lane = lanes.panel;
  const Size bytes = lanes.library_bytes(dtype_of<T>, nb);
  DeviceArray<char> library(bytes);
  lanes.bind(library.get(), bytes, dtype_of<T>, nb);
  const Size n = rows + nb;
  DeviceArray<T> a(n * nb), panel(rows * nb), x(nb * nb), c(rows * nb), rhs(nb), work(nb);
  DeviceArray<Info> info(1);
  Cuda::reset(lane, info.get());
  Cuda::fill<T>(lane, n, nb, T(0), T(1), a.get(), n);
  Cuda::fill<T>(lane, rows, nb, T(0), T(1), panel.get(), rows);
  Cuda::fill<T>(lane, rows, nb, T(0), T(1), c.get(), rows);
  Cuda::fill<T>(lane, 1, nb, T(1), T(1), rhs.get(), 1);
  const double factor =
      microseconds(lane, [&] { Cuda::potrf<T>(lane, nb, a.get(), n, 0, info.get()); });
  const double invert =
      microseconds(lane, [&] { Cuda::invert_lower<T>(lane, nb, a.get(), n, x.get(), nb); });
  // Restoring what is to be factored is part of the time: see pack.
  DeviceArray<T> whole(n * nb);
  const double panel_factor = microseconds(lane, [&] {
    Cuda::copy<T>(lane, n - 1, nb, a.get(), n, whole.get(), n);
    Cuda::factor_panel<T>(lane, 0, nb, nb, rows, whole.get(), n, 0, info.get());
  });
  const double tile_alone = microseconds(lane, [&] {
    Cuda::copy<T>(lane, nb, nb, a.get(), n, whole.get(), n);
    Cuda::factor_panel<T>(lane, 0, nb, nb, 0, whole.get(), n, 0, info.get());
  });
  const double pack = microseconds(
      lane, [&] { Cuda::copy<T>(lane, rows, nb, a.get() + nb, n, panel.get(), rows); });
  const double solve = microseconds(lane, [&] {
    Cuda::trsm<T>(lane, Side::right, Uplo::lower, Op::conj_transpose, Diag::non_unit, rows, nb,
                  T(1), a.get(), n, panel.get(), rows);
  });
  const double product = microseconds(lane, [&] {
    Cuda::gemm<T>(lane, Op::none, Op::conj_transpose, rows, nb, nb, T(-1), panel.get(), rows,
                  x.get(), nb, T(1), c.get(), rows);
  });
  const double diagonal = microseconds(lane, [&] {
    Cuda::solve_diagonal<T>(lane, Op::conj_transpose, 1, nb, a.get(), n, x.get(), nb, rhs.get(), 1,
                            work.get());
  });
  // One row of a panel times its other rows: the elements of it lie far apart, or together.
  double row[2];
  for (const bool together : {false, true}) {
    row[together] = microseconds(lane, [&] {
      Cuda::gemm<T>(lane, Op::none, Op::conj_transpose, 1, rows - 1, nb, T(-1),
                    together ? rhs.get() : panel.get() + rows - 1, together ? 1 : rows, panel.get(),
                    rows, T(1), c.get(), 1);
    });
  }
  std::printf(
      "%s rows %lld tile %lld: potrf %.0f us, invert %.0f, factor_panel %.0f (tile alone %.0f), "
      "pack "
      "%.0f, trsm %.0f, gemm %.0f "
      "(%.1f TF/s), solve_diagonal of one vector %.0f, row product %.0f (%.0f if together)\n",
      type_name<T>().c_str(), static_cast<long long>(rows), static_cast<long long>(nb), factor,
      invert, panel_factor, tile_alone, pack, solve, product,
      (is_complex_v<T> ? 8.0 : 2.0) * static_cast<double>(rows * nb * nb) / product * 1e-6,
      diagonal, row[0], row[1]);
}

}  // namespace

void time_tiles(Size rows, Size tile) {
  run_gpu_ranks(1, 1, true, [&](GpuRank& gpu) {
    time_type<float>(gpu, rows, tile);
    time_type<double>(gpu, rows, tile);
    time_type<std::complex<double>>(gpu, rows, tile);
  });
}

}  // namespace jaxmg::test
