// Products of small matrices of doubles on tensor cores.
#pragma once

#ifdef __CUDACC__

namespace jaxmg::tile {

// C (16 x 8) += A (16 x 8) B (8 x 8), by a warp. With g = lane / 4 and t = lane % 4 a lane has
//
//   a: A(g, t), A(g + 8, t), A(g, t + 4), A(g + 8, t + 4)     b: B(t, g), B(t + 4, g)
//   c: C(g, 2 t), C(g, 2 t + 1), C(g + 8, 2 t), C(g + 8, 2 t + 1)
__device__ inline void multiply_add(double (&c)[4], double a0, double a1, double a2, double a3,
                                    double b0, double b1) {
#if __CUDA_ARCH__ >= 900
  asm("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a0), "d"(a1), "d"(a2), "d"(a3), "d"(b0), "d"(b1));
#else
  // By quarters: 8 rows and 4 of the 8 terms.
  const auto quarter = [](double& c0, double& c1, double a, double b) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1}, {%2}, {%3}, {%0,%1};"
        : "+d"(c0), "+d"(c1)
        : "d"(a), "d"(b));
  };
  quarter(c[0], c[1], a0, b0);
  quarter(c[2], c[3], a1, b0);
  quarter(c[0], c[1], a2, b1);
  quarter(c[2], c[3], a3, b1);
#endif
}

}  // namespace jaxmg::tile

#endif  // __CUDACC__
