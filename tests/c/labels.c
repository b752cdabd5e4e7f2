/* Names and user data: of slices, which take them along, and of allocators. */
#include "check.h"
#include "shorthand.h"

static char longest[2000];

/* A pool of every kind, and slices with pages of their own. */
enum { SHAPES = KINDS + 2 };

static slicepool_allocator *create_shape(struct mock_device *device, int shape, uint32_t *flags) {
  mock_init(device);
  *flags = shape == KINDS ? SLICEPOOL_REQUEST_DEDICATED : shape > KINDS ? SLICEPOOL_REQUEST_PERSISTENT : 0;
  return create(device, kind_of(shape < KINDS ? shape : 0).pool);
}

static slicepool_slice take_named(slicepool_allocator *allocator, uint64_t size, uint32_t flags, const char *name,
                                  void *user_data) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.size = size;
  request.flags = flags;
  request.name = name;
  request.user_data = user_data;
  OK(slicepool_allocate(allocator, &request, &slice));
  CHECK(slice.user_data == user_data);
  return slice;
}

static void check_name(slicepool_allocator *allocator, uint64_t id, const char *expected) {
  char name[SLICEPOOL_MAX_NAME + 1];
  memset(name, 'x', sizeof name);
  OK(slicepool_name_get(allocator, id, name, sizeof name));
  CHECK_TEXT(name, expected);
  /* To the byte, and no less. */
  const uint32_t exact = (uint32_t)strlen(expected) + 1;
  char *tight = malloc(exact);
  CHECK(tight != NULL);
  OK(slicepool_name_get(allocator, id, tight, exact));
  CHECK_TEXT(tight, expected);
  memset(tight, 'x', exact);
  for (uint32_t capacity = 0; capacity < exact; capacity++) {
    CHECK_RESULT(slicepool_name_get(allocator, id, tight, capacity), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    for (uint32_t i = 0; i < exact; i++) CHECK_EQ(tight[i], 'x');
  }
  free(tight);
}

static void slices_of_every_pool_carry_names_and_pointers(void) {
  for (int shape = 0; shape < SHAPES; shape++) {
    struct mock_device device;
    uint32_t flags = 0;
    int things[3];
    slicepool_allocator *allocator = create_shape(&device, shape, &flags);
    const slicepool_slice named = take_named(allocator, 1000, flags, "vertices", NULL);
    const slicepool_slice owned = take_named(allocator, 1000, flags, NULL, &things[0]);
    const slicepool_slice both = take_named(allocator, 1000, flags, "indices", &things[1]);
    const slicepool_slice plain = take_flagged(allocator, 1000, flags);
    check_name(allocator, named.id, "vertices");
    check_name(allocator, owned.id, "");
    check_name(allocator, both.id, "indices");
    check_name(allocator, plain.id, "");
    CHECK(look_up(allocator, named.id).user_data == NULL && look_up(allocator, plain.id).user_data == NULL);
    CHECK(look_up(allocator, owned.id).user_data == &things[0] && look_up(allocator, both.id).user_data == &things[1]);
    /* One is changed without the other. */
    OK(slicepool_name_set(allocator, owned.id, "now named"));
    OK(slicepool_user_data_set(allocator, named.id, &things[2]));
    OK(slicepool_user_data_set(allocator, both.id, NULL));
    check_name(allocator, owned.id, "now named");
    check_name(allocator, named.id, "vertices");
    check_name(allocator, both.id, "indices");
    CHECK(look_up(allocator, owned.id).user_data == &things[0] && look_up(allocator, named.id).user_data == &things[2]);
    CHECK(look_up(allocator, both.id).user_data == NULL);
    /* NULL and nothing are no name. */
    OK(slicepool_name_set(allocator, owned.id, NULL));
    OK(slicepool_name_set(allocator, both.id, ""));
    check_name(allocator, owned.id, "");
    check_name(allocator, both.id, "");
    CHECK(look_up(allocator, owned.id).user_data == &things[0]);
    const uint64_t ids[4] = { named.id, owned.id, both.id, plain.id };
    OK(slicepool_free_many(allocator, ids, 4, NULL));
    finish(allocator, &device);
  }
}

/* The slots of slices are used again: their names are not. */
static void what_is_attached_goes_with_the_slice(void) {
  for (int shape = 0; shape < SHAPES; shape++) {
    struct mock_device device;
    uint32_t flags = 0;
    slicepool_allocator *allocator = create_shape(&device, shape, &flags);
    for (int i = 0; i < 200; i++) {
      slicepool_slice slice = take_named(allocator, 1000, flags, "short-lived", &device);
      OK(slicepool_name_set(allocator, slice.id, "renamed"));
      if (i % 3 == 0) free_at(allocator, slice.id, 1, (uint64_t)i + 1);
      else OK(slicepool_free(allocator, slice.id));
      char name[SLICEPOOL_MAX_NAME + 1] = "untouched";
      CHECK_RESULT(slicepool_name_get(allocator, slice.id, name, sizeof name), SLICEPOOL_ERROR_STALE_HANDLE);
      CHECK_RESULT(slicepool_name_set(allocator, slice.id, "late"), SLICEPOOL_ERROR_STALE_HANDLE);
      CHECK_RESULT(slicepool_user_data_set(allocator, slice.id, NULL), SLICEPOOL_ERROR_STALE_HANDLE);
      CHECK_TEXT(name, "untouched");
      collect(allocator, 1, (uint64_t)i + 1);
      const slicepool_slice next = take_flagged(allocator, 1000, flags);
      check_name(allocator, next.id, "");
      CHECK(look_up(allocator, next.id).user_data == NULL);
      OK(slicepool_free(allocator, next.id));
    }
    CHECK_LE(device.given, 2);
    finish(allocator, &device);
  }
}

static void a_slice_keeps_what_is_attached_when_it_is_resized_and_pages_go(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  slicepool_slice slice = take_named(allocator, 1000, 0, "kept", &device);
  OK(slicepool_try_resize(allocator, slice.id, 500, &slice, NULL));
  OK(slicepool_free(allocator, take(allocator, 4096).id));
  OK(slicepool_cleanup(allocator, NULL));
  check_name(allocator, slice.id, "kept");
  CHECK(look_up(allocator, slice.id).user_data == &device);
  OK(slicepool_resolve(allocator, slice.id, &slice, NULL));
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

/* ---- text */

static const struct {
  const char *given, *kept; /* NULL: refused */
} texts[] = {
  { "a", "a" },
  { "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80", "\xC3\xA4\xE2\x82\xAC\xF0\x9F\x98\x80" },
  { "line\nbreak and \"quotes\"", "line\nbreak and \"quotes\"" },
  /* 55 bytes, and 56. */
  { "1234567890123456789012345678901234567890123456789012345", "1234567890123456789012345678901234567890123456789012345" },
  { "12345678901234567890123456789012345678901234567890123456", "1234567890123456789012345678901234567890123456789012345" },
  /* The 55th byte is the first of two, the second of three, the third of four, and the last. */
  { "123456789012345678901234567890123456789012345678901234\xC3\xA4", "123456789012345678901234567890123456789012345678901234" },
  { "12345678901234567890123456789012345678901234567890123\xE2\x82\xAC", "12345678901234567890123456789012345678901234567890123" },
  { "1234567890123456789012345678901234567890123456789012\xF0\x9F\x98\x80", "1234567890123456789012345678901234567890123456789012" },
  { "12345678901234567890123456789012345678901234567890123\xC3\xA4", "12345678901234567890123456789012345678901234567890123\xC3\xA4" },
  /* What is not kept need not be text. */
  { "1234567890123456789012345678901234567890123456789012345\xFF\xFE", "1234567890123456789012345678901234567890123456789012345" },
  { "\xFF", NULL },
  { "ab\x80", NULL },
  { "ab\xC3", NULL },
  { "ab\xC3(", NULL },
  { "\xC0\xAF", NULL },
  { "\xED\xA0\x80", NULL },
  { "\xF5\x80\x80\x80", NULL },
  { "12345678901234567890123456789012345678901234567890123\xFF\xFF", NULL },
};

enum { TEXTS = sizeof texts / sizeof *texts };

static void names_are_cut_between_characters_and_refused_if_they_are_no_text(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  const slicepool_slice slice = take(allocator, 100);
  for (int i = 0; i < TEXTS; i++) {
    OK(slicepool_name_set(allocator, slice.id, "before"));
    const slicepool_result expected = texts[i].kept == NULL ? SLICEPOOL_ERROR_INVALID_ARGUMENT : SLICEPOOL_OK;
    CHECK_RESULT(slicepool_name_set(allocator, slice.id, texts[i].given), expected);
    check_name(allocator, slice.id, texts[i].kept == NULL ? "before" : texts[i].kept);
    /* The same from the start; what is refused takes nothing. */
    slicepool_request request = SLICEPOOL_REQUEST_INIT;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_slice named = SLICEPOOL_SLICE_INIT;
    request.size = 100;
    request.name = texts[i].given;
    request.failure = &failure;
    for (int many = 0; many < 2; many++) {
      CHECK_RESULT(many ? slicepool_allocate_many(allocator, &request, 1, &named)
                        : slicepool_allocate(allocator, &request, &named), expected);
      if (expected == SLICEPOOL_OK) {
        check_name(allocator, named.id, texts[i].kept);
        OK(slicepool_free(allocator, named.id));
      } else {
        CHECK_TEXT(failure.field, "name");
        CHECK_EQ(named.id, 0);
      }
    }
    CHECK_EQ(figures_of(allocator).slices, 1);
  }
  memset(longest, 'n', sizeof longest - 1);
  OK(slicepool_name_set(allocator, slice.id, longest));
  longest[SLICEPOOL_MAX_NAME] = 0;
  check_name(allocator, slice.id, longest);
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

/* ---- many at once */

static void slices_of_a_batch_have_names_of_their_own(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  enum { COUNT = 300 };
  static slicepool_request requests[COUNT];
  static slicepool_slice slices[COUNT];
  static char names[COUNT][24];
  uint64_t ids[COUNT];
  for (int i = 0; i < COUNT; i++) {
    snprintf(names[i], sizeof names[i], "number %d", i);
    requests[i] = (slicepool_request)SLICEPOOL_REQUEST_INIT;
    requests[i].size = 50 + (uint64_t)i;
    if (i % 3 != 0) requests[i].name = names[i];
    if (i % 2 != 0) requests[i].user_data = names[i];
    slices[i] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
  }
  OK(slicepool_allocate_many(allocator, requests, COUNT, slices));
  for (int i = 0; i < COUNT; i++) {
    void *user_data = i % 2 != 0 ? names[i] : NULL;
    CHECK(slices[i].user_data == user_data && look_up(allocator, slices[i].id).user_data == user_data);
    check_name(allocator, slices[i].id, i % 3 != 0 ? names[i] : "");
    ids[i] = slices[i].id;
  }
  OK(slicepool_free_many(allocator, ids, COUNT, NULL));
  finish(allocator, &device);
}

/* ---- host memory */

enum { CROWD = 300 };

/* In a block of so many bytes: how many of the slices got a name before it was full. */
static int name_until_the_block_is_full(uint64_t bytes) {
  static unsigned char block[128 * 1024];
  struct mock_device device;
  mock_init(&device);
  const slicepool_device table = mock_table(&device);
  const slicepool_pool_options pool = sliced(64 * KIB, 0, 0, 64);
  const slicepool_allocator_config config = config_for(&pool, 1);
  slicepool_allocator *allocator = NULL;
  CHECK_LE(bytes, sizeof block);
  OK(slicepool_allocator_create_in(&table, &config, block, bytes, &allocator));
  uint64_t ids[CROWD];
  int named = 0;
  for (int i = 0; i < CROWD; i++) ids[i] = take(allocator, 64).id;
  while (named < CROWD) {
    char name[24];
    snprintf(name, sizeof name, "%d", named + 1);
    const slicepool_result result = slicepool_name_set(allocator, ids[named], name);
    if (result != SLICEPOOL_OK) {
      CHECK_RESULT(result, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
      break;
    }
    named++;
  }
  if (named < CROWD) {
    check_name(allocator, ids[named], "");
    /* And a request whose name cannot be kept is refused as a whole. */
    slicepool_request request = SLICEPOOL_REQUEST_INIT;
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    request.size = 64;
    request.name = "one too many";
    CHECK_RESULT(slicepool_allocate(allocator, &request, &slice), SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
    CHECK_EQ(slice.id, 0);
    CHECK_EQ(figures_of(allocator).slices, CROWD);
  }
  for (int i = 0; i < named; i++) {
    char name[24];
    snprintf(name, sizeof name, "%d", i + 1);
    check_name(allocator, ids[i], name);
  }
  OK(slicepool_free_many(allocator, ids, CROWD, NULL));
  finish(allocator, &device);
  return named;
}

static void a_name_for_which_there_is_no_host_memory_is_refused_and_changes_nothing(void) {
  uint64_t bytes = 0;
  const slicepool_pool_options pool = sliced(64 * KIB, 0, 0, 64);
  const slicepool_allocator_config config = config_for(&pool, 1);
  OK(slicepool_allocator_bytes_needed(&config, CROWD, 1, 0, &bytes));
  int some = 0, all = 0;
  for (uint64_t more = 0; more < 64 * KIB; more += 1000) {
    const int named = name_until_the_block_is_full(bytes + more);
    some += named < CROWD;
    all += named == CROWD;
  }
  CHECK(some != 0 && all != 0);
}

/* ---- allocators */

static void an_allocator_has_a_name_and_a_pointer(void) {
  for (int i = -1; i < TEXTS; i++) {
    struct mock_device device;
    mock_init(&device);
    const slicepool_device table = mock_table(&device);
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
    slicepool_allocator *allocator = NULL;
    config.failure = &failure;
    config.name = i < 0 ? NULL : texts[i].given;
    config.user_data = i < 0 ? NULL : &device;
    const slicepool_result result = slicepool_allocator_create(&table, &config, &allocator);
    if (i >= 0 && texts[i].kept == NULL) {
      CHECK_RESULT(result, SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "name");
      mock_end(&device);
      continue;
    }
    OK(result);
    void *user_data = &failure;
    OK(slicepool_allocator_user_data_get(allocator, &user_data));
    CHECK(user_data == config.user_data);
    static char report[16384];
    uint64_t needed = 0;
    OK(slicepool_report_json(allocator, report, sizeof report, &needed));
    CHECK_LE(needed, sizeof report);
    /* Without those that JSON writes otherwise. */
    if (i != 2) {
      char expected[100];
      snprintf(expected, sizeof expected, "\"name\":\"%s\"", i < 0 ? "" : texts[i].kept);
      CHECK(strstr(report, expected) != NULL);
    }
    finish(allocator, &device);
  }
}

static const struct test tests[] = {
  TEST(slices_of_every_pool_carry_names_and_pointers),
  TEST(what_is_attached_goes_with_the_slice),
  TEST(a_slice_keeps_what_is_attached_when_it_is_resized_and_pages_go),
  TEST(names_are_cut_between_characters_and_refused_if_they_are_no_text),
  TEST(slices_of_a_batch_have_names_of_their_own),
  TEST(a_name_for_which_there_is_no_host_memory_is_refused_and_changes_nothing),
  TEST(an_allocator_has_a_name_and_a_pointer),
};

TEST_MAIN(tests)
