/* Structs of the wrong size, of older and newer callers, and right before an inaccessible page. */
#include "check.h"
#include "world.h"

/* ---- structs that are given */

/* A struct that is given to a call, with every field that is not required set to something. */
struct input {
  const char *name;
  call_with call;
  size_t size;
  slicepool_result with_8_bytes; /* struct_size and one more word */
  union {
    uint32_t struct_size;
    slicepool_device device;
    slicepool_host host;
    slicepool_allocator_config config;
    slicepool_pool_options pool;
    slicepool_request request;
    slicepool_space_config space_config;
    slicepool_layout_properties properties;
    unsigned char bytes[512];
  } value;
};

static slicepool_pool_options plain_pool;

static slicepool_host plain_host = SLICEPOOL_HOST_INIT;

static slicepool_result create_in_with_device(void *device) {
  static unsigned char block[65536];
  slicepool_allocator *allocator = NULL;
  slicepool_result result = slicepool_allocator_create_in(device, NULL, block, sizeof block, &allocator);
  if (result == SLICEPOOL_OK) OK(slicepool_allocator_destroy(allocator, 0, NULL));
  return result;
}

typedef slicepool_result (*layout)(const slicepool_layout_properties *, slicepool_pool_options *, uint32_t, uint32_t *);

static slicepool_result layout_with(layout make, const slicepool_layout_properties *properties) {
  slicepool_pool_options pools[32] = { SLICEPOOL_POOL_OPTIONS_INIT };
  uint32_t count = 0;
  slicepool_result result = make(properties, pools, 32, &count);
  CHECK((count == 0) == (result != SLICEPOOL_OK) && (pools[0].kind == 0) == (result != SLICEPOOL_OK));
  return result;
}

static slicepool_result adaptive_with(void *properties) { return layout_with(slicepool_layout_adaptive, properties); }

static slicepool_result sub_slices_with(void *properties) {
  return layout_with(slicepool_layout_sub_slices, properties);
}

static slicepool_result exclusive_pages_with(void *properties) {
  return layout_with(slicepool_layout_exclusive_pages, properties);
}

enum { INPUTS = 15 };

static void make_inputs(struct input *inputs) {
  memset(inputs, 0, INPUTS * sizeof *inputs);
  plain_pool = sliced(64 * KIB, 32 * KIB, 128 * KIB, 64);
  struct input *input = inputs;
  *input = (struct input){ .name = "device", .call = create_with_device, .size = sizeof(slicepool_device),
                           .with_8_bytes = SLICEPOOL_ERROR_INVALID_ARGUMENT };
  input->value.device = world.table;
  *++input = (struct input){ .name = "device for a block", .call = create_in_with_device,
                             .size = sizeof(slicepool_device), .with_8_bytes = SLICEPOOL_ERROR_INVALID_ARGUMENT };
  input->value.device = world.table;

  slicepool_host host = SLICEPOOL_HOST_INIT;
  host.allocate = host_allocate;
  host.deallocate = host_deallocate;
  host.lock = host_lock;
  host.unlock = host_lock;
  host.wait = host_wait;
  *++input = (struct input){ .name = "host", .call = create_with_host, .size = sizeof(slicepool_host) };
  input->value.host = host;
  *++input = (struct input){ .name = "host of a space", .call = create_space_with_host,
                             .size = sizeof(slicepool_host) };
  input->value.host = host;

  static const call_with with_config[] = { create_with_config, create_in_with_config, bytes_needed_with };
  static const char *const config_names[] = { "config", "config for a block", "config for a sum" };
  for (int i = 0; i < 3; i++) {
    *++input = (struct input){ .name = config_names[i], .call = with_config[i],
                               .size = sizeof(slicepool_allocator_config) };
    input->value.config = (slicepool_allocator_config)SLICEPOOL_ALLOCATOR_CONFIG_INIT;
    input->value.config.max_page = MIB;
    input->value.config.page_alignment = 256;
    input->value.config.heap_size = GIB;
    input->value.config.growth_wait_steps = 4;
    input->value.config.pool_count = 1;
    input->value.config.pools = &plain_pool;
    input->value.config.host = &plain_host;
    input->value.config.failure = &creation_failure;
  }

  static const call_with with_properties[] = { adaptive_with, sub_slices_with, exclusive_pages_with };
  static const char *const layout_names[] = { "properties", "properties of sub-slices", "properties of exclusive pages" };
  for (int i = 0; i < 3; i++) {
    *++input = (struct input){ .name = layout_names[i], .call = with_properties[i],
                               .size = sizeof(slicepool_layout_properties) };
    input->value.properties = (slicepool_layout_properties)SLICEPOOL_LAYOUT_PROPERTIES_INIT;
    input->value.properties.max_page = 128 * MIB;
    input->value.properties.alignment = 32;
    input->value.properties.heap_size = GIB;
  }

  *++input = (struct input){ .name = "pool", .call = create_with_pool, .size = sizeof(slicepool_pool_options),
                             .with_8_bytes = SLICEPOOL_ERROR_INVALID_ARGUMENT };
  input->value.pool = plain_pool;

  static const call_with with_request[] = { allocate_with, allocate_one_with, would_fit_with };
  static const char *const names[] = { "request", "request of many", "request for a look" };
  static slicepool_failure request_failure = SLICEPOOL_FAILURE_INIT;
  for (int i = 0; i < 3; i++) {
    *++input = (struct input){ .name = names[i], .call = with_request[i], .size = sizeof(slicepool_request),
                               .with_8_bytes = SLICEPOOL_ERROR_INVALID_ARGUMENT };
    input->value.request = request_of(1000);
    input->value.request.alignment = 1024;
    input->value.request.flags = SLICEPOOL_REQUEST_IN_POOL;
    input->value.request.failure = &request_failure;
  }

  *++input = (struct input){ .name = "space config", .call = create_space_with, .size = sizeof(slicepool_space_config),
                             .with_8_bytes = SLICEPOOL_ERROR_INVALID_ARGUMENT };
  input->value.space_config = (slicepool_space_config)SLICEPOOL_SPACE_CONFIG_INIT;
  input->value.space_config.size = 1000;
  input->value.space_config.granule = 4;
  input->value.space_config.host = &plain_host;
  CHECK(input + 1 == inputs + INPUTS);
}

/* The call with the struct right before an inaccessible page, in a child. */
static void call_before_the_wall(const struct input *input, uint32_t struct_size, size_t real_size,
                                 slicepool_result expected, bool any_result) {
  char what[80];
  snprintf(what, sizeof what, "%s with struct_size %" PRIu32, input->name, struct_size);
  IN_CHILD(what, {
    unsigned char *object = copy_before_the_wall(input->value.bytes, real_size);
    if (real_size >= 4) memcpy(object, &struct_size, 4);
    const struct snapshot before = look();
    slicepool_result result = input->call(object);
    if (!any_result) CHECK_RESULT(result, expected);
    if (result != SLICEPOOL_OK) check_nothing_changed(&before);
    check_books(world.allocator, &world.device);
  });
}

static void a_struct_size_that_cannot_be_is_refused(void) {
  static const uint32_t sizes[] = { 0,  1,  3,  4,  5,  7,  9,  10, 11, 12, 13, 15, 17, 20, 28, 36,
                                    33, 63, 65, 0x7FFFFFFC, 0x80000000, 0xFFFFFFF8, 0xFFFFFFFF };
  build_world();
  struct input inputs[INPUTS];
  make_inputs(inputs);
  for (int i = 0; i < INPUTS; i++)
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
      call_before_the_wall(&inputs[i], sizes[s], sizes[s] < 4 ? 4 : sizes[s] < 64 ? sizes[s] : inputs[i].size,
                           SLICEPOOL_ERROR_INVALID_ARGUMENT, false);
  end_world();
}

static void a_shorter_struct_is_zero_beyond_its_end(void) {
  build_world();
  struct input inputs[INPUTS];
  make_inputs(inputs);
  for (int i = 0; i < INPUTS; i++) {
    call_before_the_wall(&inputs[i], 8, 8, inputs[i].with_8_bytes, false);
    for (uint32_t size = 16; size < inputs[i].size; size += 8)
      call_before_the_wall(&inputs[i], size, size, SLICEPOOL_OK, true);
    call_before_the_wall(&inputs[i], (uint32_t)inputs[i].size, inputs[i].size, SLICEPOOL_OK, false);
  }
  /* What is cut off would have been refused. */
  slicepool_request request = request_of(1000);
  request.alignment = 3;
  CHECK_RESULT(allocate_with(&request), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  request.struct_size = offsetof(slicepool_request, alignment);
  OK(allocate_with(&request));
  end_world();
}

static void a_longer_struct_is_accepted_if_its_tail_is_zero(void) {
  build_world();
  struct input inputs[INPUTS];
  make_inputs(inputs);
  for (int i = 0; i < INPUTS; i++) {
    for (size_t more = 8; more <= 64; more += 8) {
      struct input longer = inputs[i];
      const size_t size = longer.size + more;
      CHECK(size <= sizeof longer.value.bytes);
      memset(longer.value.bytes + longer.size, 0, more);
      call_before_the_wall(&longer, (uint32_t)size, size, SLICEPOOL_OK, false);
      for (size_t at = longer.size; at < size; at += more == 8 || more == 64 ? 1 : more - 1) {
        longer.value.bytes[at] = 1;
        call_before_the_wall(&longer, (uint32_t)size, size, SLICEPOOL_ERROR_VERSION_MISMATCH, false);
        longer.value.bytes[at] = 0;
      }
    }
  }
  end_world();
}

static void elements_of_an_array_must_have_the_size_of_the_first(void) {
  build_world();
  slicepool_request requests[3] = { request_of(100), request_of(100), request_of(100) };
  slicepool_slice slices[3] = { SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT };
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  requests[0].failure = &failure;
  for (uint32_t wrong = 1; wrong < 3; wrong++) {
    const struct snapshot before = look();
    requests[wrong].struct_size -= 4;
    CHECK_RESULT(slicepool_allocate_many(world.allocator, requests, 3, slices), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_TEXT(failure.field, "struct_size");
    CHECK_EQ(failure.index, wrong);
    CHECK_EQ(failure.value, sizeof *requests - 4);
    requests[wrong].struct_size += 4;
    slices[wrong].struct_size += 8;
    CHECK_RESULT(slicepool_allocate_many(world.allocator, requests, 3, slices), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(failure.index, wrong);
    CHECK_EQ(failure.value, sizeof *slices + 8);
    slices[wrong].struct_size -= 8;
    check_nothing_changed(&before);
  }
  for (int i = 0; i < 3; i++) CHECK_EQ(slices[i].id, 0);

  slicepool_pool_options pools[2] = { plain_pool, plain_pool };
  pools[0] = pools[1] = sliced(4096, 0, 0, 64);
  pools[1].struct_size += 4;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.pools = pools;
  config.pool_count = 2;
  config.failure = &failure;
  CHECK_RESULT(create_with_config(&config), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_TEXT(failure.field, "struct_size");
  CHECK_EQ(failure.value, sizeof *pools + 4);

  /* Arrays of a newer caller, whose elements are longer, and of an older one. */
  struct {
    slicepool_request request;
    uint64_t more[2];
  } longer[3];
  struct {
    slicepool_slice slice;
    uint64_t more;
  } longer_slices[3];
  memset(longer, 0, sizeof longer);
  memset(longer_slices, 0x33, sizeof longer_slices);
  for (int i = 0; i < 3; i++) {
    longer[i].request = request_of(100);
    longer[i].request.struct_size = sizeof longer[i];
    longer_slices[i].slice.struct_size = sizeof longer_slices[i];
  }
  longer[2].request.failure = &failure;
  OK(slicepool_allocate_many(world.allocator, &longer[0].request, 3, &longer_slices[0].slice));
  for (int i = 0; i < 3; i++) {
    CHECK_EQ(longer_slices[i].more, UINT64_C(0x3333333333333333));
    OK(slicepool_free(world.allocator, longer_slices[i].slice.id));
  }
  longer[2].more[1] = 1;
  CHECK_RESULT(slicepool_allocate_many(world.allocator, &longer[0].request, 3, &longer_slices[0].slice),
               SLICEPOOL_ERROR_VERSION_MISMATCH);
  end_world();
}

/* ---- out-structs */

typedef slicepool_result (*fill)(void *object);

static slicepool_result fill_slice(void *slice) { return slicepool_slice_get(world.allocator, world.slice.id, slice); }

static slicepool_result fill_resized(void *slice) {
  return slicepool_try_resize(world.allocator, world.slice.id, 5000, slice, NULL);
}

static slicepool_result fill_allocated(void *slice) {
  const slicepool_request request = request_of(5000);
  slicepool_result result = slicepool_allocate(world.allocator, &request, slice);
  /* The id may be cut off; the child's world ends with it. */
  return result;
}

static slicepool_result fill_allocated_many(void *slice) {
  const slicepool_request request = request_of(5000);
  return slicepool_allocate_many(world.allocator, &request, 1, slice);
}

static slicepool_result fill_figures(void *figures) { return slicepool_statistics_get(world.allocator, figures); }

static slicepool_result fill_pool_figures(void *figures) {
  return slicepool_pool_statistics_get(world.allocator, 0, figures);
}

static slicepool_result fill_options(void *pool) { return slicepool_pool_options_get(world.allocator, 0, pool); }

static slicepool_result fill_piece(void *piece) {
  return slicepool_space_slice_get(world.space, world.piece.id, piece);
}

static slicepool_result fill_allocated_piece(void *piece) {
  return slicepool_space_allocate(world.space, 10, 1, piece, NULL);
}

static slicepool_result fill_resized_piece(void *piece) {
  return slicepool_space_try_resize(world.space, world.piece.id, 10, piece, NULL);
}

static slicepool_result fill_space_figures(void *figures) {
  return slicepool_space_statistics_get(world.space, figures);
}

static slicepool_result fill_device(void *device) { return slicepool_host_device(device); }

/* Failures are written by a call that fails. */
static slicepool_result fill_failure(void *failure) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  CHECK_RESULT(try_take(world.allocator, UINT64_MAX, 0, &slice, failure), SLICEPOOL_ERROR_TOO_LARGE);
  return SLICEPOOL_OK;
}

static slicepool_result fill_destroy_failure(void *failure) {
  CHECK_RESULT(slicepool_allocator_destroy(world.allocator, 0, failure), SLICEPOOL_ERROR_BUSY);
  return SLICEPOOL_OK;
}

struct output {
  const char *name;
  fill fill;
  size_t size;
  bool is_failure; /* a malformed one is ignored */
};

static const struct output outputs[] = {
  { "slice_get", fill_slice, sizeof(slicepool_slice), false },
  { "try_resize", fill_resized, sizeof(slicepool_slice), false },
  { "allocate", fill_allocated, sizeof(slicepool_slice), false },
  { "allocate_many", fill_allocated_many, sizeof(slicepool_slice), false },
  { "statistics_get", fill_figures, sizeof(slicepool_statistics), false },
  { "pool_statistics_get", fill_pool_figures, sizeof(slicepool_statistics), false },
  { "pool_options_get", fill_options, sizeof(slicepool_pool_options), false },
  { "space_slice_get", fill_piece, sizeof(slicepool_space_slice), false },
  { "space_allocate", fill_allocated_piece, sizeof(slicepool_space_slice), false },
  { "space_try_resize", fill_resized_piece, sizeof(slicepool_space_slice), false },
  { "space_statistics_get", fill_space_figures, sizeof(slicepool_space_statistics), false },
  { "host_device", fill_device, sizeof(slicepool_device), false },
  { "failure of allocate", fill_failure, sizeof(slicepool_failure), true },
  { "failure of destroy", fill_destroy_failure, sizeof(slicepool_failure), true },
};

enum { OUTPUTS = sizeof outputs / sizeof *outputs };

static void an_out_struct_gets_at_most_what_its_caller_knows(void) {
  build_world();
  for (int i = 0; i < OUTPUTS; i++) {
    const struct output *output = &outputs[i];
    /* A slice without room for its handle could never be freed. */
    const bool is_slice = (output->size == sizeof(slicepool_slice) || output->size == sizeof(slicepool_space_slice)) &&
                          strcmp(output->name, "host_device") != 0;
    if (is_slice) {
      uint64_t too_small = 0;
      const uint32_t eight = 8;
      memcpy(&too_small, &eight, 4);
      CHECK_RESULT(output->fill(&too_small), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    }
    for (uint32_t size = is_slice ? 16 : 8; size <= output->size + 64; size += 8) {
      char what[80];
      snprintf(what, sizeof what, "%s with struct_size %" PRIu32, output->name, size);
      IN_CHILD(what, {
        unsigned char *object = before_the_wall(size);
        fill_pattern(object, size);
        memcpy(object, &size, 4);
        OK(output->fill(object));
        uint32_t size_now = 0;
        memcpy(&size_now, object, 4);
        CHECK_EQ(size_now, size);
        CHECK(is_pattern(object, output->size, size));
        /* Filled in before that: no byte looks like the pattern all along. */
        CHECK(!is_pattern(object, 4, size < output->size ? size : output->size));
        check_books(world.allocator, &world.device);
        check_space_books(world.space);
      });
    }
  }
  end_world();
}

static void an_out_struct_of_a_size_that_cannot_be_is_refused_and_untouched(void) {
  static const uint32_t sizes[] = { 0, 1, 3, 4, 7, 9, 11, 12, 13, 20, 0x80000000, 0xFFFFFFFF };
  build_world();
  for (int i = 0; i < OUTPUTS; i++) {
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      IN_CHILD(outputs[i].name, {
        unsigned char *object = before_the_wall(outputs[i].size);
        fill_pattern(object, outputs[i].size);
        memcpy(object, &sizes[s], 4);
        const struct snapshot before = look();
        CHECK_RESULT(outputs[i].fill(object), outputs[i].is_failure ? SLICEPOOL_OK : SLICEPOOL_ERROR_INVALID_ARGUMENT);
        check_nothing_changed(&before);
        CHECK(is_pattern(object, 4, outputs[i].size));
        CHECK(memcmp(object, &sizes[s], 4) == 0);
      });
    }
  }
  end_world();
}

/* Every call that has out-parameters fails: they are as they were, and so is everything else. */
static void out_parameters_are_untouched_by_a_call_that_fails(void) {
  build_world();
  union {
    uint32_t struct_size;
    slicepool_slice slices[3];
    slicepool_space_slice piece;
    slicepool_statistics figures;
    slicepool_pool_options pool;
    slicepool_allocator *allocator;
    slicepool_space *space;
    uint64_t number;
    uint32_t flag;
    char text[64];
    unsigned char bytes[sizeof(slicepool_slice) * 3];
  } out;
  const slicepool_request request = request_of(100), too_large = request_of(TWO_63);
  const slicepool_request requests[3] = { request, request, too_large };
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_space_config space_config = SLICEPOOL_SPACE_CONFIG_INIT;
  config.flags = 0x80000000;
  space_config.flags = 1;
  uint64_t needed = UINT64_C(0x1122334455667788);

#define UNTOUCHED(call, size, expected)                                \
  do {                                                                 \
    const uint32_t untouched_size = (size);                            \
    const struct snapshot before = look();                             \
    fill_pattern(&out, sizeof out);                                    \
    if (untouched_size != 0) out.struct_size = untouched_size;         \
    if (untouched_size == sizeof(slicepool_slice))                     \
      out.slices[1].struct_size = out.slices[2].struct_size = untouched_size; \
    unsigned char untouched_copy[sizeof out];                          \
    memcpy(untouched_copy, &out, sizeof out);                          \
    printf("%s\n", #call);                                             \
    CHECK_RESULT(call, expected);                                      \
    CHECK(memcmp(untouched_copy, &out, sizeof out) == 0);              \
    check_nothing_changed(&before);                                    \
  } while (0)

  const uint32_t slice_size = sizeof(slicepool_slice), piece_size = sizeof(slicepool_space_slice);
  UNTOUCHED(slicepool_allocator_create(&world.table, &config, &out.allocator), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  static unsigned char block[65536];
  UNTOUCHED(slicepool_allocator_create_in(&world.table, &config, block, sizeof block, &out.allocator), 0,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_allocator_create_in(&world.table, NULL, block, 100, &out.allocator), 0,
            SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
  UNTOUCHED(slicepool_allocator_create_in(&world.table, NULL, block, 1000, &out.allocator), 0,
            SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
  UNTOUCHED(slicepool_allocator_bytes_needed(&config, 1, 1, &out.number), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_allocator_bytes_needed(NULL, UINT32_MAX, 1, &out.number), 0, SLICEPOOL_ERROR_TOO_MANY_SLICES);
  slicepool_layout_properties properties = SLICEPOOL_LAYOUT_PROPERTIES_INIT;
  properties.alignment = 3;
  UNTOUCHED(slicepool_layout_adaptive(&properties, NULL, 0, &out.flag), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  uint32_t pools_of_layout = 99;
  UNTOUCHED(slicepool_layout_adaptive(&properties, &out.pool, 1, &pools_of_layout), sizeof out.pool,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_layout_sub_slices(&properties, &out.pool, 1, &pools_of_layout), sizeof out.pool,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_layout_exclusive_pages(&properties, &out.pool, 1, &pools_of_layout), sizeof out.pool,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(pools_of_layout, 99);
  UNTOUCHED(slicepool_allocate(world.allocator, &too_large, out.slices), slice_size, SLICEPOOL_ERROR_TOO_LARGE);
  UNTOUCHED(slicepool_allocate_many(world.allocator, requests, 3, out.slices), slice_size, SLICEPOOL_ERROR_TOO_LARGE);
  UNTOUCHED(slicepool_slice_get(world.allocator, 12345, out.slices), slice_size, SLICEPOOL_ERROR_FOREIGN_HANDLE);
  UNTOUCHED(slicepool_try_resize(world.allocator, world.slice.id, 0, out.slices, NULL), slice_size,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_try_resize(world.allocator, world.slice.id, TWO_63, out.slices, NULL), slice_size,
            SLICEPOOL_ERROR_TOO_LARGE);
  UNTOUCHED(slicepool_would_fit(world.allocator, &too_large, &out.flag), 0, SLICEPOOL_ERROR_TOO_LARGE);
  UNTOUCHED(slicepool_largest_free(NULL, &out.number), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_statistics_get(NULL, &out.figures), sizeof out.figures, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_pool_statistics_get(world.allocator, 1, &out.figures), sizeof out.figures,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_pool_statistics_get(world.allocator, UINT32_MAX, &out.figures), sizeof out.figures,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_pool_options_get(world.allocator, 1, &out.pool), sizeof out.pool,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_pool_options_get(world.allocator, UINT32_MAX, &out.pool), sizeof out.pool,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_report_json(world.allocator, out.text, sizeof out.text, NULL), 0,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_report_json(NULL, out.text, sizeof out.text, &needed), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_report_json(world.allocator, NULL, 100, &out.number), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_space_create(&space_config, &out.space), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_space_allocate(world.space, 901, 1, &out.piece, NULL), piece_size,
            SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  UNTOUCHED(slicepool_space_allocate(world.space, 1001, 1, &out.piece, NULL), piece_size, SLICEPOOL_ERROR_TOO_LARGE);
  UNTOUCHED(slicepool_space_slice_get(world.space, 12345, &out.piece), piece_size, SLICEPOOL_ERROR_FOREIGN_HANDLE);
  UNTOUCHED(slicepool_space_try_resize(world.space, world.piece.id, 1001, &out.piece, NULL), piece_size,
            SLICEPOOL_ERROR_TOO_LARGE);
  UNTOUCHED(slicepool_space_largest_free(NULL, &out.number), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_space_statistics_get(NULL, (slicepool_space_statistics *)(void *)&out),
            sizeof(slicepool_space_statistics), SLICEPOOL_ERROR_INVALID_ARGUMENT);
#undef UNTOUCHED
  CHECK_EQ(needed, UINT64_C(0x1122334455667788));
  end_world();
}

static void a_failure_is_untouched_by_a_call_that_succeeds(void) {
  build_world();
  slicepool_failure failure;
  fill_pattern(&failure, sizeof failure);
  failure.struct_size = sizeof failure;
  const slicepool_failure before = failure;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  OK(try_take(world.allocator, 100, 0, &slice, &failure));
  OK(slicepool_try_resize(world.allocator, slice.id, 200, &slice, &failure));
  OK(slicepool_free_many(world.allocator, &slice.id, 1, &failure));
  slicepool_space_slice piece = SLICEPOOL_SPACE_SLICE_INIT;
  OK(slicepool_space_allocate(world.space, 1, 1, &piece, &failure));
  OK(slicepool_space_try_resize(world.space, piece.id, 2, &piece, &failure));
  OK(slicepool_space_free(world.space, piece.id));
  slicepool_allocator *allocator = NULL;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.failure = &failure;
  OK(slicepool_allocator_create(&world.table, &config, &allocator));
  OK(slicepool_allocator_destroy(allocator, 0, &failure));
  CHECK(memcmp(&before, &failure, sizeof failure) == 0);
  end_world();
}

static void plain_out_parameters_and_arrays_may_end_at_inaccessible_memory(void) {
  build_world();
  uint64_t *number = before_the_wall(sizeof *number);
  uint32_t *flag = before_the_wall(sizeof *flag);
  const slicepool_request request = request_of(100);
  OK(slicepool_largest_free(world.allocator, number));
  CHECK_EQ(*number, 64 * KIB - 5120);
  OK(slicepool_space_largest_free(world.space, number));
  CHECK_EQ(*number, 900);
  OK(slicepool_would_fit(world.allocator, &request, flag));
  CHECK_EQ(*flag, 1);

  /* A report is written if it fits to the byte, and not at all if it does not. */
  OK(slicepool_report_json(world.allocator, NULL, 0, number));
  const uint64_t needed = *number;
  char *report = before_the_wall(needed);
  OK(slicepool_report_json(world.allocator, report, needed, number));
  CHECK_EQ(*number, needed);
  CHECK_EQ(strlen(report) + 1, needed);
  char *short_report = before_the_wall(needed - 1);
  fill_pattern(short_report, needed - 1);
  for (uint64_t capacity = 1; capacity < needed; capacity++) {
    OK(slicepool_report_json(world.allocator, short_report + (needed - 1 - capacity), capacity, number));
    CHECK_EQ(*number, needed);
    CHECK(is_pattern(short_report, 0, needed - 1));
  }

  uint64_t *ids = before_the_wall(3 * sizeof *ids);
  for (int i = 0; i < 3; i++) ids[i] = take(world.allocator, 100).id;
  OK(slicepool_free_many(world.allocator, ids, 3, NULL));

  slicepool_request *requests = before_the_wall(3 * sizeof *requests);
  slicepool_slice *slices = before_the_wall(3 * sizeof *slices);
  for (int i = 0; i < 3; i++) {
    requests[i] = request;
    slices[i].struct_size = sizeof *slices;
  }
  OK(slicepool_allocate_many(world.allocator, requests, 3, slices));
  for (int i = 0; i < 3; i++) OK(slicepool_free(world.allocator, slices[i].id));

  slicepool_pool_options *pools = before_the_wall(32 * sizeof *pools);
  for (int i = 0; i < 32; i++) pools[i] = sliced(4096 * ((uint64_t)i + 1), 0, 0, 64);
  slicepool_allocator **allocator = before_the_wall(sizeof *allocator);
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.pools = pools;
  config.pool_count = 32;
  OK(slicepool_allocator_create(&world.table, &config, allocator));
  CHECK_EQ(figures_of(*allocator).pools, 32);
  OK(slicepool_allocator_destroy(*allocator, 0, NULL));
  slicepool_space **space = before_the_wall(sizeof *space);
  slicepool_space_config space_config = SLICEPOOL_SPACE_CONFIG_INIT;
  space_config.size = 10;
  OK(slicepool_space_create(&space_config, space));
  OK(slicepool_space_destroy(*space));
  end_world();
}

static void a_default_is_refused_for_sizes_that_no_struct_has(void) {
  unsigned char bytes[64];
  static const uint32_t sizes[] = { 0, 1, 3, 4, 5, 7, 9, 10, 11, 12, 20, 60, 63 };
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    fill_pattern(bytes, sizeof bytes);
    CHECK_RESULT(slicepool_struct_default(bytes, sizes[i]), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK(is_pattern(bytes, 0, sizeof bytes));
  }
  for (uint32_t size = 8; size <= 64; size += 8) {
    unsigned char *object = before_the_wall(size);
    fill_pattern(object, size);
    OK(slicepool_struct_default(object, size));
    uint32_t size_now = 0;
    memcpy(&size_now, object, 4);
    CHECK_EQ(size_now, size);
    for (uint32_t i = 4; i < size; i++) CHECK_EQ(object[i], 0);
  }
}

static const struct test tests[] = {
  TEST(a_struct_size_that_cannot_be_is_refused),
  TEST(a_shorter_struct_is_zero_beyond_its_end),
  TEST(a_longer_struct_is_accepted_if_its_tail_is_zero),
  TEST(elements_of_an_array_must_have_the_size_of_the_first),
  TEST(an_out_struct_gets_at_most_what_its_caller_knows),
  TEST(an_out_struct_of_a_size_that_cannot_be_is_refused_and_untouched),
  TEST(out_parameters_are_untouched_by_a_call_that_fails),
  TEST(a_failure_is_untouched_by_a_call_that_succeeds),
  TEST(plain_out_parameters_and_arrays_may_end_at_inaccessible_memory),
  TEST(a_default_is_refused_for_sizes_that_no_struct_has),
};

TEST_MAIN(tests)
