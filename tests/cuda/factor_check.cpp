// Factors in natural order, triangular systems and updates on ranks that are GPUs.
#include <mutex>
#include <optional>

#include "algo/cholesky.h"
#include "algo/cholesky_update.h"
#include "algo/triangular_solve.h"
#include "rank_run.h"

namespace jaxmg::test {
namespace {

using tile::Cuda;

// What ranks hold of a matrix, put together; rows are not divisible by anything.
template <class T>
class Gathered {
 public:
  Gathered(Size rows, Size cols) : whole_(rows, cols) {}

  void put(const std::vector<T>& shard, const Distribution& dist, int rank) {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (Size i = 0; i < dist.local_size(rank); ++i) {
      std::copy_n(shard.begin() + i * whole_.cols, whole_.cols,
                  whole_.data.begin() + *dist.global(rank, LocalIndex(i)) * whole_.cols);
    }
  }
  const Matrix<T>& whole() const { return whole_; }

 private:
  std::mutex mutex_;
  Matrix<T> whole_;
};

// norm1(A[p][:, p] - L L^H) / (n eps norm1(A)), L^H in the upper triangle of `held` in the order of
// elimination.
template <class T>
double factor_residual(const Matrix<T>& a, const Matrix<T>& held, const Distribution& dist) {
  std::vector<Size> p;
  for (const Tile& t : dist.elimination_order()) {
    for (Size i = 0; i < dist.rows(t); ++i) {
      p.push_back(*dist.global_begin(t) + i);
    }
  }
  const auto at = [&](const Matrix<T>& m, Size i, Size j) {
    return m(p[static_cast<std::size_t>(i)], p[static_cast<std::size_t>(j)]);
  };
  const Size n = a.rows;
  Matrix<T> rest(n, n);
  for (Size i = 0; i < n; ++i) {
    for (Size j = 0; j < n; ++j) {
      std::complex<double> sum(at(a, i, j));
      for (Size k = 0; k <= std::min(i, j); ++k) {
        sum -=
            std::conj(std::complex<double>(at(held, k, i))) * std::complex<double>(at(held, k, j));
      }
      if constexpr (is_complex_v<T>) {
        rest(i, j) = T(sum);
      } else {
        rest(i, j) = static_cast<T>(sum.real());
      }
    }
  }
  return norm1(rest) / (static_cast<double>(n) * epsilon<T> * norm1(a));
}

template <class T>
Matrix<T> changed(Matrix<T> a, const Matrix<T>& v) {
  for (Size i = 0; i < a.rows; ++i) {
    for (Size j = 0; j < a.rows; ++j) {
      for (Size k = 0; k < v.cols; ++k) {
        a(i, j) += v(i, k) * conjugate(v(j, k));
      }
    }
  }
  return a;
}

// The factor of A, of A + V V^H, and of A again.
template <class T>
void check_update(Group& group, int devices, int ranks, Size n, Size tile, Order order,
                  Precision precision = Precision::native) {
  const auto a = random_hpd<T>(n, 41);
  const auto v = random_matrix<T>(n, 35, 42);
  const auto more = changed(a, v);
  const std::string name = "n " + std::to_string(n) + " ranks " + std::to_string(ranks) + " tile " +
                           std::to_string(tile) + (order == Order::natural ? " natural" : "");
  Gathered<T> first(n, n), updated(n, n), back(n, n);
  std::optional<Distribution> layout;
  std::mutex mutex;
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    const int me = gpu.comm.rank();
    RankRun<T> run(gpu, n, tile, Triangle::whole, 0, precision);
    PlanRequest q = run.request(Routine::potrf);
    q.order = order;
    const Plan plan(q);
    const Distribution dist = plan.distribution();
    {
      const std::lock_guard<std::mutex> lock(mutex);
      layout = dist;
    }
    auto shard = shard_of(a, dist, me);
    shard.resize(static_cast<std::size_t>(plan.matrix_rows() * n));
    DeviceArray<T> l(shard);
    const Size aux = aux_count(n, ranks, plan.tile()) / 2;
    DeviceArray<T> saved(aux), inverse(aux), vectors(v.data);
    DeviceArray<Info> info(1);
    run.call(q, [&](Rank<Cuda>& rank) {
      cholesky_factor<Cuda, T>(rank, Triangle::whole, l.get(), saved.get(), inverse.get(),
                               info.get());
    });
    first.put(l.download(), dist, me);
    for (const bool downdate : {false, true}) {
      PlanRequest u = run.request(Routine::cholupdate);
      u.order = order;
      u.nrhs = v.cols;
      run.call(u, [&](Rank<Cuda>& rank) {
        cholesky_update<Cuda, T>(rank, downdate, l.get(), inverse.get(), vectors.get(), info.get());
      });
      (downdate ? back : updated).put(l.download(), dist, me);
    }
    group.expect(info.download()[0].kind == 0, name + " succeeded");
  });
  group.expect_small(factor_residual(a, first.whole(), *layout), 25, name + " factor");
  group.expect_small(factor_residual(more, updated.whole(), *layout), 25, name + " update");
  // Rounding is that of the larger matrix.
  const double scale = norm1(a) / norm1(more);
  group.expect_small(scale * factor_residual(a, back.whole(), *layout), 25, name + " downdate");
}

// A downdate that loses definiteness in row k.
template <class T>
void check_lost(Group& group, int devices, int ranks, Size n, Size k) {
  const auto a = random_hpd<T>(n, 43);
  Matrix<T> v(n, 1);
  v(k, 0) = T(static_cast<Real<T>>(2 * std::sqrt(std::real(a(k, k)))));
  run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
    RankRun<T> run(gpu, n, 16, Triangle::whole);
    PlanRequest q = run.request(Routine::potrf);
    q.order = Order::natural;
    const Plan plan(q);
    auto shard = shard_of(a, plan.distribution(), gpu.comm.rank());
    shard.resize(static_cast<std::size_t>(plan.matrix_rows() * n));
    DeviceArray<T> l(shard), vectors(v.data);
    const Size aux = aux_count(n, ranks, plan.tile()) / 2;
    DeviceArray<T> saved(aux), inverse(aux);
    DeviceArray<Info> info(1);
    run.call(q, [&](Rank<Cuda>& rank) {
      cholesky_factor<Cuda, T>(rank, Triangle::whole, l.get(), saved.get(), inverse.get(),
                               info.get());
    });
    q = run.request(Routine::cholupdate);
    q.order = Order::natural;
    run.call(q, [&](Rank<Cuda>& rank) {
      cholesky_update<Cuda, T>(rank, true, l.get(), inverse.get(), vectors.get(), info.get());
    });
    group.expect(status(info.download()[0]) == k + 1,
                 "downdate lost at " + std::to_string(k) + " on " + std::to_string(ranks));
  });
}

template <class T>
void check_triangular(Group& group, int devices, int ranks, Size n, Size tile) {
  const Size nrhs = 5;
  const auto b = random_matrix<T>(n, nrhs, 44);
  auto given = random_matrix<T>(n, n, 45);
  for (Size i = 0; i < n; ++i) {
    given(i, i) += T(static_cast<Real<T>>(std::sqrt(static_cast<double>(n))));
  }
  for (const Uplo uplo : {Uplo::lower, Uplo::upper}) {
    for (const Op op : {Op::none, Op::transpose, Op::conj_transpose}) {
      for (const Diag diag : {Diag::non_unit, Diag::unit}) {
        Matrix<T> meant(n, n);
        for (Size i = 0; i < n; ++i) {
          for (Size j = 0; j < n; ++j) {
            if (i == j || (uplo == Uplo::lower) == (j < i)) {
              const T x = i == j && diag == Diag::unit ? T(1) : given(i, j);
              (op == Op::none ? meant(i, j) : meant(j, i)) =
                  op == Op::conj_transpose ? conjugate(x) : x;
            }
          }
        }
        for (const bool whole : {true, false}) {
          Gathered<T> solution(n, nrhs);
          run_gpu_ranks(ranks, devices, true, [&](GpuRank& gpu) {
            RankRun<T> run(gpu, n, tile, Triangle::whole);
            PlanRequest q = run.request(Routine::trsm);
            q.order = Order::natural;
            q.nrhs = nrhs;
            q.replicated_rhs = whole;
            const Distribution dist = Plan(q).distribution();
            const int me = gpu.comm.rank();
            DeviceArray<T> a(shard_of(given, dist, me));
            DeviceArray<T> x(whole ? b.data : shard_of(b, dist, me));
            run.call(q, [&](Rank<Cuda>& rank) {
              triangular_solve<Cuda, T>(rank, {uplo, op, diag}, a.get(), x.get());
            });
            auto found = x.download();
            if (whole && dist.local_size(me) > 0) {
              found.erase(found.begin(), found.begin() + *dist.global(me, LocalIndex(0)) * nrhs);
            }
            solution.put(found, dist, me);
          });
          group.expect_small(solve_residual(meant, b, solution.whole()), 25,
                             "triangle " + std::to_string(static_cast<int>(uplo)) + " op " +
                                 std::to_string(static_cast<int>(op)) + " n " + std::to_string(n) +
                                 " ranks " + std::to_string(ranks));
        }
      }
    }
  }
}

template <class T>
void check_type(int devices) {
  {
    Group group("updates of factors " + type_name<T>());
    for (const Order order : {Order::relabelled, Order::natural}) {
      for (const int ranks : {1, 2, 3}) {
        check_update<T>(group, devices, ranks, 37, 8, order);
        check_update<T>(group, devices, ranks, 300, 0, order);
        check_update<T>(group, devices, ranks, 301, 100, order);
      }
    }
    if constexpr (Cuda::splits<T>) {
      check_update<T>(group, devices, 2, 512, 128, Order::natural, Precision::split);
    }
    check_lost<T>(group, devices, 1, 50, 20);
    check_lost<T>(group, devices, 2, 50, 40);
  }
  Group group("triangular systems " + type_name<T>());
  for (const int ranks : {1, 2, 3}) {
    check_triangular<T>(group, devices, ranks, 5, 1);
    check_triangular<T>(group, devices, ranks, 201, 32);
  }
}

}  // namespace

void check_factors(int devices) {
  check_type<float>(devices);
  check_type<double>(devices);
  check_type<std::complex<float>>(devices);
  check_type<std::complex<double>>(devices);
}

}  // namespace jaxmg::test
