/* From within every callback every function of the header is called on the same object: each answers within a second,
 * and destroying and abandoning answer SLICEPOOL_ERROR_BUSY.
 *
 * Prints "callback function" for every call, so that the driver can tell when a function of the header is missing. */
#include "check.h"
#include "shorthand.h"

#include <signal.h>

/* ---- one call of each function */

/* Where the calls are made. The objects "inside" are those whose callback is running. */
struct site {
  slicepool_allocator *allocator;
  bool allocator_inside;
  slicepool_space *space;
  bool space_inside;
  uint64_t id;  /* of a live slice of the allocator */
  bool closing; /* the allocator is being destroyed: it takes no more pages */
};

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
CALL_SIZEOF(device)
CALL_SIZEOF(device_memory)
CALL_SIZEOF(page_request)
CALL_SIZEOF(host)
CALL_SIZEOF(pool_options)
CALL_SIZEOF(layout_properties)
CALL_SIZEOF(allocator_config)
CALL_SIZEOF(request)
CALL_SIZEOF(slice)
CALL_SIZEOF(statistics)
CALL_SIZEOF(range)
CALL_SIZEOF(space_config)
CALL_SIZEOF(space_slice)
CALL_SIZEOF(space_statistics)

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

static void call_slicepool_allocator_create(struct site *site) {
  (void)site;
  OK(slicepool_allocator_destroy(create_on_host(), 0, NULL));
}

static void call_slicepool_allocator_bytes_needed(struct site *site) {
  (void)site;
  uint64_t bytes = 0;
  OK(slicepool_allocator_bytes_needed(NULL, 1, 1, &bytes));
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
  char report[4096];
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

static const struct {
  const char *name;
  void (*call)(struct site *site);
} functions[] = {
#define FUNCTION(name) { #name, call_##name }
  FUNCTION(slicepool_version),
  FUNCTION(slicepool_result_string),
  FUNCTION(slicepool_sizeof_failure),
  FUNCTION(slicepool_host_device),
  FUNCTION(slicepool_sizeof_device),
  FUNCTION(slicepool_sizeof_device_memory),
  FUNCTION(slicepool_sizeof_page_request),
  FUNCTION(slicepool_sizeof_host),
  FUNCTION(slicepool_layout_adaptive),
  FUNCTION(slicepool_layout_sub_slices),
  FUNCTION(slicepool_layout_exclusive_pages),
  FUNCTION(slicepool_sizeof_layout_properties),
  FUNCTION(slicepool_allocator_create),
  FUNCTION(slicepool_allocator_create_in),
  FUNCTION(slicepool_allocator_bytes_needed),
  FUNCTION(slicepool_allocator_destroy),
  FUNCTION(slicepool_allocator_abandon),
  FUNCTION(slicepool_trim),
  FUNCTION(slicepool_cleanup),
  FUNCTION(slicepool_sizeof_pool_options),
  FUNCTION(slicepool_sizeof_allocator_config),
  FUNCTION(slicepool_allocate),
  FUNCTION(slicepool_allocate_many),
  FUNCTION(slicepool_free),
  FUNCTION(slicepool_free_many),
  FUNCTION(slicepool_slice_get),
  FUNCTION(slicepool_try_resize),
  FUNCTION(slicepool_would_fit),
  FUNCTION(slicepool_largest_free),
  FUNCTION(slicepool_sizeof_request),
  FUNCTION(slicepool_sizeof_slice),
  FUNCTION(slicepool_statistics_get),
  FUNCTION(slicepool_pool_statistics_get),
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
  FUNCTION(slicepool_struct_default),
#undef FUNCTION
};

/* ---- calling them all */

static const char *running = "nothing";

static void too_slow(int signal_number) {
  (void)signal_number;
  static const char text[] = " does not return\n";
  ssize_t ignored = write(2, running, strlen(running));
  ignored = write(2, text, sizeof text - 1);
  (void)ignored;
  _exit(1);
}

static void call_everything(const char *callback, struct site *site) {
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    running = functions[i].name;
    alarm(10);
    const double start = seconds_now();
    functions[i].call(site);
    const double took = seconds_now() - start;
    alarm(0);
    if (took > 1) FAIL("%s takes %g s in %s", functions[i].name, took, callback);
    printf("%s %s\n", callback, functions[i].name);
  }
}

/* ---- the ways in which callbacks are reached */

static pthread_mutex_t lock_of_hooks;

static void take_lock(void *user_data) { CHECK(pthread_mutex_lock(user_data) == 0); }

static void give_lock(void *user_data) { CHECK(pthread_mutex_unlock(user_data) == 0); }

enum lock { LOCK_SPIN, LOCK_HOOKS, LOCK_NONE };

struct scene {
  struct mock_device device;
  struct site site;
  const char *callback; /* what is called "callback" in the output */
  bool busy;            /* a callback is making its calls */
  uint64_t runs;
};

static void on_device_callback(struct mock_device *device) {
  struct scene *scene = device->hook_data;
  /* Once is enough: what these calls take and give back calls the device again. */
  if (scene->busy || scene->runs != 0) return;
  scene->busy = true;
  scene->runs++;
  call_everything(scene->callback, &scene->site);
  scene->busy = false;
}

static void set_scene(struct scene *scene, const char *callback, enum lock lock) {
  memset(scene, 0, sizeof *scene);
  mock_init(&scene->device);
  scene->device.hook_data = scene;
  scene->callback = callback;
  slicepool_device table = mock_table(&scene->device);
  slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  slicepool_host host = SLICEPOOL_HOST_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.pools = &pool;
  config.pool_count = 1;
  if (lock == LOCK_HOOKS) {
    host.user_data = &lock_of_hooks;
    host.lock = take_lock;
    host.unlock = give_lock;
    config.host = &host;
  } else if (lock == LOCK_NONE) {
    config.flags = SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED;
  }
  OK(slicepool_allocator_create(&table, &config, &scene->site.allocator));
  scene->site.allocator_inside = true;
  scene->site.space = create_space(100000, 1);
  scene->site.id = take(scene->site.allocator, 1024).id;
}

static void end_scene(struct scene *scene) {
  CHECK(scene->runs != 0);
  scene->device.in_allocate = NULL;
  scene->device.in_deallocate = NULL;
  OK(slicepool_free(scene->site.allocator, scene->site.id));
  OK(slicepool_space_destroy(scene->site.space));
  finish(scene->site.allocator, &scene->device);
}

static void device_allocate_in_allocate(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "device_allocate_in_allocate", lock);
  scene.device.in_allocate = on_device_callback;
  slicepool_slice slice = take(scene.site.allocator, 4096);
  OK(slicepool_free(scene.site.allocator, slice.id));
  end_scene(&scene);
}

static void device_allocate_in_allocate_many(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "device_allocate_in_allocate_many", lock);
  scene.device.in_allocate = on_device_callback;
  call_slicepool_allocate_many(&scene.site);
  end_scene(&scene);
}

static void device_deallocate_in_trim(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "device_deallocate_in_trim", lock);
  OK(slicepool_free(scene.site.allocator, take(scene.site.allocator, 4096).id));
  scene.device.in_deallocate = on_device_callback;
  OK(slicepool_trim(scene.site.allocator, 0, NULL));
  end_scene(&scene);
}

static void device_deallocate_in_cleanup(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "device_deallocate_in_cleanup", lock);
  OK(slicepool_free(scene.site.allocator, take(scene.site.allocator, 4096).id));
  scene.device.in_deallocate = on_device_callback;
  OK(slicepool_cleanup(scene.site.allocator, NULL));
  end_scene(&scene);
}

static void device_deallocate_in_failing_allocate_many(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "device_deallocate_in_failing_allocate_many", lock);
  slicepool_request requests[2] = { SLICEPOOL_REQUEST_INIT, SLICEPOOL_REQUEST_INIT };
  slicepool_slice slices[2] = { SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT };
  requests[0].size = requests[1].size = 4096;
  scene.device.fail_at = scene.device.allocate_calls + 2;
  scene.device.in_deallocate = on_device_callback;
  CHECK_RESULT(slicepool_allocate_many(scene.site.allocator, requests, 2, slices),
               SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  end_scene(&scene);
}

static void realign(struct mock_device *device) {
  device->misalign_by = 0;
  on_device_callback(device);
}

static void device_deallocate_of_a_misaligned_page(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "device_deallocate_of_a_misaligned_page", lock);
  scene.device.misalign_by = 8;
  scene.device.in_deallocate = realign;
  /* Served after all if the calls of the callback have left a page that holds it. */
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_result result = try_take(scene.site.allocator, 4096, 0, &slice, NULL);
  CHECK(result == SLICEPOOL_ERROR_DEVICE_FAILED || result == SLICEPOOL_OK);
  OK(slicepool_free(scene.site.allocator, slice.id));
  end_scene(&scene);
}

/* What the callback needs is made anew, in a page that has not gone back yet. */
static void on_destroying(struct mock_device *device) {
  struct scene *scene = device->hook_data;
  if (scene->busy || scene->runs != 0) return;
  scene->site.id = take(scene->site.allocator, 1024).id;
  scene->site.closing = true;
  on_device_callback(device);
  OK(slicepool_free(scene->site.allocator, scene->site.id));
}

/* Another page, so that one is there when the first goes back. */
static uint64_t take_a_page(struct scene *scene) { return take(scene->site.allocator, 4096).id; }

static void device_deallocate_in_destroy(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "device_deallocate_in_destroy", lock);
  OK(slicepool_free(scene.site.allocator, take_a_page(&scene)));
  OK(slicepool_free(scene.site.allocator, scene.site.id));
  scene.device.in_deallocate = on_destroying;
  OK(slicepool_allocator_destroy(scene.site.allocator, 0, NULL));
  CHECK_EQ(scene.runs, 1);
  OK(slicepool_space_destroy(scene.site.space));
  mock_end(&scene.device);
}

/* Pages go back with their live slices. */
static void device_deallocate_in_forced_destroy(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "device_deallocate_in_forced_destroy", lock);
  take_a_page(&scene);
  scene.device.in_deallocate = on_destroying;
  OK(slicepool_allocator_destroy(scene.site.allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  CHECK_EQ(scene.runs, 1);
  OK(slicepool_space_destroy(scene.site.space));
  mock_end(&scene.device);
}

static void keep_a_slice(struct mock_device *device) {
  struct scene *scene = device->hook_data;
  if (scene->runs++ == 0) scene->site.id = take(scene->site.allocator, 1024).id;
}

/* What a callback of destroy allocates is live: destroy without FORCE is refused, and everything works as before. */
static void a_slice_that_a_callback_of_destroy_takes_is_not_lost(void) {
  struct scene scene;
  set_scene(&scene, "destroy", LOCK_SPIN);
  OK(slicepool_free(scene.site.allocator, take_a_page(&scene)));
  OK(slicepool_free(scene.site.allocator, scene.site.id));
  scene.device.in_deallocate = keep_a_slice;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_allocator_destroy(scene.site.allocator, 0, &failure), SLICEPOOL_ERROR_BUSY);
  CHECK_EQ(failure.live, 1);
  CHECK_EQ(failure.in_use, 1024);
  scene.device.in_deallocate = NULL;
  check_books(scene.site.allocator, &scene.device);
  CHECK_EQ(look_up(scene.site.allocator, scene.site.id).size, 1024);
  OK(slicepool_free(scene.site.allocator, take_a_page(&scene)));
  end_scene(&scene);
}

static int32_t on_walk(void *user_data, const slicepool_range *range) {
  struct scene *scene = user_data;
  CHECK_EQ(range->struct_size, sizeof *range);
  if (scene->runs++ == 0) call_everything(scene->callback, &scene->site);
  return SLICEPOOL_WALK_CONTINUE;
}

static void walk_callback(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "walk", lock);
  OK(slicepool_walk(scene.site.allocator, on_walk, &scene));
  end_scene(&scene);
}

static int32_t on_space_walk(void *user_data, const slicepool_space_slice *piece) {
  struct scene *scene = user_data;
  CHECK_EQ(piece->struct_size, sizeof *piece);
  if (scene->runs++ == 0) call_everything(scene->callback, &scene->site);
  return SLICEPOOL_WALK_CONTINUE;
}

static void space_walk_callback(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "space_walk", lock);
  scene.site.allocator_inside = false;
  scene.site.space_inside = true;
  cut(scene.site.space, 100, 1);
  OK(slicepool_space_walk(scene.site.space, on_space_walk, &scene));
  end_scene(&scene);
}

#define TESTS_OF(scene)                                                  \
  static void scene##_with_the_spin_lock(void) { scene(LOCK_SPIN); }     \
  static void scene##_with_lock_hooks(void) {                            \
    CHECK(pthread_mutex_init(&lock_of_hooks, NULL) == 0);                \
    scene(LOCK_HOOKS);                                                   \
    CHECK(pthread_mutex_destroy(&lock_of_hooks) == 0);                   \
  }                                                                      \
  static void scene##_without_a_lock(void) { scene(LOCK_NONE); }

TESTS_OF(device_allocate_in_allocate)
TESTS_OF(device_allocate_in_allocate_many)
TESTS_OF(device_deallocate_in_trim)
TESTS_OF(device_deallocate_in_cleanup)
TESTS_OF(device_deallocate_in_failing_allocate_many)
TESTS_OF(device_deallocate_of_a_misaligned_page)
TESTS_OF(device_deallocate_in_destroy)
TESTS_OF(device_deallocate_in_forced_destroy)
TESTS_OF(walk_callback)
TESTS_OF(space_walk_callback)

#define ALL_OF(scene) TEST(scene##_with_the_spin_lock), TEST(scene##_with_lock_hooks), TEST(scene##_without_a_lock)

static const struct test tests[] = {
  ALL_OF(device_allocate_in_allocate),
  ALL_OF(device_allocate_in_allocate_many),
  ALL_OF(device_deallocate_in_trim),
  ALL_OF(device_deallocate_in_cleanup),
  ALL_OF(device_deallocate_in_failing_allocate_many),
  ALL_OF(device_deallocate_of_a_misaligned_page),
  ALL_OF(device_deallocate_in_destroy),
  ALL_OF(device_deallocate_in_forced_destroy),
  ALL_OF(walk_callback),
  ALL_OF(space_walk_callback),
  TEST(a_slice_that_a_callback_of_destroy_takes_is_not_lost),
};

int main(int argc, char **argv) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = too_slow;
  CHECK(sigaction(SIGALRM, &action, NULL) == 0);
  return run_tests(tests, sizeof tests / sizeof *tests, argc, argv);
}
