/* What owners have in common with what they hand out. */
#ifndef SLICEPOOL_OWNER_HPP
#define SLICEPOOL_OWNER_HPP

#include "device.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

namespace detail {
struct cache_record;

/*
 * What a Slice or Buffer knows its owner by. Cells are never freed but used again, and `generation` tells whether the owner is
 * still the one that it was: so what outlives its owner finds that out and does no harm.
 */
struct cell {
  std::atomic<std::uint64_t> generation{1};
  /* In a forked child: the owner was the parent's, whose threads may have held anything. Nothing here is touched any more. */
  std::atomic<bool> left_behind{false};
  void *object = nullptr;
  kept_device device{};
  cell *next_free = nullptr;

  /* Position in the tables of threads that have caches. */
  std::uint32_t index = 0;
  /* Of buffer pools: whether threads get caches by themselves; rises when all caches have been taken away. */
  bool has_thread_caches = false;
  std::atomic<std::uint64_t> caches_generation{1};
  /* Guards `records`, the caches in them, and `giving_back`: caches that are just being destroyed. */
  std::mutex mutex;
  std::condition_variable given_back;
  std::uint32_t giving_back = 0;
  cache_record *records = nullptr;
};

/*
 * Cells that nobody uses. Initialised before anything runs and never destroyed, since owners may have static lifetime. In a
 * forked child a thread that is not there may have the lock for ever, so nobody waits for it for ever: a cell more or less
 * does not matter.
 */
struct unused_cells {
  std::atomic_flag locked = ATOMIC_FLAG_INIT;
  cell *first = nullptr;
  std::atomic<std::uint32_t> count{0};

  bool try_lock() noexcept {
    for (int tries = 0; tries < 10000; tries++) {
      if (!locked.test_and_set(std::memory_order_acquire)) return true;
      std::this_thread::yield();
    }
    return false;
  }
  void unlock() noexcept { locked.clear(std::memory_order_release); }
};

inline unused_cells cells;

/* NULL if there is no host memory. */
inline cell *take_cell(void *object, kept_device device) noexcept {
  cell *taken = nullptr;
  if (cells.try_lock()) {
    taken = cells.first;
    if (taken != nullptr) cells.first = taken->next_free;
    cells.unlock();
  }
  if (taken == nullptr) {
    taken = new (std::nothrow) cell;
    if (taken == nullptr) return nullptr;
    taken->index = cells.count.fetch_add(1, std::memory_order_relaxed);
  }
  taken->object = object;
  taken->device = device;
  return taken;
}

/* From now on nothing that the owner handed out finds it. */
inline void retire(cell &of) noexcept {
  of.object = nullptr;
  of.generation.fetch_add(1, std::memory_order_release);
  of.device.drop();
  if (!cells.try_lock()) return;
  of.next_free = cells.first;
  cells.first = &of;
  cells.unlock();
}

/* The same in a forked child, where a lock may never be given up, and the device and all caches are the parent's. */
inline void leave_behind(cell &of) noexcept {
  of.left_behind.store(true, std::memory_order_relaxed);
  of.object = nullptr;
  of.generation.fetch_add(1, std::memory_order_release);
}

/* A way to the owner that knows when there is none any more. */
template <class Object>
struct link {
  cell *of = nullptr;
  std::uint64_t generation = 0;

  link() noexcept = default;
  explicit link(cell *at) noexcept
      : of(at), generation(at == nullptr ? 0 : at->generation.load(std::memory_order_relaxed)) {}

  Object *object() const noexcept {
    if (of == nullptr || of->generation.load(std::memory_order_acquire) != generation) return nullptr;
    return static_cast<Object *>(of->object);
  }

  /* Why there is no object: the handle is empty, or its owner has gone. */
  failure gone() const noexcept {
    return failure(of == nullptr ? SLICEPOOL_ERROR_INVALID_ARGUMENT : SLICEPOOL_ERROR_STALE_HANDLE);
  }

  const void *device() const noexcept { return of->device.table.user_data; }
};
}  // namespace detail

}  // inline namespace
}  // namespace slicepool

#endif
