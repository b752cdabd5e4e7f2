/* What is tried before a request is refused, and in which order. */
#include "check.h"
#include "shorthand.h"

/* ---- a device that writes down what it is asked */

static char events[4096];
static size_t event_count;

static void note(char event) {
  CHECK(event_count + 1 < sizeof events);
  events[event_count++] = event;
  events[event_count] = '\0';
}

static void forget_events(void) {
  event_count = 0;
  events[0] = '\0';
}

static void note_allocate(struct mock_device *device) {
  (void)device;
  note('A');
}

static void note_deallocate(struct mock_device *device) {
  (void)device;
  note('D');
}

static slicepool_result note_completed(struct mock_device *device, uint32_t timeline, uint64_t *completed) {
  (void)device;
  (void)timeline;
  (void)completed;
  note('C');
  return SLICEPOOL_ERROR_NOT_SUPPORTED;
}

/* Answers in turn; the last one again and again. */
static int32_t answers[16];
static size_t answer_count;

static int32_t note_shortage(struct mock_device *device, const slicepool_shortage *shortage) {
  (void)device;
  note('O');
  return answers[shortage->attempt < answer_count ? shortage->attempt : answer_count - 1];
}

static void init_noting(struct mock_device *device) {
  mock_init(device);
  device->in_allocate = note_allocate;
  device->in_deallocate = note_deallocate;
  device->on_completed = note_completed;
  device->on_shortage = note_shortage;
  answers[0] = SLICEPOOL_SHORTAGE_REFUSE;
  answer_count = 1;
  forget_events();
}

/* ---- the ladder */

/* Idle pages of another pool, a slice that waits, and a device that refuses. */
static void everything_is_tried_in_the_order_that_the_header_says(void) {
  const slicepool_pool_options pools[2] = { sliced(4096, 0, 0, 256), direct(0, 256) };
  struct mock_device device;
  init_noting(&device);
  slicepool_allocator *allocator = create_limited(&device, pools, 2, 0, 0);
  const slicepool_slice waiting = take_in(allocator, 0, 4096);
  touch(allocator, 5000);
  free_at(allocator, waiting.id, 1, 1);
  forget_events();
  /* The device says nothing of use, has no page, not even after one was given back, and nobody evicts anything. */
  device.capacity = 1;
  refused_in(allocator, 0, 100, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_TEXT(events, "CADAO");
  /* Somebody may have evicted something. */
  OK(slicepool_trim(allocator, UINT64_MAX, NULL));
  forget_events();
  answers[0] = answers[1] = SLICEPOOL_SHORTAGE_RETRY;
  answers[2] = SLICEPOOL_SHORTAGE_REFUSE;
  answer_count = 3;
  refused_in(allocator, 0, 100, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_TEXT(events, "CAOCAOCAO");
  /* Memory that is held is used before anybody is asked. */
  device.capacity = 0;
  const slicepool_slice half = take_in(allocator, 0, 2048);
  forget_events();
  OK(slicepool_free(allocator, take_in(allocator, 0, 2048).id));
  CHECK_TEXT(events, "");
  OK(slicepool_free(allocator, half.id));
  collect(allocator, 1, 1);
  finish(allocator, &device);
}

/* Holes enough of the right size, all at the wrong place but one, so that it takes a look at more than 64 to find it. */
static void a_free_range_that_takes_a_long_look_to_find_serves_before_pages_are_given_back(void) {
  enum { HOLES = 200, RIGHT = 150 };
  const slicepool_pool_options pools[2] = { sliced(HOLES * 1024, 0, 0, 64), direct(0, 64) };
  struct mock_device device;
  init_noting(&device);
  slicepool_allocator *allocator = create_limited(&device, pools, 2, 0, 0);
  uint64_t holes[HOLES], kept[2 * HOLES], right = 0;
  for (int i = 0; i < HOLES; i++) {
    if (i == RIGHT) {
      right = take_in(allocator, 0, 512).id;
      kept[2 * i] = take_in(allocator, 0, 256).id;
      kept[2 * i + 1] = take_in(allocator, 0, 256).id;
      holes[i] = 0;
      continue;
    }
    kept[2 * i] = take_in(allocator, 0, 64).id;
    holes[i] = take_in(allocator, 0, 512).id;
    kept[2 * i + 1] = take_in(allocator, 0, 448).id;
  }
  CHECK_EQ(device.live, 1);
  /* In the middle, wherever the look begins. */
  OK(slicepool_free_many(allocator, holes, HOLES / 2, NULL));
  OK(slicepool_free(allocator, right));
  OK(slicepool_free_many(allocator, holes + HOLES / 2, HOLES / 2, NULL));
  touch(allocator, HOLES * 1024 + 64);
  CHECK_EQ(figures_of(allocator).pages_idle, 1);
  device.capacity = 1;
  forget_events();
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.size = request.alignment = 512;
  request.flags = SLICEPOOL_REQUEST_IN_POOL;
  OK(slicepool_allocate(allocator, &request, &slice));
  CHECK_EQ(slice.offset, RIGHT * 1024);
  CHECK_TEXT(events, "A");
  OK(slicepool_free(allocator, slice.id));
  OK(slicepool_free_many(allocator, kept, 2 * HOLES, NULL));
  finish(allocator, &device);
}

/* Of any pool, those that have been idle the longest first, and no more than are needed. */
static void pages_that_hold_nothing_go_back_the_oldest_first_and_only_as_many_as_it_takes(void) {
  const slicepool_pool_options pools[3] = { direct(0, 256), sliced(4096, 0, 0, 256), sliced(8192, 0, 0, 256) };
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create_limited(&device, pools, 3, 0, 0);
  uint64_t ids[6], pages[6];
  for (uint32_t i = 0; i < 6; i++) {
    const slicepool_slice slice = take_in(allocator, i % 2, 4096);
    ids[i] = slice.id;
    pages[i] = slice.memory - MOCK_FIRST_HANDLE;
  }
  static const int order[6] = { 3, 0, 5, 2, 1, 4 };
  for (int i = 0; i < 6; i++) OK(slicepool_free(allocator, ids[order[i]]));
  device.capacity = 6 * 4096;
  const slicepool_slice slice = take_in(allocator, 2, 8192);
  for (int i = 0; i < 6; i++) CHECK_EQ(device.pages[pages[order[i]]].live, i >= 2);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

/* ---- what the device is done with */

static slicepool_result all_is_done(struct mock_device *device, uint32_t timeline, uint64_t *completed) {
  CHECK(timeline < 40);
  ((uint32_t *)device->hook_data)[timeline]++;
  *completed = 5;
  return SLICEPOOL_OK;
}

/* 48. */
static void what_the_device_is_done_with_serves_a_request_that_would_be_refused(void) {
  for (int k = 0; k < KINDS; k++) {
    uint32_t counts[40] = { 0 };
    struct mock_device device;
    mock_init(&device);
    device.on_completed = all_is_done;
    device.hook_data = counts;
    const slicepool_pool_options pool = kind_of(k).pool;
    slicepool_allocator *allocator = create_limited(&device, &pool, 1, 0, 0);
    slicepool_slice slices[200];
    uint32_t count = 0;
    device.capacity = MIB;
    for (int i = 0; i < 200; i++) slices[i] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
    while (count < 200 && try_take(allocator, 16 * KIB, 0, &slices[count], NULL) == SLICEPOOL_OK) count++;
    CHECK(count >= 32 && count < 200);
    CHECK_EQ(device.completed_calls, 0);
    /* Timelines are asked for that something waits for, each of them once. */
    for (uint32_t i = 0; i < 3; i++) free_at(allocator, slices[i].id, i == 2 ? 7 : 3, 5);
    free_at(allocator, slices[3].id, 9, 6);
    const slicepool_slice again = take(allocator, 16 * KIB);
    for (uint32_t t = 0; t < 40; t++) CHECK_EQ(counts[t], t == 3 || t == 7 || t == 9);
    CHECK_EQ(pending_in(allocator), 1);
    check_books(allocator, &device);
    OK(slicepool_free(allocator, again.id));
    for (uint32_t i = 4; i < count; i++) OK(slicepool_free(allocator, slices[i].id));
    collect(allocator, 9, 6);
    finish(allocator, &device);
  }
}

static void a_device_that_does_not_know_what_it_has_done_helps_nobody(void) {
  struct mock_device device;
  init_noting(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 4096, 256));
  free_at(allocator, take(allocator, 4096).id, 1, 1);
  forget_events();
  CHECK_EQ(refused(allocator, 100, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED).pending, 4096);
  CHECK_TEXT(events, "CO");
  CHECK_EQ(pending_in(allocator), 1);
  collect(allocator, 1, 1);
  finish(allocator, &device);
}

/* ---- out_of_memory */

static slicepool_shortage shortages[16];

static int32_t record_shortage(struct mock_device *device, const slicepool_shortage *shortage) {
  CHECK(device->shortage_calls <= 16);
  shortages[device->shortage_calls - 1] = *shortage;
  return SLICEPOOL_SHORTAGE_RETRY;
}

static void a_shortage_says_what_is_refused_and_why_at_most_eight_times(void) {
  static const slicepool_result results[] = { SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY,
                                              SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED, SLICEPOOL_ERROR_BUDGET_EXCEEDED,
                                              SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED };
  for (size_t r = 0; r < sizeof results / sizeof *results; r++) {
    struct mock_device device;
    mock_init(&device);
    device.on_shortage = record_shortage;
    const slicepool_pool_options pool = sliced(4096, 0, r == 1 ? 4096 : 0, 64);
    slicepool_allocator *allocator = create_limited(&device, &pool, 1, r == 2 ? 4096 : 0, r == 3);
    const slicepool_slice slice = take(allocator, 4096);
    if (r == 0) device.capacity = 1;
    refused(allocator, 500, 128, results[r]);
    CHECK_EQ(device.shortage_calls, 8);
    for (uint32_t i = 0; i < 8; i++) {
      CHECK_EQ(shortages[i].attempt, i);
      CHECK_EQ(shortages[i].size, 500);
      CHECK_EQ(shortages[i].alignment, 128);
      CHECK(shortages[i].result == results[r]);
    }
    OK(slicepool_free(allocator, slice.id));
    finish(allocator, &device);
  }
}

static void nobody_is_told_of_requests_that_no_free_would_help(void) {
  struct mock_device device;
  mock_init(&device);
  device.on_shortage = record_shortage;
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  refused(allocator, 5000, 0, SLICEPOOL_ERROR_TOO_LARGE);
  refused(allocator, 0, 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  device.fail_at = 1;
  device.failure = SLICEPOOL_ERROR_DEVICE_FAILED;
  refused(allocator, 100, 0, SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK(!would_fit(allocator, 100));
  CHECK_EQ(device.shortage_calls, 0);
  finish(allocator, &device);
}

static void any_answer_but_retry_refuses_the_request(void) {
  static const int32_t others[] = { SLICEPOOL_SHORTAGE_REFUSE, 2, -1, 12345, INT32_MIN, INT32_MAX };
  struct mock_device device;
  init_noting(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 4096, 64));
  const slicepool_slice slice = take(allocator, 4096);
  for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
    answers[0] = others[i];
    forget_events();
    refused(allocator, 100, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
    CHECK_TEXT(events, "O");
  }
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

/* What is evicted at the third call serves the request. */
struct cache {
  slicepool_allocator *allocator;
  uint64_t evictable;
  uint32_t depth, deepest;
};

static int32_t evict_in_the_end(struct mock_device *device, const slicepool_shortage *shortage) {
  struct cache *cache = device->hook_data;
  if (shortage->attempt == 2) OK(slicepool_free(cache->allocator, cache->evictable));
  return SLICEPOOL_SHORTAGE_RETRY;
}

static void what_the_callback_frees_serves_the_request(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    struct cache cache = { NULL, 0, 0, 0 };
    mock_init(&device);
    device.on_shortage = evict_in_the_end;
    device.hook_data = &cache;
    const slicepool_pool_options pool = kind_of(k).pool;
    cache.allocator = create_limited(&device, &pool, 1, 0, 1);
    cache.evictable = take(cache.allocator, 16 * KIB).id;
    while (would_fit(cache.allocator, 16 * KIB)) take(cache.allocator, 16 * KIB);
    const slicepool_slice slice = take(cache.allocator, 16 * KIB);
    CHECK_EQ(device.shortage_calls, 3);
    look_up(cache.allocator, slice.id);
    CHECK_RESULT(slicepool_free(cache.allocator, cache.evictable), SLICEPOOL_ERROR_STALE_HANDLE);
    OK(slicepool_allocator_destroy(cache.allocator, SLICEPOOL_DESTROY_FORCE, NULL));
    mock_end(&device);
  }
}

static int32_t allocate_once_more(struct mock_device *device, const slicepool_shortage *shortage) {
  struct cache *cache = device->hook_data;
  (void)shortage;
  cache->depth++;
  if (cache->depth > cache->deepest) cache->deepest = cache->depth;
  refused(cache->allocator, 100, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  cache->depth--;
  return SLICEPOOL_SHORTAGE_RETRY;
}

/* 8 calls for the request, within each of them 4 for that of the callback, within each of those 2, and within those 1. */
static void a_callback_that_allocates_comes_to_an_end(void) {
  struct mock_device device;
  struct cache cache = { NULL, 0, 0, 0 };
  mock_init(&device);
  device.on_shortage = allocate_once_more;
  device.hook_data = &cache;
  cache.allocator = create(&device, sliced(4096, 0, 4096, 64));
  const slicepool_slice slice = take(cache.allocator, 4096);
  refused(cache.allocator, 100, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(device.shortage_calls, 8 + 8 * 4 + 8 * 4 * 2 + 8 * 4 * 2);
  CHECK_EQ(cache.deepest, 4);
  OK(slicepool_free(cache.allocator, slice.id));
  finish(cache.allocator, &device);
}

static const struct test tests[] = {
  TEST(everything_is_tried_in_the_order_that_the_header_says),
  TEST(a_free_range_that_takes_a_long_look_to_find_serves_before_pages_are_given_back),
  TEST(pages_that_hold_nothing_go_back_the_oldest_first_and_only_as_many_as_it_takes),
  TEST(what_the_device_is_done_with_serves_a_request_that_would_be_refused),
  TEST(a_device_that_does_not_know_what_it_has_done_helps_nobody),
  TEST(a_shortage_says_what_is_refused_and_why_at_most_eight_times),
  TEST(nobody_is_told_of_requests_that_no_free_would_help),
  TEST(any_answer_but_retry_refuses_the_request),
  TEST(what_the_callback_frees_serves_the_request),
  TEST(a_callback_that_allocates_comes_to_an_end),
};

TEST_MAIN(tests)
