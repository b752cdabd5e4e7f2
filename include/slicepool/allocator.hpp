/* Allocators. */
#ifndef SLICEPOOL_ALLOCATOR_HPP
#define SLICEPOOL_ALLOCATOR_HPP

#include "slice.hpp"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace slicepool {
inline namespace SLICEPOOL_UNITS {

/** Figures of a heap, and what the device says of it. */
struct heap_figures {
  slicepool_statistics statistics;
  slicepool_heap_budget budget;
};

/** Owns pools over a device, and the device if that was handed over. */
class Allocator {
 public:
  /** An empty one. */
  Allocator() noexcept = default;
  Allocator(Allocator &&other) noexcept : link_(std::exchange(other.link_, {})) {}
  Allocator &operator=(Allocator &&other) noexcept {
    Allocator taken(std::move(other));
    std::swap(link_, taken.link_);
    return *this;
  }

  /**
   * Gives all memory back to the device, also that of live slices, of which the failure handler hears. If a callback of this
   * allocator is running, so in one, it stays with all that belongs to it, and the failure handler hears of that.
   */
  ~Allocator() {
    if (get() == nullptr) return;
    const result<void> ended = try_destroy();
    if (ended) return;
    detail::report("slicepool::Allocator", ended.error());
    const result<void> forced = try_destroy(SLICEPOOL_DESTROY_FORCE);
    if (!forced) detail::report("slicepool::Allocator, whose memory is lost", forced.error());
  }

  /** slicepool_allocator_create(). */
  template <class Device>
  static result<Allocator> try_create(Device &&device, const slicepool_allocator_config &config = slicepool::allocator_config()) {
    return create(std::forward<Device>(device), config, nullptr, 0);
  }

  /** slicepool_allocator_create_in(): all books in a block that has to live longer. (A few bytes for this object apart.) */
  template <class Device>
  static result<Allocator> try_create_in(void *memory, std::uint64_t bytes, Device &&device,
                                         const slicepool_allocator_config &config = slicepool::allocator_config()) {
    if (memory == nullptr) return failure(SLICEPOOL_ERROR_INVALID_ARGUMENT);
    return create(std::forward<Device>(device), config, memory, bytes);
  }

  /** The allocator for calls of slicepool.h; NULL if this is empty. */
  slicepool_allocator *get() const noexcept { return link_.object(); }
  explicit operator bool() const noexcept { return get() != nullptr; }

  /**
   * Lets go of the allocator: the caller's to destroy, and so are the slices, which all Slice objects let go of. A device
   * that was handed over is never destroyed then.
   */
  slicepool_allocator *release() noexcept {
    slicepool_allocator *const allocator = get();
    if (allocator != nullptr) {
      link_.of->device.kept = nullptr;
      leave();
    }
    return allocator;
  }

  /** slicepool_allocator_destroy(): everything is as before if that fails. */
  result<void> try_destroy(std::uint32_t flags = 0) noexcept {
    slicepool_allocator *const allocator = get();
    if (allocator == nullptr) return link_.gone();
    detail::call call(link_.device());
    const slicepool_result code = slicepool_allocator_destroy(allocator, flags, call.details());
    if (code != SLICEPOOL_OK) return call.failed(code);
    leave();
    return {};
  }

  /**
   * slicepool_allocator_abandon(): for a lost device, or with SLICEPOOL_ABANDON_FORKED in a forked child, where a device that
   * was handed over is not destroyed.
   */
  result<void> try_abandon(std::uint32_t flags = 0) noexcept {
    const slicepool_result code = slicepool_allocator_abandon(get(), flags);
    if (code != SLICEPOOL_OK) return failure(code);
    if ((flags & SLICEPOOL_ABANDON_FORKED) != 0) {
      detail::leave_behind(*link_.of);
      link_ = {};
    } else {
      leave();
    }
    return {};
  }

  /** slicepool_allocate(). */
  result<Slice> try_allocate(const slicepool_request &request) noexcept {
    slicepool_allocator *const allocator = get();
    if (allocator == nullptr) return link_.gone();
    detail::call call(link_.device());
    slicepool_request asked = request;
    asked.failure = call.details();
    auto slice = defaults<slicepool_slice>();
    const slicepool_result code = slicepool_allocate(allocator, &asked, &slice);
    if (code != SLICEPOOL_OK) {
      const failure why = call.failed(code);
      if (request.failure != nullptr) detail::copy_details(why, *request.failure);
      return why;
    }
    return Slice(link_, slice);
  }
  result<Slice> try_allocate(std::uint64_t size, std::uint64_t alignment = 0, std::uint32_t flags = 0) noexcept {
    return try_allocate(request(size, alignment, flags));
  }

  /** slicepool_allocate_many(): a slice for each request, or none at all. */
  result<std::vector<Slice>> try_allocate_many(const slicepool_request *requests, std::uint32_t count) {
    slicepool_allocator *const allocator = get();
    if (allocator == nullptr) return link_.gone();
    detail::call call(link_.device());
    std::vector<slicepool_request> asked(requests, requests + count);
    for (slicepool_request &one : asked) one.failure = call.details();
    std::vector<slicepool_slice> placed(count, defaults<slicepool_slice>());
    std::vector<Slice> slices;
    slices.reserve(count);
    const slicepool_result code = slicepool_allocate_many(allocator, asked.data(), count, placed.data());
    if (code != SLICEPOOL_OK) return call.failed(code);
    for (const slicepool_slice &slice : placed) slices.push_back(Slice(link_, slice));
    return slices;
  }
  result<std::vector<Slice>> try_allocate_many(const std::vector<slicepool_request> &requests) {
    return try_allocate_many(requests.data(), static_cast<std::uint32_t>(requests.size()));
  }

  /** Becomes the owner of a live slice, say of one that Slice::release() let go of. At most one may own it. */
  result<Slice> try_own(std::uint64_t id) noexcept {
    auto slice = defaults<slicepool_slice>();
    const slicepool_result code = slicepool_slice_get(get(), id, &slice);
    if (code != SLICEPOOL_OK) return failure(code);
    return Slice(link_, slice);
  }

  /** slicepool_free_many(): slices without a Slice, all or none. */
  result<void> try_free_many(const std::uint64_t *ids, std::uint32_t count) noexcept {
    return checked([&](slicepool_failure *details) { return slicepool_free_many(get(), ids, count, details); });
  }

  /** Frees slices that all wait for the same points: all or none. They are empty if that succeeds. */
  result<void> try_free_after_many(std::vector<Slice> &slices, std::initializer_list<slicepool_point> points) {
    std::vector<std::uint64_t> ids;
    ids.reserve(slices.size());
    for (const Slice &slice : slices) ids.push_back(slice.id());
    result<void> freed = checked([&](slicepool_failure *details) {
      return slicepool_free_after_many(get(), ids.data(), static_cast<std::uint32_t>(ids.size()), points.begin(),
                                       static_cast<std::uint32_t>(points.size()), details);
    });
    if (freed) {
      for (Slice &slice : slices) slice.release();
    }
    return freed;
  }

  /** slicepool_collect(): the device has completed everything up to `completed` on a timeline. */
  result<void> try_collect(std::uint32_t timeline, std::uint64_t completed) noexcept {
    return checked([&](slicepool_failure *details) { return slicepool_collect(get(), timeline, completed, details); });
  }

  /** slicepool_timeline_forget(). */
  result<void> try_timeline_forget(std::uint32_t timeline) noexcept {
    return detail::outcome(slicepool_timeline_forget(get(), timeline));
  }

  /** slicepool_trim(). */
  result<void> try_trim(std::uint64_t min_keep_bytes = 0) noexcept {
    return checked([&](slicepool_failure *details) { return slicepool_trim(get(), min_keep_bytes, details); });
  }

  /** slicepool_cleanup(). */
  result<void> try_cleanup() noexcept {
    return checked([&](slicepool_failure *details) { return slicepool_cleanup(get(), details); });
  }

  /** slicepool_prefill(). */
  result<void> try_prefill(std::uint32_t pool, std::uint32_t pages) noexcept {
    return checked([&](slicepool_failure *details) { return slicepool_prefill(get(), pool, pages, details); });
  }

  /** slicepool_adopt(): memory that the program owns becomes a page. */
  result<void> try_adopt(std::uint32_t pool, const slicepool_device_memory &memory) noexcept {
    return checked([&](slicepool_failure *details) { return slicepool_adopt(get(), pool, &memory, details); });
  }

  /** slicepool_install_pools(). */
  result<void> try_install_pools(const std::vector<slicepool_pool_options> &pools) noexcept {
    return checked([&](slicepool_failure *details) {
      return slicepool_install_pools(get(), pools.data(), static_cast<std::uint32_t>(pools.size()), details);
    });
  }

  /** slicepool_check_margins(). */
  result<void> try_check_margins() noexcept {
    return checked([&](slicepool_failure *details) { return slicepool_check_margins(get(), details); });
  }

  /** slicepool_would_fit(). */
  result<bool> try_would_fit(const slicepool_request &request) noexcept {
    std::uint32_t fits = 0;
    const slicepool_result code = slicepool_would_fit(get(), &request, &fits);
    if (code != SLICEPOOL_OK) return failure(code);
    return fits != 0;
  }

  /** slicepool_largest_free(): bytes. */
  result<std::uint64_t> try_largest_free() noexcept {
    std::uint64_t bytes = 0;
    const slicepool_result code = slicepool_largest_free(get(), &bytes);
    if (code != SLICEPOOL_OK) return failure(code);
    return bytes;
  }

  /** slicepool_statistics_get(). */
  result<slicepool_statistics> try_statistics() const noexcept {
    return detail::filled<slicepool_statistics>([&](auto *figures) { return slicepool_statistics_get(get(), figures); });
  }

  /** slicepool_pool_statistics_get(). */
  result<slicepool_statistics> try_pool_statistics(std::uint32_t pool) const noexcept {
    return detail::filled<slicepool_statistics>(
        [&](auto *figures) { return slicepool_pool_statistics_get(get(), pool, figures); });
  }

  /** slicepool_type_statistics_get(). */
  result<slicepool_statistics> try_type_statistics(std::uint32_t memory_type) const noexcept {
    return detail::filled<slicepool_statistics>(
        [&](auto *figures) { return slicepool_type_statistics_get(get(), memory_type, figures); });
  }

  /** slicepool_heap_statistics_get(). */
  result<heap_figures> try_heap_statistics(std::uint32_t heap) const noexcept {
    heap_figures of{defaults<slicepool_statistics>(), defaults<slicepool_heap_budget>()};
    const slicepool_result code = slicepool_heap_statistics_get(get(), heap, &of.statistics, &of.budget);
    if (code != SLICEPOOL_OK) return failure(code);
    return of;
  }

  /** slicepool_find(). */
  result<slicepool_range> try_find(std::uint64_t memory, std::uint64_t offset) const noexcept {
    return detail::filled<slicepool_range>([&](auto *range) { return slicepool_find(get(), memory, offset, range); });
  }

  /** slicepool_find_address(). */
  result<slicepool_range> try_find_address(std::uint64_t address) const noexcept {
    return detail::filled<slicepool_range>([&](auto *range) { return slicepool_find_address(get(), address, range); });
  }

  /** slicepool_pool_options_get(). */
  result<slicepool_pool_options> try_pool_options(std::uint32_t pool) const noexcept {
    return detail::filled<slicepool_pool_options>(
        [&](auto *options) { return slicepool_pool_options_get(get(), pool, options); });
  }

  /** slicepool_plan(): the pools as their peaks have shown that they have to be. */
  result<std::vector<slicepool_pool_options>> try_plan() const {
    return detail::listed_pools(
        [&](auto *pools, std::uint32_t capacity, std::uint32_t *count) { return slicepool_plan(get(), pools, capacity, count); });
  }

  /**
   * slicepool_walk(): calls `visit(const slicepool_range &)`, which answers nothing, or false to be shown nothing more. What it
   * throws ends the walk and is thrown again, by this form too.
   */
  template <class Visit>
  result<void> try_walk(Visit &&visit) const {
    detail::visitor<slicepool_range, std::remove_reference_t<Visit>> shown{visit};
    return shown.end(slicepool_walk(get(), shown.show, &shown));
  }

  /** slicepool_report_json(). */
  result<std::string> try_report_json() const {
    std::string report;
    std::uint64_t needed = 0;
    slicepool_result code = slicepool_report_json(get(), nullptr, 0, &needed);
    /* Figures may have grown when it is written. */
    while (code == SLICEPOOL_OK && needed > report.size()) {
      report.resize(static_cast<std::size_t>(needed) + 64);
      code = slicepool_report_json(get(), report.data(), report.size(), &needed);
    }
    if (code != SLICEPOOL_OK) return failure(code);
    report.resize(static_cast<std::size_t>(needed) - 1);
    return report;
  }

#ifndef SLICEPOOL_NO_EXCEPTIONS
  template <class Device, class = std::enable_if_t<!std::is_same_v<std::decay_t<Device>, Allocator>>>
  explicit Allocator(Device &&device, const slicepool_allocator_config &config = slicepool::allocator_config())
      : Allocator(try_create(std::forward<Device>(device), config).value()) {}
  template <class Device>
  static Allocator create_in(void *memory, std::uint64_t bytes, Device &&device,
                             const slicepool_allocator_config &config = slicepool::allocator_config()) {
    return try_create_in(memory, bytes, std::forward<Device>(device), config).value();
  }

  void destroy(std::uint32_t flags = 0) { try_destroy(flags).value(); }
  void abandon(std::uint32_t flags = 0) { try_abandon(flags).value(); }
  Slice allocate(const slicepool_request &request) { return try_allocate(request).value(); }
  Slice allocate(std::uint64_t size, std::uint64_t alignment = 0, std::uint32_t flags = 0) {
    return try_allocate(size, alignment, flags).value();
  }
  std::vector<Slice> allocate_many(const slicepool_request *requests, std::uint32_t count) {
    return try_allocate_many(requests, count).value();
  }
  std::vector<Slice> allocate_many(const std::vector<slicepool_request> &requests) {
    return try_allocate_many(requests).value();
  }
  Slice own(std::uint64_t id) { return try_own(id).value(); }
  void free_many(const std::uint64_t *ids, std::uint32_t count) { try_free_many(ids, count).value(); }
  void free_after_many(std::vector<Slice> &slices, std::initializer_list<slicepool_point> points) {
    try_free_after_many(slices, points).value();
  }
  void collect(std::uint32_t timeline, std::uint64_t completed) { try_collect(timeline, completed).value(); }
  void timeline_forget(std::uint32_t timeline) { try_timeline_forget(timeline).value(); }
  void trim(std::uint64_t min_keep_bytes = 0) { try_trim(min_keep_bytes).value(); }
  void cleanup() { try_cleanup().value(); }
  void prefill(std::uint32_t pool, std::uint32_t pages) { try_prefill(pool, pages).value(); }
  void adopt(std::uint32_t pool, const slicepool_device_memory &memory) { try_adopt(pool, memory).value(); }
  void install_pools(const std::vector<slicepool_pool_options> &pools) { try_install_pools(pools).value(); }
  void check_margins() { try_check_margins().value(); }
  bool would_fit(const slicepool_request &request) { return try_would_fit(request).value(); }
  std::uint64_t largest_free() { return try_largest_free().value(); }
  slicepool_statistics statistics() const { return try_statistics().value(); }
  slicepool_statistics pool_statistics(std::uint32_t pool) const { return try_pool_statistics(pool).value(); }
  slicepool_statistics type_statistics(std::uint32_t type) const { return try_type_statistics(type).value(); }
  heap_figures heap_statistics(std::uint32_t heap) const { return try_heap_statistics(heap).value(); }
  slicepool_range find(std::uint64_t memory, std::uint64_t offset) const { return try_find(memory, offset).value(); }
  slicepool_range find_address(std::uint64_t address) const { return try_find_address(address).value(); }
  slicepool_pool_options pool_options(std::uint32_t pool) const { return try_pool_options(pool).value(); }
  std::vector<slicepool_pool_options> plan() const { return try_plan().value(); }
  template <class Visit>
  void walk(Visit &&visit) const { try_walk(visit).value(); }
  std::string report_json() const { return try_report_json().value(); }
#endif

 private:
  friend class memory_resource;

  template <class Device>
  static result<Allocator> create(Device &&device, const slicepool_allocator_config &config, void *memory,
                                  std::uint64_t bytes) {
    result<detail::kept_device> kept = detail::keep(std::forward<Device>(device));
    if (!kept) return kept.error();
    detail::call call(kept->table.user_data);
    slicepool_allocator_config asked = config;
    asked.failure = call.details();
    slicepool_allocator *allocator = nullptr;
    slicepool_result code = memory == nullptr
                                ? slicepool_allocator_create(&kept->table, &asked, &allocator)
                                : slicepool_allocator_create_in(&kept->table, &asked, memory, bytes, &allocator);
    if (code == SLICEPOOL_OK) {
      detail::cell *const cell = detail::take_cell(allocator, *kept);
      if (cell != nullptr) {
        Allocator created;
        created.link_ = detail::link<slicepool_allocator>(cell);
        return created;
      }
      slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, nullptr);
      code = SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY;
    }
    const failure why = call.failed(code);
    kept->drop();
    if (config.failure != nullptr) detail::copy_details(why, *config.failure);
    return why;
  }

  template <class Call>
  result<void> checked(Call &&function) noexcept {
    if (get() == nullptr) return link_.gone();
    detail::call call(link_.device());
    return detail::outcome(function(call.details()), call);
  }

  void leave() noexcept {
    detail::retire(*link_.of);
    link_ = {};
  }

  detail::link<slicepool_allocator> link_;
};

/** slicepool_config_pools(): the pools that an allocator of this config would have. */
inline result<std::vector<slicepool_pool_options>> try_config_pools(const slicepool_allocator_config &of) {
  return detail::listed_pools(
      [&](auto *pools, std::uint32_t capacity, std::uint32_t *count) { return slicepool_config_pools(&of, pools, capacity, count); });
}

#ifndef SLICEPOOL_NO_EXCEPTIONS
inline std::vector<slicepool_pool_options> config_pools(const slicepool_allocator_config &of) {
  return try_config_pools(of).value();
}
#endif

}  // inline namespace
}  // namespace slicepool

#endif
