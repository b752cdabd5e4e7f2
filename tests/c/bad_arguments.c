/* Arguments that callers may get wrong: every call answers an error and changes nothing. */
#include "check.h"
#include "world.h"

/* ---- flags, kinds, reserved fields */

static void every_unknown_flag_is_refused(void) {
  build_world();
  for (unsigned bit = 0; bit < 32; bit++) {
    const uint32_t flag = UINT32_C(1) << bit;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_request request = request_of(100);
    request.flags = flag;
    request.failure = &failure;
    const bool makes_pages = flag == SLICEPOOL_REQUEST_PERSISTENT || flag == SLICEPOOL_REQUEST_DEDICATED;
    if (flag <= SLICEPOOL_REQUEST_SEARCH_DEPTH && flag != SLICEPOOL_REQUEST_ZERO && flag != SLICEPOOL_REQUEST_SCRUB) {
      /* Not together with a pool's position, where they say which pages. */
      if (makes_pages) {
        request.flags |= SLICEPOOL_REQUEST_IN_POOL;
        REFUSED(allocate_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
        REFUSED(would_grow_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
        request.flags = flag;
      }
      IN_CHILD("a known flag", {
        OK(allocate_with(&request));
        OK(allocate_one_with(&request));
        OK(would_fit_with(&request));
        OK(would_grow_with(&request));
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
      REFUSED(would_grow_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
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
    if (flag <= SLICEPOOL_ALLOCATOR_SLICE_EVENTS) {
      OK(create_with_config(&config));
      OK(create_in_with_config(&config));
      OK(bytes_needed_with(&config));
    } else {
      CHECK_RESULT(create_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "flags");
      CHECK_EQ(failure.value, flag);
      CHECK_RESULT(create_in_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_RESULT(bytes_needed_with(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_RESULT(config_pools_with(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    }
    slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
    type.flags = flag;
    const bool is_of_types = (flag & (SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE | SLICEPOOL_MEMORY_TYPE_MAPPED_ANYWHERE)) != 0;
    CHECK_RESULT(create_with_type(&type), is_of_types ? SLICEPOOL_OK : SLICEPOOL_ERROR_INVALID_ARGUMENT);
    if (!is_of_types) {
      CHECK_TEXT(creation_failure.field, "flags");
      CHECK_EQ(creation_failure.value, flag);
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

static void every_unknown_flag_of_buffer_pools_is_refused(void) {
  build_world();
  for (unsigned bit = 0; bit < 32; bit++) {
    const uint32_t flag = UINT32_C(1) << bit;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_buffer_pool_config config = one_class(64, 4);
    config.flags = flag;
    config.failure = &failure;
    if (flag <= SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED) {
      OK(create_pool_with(&config));
      OK(create_pool_in_with(&config));
    } else {
      CHECK_RESULT(create_pool_with(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "flags");
      CHECK_EQ(failure.value, flag);
      CHECK_RESULT(create_pool_in_with(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      const slicepool_buffer_pool_config before = config;
      uint64_t size = 0;
      CHECK_RESULT(slicepool_buffer_pool_config_check(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_RESULT(slicepool_buffer_pool_config_min_size(&config, &size), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_RESULT(slicepool_buffer_pool_config_with_max_per_class(&config, 3), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK(memcmp(&before, &config, sizeof config) == 0);
    }

    slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
    slicepool_buffer_cache *const caches[2] = { NULL, world.cache };
    for (int i = 0; i < 2; i++) {
      if (flag <= SLICEPOOL_BUFFER_UNTRACKED) {
        OK(slicepool_buffer_acquire(world.buffers, caches[i], 10, flag, &buffer, NULL));
        OK(slicepool_buffer_release(world.buffers, caches[i], buffer.id));
        OK(slicepool_buffer_acquire_zeroed(world.buffers, caches[i], 10, flag, &buffer, NULL));
        OK(slicepool_buffer_release(world.buffers, caches[i], buffer.id));
      } else {
        REFUSED(slicepool_buffer_acquire(world.buffers, caches[i], 10, flag, &buffer, NULL),
                SLICEPOOL_ERROR_INVALID_ARGUMENT);
        REFUSED(slicepool_buffer_acquire_zeroed(world.buffers, caches[i], 10, flag, &buffer, NULL),
                SLICEPOOL_ERROR_INVALID_ARGUMENT);
        /* Also where there is nothing to do. */
        CHECK_RESULT(slicepool_buffer_acquire(world.buffers, caches[i], 0, flag, &buffer, &failure),
                     SLICEPOOL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT(failure.field, "flags");
        CHECK_EQ(failure.value, flag);
      }
    }
    if (flag != SLICEPOOL_DESTROY_FORCE) {
      failure.field = NULL;
      REFUSED(slicepool_buffer_pool_destroy(world.buffers, flag, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      REFUSED(slicepool_buffer_pool_destroy(world.buffers, flag | SLICEPOOL_DESTROY_FORCE, NULL),
              SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_RESULT(slicepool_buffer_pool_destroy(world.buffers, flag, &failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "flags");
    }
    if (flag != SLICEPOOL_ABANDON_FORKED) {
      REFUSED(slicepool_buffer_pool_abandon(world.buffers, flag), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      REFUSED(slicepool_buffer_pool_abandon(world.buffers, flag | SLICEPOOL_ABANDON_FORKED),
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
    wrong = pool;
    wrong.kinds = rules[i];
    CHECK_RESULT(create_with_pool(&wrong), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(creation_failure.field, "kinds");
    CHECK_EQ(creation_failure.value, rules[i]);
    wrong = pool;
    wrong.page_growth = rules[i] - 1;
    CHECK_RESULT(create_with_pool(&wrong), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(creation_failure.field, "page_growth");
    CHECK_EQ(creation_failure.value, rules[i] - 1);
  }
  /* What only some kinds of pools have. */
  slicepool_pool_options others[2] = { exclusive(4096, 64), direct(0, 64) };
  for (int i = 0; i < 2; i++) {
    slicepool_pool_options wrong = others[i];
    wrong.kinds = SLICEPOOL_KINDS_LINEAR;
    CHECK_RESULT(create_with_pool(&wrong), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(creation_failure.field, "kinds");
    wrong = others[i];
    wrong.min_pages = 1;
    CHECK_RESULT(create_with_pool(&wrong), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(creation_failure.field, "min_pages");
    wrong = others[i];
    wrong.page_growth = SLICEPOOL_PAGE_GROWTH_DOUBLING;
    CHECK_RESULT(create_with_pool(&wrong), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(creation_failure.field, "page_growth");
  }
  static const uint32_t counts[] = { 257, 258, 65536, 0x80000000, 0xFFFFFFFF };
  slicepool_pool_options *pools = before_the_wall(256 * sizeof *pools);
  for (int i = 0; i < 256; i++) pools[i] = pool;
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
  config.pools = pools;
  config.pool_count = 256;
  OK(create_with_config(&config));
  config.pools = NULL;
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
  /* A depth counts only where it is said to. */
  request.search_depth = 0x80000000;
  CHECK_RESULT(allocate_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "search_depth");
  CHECK_EQ(failure.value, 0x80000000);
  CHECK_RESULT(allocate_one_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(would_fit_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(would_grow_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  request.search_depth = 0;
  /* A page that is bound to something of the program's cannot be a pool's. */
  request.flags = SLICEPOOL_REQUEST_IN_POOL;
  request.device_data = &failure;
  CHECK_RESULT(allocate_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "pool");
  request.device_data = NULL;
  request.flags = 0;
  /* A pool is named only where it counts. */
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
  config.reserved = 0;
  config.reserved_pointer = &failure;
  CHECK_RESULT(create_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(creation_failure.field, "reserved_pointer");
  CHECK_EQ(creation_failure.value, (uintptr_t)&failure);

  slicepool_heap heap = SLICEPOOL_HEAP_INIT;
  heap.reserved = 0x80000000;
  CHECK_RESULT(create_with_heap(&heap), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(creation_failure.field, "reserved");
  CHECK_EQ(creation_failure.value, 0x80000000);

  slicepool_allocation_sizes sizes = SLICEPOOL_ALLOCATION_SIZES_INIT, used = SLICEPOOL_ALLOCATION_SIZES_INIT;
  sizes.reserved = 1;
  CHECK_RESULT(create_with_blocks(&sizes), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(creation_failure.field, "reserved");
  CHECK_RESULT(slicepool_allocation_sizes_adjust(&sizes, &used), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(used.min_device_memblock_size, 0);
  uint64_t bytes = 7;
  CHECK_RESULT(slicepool_memblock_size(&sizes, 0, 0, &bytes), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(bytes, 7);
  end_world();
}

static slicepool_result map_nothing(void *user_data, const slicepool_device_memory *memory, void **mapped) {
  (void)user_data;
  (void)memory;
  (void)mapped;
  return SLICEPOOL_ERROR_DEVICE_FAILED;
}

static void unmap_nothing(void *user_data, const slicepool_device_memory *memory) {
  (void)user_data;
  (void)memory;
}

static slicepool_result change_no_cache(void *user_data, const slicepool_cache_range *range) {
  (void)user_data;
  (void)range;
  return SLICEPOOL_OK;
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
  static const char *const pairs[] = { "unmap", "map", "invalidate", "flush" };
  for (int i = 0; i < 6; i++) {
    device = world.table;
    if (i == 0 || i == 4) device.map = map_nothing;
    if (i == 1 || i == 4) device.unmap = unmap_nothing;
    if (i == 2 || i == 5) device.flush = change_no_cache;
    if (i == 3 || i == 5) device.invalidate = change_no_cache;
    CHECK_RESULT(slicepool_allocator_create(&device, &config, &allocator),
                 i < 4 ? SLICEPOOL_ERROR_INVALID_ARGUMENT : SLICEPOOL_OK);
    if (i < 4) CHECK_TEXT(creation_failure.field, pairs[i]);
    else OK(slicepool_allocator_destroy(allocator, 0, NULL));
  }

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

/* ---- numbers that cannot be */

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
  static slicepool_pool_options pools[257];
  for (int i = 0; i < 257; i++) pools[i] = sliced(8192, 0, 0, 64);
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  static const uint32_t counts[] = { 0, 257, 258, 65536, 0x80000000, 0xFFFFFFFF };
  for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
    CHECK_RESULT(slicepool_install_pools(world.allocator, pools, counts[i], &failure),
                 SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "pool_count");
    CHECK_EQ(failure.value, counts[i]);
  }
  static const char *const fields[] = { "kind", "page_size", "granule", "near_page", "reserved", "struct_size",
                                       "page_growth", "kinds", "memory_type" };
  for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
    pools[1] = pools[0];
    if (i == 0) pools[1].kind = 4;
    if (i == 1) pools[1].page_size = 0;
    if (i == 2) pools[1].granule = 3;
    if (i == 3) pools[1].near_page = 3;
    if (i == 4) pools[1].reserved = 1;
    if (i == 5) pools[1].struct_size -= 8;
    if (i == 6) pools[1].page_growth = 2;
    if (i == 7) pools[1].kinds = 3;
    if (i == 8) pools[1].memory_type = 1;
    CHECK_RESULT(slicepool_install_pools(world.allocator, pools, 2, &failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, fields[i]);
    CHECK_EQ(options_in(world.allocator, 0).page_size, 64 * KIB);
    CHECK_EQ(figures_of(world.allocator).pools, 1);
  }
  pools[1] = pools[0];
  OK(slicepool_install_pools(world.allocator, pools, 256, NULL));
  CHECK_EQ(figures_of(world.allocator).pools, 256);
  const slicepool_pool_options old = sliced(64 * KIB, 0, 64 * KIB, 256);
  OK(slicepool_install_pools(world.allocator, &old, 1, NULL));
  world.device.given = world.device.taken = 0;
  world.slice = take(world.allocator, 5000);
  end_world();
}

static const struct test tests[] = {
  TEST(every_unknown_flag_is_refused),
  TEST(every_unknown_flag_of_buffer_pools_is_refused),
  TEST(kinds_and_rules_that_do_not_exist_are_refused_by_name),
  TEST(reserved_fields_must_be_zero),
  TEST(callbacks_that_belong_together_are_given_together_or_refused_by_name),
  TEST(a_persistent_granule_and_a_margin_that_cannot_be_are_refused_by_name),
  TEST(pools_that_cannot_be_installed_are_refused_and_the_old_ones_stay),
};

TEST_MAIN(tests)
