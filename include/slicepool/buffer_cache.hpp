/*
 * Caches that threads have of buffer pools.
 *
 * The first call of a thread on a pool makes a cache, by which its later calls on that pool go. Two may want to destroy it,
 * in any order or at once: the thread, when it ends, and whoever destroys the pool, which cannot go before its caches. So a
 * cache is held by a record that the thread owns and the pool's cell lists; whoever takes it out of the record, under the
 * cell's mutex, destroys it, after giving up the mutex, since a callback of the device may run. Cells are never freed, so a
 * thread finds its cell's mutex however long the pool has been gone; and who destroys a pool waits for threads that are just
 * giving a cache back. What a thread looks at in every call are its own table and the cell's counters.
 *
 * The table itself is thread_local without a destructor, and empty once the thread's caches have gone: destructors of other
 * thread_local objects that use a pool after that go without a cache. So do all threads where a cache cannot be had.
 */
#ifndef SLICEPOOL_BUFFER_CACHE_HPP
#define SLICEPOOL_BUFFER_CACHE_HPP

#include "owner.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <utility>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

namespace detail {
struct cache_record {
  cell *of;
  slicepool_buffer_cache *cache; /* NULL once it has been taken out */
  cache_record *next;
  cache_record *previous;
};

inline void add_record(cell &of, cache_record &record) noexcept {
  record.next = of.records;
  record.previous = nullptr;
  if (of.records != nullptr) of.records->previous = &record;
  of.records = &record;
}

inline slicepool_buffer_cache *take_out(cell &of, cache_record &record) noexcept {
  if (record.cache == nullptr) return nullptr;
  (record.previous != nullptr ? record.previous->next : of.records) = record.next;
  if (record.next != nullptr) record.next->previous = record.previous;
  return std::exchange(record.cache, nullptr);
}

/* What this thread is giving caches back to, one within a callback of the other: it must not wait for itself. */
struct giving_back {
  const cell *to;
  const giving_back *outer;
};
inline thread_local const giving_back *innermost = nullptr;

inline bool is_giving_back_to(const cell &of) noexcept {
  for (const giving_back *at = innermost; at != nullptr; at = at->outer) {
    if (at->to == &of) return true;
  }
  return false;
}

/* Does something with the cache of a record that the pool must not go away during. */
template <class Use>
slicepool_result use_cache(cell &of, Use &&use) noexcept {
  const giving_back here{&of, innermost};
  innermost = &here;
  const slicepool_result code = use();
  innermost = here.outer;
  const std::lock_guard<std::mutex> lock(of.mutex);
  of.giving_back--;
  of.given_back.notify_all();
  return code;
}

inline slicepool_result give_back(cache_record &record) noexcept {
  cell &of = *record.of;
  if (of.left_behind.load(std::memory_order_relaxed)) return SLICEPOOL_OK;
  slicepool_buffer_cache *cache = nullptr;
  {
    const std::lock_guard<std::mutex> lock(of.mutex);
    cache = take_out(of, record);
    if (cache == nullptr) return SLICEPOOL_OK;
    of.giving_back++;
  }
  return use_cache(of, [&] {
    const slicepool_result code = slicepool_buffer_cache_destroy(cache);
    if (code != SLICEPOOL_OK) {
      const std::lock_guard<std::mutex> lock(of.mutex);
      record.cache = cache;
      add_record(of, record);
    }
    return code;
  });
}

inline slicepool_result flush(cache_record &record) noexcept {
  cell &of = *record.of;
  if (of.left_behind.load(std::memory_order_relaxed)) return SLICEPOOL_OK;
  {
    const std::lock_guard<std::mutex> lock(of.mutex);
    if (record.cache == nullptr) return SLICEPOOL_OK;
    of.giving_back++;
  }
  return use_cache(of, [&] { return slicepool_buffer_cache_flush(record.cache); });
}

/* Destroys all caches of a pool that nobody uses any more; threads that use it again get new ones. */
inline void give_back_all(cell &of) noexcept {
  std::unique_lock<std::mutex> lock(of.mutex);
  of.caches_generation.fetch_add(1, std::memory_order_release);
  for (;;) {
    if (!is_giving_back_to(of)) of.given_back.wait(lock, [&] { return of.giving_back == 0; });
    if (of.records == nullptr) return;
    cache_record &record = *of.records;
    slicepool_buffer_cache *const cache = take_out(of, record);
    lock.unlock();
    const slicepool_result code = slicepool_buffer_cache_destroy(cache);
    lock.lock();
    if (code != SLICEPOOL_OK) {
      /* A call with it is running a callback, from which this comes: the pool will not go either. */
      record.cache = cache;
      add_record(of, record);
      return;
    }
  }
}

/* The pool has gone, and all caches with it, also one that a callback made at the last moment. */
inline void forget_caches(cell &of) noexcept {
  const std::lock_guard<std::mutex> lock(of.mutex);
  of.caches_generation.fetch_add(1, std::memory_order_release);
  while (of.records != nullptr) take_out(of, *of.records);
}

/* ---- what a thread has */

struct thread_cache {
  std::uint64_t generation;      /* of the cell's caches; 0 in a place that was never used */
  slicepool_buffer_cache *cache; /* NULL if none could be had */
  cache_record *record;
};

struct thread_table {
  thread_cache *caches = nullptr; /* by the cell's index */
  std::uint32_t count = 0;
  bool ended = false;
};

inline thread_local thread_table table;

/* Gives the thread's caches back when it ends. */
struct thread_end {
  ~thread_end() {
    const thread_table had = std::exchange(table, thread_table{nullptr, 0, true});
    for (std::uint32_t i = 0; i < had.count; i++) {
      if (had.caches[i].record == nullptr) continue;
      give_back(*had.caches[i].record);
      std::free(had.caches[i].record);
    }
    std::free(had.caches);
  }
};

inline bool has_room(std::uint32_t index) noexcept {
  if (index < table.count) return true;
  const std::uint32_t count = std::max<std::uint32_t>(8, index + index / 2 + 1);
  void *const larger = std::realloc(table.caches, count * sizeof(thread_cache));
  if (larger == nullptr) return false;
  table.caches = static_cast<thread_cache *>(larger);
  for (std::uint32_t i = table.count; i < count; i++) table.caches[i] = {0, nullptr, nullptr};
  table.count = count;
  return true;
}

inline cache_record *new_record(cell &of, slicepool_buffer_pool *pool) noexcept {
  auto *const record = static_cast<cache_record *>(std::malloc(sizeof(cache_record)));
  if (record == nullptr) return nullptr;
  *record = {&of, nullptr, nullptr, nullptr};
  if (slicepool_buffer_cache_create(pool, &record->cache) != SLICEPOOL_OK) {
    std::free(record);
    return nullptr;
  }
  const std::lock_guard<std::mutex> lock(of.mutex);
  add_record(of, *record);
  return record;
}

inline slicepool_buffer_cache *make_thread_cache(cell &of, slicepool_buffer_pool *pool, std::uint64_t generation) noexcept {
  if (!of.has_thread_caches || table.ended || !has_room(of.index)) return nullptr;
  static thread_local thread_end end;
  static_cast<void>(end);
  thread_cache &place = table.caches[of.index];
  if (place.record != nullptr) {
    const std::lock_guard<std::mutex> lock(of.mutex);
    if (place.record->cache != nullptr) {
      /* The pool could not take it away. */
      place = {generation, place.record->cache, place.record};
      return place.cache;
    }
  }
  std::free(place.record);
  cache_record *const record = new_record(of, pool);
  place = {generation, record == nullptr ? nullptr : record->cache, record};
  return place.cache;
}

/* This thread's cache for a pool that is there; NULL: without one. */
inline slicepool_buffer_cache *cache_of_thread(cell &of, slicepool_buffer_pool *pool) noexcept {
  const std::uint64_t generation = of.caches_generation.load(std::memory_order_acquire);
  const thread_table &had = table;
  if (of.index < had.count && had.caches[of.index].generation == generation) return had.caches[of.index].cache;
  return make_thread_cache(of, pool, generation);
}
}  // namespace detail


/** Gives back what this thread keeps in its caches, of all buffer pools: for threads that will be idle for long. */
inline void flush_thread_caches() noexcept {
  for (std::uint32_t i = 0; i < detail::table.count; i++) {
    detail::cache_record *const record = detail::table.caches[i].record;
    if (record != nullptr) detail::flush(*record);
  }
}

}  // inline namespace
}  // namespace slicepool

#endif
