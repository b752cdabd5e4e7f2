/* Buffer pools. */
#ifndef SLICEPOOL_BUFFER_POOL_HPP
#define SLICEPOOL_BUFFER_POOL_HPP

#include "buffer.hpp"

#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

/** Whether threads get caches of a pool by themselves. */
enum class thread_caches {
  /** Each thread that uses the pool, unless the pool is externally synchronised or its caches are to keep nothing. */
  automatic,
  /** None: those of BufferPool::cache() only. */
  none
};

/** Owns a pool of buffers, and the device if that was handed over. */
class BufferPool {
 public:
  /** An empty one. */
  BufferPool() noexcept = default;
  BufferPool(BufferPool &&other) noexcept : link_(std::exchange(other.link_, {})) {}
  BufferPool &operator=(BufferPool &&other) noexcept {
    BufferPool taken(std::move(other));
    std::swap(link_, taken.link_);
    return *this;
  }

  /**
   * Gives all memory back to the device, also that of buffers which are out: the failure handler hears of those. Caches of
   * threads that still run are given back here. If a callback of this pool is running, so in one, the pool stays with all
   * that belongs to it, and the failure handler hears of that.
   */
  ~BufferPool() {
    if (get() == nullptr) return;
    const result<void> ended = try_destroy();
    if (ended) return;
    detail::report("slicepool::BufferPool", ended.error());
    const result<void> forced = try_destroy(SLICEPOOL_DESTROY_FORCE);
    if (!forced) detail::report("slicepool::BufferPool, whose memory is lost", forced.error());
  }

  /** slicepool_buffer_pool_create(). With host_memory, buffers lie in config.memory if that is there. */
  template <class Device>
  static result<BufferPool> try_create(Device &&device,
                                       const slicepool_buffer_pool_config &config = slicepool::buffer_pool_config(),
                                       thread_caches caches = thread_caches::automatic) {
    return create(std::forward<Device>(device), config, caches, nullptr, 0);
  }

  /**
   * slicepool_buffer_pool_create_in(): all books in a block that has to live longer. (A few bytes for this object and for each
   * thread apart.) A thread for whose cache the block has no room goes without.
   */
  template <class Device>
  static result<BufferPool> try_create_in(void *memory, std::uint64_t bytes, Device &&device,
                                          const slicepool_buffer_pool_config &config = slicepool::buffer_pool_config(),
                                          thread_caches caches = thread_caches::automatic) {
    if (memory == nullptr) return failure(SLICEPOOL_ERROR_INVALID_ARGUMENT);
    return create(std::forward<Device>(device), config, caches, memory, bytes);
  }

  /** The pool for calls of slicepool.h; NULL if this is empty. */
  slicepool_buffer_pool *get() const noexcept { return link_.object(); }
  explicit operator bool() const noexcept { return get() != nullptr; }

  /**
   * Gives all caches back and lets go of the pool: the caller's to destroy, and so are the buffers, which all Buffer objects
   * let go of. A device that was handed over is never destroyed then.
   */
  slicepool_buffer_pool *release() noexcept {
    slicepool_buffer_pool *const pool = get();
    if (pool != nullptr) {
      detail::give_back_all(*link_.of);
      link_.of->device.kept = nullptr;
      leave();
    }
    return pool;
  }

  /** slicepool_buffer_pool_destroy(), after giving back all caches: those are gone also if it fails. */
  result<void> try_destroy(std::uint32_t flags = 0) noexcept {
    slicepool_buffer_pool *const pool = get();
    if (pool == nullptr) return link_.gone();
    detail::give_back_all(*link_.of);
    detail::call call(link_.device());
    const slicepool_result code = slicepool_buffer_pool_destroy(pool, flags, call.details());
    if (code != SLICEPOOL_OK) return call.failed(code);
    leave();
    return {};
  }

  /** slicepool_buffer_pool_abandon(): as Allocator::try_abandon(). */
  result<void> try_abandon(std::uint32_t flags = 0) noexcept {
    slicepool_buffer_pool *const pool = get();
    if (pool == nullptr) return link_.gone();
    const bool forked = (flags & SLICEPOOL_ABANDON_FORKED) != 0;
    if (!forked) detail::give_back_all(*link_.of);
    const slicepool_result code = slicepool_buffer_pool_abandon(pool, flags);
    if (code != SLICEPOOL_OK) return failure(code);
    if (forked) {
      detail::leave_behind(*link_.of);
      link_ = {};
    } else {
      leave();
    }
    return {};
  }

  /** slicepool_buffer_pool_close(): hands out nothing any more. */
  result<void> try_close() noexcept { return detail::outcome(slicepool_buffer_pool_close(get())); }

  /** slicepool_buffer_acquire() with the cache of this thread. */
  result<Buffer> try_acquire(std::uint64_t size, std::uint32_t flags = 0) noexcept {
    slicepool_buffer_pool *const pool = get();
    if (pool == nullptr) return link_.gone();
    return Buffer::acquire(link_, detail::cache_of_thread(*link_.of, pool), size, flags);
  }

  /** Becomes the owner of a buffer that is out, say of one that Buffer::release() let go of. At most one may own it. */
  result<Buffer> try_own(std::uint64_t id) noexcept {
    auto buffer = defaults<slicepool_buffer>();
    const slicepool_result code = slicepool_buffer_get(get(), id, &buffer);
    if (code != SLICEPOOL_OK) return failure(code);
    return Buffer(link_, buffer);
  }

  /** slicepool_buffer_cache_create(). */
  result<BufferCache> try_cache() noexcept {
    slicepool_buffer_pool *const pool = get();
    if (pool == nullptr) return link_.gone();
    slicepool_buffer_cache *cache = nullptr;
    const slicepool_result code = slicepool_buffer_cache_create(pool, &cache);
    if (code != SLICEPOOL_OK) return failure(code);
    auto *const record = static_cast<detail::cache_record *>(std::malloc(sizeof(detail::cache_record)));
    if (record == nullptr) {
      slicepool_buffer_cache_destroy(cache);
      return failure(SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
    }
    *record = {link_.of, cache, nullptr, nullptr};
    const std::lock_guard<std::mutex> lock(link_.of->mutex);
    detail::add_record(*link_.of, *record);
    BufferCache made;
    made.owner_ = link_;
    made.record_ = record;
    return made;
  }

  /** Gives back what this thread keeps in its cache for this pool. */
  void flush_thread_cache() noexcept {
    if (get() == nullptr || link_.of->index >= detail::table.count) return;
    detail::cache_record *const record = detail::table.caches[link_.of->index].record;
    if (record != nullptr) detail::flush(*record);
  }

  /** slicepool_buffer_pool_statistics_get(). */
  result<slicepool_buffer_pool_statistics> try_statistics() const noexcept {
    return detail::filled<slicepool_buffer_pool_statistics>(
        [&](auto *figures) { return slicepool_buffer_pool_statistics_get(get(), figures); });
  }

  /** slicepool_buffer_class_statistics_get(). */
  result<slicepool_buffer_class_statistics> try_class_statistics(std::uint32_t index) const noexcept {
    return detail::filled<slicepool_buffer_class_statistics>(
        [&](auto *figures) { return slicepool_buffer_class_statistics_get(get(), index, figures); });
  }

  /** slicepool_buffer_pool_regions(). */
  result<std::vector<slicepool_buffer_region>> try_regions() const {
    std::vector<slicepool_buffer_region> regions;
    std::uint32_t count = 0;
    slicepool_result code = slicepool_buffer_pool_regions(get(), nullptr, 0, &count);
    /* Others may be adding some. */
    while (code == SLICEPOOL_OK && count > regions.size()) {
      regions.assign(count, defaults<slicepool_buffer_region>());
      code = slicepool_buffer_pool_regions(get(), regions.data(), count, &count);
    }
    if (code != SLICEPOOL_OK) return failure(code);
    return regions;
  }

#ifndef SLICEPOOL_NO_EXCEPTIONS
  template <class Device, class = std::enable_if_t<!std::is_same_v<std::decay_t<Device>, BufferPool>>>
  explicit BufferPool(Device &&device, const slicepool_buffer_pool_config &config = slicepool::buffer_pool_config(),
                      thread_caches caches = thread_caches::automatic)
      : BufferPool(try_create(std::forward<Device>(device), config, caches).value()) {}
  template <class Device>
  static BufferPool create_in(void *memory, std::uint64_t bytes, Device &&device,
                              const slicepool_buffer_pool_config &config = slicepool::buffer_pool_config(),
                              thread_caches caches = thread_caches::automatic) {
    return try_create_in(memory, bytes, std::forward<Device>(device), config, caches).value();
  }

  void destroy(std::uint32_t flags = 0) { try_destroy(flags).value(); }
  void abandon(std::uint32_t flags = 0) { try_abandon(flags).value(); }
  void close() { try_close().value(); }
  Buffer acquire(std::uint64_t size, std::uint32_t flags = 0) { return try_acquire(size, flags).value(); }
  Buffer own(std::uint64_t id) { return try_own(id).value(); }
  BufferCache cache() { return try_cache().value(); }
  slicepool_buffer_pool_statistics statistics() const { return try_statistics().value(); }
  slicepool_buffer_class_statistics class_statistics(std::uint32_t index) const { return try_class_statistics(index).value(); }
  std::vector<slicepool_buffer_region> regions() const { return try_regions().value(); }
#endif

 private:
  template <class Device>
  static result<BufferPool> create(Device &&device, const slicepool_buffer_pool_config &config, thread_caches caches,
                                   void *memory, std::uint64_t bytes) {
    result<detail::kept_device> kept = detail::keep(std::forward<Device>(device));
    if (!kept) return kept.error();
    const slicepool_device *const table =
        std::is_same_v<std::decay_t<Device>, host_memory> ? nullptr : &kept->table;
    detail::call call(kept->table.user_data);
    slicepool_buffer_pool_config asked = config;
    asked.failure = call.details();
    slicepool_buffer_pool *pool = nullptr;
    slicepool_result code = memory == nullptr ? slicepool_buffer_pool_create(table, &asked, &pool)
                                              : slicepool_buffer_pool_create_in(table, &asked, memory, bytes, &pool);
    if (code == SLICEPOOL_OK) {
      detail::cell *const cell = detail::take_cell(pool, *kept);
      if (cell != nullptr) {
        cell->has_thread_caches = caches == thread_caches::automatic &&
                                  (config.flags & SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED) == 0 &&
                                  config.max_thread_cache_capacity != UINT64_MAX;
        BufferPool created;
        created.link_ = detail::link<slicepool_buffer_pool>(cell);
        return created;
      }
      slicepool_buffer_pool_destroy(pool, SLICEPOOL_DESTROY_FORCE, nullptr);
      code = SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY;
    }
    const failure why = call.failed(code);
    kept->drop();
    if (config.failure != nullptr) detail::copy_details(why, *config.failure);
    return why;
  }

  void leave() noexcept {
    detail::forget_caches(*link_.of);
    detail::retire(*link_.of);
    link_ = {};
  }

  friend class buffer_memory_resource;

  detail::link<slicepool_buffer_pool> link_;
};

}  // inline namespace
}  // namespace slicepool

#endif
