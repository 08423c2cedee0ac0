// Loads and stores that nvcc declares and clang does not: numbers read from and written to the
// second-level cache, which all multiprocessors share.
#pragma once

#ifdef __clang__

__device__ inline float __ldcg(const float* p) {
  float x;
  asm volatile("ld.global.cg.f32 %0, [%1];" : "=f"(x) : "l"(p));
  return x;
}
__device__ inline double __ldcg(const double* p) {
  double x;
  asm volatile("ld.global.cg.f64 %0, [%1];" : "=d"(x) : "l"(p));
  return x;
}
__device__ inline float2 __ldcg(const float2* p) {
  float2 x;
  asm volatile("ld.global.cg.v2.f32 {%0, %1}, [%2];" : "=f"(x.x), "=f"(x.y) : "l"(p));
  return x;
}
__device__ inline float4 __ldcg(const float4* p) {
  float4 x;
  asm volatile("ld.global.cg.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
               : "l"(p));
  return x;
}
__device__ inline double2 __ldcg(const double2* p) {
  double2 x;
  asm volatile("ld.global.cg.v2.f64 {%0, %1}, [%2];" : "=d"(x.x), "=d"(x.y) : "l"(p));
  return x;
}
__device__ inline void __stcg(float* p, float x) {
  asm("st.global.cg.f32 [%0], %1;" ::"l"(p), "f"(x) : "memory");
}
__device__ inline void __stcg(double* p, double x) {
  asm("st.global.cg.f64 [%0], %1;" ::"l"(p), "d"(x) : "memory");
}

#endif
