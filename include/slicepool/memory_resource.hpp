/* Memory for std::pmr containers. */
#ifndef SLICEPOOL_MEMORY_RESOURCE_HPP
#define SLICEPOOL_MEMORY_RESOURCE_HPP

#include "allocator.hpp"
#include "buffer_pool.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <memory_resource>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

namespace detail {
/* What lies where: std::pmr frees by address, and slicepool by handle. Threads that meet in one part wait for each other. */
class handles_by_address {
 public:
  void add(void *address, std::uint64_t id) {
    part &of = part_of(address);
    const std::lock_guard<std::mutex> lock(of.mutex);
    of.handles[address] = id;
  }

  /* 0 if nothing lies there. */
  std::uint64_t take(void *address) noexcept {
    part &of = part_of(address);
    const std::lock_guard<std::mutex> lock(of.mutex);
    const auto found = of.handles.find(address);
    if (found == of.handles.end()) return 0;
    const std::uint64_t id = found->second;
    of.handles.erase(found);
    return id;
  }

  template <class Free>
  void take_all(Free &&free) noexcept {
    for (part &of : parts_) {
      const std::lock_guard<std::mutex> lock(of.mutex);
      for (const auto &[address, id] : of.handles) free(id);
      of.handles.clear();
    }
  }

 private:
  struct part {
    std::mutex mutex;
    std::unordered_map<void *, std::uint64_t> handles;
  };

  part &part_of(void *address) noexcept {
    const auto mixed = (reinterpret_cast<std::uintptr_t>(address) >> 4) * std::uintptr_t{0x9E3779B1U};
    return parts_[(mixed >> 16) % parts_.size()];
  }

  std::array<part, 16> parts_;
};

[[noreturn]] inline void no_memory() {
#ifndef SLICEPOOL_NO_EXCEPTIONS
  throw std::bad_alloc();
#else
  std::abort();
#endif
}

inline void *aligned_in(void *from, std::size_t alignment) noexcept {
  const auto address = reinterpret_cast<std::uintptr_t>(from);
  const std::uintptr_t above = (alignment - address % alignment) % alignment;
  return static_cast<char *>(from) + above;
}

/*
 * Gets memory that the CPU sees at a multiple of `alignment` by `get(size, alignment, owned)`, which fills in an owner with
 * mapped(). Devices align addresses of their own, and only so far: where that does not do, by more memory than is asked for.
 */
template <class Owner, class Get>
void *aligned_memory(std::size_t bytes, std::size_t alignment, Owner &owned, Get &&get) {
  const std::size_t size = bytes == 0 ? 1 : bytes;
  if (get(size, alignment, owned) && aligned_in(owned.mapped(), alignment) == owned.mapped()) return owned.mapped();
  owned.reset();
  if (size > std::numeric_limits<std::size_t>::max() - alignment) no_memory();
  if (!get(size + alignment - 1, std::size_t{0}, owned)) no_memory();
  return aligned_in(owned.mapped(), alignment);
}
}  // namespace detail

/**
 * Memory of an allocator, for std::pmr containers. The device has to map its pages for good, as host_memory does.
 *
 * Every block is a slice; bytes of any alignment, none at all included. Throws std::bad_alloc whatever the reason; without
 * exceptions that ends the process, as containers cannot be told. Equal to itself only. What has not been given back when
 * this is destroyed is freed then, but for what has gone with the allocator.
 *
 * Threads: any, but for release() and the destructor. Cost: that of the slice, and a look-up by address under a lock that
 * one call in sixteen meets another at.
 */
class memory_resource final : public std::pmr::memory_resource {
 public:
  /**
   * @param allocator  borrowed; may be moved meanwhile
   * @param like       what slices must be like besides: memory types, pool, flags; its size and alignment do not matter, and
   *                   what its pointers point to has to stay
   */
  explicit memory_resource(Allocator &allocator, const slicepool_request &like = slicepool::request(0)) noexcept
      : link_(allocator.link_), like_(like) {}

  ~memory_resource() override { release(); }
  memory_resource(const memory_resource &) = delete;
  memory_resource &operator=(const memory_resource &) = delete;

  /** Frees everything that has not been given back. Nobody may be using it any more. */
  void release() noexcept {
    slicepool_allocator *const allocator = link_.object();
    handles_.take_all([&](std::uint64_t id) {
      if (allocator != nullptr) detail::free_at_last("slicepool::memory_resource", allocator, id);
    });
  }

 private:
  void *do_allocate(std::size_t bytes, std::size_t alignment) override {
    Allocator allocator;
    allocator.link_ = link_;
    struct borrowed {
      Allocator &of;
      ~borrowed() { of.link_ = {}; }
    } const borrow{allocator};
    Slice slice;
    void *const memory = detail::aligned_memory(bytes, alignment, slice, [&](std::size_t size, std::size_t at, Slice &to) {
      slicepool_request request = like_;
      request.size = size;
      request.alignment = at;
      result<Slice> got = allocator.try_allocate(request);
      if (got) to = std::move(*got);
      return to.mapped() != nullptr;
    });
    handles_.add(memory, slice.id());
    slice.release();
    return memory;
  }

  void do_deallocate(void *memory, std::size_t, std::size_t) override {
    slicepool_allocator *const allocator = link_.object();
    if (allocator == nullptr) return;
    const std::uint64_t id = handles_.take(memory);
    if (id != 0) return detail::free_at_last("slicepool::memory_resource", allocator, id);
    detail::report("slicepool::memory_resource", failure(SLICEPOOL_ERROR_FOREIGN_HANDLE));
  }

  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

  detail::link<slicepool_allocator> link_;
  slicepool_request like_;
  detail::handles_by_address handles_;
};

/**
 * Memory of a buffer pool, for std::pmr containers: blocks come from the thread's cache. Only for what fits into the pool's
 * classes, unless `flags` has SLICEPOOL_BUFFER_UNTRACKED: otherwise larger blocks throw std::bad_alloc, and so do blocks of
 * classes that are exhausted. In all else as memory_resource.
 */
class buffer_memory_resource final : public std::pmr::memory_resource {
 public:
  /**
   * @param pool   borrowed; may be moved meanwhile
   * @param flags  SLICEPOOL_BUFFER_ flags
   */
  explicit buffer_memory_resource(BufferPool &pool, std::uint32_t flags = 0) noexcept
      : link_(pool.link_), flags_(flags) {}

  ~buffer_memory_resource() override { release(); }
  buffer_memory_resource(const buffer_memory_resource &) = delete;
  buffer_memory_resource &operator=(const buffer_memory_resource &) = delete;

  /** Gives back everything that has not been given back. Nobody may be using it any more. */
  void release() noexcept {
    handles_.take_all([&](std::uint64_t id) { give_back(id); });
  }

 private:
  void *do_allocate(std::size_t bytes, std::size_t alignment) override {
    Buffer buffer;
    void *const memory = detail::aligned_memory(bytes, alignment, buffer, [&](std::size_t size, std::size_t, Buffer &to) {
      slicepool_buffer_pool *const pool = link_.object();
      if (pool == nullptr) return false;
      result<Buffer> got = Buffer::acquire(link_, detail::cache_of_thread(*link_.of, pool), size, flags_);
      if (got) to = std::move(*got);
      return to.mapped() != nullptr;
    });
    handles_.add(memory, buffer.id());
    buffer.release();
    return memory;
  }

  void do_deallocate(void *memory, std::size_t, std::size_t) override {
    give_back(handles_.take(memory));
  }

  void give_back(std::uint64_t id) noexcept {
    slicepool_buffer_pool *const pool = link_.object();
    if (pool == nullptr) return;
    const slicepool_result code = id == 0 ? SLICEPOOL_ERROR_FOREIGN_HANDLE
                                          : slicepool_buffer_release(pool, detail::cache_of_thread(*link_.of, pool), id);
    if (code != SLICEPOOL_OK) detail::report("slicepool::buffer_memory_resource", failure(code));
  }

  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override { return this == &other; }

  detail::link<slicepool_buffer_pool> link_;
  std::uint32_t flags_;
  detail::handles_by_address handles_;
};

}  // inline namespace
}  // namespace slicepool

#endif
