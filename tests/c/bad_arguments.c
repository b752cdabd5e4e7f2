/* Arguments that callers may get wrong: every call answers an error and changes nothing.
 *
 * Calls that could crash run in forked children. Prints the text of every refused call, so that the driver can tell
 * when a function of the header is missing. */
#include "check.h"
#include "world.h"

static int32_t stop_at_once(void *user_data, const slicepool_range *range) {
  (void)user_data;
  (void)range;
  return SLICEPOOL_WALK_STOP;
}

static int32_t stop_at_once_in_space(void *user_data, const slicepool_space_slice *piece) {
  (void)user_data;
  (void)piece;
  return SLICEPOOL_WALK_STOP;
}

/* ---- NULL */

static void null_is_an_error_and_not_a_crash(void) {
  build_world();
  slicepool_device device = world.table;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_allocator *allocator = NULL;
  slicepool_request request = request_of(100);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  slicepool_layout_properties properties = SLICEPOOL_LAYOUT_PROPERTIES_INIT;
  static unsigned char block[65536];
  slicepool_space_config space_config = SLICEPOOL_SPACE_CONFIG_INIT;
  slicepool_space *space = NULL;
  slicepool_space_slice piece = SLICEPOOL_SPACE_SLICE_INIT;
  slicepool_space_statistics space_figures = SLICEPOOL_SPACE_STATISTICS_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  uint64_t number = 0, ids[2] = { world.slice.id, 0 };
  uint32_t flag = 0;
  char text[16];
  space_config.size = 100;
  slicepool_budget_config budget_config = SLICEPOOL_BUDGET_CONFIG_INIT;
  slicepool_budget *budget = NULL;
  slicepool_budget_statistics budget_figures = SLICEPOOL_BUDGET_STATISTICS_INIT;
  OK(slicepool_budget_create(NULL, &budget));
  const slicepool_point point = { 1, 0, 1 };

  INVALID(slicepool_host_device(NULL));
  INVALID(slicepool_struct_default(NULL, 8));
  INVALID(slicepool_layout_adaptive(&properties, &pool, 1, NULL));
  INVALID(slicepool_layout_adaptive(&properties, NULL, 1, &flag));
  INVALID(slicepool_layout_adaptive(NULL, NULL, 0, NULL));
  INVALID(slicepool_layout_sub_slices(&properties, &pool, 1, NULL));
  INVALID(slicepool_layout_sub_slices(NULL, NULL, 1, &flag));
  INVALID(slicepool_layout_exclusive_pages(&properties, &pool, 1, NULL));
  INVALID(slicepool_layout_exclusive_pages(&properties, NULL, UINT32_MAX, &flag));
  CHECK(flag == 0 && pool.kind == 0);

  INVALID(slicepool_allocator_create(NULL, &config, &allocator));
  INVALID(slicepool_allocator_create(&device, &config, NULL));
  INVALID(slicepool_allocator_create(&device, NULL, NULL));
  INVALID(slicepool_allocator_create(NULL, NULL, NULL));
  INVALID(slicepool_allocator_create_in(NULL, &config, block, sizeof block, &allocator));
  INVALID(slicepool_allocator_create_in(&device, &config, NULL, sizeof block, &allocator));
  INVALID(slicepool_allocator_create_in(&device, &config, NULL, 0, &allocator));
  INVALID(slicepool_allocator_create_in(&device, &config, block, sizeof block, NULL));
  INVALID(slicepool_allocator_create_in(NULL, NULL, NULL, 0, NULL));
  INVALID(slicepool_allocator_bytes_needed(&config, 1, 1, 0, NULL));
  INVALID(slicepool_allocator_bytes_needed(NULL, 1, 1, 0, NULL));
  INVALID(slicepool_budget_create(&budget_config, NULL));
  INVALID(slicepool_budget_create(NULL, NULL));
  INVALID(slicepool_budget_retain(NULL));
  INVALID(slicepool_budget_limits_set(NULL, 1, 1));
  INVALID(slicepool_budget_statistics_get(NULL, &budget_figures));
  INVALID(slicepool_budget_statistics_get(budget, NULL));
  CHECK(allocator == NULL && memcmp(block, block + 1, sizeof block - 1) == 0 && block[0] == 0);
  INVALID(slicepool_allocator_destroy(NULL, 0, &failure));
  INVALID(slicepool_allocator_destroy(NULL, SLICEPOOL_DESTROY_FORCE, NULL));
  INVALID(slicepool_allocator_abandon(NULL, 0));
  INVALID(slicepool_allocator_abandon(NULL, SLICEPOOL_ABANDON_FORKED));
  INVALID(slicepool_trim(NULL, 0, NULL));
  INVALID(slicepool_cleanup(NULL, NULL));

  INVALID(slicepool_allocate(NULL, &request, &slice));
  INVALID(slicepool_allocate(world.allocator, NULL, &slice));
  INVALID(slicepool_allocate(world.allocator, &request, NULL));
  INVALID(slicepool_allocate(NULL, NULL, NULL));
  INVALID(slicepool_allocate_many(NULL, &request, 1, &slice));
  INVALID(slicepool_allocate_many(world.allocator, NULL, 1, &slice));
  INVALID(slicepool_allocate_many(world.allocator, &request, 1, NULL));
  INVALID(slicepool_allocate_many(NULL, NULL, 1, NULL));
  INVALID(slicepool_allocate_many(NULL, NULL, 0, NULL));
  INVALID(slicepool_free(NULL, world.slice.id));
  INVALID(slicepool_free(NULL, 0));
  INVALID(slicepool_free_many(NULL, ids, 2, &failure));
  INVALID(slicepool_free_many(world.allocator, NULL, 2, NULL));
  INVALID(slicepool_free_many(NULL, NULL, 0, NULL));
  INVALID(slicepool_free_after(NULL, world.slice.id, &point, 1, &failure));
  INVALID(slicepool_free_after(NULL, 0, NULL, 0, NULL));
  INVALID(slicepool_free_after(world.allocator, world.slice.id, NULL, 1, NULL));
  INVALID(slicepool_free_after(world.allocator, 0, NULL, 1, NULL));
  INVALID(slicepool_free_after_many(NULL, ids, 2, &point, 1, NULL));
  INVALID(slicepool_free_after_many(NULL, NULL, 0, NULL, 0, NULL));
  INVALID(slicepool_free_after_many(world.allocator, NULL, 1, &point, 1, &failure));
  INVALID(slicepool_free_after_many(world.allocator, ids, 2, NULL, 1, NULL));
  INVALID(slicepool_free_after_many(world.allocator, NULL, 0, NULL, 1, NULL));
  INVALID(slicepool_collect(NULL, 1, 1, &failure));
  INVALID(slicepool_timeline_forget(NULL, 1));
  INVALID(slicepool_resolve(NULL, world.slice.id, &slice, NULL));
  INVALID(slicepool_resolve(world.allocator, world.slice.id, NULL, &failure));
  INVALID(slicepool_resolve(world.allocator, 0, &slice, NULL));
  INVALID(slicepool_plan(NULL, &pool, 1, &flag));
  INVALID(slicepool_plan(world.allocator, NULL, 1, &flag));
  INVALID(slicepool_plan(world.allocator, &pool, 1, NULL));
  INVALID(slicepool_check_margins(NULL, NULL));
  INVALID(slicepool_slice_get(NULL, world.slice.id, &slice));
  INVALID(slicepool_slice_get(world.allocator, world.slice.id, NULL));
  INVALID(slicepool_slice_get(world.allocator, 0, &slice));
  INVALID(slicepool_try_resize(NULL, world.slice.id, 100, &slice, &failure));
  INVALID(slicepool_try_resize(world.allocator, world.slice.id, 100, NULL, &failure));
  INVALID(slicepool_try_resize(world.allocator, world.slice.id, 100, NULL, NULL));
  INVALID(slicepool_try_resize(world.allocator, 0, 100, &slice, NULL));
  INVALID(slicepool_would_fit(NULL, &request, &flag));
  INVALID(slicepool_would_fit(world.allocator, NULL, &flag));
  INVALID(slicepool_would_fit(world.allocator, &request, NULL));
  INVALID(slicepool_largest_free(NULL, &number));
  INVALID(slicepool_largest_free(world.allocator, NULL));

  INVALID(slicepool_statistics_get(NULL, &figures));
  INVALID(slicepool_statistics_get(world.allocator, NULL));
  INVALID(slicepool_pool_statistics_get(NULL, 0, &figures));
  INVALID(slicepool_pool_statistics_get(world.allocator, 0, NULL));
  INVALID(slicepool_pool_options_get(NULL, 0, &pool));
  INVALID(slicepool_pool_options_get(world.allocator, 0, NULL));
  INVALID(slicepool_walk(NULL, stop_at_once, NULL));
  INVALID(slicepool_walk(world.allocator, NULL, NULL));
  INVALID(slicepool_report_json(NULL, text, sizeof text, &number));
  INVALID(slicepool_report_json(world.allocator, NULL, sizeof text, &number));
  INVALID(slicepool_report_json(world.allocator, text, sizeof text, NULL));

  INVALID(slicepool_space_create(NULL, &space));
  INVALID(slicepool_space_create(&space_config, NULL));
  INVALID(slicepool_space_destroy(NULL));
  INVALID(slicepool_space_allocate(NULL, 1, 1, &piece, &failure));
  INVALID(slicepool_space_allocate(world.space, 1, 1, NULL, NULL));
  INVALID(slicepool_space_free(NULL, world.piece.id));
  INVALID(slicepool_space_free(NULL, 0));
  INVALID(slicepool_space_slice_get(NULL, world.piece.id, &piece));
  INVALID(slicepool_space_slice_get(world.space, world.piece.id, NULL));
  INVALID(slicepool_space_slice_get(world.space, 0, &piece));
  INVALID(slicepool_space_try_resize(NULL, world.piece.id, 10, &piece, NULL));
  INVALID(slicepool_space_try_resize(world.space, world.piece.id, 10, NULL, &failure));
  INVALID(slicepool_space_try_resize(world.space, 0, 10, &piece, NULL));
  INVALID(slicepool_space_grow(NULL, 100));
  INVALID(slicepool_space_clear(NULL));
  INVALID(slicepool_space_largest_free(NULL, &number));
  INVALID(slicepool_space_largest_free(world.space, NULL));
  INVALID(slicepool_space_statistics_get(NULL, &space_figures));
  INVALID(slicepool_space_statistics_get(world.space, NULL));
  INVALID(slicepool_space_walk(NULL, stop_at_once_in_space, NULL));
  INVALID(slicepool_space_walk(world.space, NULL, NULL));
  /* What is in the way of other pools is told before what is wrong with them. */
  OK(slicepool_free(world.allocator, world.slice.id));
  INVALID(slicepool_install_pools(NULL, &pool, 1, NULL));
  INVALID(slicepool_install_pools(world.allocator, NULL, 1, &failure));
  INVALID(slicepool_install_pools(world.allocator, NULL, 0, NULL));
  world.slice = take(world.allocator, 5000);
  OK(slicepool_budget_release(budget));
  /* A refused walk is over: the space can be destroyed. */
  IN_CHILD("a refused walk", {
    CHECK_RESULT(slicepool_space_walk(world.space, NULL, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    OK(slicepool_space_destroy(world.space));
  });
  end_world();
}

static void null_is_fine_where_the_header_says_so(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_device table = mock_table(&device);
  slicepool_allocator *allocator = NULL;
  OK(slicepool_allocator_create(&table, NULL, &allocator));
  CHECK_EQ(take(allocator, 1).size, 256);
  CHECK_EQ(figures_of(allocator).pools, 2);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 4 * MIB);
  CHECK_EQ(device.last_alignment, 4096);
  CHECK_RESULT(slicepool_allocator_destroy(allocator, 0, NULL), SLICEPOOL_ERROR_BUSY);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);

  static unsigned char block[65536];
  mock_init(&device);
  OK(slicepool_allocator_create_in(&table, NULL, block, sizeof block, &allocator));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  mock_end(&device);
  uint64_t bytes = 0;
  OK(slicepool_allocator_bytes_needed(NULL, 0, 0, 0, &bytes));
  CHECK(bytes != 0);
  uint32_t count = 0;
  OK(slicepool_layout_adaptive(NULL, NULL, 0, &count));
  CHECK_EQ(count, 2);
  OK(slicepool_layout_sub_slices(NULL, NULL, 0, &count));
  CHECK(count > 2);
  OK(slicepool_layout_exclusive_pages(NULL, NULL, 0, &count));
  CHECK_EQ(count, 24);

  build_world();
  OK(slicepool_free(world.allocator, 0));
  OK(slicepool_free_many(world.allocator, NULL, 0, NULL));
  OK(slicepool_allocate_many(world.allocator, NULL, 0, NULL));
  OK(slicepool_space_free(world.space, 0));
  OK(slicepool_budget_release(NULL));
  const slicepool_point point = { 1, 0, 1 };
  OK(slicepool_free_after(world.allocator, 0, &point, 1, NULL));
  OK(slicepool_free_after(world.allocator, 0, NULL, 0, NULL));
  OK(slicepool_free_after_many(world.allocator, NULL, 0, &point, 1, NULL));
  OK(slicepool_free_after_many(world.allocator, NULL, 0, NULL, 0, NULL));
  OK(slicepool_plan(world.allocator, NULL, 0, &count));
  CHECK_EQ(count, 1);
  OK(slicepool_collect(world.allocator, 1, 1, NULL));
  OK(slicepool_check_margins(world.allocator, NULL));
  const uint64_t zeros[] = { 0, 0, 0 };
  OK(slicepool_free_many(world.allocator, zeros, 3, NULL));
  uint64_t needed = 0;
  OK(slicepool_report_json(world.allocator, NULL, 0, &needed));
  CHECK(needed > 100);
  CHECK_RESULT(slicepool_space_allocate(world.space, 0, 0, &world.piece, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  end_world();
}

/* ---- flags, kinds, reserved fields */

static void every_unknown_flag_is_refused(void) {
  build_world();
  for (unsigned bit = 0; bit < 32; bit++) {
    const uint32_t flag = UINT32_C(1) << bit;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_request request = request_of(100);
    request.flags = flag;
    request.failure = &failure;
    if (flag == SLICEPOOL_REQUEST_IN_POOL || flag == SLICEPOOL_REQUEST_PERSISTENT) {
      IN_CHILD("a known flag", {
        OK(allocate_with(&request));
        OK(allocate_one_with(&request));
        OK(would_fit_with(&request));
      });
    } else if (flag == SLICEPOOL_REQUEST_ZERO || flag == SLICEPOOL_REQUEST_SCRUB) {
      REFUSED(allocate_with(&request), SLICEPOOL_ERROR_NOT_SUPPORTED);
      REFUSED(allocate_one_with(&request), SLICEPOOL_ERROR_NOT_SUPPORTED);
      CHECK_RESULT(allocate_with(&request), SLICEPOOL_ERROR_NOT_SUPPORTED);
      CHECK_TEXT(failure.field, "fill");
    } else {
      REFUSED(allocate_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      REFUSED(allocate_one_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      REFUSED(would_fit_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_RESULT(allocate_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "flags");
      CHECK_EQ(failure.value, flag);
      request.flags |= SLICEPOOL_REQUEST_IN_POOL;
      CHECK_RESULT(allocate_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "flags");
    }

    slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
    config.flags = flag;
    config.failure = &failure;
    if (flag <= SLICEPOOL_ALLOCATOR_DEBUG_FILL) {
      OK(create_with_config(&config));
      OK(create_in_with_config(&config));
      OK(bytes_needed_with(&config));
    } else {
      CHECK_RESULT(create_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "flags");
      CHECK_EQ(failure.value, flag);
      CHECK_RESULT(create_in_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_RESULT(bytes_needed_with(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    }
    slicepool_space_config space_config = SLICEPOOL_SPACE_CONFIG_INIT;
    space_config.size = 100;
    space_config.flags = flag;
    space_config.failure = &failure;
    failure.field = NULL;
    CHECK_RESULT(create_space_with(&space_config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "flags");

    if (flag != SLICEPOOL_DESTROY_FORCE) {
      failure.field = NULL;
      REFUSED(slicepool_allocator_destroy(world.allocator, flag, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      REFUSED(slicepool_allocator_destroy(world.allocator, flag | SLICEPOOL_DESTROY_FORCE, NULL),
              SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_RESULT(slicepool_allocator_destroy(world.allocator, flag, &failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "flags");
    }
    if (flag != SLICEPOOL_ABANDON_FORKED) {
      REFUSED(slicepool_allocator_abandon(world.allocator, flag), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      REFUSED(slicepool_allocator_abandon(world.allocator, flag | SLICEPOOL_ABANDON_FORKED),
              SLICEPOOL_ERROR_INVALID_ARGUMENT);
    }
  }
  end_world();
}

static void kinds_and_rules_that_do_not_exist_are_refused_by_name(void) {
  static const uint32_t kinds[] = { 0, 4, 5, 6, 12345, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF };
  build_world();
  slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    slicepool_pool_options wrong = pool;
    wrong.kind = kinds[i];
    creation_failure = (slicepool_failure)SLICEPOOL_FAILURE_INIT;
    CHECK_RESULT(create_with_pool(&wrong), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(creation_failure.field, "kind");
    CHECK_EQ(creation_failure.value, kinds[i]);
  }
  static const uint32_t rules[] = { 3, 4, 12345, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF };
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    slicepool_pool_options wrong = pool;
    wrong.near_page = rules[i];
    CHECK_RESULT(create_with_pool(&wrong), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(creation_failure.field, "near_page");
    CHECK_EQ(creation_failure.value, rules[i]);
  }
  static const uint32_t counts[] = { 33, 255, 256, 257, 65536, 0x80000000, 0xFFFFFFFF };
  slicepool_pool_options *pools = before_the_wall(32 * sizeof *pools);
  for (int i = 0; i < 32; i++) pools[i] = pool;
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
    config.pools = pools;
    config.pool_count = counts[i];
    config.failure = &creation_failure;
    CHECK_RESULT(create_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(creation_failure.field, "pool_count");
    CHECK_EQ(creation_failure.value, counts[i]);
  }
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.pool_count = 1;
  config.failure = &creation_failure;
  CHECK_RESULT(create_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(creation_failure.field, "pools");
  end_world();
}

static void reserved_fields_must_be_zero(void) {
  build_world();
  creation_failure = (slicepool_failure)SLICEPOOL_FAILURE_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;

  slicepool_request request = request_of(100);
  request.failure = &failure;
  request.reserved_pointer = &failure;
  CHECK_RESULT(allocate_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "reserved_pointer");
  CHECK_EQ(failure.value, (uintptr_t)&failure);
  CHECK_RESULT(allocate_one_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(would_fit_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  request.reserved_pointer = NULL;
  request.reserved = 0x80000000;
  CHECK_RESULT(allocate_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "reserved");
  CHECK_EQ(failure.value, 0x80000000);
  CHECK_RESULT(allocate_one_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(would_fit_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  /* A pool is named only where it counts. */
  request.reserved = 0;
  request.pool = 1;
  CHECK_RESULT(allocate_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "pool");
  CHECK_EQ(failure.value, 1);
  CHECK_RESULT(allocate_one_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(would_fit_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);

  slicepool_layout_properties properties = SLICEPOOL_LAYOUT_PROPERTIES_INIT;
  uint32_t count = 99;
  properties.reserved = 1;
  CHECK_RESULT(slicepool_layout_adaptive(&properties, NULL, 0, &count), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_layout_sub_slices(&properties, NULL, 0, &count), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_layout_exclusive_pages(&properties, NULL, 0, &count), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(count, 99);

  slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  pool.reserved = 0x80000000;
  CHECK_RESULT(create_with_pool(&pool), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(creation_failure.field, "reserved");
  CHECK_EQ(creation_failure.value, 0x80000000);

  slicepool_host host = SLICEPOOL_HOST_INIT;
  host.reserved = 1;
  CHECK_RESULT(create_with_host(&host), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(creation_failure.field, "reserved");
  CHECK_RESULT(create_space_with_host(&host), SLICEPOOL_ERROR_INVALID_ARGUMENT);

  slicepool_device device = world.table;
  device.reserved = 1;
  CHECK_RESULT(create_with_device(&device), SLICEPOOL_ERROR_INVALID_ARGUMENT);

  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.failure = &creation_failure;
  config.reserved = 0x80000000;
  CHECK_RESULT(create_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(creation_failure.field, "reserved");
  CHECK_EQ(creation_failure.value, 0x80000000);
  end_world();
}

static void callbacks_that_belong_together_are_given_together_or_refused_by_name(void) {
  build_world();
  creation_failure = (slicepool_failure)SLICEPOOL_FAILURE_INIT;
  slicepool_device device = world.table;
  device.allocate = NULL;
  CHECK_RESULT(create_with_device(&device), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  device = world.table;
  device.deallocate = NULL;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.failure = &creation_failure;
  slicepool_allocator *allocator = NULL;
  CHECK_RESULT(slicepool_allocator_create(&device, &config, &allocator), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(creation_failure.field, "deallocate");

  static const struct {
    bool allocate, deallocate, lock, unlock;
    const char *missing;
  } cases[] = {
    { true, false, false, false, "deallocate" }, { false, true, false, false, "allocate" },
    { false, false, true, false, "unlock" },     { false, false, false, true, "lock" },
    { true, true, false, false, NULL },          { false, false, true, true, NULL },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int with_yield = 0; with_yield < 2; with_yield++) {
      slicepool_host host = SLICEPOOL_HOST_INIT;
      host.allocate = cases[i].allocate ? host_allocate : NULL;
      host.deallocate = cases[i].deallocate ? host_deallocate : NULL;
      host.lock = cases[i].lock ? host_lock : NULL;
      host.unlock = cases[i].unlock ? host_lock : NULL;
      host.wait = with_yield ? host_wait : NULL;
      slicepool_result expected = cases[i].missing == NULL ? SLICEPOOL_OK : SLICEPOOL_ERROR_INVALID_ARGUMENT;
      CHECK_RESULT(create_with_host(&host), expected);
      if (cases[i].missing != NULL) CHECK_TEXT(creation_failure.field, cases[i].missing);
    }
  }
  end_world();
}

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

static void a_persistent_granule_and_a_margin_that_cannot_be_are_refused_by_name(void) {
  build_world();
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.failure = &failure;
  config.persistent_granule = 48;
  CHECK_RESULT(create_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(failure.value, 48);
  CHECK_TEXT(failure.field, "persistent_granule");
  config.persistent_granule = 0;
  config.debug_margin = MIB + 1;
  CHECK_RESULT(create_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(failure.value, MIB + 1);
  CHECK_TEXT(failure.field, "debug_margin");
  end_world();
}

static void pools_that_cannot_be_installed_are_refused_and_the_old_ones_stay(void) {
  build_world();
  OK(slicepool_free(world.allocator, world.slice.id));
  OK(slicepool_cleanup(world.allocator, NULL));
  slicepool_pool_options pools[33];
  for (int i = 0; i < 33; i++) pools[i] = sliced(8192, 0, 0, 64);
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  static const uint32_t counts[] = { 0, 33, 256, 257, 65536, 0x80000000, 0xFFFFFFFF };
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    CHECK_RESULT(slicepool_install_pools(world.allocator, pools, counts[i], &failure),
                 SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "pool_count");
    CHECK_EQ(failure.value, counts[i]);
  }
  static const char *const fields[] = { "kind", "page_size", "granule", "near_page", "reserved", "struct_size" };
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    pools[1] = pools[0];
    if (i == 0) pools[1].kind = 4;
    if (i == 1) pools[1].page_size = 0;
    if (i == 2) pools[1].granule = 3;
    if (i == 3) pools[1].near_page = 3;
    if (i == 4) pools[1].reserved = 1;
    if (i == 5) pools[1].struct_size -= 8;
    CHECK_RESULT(slicepool_install_pools(world.allocator, pools, 2, &failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, fields[i]);
    CHECK_EQ(options_in(world.allocator, 0).page_size, 64 * KIB);
    CHECK_EQ(figures_of(world.allocator).pools, 1);
  }
  pools[1] = pools[0];
  OK(slicepool_install_pools(world.allocator, pools, 32, NULL));
  CHECK_EQ(figures_of(world.allocator).pools, 32);
  const slicepool_pool_options old = sliced(64 * KIB, 0, 64 * KIB, 256);
  OK(slicepool_install_pools(world.allocator, &old, 1, NULL));
  world.device.given = world.device.taken = 0;
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
    const slicepool_result results[] = {
      slicepool_free(world.allocator, id),
      slicepool_slice_get(world.allocator, id, &slice),
      slicepool_try_resize(world.allocator, id, 100, &slice, NULL),
      slicepool_free_many(world.allocator, &id, 1, NULL),
      slicepool_free_after(world.allocator, id, &point, 1, NULL),
      slicepool_free_after_many(world.allocator, &id, 1, &point, 1, NULL),
      slicepool_resolve(world.allocator, id, &slice, NULL),
    };
    for (int r = 0; r < 7; r++)
      CHECK(results[r] == SLICEPOOL_ERROR_STALE_HANDLE || results[r] == SLICEPOOL_ERROR_FOREIGN_HANDLE);
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
  TEST(null_is_an_error_and_not_a_crash),
  TEST(null_is_fine_where_the_header_says_so),
  TEST(every_unknown_flag_is_refused),
  TEST(kinds_and_rules_that_do_not_exist_are_refused_by_name),
  TEST(reserved_fields_must_be_zero),
  TEST(callbacks_that_belong_together_are_given_together_or_refused_by_name),
  TEST(points_that_cannot_be_are_refused_by_name),
  TEST(a_persistent_granule_and_a_margin_that_cannot_be_are_refused_by_name),
  TEST(pools_that_cannot_be_installed_are_refused_and_the_old_ones_stay),
  TEST(forged_handles_are_refused),
  TEST(a_list_of_handles_is_freed_whole_or_not_at_all),
};

TEST_MAIN(tests)
