/* Buffers, and caches that the program hands out. */
#ifndef SLICEPOOL_BUFFER_HPP
#define SLICEPOOL_BUFFER_HPP

#include "answers.hpp"
#include "buffer_cache.hpp"
#include "bytes.hpp"

#include <cstdint>
#include <cstdlib>
#include <utility>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

/** Owns a buffer, which goes back to its pool when this is destroyed: by the cache of the thread that destroys it. */
class Buffer {
 public:
  /** An empty one. */
  Buffer() noexcept = default;
  Buffer(Buffer &&other) noexcept { swap(other); }
  Buffer &operator=(Buffer &&other) noexcept {
    Buffer taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Buffer() { reset(); }

  /** What names the buffer in calls of slicepool.h; 0 if this is empty, or the buffer has no bytes. */
  std::uint64_t id() const noexcept { return buffer_.id; }
  /** Handle of the device memory that it lies in. */
  std::uint64_t memory() const noexcept { return buffer_.memory; }
  /** Bytes from the start of that memory. */
  std::uint64_t offset() const noexcept { return buffer_.offset; }
  /** Bytes that it has room for. */
  std::uint64_t size() const noexcept { return buffer_.size; }
  /** Address as the device sees it, 0 if it gives none. */
  std::uint64_t address() const noexcept { return buffer_.address; }
  /** Where the CPU sees it, NULL if it does not. */
  void *mapped() const noexcept { return buffer_.mapped; }
  /** The same as a range; empty if mapped() is NULL. */
  byte_span bytes() const noexcept { return detail::bytes_at(buffer_.mapped, buffer_.size); }
  /** The buffer as slicepool.h has it. */
  const slicepool_buffer &get() const noexcept { return buffer_; }
  /** Whether there is a buffer that has bytes. */
  explicit operator bool() const noexcept { return buffer_.id != 0; }

  /** Lets go of the buffer without giving it back, and answers its id: the caller's to release. */
  std::uint64_t release() noexcept {
    owner_ = {};
    return std::exchange(buffer_, defaults<slicepool_buffer>()).id;
  }

  /** Gives the buffer back now. What cannot be told otherwise goes to the failure handler. */
  void reset() noexcept {
    if (buffer_.id == 0) return;
    slicepool_buffer_pool *const pool = owner_.object();
    detail::cell *const of = owner_.of;
    const std::uint64_t id = release();
    if (pool == nullptr) return;
    const slicepool_result code = slicepool_buffer_release(pool, detail::cache_of_thread(*of, pool), id);
    if (code != SLICEPOOL_OK) detail::report("slicepool::Buffer", failure(code));
  }

  void swap(Buffer &other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(buffer_, other.buffer_);
  }
  friend void swap(Buffer &one, Buffer &other) noexcept { one.swap(other); }

 private:
  friend class BufferPool;
  friend class BufferCache;
  friend class buffer_memory_resource;
  Buffer(detail::link<slicepool_buffer_pool> owner, const slicepool_buffer &buffer) noexcept
      : owner_(owner), buffer_(buffer) {}

  static result<Buffer> acquire(const detail::link<slicepool_buffer_pool> &owner, slicepool_buffer_cache *cache,
                                std::uint64_t size, std::uint32_t flags) noexcept {
    detail::call call(owner.device());
    auto buffer = defaults<slicepool_buffer>();
    auto *const pool = static_cast<slicepool_buffer_pool *>(owner.of->object);
    const slicepool_result code = slicepool_buffer_acquire(pool, cache, size, flags, &buffer, call.details());
    if (code != SLICEPOOL_OK) return call.failed(code);
    return Buffer(owner, buffer);
  }

  detail::link<slicepool_buffer_pool> owner_;
  slicepool_buffer buffer_ = defaults<slicepool_buffer>();
};

/**
 * Owns a cache that the program hands to a task or core of its choice, which alone uses it. It may outlive the pool. If the
 * pool takes it away, because its destruction was tried and refused, its calls go without a cache.
 */
class BufferCache {
 public:
  /** An empty one. */
  BufferCache() noexcept = default;
  BufferCache(BufferCache &&other) noexcept { swap(other); }
  BufferCache &operator=(BufferCache &&other) noexcept {
    BufferCache taken(std::move(other));
    swap(taken);
    return *this;
  }

  /** Gives back what the cache holds. From within a callback that a call with it runs, it stays until the pool goes. */
  ~BufferCache() {
    if (record_ == nullptr) return;
    const slicepool_result code = detail::give_back(*record_);
    if (code == SLICEPOOL_OK) {
      std::free(record_);
    } else {
      detail::report("slicepool::BufferCache", failure(code));
    }
  }

  /** slicepool_buffer_acquire() with this cache. */
  result<Buffer> try_acquire(std::uint64_t size, std::uint32_t flags = 0) noexcept {
    if (owner_.object() == nullptr) return owner_.gone();
    return Buffer::acquire(owner_, record_->cache, size, flags);
  }

  /** slicepool_buffer_release() with this cache. The buffer is empty if that succeeds. */
  result<void> try_release(Buffer &buffer) noexcept {
    slicepool_buffer_pool *const pool = owner_.object();
    if (pool == nullptr) return owner_.gone();
    const slicepool_result code = slicepool_buffer_release(pool, record_->cache, buffer.id());
    if (code == SLICEPOOL_OK) buffer.release();
    return detail::outcome(code);
  }

  /** slicepool_buffer_cache_flush(). */
  result<void> try_flush() noexcept {
    if (owner_.object() == nullptr) return owner_.gone();
    return detail::outcome(detail::flush(*record_));
  }

#ifndef SLICEPOOL_NO_EXCEPTIONS
  Buffer acquire(std::uint64_t size, std::uint32_t flags = 0) { return try_acquire(size, flags).value(); }
  void release(Buffer &buffer) { try_release(buffer).value(); }
  void flush() { try_flush().value(); }
#endif

  explicit operator bool() const noexcept { return record_ != nullptr; }

  void swap(BufferCache &other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(record_, other.record_);
  }

 private:
  friend class BufferPool;

  detail::link<slicepool_buffer_pool> owner_;
  detail::cache_record *record_ = nullptr;
};

}  // inline namespace
}  // namespace slicepool

#endif
