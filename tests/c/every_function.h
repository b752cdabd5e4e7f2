/* One call of each function of the header, for tests that make them from within callbacks. */
#ifndef EVERY_FUNCTION_H
#define EVERY_FUNCTION_H

#include "check.h"
#include "shorthand.h"

/* Where the calls are made. The objects "inside" are those whose callback is running. */
struct site {
  slicepool_allocator *allocator;
  bool allocator_inside;
  slicepool_space *space;
  bool space_inside;
  uint64_t id;    /* of a live slice of the allocator */
  bool closing;   /* the allocator is being destroyed: it takes no more pages */
  bool collecting; /* what is collected from within is free after the next collect only */
  uint64_t value; /* the last on the timeline of the calls */
  slicepool_buffer_pool *buffers; /* the one whose callback is running, or NULL; of one class of 1024 bytes */
  slicepool_buffer_cache *cache;  /* of that, or NULL */
  bool cache_inside;              /* the call with whose callback this is was made with it */
  bool closes;                    /* the pool may be closed by these calls */
};

/* The timeline that the calls wait for; it is nobody else's. */
enum { OWN_TIMELINE = 77 };

/* A slice; its handle is 0 if it would need a page that is not to be had any more. */
static slicepool_slice take_if_open(struct site *site, uint64_t size) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_result result = try_take(site->allocator, size, 0, &slice, NULL);
  if (!site->closing || result != SLICEPOOL_ERROR_BUSY) OK(result);
  return slice;
}

static void call_slicepool_version(struct site *site) {
  (void)site;
  CHECK_EQ(slicepool_version(), SLICEPOOL_VERSION_NUMBER);
}

static void call_slicepool_result_string(struct site *site) {
  (void)site;
  CHECK(slicepool_result_string(SLICEPOOL_ERROR_BUSY) != NULL);
}

#define CALL_SIZEOF(name)                                        \
  static void call_slicepool_sizeof_##name(struct site *site) {  \
    (void)site;                                                  \
    CHECK_EQ(slicepool_sizeof_##name(), sizeof(slicepool_##name)); \
  }
CALL_SIZEOF(failure)
CALL_SIZEOF(memory_type)
CALL_SIZEOF(heap)
CALL_SIZEOF(allocation_sizes)
CALL_SIZEOF(heap_budget)
CALL_SIZEOF(event)
CALL_SIZEOF(cache_range)
CALL_SIZEOF(point)
CALL_SIZEOF(shortage)
CALL_SIZEOF(fill_request)
CALL_SIZEOF(device)
CALL_SIZEOF(device_memory)
CALL_SIZEOF(page_request)
CALL_SIZEOF(host)
CALL_SIZEOF(pool_options)
CALL_SIZEOF(layout_properties)
CALL_SIZEOF(budget_config)
CALL_SIZEOF(budget_statistics)
CALL_SIZEOF(allocator_config)
CALL_SIZEOF(request)
CALL_SIZEOF(slice)
CALL_SIZEOF(statistics)
CALL_SIZEOF(range)
CALL_SIZEOF(space_config)
CALL_SIZEOF(space_slice)
CALL_SIZEOF(space_statistics)
CALL_SIZEOF(buffer_pool_config)
CALL_SIZEOF(buffer)
CALL_SIZEOF(buffer_pool_statistics)
CALL_SIZEOF(buffer_class_statistics)
CALL_SIZEOF(buffer_region)

static void call_slicepool_struct_default(struct site *site) {
  (void)site;
  slicepool_request request;
  OK(slicepool_struct_default(&request, sizeof request));
}

static void call_slicepool_host_device(struct site *site) {
  (void)site;
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  OK(slicepool_host_device(&table));
}

static void call_slicepool_allocation_sizes_adjust(struct site *site) {
  (void)site;
  slicepool_allocation_sizes sizes = SLICEPOOL_ALLOCATION_SIZES_INIT;
  sizes.min_host_memblock_size = 5 * MIB;
  OK(slicepool_allocation_sizes_adjust(&sizes, &sizes));
  CHECK_EQ(sizes.min_host_memblock_size, 8 * MIB);
}

static void call_slicepool_memblock_size(struct site *site) {
  (void)site;
  uint64_t bytes = 0;
  OK(slicepool_memblock_size(NULL, 0, 3, &bytes));
  CHECK_EQ(bytes, 256 * MIB);
}

static void call_slicepool_config_pools(struct site *site) {
  (void)site;
  uint32_t count = 0;
  OK(slicepool_config_pools(NULL, NULL, 0, &count));
  CHECK_EQ(count, 2);
}

typedef slicepool_result (*layout)(const slicepool_layout_properties *, slicepool_pool_options *, uint32_t, uint32_t *);

static void call_layout(layout make) {
  slicepool_pool_options pools[32] = { SLICEPOOL_POOL_OPTIONS_INIT };
  uint32_t count = 0;
  OK(make(NULL, pools, 32, &count));
  CHECK(count != 0 && pools[count - 1].kind != 0);
}

static void call_slicepool_layout_adaptive(struct site *site) {
  (void)site;
  call_layout(slicepool_layout_adaptive);
}

static void call_slicepool_layout_sub_slices(struct site *site) {
  (void)site;
  call_layout(slicepool_layout_sub_slices);
}

static void call_slicepool_layout_exclusive_pages(struct site *site) {
  (void)site;
  call_layout(slicepool_layout_exclusive_pages);
}

static slicepool_allocator *create_on_host(void) {
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  OK(slicepool_host_device(&table));
  slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  return create_over(&table, &pool, 1, 0);
}

/* A budget of one page of its own. */
static slicepool_budget *create_budget_of_one_page(void) {
  slicepool_budget_config config = SLICEPOOL_BUDGET_CONFIG_INIT;
  slicepool_budget *budget = NULL;
  config.max_pages = 1;
  OK(slicepool_budget_create(&config, &budget));
  CHECK(budget != NULL);
  return budget;
}

static void call_slicepool_budget_create(struct site *site) {
  (void)site;
  slicepool_budget *budget = create_budget_of_one_page(), *other = NULL;
  OK(slicepool_budget_create(NULL, &other));
  CHECK(other != NULL && other != budget);
  OK(slicepool_budget_release(other));
  OK(slicepool_budget_release(budget));
}

static void call_slicepool_budget_retain(struct site *site) {
  (void)site;
  slicepool_budget *budget = create_budget_of_one_page();
  OK(slicepool_budget_retain(budget));
  OK(slicepool_budget_release(budget));
  OK(slicepool_budget_release(budget));
}

static void call_slicepool_budget_release(struct site *site) {
  (void)site;
  OK(slicepool_budget_release(create_budget_of_one_page()));
  OK(slicepool_budget_release(NULL));
}

static void call_slicepool_budget_limits_set(struct site *site) {
  (void)site;
  slicepool_budget *budget = create_budget_of_one_page();
  OK(slicepool_budget_limits_set(budget, 4096, 2));
  OK(slicepool_budget_release(budget));
}

static void call_slicepool_budget_statistics_get(struct site *site) {
  (void)site;
  slicepool_budget *budget = create_budget_of_one_page();
  slicepool_budget_statistics figures = SLICEPOOL_BUDGET_STATISTICS_INIT;
  OK(slicepool_budget_statistics_get(budget, &figures));
  CHECK_EQ(figures.max_pages, 1);
  OK(slicepool_budget_release(budget));
}

static void call_slicepool_allocator_create(struct site *site) {
  (void)site;
  OK(slicepool_allocator_destroy(create_on_host(), 0, NULL));
}

static void call_slicepool_allocator_bytes_needed(struct site *site) {
  (void)site;
  uint64_t bytes = 0;
  OK(slicepool_allocator_bytes_needed(NULL, 1, 1, 0, &bytes));
  CHECK(bytes != 0);
}

static void call_slicepool_allocator_create_in(struct site *site) {
  (void)site;
  static unsigned char block[65536];
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  OK(slicepool_host_device(&table));
  slicepool_allocator *allocator = NULL;
  OK(slicepool_allocator_create_in(&table, NULL, block, sizeof block, &allocator));
  OK(slicepool_free(allocator, take(allocator, 100).id));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
}

static void call_slicepool_allocator_destroy(struct site *site) {
  if (!site->allocator_inside) {
    OK(slicepool_allocator_destroy(create_on_host(), 0, NULL));
    return;
  }
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_allocator_destroy(site->allocator, 0, &failure), SLICEPOOL_ERROR_BUSY);
  CHECK(failure.in_flight != 0);
  CHECK_RESULT(slicepool_allocator_destroy(site->allocator, SLICEPOOL_DESTROY_FORCE, NULL), SLICEPOOL_ERROR_BUSY);
}

static void call_slicepool_allocator_abandon(struct site *site) {
  if (site->allocator_inside) {
    CHECK_RESULT(slicepool_allocator_abandon(site->allocator, 0), SLICEPOOL_ERROR_BUSY);
  } else {
    OK(slicepool_allocator_abandon(create_on_host(), 0));
  }
}

static void call_slicepool_trim(struct site *site) { OK(slicepool_trim(site->allocator, 0, NULL)); }

static void call_slicepool_cleanup(struct site *site) { OK(slicepool_cleanup(site->allocator, NULL)); }

/* A page that the device of the site knows nothing of would be handed to it: what is refused is taken over nowhere. */
static void call_slicepool_adopt(struct site *site) {
  slicepool_device_memory memory = SLICEPOOL_DEVICE_MEMORY_INIT;
  memory.handle = UINT64_C(1) << 40;
  memory.size = 5000;
  CHECK(slicepool_adopt(site->allocator, 0, &memory, NULL) != SLICEPOOL_OK);
}

static void call_slicepool_prefill(struct site *site) {
  slicepool_result result = slicepool_prefill(site->allocator, 0, 2, NULL);
  if (!site->closing || result != SLICEPOOL_ERROR_BUSY) OK(result);
}

static void call_slicepool_allocate(struct site *site) {
  slicepool_slice slice = take_if_open(site, 700);
  slicepool_slice page = take_if_open(site, 4096);
  OK(slicepool_free(site->allocator, slice.id));
  OK(slicepool_free(site->allocator, page.id));
}

static void call_slicepool_allocate_many(struct site *site) {
  slicepool_request requests[3] = { SLICEPOOL_REQUEST_INIT, SLICEPOOL_REQUEST_INIT, SLICEPOOL_REQUEST_INIT };
  slicepool_slice slices[3] = { SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT };
  for (int i = 0; i < 3; i++) requests[i].size = 3000;
  slicepool_result result = slicepool_allocate_many(site->allocator, requests, 3, slices);
  if (!site->closing || result != SLICEPOOL_ERROR_BUSY) OK(result);
  for (int i = 0; i < 3; i++) OK(slicepool_free(site->allocator, slices[i].id));
}

static void call_slicepool_free(struct site *site) {
  slicepool_slice slice = take(site->allocator, 100);
  OK(slicepool_free(site->allocator, slice.id));
  CHECK_RESULT(slicepool_free(site->allocator, slice.id), SLICEPOOL_ERROR_STALE_HANDLE);
}

static void call_slicepool_free_many(struct site *site) {
  const uint64_t ids[] = { take(site->allocator, 100).id, 0, take_if_open(site, 4096).id };
  OK(slicepool_free_many(site->allocator, ids, 3, NULL));
}

/* The next point on the timeline of the calls. */
static slicepool_point next_point(struct site *site) {
  return (slicepool_point){ OWN_TIMELINE, 0, ++site->value };
}

static void call_slicepool_free_after(struct site *site) {
  slicepool_slice slice = take(site->allocator, 100);
  const slicepool_point point = next_point(site);
  const uint32_t before = figures_of(site->allocator).slices_pending;
  OK(slicepool_free_after(site->allocator, slice.id, &point, 1, NULL));
  CHECK_EQ(figures_of(site->allocator).slices_pending, before + 1);
  CHECK_RESULT(slicepool_free_after(site->allocator, slice.id, &point, 1, NULL), SLICEPOOL_ERROR_STALE_HANDLE);
  OK(slicepool_collect(site->allocator, point.timeline, point.value, NULL));
  CHECK(site->collecting || figures_of(site->allocator).slices_pending == before);
}

static void call_slicepool_free_after_many(struct site *site) {
  const uint64_t ids[] = { take(site->allocator, 100).id, 0, take_if_open(site, 4096).id };
  const slicepool_point points[] = { next_point(site), next_point(site) };
  OK(slicepool_free_after_many(site->allocator, ids, 3, points, 2, NULL));
  OK(slicepool_collect(site->allocator, OWN_TIMELINE, site->value, NULL));
}

static void call_slicepool_collect(struct site *site) {
  OK(slicepool_collect(site->allocator, OWN_TIMELINE, ++site->value, NULL));
}

static void call_slicepool_timeline_forget(struct site *site) {
  const uint64_t id = take(site->allocator, 100).id;
  const slicepool_point point = { OWN_TIMELINE + 1, 0, 1 };
  OK(slicepool_free_after(site->allocator, id, &point, 1, NULL));
  CHECK_RESULT(slicepool_timeline_forget(site->allocator, point.timeline), SLICEPOOL_ERROR_BUSY);
  OK(slicepool_collect(site->allocator, point.timeline, 1, NULL));
  OK(slicepool_timeline_forget(site->allocator, point.timeline));
}

static void call_slicepool_resolve(struct site *site) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_result result = slicepool_resolve(site->allocator, site->id, &slice, NULL);
  if (site->closing && result == SLICEPOOL_ERROR_BUSY) return;
  OK(result);
  CHECK(slice.id == site->id && slice.memory != UINT64_MAX);
}

static void call_slicepool_plan(struct site *site) {
  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  uint32_t count = 0;
  OK(slicepool_plan(site->allocator, &pool, 1, &count));
  CHECK_EQ(count, 1);
  CHECK_EQ(pool.page_size, 4096);
}

static void call_slicepool_install_pools(struct site *site) {
  const slicepool_pool_options pool = sliced(8192, 0, 0, 64);
  CHECK_RESULT(slicepool_install_pools(site->allocator, &pool, 1, NULL),
               site->allocator_inside ? SLICEPOOL_ERROR_BUSY : SLICEPOOL_ERROR_POOLS_IN_USE);
}

static void call_slicepool_check_margins(struct site *site) { OK(slicepool_check_margins(site->allocator, NULL)); }

static void call_slicepool_slice_get(struct site *site) {
  CHECK_EQ(look_up(site->allocator, site->id).id, site->id);
}

static void call_slicepool_try_resize(struct site *site) {
  slicepool_slice slice = look_up(site->allocator, site->id);
  OK(slicepool_try_resize(site->allocator, site->id, slice.size / 2, &slice, NULL));
  OK(slicepool_try_resize(site->allocator, site->id, slice.size * 2, &slice, NULL));
}

static void call_slicepool_would_fit(struct site *site) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = 100;
  uint32_t fits = 7;
  OK(slicepool_would_fit(site->allocator, &request, &fits));
  CHECK_LE(fits, 1);
}

static void call_slicepool_would_grow(struct site *site) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = 4096;
  uint32_t grows = 7;
  OK(slicepool_would_grow(site->allocator, &request, &grows));
  CHECK_LE(grows, 1);
}

static void call_slicepool_name_set(struct site *site) { OK(slicepool_name_set(site->allocator, site->id, "a name")); }

static void call_slicepool_name_get(struct site *site) {
  char name[SLICEPOOL_MAX_NAME + 1];
  OK(slicepool_name_set(site->allocator, site->id, "another name"));
  OK(slicepool_name_get(site->allocator, site->id, name, sizeof name));
  CHECK_TEXT(name, "another name");
}

static void call_slicepool_user_data_set(struct site *site) {
  OK(slicepool_user_data_set(site->allocator, site->id, site));
  CHECK(look_up(site->allocator, site->id).user_data == site);
  OK(slicepool_user_data_set(site->allocator, site->id, NULL));
}

static void call_slicepool_allocator_user_data_get(struct site *site) {
  void *user_data = site;
  OK(slicepool_allocator_user_data_get(site->allocator, &user_data));
  CHECK(user_data == NULL);
}

/* What a dry run has not got from the device is not mapped. */
static void call_slicepool_map(struct site *site) {
  void *mapped = NULL;
  const slicepool_result result = slicepool_map(site->allocator, site->id, &mapped, NULL);
  CHECK((mapped != NULL) == (result == SLICEPOOL_OK));
  CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_MAPPING_FAILED);
  if (result == SLICEPOOL_OK) OK(slicepool_unmap(site->allocator, site->id));
}

static void call_slicepool_unmap(struct site *site) {
  CHECK_RESULT(slicepool_unmap(site->allocator, site->id), SLICEPOOL_ERROR_INVALID_ARGUMENT);
}

static void call_slicepool_flush(struct site *site) { OK(slicepool_flush(site->allocator, site->id, 0, 10, NULL)); }

static void call_slicepool_invalidate(struct site *site) {
  OK(slicepool_invalidate(site->allocator, site->id, 0, UINT64_MAX, NULL));
}

static void call_slicepool_own_pool(struct site *site) {
  (void)site;
  CHECK_EQ(slicepool_own_pool(SLICEPOOL_OWN_PAGES_ONCE, 1), UINT32_MAX - 5);
}

static void call_slicepool_type_statistics_get(struct site *site) {
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  OK(slicepool_type_statistics_get(site->allocator, 0, &figures));
  CHECK_EQ(figures.pools, 1);
}

static void call_slicepool_heap_statistics_get(struct site *site) {
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  slicepool_heap_budget budget = SLICEPOOL_HEAP_BUDGET_INIT;
  OK(slicepool_heap_statistics_get(site->allocator, 0, &figures, &budget));
  CHECK(figures.slices != 0 && budget.budget != 0);
}

static void call_slicepool_find(struct site *site) {
  slicepool_range range = SLICEPOOL_RANGE_INIT;
  const slicepool_slice slice = look_up(site->allocator, site->id);
  OK(slicepool_find(site->allocator, slice.memory, slice.offset, &range));
  CHECK(slice.memory == UINT64_MAX || range.id == site->id);
}

static void call_slicepool_find_address(struct site *site) {
  slicepool_range range = SLICEPOOL_RANGE_INIT;
  OK(slicepool_find_address(site->allocator, 1, &range));
  CHECK_EQ(range.kind, SLICEPOOL_RANGE_NONE);
}

static void call_slicepool_largest_free(struct site *site) { CHECK_LE(largest_free_of(site->allocator), 4096); }

static void call_slicepool_statistics_get(struct site *site) { CHECK(figures_of(site->allocator).slices != 0); }

static void call_slicepool_pool_statistics_get(struct site *site) {
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  OK(slicepool_pool_statistics_get(site->allocator, 0, &figures));
}

static void call_slicepool_pool_options_get(struct site *site) {
  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  OK(slicepool_pool_options_get(site->allocator, 0, &pool));
  CHECK_EQ(pool.page_size, 4096);
}

static void call_slicepool_walk(struct site *site) {
  struct ranges ranges = ranges_of(site->allocator);
  CHECK(ranges.count != 0);
  free(ranges.list);
}

static void call_slicepool_report_json(struct site *site) {
  uint64_t needed = 0;
  char report[8192];
  OK(slicepool_report_json(site->allocator, report, sizeof report, &needed));
  CHECK(needed > 1 && needed <= sizeof report && strlen(report) + 1 == needed);
}

static void call_slicepool_space_create(struct site *site) {
  (void)site;
  OK(slicepool_space_destroy(create_space(1000, 1)));
}

static void call_slicepool_space_destroy(struct site *site) {
  if (site->space_inside) {
    CHECK_RESULT(slicepool_space_destroy(site->space), SLICEPOOL_ERROR_BUSY);
  } else {
    OK(slicepool_space_destroy(create_space(1000, 1)));
  }
}

static void call_slicepool_space_allocate(struct site *site) {
  slicepool_space_slice slice = cut(site->space, 10, 2);
  OK(slicepool_space_free(site->space, slice.id));
}

static void call_slicepool_space_free(struct site *site) {
  slicepool_space_slice slice = cut(site->space, 3, 1);
  OK(slicepool_space_free(site->space, slice.id));
  CHECK_RESULT(slicepool_space_free(site->space, slice.id), SLICEPOOL_ERROR_STALE_HANDLE);
}

static void call_slicepool_space_slice_get(struct site *site) {
  slicepool_space_slice slice = cut(site->space, 5, 1), found = SLICEPOOL_SPACE_SLICE_INIT;
  OK(slicepool_space_slice_get(site->space, slice.id, &found));
  CHECK(memcmp(&slice, &found, sizeof slice) == 0);
  OK(slicepool_space_free(site->space, slice.id));
}

static void call_slicepool_space_try_resize(struct site *site) {
  slicepool_space_slice slice = cut(site->space, 9, 1);
  OK(slicepool_space_try_resize(site->space, slice.id, 4, &slice, NULL));
  CHECK_EQ(slice.size, 4);
  OK(slicepool_space_free(site->space, slice.id));
}

static void call_slicepool_space_grow(struct site *site) {
  const uint64_t before = space_figures_of(site->space).size;
  OK(slicepool_space_grow(site->space, 1000000));
  CHECK_EQ(space_figures_of(site->space).size, before + 1000000);
}

static void call_slicepool_space_clear(struct site *site) {
  OK(slicepool_space_clear(site->space));
  check_space_is_empty(site->space);
  cut(site->space, 7, 1);
}

static void call_slicepool_space_largest_free(struct site *site) {
  uint64_t largest = 0;
  OK(slicepool_space_largest_free(site->space, &largest));
  CHECK(largest != 0);
}

static void call_slicepool_space_statistics_get(struct site *site) { CHECK(space_figures_of(site->space).size != 0); }

static void call_slicepool_space_walk(struct site *site) { check_space_books(site->space); }

#include "every_buffer_function.h"

static const struct {
  const char *name;
  void (*call)(struct site *site);
} functions[] = {
#define FUNCTION(name) { #name, call_##name }
  FUNCTION(slicepool_version),
  FUNCTION(slicepool_result_string),
  FUNCTION(slicepool_sizeof_failure),
  FUNCTION(slicepool_allocation_sizes_adjust),
  FUNCTION(slicepool_memblock_size),
  FUNCTION(slicepool_sizeof_memory_type),
  FUNCTION(slicepool_sizeof_heap),
  FUNCTION(slicepool_sizeof_allocation_sizes),
  FUNCTION(slicepool_host_device),
  FUNCTION(slicepool_sizeof_point),
  FUNCTION(slicepool_sizeof_shortage),
  FUNCTION(slicepool_sizeof_fill_request),
  FUNCTION(slicepool_sizeof_heap_budget),
  FUNCTION(slicepool_sizeof_event),
  FUNCTION(slicepool_sizeof_cache_range),
  FUNCTION(slicepool_sizeof_device),
  FUNCTION(slicepool_sizeof_device_memory),
  FUNCTION(slicepool_sizeof_page_request),
  FUNCTION(slicepool_sizeof_host),
  FUNCTION(slicepool_layout_adaptive),
  FUNCTION(slicepool_layout_sub_slices),
  FUNCTION(slicepool_layout_exclusive_pages),
  FUNCTION(slicepool_sizeof_layout_properties),
  FUNCTION(slicepool_budget_create),
  FUNCTION(slicepool_budget_retain),
  FUNCTION(slicepool_budget_release),
  FUNCTION(slicepool_budget_limits_set),
  FUNCTION(slicepool_budget_statistics_get),
  FUNCTION(slicepool_sizeof_budget_config),
  FUNCTION(slicepool_sizeof_budget_statistics),
  FUNCTION(slicepool_allocator_create),
  FUNCTION(slicepool_allocator_create_in),
  FUNCTION(slicepool_allocator_bytes_needed),
  FUNCTION(slicepool_allocator_destroy),
  FUNCTION(slicepool_allocator_abandon),
  FUNCTION(slicepool_trim),
  FUNCTION(slicepool_cleanup),
  FUNCTION(slicepool_adopt),
  FUNCTION(slicepool_prefill),
  FUNCTION(slicepool_config_pools),
  FUNCTION(slicepool_sizeof_pool_options),
  FUNCTION(slicepool_sizeof_allocator_config),
  FUNCTION(slicepool_allocate),
  FUNCTION(slicepool_allocate_many),
  FUNCTION(slicepool_free),
  FUNCTION(slicepool_free_many),
  FUNCTION(slicepool_free_after),
  FUNCTION(slicepool_free_after_many),
  FUNCTION(slicepool_collect),
  FUNCTION(slicepool_timeline_forget),
  FUNCTION(slicepool_resolve),
  FUNCTION(slicepool_plan),
  FUNCTION(slicepool_install_pools),
  FUNCTION(slicepool_check_margins),
  FUNCTION(slicepool_slice_get),
  FUNCTION(slicepool_try_resize),
  FUNCTION(slicepool_would_fit),
  FUNCTION(slicepool_would_grow),
  FUNCTION(slicepool_largest_free),
  FUNCTION(slicepool_name_set),
  FUNCTION(slicepool_name_get),
  FUNCTION(slicepool_user_data_set),
  FUNCTION(slicepool_allocator_user_data_get),
  FUNCTION(slicepool_map),
  FUNCTION(slicepool_unmap),
  FUNCTION(slicepool_flush),
  FUNCTION(slicepool_invalidate),
  FUNCTION(slicepool_sizeof_request),
  FUNCTION(slicepool_sizeof_slice),
  FUNCTION(slicepool_statistics_get),
  FUNCTION(slicepool_pool_statistics_get),
  FUNCTION(slicepool_type_statistics_get),
  FUNCTION(slicepool_heap_statistics_get),
  FUNCTION(slicepool_find),
  FUNCTION(slicepool_find_address),
  FUNCTION(slicepool_own_pool),
  FUNCTION(slicepool_pool_options_get),
  FUNCTION(slicepool_walk),
  FUNCTION(slicepool_report_json),
  FUNCTION(slicepool_sizeof_statistics),
  FUNCTION(slicepool_sizeof_range),
  FUNCTION(slicepool_space_create),
  FUNCTION(slicepool_space_destroy),
  FUNCTION(slicepool_space_allocate),
  FUNCTION(slicepool_space_free),
  FUNCTION(slicepool_space_slice_get),
  FUNCTION(slicepool_space_try_resize),
  FUNCTION(slicepool_space_grow),
  FUNCTION(slicepool_space_clear),
  FUNCTION(slicepool_space_largest_free),
  FUNCTION(slicepool_space_statistics_get),
  FUNCTION(slicepool_space_walk),
  FUNCTION(slicepool_sizeof_space_config),
  FUNCTION(slicepool_sizeof_space_slice),
  FUNCTION(slicepool_sizeof_space_statistics),
  FUNCTION(slicepool_buffer_acquire),
  FUNCTION(slicepool_buffer_acquire_zeroed),
  FUNCTION(slicepool_buffer_cache_create),
  FUNCTION(slicepool_buffer_cache_destroy),
  FUNCTION(slicepool_buffer_cache_flush),
  FUNCTION(slicepool_buffer_class_statistics_get),
  FUNCTION(slicepool_buffer_get),
  FUNCTION(slicepool_buffer_pool_abandon),
  FUNCTION(slicepool_buffer_pool_close),
  FUNCTION(slicepool_buffer_pool_config_cache_capacity),
  FUNCTION(slicepool_buffer_pool_config_check),
  FUNCTION(slicepool_buffer_pool_config_class_count),
  FUNCTION(slicepool_buffer_pool_config_class_for),
  FUNCTION(slicepool_buffer_pool_config_class_get),
  FUNCTION(slicepool_buffer_pool_config_for_network),
  FUNCTION(slicepool_buffer_pool_config_for_storage),
  FUNCTION(slicepool_buffer_pool_config_for_storage_with_page_size),
  FUNCTION(slicepool_buffer_pool_config_max_size),
  FUNCTION(slicepool_buffer_pool_config_max_tracked_bytes),
  FUNCTION(slicepool_buffer_pool_config_min_size),
  FUNCTION(slicepool_buffer_pool_config_stripes),
  FUNCTION(slicepool_buffer_pool_config_with_alignment),
  FUNCTION(slicepool_buffer_pool_config_with_budget_bytes),
  FUNCTION(slicepool_buffer_pool_config_with_bytes_per_class),
  FUNCTION(slicepool_buffer_pool_config_with_max_per_class),
  FUNCTION(slicepool_buffer_pool_config_with_max_thread_cache_capacity),
  FUNCTION(slicepool_buffer_pool_config_with_parallelism),
  FUNCTION(slicepool_buffer_pool_config_with_pool_min_size),
  FUNCTION(slicepool_buffer_pool_config_with_prefill),
  FUNCTION(slicepool_buffer_pool_config_with_size_class),
  FUNCTION(slicepool_buffer_pool_config_with_size_class_range),
  FUNCTION(slicepool_buffer_pool_config_with_size_classes),
  FUNCTION(slicepool_buffer_pool_config_with_thread_cache_disabled),
  FUNCTION(slicepool_buffer_pool_config_without_size_class),
  FUNCTION(slicepool_buffer_pool_create),
  FUNCTION(slicepool_buffer_pool_create_in),
  FUNCTION(slicepool_buffer_pool_destroy),
  FUNCTION(slicepool_buffer_pool_regions),
  FUNCTION(slicepool_buffer_pool_statistics_get),
  FUNCTION(slicepool_buffer_pool_user_data_get),
  FUNCTION(slicepool_buffer_release),
  FUNCTION(slicepool_sizeof_buffer),
  FUNCTION(slicepool_sizeof_buffer_class_statistics),
  FUNCTION(slicepool_sizeof_buffer_pool_config),
  FUNCTION(slicepool_sizeof_buffer_pool_statistics),
  FUNCTION(slicepool_sizeof_buffer_region),
  FUNCTION(slicepool_struct_default),
#undef FUNCTION
};

#endif
