/* What users ran into: thrashing and leaks. The number is in each comment. */
#include "check.h"
#include "shorthand.h"

/* 13. */
static void frames_above_a_page_cost_no_device_calls_after_the_first(void) {
  struct mock_device device;
  mock_init(&device);
  const uint64_t page = 64 * KIB;
  slicepool_allocator *allocator = create(&device, sliced(page, 0, 0, 256));
  uint64_t calls_of_first = 0;
  for (uint64_t frame = 0; frame < rounds(1000); frame++) {
    uint64_t ids[24];
    for (int i = 0; i < 24; i++) ids[i] = take(allocator, page / 16).id;
    CHECK_EQ(figures_of(allocator).in_use_bytes, page + page / 2);
    for (int i = 0; i < 24; i++) OK(slicepool_free(allocator, ids[i]));
    if (frame == 0) calls_of_first = mock_calls(&device);
  }
  CHECK_EQ(calls_of_first, 2);
  CHECK_EQ(mock_calls(&device), calls_of_first);
  finish(allocator, &device);
}

/* 14. */
static void equal_frames_leave_the_metadata_constant(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(MIB, 0, 0, 256));
  uint64_t after_first = 0;
  const uint64_t frames = rounds(1000000);
  for (uint64_t frame = 0; frame < frames; frame++) {
    uint64_t ids[5];
    for (int i = 0; i < 5; i++) ids[i] = take(allocator, 4096).id;
    for (int i = 0; i < 5; i++) OK(slicepool_free(allocator, ids[i]));
    if (frame == 0) after_first = figures_of(allocator).metadata_bytes;
  }
  CHECK(after_first != 0);
  CHECK_EQ(figures_of(allocator).metadata_bytes, after_first);
  CHECK_EQ(device.given, 1);
  finish(allocator, &device);
}

/* 15. */
static void varying_sizes_under_a_bound_stop_growing_after_the_warm_up(void) {
  enum { SLOTS = 512 };
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(MIB, 0, 0, 256));
  struct {
    uint64_t id, size;
  } live[SLOTS] = { { 0, 0 } };
  uint64_t state = 15, in_use = 0, after_warm_up = 0;
  const uint64_t warm_up = is_slow() ? 1000 : 20000, all = warm_up + rounds(1000000);
  for (uint64_t i = 0; i < all; i++) {
    const uint64_t size = random_between(&state, 1, 64 * KIB);
    while (in_use + size > 3 * MIB) {
      const uint64_t at = random_between(&state, 0, SLOTS - 1);
      OK(slicepool_free(allocator, live[at].id));
      in_use -= live[at].size;
      live[at].id = live[at].size = 0;
    }
    uint64_t at = random_between(&state, 0, SLOTS - 1);
    if (live[at].id != 0) {
      OK(slicepool_free(allocator, live[at].id));
      in_use -= live[at].size;
    }
    live[at].id = take(allocator, size).id;
    live[at].size = size;
    in_use += size;
    if (i == warm_up) after_warm_up = device.given;
  }
  CHECK_EQ(figures_of(allocator).in_use_bytes, in_use);
  CHECK_EQ(device.given, after_warm_up);
  CHECK_LE(device.bytes, 5 * MIB);
  for (int at = 0; at < SLOTS; at++) OK(slicepool_free(allocator, live[at].id));
  finish(allocator, &device);
}

/* 16. */
static void a_queue_of_transient_slices_costs_no_device_calls_after_the_warm_up(void) {
  enum { LIVE = 1000 };
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(MIB, 0, 0, 256));
  uint64_t ids[LIVE] = { 0 }, state = 16, after_warm_up = 0;
  const uint64_t all = 4 * LIVE + rounds(1000000);
  for (uint64_t i = 0; i < all; i++) {
    OK(slicepool_free(allocator, ids[i % LIVE]));
    ids[i % LIVE] = take(allocator, 256 * random_between(&state, 1, 16)).id;
    if (i == 4 * LIVE) after_warm_up = mock_calls(&device);
  }
  CHECK_LE(mock_calls(&device), after_warm_up + 1);
  OK(slicepool_free_many(allocator, ids, LIVE, NULL));
  finish(allocator, &device);
}

/* 17. */
static void the_same_calls_give_the_same_places(void) {
  enum { CALLS = 10000, SLOTS = 200 };
  const int calls = is_slow() ? CALLS / 10 : CALLS;
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4 * MIB, 0, 0, 64));
  static struct {
    uint64_t memory, offset;
  } first[CALLS];
  for (int pass = 0; pass < 3; pass++) {
    uint64_t ids[SLOTS] = { 0 }, state = 17;
    for (int i = 0; i < calls; i++) {
      const uint64_t at = random_between(&state, 0, SLOTS - 1);
      if (ids[at] != 0) OK(slicepool_free(allocator, ids[at]));
      slicepool_slice slice = take_aligned(allocator, random_between(&state, 1, 20000),
                                           UINT64_C(1) << random_between(&state, 0, 12));
      ids[at] = slice.id;
      if (pass == 0) {
        first[i].memory = slice.memory;
        first[i].offset = slice.offset;
      } else if (first[i].offset != slice.offset || first[i].memory != slice.memory) {
        FAIL("call %d of pass %d: page %" PRIu64 " offset %" PRIu64 ", not page %" PRIu64 " offset %" PRIu64, i, pass,
             slice.memory, slice.offset, first[i].memory, first[i].offset);
      }
    }
    OK(slicepool_free_many(allocator, ids, SLOTS, NULL));
  }
  finish(allocator, &device);
}

/* 18. */
static void rounds_of_two_slices_need_one_device_call_in_all(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 16));
  for (int round = 0; round < 5; round++) {
    slicepool_slice first = take_aligned(allocator, 1032, 16), second = take_aligned(allocator, 1032, 16);
    CHECK_EQ(second.offset, 1040);
    OK(slicepool_free(allocator, first.id));
    OK(slicepool_free(allocator, second.id));
  }
  CHECK_EQ(mock_calls(&device), 1);
  finish(allocator, &device);
}

/* 20. */
static void trim_gives_back_every_page_that_holds_nothing_live(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(MIB, 0, 0, 256));
  slicepool_slice keeper = take(allocator, 100);
  uint64_t ids[8];
  for (int i = 0; i < 8; i++) ids[i] = take(allocator, MIB).id;
  CHECK_EQ(device.live, 9);
  for (int i = 0; i < 8; i++) OK(slicepool_free(allocator, ids[i]));
  CHECK_EQ(figures_of(allocator).pages_idle, 8);
  OK(slicepool_trim(allocator, 3 * MIB, NULL));
  CHECK_EQ(figures_of(allocator).reserved_bytes, 3 * MIB);
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_EQ(device.live, 1);
  CHECK_EQ(figures_of(allocator).reserved_bytes, MIB);
  slicepool_slice found = look_up(allocator, keeper.id);
  CHECK(same_slice(&found, &keeper));
  const uint64_t calls = mock_calls(&device);
  OK(slicepool_trim(allocator, 0, NULL));
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(mock_calls(&device), calls);
  OK(slicepool_free(allocator, keeper.id));
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(frames_above_a_page_cost_no_device_calls_after_the_first),
  TEST(equal_frames_leave_the_metadata_constant),
  TEST(varying_sizes_under_a_bound_stop_growing_after_the_warm_up),
  TEST(a_queue_of_transient_slices_costs_no_device_calls_after_the_warm_up),
  TEST(the_same_calls_give_the_same_places),
  TEST(rounds_of_two_slices_need_one_device_call_in_all),
  TEST(trim_gives_back_every_page_that_holds_nothing_live),
};

TEST_MAIN(tests)
