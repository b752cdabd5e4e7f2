/* Limits that are reached, and a device that has no memory left: what serves all the same, and how often the device is
 * asked. */
#include "check.h"
#include "shorthand.h"

static slicepool_allocator *create_adaptive(struct mock_device *device, uint64_t max_bytes) {
  return create_limited(device, NULL, 0, max_bytes, 0);
}

/* ---- what was freed is in the way of no limit */

/* 1. */
static void an_idle_page_does_not_keep_a_larger_one_from_fitting_under_a_limit(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_pool_options pool = growing(256, 64 * KIB, 32);
  slicepool_allocator *allocator = create_limited(&device, &pool, 1, 1024, 0);
  touch(allocator, 200);
  CHECK_EQ(device.bytes, 256);
  const slicepool_slice slice = take(allocator, 1024);
  CHECK_EQ(device.live, 1);
  CHECK_EQ(device.bytes_peak, 1024);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

/* 2. */
static void a_limit_of_64_megabytes_holds_eight_slices_of_8_and_two_of_32(void) {
  for (uint64_t count = 2; count <= 8; count += 6) {
    struct mock_device device;
    mock_init(&device);
    slicepool_allocator *allocator = create_adaptive(&device, 64 * MIB);
    uint64_t ids[8];
    for (uint64_t i = 0; i < count; i++) ids[i] = take(allocator, 64 * MIB / count).id;
    CHECK_EQ(device.bytes, 64 * MIB);
    slicepool_failure failure = refused(allocator, 1, 0, SLICEPOOL_ERROR_BUDGET_EXCEEDED);
    CHECK_EQ(failure.limit, 64 * MIB);
    CHECK_EQ(failure.in_use, 64 * MIB);
    CHECK(failure.size != 0);
    OK(slicepool_free_many(allocator, ids, (uint32_t)count, NULL));
    finish(allocator, &device);
  }
}

/* 3. */
static void a_page_that_the_device_cannot_give_is_halved(void) {
  struct mock_device device;
  mock_init(&device);
  device.capacity = 6 * MIB;
  slicepool_allocator *allocator = create_adaptive(&device, 0);
  uint64_t ids[5];
  for (int i = 0; i < 4; i++) ids[i] = take(allocator, MIB).id;
  CHECK_EQ(device.bytes, 4 * MIB);
  CHECK_EQ(device.allocate_calls, 1);
  ids[4] = take(allocator, MIB).id;
  CHECK_EQ(device.allocate_calls, 3);
  CHECK_EQ(device.last_size, 2 * MIB);
  CHECK_EQ(device.bytes, 6 * MIB);
  check_books(allocator, &device);
  /* The rest of that page serves without a word to the device. */
  OK(slicepool_free(allocator, take(allocator, MIB).id));
  CHECK_EQ(device.allocate_calls, 3);
  OK(slicepool_free_many(allocator, ids, 5, NULL));
  finish(allocator, &device);
}

/* 4. */
static void what_was_freed_does_not_count_against_the_limit(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create_adaptive(&device, GIB);
  touch(allocator, 512 * MIB);
  CHECK_EQ(device.bytes, 512 * MIB);
  const slicepool_slice slice = take(allocator, 768 * MIB);
  CHECK_LE(device.bytes_peak, GIB);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

/* 5. */
static void half_of_sixty_percent_freed_makes_room_for_sixty_percent(void) {
  static const uint64_t parts[] = { 2, 4, 6, 12 };
  for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
    struct mock_device device;
    mock_init(&device);
    slicepool_allocator *allocator = create_adaptive(&device, 1000 * MIB);
    uint64_t ids[12];
    for (uint64_t i = 0; i < parts[p]; i++) ids[i] = take(allocator, 600 * MIB / parts[p]).id;
    OK(slicepool_free_many(allocator, ids, (uint32_t)parts[p] / 2, NULL));
    const slicepool_slice slice = take(allocator, 600 * MIB);
    CHECK_LE(device.bytes_peak, 1000 * MIB);
    OK(slicepool_free(allocator, slice.id));
    OK(slicepool_free_many(allocator, ids + parts[p] / 2, (uint32_t)parts[p] / 2, NULL));
    finish(allocator, &device);
  }
}

/* ---- the device refuses */

/* 7. */
static void a_page_that_is_refused_is_told_with_the_devices_code_and_a_free_helps(void) {
  static const uint64_t refusals[] = { 1, 2, 7 };
  for (size_t r = 0; r < 3; r++) {
    for (int k = 0; k < KINDS; k++) {
      struct mock_device device;
      slicepool_allocator *allocator = create_one(&device, kind_of(k).pool);
      device.fail_at = refusals[r];
      device.fail_from_then_on = true;
      device.device_code = -2;
      uint64_t ids[256] = { 0 };
      uint32_t count = 0;
      slicepool_slice slice = SLICEPOOL_SLICE_INIT;
      slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
      slicepool_result result = SLICEPOOL_OK;
      for (; count < 256; ids[count++] = slice.id) {
        result = try_take(allocator, 16 * KIB, 0, &slice, &failure);
        if (result != SLICEPOOL_OK) break;
      }
      CHECK_RESULT(result, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
      CHECK_EQ(failure.result, result);
      CHECK(failure.device_code == -2);
      CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_NONE);
      CHECK(failure.size >= 16 * KIB);
      CHECK_EQ(device.given, refusals[r] - 1);
      check_books(allocator, &device);
      if (count != 0) {
        OK(slicepool_free(allocator, ids[--count]));
        slice = take(allocator, 16 * KIB);
        OK(slicepool_free(allocator, slice.id));
      }
      OK(slicepool_free_many(allocator, ids, count, NULL));
      finish(allocator, &device);
    }
  }
}

/* 8. */
static void a_page_too_many_is_refused_before_the_device_is_called(void) {
  const slicepool_pool_options pools[2] = { sliced(4096, 0, 0, 256), direct(0, 256) };
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create_limited(&device, pools, 2, 0, 16);
  uint64_t ids[16];
  /* Pages of all pools count, those of persistent slices too. */
  for (int i = 0; i < 16; i++)
    ids[i] = i % 3 == 0   ? take_flagged(allocator, 1000, SLICEPOOL_REQUEST_PERSISTENT).id
             : i % 3 == 1 ? take_in(allocator, 0, 4096).id
                          : take_in(allocator, 1, 5000).id;
  CHECK_EQ(device.live, 16);
  const uint64_t calls = device.allocate_calls;
  for (int i = 0; i < 3; i++) {
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    CHECK_RESULT(i == 2 ? try_take_flagged(allocator, 300, SLICEPOOL_REQUEST_PERSISTENT, &slice, &failure)
                        : try_take_in(allocator, (uint32_t)i, 300, &slice, &failure),
                 SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
    CHECK_EQ(failure.limit, 16);
    CHECK(failure.size >= 300);
  }
  CHECK_EQ(device.allocate_calls, calls);
  /* A page that holds nothing makes way, whichever pool it is of. */
  OK(slicepool_free(allocator, ids[1]));
  const slicepool_slice slice = take_in(allocator, 1, 7000);
  CHECK_EQ(device.live, 16);
  OK(slicepool_free(allocator, slice.id));
  ids[1] = 0;
  OK(slicepool_free_many(allocator, ids, 16, NULL));
  finish(allocator, &device);
}

/* Section 8, item 18. */
static void a_device_without_memory_is_told_before_a_pool_at_its_cap(void) {
  const slicepool_pool_options pools[2] = { sliced(4096, 0, 4096, 256), sliced(8192, 0, 0, 256) };
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create_limited(&device, pools, 2, 0, 0);
  const slicepool_slice full = take(allocator, 4096);
  device.capacity = 4096;
  CHECK_EQ(refused(allocator, 4096, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY).size, 8192);
  OK(slicepool_free(allocator, full.id));
  finish(allocator, &device);
}

/* Section 8, item 18. */
static void free_pages_of_several_pools_go_back_for_a_request_of_another(void) {
  const slicepool_pool_options pools[4] = { exclusive(4096, 256), exclusive(16 * KIB, 256), direct(0, 256),
                                            sliced(64 * KIB, 0, 0, 256) };
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create_limited(&device, pools, 4, 0, 0);
  uint64_t ids[30];
  for (uint32_t i = 0; i < 30; i++) ids[i] = take_in(allocator, i % 3, 4000).id;
  const slicepool_slice keeper = take_in(allocator, 0, 100);
  OK(slicepool_free_many(allocator, ids, 30, NULL));
  CHECK_EQ(device.live, 31);
  device.capacity = device.bytes + 1000;
  const slicepool_slice slice = take_in(allocator, 3, 60 * KIB);
  CHECK_LE(device.bytes, device.capacity);
  CHECK(figures_of(allocator).pages_idle != 0);
  look_up(allocator, keeper.id);
  check_books(allocator, &device);
  OK(slicepool_free(allocator, keeper.id));
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

/* ---- how often the device is asked */

static uint64_t asked[64], asked_count;

/* The sizes that a device without memory is asked for by one request. */
static void ask(slicepool_allocator *allocator, struct mock_device *device, uint64_t size) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  const uint64_t before = device->allocate_calls;
  CHECK_RESULT(try_take(allocator, size, 0, &slice, NULL), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  asked_count = device->allocate_calls - before;
  CHECK_LE(asked_count, 64);
  for (uint64_t i = 0; i < asked_count; i++) asked[i] = device->sizes[(before + i) % 64];
}

static void pages_that_grow_are_halved_down_to_a_megabyte_and_then_are_what_is_needed(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_pool_options pool = growing(16 * MIB, 64 * MIB, 256);
  slicepool_allocator *allocator = create_limited(&device, &pool, 1, 0, 0);
  device.capacity = 1;
  ask(allocator, &device, 100 * KIB);
  static const uint64_t sizes[] = { 16 * MIB, 8 * MIB, 4 * MIB, 2 * MIB, MIB, 100 * KIB };
  CHECK_EQ(asked_count, 6);
  for (int i = 0; i < 6; i++) CHECK_EQ(asked[i], sizes[i]);
  /* Pages that are all equal are not: they are had or not. */
  const slicepool_pool_options equal = sliced(16 * MIB, 0, 0, 256);
  slicepool_allocator *rigid = create_limited(&device, &equal, 1, 0, 0);
  ask(rigid, &device, 100 * KIB);
  CHECK_EQ(asked_count, 1);
  CHECK_EQ(asked[0], 16 * MIB);
  OK(slicepool_allocator_destroy(rigid, 0, NULL));
  finish(allocator, &device);
}

static void a_device_that_refused_is_asked_again_after_64_failures_and_then_after_twice_as_many(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 256));
  device.capacity = 1;
  device.device_code = -7;
  uint64_t request = 0, next = 0, pause = 64;
  for (int refusal = 0; refusal < 5; refusal++, pause *= 2) {
    for (; request <= next; request++) {
      const uint64_t calls = device.allocate_calls;
      const slicepool_failure failure = refused(allocator, 100, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
      /* It is told all the same what the device has said. */
      CHECK(failure.device_code == -7);
      CHECK_EQ(failure.size, 4096);
      CHECK_EQ(device.allocate_calls - calls, request == next);
    }
    next += 1 + pause;
  }
  /* Trimming, whatever it keeps, says that there may be memory again. */
  OK(slicepool_trim(allocator, UINT64_MAX, NULL));
  for (int i = 0; i < 65; i++) refused(allocator, 100, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(device.allocate_calls, 6);
  /* And so does the device by giving a page. */
  device.capacity = 4096;
  const slicepool_slice slice = take(allocator, 100);
  CHECK_EQ(device.allocate_calls, 7);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

static void a_page_that_was_given_back_ends_the_pause(void) {
  const slicepool_pool_options pools[2] = { sliced(4096, 0, 0, 256), direct(0, 256) };
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create_limited(&device, pools, 2, 0, 0);
  const slicepool_slice other = take_in(allocator, 1, 4096);
  device.capacity = 4096;
  for (int i = 0; i < 5; i++) refused_in(allocator, 0, 100, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(device.allocate_calls, 2);
  OK(slicepool_free(allocator, other.id));
  OK(slicepool_cleanup(allocator, NULL));
  const slicepool_slice slice = take_in(allocator, 0, 100);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

static void a_smaller_page_is_asked_for_although_a_larger_one_was_refused(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, direct(0, 256));
  device.capacity = 10000;
  refused(allocator, 20000, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  refused(allocator, 30000, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(device.allocate_calls, 1);
  OK(slicepool_free(allocator, take(allocator, 10000 / 256 * 256).id));
  CHECK_EQ(device.allocate_calls, 2);
  finish(allocator, &device);
}

/* One slice that is replaced by a larger one again and again. */
static void a_program_that_grows_step_by_step_holds_little_more_than_its_peak(void) {
  static const uint64_t steps[][2] = { { 21, 20 }, { 5, 4 }, { 3, 2 }, { 2, 1 } };
  for (int s = 0; s < 4; s++) {
    struct mock_device device;
    mock_init(&device);
    slicepool_allocator *allocator = create_adaptive(&device, 0);
    uint64_t size = MIB, old = take(allocator, size).id;
    while (size < 2 * GIB) {
      size = size * steps[s][0] / steps[s][1];
      const uint64_t next = take(allocator, size).id;
      OK(slicepool_free(allocator, old));
      old = next;
    }
    CHECK_LE(figures_of(allocator).reserved_bytes * 2, figures_of(allocator).in_use_peak_bytes * 3);
    OK(slicepool_free(allocator, old));
    finish(allocator, &device);
  }
}

static const struct test tests[] = {
  TEST(an_idle_page_does_not_keep_a_larger_one_from_fitting_under_a_limit),
  TEST(a_limit_of_64_megabytes_holds_eight_slices_of_8_and_two_of_32),
  TEST(a_page_that_the_device_cannot_give_is_halved),
  TEST(what_was_freed_does_not_count_against_the_limit),
  TEST(half_of_sixty_percent_freed_makes_room_for_sixty_percent),
  TEST(a_page_that_is_refused_is_told_with_the_devices_code_and_a_free_helps),
  TEST(a_page_too_many_is_refused_before_the_device_is_called),
  TEST(a_device_without_memory_is_told_before_a_pool_at_its_cap),
  TEST(free_pages_of_several_pools_go_back_for_a_request_of_another),
  TEST(pages_that_grow_are_halved_down_to_a_megabyte_and_then_are_what_is_needed),
  TEST(a_device_that_refused_is_asked_again_after_64_failures_and_then_after_twice_as_many),
  TEST(a_page_that_was_given_back_ends_the_pause),
  TEST(a_smaller_page_is_asked_for_although_a_larger_one_was_refused),
  TEST(a_program_that_grows_step_by_step_holds_little_more_than_its_peak),
};

TEST_MAIN(tests)
