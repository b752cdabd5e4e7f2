/* Memory types and heaps: how they are described, which of them serves a request, what each refuses it with. */
#include "check.h"
#include "world.h"

/* ---- descriptions */

enum { CALLS = 4 };

/* A config in every call that reads one; all answer the same, but that which lists pools does not look at those it is
 * given. */
static slicepool_result judge_pools(struct mock_device *device, slicepool_allocator_config config, bool looks_at_pools,
                                    slicepool_failure *failure) {
  static unsigned char block[262144];
  const slicepool_device table = mock_table(device);
  slicepool_result results[CALLS];
  slicepool_failure failures[CALLS];
  for (int call = 0; call < (looks_at_pools ? CALLS - 1 : CALLS); call++) {
    failures[call] = (slicepool_failure)SLICEPOOL_FAILURE_INIT;
    config.failure = &failures[call];
    slicepool_allocator *allocator = NULL;
    uint64_t bytes = 0;
    uint32_t count = 0;
    results[call] = call == 0   ? slicepool_allocator_create(&table, &config, &allocator)
                    : call == 1 ? slicepool_allocator_create_in(&table, &config, block, sizeof block, &allocator)
                    : call == 2 ? slicepool_allocator_bytes_needed(&config, 1, 1, 0, &bytes)
                                : slicepool_config_pools(&config, NULL, 0, &count);
    if (allocator != NULL) OK(slicepool_allocator_destroy(allocator, 0, NULL));
    CHECK(results[call] == SLICEPOOL_OK || (allocator == NULL && bytes == 0 && count == 0));
    if (call == 0) continue;
    CHECK_RESULT(results[call], results[0]);
    if (failures[0].field == NULL) continue;
    CHECK_TEXT(failures[call].field, failures[0].field);
    CHECK_EQ(failures[call].value, failures[0].value);
  }
  *failure = failures[0];
  return results[0];
}

static slicepool_result judge(struct mock_device *device, slicepool_allocator_config config, slicepool_failure *failure) {
  return judge_pools(device, config, false, failure);
}

static void types_heaps_and_pools_that_cannot_be_are_refused_by_name(void) {
  struct mock_device device;
  mock_init(&device);
  static slicepool_memory_type types[33];
  static slicepool_heap heaps[33];
  static const slicepool_allocation_sizes sizes = SLICEPOOL_ALLOCATION_SIZES_INIT;
  static const struct {
    const char *field;
    uint64_t value;
  } cases[] = {
    { "memory_type_count", 33 }, { "memory_type_count", UINT32_MAX }, { "memory_types", 0 },
    { "heap", 2 },               { "heap", UINT32_MAX },              { "heap_count", 33 },
    { "heap_count", UINT32_MAX }, { "heaps", 0 },                     { "heap_count", 1 },
    { "max_page", MIB },         { "page_alignment", 256 },           { "heap_size", GIB },
    { "pool_count", 1 },         { "granularity", 3 },                { "granularity", UINT64_C(1) << 33 },
    { "non_coherent_atom", 96 }, { "non_coherent_atom", UINT64_C(1) << 33 }, { "page_alignment", 3 },
    { "memory_type", 2 },        { "memory_type", UINT32_MAX },       { "heap", 1 },
    { NULL, 0 },                 { NULL, 1 },                         { NULL, 2 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    for (int t = 0; t < 33; t++) types[t] = type_in(0, 0);
    for (int h = 0; h < 33; h++) heaps[h] = heap_of(0, 0);
    slicepool_pool_options pool = sliced(4096, 0, 0, 64);
    slicepool_allocator_config config = config_for(&pool, 1);
    config.memory_types = types;
    config.memory_type_count = 2;
    config.heaps = heaps;
    config.heap_count = 2;
    switch (i) {
      case 0: config.memory_type_count = 33; break;
      case 1: config.memory_type_count = UINT32_MAX; break;
      case 2: config.memory_types = NULL; break;
      case 3: types[1].heap = 2; break;
      case 4: types[0].heap = UINT32_MAX; break;
      case 5: config.heap_count = 33; break;
      case 6: config.heap_count = UINT32_MAX; break;
      case 7: config.heaps = NULL; break;
      case 8: config.memory_type_count = 0; config.heap_count = 1; break;
      case 9: config.max_page = MIB; break;
      case 10: config.page_alignment = 256; break;
      case 11: config.heap_size = GIB; break;
      case 12: config.blocks = &sizes; break;
      case 13: types[1].granularity = 3; break;
      case 14: types[1].granularity = UINT64_C(1) << 33; break;
      case 15: types[1].non_coherent_atom = 96; break;
      case 16: types[1].non_coherent_atom = UINT64_C(1) << 33; break;
      case 17: types[1].page_alignment = 3; break;
      case 18: pool.memory_type = 2; break;
      case 19: pool.memory_type = UINT32_MAX; break;
      case 20: config.heap_count = 0; config.heaps = NULL; types[1].heap = 1; break;
      /* And the most that may be. */
      case 21: config.memory_type_count = 32; config.heap_count = 32; types[31].heap = 31; break;
      case 22: config.heap_count = 0; config.heaps = NULL; pool.memory_type = 1; break;
      default: types[1].granularity = types[1].non_coherent_atom = UINT64_C(1) << 32; break;
    }
    slicepool_failure failure;
    const slicepool_result result = judge_pools(&device, config, i == 18 || i == 19, &failure);
    if (cases[i].field == NULL) {
      OK(result);
      continue;
    }
    CHECK_RESULT(result, SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, cases[i].field);
    CHECK_EQ(failure.value, cases[i].value);
  }
  CHECK_EQ(device.allocate_calls, 0);
  mock_end(&device);
}

static void what_is_not_said_of_a_type_is_its_default(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_device table = mock_table(&device);
  const slicepool_memory_type types[1] = { SLICEPOOL_MEMORY_TYPE_INIT };
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.memory_types = types;
  config.memory_type_count = 1;
  slicepool_allocator *allocator = create_of(&table, config);
  CHECK_EQ(figures_of(allocator).pools, 2);
  CHECK_EQ(options_in(allocator, 0).granule, 256);
  CHECK_EQ(options_in(allocator, 0).kinds, SLICEPOOL_KINDS_BOTH);
  const slicepool_slice slice = take_aligned(allocator, 4 * GIB, 4096);
  CHECK_EQ(device.last_alignment, 4096);
  CHECK_EQ(device.last_type, 0);
  CHECK_EQ(refused(allocator, 1, 8192, SLICEPOOL_ERROR_INVALID_ARGUMENT).value, 8192);
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  CHECK_RESULT(slicepool_heap_statistics_get(allocator, 1, &figures, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  OK(slicepool_heap_statistics_get(allocator, 0, &figures, NULL));
  CHECK_EQ(figures.in_use_bytes, 4 * GIB);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

/* Arrays of a newer caller have longer elements, of an older one shorter: the first says how long. */
static void arrays_are_read_by_the_size_of_their_first_element(void) {
  struct mock_device device;
  mock_init(&device);
  struct {
    slicepool_memory_type type;
    uint64_t more;
  } types[3] = { { type_in(0, 1), 0 }, { type_in(1, 2), 0 }, { type_in(0, 4), 0 } };
  struct {
    slicepool_heap heap;
    uint64_t more[2];
  } heaps[2] = { { heap_of(GIB, 0), { 0, 0 } }, { heap_of(2 * GIB, 0), { 0, 0 } } };
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_failure failure;
  for (int i = 0; i < 3; i++) types[i].type.struct_size = sizeof types[0];
  for (int i = 0; i < 2; i++) heaps[i].heap.struct_size = sizeof heaps[0];
  config.memory_types = &types[0].type;
  config.memory_type_count = 3;
  config.heaps = &heaps[0].heap;
  config.heap_count = 2;
  const slicepool_device table = mock_table(&device);
  slicepool_allocator *allocator = create_of(&table, config);
  slicepool_request request = request_of(1000);
  for (uint32_t i = 0; i < 3; i++) {
    request.required = UINT32_C(1) << i;
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    OK(slicepool_allocate(allocator, &request, &slice));
    CHECK_EQ(device.last_type, i);
    OK(slicepool_free(allocator, slice.id));
  }
  finish(allocator, &device);
  mock_init(&device);

  types[2].more = 1;
  CHECK_RESULT(judge(&device, config, &failure), SLICEPOOL_ERROR_VERSION_MISMATCH);
  types[2].more = 0;
  heaps[1].more[1] = 1;
  CHECK_RESULT(judge(&device, config, &failure), SLICEPOOL_ERROR_VERSION_MISMATCH);
  heaps[1].more[1] = 0;
  types[1].type.struct_size -= 8;
  CHECK_RESULT(judge(&device, config, &failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "struct_size");
  CHECK_EQ(failure.value, sizeof types[0] - 8);
  types[1].type.struct_size += 8;
  heaps[1].heap.struct_size += 8;
  CHECK_RESULT(judge(&device, config, &failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "struct_size");
  CHECK_EQ(failure.value, sizeof heaps[0] + 8);
  static const uint32_t sizes[] = { 0, 1, 4, 7, 12, 0x80000000, 0xFFFFFFF8 };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    types[0].type.struct_size = sizes[i];
    CHECK_RESULT(judge(&device, config, &failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "struct_size");
    CHECK_EQ(failure.value, sizes[i]);
  }

  /* Two types and two heaps of 16 bytes each, right before an inaccessible page. */
  uint64_t old_types[4] = { 0 }, old_heaps[4] = { 0 };
  for (uint32_t i = 0; i < 2; i++) {
    const uint32_t words[2] = { 16, i };
    const uint64_t max_page = MIB, size = GIB;
    memcpy(&old_types[i * 2], words, 8);
    memcpy(&old_types[i * 2 + 1], &max_page, 8);
    const uint32_t heap_words[2] = { 16, 0 };
    memcpy(&old_heaps[i * 2], heap_words, 8);
    memcpy(&old_heaps[i * 2 + 1], &size, 8);
  }
  const slicepool_pool_options pool = of_type(sliced(MIB, 0, 0, 64), 1);
  config = config_for(&pool, 1);
  config.flags = SLICEPOOL_ALLOCATOR_VALIDATE;
  config.memory_types = copy_before_the_wall(old_types, sizeof old_types);
  config.memory_type_count = 2;
  config.heaps = copy_before_the_wall(old_heaps, sizeof old_heaps);
  config.heap_count = 2;
  OK(judge(&device, config, &failure));
  mock_end(&device);
}

/* ---- choice */

/* A pool of 64 KiB pages in each memory type. */
static slicepool_allocator *create_types(struct mock_device *device, const slicepool_memory_type *types, uint32_t count,
                                         const slicepool_heap *heaps, uint32_t heap_count) {
  static slicepool_pool_options pools[32];
  const slicepool_device table = mock_table(device);
  for (uint32_t i = 0; i < count; i++) pools[i] = of_type(sliced(64 * KIB, 0, 0, 64), i);
  slicepool_allocator_config config = config_for(pools, count);
  config.memory_types = types;
  config.memory_type_count = count;
  config.heaps = heaps;
  config.heap_count = heap_count;
  return create_of(&table, config);
}

/* The memory type that serves a request; 99 if none does. */
static uint32_t type_for(slicepool_allocator *allocator, slicepool_request request) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  request.size = 100;
  request.failure = &failure;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  uint32_t fits = 7;
  const slicepool_result looked = slicepool_would_fit(allocator, &request, &fits);
  const slicepool_result result = slicepool_allocate(allocator, &request, &slice);
  if (result != SLICEPOOL_OK) {
    CHECK_RESULT(result, SLICEPOOL_ERROR_NOT_SUPPORTED);
    CHECK_RESULT(looked, SLICEPOOL_ERROR_NOT_SUPPORTED);
    CHECK_TEXT(failure.field, "memory_types");
    return 99;
  }
  const uint32_t type = find_in(allocator, slice.memory, slice.offset).memory_type;
  OK(slicepool_free(allocator, slice.id));
  return type;
}

static void a_request_chooses_by_position_and_by_properties(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_memory_type types[5] = { type_in(0, 1), type_in(0, 2), type_in(0, 3), type_in(0, 6), type_in(0, 6) };
  slicepool_allocator *allocator = create_types(&device, types, 5, NULL, 0);
  static const struct {
    uint32_t memory_types, required, preferred, forbidden, expected;
  } cases[] = {
    { 0, 0, 0, 0, 0 },           { 2, 0, 0, 0, 1 },          { 24, 0, 0, 0, 3 },     { 16, 0, 0, 0, 4 },
    { 0, 2, 0, 0, 1 },           { 0, 3, 0, 0, 2 },          { 0, 4, 0, 0, 3 },      { 0, 8, 0, 0, 99 },
    { 0, 0, 0, 1, 1 },           { 0, 0, 0, 3, 99 },         { 0, 2, 0, 4, 1 },      { 0, 2, 0, 5, 1 },
    { 0, 0, 4, 0, 3 },           { 0, 0, 3, 0, 2 },          { 0, 0, 7, 0, 2 },      { 0, 0, 6, 0, 3 },
    { 7, 0, 4, 0, 0 },           { 0, 0, 12, 0, 3 },         { 0, 0, 1, 2, 0 },      { 3, 4, 0, 0, 99 },
    { 32, 0, 0, 0, 99 },         { UINT32_MAX, 0, 0, 0, 0 }, { 0, 0, UINT32_MAX, 0, 2 }, { 0, UINT32_MAX, 0, 0, 99 },
    { 0x80000000, 0, 0, 0, 99 }, { 0, 0, 0x80000000, 0, 0 }, { 6, 0, 1, 0, 2 },      { 16, 0, 1, 0, 4 },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    slicepool_request request = request_of(100);
    request.memory_types = cases[i].memory_types;
    request.required = cases[i].required;
    request.preferred = cases[i].preferred;
    request.forbidden = cases[i].forbidden;
    const uint32_t type = type_for(allocator, request);
    if (type != cases[i].expected) FAIL("case %d is served by type %" PRIu32, (int)i, type);
    /* Slices with pages of their own choose alike. */
    request.flags = SLICEPOOL_REQUEST_DEDICATED;
    CHECK_EQ(type_for(allocator, request), cases[i].expected);
  }
  /* A pool that is named is in one memory type, which must suit. */
  slicepool_request request = request_of(100);
  request.flags = SLICEPOOL_REQUEST_IN_POOL;
  request.pool = 3;
  CHECK_EQ(type_for(allocator, request), 3);
  request.forbidden = 1;
  CHECK_EQ(type_for(allocator, request), 3);
  request.forbidden = 2;
  CHECK_EQ(type_for(allocator, request), 99);
  finish(allocator, &device);
}

static void a_request_falls_through_to_the_next_type_and_is_refused_with_the_reasons_of_all(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_memory_type types[4] = { type_in(0, 1), type_in(1, 1), type_in(1, 1), type_in(2, 0) };
  const slicepool_heap heaps[3] = { heap_of(0, 64 * KIB), heap_of(0, 0), heap_of(0, 0) };
  const slicepool_pool_options pools[4] = { of_type(sliced(64 * KIB, 0, 0, 64), 0),
                                            of_type(sliced(64 * KIB, 0, 64 * KIB, 64), 1),
                                            of_type(sliced(32 * KIB, 0, 0, 64), 2),
                                            of_type(sliced(64 * KIB, 0, 0, 64), 3) };
  const slicepool_device table = mock_table(&device);
  slicepool_allocator_config config = config_for(pools, 4);
  config.memory_types = types;
  config.memory_type_count = 4;
  config.heaps = heaps;
  config.heap_count = 3;
  slicepool_allocator *allocator = create_of(&table, config);
  slicepool_request request = request_of(48 * KIB);
  request.preferred = 1;
  uint64_t ids[3];
  static const uint32_t expected[3] = { 0, 1, 3 };
  for (int i = 0; i < 3; i++) {
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    OK(slicepool_allocate(allocator, &request, &slice));
    ids[i] = slice.id;
    CHECK_EQ(find_in(allocator, slice.memory, slice.offset).memory_type, expected[i]);
  }
  device.capacity = device.bytes;
  device.device_code = -77;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.failure = &failure;
  const uint64_t calls = device.allocate_calls;
  CHECK_RESULT(slicepool_allocate(allocator, &request, &slice), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(failure.device_code, -77);
  CHECK_EQ(failure.type_results[0], (uint64_t)(int64_t)SLICEPOOL_ERROR_BUDGET_EXCEEDED);
  CHECK_EQ(failure.type_results[1], (uint64_t)(int64_t)SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(failure.type_results[2], (uint64_t)(int64_t)SLICEPOOL_ERROR_TOO_LARGE);
  CHECK_EQ(failure.type_results[3], (uint64_t)(int64_t)SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  for (int i = 4; i < 32; i++) CHECK_EQ(failure.type_results[i], 0);
  CHECK_EQ(device.allocate_calls, calls + 1);
  /* Types that are not tried have no reason; and neither have those of other failures. */
  request.memory_types = 6;
  CHECK_RESULT(slicepool_allocate(allocator, &request, &slice), SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(failure.type_results[0], 0);
  CHECK_EQ(failure.type_results[1], (uint64_t)(int64_t)SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(failure.type_results[2], (uint64_t)(int64_t)SLICEPOOL_ERROR_TOO_LARGE);
  CHECK_EQ(failure.type_results[3], 0);
  CHECK_RESULT(slicepool_free_many(allocator, &(uint64_t){ 12345 }, 1, &failure), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  CHECK_EQ(failure.type_results[1], 0);
  /* A free helps where it was. */
  OK(slicepool_free(allocator, ids[0]));
  request.memory_types = 0;
  OK(slicepool_allocate(allocator, &request, &slice));
  CHECK_EQ(find_in(allocator, slice.memory, slice.offset).memory_type, 0);
  const uint64_t rest[3] = { slice.id, ids[1], ids[2] };
  OK(slicepool_free_many(allocator, rest, 3, NULL));
  finish(allocator, &device);
}

/* ---- limits */

static void a_heap_is_held_to_its_limit_and_named_in_the_refusal(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_memory_type types[2] = { type_in(1, 0), type_in(1, 0) };
  const slicepool_heap heaps[2] = { heap_of(0, 0), heap_of(MIB, 128 * KIB) };
  slicepool_allocator *allocator = create_types(&device, types, 2, heaps, 2);
  const uint64_t ids[2] = { take_in(allocator, 0, 64 * KIB).id, take_in(allocator, 1, 64 * KIB).id };
  const uint64_t calls = mock_calls(&device);
  slicepool_failure failure = refused(allocator, 64 * KIB, 0, SLICEPOOL_ERROR_BUDGET_EXCEEDED);
  CHECK_TEXT(failure.field, "heap");
  CHECK_EQ(failure.value, 1);
  CHECK_EQ(failure.limit, 128 * KIB);
  CHECK_EQ(failure.in_use, 128 * KIB);
  CHECK_EQ(failure.size, 64 * KIB);
  /* What the heap can never give is too large. */
  failure = refused(allocator, MIB + 1, 0, SLICEPOOL_ERROR_TOO_LARGE);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  CHECK_RESULT(try_take_flagged(allocator, MIB + 1, SLICEPOOL_REQUEST_DEDICATED, &slice, &failure),
               SLICEPOOL_ERROR_TOO_LARGE);
  CHECK_EQ(failure.limit, MIB);
  CHECK_EQ(mock_calls(&device), calls);
  OK(slicepool_free_many(allocator, ids, 2, NULL));
  finish(allocator, &device);
}

static void pages_are_counted_on_every_path(void) {
  for (int path = 0; path < 7; path++) {
    struct mock_device device;
    mock_init(&device);
    const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
    slicepool_allocator *allocator = create_limited(&device, &pool, 1, 0, 16);
    OK(slicepool_prefill(allocator, 0, 10, NULL));
    uint64_t ids[16];
    for (int i = 0; i < 10; i++) ids[i] = take(allocator, 4096).id;
    for (int i = 10; i < 16; i++) ids[i] = take_flagged(allocator, 5000, SLICEPOOL_REQUEST_DEDICATED).id;
    const uint64_t calls = mock_calls(&device);
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    slicepool_request request = request_of(4096);
    slicepool_device_memory memory = SLICEPOOL_DEVICE_MEMORY_INIT;
    memory.handle = 5;
    memory.size = 4096;
    request.failure = &failure;
    slicepool_result result = SLICEPOOL_OK;
    switch (path) {
      case 1: request.flags = SLICEPOOL_REQUEST_DEDICATED; break;
      case 2: request.device_data = &device; break;
      case 3: request.flags = SLICEPOOL_REQUEST_PERSISTENT; break;
      case 4: result = slicepool_adopt(allocator, 0, &memory, &failure); break;
      case 5: result = slicepool_prefill(allocator, 0, 11, &failure); break;
      case 6: result = slicepool_allocate_many(allocator, &request, 1, &slice); break;
      default: break;
    }
    if (path < 4) result = slicepool_allocate(allocator, &request, &slice);
    CHECK_RESULT(result, SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED);
    CHECK_EQ(failure.limit, 16);
    CHECK_EQ(mock_calls(&device), calls);
    OK(slicepool_free_many(allocator, ids, 16, NULL));
    finish(allocator, &device);
  }
}

static slicepool_result tell_budget(struct mock_device *device, uint32_t heap, slicepool_heap_budget *budget) {
  const uint64_t *budgets = device->hook_data;
  if (budgets[heap] == 0) return SLICEPOOL_ERROR_NOT_SUPPORTED;
  budget->usage = device->bytes + 1000;
  budget->budget = budgets[heap];
  return SLICEPOOL_OK;
}

static void within_its_budget_a_heap_is_asked_what_it_has_left(void) {
  for (int with_callback = 0; with_callback < 2; with_callback++) {
    struct mock_device device;
    uint64_t budgets[2] = { 200 * KIB, 0 };
    mock_init(&device);
    device.hook_data = budgets;
    if (with_callback) device.on_budget = tell_budget;
    const slicepool_memory_type types[2] = { type_in(0, 0), type_in(1, 1) };
    const slicepool_heap heaps[2] = { heap_of(GIB, 0), heap_of(128 * KIB, 0) };
    slicepool_allocator *allocator = create_types(&device, types, 2, heaps, 2);
    slicepool_request request = request_of(64 * KIB);
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    request.flags = SLICEPOOL_REQUEST_WITHIN_BUDGET;
    request.memory_types = 1;
    request.failure = &failure;
    uint64_t ids[7];
    for (int i = 0; i < 3; i++) {
      slicepool_slice slice = SLICEPOOL_SLICE_INIT;
      OK(slicepool_allocate(allocator, &request, &slice));
      ids[i] = slice.id;
    }
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    const uint64_t calls = device.allocate_calls;
    if (with_callback) {
      /* 192 KiB and 1000 bytes are used of 200 KiB. */
      CHECK_RESULT(slicepool_allocate(allocator, &request, &slice), SLICEPOOL_ERROR_BUDGET_EXCEEDED);
      CHECK_TEXT(failure.field, "heap");
      CHECK_EQ(failure.value, 0);
      CHECK_EQ(failure.limit, 200 * KIB);
      CHECK_EQ(failure.in_use, 192 * KIB + 1000);
      CHECK_EQ(device.allocate_calls, calls);
      /* Memory that is held serves all the same. */
      OK(slicepool_free(allocator, ids[2]));
      OK(slicepool_allocate(allocator, &request, &slice));
      ids[2] = slice.id;
    }
    /* Others are not held to it. */
    request.flags = 0;
    OK(slicepool_allocate(allocator, &request, &slice));
    ids[3] = slice.id;
    /* Where the device says nothing, the heap's size counts. */
    request.flags = SLICEPOOL_REQUEST_WITHIN_BUDGET;
    request.memory_types = 2;
    for (int i = 4; i < 6; i++) {
      OK(slicepool_allocate(allocator, &request, &slice));
      ids[i] = slice.id;
    }
    CHECK_RESULT(slicepool_allocate(allocator, &request, &slice), SLICEPOOL_ERROR_BUDGET_EXCEEDED);
    CHECK_EQ(failure.value, 1);
    CHECK_EQ(failure.limit, 128 * KIB);
    CHECK_EQ(failure.in_use, 128 * KIB);
    request.flags = 0;
    OK(slicepool_allocate(allocator, &request, &slice));
    ids[6] = slice.id;
    CHECK_EQ(device.budget_calls != 0, with_callback);
    OK(slicepool_free_many(allocator, ids, 7, NULL));
    finish(allocator, &device);
  }
}

/* ---- figures */

static void types_and_heaps_have_figures_of_their_own(void) {
  struct mock_device device;
  uint64_t budgets[2] = { 5 * MIB, 0 };
  mock_init(&device);
  device.hook_data = budgets;
  device.on_budget = tell_budget;
  const slicepool_memory_type types[3] = { type_in(0, 1), type_in(1, 2), type_in(0, 4) };
  const slicepool_heap heaps[2] = { heap_of(0, 0), heap_of(0, 0) };
  slicepool_allocator *allocator = create_types(&device, types, 3, heaps, 2);
  const uint64_t ids[4] = { take_in(allocator, 0, 1000).id, take_in(allocator, 1, 2000).id,
                            take_in(allocator, 2, 3000).id, take_flagged(allocator, 500, SLICEPOOL_REQUEST_DEDICATED).id };
  static const uint64_t in_use[3] = { 1500, 2000, 3000 };
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  for (uint32_t i = 0; i < 3; i++) {
    OK(slicepool_type_statistics_get(allocator, i, &figures));
    CHECK_EQ(figures.in_use_bytes, in_use[i]);
    CHECK_EQ(figures.reserved_bytes, 64 * KIB + (i == 0 ? 512 : 0));
    CHECK_EQ(figures.slices, i == 0 ? 2 : 1);
    CHECK_EQ(figures.pools, 1);
    CHECK_EQ(figures.device_allocations, i == 0 ? 2 : 1);
  }
  slicepool_heap_budget budget = SLICEPOOL_HEAP_BUDGET_INIT;
  OK(slicepool_heap_statistics_get(allocator, 0, &figures, &budget));
  CHECK_EQ(figures.in_use_bytes, 4500);
  CHECK_EQ(figures.pools, 0);
  CHECK_EQ(figures.reserved_bytes, 128 * KIB + 512);
  CHECK_EQ(budget.usage, device.bytes + 1000);
  CHECK_EQ(budget.budget, 5 * MIB);
  OK(slicepool_heap_statistics_get(allocator, 1, &figures, &budget));
  CHECK_EQ(figures.in_use_bytes, 2000);
  CHECK(budget.usage == 0 && budget.budget == UINT64_MAX && budget.reserved == 0);
  OK(slicepool_free_many(allocator, ids, 4, NULL));
  OK(slicepool_cleanup(allocator, NULL));
  /* Peaks stay. */
  OK(slicepool_type_statistics_get(allocator, 1, &figures));
  CHECK_EQ(figures.reserved_peak_bytes, 64 * KIB);
  CHECK_EQ(figures.reserved_bytes, 0);
  OK(slicepool_heap_statistics_get(allocator, 0, &figures, NULL));
  CHECK_EQ(figures.reserved_peak_bytes, 128 * KIB + 512);
  CHECK_EQ(figures.pages_peak, 3);
  static const uint32_t wrong[] = { 3, 32, UINT32_MAX };
  for (int i = 0; i < 3; i++) {
    fill_pattern(&figures, sizeof figures);
    figures.struct_size = sizeof figures;
    CHECK_RESULT(slicepool_type_statistics_get(allocator, wrong[i], &figures), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_RESULT(slicepool_heap_statistics_get(allocator, wrong[i] - 1, &figures, &budget),
                 SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK(is_pattern(&figures, 4, sizeof figures));
  }
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(types_heaps_and_pools_that_cannot_be_are_refused_by_name),
  TEST(what_is_not_said_of_a_type_is_its_default),
  TEST(arrays_are_read_by_the_size_of_their_first_element),
  TEST(a_request_chooses_by_position_and_by_properties),
  TEST(a_request_falls_through_to_the_next_type_and_is_refused_with_the_reasons_of_all),
  TEST(a_heap_is_held_to_its_limit_and_named_in_the_refusal),
  TEST(pages_are_counted_on_every_path),
  TEST(within_its_budget_a_heap_is_asked_what_it_has_left),
  TEST(types_and_heaps_have_figures_of_their_own),
};

TEST_MAIN(tests)
