/* One call of each function of buffer pools, for tests that make them from within callbacks. */
#ifndef EVERY_BUFFER_FUNCTION_H
#define EVERY_BUFFER_FUNCTION_H

#include "buffers.h"
#include "check.h"

/* The pool that is called: that of the site, or one of its own. */
struct called {
  slicepool_buffer_pool *pool;
  slicepool_buffer_cache *cache;
  bool is_own;
};

static struct called called_by(struct site *site) {
  if (site->buffers != NULL) return (struct called){ site->buffers, site->cache, false };
  slicepool_buffer_pool *pool = create_buffers(NULL, one_class(1024, 8));
  return (struct called){ pool, create_cache(pool), true };
}

static void done_with(struct called called) {
  if (!called.is_own) return;
  OK(slicepool_buffer_cache_destroy(called.cache));
  end_buffers(called.pool);
}

/* A buffer, unless the pool is closed. */
static slicepool_buffer acquire_if_open(struct called called, slicepool_buffer_cache *cache, uint32_t flags) {
  slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
  const slicepool_result result = slicepool_buffer_acquire(called.pool, cache, 700, flags, &buffer, NULL);
  CHECK_RESULT(result, buffer_figures_of(called.pool).closed == 1 ? SLICEPOOL_ERROR_CLOSED : SLICEPOOL_OK);
  return buffer;
}

static void call_slicepool_buffer_acquire(struct site *site) {
  const struct called called = called_by(site);
  slicepool_buffer_cache *const caches[2] = { called.cache, NULL };
  for (uint32_t i = 0; i < 8; i++) {
    const slicepool_buffer buffer = acquire_if_open(called, caches[i % 2], i < 4 ? 0 : SLICEPOOL_BUFFER_UNTRACKED);
    release(called.pool, caches[i / 2 % 2], buffer);
  }
  done_with(called);
}

static void call_slicepool_buffer_acquire_zeroed(struct site *site) {
  const struct called called = called_by(site);
  slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
  const slicepool_result result = slicepool_buffer_acquire_zeroed(called.pool, called.cache, 500, 0, &buffer, NULL);
  CHECK_RESULT(result, buffer_figures_of(called.pool).closed == 1 ? SLICEPOOL_ERROR_CLOSED : SLICEPOOL_OK);
  release(called.pool, NULL, buffer);
  done_with(called);
}

static void call_slicepool_buffer_release(struct site *site) {
  const struct called called = called_by(site);
  const slicepool_buffer buffer = acquire_if_open(called, NULL, 0);
  OK(slicepool_buffer_release(called.pool, called.cache, buffer.id));
  if (buffer.id != 0)
    CHECK_RESULT(slicepool_buffer_release(called.pool, called.cache, buffer.id), SLICEPOOL_ERROR_STALE_HANDLE);
  done_with(called);
}

static void call_slicepool_buffer_get(struct site *site) {
  const struct called called = called_by(site);
  const slicepool_buffer buffer = acquire_if_open(called, called.cache, 0);
  slicepool_buffer found = SLICEPOOL_BUFFER_INIT;
  if (buffer.id != 0) OK(slicepool_buffer_get(called.pool, buffer.id, &found));
  CHECK(memcmp(&buffer, &found, sizeof found) == 0);
  release(called.pool, called.cache, buffer);
  done_with(called);
}

static void call_slicepool_buffer_cache_create(struct site *site) {
  const struct called called = called_by(site);
  slicepool_buffer_cache *cache = NULL;
  const slicepool_result result = slicepool_buffer_cache_create(called.pool, &cache);
  CHECK_RESULT(result, buffer_figures_of(called.pool).closed == 1 ? SLICEPOOL_ERROR_CLOSED : SLICEPOOL_OK);
  if (cache != NULL) OK(slicepool_buffer_cache_destroy(cache));
  done_with(called);
}

static void call_slicepool_buffer_cache_flush(struct site *site) {
  const struct called called = called_by(site);
  if (called.cache != NULL) OK(slicepool_buffer_cache_flush(called.cache));
  done_with(called);
}

static void call_slicepool_buffer_cache_destroy(struct site *site) {
  if (site->cache_inside) {
    CHECK_RESULT(slicepool_buffer_cache_destroy(site->cache), SLICEPOOL_ERROR_BUSY);
    return;
  }
  const struct called called = called_by(site);
  if (buffer_figures_of(called.pool).closed == 0) OK(slicepool_buffer_cache_destroy(create_cache(called.pool)));
  done_with(called);
}

static void call_slicepool_buffer_pool_close(struct site *site) {
  slicepool_buffer_pool *pool = site->closes ? site->buffers : create_buffers(NULL, one_class(64, 1));
  OK(slicepool_buffer_pool_close(pool));
  CHECK_EQ(buffer_figures_of(pool).closed, 1);
  if (pool != site->buffers) end_buffers(pool);
}

static void call_slicepool_buffer_pool_destroy(struct site *site) {
  if (site->buffers == NULL) {
    OK(slicepool_buffer_pool_destroy(create_buffers(NULL, one_class(64, 1)), 0, NULL));
    return;
  }
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  const uint32_t closed = buffer_figures_of(site->buffers).closed;
  CHECK_RESULT(slicepool_buffer_pool_destroy(site->buffers, 0, &failure), SLICEPOOL_ERROR_BUSY);
  CHECK(failure.in_flight != 0);
  CHECK_RESULT(slicepool_buffer_pool_destroy(site->buffers, SLICEPOOL_DESTROY_FORCE, NULL), SLICEPOOL_ERROR_BUSY);
  CHECK_EQ(buffer_figures_of(site->buffers).closed, closed);
}

static void call_slicepool_buffer_pool_abandon(struct site *site) {
  if (site->buffers != NULL) {
    CHECK_RESULT(slicepool_buffer_pool_abandon(site->buffers, 0), SLICEPOOL_ERROR_BUSY);
  } else {
    OK(slicepool_buffer_pool_abandon(create_buffers(NULL, one_class(64, 1)), 0));
  }
}

static void call_slicepool_buffer_pool_create(struct site *site) {
  (void)site;
  end_buffers(create_buffers(NULL, prefilled(one_class(64, 10))));
}

static void call_slicepool_buffer_pool_create_in(struct site *site) {
  (void)site;
  static unsigned char block[262144];
  slicepool_buffer_pool_config config = one_class(64, 10);
  slicepool_buffer_pool *pool = NULL;
  OK(slicepool_buffer_pool_create_in(NULL, &config, block, sizeof block, &pool));
  release(pool, NULL, acquire(pool, NULL, 1));
  end_buffers(pool);
}

static void call_slicepool_buffer_pool_user_data_get(struct site *site) {
  const struct called called = called_by(site);
  void *user_data = site;
  OK(slicepool_buffer_pool_user_data_get(called.pool, &user_data));
  CHECK(user_data == NULL);
  done_with(called);
}

static void call_slicepool_buffer_pool_statistics_get(struct site *site) {
  const struct called called = called_by(site);
  CHECK_EQ(buffer_figures_of(called.pool).classes, 1);
  done_with(called);
}

static void call_slicepool_buffer_class_statistics_get(struct site *site) {
  const struct called called = called_by(site);
  CHECK_EQ(class_in(called.pool, 0).size, 1024);
  done_with(called);
}

static void call_slicepool_buffer_pool_regions(struct site *site) {
  const struct called called = called_by(site);
  free(regions_of(called.pool).list);
  done_with(called);
}

/* ---- configs, which nobody else knows */

#define CALL_CONFIG(name, ...)                                                      \
  static void call_slicepool_buffer_pool_config_##name(struct site *site) {         \
    (void)site;                                                                     \
    slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;        \
    uint64_t size = 0;                                                              \
    uint32_t number = 0;                                                            \
    (void)size;                                                                     \
    (void)number;                                                                   \
    __VA_ARGS__;                                                                    \
  }
#define CALLED(name, ...) OK(slicepool_buffer_pool_config_##name(&config, __VA_ARGS__))
CALL_CONFIG(for_network, OK(slicepool_buffer_pool_config_for_network(&config)); CHECK_EQ(config.limits[17], 4096))
CALL_CONFIG(for_storage, OK(slicepool_buffer_pool_config_for_storage(&config)); CHECK_EQ(config.limits[23], 64))
CALL_CONFIG(for_storage_with_page_size, CALLED(for_storage_with_page_size, 65536); CHECK_EQ(config.limits[15], 0))
CALL_CONFIG(with_pool_min_size, CALLED(with_pool_min_size, 5); CHECK_EQ(config.pool_min_size, 5))
CALL_CONFIG(with_size_class_range, CALLED(with_size_class_range, 2, 8, 3); CHECK_EQ(config.limits[2], 3))
CALL_CONFIG(with_size_classes, size = 4; number = 9; CALLED(with_size_classes, &size, &number, 1);
            CHECK_EQ(config.limits[2], 9))
CALL_CONFIG(with_size_class, CALLED(with_size_class, 2, 8); CHECK_EQ(config.limits[1], 8))
CALL_CONFIG(without_size_class, CALLED(without_size_class, 1024); CHECK_EQ(config.limits[10], 0))
CALL_CONFIG(with_max_per_class, CALLED(with_max_per_class, 7); CHECK_EQ(config.limits[10], 7))
CALL_CONFIG(with_bytes_per_class, CALLED(with_bytes_per_class, 4096); CHECK_EQ(config.limits[11], 2))
CALL_CONFIG(with_budget_bytes, CALLED(with_budget_bytes, 64 * MIB); CHECK_EQ(config.limits[11], 257))
CALL_CONFIG(with_parallelism, CALLED(with_parallelism, 6); CHECK_EQ(config.parallelism, 6))
CALL_CONFIG(with_max_thread_cache_capacity, CALLED(with_max_thread_cache_capacity, 6);
            CHECK_EQ(config.max_thread_cache_capacity, 6))
CALL_CONFIG(with_thread_cache_disabled, OK(slicepool_buffer_pool_config_with_thread_cache_disabled(&config));
            CHECK_EQ(config.max_thread_cache_capacity, UINT64_MAX))
CALL_CONFIG(with_prefill, CALLED(with_prefill, 1); CHECK_EQ(config.flags, SLICEPOOL_BUFFER_POOL_PREFILL))
CALL_CONFIG(with_alignment, CALLED(with_alignment, 64); CHECK_EQ(config.alignment, 64))
CALL_CONFIG(check, OK(slicepool_buffer_pool_config_check(&config)))
CALL_CONFIG(class_count, CALLED(class_count, &number); CHECK_EQ(number, 8))
CALL_CONFIG(class_get, CALLED(class_get, 1, &size, &number); CHECK_EQ(size, 2048))
CALL_CONFIG(class_for, CALLED(class_for, 1025, &size, &number); CHECK_EQ(size, 2048))
CALL_CONFIG(min_size, CALLED(min_size, &size); CHECK_EQ(size, 1024))
CALL_CONFIG(max_size, CALLED(max_size, &size); CHECK_EQ(size, 131072))
CALL_CONFIG(max_tracked_bytes, CALLED(max_tracked_bytes, &size); CHECK_EQ(size, 1069547520))
CALL_CONFIG(cache_capacity, CALLED(cache_capacity, 4096, &number); CHECK_EQ(number, 2048))
CALL_CONFIG(stripes, CALLED(stripes, 4096, &number); CHECK_EQ(number, 8))
#undef CALLED
#undef CALL_CONFIG

#endif
