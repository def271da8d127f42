// What one thread keeps about its elements, for each class of formats.
//
// Every class offers
//   GROUP_VECTORS            vectors that are summed together before they join the thread's sums,
//   u32 add(vectors)         takes VECTORS vectors; bit g of the answer: group g was left out and
//                            must be added element by element,
//   void add_element(...)    takes one element, whatever it is,
//   Moments moments()        the sums in the form that blocks reduce.
// All four are the same whatever the layout in memory, so that results are too.
#pragma once
#include "batch.cuh"
#include "checksum.cuh"
#include "formats.cuh"

#define NO_INDEX (~0ull)

// Sums over some elements: about a pivot near them, so that nothing cancels.
struct Moments {
  double pivot, sum, squares;  // of (x - pivot) and (x - pivot)^2 over the finite elements
  u64 finite, min, max;        // min and max as keys
  u64 pos_inf, neg_inf, zeros, first_non_finite;
};

DEVICE u64 smaller(u64 a, u64 b) { return b < a ? b : a; }
DEVICE u64 larger(u64 a, u64 b) { return b > a ? b : a; }

// Sums in double about the first finite element, and the record of the others.
struct PivotSums {
  double pivot, sum, squares;
  u32 finite, pos_inf, neg_inf;                     // a thread sees fewer than 2^32 elements
  u64 first_non_finite;

  DEVICE PivotSums()
      : pivot(0), sum(0), squares(0), finite(0), pos_inf(0), neg_inf(0), first_non_finite(NO_INDEX) {}

  DEVICE void add_about_zero(double d) {
    sum += d;
    squares = fma(d, d, squares);
    finite++;
  }

  DEVICE void add_finite(double x) {
    if (finite == 0) pivot = x;
    add_about_zero(x - pivot);
  }

  DEVICE void add(double x, u64 logical) {
    if (x - x == 0.0) return add_finite(x);
    pos_inf += x > 0.0;
    neg_inf += x < 0.0;
    first_non_finite = smaller(first_non_finite, logical);
  }

  // N elements at once: their sums are about `centre`.
  template <int N>
  DEVICE void add_group(double centre, double group_sum, double group_squares) {
    if (finite == 0) pivot = centre;
    double d = centre - pivot;
    sum += fma((double)N, d, group_sum);
    squares += fma(d, fma((double)N, d, 2.0 * group_sum), group_squares);
    finite += N;
  }
};

// The sum in pairs of pairs: of a power of two of equal numbers it is exact.
template <int N>
DEVICE float tree_sum(const float* x) {
  return tree_sum<N / 2>(x) + tree_sum<N / 2>(x + N / 2);
}
template <>
DEVICE float tree_sum<1>(const float* x) {
  return *x;
}

// f32, f16, bf16: groups of 16 in f32 about their own mean, in two passes over the registers.
template <class F>
struct FloatSums {
  static const int PER_VECTOR = 16 / F::BYTES, GROUP_VECTORS = F::BYTES;
  float min, max;
  u32 zeros;
  PivotSums sums;

  DEVICE FloatSums() : min(__uint_as_float(0x7f800000u)), max(-min), zeros(0) {}

  DEVICE u32 add(const Vector (&v)[VECTORS]) {
    u32 left_out = 0;
#pragma unroll
    for (int g = 0; g < VECTORS / GROUP_VECTORS; g++) {
      float x[16];
#pragma unroll
      for (int i = 0; i < 16; i++)
        x[i] = F::value((u32)element_bits<F::BYTES>(v[g * GROUP_VECTORS + i / PER_VECTOR], i % PER_VECTOR));
      if (!add_group(x)) left_out |= 1u << g;
    }
    return left_out;
  }

  // False if the group holds NaN or Inf, or numbers whose squares leave the range of f32.
  DEVICE bool add_group(const float (&x)[16]) {
    float mean = tree_sum<16>(x) * 0.0625f, sum = 0, squares = 0, low = x[0], high = x[0];
#pragma unroll
    for (int i = 0; i < 16; i++) {
      float d = x[i] - mean;
      sum += d;
      squares = fmaf(d, d, squares);
      low = fminf(low, x[i]);
      high = fmaxf(high, x[i]);
    }
    bool fits = squares < 1e37f && (!F::UNDERFLOWS || squares >= 1e-24f || low == high);
    if (!fits) return false;
#pragma unroll
    for (int i = 0; i < 16; i++) zeros += x[i] == 0.0f;
    min = fminf(min, low);
    max = fmaxf(max, high);
    sums.add_group<16>((double)mean, (double)sum, (double)squares);
    return true;
  }

  DEVICE void add_element(u64 bits, u64 logical) {
    float x = F::value((u32)bits);
    zeros += x == 0.0f;
    min = fminf(min, x);
    max = fmaxf(max, x);
    sums.add((double)x, logical);
  }

  DEVICE Moments moments() const {
    return Moments{sums.pivot, sums.sum, sums.squares, sums.finite, key_of((double)min), key_of((double)max),
                   sums.pos_inf, sums.neg_inf, zeros, sums.first_non_finite};
  }
};

// e4m3, e5m2: plain sums of 16 in f32. With at most four significant bits those are exact unless
// the elements differ by orders of magnitude, so no pivot is needed.
template <class F>
struct TinyFloatSums {
  static const int PER_VECTOR = 16, GROUP_VECTORS = 1;
  u32 min2, max2;                                   // pairs of halves
  u32 zeros;
  PivotSums sums;                                   // in units of F::UNIT, about zero

  DEVICE TinyFloatSums() : min2(0x7c007c00u), max2(0xfc00fc00u), zeros(0) {}

  DEVICE u32 add(const Vector (&v)[VECTORS]) {
    u32 left_out = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
      if (!add_vector(v[j])) left_out |= 1u << j;
    return left_out;
  }

  DEVICE bool add_vector(const Vector& v) {
    u32 special = 0, nonzero = 0, low = min2, high = max2;
    float sum = 0, squares = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      u32 w = v.word[i], even = F::even(w), odd = F::odd(w), magnitudes = w & ~TOP_BITS;
      special |= magnitudes + 0x01010101u * F::SPECIAL;
      nonzero = dot4((magnitudes + ~TOP_BITS) & TOP_BITS, 0x01010101u, nonzero);
      low = half2_min(low, half2_min(even, odd));
      high = half2_max(high, half2_max(even, odd));
      float x[4];
      half2_to_floats(even, x[0], x[1]);
      half2_to_floats(odd, x[2], x[3]);
#pragma unroll
      for (int k = 0; k < 4; k++) {
        sum += x[k];
        squares = fmaf(x[k], x[k], squares);
      }
    }
    if (special & TOP_BITS) return false;
    min2 = low;
    max2 = high;
    zeros += 16 - (nonzero >> 7);
    sums.sum += (double)sum;
    sums.squares += (double)squares;
    sums.finite += 16;
    return true;
  }

  DEVICE void add_element(u64 bits, u64 logical) {
    float x = F::value((u32)bits);
    if (x - x == 0.0f) {
      // A finite element is a half: both halves of the pair may take it.
      u32 half = F::even((u32)bits) & 0xffff, pair = half << 16 | half;
      min2 = half2_min(min2, pair);
      max2 = half2_max(max2, pair);
      zeros += x == 0.0f;
      return sums.add_about_zero((double)x);
    }
    if (x > 0) max2 = 0x7c007c00u;
    if (x < 0) min2 = 0xfc00fc00u;
    sums.add((double)x, logical);
  }

  DEVICE Moments moments() const {
    float min = fminf(half_to_float(min2 & 0xffff), half_to_float(min2 >> 16));
    float max = fmaxf(half_to_float(max2 & 0xffff), half_to_float(max2 >> 16));
    double unit = F::UNIT;
    return Moments{0.0, sums.sum * unit, sums.squares * unit * unit, sums.finite, key_of(min * unit),
                   key_of(max * unit), sums.pos_inf, sums.neg_inf, zeros, sums.first_non_finite};
  }
};

DEVICE double least(double a, double b) { return fmin(a, b); }
DEVICE double most(double a, double b) { return fmax(a, b); }
template <class T>
DEVICE T least(T a, T b) { return b < a ? b : a; }
template <class T>
DEVICE T most(T a, T b) { return b > a ? b : a; }

// f64 and integers of four and eight bytes: every element in double, bounds in their own type.
template <class F>
struct WideSums {
  static const int PER_VECTOR = 16 / F::BYTES, GROUP_VECTORS = 1;
  typename F::Number min, max, pivot;
  u32 zeros;
  PivotSums sums;                                   // about zero, of distances from `pivot`

  DEVICE WideSums() : min(F::highest()), max(F::lowest()), pivot(0), zeros(0) {}

  DEVICE u32 add(const Vector (&v)[VECTORS]) {
    u32 left_out = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
      typename F::Number x[PER_VECTOR];
      bool finite = true;
#pragma unroll
      for (int k = 0; k < PER_VECTOR; k++) {
        x[k] = F::number(element_bits<F::BYTES>(v[j], k));
        finite = finite && x[k] - x[k] == 0;
      }
      if (!finite) {
        left_out |= 1u << j;
        continue;
      }
#pragma unroll
      for (int k = 0; k < PER_VECTOR; k++) add_finite(x[k]);
    }
    return left_out;
  }

  DEVICE void add_finite(typename F::Number x) {
    min = least(min, x);
    max = most(max, x);
    zeros += x == 0;
    if (sums.finite == 0) pivot = F::pivot(x);
    sums.add_about_zero(F::distance(x, pivot));
  }

  DEVICE void add_element(u64 bits, u64 logical) {
    typename F::Number x = F::number(bits);
    if (x - x == 0) return add_finite(x);
    min = least(min, x);
    max = most(max, x);
    sums.add((double)x, logical);
  }

  DEVICE Moments moments() const {
    return Moments{(double)pivot, sums.sum, sums.squares, sums.finite, F::key(min), F::key(max),
                   sums.pos_inf, sums.neg_inf, zeros, sums.first_non_finite};
  }
};

// Integers of one and two bytes: exact integer sums of the elements made unsigned.
template <class F>
struct SmallIntSums {
  static const int PER_VECTOR = 16 / F::BYTES, GROUP_VECTORS = 1;
  u32 min, max;                                     // for bytes: pairs of 16-bit lanes
  u32 count, zeros;
  u64 sum, squares;                                 // below 2^53: a thread sees fewer than 2^20 elements

  DEVICE SmallIntSums() : min(F::BYTES == 1 ? 0x00ff00ffu : 0xffffu), max(0), count(0), zeros(0), sum(0), squares(0) {}

  DEVICE u32 add(const Vector (&v)[VECTORS]) {
#pragma unroll
    for (int j = 0; j < VECTORS; j++) {
      if (F::BYTES == 1) add_bytes(v[j]);
      else add_halves(v[j]);
    }
    count += VECTORS * PER_VECTOR;
    return 0;
  }

  DEVICE void add_bytes(const Vector& v) {
    u32 vector_sum = 0, vector_squares = 0, nonzero = 0;
#pragma unroll
    for (int i = 0; i < 4; i++) {
      u32 w = F::unsigned_lanes(v.word[i]), even = w & 0x00ff00ffu, odd = w >> 8 & 0x00ff00ffu;
      vector_sum = dot4(w, 0x01010101u, vector_sum);
      vector_squares = dot4(w, w, vector_squares);
      nonzero = dot4(nonzero_bytes(v.word[i]), 0x01010101u, nonzero);
      // As halves these are subnormals, which compare like the integers.
      min = half2_min(min, half2_min(even, odd));
      max = half2_max(max, half2_max(even, odd));
    }
    sum += vector_sum;
    squares += vector_squares;
    zeros += 16 - (nonzero >> 7);
  }

  DEVICE void add_halves(const Vector& v) {
#pragma unroll
    for (int i = 0; i < 4; i++) {
      u32 w = F::unsigned_lanes(v.word[i]);
      add_half(w & 0xffff);
      add_half(w >> 16);
    }
  }

  DEVICE void add_half(u32 x) {
    min = least(min, x);
    max = most(max, x);
    sum += x;
    squares += (u64)x * x;
    zeros += x == F::BIAS;
  }

  DEVICE void add_element(u64 bits, u64) {
    u32 x = F::unsigned_lanes((u32)bits);
    count++;
    if (F::BYTES == 2) return add_half(x & 0xffff);
    x &= 0xff;
    min = half2_min(min, x << 16 | x);
    max = half2_max(max, x << 16 | x);
    sum += x;
    squares += x * x;
    zeros += (bits & 0xff) == 0;
  }

  DEVICE Moments moments() const {
    u32 low = F::BYTES == 1 ? least(min & 0xffff, min >> 16) : min;
    u32 high = F::BYTES == 1 ? most(max & 0xffff, max >> 16) : max;
    // About the middle of the range; every number here is an integer below 2^53.
    u64 pivot = ((u64)low + high) / 2;
    i64 about = (i64)(sum - count * pivot);
    i64 squares_about = (i64)(squares - 2 * pivot * sum + count * pivot * pivot);
    if (count == 0) return Moments{0.0, 0.0, 0.0, 0, NO_MIN, NO_MAX, 0, 0, 0, NO_INDEX};
    return Moments{(double)((i64)pivot - F::BIAS), (double)about, (double)squares_about, count,
                   key_of((i64)low - F::BIAS), key_of((i64)high - F::BIAS), 0, 0, zeros, NO_INDEX};
  }
};
