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
  INVALID(slicepool_allocator_bytes_needed(&config, 1, 1, NULL));
  INVALID(slicepool_allocator_bytes_needed(NULL, 1, 1, NULL));
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
  OK(slicepool_allocator_bytes_needed(NULL, 0, 0, &bytes));
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
    if (flag == SLICEPOOL_REQUEST_IN_POOL) {
      OK(allocate_with(&request));
      OK(allocate_one_with(&request));
      OK(would_fit_with(&request));
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
    if (flag == SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED || flag == SLICEPOOL_ALLOCATOR_VALIDATE) {
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
  device = world.table;
  device.reserved_pointer = &device;
  CHECK_RESULT(create_with_device(&device), SLICEPOOL_ERROR_INVALID_ARGUMENT);

  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.failure = &creation_failure;
  config.reserved = &config;
  CHECK_RESULT(create_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(creation_failure.field, "reserved");
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

/* ---- extremes */

static const uint64_t extremes[] = {
  0, 1, 2, 3, 31, 32, 255, 256, 257, 4095, 4096, 65535, 65536, 65537,
  UINT64_C(0x7FFFFFFF), UINT64_C(0x80000000), UINT64_C(0xFFFFFFFF), UINT64_C(0x100000000), UINT64_C(0x100000001),
  (UINT64_C(1) << 40) - 1, UINT64_C(1) << 40, UINT64_C(1) << 62, TWO_63 - 1, TWO_63, TWO_63 + 1,
  UINT64_MAX - 65536, UINT64_MAX - 4096, UINT64_MAX - 4095, UINT64_MAX - 256, UINT64_MAX - 1, UINT64_MAX,
};

enum { EXTREMES = sizeof extremes / sizeof *extremes };

static bool is_one_of(slicepool_result result, slicepool_result a, slicepool_result b, slicepool_result c) {
  return result == SLICEPOOL_OK || result == a || result == b || result == c;
}

static void sizes_and_alignments_of_every_magnitude_are_served_or_refused(void) {
  build_world();
  for (int s = 0; s < EXTREMES; s++) {
    for (int a = 0; a < EXTREMES; a++) {
      const struct snapshot before = look();
      slicepool_request request = request_of(extremes[s]);
      request.alignment = extremes[a];
      slicepool_result result = allocate_with(&request);
      CHECK(is_one_of(result, SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_TOO_LARGE,
                      SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED));
      const bool valid = extremes[s] != 0 && (extremes[a] & (extremes[a] - 1)) == 0;
      if (!valid) CHECK_RESULT(result, SLICEPOOL_ERROR_INVALID_ARGUMENT);
      if (valid && extremes[s] > 64 * KIB) CHECK(result != SLICEPOOL_OK);
      if (result != SLICEPOOL_OK) check_nothing_changed(&before);
      slicepool_result look_result = would_fit_with(&request);
      if (result == SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED || result == SLICEPOOL_OK) OK(look_result);
      else CHECK_RESULT(look_result, result);

      slicepool_space_slice piece = SLICEPOOL_SPACE_SLICE_INIT;
      result = slicepool_space_allocate(world.space, extremes[s], extremes[a], &piece, NULL);
      CHECK(is_one_of(result, SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_TOO_LARGE,
                      SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED));
      if (result == SLICEPOOL_OK) OK(slicepool_space_free(world.space, piece.id));
      check_space_books(world.space);
    }
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    slicepool_result result = slicepool_try_resize(world.allocator, world.slice.id, extremes[s], &slice, NULL);
    CHECK(is_one_of(result, SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_TOO_LARGE, SLICEPOOL_ERROR_NO_ROOM));
    if (result == SLICEPOOL_OK) OK(slicepool_try_resize(world.allocator, world.slice.id, 5000, &slice, NULL));
    check_books(world.allocator, &world.device);

    const struct snapshot before = look();
    OK(slicepool_trim(world.allocator, extremes[s], NULL));
    check_nothing_changed(&before);
    IN_CHILD("grow", {
      slicepool_result grown = slicepool_space_grow(world.space, extremes[s]);
      CHECK(is_one_of(grown, SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY, SLICEPOOL_OK));
      if (grown == SLICEPOOL_OK) CHECK_EQ(space_figures_of(world.space).size, 1000 + extremes[s]);
      check_space_books(world.space);
    });
  }
  end_world();
}

/* Configurations of boundary values: created and used, or refused with the name of a field. */
static void configurations_of_every_magnitude_work_or_are_refused(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_device table = mock_table(&device);
  uint64_t state = 3, works = 0;
  for (uint64_t i = 0; i < rounds(60000); i++) {
#define ANY extremes[random_between(&state, 0, EXTREMES - 1)]
#define POWER (random_between(&state, 0, 3) == 0 ? ANY : UINT64_C(1) << random_between(&state, 0, 40))
    slicepool_pool_options pool = sliced(ANY, ANY, ANY, POWER);
    pool.near_page = (uint32_t)random_between(&state, 0, 2);
    switch (random_between(&state, 0, 3)) {
      case 0: pool = exclusive(ANY, POWER); break;
      case 1: pool = direct(ANY, POWER); break;
      case 2: pool.max_page_size = ANY; break;
      default: break;
    }
    pool.dealloc_period = random_between(&state, 0, 1) == 0 ? 0 : ANY;
    pool.keep_bytes = ANY;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
    config.flags = random_between(&state, 0, 3) == 0 ? SLICEPOOL_ALLOCATOR_VALIDATE : 0;
    config.max_page = random_between(&state, 0, 1) == 0 ? 0 : ANY;
    config.page_alignment = POWER;
    config.growth_wait_steps = (uint32_t)ANY;
    config.heap_size = ANY;
    config.pools = &pool;
    config.pool_count = (uint32_t)random_between(&state, 0, 9) != 0;
    config.failure = &failure;
    /* Its addresses do not wrap. */
    device.next_address = UINT64_C(1) << 41;
    slicepool_allocator *allocator = NULL;
    slicepool_result result = slicepool_allocator_create(&table, &config, &allocator);
    if (result != SLICEPOOL_OK) {
      CHECK_RESULT(result, SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK(failure.field != NULL && allocator == NULL);
      continue;
    }
    works++;
    for (int r = 0; r < 4; r++) {
      slicepool_slice slice = SLICEPOOL_SLICE_INIT;
      const uint64_t size = r == 0 ? 1 : ANY, alignment = r < 2 ? 0 : POWER;
      result = try_take(allocator, size, alignment, &slice, &failure);
      if (result == SLICEPOOL_OK) {
        CHECK(slice.size >= size && (alignment == 0 || slice.offset % alignment == 0));
        CHECK(slice.offset + slice.size >= slice.size);
        OK(slicepool_free(allocator, slice.id));
      } else {
        CHECK(is_one_of(result, SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_TOO_LARGE,
                        SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED));
      }
    }
    OK(slicepool_allocator_destroy(allocator, 0, NULL));
#undef ANY
#undef POWER
  }
  CHECK(works != 0);
  mock_end(&device);
}

/* ---- every field of what pools are made of, one after the other, with any value */

static const uint64_t far_out[] = {
  0, 1, 2, 3, 31, 255, 4095, UINT64_C(0x7FFFFFFF), UINT64_C(0x80000000), UINT64_C(0xFFFFFFFF), UINT64_C(0x100000000),
  UINT64_C(1) << 33, UINT64_C(1) << 62, TWO_63 - 1, TWO_63, TWO_63 + 1, UINT64_MAX - 255, UINT64_MAX - 1, UINT64_MAX,
};

enum { FAR_OUT = sizeof far_out / sizeof *far_out };

/* An allocator that came to be is used for a while and destroyed. */
static void use_and_destroy(slicepool_result result, slicepool_allocator *allocator,
                            const slicepool_failure *failure) {
  if (result != SLICEPOOL_OK) {
    CHECK_RESULT(result, SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK(allocator == NULL && failure->field != NULL);
    return;
  }
  for (int i = 0; i < 40; i++) {
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    result = try_take(allocator, i < 20 ? (uint64_t)i : far_out[i - 20 < FAR_OUT ? i - 20 : 0], 0, &slice, NULL);
    if (result == SLICEPOOL_OK) {
      OK(slicepool_free(allocator, slice.id));
    } else {
      CHECK(is_one_of(result, SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_TOO_LARGE,
                      SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED));
    }
  }
  options_in(allocator, 0);
  figures_of(allocator);
  uint64_t needed = 0;
  OK(slicepool_report_json(allocator, NULL, 0, &needed));
  OK(slicepool_trim(allocator, 1000, NULL));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
}

struct poked {
  slicepool_pool_options pool;
  slicepool_allocator_config config;
};

static void create_poked(const struct poked *poked, bool in_block) {
  static unsigned char block[262144];
  struct mock_device device;
  mock_init(&device);
  /* Its addresses do not wrap. */
  device.next_address = UINT64_C(1) << 41;
  device.capacity = TWO_63;
  const slicepool_device table = mock_table(&device);
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_allocator_config config = poked->config;
  config.failure = &failure;
  config.pools = &poked->pool;
  slicepool_allocator *allocator = NULL;
  uint64_t bytes = 0;
  const slicepool_result needed = slicepool_allocator_bytes_needed(&config, 10, 10, &bytes);
  slicepool_result result =
      in_block ? slicepool_allocator_create_in(&table, &config, block, sizeof block, &allocator)
               : slicepool_allocator_create(&table, &config, &allocator);
  CHECK_RESULT(needed, result);
  if (result == SLICEPOOL_OK) {
    /* A device that is out of memory at times. */
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    if (try_take(allocator, TWO_63, 0, &slice, NULL) == SLICEPOOL_OK) OK(slicepool_free(allocator, slice.id));
    OK(slicepool_cleanup(allocator, NULL));
    device.capacity = 0;
  }
  use_and_destroy(result, allocator, &failure);
  mock_end(&device);
}

static void every_field_of_pools_and_configs_may_have_any_value(void) {
  const slicepool_pool_options pools[4] = { sliced(4096, 1024, 65536, 64), exclusive(4096, 64), direct(4096, 64),
                                            growing(4096, 65536, 64) };
  for (int p = 0; p < 4; p++) {
    for (size_t at = 4; at < sizeof(struct poked); at += 4) {
      const size_t in_config = at - sizeof(slicepool_pool_options);
      /* Not the size of a struct, its pointers and the number of pools, of which there is one. */
      if (at >= sizeof(slicepool_pool_options) &&
          (in_config == 0 || in_config >= offsetof(slicepool_allocator_config, pools) ||
           in_config == offsetof(slicepool_allocator_config, pool_count)))
        continue;
      char what[80];
      snprintf(what, sizeof what, "pool %d, byte %d", p, (int)at);
      IN_CHILD(what, {
        for (int value = 0; value < FAR_OUT; value++) {
          for (size_t width = 4; width <= 8; width += 4) {
            if (width == 8 && (at % 8 != 0 || in_config == offsetof(slicepool_allocator_config, pool_count) - 4))
              continue;
            for (uint32_t flags = 0; flags <= SLICEPOOL_ALLOCATOR_VALIDATE; flags += SLICEPOOL_ALLOCATOR_VALIDATE) {
              struct poked poked = { pools[p], SLICEPOOL_ALLOCATOR_CONFIG_INIT };
              poked.config.pool_count = 1;
              poked.config.flags = flags;
              memcpy((unsigned char *)&poked + at, &far_out[value], width);
              create_poked(&poked, value % 2 == 0);
            }
          }
        }
      });
    }
  }
}

static void every_field_of_properties_may_have_any_value(void) {
  typedef slicepool_result (*layout)(const slicepool_layout_properties *, slicepool_pool_options *, uint32_t,
                                     uint32_t *);
  static const layout layouts[3] = { slicepool_layout_adaptive, slicepool_layout_sub_slices,
                                     slicepool_layout_exclusive_pages };
  for (int l = 0; l < 3; l++) {
    for (int p = 0; p < FAR_OUT; p++) {
      IN_CHILD("properties", {
        for (int a = 0; a < FAR_OUT; a++) {
          for (int h = 0; h < FAR_OUT; h++) {
            slicepool_layout_properties properties = SLICEPOOL_LAYOUT_PROPERTIES_INIT;
            properties.max_page = far_out[p];
            properties.alignment = far_out[a];
            properties.heap_size = far_out[h];
            slicepool_pool_options pools[32] = { SLICEPOOL_POOL_OPTIONS_INIT };
            uint32_t count = 0;
            slicepool_result result = layouts[l](&properties, pools, 32, &count);
            const uint64_t alignment = far_out[a] == 0 ? 256 : far_out[a];
            const bool fine = (alignment & (alignment - 1)) == 0 && alignment <= UINT64_C(1) << 32 &&
                              (far_out[p] == 0 || alignment <= far_out[p]);
            CHECK_RESULT(result, fine ? SLICEPOOL_OK : SLICEPOOL_ERROR_INVALID_ARGUMENT);
            if (!fine || h % 4 != 0) continue;
            struct mock_device device;
            mock_init(&device);
            device.next_address = UINT64_C(1) << 41;
            const slicepool_device table = mock_table(&device);
            slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
            slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
            config.flags = SLICEPOOL_ALLOCATOR_VALIDATE;
            config.max_page = far_out[p];
            config.pools = pools;
            config.pool_count = count;
            config.failure = &failure;
            slicepool_allocator *allocator = NULL;
            OK(slicepool_allocator_create(&table, &config, &allocator));
            use_and_destroy(SLICEPOOL_OK, allocator, &failure);
            mock_end(&device);
          }
        }
      });
    }
  }
}

static void numbers_of_slices_and_pages_may_have_any_value(void) {
  for (int p = 0; p < 4; p++) {
    IN_CHILD("bytes needed", {
      slicepool_pool_options pools[32];
      const slicepool_pool_options kinds[4] = { sliced(4096, 1024, 65536, 64), exclusive(TWO_63, 64),
                                                direct(4096, 64), growing(4096, TWO_63, UINT64_C(1) << 32) };
      for (int i = 0; i < 32; i++) pools[i] = kinds[p];
      for (uint32_t count = 0; count <= 32; count += 16) {
        slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
        config.pools = pools;
        config.pool_count = count;
        for (int s = 0; s < FAR_OUT; s++) {
          for (int g = 0; g < FAR_OUT; g++) {
            uint64_t bytes = 0;
            slicepool_result result = slicepool_allocator_bytes_needed(&config, (uint32_t)far_out[s],
                                                                       (uint32_t)far_out[g], &bytes);
            CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_TOO_MANY_SLICES);
            CHECK((bytes != 0) == (result == SLICEPOOL_OK));
          }
        }
      }
    });
  }
}

/* Pages whose sizes add up to more than 2^64 cannot all be real, but figures must not overflow over a device that
 * claims so. */
static void pages_that_add_up_to_more_than_64_bits_are_no_crash(void) {
  IN_CHILD("two pages of 2^63", {
    struct mock_device device;
    mock_init(&device);
    slicepool_allocator *allocator = create(&device, sliced(TWO_63, 0, 0, UINT64_C(1) << 32));
    slicepool_slice first = take(allocator, TWO_63);
    slicepool_slice second = SLICEPOOL_SLICE_INIT;
    slicepool_result result = try_take(allocator, TWO_63, 0, &second, NULL);
    CHECK(result != SLICEPOOL_OK);
    figures_of(allocator);
    OK(slicepool_free(allocator, first.id));
    OK(slicepool_allocator_destroy(allocator, 0, NULL));
  });
}

static void peaks_of_pools_that_add_up_to_more_than_64_bits_are_no_crash(void) {
  IN_CHILD("peaks of 2^63 in two pools", {
    struct mock_device device;
    mock_init(&device);
    slicepool_device table = mock_table(&device);
    slicepool_pool_options pools[2] = { sliced(TWO_63, TWO_63 - 1, 0, UINT64_C(1) << 32),
                                        sliced(TWO_63, 0, 0, UINT64_C(1) << 32) };
    pools[0].near_page = SLICEPOOL_NEAR_PAGE_NEVER;
    slicepool_allocator *allocator = create_over(&table, pools, 2, 0);
    OK(slicepool_free(allocator, take(allocator, TWO_63 - 1).id));
    OK(slicepool_cleanup(allocator, NULL));
    OK(slicepool_free(allocator, take(allocator, TWO_63).id));
    OK(slicepool_cleanup(allocator, NULL));
    CHECK_EQ(device.given, 2);
    figures_of(allocator);
    /* And so are pages of both, which are there at the same time. */
    const uint64_t ids[2] = { take(allocator, TWO_63 - 1).id, take(allocator, TWO_63).id };
    slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
    OK(slicepool_statistics_get(allocator, &figures));
    CHECK_EQ(figures.reserved_bytes, UINT64_MAX);
    uint64_t needed = 0;
    OK(slicepool_report_json(allocator, NULL, 0, &needed));
    OK(slicepool_free_many(allocator, ids, 2, NULL));
    OK(slicepool_trim(allocator, UINT64_MAX, NULL));
    OK(slicepool_trim(allocator, 1, NULL));
    CHECK_EQ(device.live, 1);
    OK(slicepool_allocator_destroy(allocator, 0, NULL));
  });
}

/* ---- handles */

static void forged_handles_are_refused(void) {
  build_world();
  slicepool_slice old = take(world.allocator, 100);
  OK(slicepool_free(world.allocator, old.id));
  const uint64_t live = world.slice.id;
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
    };
    for (int r = 0; r < 4; r++)
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
  TEST(sizes_and_alignments_of_every_magnitude_are_served_or_refused),
  TEST(configurations_of_every_magnitude_work_or_are_refused),
  TEST(every_field_of_pools_and_configs_may_have_any_value),
  TEST(every_field_of_properties_may_have_any_value),
  TEST(numbers_of_slices_and_pages_may_have_any_value),
  TEST(pages_that_add_up_to_more_than_64_bits_are_no_crash),
  TEST(peaks_of_pools_that_add_up_to_more_than_64_bits_are_no_crash),
  TEST(forged_handles_are_refused),
  TEST(a_list_of_handles_is_freed_whole_or_not_at_all),
};

TEST_MAIN(tests)
