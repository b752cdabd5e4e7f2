/* What calls say about their failures: results, texts, details; and what devices and callbacks may answer. */
#include "check.h"
#include "world.h"

/* ---- results and details */

static void every_number_has_a_text_and_every_code_its_own(void) {
  static const slicepool_result known[] = {
    SLICEPOOL_OK, SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_STALE_HANDLE, SLICEPOOL_ERROR_FOREIGN_HANDLE,
    SLICEPOOL_ERROR_TOO_LARGE, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY,
    SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_ERROR_BUSY,
    SLICEPOOL_ERROR_NOT_SUPPORTED, SLICEPOOL_ERROR_VERSION_MISMATCH, SLICEPOOL_ERROR_TOO_MANY_SLICES,
    SLICEPOOL_ERROR_NO_ROOM, SLICEPOOL_ERROR_BUDGET_EXCEEDED, SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED,
    SLICEPOOL_ERROR_MAPPING_FAILED, SLICEPOOL_ERROR_POOLS_IN_USE, SLICEPOOL_ERROR_MARGIN_DAMAGED,
    SLICEPOOL_ERROR_EXHAUSTED, SLICEPOOL_ERROR_OVERSIZED, SLICEPOOL_ERROR_CLOSED,
  };
  enum { KNOWN = sizeof known / sizeof *known };
  const char *unknown = slicepool_result_string(INT_MIN);
  CHECK(unknown != NULL && strlen(unknown) > 3);
  for (slicepool_result result = -100000; result <= 100000; result++) {
    const char *text = slicepool_result_string(result);
    CHECK(text != NULL && strlen(text) > 3 && strlen(text) < 100);
    CHECK(text == slicepool_result_string(result));
    bool is_known = false;
    for (int i = 0; i < KNOWN; i++) is_known = is_known || known[i] == result;
    CHECK(is_known == (strcmp(text, unknown) != 0));
  }
  CHECK_TEXT(slicepool_result_string(INT_MAX), unknown);
  for (int a = 0; a < KNOWN; a++)
    for (int b = 0; b < a; b++)
      CHECK(strcmp(slicepool_result_string(known[a]), slicepool_result_string(known[b])) != 0);
  /* For the driver, which compares with the codes of the header. */
  for (int i = 0; i < KNOWN; i++) printf("code %d\n", known[i]);
}

/* A failure whose every field was garbage before. */
static slicepool_failure garbage(void) {
  slicepool_failure failure;
  memset(&failure, 0x5A, sizeof failure);
  failure.struct_size = sizeof failure;
  return failure;
}

#define CHECK_FAILURE(failure, ...)                                                        \
  do {                                                                                     \
    const slicepool_failure check_failure = { (uint32_t)sizeof(slicepool_failure), __VA_ARGS__ }; \
    CHECK_EQ((failure).result, check_failure.result);                                      \
    CHECK_EQ((failure).size, check_failure.size);                                          \
    CHECK_EQ((failure).limit, check_failure.limit);                                        \
    CHECK_EQ((failure).in_use, check_failure.in_use);                                      \
    CHECK_EQ((failure).pending, check_failure.pending);                                    \
    CHECK_EQ((failure).largest_free, check_failure.largest_free);                          \
    CHECK_EQ((failure).value, check_failure.value);                                        \
    CHECK_EQ((failure).memory, check_failure.memory);                                      \
    CHECK_EQ((failure).live, check_failure.live);                                          \
    CHECK_EQ((failure).in_flight, check_failure.in_flight);                                \
    CHECK_EQ((failure).index, check_failure.index);                                        \
    CHECK_EQ((failure).device_code, check_failure.device_code);                            \
    CHECK_EQ((failure).device_fault, check_failure.device_fault);                          \
    if (check_failure.field == NULL) CHECK((failure).field == NULL);                       \
    else CHECK_TEXT((failure).field, check_failure.field);                                 \
    CHECK((failure).reserved == NULL);                                                     \
  } while (0)

static void details_say_what_the_failure_was_and_nothing_else(void) {
  build_world();
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_failure failure = garbage();
  try_take(world.allocator, 100, 48, &slice, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_INVALID_ARGUMENT, .field = "alignment", .value = 48);
  failure = garbage();
  try_take(world.allocator, 0, 0, &slice, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_INVALID_ARGUMENT, .field = "size", .value = 0);
  failure = garbage();
  try_take(NULL, 100, 0, &slice, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_INVALID_ARGUMENT, .field = "allocator", .value = 0);
  failure = garbage();
  try_take(world.allocator, 100, 0, NULL, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_INVALID_ARGUMENT, .field = "slice", .value = 0);
  failure = garbage();
  try_take(world.allocator, 64 * KIB + 1, 0, &slice, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_TOO_LARGE, .size = 64 * KIB + 1, .limit = 64 * KIB);
  failure = garbage();
  try_take(world.allocator, 64 * KIB, 0, &slice, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED, .size = 64 * KIB, .limit = 64 * KIB,
                .in_use = 5000, .largest_free = 64 * KIB - 5120);

  const uint64_t stale = take(world.allocator, 100).id;
  OK(slicepool_free(world.allocator, stale));
  const uint64_t wrong[3] = { 0, world.slice.id, stale };
  failure = garbage();
  slicepool_free_many(world.allocator, wrong, 3, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_STALE_HANDLE, .index = 2);
  failure = garbage();
  slicepool_free_many(world.allocator, NULL, 3, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_INVALID_ARGUMENT, .field = "ids");
  failure = garbage();
  slicepool_try_resize(world.allocator, stale, 1, &slice, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_STALE_HANDLE);
  failure = garbage();
  slicepool_try_resize(world.allocator, 0, 1, &slice, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_INVALID_ARGUMENT, .field = "id");

  slicepool_slice next = take(world.allocator, 100);
  failure = garbage();
  slicepool_try_resize(world.allocator, world.slice.id, 6000, &slice, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_NO_ROOM, .size = 6000, .limit = 5120);
  OK(slicepool_free(world.allocator, next.id));

  failure = garbage();
  slicepool_allocator_destroy(world.allocator, 0, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_BUSY, .live = 1, .in_use = 5000);
  const slicepool_point point = { 4, 0, 2 };
  const uint64_t waiting[2] = { take(world.allocator, 700).id, take(world.allocator, 100).id };
  OK(slicepool_free_after_many(world.allocator, waiting, 2, &point, 1, NULL));
  failure = garbage();
  slicepool_allocator_destroy(world.allocator, 0, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_BUSY, .live = 1, .in_use = 5000, .pending = 2);
  failure = garbage();
  try_take(world.allocator, 64 * KIB, 0, &slice, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED, .size = 64 * KIB, .limit = 64 * KIB,
                .in_use = 5000, .pending = 768 + 256, .largest_free = 64 * KIB - 5120 - 768 - 256);
  failure = garbage();
  slicepool_free_after(world.allocator, waiting[0], &point, 1, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_STALE_HANDLE);
  failure = garbage();
  slicepool_free_after_many(world.allocator, waiting, 2, &point, 1, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_STALE_HANDLE, .index = 0);
  OK(slicepool_collect(world.allocator, 4, 2, NULL));
  failure = garbage();
  const slicepool_pool_options other = sliced(4096, 0, 0, 64);
  slicepool_install_pools(world.allocator, &other, 1, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_POOLS_IN_USE, .in_use = 5120);
  failure = garbage();
  slicepool_allocator_destroy(world.allocator, 2, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_INVALID_ARGUMENT, .field = "flags", .value = 2);

  failure = garbage();
  slicepool_space_slice piece = SLICEPOOL_SPACE_SLICE_INIT;
  slicepool_space_allocate(world.space, 901, 1, &piece, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED, .size = 901, .limit = 1000, .in_use = 100,
                .largest_free = 900);
  failure = garbage();
  slicepool_space_allocate(world.space, 1001, 1, &piece, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_TOO_LARGE, .size = 1001, .limit = 1000);
  failure = garbage();
  slicepool_space_try_resize(world.space, world.piece.id, 0, &piece, &failure);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_INVALID_ARGUMENT, .field = "size");

  /* Of a batch: the failure of the request that was refused, else of the first. */
  slicepool_request requests[3] = { request_of(100), request_of(TWO_63), request_of(100) };
  slicepool_slice slices[3] = { SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT };
  slicepool_failure first = garbage(), second = garbage();
  requests[0].failure = &first;
  slicepool_allocate_many(world.allocator, requests, 3, slices);
  CHECK_FAILURE(first, .result = SLICEPOOL_ERROR_TOO_LARGE, .size = TWO_63, .limit = 64 * KIB, .index = 1);
  first = garbage();
  const slicepool_failure untouched = first;
  requests[1].failure = &second;
  slicepool_allocate_many(world.allocator, requests, 3, slices);
  CHECK_FAILURE(second, .result = SLICEPOOL_ERROR_TOO_LARGE, .size = TWO_63, .limit = 64 * KIB, .index = 1);
  CHECK(memcmp(&first, &untouched, sizeof first) == 0);

  failure = garbage();
  slicepool_space_config space_config = SLICEPOOL_SPACE_CONFIG_INIT;
  space_config.failure = &failure;
  space_config.size = UINT64_C(1) << 32;
  CHECK_RESULT(create_space_with(&space_config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_INVALID_ARGUMENT, .field = "size", .value = UINT64_C(1) << 32);
  space_config.granule = 3;
  CHECK_RESULT(create_space_with(&space_config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_INVALID_ARGUMENT, .field = "granule", .value = 3);

  failure = garbage();
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.failure = &failure;
  const slicepool_pool_options too_large = sliced(2 * MIB, 0, 0, 256);
  config.pools = &too_large;
  config.pool_count = 1;
  config.max_page = MIB;
  CHECK_RESULT(create_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_INVALID_ARGUMENT, .field = "page_size", .value = 2 * MIB);
  /* The default pool keeps to what the device gives out. */
  config.pool_count = 0;
  OK(create_with_config(&config));
  failure = garbage();
  CHECK_RESULT(slicepool_allocator_create(&world.table, &config, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_INVALID_ARGUMENT, .field = "allocator");
  end_world();
}

/* ---- devices */

static void what_a_device_answers_comes_back_in_the_details(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 256));
  static const struct {
    slicepool_result answer;
    int32_t device_code;
    slicepool_result result;
    uint32_t fault;
    int32_t reported;
  } cases[] = {
    { SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, -2, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_DEVICE_FAULT_NONE, -2 },
    { SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, INT_MIN, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_DEVICE_FAULT_NONE,
      INT_MIN },
    { SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_DEVICE_FAULT_NONE, 0 },
    { SLICEPOOL_ERROR_DEVICE_FAILED, 0, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_REPORTED, 0 },
    { SLICEPOOL_ERROR_DEVICE_FAILED, -4, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_REPORTED, -4 },
    { SLICEPOOL_ERROR_DEVICE_FAILED, 700, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_REPORTED, 700 },
    { 12345, 0, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT, 12345 },
    { 12345, -2, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT, 12345 },
    { INT_MIN, 0, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT, INT_MIN },
    { INT_MAX, 0, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT, INT_MAX },
    { 1, 0, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT, 1 },
    { SLICEPOOL_ERROR_INVALID_ARGUMENT, 0, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT,
      SLICEPOOL_ERROR_INVALID_ARGUMENT },
    { SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, 0, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT,
      SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY },
  };
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  device.fail_at = 1;
  device.fail_from_then_on = true;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    device.failure = cases[i].answer;
    device.device_code = cases[i].device_code;
    slicepool_failure failure = garbage();
    /* The device is asked again although it has just refused. */
    OK(slicepool_trim(allocator, UINT64_MAX, NULL));
    CHECK_RESULT(try_take(allocator, 100, 0, &slice, &failure), cases[i].result);
    CHECK_FAILURE(failure, .result = cases[i].result, .device_code = cases[i].reported, .device_fault = cases[i].fault,
                  .size = cases[i].result == SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY ? 4096 : 0);
    CHECK_EQ(slice.id, 0);
    slicepool_statistics figures = figures_of(allocator);
    CHECK_EQ(figures.reserved_bytes, 0);
    CHECK_EQ(figures.growths_in_flight, 0);
    CHECK_EQ(figures.device_allocations, 0);
  }
  CHECK_EQ(device.deallocate_calls, 0);
  device.fail_at = 0;
  OK(slicepool_trim(allocator, UINT64_MAX, NULL));
  OK(slicepool_free(allocator, take(allocator, 100).id));

  /* A device that refuses to take a page back. */
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    device.refusal = cases[i].answer;
    device.refusals = 1;
    CHECK_RESULT(slicepool_trim(allocator, 0, NULL), SLICEPOOL_ERROR_DEVICE_FAILED);
    slicepool_failure failure = garbage();
    device.refusals = 1;
    CHECK_RESULT(slicepool_allocator_destroy(allocator, 0, &failure), SLICEPOOL_ERROR_DEVICE_FAILED);
    CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_REFUSED);
    CHECK(failure.device_code == cases[i].answer);
    CHECK_EQ(figures_of(allocator).pages_stuck, 1);
  }
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  mock_end(&device);
}

/* ---- walks, objects that are gone */

static int32_t answer_garbage(void *user_data, const slicepool_range *range) {
  (void)range;
  int32_t *answers = user_data;
  answers[1]++;
  return answers[0];
}

static void any_answer_but_continue_ends_a_walk(void) {
  build_world();
  static const int32_t answers[] = { SLICEPOOL_WALK_STOP, 2, -1, 12345, INT_MIN, INT_MAX };
  for (size_t i = 0; i < sizeof answers / sizeof *answers; i++) {
    int32_t counted[2] = { answers[i], 0 };
    OK(slicepool_walk(world.allocator, answer_garbage, counted));
    CHECK_EQ(counted[1], 1);
  }
  int32_t counted[2] = { SLICEPOOL_WALK_CONTINUE, 0 };
  OK(slicepool_walk(world.allocator, answer_garbage, counted));
  CHECK_EQ(counted[1], 2);
  end_world();
}

static void nothing_is_touched_after_destroy(void) {
  /* The device becomes inaccessible when destroy has returned. */
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  struct mock_device *device = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(device != MAP_FAILED && sizeof *device <= page);
  mock_init(device);
  slicepool_allocator *allocator = create(device, sliced(4096, 0, 0, 256));
  uint64_t ids[20];
  for (int i = 0; i < 20; i++) ids[i] = take(allocator, 1000).id;
  OK(slicepool_free_many(allocator, ids, 20, NULL));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  mock_end(device);
  CHECK(mprotect(device, page, PROT_NONE) == 0);
  build_world();
  for (int i = 0; i < 20; i++) take(world.allocator, 1000);
  OK(slicepool_allocator_destroy(world.allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  OK(slicepool_space_destroy(world.space));
  mock_end(&world.device);
}

/* A deallocate callback that takes a page and frees it again makes another page idle each time. */
static void take_and_free_a_page(struct mock_device *device) {
  slicepool_allocator *allocator = device->hook_data;
  OK(slicepool_free(allocator, take(allocator, 4096).id));
}

static void trimming_ends_although_a_callback_makes_pages_idle_all_the_time(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 256));
  slicepool_slice slices[3];
  for (int i = 0; i < 3; i++) slices[i] = take(allocator, 4096);
  for (int i = 0; i < 3; i++) OK(slicepool_free(allocator, slices[i].id));
  device.hook_data = allocator;
  device.in_deallocate = take_and_free_a_page;
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_LE(device.deallocate_calls, 3);
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_LE(device.deallocate_calls, 6);
  /* Destroying takes no page any more, so that it ends as well. */
  device.in_deallocate = NULL;
  finish(allocator, &device);
}

static void a_refused_page_is_reported_by_trim_with_what_the_device_answered(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 256));
  OK(slicepool_free(allocator, take(allocator, 100).id));
  device.refusals = 2;
  device.refusal = 12345;
  slicepool_failure failure = garbage();
  CHECK_RESULT(slicepool_trim(allocator, 0, &failure), SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_FAILURE(failure, .result = SLICEPOOL_ERROR_DEVICE_FAILED, .device_code = 12345,
                .device_fault = SLICEPOOL_DEVICE_FAULT_REFUSED);
  failure = garbage();
  CHECK_RESULT(slicepool_cleanup(allocator, &failure), SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(failure.device_code, 12345);
  CHECK_EQ(figures_of(allocator).pages_stuck, 1);
  OK(slicepool_cleanup(allocator, NULL));
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(every_number_has_a_text_and_every_code_its_own),
  TEST(details_say_what_the_failure_was_and_nothing_else),
  TEST(what_a_device_answers_comes_back_in_the_details),
  TEST(trimming_ends_although_a_callback_makes_pages_idle_all_the_time),
  TEST(a_refused_page_is_reported_by_trim_with_what_the_device_answered),
  TEST(any_answer_but_continue_ends_a_walk),
  TEST(nothing_is_touched_after_destroy),
};

TEST_MAIN(tests)
