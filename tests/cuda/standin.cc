// A stand-in for libcuda.so, for tests without a GPU. Streams are threads, events are real,
// kernels are the project's own, compiled for the CPU.
//
// It is stricter than a GPU where that finds faults: memory begins as one poison and ends as
// another, an allocation ends at a page that may not be touched, every task of a stream can be
// delayed, every call that makes the host wait is counted, and any call can be made to fail.
#include "standin.h"

#include "../../kernels/gather.cu"
#include "../../kernels/summary.cuh"
#include "../../kernels/summaries.inc"

#undef SUMMARY
#undef SUMMARY_QUANTIZED
#define SUMMARY(NAME, FORMAT, SUMS) SHIM_EXPORT(summary_##NAME##_dense) SHIM_EXPORT(summary_##NAME##_strided)
#define SUMMARY_QUANTIZED(NAME) SHIM_EXPORT(summary_##NAME)
#include "../../kernels/summaries.inc"
SHIM_EXPORT(gather_1) SHIM_EXPORT(gather_2) SHIM_EXPORT(gather_4) SHIM_EXPORT(gather_8)

using namespace standin;

namespace {

#define ENTER()                        \
  if (int code = enter(__func__)) return code

// ---- modules ------------------------------------------------------------------------------------

struct Module {
  std::string ptx;                       // empty for a cubin, which is taken on trust
};
struct Function {
  const shim::Kernel* kernel;
};
std::map<std::string, Function> functions;
std::mutex executing;                    // the shim runs one grid at a time

}  // namespace

#define API extern "C" __attribute__((visibility("default"))) int
#define CONTROL extern "C" __attribute__((visibility("default"))) void

// ---- what tests may ask for ---------------------------------------------------------------------

CONTROL standin_order(unsigned seed, unsigned workers) {
  shim::order_seed = seed;
  shim::workers = workers;
}
CONTROL standin_delay(unsigned us) { delay_us = us; }
// The next launches succeed and do nothing.
CONTROL standin_lose_launches(long count) { launches_to_lose = count; }
// The call fails with `code` after succeeding `after` times more; code 0 heals it.
CONTROL standin_fail(const char* call, int code, long after) {
  std::lock_guard<std::mutex> lock(state);
  failing_call = call;
  failing_code = code;
  failing_after = after;
}
extern "C" __attribute__((visibility("default"))) long standin_host_waits() { return host_waits; }
extern "C" __attribute__((visibility("default"))) long standin_calls(const char* call) {
  std::lock_guard<std::mutex> lock(state);
  return calls[call];
}
extern "C" __attribute__((visibility("default"))) unsigned long standin_live_bytes() {
  std::lock_guard<std::mutex> lock(state);
  size_t bytes = 0;
  for (auto& a : allocations) bytes += a.second.bytes;
  return bytes;
}
extern "C" __attribute__((visibility("default"))) unsigned long standin_pinned_bytes() {
  std::lock_guard<std::mutex> lock(state);
  size_t bytes = 0;
  for (auto& p : pinned) bytes += p.second;
  return bytes;
}

// ---- the driver API -----------------------------------------------------------------------------

API cuInit(unsigned) {
  ENTER();
  return getenv("STANDIN_NO_DEVICE") ? NO_DEVICE : SUCCESS;
}
API cuDriverGetVersion(int* version) {
  *version = 12000;
  return SUCCESS;
}
API cuDeviceGetCount(int* count) {
  *count = 1;
  return SUCCESS;
}
API cuDeviceGet(int* device, int ordinal) {
  ENTER();
  *device = ordinal;
  return ordinal ? INVALID_DEVICE : SUCCESS;
}
API cuDeviceGetName(char* name, int bytes, int) {
  snprintf(name, bytes, "stand-in");
  return SUCCESS;
}
API cuDeviceGetPCIBusId(char* id, int bytes, int) {
  snprintf(id, bytes, "0000:00:00.0");
  return SUCCESS;
}
API cuDeviceGetUuid(void* uuid, int) {
  memset(uuid, 7, 16);
  return SUCCESS;
}
API cuDeviceGetUuid_v2(void* uuid, int device) { return cuDeviceGetUuid(uuid, device); }
API cuDeviceTotalMem_v2(size_t* bytes, int) {
  *bytes = 8ull << 30;
  return SUCCESS;
}
API cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 1: *value = 1024; break;                          // threads per block
    case 2: case 3: *value = 1024; break;                  // block size x, y
    case 4: *value = 64; break;                            // block size z
    case 5: *value = 2147483647; break;                    // grid size x
    case 6: case 7: *value = 65535; break;                 // grid size y, z
    case 8: *value = 48 << 10; break;                      // shared memory per block
    case 10: *value = 32; break;                           // warp size
    case 16: *value = 4; break;                            // multiprocessors
    case 39: *value = 2048; break;                         // threads per multiprocessor
    case 75: *value = COMPUTE_MAJOR; break;
    case 76: *value = COMPUTE_MINOR; break;
    case 97: *value = 163 << 10; break;                    // shared memory per block, opted in
    case 115: *value = 1; break;                           // memory pools
    default: *value = 0;
  }
  return SUCCESS;
}
API cuDevicePrimaryCtxRetain(void** context, int) {
  ENTER();
  *context = (void*)CONTEXT;
  return SUCCESS;
}
API cuDevicePrimaryCtxRelease_v2(int) {
  ENTER();
  return SUCCESS;
}
static thread_local void* current_context = nullptr;
API cuCtxGetCurrent(void** context) {
  *context = current_context;
  return SUCCESS;
}
API cuCtxSetCurrent(void* context) {
  ENTER();
  current_context = context;
  return SUCCESS;
}
API cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return SUCCESS;
}
API cuCtxSynchronize() {
  ENTER();
  host_waits++;
  wait_for_everything();
  return SUCCESS;
}

API cuStreamCreate(void** handle, unsigned) {
  ENTER();
  Stream* stream = new Stream();
  std::lock_guard<std::mutex> lock(state);
  streams.push_back(stream);
  *handle = stream;
  return SUCCESS;
}
API cuStreamCreateWithPriority(void** handle, unsigned flags, int) { return cuStreamCreate(handle, flags); }
API cuStreamDestroy_v2(void* handle) {
  ENTER();
  {
    std::lock_guard<std::mutex> lock(state);
    for (auto i = streams.begin(); i != streams.end(); ++i)
      if (*i == handle) {
        streams.erase(i);
        break;
      }
  }
  delete (Stream*)handle;
  return SUCCESS;
}
API cuStreamSynchronize(void* handle) {
  ENTER();
  wait_on_host(stream_of(handle)->mark());
  return SUCCESS;
}
API cuStreamQuery(void* handle) {
  ENTER();
  return stream_of(handle)->mark()->ready() ? SUCCESS : NOT_READY;
}
API cuStreamIsCapturing(void*, int* status) {
  *status = 0;
  return SUCCESS;
}
API cuStreamWaitEvent(void* handle, void* event, unsigned) {
  ENTER();
  if (auto moment = recorded_by(event)) stream_of(handle)->push([moment] { moment->wait(); });
  return SUCCESS;
}
API cuLaunchHostFunc(void* handle, void (*function)(void*), void* data) {
  ENTER();
  stream_of(handle)->push([=] { function(data); });
  return SUCCESS;
}

API cuEventCreate(void** event, unsigned) {
  ENTER();
  *event = new Event();
  return SUCCESS;
}
API cuEventDestroy_v2(void* event) {
  ENTER();
  delete (Event*)event;
  return SUCCESS;
}
API cuEventRecord(void* event, void* handle) {
  ENTER();
  auto moment = stream_of(handle)->mark();
  std::lock_guard<std::mutex> lock(state);
  ((Event*)event)->recorded = moment;
  return SUCCESS;
}
API cuEventQuery(void* event) {
  ENTER();
  auto moment = recorded_by(event);
  return !moment || moment->ready() ? SUCCESS : NOT_READY;
}
API cuEventSynchronize(void* event) {
  ENTER();
  wait_on_host(recorded_by(event));
  return SUCCESS;
}
API cuEventElapsedTime(float* ms, void* start, void* end) {
  using Milliseconds = std::chrono::duration<float, std::milli>;
  *ms = Milliseconds(recorded_by(end)->when - recorded_by(start)->when).count();
  return SUCCESS;
}
API cuEventElapsedTime_v2(float* ms, void* start, void* end) { return cuEventElapsedTime(ms, start, end); }

API cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  ENTER();
  return allocate(address, bytes);
}
API cuMemAllocAsync(uint64_t* address, size_t bytes, void*) {
  ENTER();
  return allocate(address, bytes);
}
// Frees at once, without waiting for work that may still use the memory: a promise that the
// real driver makes, and that the engine should not need.
API cuMemFree_v2(uint64_t address) {
  ENTER();
  release(address);
  return SUCCESS;
}
API cuMemFreeAsync(uint64_t address, void* handle) {
  ENTER();
  stream_of(handle)->push([address] { release(address); });
  return SUCCESS;
}
API cuMemHostAlloc(void** address, size_t bytes, unsigned) {
  ENTER();
  size_t mapped = (bytes + PAGE - 1) / PAGE * PAGE;
  *address = aligned_alloc(PAGE, mapped);
  memset(*address, PINNED_FRESH, mapped);
  std::lock_guard<std::mutex> lock(state);
  pinned[(uint64_t)*address] = bytes;
  return SUCCESS;
}
API cuMemAllocHost_v2(void** address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }
// Never returned to the system: a copy that still runs must not hit other memory.
API cuMemFreeHost(void* address) {
  ENTER();
  std::lock_guard<std::mutex> lock(state);
  auto found = pinned.find((uint64_t)address);
  if (found == pinned.end()) return INVALID_VALUE;
  memset(address, FREED, found->second);
  pinned.erase(found);
  return SUCCESS;
}
API cuMemGetInfo_v2(size_t* free, size_t* total) {
  *free = 6ull << 30;
  *total = 8ull << 30;
  return SUCCESS;
}

// Pageable sources are staged before the call returns; pinned ones are read when their turn comes.
API cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void* handle) {
  ENTER();
  if (is_pinned(from)) {
    stream_of(handle)->push([=] { memcpy((void*)to, from, bytes); });
  } else {
    auto staged = std::make_shared<std::vector<char>>((const char*)from, (const char*)from + bytes);
    stream_of(handle)->push([=] { memcpy((void*)to, staged->data(), bytes); });
  }
  return SUCCESS;
}
API cuMemcpyHtoD_v2(uint64_t to, const void* from, size_t bytes) {
  ENTER();
  memcpy((void*)to, from, bytes);
  return SUCCESS;
}
// To pageable memory the driver returns only when the copy is done.
API cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void* handle) {
  ENTER();
  stream_of(handle)->push([=] { memcpy(to, (void*)from, bytes); });
  if (!is_pinned(to)) wait_on_host(stream_of(handle)->mark());
  return SUCCESS;
}
API cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void* handle) {
  ENTER();
  stream_of(handle)->push([=] { memcpy((void*)to, (void*)from, bytes); });
  return SUCCESS;
}
API cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void* handle) {
  ENTER();
  stream_of(handle)->push([=] { memset((void*)to, value, bytes); });
  return SUCCESS;
}

// CUDA_MEMCPY2D, as in cuda.h.
struct Copy2D {
  size_t from_x, from_y;
  unsigned from_type;
  const void* from_host;
  uint64_t from_device;
  void* from_array;
  size_t from_pitch;
  size_t to_x, to_y;
  unsigned to_type;
  void* to_host;
  uint64_t to_device;
  void* to_array;
  size_t to_pitch;
  size_t width, height;
};
API cuMemcpy2DAsync_v2(const Copy2D* copy, void* handle) {
  ENTER();
  constexpr unsigned HOST = 1, DEVICE_MEMORY = 2;
  Copy2D c = *copy;
  if (c.from_type > DEVICE_MEMORY || c.to_type > DEVICE_MEMORY) return INVALID_VALUE;
  const char* from = c.from_type == HOST ? (const char*)c.from_host : (const char*)c.from_device;
  char* to = c.to_type == HOST ? (char*)c.to_host : (char*)c.to_device;
  from += c.from_y * c.from_pitch + c.from_x;
  to += c.to_y * c.to_pitch + c.to_x;
  auto staged = std::make_shared<std::vector<char>>();
  bool pageable_source = c.from_type == HOST && !is_pinned(from);
  if (pageable_source) {
    for (size_t y = 0; y < c.height; y++) staged->insert(staged->end(), from + y * c.from_pitch, from + y * c.from_pitch + c.width);
  }
  stream_of(handle)->push([=] {
    for (size_t y = 0; y < c.height; y++) {
      const char* row = pageable_source ? staged->data() + y * c.width : from + y * c.from_pitch;
      memcpy(to + y * c.to_pitch, row, c.width);
    }
  });
  if (c.to_type == HOST && !is_pinned(to)) wait_on_host(stream_of(handle)->mark());
  return SUCCESS;
}

API cuModuleLoadData(void** module, const void* image) {
  ENTER();
  if (!memcmp(image, "\177ELF", 4)) {
    *module = new Module();
    return SUCCESS;
  }
  std::string ptx = (const char*)image;
  int major, minor, target;
  size_t version = ptx.find("\n.version "), sm = ptx.find("\n.target sm_");
  if (version == std::string::npos || sm == std::string::npos) return INVALID_IMAGE;
  if (sscanf(ptx.c_str() + version, "\n.version %d.%d", &major, &minor) != 2) return INVALID_IMAGE;
  if (major > PTX_MAJOR || (major == PTX_MAJOR && minor > PTX_MINOR)) return UNSUPPORTED_PTX_VERSION;
  if (sscanf(ptx.c_str() + sm, "\n.target sm_%d", &target) != 1) return INVALID_IMAGE;
  if (target > COMPUTE_MAJOR * 10 + COMPUTE_MINOR) return INVALID_IMAGE;
  *module = new Module{ptx};
  return SUCCESS;
}
API cuModuleLoadDataEx(void** module, const void* image, unsigned, int*, void**) { return cuModuleLoadData(module, image); }
API cuModuleUnload(void* module) {
  ENTER();
  delete (Module*)module;
  return SUCCESS;
}
// PTX must hold the entry, with a parameter of the size that the kernel for the CPU has.
API cuModuleGetFunction(void** function, void* module, const char* name) {
  ENTER();
  const std::string& ptx = ((Module*)module)->ptx;
  for (auto& kernel : shim::kernels()) {
    if (kernel.name != name) continue;
    std::string entry = std::string(".entry ") + name + "(";
    std::string parameter = std::string(name) + "_param_0[" + std::to_string(kernel.argument_bytes[0]) + "]";
    if (!ptx.empty() && (ptx.find(entry) == std::string::npos || ptx.find(parameter) == std::string::npos)) return NOT_FOUND;
    std::lock_guard<std::mutex> lock(state);
    functions[name] = {&kernel};
    *function = &functions[name];
    return SUCCESS;
  }
  return NOT_FOUND;
}
API cuFuncGetAttribute(int* value, int, void*) {
  *value = 64;
  return SUCCESS;
}
API cuFuncSetAttribute(void*, int, int) { return SUCCESS; }
API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, void*, int, size_t) {
  *blocks = 4;
  return SUCCESS;
}
API cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned, void* handle, void** arguments, void**) {
  ENTER();
  unsigned threads = block_x * block_y * block_z;
  if (!grid_x || !grid_y || !grid_z || !threads || threads > 1024) return INVALID_VALUE;
  const shim::Kernel* kernel = ((Function*)function)->kernel;
  auto copies = std::make_shared<std::vector<std::vector<char>>>();
  size_t bytes = 0;
  for (size_t i = 0; i < kernel->argument_bytes.size(); i++) {
    if (!arguments[i]) return INVALID_VALUE;
    bytes += kernel->argument_bytes[i];
    copies->emplace_back((char*)arguments[i], (char*)arguments[i] + kernel->argument_bytes[i]);
  }
  if (bytes > 4096) return OUT_OF_RESOURCES;
  if (launches_to_lose > 0) {
    launches_to_lose--;
    return SUCCESS;
  }
  stream_of(handle)->push([=] {
    std::vector<void*> pointers;
    for (auto& copy : *copies) pointers.push_back(copy.data());
    std::lock_guard<std::mutex> lock(executing);
    kernel->launch({grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, pointers.data());
  });
  return SUCCESS;
}
API cuGetErrorName(int code, const char** name) {
  static thread_local char text[32];
  snprintf(text, sizeof text, "STANDIN_ERROR_%d", code);
  *name = text;
  return SUCCESS;
}
API cuGetErrorString(int code, const char** text) { return cuGetErrorName(code, text); }
