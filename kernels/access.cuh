// How the k-th visited element of a tensor is found in memory, for each kind of layout.
//
// Elements are visited in memory order where that differs from the logical one; `logical` tells
// the row-major index that the k-th visited element has. Every access offers
//   u64 load(v, k)                VECTORS vectors into v, the j-th from element k + j * STEP on;
//                                 returns their share of the checksum,
//   u64 bits(k), u64 logical(k)   one element.
#pragma once
#include "batch.cuh"
#include "checksum.cuh"
#include "formats.cuh"

// How many elements lie between one thread's consecutive vectors.
template <int BYTES>
DEVICE u64 vector_step() {
  return THREADS * 16 / BYTES;
}

// Quotient and remainder; the 32-bit instructions are several times faster.
struct Division {
  u64 quotient, remainder;
  DEVICE Division(u64 a, u64 b) {
    if ((a | b) >> 32) {
      quotient = a / b;
      remainder = a - quotient * b;
    } else {
      quotient = (u32)a / (u32)b;
      remainder = (u32)a - (u32)quotient * (u32)b;
    }
  }
};

template <int BYTES>
DEVICE u64 read_element(const void* address) {
  if (BYTES == 8) return *(const u64*)address;
  if (BYTES == 4) return *(const u32*)address;
  if (BYTES == 2) return *(const u16*)address;
  return *(const u8*)address;
}

DEVICE Vector load_vector(const void* address) {
  uint4 v = load_streaming(address);
  return Vector{{v.x, v.y, v.z, v.w}};
}

template <class F>
struct DenseAccess {
  typedef F Format;
  const u8* data;

  DEVICE DenseAccess(const DenseTensor& tensor) : data((const u8*)tensor.work.data) {}

  DEVICE u64 load(Vector (&v)[VECTORS], u64 k) const {
#pragma unroll
    for (int j = 0; j < VECTORS; j++) v[j] = load_vector(data + (k + j * vector_step<F::BYTES>()) * F::BYTES);
    u64 checksum = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
      checksum += checksum_share<F::BYTES>(v[j], k + j * vector_step<F::BYTES>(), 1);
    return checksum;
  }

  DEVICE u64 bits(u64 k) const { return read_element<F::BYTES>(data + k * F::BYTES); }
  DEVICE u64 logical(u64 k) const { return k; }
};

template <class F>
struct StridedAccess {
  typedef F Format;
  struct Place {
    const u8* address;
    u64 logical;
    u64 left_in_row;             // elements, this one included
  };
  const StridedTensor& tensor;

  DEVICE StridedAccess(const StridedTensor& t) : tensor(t) {}

  DEVICE Place place(u64 k) const {
    Place p = {(const u8*)tensor.work.data, 0, 0};
    u64 rest = k;
#pragma unroll 1
    for (u32 d = 0; d < tensor.rank; d++) {
      u64 at = rest;             // of the outermost dimension, whatever is left
      if (d + 1 < tensor.rank) {
        Division by(rest, tensor.size[d]);
        at = by.remainder;
        rest = by.quotient;
      }
      p.address += (i64)at * tensor.stride[d];
      p.logical += at * tensor.weight[d];
      if (d == 0) p.left_in_row = tensor.size[0] - at;
    }
    return p;
  }

  DEVICE u64 load(Vector (&v)[VECTORS], u64 k) const {
    return tensor.whole_vectors ? load_vectors(v, k) : load_elements(v, k);
  }

  DEVICE u64 load_vectors(Vector (&v)[VECTORS], u64 k) const {
    Place at[VECTORS];
#pragma unroll
    for (int j = 0; j < VECTORS; j++) at[j] = place(k + j * vector_step<F::BYTES>());
#pragma unroll
    for (int j = 0; j < VECTORS; j++) v[j] = load_vector(at[j].address);
    u64 checksum = 0;
#pragma unroll
    for (int j = 0; j < VECTORS; j++) checksum += checksum_share<F::BYTES>(v[j], at[j].logical, tensor.weight[0]);
    return checksum;
  }

  DEVICE u64 load_elements(Vector (&v)[VECTORS], u64 k) const {
    const u32 PER_VECTOR = 16 / F::BYTES;
    u64 checksum = 0;
    u32 word[4 * VECTORS];       // indexed by a loop that stays a loop, so in local memory
#pragma unroll 1
    for (u32 j = 0; j < VECTORS; j++) {
      u64 first = k + j * vector_step<F::BYTES>();
      Place at = place(first);
#pragma unroll 1
      for (u32 i = 0; i < PER_VECTOR; i++) {
        u64 bits = read_element<F::BYTES>(at.address);
        checksum += (at.logical + 1) * bits;
        u32 byte = j * 16 + i * F::BYTES;
        if (F::BYTES == 8) {
          word[byte / 4] = (u32)bits;
          word[byte / 4 + 1] = (u32)(bits >> 32);
        } else {
          word[byte / 4] = (byte % 4 ? word[byte / 4] : 0) | (u32)bits << 8 * (byte % 4);
        }
        if (--at.left_in_row) {
          at.address += tensor.stride[0];
          at.logical += tensor.weight[0];
        } else if (i + 1 < PER_VECTOR) {
          at = place(first + i + 1);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
#pragma unroll
      for (int i = 0; i < 4; i++) v[j].word[i] = word[4 * j + i];
    return checksum;
  }

  DEVICE u64 bits(u64 k) const { return read_element<F::BYTES>(place(k).address); }
  DEVICE u64 logical(u64 k) const { return place(k).logical; }
};

// Reads a quantised tensor as the f32 tensor that it stands for.
struct QuantizedAccess {
  typedef F32 Format;
  const QuantizedTensor& tensor;

  DEVICE QuantizedAccess(const QuantizedTensor& t) : tensor(t) {}

  DEVICE float code_value(u32 code) const {
    u32 width = tensor.code_bits;
    switch (tensor.code) {
      case CODE_E4M3: return E4M3::value(code) * E4M3::UNIT;
      case CODE_E5M2: return E5M2::value(code);
      case CODE_E2M1: {
        // 0, 0.5, 1, 1.5, 2, 3, 4, 6, in halves of their value.
        u32 magnitude = 0xc8643210u >> 4 * (code & 7) & 15;
        float half = (float)magnitude * 0.5f;
        return code & 8 ? -half : half;
      }
      default: return (float)((int)(code << (32 - width)) >> (32 - width));
    }
  }

  DEVICE float scale_value(i64 at) const {
    switch (tensor.scale_format) {
      case SCALE_F32: return ((const float*)tensor.scales)[at];
      case SCALE_F16: return half_to_float(((const u16*)tensor.scales)[at]);
      case SCALE_BF16: return __uint_as_float((u32)((const u16*)tensor.scales)[at] << 16);
      case SCALE_UE8M0: {
        u32 exponent = ((const u8*)tensor.scales)[at];
        if (exponent == 0xff) return __uint_as_float(0x7fc00000u);
        return __uint_as_float(exponent ? exponent << 23 : 1u << 22);
      }
      default: return E4M3::value(((const u8*)tensor.scales)[at]) * E4M3::UNIT;
    }
  }

  DEVICE float value(u64 k) const {
    const u8* address = (const u8*)tensor.work.data;
    u64 rest = k, field = 0;
    i64 scale = 0;
    u32 per_word = 8 * tensor.word_bytes / tensor.code_bits;
#pragma unroll 1
    for (u32 d = 0; d < tensor.rank; d++) {
      Division by(rest, tensor.size[d]);
      u64 at = by.remainder;
      rest = by.quotient;
      scale += (i64)Division(at, tensor.block[d]).quotient * tensor.scale_stride[d];
      if (d == tensor.packed_dim) {
        Division word(at, per_word);
        at = word.quotient;
        field = word.remainder;
      }
      address += (i64)at * tensor.word_stride[d];
    }
    u32 word = tensor.word_bytes == 4 ? *(const u32*)address : *address;
    u32 code = word >> (field * tensor.code_bits) & ((1u << tensor.code_bits) - 1);
    float factor = scale_value(scale);
    if (tensor.global) factor = *tensor.global * factor;
    return code_value(code) * factor;
  }

  DEVICE u64 load(Vector (&v)[VECTORS], u64 k) const {
    u64 checksum = 0;
    u32 word[4 * VECTORS];       // in local memory, as in StridedAccess
#pragma unroll 1
    for (u32 i = 0; i < 4 * VECTORS; i++) {
      u64 element = k + i / 4 * vector_step<4>() + i % 4;
      word[i] = __float_as_uint(value(element));
      checksum += (element + 1) * word[i];
    }
#pragma unroll
    for (int j = 0; j < VECTORS; j++)
#pragma unroll
      for (int i = 0; i < 4; i++) v[j].word[i] = word[4 * j + i];
    return checksum;
  }
  DEVICE u64 bits(u64 k) const { return __float_as_uint(value(k)); }
  DEVICE u64 logical(u64 k) const { return k; }
};
