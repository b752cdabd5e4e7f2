/* NULL: every call that gets one answers an error and changes nothing, unless the header says that it may.
 *
 * Calls that could crash run in forked children. Prints the text of every refused call, so that the driver can tell
 * when a function of the header is missing. */
#include "check.h"
#include "world.h"

static int32_t stop_at_once(void *user_data, const slicepool_range *range) {
  (void)user_data;
  (void)range;
  return SLICEPOOL_WALK_STOP;
}

static int32_t stop_at_once_in_space(void *user_data, const slicepool_space_slice *piece) {
  (void)user_data;
  (void)piece;
  return SLICEPOOL_WALK_STOP;
}

#define CONFIG(name, ...) INVALID(slicepool_buffer_pool_config_##name(__VA_ARGS__))

static void null_in_calls_about_configs_of_buffer_pools(void) {
  slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  uint64_t number = 0, size = 64;
  uint32_t count = 0, limit = 1;
  CONFIG(for_network, NULL);
  CONFIG(for_storage, NULL);
  CONFIG(for_storage_with_page_size, NULL, 4096);
  CONFIG(with_pool_min_size, NULL, 1);
  CONFIG(with_size_class_range, NULL, 1, 2, 3);
  CONFIG(with_size_classes, NULL, &size, &limit, 1);
  CONFIG(with_size_classes, &config, NULL, &limit, 1);
  CONFIG(with_size_classes, &config, &size, NULL, 1);
  CONFIG(with_size_classes, &config, NULL, NULL, 0);
  CONFIG(with_size_class, NULL, 64, 1);
  CONFIG(without_size_class, NULL, 1024);
  CONFIG(with_max_per_class, NULL, 1);
  CONFIG(with_bytes_per_class, NULL, 1);
  CONFIG(with_budget_bytes, NULL, MIB);
  CONFIG(with_parallelism, NULL, 1);
  CONFIG(with_max_thread_cache_capacity, NULL, 1);
  CONFIG(with_thread_cache_disabled, NULL);
  CONFIG(with_prefill, NULL, 1);
  CONFIG(with_alignment, NULL, 1);
  CONFIG(check, NULL);
  CONFIG(class_count, NULL, &count);
  CONFIG(class_count, &config, NULL);
  CONFIG(class_get, NULL, 0, &number, &count);
  CONFIG(class_get, &config, 0, NULL, &count);
  CONFIG(class_get, &config, 0, &number, NULL);
  CONFIG(class_for, NULL, 1, &number, &count);
  CONFIG(class_for, &config, 1, NULL, &count);
  CONFIG(class_for, &config, 1, &number, NULL);
  CONFIG(min_size, NULL, &number);
  CONFIG(min_size, &config, NULL);
  CONFIG(max_size, NULL, &number);
  CONFIG(max_size, &config, NULL);
  CONFIG(max_tracked_bytes, NULL, &number);
  CONFIG(max_tracked_bytes, &config, NULL);
  CONFIG(cache_capacity, NULL, 1, &count);
  CONFIG(cache_capacity, &config, 1, NULL);
  CONFIG(stripes, NULL, 1, &count);
  CONFIG(stripes, &config, 1, NULL);
  CHECK(number == 0 && count == 0);
  const slicepool_buffer_pool_config fresh = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  CHECK(memcmp(&config, &fresh, sizeof config) == 0);
}

static void null_in_calls_about_buffers(void) {
  static unsigned char block[65536];
  slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  slicepool_buffer_pool *pool = NULL;
  slicepool_buffer_cache *cache = NULL;
  slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
  slicepool_buffer_pool_statistics figures = SLICEPOOL_BUFFER_POOL_STATISTICS_INIT;
  slicepool_buffer_class_statistics class_figures = SLICEPOOL_BUFFER_CLASS_STATISTICS_INIT;
  slicepool_buffer_region region = SLICEPOOL_BUFFER_REGION_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  const uint64_t id = world.buffer.id;
  uint32_t count = 0;
  void *user_data = NULL;
  INVALID(slicepool_buffer_pool_create(NULL, &config, NULL));
  INVALID(slicepool_buffer_pool_create(&world.table, NULL, NULL));
  INVALID(slicepool_buffer_pool_create_in(NULL, &config, NULL, sizeof block, &pool));
  INVALID(slicepool_buffer_pool_create_in(NULL, &config, NULL, 0, &pool));
  INVALID(slicepool_buffer_pool_create_in(NULL, &config, block, sizeof block, NULL));
  config.memory_bytes = 4096;
  INVALID(slicepool_buffer_pool_create(NULL, &config, &pool));
  INVALID(slicepool_buffer_pool_close(NULL));
  INVALID(slicepool_buffer_pool_destroy(NULL, 0, &failure));
  INVALID(slicepool_buffer_pool_destroy(NULL, SLICEPOOL_DESTROY_FORCE, NULL));
  INVALID(slicepool_buffer_pool_abandon(NULL, 0));
  INVALID(slicepool_buffer_pool_abandon(NULL, SLICEPOOL_ABANDON_FORKED));
  INVALID(slicepool_buffer_pool_user_data_get(NULL, &user_data));
  INVALID(slicepool_buffer_pool_user_data_get(world.buffers, NULL));
  INVALID(slicepool_buffer_cache_create(NULL, &cache));
  INVALID(slicepool_buffer_cache_create(world.buffers, NULL));
  INVALID(slicepool_buffer_cache_flush(NULL));
  INVALID(slicepool_buffer_cache_destroy(NULL));
  INVALID(slicepool_buffer_acquire(NULL, NULL, 1, 0, &buffer, &failure));
  INVALID(slicepool_buffer_acquire(NULL, world.cache, 1, 0, &buffer, &failure));
  INVALID(slicepool_buffer_acquire(NULL, NULL, 0, 0, &buffer, NULL));
  INVALID(slicepool_buffer_acquire(world.buffers, NULL, 1, 0, NULL, &failure));
  INVALID(slicepool_buffer_acquire(world.buffers, world.cache, 1, 0, NULL, NULL));
  INVALID(slicepool_buffer_acquire(world.buffers, NULL, 0, 0, NULL, NULL));
  INVALID(slicepool_buffer_acquire_zeroed(NULL, world.cache, 1, 0, &buffer, NULL));
  INVALID(slicepool_buffer_acquire_zeroed(world.buffers, world.cache, 1, 0, NULL, &failure));
  INVALID(slicepool_buffer_release(NULL, NULL, id));
  INVALID(slicepool_buffer_release(NULL, world.cache, id));
  INVALID(slicepool_buffer_release(NULL, NULL, 0));
  INVALID(slicepool_buffer_get(NULL, id, &buffer));
  INVALID(slicepool_buffer_get(world.buffers, id, NULL));
  INVALID(slicepool_buffer_get(world.buffers, 0, &buffer));
  INVALID(slicepool_buffer_pool_statistics_get(NULL, &figures));
  INVALID(slicepool_buffer_pool_statistics_get(world.buffers, NULL));
  INVALID(slicepool_buffer_class_statistics_get(NULL, 0, &class_figures));
  INVALID(slicepool_buffer_class_statistics_get(world.buffers, 0, NULL));
  INVALID(slicepool_buffer_pool_regions(NULL, &region, 1, &count));
  INVALID(slicepool_buffer_pool_regions(world.buffers, NULL, 1, &count));
  INVALID(slicepool_buffer_pool_regions(world.buffers, &region, 1, NULL));
  CHECK(pool == NULL && cache == NULL && buffer.id == 0 && user_data == NULL && count == 0);
  CHECK(memcmp(block, block + 1, sizeof block - 1) == 0 && block[0] == 0);
}

static void null_is_an_error_and_not_a_crash(void) {
  build_world();
  slicepool_device device = world.table;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_allocator *allocator = NULL;
  slicepool_request request = request_of(100);
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  slicepool_layout_properties properties = SLICEPOOL_LAYOUT_PROPERTIES_INIT;
  static unsigned char block[65536];
  slicepool_space_config space_config = SLICEPOOL_SPACE_CONFIG_INIT;
  slicepool_space *space = NULL;
  slicepool_space_slice piece = SLICEPOOL_SPACE_SLICE_INIT;
  slicepool_space_statistics space_figures = SLICEPOOL_SPACE_STATISTICS_INIT;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  uint64_t number = 0, ids[2] = { world.slice.id, 0 };
  uint32_t flag = 0;
  char text[16];
  space_config.size = 100;
  slicepool_budget_config budget_config = SLICEPOOL_BUDGET_CONFIG_INIT;
  slicepool_budget *budget = NULL;
  slicepool_budget_statistics budget_figures = SLICEPOOL_BUDGET_STATISTICS_INIT;
  OK(slicepool_budget_create(NULL, &budget));
  const slicepool_point point = { 1, 0, 1 };
  slicepool_allocation_sizes sizes = SLICEPOOL_ALLOCATION_SIZES_INIT;
  slicepool_heap_budget heap_budget = SLICEPOOL_HEAP_BUDGET_INIT;
  slicepool_device_memory memory = SLICEPOOL_DEVICE_MEMORY_INIT;
  slicepool_range range = SLICEPOOL_RANGE_INIT;
  void *mapped = NULL, *user_data = NULL;

  INVALID(slicepool_host_device(NULL));
  INVALID(slicepool_allocation_sizes_adjust(&sizes, NULL));
  INVALID(slicepool_allocation_sizes_adjust(NULL, NULL));
  INVALID(slicepool_memblock_size(&sizes, 0, 0, NULL));
  INVALID(slicepool_memblock_size(NULL, 2, 0, &number));
  INVALID(slicepool_config_pools(NULL, &pool, 1, NULL));
  INVALID(slicepool_config_pools(&config, NULL, 2, &flag));
  INVALID(slicepool_config_pools(NULL, NULL, 0, NULL));
  INVALID(slicepool_struct_default(NULL, 8));
  INVALID(slicepool_layout_adaptive(&properties, &pool, 1, NULL));
  INVALID(slicepool_layout_adaptive(&properties, NULL, 1, &flag));
  INVALID(slicepool_layout_adaptive(NULL, NULL, 0, NULL));
  INVALID(slicepool_layout_sub_slices(&properties, &pool, 1, NULL));
  INVALID(slicepool_layout_sub_slices(NULL, NULL, 1, &flag));
  INVALID(slicepool_layout_exclusive_pages(&properties, &pool, 1, NULL));
  INVALID(slicepool_layout_exclusive_pages(&properties, NULL, UINT32_MAX, &flag));
  CHECK(flag == 0 && pool.kind == 0);

  INVALID(slicepool_allocator_create(NULL, &config, &allocator));
  INVALID(slicepool_allocator_create(&device, &config, NULL));
  INVALID(slicepool_allocator_create(&device, NULL, NULL));
  INVALID(slicepool_allocator_create(NULL, NULL, NULL));
  INVALID(slicepool_allocator_create_in(NULL, &config, block, sizeof block, &allocator));
  INVALID(slicepool_allocator_create_in(&device, &config, NULL, sizeof block, &allocator));
  INVALID(slicepool_allocator_create_in(&device, &config, NULL, 0, &allocator));
  INVALID(slicepool_allocator_create_in(&device, &config, block, sizeof block, NULL));
  INVALID(slicepool_allocator_create_in(NULL, NULL, NULL, 0, NULL));
  INVALID(slicepool_allocator_bytes_needed(&config, 1, 1, 0, NULL));
  INVALID(slicepool_allocator_bytes_needed(NULL, 1, 1, 0, NULL));
  INVALID(slicepool_budget_create(&budget_config, NULL));
  INVALID(slicepool_budget_create(NULL, NULL));
  INVALID(slicepool_budget_retain(NULL));
  INVALID(slicepool_budget_limits_set(NULL, 1, 1));
  INVALID(slicepool_budget_statistics_get(NULL, &budget_figures));
  INVALID(slicepool_budget_statistics_get(budget, NULL));
  CHECK(allocator == NULL && memcmp(block, block + 1, sizeof block - 1) == 0 && block[0] == 0);
  INVALID(slicepool_allocator_destroy(NULL, 0, &failure));
  INVALID(slicepool_allocator_destroy(NULL, SLICEPOOL_DESTROY_FORCE, NULL));
  INVALID(slicepool_allocator_abandon(NULL, 0));
  INVALID(slicepool_allocator_abandon(NULL, SLICEPOOL_ABANDON_FORKED));
  INVALID(slicepool_trim(NULL, 0, NULL));
  INVALID(slicepool_cleanup(NULL, NULL));
  INVALID(slicepool_adopt(NULL, 0, &memory, &failure));
  INVALID(slicepool_adopt(world.allocator, 0, NULL, &failure));
  INVALID(slicepool_adopt(NULL, 0, NULL, NULL));
  INVALID(slicepool_prefill(NULL, 0, 1, NULL));
  INVALID(slicepool_allocator_user_data_get(NULL, &user_data));
  INVALID(slicepool_allocator_user_data_get(world.allocator, NULL));

  INVALID(slicepool_allocate(NULL, &request, &slice));
  INVALID(slicepool_allocate(world.allocator, NULL, &slice));
  INVALID(slicepool_allocate(world.allocator, &request, NULL));
  INVALID(slicepool_allocate(NULL, NULL, NULL));
  INVALID(slicepool_allocate_many(NULL, &request, 1, &slice));
  INVALID(slicepool_allocate_many(world.allocator, NULL, 1, &slice));
  INVALID(slicepool_allocate_many(world.allocator, &request, 1, NULL));
  INVALID(slicepool_allocate_many(NULL, NULL, 1, NULL));
  INVALID(slicepool_allocate_many(NULL, NULL, 0, NULL));
  INVALID(slicepool_free(NULL, world.slice.id));
  INVALID(slicepool_free(NULL, 0));
  INVALID(slicepool_free_many(NULL, ids, 2, &failure));
  INVALID(slicepool_free_many(world.allocator, NULL, 2, NULL));
  INVALID(slicepool_free_many(NULL, NULL, 0, NULL));
  INVALID(slicepool_free_after(NULL, world.slice.id, &point, 1, &failure));
  INVALID(slicepool_free_after(NULL, 0, NULL, 0, NULL));
  INVALID(slicepool_free_after(world.allocator, world.slice.id, NULL, 1, NULL));
  INVALID(slicepool_free_after(world.allocator, 0, NULL, 1, NULL));
  INVALID(slicepool_free_after_many(NULL, ids, 2, &point, 1, NULL));
  INVALID(slicepool_free_after_many(NULL, NULL, 0, NULL, 0, NULL));
  INVALID(slicepool_free_after_many(world.allocator, NULL, 1, &point, 1, &failure));
  INVALID(slicepool_free_after_many(world.allocator, ids, 2, NULL, 1, NULL));
  INVALID(slicepool_free_after_many(world.allocator, NULL, 0, NULL, 1, NULL));
  INVALID(slicepool_collect(NULL, 1, 1, &failure));
  INVALID(slicepool_timeline_forget(NULL, 1));
  INVALID(slicepool_resolve(NULL, world.slice.id, &slice, NULL));
  INVALID(slicepool_resolve(world.allocator, world.slice.id, NULL, &failure));
  INVALID(slicepool_resolve(world.allocator, 0, &slice, NULL));
  INVALID(slicepool_plan(NULL, &pool, 1, &flag));
  INVALID(slicepool_plan(world.allocator, NULL, 1, &flag));
  INVALID(slicepool_plan(world.allocator, &pool, 1, NULL));
  INVALID(slicepool_check_margins(NULL, NULL));
  INVALID(slicepool_slice_get(NULL, world.slice.id, &slice));
  INVALID(slicepool_slice_get(world.allocator, world.slice.id, NULL));
  INVALID(slicepool_slice_get(world.allocator, 0, &slice));
  INVALID(slicepool_try_resize(NULL, world.slice.id, 100, &slice, &failure));
  INVALID(slicepool_try_resize(world.allocator, world.slice.id, 100, NULL, &failure));
  INVALID(slicepool_try_resize(world.allocator, world.slice.id, 100, NULL, NULL));
  INVALID(slicepool_try_resize(world.allocator, 0, 100, &slice, NULL));
  INVALID(slicepool_would_fit(NULL, &request, &flag));
  INVALID(slicepool_would_fit(world.allocator, NULL, &flag));
  INVALID(slicepool_would_fit(world.allocator, &request, NULL));
  INVALID(slicepool_would_grow(NULL, &request, &flag));
  INVALID(slicepool_would_grow(world.allocator, NULL, &flag));
  INVALID(slicepool_would_grow(world.allocator, &request, NULL));
  INVALID(slicepool_would_grow(NULL, NULL, NULL));
  INVALID(slicepool_name_set(NULL, world.slice.id, "a name"));
  INVALID(slicepool_name_set(world.allocator, 0, "a name"));
  INVALID(slicepool_name_get(NULL, world.slice.id, text, sizeof text));
  INVALID(slicepool_name_get(world.allocator, world.slice.id, NULL, sizeof text));
  INVALID(slicepool_name_get(world.allocator, world.slice.id, text, 0));
  INVALID(slicepool_name_get(world.allocator, 0, text, sizeof text));
  INVALID(slicepool_user_data_set(NULL, world.slice.id, NULL));
  INVALID(slicepool_user_data_set(world.allocator, 0, NULL));
  INVALID(slicepool_map(NULL, world.slice.id, &mapped, &failure));
  INVALID(slicepool_map(world.allocator, world.slice.id, NULL, &failure));
  INVALID(slicepool_map(world.allocator, 0, &mapped, NULL));
  INVALID(slicepool_unmap(NULL, world.slice.id));
  INVALID(slicepool_unmap(world.allocator, 0));
  INVALID(slicepool_flush(NULL, world.slice.id, 0, 1, &failure));
  INVALID(slicepool_flush(world.allocator, 0, 0, 1, NULL));
  INVALID(slicepool_invalidate(NULL, world.slice.id, 0, 1, NULL));
  INVALID(slicepool_invalidate(world.allocator, 0, 0, 1, &failure));
  CHECK(mapped == NULL && user_data == NULL);
  INVALID(slicepool_largest_free(NULL, &number));
  INVALID(slicepool_largest_free(world.allocator, NULL));

  INVALID(slicepool_statistics_get(NULL, &figures));
  INVALID(slicepool_statistics_get(world.allocator, NULL));
  INVALID(slicepool_pool_statistics_get(NULL, 0, &figures));
  INVALID(slicepool_pool_statistics_get(world.allocator, 0, NULL));
  INVALID(slicepool_type_statistics_get(NULL, 0, &figures));
  INVALID(slicepool_type_statistics_get(world.allocator, 0, NULL));
  INVALID(slicepool_heap_statistics_get(NULL, 0, &figures, &heap_budget));
  INVALID(slicepool_heap_statistics_get(world.allocator, 0, NULL, &heap_budget));
  INVALID(slicepool_find(NULL, world.slice.memory, 0, &range));
  INVALID(slicepool_find(world.allocator, world.slice.memory, 0, NULL));
  INVALID(slicepool_find_address(NULL, world.slice.address, &range));
  INVALID(slicepool_find_address(world.allocator, world.slice.address, NULL));
  INVALID(slicepool_pool_options_get(NULL, 0, &pool));
  INVALID(slicepool_pool_options_get(world.allocator, 0, NULL));
  INVALID(slicepool_walk(NULL, stop_at_once, NULL));
  INVALID(slicepool_walk(world.allocator, NULL, NULL));
  INVALID(slicepool_report_json(NULL, text, sizeof text, &number));
  INVALID(slicepool_report_json(world.allocator, NULL, sizeof text, &number));
  INVALID(slicepool_report_json(world.allocator, text, sizeof text, NULL));

  INVALID(slicepool_space_create(NULL, &space));
  INVALID(slicepool_space_create(&space_config, NULL));
  INVALID(slicepool_space_destroy(NULL));
  INVALID(slicepool_space_allocate(NULL, 1, 1, &piece, &failure));
  INVALID(slicepool_space_allocate(world.space, 1, 1, NULL, NULL));
  INVALID(slicepool_space_free(NULL, world.piece.id));
  INVALID(slicepool_space_free(NULL, 0));
  INVALID(slicepool_space_slice_get(NULL, world.piece.id, &piece));
  INVALID(slicepool_space_slice_get(world.space, world.piece.id, NULL));
  INVALID(slicepool_space_slice_get(world.space, 0, &piece));
  INVALID(slicepool_space_try_resize(NULL, world.piece.id, 10, &piece, NULL));
  INVALID(slicepool_space_try_resize(world.space, world.piece.id, 10, NULL, &failure));
  INVALID(slicepool_space_try_resize(world.space, 0, 10, &piece, NULL));
  INVALID(slicepool_space_grow(NULL, 100));
  INVALID(slicepool_space_clear(NULL));
  INVALID(slicepool_space_largest_free(NULL, &number));
  INVALID(slicepool_space_largest_free(world.space, NULL));
  INVALID(slicepool_space_statistics_get(NULL, &space_figures));
  INVALID(slicepool_space_statistics_get(world.space, NULL));
  INVALID(slicepool_space_walk(NULL, stop_at_once_in_space, NULL));
  INVALID(slicepool_space_walk(world.space, NULL, NULL));
  null_in_calls_about_configs_of_buffer_pools();
  null_in_calls_about_buffers();
  /* What is in the way of other pools is told before what is wrong with them. */
  OK(slicepool_free(world.allocator, world.slice.id));
  INVALID(slicepool_install_pools(NULL, &pool, 1, NULL));
  INVALID(slicepool_install_pools(world.allocator, NULL, 1, &failure));
  INVALID(slicepool_install_pools(world.allocator, NULL, 0, NULL));
  world.slice = take(world.allocator, 5000);
  OK(slicepool_budget_release(budget));
  /* A refused walk is over: the space can be destroyed. */
  IN_CHILD("a refused walk", {
    CHECK_RESULT(slicepool_space_walk(world.space, NULL, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    OK(slicepool_space_destroy(world.space));
  });
  end_world();
}

static void null_is_fine_where_the_header_says_so(void) {
  struct mock_device device;
  mock_init(&device);
  const slicepool_device table = mock_table(&device);
  slicepool_allocator *allocator = NULL;
  OK(slicepool_allocator_create(&table, NULL, &allocator));
  CHECK_EQ(take(allocator, 1).size, 256);
  CHECK_EQ(figures_of(allocator).pools, 2);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 4 * MIB);
  CHECK_EQ(device.last_alignment, 4096);
  CHECK_RESULT(slicepool_allocator_destroy(allocator, 0, NULL), SLICEPOOL_ERROR_BUSY);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);

  static unsigned char block[65536];
  mock_init(&device);
  OK(slicepool_allocator_create_in(&table, NULL, block, sizeof block, &allocator));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  mock_end(&device);
  uint64_t bytes = 0;
  OK(slicepool_allocator_bytes_needed(NULL, 0, 0, 0, &bytes));
  CHECK(bytes != 0);
  uint32_t count = 0;
  OK(slicepool_layout_adaptive(NULL, NULL, 0, &count));
  CHECK_EQ(count, 2);
  OK(slicepool_layout_sub_slices(NULL, NULL, 0, &count));
  CHECK(count > 2);
  OK(slicepool_layout_exclusive_pages(NULL, NULL, 0, &count));
  CHECK_EQ(count, 24);

  OK(slicepool_config_pools(NULL, NULL, 0, &count));
  CHECK_EQ(count, 2);
  slicepool_allocation_sizes used = SLICEPOOL_ALLOCATION_SIZES_INIT;
  OK(slicepool_allocation_sizes_adjust(NULL, &used));
  CHECK(used.min_device_memblock_size == 256 * MIB && used.max_host_memblock_size == 64 * MIB);
  OK(slicepool_memblock_size(NULL, 1, 0, &bytes));
  CHECK_EQ(bytes, 64 * MIB);

  build_world();
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  OK(slicepool_heap_statistics_get(world.allocator, 0, &figures, NULL));
  CHECK_EQ(figures.slices, 1);
  OK(slicepool_name_set(world.allocator, world.slice.id, NULL));
  OK(slicepool_user_data_set(world.allocator, world.slice.id, NULL));
  OK(slicepool_flush(world.allocator, world.slice.id, 0, 1, NULL));
  OK(slicepool_prefill(world.allocator, 0, 1, NULL));
  OK(slicepool_free(world.allocator, 0));
  OK(slicepool_free_many(world.allocator, NULL, 0, NULL));
  OK(slicepool_allocate_many(world.allocator, NULL, 0, NULL));
  OK(slicepool_space_free(world.space, 0));
  OK(slicepool_budget_release(NULL));
  const slicepool_point point = { 1, 0, 1 };
  OK(slicepool_free_after(world.allocator, 0, &point, 1, NULL));
  OK(slicepool_free_after(world.allocator, 0, NULL, 0, NULL));
  OK(slicepool_free_after_many(world.allocator, NULL, 0, &point, 1, NULL));
  OK(slicepool_free_after_many(world.allocator, NULL, 0, NULL, 0, NULL));
  OK(slicepool_plan(world.allocator, NULL, 0, &count));
  CHECK_EQ(count, 1);
  OK(slicepool_collect(world.allocator, 1, 1, NULL));
  OK(slicepool_check_margins(world.allocator, NULL));
  const uint64_t zeros[] = { 0, 0, 0 };
  OK(slicepool_free_many(world.allocator, zeros, 3, NULL));
  uint64_t needed = 0;
  OK(slicepool_report_json(world.allocator, NULL, 0, &needed));
  CHECK(needed > 100);
  CHECK_RESULT(slicepool_space_allocate(world.space, 0, 0, &world.piece, NULL), SLICEPOOL_ERROR_INVALID_ARGUMENT);

  slicepool_buffer_pool *pool = NULL;
  OK(slicepool_buffer_pool_create(NULL, NULL, &pool));
  CHECK_EQ(buffer_figures_of(pool).classes, 8);
  CHECK_EQ(class_in(pool, 7).size, 128 * KIB);
  slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
  OK(slicepool_buffer_acquire(pool, NULL, 1, 0, &buffer, NULL));
  OK(slicepool_buffer_release(pool, NULL, buffer.id));
  OK(slicepool_buffer_release(pool, NULL, 0));
  OK(slicepool_buffer_acquire(pool, NULL, 0, 0, &buffer, NULL));
  OK(slicepool_buffer_pool_regions(pool, NULL, 0, &count));
  CHECK_EQ(count, 1);
  OK(slicepool_buffer_pool_destroy(pool, 0, NULL));
  static unsigned char books[262144];
  OK(slicepool_buffer_pool_create_in(NULL, NULL, books, sizeof books, &pool));
  OK(slicepool_buffer_pool_destroy(pool, 0, NULL));
  end_world();
}

static const struct test tests[] = {
  TEST(null_is_an_error_and_not_a_crash),
  TEST(null_is_fine_where_the_header_says_so),
};

TEST_MAIN(tests)
