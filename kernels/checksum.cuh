// The checksum: sum over k of (k + 1) * bits_k mod 2^64, k the row-major logical index.
//
// It is exact and does not depend on the order of summation.
#pragma once
#include "device.cuh"

struct Vector {
  u32 word[4];
};

// Element k of a vector, by its bits.
template <int BYTES>
DEVICE u64 element_bits(const Vector& v, int k) {
  if (BYTES == 8) return (u64)v.word[2 * k + 1] << 32 | v.word[2 * k];
  if (BYTES == 4) return v.word[k];
  return v.word[k * BYTES / 4] >> 8 * (k * BYTES & 3) & ((1u << 8 * BYTES % 32) - 1);
}

// The share of a vector whose elements have the logical indices first, first + step, ...
template <int BYTES>
DEVICE u64 checksum_share(const Vector& v, u64 first, u64 step) {
  u64 sum = 0, ranked = 0;                          // of bits_k and of k * bits_k
  if (BYTES == 1) {
    u32 s = 0, r = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      s = dot4(v.word[i], 0x01010101u, s);
      r = dot4(v.word[i], 0x03020100u + 0x04040404u * i, r);
    }
    sum = s, ranked = r;
  } else if (BYTES == 2) {
    u32 s = 0, r = 0;
#pragma unroll
    for (int i = 0; i < 2; i++) {
      s = dot2_low(v.word[2 * i], 0x01010101u, s);
      s = dot2_low(v.word[2 * i + 1], 0x01010101u, s);
      r = dot2_low(v.word[2 * i], 0x03020100u + 0x04040404u * i, r);
      r = dot2_high(v.word[2 * i + 1], 0x03020100u + 0x04040404u * i, r);
    }
    sum = s, ranked = r;
  } else {
#pragma unroll
    for (int k = 0; k < 16 / BYTES; k++) {
      u64 bits = element_bits<BYTES>(v, k);
      sum += bits;
      if (BYTES == 4) ranked += (u64)(u32)bits * (u32)k;
      else ranked += bits * k;
    }
  }
  return (first + 1) * sum + step * ranked;
}
