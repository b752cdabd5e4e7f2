/* Pages that come otherwise than by a request: handed over, taken beforehand; and pages of one slice alone. */
#include "check.h"
#include "shorthand.h"

/* Memory of the program's own that the device takes back as it takes its own. */
static slicepool_device_memory own_memory(struct mock_device *device, uint64_t size, uint64_t misaligned_by) {
  slicepool_page_request request = { .struct_size = sizeof request, .size = size, .alignment = 65536 };
  slicepool_device_memory memory = SLICEPOOL_DEVICE_MEMORY_INIT;
  memory.handle = UINT64_MAX;
  memory.size = size;
  device->misalign_by = misaligned_by;
  OK(mock_allocate(device, &request, &memory));
  device->misalign_by = 0;
  device->allocate_calls--;
  memory.struct_size = sizeof memory;
  memory.size = size;
  return memory;
}

/* The program gives up what it kept. */
static void drop_memory(struct mock_device *device, slicepool_device_memory memory) {
  OK(mock_deallocate(device, &memory));
  device->deallocate_calls--;
  device->given--;
  device->taken--;
}

/* ---- adopting */

static void memory_of_the_programs_own_becomes_a_page_and_goes_to_the_device_with_its_context(void) {
  for (int k = 0; k < 3; k++) {
    struct mock_device device;
    mock_init(&device);
    const slicepool_pool_options pools[3] = { sliced(64 * KIB, 0, 0, 64), growing(64 * KIB, MIB, 64), direct(0, 64) };
    slicepool_allocator *allocator = create(&device, pools[k]);
    const slicepool_device_memory memory = own_memory(&device, 64 * KIB, 0);
    OK(slicepool_adopt(allocator, 0, &memory, NULL));
    CHECK_EQ(figures_of(allocator).reserved_bytes, 64 * KIB);
    CHECK_EQ(figures_of(allocator).pages_idle, 1);
    CHECK_EQ(device.allocate_calls, 0);
    check_books(allocator, &device);
    const slicepool_slice slice = take(allocator, 64 * KIB);
    CHECK_EQ(slice.memory, memory.handle);
    CHECK_EQ(slice.address, memory.address);
    CHECK_EQ(device.allocate_calls, 0);
    OK(slicepool_free(allocator, slice.id));
    OK(slicepool_trim(allocator, 0, NULL));
    CHECK_EQ(device.deallocate_calls, 1);
    CHECK_EQ(device.live, 0);
    finish(allocator, &device);
  }
}

static slicepool_allocator *allocator_of_closing;
static slicepool_device_memory memory_of_closing;

static void adopt_while_closing(struct mock_device *device) {
  (void)device;
  CHECK_RESULT(slicepool_adopt(allocator_of_closing, 0, &memory_of_closing, NULL), SLICEPOOL_ERROR_BUSY);
}

static void memory_that_is_refused_stays_the_programs(void) {
  static const struct {
    slicepool_result result;
    const char *field;
  } cases[] = {
    { SLICEPOOL_ERROR_INVALID_ARGUMENT, "pool" },   { SLICEPOOL_ERROR_INVALID_ARGUMENT, "pool" },
    { SLICEPOOL_ERROR_INVALID_ARGUMENT, "size" },   { SLICEPOOL_ERROR_INVALID_ARGUMENT, "size" },
    { SLICEPOOL_ERROR_INVALID_ARGUMENT, "size" },   { SLICEPOOL_ERROR_INVALID_ARGUMENT, "handle" },
    { SLICEPOOL_ERROR_DEVICE_FAILED, NULL },        { SLICEPOOL_ERROR_DEVICE_FAILED, NULL },
    { SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED, NULL }, { SLICEPOOL_ERROR_BUDGET_EXCEEDED, NULL },
    { SLICEPOOL_ERROR_BUDGET_EXCEEDED, "heap" },    { SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED, NULL },
    { SLICEPOOL_ERROR_NOT_SUPPORTED, "adopt" },     { SLICEPOOL_ERROR_INVALID_ARGUMENT, "struct_size" },
    { SLICEPOOL_ERROR_INVALID_ARGUMENT, "pool" },
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    struct mock_device device;
    mock_init(&device);
    const slicepool_device table = mock_table(&device);
    const slicepool_memory_type type = type_in(0, 0);
    const slicepool_heap heap = heap_of(0, i == 10 ? 4096 : 0);
    const slicepool_pool_options pools[2] = { sliced(4096, 0, i == 8 ? 4096 : 0, 64), growing(4096, 65536, 256) };
    slicepool_allocator_config config = config_for(pools, 2);
    config.memory_types = &type;
    config.memory_type_count = 1;
    config.heaps = &heap;
    config.heap_count = 1;
    if (i == 9) config.max_bytes = 4096;
    if (i == 11) config.max_pages = 1;
    if (i == 12) config.flags = SLICEPOOL_ALLOCATOR_DRY_RUN;
    slicepool_allocator *allocator = create_of(&table, config);
    const slicepool_slice held = take(allocator, 4096);
    const slicepool_device_memory kept = own_memory(&device, 4096, i == 6 ? 64 : 0);
    slicepool_device_memory memory = kept;
    uint32_t pool = 0;
    switch (i) {
      case 0: pool = 2; break;
      case 1: pool = UINT32_MAX; break;
      case 2: memory.size = 8192; break;
      case 3: memory.size = 0; break;
      case 4: memory.size = 4096 + 128; pool = 1; break;
      case 5: memory.handle = UINT64_MAX; break;
      case 7: memory.handle = held.memory; memory.address = held.address; break;
      case 13: memory.struct_size = 12; break;
      case 14: pool = slicepool_own_pool(SLICEPOOL_OWN_PAGES_DEDICATED, 0); break;
      default: break;
    }
    const slicepool_statistics before = figures_of(allocator);
    const uint64_t calls = mock_calls(&device);
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    CHECK_RESULT(slicepool_adopt(allocator, pool, &memory, &failure), cases[i].result);
    CHECK_EQ(failure.result, (uint64_t)(int64_t)cases[i].result);
    if (cases[i].field != NULL) CHECK_TEXT(failure.field, cases[i].field);
    if (i == 6) CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_MISALIGNED);
    if (i == 7) CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_DUPLICATE);
    slicepool_statistics after = figures_of(allocator);
    CHECK_EQ(after.reserved_bytes, before.reserved_bytes);
    CHECK_EQ(after.pages, before.pages);
    CHECK_EQ(after.device_allocations, before.device_allocations);
    CHECK_EQ(mock_calls(&device), calls);
    CHECK(device.pages[kept.handle - MOCK_FIRST_HANDLE].live);
    drop_memory(&device, kept);
    OK(slicepool_free(allocator, held.id));
    if (i == 12) {
      OK(slicepool_allocator_destroy(allocator, 0, NULL));
      mock_end(&device);
      continue;
    }
    /* And while the allocator is being destroyed. */
    if (i == 0) {
      allocator_of_closing = allocator;
      memory_of_closing = kept;
      memory_of_closing.handle = 5;
      device.in_deallocate = adopt_while_closing;
      OK(slicepool_allocator_destroy(allocator, 0, NULL));
      mock_end(&device);
      continue;
    }
    finish(allocator, &device);
  }
}

/* ---- pages that are taken beforehand */

static void a_pool_is_filled_beforehand_up_to_so_many_pages(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_pool_options pools[3] = { sliced(4096, 0, 0, 64), growing(4096, 65536, 64), exclusive(4096, 64) };
  const slicepool_device table = mock_table(&device);
  slicepool_allocator *allocator = create_over(&table, pools, 3, 0);
  OK(slicepool_prefill(allocator, 0, 0, NULL));
  CHECK_EQ(device.allocate_calls, 0);
  OK(slicepool_prefill(allocator, 0, 3, NULL));
  OK(slicepool_prefill(allocator, 0, 2, NULL));
  OK(slicepool_prefill(allocator, 0, 3, NULL));
  CHECK_EQ(device.given, 3);
  CHECK_EQ(figures_in(allocator, 0).pages_idle, 3);
  OK(slicepool_prefill(allocator, 1, 2, NULL));
  CHECK_EQ(device.last_pool, 1);
  CHECK_EQ(figures_in(allocator, 1).pages, 2);
  uint64_t ids[3];
  for (int i = 0; i < 3; i++) ids[i] = take_in(allocator, 0, 4096).id;
  CHECK_EQ(device.given, 5);
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  static const uint32_t wrong[] = { 2, 3, UINT32_MAX };
  for (int i = 0; i < 3; i++) {
    CHECK_RESULT(slicepool_prefill(allocator, wrong[i], 1, &failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "pool");
    CHECK_EQ(failure.value, wrong[i]);
  }
  /* Pages that were taken before the device has no more stay. */
  device.capacity = device.bytes + 2 * 4096;
  device.device_code = -5;
  CHECK_RESULT(slicepool_prefill(allocator, 0, 9, &failure), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(failure.device_code, -5);
  CHECK_EQ(figures_in(allocator, 0).pages, 5);
  check_books(allocator, &device);
  OK(slicepool_free_many(allocator, ids, 3, NULL));
  finish(allocator, &device);
}

static void pools_have_their_first_pages_from_the_start_or_are_not_made(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_pool_options pools[2] = { sliced(4096, 0, 0, 64), growing(4096, 65536, 64) };
  pools[0].min_pages = 3;
  pools[1].min_pages = 2;
  const slicepool_device table = mock_table(&device);
  slicepool_allocator *allocator = create_over(&table, pools, 2, 0);
  CHECK_EQ(device.given, 5);
  CHECK(figures_in(allocator, 0).pages == 3 && figures_in(allocator, 1).pages == 2);
  CHECK_EQ(options_in(allocator, 0).min_pages, 3);
  /* Like others they go back; a pool that is installed has its own. */
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_EQ(device.live, 0);
  OK(slicepool_install_pools(allocator, pools, 2, NULL));
  CHECK_EQ(device.live, 5);
  device.given -= 5;
  device.taken -= 5;
  finish(allocator, &device);

  for (uint64_t fails = 1; fails <= 5; fails++) {
    for (int failure_kind = 0; failure_kind < 2; failure_kind++) {
      mock_init(&device);
      device.fail_at = fails;
      device.device_code = -9;
      if (failure_kind == 1) device.failure = SLICEPOOL_ERROR_DEVICE_FAILED;
      slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
      slicepool_allocator_config config = config_for(pools, 2);
      config.failure = &failure;
      allocator = NULL;
      CHECK_RESULT(slicepool_allocator_create(&table, &config, &allocator), device.failure);
      CHECK(allocator == NULL);
      CHECK_EQ(failure.device_code, -9);
      CHECK_EQ(device.given, fails - 1);
      mock_end(&device);
    }
  }
  /* In a block, and under limits. */
  static unsigned char block[262144];
  for (int limit = 0; limit < 2; limit++) {
    mock_init(&device);
    slicepool_allocator_config config = config_for(pools, 2);
    if (limit == 0) config.max_pages = 4;
    else config.max_bytes = 4 * 4096;
    CHECK_RESULT(slicepool_allocator_create_in(&table, &config, block, sizeof block, &allocator),
                 limit == 0 ? SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED : SLICEPOOL_ERROR_BUDGET_EXCEEDED);
    mock_end(&device);
  }
}

/* ---- pages of one slice */

static void a_dedicated_slice_has_a_page_of_its_size_that_serves_that_size_again(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(64 * KIB, 0, 0, 64));
  slicepool_slice slice = take_flagged(allocator, 5000, SLICEPOOL_REQUEST_DEDICATED);
  const uint32_t pool = slicepool_own_pool(SLICEPOOL_OWN_PAGES_DEDICATED, 0);
  CHECK_EQ(pool, UINT32_MAX - 1);
  CHECK_EQ(device.last_size, 5120);
  CHECK_EQ(device.last_flags, SLICEPOOL_PAGE_DEDICATED);
  CHECK_EQ(device.last_pool, pool);
  CHECK(device.last_data == NULL);
  CHECK_EQ(slice.offset, 0);
  CHECK_EQ(slice.size, 5120);
  const uint64_t memory = slice.memory;
  OK(slicepool_free(allocator, slice.id));
  /* Not for others, nor for other sizes. */
  const uint64_t other = take(allocator, 5000).id;
  CHECK_EQ(device.given, 2);
  CHECK_EQ(device.last_flags, 0);
  const uint64_t larger = take_flagged(allocator, 5121, SLICEPOOL_REQUEST_DEDICATED).id;
  CHECK_EQ(device.given, 3);
  slice = take_flagged(allocator, 4900, SLICEPOOL_REQUEST_DEDICATED);
  CHECK_EQ(slice.memory, memory);
  CHECK_EQ(device.given, 3);
  check_books(allocator, &device);
  const uint64_t ids[3] = { other, larger, slice.id };
  OK(slicepool_free_many(allocator, ids, 3, NULL));
  finish(allocator, &device);
}

static void pages_of_dedicated_slices_age_as_the_config_says(void) {
  static const struct {
    uint64_t period, quiet, most;
  } cases[] = { { 0, 100, 3 * 1024 }, { 100, 10, 300 }, { UINT64_MAX, 10000, 0 } };
  for (int i = 0; i < 3; i++) {
    struct mock_device device;
    mock_init(&device);
    const slicepool_device table = mock_table(&device);
    const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
    slicepool_allocator_config config = config_for(&pool, 1);
    config.dedicated_period = cases[i].period;
    slicepool_allocator *allocator = create_of(&table, config);
    const uint64_t keeps = take(allocator, 100).id;
    for (int again = 0; again < 20; again++)
      OK(slicepool_free(allocator, take_flagged(allocator, 5000, SLICEPOOL_REQUEST_DEDICATED).id));
    CHECK_EQ(device.given, 2);
    for (uint64_t n = 0; n < cases[i].quiet; n++) touch(allocator, 100);
    CHECK_EQ(device.live, 2);
    for (uint64_t n = 0; n < cases[i].most; n++) touch(allocator, 100);
    CHECK_EQ(device.live, cases[i].most == 0 ? 2 : 1);
    OK(slicepool_free(allocator, keeps));
    finish(allocator, &device);
  }
}

static void what_no_pool_takes_has_a_page_of_its_own_if_the_config_says_so(void) {
  for (int flag = 0; flag < 2; flag++) {
    struct mock_device device;
    mock_init(&device);
    const slicepool_device table = mock_table(&device);
    const slicepool_pool_options pool = sliced(4096, 1000, 0, 64);
    slicepool_allocator_config config = config_for(&pool, 1);
    config.max_page = MIB;
    if (flag == 1) config.flags = SLICEPOOL_ALLOCATOR_DEDICATED_WHEN_TOO_LARGE;
    slicepool_allocator *allocator = create_of(&table, config);
    OK(slicepool_free(allocator, take(allocator, 1000).id));
    if (flag == 0) {
      refused(allocator, 2000, 0, SLICEPOOL_ERROR_TOO_LARGE);
    } else {
      CHECK(!would_fit(allocator, 2000));
      const slicepool_slice slice = take(allocator, 2000);
      CHECK(slice.offset == 0 && slice.size == 2048);
      CHECK_EQ(device.last_pool, slicepool_own_pool(SLICEPOOL_OWN_PAGES_DEDICATED, 0));
      CHECK_EQ(refused(allocator, MIB + 1, 0, SLICEPOOL_ERROR_TOO_LARGE).limit, MIB);
      /* A pool that is named is held to its limit. */
      refused_in(allocator, 0, 2000, SLICEPOOL_ERROR_TOO_LARGE);
      OK(slicepool_free(allocator, slice.id));
      CHECK(would_fit(allocator, 2000));
    }
    finish(allocator, &device);
  }
}

static void device_data_reaches_the_device_and_its_page_serves_once(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(64 * KIB, 0, 0, 64));
  const uint64_t keeps = take(allocator, 100).id;
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = 1000;
  request.alignment = 512;
  int image = 0;
  for (int i = 0; i < 5; i++) {
    request.device_data = i % 2 == 0 ? (void *)&image : (void *)&device;
    /* With or without the flag that it implies. */
    request.flags = i == 3 ? SLICEPOOL_REQUEST_DEDICATED : 0;
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    uint32_t grows = 7;
    OK(slicepool_would_grow(allocator, &request, &grows));
    CHECK_EQ(grows, 1);
    OK(slicepool_allocate(allocator, &request, &slice));
    CHECK(device.last_data == request.device_data);
    CHECK_EQ(device.last_flags, SLICEPOOL_PAGE_DEDICATED);
    CHECK_EQ(device.last_pool, slicepool_own_pool(SLICEPOOL_OWN_PAGES_ONCE, 0));
    CHECK_EQ(device.last_size, 1024);
    CHECK(slice.offset == 0 && slice.size == 1024);
    CHECK_EQ(device.live, 2);
    OK(slicepool_free(allocator, slice.id));
    CHECK_EQ(device.live, 2);
    touch(allocator, 100);
    CHECK_EQ(device.live, 1);
    CHECK_EQ(device.given, (uint64_t)i + 2);
  }
  OK(slicepool_free(allocator, keeps));
  finish(allocator, &device);
}

/* ---- what lies where */

static void a_place_is_found_whatever_it_holds(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(64 * KIB, 0, 0, 64));
  const slicepool_slice slice = take(allocator, 1000), waits = take(allocator, 2000), last = take(allocator, 64);
  const slicepool_slice own = take_flagged(allocator, 300, SLICEPOOL_REQUEST_DEDICATED);
  free_at(allocator, waits.id, 1, 1);
  for (int by_address = 0; by_address < 2; by_address++) {
#define AT(slice, plus) (by_address ? (slice).address + (plus) : (slice).offset + (plus))
    const struct {
      const slicepool_slice *of;
      uint64_t plus;
      uint32_t kind;
      uint64_t id;
    } cases[] = {
      { &slice, 0, SLICEPOOL_RANGE_SLICE, slice.id },       { &slice, 1023, SLICEPOOL_RANGE_SLICE, slice.id },
      { &waits, 0, SLICEPOOL_RANGE_PENDING, 0 },            { &waits, 2047, SLICEPOOL_RANGE_PENDING, 0 },
      { &last, 0, SLICEPOOL_RANGE_SLICE, last.id },         { &last, 63, SLICEPOOL_RANGE_SLICE, last.id },
      { &last, 64, SLICEPOOL_RANGE_FREE, 0 },               { &slice, 64 * KIB - 1, SLICEPOOL_RANGE_FREE, 0 },
      { &slice, 64 * KIB, SLICEPOOL_RANGE_NONE, 0 },        { &slice, UINT64_MAX / 2, SLICEPOOL_RANGE_NONE, 0 },
      { &own, 0, SLICEPOOL_RANGE_SLICE, own.id },           { &own, 511, SLICEPOOL_RANGE_SLICE, own.id },
      { &own, 512, SLICEPOOL_RANGE_NONE, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
      const slicepool_slice *of = cases[i].of;
      slicepool_range range = SLICEPOOL_RANGE_INIT;
      if (by_address) OK(slicepool_find_address(allocator, AT(*of, cases[i].plus), &range));
      else range = find_in(allocator, of->memory, AT(*of, cases[i].plus));
      CHECK_EQ(range.kind, cases[i].kind);
      CHECK_EQ(range.id, cases[i].id);
      if (range.kind == SLICEPOOL_RANGE_NONE) {
        CHECK(range.memory == 0 && range.offset == 0 && range.size == 0 && range.address == 0);
        continue;
      }
      CHECK_EQ(range.memory, of->memory);
      CHECK_EQ(range.address - of->address, range.offset - of->offset);
      CHECK(of->offset + cases[i].plus - range.offset < range.size);
      CHECK_EQ(range.pool, of == &own ? slicepool_own_pool(SLICEPOOL_OWN_PAGES_DEDICATED, 0) : 0);
      if (range.id == slice.id) CHECK_EQ(range.requested, 1000);
    }
#undef AT
  }
  slicepool_range range = SLICEPOOL_RANGE_INIT;
  OK(slicepool_find_address(allocator, 0, &range));
  CHECK_EQ(range.kind, SLICEPOOL_RANGE_NONE);
  CHECK_EQ(find_in(allocator, 12345, 0).kind, SLICEPOOL_RANGE_NONE);
  CHECK_EQ(find_in(allocator, UINT64_MAX, 0).kind, SLICEPOOL_RANGE_NONE);
  collect(allocator, 1, 1);
  CHECK_EQ(find_in(allocator, waits.memory, waits.offset).kind, SLICEPOOL_RANGE_FREE);
  const uint64_t ids[3] = { slice.id, last.id, own.id };
  OK(slicepool_free_many(allocator, ids, 3, NULL));
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(memory_of_the_programs_own_becomes_a_page_and_goes_to_the_device_with_its_context),
  TEST(memory_that_is_refused_stays_the_programs),
  TEST(a_pool_is_filled_beforehand_up_to_so_many_pages),
  TEST(pools_have_their_first_pages_from_the_start_or_are_not_made),
  TEST(a_dedicated_slice_has_a_page_of_its_size_that_serves_that_size_again),
  TEST(pages_of_dedicated_slices_age_as_the_config_says),
  TEST(what_no_pool_takes_has_a_page_of_its_own_if_the_config_says_so),
  TEST(device_data_reaches_the_device_and_its_page_serves_once),
  TEST(a_place_is_found_whatever_it_holds),
};

TEST_MAIN(tests)
