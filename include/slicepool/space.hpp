/* Spaces: the slicer alone. */
#ifndef SLICEPOOL_SPACE_HPP
#define SLICEPOOL_SPACE_HPP

#include "answers.hpp"

#include <cstdint>
#include <type_traits>
#include <utility>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

/** Owns a space of indices. Its pieces are values: they go with the space, or by free(). One thread at a time. */
class Space {
 public:
  /** An empty one. */
  Space() noexcept = default;
  Space(Space &&other) noexcept : space_(std::exchange(other.space_, nullptr)) {}
  Space &operator=(Space &&other) noexcept {
    Space taken(std::move(other));
    std::swap(space_, taken.space_);
    return *this;
  }
  ~Space() {
    if (space_ == nullptr) return;
    const slicepool_result code = slicepool_space_destroy(space_);
    if (code != SLICEPOOL_OK) detail::report("slicepool::Space", failure(code));
  }

  /** slicepool_space_create(). */
  static result<Space> try_create(const slicepool_space_config &config) noexcept {
    detail::call call(nullptr);
    slicepool_space_config asked = config;
    asked.failure = call.details();
    Space created;
    const slicepool_result code = slicepool_space_create(&asked, &created.space_);
    if (code != SLICEPOOL_OK) return call.failed(code);
    return created;
  }
  static result<Space> try_create(std::uint64_t size, std::uint64_t granule = 0) noexcept {
    auto config = defaults<slicepool_space_config>();
    config.size = size;
    config.granule = granule;
    return try_create(config);
  }

  /** The space for calls of slicepool.h; NULL if this is empty. */
  slicepool_space *get() const noexcept { return space_; }
  explicit operator bool() const noexcept { return space_ != nullptr; }
  /** Lets go of the space: the caller's to destroy. */
  slicepool_space *release() noexcept { return std::exchange(space_, nullptr); }

  /** slicepool_space_allocate(). */
  result<slicepool_space_slice> try_allocate(std::uint64_t size, std::uint64_t alignment = 0) noexcept {
    detail::call call(nullptr);
    auto slice = defaults<slicepool_space_slice>();
    const slicepool_result code = slicepool_space_allocate(space_, size, alignment, &slice, call.details());
    if (code != SLICEPOOL_OK) return call.failed(code);
    return slice;
  }

  /** slicepool_space_free(). */
  result<void> try_free(std::uint64_t id) noexcept { return detail::outcome(slicepool_space_free(space_, id)); }

  /** slicepool_space_try_resize(): the slice as it is then. */
  result<slicepool_space_slice> try_resize(std::uint64_t id, std::uint64_t size) noexcept {
    detail::call call(nullptr);
    auto slice = defaults<slicepool_space_slice>();
    const slicepool_result code = slicepool_space_try_resize(space_, id, size, &slice, call.details());
    if (code != SLICEPOOL_OK) return call.failed(code);
    return slice;
  }

  /** slicepool_space_slice_get(). */
  result<slicepool_space_slice> try_slice(std::uint64_t id) const noexcept {
    return detail::filled<slicepool_space_slice>([&](auto *slice) { return slicepool_space_slice_get(space_, id, slice); });
  }

  /** slicepool_space_grow(). */
  result<void> try_grow(std::uint64_t additional) noexcept { return detail::outcome(slicepool_space_grow(space_, additional)); }

  /** slicepool_space_clear(). */
  result<void> try_clear() noexcept { return detail::outcome(slicepool_space_clear(space_)); }

  /** slicepool_space_largest_free(): units. */
  result<std::uint64_t> try_largest_free() const noexcept {
    std::uint64_t units = 0;
    const slicepool_result code = slicepool_space_largest_free(space_, &units);
    if (code != SLICEPOOL_OK) return failure(code);
    return units;
  }

  /** slicepool_space_statistics_get(). */
  result<slicepool_space_statistics> try_statistics() const noexcept {
    return detail::filled<slicepool_space_statistics>(
        [&](auto *figures) { return slicepool_space_statistics_get(space_, figures); });
  }

  /** slicepool_space_walk(): as Allocator::try_walk(), with `visit(const slicepool_space_slice &)`. */
  template <class Visit>
  result<void> try_walk(Visit &&visit) const {
    detail::visitor<slicepool_space_slice, std::remove_reference_t<Visit>> shown{visit};
    return shown.end(slicepool_space_walk(space_, shown.show, &shown));
  }

#ifndef SLICEPOOL_NO_EXCEPTIONS
  explicit Space(const slicepool_space_config &config) : Space(try_create(config).value()) {}
  explicit Space(std::uint64_t size, std::uint64_t granule = 0) : Space(try_create(size, granule).value()) {}
  slicepool_space_slice allocate(std::uint64_t size, std::uint64_t alignment = 0) {
    return try_allocate(size, alignment).value();
  }
  void free(std::uint64_t id) { try_free(id).value(); }
  slicepool_space_slice resize(std::uint64_t id, std::uint64_t size) { return try_resize(id, size).value(); }
  slicepool_space_slice slice(std::uint64_t id) const { return try_slice(id).value(); }
  void grow(std::uint64_t additional) { try_grow(additional).value(); }
  void clear() { try_clear().value(); }
  std::uint64_t largest_free() const { return try_largest_free().value(); }
  slicepool_space_statistics statistics() const { return try_statistics().value(); }
  template <class Visit>
  void walk(Visit &&visit) const { try_walk(visit).value(); }
#endif

 private:
  slicepool_space *space_ = nullptr;
};

}  // inline namespace
}  // namespace slicepool

#endif
