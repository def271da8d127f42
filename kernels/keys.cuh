// Unsigned keys that sort as the numbers they stand for, so that one reduction serves every dtype.
#pragma once
#include "device.cuh"

#define NO_MIN (~0ull)
#define NO_MAX (0ull)

DEVICE u64 key_of(double value) {
  u64 bits = (u64)__double_as_longlong(value);
  return (bits >> 63) ? ~bits : bits | 1ull << 63;
}
DEVICE u64 key_of(i64 value) { return (u64)value ^ 1ull << 63; }
DEVICE u64 key_of(u64 value) { return value; }
