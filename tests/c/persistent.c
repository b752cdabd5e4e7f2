/* Slices that live as long as the program: a device allocation each, apart from the pools. */
#include "check.h"
#include "shorthand.h"

#define PERSISTENT SLICEPOOL_REQUEST_PERSISTENT

static slicepool_allocator *create_with_granule(struct mock_device *device, uint64_t granule) {
  mock_init(device);
  const slicepool_pool_options pool = sliced(4096, 0, 0, 32);
  const slicepool_device table = mock_table(device);
  slicepool_allocator_config config = config_for(&pool, 1);
  config.persistent_granule = granule;
  return create_of(&table, config);
}

/* No page is left of slices that are all free. */
static void finish_clean(slicepool_allocator *allocator, struct mock_device *device) {
  check_books(allocator, device);
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(device->live, 0);
  finish(allocator, device);
}

/* Section 8, item 5. */
static void a_persistent_slice_takes_no_page_of_the_pools_and_stays_until_the_cleanup(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_with_granule(&device, 0);
  const slicepool_slice weights = take_flagged(allocator, 1024, PERSISTENT);
  CHECK_EQ(figures_in(allocator, 0).pages_peak, 0);
  CHECK_EQ(device.last_pool, SLICEPOOL_PERSISTENT_POOL);
  CHECK_EQ(device.last_size, 1024);
  const slicepool_slice ordinary = take(allocator, 1024);
  CHECK_EQ(figures_in(allocator, 0).pages_peak, 1);
  CHECK_EQ(device.last_pool, 0);
  CHECK(ordinary.memory != weights.memory);
  OK(slicepool_free(allocator, weights.id));
  OK(slicepool_free(allocator, ordinary.id));
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_EQ(figures_in(allocator, SLICEPOOL_PERSISTENT_POOL).pages, 1);
  CHECK_EQ(device.live, 1);
  const slicepool_slice again = take_flagged(allocator, 1024, PERSISTENT);
  CHECK_EQ(again.memory, weights.memory);
  OK(slicepool_cleanup(allocator, NULL));
  look_up(allocator, again.id);
  OK(slicepool_free(allocator, again.id));
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(device.live, 0);
  finish(allocator, &device);
}

/* Section 8, item 15. */
static void a_free_one_serves_requests_of_exactly_its_size(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_with_granule(&device, 4);
  const slicepool_slice first = take_flagged(allocator, 1024, PERSISTENT);
  const slicepool_slice second = take_flagged(allocator, 1024, PERSISTENT);
  CHECK(first.memory != second.memory);
  CHECK_EQ(figures_of(allocator).in_use_bytes, 2048);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 2048);
  OK(slicepool_free(allocator, first.id));
  /* Neither larger nor smaller ones. */
  const slicepool_slice larger = take_flagged(allocator, 1025, PERSISTENT);
  const slicepool_slice smaller = take_flagged(allocator, 1000, PERSISTENT);
  CHECK(larger.memory != first.memory && smaller.memory != first.memory);
  CHECK_EQ(larger.size, 1028);
  const slicepool_slice again = take_flagged(allocator, 1024, PERSISTENT);
  CHECK_EQ(again.memory, first.memory);
  CHECK(again.id != first.id);
  CHECK_EQ(device.given, 4);
  OK(slicepool_free(allocator, larger.id));
  OK(slicepool_free(allocator, smaller.id));
  OK(slicepool_cleanup(allocator, NULL));
  OK(slicepool_free(allocator, again.id));
  OK(slicepool_free(allocator, second.id));
  CHECK_EQ(figures_of(allocator).in_use_bytes, 0);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 2048);
  finish_clean(allocator, &device);
}

/* Seen elsewhere: a slice that served again for fewer bytes was not found by its size any more. */
static void sizes_that_are_rounded_alike_use_each_others_slices_again_and_again(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_with_granule(&device, 4);
  static const uint64_t sizes[] = { 1025, 1026, 1028, 1027, 1025, 1028 };
  for (int i = 0; i < 6; i++) {
    const slicepool_slice slice = take_flagged(allocator, sizes[i], PERSISTENT);
    CHECK_EQ(slice.size, 1028);
    const slicepool_statistics figures = figures_in(allocator, SLICEPOOL_PERSISTENT_POOL);
    CHECK_EQ(figures.in_use_bytes, sizes[i]);
    CHECK_EQ(figures.padding_bytes, 1028 - sizes[i]);
    OK(slicepool_free(allocator, slice.id));
  }
  CHECK_EQ(device.given, 1);
  finish_clean(allocator, &device);
}

static void the_granule_is_256_unless_the_config_says_otherwise(void) {
  static const uint64_t granules[] = { 0, 1, 64, 4096, 8192 };
  for (int g = 0; g < 5; g++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_with_granule(&device, granules[g]);
    const uint64_t granule = granules[g] == 0 ? 256 : granules[g];
    const slicepool_slice slice = take_flagged(allocator, 9001, PERSISTENT);
    CHECK_EQ(slice.size, (9001 + granule - 1) / granule * granule);
    CHECK_EQ(slice.offset, 0);
    CHECK_EQ(slice.address % (granule > 4096 ? granule : 4096), 0);
    CHECK_EQ(options_in(allocator, SLICEPOOL_PERSISTENT_POOL).granule, granule);
    OK(slicepool_free(allocator, slice.id));
    finish_clean(allocator, &device);
  }
}

static void before_there_was_one_there_is_no_pool_of_them(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_with_granule(&device, 64);
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  slicepool_pool_options options = SLICEPOOL_POOL_OPTIONS_INIT;
  CHECK_RESULT(slicepool_pool_statistics_get(allocator, SLICEPOOL_PERSISTENT_POOL, &figures),
               SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_pool_options_get(allocator, SLICEPOOL_PERSISTENT_POOL, &options),
               SLICEPOOL_ERROR_INVALID_ARGUMENT);
  const slicepool_slice slice = take_flagged(allocator, 100, PERSISTENT);
  CHECK_EQ(figures_in(allocator, SLICEPOOL_PERSISTENT_POOL).slices, 1);
  /* It is none of the list, but part of the whole. */
  CHECK_EQ(figures_of(allocator).pools, 1);
  CHECK_EQ(figures_of(allocator).slices, 1);
  struct ranges ranges = ranges_of(allocator);
  CHECK_EQ(ranges.count, 1);
  CHECK_EQ(ranges.list[0].pool, SLICEPOOL_PERSISTENT_POOL);
  CHECK_EQ(ranges.list[0].id, slice.id);
  free(ranges.list);
  OK(slicepool_free(allocator, slice.id));
  finish_clean(allocator, &device);
}

static void they_are_in_no_pool_of_the_list_and_never_without_bytes(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_with_granule(&device, 64);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(try_take_flagged(allocator, 100, PERSISTENT | SLICEPOOL_REQUEST_IN_POOL, &slice, &failure),
               SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "flags");
  CHECK_EQ(failure.value, PERSISTENT | SLICEPOOL_REQUEST_IN_POOL);
  CHECK_RESULT(try_take_flagged(allocator, 0, PERSISTENT, &slice, &failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "size");
  CHECK_RESULT(try_take_in(allocator, SLICEPOOL_PERSISTENT_POOL, 100, &slice, &failure),
               SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "pool");
  CHECK_EQ(device.allocate_calls, 0);
  finish(allocator, &device);
}

static void a_look_tells_whether_a_free_one_has_the_size(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_with_granule(&device, 64);
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.flags = PERSISTENT;
  uint32_t fits = 7;
  OK(slicepool_free(allocator, take_flagged(allocator, 1000, PERSISTENT).id));
  for (request.size = 1; request.size < 2000; request.size += 3) {
    OK(slicepool_would_fit(allocator, &request, &fits));
    CHECK_EQ(fits, request.size > 960 && request.size <= 1024);
  }
  CHECK(!would_fit(allocator, 1000));
  CHECK_EQ(device.allocate_calls, 1);
  finish_clean(allocator, &device);
}

static void free_ones_make_no_way_for_other_requests(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_with_granule(&device, 64);
  const slicepool_slice slice = take_flagged(allocator, 8192, PERSISTENT);
  OK(slicepool_free(allocator, slice.id));
  device.capacity = 8192;
  refused(allocator, 100, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(device.deallocate_calls, 0);
  /* Nor does a trim count them, whatever is to be kept. */
  device.capacity = 0;
  OK(slicepool_trim(allocator, UINT64_MAX, NULL));
  OK(slicepool_free(allocator, take(allocator, 100).id));
  OK(slicepool_trim(allocator, 4096, NULL));
  CHECK_EQ(figures_in(allocator, 0).pages, 1);
  OK(slicepool_trim(allocator, 4095, NULL));
  CHECK_EQ(figures_in(allocator, 0).pages, 1);
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_EQ(figures_in(allocator, 0).pages, 0);
  CHECK_EQ(device.live, 1);
  finish_clean(allocator, &device);
}

static void they_are_resized_and_freed_like_others(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_with_granule(&device, 64);
  slicepool_slice slice = take_flagged(allocator, 1000, PERSISTENT), other = take_flagged(allocator, 500, PERSISTENT);
  const uint64_t id = slice.id;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_try_resize(allocator, id, 1025, &slice, &failure), SLICEPOOL_ERROR_NO_ROOM);
  CHECK_EQ(failure.limit, 1024);
  OK(slicepool_try_resize(allocator, id, 1024, &slice, NULL));
  CHECK_EQ(slice.size, 1024);
  CHECK_EQ(figures_in(allocator, SLICEPOOL_PERSISTENT_POOL).in_use_bytes, 1524);
  const uint64_t ids[3] = { slice.id, other.id, slice.id };
  CHECK_RESULT(slicepool_free_many(allocator, ids, 3, &failure), SLICEPOOL_ERROR_STALE_HANDLE);
  CHECK_EQ(failure.index, 2);
  CHECK_EQ(look_up(allocator, slice.id).size, 1024);
  OK(slicepool_free_many(allocator, ids, 2, NULL));
  CHECK_RESULT(slicepool_free(allocator, slice.id), SLICEPOOL_ERROR_STALE_HANDLE);
  /* Those of one allocator mean nothing to another. */
  struct mock_device other_device;
  slicepool_allocator *other_allocator = create_with_granule(&other_device, 64);
  const slicepool_slice foreign = take_flagged(other_allocator, 1000, PERSISTENT);
  CHECK_RESULT(slicepool_free(allocator, foreign.id), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  OK(slicepool_free(other_allocator, foreign.id));
  finish_clean(other_allocator, &other_device);
  finish_clean(allocator, &device);
}

static void they_wait_for_the_device_like_others(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_with_granule(&device, 64);
  const slicepool_slice slice = take_flagged(allocator, 1000, PERSISTENT);
  free_at(allocator, slice.id, 1, 5);
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(device.live, 1);
  CHECK(take_flagged(allocator, 1000, PERSISTENT).memory != slice.memory);
  CHECK_EQ(figures_in(allocator, SLICEPOOL_PERSISTENT_POOL).slices_pending, 1);
  check_books(allocator, &device);
  CHECK_RESULT(slicepool_timeline_forget(allocator, 1), SLICEPOOL_ERROR_BUSY);
  collect(allocator, 1, 5);
  CHECK_EQ(take_flagged(allocator, 1000, PERSISTENT).memory, slice.memory);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);
}

static void of_many_that_are_refused_in_the_middle_no_page_is_left(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_with_granule(&device, 64);
  for (uint64_t fail_at = 1; fail_at <= 4; fail_at++) {
    for (int made_before = 0; made_before < 2; made_before++) {
      if (made_before == 1) OK(slicepool_free(allocator, take_flagged(allocator, 64, PERSISTENT).id));
      const uint64_t live = device.live;
      slicepool_request requests[4];
      slicepool_slice slices[4];
      slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
      for (uint64_t i = 0; i < 4; i++) {
        requests[i] = (slicepool_request)SLICEPOOL_REQUEST_INIT;
        requests[i].size = 1000 * (i + 1);
        requests[i].flags = PERSISTENT;
        requests[i].failure = &failure;
        slices[i] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
      }
      OK(slicepool_trim(allocator, UINT64_MAX, NULL));
      device.fail_at = device.allocate_calls + fail_at;
      CHECK_RESULT(slicepool_allocate_many(allocator, requests, 4, slices), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
      CHECK_EQ(failure.index, fail_at - 1);
      CHECK_EQ(device.live, live);
      check_books(allocator, &device);
      OK(slicepool_cleanup(allocator, NULL));
    }
  }
  finish_clean(allocator, &device);
}

/* ---- books in a block, threads */

static void a_block_counts_on_them_where_the_config_names_their_granule(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_pool_options pool = sliced(4096, 0, 0, 32);
  const slicepool_device table = mock_table(&device);
  slicepool_allocator_config config = config_for(&pool, 1);
  uint64_t without = 0, bytes = 0;
  OK(slicepool_allocator_bytes_needed(&config, 50, 50, 2, &without));
  config.persistent_granule = 64;
  OK(slicepool_allocator_bytes_needed(&config, 50, 50, 2, &bytes));
  CHECK(bytes > without);
  void *block = malloc(bytes);
  slicepool_allocator *allocator = NULL;
  OK(slicepool_allocator_create_in(&table, &config, block, bytes, &allocator));
  uint64_t ids[50] = { 0 }, state = 8, value = 0;
  for (uint64_t round = 0; round < rounds(20000); round++) {
    uint64_t *id = &ids[random_between(&state, 0, 49)];
    if (*id == 0) {
      /* A page more for each slice of a new size: those that are free go. */
      if (device.live == 50) OK(slicepool_cleanup(allocator, NULL));
      if (device.live == 50) continue;
      const uint32_t flags = random_between(&state, 0, 4) == 0 ? 0 : PERSISTENT;
      *id = take_flagged(allocator, random_between(&state, 1, 4096), flags).id;
    } else {
      free_at(allocator, *id, (uint32_t)(value % 2), value + 1);
      value++;
      collect(allocator, 0, value);
      collect(allocator, 1, value);
      *id = 0;
    }
  }
  check_books(allocator, &device);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  free(block);
  mock_end(&device);
}

struct taker {
  slicepool_allocator *allocator;
  pthread_barrier_t *barrier;
  uint64_t seed;
};

static void *take_persistent_slices(void *argument) {
  struct taker *taker = argument;
  uint64_t state = taker->seed, ids[20] = { 0 };
  pthread_barrier_wait(taker->barrier);
  for (int i = 0; i < 200; i++) {
    uint64_t *id = &ids[random_between(&state, 0, 19)];
    if (*id == 0) {
      *id = take_flagged(taker->allocator, 64 * random_between(&state, 1, 5), PERSISTENT).id;
    } else {
      OK(slicepool_free(taker->allocator, *id));
      *id = 0;
    }
  }
  OK(slicepool_free_many(taker->allocator, ids, 20, NULL));
  return NULL;
}

/* The first of them makes their pool: several may be the first. */
static void four_threads_that_take_the_first_ones_share_one_pool(void) {
  pthread_barrier_t barrier;
  CHECK(pthread_barrier_init(&barrier, NULL, 4) == 0);
  for (uint64_t round = 0; round < 10 + rounds(500); round++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_with_granule(&device, 64);
    pthread_t threads[4];
    struct taker takers[4];
    for (uint64_t t = 0; t < 4; t++) {
      takers[t] = (struct taker){ allocator, &barrier, round * 4 + t };
      CHECK(pthread_create(&threads[t], NULL, take_persistent_slices, &takers[t]) == 0);
    }
    for (int t = 0; t < 4; t++) CHECK(pthread_join(threads[t], NULL) == 0);
    CHECK_EQ(figures_in(allocator, SLICEPOOL_PERSISTENT_POOL).slices, 0);
    finish_clean(allocator, &device);
  }
  CHECK(pthread_barrier_destroy(&barrier) == 0);
}

static const struct test tests[] = {
  TEST(a_persistent_slice_takes_no_page_of_the_pools_and_stays_until_the_cleanup),
  TEST(a_free_one_serves_requests_of_exactly_its_size),
  TEST(sizes_that_are_rounded_alike_use_each_others_slices_again_and_again),
  TEST(the_granule_is_256_unless_the_config_says_otherwise),
  TEST(before_there_was_one_there_is_no_pool_of_them),
  TEST(they_are_in_no_pool_of_the_list_and_never_without_bytes),
  TEST(a_look_tells_whether_a_free_one_has_the_size),
  TEST(free_ones_make_no_way_for_other_requests),
  TEST(they_are_resized_and_freed_like_others),
  TEST(they_wait_for_the_device_like_others),
  TEST(of_many_that_are_refused_in_the_middle_no_page_is_left),
  TEST(a_block_counts_on_them_where_the_config_names_their_granule),
  TEST(four_threads_that_take_the_first_ones_share_one_pool),
};

TEST_MAIN(tests)
