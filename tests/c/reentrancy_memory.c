/* As reentrancy.c, from within the callbacks that map and flush memory, tell of budgets and hear of events. */
#include "check.h"
#include "scene.h"

/* ---- mapping and caches */

/* The page of another slice than the one that the calls are about. */
static void map_in_map(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "map_in_map", lock);
  const uint64_t id = take_a_page(&scene);
  scene.watches = WATCH_MAP;
  void *mapped = NULL;
  OK(slicepool_map(scene.site.allocator, id, &mapped, NULL));
  CHECK(mapped != NULL);
  OK(slicepool_unmap(scene.site.allocator, id));
  CHECK_EQ(scene.device.map_calls, scene.device.unmap_calls);
  OK(slicepool_free(scene.site.allocator, id));
  end_scene(&scene);
}

static void unmap_in_unmap(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "unmap_in_unmap", lock);
  const uint64_t id = take_a_page(&scene);
  void *mapped = NULL;
  OK(slicepool_map(scene.site.allocator, id, &mapped, NULL));
  scene.watches = WATCH_UNMAP;
  OK(slicepool_unmap(scene.site.allocator, id));
  CHECK_EQ(scene.device.map_calls, scene.device.unmap_calls);
  OK(slicepool_free(scene.site.allocator, id));
  end_scene(&scene);
}

/* A page that is mapped goes back: it is unmapped first, whatever its count. */
static void unmap_in_trim(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "unmap_in_trim", lock);
  const uint64_t id = take(scene.site.allocator, 4096).id;
  void *mapped = NULL;
  OK(slicepool_map(scene.site.allocator, id, &mapped, NULL));
  OK(slicepool_map(scene.site.allocator, id, &mapped, NULL));
  OK(slicepool_free(scene.site.allocator, id));
  scene.watches = WATCH_UNMAP;
  OK(slicepool_trim(scene.site.allocator, 0, NULL));
  CHECK_EQ(scene.device.map_calls, scene.device.unmap_calls);
  end_scene(&scene);
}

static void flush_in_flush(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "flush_in_flush", lock);
  scene.watches = WATCH_FLUSH;
  OK(slicepool_flush(scene.site.allocator, scene.site.id, 0, UINT64_MAX, NULL));
  end_scene(&scene);
}

static void invalidate_in_invalidate(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "invalidate_in_invalidate", lock);
  scene.watches = WATCH_INVALIDATE;
  OK(slicepool_invalidate(scene.site.allocator, scene.site.id, 0, UINT64_MAX, NULL));
  end_scene(&scene);
}

static void map_and_unmap_the_same(struct mock_device *device) {
  struct scene *scene = device->hook_data;
  if (scene->busy) return;
  scene->busy = true;
  scene->runs++;
  void *mapped = device;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_map(scene->site.allocator, scene->site.id, &mapped, &failure), SLICEPOOL_ERROR_BUSY);
  CHECK(mapped == device && failure.in_flight != 0);
  CHECK_RESULT(slicepool_unmap(scene->site.allocator, scene->site.id), SLICEPOOL_ERROR_BUSY);
  scene->busy = false;
}

static slicepool_result map_the_same(struct mock_device *device, const slicepool_device_memory *memory, void **mapped) {
  map_and_unmap_the_same(device);
  *mapped = (void *)(uintptr_t)memory->address;
  return SLICEPOOL_OK;
}

static void unmap_the_same(struct mock_device *device, const slicepool_device_memory *memory) {
  (void)memory;
  map_and_unmap_the_same(device);
}

/* What waits for itself is refused, and has not been counted. */
static void a_page_that_is_being_mapped_cannot_be_mapped_from_within(void) {
  static const enum lock locks[] = { LOCK_SPIN, LOCK_NONE };
  for (int l = 0; l < 2; l++) {
    struct scene scene;
    set_scene(&scene, "mapping", locks[l]);
    scene.device.on_map = map_the_same;
    scene.device.on_unmap = unmap_the_same;
    void *mapped = NULL;
    OK(slicepool_map(scene.site.allocator, scene.site.id, &mapped, NULL));
    CHECK_EQ(scene.runs, 1);
    OK(slicepool_unmap(scene.site.allocator, scene.site.id));
    CHECK_EQ(scene.runs, 2);
    CHECK_RESULT(slicepool_unmap(scene.site.allocator, scene.site.id), SLICEPOOL_ERROR_INVALID_ARGUMENT);
    CHECK_EQ(scene.device.map_calls, 1);
    CHECK_EQ(scene.device.unmap_calls, 1);
    end_scene(&scene);
  }
}

/* ---- budgets of heaps */

static void heap_budget_in_allocate(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "heap_budget_in_allocate", lock);
  scene.watches = WATCH_BUDGET;
  const slicepool_slice slice = take_flagged(scene.site.allocator, 4096, SLICEPOOL_REQUEST_WITHIN_BUDGET);
  OK(slicepool_free(scene.site.allocator, slice.id));
  end_scene(&scene);
}

static void heap_budget_in_heap_statistics_get(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "heap_budget_in_heap_statistics_get", lock);
  scene.watches = WATCH_BUDGET;
  call_slicepool_heap_statistics_get(&scene.site);
  end_scene(&scene);
}

/* ---- events */

static void event_of_a_page_in_allocate(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "event_of_a_page_in_allocate", lock);
  scene.watches = WATCH_EVENT;
  scene.watched_event = SLICEPOOL_EVENT_PAGE_ALLOCATED;
  OK(slicepool_free(scene.site.allocator, take(scene.site.allocator, 4096).id));
  end_scene(&scene);
}

static void event_of_a_page_in_trim(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "event_of_a_page_in_trim", lock);
  OK(slicepool_free(scene.site.allocator, take(scene.site.allocator, 4096).id));
  scene.watches = WATCH_EVENT;
  scene.watched_event = SLICEPOOL_EVENT_PAGE_RETURNED;
  OK(slicepool_trim(scene.site.allocator, 0, NULL));
  end_scene(&scene);
}

static void event_of_a_slice(const char *callback, enum lock lock, uint32_t kind) {
  struct scene scene;
  set_scene_with(&scene, callback, lock, SLICEPOOL_ALLOCATOR_SLICE_EVENTS);
  scene.watches = WATCH_EVENT;
  scene.watched_event = kind;
  scene.site.collecting = kind == SLICEPOOL_EVENT_SLICE_FREED;
  slicepool_slice slice = take(scene.site.allocator, 1000);
  OK(slicepool_try_resize(scene.site.allocator, slice.id, 500, &slice, NULL));
  const slicepool_point point = { 5, 0, 9 };
  OK(slicepool_free_after(scene.site.allocator, slice.id, &point, 1, NULL));
  OK(slicepool_collect(scene.site.allocator, 5, 9, NULL));
  OK(slicepool_collect(scene.site.allocator, 5, 9, NULL));
  CHECK_EQ(figures_of(scene.site.allocator).slices_pending, 0);
  end_scene(&scene);
}

static void event_of_a_slice_in_allocate(enum lock lock) {
  event_of_a_slice("event_of_a_slice_in_allocate", lock, SLICEPOOL_EVENT_SLICE_ALLOCATED);
}

static void event_of_a_slice_in_try_resize(enum lock lock) {
  event_of_a_slice("event_of_a_slice_in_try_resize", lock, SLICEPOOL_EVENT_SLICE_RESIZED);
}

static void event_of_a_slice_in_free_after(enum lock lock) {
  event_of_a_slice("event_of_a_slice_in_free_after", lock, SLICEPOOL_EVENT_SLICE_PENDING);
}

static void event_of_a_slice_in_collect(enum lock lock) {
  event_of_a_slice("event_of_a_slice_in_collect", lock, SLICEPOOL_EVENT_SLICE_FREED);
}

static void event_of_a_shortage_in_allocate(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "event_of_a_shortage_in_allocate", lock);
  scene.device.capacity = 4 * 4096;
  scene.watches = WATCH_EVENT;
  scene.watched_event = SLICEPOOL_EVENT_OUT_OF_MEMORY;
  uint64_t ids[4] = { 0 };
  for (int i = 0; i < 3; i++) ids[i] = take(scene.site.allocator, 4096).id;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  /* Room for what the callback does: the slices are freed before it does so. */
  CHECK_RESULT(try_take(scene.site.allocator, UINT64_C(4097), 0, &slice, NULL), SLICEPOOL_ERROR_TOO_LARGE);
  CHECK_EQ(scene.runs, 0);
  OK(slicepool_free(scene.site.allocator, ids[0]));
  OK(slicepool_free(scene.site.allocator, ids[1]));
  OK(slicepool_free(scene.site.allocator, ids[2]));
  ids[3] = take_flagged(scene.site.allocator, 4096, SLICEPOOL_REQUEST_NEVER_GROW).id;
  CHECK_RESULT(try_take_flagged(scene.site.allocator, 8192, SLICEPOOL_REQUEST_DEDICATED | SLICEPOOL_REQUEST_NEVER_GROW,
                                &slice, NULL), SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  OK(slicepool_free(scene.site.allocator, ids[3]));
  end_scene(&scene);
}

static void event_of_a_leak_in_refused_destroy(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "event_of_a_leak_in_refused_destroy", lock);
  scene.watches = WATCH_EVENT;
  scene.watched_event = SLICEPOOL_EVENT_SLICE_LEAKED;
  CHECK_RESULT(slicepool_allocator_destroy(scene.site.allocator, 0, NULL), SLICEPOOL_ERROR_BUSY);
  end_scene(&scene);
}

static void event_of_a_page_in_destroy(enum lock lock) {
  struct scene scene;
  set_scene(&scene, "event_of_a_page_in_destroy", lock);
  OK(slicepool_free(scene.site.allocator, take_a_page(&scene)));
  OK(slicepool_free(scene.site.allocator, scene.site.id));
  scene.watches = WATCH_EVENT;
  scene.watched_event = SLICEPOOL_EVENT_PAGE_RETURNED;
  scene.destroying = true;
  scene.in_destroy = on_destroying;
  OK(slicepool_allocator_destroy(scene.site.allocator, 0, NULL));
  CHECK_EQ(scene.runs, 1);
  OK(slicepool_space_destroy(scene.site.space));
  mock_end(&scene.device);
}

TESTS_OF(map_in_map)
TESTS_OF(unmap_in_unmap)
TESTS_OF(unmap_in_trim)
TESTS_OF(flush_in_flush)
TESTS_OF(invalidate_in_invalidate)
TESTS_OF(heap_budget_in_allocate)
TESTS_OF(heap_budget_in_heap_statistics_get)
TESTS_OF(event_of_a_page_in_allocate)
TESTS_OF(event_of_a_page_in_trim)
TESTS_OF(event_of_a_slice_in_allocate)
TESTS_OF(event_of_a_slice_in_try_resize)
TESTS_OF(event_of_a_slice_in_free_after)
TESTS_OF(event_of_a_slice_in_collect)
TESTS_OF(event_of_a_shortage_in_allocate)
TESTS_OF(event_of_a_leak_in_refused_destroy)
TESTS_OF(event_of_a_page_in_destroy)

static const struct test tests[] = {
  ALL_OF(map_in_map),
  ALL_OF(unmap_in_unmap),
  ALL_OF(unmap_in_trim),
  ALL_OF(flush_in_flush),
  ALL_OF(invalidate_in_invalidate),
  ALL_OF(heap_budget_in_allocate),
  ALL_OF(heap_budget_in_heap_statistics_get),
  ALL_OF(event_of_a_page_in_allocate),
  ALL_OF(event_of_a_page_in_trim),
  ALL_OF(event_of_a_slice_in_allocate),
  ALL_OF(event_of_a_slice_in_try_resize),
  ALL_OF(event_of_a_slice_in_free_after),
  ALL_OF(event_of_a_slice_in_collect),
  ALL_OF(event_of_a_shortage_in_allocate),
  ALL_OF(event_of_a_leak_in_refused_destroy),
  ALL_OF(event_of_a_page_in_destroy),
  TEST(a_page_that_is_being_mapped_cannot_be_mapped_from_within),
};

SCENE_MAIN(tests)
