// The element formats: how many bytes, and which number some bits stand for.
#pragma once
#include "keys.cuh"

// Floats whose arithmetic fits an f32.
struct F32 {
  static const int BYTES = 4;
  static DEVICE float value(u32 bits) { return __uint_as_float(bits); }
  static const bool UNDERFLOWS = true;              // a squared difference may vanish in f32
};
struct F16 {
  static const int BYTES = 2;
  static DEVICE float value(u32 bits) { return half_to_float(bits); }
  static const bool UNDERFLOWS = false;
};
struct BF16 {
  static const int BYTES = 2;
  static DEVICE float value(u32 bits) { return __uint_as_float(bits << 16); }
  static const bool UNDERFLOWS = true;
};

// Eight-bit floats, widened four at a time to halves of UNIT times less than their value.
struct E4M3 {
  static const int BYTES = 1;
  static constexpr float UNIT = 256.0f;             // exponent bias 7 read as one of 15
  // Bytes 0 and 2, and bytes 1 and 3, of a word as pairs of halves. NaN comes out as 1.875.
  static DEVICE u32 even(u32 w) { return (w << 8 & 0x80008000u) | (w << 7 & 0x3f803f80u); }
  static DEVICE u32 odd(u32 w) { return (w & 0x80008000u) | (w >> 1 & 0x3f803f80u); }
  // Added to the magnitude of a byte, it carries into the top bit if that is no finite number.
  static const u32 SPECIAL = 0x01;
  static DEVICE float value(u32 bits) {
    if ((bits & 0x7f) == 0x7f) return __uint_as_float(0x7fc00000u);
    return half_to_float((bits << 8 & 0x8000u) | (bits << 7 & 0x3f80u));
  }
};
struct E5M2 {
  static const int BYTES = 1;
  static constexpr float UNIT = 1.0f;
  static DEVICE u32 even(u32 w) { return w << 8 & 0xff00ff00u; }
  static DEVICE u32 odd(u32 w) { return w & 0xff00ff00u; }
  static const u32 SPECIAL = 0x04;
  static DEVICE float value(u32 bits) { return half_to_float(bits << 8); }
};

// Numbers that need double precision, or more.
//
// `pivot` is a number near x that double holds exactly, `distance` its distance from x.
struct F64 {
  static const int BYTES = 8;
  typedef double Number;
  static DEVICE double pivot(double x) { return x; }
  static DEVICE double distance(double x, double pivot) { return x - pivot; }
  static DEVICE double number(u64 bits) { return __longlong_as_double((i64)bits); }
  static DEVICE double lowest() { return __longlong_as_double((i64)0xfff0000000000000ull); }
  static DEVICE double highest() { return __longlong_as_double(0x7ff0000000000000ll); }
  static DEVICE u64 key(double v) { return key_of(v); }
};
struct I64 {
  static const int BYTES = 8;
  typedef i64 Number;
  static DEVICE i64 pivot(i64 x) { return ((u64)x + (1ull << 53)) >> 54 ? x & ~0x7ffll : x; }
  // The unsigned difference is right even where the signed one overflows.
  static DEVICE double distance(i64 x, i64 pivot) {
    return x < pivot ? -(double)((u64)pivot - (u64)x) : (double)((u64)x - (u64)pivot);
  }
  static DEVICE i64 number(u64 bits) { return (i64)bits; }
  static DEVICE i64 lowest() { return (i64)(1ull << 63); }
  static DEVICE i64 highest() { return (i64)~(1ull << 63); }
  static DEVICE u64 key(i64 v) { return key_of(v); }
};
struct U64 {
  static const int BYTES = 8;
  typedef u64 Number;
  static DEVICE u64 pivot(u64 x) { return x >> 53 ? x & ~0x7ffull : x; }
  static DEVICE double distance(u64 x, u64 pivot) { return x < pivot ? -(double)(pivot - x) : (double)(x - pivot); }
  static DEVICE u64 number(u64 bits) { return bits; }
  static DEVICE u64 lowest() { return 0; }
  static DEVICE u64 highest() { return ~0ull; }
  static DEVICE u64 key(u64 v) { return key_of(v); }
};
struct I32 {
  static const int BYTES = 4;
  typedef int Number;
  static DEVICE int pivot(int x) { return x; }
  static DEVICE double distance(int x, int pivot) { return (double)x - (double)pivot; }
  static DEVICE int number(u64 bits) { return (int)(u32)bits; }
  static DEVICE int lowest() { return -0x7fffffff - 1; }
  static DEVICE int highest() { return 0x7fffffff; }
  static DEVICE u64 key(int v) { return key_of((i64)v); }
};
struct U32 {
  static const int BYTES = 4;
  typedef u32 Number;
  static DEVICE u32 pivot(u32 x) { return x; }
  static DEVICE double distance(u32 x, u32 pivot) { return (double)x - (double)pivot; }
  static DEVICE u32 number(u64 bits) { return (u32)bits; }
  static DEVICE u32 lowest() { return 0; }
  static DEVICE u32 highest() { return 0xffffffffu; }
  static DEVICE u64 key(u32 v) { return key_of((i64)v); }
};

// Integers of one or two bytes, bool among them, made unsigned by adding BIAS: their sums are exact.
struct I16 {
  static const int BYTES = 2, BIAS = 0x8000;
  static DEVICE u32 unsigned_lanes(u32 w) { return w ^ 0x80008000u; }
};
struct U16 {
  static const int BYTES = 2, BIAS = 0;
  static DEVICE u32 unsigned_lanes(u32 w) { return w; }
};
struct I8 {
  static const int BYTES = 1, BIAS = 0x80;
  static DEVICE u32 unsigned_lanes(u32 w) { return w ^ 0x80808080u; }
};
struct U8 {
  static const int BYTES = 1, BIAS = 0;
  static DEVICE u32 unsigned_lanes(u32 w) { return w; }
};

#define TOP_BITS 0x80808080u                        // of the four bytes of a word

// The top bit of every byte of w that is not zero.
DEVICE u32 nonzero_bytes(u32 w) { return (((w & ~TOP_BITS) + ~TOP_BITS) | w) & TOP_BITS; }
