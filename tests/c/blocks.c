/* Shared blocks of memory: which sizes are asked for, and how they follow what is held. */
#include "check.h"
#include "shorthand.h"

/* ---- sizes by themselves */

static slicepool_allocation_sizes sizes_of(uint64_t min_device, uint64_t max_device, uint64_t min_host,
                                           uint64_t max_host) {
  slicepool_allocation_sizes sizes = SLICEPOOL_ALLOCATION_SIZES_INIT;
  sizes.min_device_memblock_size = min_device;
  sizes.max_device_memblock_size = max_device;
  sizes.min_host_memblock_size = min_host;
  sizes.max_host_memblock_size = max_host;
  return sizes;
}

static slicepool_allocation_sizes adjusted(slicepool_allocation_sizes asked) {
  slicepool_allocation_sizes used = SLICEPOOL_ALLOCATION_SIZES_INIT, same = asked;
  OK(slicepool_allocation_sizes_adjust(&asked, &used));
  OK(slicepool_allocation_sizes_adjust(&same, &same));
  CHECK(memcmp(&used, &same, sizeof used) == 0);
  CHECK_EQ(used.reserved, 0);
  /* What is used is used as it is. */
  OK(slicepool_allocation_sizes_adjust(&used, &same));
  CHECK(memcmp(&used, &same, sizeof used) == 0);
  return used;
}

static const struct {
  uint64_t asked, used;
  bool rounded;
} adjustments[] = {
  { 1, 4194304, false },
  { 4194303, 4194304, false },
  { 4194304, 4194304, false },
  { 4194305, 8388608, true },
  { 5242880, 8388608, true },
  { 8388608, 8388608, false },
  { 8388609, 12582912, true },
  { 10485760, 12582912, true },
  { 12582912, 12582912, false },
  { 66060288, 67108864, true },
  { 67108864, 67108864, false },
  { 68157440, 71303168, true },
  { 104857600, 104857600, false },
  { 105906176, 109051904, true },
  { 134217728, 134217728, false },
  { 262144000, 264241152, true },
  { 264241152, 264241152, false },
  { 264241153, 268435456, true },
  { 267386880, 268435456, true },
  { 268435455, 268435456, true },
  { 268435456, 268435456, false },
  { 268435457, 268435456, false },
  { 536870912, 268435456, false },
  { UINT64_C(4294967297), 268435456, false },
  { UINT64_MAX, 268435456, false },
};

enum { ADJUSTMENTS = sizeof adjustments / sizeof *adjustments };

static void sizes_are_clamped_and_rounded(void) {
  for (int i = 0; i < ADJUSTMENTS; i++) {
    const uint64_t asked = adjustments[i].asked, used = adjustments[i].used;
    slicepool_allocation_sizes sizes = adjusted(sizes_of(asked, 0, asked, 0));
    CHECK_EQ(sizes.min_device_memblock_size, used);
    CHECK_EQ(sizes.max_device_memblock_size, used);
    CHECK_EQ(sizes.min_host_memblock_size, used);
    CHECK_EQ(sizes.max_host_memblock_size, used);
    sizes = adjusted(sizes_of(1, asked, 12 * MIB, asked));
    CHECK_EQ(sizes.min_device_memblock_size, 4 * MIB);
    CHECK_EQ(sizes.max_device_memblock_size, used);
    CHECK_EQ(sizes.min_host_memblock_size, 12 * MIB);
    CHECK_EQ(sizes.max_host_memblock_size, used < 12 * MIB ? 12 * MIB : used);
  }
  slicepool_allocation_sizes sizes = adjusted(sizes_of(64 * MIB, 8 * MIB, 32 * MIB, 33 * MIB));
  CHECK(sizes.min_device_memblock_size == 64 * MIB && sizes.max_device_memblock_size == 64 * MIB);
  CHECK(sizes.min_host_memblock_size == 32 * MIB && sizes.max_host_memblock_size == 37748736);
  sizes = adjusted(sizes_of(8 * MIB, UINT64_MAX, 8 * MIB, 0));
  CHECK(sizes.min_device_memblock_size == 8 * MIB && sizes.max_device_memblock_size == 256 * MIB);
  CHECK(sizes.min_host_memblock_size == 8 * MIB && sizes.max_host_memblock_size == 8 * MIB);
  sizes = adjusted(sizes_of(0, 0, 0, 0));
  CHECK(sizes.min_device_memblock_size == 256 * MIB && sizes.max_device_memblock_size == 256 * MIB);
  CHECK(sizes.min_host_memblock_size == 64 * MIB && sizes.max_host_memblock_size == 64 * MIB);
}

/* In MiB; 0: no more. */
static const struct {
  uint64_t least, most, sizes[10];
} ladders[] = {
  { 4, 256, { 4, 8, 16, 32, 64, 128, 256, 256, 256 } },
  { 8, 256, { 8, 16, 32, 64, 128, 256, 256, 256 } },
  { 12, 256, { 12, 24, 48, 96, 192, 256, 256 } },
  { 20, 100, { 20, 40, 80, 100, 100, 100 } },
  { 36, 256, { 36, 72, 144, 256, 256, 256 } },
  { 64, 256, { 64, 128, 256, 256, 256 } },
  { 256, 256, { 256, 256, 256, 256 } },
  { 8, 8, { 8, 8, 8, 8 } },
  { 4, 16, { 4, 8, 16, 16, 16 } },
};

enum { LADDERS = sizeof ladders / sizeof *ladders };

static void each_block_doubles_with_the_number_of_blocks(void) {
  for (int i = 0; i < LADDERS; i++) {
    const uint64_t least = ladders[i].least * MIB, most = ladders[i].most * MIB;
    const slicepool_allocation_sizes device = sizes_of(least, most, 0, 0), host = sizes_of(0, 0, least, most);
    uint64_t bytes = 0, last = 0;
    for (uint32_t count = 0; ladders[i].sizes[count] != 0; count++) {
      OK(slicepool_memblock_size(&device, 0, count, &bytes));
      CHECK_EQ(bytes, ladders[i].sizes[count] * MIB);
      OK(slicepool_memblock_size(&host, 1, count, &bytes));
      CHECK_EQ(bytes, ladders[i].sizes[count] * MIB);
      OK(slicepool_memblock_size(&device, 1, count, &bytes));
      CHECK_EQ(bytes, 64 * MIB);
      last = ladders[i].sizes[count] * MIB;
    }
    static const uint32_t many[] = { 10, 31, 32, 33, 63, 64, 65, 0x80000000, UINT32_MAX };
    for (size_t m = 0; m < sizeof many / sizeof *many; m++) {
      OK(slicepool_memblock_size(&device, 0, many[m], &bytes));
      CHECK_EQ(bytes, last);
    }
  }
  uint64_t bytes = 5;
  CHECK_RESULT(slicepool_memblock_size(NULL, 2, 0, &bytes), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  slicepool_allocation_sizes wrong = SLICEPOOL_ALLOCATION_SIZES_INIT;
  wrong.struct_size = 12;
  CHECK_RESULT(slicepool_memblock_size(&wrong, 0, 0, &bytes), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_RESULT(slicepool_allocation_sizes_adjust(NULL, &wrong), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(bytes, 5);
  /* An older caller, who knows the device's sizes only; and newer ones. */
  slicepool_allocation_sizes older = sizes_of(20 * MIB, 100 * MIB, 8 * MIB, 8 * MIB);
  older.struct_size = 24;
  OK(slicepool_memblock_size(&older, 0, 1, &bytes));
  CHECK_EQ(bytes, 40 * MIB);
  OK(slicepool_memblock_size(&older, 1, 1, &bytes));
  CHECK_EQ(bytes, 64 * MIB);
  struct {
    slicepool_allocation_sizes sizes;
    uint64_t more;
  } newer = { sizes_of(8 * MIB, 0, 0, 0), 0 };
  newer.sizes.struct_size = sizeof newer;
  OK(slicepool_memblock_size(&newer.sizes, 0, 1, &bytes));
  newer.more = 1;
  CHECK_RESULT(slicepool_memblock_size(&newer.sizes, 0, 1, &bytes), SLICEPOOL_ERROR_VERSION_MISMATCH);
}

/* ---- blocks of a device */

static slicepool_allocator *create_blocks(struct mock_device *device, const slicepool_allocation_sizes *sizes,
                                          const slicepool_memory_type *types, uint32_t count,
                                          const slicepool_heap *heap) {
  const slicepool_device table = mock_table(device);
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.blocks = sizes;
  config.memory_types = types;
  config.memory_type_count = count;
  config.heaps = heap;
  config.heap_count = heap == NULL ? 0 : 1;
  return create_of(&table, config);
}

/* One memory type, which the host sees or does not. */
static slicepool_allocator *create_of_sizes(struct mock_device *device, uint64_t least, uint64_t most, bool host) {
  slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
  if (host) type.flags = SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
  const slicepool_allocation_sizes sizes = host ? sizes_of(0, 0, least, most) : sizes_of(least, most, 0, 0);
  return create_blocks(device, &sizes, &type, 1, NULL);
}

static void blocks_that_are_filled_one_after_the_other_follow_the_ladder(void) {
  for (int host = 0; host < 2; host++) {
    for (int i = 0; i < LADDERS; i++) {
      struct mock_device device;
      mock_init(&device);
      slicepool_allocator *allocator =
          create_of_sizes(&device, ladders[i].least * MIB, ladders[i].most * MIB, host == 1);
      uint64_t ids[4096], count = 0;
      for (int step = 0; ladders[i].sizes[step] != 0; step++) {
        /* Pieces of the smallest step fill every block. */
        for (uint64_t filled = 0; filled < ladders[i].sizes[step]; filled += 4) ids[count++] = take(allocator, 4 * MIB).id;
        CHECK_EQ(device.allocate_calls, (uint64_t)step + 1);
        CHECK_EQ(device.last_size, ladders[i].sizes[step] * MIB);
        CHECK_EQ(largest_free_of(allocator), 0);
      }
      OK(slicepool_free_many(allocator, ids, (uint32_t)count, NULL));
      finish(allocator, &device);
    }
  }
}

static void the_ladder_goes_down_with_the_blocks_that_go_back(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create_of_sizes(&device, 8 * MIB, 64 * MIB, false);
  const uint64_t first = take(allocator, 8 * MIB).id, second = take(allocator, 16 * MIB).id;
  const uint64_t third = take(allocator, 32 * MIB).id;
  CHECK(device.sizes[0] == 8 * MIB && device.sizes[1] == 16 * MIB && device.sizes[2] == 32 * MIB);
  OK(slicepool_free(allocator, second));
  OK(slicepool_free(allocator, third));
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_EQ(device.live, 1);
  /* Slices with pages of their own are not counted. */
  const uint64_t own = take_flagged(allocator, 20 * MIB, SLICEPOOL_REQUEST_DEDICATED).id;
  const uint64_t next = take(allocator, MIB).id;
  CHECK_EQ(device.last_size, 16 * MIB);
  const uint64_t ids[3] = { first, own, next };
  OK(slicepool_free_many(allocator, ids, 3, NULL));
  finish(allocator, &device);
}

/* A request above the next block takes the first step that holds it, and shares it. */
static void requests_above_the_next_block_share_the_first_step_that_holds_them(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create_of_sizes(&device, 8 * MIB, 256 * MIB, false);
  uint64_t ids[6];
  for (int i = 0; i < 4; i++) ids[i] = take(allocator, 10 * MIB).id;
  CHECK_EQ(device.sizes[0], 16 * MIB);
  CHECK_LE(device.allocate_calls, 3);
  CHECK_EQ(figures_in(allocator, 0).slices, 4);
  /* Room that is there is used before a block is taken. */
  const uint64_t calls = device.allocate_calls;
  ids[4] = take(allocator, 6 * MIB).id;
  CHECK_EQ(device.allocate_calls, calls);
  /* Only above the largest there is a page for the request alone. */
  ids[5] = take(allocator, 256 * MIB + 1).id;
  CHECK_EQ(device.last_size, 256 * MIB + 256);
  CHECK_EQ(device.last_flags, SLICEPOOL_PAGE_DEDICATED);
  CHECK_EQ(device.last_pool, slicepool_own_pool(SLICEPOOL_OWN_PAGES_DEDICATED, 0));
  CHECK_EQ(figures_in(allocator, device.last_pool).slices, 1);
  OK(slicepool_free_many(allocator, ids, 6, NULL));
  finish(allocator, &device);
}

/* ---- heaps */

static void no_block_takes_more_than_an_eighth_of_a_small_heap(void) {
  static const struct {
    uint64_t heap, block;
  } cases[] = { { 16 * MIB, 4 * MIB },  { 32 * MIB, 4 * MIB },   { 100 * MIB, 12 * MIB }, { 512 * MIB, 64 * MIB },
                { GIB, 128 * MIB },     { 2 * GIB, 256 * MIB },  { 8 * GIB, 256 * MIB } };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct mock_device device;
    mock_init(&device);
    const slicepool_memory_type type = type_in(0, 0);
    const slicepool_heap heap = heap_of(cases[i].heap, 0);
    const slicepool_allocation_sizes sizes = sizes_of(256 * MIB, 0, 0, 0);
    slicepool_allocator *allocator = create_blocks(&device, &sizes, &type, 1, &heap);
    uint64_t ids[2] = { take(allocator, MIB).id, 0 };
    CHECK_EQ(device.last_size, cases[i].block);
    /* Above that, up to the heap's size, a request has a page of its own. */
    ids[1] = take(allocator, cases[i].block + MIB).id;
    CHECK_EQ(device.last_size, cases[i].block + MIB);
    CHECK_EQ(device.last_flags, SLICEPOOL_PAGE_DEDICATED);
    const uint64_t calls = mock_calls(&device);
    const slicepool_failure failure = refused(allocator, cases[i].heap + MIB, 0, SLICEPOOL_ERROR_TOO_LARGE);
    CHECK_EQ(failure.limit, cases[i].heap);
    CHECK_EQ(mock_calls(&device), calls);
    OK(slicepool_free_many(allocator, ids, 2, NULL));
    finish(allocator, &device);
  }
}

static void what_is_left_of_a_heap_serves_in_smaller_blocks(void) {
  struct mock_device device;
  mock_init(&device);
  device.capacity = 6 * MIB;
  slicepool_allocator *allocator = create_of_sizes(&device, 8 * MIB, 64 * MIB, false);
  static uint64_t ids[4000];
  uint64_t state = 6;
  for (int i = 0; i < 4000; i++) ids[i] = take(allocator, random_between(&state, 256, 1024)).id;
  CHECK_EQ(device.given, 1);
  CHECK_EQ(device.bytes, 4 * MIB);
  OK(slicepool_free_many(allocator, ids, 4000, NULL));
  finish(allocator, &device);

  mock_init(&device);
  device.fail_at = 1;
  device.fail_from_then_on = true;
  allocator = create_of_sizes(&device, 8 * MIB, 64 * MIB, false);
  for (int i = 0; i < 4000; i++) refused(allocator, random_between(&state, 256, 1024), 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_LE(device.allocate_calls, 16);
  finish(allocator, &device);
}

/* ---- what a program hears and sees of them */

static uint64_t rounded_from[8], rounded_to[8];
static size_t roundings;

static void note_rounding(struct mock_device *device, const slicepool_event *event) {
  (void)device;
  if (event->kind != SLICEPOOL_EVENT_SIZE_ROUNDED) return;
  CHECK(roundings < 8 && event->id == 0 && event->offset == 0 && event->memory == 0 && event->result == 0);
  CHECK(event->user_data == NULL && event->name[0] == 0);
  rounded_from[roundings] = event->requested;
  rounded_to[roundings++] = event->size;
}

static void sizes_that_are_rounded_are_told_and_others_are_not(void) {
  for (int i = 0; i < ADJUSTMENTS; i++) {
    for (int host = 0; host < 2; host++) {
      struct mock_device device;
      mock_init(&device);
      device.on_event = note_rounding;
      roundings = 0;
      slicepool_allocator *allocator = create_of_sizes(&device, adjustments[i].asked, 0, host == 1);
      CHECK_EQ(roundings, adjustments[i].rounded);
      if (roundings != 0) {
        CHECK_EQ(rounded_from[0], adjustments[i].asked);
        CHECK_EQ(rounded_to[0], adjustments[i].used);
      }
      finish(allocator, &device);
    }
  }
  struct mock_device device;
  mock_init(&device);
  device.on_event = note_rounding;
  roundings = 0;
  const slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
  const slicepool_allocation_sizes sizes = sizes_of(5 * MIB, 63 * MIB, 9 * MIB, 12 * MIB);
  slicepool_allocator *allocator = create_blocks(&device, &sizes, &type, 1, NULL);
  CHECK_EQ(roundings, 3);
  CHECK(rounded_to[0] == 8 * MIB && rounded_to[1] == 64 * MIB && rounded_to[2] == 12 * MIB);
  finish(allocator, &device);
}

/* The same requests in two allocators lie in the same places. */
static void check_the_same_places(slicepool_allocator *a, struct mock_device *device_a, slicepool_allocator *b,
                                  struct mock_device *device_b) {
  enum { LIVE = 200 };
  uint64_t ids[2][LIVE] = { { 0 } }, state = 17;
  for (uint64_t step = 0; step < rounds(20000); step++) {
    const uint64_t place = random_between(&state, 0, LIVE - 1);
    slicepool_request request = SLICEPOOL_REQUEST_INIT;
    request.size = UINT64_C(1) << random_between(&state, 4, 22);
    request.size = random_between(&state, request.size, request.size * 2);
    request.memory_types = (uint32_t)random_between(&state, 0, 3);
    request.flags = random_between(&state, 0, 3) == 0 ? SLICEPOOL_REQUEST_OPTIMAL : 0;
    slicepool_slice slices[2] = { SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT };
    OK(slicepool_free(a, ids[0][place]));
    OK(slicepool_free(b, ids[1][place]));
    OK(slicepool_allocate(a, &request, &slices[0]));
    OK(slicepool_allocate(b, &request, &slices[1]));
    CHECK_EQ(slices[0].memory, slices[1].memory);
    CHECK_EQ(slices[0].offset, slices[1].offset);
    CHECK_EQ(slices[0].size, slices[1].size);
    ids[0][place] = slices[0].id;
    ids[1][place] = slices[1].id;
  }
  CHECK_EQ(device_a->allocate_calls, device_b->allocate_calls);
  CHECK_EQ(device_a->bytes, device_b->bytes);
  OK(slicepool_free_many(a, ids[0], LIVE, NULL));
  OK(slicepool_free_many(b, ids[1], LIVE, NULL));
}

static void the_pools_of_a_config_make_the_same_allocator(void) {
  for (int kind = 0; kind < 2; kind++) {
    struct mock_device devices[2];
    slicepool_allocator *allocators[2];
    slicepool_memory_type types[2] = { type_in(0, 1), type_in(1, 2) };
    const slicepool_heap heaps[2] = { heap_of(4 * GIB, 0), heap_of(400 * MIB, 0) };
    types[0].granularity = 1024;
    types[1].flags = SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
    types[1].non_coherent_atom = 512;
    const slicepool_allocation_sizes sizes = sizes_of(8 * MIB, 64 * MIB, 4 * MIB, 16 * MIB);
    slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
    config.memory_types = types;
    config.memory_type_count = 2;
    config.heaps = heaps;
    config.heap_count = 2;
    if (kind == 0) config.blocks = &sizes;
    slicepool_pool_options pools[8] = { SLICEPOOL_POOL_OPTIONS_INIT };
    uint32_t count = 0;
    OK(slicepool_config_pools(&config, NULL, 0, &count));
    /* Pages for each kind of resource in the first type, as its granularity asks for. */
    CHECK_EQ(count, kind == 0 ? 3 : 6);
    OK(slicepool_config_pools(&config, pools, count - 1, &count));
    CHECK_EQ(pools[0].kind, 0);
    OK(slicepool_config_pools(&config, pools, 8, &count));
    CHECK(pools[0].kinds != SLICEPOOL_KINDS_BOTH && pools[0].memory_type == 0);
    CHECK(pools[count - 1].kinds == SLICEPOOL_KINDS_BOTH && pools[count - 1].memory_type == 1);
    if (kind == 0) {
      CHECK(pools[0].page_size == 8 * MIB && pools[0].max_page_size == 64 * MIB);
      CHECK(pools[2].page_size == 4 * MIB && pools[2].max_page_size == 16 * MIB);
      CHECK_EQ(pools[0].page_growth, SLICEPOOL_PAGE_GROWTH_DOUBLING);
      CHECK_EQ(pools[0].dealloc_period, 1024);
    }
    for (int i = 0; i < 2; i++) {
      mock_init(&devices[i]);
      const slicepool_device table = mock_table(&devices[i]);
      if (i == 1) {
        config.blocks = NULL;
        config.pools = pools;
        config.pool_count = count;
        config.flags = kind == 0 ? SLICEPOOL_ALLOCATOR_DEDICATED_WHEN_TOO_LARGE : 0;
        /* And what it names is what it has. */
        slicepool_pool_options again[8] = { SLICEPOOL_POOL_OPTIONS_INIT };
        uint32_t count_again = 0;
        OK(slicepool_config_pools(&config, again, 8, &count_again));
        CHECK_EQ(count_again, count);
        CHECK(memcmp(pools, again, count * sizeof *pools) == 0);
      }
      allocators[i] = create_of(&table, config);
      for (uint32_t pool = 0; pool < count; pool++) {
        const slicepool_pool_options of_allocator = options_in(allocators[i], pool);
        CHECK(of_allocator.memory_type == pools[pool].memory_type && of_allocator.kinds == pools[pool].kinds);
        CHECK(of_allocator.page_size == pools[pool].page_size);
        /* Nobody flushes another's bytes. */
        CHECK_EQ(of_allocator.granule, of_allocator.memory_type == 0 ? 256 : 512);
      }
    }
    check_the_same_places(allocators[0], &devices[0], allocators[1], &devices[1]);
    for (int i = 0; i < 2; i++) finish(allocators[i], &devices[i]);
  }
}

static void blocks_that_hold_nothing_stay_for_a_frame_and_go_back_in_time(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create_of_sizes(&device, 4 * MIB, 64 * MIB, false);
  /* Frames of a block and a half: as many device calls as the first needed. */
  uint64_t after_first = 0;
  for (int frame = 0; frame < 1000; frame++) {
    uint64_t ids[3];
    for (int i = 0; i < 3; i++) ids[i] = take(allocator, 2 * MIB).id;
    OK(slicepool_free_many(allocator, ids, 3, NULL));
    if (frame == 0) after_first = mock_calls(&device);
  }
  CHECK_LE(mock_calls(&device), after_first + 2);
  const uint64_t large = take(allocator, 60 * MIB).id, small = take(allocator, 1).id;
  OK(slicepool_free(allocator, large));
  CHECK(device.live >= 2);
  for (int i = 0; i < 3 * 1024; i++) touch(allocator, 100);
  CHECK_EQ(device.live, 1);
  OK(slicepool_free(allocator, small));
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(sizes_are_clamped_and_rounded),
  TEST(each_block_doubles_with_the_number_of_blocks),
  TEST(blocks_that_are_filled_one_after_the_other_follow_the_ladder),
  TEST(the_ladder_goes_down_with_the_blocks_that_go_back),
  TEST(requests_above_the_next_block_share_the_first_step_that_holds_them),
  TEST(no_block_takes_more_than_an_eighth_of_a_small_heap),
  TEST(what_is_left_of_a_heap_serves_in_smaller_blocks),
  TEST(sizes_that_are_rounded_are_told_and_others_are_not),
  TEST(the_pools_of_a_config_make_the_same_allocator),
  TEST(blocks_that_hold_nothing_stay_for_a_frame_and_go_back_in_time),
};

TEST_MAIN(tests)
