/* Caches: how many buffers they keep, get at once and give back, and that they give way to others. */
#include "buffers.h"
#include "check.h"

static void capacities_follow_the_config(void) {
  static const struct { uint32_t limit; uint64_t parallelism, asked; uint32_t capacity, stripes; } rows[] = {
    { 64, 8, 0, 4, 8 }, { 4096, 8, 0, 256, 8 }, { 64, 1, 7, 7, 8 }, { 10, 1, 11, 10, 8 }, { 2, 8, 0, 0, 2 },
    { 2, 1, 0, 1, 2 },  { 64, 9, UINT64_MAX, 0, 16 },
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    slicepool_buffer_pool_config config = one_class(64, rows[i].limit);
    config.parallelism = rows[i].parallelism;
    config.max_thread_cache_capacity = rows[i].asked;
    slicepool_buffer_pool *pool = create_buffers(NULL, config);
    CHECK_EQ(class_in(pool, 0).cache_capacity, rows[i].capacity);
    CHECK_EQ(class_in(pool, 0).stripes, rows[i].stripes);
    end_buffers(pool);
  }
  slicepool_buffer_pool *pool = create_buffers(NULL, with_capacity(with_class(one_class(1024, 4), 4096, 64), 16));
  CHECK_EQ(class_in(pool, 0).cache_capacity, 4);
  CHECK_EQ(class_in(pool, 1).cache_capacity, 16);
  end_buffers(pool);
}

static void a_full_cache_spills_its_newer_half_and_an_empty_one_gets_half_of_what_it_holds(void) {
  enum { CAPACITY = 8 };
  slicepool_buffer_pool *pool = create_buffers(NULL, with_capacity(one_class(64, 100), CAPACITY));
  slicepool_buffer_cache *cache = create_cache(pool);
  slicepool_buffer buffers[CAPACITY + 1];
  for (int i = 0; i <= CAPACITY; i++) buffers[i] = acquire(pool, cache, 1);
  for (int i = 0; i < CAPACITY; i++) release(pool, cache, buffers[i]);
  CHECK_CLASS(pool, 0, 1, CAPACITY, 0, CAPACITY + 1);
  CHECK_EQ(class_in(pool, 0).hits, 0);
  release(pool, cache, buffers[CAPACITY]);
  CHECK_CLASS(pool, 0, 0, CAPACITY / 2 + 1, CAPACITY / 2, CAPACITY + 1);
  CHECK_EQ(class_in(pool, 0).spills, 1);
  /* What was released last comes first. */
  buffers[0] = acquire(pool, cache, 1);
  CHECK_EQ(buffers[0].address, buffers[CAPACITY].address);
  for (int i = 1; i <= CAPACITY / 2; i++) buffers[i] = acquire(pool, cache, 1);
  CHECK_CLASS(pool, 0, CAPACITY / 2 + 1, 0, CAPACITY / 2, CAPACITY + 1);
  CHECK_EQ(class_in(pool, 0).hits, CAPACITY / 2 + 1);
  const uint64_t refills = class_in(pool, 0).refills;
  buffers[CAPACITY] = acquire(pool, cache, 1);
  CHECK_CLASS(pool, 0, CAPACITY / 2 + 2, CAPACITY / 2 - 1, 0, CAPACITY + 1);
  CHECK_EQ(class_in(pool, 0).refills, refills + 1);
  for (int i = 0; i <= CAPACITY / 2; i++) release(pool, cache, buffers[i]);
  release(pool, cache, buffers[CAPACITY]);
  /* What a cache that is gone has counted stays. */
  const slicepool_buffer_class_statistics before = class_in(pool, 0);
  OK(slicepool_buffer_cache_destroy(cache));
  const slicepool_buffer_class_statistics after = class_in(pool, 0);
  CHECK(before.hits == after.hits && before.refills == after.refills && before.spills == after.spills);
  CHECK_CLASS(pool, 0, 0, 0, CAPACITY + 1, CAPACITY + 1);
  end_buffers(pool);
}

static void small_caches_pass_single_buffers_on(void) {
  slicepool_buffer_pool *pool = create_buffers(NULL, one_class(64, 2));
  slicepool_buffer_cache *cache = create_cache(pool);
  CHECK_EQ(class_in(pool, 0).cache_capacity, 1);
  const slicepool_buffer first = acquire(pool, cache, 1), second = acquire(pool, cache, 1);
  release(pool, cache, first);
  release(pool, cache, second);
  CHECK_CLASS(pool, 0, 0, 1, 1, 2);
  const slicepool_buffer again = acquire(pool, cache, 1), other = acquire(pool, cache, 1);
  CHECK(again.address == first.address && other.address == second.address);
  release(pool, NULL, again);
  release(pool, NULL, other);
  OK(slicepool_buffer_cache_destroy(cache));
  end_buffers(pool);

  /* Disabled: what one releases is at once another's. */
  pool = create_buffers(NULL, without_caches(one_class(64, 2)));
  cache = create_cache(pool);
  slicepool_buffer_cache *another = create_cache(pool);
  for (int i = 0; i < 5; i++) {
    slicepool_buffer buffers[2] = { acquire(pool, cache, 1), acquire(pool, another, 1) };
    not_acquired(pool, cache, 1, 0, SLICEPOOL_ERROR_EXHAUSTED);
    release(pool, another, buffers[0]);
    release(pool, another, buffers[1]);
    CHECK_CLASS(pool, 0, 0, 0, 2, 2);
  }
  OK(slicepool_buffer_cache_destroy(cache));
  OK(slicepool_buffer_cache_destroy(another));
  end_buffers(pool);
}

static void a_flush_gives_everything_back_of_all_classes(void) {
  slicepool_buffer_pool *pool = create_buffers(NULL, with_class(one_class(64, 8), 1024, 8));
  slicepool_buffer_cache *cache = create_cache(pool);
  release(pool, cache, acquire(pool, cache, 64));
  release(pool, cache, acquire(pool, cache, 1000));
  CHECK_CLASS(pool, 0, 0, 1, 0, 1);
  CHECK_CLASS(pool, 1, 0, 1, 0, 1);
  OK(slicepool_buffer_cache_flush(cache));
  CHECK_CLASS(pool, 0, 0, 0, 1, 1);
  CHECK_CLASS(pool, 1, 0, 0, 1, 1);
  OK(slicepool_buffer_cache_flush(cache));
  CHECK_EQ(buffer_figures_of(pool).caches, 1);
  OK(slicepool_buffer_cache_destroy(cache));
  CHECK_EQ(buffer_figures_of(pool).caches, 0);
  end_buffers(pool);
}

static void who_finds_nothing_is_told_of_caches_and_has_them_give_way(void) {
  slicepool_buffer_pool *pool = create_buffers(NULL, with_capacity(with_class(one_class(64, 4), 1024, 4), 4));
  slicepool_buffer_cache *holder = create_cache(pool), *cache = create_cache(pool);
  slicepool_buffer buffers[4], large = acquire(pool, holder, 1000);
  release(pool, holder, large);
  for (int i = 0; i < 4; i++) buffers[i] = acquire(pool, cache, 1);
  for (int i = 0; i < 3; i++) release(pool, holder, buffers[i]);
  const slicepool_failure failure = not_acquired(pool, cache, 1, 0, SLICEPOOL_ERROR_EXHAUSTED);
  CHECK(failure.pending == 3 && failure.limit == 4 && failure.size == 64);
  /* Nobody else takes them out of the cache. */
  CHECK_CLASS(pool, 0, 1, 3, 0, 4);
  /* Its owner's next call does, and leaves the other class alone. */
  release(pool, holder, acquire(pool, holder, 1000));
  CHECK_CLASS(pool, 0, 1, 0, 3, 4);
  CHECK_CLASS(pool, 1, 0, 1, 0, 1);
  for (int i = 0; i < 3; i++) buffers[i] = acquire(pool, cache, 1);
  CHECK_EQ(not_acquired(pool, NULL, 1, 0, SLICEPOOL_ERROR_EXHAUSTED).pending, 0);
  for (int i = 0; i < 4; i++) release(pool, cache, buffers[i]);
  OK(slicepool_buffer_cache_destroy(cache));
  OK(slicepool_buffer_cache_destroy(holder));
  end_buffers(pool);
}

static void caches_end_before_or_after_their_pool_is_closed(void) {
  for (int order = 0; order < 6; order++) {
    struct mock_device device;
    mock_init(&device);
    slicepool_buffer_pool *pool = create_buffers_over(&device, one_class(64, 8));
    slicepool_buffer_cache *cache = create_cache(pool);
    const slicepool_buffer kept = acquire(pool, cache, 1), buffer = acquire(pool, cache, 1);
    release(pool, cache, kept);
    /* Every order of closing, bringing the last buffer back, and destroying the cache. */
    static const char orders[6][4] = { "CBD", "CDB", "BCD", "BDC", "DCB", "DBC" };
    for (int i = 0; i < 3; i++) {
      const bool has_cache = strchr(orders[order], 'D') >= &orders[order][i];
      switch (orders[order][i]) {
        case 'C': OK(slicepool_buffer_pool_close(pool)); break;
        case 'B': release(pool, has_cache ? cache : NULL, buffer); break;
        default: OK(slicepool_buffer_cache_destroy(cache)); break;
      }
      CHECK_EQ(device.live, i == 2 || (order == 0 && i == 1) ? 0 : 1);
    }
    end_buffers(pool);
    mock_end(&device);
  }
}

static slicepool_buffer_cache *cache_in_use;
static uint32_t refused;

static void destroy_the_cache_in_use(struct mock_device *device) {
  (void)device;
  CHECK_RESULT(slicepool_buffer_cache_destroy(cache_in_use), SLICEPOOL_ERROR_BUSY);
  refused++;
}

static void a_cache_is_busy_in_callbacks_of_its_own_calls(void) {
  enum { RELEASE_LAST, RELEASE_UNTRACKED, FLUSH, KINDS };
  for (int kind = 0; kind < KINDS; kind++) {
    struct mock_device device;
    mock_init(&device);
    const slicepool_buffer_pool_config config = one_class(64, 8);
    slicepool_buffer_pool *pool =
        create_buffers_over(&device, kind == RELEASE_LAST ? without_caches(config) : config);
    cache_in_use = create_cache(pool);
    slicepool_buffer buffer = acquire_flagged(pool, cache_in_use, kind == RELEASE_UNTRACKED ? 100 : 1,
                                              SLICEPOOL_BUFFER_UNTRACKED);
    if (kind == FLUSH) release(pool, cache_in_use, buffer);
    if (kind != RELEASE_UNTRACKED) OK(slicepool_buffer_pool_close(pool));
    refused = 0;
    device.in_deallocate = destroy_the_cache_in_use;
    if (kind == FLUSH) OK(slicepool_buffer_cache_flush(cache_in_use));
    else release(pool, cache_in_use, buffer);
    device.in_deallocate = NULL;
    CHECK_EQ(refused, 1);
    OK(slicepool_buffer_cache_destroy(cache_in_use));
    end_buffers(pool);
    mock_end(&device);
  }
}

static const struct test tests[] = {
  TEST(capacities_follow_the_config),
  TEST(a_full_cache_spills_its_newer_half_and_an_empty_one_gets_half_of_what_it_holds),
  TEST(small_caches_pass_single_buffers_on),
  TEST(a_flush_gives_everything_back_of_all_classes),
  TEST(who_finds_nothing_is_told_of_caches_and_has_them_give_way),
  TEST(caches_end_before_or_after_their_pool_is_closed),
  TEST(a_cache_is_busy_in_callbacks_of_its_own_calls),
};

TEST_MAIN(tests)
