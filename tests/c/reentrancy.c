/* From within every callback every function of the header is called on the same object: each answers within a second,
 * and destroying and abandoning answer SLICEPOOL_ERROR_BUSY.
 *
 * Prints "callback function" for every call, so that the driver can tell when a function of the header is missing. */
#include "check.h"
#include "scene.h"

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

static void on_installing(struct mock_device *device) {
  struct scene *scene = device->hook_data;
  if (scene->busy || scene->runs != 0) return;
  scene->site.id = take(scene->site.allocator, 1024).id;
  on_device_callback(device);
  OK(slicepool_free(scene->site.allocator, scene->site.id));
}

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

/* The pools are empty but for a page that goes back; what a callback leaves behind is in the way of new ones, until
 * they are installed once more. */
static void device_deallocate_in_install_pools(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "device_deallocate_in_install_pools", lock);
  OK(slicepool_free(scene.site.allocator, scene.site.id));
  scene.device.in_deallocate = on_installing;
  const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  slicepool_result result = slicepool_install_pools(scene.site.allocator, &pool, 1, NULL);
  CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_BUSY);
  scene.device.in_deallocate = NULL;
  OK(slicepool_install_pools(scene.site.allocator, &pool, 1, NULL));
  CHECK_EQ(scene.device.live, 0);
  /* Figures have begun anew. */
  scene.device.given = scene.device.taken = 0;
  scene.site.id = take(scene.site.allocator, 1024).id;
  end_scene(&scene);
}

/* Two calls resolve one page: the outer one gives its memory back. */
static void device_allocate_in_resolve(enum lock lock) {
  struct scene scene;
  set_scene_with(&scene, "device_allocate_in_resolve", lock, SLICEPOOL_ALLOCATOR_DRY_RUN);
  CHECK_EQ(scene.device.allocate_calls, 0);
  scene.device.in_allocate = on_device_callback;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  OK(slicepool_resolve(scene.site.allocator, scene.site.id, &slice, NULL));
  CHECK_EQ(slice.memory, look_up(scene.site.allocator, scene.site.id).memory);
  CHECK_EQ(scene.device.live, 1);
  /* Pages without memory are all called the same, so that they must be gone before the books are compared. */
  OK(slicepool_cleanup(scene.site.allocator, NULL));
  end_scene(&scene);
}

static void completed_in_allocate(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "completed_in_allocate", lock);
  scene.watches_others = true;
  const slicepool_point point = { 5, 0, 9 };
  slicepool_slice slice = take(scene.site.allocator, 4096);
  OK(slicepool_free_after(scene.site.allocator, slice.id, &point, 1, NULL));
  slice = take(scene.site.allocator, 4096);
  CHECK_EQ(figures_of(scene.site.allocator).slices_pending, 0);
  OK(slicepool_free(scene.site.allocator, slice.id));
  end_scene(&scene);
}

static void out_of_memory_in_allocate(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "out_of_memory_in_allocate", lock);
  scene.watches_others = true;
  scene.device.fail_at = 1;
  scene.device.fail_from_then_on = true;
  OK(slicepool_free(scene.site.allocator, take(scene.site.allocator, 4096).id));
  end_scene(&scene);
}

static void fill_with_zeros_in_allocate(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "fill_with_zeros_in_allocate", lock);
  OK(slicepool_free(scene.site.allocator, take_flagged(scene.site.allocator, 500, SLICEPOOL_REQUEST_ZERO).id));
  end_scene(&scene);
}

static void scrub_in_free(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "scrub_in_free", lock);
  OK(slicepool_free(scene.site.allocator, take_flagged(scene.site.allocator, 500, SLICEPOOL_REQUEST_SCRUB).id));
  end_scene(&scene);
}

static void scrub_in_collect(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "scrub_in_collect", lock);
  const slicepool_point point = { 5, 0, 9 };
  slicepool_slice slice = take_flagged(scene.site.allocator, 500, SLICEPOOL_REQUEST_SCRUB);
  OK(slicepool_free_after(scene.site.allocator, slice.id, &point, 1, NULL));
  CHECK_EQ(scene.runs, 0);
  OK(slicepool_collect(scene.site.allocator, 5, 9, NULL));
  CHECK_EQ(figures_of(scene.site.allocator).slices_pending, 0);
  end_scene(&scene);
}

static void scrub_in_forced_destroy(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "scrub_in_forced_destroy", lock);
  take_flagged(scene.site.allocator, 500, SLICEPOOL_REQUEST_SCRUB);
  scene.destroying = true;
  scene.in_destroy = on_destroying;
  OK(slicepool_allocator_destroy(scene.site.allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  CHECK_EQ(scene.runs, 1);
  OK(slicepool_space_destroy(scene.site.space));
  mock_end(&scene.device);
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

TESTS_OF(device_allocate_in_allocate)
TESTS_OF(device_allocate_in_allocate_many)
TESTS_OF(device_deallocate_in_trim)
TESTS_OF(device_deallocate_in_cleanup)
TESTS_OF(device_deallocate_in_failing_allocate_many)
TESTS_OF(device_deallocate_of_a_misaligned_page)
TESTS_OF(device_deallocate_in_destroy)
TESTS_OF(device_deallocate_in_forced_destroy)
TESTS_OF(device_deallocate_in_install_pools)
TESTS_OF(device_allocate_in_resolve)
TESTS_OF(completed_in_allocate)
TESTS_OF(out_of_memory_in_allocate)
TESTS_OF(fill_with_zeros_in_allocate)
TESTS_OF(scrub_in_free)
TESTS_OF(scrub_in_collect)
TESTS_OF(scrub_in_forced_destroy)
TESTS_OF(walk_callback)
TESTS_OF(space_walk_callback)

static const struct test tests[] = {
  ALL_OF(device_allocate_in_allocate),
  ALL_OF(device_allocate_in_allocate_many),
  ALL_OF(device_deallocate_in_trim),
  ALL_OF(device_deallocate_in_cleanup),
  ALL_OF(device_deallocate_in_failing_allocate_many),
  ALL_OF(device_deallocate_of_a_misaligned_page),
  ALL_OF(device_deallocate_in_destroy),
  ALL_OF(device_deallocate_in_forced_destroy),
  ALL_OF(device_deallocate_in_install_pools),
  ALL_OF(device_allocate_in_resolve),
  ALL_OF(completed_in_allocate),
  ALL_OF(out_of_memory_in_allocate),
  ALL_OF(fill_with_zeros_in_allocate),
  ALL_OF(scrub_in_free),
  ALL_OF(scrub_in_collect),
  ALL_OF(scrub_in_forced_destroy),
  ALL_OF(walk_callback),
  ALL_OF(space_walk_callback),
  TEST(a_slice_that_a_callback_of_destroy_takes_is_not_lost),
};

SCENE_MAIN(tests)
