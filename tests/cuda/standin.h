// What the stand-in driver is made of: streams that are threads, events, memory that tells on misuse.
#pragma once
#include "shim.h"

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>

namespace standin {

enum Result {
  SUCCESS = 0,
  INVALID_VALUE = 1,
  OUT_OF_MEMORY = 2,
  NO_DEVICE = 100,
  INVALID_DEVICE = 101,
  INVALID_IMAGE = 200,
  UNSUPPORTED_PTX_VERSION = 222,
  NOT_FOUND = 500,
  NOT_READY = 600,
  OUT_OF_RESOURCES = 701,
};

// The newest PTX that a driver for CUDA 12.0 takes, and the architecture that is played.
constexpr int PTX_MAJOR = 8, PTX_MINOR = 0, COMPUTE_MAJOR = 8, COMPUTE_MINOR = 0;
constexpr uintptr_t CONTEXT = 0xc0de;

inline std::mutex state;                // guards everything below but the atomics
inline std::map<std::string, long> calls;
inline std::string failing_call;
inline int failing_code = 0;
inline long failing_after = 0;
inline std::atomic<unsigned> delay_us{0};
inline std::atomic<long> host_waits{0};
inline std::atomic<long> launches_to_lose{0};

// Counts the call; the code to return at once, if this call is to fail.
inline int enter(const char* name) {
  std::lock_guard<std::mutex> lock(state);
  calls[name]++;
  if (failing_code && failing_call == name && failing_after-- <= 0) return failing_code;
  return SUCCESS;
}

// ---- streams and events -------------------------------------------------------------------------

struct Moment {
  std::mutex mutex;
  std::condition_variable changed;
  bool reached = false;
  std::chrono::steady_clock::time_point when;

  void reach() {
    std::lock_guard<std::mutex> lock(mutex);
    reached = true;
    when = std::chrono::steady_clock::now();
    changed.notify_all();
  }
  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    changed.wait(lock, [&] { return reached; });
  }
  bool ready() {
    std::lock_guard<std::mutex> lock(mutex);
    return reached;
  }
};

class Stream {
 public:
  Stream() : worker_([this] { run(); }) {}
  ~Stream() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stop_ = true;
      changed_.notify_one();
    }
    worker_.join();
  }

  void push(std::function<void()> task) {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks_.push_back(std::move(task));
    changed_.notify_one();
  }

  std::shared_ptr<Moment> mark() {
    auto moment = std::make_shared<Moment>();
    push([moment] { moment->reach(); });
    return moment;
  }

 private:
  void run() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [&] { return stop_ || !tasks_.empty(); });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      if (unsigned us = delay_us) std::this_thread::sleep_for(std::chrono::microseconds(us));
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stop_ = false;
  std::thread worker_;
};

struct Event {
  std::shared_ptr<Moment> recorded;
};

inline std::vector<Stream*> streams;
inline Stream* default_stream = nullptr;

// Handles 0, 1 and 2 are the driver's default streams.
inline Stream* stream_of(void* handle) {
  if ((uintptr_t)handle > 2) return (Stream*)handle;
  std::lock_guard<std::mutex> lock(state);
  if (!default_stream) streams.push_back(default_stream = new Stream());
  return default_stream;
}

inline std::shared_ptr<Moment> recorded_by(void* event) {
  std::lock_guard<std::mutex> lock(state);
  return ((Event*)event)->recorded;
}

inline void wait_on_host(const std::shared_ptr<Moment>& moment) {
  host_waits++;
  if (moment) moment->wait();
}

inline void wait_for_everything() {
  std::vector<Stream*> all;
  {
    std::lock_guard<std::mutex> lock(state);
    all = streams;
  }
  std::vector<std::shared_ptr<Moment>> moments;
  for (Stream* stream : all) moments.push_back(stream->mark());
  for (auto& moment : moments) moment->wait();
}

// ---- memory -------------------------------------------------------------------------------------

constexpr size_t PAGE = 4096, ALIGNMENT = 16;
constexpr unsigned char FRESH = 0xcd, FREED = 0xdd, PINNED_FRESH = 0xee;

struct Allocation {
  char* mapping;
  size_t mapped, bytes;
};
inline std::map<uint64_t, Allocation> allocations;
inline std::map<uint64_t, size_t> pinned;
inline std::deque<Allocation> quarantine;       // freed, still readable, so that a late reader sees poison
inline size_t quarantined = 0;
constexpr size_t QUARANTINE_BYTES = 512 << 20;

inline int allocate(uint64_t* address, size_t bytes) {
  if (bytes == 0) return INVALID_VALUE;
  size_t used = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
  size_t mapped = (used + PAGE - 1) / PAGE * PAGE + PAGE;
  char* mapping = (char*)mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return OUT_OF_MEMORY;
  mprotect(mapping + mapped - PAGE, PAGE, PROT_NONE);
  char* start = mapping + mapped - PAGE - used;
  // Poisoning more would touch all of a tensor that exists for its addresses alone.
  if (used <= (1u << 30)) memset(start, FRESH, used);
  std::lock_guard<std::mutex> lock(state);
  allocations[*address = (uint64_t)start] = {mapping, mapped, used};
  return SUCCESS;
}

inline void release(uint64_t address) {
  std::lock_guard<std::mutex> lock(state);
  auto found = allocations.find(address);
  if (found == allocations.end()) {
    fprintf(stderr, "standin: free of unknown pointer %#lx\n", (unsigned long)address);
    abort();
  }
  Allocation freed = found->second;
  if (freed.bytes <= (1u << 30)) memset((void*)address, FREED, freed.bytes);
  allocations.erase(found);
  quarantine.push_back(freed);
  for (quarantined += freed.mapped; quarantined > QUARANTINE_BYTES; quarantine.pop_front()) {
    quarantined -= quarantine.front().mapped;
    munmap(quarantine.front().mapping, quarantine.front().mapped);
  }
}

inline bool is_pinned(const void* address) {
  std::lock_guard<std::mutex> lock(state);
  auto next = pinned.upper_bound((uint64_t)address);
  if (next == pinned.begin()) return false;
  --next;
  return (uint64_t)address < next->first + next->second;
}

}  // namespace standin
