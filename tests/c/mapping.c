/* Memory that the CPU sees for a time, and caches between the CPU and the device. */
#include "check.h"
#include "shorthand.h"

#include <sched.h>

/* Where the CPU would see a page: nobody touches it. */
static slicepool_result map_at_address(struct mock_device *device, const slicepool_device_memory *memory, void **mapped) {
  (void)device;
  *mapped = (void *)(uintptr_t)(memory->address + 7 * GIB);
  return SLICEPOOL_OK;
}

static void unmap_where_it_was_mapped(struct mock_device *device, const slicepool_device_memory *memory) {
  (void)device;
  CHECK_EQ((uintptr_t)memory->mapped, memory->address + 7 * GIB);
}

static slicepool_result accept_range(struct mock_device *device, const slicepool_cache_range *range) {
  *(slicepool_cache_range *)device->hook_data = *range;
  return SLICEPOOL_OK;
}

static slicepool_allocator *create_with_atom(struct mock_device *device, slicepool_pool_options pool, uint64_t atom,
                                             uint32_t flags) {
  const slicepool_device table = mock_table(device);
  slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
  type.non_coherent_atom = atom;
  slicepool_allocator_config config = config_for(&pool, 1);
  config.memory_types = &type;
  config.memory_type_count = 1;
  config.flags = flags;
  return create_of(&table, config);
}

static void *map(slicepool_allocator *allocator, uint64_t id) {
  void *mapped = NULL;
  OK(slicepool_map(allocator, id, &mapped, NULL));
  CHECK(mapped != NULL);
  return mapped;
}

static void is_not_mapped(slicepool_allocator *allocator, uint64_t id) {
  CHECK_RESULT(slicepool_unmap(allocator, id), SLICEPOOL_ERROR_INVALID_ARGUMENT);
}

/* ---- counts */

static void a_page_is_mapped_once_and_unmapped_by_the_last(void) {
  for (int k = 0; k < KINDS; k++) {
    struct mock_device device;
    mock_init(&device);
    device.on_map = map_at_address;
    device.on_unmap = unmap_where_it_was_mapped;
    slicepool_allocator *allocator = create(&device, kind_of(k).pool);
    const bool shared = !has_whole_pages(kind_of(k).pool);
    const slicepool_slice a = take(allocator, 1000), b = take(allocator, 2000);
    CHECK(!shared || a.memory == b.memory);
    for (int again = 0; again < 3; again++) {
      const uint64_t before = device.map_calls, pages = shared ? 1 : 2;
      is_not_mapped(allocator, a.id);
      const char *at_a = map(allocator, a.id);
      CHECK_EQ(device.map_calls, before + 1);
      CHECK_EQ((uintptr_t)at_a, a.address + 7 * GIB);
      const char *at_b = map(allocator, b.id);
      CHECK_EQ((uintptr_t)at_b, b.address + 7 * GIB);
      CHECK(map(allocator, a.id) == at_a);
      CHECK_EQ(device.map_calls, before + pages);
      /* A slice that comes later lies in a page that is mapped. */
      if (shared) {
        const slicepool_slice c = take(allocator, 500);
        CHECK_EQ((uintptr_t)map(allocator, c.id), c.address + 7 * GIB);
        OK(slicepool_unmap(allocator, c.id));
        OK(slicepool_free(allocator, c.id));
        CHECK_EQ(device.map_calls, before + 1);
      }
      CHECK(look_up(allocator, a.id).mapped == NULL);
      OK(slicepool_unmap(allocator, a.id));
      OK(slicepool_unmap(allocator, b.id));
      CHECK_EQ(device.map_calls - device.unmap_calls, 1);
      OK(slicepool_unmap(allocator, a.id));
      CHECK_EQ(device.map_calls, device.unmap_calls);
      is_not_mapped(allocator, a.id);
      is_not_mapped(allocator, b.id);
    }
    /* A slice that was freed is nobody's to map. */
    void *mapped = NULL;
    OK(slicepool_free(allocator, a.id));
    CHECK_RESULT(slicepool_map(allocator, a.id, &mapped, NULL), SLICEPOOL_ERROR_STALE_HANDLE);
    CHECK_RESULT(slicepool_unmap(allocator, a.id), SLICEPOOL_ERROR_STALE_HANDLE);
    CHECK_RESULT(slicepool_map(allocator, 12345, &mapped, NULL), SLICEPOOL_ERROR_FOREIGN_HANDLE);
    CHECK(mapped == NULL);
    OK(slicepool_free(allocator, b.id));
    finish(allocator, &device);
  }
}

static void a_page_that_goes_back_is_unmapped_whatever_its_count(void) {
  for (int end = 0; end < 5; end++) {
    struct mock_device device;
    mock_init(&device);
    device.on_map = map_at_address;
    slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
    slicepool_request request = SLICEPOOL_REQUEST_INIT;
    request.size = 4096;
    if (end == 4) request.device_data = &device;
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    OK(slicepool_allocate(allocator, &request, &slice));
    for (int i = 0; i < 3; i++) map(allocator, slice.id);
    if (end != 3) OK(slicepool_free(allocator, slice.id));
    CHECK_EQ(device.unmap_calls, 0);
    if (end == 0) OK(slicepool_trim(allocator, 0, NULL));
    if (end == 1) OK(slicepool_cleanup(allocator, NULL));
    if (end == 4) {
      const uint64_t id = take(allocator, 100).id;
      OK(slicepool_free(allocator, id));
      CHECK_EQ(device.unmap_calls, 1);
    }
    if (end < 2) {
      CHECK_EQ(device.unmap_calls, 1);
      CHECK_EQ(device.live, 0);
      /* The page that comes in its place begins anew. */
      const slicepool_slice next = take(allocator, 4096);
      is_not_mapped(allocator, next.id);
      map(allocator, next.id);
      OK(slicepool_unmap(allocator, next.id));
      CHECK_EQ(device.unmap_calls, 2);
      OK(slicepool_free(allocator, next.id));
    }
    OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
    CHECK_EQ(device.map_calls, device.unmap_calls);
    mock_end(&device);
  }
}

/* The device has mapped them for good: they are counted all the same, and the device is not called. */
static void pages_that_come_mapped_are_counted_only(void) {
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  OK(slicepool_host_device(&table));
  CHECK(table.map == NULL && table.unmap == NULL && table.flush == NULL && table.invalidate == NULL);
  const slicepool_pool_options pool = sliced(64 * KIB, 0, 0, 64);
  slicepool_allocator *allocator = create_over(&table, &pool, 1, 0);
  const slicepool_slice a = take(allocator, 1000), b = take(allocator, 1000);
  is_not_mapped(allocator, a.id);
  CHECK(map(allocator, a.id) == a.mapped && map(allocator, b.id) == b.mapped);
  memset(a.mapped, 1, 1000);
  OK(slicepool_flush(allocator, a.id, 0, UINT64_MAX, NULL));
  OK(slicepool_unmap(allocator, a.id));
  OK(slicepool_unmap(allocator, a.id));
  is_not_mapped(allocator, b.id);
  OK(slicepool_free(allocator, a.id));
  OK(slicepool_free(allocator, b.id));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
}

/* ---- devices that cannot, or fail */

static void what_a_device_cannot_do_is_not_supported(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create_with_atom(&device, sliced(4096, 0, 0, 64), 64, 0);
  const uint64_t id = take(allocator, 1000).id;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  void *mapped = NULL;
  CHECK_RESULT(slicepool_map(allocator, id, &mapped, &failure), SLICEPOOL_ERROR_NOT_SUPPORTED);
  CHECK_TEXT(failure.field, "map");
  CHECK(mapped == NULL);
  is_not_mapped(allocator, id);
  CHECK_RESULT(slicepool_flush(allocator, id, 0, 1, &failure), SLICEPOOL_ERROR_NOT_SUPPORTED);
  CHECK_TEXT(failure.field, "flush");
  CHECK_RESULT(slicepool_invalidate(allocator, id, 0, 1, &failure), SLICEPOOL_ERROR_NOT_SUPPORTED);
  OK(slicepool_free(allocator, id));
  finish(allocator, &device);
}

static slicepool_result answer;
static bool fills;

static slicepool_result map_with_answer(struct mock_device *device, const slicepool_device_memory *memory, void **mapped) {
  (void)device;
  if (fills) *mapped = (void *)(uintptr_t)memory->address;
  return answer;
}

static slicepool_result answer_range(struct mock_device *device, const slicepool_cache_range *range) {
  (void)device;
  (void)range;
  return answer;
}

static void callbacks_that_fail_or_answer_nonsense_change_nothing(void) {
  static const struct {
    slicepool_result answer;
    slicepool_result expected;
    uint32_t fault;
  } cases[] = {
    { SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_DEVICE_FAULT_NONE },
    { SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_REPORTED },
    { 12345, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT },
    { 1, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT },
    { -12345, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT },
    { INT32_MIN, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT },
    { INT32_MAX, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT },
    /* Says that it has, and does not. */
    { SLICEPOOL_OK, SLICEPOOL_ERROR_DEVICE_FAILED, SLICEPOOL_DEVICE_FAULT_NOT_FILLED },
  };
  enum { CASES = sizeof cases / sizeof *cases };
  struct mock_device device;
  mock_init(&device);
  device.on_map = map_with_answer;
  device.on_flush = device.on_invalidate = answer_range;
  slicepool_allocator *allocator = create_with_atom(&device, sliced(4096, 0, 0, 64), 64, 0);
  const uint64_t id = take(allocator, 1000).id;
  for (int i = 0; i < CASES; i++) {
    for (int filled = 0; filled < 2; filled++) {
      answer = cases[i].answer;
      fills = filled == 1 && i != CASES - 1;
      slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
      void *mapped = &device;
      CHECK_RESULT(slicepool_map(allocator, id, &mapped, &failure), cases[i].expected);
      CHECK(mapped == &device);
      CHECK_EQ(failure.device_fault, cases[i].fault);
      if (cases[i].fault == SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT) CHECK_EQ(failure.device_code, (uint64_t)(int64_t)answer);
      /* It was not counted, nothing has to be ended, and the next one is asked for anew. */
      is_not_mapped(allocator, id);
      CHECK_EQ(device.unmap_calls, (uint64_t)(i * 2 + filled));
      answer = SLICEPOOL_OK;
      fills = true;
      map(allocator, id);
      OK(slicepool_unmap(allocator, id));
      if (i == CASES - 1) continue;
      answer = cases[i].answer;
      for (int invalidates = 0; invalidates < 2; invalidates++) {
        failure = (slicepool_failure)SLICEPOOL_FAILURE_INIT;
        CHECK_RESULT(invalidates ? slicepool_invalidate(allocator, id, 0, 1, &failure)
                                 : slicepool_flush(allocator, id, 0, 1, &failure),
                     cases[i].expected);
        CHECK_EQ(failure.device_fault, cases[i].fault);
      }
    }
  }
  OK(slicepool_free(allocator, id));
  finish(allocator, &device);
}

/* ---- caches */

static void ranges_are_widened_to_whole_atoms_within_their_slice(void) {
  static const uint64_t atoms[] = { 2, 64, 256, 4096 };
  for (int a = 0; a < 4; a++) {
    slicepool_cache_range told;
    struct mock_device device;
    mock_init(&device);
    device.hook_data = &told;
    device.on_flush = device.on_invalidate = accept_range;
    const uint64_t atom = atoms[a], granule = atom < 64 ? 64 : atom;
    slicepool_allocator *allocator = create_with_atom(&device, sliced(64 * KIB, 0, 0, 64), atom, 0);
    CHECK_EQ(options_in(allocator, 0).granule, granule);
    const slicepool_slice before = take(allocator, 100), slice = take(allocator, 9000), after = take(allocator, 100);
    CHECK_EQ(slice.size % granule, 0);
    uint64_t state = 3, calls = 0;
    for (int i = 0; i < 2000; i++) {
      const uint64_t offset = random_between(&state, 0, slice.size - 1);
      const bool to_the_end = i % 7 == 0;
      const uint64_t size = random_between(&state, 1, slice.size - offset);
      const uint64_t end = to_the_end ? slice.size : offset + size;
      memset(&told, 0, sizeof told);
      if (i % 2 == 0) OK(slicepool_flush(allocator, slice.id, offset, to_the_end ? UINT64_MAX : size, NULL));
      else OK(slicepool_invalidate(allocator, slice.id, offset, to_the_end ? UINT64_MAX : size, NULL));
      calls++;
      CHECK_EQ(device.flush_calls + device.invalidate_calls, calls);
      CHECK_EQ(told.memory, slice.memory);
      CHECK_EQ(told.offset, (slice.offset + offset) / atom * atom);
      CHECK_EQ(told.offset + told.size, (slice.offset + end + atom - 1) / atom * atom);
      CHECK(told.offset >= slice.offset && told.offset + told.size <= slice.offset + slice.size);
    }
    CHECK_EQ(device.flush_calls, 1000);
    /* Nothing is not told; and what is not in the slice is refused. */
    OK(slicepool_flush(allocator, slice.id, 0, 0, NULL));
    OK(slicepool_flush(allocator, slice.id, slice.size, 0, NULL));
    OK(slicepool_flush(allocator, slice.id, slice.size, UINT64_MAX, NULL));
    static const uint64_t far[] = { 1, 4096, UINT64_MAX / 2, UINT64_MAX - 100000 };
    for (int i = 0; i < 4; i++) {
      slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
      CHECK_RESULT(slicepool_flush(allocator, slice.id, slice.size + far[i], 0, &failure),
                   SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "offset");
      CHECK_EQ(failure.value, slice.size + far[i]);
      CHECK_RESULT(slicepool_invalidate(allocator, slice.id, 100, slice.size - 100 + far[i], &failure),
                   SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "size");
    }
    CHECK_RESULT(slicepool_flush(allocator, slice.id, UINT64_MAX, UINT64_MAX, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(device.flush_calls + device.invalidate_calls, calls);
    const uint64_t ids[3] = { before.id, slice.id, after.id };
    OK(slicepool_free_many(allocator, ids, 3, NULL));
    CHECK_RESULT(slicepool_flush(allocator, slice.id, 0, 1, NULL), SLICEPOOL_ERROR_STALE_HANDLE);
    CHECK_RESULT(slicepool_invalidate(allocator, slice.id, 0, 1, NULL), SLICEPOOL_ERROR_STALE_HANDLE);
    finish(allocator, &device);
  }
}

static void coherent_memory_is_never_flushed(void) {
  for (uint64_t atom = 0; atom < 2; atom++) {
    slicepool_cache_range told;
    struct mock_device device;
    mock_init(&device);
    device.hook_data = &told;
    device.on_flush = device.on_invalidate = accept_range;
    slicepool_allocator *allocator = create_with_atom(&device, sliced(4096, 0, 0, 64), atom, 0);
    const uint64_t id = take(allocator, 1000).id;
    OK(slicepool_flush(allocator, id, 0, UINT64_MAX, NULL));
    OK(slicepool_invalidate(allocator, id, 10, 20, NULL));
    CHECK_RESULT(slicepool_flush(allocator, id, 2000, 1, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(device.flush_calls + device.invalidate_calls, 0);
    OK(slicepool_free(allocator, id));
    finish(allocator, &device);
  }
}

static void a_slice_of_a_dry_run_is_mapped_when_it_has_memory(void) {
  slicepool_cache_range told;
  struct mock_device device;
  mock_init(&device);
  device.hook_data = &told;
  device.on_map = map_at_address;
  device.on_flush = device.on_invalidate = accept_range;
  slicepool_allocator *allocator =
      create_with_atom(&device, sliced(4096, 0, 0, 64), 64, SLICEPOOL_ALLOCATOR_DRY_RUN);
  slicepool_slice slice = take(allocator, 1000);
  void *mapped = NULL;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_map(allocator, slice.id, &mapped, &failure), SLICEPOOL_ERROR_MAPPING_FAILED);
  CHECK_EQ(failure.size, 4096);
  OK(slicepool_flush(allocator, slice.id, 0, 100, NULL));
  CHECK_EQ(device.map_calls + device.flush_calls, 0);
  OK(slicepool_resolve(allocator, slice.id, &slice, NULL));
  CHECK_EQ((uintptr_t)map(allocator, slice.id), slice.address + 7 * GIB);
  OK(slicepool_flush(allocator, slice.id, 0, 100, NULL));
  CHECK_EQ(device.flush_calls, 1);
  OK(slicepool_unmap(allocator, slice.id));
  OK(slicepool_free(allocator, slice.id));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  mock_end(&device);
}

/* ---- threads: the mock device checks that no page is mapped twice, and none that goes back */

static slicepool_result map_slowly(struct mock_device *device, const slicepool_device_memory *memory, void **mapped) {
  sched_yield();
  return map_at_address(device, memory, mapped);
}

static void unmap_slowly(struct mock_device *device, const slicepool_device_memory *memory) {
  (void)device;
  (void)memory;
  sched_yield();
}

enum { THREADS = 4 };

struct worker {
  slicepool_allocator *allocator;
  uint64_t seed, shared, maps;
};

static void *map_and_unmap(void *argument) {
  struct worker *worker = argument;
  const slicepool_slice own = take(worker->allocator, 1000);
  for (uint64_t i = 0; i < rounds(4000); i++) {
    const uint64_t id = random_between(&worker->seed, 0, 1) == 0 ? own.id : worker->shared;
    const slicepool_slice slice = look_up(worker->allocator, id);
    CHECK_EQ((uintptr_t)map(worker->allocator, id), slice.address + 7 * GIB);
    worker->maps++;
    if (random_between(&worker->seed, 0, 3) == 0) sched_yield();
    OK(slicepool_unmap(worker->allocator, id));
    /* A page of its own, which goes back while others are at theirs. */
    if (i % 16 == 0) {
      const slicepool_slice page = take(worker->allocator, 64 * KIB);
      map(worker->allocator, page.id);
      OK(slicepool_free(worker->allocator, page.id));
      OK(slicepool_trim(worker->allocator, 0, NULL));
    }
  }
  OK(slicepool_free(worker->allocator, own.id));
  return NULL;
}

static void threads_that_map_slices_of_one_page_wait_for_each_other(void) {
  struct mock_device device;
  mock_init(&device);
  device.on_map = map_slowly;
  device.on_unmap = unmap_slowly;
  slicepool_allocator *allocator = create(&device, sliced(64 * KIB, 0, 0, 64));
  const uint64_t shared = take(allocator, 1000).id;
  struct worker workers[THREADS];
  pthread_t threads[THREADS];
  for (uint64_t i = 0; i < THREADS; i++) {
    workers[i] = (struct worker){ allocator, i, shared, 0 };
    CHECK(pthread_create(&threads[i], NULL, map_and_unmap, &workers[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  is_not_mapped(allocator, shared);
  OK(slicepool_free(allocator, shared));
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_EQ(device.map_calls, device.unmap_calls);
  CHECK_LE(device.map_calls, workers[0].maps + workers[1].maps + workers[2].maps + workers[3].maps + device.given);
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(a_page_is_mapped_once_and_unmapped_by_the_last),
  TEST(a_page_that_goes_back_is_unmapped_whatever_its_count),
  TEST(pages_that_come_mapped_are_counted_only),
  TEST(what_a_device_cannot_do_is_not_supported),
  TEST(callbacks_that_fail_or_answer_nonsense_change_nothing),
  TEST(ranges_are_widened_to_whole_atoms_within_their_slice),
  TEST(coherent_memory_is_never_flushed),
  TEST(a_slice_of_a_dry_run_is_mapped_when_it_has_memory),
  TEST(threads_that_map_slices_of_one_page_wait_for_each_other),
};

TEST_MAIN(tests)
