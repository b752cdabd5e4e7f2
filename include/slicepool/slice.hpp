/* Slices of allocators. */
#ifndef SLICEPOOL_SLICE_HPP
#define SLICEPOOL_SLICE_HPP

#include "answers.hpp"
#include "bytes.hpp"
#include "owner.hpp"

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

namespace detail {
/* Frees a slice of which nobody can be told any more: a failure goes to the failure handler. */
inline void free_at_last(const char *where, slicepool_allocator *allocator, std::uint64_t id) noexcept {
  const slicepool_result code = slicepool_free(allocator, id);
  if (code == SLICEPOOL_OK) return;
  report(where, failure(code));
  /* The margin is mended now, and the slice still there. */
  if (code == SLICEPOOL_ERROR_MARGIN_DAMAGED) slicepool_free(allocator, id);
}
}  // namespace detail

/** A slice that the CPU sees as long as this lives: made by Slice::map(). Destroy it before its slice is freed. */
class Mapping {
 public:
  Mapping() noexcept = default;
  Mapping(Mapping &&other) noexcept { swap(other); }
  Mapping &operator=(Mapping &&other) noexcept {
    Mapping taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Mapping() {
    slicepool_allocator *const allocator = owner_.object();
    if (allocator != nullptr) slicepool_unmap(allocator, id_);
  }

  /** Where the slice lies, and how long it is. */
  byte_span bytes() const noexcept { return bytes_; }

  void swap(Mapping &other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(id_, other.id_);
    std::swap(bytes_, other.bytes_);
  }

 private:
  friend class Slice;
  Mapping(detail::link<slicepool_allocator> owner, std::uint64_t id, byte_span bytes) noexcept
      : owner_(owner), id_(id), bytes_(bytes) {}

  detail::link<slicepool_allocator> owner_;
  std::uint64_t id_ = 0;
  byte_span bytes_;
};

/** Owns a piece of device memory, which is freed when this is destroyed: at once, so see free_after(). */
class Slice {
 public:
  /** An empty one. */
  Slice() noexcept = default;
  Slice(Slice &&other) noexcept { swap(other); }
  Slice &operator=(Slice &&other) noexcept {
    Slice taken(std::move(other));
    swap(taken);
    return *this;
  }
  ~Slice() { reset(); }

  /** What names the slice in calls of slicepool.h; 0 if this is empty. */
  std::uint64_t id() const noexcept { return slice_.id; }
  /** Handle of the page, as the device filled it in. */
  std::uint64_t memory() const noexcept { return slice_.memory; }
  /** Bytes from the start of the page. */
  std::uint64_t offset() const noexcept { return slice_.offset; }
  /** Usable bytes. */
  std::uint64_t size() const noexcept { return slice_.size; }
  /** Address as the device sees it, 0 if it gives none. */
  std::uint64_t address() const noexcept { return slice_.address; }
  /** Where the CPU sees it, NULL if the device has not mapped the page for good: see map(). */
  void *mapped() const noexcept { return slice_.mapped; }
  /** The same as a range; empty if mapped() is NULL. */
  byte_span bytes() const noexcept { return detail::bytes_at(slice_.mapped, slice_.size); }
  /** The slice as slicepool.h has it. */
  const slicepool_slice &get() const noexcept { return slice_; }
  /** Whether there is a slice. */
  explicit operator bool() const noexcept { return slice_.id != 0; }

  /** Lets go of the slice without freeing it, and answers its id: the caller's to free. */
  std::uint64_t release() noexcept {
    owner_ = {};
    return std::exchange(slice_, defaults<slicepool_slice>()).id;
  }

  /** Frees the slice now. What cannot be told otherwise goes to the failure handler. */
  void reset() noexcept {
    if (slice_.id == 0) return;
    slicepool_allocator *const allocator = owner_.object();
    const std::uint64_t id = release();
    if (allocator != nullptr) detail::free_at_last("slicepool::Slice", allocator, id);
  }

  /** slicepool_free(): like reset(), but tells failures; the slice is still owned then. */
  result<void> try_free() noexcept {
    slicepool_allocator *const allocator = owner_.object();
    if (allocator == nullptr) return owner_.gone();
    const slicepool_result code = slicepool_free(allocator, slice_.id);
    if (code == SLICEPOOL_OK) release();
    return detail::outcome(code);
  }

  /** slicepool_free_after(): gives the slice up, whose memory serves again once all points have been passed. */
  result<void> try_free_after(const slicepool_point *points, std::uint32_t count) noexcept {
    slicepool_allocator *const allocator = owner_.object();
    if (allocator == nullptr) return owner_.gone();
    detail::call call(owner_.device());
    const slicepool_result code = slicepool_free_after(allocator, slice_.id, points, count, call.details());
    if (code == SLICEPOOL_OK) release();
    return detail::outcome(code, call);
  }
  result<void> try_free_after(std::initializer_list<slicepool_point> points) noexcept {
    return try_free_after(points.begin(), static_cast<std::uint32_t>(points.size()));
  }

  /** slicepool_try_resize(): another size where it lies, or SLICEPOOL_ERROR_NO_ROOM. */
  result<void> try_resize(std::uint64_t size) noexcept {
    slicepool_allocator *const allocator = owner_.object();
    if (allocator == nullptr) return owner_.gone();
    detail::call call(owner_.device());
    return detail::outcome(slicepool_try_resize(allocator, slice_.id, size, &slice_, call.details()), call);
  }

  /** slicepool_map(): for pages that the device does not map for good. */
  result<Mapping> try_map() noexcept {
    slicepool_allocator *const allocator = owner_.object();
    if (allocator == nullptr) return owner_.gone();
    detail::call call(owner_.device());
    void *mapped = nullptr;
    const slicepool_result code = slicepool_map(allocator, slice_.id, &mapped, call.details());
    if (code != SLICEPOOL_OK) return call.failed(code);
    return Mapping(owner_, slice_.id, detail::bytes_at(mapped, slice_.size));
  }

  /** slicepool_flush(): makes what the CPU has written visible to the device. */
  result<void> try_flush(std::uint64_t offset = 0, std::uint64_t size = UINT64_MAX) noexcept {
    slicepool_allocator *const allocator = owner_.object();
    if (allocator == nullptr) return owner_.gone();
    detail::call call(owner_.device());
    return detail::outcome(slicepool_flush(allocator, slice_.id, offset, size, call.details()), call);
  }

  /** slicepool_invalidate(): makes what the device has written visible to the CPU. */
  result<void> try_invalidate(std::uint64_t offset = 0, std::uint64_t size = UINT64_MAX) noexcept {
    slicepool_allocator *const allocator = owner_.object();
    if (allocator == nullptr) return owner_.gone();
    detail::call call(owner_.device());
    return detail::outcome(slicepool_invalidate(allocator, slice_.id, offset, size, call.details()), call);
  }

  /** slicepool_resolve(): in a dry run, gets the memory of the slice from the device. */
  result<void> try_resolve() noexcept {
    slicepool_allocator *const allocator = owner_.object();
    if (allocator == nullptr) return owner_.gone();
    detail::call call(owner_.device());
    return detail::outcome(slicepool_resolve(allocator, slice_.id, &slice_, call.details()), call);
  }

  /** slicepool_name_set(): for reports and events. */
  result<void> try_set_name(const char *name) noexcept {
    slicepool_allocator *const allocator = owner_.object();
    if (allocator == nullptr) return owner_.gone();
    return detail::outcome(slicepool_name_set(allocator, slice_.id, name));
  }

  /** slicepool_name_get(). */
  result<std::string> try_name() const {
    slicepool_allocator *const allocator = owner_.object();
    if (allocator == nullptr) return owner_.gone();
    std::array<char, SLICEPOOL_MAX_NAME + 1> name{};
    const slicepool_result code =
        slicepool_name_get(allocator, slice_.id, name.data(), static_cast<std::uint32_t>(name.size()));
    if (code != SLICEPOOL_OK) return failure(code);
    return std::string(name.data());
  }

  /** slicepool_user_data_set(): a pointer of the program's, in get().user_data and events from then on. */
  result<void> try_set_user_data(void *user_data) noexcept {
    slicepool_allocator *const allocator = owner_.object();
    if (allocator == nullptr) return owner_.gone();
    const slicepool_result code = slicepool_user_data_set(allocator, slice_.id, user_data);
    if (code == SLICEPOOL_OK) slice_.user_data = user_data;
    return detail::outcome(code);
  }

#ifndef SLICEPOOL_NO_EXCEPTIONS
  void free() { try_free().value(); }
  void free_after(const slicepool_point *points, std::uint32_t count) { try_free_after(points, count).value(); }
  void free_after(std::initializer_list<slicepool_point> points) { try_free_after(points).value(); }
  void resize(std::uint64_t size) { try_resize(size).value(); }
  Mapping map() { return try_map().value(); }
  void flush(std::uint64_t offset = 0, std::uint64_t size = UINT64_MAX) { try_flush(offset, size).value(); }
  void invalidate(std::uint64_t offset = 0, std::uint64_t size = UINT64_MAX) { try_invalidate(offset, size).value(); }
  void resolve() { try_resolve().value(); }
  void set_name(const char *name) { try_set_name(name).value(); }
  std::string name() const { return try_name().value(); }
  void set_user_data(void *user_data) { try_set_user_data(user_data).value(); }
#endif

  void swap(Slice &other) noexcept {
    std::swap(owner_, other.owner_);
    std::swap(slice_, other.slice_);
  }
  friend void swap(Slice &one, Slice &other) noexcept { one.swap(other); }

 private:
  friend class Allocator;
  Slice(detail::link<slicepool_allocator> owner, const slicepool_slice &slice) noexcept : owner_(owner), slice_(slice) {}

  detail::link<slicepool_allocator> owner_;
  slicepool_slice slice_ = defaults<slicepool_slice>();
};

}  // inline namespace
}  // namespace slicepool

#endif
