/* Short forms for tests of buffer pools, and the comparison of a pool's figures with each other and its regions. */
#ifndef BUFFERS_H
#define BUFFERS_H

#include "mock_device.h"

/* ---- configs */

/* A config whose only classes are these, limited alike. */
static inline slicepool_buffer_pool_config classes_of(uint64_t min_size, uint64_t max_size, uint32_t max_buffers) {
  slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  OK(slicepool_buffer_pool_config_with_size_class_range(&config, min_size, max_size, max_buffers));
  return config;
}

static inline slicepool_buffer_pool_config one_class(uint64_t size, uint32_t max_buffers) {
  return classes_of(size, size, max_buffers);
}

static inline slicepool_buffer_pool_config with_class(slicepool_buffer_pool_config config, uint64_t size,
                                                      uint32_t max_buffers) {
  OK(slicepool_buffer_pool_config_with_size_class(&config, size, max_buffers));
  return config;
}

static inline slicepool_buffer_pool_config without_caches(slicepool_buffer_pool_config config) {
  OK(slicepool_buffer_pool_config_with_thread_cache_disabled(&config));
  return config;
}

static inline slicepool_buffer_pool_config with_capacity(slicepool_buffer_pool_config config, uint64_t capacity) {
  OK(slicepool_buffer_pool_config_with_max_thread_cache_capacity(&config, capacity));
  return config;
}

static inline slicepool_buffer_pool_config prefilled(slicepool_buffer_pool_config config) {
  OK(slicepool_buffer_pool_config_with_prefill(&config, 1));
  return config;
}

/* ---- pools */

/* What a test cannot do without: says why a pool does not come to be. No device: host memory. */
static inline slicepool_buffer_pool *create_buffers(const slicepool_device *table, slicepool_buffer_pool_config config) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  config.failure = &failure;
  slicepool_buffer_pool *pool = NULL;
  const slicepool_result result = slicepool_buffer_pool_create(table, &config, &pool);
  if (result != SLICEPOOL_OK)
    FAIL("creating answers %d for %s = %" PRIu64, result, failure.field == NULL ? "?" : failure.field, failure.value);
  CHECK(pool != NULL);
  return pool;
}

/* Over a fresh mock device. */
static inline slicepool_buffer_pool *create_buffers_over(struct mock_device *device,
                                                         slicepool_buffer_pool_config config) {
  const slicepool_device table = mock_table(device);
  return create_buffers(&table, config);
}

static inline slicepool_buffer_cache *create_cache(slicepool_buffer_pool *pool) {
  slicepool_buffer_cache *cache = NULL;
  OK(slicepool_buffer_cache_create(pool, &cache));
  CHECK(cache != NULL);
  return cache;
}

/* ---- buffers */

static inline slicepool_result try_acquire(slicepool_buffer_pool *pool, slicepool_buffer_cache *cache, uint64_t size,
                                           slicepool_buffer *buffer) {
  *buffer = (slicepool_buffer)SLICEPOOL_BUFFER_INIT;
  return slicepool_buffer_acquire(pool, cache, size, 0, buffer, NULL);
}

static inline slicepool_buffer acquire_flagged(slicepool_buffer_pool *pool, slicepool_buffer_cache *cache,
                                               uint64_t size, uint32_t flags) {
  slicepool_buffer buffer;
  memset(&buffer, 0x5A, sizeof buffer);
  buffer.struct_size = sizeof buffer;
  OK(slicepool_buffer_acquire(pool, cache, size, flags, &buffer, NULL));
  CHECK(buffer.struct_size == sizeof buffer && buffer.reserved == 0 && buffer.reserved_pointer == NULL);
  CHECK((buffer.id != 0) == (size != 0) && buffer.size >= size);
  return buffer;
}

static inline slicepool_buffer acquire(slicepool_buffer_pool *pool, slicepool_buffer_cache *cache, uint64_t size) {
  return acquire_flagged(pool, cache, size, 0);
}

static inline void release(slicepool_buffer_pool *pool, slicepool_buffer_cache *cache, slicepool_buffer buffer) {
  OK(slicepool_buffer_release(pool, cache, buffer.id));
}

/* The request is refused with this result; answers the details. */
static inline slicepool_failure not_acquired(slicepool_buffer_pool *pool, slicepool_buffer_cache *cache, uint64_t size,
                                             uint32_t flags, slicepool_result expected) {
  slicepool_failure failure;
  slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
  memset(&failure, 0x5A, sizeof failure);
  failure.struct_size = sizeof failure;
  CHECK_RESULT(slicepool_buffer_acquire(pool, cache, size, flags, &buffer, &failure), expected);
  CHECK_EQ(failure.result, expected);
  CHECK_EQ(buffer.id, 0);
  return failure;
}

/* ---- figures */

static inline slicepool_buffer_pool_statistics buffer_figures_of(slicepool_buffer_pool *pool) {
  slicepool_buffer_pool_statistics figures = SLICEPOOL_BUFFER_POOL_STATISTICS_INIT;
  OK(slicepool_buffer_pool_statistics_get(pool, &figures));
  CHECK(figures.classes != 0 && figures.metadata_bytes != 0 && figures.reserved == 0 && figures.closed <= 1);
  return figures;
}

static inline slicepool_buffer_class_statistics class_in(slicepool_buffer_pool *pool, uint32_t index) {
  slicepool_buffer_class_statistics figures = SLICEPOOL_BUFFER_CLASS_STATISTICS_INIT;
  OK(slicepool_buffer_class_statistics_get(pool, index, &figures));
  CHECK_EQ(figures.reserved, 0);
  return figures;
}

/* In users' hands, in caches, free and created, of the class at a position. */
#define CHECK_CLASS(pool, index, is_out, is_cached, is_free, is_created) \
  do {                                                                   \
    const slicepool_buffer_class_statistics check_class = class_in(pool, index); \
    CHECK_EQ(check_class.in_use, is_out);                                \
    CHECK_EQ(check_class.cached, is_cached);                             \
    CHECK_EQ(check_class.free, is_free);                                 \
    CHECK_EQ(check_class.created, is_created);                           \
  } while (0)

/* The regions of a pool; to be freed. */
struct regions {
  slicepool_buffer_region *list;
  uint32_t count;
};

static inline struct regions regions_of(slicepool_buffer_pool *pool) {
  struct regions regions = { NULL, 0 };
  OK(slicepool_buffer_pool_regions(pool, NULL, 0, &regions.count));
  regions.list = calloc(regions.count + 1, sizeof *regions.list);
  CHECK(regions.list != NULL);
  regions.list[0].struct_size = sizeof *regions.list;
  uint32_t count = 0;
  OK(slicepool_buffer_pool_regions(pool, regions.list, regions.count + 1, &count));
  CHECK_EQ(count, regions.count);
  return regions;
}

/* The pool's figures agree with each other and with its regions, while nobody else uses it. */
static inline void check_buffer_books(slicepool_buffer_pool *pool) {
  const slicepool_buffer_pool_statistics figures = buffer_figures_of(pool);
  struct regions regions = regions_of(pool);
  uint32_t at = 0;
  uint64_t last_size = 0, bytes = 0;
  for (uint32_t i = 0; i < figures.classes; i++) {
    const slicepool_buffer_class_statistics class = class_in(pool, i);
    CHECK(class.size > last_size && (class.size & (class.size - 1)) == 0);
    last_size = class.size;
    CHECK_LE(class.created, class.limit);
    CHECK_EQ(class.in_use + class.cached + class.free + class.retired, class.created);
    uint64_t room = 0;
    for (; at < regions.count && regions.list[at].buffer_size == class.size; at++) {
      const slicepool_buffer_region *region = &regions.list[at];
      CHECK(region->struct_size == sizeof *region && region->reserved == 0 && region->reserved_pointer == NULL);
      CHECK(region->bytes != 0 && region->bytes % class.size == 0);
      room += region->bytes / class.size;
      bytes += region->bytes;
    }
    CHECK(class.created <= room && room <= class.limit);
  }
  CHECK_EQ(at, regions.count);
  if (figures.closed == 0) CHECK_LE(bytes, figures.reserved_bytes);
  free(regions.list);
}

/* Nothing is out, and no cache is left. */
static inline void end_buffers(slicepool_buffer_pool *pool) {
  check_buffer_books(pool);
  OK(slicepool_buffer_pool_destroy(pool, 0, NULL));
}

#endif
