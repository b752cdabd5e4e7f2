/* From within every callback of a buffer pool's device every function of the header is called, those about the pool on the
 * same pool: each answers within a second, and destroying and abandoning it answer SLICEPOOL_ERROR_BUSY.
 *
 * Prints "callback function" for every call, so that the driver can tell when a function of the header is missing. */
#include "check.h"
#include "scene.h"

/* A scene of which the allocator is no part, and a buffer pool over a device of its own. */
struct stage {
  struct scene scene;
  struct mock_device device;
};

static void set_stage(struct stage *stage, const char *callback, enum lock lock) {
  set_scene(&stage->scene, callback, lock);
  stage->scene.site.allocator_inside = false;
  mock_init(&stage->device);
  stage->device.hook_data = &stage->scene;
}

static slicepool_result fill(void *user_data, const slicepool_fill_request *request, slicepool_point *point) {
  (void)user_data;
  CHECK(request->size != 0 && point->value == 0);
  return SLICEPOOL_OK;
}

/* When the device's callbacks are chosen. */
static void open_pool(struct stage *stage, enum lock lock, bool with_cache) {
  slicepool_device table = mock_table(&stage->device);
  table.fill = fill;
  slicepool_buffer_pool_config config = one_class(1024, 1000);
  slicepool_host host = SLICEPOOL_HOST_INIT;
  if (lock == LOCK_HOOKS) {
    host.user_data = &lock_of_hooks;
    host.lock = take_lock;
    host.unlock = give_lock;
    config.host = &host;
  } else if (lock == LOCK_NONE) {
    config.flags = SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED;
  }
  stage->scene.site.buffers = create_buffers(&table, config);
  if (with_cache) stage->scene.site.cache = create_cache(stage->scene.site.buffers);
}

static void end_stage(struct stage *stage) {
  struct site *site = &stage->scene.site;
  stage->device.in_allocate = NULL;
  stage->device.in_deallocate = NULL;
  if (site->cache != NULL) OK(slicepool_buffer_cache_destroy(site->cache));
  if (site->buffers != NULL) end_buffers(site->buffers);
  mock_end(&stage->device);
  end_scene(&stage->scene);
}

static void allocate_in_buffer_acquire(enum lock lock) {
  struct stage stage;
  set_stage(&stage, "allocate_in_buffer_acquire", lock);
  open_pool(&stage, lock, true);
  stage.device.in_allocate = on_device_callback;
  release(stage.scene.site.buffers, NULL, acquire(stage.scene.site.buffers, NULL, 1));
  end_stage(&stage);
}

static void allocate_in_buffer_acquire_with_a_cache(enum lock lock) {
  struct stage stage;
  set_stage(&stage, "allocate_in_buffer_acquire_with_a_cache", lock);
  open_pool(&stage, lock, true);
  struct site *site = &stage.scene.site;
  stage.device.in_allocate = on_device_callback;
  site->cache_inside = true;
  release(site->buffers, site->cache, acquire(site->buffers, site->cache, 1));
  site->cache_inside = false;
  end_stage(&stage);
}

static void allocate_in_buffer_acquire_beyond_the_ceiling(enum lock lock) {
  struct stage stage;
  set_stage(&stage, "allocate_in_buffer_acquire_beyond_the_ceiling", lock);
  open_pool(&stage, lock, true);
  struct site *site = &stage.scene.site;
  stage.device.in_allocate = on_device_callback;
  site->cache_inside = true;
  release(site->buffers, NULL, acquire_flagged(site->buffers, site->cache, 100000, SLICEPOOL_BUFFER_UNTRACKED));
  site->cache_inside = false;
  end_stage(&stage);
}

static void deallocate_in_buffer_release(enum lock lock) {
  struct stage stage;
  set_stage(&stage, "deallocate_in_buffer_release", lock);
  open_pool(&stage, lock, true);
  struct site *site = &stage.scene.site;
  const slicepool_buffer buffer = acquire_flagged(site->buffers, NULL, 100000, SLICEPOOL_BUFFER_UNTRACKED);
  stage.device.in_deallocate = on_device_callback;
  release(site->buffers, NULL, buffer);
  end_stage(&stage);
}

static void deallocate_in_the_last_release(enum lock lock) {
  struct stage stage;
  set_stage(&stage, "deallocate_in_the_last_release", lock);
  open_pool(&stage, lock, true);
  struct site *site = &stage.scene.site;
  const slicepool_buffer buffer = acquire(site->buffers, NULL, 1);
  OK(slicepool_buffer_pool_close(site->buffers));
  site->closes = true;
  stage.device.in_deallocate = on_device_callback;
  release(site->buffers, site->cache, buffer);
  CHECK_EQ(stage.device.live, 0);
  end_stage(&stage);
}

static void deallocate_in_buffer_pool_close(enum lock lock) {
  struct stage stage;
  set_stage(&stage, "deallocate_in_buffer_pool_close", lock);
  open_pool(&stage, lock, true);
  struct site *site = &stage.scene.site;
  release(site->buffers, NULL, acquire(site->buffers, NULL, 1));
  site->closes = true;
  stage.device.in_deallocate = on_device_callback;
  OK(slicepool_buffer_pool_close(site->buffers));
  end_stage(&stage);
}

static void deallocate_in_buffer_cache(enum lock lock, bool by_flush) {
  struct stage stage;
  set_stage(&stage, by_flush ? "deallocate_in_buffer_cache_flush" : "deallocate_in_buffer_cache_destroy", lock);
  open_pool(&stage, lock, true);
  struct site *site = &stage.scene.site;
  release(site->buffers, site->cache, acquire(site->buffers, NULL, 1));
  OK(slicepool_buffer_pool_close(site->buffers));
  site->closes = site->cache_inside = true;
  stage.device.in_deallocate = on_device_callback;
  if (by_flush) {
    OK(slicepool_buffer_cache_flush(site->cache));
  } else {
    OK(slicepool_buffer_cache_destroy(site->cache));
    site->cache = NULL;
  }
  site->cache_inside = false;
  end_stage(&stage);
}

static void deallocate_in_buffer_cache_flush(enum lock lock) { deallocate_in_buffer_cache(lock, true); }

static void deallocate_in_buffer_cache_destroy(enum lock lock) { deallocate_in_buffer_cache(lock, false); }

static void deallocate_in_buffer_pool(enum lock lock, uint32_t flags) {
  struct stage stage;
  set_stage(&stage, flags == 0 ? "deallocate_in_buffer_pool_destroy" : "deallocate_in_a_forced_destroy", lock);
  open_pool(&stage, lock, false);
  struct site *site = &stage.scene.site;
  const slicepool_buffer buffer = acquire(site->buffers, NULL, 1);
  if (flags == 0) release(site->buffers, NULL, buffer);
  site->closes = true;
  stage.device.in_deallocate = on_device_callback;
  OK(slicepool_buffer_pool_destroy(site->buffers, flags, NULL));
  site->buffers = NULL;
  end_stage(&stage);
}

static void deallocate_in_buffer_pool_destroy(enum lock lock) { deallocate_in_buffer_pool(lock, 0); }

static void deallocate_in_a_forced_destroy(enum lock lock) { deallocate_in_buffer_pool(lock, SLICEPOOL_DESTROY_FORCE); }

static int32_t on_buffer_shortage(struct mock_device *device, const slicepool_shortage *shortage) {
  struct scene *scene = device->hook_data;
  (void)shortage;
  if (scene->busy) return SLICEPOOL_SHORTAGE_REFUSE;
  device->fail_at = 0;
  on_device_callback(device);
  return SLICEPOOL_SHORTAGE_RETRY;
}

static void out_of_memory_in_buffer_acquire(enum lock lock) {
  struct stage stage;
  set_stage(&stage, "out_of_memory_in_buffer_acquire", lock);
  stage.device.on_shortage = on_buffer_shortage;
  open_pool(&stage, lock, true);
  struct site *site = &stage.scene.site;
  /* From memory that is there: the device is not asked again for a while. */
  const slicepool_buffer buffer = acquire(site->buffers, site->cache, 1);
  stage.device.fail_at = stage.device.allocate_calls + 1;
  stage.device.fail_from_then_on = true;
  site->cache_inside = true;
  release(site->buffers, NULL, acquire_flagged(site->buffers, site->cache, 100000, SLICEPOOL_BUFFER_UNTRACKED));
  site->cache_inside = false;
  release(site->buffers, site->cache, buffer);
  end_stage(&stage);
}

static void on_buffer_event(struct mock_device *device, const slicepool_event *event) {
  if (event->kind == SLICEPOOL_EVENT_PAGE_ALLOCATED) on_device_callback(device);
}

static void event_in_buffer_acquire(enum lock lock) {
  struct stage stage;
  set_stage(&stage, "event_in_buffer_acquire", lock);
  stage.device.on_event = on_buffer_event;
  open_pool(&stage, lock, true);
  struct site *site = &stage.scene.site;
  site->cache_inside = true;
  release(site->buffers, site->cache, acquire(site->buffers, site->cache, 1));
  site->cache_inside = false;
  end_stage(&stage);
}

TESTS_OF(allocate_in_buffer_acquire)
TESTS_OF(allocate_in_buffer_acquire_with_a_cache)
TESTS_OF(allocate_in_buffer_acquire_beyond_the_ceiling)
TESTS_OF(deallocate_in_buffer_release)
TESTS_OF(deallocate_in_the_last_release)
TESTS_OF(deallocate_in_buffer_pool_close)
TESTS_OF(deallocate_in_buffer_cache_flush)
TESTS_OF(deallocate_in_buffer_cache_destroy)
TESTS_OF(deallocate_in_buffer_pool_destroy)
TESTS_OF(deallocate_in_a_forced_destroy)
TESTS_OF(out_of_memory_in_buffer_acquire)
TESTS_OF(event_in_buffer_acquire)

static const struct test tests[] = {
  ALL_OF(allocate_in_buffer_acquire),
  ALL_OF(allocate_in_buffer_acquire_with_a_cache),
  ALL_OF(allocate_in_buffer_acquire_beyond_the_ceiling),
  ALL_OF(deallocate_in_buffer_release),
  ALL_OF(deallocate_in_the_last_release),
  ALL_OF(deallocate_in_buffer_pool_close),
  ALL_OF(deallocate_in_buffer_cache_flush),
  ALL_OF(deallocate_in_buffer_cache_destroy),
  ALL_OF(deallocate_in_buffer_pool_destroy),
  ALL_OF(deallocate_in_a_forced_destroy),
  ALL_OF(out_of_memory_in_buffer_acquire),
  ALL_OF(event_in_buffer_acquire),
};

SCENE_MAIN(tests)
