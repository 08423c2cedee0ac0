// cuSOLVERMg behind the rank programs of src/vendor.
#include <atomic>
#include <functional>
#include <memory>
#include <thread>

#include "check.h"
#include "gpu_ranks.h"
#include "rank_run.h"
#include "tile/cuda/cuda.h"
#include "vendor/cholesky.h"
#include "vendor/cuda/cusolvermg.h"
#include "vendor/cuda/host.h"
#include "vendor/eigen.h"
#include "vendor/lu.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;

// One kind of call: its library for all ranks, and what each rank asks of its plan.
template <class T>
class Call {
 public:
  using Change = std::function<void(PlanRequest&)>;

  Call(
      Routine routine, int ranks, Size n, Size tile, Change change = [](PlanRequest&) {})
      : routine_(routine), change_(std::move(change)) {
    PlanRequest q;
    q.type = dtype_of<T>;
    q.n = n;
    q.ranks = ranks;
    q.tile = tile;
    q.platform = Platform::cuda;
    adapt(q);
    std::vector<int> ordinals;
    for (int r = 0; r < ranks; ++r) {
      ordinals.push_back(r);
    }
    session_ = std::make_unique<vendor::Session>(ranks, vendor::make_cusolvermg(ordinals, Plan(q)));
    bytes_ = session_->library().workspace_bytes();
  }

  Plan plan(const RankRun<T>& run) const { return Plan(request(run)); }

  // program(rank, session)
  template <class Program>
  void run(RankRun<T>& run, const Program& program) {
    run.call(request(run), [&](Rank<Cuda>& rank) { program(rank, *session_); });
  }

 private:
  void adapt(PlanRequest& q) const {
    q.routine = routine_;
    q.backend = Backend::cusolvermg;
    change_(q);
  }
  PlanRequest request(const RankRun<T>& run) const {
    // What the lanes work in is asked for by a routine of the built-in engine.
    PlanRequest q = run.request(routine_ == Routine::getrf ? routine_ : Routine::potrf);
    adapt(q);
    q.vendor_bytes = bytes_;
    return q;
  }

  Routine routine_;
  Change change_;
  std::unique_ptr<vendor::Session> session_;
  Size bytes_ = 0;
};

// A rank's rows with the room that they need in block-cyclic storage.
template <class T>
std::vector<T> roomy_shard(const Matrix<T>& a, const Plan& plan, int rank) {
  std::vector<T> shard = shard_of(a, plan.distribution(), rank);
  shard.resize(static_cast<std::size_t>(plan.factor_rows() * a.cols));
  return shard;
}

template <class T>
void put_rows_of_rank(const std::vector<T>& shard, const Distribution& dist, int rank,
                      Matrix<T>& whole) {
  for (Size i = 0; i < dist.local_size(rank); ++i) {
    std::copy_n(shard.begin() + i * whole.cols, whole.cols,
                whole.data.begin() + *dist.global(rank, LocalIndex(i)) * whole.cols);
  }
}

template <class T>
Matrix<T> identity(Size n) {
  Matrix<T> e(n, n);
  for (Size i = 0; i < n; ++i) {
    e(i, i) = T(1);
  }
  return e;
}

struct Size2 {
  Size n;
  Size tile;
};

template <class T>
class VendorCheck {
 public:
  VendorCheck(Group& group, int ranks, Size n, Size tile)
      : group_(group),
        ranks_(ranks),
        n_(n),
        tile_(std::min(tile, ceil_div(n, ranks))),
        name_("n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
              std::to_string(tile)) {}

  void cholesky(Size failing = 0) {
    Matrix<T> a = random_hpd<T>(n_, 3);
    if (failing > 0) {
      a(failing - 1, failing - 1) = T(-1);
    }
    const Size nrhs = 3;
    const Matrix<T> b = random_matrix<T>(n_, nrhs, 4);
    Call<T> potrf(Routine::potrf, ranks_, n_, tile_);
    Call<T> potrs(Routine::potrs, ranks_, n_, tile_, [](PlanRequest& q) { q.nrhs = nrhs; });
    Call<T> potri(Routine::potri, ranks_, n_, tile_);
    Matrix<T> inverse(n_, n_);
    each([&](RankRun<T>& run, int me) {
      const Plan plan = potrf.plan(run);
      DeviceArray<T> work(roomy_shard(a, plan, me));
      DeviceArray<T> x(b.data);
      DeviceArray<Info> info(1);
      potrf.run(run, [&](Rank<Cuda>& rank, vendor::Session& session) {
        vendor::potrf<Cuda, T>(rank, session, Triangle::whole, work.get(), info.get());
      });
      expect_status(info, Kind::not_positive_definite, failing, "potrf");
      potrs.run(run, [&](Rank<Cuda>& rank, vendor::Session& session) {
        vendor::potrs<Cuda, T>(rank, session, work.get(), info.get(), x.get());
      });
      expect_solution(a, b, x.download(), failing, "potrs");
      potri.run(run, [&](Rank<Cuda>& rank, vendor::Session& session) {
        vendor::potri<Cuda, T>(rank, session, info.get(), work.get());
      });
      put_rows_of_rank(work.download(), plan.distribution(), me, inverse);
    });
    if (failing == 0) {
      group_.expect_small(solve_residual(a, identity<T>(n_), inverse), 25, name_ + " potri");
    }
  }

  void lu(Size failing = 0) {
    Matrix<T> a = random_matrix<T>(n_, n_, 5), transposed(n_, n_);
    for (Size i = 0; i < n_; ++i) {
      for (Size j = 0; j < n_; ++j) {
        a(i, j) = i + 1 == failing ? T(0) : a(i, j);
        transposed(j, i) = a(i, j);
      }
    }
    const Size nrhs = 3;
    const Matrix<T> b = random_matrix<T>(n_, nrhs, 4);
    const auto kind = [](bool transpose) {
      return [transpose](PlanRequest& q) {
        q.nrhs = nrhs;
        q.transpose = transpose;
      };
    };
    Call<T> getrf(Routine::getrf, ranks_, n_, tile_);
    Call<T> forward(Routine::getrs, ranks_, n_, tile_, kind(false));
    Call<T> backward(Routine::getrs, ranks_, n_, tile_, kind(true));
    each([&](RankRun<T>& run, int me) {
      const Plan plan = getrf.plan(run);
      DeviceArray<T> work(roomy_shard(a, plan, me));
      DeviceArray<T> aux(plan.aux_count());
      DeviceArray<std::int32_t> pivots(2 * n_);
      DeviceArray<Info> info(1);
      getrf.run(run, [&](Rank<Cuda>& rank, vendor::Session& session) {
        vendor::getrf<Cuda, T>(rank, session, work.get(), aux.get(), pivots.get(), info.get());
      });
      expect_status(info, Kind::singular, failing, "getrf");
      for (Call<T>* const call : {&forward, &backward}) {
        DeviceArray<T> x(b.data);
        call->run(run, [&](Rank<Cuda>& rank, vendor::Session& session) {
          vendor::getrs<Cuda, T>(rank, session, work.get(), aux.get(), pivots.get(), info.get(),
                                 x.get());
        });
        expect_solution(call == &forward ? a : transposed, b, x.download(), failing,
                        call == &forward ? "getrs" : "getrs transposed");
      }
    });
  }

  void eigen(bool vectors) {
    Matrix<T> a = random_hpd<T>(n_, 6);
    Call<T> syevd(Routine::syevd, ranks_, n_, tile_, [vectors, n = n_](PlanRequest& q) {
      q.vectors = vectors;
      q.columns = vectors ? n : 0;
    });
    Matrix<T> v(n_, n_);
    std::vector<Real<T>> w;
    each([&](RankRun<T>& run, int me) {
      const Plan plan = syevd.plan(run);
      DeviceArray<T> work(roomy_shard(a, plan, me));
      DeviceArray<Real<T>> values(n_);
      DeviceArray<Info> info(1);
      syevd.run(run, [&](Rank<Cuda>& rank, vendor::Session& session) {
        vendor::syevd<Cuda, T>(rank, session, Triangle::whole, 0, work.get(), values.get(),
                               vectors ? work.get() : nullptr, info.get());
      });
      expect_status(info, Kind::no_convergence, 0, "syevd");
      put_rows_of_rank(work.download(), plan.distribution(), me, v);
      if (me == 0) {
        w = values.download();
      }
    });
    group_.expect(std::ranges::is_sorted(w), name_ + " syevd ascending");
    double trace = 0, sum = 0;
    for (Size i = 0; i < n_; ++i) {
      trace += std::real(a(i, i));
      sum += w[static_cast<std::size_t>(i)];
    }
    const double unit = static_cast<double>(n_) * epsilon<T>;
    group_.expect_small(std::abs(trace - sum) / (unit * trace), 25, name_ + " syevd trace");
    if (vectors) {
      expect_decomposed(a, w, v, unit * trace);
    }
  }

 private:
  template <class Program>
  void each(const Program& program) {
    run_gpu_ranks(ranks_, ranks_, true, [&](GpuRank& gpu) {
      RankRun<T> run(gpu, n_, tile_);
      gpu.context.prepare(dtype_of<T>, tile::Kernels::qr);
      program(run, gpu.comm.rank());
    });
  }

  void expect_status(const DeviceArray<Info>& info, Kind kind, Size position, const char* what) {
    const Info found = info.download()[0];
    group_.expect(found.kind == (position > 0 ? static_cast<int>(kind) : 0) &&
                      (position == 0 || found.position == position),
                  name_ + " " + what + " status: kind " + std::to_string(found.kind) +
                      ", position " + std::to_string(found.position));
  }

  void expect_solution(const Matrix<T>& a, const Matrix<T>& b, std::vector<T> found, Size failing,
                       const char* what) {
    Matrix<T> x(n_, b.cols);
    x.data = std::move(found);
    if (failing > 0) {
      group_.expect(std::isnan(std::real(x(0, 0))), name_ + " " + what + " is NaN");
      return;
    }
    group_.expect_small(solve_residual(a, b, x), 25, name_ + " " + what);
  }

  // |A V - V diag(w)| and |V^H V - I|, largest elements.
  void expect_decomposed(const Matrix<T>& a, const std::vector<Real<T>>& w, const Matrix<T>& v,
                         double unit) {
    double residual = 0, orthogonality = 0;
    for (Size i = 0; i < n_; ++i) {
      for (Size j = 0; j < n_; ++j) {
        std::complex<double> product(0), gram(0);
        for (Size k = 0; k < n_; ++k) {
          product += std::complex<double>(a(i, k)) * std::complex<double>(v(k, j));
          gram += std::conj(std::complex<double>(v(k, i))) * std::complex<double>(v(k, j));
        }
        const double value = w[static_cast<std::size_t>(j)];
        residual = std::max(residual, std::abs(product - value * std::complex<double>(v(i, j))));
        orthogonality = std::max(orthogonality, std::abs(gram - (i == j ? 1.0 : 0.0)));
      }
    }
    group_.expect_small(residual / unit, 25, name_ + " syevd residual");
    group_.expect_small(orthogonality / (static_cast<double>(n_) * epsilon<T>), 25,
                        name_ + " syevd orthogonality");
  }

  Group& group_;
  int ranks_;
  Size n_, tile_;
  std::string name_;
};

// A group for each routine; one that stops says by what, and the others go on.
template <class T>
void check_type(int devices) {
  using Check = VendorCheck<T>;
  const std::pair<const char*, std::function<void(Check&)>> programs[] = {
      {"potrf, potrs, potri", [](Check& c) { c.cholesky(); }},
      {"getrf, getrs", [](Check& c) { c.lu(); }},
      {"syevd", [](Check& c) { c.eigen(true); }},
      {"syevd, values", [](Check& c) { c.eigen(false); }},
  };
  for (const auto& [name, program] : programs) {
    Group group("cuSOLVERMg: " + std::string(name) + " " + type_name<T>());
    for (int ranks = 1; ranks <= std::min(devices, 4); ++ranks) {
      for (const Size2 size : {Size2{1, 1}, {7, 2}, {64, 16}, {100, 32}, {260, 64}}) {
        try {
          Check check(group, ranks, size.n, size.tile);
          program(check);
        } catch (const std::exception& e) {
          group.expect(false, "n " + std::to_string(size.n) + " ranks " + std::to_string(ranks) +
                                  " stopped by: " + e.what());
        }
      }
    }
  }
  Group group("cuSOLVERMg: failures " + type_name<T>());
  for (int ranks = 1; ranks <= std::min(devices, 4); ++ranks) {
    for (const Size failing : {1, 17, 64}) {
      try {
        Check(group, ranks, 64, 16).cholesky(failing);
        Check(group, ranks, 64, 16).lu(failing);
      } catch (const std::exception& e) {
        group.expect(false, "ranks " + std::to_string(ranks) + " stopped by: " + e.what());
      }
    }
  }
}

// Keeps a device busy with products, before anything else, as long as it lives.
class Busy {
 public:
  explicit Busy(int device) : thread_([this, device] { run(device); }) {}
  ~Busy() {
    over_ = true;
    thread_.join();
  }
  Busy(const Busy&) = delete;
  Busy& operator=(const Busy&) = delete;

 private:
  void run(int device) try {
    constexpr Size n = 2048;
    const tile::DeviceGuard guard(device);
    tile::CudaLane lane(tile::StreamPriority::highest, std::make_shared<tile::EventPool>());
    const std::vector<double> zeros(static_cast<std::size_t>(n * n));
    DeviceArray<double> a(zeros), b(zeros);
    while (!over_) {
      for (int i = 0; i < 8; ++i) {
        Cuda::gemm<double>(lane, Op::none, Op::none, n, n, n, 1.0, a.get(), n, a.get(), n, 0.0,
                           b.get(), n);
      }
      JAXMG_CUDA_CHECK(cudaStreamSynchronize(lane.stream()));
    }
  } catch (const std::exception& e) {
    std::printf("  the device is not kept busy: %s\n", e.what());
  }

  std::atomic<bool> over_{false};
  std::thread thread_;
};

// Where one device lags behind, factors that are not right must be refused.
template <class T>
void check_lag(int devices) {
  Group group("cuSOLVERMg: beside other work on a GPU " + type_name<T>());
  constexpr int kTimes = 10;
  for (int device = 0; device < std::min(devices, 2) && devices > 1; ++device) {
    const Busy busy(device);
    int refused = 0;
    for (int i = 0; i < kTimes; ++i) {
      try {
        VendorCheck<T>(group, 2, 260, 16).cholesky();
      } catch (const std::exception& e) {
        ++refused;
        group.expect(std::string(e.what()).find("is not one of the matrix") != std::string::npos,
                     "stopped by: " + std::string(e.what()));
      }
    }
    std::printf("  GPU %d lags behind: %d of %d factors refused\n", device, refused, kTimes);
  }
}

}  // namespace

void check_vendor(int devices) {
  check_lag<double>(devices);
  check_type<double>(devices);
  check_type<std::complex<double>>(devices);
  check_type<float>(devices);
  check_type<std::complex<float>>(devices);
}

}  // namespace jaxmg::test
