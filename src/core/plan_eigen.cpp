// Buffers of the eigensolver.
#include <algorithm>

#include "core/plan_entries.h"

namespace jaxmg {

Size sweep_group(Size b) {
  return std::max<Size>(1, b / 2);
}

// On a GPU the sweeps of a batch follow each other through the matrix on many multiprocessors.
Size sweep_batch(Platform platform) {
  return platform == Platform::cpu ? 4 : 32;
}

Size mirror_tile(Size rows) {
  return std::clamp<Size>(rows, 1, 512);
}

// Panels whose updates of the matrix are put off and made together: long inner dimensions make fast
// products, but every rank keeps 2 width n elements for them, and all ranks 2 width n more. That is
// held to a third of a matrix, a sixth where only values are wanted.
Size choose_reflector_group(const PlanRequest& q, Size b) {
  const Size width = q.platform == Platform::cpu ? 256 : q.n >= 24576 ? 1024 : 512;
  const Size room = q.n / ((q.vectors ? 6 : 12) * (q.ranks + 1));
  return std::max<Size>(1, std::min(width, room) / b);
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
Size sweep_share(Size n, Size b, int ranks) {
  const Size group = sweep_group(b);
  Size sum = 0;
  for (Size first = 0; b > 1 && first < n - 1; first += group * ranks) {
    sum += (n - 1 - first) * std::min(group, n - 1 - first);
  }
  return sum;
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
  // Steps, then two windows each.
  const Size packed = ceil_div(n, b) * 2 * (b + group - 1) * group;
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
  list.scratch(Buffer::small_blocks, t, (6 + 2 * decided.group) * b * b);
  list.scratch(Buffer::band, t, 2 * b * n);
  list.scratch(Buffer::scalars, DType::f64, 2 * n + 1);
  list.scratch(Buffer::probe_vector, t, n);
  list.scratch(Buffer::probe_product, t, n);
  list.scratch(Buffer::probe_transpose, t, n);
  list.scratch(Buffer::probe_result, real, 4);
  if (q.platform == Platform::cuda) {
    list.scratch(Buffer::eigen_work, DType::f64,
                 std::max(12 * n + 64, ceil_div(panel_work_bytes(b, t), 8)));
  }
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
  const Size waiting = std::min(sweep_batch(q.platform), ceil_div(n, group));
  const Size staged = q.ranks > 1 ? waiting * group * n : 0;
  list.scratch(Buffer::sweep_reflectors, t, sweep_share(n, b, q.ranks));
  list.scratch(Buffer::sweep_panel, t, std::max(packed, staged));
  list.scratch(Buffer::tridiagonal_vectors, real, rows * n);
  // Also a second place for those of the tridiagonal matrix, in real numbers.
  list.scratch(Buffer::eigenvectors, t,
               std::max(columns * n, is_complex(t) ? ceil_div(rows * n, 2) : rows * n));
  list.scratch(Buffer::back_products, t, std::max({width, 2 * b, group}) * columns + width * width);
  list.scratch(Buffer::secular_block, real, n * std::min<Size>(std::max<Size>(n, 1), 128));
}

}  // namespace jaxmg
