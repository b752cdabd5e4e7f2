/* What buffer pools are asked for: every function that changes a config or tells something of it. */
#include "buffers.h"
#include "check.h"

typedef slicepool_buffer_pool_config config_t;

#define CONFIG(name) slicepool_buffer_pool_config_##name

static config_t fresh(slicepool_failure *failure) {
  config_t config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  config.failure = failure;
  return config;
}

/* Classes of these sizes with these limits; a limit of 0 ends the list. */
struct class {
  uint64_t size;
  uint32_t limit;
};

enum { CLASSES = 16 };

static config_t config_from(const struct class classes[CLASSES], slicepool_failure *failure) {
  config_t config = fresh(failure);
  uint64_t sizes[CLASSES];
  uint32_t limits[CLASSES], count = 0;
  for (; count < CLASSES && classes[count].limit != 0; count++) {
    sizes[count] = classes[count].size;
    limits[count] = classes[count].limit;
  }
  OK(CONFIG(with_size_classes)(&config, sizes, limits, count));
  return config;
}

static uint64_t tracked(const config_t *config) {
  uint64_t bytes = 0;
  OK(CONFIG(max_tracked_bytes)(config, &bytes));
  return bytes;
}

static uint32_t count_of(const config_t *config) {
  uint32_t count = 0;
  OK(CONFIG(class_count)(config, &count));
  return count;
}

static struct class class_at(const config_t *config, uint32_t index) {
  struct class class = { 0, 0 };
  OK(CONFIG(class_get)(config, index, &class.size, &class.limit));
  return class;
}

/* The limits in ascending order of size; 0 ends the list. */
static void check_limits(const config_t *config, const uint32_t limits[CLASSES]) {
  const uint32_t count = count_of(config);
  for (uint32_t i = 0; i < count; i++) CHECK_EQ(class_at(config, i).limit, limits[i]);
  CHECK(count == CLASSES || limits[count] == 0);
}

static void check_refused(slicepool_result result, const slicepool_failure *failure, const char *field, uint64_t value,
                          uint64_t limit, uint64_t size) {
  CHECK_RESULT(result, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(failure->result, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure->field, field);
  CHECK_EQ(failure->value, value);
  CHECK_EQ(failure->limit, limit);
  CHECK_EQ(failure->size, size);
}

/* The call is refused with these details, and the config is as it was. */
#define REFUSED_BY(config, call, field, value, limit, size)                       \
  do {                                                                            \
    const config_t refused_before = (config);                                     \
    check_refused(call, (config).failure, field, value, limit, size);             \
    CHECK(memcmp(&refused_before, &(config), sizeof(config)) == 0);               \
  } while (0)

#define TWO_62 (UINT64_C(1) << 62)
#define TWO_63 (UINT64_C(1) << 63)

/* ---- presets */

static void presets_are_as_the_header_says(void) {
  config_t config = fresh(NULL);
  /* All zero stands for the classes of networks. */
  CHECK_EQ(count_of(&config), 8);
  CHECK_EQ(tracked(&config), 1069547520);
  config.pool_min_size = config.alignment = config.parallelism = config.max_thread_cache_capacity = 7;
  config.flags = SLICEPOOL_BUFFER_POOL_PREFILL | SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED;
  config.max_bytes = 99;
  config.name = "a name";
  OK(CONFIG(for_network)(&config));
  CHECK_EQ(count_of(&config), 8);
  for (uint32_t i = 0; i < 8; i++) CHECK(class_at(&config, i).size == KIB << i && class_at(&config, i).limit == 4096);
  CHECK_EQ(tracked(&config), 1069547520);
  /* What only C has stays. */
  CHECK_EQ(config.flags, SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED);
  CHECK(config.max_bytes == 99 && strcmp(config.name, "a name") == 0);
  CHECK(config.pool_min_size == 0 && config.max_thread_cache_capacity == 0);
  CHECK(config.alignment <= 1 && config.parallelism <= 1);

  OK(CONFIG(for_storage_with_page_size)(&config, 4096));
  CHECK_EQ(count_of(&config), 12);
  CHECK_EQ(class_at(&config, 0).size, 4096);
  CHECK(class_at(&config, 11).size == 8 * MIB && class_at(&config, 11).limit == 64);
  CHECK_EQ(tracked(&config), 1073479680);
  OK(CONFIG(for_storage_with_page_size)(&config, 8 * MIB));
  CHECK_EQ(count_of(&config), 1);
  OK(CONFIG(for_storage)(&config));
  uint64_t least = 0, most = 0;
  OK(CONFIG(min_size)(&config, &least));
  OK(CONFIG(max_size)(&config, &most));
  CHECK_EQ(least, sysconf(_SC_PAGESIZE));
  CHECK_EQ(most, 8 * MIB);

  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  config.failure = &failure;
  static const uint64_t pages[] = { 0, 3, 4095, 16 * MIB, TWO_63, UINT64_MAX };
  for (size_t i = 0; i < sizeof pages / sizeof *pages; i++)
    REFUSED_BY(config, CONFIG(for_storage_with_page_size)(&config, pages[i]), "page_size", pages[i], 8 * MIB, 0);
}

/* ---- shapes */

static void ranges_and_lists_replace_the_classes(void) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  config_t config = fresh(&failure);
  OK(CONFIG(with_size_class)(&config, MIB, 5));
  CHECK_EQ(count_of(&config), 9);
  OK(CONFIG(with_size_class_range)(&config, 512, 1024, 2));
  check_limits(&config, (uint32_t[CLASSES]){ 2, 2 });
  CHECK_EQ(class_at(&config, 0).size, 512);
  OK(CONFIG(with_size_class_range)(&config, TWO_62, TWO_62, 1));
  CHECK_EQ(class_at(&config, 0).size, TWO_62);

  REFUSED_BY(config, CONFIG(with_size_class_range)(&config, 3, 5, 1), "size", 3, 0, 0);
  REFUSED_BY(config, CONFIG(with_size_class_range)(&config, 0, 8, 1), "size", 0, 0, 0);
  REFUSED_BY(config, CONFIG(with_size_class_range)(&config, 8, 5, 1), "size", 5, 0, 0);
  REFUSED_BY(config, CONFIG(with_size_class_range)(&config, TWO_63, 8, 1), "size", TWO_63, TWO_63 - 1, 0);
  REFUSED_BY(config, CONFIG(with_size_class_range)(&config, 8, TWO_63, 1), "size", TWO_63, TWO_63 - 1, 0);
  REFUSED_BY(config, CONFIG(with_size_class_range)(&config, 8, 4, 1), "max_size", 4, 8, 0);
  REFUSED_BY(config, CONFIG(with_size_class_range)(&config, 4, 8, 0), "max_buffers", 0, 0, 0);

  /* In any order. */
  config = config_from((struct class[CLASSES]){ { 4096, 64 }, { 64, 4 }, { 1024, 7 } }, &failure);
  check_limits(&config, (uint32_t[CLASSES]){ 4, 7, 64 });
  const uint64_t sizes[4] = { 64, 128, 64, 12 };
  const uint32_t limits[4] = { 1, 2, 3, 4 }, no_limits[2] = { 1, 0 };
  REFUSED_BY(config, CONFIG(with_size_classes)(&config, sizes, limits, 4), "size", 64, 0, 0);
  CHECK_EQ(failure.index, 2);
  REFUSED_BY(config, CONFIG(with_size_classes)(&config, &sizes[1], limits, 3), "size", 12, 0, 0);
  CHECK_EQ(failure.index, 2);
  REFUSED_BY(config, CONFIG(with_size_classes)(&config, sizes, no_limits, 2), "max_buffers", 0, 0, 0);
  CHECK_EQ(failure.index, 1);
  REFUSED_BY(config, CONFIG(with_size_classes)(&config, sizes, limits, 0), "classes", 0, 0, 0);
  CHECK_EQ(failure.index, 0);
  REFUSED_BY(config, CONFIG(with_size_classes)(&config, NULL, limits, 1), "sizes", 0, 0, 0);
  REFUSED_BY(config, CONFIG(with_size_classes)(&config, sizes, NULL, 1), "max_buffers", 0, 0, 0);
  const uint64_t too_large = TWO_63;
  REFUSED_BY(config, CONFIG(with_size_classes)(&config, &too_large, limits, 1), "size", TWO_63, TWO_63 - 1, 0);
}

static void classes_come_and_go_one_by_one(void) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  config_t config = classes_of(1024, 8192, 8);
  config.failure = &failure;
  OK(CONFIG(without_size_class)(&config, 2048));
  CHECK_EQ(count_of(&config), 3);
  REFUSED_BY(config, CONFIG(without_size_class)(&config, 2048), "size", 2048, 0, 0);
  OK(CONFIG(with_size_class)(&config, 2048, 3));
  check_limits(&config, (uint32_t[CLASSES]){ 8, 3, 8, 8 });
  /* An end moves the span. */
  OK(CONFIG(without_size_class)(&config, 1024));
  OK(CONFIG(without_size_class)(&config, 8192));
  OK(CONFIG(with_size_class)(&config, 1, 9));
  check_limits(&config, (uint32_t[CLASSES]){ 9, 3, 8 });
  OK(CONFIG(without_size_class)(&config, 1));
  OK(CONFIG(without_size_class)(&config, 2048));
  REFUSED_BY(config, CONFIG(without_size_class)(&config, 4096), "size", 4096, 0, 0);
  REFUSED_BY(config, CONFIG(without_size_class)(&config, 4095), "size", 4095, 0, 0);
  REFUSED_BY(config, CONFIG(without_size_class)(&config, TWO_63), "size", TWO_63, TWO_63 - 1, 0);
  REFUSED_BY(config, CONFIG(with_size_class)(&config, 4096, 0), "max_buffers", 0, 0, 0);
  REFUSED_BY(config, CONFIG(with_size_class)(&config, 0, 1), "size", 0, 0, 0);
  REFUSED_BY(config, CONFIG(with_size_class)(&config, TWO_63, 1), "size", TWO_63, TWO_63 - 1, 0);
  /* A class that is too large to be addressed is refused wherever it is looked at. */
  config.limits[63] = 1;
  REFUSED_BY(config, CONFIG(check)(&config), "size", TWO_63, TWO_63 - 1, 0);
  REFUSED_BY(config, CONFIG(with_max_per_class)(&config, 1), "size", TWO_63, TWO_63 - 1, 0);
}

static void limits_of_all_classes_change_together(void) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  config_t config = fresh(&failure);
  for (uint64_t bytes = 1; bytes < 2048; bytes = bytes * 3 / 2 + 1) {
    OK(CONFIG(with_bytes_per_class)(&config, bytes));
    check_limits(&config, (uint32_t[CLASSES]){ 1, 1, 1, 1, 1, 1, 1, 1 });
  }
  OK(CONFIG(with_bytes_per_class)(&config, 4096));
  check_limits(&config, (uint32_t[CLASSES]){ 4, 2, 1, 1, 1, 1, 1, 1 });
  OK(CONFIG(with_bytes_per_class)(&config, 65536));
  check_limits(&config, (uint32_t[CLASSES]){ 64, 32, 16, 8, 4, 2, 1, 1 });
  OK(CONFIG(with_bytes_per_class)(&config, MIB));
  check_limits(&config, (uint32_t[CLASSES]){ 1024, 512, 256, 128, 64, 32, 16, 8 });
  OK(CONFIG(with_max_per_class)(&config, 9));
  check_limits(&config, (uint32_t[CLASSES]){ 9, 9, 9, 9, 9, 9, 9, 9 });
  REFUSED_BY(config, CONFIG(with_max_per_class)(&config, 0), "max_buffers", 0, 0, 0);
  REFUSED_BY(config, CONFIG(with_bytes_per_class)(&config, 0), "bytes", 0, 0, 0);

  config = config_from((struct class[CLASSES]){ { 1, 1 } }, &failure);
  OK(CONFIG(with_bytes_per_class)(&config, UINT32_MAX));
  check_limits(&config, (uint32_t[CLASSES]){ UINT32_MAX });
  REFUSED_BY(config, CONFIG(with_bytes_per_class)(&config, UINT64_C(1) << 32), "bytes", UINT64_C(1) << 32, UINT32_MAX, 1);
  config = config_from((struct class[CLASSES]){ { 2, 1 } }, &failure);
  OK(CONFIG(with_bytes_per_class)(&config, (UINT64_C(1) << 33) - 1));
  check_limits(&config, (uint32_t[CLASSES]){ UINT32_MAX });
}

/* ---- budgets */

struct budget_row {
  struct class classes[CLASSES];
  uint64_t budget;
  uint32_t limits[CLASSES];
};

#define UNIT { 4, 1 }, { 8, 1 }, { 16, 1 }
#define MIXED { KIB, 1000 }, { 4 * KIB, 300 }, { 64 * KIB, 7 }
#define U32 UINT32_MAX

static const struct budget_row budget_rows[] = {
  { { UNIT }, 28, { 1, 1, 1 } },
  { { UNIT }, 55, { 1, 1, 1 } },
  { { UNIT }, 56, { 2, 2, 2 } },
  { { UNIT }, 279, { 9, 9, 9 } },
  { { UNIT }, 280, { 10, 10, 10 } },
  { { UNIT }, 308, { 11, 11, 11 } },
  { { { 4, 4 }, { 16, 1 } }, 20, { 1, 1 } },
  { { { 4, 4 }, { 16, 1 } }, 31, { 3, 1 } },
  { { { 4, 4 }, { 16, 1 } }, 35, { 4, 1 } },
  { { { 4, 4 }, { 16, 1 } }, 40, { 6, 1 } },
  { { { 4, 4 }, { 16, 1 } }, 100, { 13, 3 } },
  { { { 1, 3 }, { 8, 2 } }, 9, { 1, 1 } },
  { { { 1, 3 }, { 8, 2 } }, 19, { 3, 2 } },
  { { { 1, 3 }, { 8, 2 } }, 40, { 7, 4 } },
  { { MIXED }, 70656, { 1, 1, 1 } },
  { { MIXED }, 500000, { 193, 57, 1 } },
  { { MIXED }, 2711551, { 999, 299, 6 } },
  { { MIXED }, 2711552, { 1000, 300, 7 } },
  { { MIXED }, UINT64_C(1) << 30, { 395999, 118799, 2771 } },
  { { { 64, 1 }, { MIB, 1000 } }, 1048640, { 1, 1 } },
  { { { 64, 1000000 }, { MIB, 1 } }, 2 * MIB, { 16384, 1 } },
  { { { 1, 1 } }, U32, { U32 } },
  { { { 1, U32 }, { 2, U32 - 1 } }, 1000000, { 333334, 333333 } },
  { { { 1, U32 }, { 2, U32 - 1 } }, UINT64_C(3) << 31, { 2147483648u, 2147483648u } },
  { { { 1, 4000000000u }, { 4096, 1 } }, 4000008192u, { 4000004096u, 1 } },
  { { { 1, 1 }, { TWO_62, 1 } }, UINT64_MAX, { 3, 3 } },
};

static void budgets_scale_limits_exactly(void) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  for (size_t i = 0; i < sizeof budget_rows / sizeof *budget_rows; i++) {
    config_t config = config_from(budget_rows[i].classes, &failure);
    OK(CONFIG(with_budget_bytes)(&config, budget_rows[i].budget));
    check_limits(&config, budget_rows[i].limits);
    CHECK_LE(tracked(&config), budget_rows[i].budget);
  }
  /* Of networks, uniform limits stay uniform. */
  static const struct { uint64_t budget; uint32_t limit; } network[] = {
    { 261120, 1 }, { MIB, 4 }, { 16 * MIB, 64 }, { 64 * MIB, 257 }, { 255 * MIB, 1024 }, { 512 * MIB, 2056 },
    { GIB, 4112 }, { 4 * GIB, 16448 },
  };
  for (size_t i = 0; i < sizeof network / sizeof *network; i++) {
    config_t config = fresh(&failure);
    OK(CONFIG(with_budget_bytes)(&config, network[i].budget));
    for (uint32_t c = 0; c < 8; c++) CHECK_EQ(class_at(&config, c).limit, network[i].limit);
  }
  /* Not idempotent, and not remembered. */
  config_t config = config_from((struct class[CLASSES]){ { 1, 3 }, { 8, 2 } }, &failure);
  static const uint32_t again[3][CLASSES] = { { 4, 2 }, { 5, 2 }, { 5, 2 } };
  for (int i = 0; i < 3; i++) {
    OK(CONFIG(with_budget_bytes)(&config, 21));
    check_limits(&config, again[i]);
  }
  config = config_from((struct class[CLASSES]){ UNIT }, &failure);
  OK(CONFIG(with_budget_bytes)(&config, 280));
  OK(CONFIG(with_max_per_class)(&config, 100));
  CHECK_EQ(tracked(&config), 2800);
  OK(CONFIG(with_budget_bytes)(&config, 280));
  OK(CONFIG(with_size_class)(&config, 32, 100));
  CHECK_EQ(tracked(&config), 3480);
}

static void budgets_that_do_not_work_tell_why(void) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  config_t config = config_from((struct class[CLASSES]){ UNIT }, &failure);
  REFUSED_BY(config, CONFIG(with_budget_bytes)(&config, 27), "budget", 27, 28, 0);
  REFUSED_BY(config, CONFIG(with_budget_bytes)(&config, 0), "budget", 0, 28, 0);
  config = fresh(&failure);
  REFUSED_BY(config, CONFIG(with_budget_bytes)(&config, 261119), "budget", 261119, 261120, 0);
  OK(CONFIG(for_storage_with_page_size)(&config, 4096));
  REFUSED_BY(config, CONFIG(with_budget_bytes)(&config, 16 * MIB - 4097), "budget", 16 * MIB - 4097, 16 * MIB - 4096, 0);
  OK(CONFIG(with_budget_bytes)(&config, 16 * MIB - 4096));
  config = config_from((struct class[CLASSES]){ { 1, 1 } }, &failure);
  REFUSED_BY(config, CONFIG(with_budget_bytes)(&config, UINT64_C(1) << 32), "budget", UINT64_C(1) << 32, U32, 1);
}

/* ---- what a config comes to */

static void requests_are_routed_to_the_smallest_class_that_fits(void) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  config_t config = config_from((struct class[CLASSES]){ { 4096, 4 }, { 32768, 2 } }, &failure);
  OK(CONFIG(with_pool_min_size)(&config, 4000));
  static const struct { uint64_t size, class; } rows[] = {
    { 0, 4096 }, { 1, 4096 }, { 4096, 4096 }, { 4097, 32768 }, { 16384, 32768 }, { 32768, 32768 },
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    struct class class = { 0, 0 };
    OK(CONFIG(class_for)(&config, rows[i].size, &class.size, &class.limit));
    CHECK_EQ(class.size, rows[i].class);
    CHECK_EQ(class.limit, class.size == 4096 ? 4 : 2);
  }
  static const uint64_t larger[] = { 32769, TWO_63, TWO_63 + 1, UINT64_MAX };
  for (size_t i = 0; i < sizeof larger / sizeof *larger; i++) {
    struct class class = { 77, 78 };
    CHECK_RESULT(CONFIG(class_for)(&config, larger[i], &class.size, &class.limit), SLICEPOOL_ERROR_OVERSIZED);
    CHECK(class.size == 77 && class.limit == 78 && failure.size == larger[i] && failure.limit == 32768);
  }
  REFUSED_BY(config, CONFIG(class_get)(&config, 2, &(uint64_t){ 0 }, &(uint32_t){ 0 }), "index", 2, 0, 0);
  /* Sums that do not fit are cut off. */
  config = config_from((struct class[CLASSES]){ { TWO_62, U32 } }, &failure);
  CHECK_EQ(tracked(&config), UINT64_MAX);
  OK(CONFIG(with_max_per_class)(&config, 4));
  CHECK_EQ(tracked(&config), UINT64_MAX);
  OK(CONFIG(with_max_per_class)(&config, 3));
  CHECK_EQ(tracked(&config), 3 * TWO_62);
}

static uint32_t capacity_of(const config_t *config, uint32_t limit) {
  uint32_t capacity = 77;
  OK(CONFIG(cache_capacity)(config, limit, &capacity));
  return capacity;
}

static void caches_have_the_capacity_of_the_formulas(void) {
  static const struct { uint32_t limit; uint64_t parallelism; uint32_t capacity; } automatic[] = {
    { 1, 1, 0 }, { 2, 1, 1 }, { 2, 8, 0 }, { 3, 1, 1 }, { 4, 2, 1 }, { 8, 4, 1 }, { 100, 3, 16 }, { 64, 1, 32 },
    { 64, 8, 4 }, { 64, 16, 2 }, { 64, 32, 1 }, { 64, 33, 0 }, { 4096, 8, 256 }, { 4096, UINT64_MAX, 0 },
    { U32, 1, 2147483647 },
  };
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  config_t config = fresh(&failure);
  CHECK_EQ(capacity_of(&config, 4096), 2048);
  for (size_t i = 0; i < sizeof automatic / sizeof *automatic; i++) {
    OK(CONFIG(with_parallelism)(&config, automatic[i].parallelism));
    CHECK_EQ(capacity_of(&config, automatic[i].limit), automatic[i].capacity);
  }
  static const struct { uint32_t limit; uint64_t asked; uint32_t capacity; } explicit[] = {
    { 10, 11, 10 }, { 4, 16, 4 }, { 64, 16, 16 }, { 1, UINT64_MAX, 1 }, { U32, UINT64_MAX, U32 }, { U32, U32, U32 },
  };
  for (size_t i = 0; i < sizeof explicit / sizeof *explicit; i++) {
    OK(CONFIG(with_max_thread_cache_capacity)(&config, explicit[i].asked));
    CHECK_EQ(capacity_of(&config, explicit[i].limit), explicit[i].capacity);
  }
  OK(CONFIG(with_thread_cache_disabled)(&config));
  CHECK_EQ(config.max_thread_cache_capacity, UINT64_MAX);
  CHECK_EQ(capacity_of(&config, U32), 0);
  /* The last of both wins. */
  OK(CONFIG(with_max_thread_cache_capacity)(&config, 3));
  CHECK_EQ(capacity_of(&config, U32), 3);
  static const struct { uint32_t limit; uint64_t parallelism; uint32_t stripes; } stripes[] = {
    { 1, 1, 1 }, { 2, 1, 2 }, { 3, 1, 2 }, { 4, 2, 4 }, { 7, 1, 4 }, { 8, 4, 8 }, { 9, 1, 8 }, { 12, 1, 8 },
    { 12, 9, 8 }, { 100, 9, 16 }, { U32, UINT64_MAX, 4096 },
  };
  for (size_t i = 0; i < sizeof stripes / sizeof *stripes; i++) {
    uint32_t count = 0;
    OK(CONFIG(with_parallelism)(&config, stripes[i].parallelism));
    OK(CONFIG(stripes)(&config, stripes[i].limit, &count));
    CHECK_EQ(count, stripes[i].stripes);
  }
  REFUSED_BY(config, CONFIG(with_parallelism)(&config, 0), "parallelism", 0, 0, 0);
  REFUSED_BY(config, CONFIG(with_max_thread_cache_capacity)(&config, 0), "capacity", 0, 0, 0);
  REFUSED_BY(config, CONFIG(cache_capacity)(&config, 0, &(uint32_t){ 0 }), "max_buffers", 0, 0, 0);
  REFUSED_BY(config, CONFIG(stripes)(&config, 0, &(uint32_t){ 0 }), "max_buffers", 0, 0, 0);
}

/* The check and creating a pool refuse the same, in the same order. */
static void fields_that_contradict_each_other_are_refused_where_a_pool_is_made(void) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  config_t config = one_class(1024, 2);
  config.failure = &failure;
  slicepool_buffer_pool *pool = NULL;
#define REFUSED_TWICE(field, value, limit)                                                       \
  do {                                                                                           \
    REFUSED_BY(config, CONFIG(check)(&config), field, value, limit, 0);                          \
    REFUSED_BY(config, slicepool_buffer_pool_create(NULL, &config, &pool), field, value, limit, 0); \
    CHECK(pool == NULL);                                                                         \
  } while (0)
  OK(CONFIG(with_pool_min_size)(&config, 1025));
  REFUSED_TWICE("pool_min_size", 1025, 1024);
  OK(CONFIG(with_alignment)(&config, 2048));
  REFUSED_TWICE("alignment", 2048, 1024);
  OK(CONFIG(with_alignment)(&config, 3));
  REFUSED_TWICE("alignment", 3, 0);
  OK(CONFIG(with_alignment)(&config, 1024));
  OK(CONFIG(with_pool_min_size)(&config, 1024));
  OK(CONFIG(check)(&config));
  OK(slicepool_buffer_pool_create(NULL, &config, &pool));
  OK(slicepool_buffer_pool_destroy(pool, 0, NULL));
  REFUSED_BY(config, CONFIG(with_alignment)(&config, 0), "alignment", 0, 0, 0);
  REFUSED_BY(config, CONFIG(with_prefill)(&config, 2), "prefill", 2, 0, 0);
  OK(CONFIG(with_prefill)(&config, 1));
  OK(CONFIG(with_prefill)(&config, 1));
  CHECK_EQ(config.flags, SLICEPOOL_BUFFER_POOL_PREFILL);
  OK(CONFIG(with_prefill)(&config, 0));
  CHECK_EQ(config.flags, 0);
#undef REFUSED_TWICE
}

static void functions_that_change_one_thing_commute(void) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  config_t config[2] = { fresh(&failure), fresh(&failure) };
  for (int i = 0; i < 2; i++) {
    for (int step = 0; step < 5; step++) {
      switch (i == 0 ? step : 4 - step) {
        case 0: OK(CONFIG(with_pool_min_size)(&config[i], 5)); break;
        case 1: OK(CONFIG(with_alignment)(&config[i], 64)); break;
        case 2: OK(CONFIG(with_parallelism)(&config[i], 6)); break;
        case 3: OK(CONFIG(with_prefill)(&config[i], 1)); break;
        default: OK(CONFIG(with_size_class_range)(&config[i], 64, 128, 3)); break;
      }
    }
  }
  CHECK(memcmp(&config[0], &config[1], sizeof config[0]) == 0);
}

static const struct test tests[] = {
  TEST(presets_are_as_the_header_says),
  TEST(ranges_and_lists_replace_the_classes),
  TEST(classes_come_and_go_one_by_one),
  TEST(limits_of_all_classes_change_together),
  TEST(budgets_scale_limits_exactly),
  TEST(budgets_that_do_not_work_tell_why),
  TEST(requests_are_routed_to_the_smallest_class_that_fits),
  TEST(caches_have_the_capacity_of_the_formulas),
  TEST(fields_that_contradict_each_other_are_refused_where_a_pool_is_made),
  TEST(functions_that_change_one_thing_commute),
};

TEST_MAIN(tests)
