/* What users ran into: handles and misuse. The number is in each comment. */
#include "check.h"
#include "shorthand.h"

/* 34. */
static void a_second_free_is_refused_and_the_next_slice_overlaps_nothing(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(64 * KIB, 0, 64 * KIB, 256));
  slicepool_slice a = take(allocator, 1024), b = take(allocator, 1024), c = take(allocator, 1024);
  OK(slicepool_free(allocator, b.id));
  CHECK_RESULT(slicepool_free(allocator, b.id), SLICEPOOL_ERROR_STALE_HANDLE);
  slicepool_slice larger = take(allocator, 4096);
  CHECK_RESULT(slicepool_free(allocator, b.id), SLICEPOOL_ERROR_STALE_HANDLE);
  slicepool_slice same = take(allocator, 1024);
  CHECK_EQ(same.offset, b.offset);
  CHECK(same.id != b.id);
  CHECK_RESULT(slicepool_free(allocator, b.id), SLICEPOOL_ERROR_STALE_HANDLE);
  CHECK(larger.offset >= c.offset + c.size);
  check_books(allocator, &device);
  const uint64_t ids[] = { a.id, c.id, larger.id, same.id };
  OK(slicepool_free_many(allocator, ids, 4, NULL));
  finish(allocator, &device);
}

/* 35. */
static void a_handle_survives_the_cleanup_of_the_pages_around_it(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 256));
  slicepool_slice first = take(allocator, 4096), middle = take(allocator, 4096), last = take(allocator, 4096);
  OK(slicepool_free(allocator, first.id));
  OK(slicepool_free(allocator, last.id));
  for (int i = 0; i < 3; i++) {
    OK(slicepool_cleanup(allocator, NULL));
    slicepool_slice found = look_up(allocator, middle.id);
    CHECK(same_slice(&found, &middle));
    CHECK_EQ(figures_of(allocator).reserved_bytes, 4096);
  }
  CHECK_EQ(device.taken, 2);
  slicepool_slice again = take(allocator, 4096);
  CHECK(again.memory != middle.memory);
  OK(slicepool_free(allocator, again.id));
  OK(slicepool_free(allocator, middle.id));
  finish(allocator, &device);
}

/* 36: what can be seen of it from C. A slot is used more often than a generation counts (16.7 million times). */
static void the_oldest_handle_of_a_slot_is_refused_however_often_it_is_used(void) {
  enum { SAMPLES = 64 };
  slicepool_space *space = create_space(1, 1);
  uint64_t samples[SAMPLES] = { 0 };
  const uint64_t all = rounds(UINT64_C(1) << 25);
  uint64_t last = 0;
  for (uint64_t i = 0; i < all; i++) {
    slicepool_space_slice slice = SLICEPOOL_SPACE_SLICE_INIT;
    OK(slicepool_space_allocate(space, 1, 1, &slice, NULL));
    CHECK(slice.id != last && slice.id != samples[0]);
    last = slice.id;
    if (i % (all / SAMPLES + 1) == 0) samples[i / (all / SAMPLES + 1)] = slice.id;
    OK(slicepool_space_free(space, slice.id));
    if (i % 65536 == 0 || i + 1 == all) {
      for (int s = 0; s < SAMPLES && samples[s] != 0; s++)
        CHECK_RESULT(slicepool_space_free(space, samples[s]), SLICEPOOL_ERROR_STALE_HANDLE);
    }
  }
  slicepool_space_slice live = cut(space, 1, 1);
  for (int s = 0; s < SAMPLES && samples[s] != 0; s++) {
    CHECK_RESULT(slicepool_space_free(space, samples[s]), SLICEPOOL_ERROR_STALE_HANDLE);
    for (int other = 0; other < s; other++) CHECK(samples[s] != samples[other]);
  }
  OK(slicepool_space_free(space, live.id));
  check_space_is_empty(space);
  OK(slicepool_space_destroy(space));
}

/* 37. */
static void a_handle_of_another_object_is_foreign(void) {
  struct mock_device device, other_device;
  mock_init(&device);
  mock_init(&other_device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 256));
  slicepool_allocator *other = create(&other_device, sliced(4096, 0, 0, 256));
  slicepool_space *space = create_space(4096, 256);
  const uint64_t mine = take(allocator, 256).id, others = take(other, 256).id, of_space = cut(space, 256, 0).id;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_space_slice piece = SLICEPOOL_SPACE_SLICE_INIT;

  CHECK_RESULT(slicepool_free(allocator, others), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  CHECK_RESULT(slicepool_free(allocator, of_space), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  CHECK_RESULT(slicepool_free(other, mine), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  CHECK_RESULT(slicepool_slice_get(other, mine, &slice), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  CHECK_RESULT(slicepool_try_resize(other, mine, 512, &slice, NULL), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  CHECK_RESULT(slicepool_space_free(space, mine), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  CHECK_RESULT(slicepool_space_slice_get(space, mine, &piece), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  CHECK_RESULT(slicepool_space_try_resize(space, mine, 512, &piece, NULL), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  const uint64_t mixed[] = { mine, others };
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_free_many(allocator, mixed, 2, &failure), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  CHECK_EQ(failure.index, 1);
  CHECK(slice.id == 0 && piece.id == 0);

  look_up(allocator, mine);
  look_up(other, others);
  OK(slicepool_space_slice_get(space, of_space, &piece));
  OK(slicepool_free(allocator, mine));
  OK(slicepool_free(other, others));
  OK(slicepool_space_free(space, of_space));
  OK(slicepool_space_destroy(space));
  finish(other, &other_device);
  finish(allocator, &device);
}

/* 37. */
static void everything_works_after_destroy_was_refused(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 256));
  slicepool_slice a = take(allocator, 1000), b = take(allocator, 4096);
  slicepool_slice idle = take(allocator, 4096);
  OK(slicepool_free(allocator, idle.id));
  const slicepool_statistics before = figures_of(allocator);
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_allocator_destroy(allocator, 0, &failure), SLICEPOOL_ERROR_BUSY);
  CHECK_EQ(failure.live, 2);
  CHECK_EQ(failure.in_use, 5096);
  CHECK_EQ(failure.in_flight, 0);
  const slicepool_statistics after = figures_of(allocator);
  CHECK(memcmp(&before, &after, sizeof before) == 0);
  CHECK_EQ(device.deallocate_calls, 0);
  slicepool_slice found = look_up(allocator, a.id);
  CHECK(same_slice(&found, &a));
  OK(slicepool_try_resize(allocator, a.id, 2000, &found, NULL));
  CHECK_EQ(found.size, 2048);
  slicepool_slice more = take(allocator, 100);
  OK(slicepool_free(allocator, more.id));
  OK(slicepool_free(allocator, a.id));
  CHECK_RESULT(slicepool_free(allocator, a.id), SLICEPOOL_ERROR_STALE_HANDLE);
  OK(slicepool_free(allocator, b.id));
  finish(allocator, &device);
}

/* Not in the list. */
static void only_the_id_of_a_slice_is_trusted(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 256));
  slicepool_slice slice = take(allocator, 1000), kept = slice;
  slice.offset = UINT64_MAX;
  slice.size = UINT64_MAX;
  slice.memory = 1;
  slice.address = 3;
  OK(slicepool_slice_get(allocator, slice.id, &slice));
  CHECK(same_slice(&slice, &kept));
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(a_second_free_is_refused_and_the_next_slice_overlaps_nothing),
  TEST(a_handle_survives_the_cleanup_of_the_pages_around_it),
  TEST(the_oldest_handle_of_a_slot_is_refused_however_often_it_is_used),
  TEST(a_handle_of_another_object_is_foreign),
  TEST(everything_works_after_destroy_was_refused),
  TEST(only_the_id_of_a_slice_is_trusted),
};

TEST_MAIN(tests)
