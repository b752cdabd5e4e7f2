/* What requests may ask for besides memory: not to grow, to search so deep, to keep kinds of resources apart. */
#include "check.h"
#include "shorthand.h"

static slicepool_result try_flagged_aligned(slicepool_allocator *allocator, uint64_t size, uint64_t alignment,
                                            uint32_t flags, uint32_t depth, slicepool_slice *slice) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = size;
  request.alignment = alignment;
  request.flags = flags;
  request.search_depth = depth;
  return slicepool_allocate(allocator, &request, slice);
}

static bool would_grow_for(slicepool_allocator *allocator, uint64_t size, uint32_t flags) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = size;
  request.flags = flags;
  uint32_t grows = 7, fits = 7;
  OK(slicepool_would_grow(allocator, &request, &grows));
  OK(slicepool_would_fit(allocator, &request, &fits));
  CHECK(grows <= 1 && fits == 1 - grows);
  return grows == 1;
}

/* ---- without growing */

static bool quiet;

static void nobody_calls(struct mock_device *device) {
  (void)device;
  CHECK(!quiet);
}

static slicepool_result nobody_asks(struct mock_device *device, uint32_t timeline, uint64_t *completed) {
  (void)timeline;
  (void)completed;
  nobody_calls(device);
  return SLICEPOOL_ERROR_NOT_SUPPORTED;
}

static int32_t nobody_pleads(struct mock_device *device, const slicepool_shortage *shortage) {
  (void)shortage;
  nobody_calls(device);
  return SLICEPOOL_SHORTAGE_RETRY;
}

static slicepool_result nobody_looks(struct mock_device *device, uint32_t heap, slicepool_heap_budget *budget) {
  (void)heap;
  (void)budget;
  nobody_calls(device);
  return SLICEPOOL_ERROR_NOT_SUPPORTED;
}

static void a_request_that_must_not_grow_is_served_from_what_is_held_or_refused_without_the_device(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    mock_init(&device);
    device.in_allocate = device.in_deallocate = nobody_calls;
    device.on_completed = nobody_asks;
    device.on_shortage = nobody_pleads;
    device.on_budget = nobody_looks;
    slicepool_allocator *allocator = create(&device, ageing(kind_of(k).pool, 10));
    uint64_t state = 8, ids[40] = { 0 };
    quiet = false;
    /* Something to age, something that waits, and something that is held and free. */
    for (int i = 0; i < 20; i++) ids[i] = take(allocator, random_between(&state, 100, 20000)).id;
    free_at(allocator, ids[0], 1, 1);
    for (int i = 1; i < 10; i++) OK(slicepool_free(allocator, ids[i]));
    quiet = true;
    uint64_t served = 0, refusals = 0;
    for (int i = 20; i < 40; i++) {
      for (int many = 0; many < 50; many++) {
        const uint64_t size = random_between(&state, 1, 64 * KIB);
        const bool fits = !would_grow_for(allocator, size, SLICEPOOL_REQUEST_NEVER_GROW);
        const uint64_t calls = mock_calls(&device);
        slicepool_slice slice = SLICEPOOL_SLICE_INIT;
        slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
        const slicepool_result result =
            try_take_flagged(allocator, size, SLICEPOOL_REQUEST_NEVER_GROW, &slice, &failure);
        CHECK_EQ(mock_calls(&device), calls);
        if (fits) OK(result);
        if (result == SLICEPOOL_OK) served++;
        else refusals++;
        /* A page that is too large by far serves only because the device is not asked for another. */
        if (result != SLICEPOOL_OK) CHECK_RESULT(result, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
        else if (!has_whole_pages(kind_of(k).pool)) CHECK(fits);
        if (result == SLICEPOOL_OK && many == 0) ids[i] = slice.id;
        else OK(slicepool_free(allocator, slice.id));
      }
    }
    CHECK(served != 0 && refusals != 0);
    /* Nothing has aged: only other requests do that. */
    CHECK_EQ(device.deallocate_calls, 0);
    quiet = false;
    collect(allocator, 1, 1);
    for (int i = 10; i < 40; i++) OK(slicepool_free(allocator, ids[i]));
    finish(allocator, &device);
  }
}

static void slices_with_pages_of_their_own_may_be_asked_not_to_grow_too(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  static const uint32_t flags[] = { SLICEPOOL_REQUEST_DEDICATED, SLICEPOOL_REQUEST_PERSISTENT };
  for (int i = 0; i < 2; i++) {
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    CHECK(would_grow_for(allocator, 9000, flags[i]));
    CHECK_RESULT(try_take_flagged(allocator, 9000, flags[i] | SLICEPOOL_REQUEST_NEVER_GROW, &slice, NULL),
                 SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
    CHECK_EQ(device.allocate_calls, (uint64_t)i);
    OK(slicepool_free(allocator, take_flagged(allocator, 9000, flags[i]).id));
    CHECK(!would_grow_for(allocator, 9000, flags[i]));
    CHECK(would_grow_for(allocator, 9300, flags[i]));
    slice = take_flagged(allocator, 9000, flags[i] | SLICEPOOL_REQUEST_NEVER_GROW);
    CHECK_EQ(device.allocate_calls, (uint64_t)i + 1);
    OK(slicepool_free(allocator, slice.id));
  }
  finish(allocator, &device);
}

/* A request would grow if and only if it then takes a page. */
static void whether_a_request_would_grow_is_what_it_then_does(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_one(&device, kind_of(k).pool);
    uint64_t ids[32] = { 0 }, state = (uint64_t)k, grown = 0, served = 0;
    for (uint64_t step = 0; step < 200 + rounds(4000); step++) {
      const uint64_t place = random_between(&state, 0, 31), size = random_between(&state, 1, 20000);
      OK(slicepool_free(allocator, ids[place]));
      ids[place] = 0;
      const bool grows = would_grow_for(allocator, size, 0);
      const uint64_t calls = device.allocate_calls;
      slicepool_slice slice = SLICEPOOL_SLICE_INIT;
      if (try_take(allocator, size, 0, &slice, NULL) == SLICEPOOL_OK) ids[place] = slice.id;
      else CHECK(grows);
      if (!grows) {
        /* Whole pages may be too wasteful to serve where the device gives another. */
        CHECK(ids[place] != 0);
        if (!has_whole_pages(kind_of(k).pool)) CHECK_EQ(device.allocate_calls, calls);
        served++;
      } else if (ids[place] != 0) {
        CHECK(device.allocate_calls > calls);
        grown++;
      }
    }
    CHECK(grown != 0 && served != 0);
    OK(slicepool_free_many(allocator, ids, 32, NULL));
    finish(allocator, &device);
  }
}

/* ---- search */

enum { HOLES = 10 };

/* Holes of 4 KiB, of which only the last in the list of its size is aligned to 8 KiB; and behind them the rest of the page.
 * Where a request of that size and alignment comes to lie. */
static uint64_t place_among_holes(uint32_t flags, uint32_t depth, uint64_t *aligned_hole, uint64_t *behind) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_device table = mock_table(&device);
  const slicepool_pool_options pool = sliced(MIB, 0, 0, 64);
  slicepool_allocator *allocator = create_over(&table, &pool, 1, 8192);
  slicepool_slice slices[4 * HOLES];
  for (int i = 0; i < 4 * HOLES; i++) slices[i] = take(allocator, 4096);
  *aligned_hole = slices[4 * HOLES - 2].offset;
  *behind = slices[4 * HOLES - 1].offset + 4096;
  CHECK(*aligned_hole % 8192 == 0 && *behind % 8192 == 0);
  for (int i = 1; i < HOLES; i++) {
    const slicepool_slice *odd = &slices[2 * i + 5];
    CHECK_EQ(odd->offset % 8192, 4096);
    OK(slicepool_free(allocator, odd->id));
  }
  OK(slicepool_free(allocator, slices[4 * HOLES - 2].id));
  CHECK_EQ(figures_of(allocator).free_ranges, HOLES + 1);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  OK(try_flagged_aligned(allocator, 4096, 8192, flags, depth, &slice));
  const uint64_t offset = slice.offset;
  CHECK_EQ(device.given, 1);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);
  return offset;
}

static void a_request_looks_at_so_many_holes_of_its_own_size_as_it_says(void) {
  uint64_t hole = 0, behind = 0;
  for (uint32_t depth = 0; depth <= HOLES + 2; depth++)
    CHECK_EQ(place_among_holes(SLICEPOOL_REQUEST_SEARCH_DEPTH, depth, &hole, &behind), depth < HOLES ? behind : hole);
  CHECK_EQ(place_among_holes(SLICEPOOL_REQUEST_SEARCH_DEPTH, UINT32_MAX, &hole, &behind), hole);
  /* Two, if it says nothing. */
  CHECK_EQ(place_among_holes(0, 0, &hole, &behind), behind);
}

/* And no look before a refusal goes deeper. */
static void a_depth_holds_up_to_the_refusal(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_device table = mock_table(&device);
  const slicepool_pool_options pool = sliced(64 * KIB, 0, 64 * KIB, 64);
  slicepool_allocator *allocator = create_over(&table, &pool, 1, 8192);
  slicepool_slice slices[16], slice = SLICEPOOL_SLICE_INIT;
  for (int i = 0; i < 16; i++) slices[i] = take(allocator, 4096);
  for (int i = 1; i < 8; i += 2) OK(slicepool_free(allocator, slices[i].id));
  OK(slicepool_free(allocator, slices[12].id));
  for (uint32_t depth = 0; depth < 5; depth++) {
    CHECK_RESULT(try_flagged_aligned(allocator, 4096, 8192, SLICEPOOL_REQUEST_SEARCH_DEPTH, depth, &slice),
                 SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  }
  OK(try_flagged_aligned(allocator, 4096, 8192, SLICEPOOL_REQUEST_SEARCH_DEPTH, 5, &slice));
  CHECK_EQ(slice.offset, slices[12].offset);
  OK(slicepool_free(allocator, slice.id));
  /* Others look at all. */
  OK(try_flagged_aligned(allocator, 4096, 8192, 0, 0, &slice));
  CHECK_EQ(slice.offset, slices[12].offset);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);
}

/* ---- kinds of resources */

static uint64_t moves;

static void count_moves(struct mock_device *device, const slicepool_event *event) {
  (void)device;
  moves += event->kind == SLICEPOOL_EVENT_PAGE_MOVED;
}

/* Who is in every range of a page that the device counts as one: below 0 optimal resources, above linear ones. */
struct map {
  int16_t *ranges;
  uint64_t count;
};

static struct map maps[4096];

static void mark(const struct mock_device *device, const slicepool_slice *slice, uint64_t granularity, int16_t by,
                 bool placed) {
  const uint64_t page = slice->memory - MOCK_FIRST_HANDLE;
  CHECK(page < 4096);
  struct map *map = &maps[page];
  if (map->ranges == NULL) {
    map->count = device->pages[page].size / granularity + 1;
    map->ranges = calloc(map->count, sizeof *map->ranges);
    CHECK(map->ranges != NULL);
  }
  /* The device counts from address 0. */
  const uint64_t start = device->pages[page].address % granularity + slice->offset;
  for (uint64_t at = start / granularity; at <= (start + slice->size - 1) / granularity; at++) {
    CHECK(at < map->count);
    if (placed) CHECK(map->ranges[at] == 0 || (map->ranges[at] > 0) == (by > 0));
    map->ranges[at] = (int16_t)(map->ranges[at] + by);
  }
}

static void linear_and_optimal_resources_share_no_range_of_the_granularity(void) {
  static const uint64_t granularities[] = { 1, 64, 1024, 4096 };
  uint64_t moved = 0;
  for (int g = 0; g < 4; g++) {
    /* Adaptive pools, blocks, one pool for both kinds, pools for each. */
    for (int list = 0; list < 4; list++) {
      struct mock_device device;
      mock_init(&device);
      device.on_event = count_moves;
      moves = 0;
      slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
      type.granularity = granularities[g];
      slicepool_pool_options pools[2] = { sliced(64 * KIB, 0, 0, 64), sliced(64 * KIB, 0, 0, 64) };
      if (list == 3) {
        pools[0].kinds = SLICEPOOL_KINDS_OPTIMAL;
        pools[1].kinds = SLICEPOOL_KINDS_LINEAR;
      }
      slicepool_allocation_sizes sizes = SLICEPOOL_ALLOCATION_SIZES_INIT;
      sizes.min_device_memblock_size = 4 * MIB;
      slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
      config.memory_types = &type;
      config.memory_type_count = 1;
      if (list == 1) config.blocks = &sizes;
      if (list >= 2) {
        config.pools = pools;
        config.pool_count = list == 2 ? 1 : 2;
      }
      const slicepool_device table = mock_table(&device);
      slicepool_allocator *allocator = create_of(&table, config);
      enum { LIVE = 256 };
      slicepool_slice live[LIVE];
      int16_t kinds[LIVE] = { 0 };
      uint64_t state = (uint64_t)(g * 4 + list);
      for (uint64_t step = 0; step < rounds(60000); step++) {
        const uint64_t place = random_between(&state, 0, LIVE - 1);
        /* From time to time everything of one kind goes, so that pages change sides. */
        const uint64_t wave = step / 2000 % 3;
        if (kinds[place] != 0) {
          mark(&device, &live[place], granularities[g], (int16_t)-kinds[place], false);
          OK(slicepool_free(allocator, live[place].id));
          kinds[place] = 0;
        }
        const bool optimal = wave == 2 ? true : wave == 1 ? false : random_between(&state, 0, 1) == 1;
        live[place] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
        OK(try_flagged_aligned(allocator, random_between(&state, 1, 5000), UINT64_C(1) << random_between(&state, 0, 9),
                               optimal ? SLICEPOOL_REQUEST_OPTIMAL : 0, 0, &live[place]));
        kinds[place] = optimal ? -1 : 1;
        mark(&device, &live[place], granularities[g], kinds[place], true);
      }
      check_books(allocator, &device);
      moved += moves;
      for (int i = 0; i < LIVE; i++)
        if (kinds[i] != 0) OK(slicepool_free(allocator, live[i].id));
      for (int i = 0; i < 4096; i++) free(maps[i].ranges);
      memset(maps, 0, sizeof maps);
      finish(allocator, &device);
    }
  }
  CHECK(is_slow() || divide_by > 1 || moved != 0);
}

static void a_hole_beside_one_kind_of_resources_takes_the_other_beyond_the_range_they_would_share(void) {
  for (int first = 0; first < 2; first++) {
    const uint32_t one = first == 0 ? 0 : SLICEPOOL_REQUEST_OPTIMAL, other = SLICEPOOL_REQUEST_OPTIMAL - one;
    struct mock_device device;
    mock_init(&device);
    slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
    type.granularity = 1024;
    const slicepool_pool_options pool = sliced(64 * KIB, 0, 0, 64);
    slicepool_allocator_config config = config_for(&pool, 1);
    config.memory_types = &type;
    config.memory_type_count = 1;
    const slicepool_device table = mock_table(&device);
    slicepool_allocator *allocator = create_of(&table, config);
    const slicepool_slice left = take_flagged(allocator, 100, one), hole = take_flagged(allocator, 100, one);
    const slicepool_slice right = take_flagged(allocator, 100, one);
    OK(slicepool_free(allocator, hole.id));
    const slicepool_slice slice = take_flagged(allocator, 100, other), last = take_flagged(allocator, 100, other);
    const uint64_t ends[2] = { slice.offset + slice.size - 1, last.offset + last.size - 1 };
    CHECK(slice.memory == left.memory && last.memory == left.memory);
    for (int i = 0; i < 2; i++) {
      const slicepool_slice *beside = i == 0 ? &left : &right;
      CHECK(beside->offset / 1024 != slice.offset / 1024 && beside->offset / 1024 != ends[0] / 1024);
      CHECK(beside->offset / 1024 != last.offset / 1024 && beside->offset / 1024 != ends[1] / 1024);
    }
    const uint64_t ids[4] = { left.id, right.id, slice.id, last.id };
    OK(slicepool_free_many(allocator, ids, 4, NULL));
    finish(allocator, &device);
  }
}

static void a_page_that_holds_nothing_may_change_its_kind(void) {
  struct mock_device device;
  mock_init(&device);
  device.on_event = count_moves;
  moves = 0;
  slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
  type.granularity = 4096;
  slicepool_pool_options pools[2] = { sliced(64 * KIB, 0, 0, 64), sliced(64 * KIB, 0, 0, 64) };
  pools[0].kinds = SLICEPOOL_KINDS_LINEAR;
  pools[1].kinds = SLICEPOOL_KINDS_OPTIMAL;
  slicepool_allocator_config config = config_for(pools, 2);
  config.memory_types = &type;
  config.memory_type_count = 1;
  config.max_pages = 1;
  const slicepool_device table = mock_table(&device);
  slicepool_allocator *allocator = create_of(&table, config);
  for (int i = 0; i < 4; i++) {
    const slicepool_slice slice = take_flagged(allocator, 100, i % 2 == 0 ? 0 : SLICEPOOL_REQUEST_OPTIMAL);
    CHECK_EQ(find_in(allocator, slice.memory, slice.offset).pool, (uint64_t)(i % 2));
    CHECK_EQ(device.given, 1);
    CHECK_EQ(moves, (uint64_t)i);
    slicepool_slice other = SLICEPOOL_SLICE_INIT;
    CHECK_RESULT(try_take_flagged(allocator, 100, i % 2 == 0 ? SLICEPOOL_REQUEST_OPTIMAL : 0, &other, NULL),
                 SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
    check_books(allocator, NULL);
    OK(slicepool_free(allocator, slice.id));
  }
  /* A pool that is named takes its own kind only. */
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.size = 100;
  request.flags = SLICEPOOL_REQUEST_IN_POOL | SLICEPOOL_REQUEST_OPTIMAL;
  CHECK_RESULT(slicepool_allocate(allocator, &request, &slice), SLICEPOOL_ERROR_NOT_SUPPORTED);
  request.pool = 1;
  OK(slicepool_allocate(allocator, &request, &slice));
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(a_request_that_must_not_grow_is_served_from_what_is_held_or_refused_without_the_device),
  TEST(slices_with_pages_of_their_own_may_be_asked_not_to_grow_too),
  TEST(whether_a_request_would_grow_is_what_it_then_does),
  TEST(a_request_looks_at_so_many_holes_of_its_own_size_as_it_says),
  TEST(a_depth_holds_up_to_the_refusal),
  TEST(linear_and_optimal_resources_share_no_range_of_the_granularity),
  TEST(a_hole_beside_one_kind_of_resources_takes_the_other_beyond_the_range_they_would_share),
  TEST(a_page_that_holds_nothing_may_change_its_kind),
};

TEST_MAIN(tests)
