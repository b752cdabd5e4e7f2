/* Structs that are given: of the wrong size, of older and newer callers, and right before an inaccessible page. */
#include "check.h"
#include "world.h"

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
    slicepool_budget_config budget;
    slicepool_memory_type type;
    slicepool_heap heap;
    slicepool_allocation_sizes sizes;
    slicepool_device_memory memory;
    slicepool_buffer_pool_config buffers;
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

static slicepool_result create_budget_with(void *config) {
  slicepool_budget *budget = NULL;
  slicepool_result result = slicepool_budget_create(config, &budget);
  CHECK((budget != NULL) == (result == SLICEPOOL_OK));
  OK(slicepool_budget_release(budget));
  return result;
}

static slicepool_result create_budget_with_host(void *host) {
  slicepool_budget_config config = SLICEPOOL_BUDGET_CONFIG_INIT;
  config.host = host;
  return create_budget_with(&config);
}

/* The world's allocator must be empty for that. */
static slicepool_result install_with(void *pool) {
  OK(slicepool_free(world.allocator, world.slice.id));
  slicepool_result result = slicepool_install_pools(world.allocator, pool, 1, NULL);
  if (result == SLICEPOOL_OK) {
    const slicepool_pool_options old = sliced(64 * KIB, 0, 64 * KIB, 256);
    OK(slicepool_install_pools(world.allocator, &old, 1, NULL));
    world.device.given = world.device.taken = 0;
  }
  world.slice = take(world.allocator, 5000);
  return result;
}

static slicepool_result adjust_with(void *sizes) {
  slicepool_allocation_sizes used = SLICEPOOL_ALLOCATION_SIZES_INIT;
  slicepool_result result = slicepool_allocation_sizes_adjust(sizes, &used);
  CHECK((used.min_device_memblock_size != 0) == (result == SLICEPOOL_OK));
  return result;
}

static slicepool_result memblock_with(void *sizes) {
  uint64_t bytes = 0;
  slicepool_result result = slicepool_memblock_size(sizes, 0, 1, &bytes);
  CHECK((bytes != 0) == (result == SLICEPOOL_OK));
  return result;
}

/* By an allocator of its own, which leaves the memory where it is. */
static slicepool_result adopt_with(void *memory) {
  slicepool_allocator *allocator = NULL;
  OK(slicepool_allocator_create(&world.table, &(slicepool_allocator_config)SLICEPOOL_ALLOCATOR_CONFIG_INIT, &allocator));
  slicepool_result result = slicepool_adopt(allocator, 1, memory, NULL);
  CHECK_EQ(figures_of(allocator).pages, result == SLICEPOOL_OK);
  OK(slicepool_allocator_abandon(allocator, 0));
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

typedef slicepool_result (*in_place)(slicepool_buffer_pool_config *config);

/* A config that is changed in place is the caller's: what the call writes must not go beyond it. */
static slicepool_result changed_by(in_place change, void *object) {
  uint32_t size = 0;
  memcpy(&size, object, 4);
  const slicepool_result result = change(object);
  CHECK(memcmp(object, &size, 4) == 0);
  return result;
}

static slicepool_result double_limits(slicepool_buffer_pool_config *config) {
  return slicepool_buffer_pool_config_with_budget_bytes(config, 2 * 1069547520u);
}

static slicepool_result preset_with(void *config) {
  return changed_by(slicepool_buffer_pool_config_for_network, config);
}

static slicepool_result shape_with(void *config) { return changed_by(double_limits, config); }

static slicepool_result disable_with(void *config) {
  return changed_by(slicepool_buffer_pool_config_with_thread_cache_disabled, config);
}

static slicepool_result check_with(void *config) { return slicepool_buffer_pool_config_check(config); }

static slicepool_result count_with(void *config) {
  uint32_t count = 0;
  const slicepool_result result = slicepool_buffer_pool_config_class_count(config, &count);
  CHECK((count != 0) == (result == SLICEPOOL_OK));
  return result;
}

enum { INPUTS = 36 };

static void make_inputs(struct input *inputs) {
  memset(inputs, 0, INPUTS * sizeof *inputs);
  plain_pool = sliced(64 * KIB, 32 * KIB, 128 * KIB, 64);
  struct input *input = inputs;
  *input = (struct input){ .name = "device", .call = create_with_device, .size = sizeof(slicepool_device),
                           .with_8_bytes = SLICEPOOL_ERROR_INVALID_ARGUMENT };
  input->value.device = world.table;
  input->value.device.heap_budget = mock_heap_budget;
  input->value.device.map = mock_map;
  input->value.device.unmap = mock_unmap;
  input->value.device.flush = mock_flush;
  input->value.device.invalidate = mock_invalidate;
  input->value.device.event = mock_event;
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

  *++input = (struct input){ .name = "host of a budget", .call = create_budget_with_host,
                             .size = sizeof(slicepool_host) };
  input->value.host = host;
  *++input = (struct input){ .name = "budget config", .call = create_budget_with,
                             .size = sizeof(slicepool_budget_config) };
  input->value.budget = (slicepool_budget_config)SLICEPOOL_BUDGET_CONFIG_INIT;
  input->value.budget.max_pages = 7;
  input->value.budget.max_bytes = MIB;
  input->value.budget.host = &plain_host;
  input->value.budget.failure = &creation_failure;

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
    input->value.config.max_bytes = MIB;
    input->value.config.max_pages = 100;
    input->value.config.persistent_granule = 64;
    input->value.config.debug_margin = 64;
    input->value.config.flags = SLICEPOOL_ALLOCATOR_DRY_RUN;
    input->value.config.pool_count = 1;
    input->value.config.pools = &plain_pool;
    input->value.config.host = &plain_host;
    input->value.config.failure = &creation_failure;
    input->value.config.dedicated_period = 100;
    input->value.config.name = "a name";
    input->value.config.user_data = &plain_pool;
  }
  static slicepool_memory_type some_type = SLICEPOOL_MEMORY_TYPE_INIT;
  static slicepool_heap some_heap = SLICEPOOL_HEAP_INIT;
  static slicepool_allocation_sizes some_sizes = SLICEPOOL_ALLOCATION_SIZES_INIT;
  static const call_with with_types[] = { create_with_config, config_pools_with };
  static const char *const types_names[] = { "config of types", "config to list" };
  for (int i = 0; i < 2; i++) {
    *++input = (struct input){ .name = types_names[i], .call = with_types[i], .size = sizeof(slicepool_allocator_config) };
    input->value.config = (slicepool_allocator_config)SLICEPOOL_ALLOCATOR_CONFIG_INIT;
    input->value.config.memory_types = &some_type;
    input->value.config.memory_type_count = 1;
    input->value.config.heaps = &some_heap;
    input->value.config.heap_count = 1;
    input->value.config.blocks = &some_sizes;
    input->value.config.failure = &creation_failure;
  }
  *++input = (struct input){ .name = "memory type", .call = create_with_type, .size = sizeof(slicepool_memory_type) };
  input->value.type = some_type;
  input->value.type.max_page = MIB;
  input->value.type.page_alignment = 256;
  input->value.type.granularity = input->value.type.non_coherent_atom = 512;
  input->value.type.properties = UINT32_MAX;
  input->value.type.flags = SLICEPOOL_MEMORY_TYPE_HOST_VISIBLE;
  *++input = (struct input){ .name = "heap", .call = create_with_heap, .size = sizeof(slicepool_heap) };
  input->value.heap = heap_of(GIB, MIB);
  static const call_with with_sizes[] = { create_with_blocks, adjust_with, memblock_with };
  static const char *const sizes_names[] = { "blocks", "sizes to adjust", "sizes of a block" };
  for (int i = 0; i < 3; i++) {
    *++input = (struct input){ .name = sizes_names[i], .call = with_sizes[i],
                               .size = sizeof(slicepool_allocation_sizes) };
    input->value.sizes = some_sizes;
    input->value.sizes.min_device_memblock_size = input->value.sizes.min_host_memblock_size = 8 * MIB;
    input->value.sizes.max_device_memblock_size = input->value.sizes.max_host_memblock_size = 16 * MIB;
  }
  *++input = (struct input){ .name = "memory to adopt", .call = adopt_with, .size = sizeof(slicepool_device_memory),
                             .with_8_bytes = SLICEPOOL_ERROR_INVALID_ARGUMENT };
  input->value.memory = (slicepool_device_memory)SLICEPOOL_DEVICE_MEMORY_INIT;
  input->value.memory.handle = 5;
  input->value.memory.address = MIB;
  input->value.memory.size = MIB;
  input->value.memory.mapped = input->value.memory.context = &plain_pool;

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
  *++input = (struct input){ .name = "pool to install", .call = install_with, .size = sizeof(slicepool_pool_options),
                             .with_8_bytes = SLICEPOOL_ERROR_INVALID_ARGUMENT };
  input->value.pool = plain_pool;

  static const call_with with_request[] = { allocate_with, allocate_one_with, would_fit_with, would_grow_with };
  static const char *const names[] = { "request", "request of many", "request for a look",
                                       "request for another look" };
  static slicepool_failure request_failure = SLICEPOOL_FAILURE_INIT;
  for (int i = 0; i < 4; i++) {
    *++input = (struct input){ .name = names[i], .call = with_request[i], .size = sizeof(slicepool_request),
                               .with_8_bytes = SLICEPOOL_ERROR_INVALID_ARGUMENT };
    input->value.request = request_of(1000);
    input->value.request.alignment = 1024;
    input->value.request.flags = SLICEPOOL_REQUEST_IN_POOL;
    input->value.request.failure = &request_failure;
    input->value.request.memory_types = 1;
    input->value.request.preferred = UINT32_MAX;
    input->value.request.name = "a name";
    input->value.request.user_data = &plain_pool;
  }

  *++input = (struct input){ .name = "space config", .call = create_space_with, .size = sizeof(slicepool_space_config),
                             .with_8_bytes = SLICEPOOL_ERROR_INVALID_ARGUMENT };
  input->value.space_config = (slicepool_space_config)SLICEPOOL_SPACE_CONFIG_INIT;
  input->value.space_config.size = 1000;
  input->value.space_config.granule = 4;
  input->value.space_config.host = &plain_host;

  *++input = (struct input){ .name = "device of a buffer pool", .call = create_pool_over,
                             .size = sizeof(slicepool_device), .with_8_bytes = SLICEPOOL_ERROR_INVALID_ARGUMENT };
  input->value.device = world.table;
  *++input = (struct input){ .name = "host of a buffer pool", .call = create_pool_with_host,
                             .size = sizeof(slicepool_host) };
  input->value.host = host;
  static unsigned char buffers[65536];
  static const call_with with_buffers[] = { create_pool_with, create_pool_in_with, check_with, count_with, preset_with,
                                            shape_with, disable_with };
  static const char *const buffers_names[] = { "config of buffers", "config of buffers for a block",
                                               "config of buffers to check", "config of buffers to count",
                                               "config of buffers to set", "config of buffers to scale",
                                               "config of buffers to change" };
  for (int i = 0; i < 7; i++) {
    /* What is changed in place has to have room for all numbers. */
    *++input = (struct input){ .name = buffers_names[i], .call = with_buffers[i],
                               .size = sizeof(slicepool_buffer_pool_config),
                               .with_8_bytes = i < 4 ? SLICEPOOL_OK : SLICEPOOL_ERROR_INVALID_ARGUMENT };
    input->value.buffers = (slicepool_buffer_pool_config)SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
    input->value.buffers.flags = SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED;
    input->value.buffers.pool_min_size = input->value.buffers.alignment = 64;
    input->value.buffers.parallelism = input->value.buffers.max_thread_cache_capacity = 3;
    input->value.buffers.max_page = MIB;
    input->value.buffers.page_alignment = 256;
    input->value.buffers.max_bytes = 4 * MIB;
    input->value.buffers.limits[10] = 5;
    input->value.buffers.max_pages = input->value.buffers.growth_wait_steps = 7;
    input->value.buffers.failure = &creation_failure;
    input->value.buffers.name = "a name";
    input->value.buffers.user_data = &plain_pool;
    input->value.buffers.host = &plain_host;
    if (i >= 2) continue;
    /* Pools of older callers have no block, and so must not say how large it is: they have got neither. */
    input->value.buffers.memory = i == 0 ? NULL : buffers;
    input->value.buffers.memory_bytes = i == 0 ? 0 : sizeof buffers;
  }
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

static const struct test tests[] = {
  TEST(a_struct_size_that_cannot_be_is_refused),
  TEST(a_shorter_struct_is_zero_beyond_its_end),
  TEST(a_longer_struct_is_accepted_if_its_tail_is_zero),
  TEST(elements_of_an_array_must_have_the_size_of_the_first),
};

TEST_MAIN(tests)
