/* Slices that the device fills: with zeros before they are handed out, or over what was in them when they are freed. */
#include "check.h"
#include "shorthand.h"

#define ZERO SLICEPOOL_REQUEST_ZERO
#define SCRUB SLICEPOOL_REQUEST_SCRUB

/* ---- a device that writes down what it fills, and answers as it is told */

static struct {
  slicepool_fill_request requests[64];
  uint64_t count;
  slicepool_result answer;
  slicepool_point point;
} fills;

static slicepool_result note_fill(struct mock_device *device, const slicepool_fill_request *request,
                                  slicepool_point *point) {
  (void)device;
  fills.requests[fills.count++ % 64] = *request;
  *point = fills.point;
  return fills.answer;
}

static slicepool_allocator *create_filling(struct mock_device *device, slicepool_pool_options pool) {
  memset(&fills, 0, sizeof fills);
  mock_init(device);
  device->on_fill = note_fill;
  return create(device, pool);
}

/* The last fill was of this slice. */
static void check_last_fill(const slicepool_slice *slice, uint32_t reason) {
  CHECK(fills.count != 0);
  const slicepool_fill_request *request = &fills.requests[(fills.count - 1) % 64];
  CHECK_EQ(request->reason, reason);
  CHECK_EQ(request->memory, slice->memory);
  CHECK_EQ(request->offset, slice->offset);
  CHECK_EQ(request->size, slice->size);
  CHECK_EQ(request->address, slice->address);
}

/* Host memory, which is what it seems. */
static slicepool_allocator *create_on_host(slicepool_pool_options pool, uint32_t flags) {
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  OK(slicepool_host_device(&table));
  slicepool_allocator_config config = config_for(&pool, 1);
  config.flags = flags;
  return create_of(&table, config);
}

static bool is_all(const void *memory, uint64_t size, unsigned char byte) {
  const unsigned char *bytes = memory;
  for (uint64_t i = 0; i < size; i++)
    if (bytes[i] != byte) return false;
  return true;
}

/* ---- ZERO */

static void a_slice_is_filled_with_zeros_before_it_is_handed_out(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_filling(&device, kind_of(k).pool);
    take(allocator, 1000);
    CHECK_EQ(fills.count, 0);
    for (uint64_t i = 0; i < 10; i++) {
      const slicepool_slice slice = take_flagged(allocator, 1000 + i, ZERO);
      CHECK_EQ(fills.count, i + 1);
      check_last_fill(&slice, SLICEPOOL_FILL_ZERO);
      if (i % 2 == 0) OK(slicepool_free(allocator, slice.id));
      CHECK_EQ(fills.count, i + 1);
    }
    check_books(allocator, &device);
    OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
    CHECK_EQ(fills.count, 10);
    mock_end(&device);
  }
}

static void a_slice_that_is_not_filled_is_not_handed_out(void) {
  static const struct {
    slicepool_result answer;
    uint64_t value; /* of the point */
    slicepool_result result;
  } cases[] = {
    { SLICEPOOL_ERROR_DEVICE_FAILED, 0, SLICEPOOL_ERROR_DEVICE_FAILED },
    { SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY },
    { 12345, 0, SLICEPOOL_ERROR_DEVICE_FAILED },
    { -1, 0, SLICEPOOL_ERROR_DEVICE_FAILED },
    /* The program would have to wait, and cannot know that. */
    { SLICEPOOL_OK, 7, SLICEPOOL_ERROR_DEVICE_FAILED },
  };
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_filling(&device, kind_of(k).pool);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
      for (int held = 0; held < 2; held++) {
        /* In a page that was taken for it, which goes back, and in memory that is held. */
        if (held == 1) OK(slicepool_free(allocator, take(allocator, 1000).id));
        fills.answer = cases[c].answer;
        fills.point = (slicepool_point){ 1, 0, cases[c].value };
        const slicepool_statistics before = figures_of(allocator);
        slicepool_slice slice = SLICEPOOL_SLICE_INIT;
        slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
        CHECK_RESULT(try_take_flagged(allocator, 1000, ZERO, &slice, &failure), cases[c].result);
        CHECK_EQ(failure.result, cases[c].result);
        CHECK_EQ(slice.id, 0);
        const slicepool_statistics after = figures_of(allocator);
        CHECK_EQ(after.slices, 0);
        CHECK_EQ(after.slices_pending, 0);
        CHECK_EQ(after.in_use_bytes, 0);
        CHECK_EQ(after.reserved_bytes, before.reserved_bytes);
        check_books(allocator, &device);
        slicepool_request requests[3];
        slicepool_slice slices[3];
        for (int i = 0; i < 3; i++) {
          requests[i] = (slicepool_request)SLICEPOOL_REQUEST_INIT;
          requests[i].size = 1000;
          requests[i].flags = i == 2 ? ZERO : 0;
          slices[i] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
        }
        requests[2].failure = &failure;
        CHECK_RESULT(slicepool_allocate_many(allocator, requests, 3, slices), cases[c].result);
        CHECK_EQ(failure.index, 2);
        CHECK_EQ(figures_of(allocator).reserved_bytes, before.reserved_bytes);
        fills.answer = SLICEPOOL_OK;
        fills.point.value = 0;
        OK(slicepool_free(allocator, take_flagged(allocator, 1000, ZERO).id));
        OK(slicepool_cleanup(allocator, NULL));
      }
    }
    finish(allocator, &device);
  }
}

static void a_device_that_cannot_fill_supports_neither(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  for (uint32_t flags = ZERO; flags <= (ZERO | SCRUB); flags += ZERO) {
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    CHECK_RESULT(try_take_flagged(allocator, 100, flags, &slice, &failure), SLICEPOOL_ERROR_NOT_SUPPORTED);
    CHECK_EQ(failure.result, SLICEPOOL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT(failure.field, "fill");
  }
  CHECK_EQ(device.allocate_calls, 0);
  finish(allocator, &device);
}

/* A look answers an error for what could never be served. */
static void a_look_for_room_says_that_the_device_cannot_fill(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  OK(slicepool_free(allocator, take(allocator, 100).id));
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = 100;
  uint32_t fits = 7;
  OK(slicepool_would_fit(allocator, &request, &fits));
  CHECK_EQ(fits, 1);
  fits = 7;
  request.flags = ZERO;
  CHECK_RESULT(slicepool_would_fit(allocator, &request, &fits), SLICEPOOL_ERROR_NOT_SUPPORTED);
  request.flags = SCRUB;
  CHECK_RESULT(slicepool_would_fit(allocator, &request, &fits), SLICEPOOL_ERROR_NOT_SUPPORTED);
  CHECK_EQ(fits, 7);
  finish(allocator, &device);
}

static void host_memory_is_zero_where_it_was_asked_for_and_nowhere_else(void) {
  for (int k = 0; k < KINDS; k++) {
    slicepool_allocator *allocator = create_on_host(kind_of(k).pool, 0);
    slicepool_slice slices[3];
    for (int i = 0; i < 3; i++) {
      slices[i] = take(allocator, 1000);
      memset(slices[i].mapped, 0xA0 + i, slices[i].size);
    }
    OK(slicepool_free(allocator, slices[1].id));
    const slicepool_slice zero = take_flagged(allocator, 1000, ZERO);
    CHECK(zero.mapped == slices[1].mapped);
    CHECK(is_all(zero.mapped, zero.size, 0));
    CHECK(is_all(slices[0].mapped, slices[0].size, 0xA0));
    CHECK(is_all(slices[2].mapped, slices[2].size, 0xA2));
    OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  }
}

/* ---- SCRUB */

static void what_was_in_a_slice_is_overwritten_before_its_memory_serves_again(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_filling(&device, kind_of(k).pool);
    const slicepool_slice slice = take_flagged(allocator, 1000, SCRUB);
    CHECK_EQ(fills.count, 0);
    OK(slicepool_free(allocator, slice.id));
    CHECK_EQ(fills.count, 1);
    check_last_fill(&slice, SLICEPOOL_FILL_SCRUB);
    CHECK_RESULT(slicepool_free(allocator, slice.id), SLICEPOOL_ERROR_STALE_HANDLE);
    CHECK_EQ(pending_in(allocator), 0);
    /* Who uses it next need not want the same. */
    const slicepool_slice again = take(allocator, 1000);
    CHECK(again.memory == slice.memory && again.offset == slice.offset);
    OK(slicepool_free(allocator, again.id));
    CHECK_EQ(fills.count, 1);
    /* Many at once, and one that needs nothing. */
    const uint64_t ids[4] = { take_flagged(allocator, 1000, SCRUB).id, 0, take(allocator, 1000).id,
                              take_flagged(allocator, 2000, SCRUB | ZERO).id };
    CHECK_EQ(fills.count, 2);
    OK(slicepool_free_many(allocator, ids, 4, NULL));
    CHECK_EQ(fills.count, 4);
    CHECK_EQ(pending_in(allocator), 0);
    finish(allocator, &device);
  }
  slicepool_allocator *allocator = create_on_host(sliced(4096, 0, 0, 64), 0);
  const slicepool_slice keeper = take(allocator, 64), secret = take_flagged(allocator, 1000, SCRUB);
  memset(secret.mapped, 0x55, secret.size);
  OK(slicepool_free(allocator, secret.id));
  /* The page is still there, since the keeper is. */
  CHECK(is_all(secret.mapped, secret.size, 0));
  OK(slicepool_free(allocator, keeper.id));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
}

static void what_is_not_overwritten_stays_pending_and_is_tried_again(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_filling(&device, kind_of(k).pool);
    const slicepool_slice slice = take_flagged(allocator, 1000, SCRUB);
    fills.answer = 4711;
    OK(slicepool_free(allocator, slice.id));
    CHECK_EQ(fills.count, 1);
    CHECK_EQ(pending_in(allocator), 1);
    CHECK_RESULT(slicepool_free(allocator, slice.id), SLICEPOOL_ERROR_STALE_HANDLE);
    const slicepool_slice other = take(allocator, 1000);
    CHECK(other.memory != slice.memory || other.offset != slice.offset);
    OK(slicepool_free(allocator, other.id));
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    /* By collecting, on any timeline, and by trimming. */
    CHECK_RESULT(slicepool_collect(allocator, 9, 0, &failure), SLICEPOOL_ERROR_DEVICE_FAILED);
    CHECK_EQ(failure.device_code, 4711);
    CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT);
    CHECK_EQ(fills.count, 2);
    CHECK_RESULT(slicepool_trim(allocator, 0, &failure), SLICEPOOL_ERROR_DEVICE_FAILED);
    CHECK_EQ(fills.count, 3);
    check_last_fill(&slice, SLICEPOOL_FILL_SCRUB);
    CHECK_EQ(pending_in(allocator), 1);
    CHECK_EQ(device.live, 1);
    CHECK_RESULT(slicepool_allocator_destroy(allocator, 0, &failure), SLICEPOOL_ERROR_BUSY);
    CHECK_EQ(failure.pending, 1);
    check_books(allocator, &device);
    fills.answer = SLICEPOOL_OK;
    if (k % 2 == 0) collect(allocator, 9, 0);
    else OK(slicepool_trim(allocator, UINT64_MAX, NULL));
    CHECK_EQ(fills.count, 4);
    CHECK_EQ(pending_in(allocator), 0);
    finish(allocator, &device);
  }
}

static void a_fill_that_is_under_way_is_waited_for(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_filling(&device, kind_of(k).pool);
    const slicepool_slice slice = take_flagged(allocator, 1000, SCRUB);
    fills.point = (slicepool_point){ 6, 0, 3 };
    OK(slicepool_free(allocator, slice.id));
    CHECK_EQ(pending_in(allocator), 1);
    CHECK_RESULT(slicepool_timeline_forget(allocator, 6), SLICEPOOL_ERROR_BUSY);
    OK(slicepool_trim(allocator, 0, NULL));
    collect(allocator, 6, 2);
    CHECK_EQ(pending_in(allocator), 1);
    check_books(allocator, &device);
    collect(allocator, 6, 3);
    CHECK_EQ(pending_in(allocator), 0);
    /* Once is enough. */
    CHECK_EQ(fills.count, 1);
    /* A point that has been passed already. */
    OK(slicepool_free(allocator, take_flagged(allocator, 1000, SCRUB).id));
    CHECK_EQ(pending_in(allocator), 0);
    CHECK_EQ(fills.count, 2);
    finish(allocator, &device);
  }
}

static void a_slice_that_waits_is_overwritten_when_the_device_is_done_with_it(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_filling(&device, kind_of(k).pool);
    const slicepool_slice one = take_flagged(allocator, 1000, SCRUB), two = take_flagged(allocator, 1000, SCRUB);
    const slicepool_point points[2] = { { 1, 0, 5 }, { 2, 0, 6 } };
    OK(slicepool_free_after(allocator, one.id, points, 1, NULL));
    OK(slicepool_free_after_many(allocator, &two.id, 1, points, 2, NULL));
    collect(allocator, 1, 4);
    OK(slicepool_trim(allocator, 0, NULL));
    CHECK_EQ(fills.count, 0);
    CHECK_EQ(pending_in(allocator), 2);
    collect(allocator, 1, 5);
    CHECK_EQ(fills.count, 1);
    check_last_fill(&one, SLICEPOOL_FILL_SCRUB);
    fills.answer = SLICEPOOL_ERROR_DEVICE_FAILED;
    CHECK_RESULT(slicepool_collect(allocator, 2, 6, NULL), SLICEPOOL_ERROR_DEVICE_FAILED);
    check_last_fill(&two, SLICEPOOL_FILL_SCRUB);
    CHECK_EQ(pending_in(allocator), 1);
    fills.answer = SLICEPOOL_OK;
    fills.point = (slicepool_point){ 2, 0, 7 };
    collect(allocator, 2, 6);
    CHECK_EQ(fills.count, 3);
    CHECK_EQ(pending_in(allocator), 1);
    collect(allocator, 2, 7);
    CHECK_EQ(pending_in(allocator), 0);
    CHECK_EQ(fills.count, 3);
    /* What waits for nothing, or for what has passed, is overwritten at once. */
    fills.point.value = 0;
    OK(slicepool_free_after(allocator, take_flagged(allocator, 1000, SCRUB).id, points, 2, NULL));
    OK(slicepool_free_after(allocator, take_flagged(allocator, 1000, SCRUB).id, NULL, 0, NULL));
    CHECK_EQ(fills.count, 5);
    CHECK_EQ(pending_in(allocator), 0);
    finish(allocator, &device);
  }
}

static void a_slice_that_is_to_be_overwritten_keeps_its_size(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_filling(&device, sliced(4096, 0, 0, 64));
  const slicepool_slice slice = take_flagged(allocator, 1000, SCRUB);
  for (uint64_t size = 1; size <= 4096; size += 819) {
    slicepool_slice resized = SLICEPOOL_SLICE_INIT;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    CHECK_RESULT(slicepool_try_resize(allocator, slice.id, size, &resized, &failure), SLICEPOOL_ERROR_NOT_SUPPORTED);
    CHECK(resized.id == 0 && failure.field != NULL);
    resized = look_up(allocator, slice.id);
    CHECK(same_slice(&resized, &slice));
  }
  OK(slicepool_free(allocator, slice.id));
  check_last_fill(&slice, SLICEPOOL_FILL_SCRUB);
  finish(allocator, &device);
}

static void a_forced_destroy_overwrites_what_it_can(void) {
  for (int fails = 0; fails < 2; fails++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_filling(&device, sliced(4096, 0, 0, 64));
    take(allocator, 100);
    const slicepool_slice live = take_flagged(allocator, 200, SCRUB), waiting = take_flagged(allocator, 300, SCRUB);
    free_at(allocator, waiting.id, 1, 1);
    fills.answer = fails == 1 ? SLICEPOOL_ERROR_DEVICE_FAILED : SLICEPOOL_OK;
    OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
    CHECK(fills.count >= 2);
    for (int s = 0; s < 2; s++) {
      bool seen = false;
      for (uint64_t i = 0; i < fills.count; i++)
        seen = seen || fills.requests[i].offset == (s == 0 ? live.offset : waiting.offset);
      CHECK(seen);
    }
    mock_end(&device);
  }
  struct mock_device device;
  slicepool_allocator *allocator = create_filling(&device, sliced(4096, 0, 0, 64));
  take_flagged(allocator, 200, SCRUB);
  OK(slicepool_allocator_abandon(allocator, 0));
  CHECK_EQ(fills.count, 0);
  free(device.pages);
}

static void persistent_slices_are_filled_like_others(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_filling(&device, sliced(4096, 0, 0, 64));
  const slicepool_slice slice = take_flagged(allocator, 1000, ZERO | SCRUB | SLICEPOOL_REQUEST_PERSISTENT);
  check_last_fill(&slice, SLICEPOOL_FILL_ZERO);
  fills.answer = SLICEPOOL_ERROR_DEVICE_FAILED;
  OK(slicepool_free(allocator, slice.id));
  check_last_fill(&slice, SLICEPOOL_FILL_SCRUB);
  CHECK_RESULT(slicepool_cleanup(allocator, NULL), SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(device.live, 1);
  fills.answer = SLICEPOOL_OK;
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(device.live, 0);
  finish(allocator, &device);
}

/* Nothing lies there to be filled, and when it does the device is asked for new memory, which is the program's own. */
static void slices_of_a_dry_run_are_filled_only_where_they_have_memory(void) {
  struct mock_device device;
  memset(&fills, 0, sizeof fills);
  mock_init(&device);
  device.on_fill = note_fill;
  const slicepool_device table = mock_table(&device);
  const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  slicepool_allocator_config config = config_for(&pool, 1);
  config.flags = SLICEPOOL_ALLOCATOR_DRY_RUN;
  slicepool_allocator *allocator = create_of(&table, config);
  OK(slicepool_free(allocator, take_flagged(allocator, 100, ZERO | SCRUB).id));
  CHECK_EQ(fills.count, 0);
  CHECK_EQ(pending_in(allocator), 0);
  slicepool_slice slice = take_flagged(allocator, 100, SCRUB);
  OK(slicepool_resolve(allocator, slice.id, &slice, NULL));
  OK(slicepool_free(allocator, slice.id));
  CHECK_EQ(fills.count, 1);
  check_last_fill(&slice, SLICEPOOL_FILL_SCRUB);
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  mock_end(&device);
}

static const struct test tests[] = {
  TEST(a_slice_is_filled_with_zeros_before_it_is_handed_out),
  TEST(a_slice_that_is_not_filled_is_not_handed_out),
  TEST(a_device_that_cannot_fill_supports_neither),
  TEST(a_look_for_room_says_that_the_device_cannot_fill),
  TEST(host_memory_is_zero_where_it_was_asked_for_and_nowhere_else),
  TEST(what_was_in_a_slice_is_overwritten_before_its_memory_serves_again),
  TEST(what_is_not_overwritten_stays_pending_and_is_tried_again),
  TEST(a_fill_that_is_under_way_is_waited_for),
  TEST(a_slice_that_waits_is_overwritten_when_the_device_is_done_with_it),
  TEST(a_slice_that_is_to_be_overwritten_keeps_its_size),
  TEST(a_forced_destroy_overwrites_what_it_can),
  TEST(persistent_slices_are_filled_like_others),
  TEST(slices_of_a_dry_run_are_filled_only_where_they_have_memory),
};

TEST_MAIN(tests)
