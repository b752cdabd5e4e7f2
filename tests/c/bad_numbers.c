/* Numbers of every magnitude in every field: served or refused, never a crash. */
#include "check.h"
#include "world.h"

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
      CHECK(result == SLICEPOOL_ERROR_BUDGET_EXCEEDED || result == SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED ||
            result == SLICEPOOL_ERROR_NOT_SUPPORTED ||
            is_one_of(result, SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_TOO_LARGE,
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
  /* More pages than there are. */
  const bool wants_many = poked->pool.kind == SLICEPOOL_POOL_SLICED_PAGES && poked->pool.min_pages > 16;
  if (wants_many) device.capacity = MIB;
  const slicepool_device table = mock_table(&device);
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_allocator_config config = poked->config;
  config.failure = &failure;
  config.pools = &poked->pool;
  slicepool_allocator *allocator = NULL;
  uint64_t bytes = 0;
  const slicepool_result needed = slicepool_allocator_bytes_needed(&config, 10, 10, 0, &bytes);
  slicepool_result result =
      in_block ? slicepool_allocator_create_in(&table, &config, block, sizeof block, &allocator)
               : slicepool_allocator_create(&table, &config, &allocator);
  if (wants_many && needed == SLICEPOOL_OK && result != SLICEPOOL_OK) {
    CHECK(allocator == NULL && (result == SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY ||
                                result == SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY ||
                                result == SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED));
    mock_end(&device);
    return;
  }
  /* A heap that is smaller than a page is looked at by those who make one. */
  if (config.heap_size == 0 || result == SLICEPOOL_OK) CHECK_RESULT(needed, result);
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

static void numbers_of_slices_pages_and_timelines_may_have_any_value(void) {
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
                                                                       (uint32_t)far_out[g], 0, &bytes);
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
    /* Pages of both are not held at the same time: no more than 64 bits count are. */
    const uint64_t id = take(allocator, TWO_63 - 1).id;
    CHECK_EQ(refused(allocator, TWO_63, 0, SLICEPOOL_ERROR_BUDGET_EXCEEDED).limit, UINT64_MAX);
    CHECK_EQ(figures_of(allocator).reserved_bytes, TWO_63);
    uint64_t needed = 0;
    OK(slicepool_report_json(allocator, NULL, 0, &needed));
    OK(slicepool_free(allocator, id));
    OK(slicepool_trim(allocator, UINT64_MAX, NULL));
    OK(slicepool_trim(allocator, 1, NULL));
    CHECK_EQ(device.live, 1);
    OK(slicepool_allocator_destroy(allocator, 0, NULL));
  });
}

/* ---- points, budgets and margins */

static void timelines_and_values_of_every_magnitude_are_waited_for(void) {
  build_world();
  for (int t = 0; t < EXTREMES; t++) {
    for (int v = 0; v < EXTREMES; v++) {
      const slicepool_point point = { (uint32_t)extremes[t], 0, extremes[v] };
      const slicepool_slice slice = take(world.allocator, 100);
      OK(slicepool_free_after(world.allocator, slice.id, &point, 1, NULL));
      /* The value before it is not enough, and 0 is passed from the start. */
      if (extremes[v] != 0) OK(slicepool_collect(world.allocator, point.timeline, extremes[v] - 1, NULL));
      CHECK_EQ(figures_of(world.allocator).slices_pending, extremes[v] != 0);
      check_books(world.allocator, &world.device);
      OK(slicepool_collect(world.allocator, point.timeline, extremes[v], NULL));
      CHECK_EQ(figures_of(world.allocator).slices_pending, 0);
      OK(slicepool_timeline_forget(world.allocator, point.timeline));
    }
  }
  end_world();
}

static void limits_of_every_magnitude_hold(void) {
  struct mock_device device;
  mock_init(&device);
  for (int b = 0; b < EXTREMES; b++) {
    for (int p = 0; p < EXTREMES; p++) {
      slicepool_budget_config shared = SLICEPOOL_BUDGET_CONFIG_INIT;
      shared.max_bytes = extremes[p];
      shared.max_pages = (uint32_t)extremes[b];
      slicepool_budget *budget = NULL;
      OK(slicepool_budget_create(&shared, &budget));
      const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
      const slicepool_device table = mock_table(&device);
      slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
      config.pools = &pool;
      config.pool_count = 1;
      config.max_bytes = extremes[b];
      config.max_pages = (uint32_t)extremes[p];
      config.budget = budget;
      slicepool_allocator *allocator = NULL;
      OK(slicepool_allocator_create(&table, &config, &allocator));
      OK(slicepool_budget_release(budget));
      uint64_t ids[3] = { 0 };
      for (uint64_t i = 0; i < 3; i++) {
        slicepool_slice slice = SLICEPOOL_SLICE_INIT;
        const slicepool_result result = try_take(allocator, 4096, 0, &slice, NULL);
        const uint64_t bytes[2] = { config.max_bytes, shared.max_bytes };
        const uint32_t pages[2] = { config.max_pages, shared.max_pages };
        bool in_bytes = true, in_pages = true;
        for (int limit = 0; limit < 2; limit++) {
          in_bytes = in_bytes && (bytes[limit] == 0 || bytes[limit] >= (i + 1) * 4096);
          in_pages = in_pages && (pages[limit] == 0 || pages[limit] > i);
        }
        if (in_bytes && in_pages) OK(result);
        else CHECK(result == (in_pages ? SLICEPOOL_ERROR_BUDGET_EXCEEDED : SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED) ||
                   (!in_bytes && result == SLICEPOOL_ERROR_BUDGET_EXCEEDED));
        ids[i] = slice.id;
      }
      OK(slicepool_free_many(allocator, ids, 3, NULL));
      OK(slicepool_allocator_destroy(allocator, 0, NULL));
    }
  }
  mock_end(&device);
}

static void margins_and_persistent_granules_of_every_magnitude_work_or_are_refused(void) {
  build_world();
  for (int e = 0; e < EXTREMES; e++) {
    const bool is_power = (extremes[e] & (extremes[e] - 1)) == 0;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
    config.failure = &failure;
    config.debug_margin = extremes[e];
    const bool margin_fits = extremes[e] <= MIB;
    CHECK_RESULT(create_with_config(&config), margin_fits ? SLICEPOOL_OK : SLICEPOOL_ERROR_INVALID_ARGUMENT);
    config.debug_margin = 0;
    config.persistent_granule = extremes[e];
    const bool granule_fits = is_power && extremes[e] <= UINT64_C(1) << 32;
    CHECK_RESULT(create_with_config(&config), granule_fits ? SLICEPOOL_OK : SLICEPOOL_ERROR_INVALID_ARGUMENT);
    if (!granule_fits) continue;
    slicepool_allocator *allocator = NULL;
    struct mock_device device;
    mock_init(&device);
    const slicepool_device table = mock_table(&device);
    OK(slicepool_allocator_create(&table, &config, &allocator));
    for (int s = 0; s < EXTREMES; s++) {
      slicepool_request request = request_of(extremes[s]);
      request.flags = SLICEPOOL_REQUEST_PERSISTENT;
      slicepool_slice slice = SLICEPOOL_SLICE_INIT;
      /* Its addresses do not wrap. */
      device.next_address = UINT64_C(1) << 41;
      const slicepool_result result = slicepool_allocate(allocator, &request, &slice);
      CHECK(is_one_of(result, SLICEPOOL_ERROR_INVALID_ARGUMENT, SLICEPOOL_ERROR_TOO_LARGE,
                      SLICEPOOL_ERROR_BUDGET_EXCEEDED));
      if (extremes[s] == 0) CHECK_RESULT(result, SLICEPOOL_ERROR_INVALID_ARGUMENT);
      if (result == SLICEPOOL_OK) CHECK(slice.size >= extremes[s]);
      OK(slicepool_free(allocator, slice.id));
      OK(slicepool_cleanup(allocator, NULL));
    }
    OK(slicepool_allocator_destroy(allocator, 0, NULL));
    mock_end(&device);
  }
  end_world();
}

/* ---- buffer pools */

/* A pool that came to be is used for a while and destroyed. */
static void use_buffers_and_destroy(slicepool_buffer_pool *pool) {
  slicepool_buffer_cache *cache = create_cache(pool);
  for (int i = 0; i < 2 * FAR_OUT; i++) {
    slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
    const uint64_t size = i % FAR_OUT == 0 ? 100 : far_out[i % FAR_OUT];
    const uint32_t flags = i < FAR_OUT ? 0 : SLICEPOOL_BUFFER_UNTRACKED;
    const slicepool_result result = slicepool_buffer_acquire(pool, cache, size, flags, &buffer, NULL);
    if (result == SLICEPOOL_OK) {
      CHECK(buffer.size >= size && buffer.offset + buffer.size >= buffer.size);
      OK(slicepool_buffer_release(pool, i % 2 == 0 ? cache : NULL, buffer.id));
    } else {
      CHECK(result == SLICEPOOL_ERROR_OVERSIZED || result == SLICEPOOL_ERROR_BUDGET_EXCEEDED ||
            result == SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED || result == SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY ||
            result == SLICEPOOL_ERROR_TOO_LARGE || result == SLICEPOOL_ERROR_INVALID_ARGUMENT);
      if (result == SLICEPOOL_ERROR_INVALID_ARGUMENT) CHECK(flags != 0);
    }
  }
  check_buffer_books(pool);
  OK(slicepool_buffer_cache_destroy(cache));
  end_buffers(pool);
}

static void every_field_of_configs_of_buffer_pools_may_have_any_value(void) {
  static unsigned char block[1 << 20];
  for (size_t at = 4; at < offsetof(slicepool_buffer_pool_config, memory); at += 4) {
    char what[80];
    snprintf(what, sizeof what, "buffer pool, byte %d", (int)at);
    IN_CHILD(what, {
      for (int value = 0; value < FAR_OUT; value++) {
        for (size_t width = 4; width <= 8; width += 4) {
          if (width == 8 && (at % 8 != 0 || at >= offsetof(slicepool_buffer_pool_config, limits))) continue;
          struct mock_device device;
          mock_init(&device);
          device.next_address = UINT64_C(1) << 41;
          device.capacity = GIB;
          const slicepool_device table = mock_table(&device);
          slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
          slicepool_buffer_pool_config config = with_class(one_class(64, 5), 4096, 3);
          config.failure = &failure;
          memcpy((unsigned char *)&config + at, &far_out[value], width);
          slicepool_buffer_pool *pool = NULL;
          const slicepool_result result =
              value % 2 == 0 ? slicepool_buffer_pool_create_in(&table, &config, block, sizeof block, &pool)
                             : slicepool_buffer_pool_create(&table, &config, &pool);
          CHECK((pool != NULL) == (result == SLICEPOOL_OK));
          /* Many stripes fill a block. */
          if (result == SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY) CHECK(value % 2 == 0);
          else if (result != SLICEPOOL_OK) CHECK(failure.field != NULL);
          if (result == SLICEPOOL_OK) use_buffers_and_destroy(pool);
          mock_end(&device);
        }
      }
    });
  }
}

static void numbers_of_every_magnitude_change_a_config_of_buffer_pools_or_are_refused_by_name(void) {
  for (int a = 0; a < EXTREMES; a++) {
    for (int b = 0; b < EXTREMES; b++) {
      const uint64_t x = extremes[a], y = extremes[b];
      const uint32_t n = (uint32_t)y;
      for (int f = 0; f < 11; f++) {
        slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
        slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
        config.failure = &failure;
        const slicepool_buffer_pool_config before = config;
        slicepool_result result = SLICEPOOL_OK;
        switch (f) {
          case 0: result = slicepool_buffer_pool_config_for_storage_with_page_size(&config, x); break;
          case 1: result = slicepool_buffer_pool_config_with_size_class_range(&config, x, y, 5); break;
          case 2: result = slicepool_buffer_pool_config_with_size_class(&config, x, n); break;
          case 3: result = slicepool_buffer_pool_config_without_size_class(&config, x); break;
          case 4: result = slicepool_buffer_pool_config_with_max_per_class(&config, n); break;
          case 5: result = slicepool_buffer_pool_config_with_bytes_per_class(&config, x); break;
          case 6: result = slicepool_buffer_pool_config_with_budget_bytes(&config, x); break;
          case 7: result = slicepool_buffer_pool_config_with_parallelism(&config, x); break;
          case 8: result = slicepool_buffer_pool_config_with_max_thread_cache_capacity(&config, x); break;
          case 9: result = slicepool_buffer_pool_config_with_alignment(&config, x); break;
          default: result = slicepool_buffer_pool_config_with_prefill(&config, n); break;
        }
        if (result != SLICEPOOL_OK) {
          CHECK_RESULT(result, SLICEPOOL_ERROR_INVALID_ARGUMENT);
          CHECK(failure.field != NULL && memcmp(&before, &config, sizeof config) == 0);
          continue;
        }
        uint64_t bytes = 0;
        uint32_t number = 0;
        OK(slicepool_buffer_pool_config_max_tracked_bytes(&config, &bytes));
        CHECK(bytes != 0);
        if (n != 0) {
          OK(slicepool_buffer_pool_config_cache_capacity(&config, n, &number));
          CHECK_LE(number, n);
          OK(slicepool_buffer_pool_config_stripes(&config, n, &number));
          CHECK(number != 0 && number <= n && (number & (number - 1)) == 0);
        }
      }
    }
  }
}

static const struct test tests[] = {
  TEST(sizes_and_alignments_of_every_magnitude_are_served_or_refused),
  TEST(configurations_of_every_magnitude_work_or_are_refused),
  TEST(every_field_of_pools_and_configs_may_have_any_value),
  TEST(every_field_of_properties_may_have_any_value),
  TEST(numbers_of_slices_pages_and_timelines_may_have_any_value),
  TEST(pages_that_add_up_to_more_than_64_bits_are_no_crash),
  TEST(peaks_of_pools_that_add_up_to_more_than_64_bits_are_no_crash),
  TEST(timelines_and_values_of_every_magnitude_are_waited_for),
  TEST(limits_of_every_magnitude_hold),
  TEST(margins_and_persistent_granules_of_every_magnitude_work_or_are_refused),
  TEST(every_field_of_configs_of_buffer_pools_may_have_any_value),
  TEST(numbers_of_every_magnitude_change_a_config_of_buffer_pools_or_are_refused_by_name),
};

TEST_MAIN(tests)
