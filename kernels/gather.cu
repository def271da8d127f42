// Copies part of a strided tensor to row-major memory without gaps, for dumps.
#include "device.cuh"

#define MAX_RANK 8

// Dimensions come innermost first, in logical order. The Rust side is src/summary/cuda/batch.rs.
struct Gather {
  const void* source;
  void* target;
  u64 first, count;            // logical elements to copy
  u32 rank, reserved;
  u64 size[MAX_RANK];
  i64 stride[MAX_RANK];        // in bytes
};

static_assert(sizeof(Gather) == 168, "the host writes this");

template <class Element>
DEVICE void gather(const Gather& g) {
  u64 step = (u64)gridDim.x * blockDim.x;
  for (u64 k = (u64)blockIdx.x * blockDim.x + threadIdx.x; k < g.count; k += step) {
    const u8* source = (const u8*)g.source;
    u64 rest = g.first + k;
    for (u32 d = 0; d < g.rank; d++) {
      u64 outer = rest / g.size[d];
      source += (i64)(rest - outer * g.size[d]) * g.stride[d];
      rest = outer;
    }
    ((Element*)g.target)[k] = *(const Element*)source;
  }
}

extern "C" __global__ void gather_1(const __grid_constant__ Gather g) { gather<u8>(g); }
extern "C" __global__ void gather_2(const __grid_constant__ Gather g) { gather<u16>(g); }
extern "C" __global__ void gather_4(const __grid_constant__ Gather g) { gather<u32>(g); }
extern "C" __global__ void gather_8(const __grid_constant__ Gather g) { gather<u64>(g); }
