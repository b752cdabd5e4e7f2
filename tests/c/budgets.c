/* Budgets: limits that allocators share, who gives way to whom, and how long they live. */
#include "check.h"
#include "shorthand.h"
#include "watched_host.h"

/* ---- short forms */

static slicepool_budget *create_budget(uint64_t max_bytes, uint32_t max_pages) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_budget_config config = SLICEPOOL_BUDGET_CONFIG_INIT;
  config.max_bytes = max_bytes;
  config.max_pages = max_pages;
  config.failure = &failure;
  slicepool_budget *budget = NULL;
  OK(slicepool_budget_create(&config, &budget));
  CHECK(budget != NULL);
  return budget;
}

static slicepool_budget_statistics used_of(slicepool_budget *budget) {
  slicepool_budget_statistics used = SLICEPOOL_BUDGET_STATISTICS_INIT;
  OK(slicepool_budget_statistics_get(budget, &used));
  CHECK_EQ(used.struct_size, sizeof used);
  CHECK_EQ(used.reserved, 0);
  CHECK_LE(used.bytes, used.bytes_peak);
  CHECK_LE(used.pages, used.pages_peak);
  return used;
}

#define CHECK_USED(budget, expected_bytes, expected_pages) \
  do {                                                     \
    const slicepool_budget_statistics used = used_of(budget); \
    CHECK_EQ(used.bytes, expected_bytes);                  \
    CHECK_EQ(used.pages, expected_pages);                  \
  } while (0)

/* Pages of 4 KiB under a budget. */
static slicepool_allocator *create_under(struct mock_device *device, slicepool_budget *budget) {
  const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  const slicepool_device table = mock_table(device);
  slicepool_allocator_config config = config_for(&pool, 1);
  config.budget = budget;
  return create_of(&table, config);
}

/* ---- what counts */

static void a_budget_counts_the_pages_of_all_its_allocators(void) {
  struct mock_device devices[2];
  slicepool_allocator *allocators[2];
  slicepool_budget *budget = create_budget(0, 3);
  CHECK_EQ(used_of(budget).max_pages, 3);
  CHECK_EQ(used_of(budget).max_bytes, UINT64_MAX);
  for (int i = 0; i < 2; i++) {
    mock_init(&devices[i]);
    allocators[i] = create_under(&devices[i], budget);
  }
  CHECK_USED(budget, 0, 0);
  const slicepool_slice a = take(allocators[0], 4096), b = take(allocators[1], 4096), c = take(allocators[0], 100);
  CHECK_USED(budget, 3 * 4096, 3);
  for (int i = 0; i < 2; i++) {
    const uint64_t calls = devices[i].allocate_calls;
    const slicepool_failure failure = refused(allocators[i], 4096, 0, SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
    CHECK_EQ(failure.limit, 3);
    CHECK_EQ(failure.size, 4096);
    CHECK_EQ(devices[i].allocate_calls, calls);
  }
  CHECK(used_of(budget).pressure >= 2);
  /* What fits into a page that is held is served all the same. */
  OK(slicepool_free(allocators[0], take(allocators[0], 1000).id));
  OK(slicepool_free(allocators[0], a.id));
  OK(slicepool_cleanup(allocators[0], NULL));
  CHECK_USED(budget, 2 * 4096, 2);
  CHECK_EQ(used_of(budget).pages_peak, 3);
  CHECK_EQ(used_of(budget).bytes_peak, 3 * 4096);
  OK(slicepool_free(allocators[1], take(allocators[1], 4096).id));
  OK(slicepool_free(allocators[1], b.id));
  OK(slicepool_free(allocators[0], c.id));
  for (int i = 0; i < 2; i++) finish(allocators[i], &devices[i]);
  CHECK_USED(budget, 0, 0);
  OK(slicepool_budget_release(budget));
}

static void bytes_are_limited_exactly_and_the_details_say_what_is_held(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_budget *budget = create_budget(3 * 4096 + 4095, 0);
  slicepool_allocator *allocator = create_under(&device, budget);
  uint64_t ids[3];
  for (int i = 0; i < 3; i++) ids[i] = take(allocator, 4096).id;
  const slicepool_failure failure = refused(allocator, 100, 0, SLICEPOOL_ERROR_BUDGET_EXCEEDED);
  CHECK_EQ(failure.size, 4096);
  CHECK_EQ(failure.limit, 3 * 4096 + 4095);
  CHECK_EQ(failure.in_use, 3 * 4096);
  OK(slicepool_budget_limits_set(budget, 4 * 4096, 0));
  OK(slicepool_free(allocator, take(allocator, 100).id));
  CHECK_USED(budget, 4 * 4096, 4);
  OK(slicepool_free_many(allocator, ids, 3, NULL));
  finish(allocator, &device);
  OK(slicepool_budget_release(budget));
}

/* The limits of the allocator itself and those that it shares. */
static void both_kinds_of_limits_hold(void) {
  for (uint64_t own = 1; own <= 3; own++) {
    struct mock_device device;
    mock_init(&device);
    slicepool_budget *budget = create_budget(2 * 4096, 0);
    const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
    const slicepool_device table = mock_table(&device);
    slicepool_allocator_config config = config_for(&pool, 1);
    config.budget = budget;
    config.max_bytes = own * 4096;
    slicepool_allocator *allocator = create_of(&table, config);
    const uint64_t room = own < 2 ? own : 2;
    uint64_t ids[2] = { 0 };
    for (uint64_t i = 0; i < room; i++) ids[i] = take(allocator, 4096).id;
    CHECK_EQ(refused(allocator, 4096, 0, SLICEPOOL_ERROR_BUDGET_EXCEEDED).limit, room * 4096);
    /* What one of the two has refused takes nothing of the other. */
    CHECK_USED(budget, room * 4096, room);
    OK(slicepool_free_many(allocator, ids, 2, NULL));
    finish(allocator, &device);
    OK(slicepool_budget_release(budget));
  }
}

static void pages_that_grow_are_as_large_as_a_budget_has_room_for(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_budget *budget = create_budget(10 * MIB, 0);
  const slicepool_device table = mock_table(&device);
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.budget = budget;
  slicepool_allocator *allocator = create_of(&table, config);
  /* Pages of 4 MiB, of which two fit, and the rest. */
  for (int i = 0; i < 10; i++) take(allocator, MIB);
  CHECK_USED(budget, 10 * MIB, 3);
  refused(allocator, MIB, 0, SLICEPOOL_ERROR_BUDGET_EXCEEDED);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  CHECK_USED(budget, 0, 0);
  mock_end(&device);
  OK(slicepool_budget_release(budget));
}

static void a_page_that_the_device_does_not_give_takes_nothing_and_one_it_does_not_take_counts(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_budget *budget = create_budget(0, 2);
  slicepool_allocator *allocator = create_under(&device, budget);
  device.fail_at = 1;
  refused(allocator, 100, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_USED(budget, 0, 0);
  OK(slicepool_trim(allocator, UINT64_MAX, NULL));
  device.fail_at = 2;
  device.failure = SLICEPOOL_ERROR_DEVICE_FAILED;
  refused(allocator, 100, 0, SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_USED(budget, 0, 0);
  /* Given back at once since it is not aligned, or kept if the device refuses even that. */
  device.misalign_by = 8;
  refused(allocator, 100, 0, SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_USED(budget, 0, 0);
  device.refusals = 1;
  refused(allocator, 100, 0, SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_USED(budget, 4096, 1);
  device.misalign_by = 0;
  touch(allocator, 100);
  CHECK_USED(budget, 2 * 4096, 2);
  device.refusals = 2;
  CHECK_RESULT(slicepool_trim(allocator, 0, NULL), SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(figures_of(allocator).pages_stuck, 2);
  CHECK_USED(budget, 2 * 4096, 2);
  /* The device is asked once more before a request is refused for their sake. */
  const slicepool_slice slice = take(allocator, 100);
  CHECK_EQ(figures_of(allocator).pages_stuck, 0);
  CHECK_USED(budget, 4096, 1);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
  CHECK_USED(budget, 0, 0);
  OK(slicepool_budget_release(budget));
}

/* ---- pressure */

/* Every call that gives way, on an allocator that has a live slice and pages that hold nothing. */
static void give_way_by(int call, slicepool_allocator *allocator, uint64_t live) {
  const slicepool_point point = { 1, 0, 1 };
  switch (call) {
    case 0: OK(slicepool_free(allocator, live)); break;
    case 1: OK(slicepool_free_many(allocator, &live, 1, NULL)); break;
    case 2: OK(slicepool_free_after(allocator, live, &point, 1, NULL)); break;
    case 3: OK(slicepool_free_after_many(allocator, &live, 1, &point, 1, NULL)); break;
    case 4: OK(slicepool_collect(allocator, 9, 1, NULL)); break;
    default: OK(slicepool_free(allocator, take(allocator, 100).id)); break;
  }
}

static void a_refusal_makes_others_give_pages_back_that_hold_nothing_but_no_more_than_it_takes(void) {
  for (int call = 0; call < 6; call++) {
    struct mock_device devices[2];
    slicepool_allocator *allocators[2];
    slicepool_budget *budget = create_budget(0, 6);
    for (int i = 0; i < 2; i++) {
      mock_init(&devices[i]);
      allocators[i] = create_under(&devices[i], budget);
    }
    const slicepool_slice live = take(allocators[0], 1000);
    uint64_t ids[5];
    for (int i = 0; i < 5; i++) ids[i] = take(allocators[0], 4096).id;
    OK(slicepool_free_many(allocators[0], ids, 5, NULL));
    CHECK_EQ(figures_of(allocators[0]).pages_idle, 5);
    const uint32_t before = used_of(budget).pressure;
    refused(allocators[1], 4096, 0, SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
    CHECK(used_of(budget).pressure != before);
    CHECK_EQ(devices[0].deallocate_calls, 0);
    give_way_by(call, allocators[0], live.id);
    CHECK_EQ(devices[0].deallocate_calls, 1);
    CHECK_USED(budget, 5 * 4096, 5);
    /* Nobody wants for anything any more. */
    OK(slicepool_free(allocators[0], take(allocators[0], 3000).id));
    CHECK_EQ(devices[0].deallocate_calls, 1);
    const slicepool_slice slice = take(allocators[1], 4096);
    OK(slicepool_free(allocators[1], slice.id));
    OK(slicepool_collect(allocators[0], 1, 1, NULL));
    if (call > 3) OK(slicepool_free(allocators[0], live.id));
    for (int i = 0; i < 2; i++) finish(allocators[i], &devices[i]);
    OK(slicepool_budget_release(budget));
  }
}

static slicepool_result fill_at_once(struct mock_device *device, const slicepool_fill_request *request,
                                     slicepool_point *point) {
  (void)device;
  (void)request;
  (void)point;
  return SLICEPOOL_OK;
}

static void freeing_a_slice_that_is_overwritten_gives_way_like_any_other_call(void) {
  struct mock_device devices[2];
  slicepool_allocator *allocators[2];
  slicepool_budget *budget = create_budget(0, 3);
  for (int i = 0; i < 2; i++) {
    mock_init(&devices[i]);
    devices[i].on_fill = fill_at_once;
    allocators[i] = create_under(&devices[i], budget);
  }
  const slicepool_slice secret = take_flagged(allocators[0], 4096, SLICEPOOL_REQUEST_SCRUB);
  const uint64_t ids[2] = { take(allocators[0], 4096).id, take(allocators[0], 4096).id };
  OK(slicepool_free_many(allocators[0], ids, 2, NULL));
  refused(allocators[1], 4096, 0, SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
  OK(slicepool_free(allocators[0], secret.id));
  CHECK_EQ(devices[0].taken, 1);
  for (int i = 0; i < 2; i++) finish(allocators[i], &devices[i]);
  OK(slicepool_budget_release(budget));
}

/* Not even all of it would be enough, now or ever. */
static void for_a_page_above_the_limit_nobody_gives_anything_back(void) {
  struct mock_device devices[2];
  slicepool_budget *budget = create_budget(8 * 4096, 0);
  mock_init(&devices[0]);
  mock_init(&devices[1]);
  slicepool_allocator *many = create_under(&devices[0], budget);
  const slicepool_pool_options pools[2] = { sliced(4096, 0, 0, 64), sliced(16 * 4096, 0, 0, 64) };
  const slicepool_device table = mock_table(&devices[1]);
  slicepool_allocator_config config = config_for(pools, 2);
  config.budget = budget;
  slicepool_allocator *large = create_of(&table, config);
  uint64_t ids[8];
  for (int i = 0; i < 8; i++) ids[i] = take(many, 4096).id;
  OK(slicepool_free_many(many, ids, 8, NULL));
  const slicepool_failure failure = refused(large, 16 * 4096, 0, SLICEPOOL_ERROR_BUDGET_EXCEEDED);
  CHECK(failure.size > failure.limit);
  OK(slicepool_free(many, take(many, 100).id));
  CHECK_EQ(devices[0].taken, 0);
  /* And later ones that would fit are given no more than they want. */
  refused(large, 4096, 0, SLICEPOOL_ERROR_BUDGET_EXCEEDED);
  OK(slicepool_free(many, take(many, 100).id));
  CHECK_EQ(devices[0].taken, 1);
  finish(many, &devices[0]);
  finish(large, &devices[1]);
  OK(slicepool_budget_release(budget));
}

static void ones_own_pages_that_hold_nothing_go_before_anybody_is_refused(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_budget *budget = create_budget(8192, 0);
  const slicepool_pool_options pools[2] = { sliced(4096, 0, 0, 64), sliced(8192, 0, 0, 64) };
  const slicepool_device table = mock_table(&device);
  slicepool_allocator_config config = config_for(pools, 2);
  config.budget = budget;
  slicepool_allocator *allocator = create_of(&table, config);
  uint64_t ids[2] = { take(allocator, 4096).id, take(allocator, 4096).id };
  OK(slicepool_free_many(allocator, ids, 2, NULL));
  const slicepool_slice slice = take(allocator, 8192);
  CHECK_EQ(device.taken, 2);
  CHECK_USED(budget, 8192, 1);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
  OK(slicepool_budget_release(budget));
}

static void limits_that_are_lowered_leave_what_is_held_and_free_pages_go(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_budget *budget = create_budget(0, 0);
  slicepool_allocator *allocator = create_under(&device, budget);
  uint64_t ids[6];
  for (int i = 0; i < 6; i++) ids[i] = take(allocator, 4096).id;
  OK(slicepool_budget_limits_set(budget, 0, 4));
  CHECK_EQ(used_of(budget).max_pages, 4);
  CHECK_USED(budget, 6 * 4096, 6);
  for (int i = 0; i < 6; i++) look_up(allocator, ids[i]);
  refused(allocator, 100, 0, SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
  OK(slicepool_budget_limits_set(budget, 0, 0));
  for (int i = 0; i < 3; i++) OK(slicepool_free(allocator, ids[i]));
  CHECK_USED(budget, 6 * 4096, 6);
  OK(slicepool_budget_limits_set(budget, 0, 4));
  OK(slicepool_collect(allocator, 1, 1, NULL));
  CHECK_LE(used_of(budget).pages, 4);
  OK(slicepool_free(allocator, take(allocator, 4096).id));
  OK(slicepool_budget_limits_set(budget, 3 * 4096, 0));
  CHECK_EQ(used_of(budget).max_pages, UINT32_MAX);
  OK(slicepool_collect(allocator, 1, 1, NULL));
  CHECK_USED(budget, 3 * 4096, 3);
  refused(allocator, 100, 0, SLICEPOOL_ERROR_BUDGET_EXCEEDED);
  OK(slicepool_budget_limits_set(budget, 0, 0));
  CHECK_EQ(used_of(budget).max_bytes, UINT64_MAX);
  OK(slicepool_free(allocator, take(allocator, 100).id));
  OK(slicepool_free_many(allocator, ids + 3, 3, NULL));
  finish(allocator, &device);
  OK(slicepool_budget_release(budget));
}

/* ---- lifetimes */

static void a_budget_lives_as_long_as_its_last_owner(void) {
  /* In which order its three owners go: the creator, an allocator, and one who has retained it. */
  static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
  for (int o = 0; o < 12; o++) {
    struct mock_device device;
    struct watched_host host;
    mock_init(&device);
    watched_init(&host);
    const slicepool_host hooks = watched_table(&host, HOOK_MEMORY | HOOK_LOCK);
    slicepool_budget_config config = SLICEPOOL_BUDGET_CONFIG_INIT;
    config.max_pages = 2;
    config.host = &hooks;
    slicepool_budget *budget = NULL;
    OK(slicepool_budget_create(&config, &budget));
    CHECK_EQ(host.live, 1);
    OK(slicepool_budget_retain(budget));
    slicepool_allocator *allocator = create_under(&device, budget);
    for (int i = 0; i < 3; i++) {
      CHECK_EQ(host.live, 1);
      if (orders[o % 6][i] != 1) {
        OK(slicepool_budget_release(budget));
        continue;
      }
      /* It works to its end. */
      const uint64_t ids[2] = { take(allocator, 4096).id, take(allocator, 4096).id };
      refused(allocator, 1, 0, SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
      OK(slicepool_free_many(allocator, ids, 2, NULL));
      if (o < 6) OK(slicepool_allocator_destroy(allocator, 0, NULL));
      else OK(slicepool_allocator_abandon(allocator, 0));
    }
    CHECK(host.locks != 0);
    watched_end(&host);
    if (o < 6) mock_end(&device);
    else free(device.pages);
  }
}

/* Also if the device keeps a page: nobody is left to hold it. */
static void an_allocator_that_goes_leaves_nothing_in_the_budget(void) {
  for (int way = 0; way < 3; way++) {
    struct mock_device device;
    mock_init(&device);
    slicepool_budget *budget = create_budget(0, 5);
    slicepool_allocator *allocator = create_under(&device, budget);
    for (int i = 0; i < 3; i++) take(allocator, 4096);
    CHECK_USED(budget, 3 * 4096, 3);
    device.refusals = way == 1 ? 1 : 0;
    if (way == 2) OK(slicepool_allocator_abandon(allocator, 0));
    else OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
    CHECK_EQ(device.live, way == 2 ? 3 : way);
    CHECK_USED(budget, 0, 0);
    OK(slicepool_budget_release(budget));
    free(device.pages);
  }
}

static void an_allocator_that_does_not_come_to_be_is_no_owner(void) {
  struct mock_device device;
  struct watched_host host;
  mock_init(&device);
  watched_init(&host);
  const slicepool_host hooks = watched_table(&host, HOOK_MEMORY);
  slicepool_budget_config budget_config = SLICEPOOL_BUDGET_CONFIG_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  budget_config.host = &hooks;
  budget_config.failure = &failure;
  slicepool_budget *budget = NULL;
  host.fail_at = 1;
  CHECK_RESULT(slicepool_budget_create(&budget_config, &budget), SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
  CHECK(budget == NULL);
  CHECK_EQ(failure.result, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
  OK(slicepool_budget_create(&budget_config, &budget));
  const slicepool_device table = mock_table(&device);
  slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  slicepool_allocator_config config = config_for(&pool, 1);
  config.budget = budget;
  config.host = &hooks;
  slicepool_allocator *allocator = NULL;
  uint64_t failures = 0;
  for (uint64_t n = 1; allocator == NULL; n++) {
    host.fail_at = host.allocations + n;
    const slicepool_result result = slicepool_allocator_create(&table, &config, &allocator);
    if (result == SLICEPOOL_OK) break;
    CHECK_RESULT(result, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
    CHECK_EQ(host.live, 1);
    failures++;
  }
  CHECK(failures != 0);
  host.fail_at = 0;
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  pool.granule = 3;
  CHECK_RESULT(slicepool_allocator_create(&table, &config, &allocator), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(host.live, 1);
  OK(slicepool_budget_release(budget));
  watched_end(&host);
  mock_end(&device);
}

/* ---- threads */

struct grower {
  slicepool_allocator *allocator;
  slicepool_budget *budget;
  pthread_barrier_t *barrier;
  uint64_t seed, rounds, served, refusals;
};

static void *grow_and_shrink(void *argument) {
  enum { SLOTS = 8 };
  struct grower *grower = argument;
  uint64_t ids[SLOTS] = { 0 }, state = grower->seed;
  pthread_barrier_wait(grower->barrier);
  for (uint64_t i = 0; i < grower->rounds; i++) {
    uint64_t *id = &ids[random_between(&state, 0, SLOTS - 1)];
    if (*id != 0) {
      OK(slicepool_free(grower->allocator, *id));
      *id = 0;
      continue;
    }
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    const slicepool_result result = try_take(grower->allocator, 4096, 0, &slice, &failure);
    if (result == SLICEPOOL_OK) {
      grower->served++;
      *id = slice.id;
    } else {
      CHECK_RESULT(result, SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
      CHECK_EQ(failure.limit, 10);
      grower->refusals++;
    }
    if (i % 16 == 0) CHECK_LE(used_of(grower->budget).pages_peak, 10);
  }
  OK(slicepool_free_many(grower->allocator, ids, SLOTS, NULL));
  return NULL;
}

static void grow_from_two_threads(bool share_the_allocator) {
  struct mock_device device;
  mock_init(&device);
  slicepool_budget *budget = create_budget(0, 10);
  slicepool_allocator *allocators[2];
  allocators[0] = create_under(&device, budget);
  allocators[1] = share_the_allocator ? allocators[0] : create_under(&device, budget);
  pthread_barrier_t barrier;
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  pthread_t threads[2];
  struct grower growers[2];
  for (uint64_t t = 0; t < 2; t++) {
    growers[t] = (struct grower){ allocators[t], budget, &barrier, t + 1, 50 + rounds(100000), 0, 0 };
    CHECK(pthread_create(&threads[t], NULL, grow_and_shrink, &growers[t]) == 0);
  }
  for (int t = 0; t < 2; t++) {
    CHECK(pthread_join(threads[t], NULL) == 0);
    CHECK(growers[t].served != 0);
  }
  CHECK_LE(device.live_peak, 10);
  CHECK_LE(used_of(budget).pages_peak, 10);
  CHECK_EQ(used_of(budget).pages, device.live);
  CHECK_EQ(used_of(budget).bytes, device.bytes);
  for (int t = 0; t < (share_the_allocator ? 1 : 2); t++) OK(slicepool_allocator_destroy(allocators[t], 0, NULL));
  CHECK_USED(budget, 0, 0);
  OK(slicepool_budget_release(budget));
  mock_end(&device);
  CHECK(pthread_barrier_destroy(&barrier) == 0);
}

static void two_threads_that_grow_never_hold_more_than_ten_pages_together(void) {
  grow_from_two_threads(false);
  grow_from_two_threads(true);
}

struct owner {
  slicepool_budget *budget;
  uint64_t rounds;
};

static void *come_and_go(void *argument) {
  struct owner *owner = argument;
  struct mock_device device;
  mock_init(&device);
  for (uint64_t i = 0; i < owner->rounds; i++) {
    OK(slicepool_budget_retain(owner->budget));
    slicepool_allocator *allocator = create_under(&device, owner->budget);
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    const slicepool_result result = try_take(allocator, 100, 0, &slice, NULL);
    CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
    OK(slicepool_budget_limits_set(owner->budget, 0, 2 + (uint32_t)(i % 3)));
    OK(slicepool_free(allocator, slice.id));
    OK(slicepool_budget_release(owner->budget));
    OK(slicepool_allocator_destroy(allocator, 0, NULL));
  }
  OK(slicepool_budget_release(owner->budget));
  mock_end(&device);
  return NULL;
}

/* The creator has gone before them; whoever is the last frees it. */
static void owners_that_come_and_go_on_four_threads_leave_nothing_behind(void) {
  struct watched_host host;
  watched_init(&host);
  const slicepool_host hooks = watched_table(&host, HOOK_MEMORY);
  slicepool_budget_config config = SLICEPOOL_BUDGET_CONFIG_INIT;
  config.max_pages = 3;
  config.host = &hooks;
  slicepool_budget *budget = NULL;
  OK(slicepool_budget_create(&config, &budget));
  pthread_t threads[4];
  struct owner owner = { budget, 5 + rounds(5000) };
  for (int t = 0; t < 4; t++) {
    OK(slicepool_budget_retain(budget));
    CHECK(pthread_create(&threads[t], NULL, come_and_go, &owner) == 0);
  }
  OK(slicepool_budget_release(budget));
  for (int t = 0; t < 4; t++) CHECK(pthread_join(threads[t], NULL) == 0);
  watched_end(&host);
}

static const struct test tests[] = {
  TEST(a_budget_counts_the_pages_of_all_its_allocators),
  TEST(bytes_are_limited_exactly_and_the_details_say_what_is_held),
  TEST(both_kinds_of_limits_hold),
  TEST(pages_that_grow_are_as_large_as_a_budget_has_room_for),
  TEST(a_page_that_the_device_does_not_give_takes_nothing_and_one_it_does_not_take_counts),
  TEST(a_refusal_makes_others_give_pages_back_that_hold_nothing_but_no_more_than_it_takes),
  TEST(freeing_a_slice_that_is_overwritten_gives_way_like_any_other_call),
  TEST(for_a_page_above_the_limit_nobody_gives_anything_back),
  TEST(ones_own_pages_that_hold_nothing_go_before_anybody_is_refused),
  TEST(limits_that_are_lowered_leave_what_is_held_and_free_pages_go),
  TEST(a_budget_lives_as_long_as_its_last_owner),
  TEST(an_allocator_that_goes_leaves_nothing_in_the_budget),
  TEST(an_allocator_that_does_not_come_to_be_is_no_owner),
  TEST(two_threads_that_grow_never_hold_more_than_ten_pages_together),
  TEST(owners_that_come_and_go_on_four_threads_leave_nothing_behind),
};

TEST_MAIN(tests)
