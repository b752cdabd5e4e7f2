/* Pools that are put in place of those an allocator has. */
#include "check.h"
#include "shorthand.h"
#include "watched_host.h"

static void install(slicepool_allocator *allocator, slicepool_pool_options pool) {
  OK(slicepool_install_pools(allocator, &pool, 1, NULL));
}

static slicepool_failure not_installed(slicepool_allocator *allocator, slicepool_pool_options pool,
                                       slicepool_result expected) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_install_pools(allocator, &pool, 1, &failure), expected);
  CHECK_EQ(failure.result, expected);
  return failure;
}

/* Section 8, item 12. */
static void pools_that_hold_a_slice_stay_and_empty_ones_make_way(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, sliced(2 * MIB, 0, 0, 32));
  const slicepool_slice slice = take(allocator, MIB);
  CHECK_EQ(not_installed(allocator, sliced(4 * MIB, 0, 8 * MIB, 32), SLICEPOOL_ERROR_POOLS_IN_USE).in_use, MIB);
  CHECK_EQ(options_in(allocator, 0).page_size, 2 * MIB);
  look_up(allocator, slice.id);
  check_books(allocator, &device);
  OK(slicepool_free(allocator, slice.id));
  install(allocator, sliced(4 * MIB, 0, 8 * MIB, 32));
  CHECK_EQ(device.live, 0);
  CHECK_EQ(options_in(allocator, 0).page_size, 4 * MIB);
  CHECK_EQ(options_in(allocator, 0).max_pool_size, 8 * MIB);
  /* Figures begin anew. */
  const slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.reserved_peak_bytes, 0);
  CHECK_EQ(figures.in_use_peak_bytes, 0);
  CHECK_EQ(figures.pages_peak, 0);
  CHECK_EQ(figures.device_allocations, 0);
  CHECK_EQ(figures.largest_allocation_bytes, 0);
  device.given = device.taken = 0;
  uint64_t ids[4];
  for (int i = 0; i < 4; i++) ids[i] = take(allocator, 2 * MIB).id;
  CHECK_EQ(device.live, 2);
  refused(allocator, 1, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  OK(slicepool_free_many(allocator, ids, 4, NULL));
  finish(allocator, &device);
}

static void whatever_the_pools_hold_is_in_the_way(void) {
  struct mock_device device;
  const slicepool_pool_options pools[2] = { exclusive(0, 32), direct(0, 32) };
  slicepool_allocator *allocator = create_list(&device, pools, 2);
  const slicepool_pool_options other = sliced(4096, 0, 0, 32);
  /* Slices of no bytes, and such that wait. */
  const slicepool_slice nothing = take(allocator, 0);
  not_installed(allocator, other, SLICEPOOL_ERROR_POOLS_IN_USE);
  OK(slicepool_free(allocator, nothing.id));
  free_at(allocator, take(allocator, 1000).id, 1, 1);
  CHECK_EQ(not_installed(allocator, other, SLICEPOOL_ERROR_POOLS_IN_USE).in_use, 1024);
  collect(allocator, 1, 1);
  install(allocator, other);
  device.given = device.taken = 0;
  finish(allocator, &device);
}

static void handles_of_the_pools_that_went_are_foreign_and_persistent_slices_stay(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, sliced(4096, 0, 0, 32));
  const slicepool_slice weights = take_flagged(allocator, 5000, SLICEPOOL_REQUEST_PERSISTENT);
  const slicepool_slice spare = take_flagged(allocator, 3000, SLICEPOOL_REQUEST_PERSISTENT);
  OK(slicepool_free(allocator, spare.id));
  const slicepool_slice old = take(allocator, 100);
  OK(slicepool_free(allocator, old.id));
  const slicepool_pool_options pools[2] = { sliced(8192, 0, 0, 32), direct(0, 32) };
  OK(slicepool_install_pools(allocator, pools, 2, NULL));
  CHECK_RESULT(slicepool_free(allocator, old.id), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  CHECK_RESULT(slicepool_slice_get(allocator, old.id, &slice), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  const slicepool_slice found = look_up(allocator, weights.id);
  CHECK(same_slice(&found, &weights));
  CHECK_EQ(device.live, 2);
  const slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.pools, 2);
  CHECK_EQ(figures.slices, 1);
  CHECK_EQ(figures.in_use_bytes, 5000);
  /* The spare one serves again as if nothing had happened, and new slices lie elsewhere. */
  const slicepool_slice again = take_flagged(allocator, 3000, SLICEPOOL_REQUEST_PERSISTENT);
  CHECK_EQ(again.memory, spare.memory);
  slice = take(allocator, 100);
  CHECK(slice.id != old.id);
  CHECK_EQ(figures_in(allocator, 0).slices, 1);
  const uint64_t ids[3] = { weights.id, again.id, slice.id };
  OK(slicepool_free_many(allocator, ids, 3, NULL));
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(device.live, 0);
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  mock_end(&device);
}

static void limits_and_what_they_count_stay(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_budget *budget = NULL;
  OK(slicepool_budget_create(NULL, &budget));
  const slicepool_device table = mock_table(&device);
  const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  slicepool_allocator_config config = config_for(&pool, 1);
  config.budget = budget;
  config.max_bytes = 3 * 4096;
  slicepool_allocator *allocator = create_of(&table, config);
  const slicepool_slice weights = take_flagged(allocator, 4096, SLICEPOOL_REQUEST_PERSISTENT);
  OK(slicepool_free(allocator, take(allocator, 100).id));
  install(allocator, sliced(4096, 0, 0, 64));
  slicepool_budget_statistics used = SLICEPOOL_BUDGET_STATISTICS_INIT;
  OK(slicepool_budget_statistics_get(budget, &used));
  CHECK_EQ(used.pages, 1);
  CHECK_EQ(used.bytes, 4096);
  const uint64_t ids[2] = { take(allocator, 4096).id, take(allocator, 4096).id };
  refused(allocator, 1, 0, SLICEPOOL_ERROR_BUDGET_EXCEEDED);
  OK(slicepool_free_many(allocator, ids, 2, NULL));
  OK(slicepool_free(allocator, weights.id));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  OK(slicepool_budget_statistics_get(budget, &used));
  CHECK_EQ(used.pages, 0);
  OK(slicepool_budget_release(budget));
  mock_end(&device);
}

static void timelines_and_what_they_have_completed_begin_anew_in_the_new_pools(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, sliced(4096, 0, 0, 32));
  collect(allocator, 1, 5);
  install(allocator, sliced(8192, 0, 0, 32));
  free_at(allocator, take(allocator, 100).id, 1, 6);
  CHECK_EQ(pending_in(allocator), 1);
  collect(allocator, 1, 6);
  CHECK_EQ(pending_in(allocator), 0);
  finish(allocator, &device);
}

/* ---- calls that fail */

static void a_page_that_the_device_does_not_take_back_keeps_the_pools(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, sliced(4096, 0, 0, 32));
  uint64_t ids[3];
  for (int i = 0; i < 3; i++) ids[i] = take(allocator, 4096).id;
  OK(slicepool_free_many(allocator, ids, 3, NULL));
  device.refusals = 1;
  device.refusal = 777;
  const slicepool_failure failure = not_installed(allocator, sliced(8192, 0, 0, 32), SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_REFUSED);
  CHECK(failure.device_code == 777);
  CHECK_EQ(options_in(allocator, 0).page_size, 4096);
  CHECK_EQ(figures_of(allocator).pages_stuck, 1);
  CHECK_EQ(device.live, 1);
  CHECK_RESULT(slicepool_free(allocator, ids[0]), SLICEPOOL_ERROR_STALE_HANDLE);
  touch(allocator, 100);
  install(allocator, sliced(8192, 0, 0, 32));
  CHECK_EQ(device.live, 0);
  device.given = device.taken = 0;
  finish(allocator, &device);
}

static void a_host_without_memory_keeps_the_pools(void) {
  struct mock_device device;
  struct watched_host host;
  mock_init(&device);
  watched_init(&host);
  const slicepool_host hooks = watched_table(&host, HOOK_MEMORY | HOOK_LOCK);
  const slicepool_device table = mock_table(&device);
  const slicepool_pool_options pool = sliced(4096, 0, 0, 32);
  slicepool_allocator_config config = config_for(&pool, 1);
  config.host = &hooks;
  slicepool_allocator *allocator = create_of(&table, config);
  const slicepool_pool_options others[3] = { exclusive(4096, 32), sliced(8192, 0, 0, 32), direct(0, 32) };
  uint64_t failures = 0;
  for (uint64_t n = 1;; n++) {
    OK(slicepool_free(allocator, take(allocator, 100).id));
    const uint64_t live = host.live, bytes = host.bytes;
    host.fail_at = host.allocations + n;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    const slicepool_result result = slicepool_install_pools(allocator, others, 3, &failure);
    host.fail_at = 0;
    if (result == SLICEPOOL_OK) break;
    CHECK_RESULT(result, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
    CHECK(failure.size != 0);
    CHECK_EQ(host.live, live);
    CHECK_EQ(host.bytes, bytes);
    CHECK_EQ(figures_of(allocator).pools, 1);
    failures++;
  }
  CHECK(failures != 0);
  CHECK_EQ(figures_of(allocator).pools, 3);
  device.given = device.taken = 0;
  finish(allocator, &device);
  watched_end(&host);
}

/* Again and again: nothing is left of those that went. */
static void pools_that_are_installed_again_and_again_leave_nothing_behind(void) {
  struct mock_device device;
  struct watched_host host;
  mock_init(&device);
  watched_init(&host);
  const slicepool_host hooks = watched_table(&host, HOOK_MEMORY);
  const slicepool_device table = mock_table(&device);
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.host = &hooks;
  slicepool_allocator *allocator = create_of(&table, config);
  uint64_t live = 0;
  for (uint64_t round = 0; round < 20 + rounds(2000); round++) {
    install(allocator, kind_of((int)(round % KINDS)).pool);
    OK(slicepool_free(allocator, take(allocator, 1000 + round).id));
    if (round == KINDS) live = host.live;
    if (round > KINDS && round % KINDS == 0) CHECK_EQ(host.live, live);
  }
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  watched_end(&host);
  mock_end(&device);
}

/* The allocator was told to refuse them. */
static void pools_that_would_be_adjusted_are_not_installed_where_that_is_validated(void) {
  const slicepool_pool_options good = sliced(4096, 0, 0, 32);
  const slicepool_pool_options adjusted[3] = { sliced(4096, 8192, 0, 32), sliced(4100, 0, 0, 32),
                                               sliced(4096, 0, 1024, 32) };
  for (int a = 0; a < 3; a++) {
    for (uint32_t flags = 0; flags <= SLICEPOOL_ALLOCATOR_VALIDATE; flags += SLICEPOOL_ALLOCATOR_VALIDATE) {
      struct mock_device device;
      mock_init(&device);
      const slicepool_device table = mock_table(&device);
      slicepool_allocator_config config = config_for(&adjusted[a], 1);
      config.flags = flags;
      const slicepool_result expected = flags == 0 ? SLICEPOOL_OK : SLICEPOOL_ERROR_INVALID_ARGUMENT;
      slicepool_allocator *allocator = NULL;
      CHECK_RESULT(slicepool_allocator_create(&table, &config, &allocator), expected);
      if (allocator != NULL) OK(slicepool_allocator_destroy(allocator, 0, NULL));
      config.pools = &good;
      allocator = create_of(&table, config);
      CHECK_RESULT(slicepool_install_pools(allocator, &adjusted[a], 1, NULL), expected);
      OK(slicepool_allocator_destroy(allocator, 0, NULL));
      mock_end(&device);
    }
  }
}

/* ---- from within callbacks */

struct scene {
  slicepool_allocator *allocator;
  uint64_t tries;
};

static void try_to_install(struct scene *scene) {
  const slicepool_failure failure =
      not_installed(scene->allocator, sliced(8192, 0, 0, 32), SLICEPOOL_ERROR_BUSY);
  CHECK(failure.in_flight != 0);
  CHECK_EQ(options_in(scene->allocator, 0).page_size, 4096);
  scene->tries++;
}

static void install_in_callback(struct mock_device *device) { try_to_install(device->hook_data); }

static int32_t install_in_walk(void *user_data, const slicepool_range *range) {
  (void)range;
  try_to_install(user_data);
  return SLICEPOOL_WALK_CONTINUE;
}

static slicepool_result install_in_completed(struct mock_device *device, uint32_t timeline, uint64_t *completed) {
  (void)timeline;
  (void)completed;
  try_to_install(device->hook_data);
  return SLICEPOOL_ERROR_NOT_SUPPORTED;
}

static int32_t install_in_shortage(struct mock_device *device, const slicepool_shortage *shortage) {
  (void)shortage;
  try_to_install(device->hook_data);
  return SLICEPOOL_SHORTAGE_REFUSE;
}

static slicepool_result install_in_fill(struct mock_device *device, const slicepool_fill_request *request,
                                        slicepool_point *point) {
  (void)request;
  (void)point;
  try_to_install(device->hook_data);
  return SLICEPOOL_OK;
}

/* Not even where the pools hold nothing, as when their last page goes back. */
static void from_within_a_callback_no_pools_are_installed(void) {
  struct mock_device device;
  struct scene scene = { NULL, 0 };
  mock_init(&device);
  device.hook_data = &scene;
  device.on_shortage = install_in_shortage;
  device.on_fill = install_in_fill;
  slicepool_allocator *allocator = scene.allocator = create(&device, sliced(4096, 0, 8192, 32));
  device.in_allocate = install_in_callback;
  const slicepool_slice slice = take(allocator, 4096);
  CHECK_EQ(scene.tries, 1);
  device.in_allocate = NULL;
  OK(slicepool_walk(allocator, install_in_walk, &scene));
  CHECK_EQ(scene.tries, 2);
  free_at(allocator, take(allocator, 4096).id, 1, 1);
  refused(allocator, 1, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(scene.tries, 3);
  collect(allocator, 1, 1);
  OK(slicepool_free(allocator, take_flagged(allocator, 100, SLICEPOOL_REQUEST_ZERO).id));
  CHECK_EQ(scene.tries, 4);
  OK(slicepool_free(allocator, take_flagged(allocator, 100, SLICEPOOL_REQUEST_SCRUB).id));
  CHECK_EQ(scene.tries, 5);
  OK(slicepool_free(allocator, slice.id));
  device.in_deallocate = install_in_callback;
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_EQ(scene.tries, 7);
  device.in_deallocate = NULL;
  install(allocator, sliced(8192, 0, 0, 32));
  device.given = device.taken = 0;
  finish(allocator, &device);
}

static void use_new_pools(struct mock_device *device) {
  struct scene *scene = device->hook_data;
  device->in_allocate = NULL;
  CHECK_EQ(options_in(scene->allocator, 0).page_size, 8192);
  not_installed(scene->allocator, sliced(4096, 0, 0, 32), SLICEPOOL_ERROR_BUSY);
  OK(slicepool_free(scene->allocator, take(scene->allocator, 8192).id));
  scene->tries++;
}

/* The device is asked for them once the allocator is shared again. */
static void while_new_pools_take_their_least_pages_a_callback_uses_them(void) {
  struct mock_device device;
  struct scene scene = { NULL, 0 };
  mock_init(&device);
  device.hook_data = &scene;
  slicepool_allocator *allocator = scene.allocator = create(&device, sliced(4096, 0, 0, 32));
  slicepool_pool_options pool = sliced(8192, 0, 0, 32);
  pool.min_pages = 2;
  device.in_allocate = use_new_pools;
  install(allocator, pool);
  CHECK_EQ(scene.tries, 1);
  CHECK_EQ(device.given - device.taken, 2);
  finish(allocator, &device);
}

static void from_within_completed_no_pools_are_installed(void) {
  struct mock_device device;
  struct scene scene = { NULL, 0 };
  mock_init(&device);
  device.hook_data = &scene;
  device.on_completed = install_in_completed;
  slicepool_allocator *allocator = scene.allocator = create(&device, sliced(4096, 0, 4096, 32));
  free_at(allocator, take(allocator, 4096).id, 1, 1);
  refused(allocator, 1, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(scene.tries, 1);
  collect(allocator, 1, 1);
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(pools_that_hold_a_slice_stay_and_empty_ones_make_way),
  TEST(whatever_the_pools_hold_is_in_the_way),
  TEST(handles_of_the_pools_that_went_are_foreign_and_persistent_slices_stay),
  TEST(limits_and_what_they_count_stay),
  TEST(timelines_and_what_they_have_completed_begin_anew_in_the_new_pools),
  TEST(a_page_that_the_device_does_not_take_back_keeps_the_pools),
  TEST(a_host_without_memory_keeps_the_pools),
  TEST(pools_that_are_installed_again_and_again_leave_nothing_behind),
  TEST(pools_that_would_be_adjusted_are_not_installed_where_that_is_validated),
  TEST(from_within_a_callback_no_pools_are_installed),
  TEST(while_new_pools_take_their_least_pages_a_callback_uses_them),
  TEST(from_within_completed_no_pools_are_installed),
};

TEST_MAIN(tests)
