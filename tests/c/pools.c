/* What sliced pools promise. Alignment 32, largest page 128 MiB. */
#include "check.h"
#include "shorthand.h"

static slicepool_allocator *create_with(struct mock_device *device, const slicepool_pool_options *pool, uint32_t flags,
                                        slicepool_failure *failure, slicepool_result expected) {
  slicepool_device table = mock_table(device);
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.flags = flags;
  config.max_page = 128 * MIB;
  config.page_alignment = 32;
  config.pools = pool;
  config.pool_count = 1;
  config.failure = failure;
  slicepool_allocator *allocator = NULL;
  CHECK_RESULT(slicepool_allocator_create(&table, &config, &allocator), expected);
  CHECK((allocator != NULL) == (expected == SLICEPOOL_OK));
  return allocator;
}

static slicepool_allocator *aligned_32(struct mock_device *device, uint64_t page_size, uint64_t max_slice_size,
                                       uint64_t max_pool_size) {
  mock_init(device);
  slicepool_pool_options pool = sliced(page_size, max_slice_size, max_pool_size, 32);
  return create_with(device, &pool, 0, NULL, SLICEPOOL_OK);
}

static void a_capped_pool_refuses_above_its_cap_and_serves_again_after_a_free(void) {
  struct mock_device device;
  slicepool_allocator *allocator = aligned_32(&device, 1024, 1024, 2048);
  for (int round = 0; round < 2; round++) {
    slicepool_slice first = take(allocator, 1024), second = take(allocator, 1024);
    slicepool_failure failure = refused(allocator, 1024, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
    CHECK_EQ(failure.size, 1024);
    CHECK_EQ(failure.limit, 2048);
    CHECK_EQ(failure.in_use, 2048);
    CHECK_EQ(failure.largest_free, 0);
    CHECK_EQ(failure.in_flight, 0);
    OK(slicepool_free(allocator, first.id));
    slicepool_slice third = take(allocator, 1024);
    refused(allocator, 1024, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
    check_books(allocator, &device);
    OK(slicepool_free(allocator, second.id));
    OK(slicepool_free(allocator, third.id));
    CHECK_EQ(figures_of(allocator).reserved_bytes, 2048);
    OK(slicepool_cleanup(allocator, NULL));
    CHECK_EQ(figures_of(allocator).reserved_bytes, 0);
  }
  CHECK_EQ(device.given, 4);
  CHECK_EQ(device.allocate_calls, 4);
  finish(allocator, &device);
}

static void a_cap_below_the_alignment_refuses_everything_without_calling_the_device(void) {
  struct mock_device device;
  slicepool_allocator *allocator = aligned_32(&device, 1024, 1024, 16);
  slicepool_failure failure = refused(allocator, 8, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(failure.size, 8);
  CHECK_EQ(failure.limit, 0);
  CHECK_EQ(failure.in_use, 0);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 0);
  CHECK_EQ(mock_calls(&device), 0);
  finish(allocator, &device);
}

static void two_slices_share_a_page_that_holds_both(void) {
  struct mock_device device;
  slicepool_allocator *allocator = aligned_32(&device, 2048, 2048, 0);
  slicepool_slice first = take(allocator, 512), second = take(allocator, 512);
  CHECK_EQ(first.memory, second.memory);
  CHECK_EQ(first.offset, 0);
  CHECK_EQ(second.offset, 512);
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.slices, 2);
  CHECK_EQ(figures.in_use_bytes, 1024);
  CHECK_EQ(figures.reserved_bytes, 2048);
  OK(slicepool_free(allocator, first.id));
  OK(slicepool_free(allocator, second.id));
  finish(allocator, &device);
}

static void a_freed_page_is_used_again(void) {
  struct mock_device device;
  slicepool_allocator *allocator = aligned_32(&device, 512, 512, 0);
  slicepool_slice slice = take(allocator, 512);
  OK(slicepool_free(allocator, slice.id));
  slicepool_slice again = take(allocator, 512);
  CHECK(slice.id != again.id && slice.memory == again.memory);
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.slices, 1);
  CHECK_EQ(figures.in_use_bytes, 512);
  CHECK_EQ(figures.reserved_bytes, 512);
  CHECK_EQ(device.allocate_calls, 1);
  OK(slicepool_free(allocator, again.id));
  finish(allocator, &device);
}

static void a_slice_that_does_not_fit_gets_another_page(void) {
  struct mock_device device;
  slicepool_allocator *allocator = aligned_32(&device, 1024, 1024, 0);
  slicepool_slice first = take(allocator, 768), second = take(allocator, 768);
  CHECK(first.memory != second.memory);
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.in_use_bytes, 1536);
  CHECK_EQ(figures.reserved_bytes, 2048);
  CHECK_EQ(figures.free_ranges, 2);
  OK(slicepool_free(allocator, first.id));
  OK(slicepool_free(allocator, second.id));
  finish(allocator, &device);
}

static void alignments_and_granules_that_are_no_powers_of_two_are_refused_by_name(void) {
  static const uint64_t wrong[] = { 3, 5, 31, 33, 48, 100, UINT64_MAX, (UINT64_C(1) << 63) + 1 };
  struct mock_device device;
  slicepool_allocator *allocator = aligned_32(&device, 4096, 4096, 0);
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    slicepool_failure failure = refused(allocator, 8, wrong[i], SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "alignment");
    CHECK_EQ(failure.value, wrong[i]);

    struct mock_device other;
    mock_init(&other);
    slicepool_pool_options pool = sliced(4096, 4096, 0, wrong[i]);
    failure = (slicepool_failure)SLICEPOOL_FAILURE_INIT;
    create_with(&other, &pool, 0, &failure, SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "granule");
    CHECK_EQ(failure.value, wrong[i]);

    slicepool_device table = mock_table(&other);
    slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
    config.page_alignment = wrong[i];
    config.failure = &failure;
    slicepool_allocator *none = NULL;
    CHECK_RESULT(slicepool_allocator_create(&table, &config, &none), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "page_alignment");
    CHECK_EQ(failure.value, wrong[i]);
    CHECK(none == NULL);
    mock_end(&other);
  }
  CHECK_EQ(mock_calls(&device), 0);
  finish(allocator, &device);
}

static void holes_join_with_both_neighbours_and_with_the_tail(void) {
  struct mock_device device;
  mock_init(&device);
  const uint64_t page = 32 * MIB;
  slicepool_allocator *allocator = create(&device, sliced(page, 0, 0, 1));
  slicepool_slice a = take(allocator, 4), b = take(allocator, 15), c = take(allocator, 8), d = take(allocator, 4);
  CHECK(a.offset == 0 && b.offset == 4 && c.offset == 19 && d.offset == 27);
  OK(slicepool_free(allocator, b.id));
  slicepool_slice nine = take(allocator, 9);
  CHECK_EQ(nine.offset, 4);
  struct ranges ranges = ranges_of(allocator);
  CHECK_EQ(ranges.count, 6);
  CHECK_RANGE(ranges.list[2], false, 13, 6);
  free(ranges.list);

  OK(slicepool_free(allocator, c.id));
  ranges = ranges_of(allocator);
  CHECK_EQ(ranges.count, 5);
  CHECK_RANGE(ranges.list[0], true, 0, 4);
  CHECK_RANGE(ranges.list[1], true, 4, 9);
  CHECK_RANGE(ranges.list[2], false, 13, 14);
  CHECK_RANGE(ranges.list[3], true, 27, 4);
  CHECK_RANGE(ranges.list[4], false, 31, page - 31);
  free(ranges.list);

  OK(slicepool_free(allocator, a.id));
  OK(slicepool_free(allocator, d.id));
  ranges = ranges_of(allocator);
  CHECK_EQ(ranges.count, 3);
  CHECK_RANGE(ranges.list[0], false, 0, 4);
  CHECK_RANGE(ranges.list[1], true, 4, 9);
  CHECK_RANGE(ranges.list[2], false, 13, page - 13);
  free(ranges.list);

  OK(slicepool_free(allocator, nine.id));
  ranges = ranges_of(allocator);
  CHECK_EQ(ranges.count, 1);
  CHECK_RANGE(ranges.list[0], false, 0, page);
  free(ranges.list);
  CHECK_EQ(device.allocate_calls, 1);
  finish(allocator, &device);
}

static void a_pool_of_two_pages_serves_what_two_pages_hold(void) {
  struct mock_device device;
  slicepool_allocator *allocator = aligned_32(&device, MIB, MIB, 2 * MIB);
  OK(slicepool_free(allocator, take(allocator, 4096).id));
  slicepool_slice half = take(allocator, 512 * KIB);
  CHECK_EQ(figures_of(allocator).reserved_bytes, MIB);
  slicepool_slice whole = take(allocator, MIB), rest = take(allocator, 500 * KIB);
  CHECK(rest.memory == half.memory && whole.memory != half.memory);
  slicepool_failure failure = refused(allocator, MIB, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(failure.limit, 2 * MIB);
  CHECK_EQ(failure.in_use, 512 * KIB + MIB + 500 * KIB);
  CHECK_EQ(failure.largest_free, 12 * KIB);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 2 * MIB);
  OK(slicepool_free(allocator, half.id));
  OK(slicepool_free(allocator, whole.id));
  OK(slicepool_free(allocator, rest.id));
  finish(allocator, &device);
}

/* A fault of other pools. */
static void the_hole_of_a_rounded_slice_takes_an_equal_one_again(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(1024, 0, 0, 256));
  slicepool_slice a = take(allocator, 200), b = take(allocator, 200), c = take(allocator, 200);
  slicepool_slice d = take(allocator, 256);
  CHECK_EQ(figures_of(allocator).free_bytes, 0);
  OK(slicepool_free(allocator, b.id));
  slicepool_slice again = take(allocator, 200);
  CHECK(again.memory == b.memory && again.offset == b.offset && again.size == 256);
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.pages, 1);
  CHECK_EQ(figures.reserved_bytes, 1024);
  CHECK_EQ(figures.in_use_bytes, 3 * 200 + 256);
  CHECK_EQ(figures.padding_bytes, 3 * 56);
  const uint64_t ids[] = { a.id, again.id, c.id, d.id };
  OK(slicepool_free_many(allocator, ids, 4, NULL));
  finish(allocator, &device);
}

/* A fault of other pools. */
static void a_page_that_was_cut_differently_is_given_back_when_it_is_empty(void) {
  struct mock_device device;
  slicepool_allocator *allocator = aligned_32(&device, 2048, 2048, 0);
  slicepool_slice a = take(allocator, 1000), b = take(allocator, 1000);
  OK(slicepool_free(allocator, a.id));
  slicepool_slice c = take(allocator, 960);
  CHECK_EQ(c.offset, 0);
  CHECK_EQ(device.given, 1);
  OK(slicepool_free(allocator, b.id));
  OK(slicepool_free(allocator, c.id));
  CHECK_EQ(largest_free_of(allocator), 2048);
  OK(slicepool_cleanup(allocator, NULL));
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.pages, 0);
  CHECK_EQ(figures.reserved_bytes, 0);
  CHECK_EQ(device.live, 0);
  finish(allocator, &device);
}

/* A fault of other pools. */
static void churn_leaves_the_page_exactly_its_size(void) {
  enum { SLOTS = 24 };
  struct mock_device device;
  slicepool_allocator *allocator = aligned_32(&device, 64 * KIB, 64 * KIB, 64 * KIB);
  uint64_t ids[SLOTS] = { 0 }, state = 2, refusals = 0;
  const uint64_t operations = rounds(200000);
  for (uint64_t i = 0; i < operations; i++) {
    uint64_t *id = &ids[random_between(&state, 0, SLOTS - 1)];
    if (*id != 0) {
      OK(slicepool_free(allocator, *id));
      *id = 0;
      continue;
    }
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    slicepool_result result = try_take(allocator, random_between(&state, 1, 8192), 0, &slice, NULL);
    if (result == SLICEPOOL_OK) {
      *id = slice.id;
    } else {
      CHECK_RESULT(result, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
      refusals++;
    }
  }
  CHECK(refusals != 0);
  check_books(allocator, &device);
  OK(slicepool_free_many(allocator, ids, SLOTS, NULL));
  CHECK_EQ(largest_free_of(allocator), 64 * KIB);
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.free_bytes, 64 * KIB);
  CHECK_EQ(figures.free_ranges, 1);
  CHECK_EQ(device.allocate_calls, 1);
  OK(slicepool_free(allocator, take(allocator, 64 * KIB).id));
  finish(allocator, &device);
}

/* The original counts pages in 16 bits. */
static void more_pages_than_sixteen_bits_count_are_all_found_again(void) {
  struct mock_device device;
  slicepool_allocator *allocator = aligned_32(&device, 32, 32, 0);
  const uint64_t count = rounds(65537);
  slicepool_slice *slices = calloc(count, sizeof *slices);
  CHECK(slices != NULL);
  for (uint64_t i = 0; i < count; i++) slices[i] = take(allocator, 32);
  CHECK_EQ(figures_of(allocator).pages, count);
  for (uint64_t i = 0; i < count; i++) {
    slicepool_slice found = look_up(allocator, slices[i].id);
    CHECK(same_slice(&found, &slices[i]));
    CHECK_EQ(found.memory, MOCK_FIRST_HANDLE + i);
    CHECK_EQ(found.address, device.pages[i].address);
  }
  check_books(allocator, &device);
  for (uint64_t i = 0; i < count; i++) OK(slicepool_free(allocator, slices[i].id));
  free(slices);
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(device.live, 0);
  finish(allocator, &device);
}

/* Whole pages under the cap, and a page above it shrinks. */
static void the_cap_counts_whole_pages_and_shrinks_a_page_above_it(void) {
  static const struct {
    uint64_t cap, page, pages;
  } cases[] = { { 1000, 992, 1 }, { 1024, 1024, 1 }, { 2047, 1024, 1 }, { 2048, 1024, 2 }, { 32, 32, 1 } };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct mock_device device;
    slicepool_allocator *allocator = aligned_32(&device, 1024, 1024, cases[i].cap);
    uint64_t ids[2] = { 0, 0 };
    for (uint64_t page = 0; page < cases[i].pages; page++) {
      ids[page] = take(allocator, cases[i].page).id;
      CHECK_EQ(device.last_size, cases[i].page);
      CHECK_EQ(device.last_alignment, 32);
    }
    slicepool_failure failure = refused(allocator, 32, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
    CHECK_EQ(failure.limit, cases[i].page * cases[i].pages);
    if (cases[i].page < 1024) {
      failure = refused(allocator, cases[i].page + 1, 0, SLICEPOOL_ERROR_TOO_LARGE);
      CHECK_EQ(failure.limit, cases[i].page);
    }
    OK(slicepool_free_many(allocator, ids, 2, NULL));
    finish(allocator, &device);
  }
}

/* Configurations that the validated path refuses, and the other adjusts. */
static void options_that_contradict_themselves_are_refused_when_asked_to_validate(void) {
  static const struct {
    uint64_t page, slice, cap;
    const char *field;
    uint64_t value;
  } cases[] = { { 1024, 2048, 0, "max_slice_size", 2048 }, { 2048, 2048, 1024, "max_pool_size", 1024 } };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct mock_device device;
    mock_init(&device);
    slicepool_pool_options pool = sliced(cases[i].page, cases[i].slice, cases[i].cap, 32);
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    create_with(&device, &pool, SLICEPOOL_ALLOCATOR_VALIDATE, &failure, SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, cases[i].field);
    CHECK_EQ(failure.value, cases[i].value);
    slicepool_allocator *adjusted = create_with(&device, &pool, 0, NULL, SLICEPOOL_OK);
    OK(slicepool_free(adjusted, take(adjusted, 1024).id));
    finish(adjusted, &device);
  }
}

static void requests_that_nearly_fill_a_page_follow_the_rule_of_the_pool(void) {
  static const struct {
    uint64_t size;
    bool uncapped, capped, always, never;
  } cases[] = {
    { 32, true, true, true, true },        { 33, false, false, false, false },  { 25600, false, false, false, false },
    { 25601, true, false, true, false },   { 32000, true, false, true, false }, { 32001, false, false, false, false },
  };
  static const struct {
    uint64_t cap;
    uint32_t rule;
  } pools[] = { { 0, SLICEPOOL_NEAR_PAGE_WHEN_UNCAPPED },
                { 64000, SLICEPOOL_NEAR_PAGE_WHEN_UNCAPPED },
                { 64000, SLICEPOOL_NEAR_PAGE_ALWAYS },
                { 0, SLICEPOOL_NEAR_PAGE_NEVER } };
  for (size_t p = 0; p < 4; p++) {
    struct mock_device device;
    mock_init(&device);
    slicepool_pool_options pool = sliced(32000, 32, pools[p].cap, 32);
    pool.near_page = pools[p].rule;
    slicepool_allocator *allocator = create_with(&device, &pool, 0, NULL, SLICEPOOL_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      const bool taken[] = { cases[i].uncapped, cases[i].capped, cases[i].always, cases[i].never };
      if (taken[p]) {
        OK(slicepool_free(allocator, take(allocator, cases[i].size).id));
      } else {
        slicepool_failure failure = refused(allocator, cases[i].size, 0, SLICEPOOL_ERROR_TOO_LARGE);
        /* The largest below it that the pool takes. */
        CHECK_EQ(failure.limit, (p == 0 || p == 2) && cases[i].size > 32000 ? 32000 : 32);
      }
    }
    finish(allocator, &device);
  }
}

/* A hole in any accepting pool is used before any pool grows; then pools grow in order. */
static void memory_that_is_held_is_used_before_any_pool_grows(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_device table = mock_table(&device);
  slicepool_pool_options pools[2] = { sliced(1024, 512, 2048, 32), sliced(4096, 4096, 0, 32) };
  slicepool_allocator *allocator = create_over(&table, pools, 2, 0);
  slicepool_slice large = take(allocator, 1024);
  CHECK_EQ(device.last_pool, 1);
  slicepool_slice small = take(allocator, 512);
  CHECK_EQ(small.memory, large.memory);
  CHECK_EQ(device.allocate_calls, 1);
  slicepool_slice rest = take(allocator, 4096 - 1024 - 512);
  slicepool_slice first = take(allocator, 512);
  CHECK_EQ(device.last_pool, 0);
  CHECK_EQ(device.last_size, 1024);
  /* At its cap, the first pool is passed over. */
  uint64_t ids[] = { large.id, small.id, rest.id, first.id, 0, 0, 0, 0 };
  for (size_t i = 4; i < 7; i++) ids[i] = take(allocator, 512).id;
  CHECK_EQ(device.allocate_calls, 3);
  ids[7] = take(allocator, 512).id;
  CHECK_EQ(device.last_pool, 1);
  CHECK_EQ(device.allocate_calls, 4);
  slicepool_statistics of_first = SLICEPOOL_STATISTICS_INIT;
  OK(slicepool_pool_statistics_get(allocator, 0, &of_first));
  CHECK_EQ(of_first.pools, 1);
  CHECK_EQ(of_first.reserved_bytes, 2048);
  CHECK_EQ(of_first.slices, 4);
  CHECK_EQ(figures_of(allocator).pools, 2);
  OK(slicepool_free_many(allocator, ids, 8, NULL));
  finish(allocator, &device);
}

/* A device that fails is reported as such, whatever another pool says. */
static void a_failing_device_is_reported_before_a_pool_at_its_cap(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_device table = mock_table(&device);
  slicepool_pool_options pools[2] = { sliced(1024, 1024, 1024, 32), sliced(4096, 4096, 0, 32) };
  slicepool_allocator *allocator = create_over(&table, pools, 2, 0);
  slicepool_slice slice = take(allocator, 1024);
  device.capacity = 1024;
  device.device_code = -77;
  slicepool_failure failure = refused(allocator, 1024, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(failure.size, 4096);
  CHECK_EQ((uint32_t)failure.device_code, (uint32_t)-77);
  failure = refused(allocator, 5000, 0, SLICEPOOL_ERROR_TOO_LARGE);
  CHECK_EQ(failure.limit, 4096);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(a_capped_pool_refuses_above_its_cap_and_serves_again_after_a_free),
  TEST(a_cap_below_the_alignment_refuses_everything_without_calling_the_device),
  TEST(two_slices_share_a_page_that_holds_both),
  TEST(a_freed_page_is_used_again),
  TEST(a_slice_that_does_not_fit_gets_another_page),
  TEST(alignments_and_granules_that_are_no_powers_of_two_are_refused_by_name),
  TEST(holes_join_with_both_neighbours_and_with_the_tail),
  TEST(a_pool_of_two_pages_serves_what_two_pages_hold),
  TEST(the_hole_of_a_rounded_slice_takes_an_equal_one_again),
  TEST(a_page_that_was_cut_differently_is_given_back_when_it_is_empty),
  TEST(churn_leaves_the_page_exactly_its_size),
  TEST(more_pages_than_sixteen_bits_count_are_all_found_again),
  TEST(the_cap_counts_whole_pages_and_shrinks_a_page_above_it),
  TEST(options_that_contradict_themselves_are_refused_when_asked_to_validate),
  TEST(requests_that_nearly_fill_a_page_follow_the_rule_of_the_pool),
  TEST(memory_that_is_held_is_used_before_any_pool_grows),
  TEST(a_failing_device_is_reported_before_a_pool_at_its_cap),
};

TEST_MAIN(tests)
