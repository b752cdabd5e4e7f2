/* Handles and points that callers get wrong: every call answers an error and changes nothing. */
#include "check.h"
#include "world.h"

/* ---- points */

static void points_that_cannot_be_are_refused_by_name(void) {
  build_world();
  slicepool_point points[65];
  for (uint32_t i = 0; i < 65; i++) points[i] = (slicepool_point){ i, 0, 1 };
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  const uint64_t id = world.slice.id;
  static const uint32_t counts[] = { 65, 66, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF };
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    const struct snapshot before = look();
    CHECK_RESULT(slicepool_free_after(world.allocator, id, points, counts[i], &failure),
                 SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "point_count");
    CHECK_EQ(failure.value, counts[i]);
    CHECK_RESULT(slicepool_free_after_many(world.allocator, &id, 1, points, counts[i], &failure),
                 SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "point_count");
    check_nothing_changed(&before);
  }
  CHECK_RESULT(slicepool_free_after(world.allocator, id, NULL, 3, &failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "points");
  static const uint32_t places[] = { 0, 1, 63 };
  for (size_t i = 0; i < 3; i++) {
    const struct snapshot before = look();
    points[places[i]].reserved = UINT32_C(1) << (i * 15);
    CHECK_RESULT(slicepool_free_after(world.allocator, id, points, 64, &failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "reserved");
    CHECK_EQ(failure.value, points[places[i]].reserved);
    CHECK_RESULT(slicepool_free_after_many(world.allocator, &id, 1, points, 64, &failure),
                 SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "reserved");
    points[places[i]].reserved = 0;
    check_nothing_changed(&before);
  }
  /* As many as there may be, of which the last is passed last; the array ends there. */
  slicepool_point *all = copy_before_the_wall(points, 64 * sizeof *points);
  OK(slicepool_free_after(world.allocator, id, all, 64, NULL));
  for (uint32_t i = 0; i < 64; i++) {
    CHECK_EQ(figures_of(world.allocator).slices_pending, 1);
    OK(slicepool_collect(world.allocator, i, 1, NULL));
  }
  CHECK_EQ(figures_of(world.allocator).slices_pending, 0);
  world.slice = take(world.allocator, 5000);
  end_world();
}

/* ---- handles */

static void forged_handles_are_refused(void) {
  build_world();
  slicepool_slice old = take(world.allocator, 100);
  OK(slicepool_free(world.allocator, old.id));
  const uint64_t live = world.slice.id;
  /* On a timeline that is known already, so that nothing is made for it. */
  const slicepool_point point = { 3, 0, 1 };
  OK(slicepool_free_after(world.allocator, take(world.allocator, 100).id, &point, 1, NULL));
  OK(slicepool_collect(world.allocator, 3, 1, NULL));
  uint64_t state = 4;
  const uint64_t guesses = 128 + rounds(100000);
  for (uint64_t i = 0; i < guesses; i++) {
    const uint64_t id = i < 64 ? live ^ (UINT64_C(1) << i) : i < 128 ? UINT64_C(1) << (i - 64) : random_next(&state);
    if (id == 0 || id == live) continue;
    const struct snapshot before = look();
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    slicepool_space_slice piece = SLICEPOOL_SPACE_SLICE_INIT;
    char name[SLICEPOOL_MAX_NAME + 1] = "untouched";
    void *mapped = &piece;
    const slicepool_result results[] = {
      slicepool_free(world.allocator, id),
      slicepool_slice_get(world.allocator, id, &slice),
      slicepool_try_resize(world.allocator, id, 100, &slice, NULL),
      slicepool_free_many(world.allocator, &id, 1, NULL),
      slicepool_free_after(world.allocator, id, &point, 1, NULL),
      slicepool_free_after_many(world.allocator, &id, 1, &point, 1, NULL),
      slicepool_resolve(world.allocator, id, &slice, NULL),
      slicepool_name_set(world.allocator, id, "a name"),
      slicepool_name_get(world.allocator, id, name, sizeof name),
      slicepool_user_data_set(world.allocator, id, &slice),
      slicepool_map(world.allocator, id, &mapped, NULL),
      slicepool_unmap(world.allocator, id),
      slicepool_flush(world.allocator, id, 0, 1, NULL),
      slicepool_invalidate(world.allocator, id, 0, 1, NULL),
    };
    for (size_t r = 0; r < sizeof results / sizeof *results; r++)
      CHECK(results[r] == SLICEPOOL_ERROR_STALE_HANDLE || results[r] == SLICEPOOL_ERROR_FOREIGN_HANDLE);
    CHECK(mapped == &piece);
    CHECK_TEXT(name, "untouched");
    slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
    const slicepool_result of_buffers[] = {
      slicepool_buffer_get(world.buffers, id, &buffer),
      slicepool_buffer_release(world.buffers, NULL, id),
      slicepool_buffer_release(world.buffers, world.cache, id),
    };
    for (size_t r = 0; r < sizeof of_buffers / sizeof *of_buffers; r++)
      CHECK(of_buffers[r] == SLICEPOOL_ERROR_STALE_HANDLE || of_buffers[r] == SLICEPOOL_ERROR_FOREIGN_HANDLE);
    const slicepool_result of_space = slicepool_space_slice_get(world.space, id, &piece);
    CHECK(of_space == SLICEPOOL_ERROR_STALE_HANDLE || of_space == SLICEPOOL_ERROR_FOREIGN_HANDLE ||
          id == world.piece.id);
    if (i < 200) check_nothing_changed(&before);
  }
  end_world();
}

static void a_list_of_handles_is_freed_whole_or_not_at_all(void) {
  build_world();
  uint64_t ids[201], stale = take(world.allocator, 100).id;
  OK(slicepool_free(world.allocator, stale));
  for (int i = 0; i < 200; i++) ids[i] = take(world.allocator, 1).id;
  static const uint32_t places[] = { 0, 1, 63, 64, 65, 127, 128, 199 };
  for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
    const uint64_t kept = ids[places[p]];
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    const struct snapshot before = look();
    ids[places[p]] = stale;
    CHECK_RESULT(slicepool_free_many(world.allocator, ids, 200, &failure), SLICEPOOL_ERROR_STALE_HANDLE);
    CHECK_EQ(failure.index, places[p]);
    ids[places[p]] = 12345;
    CHECK_RESULT(slicepool_free_many(world.allocator, ids, 200, &failure), SLICEPOOL_ERROR_FOREIGN_HANDLE);
    CHECK_EQ(failure.index, places[p]);
    /* Twice the same: the second is stale. */
    ids[places[p]] = ids[places[p] == 0 ? 5 : 0];
    CHECK_RESULT(slicepool_free_many(world.allocator, ids, 200, &failure), SLICEPOOL_ERROR_STALE_HANDLE);
    CHECK_EQ(failure.index, places[p] == 0 ? 5 : places[p]);
    ids[places[p]] = kept;
    check_nothing_changed(&before);
  }
  /* Zeros are passed over. */
  ids[200] = 0;
  OK(slicepool_free_many(world.allocator, ids, 201, NULL));
  CHECK_EQ(figures_of(world.allocator).slices, 1);
  end_world();
}

static const struct test tests[] = {
  TEST(points_that_cannot_be_are_refused_by_name),
  TEST(forged_handles_are_refused),
  TEST(a_list_of_handles_is_freed_whole_or_not_at_all),
};

TEST_MAIN(tests)
