/* Frees that wait for the device: what is pending, what releases it, and what may fail. */
#include "check.h"
#include "shorthand.h"
#include "watched_host.h"

static slicepool_point at(uint32_t timeline, uint64_t value) { return (slicepool_point){ timeline, 0, value }; }

static bool same_place(const slicepool_slice *a, const slicepool_slice *b) {
  return a->memory == b->memory && a->offset == b->offset;
}

/* ---- one timeline, several timelines */

/* 45. */
static void a_slice_that_waits_serves_nothing_before_its_value_has_been_collected(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_one(&device, kind_of(k).pool);
    const slicepool_slice waiting = take(allocator, 5000);
    free_at(allocator, waiting.id, 1, 5);
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    CHECK_RESULT(slicepool_slice_get(allocator, waiting.id, &slice), SLICEPOOL_ERROR_STALE_HANDLE);
    CHECK_RESULT(slicepool_try_resize(allocator, waiting.id, 100, &slice, NULL), SLICEPOOL_ERROR_STALE_HANDLE);
    CHECK_RESULT(slicepool_free(allocator, waiting.id), SLICEPOOL_ERROR_STALE_HANDLE);
    const slicepool_point point = at(1, 9);
    CHECK_RESULT(slicepool_free_after(allocator, waiting.id, &point, 1, NULL), SLICEPOOL_ERROR_STALE_HANDLE);
    const slicepool_slice other = take(allocator, 5000);
    CHECK(!same_place(&waiting, &other));
    collect(allocator, 1, 4);
    const slicepool_slice third = take(allocator, 5000);
    CHECK(!same_place(&waiting, &third) && !same_place(&other, &third));
    CHECK_EQ(pending_in(allocator), 1);
    CHECK_EQ(figures_of(allocator).pending_bytes, waiting.size);
    check_books(allocator, &device);
    collect(allocator, 2, 100);
    CHECK_EQ(pending_in(allocator), 1);
    collect(allocator, 1, 5);
    CHECK_EQ(pending_in(allocator), 0);
    CHECK_EQ(figures_of(allocator).pending_bytes, 0);
    const slicepool_slice again = take(allocator, 5000);
    CHECK(same_place(&waiting, &again) && again.id != waiting.id);
    const uint64_t ids[3] = { other.id, third.id, again.id };
    OK(slicepool_free_many(allocator, ids, 3, NULL));
    finish(allocator, &device);
  }
}

/* 46. */
static void a_slice_of_two_timelines_waits_until_both_have_passed(void) {
  for (int k = 0; k < KINDS; k++) {
    for (uint32_t first = 0; first < 2; first++) {
      struct mock_device device;
      slicepool_allocator *allocator = create_one(&device, kind_of(k).pool);
      const slicepool_slice waiting = take(allocator, 5000);
      const slicepool_point points[2] = { at(10, 3), at(11, 7) };
      OK(slicepool_free_after(allocator, waiting.id, points, 2, NULL));
      collect(allocator, points[first].timeline, UINT64_MAX - 1);
      CHECK_EQ(pending_in(allocator), 1);
      const slicepool_point *second = &points[1 - first];
      collect(allocator, second->timeline, second->value - 1);
      CHECK_EQ(pending_in(allocator), 1);
      check_books(allocator, &device);
      collect(allocator, second->timeline, second->value);
      CHECK_EQ(pending_in(allocator), 0);
      const slicepool_slice again = touch(allocator, 5000);
      CHECK(same_place(&waiting, &again));
      finish(allocator, &device);
    }
  }
}

static void a_slice_of_many_timelines_waits_for_the_last_of_them_in_any_order(void) {
  uint64_t state = 5;
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  for (uint64_t round = 0; round < rounds(2000); round++) {
    slicepool_point points[64];
    uint32_t order[64];
    const uint32_t count = (uint32_t)random_between(&state, 1, 64);
    for (uint32_t i = 0; i < count; i++) {
      points[i] = at(1000 * i, round + 1);
      const uint32_t other = (uint32_t)random_between(&state, 0, i);
      order[i] = order[other];
      order[other] = i;
    }
    OK(slicepool_free_after(allocator, take(allocator, 64).id, points, count, NULL));
    for (uint32_t i = 0; i < count; i++) {
      CHECK_EQ(pending_in(allocator), 1);
      collect(allocator, points[order[i]].timeline, round + 1);
    }
    CHECK_EQ(pending_in(allocator), 0);
    /* Those that were not waited for are as far as the others, so that the next round begins alike. */
    for (uint32_t i = 0; i < 64; i++) collect(allocator, 1000 * i, round + 1);
  }
  finish(allocator, &device);
}

static void of_several_points_on_one_timeline_the_largest_counts(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  const slicepool_point points[5] = { at(1, 4), at(1, 9), at(2, 1), at(1, 2), at(1, 9) };
  OK(slicepool_free_after(allocator, take(allocator, 100).id, points, 5, NULL));
  collect(allocator, 2, 1);
  collect(allocator, 1, 8);
  CHECK_EQ(pending_in(allocator), 1);
  collect(allocator, 1, 9);
  CHECK_EQ(pending_in(allocator), 0);
  finish(allocator, &device);
}

static void what_has_been_passed_already_is_not_waited_for(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  const slicepool_slice slice = take(allocator, 100);
  /* No points at all, and 0, which every timeline has completed from the start. */
  OK(slicepool_free_after(allocator, slice.id, NULL, 0, NULL));
  free_at(allocator, take(allocator, 100).id, 7, 0);
  CHECK_EQ(pending_in(allocator), 0);
  /* Said before anything waited; what is said does not fall. */
  collect(allocator, 7, 100);
  collect(allocator, 7, 10);
  free_at(allocator, take(allocator, 100).id, 7, 100);
  CHECK_EQ(pending_in(allocator), 0);
  const slicepool_point points[2] = { at(7, 99), at(8, 1) };
  OK(slicepool_free_after(allocator, take(allocator, 100).id, points, 2, NULL));
  CHECK_EQ(pending_in(allocator), 1);
  collect(allocator, 8, 1);
  CHECK_EQ(pending_in(allocator), 0);
  free_at(allocator, take(allocator, 100).id, 7, 101);
  CHECK_EQ(pending_in(allocator), 1);
  /* A device that is lost: nothing waits for it any more. */
  collect(allocator, 7, UINT64_MAX);
  CHECK_EQ(pending_in(allocator), 0);
  free_at(allocator, take(allocator, 100).id, 7, UINT64_MAX);
  CHECK_EQ(pending_in(allocator), 0);
  CHECK(same_place(&slice, &(slicepool_slice){ .memory = slice.memory, .offset = touch(allocator, 100).offset }));
  finish(allocator, &device);
}

/* 49. */
static void values_that_fall_release_late_and_never_early(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(64 * KIB, 0, 0, 64));
  uint64_t state = 49;
  for (uint64_t round = 0; round < rounds(400); round++) {
    enum { COUNT = 40 };
    const uint32_t timeline = (uint32_t)round;
    uint64_t last[COUNT], highest = 0;
    for (int i = 0; i < COUNT; i++) {
      const uint64_t value = random_between(&state, 1, 50);
      highest = value > highest ? value : highest;
      /* Released with those that were freed before it: at the highest value so far. */
      last[i] = highest;
      free_at(allocator, take(allocator, 100).id, timeline, value);
    }
    for (uint64_t completed = 0; completed <= 50; completed += 1 + random_between(&state, 0, 6)) {
      collect(allocator, timeline, completed);
      uint32_t left = 0;
      for (int i = 0; i < COUNT; i++) left += last[i] > completed;
      CHECK_EQ(pending_in(allocator), left);
    }
    collect(allocator, timeline, 50);
    CHECK_EQ(pending_in(allocator), 0);
    OK(slicepool_timeline_forget(allocator, timeline));
  }
  finish(allocator, &device);
}

/* ---- pages, walks, the end */

/* 47. */
static void a_page_of_slices_that_wait_stays_and_its_allocator_cannot_go_away(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_one(&device, kind_of(k).pool);
    const slicepool_slice slice = take(allocator, 5000);
    free_at(allocator, slice.id, 1, 5);
    OK(slicepool_trim(allocator, 0, NULL));
    OK(slicepool_cleanup(allocator, NULL));
    CHECK_EQ(device.deallocate_calls, 0);
    CHECK_EQ(figures_of(allocator).pages_idle, 0);
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    CHECK_RESULT(slicepool_allocator_destroy(allocator, 0, &failure), SLICEPOOL_ERROR_BUSY);
    CHECK_EQ(failure.pending, 1);
    CHECK_EQ(failure.live, 0);
    CHECK_EQ(device.deallocate_calls, 0);
    /* What destroy has left works as before. */
    check_books(allocator, &device);
    OK(slicepool_free(allocator, take(allocator, 5000).id));
    const uint64_t calls = mock_calls(&device);
    if (k % 2 == 0) {
      OK(slicepool_allocator_abandon(allocator, 0));
      CHECK_EQ(mock_calls(&device), calls);
      free(device.pages);
      continue;
    }
    OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
    mock_end(&device);
  }
}

static void a_page_can_go_when_the_last_slice_in_it_is_released(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  for (uint64_t i = 0; i < 3; i++) free_at(allocator, take(allocator, 1000).id, 1, i + 1);
  for (uint64_t i = 0; i < 3; i++) {
    OK(slicepool_trim(allocator, 0, NULL));
    CHECK_EQ(device.live, 1);
    collect(allocator, 1, i + 1);
  }
  CHECK_EQ(figures_of(allocator).pages_idle, 1);
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_EQ(device.live, 0);
  finish(allocator, &device);
}

static void a_walk_shows_what_waits_without_its_handle(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  const slicepool_slice before = take(allocator, 100), waiting = take(allocator, 100), after = take(allocator, 100);
  free_at(allocator, waiting.id, 1, 1);
  struct ranges ranges = ranges_of(allocator);
  CHECK_EQ(ranges.count, 4);
  static const uint32_t kinds[4] = { SLICEPOOL_RANGE_SLICE, SLICEPOOL_RANGE_PENDING, SLICEPOOL_RANGE_SLICE,
                                     SLICEPOOL_RANGE_FREE };
  for (int i = 0; i < 4; i++) CHECK_EQ(ranges.list[i].kind, kinds[i]);
  CHECK_RANGE(ranges.list[1], false, 128, 128);
  CHECK_EQ(ranges.list[1].requested, 0);
  CHECK_EQ(ranges.list[1].address, waiting.address);
  free(ranges.list);
  /* Between two slices that wait, and beside free memory, holes are joined only when both are over. */
  OK(slicepool_free(allocator, before.id));
  check_books(allocator, &device);
  free_at(allocator, after.id, 1, 2);
  check_books(allocator, &device);
  collect(allocator, 1, 1);
  check_books(allocator, &device);
  CHECK_EQ(figures_of(allocator).free_ranges, 2);
  collect(allocator, 1, 2);
  CHECK_EQ(figures_of(allocator).free_ranges, 1);
  finish(allocator, &device);
}

/* ---- many at once */

static void many_slices_wait_for_the_same_or_none_is_freed(void) {
  enum { COUNT = 200 };
  for (uint32_t point_count = 0; point_count < 4; point_count++) {
    struct mock_device device;
    const slicepool_pool_options pools[2] = { exclusive(64, 32), sliced(64 * KIB, 0, 0, 32) };
    slicepool_allocator *allocator = create_list(&device, pools, 2);
    slicepool_point points[3] = { at(1, 5), at(2, 6), at(3, 7) };
    uint64_t ids[COUNT + 1], stale = take(allocator, 100).id;
    OK(slicepool_free(allocator, stale));
    for (uint64_t i = 0; i < COUNT; i++) ids[i] = take(allocator, 1 + i).id;
    ids[COUNT] = 0;
    static const uint32_t places[] = { 0, 1, 63, 64, 65, 199 };
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
      const uint64_t kept = ids[places[p]], wrong[3] = { stale, 12345, ids[places[p] == 0 ? 5 : 0] };
      for (int w = 0; w < 3; w++) {
        slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
        ids[places[p]] = wrong[w];
        CHECK_RESULT(slicepool_free_after_many(allocator, ids, COUNT, points, point_count, &failure),
                     w == 1 ? SLICEPOOL_ERROR_FOREIGN_HANDLE : SLICEPOOL_ERROR_STALE_HANDLE);
        CHECK_EQ(failure.index, w == 2 && places[p] == 0 ? 5 : places[p]);
        ids[places[p]] = kept;
        CHECK_EQ(pending_in(allocator), 0);
        CHECK_EQ(figures_of(allocator).slices, COUNT);
        check_books(allocator, &device);
      }
    }
    for (int i = 0; i < COUNT; i++) look_up(allocator, ids[i]);
    OK(slicepool_free_after_many(allocator, ids, COUNT + 1, points, point_count, NULL));
    CHECK_EQ(figures_of(allocator).slices, 0);
    for (uint32_t i = 0; i < point_count; i++) {
      CHECK_EQ(pending_in(allocator), COUNT);
      check_books(allocator, &device);
      collect(allocator, points[i].timeline, points[i].value);
    }
    CHECK_EQ(pending_in(allocator), 0);
    finish(allocator, &device);
  }
}

/* ---- timelines that are forgotten */

static void a_timeline_that_was_forgotten_begins_at_0_again(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  OK(slicepool_timeline_forget(allocator, 3));
  free_at(allocator, take(allocator, 100).id, 3, 50);
  CHECK_RESULT(slicepool_timeline_forget(allocator, 3), SLICEPOOL_ERROR_BUSY);
  CHECK_EQ(pending_in(allocator), 1);
  collect(allocator, 3, 49);
  CHECK_RESULT(slicepool_timeline_forget(allocator, 3), SLICEPOOL_ERROR_BUSY);
  collect(allocator, 3, 50);
  free_at(allocator, take(allocator, 100).id, 3, 50);
  CHECK_EQ(pending_in(allocator), 0);
  OK(slicepool_timeline_forget(allocator, 3));
  free_at(allocator, take(allocator, 100).id, 3, 1);
  CHECK_EQ(pending_in(allocator), 1);
  collect(allocator, 3, 1);
  CHECK_EQ(pending_in(allocator), 0);
  /* Also one that a slice waits for beside another. */
  const slicepool_point points[2] = { at(4, 1), at(5, 1) };
  OK(slicepool_free_after(allocator, take(allocator, 100).id, points, 2, NULL));
  CHECK_RESULT(slicepool_timeline_forget(allocator, 4), SLICEPOOL_ERROR_BUSY);
  collect(allocator, 4, 1);
  CHECK_RESULT(slicepool_timeline_forget(allocator, 5), SLICEPOOL_ERROR_BUSY);
  collect(allocator, 5, 1);
  OK(slicepool_timeline_forget(allocator, 4));
  OK(slicepool_timeline_forget(allocator, 5));
  finish(allocator, &device);
}

static void timelines_that_come_and_go_leave_the_metadata_constant(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  uint64_t metadata = 0;
  for (uint32_t i = 0; i < (uint32_t)rounds(20000); i++) {
    const slicepool_point points[2] = { at(i, 1), at(i + 1, 1) };
    OK(slicepool_free_after(allocator, take(allocator, 100).id, points, 2, NULL));
    collect(allocator, i, 1);
    collect(allocator, i + 1, 1);
    OK(slicepool_timeline_forget(allocator, i));
    OK(slicepool_timeline_forget(allocator, i + 1));
    if (i == 10) metadata = figures_of(allocator).metadata_bytes;
    if (i > 10) CHECK_EQ(figures_of(allocator).metadata_bytes, metadata);
  }
  finish(allocator, &device);
}

/* ---- host memory */

static void a_free_that_finds_no_host_memory_leaves_the_slice_live(void) {
  uint64_t refused_frees = 0;
  for (uint32_t point_count = 1; point_count <= 64; point_count += 9) {
    struct mock_device device;
    struct watched_host host;
    mock_init(&device);
    watched_init(&host);
    const slicepool_host hooks = watched_table(&host, HOOK_MEMORY | HOOK_LOCK);
    const slicepool_pool_options pool = sliced(64 * KIB, 0, 0, 64);
    const slicepool_device table = mock_table(&device);
    slicepool_allocator_config config = config_for(&pool, 1);
    config.host = &hooks;
    slicepool_allocator *allocator = create_of(&table, config);
    slicepool_point points[64];
    for (uint32_t i = 0; i < 64; i++) points[i] = at(i, 1);
    /* Slices that wait, until one more needs memory that the host does not have. */
    uint64_t ids[300];
    uint32_t waiting = 0;
    for (int i = 0; i < 300; i++) ids[i] = take(allocator, 64).id;
    host.fail_at = host.allocations + 1;
    host.fail_from_then_on = true;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_result result = SLICEPOOL_OK;
    while (waiting < 300 && result == SLICEPOOL_OK)
      result = slicepool_free_after(allocator, ids[waiting++], points, point_count, &failure);
    if (result != SLICEPOOL_OK) {
      CHECK_RESULT(result, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
      CHECK_EQ(failure.result, result);
      CHECK(failure.size != 0);
      waiting--;
      refused_frees++;
      look_up(allocator, ids[waiting]);
      CHECK_EQ(pending_in(allocator), waiting);
      check_books(allocator, &device);
      CHECK_RESULT(slicepool_free_after_many(allocator, ids + waiting, 300 - waiting, points, point_count, NULL),
                   SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
      CHECK_EQ(pending_in(allocator), waiting);
      for (uint32_t i = waiting; i < 300; i++) look_up(allocator, ids[i]);
    }
    /* A timeline that is known already needs none for one point. */
    if (waiting != 0 && waiting < 300) {
      free_at(allocator, ids[waiting++], 0, 2);
      CHECK_EQ(pending_in(allocator), waiting);
    }
    host.fail_at = 0;
    host.fail_from_then_on = false;
    OK(slicepool_free_after_many(allocator, ids + waiting, 300 - waiting, points, point_count, NULL));
    for (uint32_t i = 0; i < 64; i++) collect(allocator, i, 2);
    CHECK_EQ(pending_in(allocator), 0);
    finish(allocator, &device);
    watched_end(&host);
  }
  CHECK(refused_frees != 0);
}

static void collecting_releases_what_is_due_although_the_host_has_no_memory(void) {
  struct mock_device device;
  struct watched_host host;
  mock_init(&device);
  watched_init(&host);
  const slicepool_host hooks = watched_table(&host, HOOK_MEMORY);
  const slicepool_pool_options pools[2] = { exclusive(64, 32), sliced(64 * KIB, 0, 0, 32) };
  const slicepool_device table = mock_table(&device);
  slicepool_allocator_config config = config_for(pools, 2);
  config.host = &hooks;
  slicepool_allocator *allocator = create_of(&table, config);
  free_at(allocator, take(allocator, 1000).id, 1, 5);
  host.fail_at = host.allocations + 1;
  host.fail_from_then_on = true;
  /* The first pool knows the timeline not yet, and cannot remember it if it lacks the memory. */
  const slicepool_result result = slicepool_collect(allocator, 1, 5, NULL);
  CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
  CHECK_EQ(pending_in(allocator), 0);
  host.fail_at = 0;
  host.fail_from_then_on = false;
  finish(allocator, &device);
  watched_end(&host);
}

/* Slices of one point each, in every order, on as many timelines as were said, with as many slices and pages. */
static void a_block_of_the_bytes_needed_has_room_for_slices_that_wait(void) {
  static const uint32_t loads[][3] = { { 1, 1, 1 }, { 10, 2, 1 }, { 10, 10, 100 }, { 200, 20, 7 }, { 3, 1, 64 } };
  const slicepool_pool_options pools[3] = { exclusive(64, 32), sliced(4096, 0, 0, 32), direct(0, 32) };
  uint64_t state = 77;
  for (size_t l = 0; l < sizeof loads / sizeof *loads; l++) {
    const uint32_t slices = loads[l][0], pages = loads[l][1], timelines = loads[l][2];
    for (uint32_t count = 1; count <= 3; count++) {
      struct mock_device device;
      mock_init(&device);
      const slicepool_device table = mock_table(&device);
      const slicepool_allocator_config config = config_for(pools + (count == 3 ? 0 : count), count == 3 ? 3 : 1);
      uint64_t bytes = 0, values[100] = { 0 };
      OK(slicepool_allocator_bytes_needed(&config, slices, pages, timelines, &bytes));
      void *block = malloc(bytes);
      slicepool_allocator *allocator = NULL;
      OK(slicepool_allocator_create_in(&table, &config, block, bytes, &allocator));
      for (uint64_t round = 0; round < rounds(20000); round++) {
        const slicepool_statistics now = figures_of(allocator);
        if (now.slices + now.slices_pending == slices || (now.pages == pages && !would_fit(allocator, 100))) {
          const uint32_t timeline = (uint32_t)random_between(&state, 0, timelines - 1);
          collect(allocator, timeline, values[timeline]);
          /* Those on other timelines may hold all pages. */
          if (random_between(&state, 0, 9) == 0)
            for (uint32_t t = 0; t < timelines; t++) collect(allocator, t, values[t]);
          continue;
        }
        const uint32_t timeline = (uint32_t)random_between(&state, 0, timelines - 1);
        free_at(allocator, take(allocator, 100).id, timeline, ++values[timeline]);
      }
      CHECK_LE(figures_of(allocator).metadata_bytes, bytes);
      CHECK_LE(device.live_peak, pages);
      for (uint32_t t = 0; t < timelines; t++) collect(allocator, t, UINT64_MAX);
      finish(allocator, &device);
      free(block);
    }
  }
}

static const struct test tests[] = {
  TEST(a_slice_that_waits_serves_nothing_before_its_value_has_been_collected),
  TEST(a_slice_of_two_timelines_waits_until_both_have_passed),
  TEST(a_slice_of_many_timelines_waits_for_the_last_of_them_in_any_order),
  TEST(of_several_points_on_one_timeline_the_largest_counts),
  TEST(what_has_been_passed_already_is_not_waited_for),
  TEST(values_that_fall_release_late_and_never_early),
  TEST(a_page_of_slices_that_wait_stays_and_its_allocator_cannot_go_away),
  TEST(a_page_can_go_when_the_last_slice_in_it_is_released),
  TEST(a_walk_shows_what_waits_without_its_handle),
  TEST(many_slices_wait_for_the_same_or_none_is_freed),
  TEST(a_timeline_that_was_forgotten_begins_at_0_again),
  TEST(timelines_that_come_and_go_leave_the_metadata_constant),
  TEST(a_free_that_finds_no_host_memory_leaves_the_slice_live),
  TEST(collecting_releases_what_is_due_although_the_host_has_no_memory),
  TEST(a_block_of_the_bytes_needed_has_room_for_slices_that_wait),
};

TEST_MAIN(tests)
