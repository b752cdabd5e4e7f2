/* Dry runs, plans made of them, and pools that are put in place of others. */
#include "check.h"
#include "shorthand.h"

static slicepool_allocator *create_dry(struct mock_device *device, const slicepool_pool_options *pools, uint32_t count,
                                       uint64_t max_bytes, uint32_t max_pages) {
  const slicepool_device table = mock_table(device);
  slicepool_allocator_config config = config_for(pools, count);
  config.flags = SLICEPOOL_ALLOCATOR_DRY_RUN;
  config.max_bytes = max_bytes;
  config.max_pages = max_pages;
  return create_of(&table, config);
}

static slicepool_slice resolve(slicepool_allocator *allocator, uint64_t id) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  OK(slicepool_resolve(allocator, id, &slice, NULL));
  CHECK(slice.id == id && slice.memory != UINT64_MAX);
  return slice;
}

static slicepool_failure not_resolved(slicepool_allocator *allocator, uint64_t id, slicepool_result expected) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_resolve(allocator, id, &slice, &failure), expected);
  CHECK_EQ(failure.result, expected);
  CHECK_EQ(slice.id, 0);
  return failure;
}

/* ---- dry runs */

/* Section 8, item 13. */
static void a_dry_run_holds_pages_that_are_got_one_by_one(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_pool_options pool = sliced(MIB, 0, 0, 32);
  slicepool_allocator *allocator = create_dry(&device, &pool, 1, 0, 0);
  const slicepool_slice first = take(allocator, 600 * KIB), second = take(allocator, 600 * KIB);
  CHECK_EQ(first.memory, UINT64_MAX);
  CHECK(first.mapped == NULL && first.address == 0);
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.pages, 2);
  CHECK_EQ(figures.pages_unmapped, 2);
  CHECK_EQ(figures.unmapped_bytes, 2 * MIB);
  CHECK_EQ(figures.reserved_bytes, 2 * MIB);
  CHECK_EQ(device.allocate_calls, 0);
  const slicepool_slice resolved = resolve(allocator, first.id);
  CHECK_EQ(resolved.offset, first.offset);
  CHECK_EQ(resolved.size, first.size);
  CHECK_EQ(resolved.address, device.pages[0].address);
  CHECK_EQ(device.last_size, MIB);
  figures = figures_of(allocator);
  CHECK_EQ(figures.pages_unmapped, 1);
  CHECK_EQ(figures.unmapped_bytes, MIB);
  /* The whole page has its memory, for what is in it and what comes. */
  const slicepool_slice beside = take(allocator, 1000);
  CHECK_EQ(beside.memory, resolved.memory);
  CHECK_EQ(resolve(allocator, first.id).memory, resolved.memory);
  CHECK_EQ(look_up(allocator, first.id).memory, resolved.memory);
  CHECK_EQ(look_up(allocator, second.id).memory, UINT64_MAX);
  CHECK_EQ(device.allocate_calls, 1);
  const uint64_t ids[3] = { first.id, second.id, beside.id };
  OK(slicepool_free_many(allocator, ids, 3, NULL));
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(device.taken, 1);
  figures = figures_of(allocator);
  CHECK_EQ(figures.pages, 0);
  CHECK_EQ(figures.pages_unmapped, 0);
  CHECK_EQ(figures.reserved_bytes, 0);
  finish(allocator, &device);
}

/* Section 8, item 13. */
static void what_was_resolved_and_freed_is_cleaned_up(void) {
  for (int k = 0; k < KINDS; k++) {
    for (int flags = 0; flags <= SLICEPOOL_REQUEST_PERSISTENT; flags += SLICEPOOL_REQUEST_PERSISTENT) {
      struct mock_device device;
      mock_init(&device);
      const slicepool_pool_options pool = kind_of(k).pool;
      slicepool_allocator *allocator = create_dry(&device, &pool, 1, 0, 0);
      const slicepool_slice slice = take_flagged(allocator, 32 * KIB, (uint32_t)flags);
      CHECK_EQ(figures_of(allocator).pages_unmapped, 1);
      check_sums(allocator);
      resolve(allocator, slice.id);
      CHECK_EQ(figures_of(allocator).pages_unmapped, 0);
      CHECK_EQ(figures_of(allocator).unmapped_bytes, 0);
      check_books(allocator, NULL);
      OK(slicepool_free(allocator, slice.id));
      OK(slicepool_cleanup(allocator, NULL));
      CHECK_EQ(figures_of(allocator).pages, 0);
      CHECK_EQ(device.given, 1);
      finish(allocator, &device);
    }
  }
}

static void pages_without_memory_go_without_a_word_to_the_device(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    mock_init(&device);
    const slicepool_pool_options pool = kind_of(k).pool;
    slicepool_allocator *allocator = create_dry(&device, &pool, 1, 0, 0);
    for (int end = 0; end < 3; end++) {
      uint64_t ids[8];
      for (int i = 0; i < 8; i++) ids[i] = take(allocator, 32 * KIB).id;
      if (end == 2) free_at(allocator, ids[0], 1, 1);
      else OK(slicepool_free(allocator, ids[0]));
      if (end < 2) OK(slicepool_free_many(allocator, ids + 1, 7, NULL));
      if (end == 0) OK(slicepool_trim(allocator, 0, NULL));
      if (end == 1) OK(slicepool_cleanup(allocator, NULL));
      if (end < 2) CHECK_EQ(figures_of(allocator).reserved_bytes, 0);
    }
    OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
    CHECK_EQ(mock_calls(&device), 0);
    mock_end(&device);
  }
}

/* One life, of which every step is known beforehand. */
struct life {
  uint64_t seed, steps, smallest, largest;
};

/* Lives it; answers the result of the first request that was refused. `other` lives the same beside it if there is one,
 * and everything has to lie at the same place. */
static slicepool_result live(struct life life, slicepool_allocator *allocator, slicepool_allocator *other) {
  enum { SLOTS = 100 };
  uint64_t ids[SLOTS] = { 0 }, others[SLOTS] = { 0 }, state = life.seed;
  slicepool_result result = SLICEPOOL_OK;
  for (uint64_t i = 0; i < life.steps && result == SLICEPOOL_OK; i++) {
    const uint64_t slot = random_between(&state, 0, SLOTS - 1), digits = random_between(&state, 0, 6);
    uint64_t size = life.largest >> digits;
    size = random_between(&state, life.smallest, size < life.smallest ? life.smallest : size);
    const uint64_t alignment = UINT64_C(1) << random_between(&state, 0, 8);
    if (ids[slot] != 0) {
      OK(slicepool_free(allocator, ids[slot]));
      if (other != NULL) OK(slicepool_free(other, others[slot]));
      ids[slot] = others[slot] = 0;
      continue;
    }
    slicepool_slice slice = SLICEPOOL_SLICE_INIT, beside = SLICEPOOL_SLICE_INIT;
    result = try_take(allocator, size, alignment, &slice, NULL);
    ids[slot] = slice.id;
    if (other == NULL) continue;
    CHECK_RESULT(try_take(other, size, alignment, &beside, NULL), result);
    CHECK(slice.offset == beside.offset && slice.size == beside.size);
    others[slot] = beside.id;
  }
  OK(slicepool_free_many(allocator, ids, SLOTS, NULL));
  if (other != NULL) OK(slicepool_free_many(other, others, SLOTS, NULL));
  return result;
}

static void a_dry_run_places_and_counts_as_if_it_were_none(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device, dry_device;
    slicepool_pool_options pools[2] = { kind_of(k).pool, direct(0, 32) };
    mock_init(&device);
    mock_init(&dry_device);
    const slicepool_device table = mock_table(&device);
    slicepool_allocator *allocator = create_over(&table, pools, 2, 0);
    slicepool_allocator *dry = create_dry(&dry_device, pools, 2, 0, 0);
    const struct life life = { (uint64_t)k + 1, 50 + rounds(20000), 1, 64 * KIB };
    live(life, allocator, dry);
    slicepool_statistics figures[2] = { figures_of(allocator), figures_of(dry) };
    CHECK_EQ(figures[1].unmapped_bytes, figures[1].reserved_bytes);
    CHECK_EQ(figures[1].pages_unmapped, figures[1].pages);
    CHECK_EQ(mock_calls(&dry_device), 0);
    figures[1].unmapped_bytes = 0;
    figures[1].pages_unmapped = 0;
    /* Memory that was never got is not counted as got; all else is the same. */
    figures[1].device_allocations = figures[0].device_allocations;
    figures[1].device_deallocations = figures[0].device_deallocations;
    figures[1].metadata_bytes = figures[0].metadata_bytes;
    CHECK(memcmp(&figures[0], &figures[1], sizeof figures[0]) == 0);
    finish(allocator, &device);
    OK(slicepool_allocator_destroy(dry, 0, NULL));
    mock_end(&dry_device);
  }
}

static void limits_count_what_was_resolved_and_caps_what_was_placed(void) {
  for (int by_pages = 0; by_pages < 2; by_pages++) {
    struct mock_device device;
    mock_init(&device);
    const slicepool_pool_options pool = sliced(4096, 0, 3 * 4096, 64);
    slicepool_allocator *allocator = create_dry(&device, &pool, 1, by_pages == 1 ? 0 : 2 * 4096 + 100,
                                                by_pages == 1 ? 2 : 0);
    uint64_t ids[3];
    for (int i = 0; i < 3; i++) ids[i] = take(allocator, 4096).id;
    refused(allocator, 4096, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
    resolve(allocator, ids[0]);
    resolve(allocator, ids[1]);
    const uint64_t calls = device.allocate_calls;
    const slicepool_failure failure = not_resolved(
        allocator, ids[2], by_pages == 1 ? SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED : SLICEPOOL_ERROR_BUDGET_EXCEEDED);
    CHECK_EQ(failure.limit, by_pages == 1 ? 2 : 2 * 4096 + 100);
    CHECK_EQ(device.allocate_calls, calls);
    CHECK_EQ(figures_of(allocator).pages_unmapped, 1);
    /* A page that has memory and holds nothing makes way. */
    OK(slicepool_free(allocator, ids[0]));
    resolve(allocator, ids[2]);
    CHECK_EQ(device.live, 2);
    OK(slicepool_free(allocator, ids[1]));
    OK(slicepool_free(allocator, ids[2]));
    finish(allocator, &device);
  }
}

static void a_plan_larger_than_the_device_fails_where_it_is_resolved_and_changes_nothing(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  slicepool_allocator *allocator = create_dry(&device, &pool, 1, 0, 0);
  uint64_t ids[3];
  for (int i = 0; i < 3; i++) ids[i] = take(allocator, 4096).id;
  device.capacity = 4096;
  device.device_code = -5;
  resolve(allocator, ids[0]);
  const slicepool_statistics before = figures_of(allocator);
  const slicepool_failure failure = not_resolved(allocator, ids[1], SLICEPOOL_ERROR_MAPPING_FAILED);
  CHECK_EQ(failure.size, 4096);
  CHECK(failure.device_code == -5);
  slicepool_statistics after = figures_of(allocator);
  after.metadata_bytes = before.metadata_bytes;
  CHECK(memcmp(&before, &after, sizeof after) == 0);
  CHECK_EQ(look_up(allocator, ids[1]).memory, UINT64_MAX);
  /* After giving back what holds nothing there may be room. */
  OK(slicepool_free(allocator, ids[0]));
  resolve(allocator, ids[1]);
  CHECK_EQ(device.live, 1);
  device.capacity = 0;
  device.fail_at = device.allocate_calls + 1;
  device.failure = SLICEPOOL_ERROR_DEVICE_FAILED;
  CHECK_EQ(not_resolved(allocator, ids[2], SLICEPOOL_ERROR_DEVICE_FAILED).device_fault,
           SLICEPOOL_DEVICE_FAULT_REPORTED);
  device.misalign_by = 8;
  CHECK_EQ(not_resolved(allocator, ids[2], SLICEPOOL_ERROR_DEVICE_FAILED).device_fault,
           SLICEPOOL_DEVICE_FAULT_MISALIGNED);
  CHECK_EQ(device.live, 1);
  device.refusals = 1;
  not_resolved(allocator, ids[2], SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(figures_of(allocator).pages_stuck, 1);
  CHECK_EQ(device.live, 2);
  device.misalign_by = 0;
  resolve(allocator, ids[2]);
  not_resolved(allocator, ids[0], SLICEPOOL_ERROR_STALE_HANDLE);
  not_resolved(allocator, 12345, SLICEPOOL_ERROR_FOREIGN_HANDLE);
  not_resolved(allocator, 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  OK(slicepool_free_many(allocator, ids + 1, 2, NULL));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  mock_end(&device);
}

static void resolving_is_looking_up_where_nothing_is_dry(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  const slicepool_slice slice = take(allocator, 100);
  const slicepool_slice resolved = resolve(allocator, slice.id);
  CHECK(same_slice(&slice, &resolved));
  CHECK_EQ(device.allocate_calls, 1);
  OK(slicepool_free(allocator, slice.id));
  not_resolved(allocator, slice.id, SLICEPOOL_ERROR_STALE_HANDLE);
  finish(allocator, &device);
}

/* ---- two who resolve one page */

struct race {
  slicepool_allocator *allocator;
  uint64_t id;
  pthread_barrier_t barrier;
};

static void free_meanwhile(struct mock_device *device) {
  struct race *race = device->hook_data;
  if (race->id != 0) OK(slicepool_free(race->allocator, race->id));
  race->id = 0;
}

static void the_memory_for_a_slice_that_is_freed_meanwhile_goes_back(void) {
  for (int refuses = 0; refuses < 2; refuses++) {
    struct mock_device device;
    struct race race = { .allocator = NULL };
    mock_init(&device);
    device.hook_data = &race;
    device.in_allocate = free_meanwhile;
    const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
    race.allocator = create_dry(&device, &pool, 1, 4096, 1);
    race.id = take(race.allocator, 100).id;
    device.refusals = (uint64_t)refuses;
    not_resolved(race.allocator, race.id, SLICEPOOL_ERROR_STALE_HANDLE);
    CHECK_EQ(device.live, refuses);
    CHECK_EQ(figures_of(race.allocator).pages_stuck, refuses);
    OK(slicepool_cleanup(race.allocator, NULL));
    CHECK_EQ(device.live, 0);
    CHECK_EQ(figures_of(race.allocator).reserved_bytes, 0);
    /* Nothing is charged for it any more. */
    const slicepool_slice slice = take(race.allocator, 100);
    resolve(race.allocator, slice.id);
    OK(slicepool_free(race.allocator, slice.id));
    OK(slicepool_allocator_destroy(race.allocator, 0, NULL));
    mock_end(&device);
  }
}

static void meet_the_other(struct mock_device *device) {
  struct race *race = device->hook_data;
  pthread_barrier_wait(&race->barrier);
}

static void *resolve_the_slice(void *argument) {
  struct race *race = argument;
  return (void *)(uintptr_t)(resolve(race->allocator, race->id).memory);
}

/* Both are in the device's callback at the same time, so that both get memory. */
static void of_two_threads_that_resolve_one_page_one_gives_its_memory_back(void) {
  for (uint64_t round = 0; round < 20 + rounds(1000); round++) {
    struct mock_device device;
    struct race race = { .allocator = NULL };
    mock_init(&device);
    CHECK(pthread_barrier_init(&race.barrier, NULL, 2) == 0);
    device.hook_data = &race;
    device.in_allocate = meet_the_other;
    const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
    race.allocator = create_dry(&device, &pool, 1, 0, 0);
    race.id = take(race.allocator, 100).id;
    pthread_t threads[2];
    void *memory[2];
    for (int t = 0; t < 2; t++) CHECK(pthread_create(&threads[t], NULL, resolve_the_slice, &race) == 0);
    for (int t = 0; t < 2; t++) CHECK(pthread_join(threads[t], &memory[t]) == 0);
    CHECK(memory[0] == memory[1]);
    CHECK_EQ(device.given, 2);
    CHECK_EQ(device.live, 1);
    CHECK_EQ(look_up(race.allocator, race.id).memory, (uintptr_t)memory[0]);
    CHECK_EQ(figures_of(race.allocator).reserved_bytes, 4096);
    OK(slicepool_free(race.allocator, race.id));
    OK(slicepool_allocator_destroy(race.allocator, 0, NULL));
    mock_end(&device);
    CHECK(pthread_barrier_destroy(&race.barrier) == 0);
  }
}

/* ---- plans */

static uint32_t plan_of(slicepool_allocator *allocator, slicepool_pool_options *pools) {
  uint32_t count = 0;
  pools->struct_size = sizeof *pools;
  OK(slicepool_plan(allocator, pools, 32, &count));
  CHECK(count != 0 && count <= 32);
  return count;
}

static void what_a_dry_run_has_shown_to_be_needed_is_enough(void) {
  struct {
    slicepool_pool_options pools[32];
    uint32_t count;
    uint64_t smallest, largest;
  } layouts[6] = {
    { { sliced(MIB, 0, 0, 32) }, 1, 1, MIB },
    { { growing(64 * KIB, 4 * MIB, 256) }, 1, 1, 100 * KIB },
    { { sliced(16 * KIB, 2 * KIB, 0, 32), growing(64 * KIB, MIB, 32), direct(0, 256) }, 3, 1, 512 * KIB },
    { { exclusive(8 * KIB, 32), sliced(64 * KIB, 0, 0, 64) }, 2, 1, 64 * KIB },
    { { { 0 } }, 0, 1, 16 * MIB },
    { { { 0 } }, 0, 1, 4 * MIB },
  };
  slicepool_layout_properties properties = SLICEPOOL_LAYOUT_PROPERTIES_INIT;
  properties.max_page = 128 * MIB;
  layouts[4].pools[0].struct_size = layouts[5].pools[0].struct_size = sizeof(slicepool_pool_options);
  OK(slicepool_layout_adaptive(&properties, layouts[4].pools, 32, &layouts[4].count));
  OK(slicepool_layout_sub_slices(&properties, layouts[5].pools, 32, &layouts[5].count));
  for (int l = 0; l < 6; l++) {
    for (uint64_t seed = 1; seed <= (is_slow() ? 1 : 5); seed++) {
      struct mock_device device;
      mock_init(&device);
      const struct life life = { seed, 50 + rounds(10000), layouts[l].smallest, layouts[l].largest };
      slicepool_allocator *dry = create_dry(&device, layouts[l].pools, layouts[l].count, 0, 0);
      OK(live(life, dry, NULL));
      slicepool_pool_options plan[32];
      const uint32_t count = plan_of(dry, plan);
      CHECK_EQ(count, layouts[l].count);
      const uint64_t peak = figures_of(dry).reserved_peak_bytes;
      for (uint32_t pool = 0; pool < count; pool++) {
        const slicepool_statistics figures = figures_in(dry, pool);
        CHECK_EQ(plan[pool].kind, layouts[l].pools[pool].kind);
        if (plan[pool].kind != SLICEPOOL_POOL_SLICED_PAGES) continue;
        if (figures.reserved_peak_bytes != 0) CHECK_EQ(plan[pool].max_pool_size, figures.reserved_peak_bytes);
        CHECK_EQ(plan[pool].page_size, options_in(dry, pool).page_size);
      }
      OK(slicepool_allocator_destroy(dry, 0, NULL));
      CHECK_EQ(device.given, 0);
      const slicepool_device table = mock_table(&device);
      slicepool_allocator *allocator = create_over(&table, plan, count, 0);
      OK(live(life, allocator, NULL));
      CHECK_LE(device.bytes_peak, peak);
      finish(allocator, &device);
    }
  }
}

/* Pages of slices 2, 5 and 6 are idle when 16 is asked for, and what is held is as much as the cap allows: without a cap
 * all three make way for a page of 17 KiB, with one the first, after which a page of what is left would do. */
static void a_plan_is_enough_where_pages_that_grow_have_made_way_for_each_other(void) {
  static const uint64_t sizes[18] = { 12288, 16384, 8192,  4096,  8192, 9216,  9728,  8192, 4096,
                                      12288, 16384, 14336, 8192, 16384, 16384, 9216, 10240, 12288 };
  const slicepool_pool_options pool = growing(4096, 64 * KIB, 256);
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocators[2] = { create_dry(&device, &pool, 1, 0, 0), NULL };
  for (int run = 0; run < 2; run++) {
    uint64_t ids[18];
    for (int i = 0; i < 16; i++) ids[i] = take(allocators[run], sizes[i]).id;
    OK(slicepool_free(allocators[run], ids[2]));
    OK(slicepool_free(allocators[run], ids[5]));
    OK(slicepool_free(allocators[run], ids[6]));
    for (int i = 16; i < 18; i++) ids[i] = take(allocators[run], sizes[i]).id;
    if (run == 1) break;
    slicepool_pool_options plan[32];
    CHECK_EQ(plan_of(allocators[0], plan), 1);
    const slicepool_device table = mock_table(&device);
    allocators[1] = create_over(&table, plan, 1, 0);
  }
  for (int run = 0; run < 2; run++) OK(slicepool_allocator_destroy(allocators[run], SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);
}

/* Whether such a slice is taken depends on there being a cap, unless the plan says what it was like without. */
static void a_slice_that_nearly_fills_a_page_fits_its_plan(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_pool_options pool = sliced(32000, 32, 0, 32);
  slicepool_allocator *dry = create_dry(&device, &pool, 1, 0, 0);
  OK(slicepool_free(dry, take(dry, 25601).id));
  slicepool_pool_options plan[32];
  const uint32_t count = plan_of(dry, plan);
  CHECK_EQ(count, 1);
  CHECK_EQ(plan[0].max_pool_size, 32000);
  CHECK_EQ(plan[0].near_page, SLICEPOOL_NEAR_PAGE_ALWAYS);
  OK(slicepool_install_pools(dry, plan, 1, NULL));
  OK(slicepool_free(dry, take(dry, 25601).id));
  OK(slicepool_allocator_destroy(dry, 0, NULL));
  mock_end(&device);
}

/* A cap of 0 would be none at all. */
static void a_pool_that_held_nothing_has_a_cap_in_the_plan(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_pool_options pools[2] = { sliced(4096, 0, 0, 64), sliced(64 * KIB, 0, 0, 64) };
  slicepool_allocator *dry = create_dry(&device, pools, 2, 0, 0);
  take(dry, 100);
  slicepool_pool_options plan[32];
  const uint32_t count = plan_of(dry, plan);
  CHECK_EQ(count, 2);
  CHECK_EQ(plan[0].max_pool_size, 4096);
  CHECK(plan[1].max_pool_size != 0);
  OK(slicepool_allocator_destroy(dry, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);
}

static void a_plan_is_written_whole_or_not_at_all(void) {
  struct mock_device device;
  const slicepool_pool_options pools[3] = { exclusive(4096, 32), sliced(MIB, 0, 0, 32), direct(0, 32) };
  slicepool_allocator *allocator = create_list(&device, pools, 3);
  slicepool_pool_options plan[4];
  memset(plan, 0x77, sizeof plan);
  plan[0].struct_size = sizeof *plan;
  slicepool_pool_options before[4];
  memcpy(before, plan, sizeof plan);
  for (uint32_t capacity = 0; capacity < 3; capacity++) {
    uint32_t count = 0;
    OK(slicepool_plan(allocator, plan, capacity, &count));
    CHECK_EQ(count, 3);
    CHECK(memcmp(plan, before, sizeof plan) == 0);
  }
  uint32_t count = 0;
  OK(slicepool_plan(allocator, plan, 4, &count));
  CHECK_EQ(count, 3);
  CHECK(memcmp(&plan[3], &before[3], sizeof *plan) == 0);
  for (int i = 0; i < 3; i++) CHECK(plan[i].struct_size == sizeof *plan && plan[i].kind == pools[i].kind);
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(a_dry_run_holds_pages_that_are_got_one_by_one),
  TEST(what_was_resolved_and_freed_is_cleaned_up),
  TEST(pages_without_memory_go_without_a_word_to_the_device),
  TEST(a_dry_run_places_and_counts_as_if_it_were_none),
  TEST(limits_count_what_was_resolved_and_caps_what_was_placed),
  TEST(a_plan_larger_than_the_device_fails_where_it_is_resolved_and_changes_nothing),
  TEST(resolving_is_looking_up_where_nothing_is_dry),
  TEST(the_memory_for_a_slice_that_is_freed_meanwhile_goes_back),
  TEST(of_two_threads_that_resolve_one_page_one_gives_its_memory_back),
  TEST(what_a_dry_run_has_shown_to_be_needed_is_enough),
  TEST(a_plan_is_enough_where_pages_that_grow_have_made_way_for_each_other),
  TEST(a_slice_that_nearly_fills_a_page_fits_its_plan),
  TEST(a_pool_that_held_nothing_has_a_cap_in_the_plan),
  TEST(a_plan_is_written_whole_or_not_at_all),
};

TEST_MAIN(tests)
