/* Lists of pools: what each kind takes, which pool serves, what is refused, and the lists that come ready. Alignment 32,
 * largest page 128 MiB. */
#include "check.h"
#include "shorthand.h"

static slicepool_result try_list(const slicepool_pool_options *pools, uint32_t count, uint32_t flags, uint64_t max_page,
                                 slicepool_failure *failure, slicepool_allocator **allocator,
                                 struct mock_device *device) {
  mock_init(device);
  slicepool_device table = mock_table(device);
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.flags = flags;
  config.max_page = max_page;
  config.page_alignment = 32;
  config.pools = pools;
  config.pool_count = count;
  config.failure = failure;
  *allocator = NULL;
  slicepool_result result = slicepool_allocator_create(&table, &config, allocator);
  CHECK((*allocator != NULL) == (result == SLICEPOOL_OK));
  return result;
}

/* The live slices of the pools are these. */
#define CHECK_SLICES(allocator, ...)                                                   \
  do {                                                                                 \
    const uint32_t check_slices[] = { __VA_ARGS__ };                                   \
    for (uint32_t p = 0; p < sizeof check_slices / sizeof *check_slices; p++)          \
      CHECK_EQ(figures_in(allocator, p).slices, check_slices[p]);                      \
  } while (0)

/* ---- what a pool takes */

static void a_request_that_nearly_fills_a_page_leaves_less_than_a_fifth_of_it(void) {
  /* Pages of which a fifth is a whole number of bytes, and others. */
  static const uint64_t pages[] = { 32000, 160, 1024, 64, 96, 32, 1 * MIB, 128 * MIB };
  for (size_t p = 0; p < sizeof pages / sizeof *pages; p++) {
    const uint64_t page = pages[p];
    uint64_t least = page;
    while (least > 1 && (page - (least - 1)) * 5 < page) least--;
    for (uint32_t rule = 0; rule <= 2; rule++) {
      for (int is_capped = 0; is_capped < 2; is_capped++) {
        const bool taken = rule == SLICEPOOL_NEAR_PAGE_ALWAYS || (rule == SLICEPOOL_NEAR_PAGE_WHEN_UNCAPPED && !is_capped);
        slicepool_pool_options pool = sliced(page, 8, is_capped ? 10 * page : 0, 32);
        pool.near_page = rule;
        struct mock_device device;
        slicepool_allocator *allocator = create_one(&device, pool);
        const struct {
          uint64_t size;
          bool fits;
        } requests[] = { { 1, true }, { 8, true }, { 9, false }, { least - 1, least - 1 <= 8 }, { least, taken },
                         { page - 1, taken }, { page, taken }, { page + 1, false } };
        for (size_t r = 0; r < sizeof requests / sizeof *requests; r++) {
          const uint64_t size = requests[r].size;
          if (requests[r].fits) {
            CHECK_EQ(touch(allocator, size).size, (size + 31) / 32 * 32);
          } else {
            slicepool_failure failure = refused(allocator, size, 0, SLICEPOOL_ERROR_TOO_LARGE);
            /* The largest that the pool takes of those below. */
            CHECK_EQ(failure.limit, taken && size > page ? page : 8);
          }
        }
        CHECK_EQ(options_in(allocator, 0).near_page, taken ? SLICEPOOL_NEAR_PAGE_ALWAYS : SLICEPOOL_NEAR_PAGE_NEVER);
        finish(allocator, &device);
      }
    }
  }
}

/* ---- which pool serves */

/* First what is held, in any pool that takes the request, in order. */
static void what_any_pool_holds_is_used_before_any_pool_grows(void) {
  for (int later = 0; later < KINDS; later++) {
    for (int earlier = 0; earlier < KINDS; earlier++) {
      struct mock_device device;
      const slicepool_pool_options pools[2] = { kind_of(earlier).pool, kind_of(later).pool };
      slicepool_allocator *allocator = create_list(&device, pools, 2);
      slicepool_slice held = take_in(allocator, 1, 3000);
      OK(slicepool_free(allocator, held.id));
      slicepool_slice served = take(allocator, 3000);
      CHECK_EQ(served.memory, held.memory);
      CHECK_SLICES(allocator, 0, 1);
      /* Where both have room, the first serves. */
      slicepool_slice first = take_in(allocator, 0, 3000);
      OK(slicepool_free(allocator, first.id));
      OK(slicepool_free(allocator, served.id));
      CHECK_EQ(touch(allocator, 3000).memory, first.memory);
      CHECK_EQ(device.given, 2);
      finish(allocator, &device);
    }
  }
}

/* Then the first that can grow; one at its cap is passed over. */
static void pools_that_can_grow_do_so_in_order_and_full_ones_are_passed_over(void) {
  struct mock_device device;
  const slicepool_pool_options pools[5] = { sliced(1024, 0, 1024, 32), exclusive(512, 32), sliced(4096, 0, 4096, 32),
                                            capped(growing(8192, 8192, 32), 8192), direct(0, 32) };
  slicepool_allocator *allocator = create_list(&device, pools, 5);
  for (uint32_t i = 0; i < 16; i++) {
    take(allocator, 1024);
    /* One, four and eight fit, and the last has no cap. */
    CHECK_SLICES(allocator, 1, 0, i < 4 ? i : 4, i < 4 ? 0 : i < 12 ? i - 4 : 8, i < 12 ? 0 : i - 12);
  }
  CHECK_EQ(device.given, 6);
  take(allocator, 100);
  take(allocator, 512);
  CHECK_SLICES(allocator, 1, 2, 4, 8, 3);
  check_books(allocator, &device);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);
}

static void the_capacity_error_is_given_only_when_no_pool_is_left(void) {
  struct mock_device device;
  const slicepool_pool_options pools[4] = { sliced(1024, 0, 2048, 32), capped(growing(1024, 4096, 32), 4096),
                                            exclusive(100, 32), exclusive(0, 32) };
  slicepool_allocator *allocator = create_list(&device, pools, 4);
  for (int i = 0; i < 6; i++) take(allocator, 1024);
  CHECK_SLICES(allocator, 2, 4, 0, 0);
  const uint64_t calls = mock_calls(&device);
  slicepool_failure failure = refused(allocator, 1024, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK(failure.limit == 2048 && failure.in_use == 2048 && failure.in_flight == 0);
  failure = refused(allocator, 2048, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK(failure.limit == 4096 && failure.in_use == 4096);
  failure = refused(allocator, 101, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(failure.size, 101);
  failure = refused(allocator, 4097, 0, SLICEPOOL_ERROR_TOO_LARGE);
  CHECK_EQ(failure.limit, 4096);
  CHECK_EQ(mock_calls(&device), calls);
  take(allocator, 100);
  CHECK_SLICES(allocator, 2, 4, 1, 0);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);
}

/* Whichever pool meets it, and in whatever order. */
static void a_failing_device_is_never_masked_by_a_full_pool_or_one_that_is_too_small(void) {
  static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 }, { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
  const slicepool_pool_options pools[3] = { sliced(1024, 0, 1024, 32), direct(0, 32), exclusive(100, 32) };
  static const slicepool_result answers[] = { SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY, SLICEPOOL_ERROR_DEVICE_FAILED };
  for (int o = 0; o < 6; o++) {
    for (int a = 0; a < 2; a++) {
      slicepool_pool_options list[3];
      uint32_t full = 0;
      for (uint32_t i = 0; i < 3; i++) {
        list[i] = pools[orders[o][i]];
        if (orders[o][i] == 0) full = i;
      }
      struct mock_device device;
      slicepool_allocator *allocator = create_list(&device, list, 3);
      slicepool_slice slice = take_in(allocator, full, 1024);
      device.fail_at = 1;
      device.fail_from_then_on = true;
      device.failure = answers[a];
      device.device_code = -7;
      slicepool_failure failure = refused(allocator, 1024, 0, answers[a]);
      CHECK(failure.device_code == -7);
      OK(slicepool_free(allocator, slice.id));
      finish(allocator, &device);
    }
  }
}

static void the_most_generous_limit_is_named_when_no_pool_takes_a_request(void) {
  const slicepool_pool_options nearly = sliced(MIB, 1024, 0, 32);
  const struct {
    slicepool_pool_options pools[3];
    uint32_t count;
    uint64_t limit;
  } cases[] = {
    { { exclusive(1024, 32), exclusive(3073, 32), sliced(1024, 0, 0, 32) }, 3, 3073 },
    { { exclusive(1024, 32), nearly, nearly }, 3, MIB },
    { { nearly, exclusive(2 * MIB, 32), nearly }, 2, 2 * MIB },
    { { exclusive(0, 32), exclusive(5, 32), nearly }, 2, 5 },
    { { sliced(1024, 0, 1, 32), direct(0, 32), exclusive(MIB, 32) }, 3, 128 * MIB },
    { { growing(1024, 1024, 32), exclusive(MIB, 32), nearly }, 2, 128 * MIB },
    { { capped(growing(1024, 1024, 32), 5 * 1024), exclusive(1024, 32), nearly }, 2, 5 * 1024 },
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    for (int reversed = 0; reversed < 2; reversed++) {
      slicepool_pool_options list[3];
      for (uint32_t i = 0; i < cases[c].count; i++)
        list[i] = cases[c].pools[reversed ? cases[c].count - 1 - i : i];
      struct mock_device device;
      slicepool_allocator *allocator = create_list(&device, list, cases[c].count);
      slicepool_failure failure = refused(allocator, 128 * MIB + 1, 0, SLICEPOOL_ERROR_TOO_LARGE);
      CHECK_EQ(failure.size, 128 * MIB + 1);
      CHECK_EQ(failure.limit, cases[c].limit);
      CHECK_EQ(mock_calls(&device), 0);
      finish(allocator, &device);
    }
  }
}

/* ---- one pool by request */

static void a_request_for_one_pool_is_served_by_that_pool_only(void) {
  static const uint32_t order[] = { 4, 2, 3, 1, 0, 2, 1 };
  const slicepool_pool_options pools[5] = { sliced(4096, 0, 0, 32), exclusive(MIB, 32), direct(0, 32),
                                            sliced(1024, 0, 1024, 32), growing(1024, 1024, 32) };
  struct mock_device device;
  slicepool_allocator *allocator = create_list(&device, pools, 5);
  /* There is room in the first all the time. */
  take(allocator, 32);
  uint32_t expected[5] = { 1, 0, 0, 0, 0 };
  for (size_t i = 0; i < sizeof order / sizeof *order; i++) {
    slicepool_request request = SLICEPOOL_REQUEST_INIT;
    request.size = 100;
    request.flags = SLICEPOOL_REQUEST_IN_POOL;
    request.pool = order[i];
    uint32_t fits = 7;
    OK(slicepool_would_fit(allocator, &request, &fits));
    CHECK_EQ(fits, order[i] == 0);
    take_in(allocator, order[i], 100);
    expected[order[i]]++;
    CHECK_SLICES(allocator, expected[0], expected[1], expected[2], expected[3], expected[4]);
  }
  check_books(allocator, &device);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);
}

static void a_request_for_one_pool_is_refused_by_what_that_pool_lacks(void) {
  const slicepool_pool_options pools[4] = { sliced(1024, 0, 1024, 32), direct(0, 32), exclusive(512, 32),
                                            exclusive(0, 32) };
  struct mock_device device;
  slicepool_allocator *allocator = create_list(&device, pools, 4);
  slicepool_slice slice = take_in(allocator, 0, 1024);
  const slicepool_statistics before = figures_of(allocator);
  const uint64_t calls = mock_calls(&device);
  slicepool_failure failure = refused_in(allocator, 0, 100, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK(failure.limit == 1024 && failure.in_use == 1024);
  CHECK_EQ(refused_in(allocator, 0, 1025, SLICEPOOL_ERROR_TOO_LARGE).limit, 1024);
  CHECK_EQ(refused_in(allocator, 1, 128 * MIB + 1, SLICEPOOL_ERROR_TOO_LARGE).limit, 128 * MIB);
  CHECK_EQ(refused_in(allocator, 2, 513, SLICEPOOL_ERROR_TOO_LARGE).limit, 512);
  CHECK_EQ(refused_in(allocator, 3, 1, SLICEPOOL_ERROR_TOO_LARGE).limit, 0);
  for (uint32_t pool = 0; pool < 3; pool++)
    CHECK_TEXT(refused_in(allocator, pool, 0, SLICEPOOL_ERROR_INVALID_ARGUMENT).field, "size");
  static const uint32_t none[] = { 4, 5, 31, 32, 255, 256, 65536, 0x80000000, UINT32_MAX };
  static const uint64_t sizes[] = { 0, 100, UINT64_MAX };
  for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
    for (int s = 0; s < 3; s++) {
      failure = refused_in(allocator, none[i], sizes[s], SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "pool");
      CHECK_EQ(failure.value, none[i]);
      slicepool_request request = SLICEPOOL_REQUEST_INIT;
      request.size = sizes[s];
      request.flags = SLICEPOOL_REQUEST_IN_POOL;
      request.pool = none[i];
      uint32_t fits = 7;
      CHECK_RESULT(slicepool_would_fit(allocator, &request, &fits), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_EQ(fits, 7);
    }
  }
  const slicepool_statistics after = figures_of(allocator);
  CHECK(memcmp(&before, &after, sizeof after) == 0);
  CHECK_EQ(mock_calls(&device), calls);
  device.capacity = device.bytes;
  CHECK_EQ(refused_in(allocator, 1, 100, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY).size, 128);
  refused_in(allocator, 2, 100, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  refused_in(allocator, 0, 100, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

static void a_batch_places_each_slice_in_the_pool_it_is_for(void) {
  const slicepool_pool_options pools[3] = { sliced(4096, 0, 0, 32), exclusive(MIB, 32), direct(0, 32) };
  struct mock_device device;
  slicepool_allocator *allocator = create_list(&device, pools, 3);
  slicepool_request requests[10];
  slicepool_slice slices[10];
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  for (uint32_t i = 0; i < 10; i++) {
    requests[i] = (slicepool_request)SLICEPOOL_REQUEST_INIT;
    requests[i].size = 100;
    requests[i].flags = SLICEPOOL_REQUEST_IN_POOL;
    requests[i].pool = i % 3;
    requests[i].failure = &failure;
    slices[i] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
  }
  OK(slicepool_allocate_many(allocator, requests, 9, slices));
  CHECK_SLICES(allocator, 3, 3, 3);
  for (int i = 0; i < 9; i++) OK(slicepool_free(allocator, slices[i].id));
  requests[9].pool = 3;
  CHECK_RESULT(slicepool_allocate_many(allocator, requests, 10, slices), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "pool");
  CHECK_EQ(failure.index, 9);
  CHECK_SLICES(allocator, 0, 0, 0);
  finish(allocator, &device);
}

/* ---- what makes no sense */

static void fields_of_another_kind_are_refused_by_name_and_value(void) {
  static const uint64_t values[] = { 1, 2, 4096, UINT64_C(1) << 63, UINT64_MAX };
  const slicepool_pool_options right[3] = { exclusive(4096, 32), direct(0, 32), sliced(4096, 0, 0, 32) };
  static const struct {
    size_t offset;
    const char *name;
    bool foreign_to[3]; /* exclusive, direct, sliced */
  } fields[] = {
#define FIELD(name, ...) { offsetof(slicepool_pool_options, name), #name, { __VA_ARGS__ } }
    FIELD(page_size, true, true, false),      FIELD(max_slice_size, true, true, false),
    FIELD(max_pool_size, true, true, false),  FIELD(max_page_size, true, true, false),
    FIELD(max_alloc_size, false, true, true), FIELD(reclaim_at, true, false, true),
#undef FIELD
  };
  for (int kind = 0; kind < 3; kind++) {
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++) {
      if (!fields[f].foreign_to[kind]) continue;
      for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
        slicepool_pool_options pools[2] = { right[kind], right[kind] };
        memcpy((unsigned char *)&pools[1] + fields[f].offset, &values[v], sizeof values[v]);
        slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
        slicepool_allocator *allocator = NULL;
        struct mock_device device;
        CHECK_RESULT(try_list(pools, 2, 0, 0, &failure, &allocator, &device), SLICEPOOL_ERROR_INVALID_ARGUMENT);
        CHECK_TEXT(failure.field, fields[f].name);
        CHECK_EQ(failure.value, values[v]);
        mock_end(&device);
      }
    }
    if (kind == 2) continue;
    static const uint32_t rules[] = { 1, 2, 3, UINT32_MAX };
    for (int r = 0; r < 4; r++) {
      slicepool_pool_options pool = right[kind];
      pool.near_page = rules[r];
      slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
      slicepool_allocator *allocator = NULL;
      struct mock_device device;
      CHECK_RESULT(try_list(&pool, 1, 0, 0, &failure, &allocator, &device), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "near_page");
      CHECK_EQ(failure.value, rules[r]);
      mock_end(&device);
    }
  }
}

/* What contradicts itself is refused by those who ask for it, and adjusted by the others; what cannot work is refused
 * always. */
static void each_kind_is_refused_by_the_field_that_contradicts_itself_and_its_value(void) {
  const struct {
    slicepool_pool_options pool;
    const char *field; /* NULL: fine */
    uint64_t value;
    bool adjusted; /* if nobody asks */
  } cases[] = {
    { exclusive(128 * MIB, 32), NULL, 0, true },
    { exclusive(128 * MIB + 1, 32), "max_alloc_size", 128 * MIB + 1, true },
    { exclusive(UINT64_MAX, 32), "max_alloc_size", UINT64_MAX, true },
    { exclusive(0, 32), NULL, 0, true },
    { exclusive(33, 32), NULL, 0, true },
    { exclusive(1024, 48), "granule", 48, false },
    { exclusive(1024, UINT64_C(1) << 33), "granule", UINT64_C(1) << 33, false },
    { direct(0, 32), NULL, 0, true },
    { direct(1, 32), NULL, 0, true },
    { direct(UINT64_MAX, 32), NULL, 0, true },
    { direct(0, 3), "granule", 3, false },
    { direct(0, UINT64_C(1) << 28), "max_page", 128 * MIB, false },
    { growing(1024, 128 * MIB, 32), NULL, 0, true },
    { growing(1024, 1024, 32), NULL, 0, true },
    { growing(0, 1024, 32), "page_size", 0, false },
    { growing(1000, 4000, 32), "page_size", 1000, true },
    { growing(2048, 1024, 32), "max_page_size", 1024, true },
    { growing(1024, 128 * MIB + 1, 32), "max_page_size", 128 * MIB + 1, true },
    { growing(129 * MIB, 129 * MIB, 32), "page_size", 129 * MIB, false },
    { capped(growing(2048, 4096, 32), 1024), "max_pool_size", 1024, true },
    { capped(growing(2048, 4096, 32), 3 * 1024), NULL, 0, true },
    { sliced(0, 0, 0, 32), "page_size", 0, false },
    { sliced(1000, 0, 0, 32), "page_size", 1000, true },
    { sliced(1024, 2048, 0, 32), "max_slice_size", 2048, true },
    { sliced(1024, 1025, 0, 32), "max_slice_size", 1025, true },
    { sliced(2048, 0, 1024, 32), "max_pool_size", 1024, true },
    { sliced(129 * MIB, 0, 0, 32), "page_size", 129 * MIB, false },
    { sliced(1024, 1024, 1024, 32), NULL, 0, true },
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    for (int validate = 0; validate < 2; validate++) {
      /* A pool in front that is right. */
      const slicepool_pool_options pools[2] = { exclusive(32, 32), cases[c].pool };
      slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
      slicepool_allocator *allocator = NULL;
      struct mock_device device;
      const bool fine = cases[c].field == NULL || (!validate && cases[c].adjusted);
      slicepool_result result = try_list(pools, 2, validate ? SLICEPOOL_ALLOCATOR_VALIDATE : 0, 128 * MIB, &failure,
                                         &allocator, &device);
      if (result != (fine ? SLICEPOOL_OK : SLICEPOOL_ERROR_INVALID_ARGUMENT))
        FAIL("case %d, validate %d: %d (%s)", (int)c, validate, result, failure.field == NULL ? "" : failure.field);
      if (fine) {
        OK(slicepool_allocator_destroy(allocator, 0, NULL));
      } else {
        CHECK_TEXT(failure.field, cases[c].field);
        CHECK_EQ(failure.value, cases[c].value);
      }
      mock_end(&device);
    }
  }
}

/* ---- what is in effect */

static bool same_options(const slicepool_pool_options *a, const slicepool_pool_options *b) {
  return memcmp(a, b, sizeof *a) == 0;
}

static void what_was_asked_for_is_in_effect_after_rounding_clamping_and_defaults(void) {
  struct {
    slicepool_pool_options asked, effective;
  } cases[] = {
    { exclusive(1000, 32), exclusive(1000, 32) },
    { exclusive(0, 32), exclusive(0, 32) },
    { exclusive(UINT64_MAX, 32), exclusive(128 * MIB, 32) },
    { exclusive(512, 0), exclusive(512, 256) },
    { direct(0, 32), direct(0, 32) },
    { direct(12345, 0), direct(12345, 256) },
    { direct(UINT64_MAX, UINT64_C(1) << 20), direct(UINT64_MAX, UINT64_C(1) << 20) },
    { sliced(4096, 0, 0, 0), sliced(4096, 4096, 0, 256) },
    { sliced(4096, 100, 0, 1), sliced(4096, 100, 0, 1) },
    { sliced(1024, 1024, 1000, 32), sliced(992, 992, 992, 32) },
    { sliced(1024, 0, 2047, 32), sliced(1024, 1024, 1024, 32) },
    { sliced(1024, 512, 2048, 32), sliced(1024, 512, 2048, 32) },
    { sliced(1024, 9999, 0, 32), sliced(1024, 1024, 0, 32) },
    { sliced(1000, 0, 4096, 256), sliced(1024, 1024, 4096, 256) },
    { growing(4096, MIB, 32), growing(4096, MIB, 32) },
    { growing(4096, UINT64_MAX, 32), growing(4096, 128 * MIB, 32) },
    { growing(1000, 10, 32), growing(1024, 1024, 32) },
    { capped(growing(4096, MIB, 32), 10 * MIB + 1), capped(growing(4096, MIB, 32), 10 * MIB) },
  };
  enum { CASES = sizeof cases / sizeof *cases };
  slicepool_pool_options asked[CASES];
  for (uint64_t c = 0; c < CASES; c++) {
    slicepool_pool_options *effective = &cases[c].effective;
    if (effective->kind == SLICEPOOL_POOL_SLICED_PAGES) {
      /* Pages that grow hold slices up to the largest page or the cap. */
      if (effective->max_page_size != 0)
        effective->max_slice_size = effective->max_pool_size == 0 ? 128 * MIB : effective->max_pool_size;
      effective->near_page = cases[c].asked.max_pool_size == 0 ? SLICEPOOL_NEAR_PAGE_ALWAYS : SLICEPOOL_NEAR_PAGE_NEVER;
      if (c % 2 == 0) effective->near_page = cases[c].asked.near_page = 1 + (uint32_t)(c / 2 % 2);
    }
    cases[c].asked.dealloc_period = effective->dealloc_period = c % 3 == 0 ? 0 : c % 3 == 1 ? c : UINT64_MAX - c;
    cases[c].asked.keep_bytes = effective->keep_bytes = c % 2 == 0 ? 0 : UINT64_MAX / c;
    asked[c] = cases[c].asked;
  }
  struct mock_device device;
  slicepool_allocator *allocator = create_list(&device, asked, CASES);
  slicepool_pool_options found[CASES];
  for (uint32_t c = 0; c < CASES; c++) {
    found[c] = options_in(allocator, c);
    if (!same_options(&found[c], &cases[c].effective)) FAIL("pool %d is not as expected", (int)c);
  }
  /* What is in effect leads to the same. */
  struct mock_device other_device;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_allocator *other = NULL;
  OK(try_list(found, CASES, SLICEPOOL_ALLOCATOR_VALIDATE, 128 * MIB, &failure, &other, &other_device));
  for (uint32_t c = 0; c < CASES; c++) {
    const slicepool_pool_options again = options_in(other, c);
    CHECK(same_options(&again, &found[c]));
  }
  finish(allocator, &device);
  finish(other, &other_device);
}

/* Also of one whose cap does not pay for a granule, which is not to be taken for one without a cap. */
static void a_pool_that_serves_nothing_says_so_in_its_options(void) {
  const slicepool_pool_options pools[2] = { sliced(1024, 0, 16, 32), capped(growing(1024, 2048, 32), 31) };
  for (int p = 0; p < 2; p++) {
    struct mock_device device, other_device;
    slicepool_allocator *allocator = create_one(&device, pools[p]);
    const slicepool_pool_options found = options_in(allocator, 0);
    CHECK(found.max_pool_size != 0 && found.max_pool_size < 32);
    slicepool_allocator *other = create_one(&other_device, found);
    const slicepool_pool_options again = options_in(other, 0);
    CHECK(same_options(&again, &found));
    CHECK_EQ(refused(allocator, 8, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED).limit, 0);
    CHECK_EQ(refused(other, 8, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED).limit, 0);
    CHECK_EQ(mock_calls(&device) + mock_calls(&other_device), 0);
    finish(allocator, &device);
    finish(other, &other_device);
  }
}

/* As large as a page can be is as large as it is after rounding. */
static void slices_may_be_as_large_as_pages_that_were_rounded_up(void) {
  slicepool_pool_options pool = sliced(1000, 0, 4096, 256);
  pool.near_page = SLICEPOOL_NEAR_PAGE_NEVER;
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, pool);
  CHECK_EQ(touch(allocator, 1024).size, 1024);
  CHECK_EQ(refused(allocator, 1025, 0, SLICEPOOL_ERROR_TOO_LARGE).limit, 1024);
  finish(allocator, &device);
}

/* The same calls are made on both; all answers must be equal. */
static void live_the_same_life(slicepool_allocator *one, slicepool_allocator *other, uint64_t seed) {
  enum { SLOTS = 100 };
  uint64_t ids[2][SLOTS] = { { 0 }, { 0 } }, state = seed;
  slicepool_allocator *const both[2] = { one, other };
  for (uint64_t i = 0; i < rounds(20000) + 200; i++) {
    const uint64_t at = random_between(&state, 0, SLOTS - 1), action = random_between(&state, 0, 19);
    const uint64_t size = random_between(&state, 1, UINT64_C(1) << random_between(&state, 0, 17));
    slicepool_slice slices[2] = { SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT };
    slicepool_result results[2];
    for (int a = 0; a < 2; a++) {
      if (action == 0) {
        results[a] = slicepool_trim(both[a], 64 * size, NULL);
      } else if (ids[a][at] == 0) {
        results[a] = try_take(both[a], size, 0, &slices[a], NULL);
        ids[a][at] = slices[a].id;
      } else if (action < 5) {
        results[a] = slicepool_try_resize(both[a], ids[a][at], size, &slices[a], NULL);
      } else {
        results[a] = slicepool_free(both[a], ids[a][at]);
        ids[a][at] = 0;
      }
    }
    CHECK_RESULT(results[1], results[0]);
    CHECK(slices[0].memory == slices[1].memory && slices[0].offset == slices[1].offset);
    CHECK(slices[0].size == slices[1].size && slices[0].address == slices[1].address);
  }
  for (int a = 0; a < 2; a++) OK(slicepool_free_many(both[a], ids[a], SLOTS, NULL));
}

static void a_pool_made_of_effective_options_is_the_same_pool(void) {
  for (int kind = 0; kind < KINDS; kind++) {
    struct mock_device device, other_device;
    slicepool_pool_options asked = kind_of(kind).pool;
    asked.page_size += asked.page_size == 0 ? 0 : 5;
    asked.max_pool_size += asked.max_pool_size == 0 ? 0 : 77;
    asked.dealloc_period = 50;
    asked.keep_bytes = 3000;
    slicepool_allocator *allocator = create_one(&device, asked);
    slicepool_allocator *other = create_one(&other_device, options_in(allocator, 0));
    live_the_same_life(allocator, other, 60 + (uint64_t)kind);
    CHECK_EQ(device.allocate_calls, other_device.allocate_calls);
    CHECK_EQ(device.deallocate_calls, other_device.deallocate_calls);
    finish(allocator, &device);
    finish(other, &other_device);
  }
}

/* ---- lists that come ready */

typedef slicepool_result (*layout)(const slicepool_layout_properties *, slicepool_pool_options *, uint32_t, uint32_t *);

static const layout layouts[3] = { slicepool_layout_adaptive, slicepool_layout_sub_slices,
                                   slicepool_layout_exclusive_pages };

static slicepool_layout_properties properties_of(uint64_t max_page, uint64_t alignment, uint64_t heap_size) {
  slicepool_layout_properties properties = SLICEPOOL_LAYOUT_PROPERTIES_INIT;
  properties.max_page = max_page;
  properties.alignment = alignment;
  properties.heap_size = heap_size;
  return properties;
}

static uint32_t make_list(layout make, slicepool_layout_properties properties, slicepool_pool_options *pools) {
  uint32_t count = 0;
  pools[0].struct_size = sizeof *pools;
  OK(make(&properties, pools, 32, &count));
  CHECK(count != 0 && count <= 32);
  for (uint32_t i = 0; i < count; i++) {
    CHECK_EQ(pools[i].struct_size, sizeof *pools);
    CHECK_EQ(pools[i].reserved, 0);
  }
  return count;
}

/* 5,000 for each started GiB above half of one. */
static uint64_t period_of(uint64_t size) { return 5000 * (1 + (size + GIB / 2) / GIB); }

static void exclusive_pages_of_128_mib_are_these_to_the_byte(void) {
  static const uint64_t sizes[24] = {
    32768,   47072,   67552,   96992,   139232,   199872,   286976,   411968,   591456,   849152,   1219136,  1750272,
    2512832, 3607616, 5179392, 7435968, 10675712, 15326944, 22004640, 31591744, 45355776, 65116608, 93486912, 134217728,
  };
  slicepool_pool_options pools[32];
  CHECK_EQ(make_list(slicepool_layout_exclusive_pages, properties_of(128 * MIB, 32, 0), pools), 24);
  for (int i = 0; i < 24; i++) {
    const slicepool_pool_options expected = ageing(exclusive(sizes[i], 32), 5000);
    CHECK_EQ(pools[i].max_alloc_size, sizes[i]);
    CHECK(same_options(&pools[i], &expected));
  }
}

/* The series is first * ratio^i, rounded up to the alignment. */
static void exclusive_pages_of_any_size_are_a_geometric_series(void) {
  static const uint64_t largest[] = { 100000 / 32 * 32, MIB, 3 * GIB, 6 * GIB, 80 * GIB, UINT64_C(1) << 36 };
  for (size_t l = 0; l < sizeof largest / sizeof *largest; l++) {
    slicepool_pool_options pools[32];
    const uint32_t count = make_list(slicepool_layout_exclusive_pages, properties_of(largest[l], 32, 0), pools);
    CHECK_EQ(count, 24);
    double low = 1, high = 100;
    for (int step = 0; step < 200; step++) {
      const double middle = (low + high) / 2;
      double power = 32768;
      for (int i = 0; i < 23; i++) power *= middle;
      if (power < (double)largest[l]) low = middle;
      else high = middle;
    }
    double exact = 32768;
    for (int i = 0; i < 24; i++, exact *= low) {
      const double size = (double)pools[i].max_alloc_size;
      CHECK(size > exact - 1.01 - exact * 1e-12 && size < exact + 32.01 + exact * 1e-12);
      CHECK_EQ(pools[i].max_alloc_size % 32, 0);
      CHECK_EQ(pools[i].dealloc_period, period_of(pools[i].max_alloc_size));
      CHECK(i == 0 || pools[i].max_alloc_size > pools[i - 1].max_alloc_size);
    }
    CHECK_EQ(pools[23].max_alloc_size, largest[l]);
  }
  /* Equal sizes occur once. */
  slicepool_pool_options pools[32];
  CHECK_EQ(make_list(slicepool_layout_exclusive_pages, properties_of(40000, 4096, 0), pools), 2);
  CHECK_EQ(pools[0].max_alloc_size, 32768);
  CHECK_EQ(pools[1].max_alloc_size, 36864);
  CHECK_EQ(make_list(slicepool_layout_exclusive_pages, properties_of(1000, 32, 0), pools), 1);
  CHECK_EQ(pools[0].max_alloc_size, 992);
}

static void check_sub_slices(uint64_t max_page, uint64_t alignment, uint64_t largest, uint64_t period, uint32_t rungs,
                             const uint64_t (*pages)[2]) {
  slicepool_pool_options pools[32];
  CHECK_EQ(make_list(slicepool_layout_sub_slices, properties_of(max_page, alignment, 0), pools), rungs + 2);
  slicepool_pool_options expected = exclusive(0, alignment);
  CHECK(same_options(&pools[0], &expected));
  for (uint32_t i = 0; i < rungs; i++) {
    CHECK_EQ(pools[i + 1].page_size, pages[i][0]);
    CHECK_EQ(pools[i + 1].max_slice_size, pages[i][1]);
    expected = sliced(pages[i][0], pages[i][1], 0, alignment);
    CHECK(same_options(&pools[i + 1], &expected));
  }
  expected = ageing(exclusive(largest, alignment), period);
  CHECK(same_options(&pools[rungs + 1], &expected));
}

static void sub_slices_are_a_ladder_in_steps_of_four(void) {
  static const uint64_t of_6_gib[4][2] = { { 24 * MIB, 3 * MIB / 2 },
                                           { 96 * MIB, 12 * MIB },
                                           { 384 * MIB, 96 * MIB },
                                           { 1536 * MIB, 768 * MIB } };
  check_sub_slices(6 * GIB, 32, 6 * GIB, 35000, 4, of_6_gib);
  static const uint64_t of_128_mib[2][2] = { { 8 * MIB, 2 * MIB }, { 32 * MIB, 16 * MIB } };
  check_sub_slices(128 * MIB, 32, 128 * MIB, 5000, 2, of_128_mib);
  check_sub_slices(128 * MIB, 256, 128 * MIB, 5000, 2, of_128_mib);
  static const uint64_t of_32_mib[1][2] = { { 8 * MIB, 4 * MIB } };
  check_sub_slices(32 * MIB, 32, 32 * MIB, 5000, 1, of_32_mib);
  check_sub_slices(32 * MIB - 1, 32, 32 * MIB - 32, 5000, 0, NULL);
  check_sub_slices(1000, 32, 992, 5000, 0, NULL);
}

static void adaptive_is_small_pages_and_pages_that_grow_within_heap_and_page(void) {
  static const struct {
    uint64_t max_page, heap, page, largest;
  } cases[] = {
    { 0, 0, 4 * MIB, 256 * MIB },          { 0, GIB, 4 * MIB, 128 * MIB }, { 0, 1, 4 * MIB, 4 * MIB },
    { 0, 64 * MIB, 4 * MIB, 8 * MIB },     { 0, 80 * GIB, 4 * MIB, 256 * MIB }, { 128 * MIB, 0, 4 * MIB, 128 * MIB },
    { 100 * MIB, GIB, 4 * MIB, 100 * MIB }, { 3 * MIB, 0, 3 * MIB, 3 * MIB },     { 4096, 0, 4096, 4096 },
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    slicepool_pool_options pools[32];
    const slicepool_layout_properties properties = properties_of(cases[c].max_page, 0, cases[c].heap);
    CHECK_EQ(make_list(slicepool_layout_adaptive, properties, pools), 2);
    slicepool_pool_options expected = ageing(sliced(cases[c].page, 0, 0, 256), 20000);
    expected.max_slice_size = cases[c].page < 64 * KIB ? cases[c].page : 64 * KIB;
    expected.near_page = SLICEPOOL_NEAR_PAGE_NEVER;
    CHECK(same_options(&pools[0], &expected));
    expected = ageing(growing(cases[c].page, cases[c].largest, 256), 20000);
    CHECK(same_options(&pools[1], &expected));
  }
  /* NULL is the defaults. */
  slicepool_pool_options pools[2] = { SLICEPOOL_POOL_OPTIONS_INIT }, defaults[32];
  uint32_t count = 0;
  OK(slicepool_layout_adaptive(NULL, pools, 2, &count));
  make_list(slicepool_layout_adaptive, properties_of(0, 0, 0), defaults);
  CHECK_EQ(count, 2);
  CHECK(memcmp(pools, defaults, sizeof pools) == 0);
}

/* The list of an allocator that is given none is that one, for its own device. */
static void a_config_without_pools_means_the_adaptive_list(void) {
  static const uint64_t devices[][2] = { { 0, 0 },          { 128 * MIB, GIB }, { 3 * MIB, 0 },
                                         { 0, 64 * MIB }, { 256, 0 },        { 1 * MIB, UINT64_MAX } };
  for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
    slicepool_pool_options pools[32];
    const uint32_t count =
        make_list(slicepool_layout_adaptive, properties_of(devices[d][0], 0, devices[d][1]), pools);
    struct mock_device device;
    mock_init(&device);
    slicepool_device table = mock_table(&device);
    slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
    config.max_page = devices[d][0];
    config.heap_size = devices[d][1];
    slicepool_allocator *without = NULL, *with = NULL;
    OK(slicepool_allocator_create(&table, &config, &without));
    config.pools = pools;
    config.pool_count = count;
    config.flags = SLICEPOOL_ALLOCATOR_VALIDATE;
    OK(slicepool_allocator_create(&table, &config, &with));
    CHECK_EQ(figures_of(without).pools, count);
    for (uint32_t pool = 0; pool < count; pool++) {
      const slicepool_pool_options one = options_in(without, pool), other = options_in(with, pool);
      CHECK(same_options(&one, &other));
    }
    OK(slicepool_allocator_destroy(without, 0, NULL));
    OK(slicepool_allocator_destroy(with, 0, NULL));
    mock_end(&device);
  }
}

/* 12: whatever the device, and in each order. */
static void a_program_that_allocates_one_byte_takes_four_megabytes_at_most(void) {
  static const uint64_t devices[][2] = { { 0, 0 },       { 128 * MIB, GIB }, { 128 * MIB, 1 }, { 4 * MIB, 64 * MIB },
                                         { 3 * MIB, 0 }, { 1000, 0 },        { 100, 0 },       { 1, 0 },
                                         { 0, 1 },       { 0, UINT64_MAX },  { 3, UINT64_MAX } };
  for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
    struct mock_device device;
    mock_init(&device);
    slicepool_device table = mock_table(&device);
    slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
    config.max_page = devices[d][0];
    config.heap_size = devices[d][1];
    slicepool_allocator *allocator = NULL;
    OK(slicepool_allocator_create(&table, &config, &allocator));
    CHECK_EQ(mock_calls(&device), 0);
    slicepool_slice slice = take(allocator, 1);
    CHECK_EQ(device.given, 1);
    CHECK_LE(device.bytes, 4 * MIB);
    uint64_t most = UINT64_MAX;
    for (int limit = 0; limit < 2; limit++)
      if (devices[d][limit] != 0 && devices[d][limit] < most) most = devices[d][limit];
    CHECK_LE(device.bytes, most);
    if (most >= 4 * MIB) CHECK_EQ(device.bytes, 4 * MIB);
    OK(slicepool_free(allocator, slice.id));
    finish(allocator, &device);
  }
}

static void a_list_is_written_only_if_the_whole_of_it_fits(void) {
  for (int l = 0; l < 3; l++) {
    slicepool_pool_options pools[33], untouched[33], expected[32];
    const slicepool_layout_properties properties = properties_of(128 * MIB, 32, 0);
    const uint32_t all = make_list(layouts[l], properties, expected);
    for (uint32_t capacity = 0; capacity <= 33; capacity++) {
      memset(pools, 0x77, sizeof pools);
      pools[0].struct_size = sizeof *pools;
      memcpy(untouched, pools, sizeof pools);
      uint32_t count = 99;
      OK(layouts[l](&properties, pools, capacity, &count));
      CHECK_EQ(count, all);
      const uint32_t written = capacity < all ? 0 : all;
      CHECK(memcmp(pools, expected, written * sizeof *pools) == 0);
      CHECK(memcmp(pools + written, untouched + written, (33 - written) * sizeof *pools) == 0);
    }
    uint32_t count = 99;
    OK(layouts[l](&properties, NULL, 0, &count));
    CHECK_EQ(count, all);
    /* One that is never written to need not be well-formed: nothing of it is looked at. */
    count = 99;
    memset(pools, 0, sizeof pools);
    OK(layouts[l](&properties, pools, 0, &count));
    CHECK_EQ(count, all);
  }
}

/* Elements as an older caller knows them, and a newer one: each gets as much as it knows, and zeros beyond. */
static void lists_for_older_and_newer_callers_have_elements_of_their_size(void) {
  enum { LARGEST = sizeof(slicepool_pool_options) + 64 };
  for (int l = 0; l < 3; l++) {
    slicepool_pool_options expected[32];
    const slicepool_layout_properties properties = properties_of(128 * MIB, 32, 0);
    const uint32_t all = make_list(layouts[l], properties, expected);
    for (uint32_t stride = 8; stride <= LARGEST; stride += 8) {
      static unsigned char list[33 * LARGEST], untouched[LARGEST];
      memset(list, 0x77, sizeof list);
      memset(untouched, 0x77, sizeof untouched);
      memcpy(list, &stride, sizeof stride);
      uint32_t count = 0;
      OK(layouts[l](&properties, (slicepool_pool_options *)(void *)list, all, &count));
      CHECK_EQ(count, all);
      for (uint32_t i = 0; i < all; i++) {
        static unsigned char element[LARGEST];
        memset(element, 0, sizeof element);
        memcpy(element, &expected[i], sizeof expected[i]);
        memcpy(element, &stride, sizeof stride);
        CHECK(memcmp(list + i * stride, element, stride) == 0);
      }
      CHECK(memcmp(list + all * stride, untouched, stride) == 0);
      if (stride < offsetof(slicepool_pool_options, dealloc_period)) continue;
      /* It goes back in as it came out. */
      struct mock_device device;
      slicepool_allocator *allocator = NULL;
      slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
      OK(try_list((const slicepool_pool_options *)(const void *)list, all, 0, 128 * MIB, &failure, &allocator, &device));
      for (uint32_t i = 0; i < all; i++) {
        CHECK_EQ(options_in(allocator, i).kind, expected[i].kind);
        CHECK_EQ(options_in(allocator, i).page_size, expected[i].page_size);
        CHECK_EQ(options_in(allocator, i).dealloc_period,
                 stride > offsetof(slicepool_pool_options, dealloc_period) ? expected[i].dealloc_period : 0);
      }
      OK(slicepool_allocator_destroy(allocator, 0, NULL));
      mock_end(&device);
    }
  }
}

static void alignments_that_are_no_good_are_refused_by_every_list(void) {
  static const struct {
    uint64_t max_page, alignment;
  } wrong[] = { { 0, 3 },       { 0, 48 },     { 0, UINT64_MAX }, { 0, (UINT64_C(1) << 63) + 1 }, { 1024, 2048 },
                { 31, 32 },     { 255, 0 },    { 1, 2 },          { 0, UINT64_C(1) << 33 },
                { 128 * MIB, UINT64_C(1) << 32 } };
  for (int l = 0; l < 3; l++) {
    for (size_t w = 0; w < sizeof wrong / sizeof *wrong; w++) {
      slicepool_pool_options pool, untouched;
      memset(&pool, 0x77, sizeof pool);
      pool.struct_size = sizeof pool;
      untouched = pool;
      uint32_t count = 99;
      const slicepool_layout_properties properties = properties_of(wrong[w].max_page, wrong[w].alignment, 0);
      CHECK_RESULT(layouts[l](&properties, &pool, 1, &count), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_RESULT(layouts[l](&properties, NULL, 0, &count), SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_EQ(count, 99);
      CHECK(same_options(&pool, &untouched));
    }
  }
}

/* Every list is valid for the device it was made for, is in effect as it is, and serves all sizes up to the largest
 * page and no larger ones. */
static void every_list_is_valid_and_serves_all_sizes_up_to_the_largest_page(void) {
  static const uint64_t largest[] = { 1,           31,        4096,      100000,    32 * MIB - 1,        32 * MIB,
                                      128 * MIB, 6 * GIB, 80 * GIB, UINT64_C(1) << 50, 0 };
  static const uint64_t alignments[] = { 1, 32, 256, 4096, MIB, UINT64_C(1) << 32 };
  for (size_t m = 0; m < sizeof largest / sizeof *largest; m++) {
    for (size_t a = 0; a < sizeof alignments / sizeof *alignments; a++) {
      if (largest[m] != 0 && largest[m] < alignments[a]) continue;
      for (int l = 0; l < 3; l++) {
        slicepool_pool_options pools[32];
        const uint32_t count = make_list(layouts[l], properties_of(largest[m], alignments[a], 0), pools);
        struct mock_device device;
        slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
        slicepool_allocator *allocator = NULL;
        OK(try_list(pools, count, SLICEPOOL_ALLOCATOR_VALIDATE, largest[m], &failure, &allocator, &device));
        uint64_t limit = UINT64_C(0xFFFFFFFF) * alignments[a];
        if (limit / alignments[a] != 0xFFFFFFFF) limit = UINT64_MAX;
        if (largest[m] != 0 && largest[m] / alignments[a] * alignments[a] < limit)
          limit = largest[m] / alignments[a] * alignments[a];
        for (uint32_t i = 0; i < count; i++) {
          slicepool_pool_options found = options_in(allocator, i);
          /* What is only a default or a clamp. */
          if (pools[i].max_slice_size == 0) found.max_slice_size = 0;
          if (pools[i].near_page == SLICEPOOL_NEAR_PAGE_WHEN_UNCAPPED) found.near_page = 0;
          CHECK(same_options(&found, &pools[i]));
        }
        for (int shift = 0; shift < 36; shift += is_slow() ? 5 : 1) {
          for (uint64_t more = 0; more < 3; more++) {
            const uint64_t size = (UINT64_C(1) << shift) + more - 1;
            if (size != 0 && size <= limit) touch(allocator, size);
            device.next_address = UINT64_C(1) << 52;
          }
        }
        refused(allocator, limit + 1, 0, SLICEPOOL_ERROR_TOO_LARGE);
        finish(allocator, &device);
      }
    }
  }
}

static void five_requests_twice_leave_the_same_figures_and_hold_no_more(void) {
  slicepool_pool_options pools[32];
  const uint32_t count = make_list(slicepool_layout_sub_slices, properties_of(128 * MIB, 32, 0), pools);
  struct mock_device device;
  slicepool_allocator *allocator = create_list(&device, pools, count);
  slicepool_statistics first = SLICEPOOL_STATISTICS_INIT;
  for (int round = 0; round < 2; round++) {
    uint64_t ids[5];
    for (uint64_t i = 0; i < 5; i++) ids[i] = take(allocator, 1000 * (i + 1)).id;
    const slicepool_statistics figures = figures_of(allocator);
    CHECK_EQ(figures.slices, 5);
    CHECK_EQ(figures.in_use_bytes, 15000);
    if (round == 0) first = figures;
    CHECK_LE(figures.reserved_bytes, first.reserved_bytes);
    OK(slicepool_free_many(allocator, ids, 5, NULL));
  }
  finish(allocator, &device);
}

/* ---- pages that grow */

static uint64_t least_of(uint64_t a, uint64_t b) {
  return a < b ? a : b;
}

static uint64_t most_of(uint64_t a, uint64_t b) {
  return a > b ? a : b;
}

static void pages_grow_with_what_is_held(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, growing(4 * MIB, 256 * MIB, 256));
  uint64_t held = 0;
  for (int i = 0; i < 20000; i++) {
    const uint64_t pages = device.given;
    take(allocator, MIB);
    if (device.given == pages) continue;
    /* An eighth of what is held up to 16 times the first page, a sixty-fourth beyond; of that whole slices. */
    const uint64_t share = most_of(least_of(held / 8, 64 * MIB), held / 64);
    CHECK_EQ(device.last_size, least_of(most_of(share, 4 * MIB), 256 * MIB) / MIB * MIB);
    held += device.last_size;
  }
  CHECK_LE(256 * MIB, device.last_size);
  CHECK_LE(device.bytes, 20000 * MIB + 256 * MIB);
  check_books(allocator, &device);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);
}

static void a_larger_request_gets_a_page_of_its_size_in_steps_of_a_sixteenth_of_the_first(void) {
  static const uint64_t sizes[][2] = { { 1, MIB },
                                       { MIB, MIB },
                                       { MIB + 1, MIB + 64 * KIB },
                                       { 2 * MIB, 2 * MIB },
                                       { 2 * MIB + 1, 2 * MIB + 64 * KIB },
                                       { 9 * MIB + 1, 9 * MIB + 64 * KIB },
                                       { 127 * MIB + 1, 127 * MIB + 64 * KIB },
                                       { 128 * MIB, 128 * MIB } };
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_one(&device, growing(MIB, 4 * MIB, 32));
    slicepool_slice slice = take(allocator, sizes[s][0]);
    CHECK_EQ(device.last_size, sizes[s][1]);
    CHECK_EQ(device.given, 1);
    /* What is left serves others. */
    if (slice.size < sizes[s][1]) {
      slicepool_slice rest = take(allocator, sizes[s][1] - slice.size);
      CHECK_EQ(rest.memory, slice.memory);
      OK(slicepool_free(allocator, rest.id));
    }
    OK(slicepool_free(allocator, slice.id));
    finish(allocator, &device);
  }
}

static void pages_that_hold_nothing_and_are_too_small_go_back_before_a_larger_one_is_taken(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_one(&device, growing(MIB, 16 * MIB, 32));
  slicepool_slice live = take(allocator, MIB);
  uint64_t ids[3];
  for (uint64_t i = 0; i < 3; i++) ids[i] = take(allocator, i == 2 ? 4 * MIB : MIB).id;
  OK(slicepool_free_many(allocator, ids, 3, NULL));
  CHECK_EQ(device.bytes, 7 * MIB);
  slicepool_slice large = take(allocator, 5 * MIB);
  CHECK_EQ(device.taken, 3);
  CHECK_EQ(device.bytes, 6 * MIB);
  CHECK_EQ(device.bytes_peak, 7 * MIB);
  CHECK_EQ(look_up(allocator, live.id).size, MIB);
  OK(slicepool_free(allocator, live.id));
  OK(slicepool_free(allocator, large.id));
  finish(allocator, &device);
  /* So an idle page is in the way of no limit. */
  allocator = create_one(&device, growing(MIB, 16 * MIB, 32));
  device.capacity = 6 * MIB;
  touch(allocator, MIB);
  touch(allocator, 6 * MIB);
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(a_request_that_nearly_fills_a_page_leaves_less_than_a_fifth_of_it),
  TEST(what_any_pool_holds_is_used_before_any_pool_grows),
  TEST(pools_that_can_grow_do_so_in_order_and_full_ones_are_passed_over),
  TEST(the_capacity_error_is_given_only_when_no_pool_is_left),
  TEST(a_failing_device_is_never_masked_by_a_full_pool_or_one_that_is_too_small),
  TEST(the_most_generous_limit_is_named_when_no_pool_takes_a_request),
  TEST(a_request_for_one_pool_is_served_by_that_pool_only),
  TEST(a_request_for_one_pool_is_refused_by_what_that_pool_lacks),
  TEST(a_batch_places_each_slice_in_the_pool_it_is_for),
  TEST(fields_of_another_kind_are_refused_by_name_and_value),
  TEST(each_kind_is_refused_by_the_field_that_contradicts_itself_and_its_value),
  TEST(what_was_asked_for_is_in_effect_after_rounding_clamping_and_defaults),
  TEST(a_pool_that_serves_nothing_says_so_in_its_options),
  TEST(slices_may_be_as_large_as_pages_that_were_rounded_up),
  TEST(a_pool_made_of_effective_options_is_the_same_pool),
  TEST(exclusive_pages_of_128_mib_are_these_to_the_byte),
  TEST(exclusive_pages_of_any_size_are_a_geometric_series),
  TEST(sub_slices_are_a_ladder_in_steps_of_four),
  TEST(adaptive_is_small_pages_and_pages_that_grow_within_heap_and_page),
  TEST(a_config_without_pools_means_the_adaptive_list),
  TEST(a_program_that_allocates_one_byte_takes_four_megabytes_at_most),
  TEST(a_list_is_written_only_if_the_whole_of_it_fits),
  TEST(lists_for_older_and_newer_callers_have_elements_of_their_size),
  TEST(alignments_that_are_no_good_are_refused_by_every_list),
  TEST(every_list_is_valid_and_serves_all_sizes_up_to_the_largest_page),
  TEST(five_requests_twice_leave_the_same_figures_and_hold_no_more),
  TEST(pages_grow_with_what_is_held),
  TEST(a_larger_request_gets_a_page_of_its_size_in_steps_of_a_sixteenth_of_the_first),
  TEST(pages_that_hold_nothing_and_are_too_small_go_back_before_a_larger_one_is_taken),
};

TEST_MAIN(tests)
