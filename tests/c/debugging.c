/* Help in finding programs' faults: slices that are filled with bytes that catch the eye, and margins behind them. */
#include "check.h"
#include "shorthand.h"

#define FILL SLICEPOOL_ALLOCATOR_DEBUG_FILL

enum { NEW = 0xDC, FREED = 0xEF, MARGIN = 0xFD };

/* Over host memory, where everything is seen. */
static slicepool_allocator *create_debugging(slicepool_pool_options pool, uint32_t flags, uint64_t margin) {
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  OK(slicepool_host_device(&table));
  slicepool_allocator_config config = config_for(&pool, 1);
  config.flags = flags;
  config.debug_margin = margin;
  config.persistent_granule = 32;
  return create_of(&table, config);
}

static bool is_all(const void *memory, uint64_t size, int byte) {
  const unsigned char *bytes = memory;
  for (uint64_t i = 0; i < size; i++)
    if (bytes[i] != byte) return false;
  return true;
}

/* Of a slice whose page is held by another: its memory can be looked at after it was freed. */
static slicepool_slice take_beside(slicepool_allocator *allocator, uint64_t size) {
  take(allocator, 64);
  return take(allocator, size);
}

/* ---- DEBUG_FILL */

static void a_new_slice_and_a_freed_one_catch_the_eye(void) {
  for (int k = 0; k < KINDS; k++) {
    slicepool_allocator *allocator = create_debugging(kind_of(k).pool, FILL, 0);
    const slicepool_slice slice = take_beside(allocator, 1000);
    CHECK(is_all(slice.mapped, slice.size, NEW));
    memset(slice.mapped, 1, slice.size);
    OK(slicepool_free(allocator, slice.id));
    CHECK(is_all(slice.mapped, slice.size, FREED));
    const slicepool_slice again = take(allocator, 1000);
    CHECK(again.mapped == slice.mapped && is_all(again.mapped, again.size, NEW));
    OK(slicepool_free_many(allocator, &again.id, 1, NULL));
    CHECK(is_all(again.mapped, again.size, FREED));
    OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  }
}

static _Alignas(4096) unsigned char only_page[4096];

static slicepool_result give_the_only_page(void *user_data, const slicepool_page_request *request,
                                           slicepool_device_memory *memory) {
  (void)user_data;
  CHECK_LE(request->size, sizeof only_page);
  memory->handle = 1;
  memory->mapped = only_page;
  return SLICEPOOL_OK;
}

static slicepool_result take_the_only_page(void *user_data, const slicepool_device_memory *memory) {
  (void)user_data;
  CHECK_EQ(memory->handle, 1);
  return SLICEPOOL_OK;
}

/* Such a page may hold what was imported, and be smaller than the slice says. */
static void nothing_is_written_to_a_page_with_device_data(void) {
  unsigned char *const memory = only_page;
  int data = 0;
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  table.allocate = give_the_only_page;
  table.deallocate = take_the_only_page;
  const slicepool_pool_options pool = sliced(4096, 0, 0, 256);
  slicepool_allocator_config config = config_for(&pool, 1);
  config.flags = FILL;
  config.debug_margin = 256;
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  memset(memory, 1, sizeof only_page);
  slicepool_allocator *allocator = create_of(&table, config);
  request.size = 1000;
  request.device_data = &data;
  OK(slicepool_allocate(allocator, &request, &slice));
  CHECK(slice.mapped == memory);
  OK(slicepool_check_margins(allocator, NULL));
  OK(slicepool_free(allocator, slice.id));
  CHECK(is_all(memory, sizeof only_page, 1));
  OK(slicepool_trim(allocator, 0, NULL));
  /* What the test would see. */
  request.device_data = NULL;
  OK(slicepool_allocate(allocator, &request, &slice));
  CHECK(slice.mapped == memory && is_all(memory, 1024, NEW) && is_all(memory + 1024, 256, MARGIN));
  OK(slicepool_free(allocator, slice.id));
  CHECK(is_all(memory, 1024, FREED));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
}

static void memory_that_the_device_still_uses_is_left_alone_until_that_is_over(void) {
  for (int many = 0; many < 2; many++) {
    slicepool_allocator *allocator = create_debugging(sliced(4096, 0, 0, 64), FILL, 0);
    const slicepool_slice slice = take_beside(allocator, 1000);
    memset(slice.mapped, 1, slice.size);
    const slicepool_point point = { 1, 0, 5 };
    if (many == 1) OK(slicepool_free_after_many(allocator, &slice.id, 1, &point, 1, NULL));
    else OK(slicepool_free_after(allocator, slice.id, &point, 1, NULL));
    collect(allocator, 1, 4);
    OK(slicepool_trim(allocator, 0, NULL));
    CHECK(is_all(slice.mapped, slice.size, 1));
    collect(allocator, 1, 5);
    CHECK(is_all(slice.mapped, slice.size, FREED));
    CHECK_EQ(pending_in(allocator), 0);
    OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  }
}

static void zeros_that_were_asked_for_are_zeros(void) {
  slicepool_allocator *allocator = create_debugging(sliced(4096, 0, 0, 64), FILL, 64);
  const slicepool_slice slice = take_flagged(allocator, 1000, SLICEPOOL_REQUEST_ZERO);
  CHECK(is_all(slice.mapped, slice.size, 0));
  OK(slicepool_free(allocator, slice.id));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
}

/* The mock device crashes whoever touches its memory. */
static void memory_that_the_cpu_does_not_see_is_not_touched(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    mock_init(&device);
    const slicepool_device table = mock_table(&device);
    const slicepool_pool_options pool = kind_of(k).pool;
    slicepool_allocator_config config = config_for(&pool, 1);
    config.flags = FILL;
    config.debug_margin = 100;
    slicepool_allocator *allocator = create_of(&table, config);
    slicepool_slice slice = take(allocator, 1000);
    const slicepool_slice other = take(allocator, 1000);
    OK(slicepool_check_margins(allocator, NULL));
    OK(slicepool_try_resize(allocator, slice.id, 500, &slice, NULL));
    free_at(allocator, slice.id, 1, 1);
    collect(allocator, 1, 1);
    OK(slicepool_free(allocator, other.id));
    OK(slicepool_allocator_destroy(allocator, 0, NULL));
    mock_end(&device);
  }
}

/* ---- margins */

static void a_margin_of_whole_granules_lies_behind_every_slice(void) {
  static const uint64_t margins[] = { 1, 31, 32, 33, 100, 4096 };
  for (int k = 0; k < KINDS; k++) {
    for (int m = 0; m < 6; m++) {
      const uint64_t margin = (margins[m] + 31) / 32 * 32;
      slicepool_allocator *allocator = create_debugging(kind_of(k).pool, 0, margins[m]);
      uint64_t ids[20];
      for (int i = 0; i < 20; i++) {
        const uint32_t flags = i % 5 == 0 ? SLICEPOOL_REQUEST_PERSISTENT : 0;
        const slicepool_slice slice = take_flagged(allocator, 100, flags);
        ids[i] = slice.id;
        CHECK(slice.size >= 128);
        CHECK(is_all((unsigned char *)slice.mapped + slice.size, margin, MARGIN));
        /* All that is the program's own may be written to. */
        memset(slice.mapped, i, slice.size);
      }
      OK(slicepool_check_margins(allocator, NULL));
      check_sums(allocator);
      for (int i = 0; i < 20; i++) {
        const slicepool_slice slice = look_up(allocator, ids[i]);
        CHECK(is_all(slice.mapped, slice.size, i));
      }
      OK(slicepool_free_many(allocator, ids, 20, NULL));
      OK(slicepool_allocator_destroy(allocator, 0, NULL));
    }
  }
}

static void a_slice_and_its_margin_fill_a_page(void) {
  slicepool_allocator *allocator = create_debugging(sliced(4096, 0, 0, 32), 0, 100);
  const slicepool_slice slice = take(allocator, 4096 - 128);
  CHECK_EQ(slice.size, 4096 - 128);
  refused(allocator, 4096 - 127, 0, SLICEPOOL_ERROR_TOO_LARGE);
  OK(slicepool_free(allocator, slice.id));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
}

/* Programs whose faults are looked for ask for what they always ask for. */
static void pages_of_one_slice_take_what_they_take_without_margins(void) {
  for (uint64_t margin = 0; margin <= 100; margin += 100) {
    slicepool_allocator *allocator = create_debugging(exclusive(1000, 32), 0, margin);
    OK(slicepool_free(allocator, take(allocator, 1000).id));
    refused(allocator, 1001, 0, SLICEPOOL_ERROR_TOO_LARGE);
    OK(slicepool_allocator_destroy(allocator, 0, NULL));
  }
}

static void slices_of_no_bytes_are_handed_out_with_margins_too(void) {
  for (uint64_t margin = 0; margin <= 100; margin += 100) {
    slicepool_allocator *allocator = create_debugging(exclusive(0, 32), 0, margin);
    const slicepool_slice first = take(allocator, 0), second = take(allocator, 0);
    CHECK(first.id != second.id);
    OK(slicepool_check_margins(allocator, NULL));
    OK(slicepool_free(allocator, first.id));
    OK(slicepool_free(allocator, second.id));
    OK(slicepool_allocator_destroy(allocator, 0, NULL));
  }
}

static unsigned char *byte_behind(const slicepool_slice *slice, uint64_t at) {
  return (unsigned char *)slice->mapped + slice->size + at;
}

static void check_damage(const slicepool_failure *failure, const slicepool_slice *slice, uint64_t at) {
  CHECK_EQ(failure->result, SLICEPOOL_ERROR_MARGIN_DAMAGED);
  CHECK_EQ(failure->memory, slice->memory);
  CHECK_EQ(failure->value, slice->offset + slice->size + at);
}

static void a_byte_behind_a_slice_that_was_written_to_is_found_when_it_is_freed(void) {
  enum { LENGTH = 128 };
  for (int k = 0; k < KINDS; k++) {
    slicepool_allocator *allocator = create_debugging(kind_of(k).pool, 0, LENGTH);
    take(allocator, 500);
    for (uint64_t at = 0; at < LENGTH; at += 127) {
      for (int way = 0; way < 5; way++) {
        const slicepool_slice slice = take_flagged(allocator, 1000, way == 4 ? SLICEPOOL_REQUEST_PERSISTENT : 0);
        const slicepool_slice other = take(allocator, 1000);
        const uint64_t ids[2] = { other.id, slice.id };
        const slicepool_point point = { 1, 0, (uint64_t)way + 1 };
        slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
        *byte_behind(&slice, at) = 0;
        switch (way) {
          case 0:
          case 4:
            CHECK_RESULT(slicepool_free(allocator, slice.id), SLICEPOOL_ERROR_MARGIN_DAMAGED);
            break;
          case 1:
            CHECK_RESULT(slicepool_free_many(allocator, ids, 2, &failure), SLICEPOOL_ERROR_MARGIN_DAMAGED);
            CHECK_EQ(failure.index, 1);
            check_damage(&failure, &slice, at);
            break;
          case 2:
            CHECK_RESULT(slicepool_free_after(allocator, slice.id, &point, 1, &failure),
                         SLICEPOOL_ERROR_MARGIN_DAMAGED);
            check_damage(&failure, &slice, at);
            break;
          default:
            CHECK_RESULT(slicepool_free_after_many(allocator, ids, 2, &point, 1, &failure),
                         SLICEPOOL_ERROR_MARGIN_DAMAGED);
            CHECK_EQ(failure.index, 1);
            check_damage(&failure, &slice, at);
        }
        /* Nothing has changed, but that the damage is mended and told once. */
        const slicepool_slice found = look_up(allocator, slice.id);
        CHECK(same_slice(&found, &slice));
        look_up(allocator, other.id);
        CHECK(is_all(byte_behind(&slice, 0), LENGTH, MARGIN));
        OK(slicepool_free_many(allocator, ids, 2, NULL));
      }
    }
    OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  }
}

static void a_look_finds_one_damaged_margin_after_the_other(void) {
  enum { COUNT = 100, DAMAGED = 5 };
  for (int k = 0; k < KINDS; k++) {
    if (kind_of(k).pool.max_pool_size != 0) continue;
    slicepool_allocator *allocator = create_debugging(kind_of(k).pool, 0, 32);
    slicepool_slice slices[COUNT];
    for (int i = 0; i < COUNT; i++) slices[i] = take_flagged(allocator, 200, i % 7 == 0 ? SLICEPOOL_REQUEST_PERSISTENT : 0);
    OK(slicepool_check_margins(allocator, NULL));
    static const int places[DAMAGED] = { 0, 13, 50, 77, 99 };
    for (int d = 0; d < DAMAGED; d++) memset(byte_behind(&slices[places[d]], (uint64_t)d), 7, 3);
    bool found[DAMAGED] = { false };
    for (int d = 0; d < DAMAGED; d++) {
      slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
      CHECK_RESULT(slicepool_check_margins(allocator, &failure), SLICEPOOL_ERROR_MARGIN_DAMAGED);
      for (int e = 0; e < DAMAGED; e++) {
        const slicepool_slice *slice = &slices[places[e]];
        if (slice->memory != failure.memory || failure.value != slice->offset + slice->size + (uint64_t)e) continue;
        CHECK(!found[e]);
        found[e] = true;
      }
    }
    for (int d = 0; d < DAMAGED; d++) CHECK(found[d]);
    OK(slicepool_check_margins(allocator, NULL));
    for (int i = 0; i < COUNT; i++) OK(slicepool_free(allocator, slices[i].id));
    OK(slicepool_allocator_destroy(allocator, 0, NULL));
  }
}

static void a_slice_that_is_resized_has_its_margin_behind_its_new_end(void) {
  slicepool_allocator *allocator = create_debugging(sliced(4096, 0, 0, 32), 0, 64);
  slicepool_slice slice = take(allocator, 1000);
  static const uint64_t sizes[] = { 2000, 500, 501, 512, 3000, 1, 4032 };
  for (int i = 0; i < 7; i++) {
    OK(slicepool_try_resize(allocator, slice.id, sizes[i], &slice, NULL));
    CHECK(slice.size >= sizes[i]);
    CHECK(is_all(byte_behind(&slice, 0), 64, MARGIN));
    memset(slice.mapped, i, slice.size);
    OK(slicepool_check_margins(allocator, NULL));
  }
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_try_resize(allocator, slice.id, 4033, &slice, &failure), SLICEPOOL_ERROR_TOO_LARGE);
  CHECK_EQ(failure.limit, 4032);
  OK(slicepool_free(allocator, slice.id));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
}

static void an_allocator_with_damaged_margins_can_be_destroyed(void) {
  slicepool_allocator *allocator = create_debugging(sliced(4096, 0, 0, 32), FILL, 64);
  const slicepool_slice slice = take(allocator, 1000);
  *byte_behind(&slice, 63) = 0;
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
}

static void without_margins_and_filling_nothing_is_touched(void) {
  slicepool_allocator *allocator = create_debugging(sliced(4096, 0, 0, 64), 0, 0);
  const slicepool_slice keeper = take(allocator, 64), slice = take(allocator, 1024), next = take(allocator, 64);
  memset(slice.mapped, 1, slice.size + next.size);
  OK(slicepool_check_margins(allocator, NULL));
  OK(slicepool_free(allocator, slice.id));
  CHECK(is_all(slice.mapped, slice.size + next.size, 1));
  CHECK(take(allocator, 1024).mapped == slice.mapped);
  CHECK(is_all(slice.mapped, slice.size + next.size, 1));
  look_up(allocator, keeper.id);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
}

/* ---- threads */

struct worker {
  slicepool_allocator *allocator;
  uint64_t seed, operations, done;
};

static void *use_slices(void *argument) {
  struct worker *worker = argument;
  uint64_t state = worker->seed;
  for (uint64_t i = 0; i < worker->operations; i++) {
    const slicepool_slice slice = take(worker->allocator, random_between(&state, 1, 2000));
    memset(slice.mapped, 1, slice.size);
    OK(slicepool_free(worker->allocator, slice.id));
  }
  __atomic_store_n(&worker->done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static void *resize_slices(void *argument) {
  struct worker *worker = argument;
  uint64_t state = worker->seed;
  slicepool_slice slice = take(worker->allocator, 100);
  for (uint64_t i = 0; i < worker->operations; i++) {
    const slicepool_result result =
        slicepool_try_resize(worker->allocator, slice.id, random_between(&state, 1, 2000), &slice, NULL);
    CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_NO_ROOM);
    memset(slice.mapped, 2, slice.size);
  }
  OK(slicepool_free(worker->allocator, slice.id));
  __atomic_store_n(&worker->done, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* Nobody writes behind a slice, so that nobody is to be told so. */
static void look_at_margins_during(void *(*work)(void *)) {
  slicepool_allocator *allocator = create_debugging(sliced(64 * KIB, 0, 0, 32), 0, 256);
  struct worker worker = { allocator, 3, 1000 + rounds(200000), 0 };
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, work, &worker) == 0);
  uint64_t damaged = 0;
  while (__atomic_load_n(&worker.done, __ATOMIC_ACQUIRE) == 0)
    damaged += slicepool_check_margins(allocator, NULL) != SLICEPOOL_OK;
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQ(damaged, 0);
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
}

static void a_look_at_margins_while_slices_come_and_go_finds_nothing(void) { look_at_margins_during(use_slices); }

static void a_look_at_margins_while_a_slice_is_resized_finds_nothing(void) { look_at_margins_during(resize_slices); }

static const struct test tests[] = {
  TEST(nothing_is_written_to_a_page_with_device_data),
  TEST(a_new_slice_and_a_freed_one_catch_the_eye),
  TEST(memory_that_the_device_still_uses_is_left_alone_until_that_is_over),
  TEST(zeros_that_were_asked_for_are_zeros),
  TEST(memory_that_the_cpu_does_not_see_is_not_touched),
  TEST(a_margin_of_whole_granules_lies_behind_every_slice),
  TEST(a_slice_and_its_margin_fill_a_page),
  TEST(pages_of_one_slice_take_what_they_take_without_margins),
  TEST(slices_of_no_bytes_are_handed_out_with_margins_too),
  TEST(a_byte_behind_a_slice_that_was_written_to_is_found_when_it_is_freed),
  TEST(a_look_finds_one_damaged_margin_after_the_other),
  TEST(a_slice_that_is_resized_has_its_margin_behind_its_new_end),
  TEST(an_allocator_with_damaged_margins_can_be_destroyed),
  TEST(without_margins_and_filling_nothing_is_touched),
  TEST(a_look_at_margins_while_slices_come_and_go_finds_nothing),
  TEST(a_look_at_margins_while_a_slice_is_resized_finds_nothing),
};

TEST_MAIN(tests)
