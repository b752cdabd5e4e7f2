/* What users ran into: fit, fragmentation, alignment. The number is in each comment. */
#include "check.h"
#include "shorthand.h"

/* ---- fit and fragmentation */

/* 21. */
static void a_space_serves_what_it_has_room_for(void) {
  slicepool_space *space = create_space(699050, 1);
  cut(space, 664908, 1);
  OK(slicepool_space_destroy(space));

  space = create_space(324, 1);
  cut(space, 255, 1);
  cut(space, 67, 1);
  CHECK_EQ(space_figures_of(space).free, 2);
  check_space_books(space);
  OK(slicepool_space_destroy(space));

  static const uint64_t counts[] = { 1, 2, 3, 8 };
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    space = create_space(counts[c] * 64, 64);
    for (uint64_t i = 0; i < counts[c]; i++) CHECK_EQ(cut(space, 64, 0).offset, i * 64);
    slicepool_failure failure = cut_refused(space, 1, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
    CHECK_EQ(failure.limit, counts[c] * 64);
    CHECK_EQ(failure.in_use, counts[c] * 64);
    CHECK_EQ(failure.largest_free, 0);
    OK(slicepool_space_clear(space));
    check_space_is_empty(space);
    OK(slicepool_space_destroy(space));
  }
}

/* Random operations on a space of `size` units; everything is freed at the end. */
static void churn_space(uint64_t size, uint64_t operations) {
  enum { SLOTS = 32 };
  uint64_t granule = 1;
  while (size / granule > UINT32_MAX) granule *= 2;
  slicepool_space *space = create_space(size, granule);
  const uint64_t usable = size / granule * granule;
  CHECK_EQ(space_figures_of(space).size, usable);
  slicepool_space_slice live[SLOTS];
  memset(live, 0, sizeof live);
  uint64_t state = size;
  for (uint64_t i = 0; i < operations; i++) {
    slicepool_space_slice *slot = &live[random_between(&state, 0, SLOTS - 1)];
    if (slot->id != 0) {
      OK(slicepool_space_free(space, slot->id));
      slot->id = 0;
      continue;
    }
    /* All magnitudes are equally likely. */
    uint64_t wanted = random_next(&state) >> random_between(&state, 0, 63);
    wanted = wanted % size + 1;
    const uint64_t alignment = UINT64_C(1) << random_between(&state, 0, 63);
    slicepool_space_slice slice = SLICEPOOL_SPACE_SLICE_INIT;
    slicepool_result result = slicepool_space_allocate(space, wanted, alignment, &slice, NULL);
    if (result != SLICEPOOL_OK) {
      CHECK(result == SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED ||
            (result == SLICEPOOL_ERROR_TOO_LARGE && (wanted + granule - 1) / granule > usable / granule));
      continue;
    }
    CHECK(slice.size >= wanted && slice.size - wanted < granule);
    CHECK(slice.offset % alignment == 0 && slice.offset % granule == 0);
    CHECK(slice.offset <= usable && slice.size <= usable - slice.offset);
    for (int other = 0; other < SLOTS; other++) {
      if (live[other].id == 0) continue;
      CHECK(live[other].id != slice.id);
      CHECK(slice.offset + (slice.size - 1) < live[other].offset ||
            live[other].offset + (live[other].size - 1) < slice.offset);
    }
    *slot = slice;
  }
  check_space_books(space);
  for (int i = 0; i < SLOTS; i++) OK(slicepool_space_free(space, live[i].id));
  check_space_is_empty(space);
  OK(slicepool_space_destroy(space));
}

/* 22. */
static void spaces_of_all_sizes_end_as_one_hole(void) {
  slicepool_space *space = create_space(50331648, 1);
  slicepool_space_slice first = cut(space, 576, 2), second = cut(space, 648, 2);
  OK(slicepool_space_free(space, first.id));
  slicepool_space_slice third = cut(space, 720, 2);
  CHECK_EQ(third.offset, 576 + 648);
  OK(slicepool_space_free(space, second.id));
  OK(slicepool_space_free(space, third.id));
  check_space_is_empty(space);
  OK(slicepool_space_destroy(space));

  churn_space(48 * MIB, rounds(1000000));
  static const unsigned powers[] = { 1, 5, 16, 24, 31, 32, 33, 47, 62, 63 };
  for (size_t p = 0; p < sizeof powers / sizeof *powers; p++) {
    const uint64_t size = UINT64_C(1) << powers[p];
    churn_space(size - 1, rounds(1000000));
    churn_space(size, rounds(1000000));
    if (powers[p] < 63) churn_space(size + 1, rounds(1000000));
  }
}

/* 23. */
static void equal_parts_fill_a_space_without_a_hidden_margin(void) {
  slicepool_space *space = create_space(16 * MIB, 1);
  cut(space, 8 * MIB, 256);
  slicepool_space_slice quarter = cut(space, 4 * MIB, 256);
  slicepool_failure failure = cut_refused(space, 8 * MIB, 256, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(failure.largest_free, 4 * MIB);
  CHECK_EQ(failure.in_use, 12 * MIB);
  OK(slicepool_space_free(space, quarter.id));
  cut(space, 8 * MIB, 256);
  CHECK_EQ(space_figures_of(space).free, 0);
  OK(slicepool_space_destroy(space));

  space = create_space(10 * MIB, 1);
  for (uint64_t i = 0; i < 10; i++) CHECK_EQ(cut(space, MIB, 256).offset, i * MIB);
  CHECK_EQ(space_figures_of(space).free, 0);
  OK(slicepool_space_destroy(space));
}

/* 24. */
static void a_perfect_fill_never_fails(void) {
  slicepool_space *space = create_space(UINT64_C(1) << 11, 1);
  slicepool_space_slice newest = cut(space, UINT64_C(1) << 11, 1);
  for (int step = 1; step <= 11; step++) {
    OK(slicepool_space_free(space, newest.id));
    cut(space, UINT64_C(1) << (11 - step), 1);
    newest = cut(space, UINT64_C(1) << (11 - step), 1);
    CHECK_EQ(space_figures_of(space).free, 0);
  }
  check_space_books(space);
  OK(slicepool_space_destroy(space));
}

/* 25. */
static void the_largest_hole_is_kept_when_a_smaller_one_serves(void) {
  slicepool_space *space = create_space(8 * GIB, 256);
  slicepool_space_slice a = cut(space, GIB, 0), large = cut(space, 4 * GIB, 0);
  OK(slicepool_space_free(space, large.id));
  slicepool_space_slice b = cut(space, GIB, 0);
  CHECK_EQ(b.offset, GIB);
  OK(slicepool_space_free(space, a.id));
  CHECK_EQ(cut(space, GIB, 0).offset, 0);
  CHECK_EQ(cut(space, 4 * GIB, 0).offset, 2 * GIB);
  check_space_books(space);
  OK(slicepool_space_destroy(space));
}

/* A pool whose only page consists of `count` holes, each followed by a slice of one granule. The hole at `odd`, if
 * any, is a granule larger. Answers the bytes of the page. */
static slicepool_allocator *create_perforated(struct mock_device *device, uint64_t count, uint64_t hole, uint64_t odd) {
  mock_init(device);
  const uint64_t page = count * (hole + 1) + (odd < count ? 1 : 0);
  slicepool_allocator *allocator = create(device, sliced(page, 0, page, 1));
  uint64_t *holes = calloc(count, sizeof *holes);
  CHECK(holes != NULL);
  for (uint64_t i = 0; i < count; i++) {
    holes[i] = take(allocator, hole + (i == odd ? 1 : 0)).id;
    take(allocator, 1);
  }
  for (uint64_t i = 0; i < count; i++) OK(slicepool_free(allocator, holes[i]));
  free(holes);
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.free_ranges, count);
  CHECK_EQ(figures.free_bytes, count * hole + (odd < count ? 1 : 0));
  return allocator;
}

static void end_perforated(slicepool_allocator *allocator, struct mock_device *device) {
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(device);
}

static double seconds_per_refusal(slicepool_allocator *allocator, uint64_t size, uint64_t times) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  const double start = seconds_now();
  for (uint64_t i = 0; i < times; i++)
    CHECK_RESULT(try_take(allocator, size, 0, &slice, NULL), SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  return (seconds_now() - start) / (double)times;
}

/* 26. Constant time: as long with many holes as with few. Looking at 10,000 holes would take a hundred times as long. */
static void a_refusal_with_holes_of_smaller_classes_takes_constant_time(void) {
  struct mock_device device, small_device;
  const uint64_t count = is_slow() || rounds(100000) > 10000 ? rounds(100000) : 10000;
  slicepool_allocator *allocator = create_perforated(&device, count, 8, UINT64_MAX);
  slicepool_allocator *small = create_perforated(&small_device, 16, 8, UINT64_MAX);
  slicepool_failure failure = refused(allocator, 16, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(failure.largest_free, 8);
  CHECK_EQ(failure.in_use, count);
  CHECK_EQ(largest_free_of(allocator), 8);
  /* The best of many tries: others use this machine too. */
  double many = 1, few = 1;
  for (int i = 0; i < 500 && (i < 20 || many > 4 * few); i++) {
    const double with_many = seconds_per_refusal(allocator, 16, 10);
    const double with_few = seconds_per_refusal(small, 16, 10);
    if (with_many < many) many = with_many;
    if (with_few < few) few = with_few;
  }
  if (many > 4 * few) FAIL("a refusal takes %g us with many holes, %g us with few", many * 1e6, few * 1e6);
  end_perforated(small, &small_device);
  end_perforated(allocator, &device);
}

/* 26. */
static void the_error_carries_a_bound_and_the_query_the_exact_largest_hole(void) {
  struct mock_device device;
  const uint64_t count = rounds(100000);
  /* 64 and 65 share a class. */
  slicepool_allocator *allocator = create_perforated(&device, count, 64, count - 1);
  slicepool_failure failure = refused(allocator, 66, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK(failure.largest_free == 64 || failure.largest_free == 65);
  CHECK_EQ(largest_free_of(allocator), 65);
  /* One hole among all fits: it is found. */
  slicepool_slice slice = take(allocator, 65);
  CHECK_EQ(slice.offset, (count - 1) * 65);
  failure = refused(allocator, 65, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(failure.largest_free, count == 1 ? 0 : 64);
  CHECK_EQ(largest_free_of(allocator), count == 1 ? 0 : 64);
  if (count < 20000) check_books(allocator, &device);
  end_perforated(allocator, &device);
}

/* 27. */
static void mixed_alignments_freed_in_any_order_leave_one_hole(void) {
  enum { SLOTS = 16 };
  struct mock_device device;
  mock_init(&device);
  slicepool_pool_options pool = sliced(16 * MIB, 0, 16 * MIB, 1);
  slicepool_device table = mock_table(&device);
  slicepool_allocator *allocator = create_over(&table, &pool, 1, 64 * KIB);
  uint64_t state = 27;
  const uint64_t all = rounds(100000);
  for (uint64_t round = 0; round < all; round++) {
    uint64_t ids[SLOTS];
    const uint64_t count = random_between(&state, 1, SLOTS);
    for (uint64_t i = 0; i < count; i++) {
      const uint64_t size = random_between(&state, 1, 100000);
      ids[i] = take_aligned(allocator, size, UINT64_C(1) << random_between(&state, 0, 16)).id;
    }
    for (uint64_t left = count; left != 0; left--) {
      const uint64_t at = random_between(&state, 0, left - 1);
      OK(slicepool_free(allocator, ids[at]));
      ids[at] = ids[left - 1];
    }
    slicepool_statistics figures = figures_of(allocator);
    CHECK_EQ(figures.free_ranges, 1);
    CHECK_EQ(figures.free_bytes, 16 * MIB);
    CHECK_EQ(figures.largest_free_bound_bytes, 16 * MIB);
    CHECK_EQ(figures.slices, 0);
    CHECK_EQ(figures.in_use_bytes, 0);
    CHECK_EQ(figures.padding_bytes, 0);
  }
  CHECK_EQ(mock_calls(&device), 1);
  finish(allocator, &device);
}

/* 28. */
static void a_full_pool_of_four_pages_has_exactly_the_hole_that_was_freed(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(25 * MIB, 0, 100 * MIB, 256));
  uint64_t ids[100];
  for (int i = 0; i < 100; i++) ids[i] = take(allocator, MIB).id;
  slicepool_failure failure = refused(allocator, MIB, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(failure.limit, 100 * MIB);
  CHECK_EQ(failure.in_use, 100 * MIB);
  CHECK_EQ(failure.largest_free, 0);
  OK(slicepool_free(allocator, ids[42]));
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.free_ranges, 1);
  CHECK_EQ(figures.free_bytes, MIB);
  CHECK_EQ(largest_free_of(allocator), MIB);
  failure = refused(allocator, 25 * MIB + 4, 0, SLICEPOOL_ERROR_TOO_LARGE);
  CHECK_EQ(failure.size, 25 * MIB + 4);
  CHECK_EQ(failure.limit, 25 * MIB);
  ids[42] = take(allocator, MIB).id;
  CHECK_EQ(device.given, 4);
  OK(slicepool_free_many(allocator, ids, 100, NULL));
  finish(allocator, &device);
}

/* ---- alignment */

/* 29. */
static void a_page_whose_address_is_not_aligned_is_returned_and_reported(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_pool_options pool = sliced(64 * KIB, 0, 0, 256);
  slicepool_device table = mock_table(&device);
  slicepool_allocator *allocator = create_over(&table, &pool, 1, 256);
  device.misalign_by = 192;
  slicepool_failure failure = refused(allocator, 1000, 256, SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(device.last_alignment, 256);
  CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_MISALIGNED);
  CHECK_EQ(device.allocate_calls, 1);
  CHECK_EQ(device.deallocate_calls, 1);
  CHECK_EQ(device.live, 0);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 0);
  /* One that cannot be given back either stays the allocator's until it can. */
  device.refusals = 1;
  refused(allocator, 1000, 256, SLICEPOOL_ERROR_DEVICE_FAILED);
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.stuck_bytes, 64 * KIB);
  CHECK_EQ(figures.pages_stuck, 1);
  CHECK_EQ(figures.pages, 0);
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_EQ(device.live, 0);
  device.misalign_by = 0;
  slicepool_slice slice = take_aligned(allocator, 1000, 256);
  CHECK_EQ(slice.address % 256, 0);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

/* 30. */
static void small_requests_of_a_pool_with_a_large_granule_lie_at_its_multiples(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(MIB, 0, 0, 64 * KIB));
  uint64_t ids[20];
  for (uint64_t i = 0; i < 20; i++) {
    slicepool_slice slice = take(allocator, 32);
    CHECK_EQ(slice.offset, i % 16 * 64 * KIB);
    CHECK_EQ(slice.size, 64 * KIB);
    CHECK_EQ(slice.address % (64 * KIB), 0);
    ids[i] = slice.id;
  }
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.in_use_bytes, 20 * 32);
  CHECK_EQ(figures.padding_bytes, 20 * (64 * KIB - 32));
  CHECK_EQ(figures.pages, 2);
  OK(slicepool_free_many(allocator, ids, 20, NULL));
  finish(allocator, &device);
}

/* 32. */
static void the_gap_in_front_of_an_aligned_slice_stays_allocatable(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(16 * KIB, 0, 16 * KIB, 16));
  slicepool_slice first = take(allocator, 16), aligned = take_aligned(allocator, 4096, 4096);
  CHECK_EQ(aligned.offset, 4096);
  slicepool_slice gap = take(allocator, 4096 - 16);
  CHECK_EQ(gap.offset, 16);
  slicepool_slice rest = take(allocator, 8 * KIB);
  CHECK_EQ(figures_of(allocator).free_bytes, 0);
  OK(slicepool_free(allocator, aligned.id));
  OK(slicepool_free(allocator, first.id));
  OK(slicepool_free(allocator, rest.id));
  OK(slicepool_free(allocator, gap.id));
  CHECK_EQ(figures_of(allocator).free_ranges, 1);
  CHECK_EQ(largest_free_of(allocator), 16 * KIB);
  finish(allocator, &device);
}

/* 33. */
static void sizes_and_alignments_out_of_bounds_are_refused_and_change_nothing(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_pool_options pool = sliced(MIB, 0, 0, 256);
  slicepool_device table = mock_table(&device);
  slicepool_allocator *allocator = create_over(&table, &pool, 1, 4096);
  slicepool_slice live = take(allocator, 1000);
  static const struct {
    uint64_t size, alignment;
    slicepool_result result;
    const char *field;
  } cases[] = {
    { 0, 0, SLICEPOOL_ERROR_INVALID_ARGUMENT, "size" },
    { 0, 256, SLICEPOOL_ERROR_INVALID_ARGUMENT, "size" },
    { 100, 3, SLICEPOOL_ERROR_INVALID_ARGUMENT, "alignment" },
    { 100, UINT64_C(1) << 63, SLICEPOOL_ERROR_INVALID_ARGUMENT, "alignment" },
    { 100, 8192, SLICEPOOL_ERROR_INVALID_ARGUMENT, "alignment" },
    { MIB + 1, 0, SLICEPOOL_ERROR_TOO_LARGE, NULL },
    { UINT64_C(1) << 40, 0, SLICEPOOL_ERROR_TOO_LARGE, NULL },
    { UINT64_C(1) << 63, 4096, SLICEPOOL_ERROR_TOO_LARGE, NULL },
    { UINT64_MAX, 1, SLICEPOOL_ERROR_TOO_LARGE, NULL },
    { UINT64_MAX, 4096, SLICEPOOL_ERROR_TOO_LARGE, NULL },
    { UINT64_MAX - 4095, 4096, SLICEPOOL_ERROR_TOO_LARGE, NULL },
    { UINT64_MAX - 254, 256, SLICEPOOL_ERROR_TOO_LARGE, NULL },
  };
  const slicepool_statistics before = figures_of(allocator);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    slicepool_failure failure = refused(allocator, cases[i].size, cases[i].alignment, cases[i].result);
    if (cases[i].field != NULL) {
      CHECK_TEXT(failure.field, cases[i].field);
    } else {
      CHECK_EQ(failure.size, cases[i].size);
      CHECK_EQ(failure.limit, MIB);
    }
    const slicepool_statistics after = figures_of(allocator);
    CHECK(memcmp(&before, &after, sizeof before) == 0);
  }
  /* Alignment 0 is the granule. */
  CHECK_EQ(take(allocator, 1).offset, 1024);
  CHECK_EQ(device.allocate_calls, 1);
  CHECK(live.id != 0);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);

  slicepool_space *space = create_space(UINT64_C(1) << 63, UINT64_C(1) << 32);
  cut_refused(space, 0, 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  cut_refused(space, 1, 3, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  cut_refused(space, UINT64_MAX, UINT64_C(1) << 63, SLICEPOOL_ERROR_TOO_LARGE);
  CHECK_EQ(cut(space, 1, UINT64_C(1) << 63).offset, 0);
  cut_refused(space, 1, UINT64_C(1) << 63, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(cut(space, UINT64_C(1) << 62, UINT64_C(1) << 62).offset, UINT64_C(1) << 62);
  check_space_books(space);
  OK(slicepool_space_destroy(space));
}

static const struct test tests[] = {
  TEST(a_space_serves_what_it_has_room_for),
  TEST(spaces_of_all_sizes_end_as_one_hole),
  TEST(equal_parts_fill_a_space_without_a_hidden_margin),
  TEST(a_perfect_fill_never_fails),
  TEST(the_largest_hole_is_kept_when_a_smaller_one_serves),
  TEST(a_refusal_with_holes_of_smaller_classes_takes_constant_time),
  TEST(the_error_carries_a_bound_and_the_query_the_exact_largest_hole),
  TEST(mixed_alignments_freed_in_any_order_leave_one_hole),
  TEST(a_full_pool_of_four_pages_has_exactly_the_hole_that_was_freed),
  TEST(a_page_whose_address_is_not_aligned_is_returned_and_reported),
  TEST(small_requests_of_a_pool_with_a_large_granule_lie_at_its_multiples),
  TEST(the_gap_in_front_of_an_aligned_slice_stays_allocatable),
  TEST(sizes_and_alignments_out_of_bounds_are_refused_and_change_nothing),
};

TEST_MAIN(tests)
