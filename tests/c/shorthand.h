/* Short forms for what nearly every test does, and the comparison of an allocator's figures with a walk through it. */
#ifndef SHORTHAND_H
#define SHORTHAND_H

#include "mock_device.h"

/* ---- allocators */

static inline slicepool_pool_options sliced(uint64_t page_size, uint64_t max_slice_size, uint64_t max_pool_size,
                                            uint64_t granule) {
  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  pool.kind = SLICEPOOL_POOL_SLICED_PAGES;
  pool.page_size = page_size;
  pool.max_slice_size = max_slice_size;
  pool.max_pool_size = max_pool_size;
  pool.granule = granule;
  return pool;
}

/* Pages that grow from `page_size` to `max_page_size`. */
static inline slicepool_pool_options growing(uint64_t page_size, uint64_t max_page_size, uint64_t granule) {
  slicepool_pool_options pool = sliced(page_size, 0, 0, granule);
  pool.max_page_size = max_page_size;
  return pool;
}

static inline slicepool_pool_options exclusive(uint64_t max_alloc_size, uint64_t granule) {
  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  pool.kind = SLICEPOOL_POOL_EXCLUSIVE_PAGES;
  pool.max_alloc_size = max_alloc_size;
  pool.granule = granule;
  return pool;
}

static inline slicepool_pool_options direct(uint64_t reclaim_at, uint64_t granule) {
  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  pool.kind = SLICEPOOL_POOL_DIRECT;
  pool.reclaim_at = reclaim_at;
  pool.granule = granule;
  return pool;
}

static inline slicepool_pool_options ageing(slicepool_pool_options pool, uint64_t dealloc_period) {
  pool.dealloc_period = dealloc_period;
  return pool;
}

static inline slicepool_pool_options capped(slicepool_pool_options pool, uint64_t max_pool_size) {
  pool.max_pool_size = max_pool_size;
  return pool;
}

static inline slicepool_memory_type type_in(uint32_t heap, uint32_t properties) {
  slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
  type.heap = heap;
  type.properties = properties;
  return type;
}

static inline slicepool_heap heap_of(uint64_t size, uint64_t limit) {
  slicepool_heap heap = SLICEPOOL_HEAP_INIT;
  heap.size = size;
  heap.limit = limit;
  return heap;
}

/* The same pool of another memory type. */
static inline slicepool_pool_options of_type(slicepool_pool_options pool, uint32_t memory_type) {
  pool.memory_type = memory_type;
  return pool;
}

/* What a test cannot do without: says why an allocator does not come to be. */
static inline slicepool_allocator *create_of(const slicepool_device *table, slicepool_allocator_config config) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  config.failure = &failure;
  slicepool_allocator *allocator = NULL;
  slicepool_result result = slicepool_allocator_create(table, &config, &allocator);
  if (result != SLICEPOOL_OK)
    FAIL("creating answers %d for %s = %" PRIu64, result, failure.field == NULL ? "?" : failure.field, failure.value);
  CHECK(allocator != NULL);
  return allocator;
}

/* A config of these pools, which have to outlive it. */
static inline slicepool_allocator_config config_for(const slicepool_pool_options *pools, uint32_t count) {
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.pools = pools;
  config.pool_count = count;
  return config;
}

static inline slicepool_allocator *create_over(const slicepool_device *table, const slicepool_pool_options *pools,
                                               uint32_t count, uint64_t page_alignment) {
  slicepool_allocator_config config = config_for(pools, count);
  config.page_alignment = page_alignment;
  return create_of(table, config);
}

/* One pool over the mock device. */
static inline slicepool_allocator *create(struct mock_device *device, slicepool_pool_options pool) {
  slicepool_device table = mock_table(device);
  return create_over(&table, &pool, 1, 0);
}

/* Pools, or the adaptive ones if there are none, of an allocator that has limits of its own. */
static inline slicepool_allocator *create_limited(struct mock_device *device, const slicepool_pool_options *pools,
                                                  uint32_t count, uint64_t max_bytes, uint32_t max_pages) {
  const slicepool_device table = mock_table(device);
  slicepool_allocator_config config = config_for(pools, count);
  config.max_bytes = max_bytes;
  config.max_pages = max_pages;
  return create_of(&table, config);
}

/* Pools over a fresh mock device whose pages are aligned to 32 and have at most 128 MiB. */
static inline slicepool_allocator *create_list(struct mock_device *device, const slicepool_pool_options *pools,
                                               uint32_t count) {
  mock_init(device);
  slicepool_device table = mock_table(device);
  slicepool_allocator_config config = config_for(pools, count);
  config.max_page = 128 * MIB;
  config.page_alignment = 32;
  return create_of(&table, config);
}

static inline slicepool_allocator *create_one(struct mock_device *device, slicepool_pool_options pool) {
  return create_list(device, &pool, 1);
}

/* A pool of every kind, of granule 32. All take requests of 1 to 64 KiB; those with a cap have room for 1 MiB. */
struct kind {
  const char *name;
  slicepool_pool_options pool;
};

enum { KINDS = 7 };

static inline struct kind kind_of(int index) {
  const struct kind kinds[KINDS] = {
    { "sliced", sliced(64 * KIB, 0, 0, 32) },
    { "sliced, capped", sliced(64 * KIB, 0, MIB, 32) },
    { "growing", growing(16 * KIB, 256 * KIB, 32) },
    { "growing, capped", capped(growing(16 * KIB, 256 * KIB, 32), MIB) },
    { "exclusive", exclusive(64 * KIB, 32) },
    { "direct", direct(0, 32) },
    { "direct with a watermark", direct(256 * KIB, 32) },
  };
  CHECK(index >= 0 && index < KINDS);
  return kinds[index];
}

/* Whether every slice has a page of its own. */
static inline bool has_whole_pages(slicepool_pool_options pool) { return pool.kind != SLICEPOOL_POOL_SLICED_PAGES; }

/* ---- slices */

static inline slicepool_result try_take(slicepool_allocator *allocator, uint64_t size, uint64_t alignment,
                                        slicepool_slice *slice, slicepool_failure *failure) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = size;
  request.alignment = alignment;
  request.failure = failure;
  return slicepool_allocate(allocator, &request, slice);
}

static inline slicepool_slice take_aligned(slicepool_allocator *allocator, uint64_t size, uint64_t alignment) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  OK(try_take(allocator, size, alignment, &slice, NULL));
  CHECK(slice.id != 0);
  CHECK(slice.size >= size);
  CHECK(slice.user_data == NULL);
  CHECK_EQ(slice.reserved, 0);
  if (alignment != 0) CHECK_EQ(slice.offset & (alignment - 1), 0);
  return slice;
}

static inline slicepool_slice take(slicepool_allocator *allocator, uint64_t size) {
  return take_aligned(allocator, size, 0);
}

/* Of one pool. */
static inline slicepool_result try_take_in(slicepool_allocator *allocator, uint32_t pool, uint64_t size,
                                           slicepool_slice *slice, slicepool_failure *failure) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = size;
  request.flags = SLICEPOOL_REQUEST_IN_POOL;
  request.pool = pool;
  request.failure = failure;
  return slicepool_allocate(allocator, &request, slice);
}

static inline slicepool_slice take_in(slicepool_allocator *allocator, uint32_t pool, uint64_t size) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  OK(try_take_in(allocator, pool, size, &slice, NULL));
  CHECK(slice.id != 0 && slice.size >= size);
  return slice;
}

/* Allocates and frees at once; the slice that was. */
static inline slicepool_slice touch(slicepool_allocator *allocator, uint64_t size) {
  slicepool_slice slice = take(allocator, size);
  OK(slicepool_free(allocator, slice.id));
  return slice;
}

/* SLICEPOOL_REQUEST_ flags that name no pool. */
static inline slicepool_result try_take_flagged(slicepool_allocator *allocator, uint64_t size, uint32_t flags,
                                                slicepool_slice *slice, slicepool_failure *failure) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = size;
  request.flags = flags;
  request.failure = failure;
  return slicepool_allocate(allocator, &request, slice);
}

static inline slicepool_slice take_flagged(slicepool_allocator *allocator, uint64_t size, uint32_t flags) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  OK(try_take_flagged(allocator, size, flags, &slice, NULL));
  CHECK(slice.id != 0 && slice.size >= size);
  return slice;
}

/* Frees a slice that waits for one value of a timeline. */
static inline void free_at(slicepool_allocator *allocator, uint64_t id, uint32_t timeline, uint64_t value) {
  const slicepool_point point = { timeline, 0, value };
  OK(slicepool_free_after(allocator, id, &point, 1, NULL));
}

static inline void collect(slicepool_allocator *allocator, uint32_t timeline, uint64_t completed) {
  OK(slicepool_collect(allocator, timeline, completed, NULL));
}

static inline bool would_fit(slicepool_allocator *allocator, uint64_t size) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = size;
  uint32_t fits = 7;
  OK(slicepool_would_fit(allocator, &request, &fits));
  CHECK_LE(fits, 1);
  return fits == 1;
}

/* The request is refused with this result; answers the details. */
static inline slicepool_failure refused(slicepool_allocator *allocator, uint64_t size, uint64_t alignment,
                                        slicepool_result expected) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  CHECK_RESULT(try_take(allocator, size, alignment, &slice, &failure), expected);
  CHECK_EQ(failure.result, expected);
  CHECK_EQ(failure.struct_size, sizeof failure);
  CHECK_EQ(slice.id, 0);
  return failure;
}

static inline slicepool_failure refused_in(slicepool_allocator *allocator, uint32_t pool, uint64_t size,
                                           slicepool_result expected) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  CHECK_RESULT(try_take_in(allocator, pool, size, &slice, &failure), expected);
  CHECK_EQ(failure.result, expected);
  CHECK_EQ(slice.id, 0);
  return failure;
}

static inline slicepool_range find_in(slicepool_allocator *allocator, uint64_t memory, uint64_t offset) {
  slicepool_range range = SLICEPOOL_RANGE_INIT;
  OK(slicepool_find(allocator, memory, offset, &range));
  return range;
}

static inline slicepool_slice look_up(slicepool_allocator *allocator, uint64_t id) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  OK(slicepool_slice_get(allocator, id, &slice));
  return slice;
}

static inline bool same_slice(const slicepool_slice *a, const slicepool_slice *b) {
  return memcmp(a, b, sizeof *a) == 0;
}

/* ---- figures */

static inline slicepool_statistics figures_of(slicepool_allocator *allocator) {
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  OK(slicepool_statistics_get(allocator, &figures));
  CHECK_EQ(figures.reserved_bytes, figures.in_use_bytes + figures.padding_bytes + figures.pending_bytes +
                                       figures.free_bytes + figures.leaving_bytes + figures.stuck_bytes);
  CHECK_LE(figures.unmapped_bytes, figures.reserved_bytes);
  return figures;
}

static inline slicepool_statistics figures_in(slicepool_allocator *allocator, uint32_t pool) {
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  OK(slicepool_pool_statistics_get(allocator, pool, &figures));
  CHECK_EQ(figures.pools, 1);
  CHECK_EQ(figures.reserved_bytes, figures.in_use_bytes + figures.padding_bytes + figures.pending_bytes +
                                       figures.free_bytes + figures.leaving_bytes + figures.stuck_bytes);
  CHECK_LE(figures.unmapped_bytes, figures.reserved_bytes);
  return figures;
}

static inline slicepool_pool_options options_in(slicepool_allocator *allocator, uint32_t pool) {
  slicepool_pool_options options = SLICEPOOL_POOL_OPTIONS_INIT;
  OK(slicepool_pool_options_get(allocator, pool, &options));
  CHECK_EQ(options.struct_size, sizeof options);
  CHECK_EQ(options.reserved, 0);
  return options;
}

static inline uint64_t largest_free_of(slicepool_allocator *allocator) {
  uint64_t largest = 0;
  OK(slicepool_largest_free(allocator, &largest));
  return largest;
}

/* The ranges of an allocator, in the order of their addresses. */
struct ranges {
  slicepool_range *list;
  size_t count, room;
};

static inline int32_t collect_range(void *user_data, const slicepool_range *range) {
  struct ranges *ranges = user_data;
  CHECK_EQ(range->struct_size, sizeof *range);
  if (ranges->count == ranges->room) {
    ranges->room = ranges->room == 0 ? 64 : ranges->room * 2;
    ranges->list = realloc(ranges->list, ranges->room * sizeof *ranges->list);
    CHECK(ranges->list != NULL);
  }
  ranges->list[ranges->count++] = *range;
  return SLICEPOOL_WALK_CONTINUE;
}

static inline int compare_ranges(const void *left, const void *right) {
  const slicepool_range *a = left, *b = right;
  if (a->memory != b->memory) return a->memory < b->memory ? -1 : 1;
  return a->offset < b->offset ? -1 : a->offset > b->offset;
}

static inline struct ranges ranges_of(slicepool_allocator *allocator) {
  struct ranges ranges = { NULL, 0, 0 };
  OK(slicepool_walk(allocator, collect_range, &ranges));
  if (ranges.count != 0) qsort(ranges.list, ranges.count, sizeof *ranges.list, compare_ranges);
  return ranges;
}

/* Number of memory types. */
static inline uint32_t types_of(slicepool_allocator *allocator) {
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  uint32_t count = 0;
  while (slicepool_type_statistics_get(allocator, count, &figures) == SLICEPOOL_OK) count++;
  return count;
}

enum { POOLS_MAX = 256 + 32 * 3 };

/* The pools of an allocator, those of slices with pages of their own included. */
static inline uint32_t pools_of(slicepool_allocator *allocator, uint32_t pools[POOLS_MAX]) {
  uint32_t count = figures_of(allocator).pools;
  for (uint32_t i = 0; i < count; i++) pools[i] = i;
  const uint32_t types = types_of(allocator);
  for (uint32_t i = 0; i < types * 3; i++) {
    slicepool_pool_options options = SLICEPOOL_POOL_OPTIONS_INIT;
    const uint32_t pool = slicepool_own_pool(i % 3, i / 3);
    if (slicepool_pool_options_get(allocator, pool, &options) == SLICEPOOL_OK) pools[count++] = pool;
  }
  return count;
}

/* The figures of the allocator are those of its pools together, and those of its memory types. */
static inline void check_sums(slicepool_allocator *allocator) {
  const slicepool_statistics all = figures_of(allocator);
  slicepool_statistics sum = SLICEPOOL_STATISTICS_INIT;
  uint32_t pools[POOLS_MAX];
  const uint32_t count = pools_of(allocator, pools);
  uint64_t of_types = 0;
  for (uint32_t type = 0; type < types_of(allocator); type++) {
    slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
    OK(slicepool_type_statistics_get(allocator, type, &figures));
    CHECK_LE(figures.reserved_bytes, figures.reserved_peak_bytes);
    of_types += figures.reserved_bytes;
  }
  CHECK_EQ(of_types, all.reserved_bytes);
  for (uint32_t i = 0; i < count; i++) {
    const slicepool_statistics part = figures_in(allocator, pools[i]);
    sum.reserved_bytes += part.reserved_bytes;
    sum.in_use_bytes += part.in_use_bytes;
    sum.padding_bytes += part.padding_bytes;
    sum.pending_bytes += part.pending_bytes;
    sum.unmapped_bytes += part.unmapped_bytes;
    sum.free_bytes += part.free_bytes;
    sum.leaving_bytes += part.leaving_bytes;
    sum.stuck_bytes += part.stuck_bytes;
    sum.metadata_bytes += part.metadata_bytes;
    sum.device_allocations += part.device_allocations;
    sum.device_deallocations += part.device_deallocations;
    sum.slices += part.slices;
    sum.slices_pending += part.slices_pending;
    sum.pages_unmapped += part.pages_unmapped;
    sum.free_ranges += part.free_ranges;
    sum.pages += part.pages;
    sum.pages_idle += part.pages_idle;
    sum.pages_stuck += part.pages_stuck;
    sum.growths_in_flight += part.growths_in_flight;
    if (part.largest_allocation_bytes > sum.largest_allocation_bytes)
      sum.largest_allocation_bytes = part.largest_allocation_bytes;
  }
  CHECK_EQ(all.reserved_bytes, sum.reserved_bytes);
  CHECK_EQ(all.in_use_bytes, sum.in_use_bytes);
  CHECK_EQ(all.padding_bytes, sum.padding_bytes);
  CHECK_EQ(all.pending_bytes, sum.pending_bytes);
  CHECK_EQ(all.unmapped_bytes, sum.unmapped_bytes);
  CHECK_EQ(all.free_bytes, sum.free_bytes);
  CHECK_EQ(all.leaving_bytes, sum.leaving_bytes);
  CHECK_EQ(all.stuck_bytes, sum.stuck_bytes);
  CHECK_LE(sum.metadata_bytes, all.metadata_bytes);
  CHECK_EQ(all.device_allocations, sum.device_allocations);
  CHECK_EQ(all.device_deallocations, sum.device_deallocations);
  CHECK_EQ(all.slices, sum.slices);
  CHECK_EQ(all.slices_pending, sum.slices_pending);
  CHECK_EQ(all.pages_unmapped, sum.pages_unmapped);
  CHECK_LE(all.pages, all.pages_peak);
  CHECK_EQ(all.free_ranges, sum.free_ranges);
  CHECK_EQ(all.pages, sum.pages);
  CHECK_EQ(all.pages_idle, sum.pages_idle);
  CHECK_EQ(all.pages_stuck, sum.pages_stuck);
  CHECK_EQ(all.growths_in_flight, sum.growths_in_flight);
  CHECK_EQ(all.largest_allocation_bytes, sum.largest_allocation_bytes);
  CHECK_LE(all.in_use_bytes, all.in_use_peak_bytes);
  CHECK_LE(all.reserved_bytes, all.reserved_peak_bytes);
  CHECK_EQ(all.reserved, 0);
}

/* The walk tiles every page, holes are joined, every handle resolves, and the figures say the same. */
static inline void check_books(slicepool_allocator *allocator, const struct mock_device *device) {
  check_sums(allocator);
  slicepool_statistics figures = figures_of(allocator);
  uint32_t pools[POOLS_MAX];
  const uint32_t pool_count = pools_of(allocator, pools);
  slicepool_pool_options *options = calloc(pool_count, sizeof *options);
  CHECK(options != NULL);
  for (uint32_t i = 0; i < pool_count; i++) options[i] = options_in(allocator, pools[i]);
  struct ranges ranges = ranges_of(allocator);
  uint64_t in_use = 0, padding = 0, unused = 0, largest = 0, slices = 0, holes = 0, pages = 0, idle = 0;
  uint64_t pending = 0, waiting = 0;
  for (size_t i = 0; i < ranges.count; i++) {
    const slicepool_range *range = &ranges.list[i];
    const slicepool_range *before = i == 0 || range[-1].memory != range->memory ? NULL : range - 1;
    CHECK(range->size != 0);
    uint32_t place = 0;
    while (place < pool_count && pools[place] != range->pool) place++;
    CHECK(place < pool_count);
    const slicepool_pool_options *pool = &options[place];
    CHECK_EQ(range->memory_type, pool->memory_type);
    const bool is_free = range->kind == SLICEPOOL_RANGE_FREE;
    CHECK_EQ(range->id != 0, range->kind == SLICEPOOL_RANGE_SLICE);
    CHECK_EQ((range->offset | range->size) & (pool->granule - 1), 0);
    CHECK_EQ(range->offset, before == NULL ? 0 : before->offset + before->size);
    CHECK(before == NULL || before->kind != SLICEPOOL_RANGE_FREE || !is_free);
    if (before == NULL) {
      pages++;
      if (is_free && (i + 1 == ranges.count || range[1].memory != range->memory)) idle++;
    }
    /* Where a slice has a page of its own, it fills it. */
    if (has_whole_pages(*pool)) {
      CHECK_EQ(range->offset, 0);
      CHECK(i + 1 == ranges.count || range[1].memory != range->memory);
    }
    if (range->kind == SLICEPOOL_RANGE_PENDING) {
      CHECK_EQ(range->requested, 0);
      waiting++;
      pending += range->size;
      continue;
    }
    if (is_free) {
      CHECK_EQ(range->requested, 0);
      holes++;
      unused += range->size;
      if (range->size > largest) largest = range->size;
      continue;
    }
    slicepool_slice slice = look_up(allocator, range->id);
    CHECK(slice.id == range->id && slice.memory == range->memory);
    CHECK(slice.offset == range->offset && slice.size == range->size);
    CHECK_LE(range->requested, range->size);
    CHECK_EQ(range->requested == 0, pool->kind == SLICEPOOL_POOL_EXCLUSIVE_PAGES && pool->max_alloc_size == 0);
    slices++;
    in_use += range->requested;
    padding += range->size - range->requested;
  }
  free(ranges.list);
  free(options);
  CHECK_EQ(figures.slices, slices);
  CHECK_EQ(figures.free_ranges, holes);
  CHECK_EQ(figures.in_use_bytes, in_use);
  CHECK_EQ(figures.padding_bytes, padding);
  CHECK_EQ(figures.pending_bytes, pending);
  CHECK_EQ(figures.slices_pending, waiting);
  CHECK_EQ(figures.free_bytes, unused);
  CHECK_EQ(figures.pages, pages);
  CHECK_EQ(figures.pages_idle, idle);
  CHECK_EQ(figures.growths_in_flight, 0);
  CHECK_EQ(figures.leaving_bytes, 0);
  CHECK_EQ(largest_free_of(allocator), largest);
  CHECK_LE(figures.largest_free_bound_bytes, largest);
  CHECK((figures.largest_free_bound_bytes == 0) == (largest == 0));
  if (device != NULL) {
    CHECK_EQ(figures.reserved_bytes, device->bytes);
    CHECK_EQ(figures.pages + figures.pages_stuck, device->live);
    CHECK_EQ(figures.device_allocations, device->given);
    CHECK_EQ(figures.device_deallocations, device->taken);
  }
}

/* The range of a walk is this. */
#define CHECK_RANGE(range, is_live, at, length)   \
  do {                                            \
    CHECK_EQ((range).id != 0, (is_live));         \
    CHECK_EQ((range).offset, (at));               \
    CHECK_EQ((range).size, (length));             \
  } while (0)

static inline uint32_t pending_in(slicepool_allocator *allocator) { return figures_of(allocator).slices_pending; }

/* ---- the end */

/* Destroys an allocator that holds no slices; every page goes back, and no callback comes afterwards. */
static inline void finish(slicepool_allocator *allocator, struct mock_device *device) {
  check_books(allocator, device);
  CHECK_EQ(figures_of(allocator).slices, 0);
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  mock_end(device);
}

/* ---- spaces */

static inline slicepool_space *create_space(uint64_t size, uint64_t granule) {
  slicepool_space_config config = SLICEPOOL_SPACE_CONFIG_INIT;
  config.size = size;
  config.granule = granule;
  slicepool_space *space = NULL;
  OK(slicepool_space_create(&config, &space));
  CHECK(space != NULL);
  return space;
}

static inline slicepool_result try_cut(slicepool_space *space, uint64_t size, uint64_t alignment,
                                       slicepool_space_slice *slice, slicepool_failure *failure) {
  return slicepool_space_allocate(space, size, alignment, slice, failure);
}

static inline slicepool_space_slice cut(slicepool_space *space, uint64_t size, uint64_t alignment) {
  slicepool_space_slice slice = SLICEPOOL_SPACE_SLICE_INIT;
  OK(try_cut(space, size, alignment, &slice, NULL));
  CHECK(slice.id != 0 && slice.size >= size);
  if (alignment != 0) CHECK_EQ(slice.offset & (alignment - 1), 0);
  return slice;
}

static inline slicepool_failure cut_refused(slicepool_space *space, uint64_t size, uint64_t alignment,
                                            slicepool_result expected) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_space_slice slice = SLICEPOOL_SPACE_SLICE_INIT;
  CHECK_RESULT(try_cut(space, size, alignment, &slice, &failure), expected);
  CHECK_EQ(failure.result, expected);
  CHECK_EQ(slice.id, 0);
  return failure;
}

static inline slicepool_space_statistics space_figures_of(slicepool_space *space) {
  slicepool_space_statistics figures = SLICEPOOL_SPACE_STATISTICS_INIT;
  OK(slicepool_space_statistics_get(space, &figures));
  CHECK_EQ(figures.size, figures.in_use + figures.padding + figures.free);
  return figures;
}

struct pieces {
  slicepool_space_slice *list;
  size_t count, room;
};

static inline int32_t collect_piece(void *user_data, const slicepool_space_slice *piece) {
  struct pieces *pieces = user_data;
  CHECK_EQ(piece->struct_size, sizeof *piece);
  if (pieces->count == pieces->room) {
    pieces->room = pieces->room == 0 ? 64 : pieces->room * 2;
    pieces->list = realloc(pieces->list, pieces->room * sizeof *pieces->list);
    CHECK(pieces->list != NULL);
  }
  pieces->list[pieces->count++] = *piece;
  return SLICEPOOL_WALK_CONTINUE;
}

static inline int compare_pieces(const void *left, const void *right) {
  const slicepool_space_slice *a = left, *b = right;
  return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* The walk tiles the space, free pieces are joined, every handle resolves, and the figures say the same. */
static inline void check_space_books(slicepool_space *space) {
  slicepool_space_statistics figures = space_figures_of(space);
  struct pieces pieces = { NULL, 0, 0 };
  OK(slicepool_space_walk(space, collect_piece, &pieces));
  if (pieces.count != 0) qsort(pieces.list, pieces.count, sizeof *pieces.list, compare_pieces);
  uint64_t end = 0, slices = 0, holes = 0, unused = 0, largest = 0;
  for (size_t i = 0; i < pieces.count; i++) {
    const slicepool_space_slice *piece = &pieces.list[i];
    CHECK_EQ(piece->offset, end);
    CHECK(piece->size != 0);
    end += piece->size;
    if (piece->id == 0) {
      CHECK(i == 0 || piece[-1].id != 0);
      holes++;
      unused += piece->size;
      if (piece->size > largest) largest = piece->size;
      continue;
    }
    slices++;
    slicepool_space_slice slice = SLICEPOOL_SPACE_SLICE_INIT;
    OK(slicepool_space_slice_get(space, piece->id, &slice));
    CHECK(slice.offset == piece->offset && slice.size == piece->size);
  }
  free(pieces.list);
  CHECK_EQ(end, figures.size);
  CHECK_EQ(figures.slices, slices);
  CHECK_EQ(figures.free_ranges, holes);
  CHECK_EQ(figures.free, unused);
  uint64_t exact = 0;
  OK(slicepool_space_largest_free(space, &exact));
  CHECK_EQ(exact, largest);
  CHECK_LE(figures.largest_free_bound, largest);
}

/* Everything is free, in one piece. */
static inline void check_space_is_empty(slicepool_space *space) {
  slicepool_space_statistics figures = space_figures_of(space);
  CHECK_EQ(figures.in_use, 0);
  CHECK_EQ(figures.padding, 0);
  CHECK_EQ(figures.slices, 0);
  CHECK_EQ(figures.free_ranges, 1);
  CHECK_EQ(figures.free, figures.size);
  CHECK_EQ(figures.largest_free_bound, figures.size);
  check_space_books(space);
}

#endif
