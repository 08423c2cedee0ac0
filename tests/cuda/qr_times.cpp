// How long the operations of one step of a QR factorisation take, alone on a device.
#include <cstdio>

#include "check.h"
#include "gpu_ranks.h"
#include "operation_times.h"
#include "tile/cuda/cuda.h"
#include "tile/householder.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;

void print(const char* name, double time, double flops = 0) {
  std::printf("  %-44s %7.1f us", name, time);
  if (flops > 0) {
    std::printf("  %6.2f TF/s", flops / time * 1e-6);
  }
  std::printf("\n");
  std::fflush(stdout);
}

// What a panel works in: x holds w rows, and the rows of the panel below.
template <class T>
struct Space {
  Size rows;
  Size w;
  DeviceArray<T> x, kept, gram, small, lu, lu_kept, t, z;
  DeviceArray<Real<T>> signs;
  DeviceArray<Info> info;

  Space(tile::CudaLane& lane, Size rows_, Size w_)
      : rows(rows_),
        w(w_),
        x(ld() * w),
        kept(ld() * w),
        gram(8 * w * w),
        small(3 * w * w),
        lu(3 * w * w),
        lu_kept(3 * w * w),
        t(w * w),
        z(rows * w),
        signs(w),
        info(1) {
    Cuda::reset(lane, info.get());
    Cuda::random_vector<T>(lane, ld() * w, 0, Real<T>(0.5), kept.get());
    Cuda::copy<T>(lane, ld(), w, kept.get(), ld(), x.get(), ld());
    // A well-conditioned Gram matrix on top, and the top of an orthonormal block.
    Cuda::gemm<T>(lane, Op::conj_transpose, Op::none, w, w, rows, T(1), x.get() + w, ld(),
                  x.get() + w, ld(), T(0), gram.get(), w);
    Cuda::copy<T>(lane, w, w, gram.get(), w, kept.get(), ld());
    Cuda::fill<T>(lane, 3 * w, w, T(0), T(1), small.get(), 3 * w);
    Cuda::fill<T>(lane, 3 * w, w, T(0), T(0.01), lu_kept.get(), 3 * w);
  }
  Size ld() const { return rows + w; }
};

template <class T>
void time_panel(tile::CudaLane& lane, Space<T>& s, const T* block, Size n) {
  const Size w = s.w, rows = s.rows, ld = s.ld();
  T* const q = s.x.get() + w;
  const double tall = 2.0 * static_cast<double>(rows * w * w);
  print("transposition",
        microseconds(lane, [&] { Cuda::transpose<T>(lane, w, rows, block, n, q, ld, true); }));
  print("Gram matrix",
        microseconds(lane,
                     [&] {
                       Cuda::gemm<T>(lane, Op::conj_transpose, Op::none, w, w, rows, T(1), q, ld, q,
                                     ld, T(0), s.gram.get(), w);
                     }),
        tall);
  print("the same of the block as it lies",
        microseconds(lane,
                     [&] {
                       Cuda::gemm<T>(lane, Op::none, Op::conj_transpose, w, w, rows, T(1), block, n,
                                     block, n, T(0), s.gram.get(), w);
                     }),
        tall);
  for (const Size parts : {4, 8}) {
    print(parts == 4 ? "in 4 parts" : "in 8 parts",
          microseconds(lane,
                       [&] {
                         Cuda::gemm_strided<T>(lane, Op::conj_transpose, Op::none, w, w,
                                               rows / parts, T(1), q, ld, rows / parts, q, ld,
                                               rows / parts, T(0), s.gram.get(), w, w * w, parts);
                       }),
          tall);
  }
  print("copy before a factorisation",
        microseconds(lane, [&] { Cuda::copy<T>(lane, ld, w, s.kept.get(), ld, s.x.get(), ld); }));
  print("that and factor_panel", microseconds(lane, [&] {
          Cuda::copy<T>(lane, ld, w, s.kept.get(), ld, s.x.get(), ld);
          Cuda::factor_panel<T>(lane, 0, w, w, rows, s.x.get(), ld, 0, s.info.get());
        }));
  print("doubt_factor", microseconds(lane, [&] {
          Cuda::doubt_factor<T>(lane, w, s.x.get(), ld, s.info.get(), s.gram.get());
        }));
  print("judge_gram",
        microseconds(lane, [&] { Cuda::judge_gram<T>(lane, w, s.small.get(), 3 * w); }));
  print("factor_panel of 3 tiles", microseconds(lane, [&] {
          Cuda::factor_panel<T>(lane, 0, w, w, 2 * w, s.small.get(), 3 * w, 0, s.info.get());
        }));
  print("copy of 3 tiles", microseconds(lane, [&] {
          Cuda::copy<T>(lane, 3 * w, w, s.lu_kept.get(), 3 * w, s.lu.get(), 3 * w);
        }));
  print("that and signed LU of 2 tiles", microseconds(lane, [&] {
          Cuda::copy<T>(lane, 3 * w, w, s.lu_kept.get(), 3 * w, s.lu.get(), 3 * w);
          signed_lu_blocked<Cuda, T>(lane, w, w, s.lu.get(), 3 * w, s.signs.get());
        }));
  print("the same and T", microseconds(lane, [&] {
          Cuda::copy<T>(lane, 3 * w, w, s.lu_kept.get(), 3 * w, s.lu.get(), 3 * w);
          Cuda::make_reflectors<T>(lane, w, w, s.lu.get(), 3 * w, s.signs.get(), s.t.get(), w);
        }));
  print("T by a triangular solve", microseconds(lane, [&] {
          reflector_triangle<Cuda, T>(lane, w, s.lu.get(), 3 * w, s.signs.get(), s.t.get(), w);
        }));
  print("Y",
        microseconds(lane,
                     [&] {
                       Cuda::gemm<T>(lane, Op::conj_transpose, Op::conj_transpose, w, rows, w, T(1),
                                     s.t.get(), w, q, ld, T(0), s.z.get(), w);
                     }),
        tall);
  print("copy to the matrix", microseconds(lane, [&] {
          Cuda::copy<T>(lane, w, rows, s.z.get(), w, const_cast<T*>(block), n);
        }));
}

// Products of `height` rows of an n x rows matrix with the panel.
template <class T>
void time_update(tile::CudaLane& lane, Space<T>& s, T* a, Size n, Size height, T* product) {
  const Size w = s.w, rows = s.rows;
  const double flops = 2.0 * static_cast<double>(height * rows * w);
  std::printf("%lld rows with it\n", static_cast<long long>(height));
  print("product",
        microseconds(lane,
                     [&] {
                       Cuda::gemm<T>(lane, Op::none, Op::conj_transpose, height, w, rows, T(1), a,
                                     n, s.z.get(), w, T(0), product, height);
                     }),
        flops);
  print("times T", microseconds(lane, [&] {
          Cuda::gemm<T>(lane, Op::none, Op::none, height, w, w, T(1), product, height, s.t.get(), w,
                        T(0), product + height * w, height);
        }));
  print("what is subtracted",
        microseconds(lane,
                     [&] {
                       Cuda::gemm<T>(lane, Op::none, Op::none, height, rows, w, T(-1),
                                     product + height * w, height, s.z.get(), w, T(1), a, n);
                     }),
        flops);
}

template <class T>
void time_type(GpuRank& gpu, Size rows, Size w) {
  auto& lanes = gpu.context.lanes();
  const tile::PanelRows panel_rows{.qr = rows};
  DeviceArray<char> library(lanes.library_bytes(dtype_of<T>, w, panel_rows));
  lanes.bind(library.get(), library.count(), dtype_of<T>, w, panel_rows);
  const Size n = 2 * rows;
  DeviceArray<T> a(n * rows), product(2 * n * w);
  Cuda::random_vector<T>(lanes.panel, n * rows, 0, Real<T>(0.5), a.get());
  Space<T> space(lanes.panel, rows, w);
  Cuda::random_vector<T>(lanes.panel, w * rows, 0, Real<T>(0.01), space.z.get());
  std::printf("%s, %lld rows, %lld columns\n", type_name<T>().c_str(), static_cast<long long>(rows),
              static_cast<long long>(w));
  time_panel<T>(lanes.panel, space, a.get(), n);
  JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
  time_update<T>(lanes.panel, space, a.get(), n, w, product.get());
  time_update<T>(lanes.update, space, a.get(), n, n, product.get());
  JAXMG_CUDA_CHECK(cudaDeviceSynchronize());
}

}  // namespace

void time_qr_panel(Size rows, Size tile) {
  run_gpu_ranks(1, 1, true, [&](GpuRank& gpu) { time_type<double>(gpu, rows, tile); });
}

}  // namespace jaxmg::test
