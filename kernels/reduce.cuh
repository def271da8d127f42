// From the threads of a block to one tile's part, and from a tensor's parts to its slot.
//
// Every sum has a fixed order, so the same tensor gives the same bits on every device.
#pragma once
#include "accumulate.cuh"

#define WARPS (THREADS / 32)
#define FULL 0xffffffffu

DEVICE u64 from_lane(u64 value, int lanes) { return __shfl_down_sync(FULL, value, lanes); }
DEVICE double from_lane(double value, int lanes) { return __shfl_down_sync(FULL, value, lanes); }

// Where the other side of a merge is: in memory, or in the lane `lanes` further on. Fields are
// fetched one at a time, which keeps few registers busy.
template <class T>
struct InMemory {
  const volatile T* other;                          // volatile: another block may have written it
  template <class Field>
  DEVICE Field get(const T&, Field T::*field) const {
    return other->*field;
  }
};
template <class T>
struct InLane {
  int lanes;
  template <class Field>
  DEVICE Field get(const T& mine, Field T::*field) const {
    return from_lane(mine.*field, lanes);
  }
};

// Sums about the same pivot.
template <class Other>
DEVICE void join(Moments& a, Other b) {
  a.sum += b.get(a, &Moments::sum);
  a.squares += b.get(a, &Moments::squares);
  a.finite += b.get(a, &Moments::finite);
  a.min = smaller(a.min, b.get(a, &Moments::min));
  a.max = larger(a.max, b.get(a, &Moments::max));
  a.pos_inf += b.get(a, &Moments::pos_inf);
  a.neg_inf += b.get(a, &Moments::neg_inf);
  a.zeros += b.get(a, &Moments::zeros);
  a.first_non_finite = smaller(a.first_non_finite, b.get(a, &Moments::first_non_finite));
}

DEVICE Part empty_part() { return Part{0.0, 0.0, 0.0, 0, NO_MIN, NO_MAX, 0, 0, 0, NO_INDEX, 0}; }

// The parts of two disjoint sets of elements (Chan, Golub and LeVeque 1979), if `take` is set.
// All lanes must call it: the fields may have to come from a lane.
template <class Other>
DEVICE void merge(Part& a, Other b, bool take) {
  u64 finite = b.get(a, &Part::finite);
  double pivot = b.get(a, &Part::pivot), offset = b.get(a, &Part::offset), m2 = b.get(a, &Part::m2);
  if (take && finite) {
    if (a.finite) {
      double na = (double)a.finite, nb = (double)finite, share = nb / (na + nb);
      double d = (pivot - a.pivot) + (offset - a.offset);
      a.offset = fma(d, share, a.offset);
      a.m2 += m2 + d * d * (na * share);
    } else {
      a.pivot = pivot;
      a.offset = offset;
      a.m2 = m2;
    }
    a.finite += finite;
  }
  u64 min = b.get(a, &Part::min), max = b.get(a, &Part::max);
  if (take) a.min = smaller(a.min, min), a.max = larger(a.max, max);
  u64 pos_inf = b.get(a, &Part::pos_inf), neg_inf = b.get(a, &Part::neg_inf);
  if (take) a.pos_inf += pos_inf, a.neg_inf += neg_inf;
  u64 zeros = b.get(a, &Part::zeros), checksum = b.get(a, &Part::checksum);
  if (take) a.zeros += zeros, a.checksum += checksum;
  u64 first = b.get(a, &Part::first_non_finite);
  if (take) a.first_non_finite = smaller(a.first_non_finite, first);
}

// The whole block's part; valid in thread 0. All threads must call it.
DEVICE Part reduce_block(Moments m, u64 checksum) {
  __shared__ Moments row[WARPS];
  __shared__ u64 checksums[WARPS];
  __shared__ double pivot;
  __shared__ u32 first;                             // thread that has seen a finite element
  u32 thread = threadIdx.x;

  if (thread == 0) {
    first = FULL;
    pivot = 0;
  }
  __syncthreads();
  u32 seen = __ballot_sync(FULL, m.finite != 0);
  if (thread % 32 == 0 && seen) atomicMin(&first, thread + (u32)__ffs((int)seen) - 1);
  __syncthreads();
  if (thread == first) pivot = m.pivot;
  __syncthreads();

  if (m.finite) {
    double d = m.pivot - pivot, n = (double)m.finite;
    m.squares = fma(d, fma(n, d, 2.0 * m.sum), m.squares);
    m.sum = fma(n, d, m.sum);
  }
#pragma unroll 1
  for (int lanes = 16; lanes; lanes >>= 1) {
    join(m, InLane<Moments>{lanes});
    checksum += from_lane(checksum, lanes);
  }
  if (thread % 32 == 0) {
    row[thread / 32] = m;
    checksums[thread / 32] = checksum;
  }
  __syncthreads();

  Part part = empty_part();
  if (thread == 0) {
#pragma unroll 1
    for (int w = 1; w < WARPS; w++) {
      join(m, InMemory<Moments>{&row[w]});
      checksum += checksums[w];
    }
    if (m.finite) {
      part.pivot = pivot;
      part.offset = m.sum / (double)m.finite;
      double m2 = m.squares - m.sum * part.offset;
      part.m2 = m2 < 0 ? 0 : m2;                    // not fmax, which would hide a NaN
    }
    part.finite = m.finite;
    part.min = m.min;
    part.max = m.max;
    part.pos_inf = m.pos_inf;
    part.neg_inf = m.neg_inf;
    part.zeros = m.zeros;
    part.first_non_finite = m.first_non_finite;
    part.checksum = checksum;
  }
  return part;
}

// Merges a tensor's parts in the order of its tiles; valid in thread 0.
DEVICE Part merge_parts(const Part* parts, u32 count) {
  __shared__ Part row[WARPS];
  u32 thread = threadIdx.x, share = (count + THREADS - 1) / THREADS;
  Part mine = empty_part();
#pragma unroll 1
  for (u32 i = thread * share; i < count && i < (thread + 1) * share; i++) merge(mine, InMemory<Part>{&parts[i]}, true);
#pragma unroll 1
  for (int lanes = 1; lanes < 32; lanes <<= 1) merge(mine, InLane<Part>{lanes}, thread % (2 * lanes) == 0);
  if (thread % 32 == 0) row[thread / 32] = mine;
  __syncthreads();
  if (thread == 0) {
#pragma unroll 1
    for (int w = 1; w < WARPS; w++) merge(mine, InMemory<Part>{&row[w]}, true);
  }
  return mine;
}

// Hands one tile's part in; the block that comes last of its tensor writes the slot.
DEVICE void publish(const Work& work, Part part, Part* parts, u32* ticket, Slot* slot) {
  __shared__ bool last;
  if (work.tiles > 1) {
    if (threadIdx.x == 0) {
      parts[blockIdx.x] = part;
      __threadfence();
      // Wraps to zero with the last tile: ready for the next launch.
      last = atomicInc(ticket, work.tiles - 1) == work.tiles - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    part = merge_parts(parts + work.first_tile, work.tiles);
  }
  if (threadIdx.x == 0) {
    slot->count = work.count;
    slot->part = part;
    __threadfence();
    slot->sequence = work.sequence;
  }
}
