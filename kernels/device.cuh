// The few machine operations that C++ has no name for, and the integer types.
//
// On the CPU the tests' shim declares the same functions (tests/cuda/shim.h), so that everything
// else in this folder is compiled unmodified for both.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

#define DEVICE __device__ __forceinline__

#ifdef __CUDACC__

// 16 bytes that are read once: not kept in L1, fetched in whole L2 lines.
DEVICE uint4 load_streaming(const void* address) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(address));
  return v;
}

// The value of an IEEE half given by its bits.
DEVICE float half_to_float(u32 bits) {
  float value;
  asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)bits));
  return value;
}

// The values of a pair of halves. In one piece, or the compiler takes the pair apart too early.
DEVICE void half2_to_floats(u32 pair, float& low, float& high) {
  asm("{.reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h;}"
      : "=f"(low), "=f"(high)
      : "r"(pair));
}

// Lane-wise smaller and larger of two pairs of halves; subnormals count, so bytes widened to
// 16 bits compare as the integers they are.
DEVICE u32 half2_min(u32 a, u32 b) {
  u32 r;
  asm("min.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}
DEVICE u32 half2_max(u32 a, u32 b) {
  u32 r;
  asm("max.f16x2 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(b));
  return r;
}

// c + sum over the four bytes of a[i] * b[i].
DEVICE u32 dot4(u32 a, u32 b, u32 c) {
  u32 r;
  asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

// c + sum over the two 16-bit halves of a[i] * (byte i, or byte i + 2, of b).
DEVICE u32 dot2_low(u32 a, u32 b, u32 c) {
  u32 r;
  asm("dp2a.lo.u32.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}
DEVICE u32 dot2_high(u32 a, u32 b, u32 c) {
  u32 r;
  asm("dp2a.hi.u32.u32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

#endif
