// What the host hands a summary kernel: the tensors of one launch, and where results go.
//
// The Rust side of these structures is src/summary/cuda/batch.rs; both must change together.
#pragma once
#include "device.cuh"

#define THREADS 256            // per block
#define VECTORS 4              // 16-byte loads in flight per thread
#define MAX_RANK 8
#define SKETCH 64              // values reserved behind every result for a sign-sum sketch

// One tile's statistics, and two tiles' once merged.
struct Part {
  double pivot, offset;        // the finite elements' mean is pivot + offset
  double m2;                   // sum of their squared distances from the mean
  u64 finite;                  // how many elements are finite
  u64 min, max;                // ordered keys, see keys.cuh; NaN left out
  u64 pos_inf, neg_inf, zeros;
  u64 first_non_finite;        // logical index, all ones if there is none
  u64 checksum;
};

// What the host reads back for one tensor: 128 bytes and the room for a sketch.
struct Slot {
  u64 sequence;                // the host's number for this tensor, written last
  u64 count;
  Part part;
  u64 reserved[3];
  double sketch[SKETCH];       // not written yet
};

// A tensor's elements, the tiles that they are cut into, and its result.
struct Work {
  const void* data;
  u64 count;                   // elements
  u64 tile_elements;           // a multiple of one chunk; depends on count and dtype alone
  u64 sequence;
  u32 first_tile, tiles;       // tiles are numbered through the whole launch
  u32 slot, reserved;
};

// Elements in row-major order without gaps, from an address divisible by 16.
struct DenseTensor {
  Work work;
};

// Elements anywhere. Dimensions come innermost first, in the order that memory is walked.
struct StridedTensor {
  Work work;
  u32 rank;
  u32 whole_vectors;           // 16 bytes never straddle a row and are always aligned
  u64 size[MAX_RANK];
  i64 stride[MAX_RANK];        // in bytes
  u64 weight[MAX_RANK];        // of the coordinate in the row-major logical index
};

enum QuantCode { CODE_INT, CODE_E4M3, CODE_E5M2, CODE_E2M1 };
enum ScaleFormat { SCALE_F32, SCALE_F16, SCALE_BF16, SCALE_UE8M0, SCALE_UE4M3 };

// A quantised tensor: element = code * (global * scale of its block), in f32.
// Dimensions come innermost first, in logical order.
struct QuantizedTensor {
  Work work;
  const void* scales;
  const float* global;         // one scale for the whole tensor on top of the blocks', or null
  u32 rank;
  u32 code, code_bits;         // a QuantCode and its width
  u32 word_bytes;              // of the storage word, 1 or 4, little-endian
  u32 packed_dim;              // along which a word's codes follow each other
  u32 scale_format;
  u64 size[MAX_RANK];          // in elements
  i64 word_stride[MAX_RANK];   // in bytes; along packed_dim, from word to word
  i64 scale_stride[MAX_RANK];  // in scales, from block to block
  u32 block[MAX_RANK];         // elements that share a scale
};

// One launch. It is a kernel parameter, so it may have 4096 bytes at most.
template <class Tensor, int CAPACITY>
struct Batch {
  u32 count, reserved;
  Part* parts;                 // one per tile of the launch
  u32* tickets;                // one per tensor of the launch, all zero between launches
  Slot* slots;
  Tensor tensor[CAPACITY];
};

typedef Batch<DenseTensor, 80> DenseBatch;
typedef Batch<StridedTensor, 16> StridedBatch;
typedef Batch<QuantizedTensor, 12> QuantizedBatch;

static_assert(sizeof(Part) == 88 && sizeof(Slot) == 128 + 8 * SKETCH, "the host reads these");
static_assert(sizeof(DenseTensor) == 48 && sizeof(StridedTensor) == 248, "the host writes these");
static_assert(sizeof(QuantizedTensor) == 312, "the host writes these");
static_assert(sizeof(DenseBatch) <= 4096 && sizeof(StridedBatch) <= 4096 && sizeof(QuantizedBatch) <= 4096,
              "a kernel parameter");
