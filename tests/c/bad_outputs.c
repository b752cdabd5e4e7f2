/* Out-parameters: structs of the wrong size, of older and newer callers, right before an inaccessible page; and what a call
 * that fails leaves as it is. */
#include "check.h"
#include "world.h"

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

static slicepool_result fill_type_figures(void *figures) {
  return slicepool_type_statistics_get(world.allocator, 0, figures);
}

static slicepool_result fill_heap_figures(void *figures) {
  return slicepool_heap_statistics_get(world.allocator, 0, figures, NULL);
}

static slicepool_result fill_heap_budget(void *budget) {
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  return slicepool_heap_statistics_get(world.allocator, 0, &figures, budget);
}

static slicepool_result fill_found(void *range) {
  return slicepool_find(world.allocator, world.slice.memory, world.slice.offset, range);
}

static slicepool_result fill_found_by_address(void *range) {
  return slicepool_find_address(world.allocator, world.slice.address, range);
}

static slicepool_result fill_adjusted(void *sizes) { return slicepool_allocation_sizes_adjust(NULL, sizes); }

static slicepool_result fill_options(void *pool) { return slicepool_pool_options_get(world.allocator, 0, pool); }

static slicepool_result fill_resolved(void *slice) {
  return slicepool_resolve(world.allocator, world.slice.id, slice, NULL);
}

static slicepool_result fill_budget_figures(void *figures) {
  slicepool_budget *budget = NULL;
  OK(slicepool_budget_create(NULL, &budget));
  slicepool_result result = slicepool_budget_statistics_get(budget, figures);
  OK(slicepool_budget_release(budget));
  return result;
}

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

static slicepool_result fill_buffer(void *buffer) {
  return slicepool_buffer_get(world.buffers, world.buffer.id, buffer);
}

static slicepool_result fill_acquired(void *buffer) {
  return slicepool_buffer_acquire(world.buffers, world.cache, 1000, 0, buffer, NULL);
}

static slicepool_result fill_acquired_without_a_cache(void *buffer) {
  return slicepool_buffer_acquire(world.buffers, NULL, 1000, 0, buffer, NULL);
}

static slicepool_result fill_zeroed(void *buffer) {
  return slicepool_buffer_acquire_zeroed(world.buffers, world.cache, 1000, 0, buffer, NULL);
}

static slicepool_result fill_buffer_figures(void *figures) {
  return slicepool_buffer_pool_statistics_get(world.buffers, figures);
}

static slicepool_result fill_class_figures(void *figures) {
  return slicepool_buffer_class_statistics_get(world.buffers, 0, figures);
}

static slicepool_result fill_acquire_failure(void *failure) {
  slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
  CHECK_RESULT(slicepool_buffer_acquire(world.buffers, world.cache, 1000, 4, &buffer, failure),
               SLICEPOOL_ERROR_INVALID_ARGUMENT);
  return SLICEPOOL_OK;
}

static slicepool_result fill_acquire_zeroed_failure(void *failure) {
  slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
  CHECK_RESULT(slicepool_buffer_acquire_zeroed(world.buffers, NULL, 1000, 4, &buffer, failure),
               SLICEPOOL_ERROR_INVALID_ARGUMENT);
  return SLICEPOOL_OK;
}

static slicepool_result fill_pool_destroy_failure(void *failure) {
  CHECK_RESULT(slicepool_buffer_pool_destroy(world.buffers, 0, failure), SLICEPOOL_ERROR_BUSY);
  return SLICEPOOL_OK;
}

static slicepool_result fill_pool_create_failure(void *failure) {
  slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  config.failure = failure;
  config.alignment = 3;
  slicepool_buffer_pool *pool = NULL;
  CHECK_RESULT(slicepool_buffer_pool_create(NULL, &config, &pool), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  return SLICEPOOL_OK;
}

static slicepool_result fill_config_failure(void *failure) {
  slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  config.failure = failure;
  CHECK_RESULT(slicepool_buffer_pool_config_with_budget_bytes(&config, 1), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  return SLICEPOOL_OK;
}

static slicepool_result fill_device(void *device) { return slicepool_host_device(device); }

/* Failures are written by a call that fails. */
static slicepool_result fill_failure(void *failure) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  CHECK_RESULT(try_take(world.allocator, UINT64_MAX, 0, &slice, failure), SLICEPOOL_ERROR_TOO_LARGE);
  return SLICEPOOL_OK;
}

static slicepool_result fill_free_after_failure(void *failure) {
  CHECK_RESULT(slicepool_free_after(world.allocator, 12345, NULL, 0, failure), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  return SLICEPOOL_OK;
}

static slicepool_result fill_free_after_many_failure(void *failure) {
  const uint64_t id = 12345;
  CHECK_RESULT(slicepool_free_after_many(world.allocator, &id, 1, NULL, 0, failure), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  return SLICEPOOL_OK;
}

static slicepool_result fill_collect_failure(void *failure) {
  CHECK_RESULT(slicepool_collect(NULL, 1, 1, failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  return SLICEPOOL_OK;
}

static slicepool_result fill_resolve_failure(void *failure) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  CHECK_RESULT(slicepool_resolve(world.allocator, 12345, &slice, failure), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  return SLICEPOOL_OK;
}

static slicepool_result fill_adopt_failure(void *failure) {
  slicepool_device_memory memory = SLICEPOOL_DEVICE_MEMORY_INIT;
  CHECK_RESULT(slicepool_adopt(world.allocator, 1, &memory, failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  return SLICEPOOL_OK;
}

static slicepool_result fill_prefill_failure(void *failure) {
  CHECK_RESULT(slicepool_prefill(world.allocator, 1, 1, failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  return SLICEPOOL_OK;
}

static slicepool_result fill_map_failure(void *failure) {
  void *mapped = NULL;
  CHECK_RESULT(slicepool_map(world.allocator, world.slice.id, &mapped, failure), SLICEPOOL_ERROR_NOT_SUPPORTED);
  return SLICEPOOL_OK;
}

static slicepool_result fill_flush_failure(void *failure) {
  CHECK_RESULT(slicepool_flush(world.allocator, 12345, 0, 1, failure), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  return SLICEPOOL_OK;
}

static slicepool_result fill_invalidate_failure(void *failure) {
  CHECK_RESULT(slicepool_invalidate(world.allocator, 12345, 0, 1, failure), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  return SLICEPOOL_OK;
}

static slicepool_result fill_install_failure(void *failure) {
  const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  CHECK_RESULT(slicepool_install_pools(world.allocator, &pool, 1, failure), SLICEPOOL_ERROR_POOLS_IN_USE);
  return SLICEPOOL_OK;
}

static slicepool_result fill_margin_failure(void *failure) {
  CHECK_RESULT(slicepool_check_margins(NULL, failure), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  return SLICEPOOL_OK;
}

static slicepool_result fill_budget_failure(void *failure) {
  slicepool_budget_config config = SLICEPOOL_BUDGET_CONFIG_INIT;
  config.failure = failure;
  CHECK_RESULT(slicepool_budget_create(&config, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
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
  { "type_statistics_get", fill_type_figures, sizeof(slicepool_statistics), false },
  { "heap_statistics_get", fill_heap_figures, sizeof(slicepool_statistics), false },
  { "budget of heap_statistics_get", fill_heap_budget, sizeof(slicepool_heap_budget), false },
  { "find", fill_found, sizeof(slicepool_range), false },
  { "find_address", fill_found_by_address, sizeof(slicepool_range), false },
  { "allocation_sizes_adjust", fill_adjusted, sizeof(slicepool_allocation_sizes), false },
  { "pool_options_get", fill_options, sizeof(slicepool_pool_options), false },
  { "resolve", fill_resolved, sizeof(slicepool_slice), false },
  { "budget_statistics_get", fill_budget_figures, sizeof(slicepool_budget_statistics), false },
  { "space_slice_get", fill_piece, sizeof(slicepool_space_slice), false },
  { "space_allocate", fill_allocated_piece, sizeof(slicepool_space_slice), false },
  { "space_try_resize", fill_resized_piece, sizeof(slicepool_space_slice), false },
  { "space_statistics_get", fill_space_figures, sizeof(slicepool_space_statistics), false },
  { "buffer_get", fill_buffer, sizeof(slicepool_buffer), false },
  { "buffer_acquire", fill_acquired, sizeof(slicepool_buffer), false },
  { "buffer_acquire without a cache", fill_acquired_without_a_cache, sizeof(slicepool_buffer), false },
  { "buffer_acquire_zeroed", fill_zeroed, sizeof(slicepool_buffer), false },
  { "buffer_pool_statistics_get", fill_buffer_figures, sizeof(slicepool_buffer_pool_statistics), false },
  { "buffer_class_statistics_get", fill_class_figures, sizeof(slicepool_buffer_class_statistics), false },
  { "host_device", fill_device, sizeof(slicepool_device), false },
  { "failure of allocate", fill_failure, sizeof(slicepool_failure), true },
  { "failure of free_after", fill_free_after_failure, sizeof(slicepool_failure), true },
  { "failure of free_after_many", fill_free_after_many_failure, sizeof(slicepool_failure), true },
  { "failure of collect", fill_collect_failure, sizeof(slicepool_failure), true },
  { "failure of resolve", fill_resolve_failure, sizeof(slicepool_failure), true },
  { "failure of adopt", fill_adopt_failure, sizeof(slicepool_failure), true },
  { "failure of prefill", fill_prefill_failure, sizeof(slicepool_failure), true },
  { "failure of map", fill_map_failure, sizeof(slicepool_failure), true },
  { "failure of flush", fill_flush_failure, sizeof(slicepool_failure), true },
  { "failure of invalidate", fill_invalidate_failure, sizeof(slicepool_failure), true },
  { "failure of install_pools", fill_install_failure, sizeof(slicepool_failure), true },
  { "failure of check_margins", fill_margin_failure, sizeof(slicepool_failure), true },
  { "failure of budget_create", fill_budget_failure, sizeof(slicepool_failure), true },
  { "failure of destroy", fill_destroy_failure, sizeof(slicepool_failure), true },
  { "failure of buffer_acquire", fill_acquire_failure, sizeof(slicepool_failure), true },
  { "failure of buffer_acquire_zeroed", fill_acquire_zeroed_failure, sizeof(slicepool_failure), true },
  { "failure of buffer_pool_destroy", fill_pool_destroy_failure, sizeof(slicepool_failure), true },
  { "failure of buffer_pool_create", fill_pool_create_failure, sizeof(slicepool_failure), true },
  { "failure of a config", fill_config_failure, sizeof(slicepool_failure), true },
};

enum { OUTPUTS = sizeof outputs / sizeof *outputs };

static void an_out_struct_gets_at_most_what_its_caller_knows(void) {
  build_world();
  for (int i = 0; i < OUTPUTS; i++) {
    const struct output *output = &outputs[i];
    /* A slice without room for its handle could never be freed. */
    const bool is_slice = (output->size == sizeof(slicepool_slice) || output->size == sizeof(slicepool_space_slice)) &&
                          output->fill != fill_device && output->fill != fill_found &&
                          output->fill != fill_found_by_address && output->fill != fill_adjusted &&
                          output->fill != fill_class_figures && output->fill != fill_buffer_figures;
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

/* Lists of pools are given back to the library, which refuses what it does not know: so that is zero. */
static void a_plan_has_the_size_of_its_callers_structs_and_is_zero_beyond_what_the_library_knows(void) {
  build_world();
  const uint32_t known = sizeof(slicepool_pool_options);
  static const uint32_t impossible[] = { 0, 1, 4, 7, 12, 0x80000000, 0xFFFFFFFF };
  uint32_t count = 99;
  for (uint32_t size = 8; size <= known + 64; size += 8) {
    unsigned char *object = before_the_wall(size);
    fill_pattern(object, size);
    memcpy(object, &size, 4);
    OK(slicepool_plan(world.allocator, (slicepool_pool_options *)(void *)object, 1, &count));
    CHECK_EQ(count, 1);
    CHECK(memcmp(object, &size, 4) == 0);
    const uint32_t kind = SLICEPOOL_POOL_SLICED_PAGES;
    CHECK(memcmp(object + 4, &kind, 4) == 0);
    for (uint32_t at = known; at < size; at++) CHECK_EQ(object[at], 0);
    if (size >= known)
      OK(slicepool_allocator_destroy(create_over(&world.table, (slicepool_pool_options *)(void *)object, 1, 0), 0, NULL));
  }
  for (size_t i = 0; i < sizeof impossible / sizeof *impossible; i++) {
    slicepool_pool_options pool;
    fill_pattern(&pool, sizeof pool);
    pool.struct_size = impossible[i];
    count = 99;
    CHECK_RESULT(slicepool_plan(world.allocator, &pool, 1, &count), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK(is_pattern(&pool, 4, sizeof pool));
    CHECK_EQ(count, 99);
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
    slicepool_budget *budget;
    slicepool_budget_statistics budget_figures;
    slicepool_range range;
    slicepool_allocation_sizes sizes;
    slicepool_buffer buffer;
    slicepool_buffer_class_statistics class_figures;
    slicepool_buffer_region region;
    slicepool_buffer_pool *buffers;
    slicepool_buffer_cache *cache;
    void *pointer;
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
  UNTOUCHED(slicepool_allocator_bytes_needed(&config, 1, 1, 0, &out.number), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_allocator_bytes_needed(NULL, UINT32_MAX, 1, 0, &out.number), 0, SLICEPOOL_ERROR_TOO_MANY_SLICES);
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
  UNTOUCHED(slicepool_resolve(world.allocator, 12345, out.slices, NULL), slice_size, SLICEPOOL_ERROR_FOREIGN_HANDLE);
  UNTOUCHED(slicepool_plan(NULL, &out.pool, 1, &pools_of_layout), sizeof out.pool, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_plan(world.allocator, NULL, 1, &out.flag), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(pools_of_layout, 99);
  slicepool_budget_config budget_config = SLICEPOOL_BUDGET_CONFIG_INIT;
  budget_config.struct_size -= 4;
  UNTOUCHED(slicepool_budget_create(&budget_config, &out.budget), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_budget_statistics_get(NULL, &out.budget_figures), sizeof out.budget_figures,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_would_fit(world.allocator, &too_large, &out.flag), 0, SLICEPOOL_ERROR_TOO_LARGE);
  UNTOUCHED(slicepool_would_grow(world.allocator, &too_large, &out.flag), 0, SLICEPOOL_ERROR_TOO_LARGE);
  UNTOUCHED(slicepool_map(world.allocator, world.slice.id, &out.pointer, NULL), 0, SLICEPOOL_ERROR_NOT_SUPPORTED);
  UNTOUCHED(slicepool_name_get(world.allocator, 12345, out.text, sizeof out.text), 0, SLICEPOOL_ERROR_FOREIGN_HANDLE);
  UNTOUCHED(slicepool_allocator_user_data_get(NULL, &out.pointer), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_type_statistics_get(world.allocator, 1, &out.figures), sizeof out.figures,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_heap_statistics_get(world.allocator, 1, &out.figures, NULL), sizeof out.figures,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_find(NULL, 0, 0, &out.range), sizeof out.range, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_find_address(NULL, 0, &out.range), sizeof out.range, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  slicepool_allocation_sizes wrong_sizes = SLICEPOOL_ALLOCATION_SIZES_INIT;
  wrong_sizes.reserved = 1;
  UNTOUCHED(slicepool_allocation_sizes_adjust(&wrong_sizes, &out.sizes), sizeof out.sizes,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_memblock_size(&wrong_sizes, 0, 0, &out.number), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_config_pools(&config, &out.pool, 1, &pools_of_layout), sizeof out.pool,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_config_pools(&config, NULL, 0, &out.flag), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
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
  slicepool_buffer_pool_config buffers = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  uint32_t limit = 77;
  uint64_t size = 78;
  slicepool_buffer_pool *closed = create_buffers(NULL, buffers);
  OK(slicepool_buffer_pool_close(closed));
  buffers.alignment = 2048;
  UNTOUCHED(slicepool_buffer_pool_create(NULL, &buffers, &out.buffers), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_buffer_pool_create_in(NULL, NULL, block, 100, &out.buffers), 0,
            SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
  UNTOUCHED(slicepool_buffer_pool_create_in(NULL, NULL, block, 3000, &out.buffers), 0,
            SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
  UNTOUCHED(slicepool_buffer_pool_user_data_get(NULL, &out.pointer), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_buffer_cache_create(closed, &out.cache), 0, SLICEPOOL_ERROR_CLOSED);
  const uint32_t buffer_size = sizeof out.buffer;
  UNTOUCHED(slicepool_buffer_acquire(world.buffers, world.cache, 1, 4, &out.buffer, NULL), buffer_size,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_buffer_acquire(closed, NULL, 1, 0, &out.buffer, NULL), buffer_size, SLICEPOOL_ERROR_CLOSED);
  UNTOUCHED(slicepool_buffer_acquire_zeroed(closed, NULL, 1, 0, &out.buffer, NULL), buffer_size,
            SLICEPOOL_ERROR_CLOSED);
  UNTOUCHED(slicepool_buffer_get(world.buffers, 12345, &out.buffer), buffer_size, SLICEPOOL_ERROR_FOREIGN_HANDLE);
  UNTOUCHED(slicepool_buffer_pool_statistics_get(NULL, (slicepool_buffer_pool_statistics *)(void *)&out),
            sizeof(slicepool_buffer_pool_statistics), SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_buffer_class_statistics_get(world.buffers, 1, &out.class_figures), sizeof out.class_figures,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_buffer_class_statistics_get(world.buffers, UINT32_MAX, &out.class_figures),
            sizeof out.class_figures, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_buffer_pool_regions(NULL, &out.region, 1, &limit), sizeof out.region,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(slicepool_buffer_pool_regions(world.buffers, &out.region, 1, NULL), sizeof out.region,
            SLICEPOOL_ERROR_INVALID_ARGUMENT);
#define CONFIG(name) slicepool_buffer_pool_config_##name
  buffers.flags = 1u << 31;
  UNTOUCHED(CONFIG(class_count)(&buffers, &out.flag), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(CONFIG(min_size)(&buffers, &out.number), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(CONFIG(max_size)(&buffers, &out.number), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(CONFIG(max_tracked_bytes)(&buffers, &out.number), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  buffers.flags = 0;
  UNTOUCHED(CONFIG(class_get)(&buffers, 8, &out.number, &limit), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(CONFIG(class_get)(&buffers, 8, &size, &out.flag), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(CONFIG(class_get)(&buffers, 0, &out.number, NULL), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(CONFIG(class_for)(&buffers, 131073, &out.number, &limit), 0, SLICEPOOL_ERROR_OVERSIZED);
  UNTOUCHED(CONFIG(class_for)(&buffers, UINT64_MAX, &size, &out.flag), 0, SLICEPOOL_ERROR_OVERSIZED);
  UNTOUCHED(CONFIG(class_for)(&buffers, 1, &out.number, NULL), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(CONFIG(cache_capacity)(&buffers, 0, &out.flag), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  UNTOUCHED(CONFIG(stripes)(&buffers, 0, &out.flag), 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
#undef CONFIG
  OK(slicepool_buffer_pool_destroy(closed, 0, NULL));
  CHECK(limit == 77 && size == 78);
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
  OK(slicepool_resolve(world.allocator, slice.id, &slice, &failure));
  OK(slicepool_free_many(world.allocator, &slice.id, 1, &failure));
  const slicepool_point point = { 1, 0, 1 };
  const uint64_t waiting[2] = { take(world.allocator, 100).id, take(world.allocator, 100).id };
  OK(slicepool_free_after(world.allocator, waiting[0], &point, 1, &failure));
  OK(slicepool_free_after_many(world.allocator, &waiting[1], 1, &point, 1, &failure));
  OK(slicepool_collect(world.allocator, 1, 1, &failure));
  OK(slicepool_trim(world.allocator, 0, &failure));
  OK(slicepool_cleanup(world.allocator, &failure));
  OK(slicepool_check_margins(world.allocator, &failure));
  OK(slicepool_prefill(world.allocator, 0, 1, &failure));
  OK(slicepool_flush(world.allocator, world.slice.id, 0, 1, &failure));
  OK(slicepool_invalidate(world.allocator, world.slice.id, 0, 1, &failure));
  slicepool_space_slice piece = SLICEPOOL_SPACE_SLICE_INIT;
  OK(slicepool_space_allocate(world.space, 1, 1, &piece, &failure));
  OK(slicepool_space_try_resize(world.space, piece.id, 2, &piece, &failure));
  OK(slicepool_space_free(world.space, piece.id));
  slicepool_allocator *allocator = NULL;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.failure = &failure;
  OK(slicepool_allocator_create(&world.table, &config, &allocator));
  const slicepool_pool_options other = sliced(4096, 0, 0, 64);
  OK(slicepool_install_pools(allocator, &other, 1, &failure));
  OK(slicepool_allocator_destroy(allocator, 0, &failure));
  slicepool_budget_config budget_config = SLICEPOOL_BUDGET_CONFIG_INIT;
  budget_config.failure = &failure;
  slicepool_budget *budget = NULL;
  OK(slicepool_budget_create(&budget_config, &budget));
  OK(slicepool_budget_release(budget));
  slicepool_buffer_pool_config buffers = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  buffers.failure = &failure;
  OK(slicepool_buffer_pool_config_with_budget_bytes(&buffers, MIB));
  OK(slicepool_buffer_pool_config_check(&buffers));
  slicepool_buffer_pool *pool = NULL;
  slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
  OK(slicepool_buffer_pool_create(NULL, &buffers, &pool));
  OK(slicepool_buffer_acquire(pool, NULL, 1, SLICEPOOL_BUFFER_UNTRACKED, &buffer, &failure));
  OK(slicepool_buffer_release(pool, NULL, buffer.id));
  OK(slicepool_buffer_acquire_zeroed(pool, NULL, 1, 0, &buffer, &failure));
  OK(slicepool_buffer_pool_destroy(pool, SLICEPOOL_DESTROY_FORCE, &failure));
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

  slicepool_point *point = before_the_wall(sizeof *point);
  *point = (slicepool_point){ 1, 0, 1 };
  for (int i = 0; i < 3; i++) ids[i] = take(world.allocator, 100).id;
  OK(slicepool_free_after_many(world.allocator, ids, 3, point, 1, NULL));
  OK(slicepool_collect(world.allocator, 1, 1, NULL));
  OK(slicepool_plan(world.allocator, NULL, 0, flag));
  CHECK_EQ(*flag, 1);
  slicepool_pool_options *plan = before_the_wall(sizeof *plan);
  plan->struct_size = sizeof *plan;
  OK(slicepool_plan(world.allocator, plan, 1, flag));
  CHECK_EQ(plan->page_size, 64 * KIB);

  slicepool_request *requests = before_the_wall(3 * sizeof *requests);
  slicepool_slice *slices = before_the_wall(3 * sizeof *slices);
  for (int i = 0; i < 3; i++) {
    requests[i] = request;
    slices[i].struct_size = sizeof *slices;
  }
  OK(slicepool_allocate_many(world.allocator, requests, 3, slices));
  for (int i = 0; i < 3; i++) OK(slicepool_free(world.allocator, slices[i].id));

  OK(slicepool_would_grow(world.allocator, &request, flag));
  CHECK_EQ(*flag, 0);
  OK(slicepool_memblock_size(NULL, 0, 0, number));
  CHECK_EQ(*number, 256 * MIB);
  void **pointer = before_the_wall(sizeof *pointer);
  OK(slicepool_allocator_user_data_get(world.allocator, pointer));
  CHECK(*pointer == NULL);
  slicepool_pool_options *pools = before_the_wall(2 * sizeof *pools);
  pools[0].struct_size = sizeof *pools;
  OK(slicepool_config_pools(NULL, pools, 2, flag));
  CHECK(*flag == 2 && pools[1].kind == SLICEPOOL_POOL_SLICED_PAGES && pools[1].struct_size == sizeof *pools);
  pools = before_the_wall(32 * sizeof *pools);
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

  slicepool_buffer_pool_config *buffers = before_the_wall(sizeof *buffers);
  *buffers = (slicepool_buffer_pool_config)SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  uint64_t *sizes = before_the_wall(2 * sizeof *sizes);
  uint32_t *limits = before_the_wall(2 * sizeof *limits);
  sizes[0] = 4096;
  sizes[1] = 64;
  limits[0] = 3;
  limits[1] = 4;
  OK(slicepool_buffer_pool_config_with_size_classes(buffers, sizes, limits, 2));
  OK(slicepool_buffer_pool_config_class_get(buffers, 1, number, flag));
  CHECK(*number == 4096 && *flag == 3);
  OK(slicepool_buffer_pool_config_with_prefill(buffers, 1));
  slicepool_buffer_pool **pool = before_the_wall(sizeof *pool);
  slicepool_buffer_cache **cache = before_the_wall(sizeof *cache);
  OK(slicepool_buffer_pool_create(NULL, buffers, pool));
  OK(slicepool_buffer_pool_user_data_get(*pool, pointer));
  OK(slicepool_buffer_cache_create(*pool, cache));
  OK(slicepool_buffer_cache_destroy(*cache));
  /* As many regions as fit, whatever version their struct is of. */
  for (uint32_t stride = 8; stride <= sizeof(slicepool_buffer_region) + 64; stride += 8) {
    for (uint32_t capacity = 0; capacity <= 3; capacity++) {
      unsigned char *regions = before_the_wall(stride * capacity);
      fill_pattern(regions, stride * capacity);
      if (capacity != 0) memcpy(regions, &stride, 4);
      OK(slicepool_buffer_pool_regions(*pool, (slicepool_buffer_region *)(void *)regions, capacity, flag));
      CHECK_EQ(*flag, 2);
      if (capacity == 3) CHECK(is_pattern(regions + 0, 2 * stride, 3 * stride));
      for (uint32_t i = 0; i < capacity && i < 2; i++) {
        CHECK(memcmp(regions + i * stride, &stride, 4) == 0);
        if (stride >= 16) CHECK(memcmp(regions + i * stride + 8, &sizes[1 - i], 8) == 0);
        for (uint32_t at = sizeof(slicepool_buffer_region); at < stride; at++) CHECK_EQ(regions[i * stride + at], 0);
      }
    }
  }
  end_buffers(*pool);
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
  TEST(an_out_struct_gets_at_most_what_its_caller_knows),
  TEST(a_plan_has_the_size_of_its_callers_structs_and_is_zero_beyond_what_the_library_knows),
  TEST(an_out_struct_of_a_size_that_cannot_be_is_refused_and_untouched),
  TEST(out_parameters_are_untouched_by_a_call_that_fails),
  TEST(a_failure_is_untouched_by_a_call_that_succeeds),
  TEST(plain_out_parameters_and_arrays_may_end_at_inaccessible_memory),
  TEST(a_default_is_refused_for_sizes_that_no_struct_has),
};

TEST_MAIN(tests)
