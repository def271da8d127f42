// One pass over tensors: counts, mean, spread, bounds and checksum of each, in one launch.
//
// A block reduces one tile of one tensor; the block that finishes a tensor merges its tiles.
#pragma once
#include "access.cuh"
#include "reduce.cuh"

// Which tensor of the launch a tile belongs to.
template <class Batch>
DEVICE u32 tensor_of(const Batch& batch, u32 tile) {
  u32 low = 0, high = batch.count - 1;
  while (low < high) {
    u32 middle = (low + high + 1) / 2;
    if (batch.tensor[middle].work.first_tile <= tile) low = middle;
    else high = middle - 1;
  }
  return low;
}

template <class Access, class Sums, class Batch>
DEVICE void summarise(const Batch& batch) {
  typedef typename Access::Format F;
  const u32 PER_VECTOR = 16 / F::BYTES, STEP = THREADS * PER_VECTOR, CHUNK = VECTORS * STEP;
  u32 index = tensor_of(batch, blockIdx.x);
  const auto& tensor = batch.tensor[index];
  const Work& work = tensor.work;
  u64 begin = (blockIdx.x - work.first_tile) * work.tile_elements, end = begin + work.tile_elements;
  if (end > work.count) end = work.count;

  Access access(tensor);
  Sums sums;
  u64 checksum = 0;
  for (u64 chunk = begin; chunk < end; chunk += CHUNK) {
    // This thread's elements of the chunk: VECTORS runs, each of one vector.
    u64 mine = chunk + threadIdx.x * PER_VECTOR;
    u32 by_element = (1u << VECTORS / Sums::GROUP_VECTORS) - 1;
    bool whole = chunk + CHUNK <= end;
    if (whole) {
      Vector v[VECTORS];
      checksum += access.load(v, mine);
      by_element = sums.add(v);
    }
    if (by_element == 0) continue;
#pragma unroll 1
    for (u32 i = 0; i < VECTORS * PER_VECTOR; i++) {
      u32 vector = i / PER_VECTOR;
      u64 k = mine + vector * STEP + i % PER_VECTOR;
      if (!(by_element >> vector / Sums::GROUP_VECTORS & 1) || k >= end) continue;
      u64 bits = access.bits(k), logical = access.logical(k);
      sums.add_element(bits, logical);
      if (!whole) checksum += (logical + 1) * bits;
    }
  }

  Part part = reduce_block(sums.moments(), checksum);
  publish(work, part, batch.parts, &batch.tickets[index], &batch.slots[work.slot]);
}

#define SUMMARY(NAME, FORMAT, SUMS)                                                                          \
  extern "C" __global__ void __launch_bounds__(THREADS, 4)                                                   \
      summary_##NAME##_dense(const __grid_constant__ DenseBatch batch) {                                     \
    summarise<DenseAccess<FORMAT>, SUMS<FORMAT>>(batch);                                                     \
  }                                                                                                          \
  extern "C" __global__ void __launch_bounds__(THREADS, 4)                                                   \
      summary_##NAME##_strided(const __grid_constant__ StridedBatch batch) {                                 \
    summarise<StridedAccess<FORMAT>, SUMS<FORMAT>>(batch);                                                   \
  }

#define SUMMARY_QUANTIZED(NAME)                                                                              \
  extern "C" __global__ void __launch_bounds__(THREADS, 4)                                                   \
      summary_##NAME(const __grid_constant__ QuantizedBatch batch) {                                         \
    summarise<QuantizedAccess, FloatSums<F32>>(batch);                                                       \
  }
