// Runs CUDA C++ kernels on the CPU, unmodified: one fiber per CUDA thread, one OS thread per block
// that is being run. C++17, gcc or clang, x86-64 Linux.
//
// Blocks and the threads of a block run in orders that a seed chooses. A barrier that some thread
// never reaches aborts the process. Weak memory and true races are not modelled: they need a GPU.
#pragma once
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <sys/mman.h>
#include <thread>
#include <utility>
#include <vector>

struct dim3 {
  unsigned x, y, z;
};
struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};

namespace shim {

// ---- fibers -------------------------------------------------------------------------------------

// Saves the callee-saved registers on the running stack and continues on another one.
extern "C" void shim_switch(void** save_stack, void* to_stack);
asm(R"(.text
.type shim_switch,@function
shim_switch:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi); movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
.size shim_switch,.-shim_switch
)");

constexpr size_t STACK_BYTES = 64 << 10;

struct Warp {
  uint64_t exchange[2][32];      // two generations, so that a fast lane cannot overwrite a slow one's
  unsigned arrived = 0, alive = 0;
  uint64_t generation = 0;
};

struct Fiber {
  void* stack_pointer;
  char* stack;
  uint3 thread;
  unsigned lane;
  Warp* warp;
  bool done;
};

struct Block {
  uint3 index;
  dim3 threads, grid;
  unsigned alive, arrived;
  uint64_t generation, progress;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  void* scheduler_stack;
  void (*kernel)(void**);
  void** arguments;
};

inline thread_local Fiber* fiber = nullptr;
inline thread_local Block* block = nullptr;

inline void yield() {
  Fiber* me = fiber;
  shim_switch(&me->stack_pointer, block->scheduler_stack);
  fiber = me;
}

inline void block_barrier() {
  Block& b = *block;
  uint64_t generation = b.generation;
  b.progress++;
  if (++b.arrived == b.alive) {
    b.arrived = 0;
    b.generation++;
  } else {
    while (b.generation == generation) yield();
  }
}

inline void warp_barrier(unsigned mask) {
  Warp& w = *fiber->warp;
  uint64_t generation = w.generation;
  block->progress++;
  w.arrived |= 1u << fiber->lane;
  if ((w.arrived & mask & w.alive) == (mask & w.alive)) {
    w.arrived &= ~mask;
    w.generation++;
  } else {
    while (w.generation == generation) yield();
  }
}

template <class T>
T shuffle(unsigned mask, T value, int source) {
  static_assert(sizeof(T) <= 8, "one exchange slot");
  Warp& w = *fiber->warp;
  int parity = w.generation & 1;
  uint64_t bits = 0;
  memcpy(&bits, &value, sizeof value);
  w.exchange[parity][fiber->lane] = bits;
  warp_barrier(mask);
  bits = w.exchange[parity][source < 0 || source > 31 ? fiber->lane : source];
  memcpy(&value, &bits, sizeof value);
  return value;
}

[[noreturn]] inline void fiber_main() {
  block->kernel(block->arguments);
  Fiber* me = fiber;
  Block& b = *block;
  me->done = true;
  me->warp->alive &= ~(1u << me->lane);
  b.progress++;
  if (--b.alive && b.arrived == b.alive) {
    b.arrived = 0;
    b.generation++;
  }
  for (;;) yield();
}

// ---- blocks and grids ---------------------------------------------------------------------------

inline void prepare_fiber(Block& b, unsigned i) {
  Fiber& f = b.fibers[i];
  f.thread = {i % b.threads.x, i / b.threads.x % b.threads.y, i / b.threads.x / b.threads.y};
  f.lane = i & 31;
  f.warp = &b.warps[i / 32];
  f.warp->alive |= 1u << f.lane;
  f.done = false;
  void** top = (void**)(f.stack + STACK_BYTES - 64);
  *--top = nullptr;              // where fiber_main would return to
  *--top = (void*)fiber_main;
  for (int i = 0; i < 6; i++) *--top = nullptr;
  f.stack_pointer = top;
}

inline void run_block(Block& b, unsigned seed) {
  unsigned count = b.threads.x * b.threads.y * b.threads.z;
  block = &b;
  b.alive = count;
  b.arrived = 0;
  b.warps.assign((count + 31) / 32, Warp());
  while (b.fibers.size() < count) {
    Fiber f = {};
    f.stack = (char*)mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (f.stack == MAP_FAILED) abort();
    b.fibers.push_back(f);
  }
  for (unsigned i = 0; i < count; i++) prepare_fiber(b, i);
  // An odd step visits every thread of a power of two; other block sizes run in order.
  bool power_of_two = (count & (count - 1)) == 0;
  unsigned step = power_of_two ? (seed * 2 + 1) % count | 1 : 1, left = count;
  while (left) {
    uint64_t before = b.progress;
    unsigned i = seed % count;
    for (unsigned k = 0; k < count; k++, i = (i + step) % count) {
      Fiber& f = b.fibers[i];
      if (f.done) continue;
      fiber = &f;
      shim_switch(&b.scheduler_stack, f.stack_pointer);
      left -= f.done;
    }
    if (left && b.progress == before) {
      fprintf(stderr, "shim: block %u never finishes, %u threads wait at a barrier\n", b.index.x, left);
      abort();
    }
  }
}

// How the next grids run: a seed for the orders, and how many OS threads share the blocks.
inline std::atomic<unsigned> order_seed{0}, workers{0};

inline void run_grid(dim3 grid, dim3 threads, void (*kernel)(void**), void** arguments) {
  static std::vector<Block*> pool;
  uint64_t total = (uint64_t)grid.x * grid.y * grid.z;
  unsigned seed = order_seed, count = workers ? workers.load() : std::thread::hardware_concurrency();
  if (count > total) count = (unsigned)total;
  while (pool.size() < count) pool.push_back(new Block());
  std::atomic<uint64_t> next{0};
  auto work = [&](unsigned worker) {
    Block& b = *pool[worker];
    b.threads = threads;
    b.grid = grid;
    b.kernel = kernel;
    b.arguments = arguments;
    for (uint64_t i; (i = next.fetch_add(1)) < total;) {
      uint64_t at = seed ? total - 1 - (i + seed) % total : i;
      b.index = {(unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y), (unsigned)(at / grid.x / grid.y)};
      run_block(b, seed);
    }
  };
  std::vector<std::thread> others;
  for (unsigned i = 1; i < count; i++) others.emplace_back(work, i);
  work(0);
  for (auto& thread : others) thread.join();
}

// ---- kernels by name ----------------------------------------------------------------------------

struct Kernel {
  std::string name;
  void (*launch)(dim3 grid, dim3 threads, void** arguments);
  std::vector<size_t> argument_bytes;
};

inline std::vector<Kernel>& kernels() {
  static std::vector<Kernel> all;
  return all;
}

template <class... A, size_t... I>
void call(void (*kernel)(A...), void** arguments, std::index_sequence<I...>) {
  kernel(*(std::remove_const_t<std::remove_reference_t<A>>*)arguments[I]...);
}

template <auto KERNEL>
struct Launch {
  template <class... A>
  static void with_signature(void (*)(A...), dim3 grid, dim3 threads, void** arguments) {
    run_grid(grid, threads, [](void** a) { call(KERNEL, a, std::index_sequence_for<A...>{}); }, arguments);
  }
  static void run(dim3 grid, dim3 threads, void** arguments) { with_signature(KERNEL, grid, threads, arguments); }
};

template <class... A>
std::vector<size_t> argument_bytes(void (*)(A...)) {
  return {sizeof(A)...};
}

struct Registration {
  Registration(const char* name, void (*launch)(dim3, dim3, void**), std::vector<size_t> bytes) {
    kernels().push_back({name, launch, bytes});
  }
};

}  // namespace shim

#define SHIM_EXPORT(KERNEL) \
  static shim::Registration registration_##KERNEL(#KERNEL, &shim::Launch<&KERNEL>::run, shim::argument_bytes(&KERNEL));

// ---- the language -------------------------------------------------------------------------------

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static thread_local
#define threadIdx (shim::fiber->thread)
#define blockIdx (shim::block->index)
#define blockDim (shim::block->threads)
#define gridDim (shim::block->grid)

#define __syncthreads() shim::block_barrier()
#define __threadfence() std::atomic_thread_fence(std::memory_order_seq_cst)

template <class T>
T __shfl_down_sync(unsigned mask, T value, int lanes) {
  return shim::shuffle(mask, value, (int)shim::fiber->lane + lanes);
}

inline unsigned __ballot_sync(unsigned mask, bool vote) {
  shim::Warp& w = *shim::fiber->warp;
  int parity = w.generation & 1;
  w.exchange[parity][shim::fiber->lane] = vote;
  unsigned voters = mask & w.alive, result = 0;
  shim::warp_barrier(mask);
  for (int lane = 0; lane < 32; lane++)
    if (voters >> lane & 1) result |= (unsigned)w.exchange[parity][lane] << lane;
  return result;
}

inline unsigned atomicInc(unsigned* address, unsigned limit) {
  unsigned old = __atomic_load_n(address, __ATOMIC_RELAXED), next;
  do next = old >= limit ? 0 : old + 1;
  while (!__atomic_compare_exchange_n(address, &old, next, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
  return old;
}

inline unsigned atomicMin(unsigned* address, unsigned value) {
  unsigned old = __atomic_load_n(address, __ATOMIC_RELAXED);
  while (value < old && !__atomic_compare_exchange_n(address, &old, value, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
  }
  return old;
}

template <class To, class From>
To shim_bits(From from) {
  static_assert(sizeof(To) == sizeof(From), "a reinterpretation");
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}
inline float __uint_as_float(unsigned bits) { return shim_bits<float>(bits); }
inline unsigned __float_as_uint(float value) { return shim_bits<unsigned>(value); }
inline double __longlong_as_double(long long bits) { return shim_bits<double>(bits); }
inline long long __double_as_longlong(double value) { return shim_bits<long long>(value); }
inline int __ffs(int value) { return __builtin_ffs(value); }

// As PTX's min and max: a number wins over NaN, -0 is below +0. The C library leaves zeros open.
template <class T>
T shim_min(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  return a < b || (a == b && std::signbit(a)) ? a : b;
}
template <class T>
T shim_max(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  return a < b || (a == b && std::signbit(a)) ? b : a;
}
#define fminf shim_min<float>
#define fmaxf shim_max<float>
#define fmin shim_min<double>
#define fmax shim_max<double>

// ---- the machine operations of kernels/device.cuh -----------------------------------------------

inline uint4 load_streaming(const void* address) {
  if ((uintptr_t)address % 16) {
    fprintf(stderr, "shim: 16-byte load from %p\n", address);
    abort();
  }
  return *(const uint4*)address;
}

inline float half_to_float(unsigned bits) {
  unsigned sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 31, mantissa = bits & 1023;
  if (exponent == 31) return __uint_as_float(sign | 0x7f800000u | mantissa << 13);
  if (exponent == 0) return __uint_as_float(sign | __float_as_uint(std::ldexp((float)mantissa, -24)));
  return __uint_as_float(sign | (exponent + 112) << 23 | mantissa << 13);
}

inline void half2_to_floats(unsigned pair, float& low, float& high) {
  low = half_to_float(pair & 0xffff);
  high = half_to_float(pair >> 16);
}

// As PTX's min and max: the number wins over NaN, -0 is below +0.
inline unsigned shim_half_order(unsigned half) { return half & 0x8000u ? 0x7fffu - (half & 0x7fffu) : half | 0x8000u; }
inline unsigned shim_half_choice(unsigned a, unsigned b, bool larger) {
  if ((a & 0x7fffu) > 0x7c00u) return b;
  if ((b & 0x7fffu) > 0x7c00u) return a;
  return (shim_half_order(a) > shim_half_order(b)) == larger ? a : b;
}
inline unsigned half2_min(unsigned a, unsigned b) {
  return shim_half_choice(a & 0xffff, b & 0xffff, false) | shim_half_choice(a >> 16, b >> 16, false) << 16;
}
inline unsigned half2_max(unsigned a, unsigned b) {
  return shim_half_choice(a & 0xffff, b & 0xffff, true) | shim_half_choice(a >> 16, b >> 16, true) << 16;
}

inline unsigned dot4(unsigned a, unsigned b, unsigned c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 255) * (b >> i & 255);
  return c;
}
inline unsigned dot2_low(unsigned a, unsigned b, unsigned c) { return c + (a & 0xffff) * (b & 255) + (a >> 16) * (b >> 8 & 255); }
inline unsigned dot2_high(unsigned a, unsigned b, unsigned c) { return dot2_low(a, b >> 16, c); }
