// Bands and buffers of the eigensolver.
#include <algorithm>

#include "core/parts.h"
#include "core/plan_entries.h"

namespace jaxmg {

namespace {

// A GPU makes matrices of fewer rows in times that are those of launches.
constexpr Size kManyRows = 2048;

// A block of this edge, and some vectors, lie in the memory of one multiprocessor.
constexpr Size kWidestBandCuda = 64;

// Below this order a narrow band is better on a GPU: bulges go through it in half the time, which
// is a large part of what small problems take: the time of the chase grows as n, that of the rest
// as n^2 or n^3. Reflectors of narrow bands are applied more slowly, unless elements are large;
// where nobody wants vectors that does not count.
Size narrow_band_limit(const PlanRequest& q) {
  if (q.platform != Platform::cuda) {
    return 0;
  }
  const bool large = q.type == DType::c128;
  if (!q.vectors) {
    return large ? 20480 : 10240;
  }
  return large ? 10240 : q.type == DType::f64 ? 7168 : 5120;
}

}  // namespace

// Half widths of the band of an eigenproblem: wide enough for fast products, while the work of the
// second stage and of its reflectors grows with it.
Size choose_band(const PlanRequest& q, Size tile) {
  if (q.tile == 0) {
    const Size rows = std::max<Size>(1, ceil_div(q.n, q.ranks));
    const bool wide = q.n >= 1024 && q.n >= narrow_band_limit(q);
    tile = std::min<Size>(wide ? 64 : q.n >= 256 ? 32 : q.n >= 64 ? 16 : 8, rows);
  }
  return q.platform == Platform::cuda ? std::min(tile, kWidestBandCuda) : tile;
}

Size sweep_group(Size b) {
  return std::max<Size>(1, b / 2);
}

// On a GPU one kernel applies those of a panel, with more of them at once where there are few
// columns to share.
Size sweep_panel_groups(Platform platform, Size n) {
  return platform == Platform::cpu ? 1 : n <= 20480 ? 8 : 2;
}

Size packed_sweep_panel(DType type, Size n, Size b) {
  const Size groups = sweep_panel_groups(Platform::cuda, n), size = sweep_group(b);
  const Size blocks = groups * ceil_div(n, b);
  // Two windows each, for products; or tiles in double precision, see tile/cuda/sweep_blocks.h.
  const Size windows = 2 * (b + size - 1) * size;
  const Size columns = ceil_div(b, Size{16}), tall = ceil_div(b, Size{8}) + 1;
  const Size tiles = 2 * columns * tall + columns * (columns - 1) / 2;
  const Size wide = 64 * tiles * (is_complex(type) ? 16 : 8) / size_of(type);
  return blocks * std::max(windows, wide) + n;  // and how far passes have come
}

Size mirror_tile(Size rows) {
  return std::clamp<Size>(rows, 1, 512);
}

// Panels whose updates of the matrix are put off and made together: long inner dimensions make fast
// products, but every rank keeps 2 width n elements for them, and all ranks 2 width n more. That is
// held to a third of a matrix, a sixth where only values are wanted; but not where the matrix is
// small and launches are what takes a GPU's time.
Size choose_reflector_group(const PlanRequest& q, Size b) {
  const bool cpu = q.platform == Platform::cpu;
  const Size width = cpu ? 256 : q.n >= 24576 ? 1024 : 512;
  const Size room = q.n / ((q.vectors ? 6 : 12) * (q.ranks + 1));
  const Size least = cpu || q.n >= kManyRows ? 0 : 160;
  return std::max<Size>(1, std::clamp(room, least, width) / b);
}

namespace {

// Blocks of threads among which a GPU divides the rows of a panel, and what they tell each other:
// either sums of each column and the pivot row, or, where the panel stays in registers, the same
// for 64 columns with tags.
constexpr Size kPanelBlocks = 1024;
constexpr Size kGridBlocks = 256;
constexpr Size kGridColumns = 64;

Size panel_work_bytes(Size b, DType type) {
  return size_of(type) * 2 * std::max((kPanelBlocks + 1) * b, 2 * (kGridBlocks + 1) * kGridColumns);
}

// Of the reflectors of stage 2 the most that one rank holds: the first one, since earlier groups
// are larger.
Size sweep_share(const PlanRequest& q, Size b) {
  const Size group = sweep_group(b), groups = sweep_panel_groups(q.platform, q.n);
  Size sum = 0;
  for (Size panel = 0; b > 1 && panel * groups * group < q.n - 1; panel += q.ranks) {
    for (Size i = panel * groups; i < (panel + 1) * groups && i * group < q.n - 1; ++i) {
      sum += (q.n - 1 - i * group) * std::min(group, q.n - 1 - i * group);
    }
  }
  return sum;
}

// Room for the reflectors of two panels on their way, and for the one that is applied.
Size sweep_panel_count(const PlanRequest& q, Size b) {
  const Size group = sweep_group(b);
  if (q.platform == Platform::cpu) {
    return 2 * ceil_div(q.n, b) * 2 * (b + group - 1) * group;
  }
  return packed_sweep_panel(q.type, q.n, b) +
         (q.ranks > 1 ? 2 * sweep_panel_groups(q.platform, q.n) * group * q.n : 0);
}

}  // namespace

void add_eigen_entries(const PlanRequest& q, const Decisions& decided, EntryList& list) {
  if (q.routine != Routine::syevd) {
    return;
  }
  const Size n = q.n;
  const Size b = decided.tile;
  const Size rows = ceil_div(n, q.ranks);
  const DType t = q.type;
  const DType real = real_of(t);
  const Size width = decided.group * b;  // of a block of panels
  const Size group = sweep_group(b);
  const Size columns = ceil_div(q.columns, q.ranks);
  const Size staging = mirror_staging_count(q, rows, mirror_tile(rows));

  list.argument(Buffer::matrix, t, rows * n);
  list.result(Buffer::eigenvalues, real, n);
  list.scratch(Buffer::reflector_rows, t, 2 * width * n);
  list.scratch(Buffer::reflector_own_rows, t, 2 * width * rows);
  list.scratch(Buffer::product_rows, t, b * n);
  list.scratch(Buffer::product_own_rows, t, q.ranks > 1 ? b * rows : 0);
  list.scratch(Buffer::panel_even, t, b * rows * q.ranks);
  list.scratch(Buffer::reflector_factors, t, n);
  list.scratch(Buffer::small_blocks, t, (5 + 2 * decided.group) * b * b);
  list.scratch(Buffer::band, t, 2 * b * n);
  list.scratch(Buffer::scalars, DType::f64, 2 * n + 1);
  list.scratch(Buffer::probe_vector, t, n);
  list.scratch(Buffer::probe_product, t, n);
  list.scratch(Buffer::probe_transpose, t, n);
  list.scratch(Buffer::probe_result, real, 4);
  // The QR of panels; divide and conquer, and a list of n places; or bisection.
  const bool cuda = q.platform == Platform::cuda;
  const Size sums = cuda ? ceil_div(panel_work_bytes(b, t), Size{8}) : 0;
  const Size tridiagonal = q.vectors ? 24 * n + 64 : cuda ? 12 * n + 64 : 0;
  list.scratch(Buffer::eigen_work, DType::f64, std::max(sums, tridiagonal));
  if (q.vectors || q.mirror) {
    list.scratch(Buffer::send_staging, t, staging);
    list.scratch(Buffer::receive_staging, t, staging);
  }
  if (!q.vectors) {
    return;
  }
  if (q.columns != n) {  // else they take the place of the matrix
    list.result(Buffer::result_vectors, t, rows * q.columns);
  }
  list.scratch(Buffer::sweep_reflectors, t, sweep_share(q, b));
  list.scratch(Buffer::sweep_panel, t, sweep_panel_count(q, b));
  const bool split = decided.precision == Precision::split;
  const Size tall = parts_ld(n);
  // Products with some eigenvectors of a rank-one problem at a time: many fill a GPU, and those of
  // small problems are made all together.
  const Size least = cuda && n <= 2 * kManyRows ? 512 : 128;
  const Size most = std::clamp<Size>(cuda ? n / (8 * q.ranks) : 0, least, 1024);
  const Size together = std::min(std::max<Size>(n, 1), most);
  if (split) {
    // Four halves for each element of these, or of a block of reflectors beside three for each of
    // its products.
    const Size products = ceil_div(3 * width * columns, 2);
    list.scratch(Buffer::split_even, DType::f32, 2 * tall * std::max(together, width) + products);
  }
  // Later the parts of eigenvectors.
  list.scratch(Buffer::tridiagonal_vectors, real, std::max(rows * n, split ? tall * columns : 0));
  // Also a second place for those of the tridiagonal matrix, in real numbers; and at first one for
  // reflectors, a panel of them at least.
  const Size waiting =
      q.ranks > 1 ? std::min(n, sweep_panel_groups(q.platform, q.n) * group) * n : 0;
  list.scratch(Buffer::eigenvectors, t,
               std::max({columns * n, is_complex(t) ? ceil_div(rows * n, 2) : rows * n, waiting}));
  list.scratch(Buffer::back_products, t, std::max({width, 2 * b, group}) * columns + width * width);
  list.scratch(Buffer::secular_block, real, n * together);
}

}  // namespace jaxmg
