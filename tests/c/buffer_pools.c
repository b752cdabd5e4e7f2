/* Buffer pools: acquiring and releasing, handles, zeros, memory beyond the ceiling, prefilling, closing and destroying. */
#include "buffers.h"
#include "check.h"

static bool is_filled(const slicepool_buffer *buffer, size_t from, size_t size, unsigned char value) {
  for (size_t i = from; i < size; i++)
    if (((const unsigned char *)buffer->mapped)[i] != value) return false;
  return true;
}

/* ---- acquiring */

static void a_request_is_served_by_the_smallest_class_that_fits(void) {
  slicepool_buffer_pool *pool = create_buffers(NULL, with_class(one_class(4096, 2), 32768, 2));
  static const struct { uint64_t size, class; } rows[] = {
    { 1, 4096 }, { 4096, 4096 }, { 4097, 32768 }, { 16384, 32768 }, { 32768, 32768 },
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    const slicepool_buffer buffer = acquire(pool, NULL, rows[i].size);
    CHECK_EQ(buffer.size, rows[i].class);
    CHECK(buffer.mapped != NULL && (uintptr_t)buffer.mapped == buffer.address);
    memset(buffer.mapped, 0xAB, buffer.size);
    release(pool, NULL, buffer);
  }
  const slicepool_failure failure = not_acquired(pool, NULL, 32769, 0, SLICEPOOL_ERROR_OVERSIZED);
  CHECK(failure.size == 32769 && failure.limit == 32768 && failure.field == NULL);
  not_acquired(pool, NULL, UINT64_MAX, 0, SLICEPOOL_ERROR_OVERSIZED);
  CHECK_EQ(buffer_figures_of(pool).oversized, 2);
  /* No class helps out another. */
  slicepool_buffer small[2] = { acquire(pool, NULL, 1), acquire(pool, NULL, 1) };
  const slicepool_failure exhausted = not_acquired(pool, NULL, 1, 0, SLICEPOOL_ERROR_EXHAUSTED);
  CHECK(exhausted.size == 4096 && exhausted.limit == 2 && exhausted.pending == 0 && exhausted.in_flight == 0);
  CHECK(exhausted.value == 0 && exhausted.live == 0 && exhausted.in_use == 0 && exhausted.field == NULL);
  release(pool, NULL, acquire(pool, NULL, 5000));
  CHECK_CLASS(pool, 0, 2, 0, 0, 2);
  CHECK_EQ(class_in(pool, 0).exhausted, 1);
  release(pool, NULL, small[0]);
  small[0] = acquire(pool, NULL, 1);
  for (int i = 0; i < 2; i++) release(pool, NULL, small[i]);
  end_buffers(pool);
}

static void a_request_of_nothing_gets_an_empty_buffer_and_takes_nothing(void) {
  slicepool_buffer_pool *pool = create_buffers(NULL, one_class(64, 1));
  slicepool_buffer_cache *cache = create_cache(pool);
  slicepool_buffer_cache *const caches[2] = { NULL, cache };
  static const uint32_t flags[] = { 0, SLICEPOOL_BUFFER_ZERO, SLICEPOOL_BUFFER_UNTRACKED, 3 };
  for (int f = 0; f < 4; f++) {
    for (int c = 0; c < 2; c++) {
      const slicepool_buffer buffer = acquire_flagged(pool, caches[c], 0, flags[f]);
      CHECK(buffer.id == 0 && buffer.memory == 0 && buffer.offset == 0 && buffer.size == 0);
      CHECK(buffer.address == 0 && buffer.mapped == NULL);
      release(pool, caches[c], buffer);
    }
  }
  CHECK_CLASS(pool, 0, 0, 0, 0, 0);
  release(pool, NULL, acquire(pool, NULL, 1));
  OK(slicepool_buffer_cache_destroy(cache));
  end_buffers(pool);
}

static void zeroed_buffers_are_zero_as_far_as_was_asked_for(void) {
  slicepool_buffer_pool *pool = create_buffers(NULL, one_class(4096, 1));
  slicepool_buffer_cache *cache = create_cache(pool);
  for (uint64_t size = 1; size <= 4096; size = size * 2 + 1) {
    slicepool_buffer buffer = acquire(pool, cache, 1);
    memset(buffer.mapped, 0xAB, 4096);
    release(pool, cache, buffer);
    if (size % 3 == 0) buffer = acquire_flagged(pool, cache, size, SLICEPOOL_BUFFER_ZERO);
    else OK(slicepool_buffer_acquire_zeroed(pool, cache, size, 0, &buffer, NULL));
    CHECK(is_filled(&buffer, 0, size, 0) && is_filled(&buffer, size, 4096, 0xAB));
    CHECK_EQ(buffer.size, 4096);
    release(pool, cache, buffer);
  }
  slicepool_buffer buffer = acquire_flagged(pool, NULL, 10000, SLICEPOOL_BUFFER_ZERO | SLICEPOOL_BUFFER_UNTRACKED);
  CHECK(is_filled(&buffer, 0, 10000, 0));
  release(pool, NULL, buffer);
  OK(slicepool_buffer_cache_destroy(cache));
  end_buffers(pool);
}

static slicepool_fill_request last_fill;
static uint64_t fills;
static bool fills_are_late;

static slicepool_result fill(void *user_data, const slicepool_fill_request *request, slicepool_point *point) {
  (void)user_data;
  CHECK_EQ(request->struct_size, sizeof *request);
  CHECK(point->timeline == 0 && point->reserved == 0 && point->value == 0);
  last_fill = *request;
  fills++;
  point->value = fills_are_late;
  return fills == 2 ? SLICEPOOL_ERROR_DEVICE_FAILED : SLICEPOOL_OK;
}

static void memory_that_the_cpu_does_not_see_is_zeroed_by_the_device(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_buffer_pool *pool = create_buffers_over(&device, one_class(64, 3));
  const slicepool_failure failure = not_acquired(pool, NULL, 5, SLICEPOOL_BUFFER_ZERO, SLICEPOOL_ERROR_NOT_SUPPORTED);
  CHECK_TEXT(failure.field, "fill");
  CHECK_CLASS(pool, 0, 0, 0, 1, 1);
  end_buffers(pool);
  mock_end(&device);

  mock_init(&device);
  slicepool_device table = mock_table(&device);
  table.fill = fill;
  pool = create_buffers(&table, one_class(64, 3));
  slicepool_buffer other = acquire(pool, NULL, 1);
  slicepool_buffer buffer = acquire_flagged(pool, NULL, 5, SLICEPOOL_BUFFER_ZERO);
  CHECK_EQ(last_fill.reason, SLICEPOOL_FILL_ZERO);
  CHECK(last_fill.memory == buffer.memory && last_fill.offset == buffer.offset && last_fill.size == 8);
  CHECK(buffer.address == last_fill.address && buffer.mapped == NULL && buffer.offset != other.offset);
  release(pool, NULL, buffer);
  /* What fails leaves the buffer where it was. */
  not_acquired(pool, NULL, 5, SLICEPOOL_BUFFER_ZERO, SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_CLASS(pool, 0, 1, 0, 1, 2);
  /* A fill that is to be waited for is none. */
  fills_are_late = true;
  not_acquired(pool, NULL, 5, SLICEPOOL_BUFFER_ZERO, SLICEPOOL_ERROR_DEVICE_FAILED);
  release(pool, NULL, other);
  end_buffers(pool);
  mock_end(&device);
}

/* ---- beyond the ceiling */

static void memory_beyond_the_ceiling_is_asked_for_by_a_flag(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_buffer_pool_config config = with_class(one_class(1024, 1), 8192, 1);
  OK(slicepool_buffer_pool_config_with_pool_min_size(&config, 512));
  OK(slicepool_buffer_pool_config_with_alignment(&config, 64));
  config.page_alignment = 64;
  slicepool_buffer_pool *pool = create_buffers_over(&device, config);
  /* Below pool_min_size the smallest class serves, unless there is leave to go past it. */
  slicepool_buffer buffer = acquire(pool, NULL, 200);
  CHECK_EQ(buffer.size, 1024);
  release(pool, NULL, buffer);
  buffer = acquire_flagged(pool, NULL, 200, SLICEPOOL_BUFFER_UNTRACKED);
  CHECK(buffer.size == 200 && buffer.address % 64 == 0);
  CHECK_EQ(buffer_figures_of(pool).bypassed, 1);
  CHECK_EQ(buffer_figures_of(pool).untracked, 1);
  const uint64_t live = device.live;
  release(pool, NULL, buffer);
  CHECK_EQ(device.live, live - 1);
  CHECK_RESULT(slicepool_buffer_release(pool, NULL, buffer.id), SLICEPOOL_ERROR_STALE_HANDLE);
  buffer = acquire_flagged(pool, NULL, 512, SLICEPOOL_BUFFER_UNTRACKED);
  CHECK_EQ(buffer.size, 1024);
  /* Exhausted. */
  not_acquired(pool, NULL, 1024, 0, SLICEPOOL_ERROR_EXHAUSTED);
  static const uint64_t sizes[] = { 512, 600, 1024, 8193, 100000 };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    const slicepool_buffer more = acquire_flagged(pool, NULL, sizes[i], SLICEPOOL_BUFFER_UNTRACKED);
    CHECK_EQ(more.size, sizes[i]);
    slicepool_buffer found = SLICEPOOL_BUFFER_INIT;
    OK(slicepool_buffer_get(pool, more.id, &found));
    CHECK(memcmp(&found, &more, sizeof found) == 0);
    release(pool, NULL, more);
  }
  CHECK_EQ(class_in(pool, 0).created, 1);
  CHECK_EQ(buffer_figures_of(pool).oversized, 2);
  release(pool, NULL, buffer);
  /* Nothing of this is in the regions. */
  struct regions regions = regions_of(pool);
  CHECK_EQ(regions.count, 1);
  free(regions.list);
  end_buffers(pool);
  mock_end(&device);
}

/* ---- handles */

static void a_second_release_is_refused_and_so_are_handles_of_others(void) {
  slicepool_buffer_pool *pool = create_buffers(NULL, with_class(one_class(64, 2), 1024, 2));
  slicepool_buffer_pool *other = create_buffers(NULL, with_class(one_class(64, 2), 1024, 2));
  slicepool_buffer_cache *cache = create_cache(pool), *stranger = create_cache(other);
  slicepool_buffer buffers[2] = { acquire(pool, cache, 64), acquire(other, stranger, 1024) };
  CHECK(buffers[0].id != buffers[1].id);
  for (int i = 0; i < 2; i++) {
    slicepool_buffer found = SLICEPOOL_BUFFER_INIT;
    slicepool_buffer_cache *const with = i == 0 ? NULL : cache;
    CHECK_RESULT(slicepool_buffer_release(pool, with, buffers[1].id), SLICEPOOL_ERROR_FOREIGN_HANDLE);
    CHECK_RESULT(slicepool_buffer_get(pool, buffers[1].id, &found), SLICEPOOL_ERROR_FOREIGN_HANDLE);
    CHECK_RESULT(slicepool_buffer_release(other, NULL, buffers[0].id), SLICEPOOL_ERROR_FOREIGN_HANDLE);
    OK(slicepool_buffer_release(pool, with, buffers[0].id));
    for (int again = 0; again < 4; again++)
      CHECK_RESULT(slicepool_buffer_release(pool, again % 2 == 0 ? NULL : cache, buffers[0].id),
                   SLICEPOOL_ERROR_STALE_HANDLE);
    CHECK_RESULT(slicepool_buffer_get(pool, buffers[0].id, &found), SLICEPOOL_ERROR_STALE_HANDLE);
    /* The next one has the same place, and another handle. */
    const slicepool_buffer next = acquire(pool, with, 64);
    CHECK(next.address == buffers[0].address && next.id != buffers[0].id);
    CHECK_RESULT(slicepool_buffer_release(pool, with, buffers[0].id), SLICEPOOL_ERROR_STALE_HANDLE);
    OK(slicepool_buffer_get(pool, next.id, &found));
    CHECK(memcmp(&next, &found, sizeof found) == 0);
    buffers[0] = next;
    /* Releasing nothing is fine, but not with a cache of another pool. */
    OK(slicepool_buffer_release(pool, with, 0));
  }
  CHECK_RESULT(slicepool_buffer_release(pool, stranger, buffers[0].id), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_buffer_release(pool, stranger, 0), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  const slicepool_failure failure = not_acquired(pool, stranger, 1, 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "cache");
  CHECK_EQ(failure.value, (uintptr_t)stranger);
  not_acquired(pool, stranger, 0, 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_CLASS(pool, 0, 1, 0, 0, 1);
  release(pool, cache, buffers[0]);
  release(other, stranger, buffers[1]);
  OK(slicepool_buffer_cache_destroy(cache));
  OK(slicepool_buffer_cache_destroy(stranger));
  end_buffers(pool);
  end_buffers(other);
}

static void forged_handles_are_refused_and_change_nothing(void) {
  slicepool_buffer_pool *pool = create_buffers(NULL, with_class(one_class(64, 3), 1024, 100));
  slicepool_buffer_cache *cache = create_cache(pool);
  const slicepool_buffer live[3] = { acquire(pool, NULL, 1), acquire(pool, cache, 1000),
                                     acquire_flagged(pool, NULL, 5000, SLICEPOOL_BUFFER_UNTRACKED) };
  uint64_t state = 9;
  const uint64_t guesses = 3 * 128 + rounds(200000);
  for (uint64_t i = 0; i < guesses; i++) {
    const uint64_t base = live[i % 3].id;
    uint64_t id = random_next(&state);
    if (i < 3 * 64) id = base ^ UINT64_C(1) << i / 3;
    else if (i < 3 * 128) id = UINT64_C(1) << (i / 3 - 64);
    else if (i % 2 == 0) id = base ^ (id & id >> 7 & id << 3);
    if (id == 0 || id == live[0].id || id == live[1].id || id == live[2].id) continue;
    slicepool_buffer found = SLICEPOOL_BUFFER_INIT;
    const slicepool_result results[] = { slicepool_buffer_get(pool, id, &found),
                                         slicepool_buffer_release(pool, NULL, id),
                                         slicepool_buffer_release(pool, cache, id) };
    for (int r = 0; r < 3; r++)
      CHECK(results[r] == SLICEPOOL_ERROR_STALE_HANDLE || results[r] == SLICEPOOL_ERROR_FOREIGN_HANDLE);
  }
  CHECK_EQ(class_in(pool, 0).in_use, 1);
  CHECK_EQ(class_in(pool, 1).in_use, 1);
  CHECK_EQ(buffer_figures_of(pool).untracked, 1);
  for (int i = 0; i < 3; i++) release(pool, cache, live[i]);
  OK(slicepool_buffer_cache_destroy(cache));
  end_buffers(pool);
}

/* ---- where buffers lie */

static void a_prefilled_pool_has_one_region_for_each_class(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_buffer_pool_config config = with_class(with_class(one_class(256, 100), 4096, 3), 65536, 7);
  OK(slicepool_buffer_pool_config_with_alignment(&config, 256));
  slicepool_buffer_pool *pool = create_buffers_over(&device, prefilled(config));
  CHECK_EQ(device.allocate_calls, 3);
  struct regions regions = regions_of(pool);
  CHECK_EQ(regions.count, 3);
  static const uint64_t sizes[3] = { 256, 4096, 65536 };
  static const uint32_t limits[3] = { 100, 3, 7 };
  for (int c = 0; c < 3; c++) {
    const slicepool_buffer_region *region = &regions.list[c];
    CHECK_EQ(region->buffer_size, sizes[c]);
    CHECK_EQ(region->bytes, sizes[c] * limits[c]);
    CHECK(region->address % 256 == 0 && region->mapped == NULL);
    CHECK_CLASS(pool, (uint32_t)c, 0, 0, limits[c], limits[c]);
    /* Every buffer lies in it, at a multiple of its size, and no two in the same place. */
    bool seen[100] = { false };
    slicepool_buffer buffers[100];
    for (uint32_t i = 0; i < limits[c]; i++) {
      buffers[i] = acquire(pool, NULL, sizes[c]);
      CHECK_EQ(buffers[i].memory, region->memory);
      const uint64_t offset = buffers[i].offset - region->base;
      CHECK(buffers[i].offset >= region->base && offset < region->bytes && offset % sizes[c] == 0);
      CHECK_EQ(buffers[i].address, region->address + offset);
      CHECK(!seen[offset / sizes[c]]);
      seen[offset / sizes[c]] = true;
    }
    not_acquired(pool, NULL, sizes[c], 0, SLICEPOOL_ERROR_EXHAUSTED);
    for (uint32_t i = 0; i < limits[c]; i++) release(pool, NULL, buffers[i]);
  }
  free(regions.list);
  CHECK_EQ(device.allocate_calls, 3);
  end_buffers(pool);
  CHECK_EQ(device.deallocate_calls, 3);
  mock_end(&device);
}

static void memory_comes_in_slabs_and_only_as_it_is_needed(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_buffer_pool *pool = create_buffers_over(&device, with_class(one_class(1024, 300), MIB, 2));
  CHECK_EQ(device.allocate_calls, 0);
  const slicepool_buffer first = acquire(pool, NULL, 1);
  CHECK(device.allocate_calls == 1 && device.last_size == 256 * KIB);
  slicepool_buffer buffers[300];
  buffers[0] = first;
  for (int i = 1; i < 256; i++) buffers[i] = acquire(pool, NULL, 1);
  CHECK_EQ(device.allocate_calls, 1);
  CHECK_EQ(class_in(pool, 0).created, 256);
  buffers[256] = acquire(pool, NULL, 1);
  CHECK(device.allocate_calls == 2 && device.last_size == 44 * KIB);
  for (int i = 257; i < 300; i++) buffers[i] = acquire(pool, NULL, 1);
  not_acquired(pool, NULL, 1, 0, SLICEPOOL_ERROR_EXHAUSTED);
  const slicepool_buffer large = acquire(pool, NULL, MIB);
  CHECK(device.allocate_calls == 3 && device.last_size == MIB);
  CHECK_EQ(buffer_figures_of(pool).reserved_bytes, 300 * KIB + MIB);
  release(pool, NULL, large);
  for (int i = 0; i < 300; i++) release(pool, NULL, buffers[i]);
  /* It stays until the pool is closed. */
  CHECK_EQ(device.deallocate_calls, 0);
  end_buffers(pool);
  mock_end(&device);
}

/* A pool whose books are in one block of the program's, and its buffers in another. */
static void a_pool_lives_in_blocks_of_the_program(void) {
  enum { BOOKS = 262144, MEMORY = 100000 };
  unsigned char *books = malloc(BOOKS + 2), *memory = malloc(MEMORY + 2);
  CHECK(books != NULL && memory != NULL);
  books[0] = books[BOOKS + 1] = memory[0] = memory[MEMORY + 1] = 0x77;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_buffer_pool_config config = classes_of(64, 1024, 500);
  config.failure = &failure;
  config.memory = memory + 1;
  config.memory_bytes = MEMORY;
  config.name = "packets";
  config.user_data = &config;
  slicepool_buffer_pool *pool = NULL;
  OK(slicepool_buffer_pool_create_in(NULL, &config, books + 1, BOOKS, &pool));
  CHECK((unsigned char *)pool > books && (unsigned char *)pool < books + BOOKS);
  void *user_data = NULL;
  OK(slicepool_buffer_pool_user_data_get(pool, &user_data));
  CHECK(user_data == &config);
  slicepool_buffer_cache *cache = create_cache(pool);
  CHECK((unsigned char *)cache > books && (unsigned char *)cache < books + BOOKS);
  /* As many as the block has room for, every byte of them. */
  slicepool_buffer buffers[500];
  uint32_t count = 0;
  slicepool_result result = SLICEPOOL_OK;
  while (count < 500 && (result = try_acquire(pool, cache, 500, &buffers[count])) == SLICEPOOL_OK) {
    CHECK_EQ(buffers[count].size, 512);
    memset(buffers[count].mapped, (int)count, 512);
    count++;
  }
  CHECK_RESULT(result, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK(count >= MEMORY / 512 - 3 && count <= MEMORY / 512);
  for (uint32_t i = 0; i < count; i++) {
    const unsigned char *at = buffers[i].mapped;
    CHECK(at > memory && at + 512 <= memory + 1 + MEMORY && is_filled(&buffers[i], 0, 512, (unsigned char)i));
    CHECK_EQ((uintptr_t)at % 64, 0);
    release(pool, cache, buffers[i]);
  }
  OK(slicepool_buffer_cache_destroy(cache));
  end_buffers(pool);
  /* Both are the program's again. */
  memset(books + 1, 0xEE, BOOKS);
  memset(memory + 1, 0xEE, MEMORY);
  CHECK(books[0] == 0x77 && books[BOOKS + 1] == 0x77 && memory[0] == 0x77 && memory[MEMORY + 1] == 0x77);

  /* Books that are too small, and what does not go together. */
  for (uint64_t bytes = 0; bytes < 100000; bytes += bytes < 1000 ? 7 : 397) {
    pool = NULL;
    result = slicepool_buffer_pool_create_in(NULL, &config, books + 1, bytes, &pool);
    CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
    CHECK((pool != NULL) == (result == SLICEPOOL_OK));
    if (pool != NULL) OK(slicepool_buffer_pool_destroy(pool, 0, NULL));
  }
  pool = NULL;
  struct mock_device device;
  mock_init(&device);
  const slicepool_device table = mock_table(&device);
  CHECK_RESULT(slicepool_buffer_pool_create(&table, &config, &pool), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "memory");
  mock_end(&device);
  config.memory_bytes = 100;
  CHECK_RESULT(slicepool_buffer_pool_create(NULL, &config, &pool), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "memory_bytes");
  config.memory_bytes = UINT64_MAX;
  CHECK_RESULT(slicepool_buffer_pool_create(NULL, &config, &pool), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "memory_bytes");
  config.memory = NULL;
  CHECK_RESULT(slicepool_buffer_pool_create(NULL, &config, &pool), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "memory_bytes");
  config.memory_bytes = 0;
  config.max_page = 512;
  CHECK_RESULT(slicepool_buffer_pool_create(NULL, &config, &pool), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "size");
  CHECK_EQ(failure.value, 1024);
  CHECK(pool == NULL);
  free(books);
  free(memory);
}

/* ---- limits that pools share with others */

static void pools_share_a_budget_and_keep_to_their_own_limits(void) {
  slicepool_budget_config shared = SLICEPOOL_BUDGET_CONFIG_INIT;
  shared.max_bytes = 6 * 4096;
  slicepool_budget *budget = NULL;
  OK(slicepool_budget_create(&shared, &budget));
  slicepool_buffer_pool_config config = one_class(4096, 100);
  config.budget = budget;
  slicepool_buffer_pool *pools[2] = { create_buffers(NULL, config), NULL };
  config.max_bytes = 2 * 4096;
  pools[1] = create_buffers(NULL, config);
  slicepool_buffer buffers[6];
  /* A slab that is too large is halved. */
  for (int i = 0; i < 2; i++) buffers[i] = acquire(pools[1], NULL, 1);
  not_acquired(pools[1], NULL, 1, 0, SLICEPOOL_ERROR_BUDGET_EXCEEDED);
  for (int i = 2; i < 6; i++) buffers[i] = acquire(pools[0], NULL, 1);
  const slicepool_failure failure = not_acquired(pools[0], NULL, 1, 0, SLICEPOOL_ERROR_BUDGET_EXCEEDED);
  CHECK(failure.limit == 6 * 4096 && failure.in_use == 6 * 4096);
  for (int i = 0; i < 6; i++) release(pools[i < 2 ? 1 : 0], NULL, buffers[i]);
  end_buffers(pools[0]);
  end_buffers(pools[1]);
  slicepool_budget_statistics figures = SLICEPOOL_BUDGET_STATISTICS_INIT;
  OK(slicepool_budget_statistics_get(budget, &figures));
  CHECK(figures.bytes == 0 && figures.bytes_peak == 6 * 4096);
  OK(slicepool_budget_release(budget));

  config = one_class(MIB, 5);
  config.max_pages = 2;
  pools[0] = create_buffers(NULL, config);
  for (int i = 0; i < 2; i++) buffers[i] = acquire(pools[0], NULL, 1);
  not_acquired(pools[0], NULL, 1, 0, SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
  for (int i = 0; i < 2; i++) release(pools[0], NULL, buffers[i]);
  end_buffers(pools[0]);
}

/* ---- the end */

static void a_closed_pool_gives_its_memory_back_with_the_last_buffer(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_buffer_pool *pool = create_buffers_over(&device, with_class(one_class(64, 10), 4096, 2));
  slicepool_buffer_cache *cache = create_cache(pool), *other = create_cache(pool);
  slicepool_buffer buffers[4] = { acquire(pool, cache, 1), acquire(pool, NULL, 1), acquire(pool, other, 4096),
                                  acquire_flagged(pool, cache, 10000, SLICEPOOL_BUFFER_UNTRACKED) };
  release(pool, other, buffers[1]);
  CHECK_EQ(device.live, 3);
  for (int twice = 0; twice < 2; twice++) {
    OK(slicepool_buffer_pool_close(pool));
    CHECK_EQ(buffer_figures_of(pool).closed, 1);
    CHECK_EQ(device.live, 3);
  }
  not_acquired(pool, cache, 1, 0, SLICEPOOL_ERROR_CLOSED);
  not_acquired(pool, NULL, 1, SLICEPOOL_BUFFER_UNTRACKED, SLICEPOOL_ERROR_CLOSED);
  slicepool_buffer_cache *none = NULL;
  CHECK_RESULT(slicepool_buffer_cache_create(pool, &none), SLICEPOOL_ERROR_CLOSED);
  /* What is out can be used as before. */
  slicepool_buffer found = SLICEPOOL_BUFFER_INIT;
  OK(slicepool_buffer_get(pool, buffers[2].id, &found));
  release(pool, cache, buffers[3]);
  CHECK_EQ(device.live, 2);
  release(pool, NULL, buffers[2]);
  release(pool, cache, buffers[0]);
  /* One is in a cache that has not looked yet. */
  CHECK_EQ(device.live, 2);
  OK(slicepool_buffer_cache_destroy(other));
  CHECK_EQ(device.live, 0);
  CHECK_RESULT(slicepool_buffer_release(pool, cache, buffers[0].id), SLICEPOOL_ERROR_STALE_HANDLE);
  CHECK_EQ(buffer_figures_of(pool).reserved_bytes, 0);
  OK(slicepool_buffer_cache_destroy(cache));
  end_buffers(pool);
  mock_end(&device);
}

static void a_pool_is_not_destroyed_before_its_buffers_and_caches(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_buffer_pool *pool = create_buffers_over(&device, one_class(64, 10));
  slicepool_buffer_cache *caches[2] = { create_cache(pool), create_cache(pool) };
  slicepool_buffer buffers[3];
  for (int i = 0; i < 2; i++) buffers[i] = acquire(pool, caches[0], 1);
  buffers[2] = acquire_flagged(pool, NULL, 1000, SLICEPOOL_BUFFER_UNTRACKED);
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_buffer_pool_destroy(pool, 0, &failure), SLICEPOOL_ERROR_BUSY);
  CHECK(failure.live == 3 && failure.in_flight == 2);
  CHECK_RESULT(slicepool_buffer_pool_destroy(pool, SLICEPOOL_DESTROY_FORCE, &failure), SLICEPOOL_ERROR_BUSY);
  CHECK_EQ(failure.in_flight, 2);
  CHECK_RESULT(slicepool_buffer_pool_abandon(pool, 0), SLICEPOOL_ERROR_BUSY);
  /* Nothing has changed. */
  CHECK_EQ(buffer_figures_of(pool).closed, 0);
  release(pool, caches[1], acquire(pool, caches[1], 1));
  for (int i = 0; i < 2; i++) OK(slicepool_buffer_cache_destroy(caches[i]));
  CHECK_RESULT(slicepool_buffer_pool_destroy(pool, 0, &failure), SLICEPOOL_ERROR_BUSY);
  CHECK(failure.live == 3 && failure.in_flight == 0);
  for (int i = 0; i < 3; i++) release(pool, NULL, buffers[i]);
  end_buffers(pool);
  mock_end(&device);
}

static void a_forced_destroy_takes_the_memory_of_buffers_that_are_out(void) {
  for (int closed = 0; closed < 2; closed++) {
    struct mock_device device;
    mock_init(&device);
    slicepool_buffer_pool *pool = create_buffers_over(&device, with_class(one_class(64, 10), MIB, 3));
    for (int i = 0; i < 3; i++) acquire(pool, NULL, MIB);
    acquire(pool, NULL, 1);
    acquire_flagged(pool, NULL, 5 * MIB, SLICEPOOL_BUFFER_UNTRACKED);
    CHECK_EQ(device.live, 5);
    if (closed) OK(slicepool_buffer_pool_close(pool));
    OK(slicepool_buffer_pool_destroy(pool, SLICEPOOL_DESTROY_FORCE, NULL));
    mock_end(&device);
  }
}

static void an_abandoned_pool_says_no_word_to_the_device(void) {
  for (int closed = 0; closed < 2; closed++) {
    for (uint32_t flags = 0; flags <= SLICEPOOL_ABANDON_FORKED; flags++) {
      struct mock_device device;
      mock_init(&device);
      slicepool_buffer_pool *pool = create_buffers_over(&device, one_class(64, 10));
      acquire(pool, NULL, 1);
      acquire_flagged(pool, NULL, 1000, SLICEPOOL_BUFFER_UNTRACKED);
      if (closed) OK(slicepool_buffer_pool_close(pool));
      OK(slicepool_buffer_pool_abandon(pool, flags));
      CHECK_EQ(device.deallocate_calls, 0);
      CHECK_EQ(device.live, 2);
      free(device.pages);
    }
  }
}

static const struct test tests[] = {
  TEST(a_request_is_served_by_the_smallest_class_that_fits),
  TEST(a_request_of_nothing_gets_an_empty_buffer_and_takes_nothing),
  TEST(zeroed_buffers_are_zero_as_far_as_was_asked_for),
  TEST(memory_that_the_cpu_does_not_see_is_zeroed_by_the_device),
  TEST(memory_beyond_the_ceiling_is_asked_for_by_a_flag),
  TEST(a_second_release_is_refused_and_so_are_handles_of_others),
  TEST(forged_handles_are_refused_and_change_nothing),
  TEST(a_prefilled_pool_has_one_region_for_each_class),
  TEST(memory_comes_in_slabs_and_only_as_it_is_needed),
  TEST(a_pool_lives_in_blocks_of_the_program),
  TEST(pools_share_a_budget_and_keep_to_their_own_limits),
  TEST(a_closed_pool_gives_its_memory_back_with_the_last_buffer),
  TEST(a_pool_is_not_destroyed_before_its_buffers_and_caches),
  TEST(a_forced_destroy_takes_the_memory_of_buffers_that_are_out),
  TEST(an_abandoned_pool_says_no_word_to_the_device),
};

TEST_MAIN(tests)
