/* Structs of slicepool.h with their defaults. */
#ifndef SLICEPOOL_STRUCTS_HPP
#define SLICEPOOL_STRUCTS_HPP

#include "base.hpp"

#include <cstdint>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

/** Any struct of slicepool.h that begins with struct_size, with its defaults: every field zero, struct_size set. */
template <class Struct>
Struct defaults() noexcept {
  Struct filled{};
  filled.struct_size = static_cast<std::uint32_t>(sizeof(Struct));
  return filled;
}

/** How an allocator is made: the defaults, to be changed. What its pointers point to is copied when it is used. */
inline slicepool_allocator_config allocator_config() noexcept { return defaults<slicepool_allocator_config>(); }

/** A pool of equal sliced pages; 0 in `max_pool_size`: no cap. */
inline slicepool_pool_options sliced_pages(std::uint64_t page_size, std::uint64_t max_pool_size = 0) noexcept {
  auto options = defaults<slicepool_pool_options>();
  options.kind = SLICEPOOL_POOL_SLICED_PAGES;
  options.page_size = page_size;
  options.max_pool_size = max_pool_size;
  return options;
}

/** What a slice must be like. */
inline slicepool_request request(std::uint64_t size, std::uint64_t alignment = 0, std::uint32_t flags = 0) noexcept {
  auto wanted = defaults<slicepool_request>();
  wanted.size = size;
  wanted.alignment = alignment;
  wanted.flags = flags;
  return wanted;
}

/** A place on a timeline of the device's work. */
inline slicepool_point point(std::uint32_t timeline, std::uint64_t value) noexcept { return {timeline, 0, value}; }

/** A page, as a device's allocate() answers it. */
inline slicepool_device_memory page(std::uint64_t handle, void *mapped = nullptr, std::uint64_t address = 0,
                                    void *context = nullptr) noexcept {
  auto memory = defaults<slicepool_device_memory>();
  memory.handle = handle;
  memory.address = address;
  memory.mapped = mapped;
  memory.context = context;
  return memory;
}

/** How a buffer pool is made: the defaults, to be changed by hand or by slicepool_buffer_pool_config_ functions. */
inline slicepool_buffer_pool_config buffer_pool_config() noexcept { return defaults<slicepool_buffer_pool_config>(); }

}  // inline namespace
}  // namespace slicepool

#endif
