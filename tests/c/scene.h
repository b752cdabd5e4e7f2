/* An allocator whose device, from within one of its callbacks, calls every function of the header once. */
#ifndef SCENE_H
#define SCENE_H

#include "check.h"
#include "every_function.h"

#include <signal.h>

/* ---- calling them all */

static const char *running = "nothing";

static inline void too_slow(int signal_number) {
  (void)signal_number;
  static const char text[] = " does not return\n";
  ssize_t ignored = write(2, running, strlen(running));
  ignored = write(2, text, sizeof text - 1);
  (void)ignored;
  _exit(1);
}

static inline void call_everything(const char *callback, struct site *site) {
  /* Seconds within which a call returns, wherever it waits; tools that slow everything down are only kept from hanging. */
  const double patience = is_slow() ? 60 : 1;
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    running = functions[i].name;
    alarm(is_slow() ? 120 : 10);
    const double start = seconds_now();
    functions[i].call(site);
    const double took = seconds_now() - start;
    alarm(0);
    if (took > patience) FAIL("%s takes %g s in %s", functions[i].name, took, callback);
    printf("%s %s\n", callback, functions[i].name);
  }
}

/* ---- the ways in which callbacks are reached */

static pthread_mutex_t lock_of_hooks;

static inline void take_lock(void *user_data) { CHECK(pthread_mutex_lock(user_data) == 0); }

static inline void give_lock(void *user_data) { CHECK(pthread_mutex_unlock(user_data) == 0); }

enum lock { LOCK_SPIN, LOCK_HOOKS, LOCK_NONE };

/* The callbacks of which one is the scene's. */
enum watched { WATCH_NONE, WATCH_BUDGET, WATCH_MAP, WATCH_UNMAP, WATCH_FLUSH, WATCH_INVALIDATE, WATCH_EVENT };

struct scene {
  struct mock_device device;
  struct site site;
  const char *callback; /* what is called "callback" in the output */
  bool busy;            /* a callback is making its calls */
  uint64_t runs;
  bool watches_others; /* than `allocate`, `deallocate` and `fill` */
  enum watched watches;
  uint32_t watched_event;
  bool destroying;
  void (*in_destroy)(struct mock_device *device);
};

static inline void on_device_callback(struct mock_device *device) {
  struct scene *scene = device->hook_data;
  /* Once is enough: what these calls take and give back calls the device again. */
  if (scene->busy || scene->runs != 0) return;
  scene->busy = true;
  scene->runs++;
  call_everything(scene->callback, &scene->site);
  scene->busy = false;
}

/* The device has memory again; an allocator that has been refused a page does not ask for one before it is told so. */
static inline int32_t on_shortage(struct mock_device *device, const slicepool_shortage *shortage) {
  struct scene *scene = device->hook_data;
  if (scene->busy || !scene->watches_others) return SLICEPOOL_SHORTAGE_REFUSE;
  CHECK_EQ(shortage->size, 4096);
  device->fail_at = 0;
  OK(slicepool_trim(scene->site.allocator, UINT64_MAX, NULL));
  on_device_callback(device);
  return SLICEPOOL_SHORTAGE_RETRY;
}

static inline slicepool_result on_completed(struct mock_device *device, uint32_t timeline, uint64_t *completed) {
  struct scene *scene = device->hook_data;
  if (scene->busy || !scene->watches_others) return SLICEPOOL_ERROR_NOT_SUPPORTED;
  CHECK_EQ(timeline, 5);
  on_device_callback(device);
  *completed = 9;
  return SLICEPOOL_OK;
}

static inline slicepool_result on_fill(struct mock_device *device, const slicepool_fill_request *request,
                                slicepool_point *point) {
  struct scene *scene = device->hook_data;
  (void)request;
  (void)point;
  if (scene->site.closing || scene->busy) return SLICEPOOL_OK;
  if (scene->destroying) scene->in_destroy(device);
  else on_device_callback(device);
  return SLICEPOOL_OK;
}

static inline void watched(struct mock_device *device, enum watched callback) {
  struct scene *scene = device->hook_data;
  if (scene->watches == callback) on_device_callback(device);
}

static inline slicepool_result on_budget(struct mock_device *device, uint32_t heap, slicepool_heap_budget *budget) {
  CHECK_EQ(heap, 0);
  watched(device, WATCH_BUDGET);
  budget->budget = GIB;
  return SLICEPOOL_OK;
}

static inline slicepool_result on_map(struct mock_device *device, const slicepool_device_memory *memory, void **mapped) {
  watched(device, WATCH_MAP);
  *mapped = (void *)(uintptr_t)memory->address;
  return SLICEPOOL_OK;
}

static inline void on_unmap(struct mock_device *device, const slicepool_device_memory *memory) {
  (void)memory;
  watched(device, WATCH_UNMAP);
}

static inline slicepool_result on_flush(struct mock_device *device, const slicepool_cache_range *range) {
  (void)range;
  watched(device, WATCH_FLUSH);
  return SLICEPOOL_OK;
}

static inline slicepool_result on_invalidate(struct mock_device *device, const slicepool_cache_range *range) {
  (void)range;
  watched(device, WATCH_INVALIDATE);
  return SLICEPOOL_OK;
}

static inline void on_event(struct mock_device *device, const slicepool_event *event) {
  struct scene *scene = device->hook_data;
  if (scene->watches != WATCH_EVENT || event->kind != scene->watched_event) return;
  if (scene->destroying) scene->in_destroy(device);
  else on_device_callback(device);
}

static inline void set_scene_with(struct scene *scene, const char *callback, enum lock lock, uint32_t flags) {
  memset(scene, 0, sizeof *scene);
  mock_init(&scene->device);
  scene->device.hook_data = scene;
  scene->device.on_shortage = on_shortage;
  scene->device.on_completed = on_completed;
  scene->device.on_fill = on_fill;
  scene->device.on_budget = on_budget;
  scene->device.on_map = on_map;
  scene->device.on_unmap = on_unmap;
  scene->device.on_flush = on_flush;
  scene->device.on_invalidate = on_invalidate;
  scene->device.on_event = on_event;
  scene->callback = callback;
  slicepool_device table = mock_table(&scene->device);
  slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
  type.non_coherent_atom = 64;
  slicepool_host host = SLICEPOOL_HOST_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.flags = flags;
  config.pools = &pool;
  config.pool_count = 1;
  config.memory_types = &type;
  config.memory_type_count = 1;
  if (lock == LOCK_HOOKS) {
    host.user_data = &lock_of_hooks;
    host.lock = take_lock;
    host.unlock = give_lock;
    config.host = &host;
  } else if (lock == LOCK_NONE) {
    config.flags |= SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED;
  }
  OK(slicepool_allocator_create(&table, &config, &scene->site.allocator));
  scene->site.allocator_inside = true;
  scene->site.space = create_space(100000, 1);
  scene->site.id = take(scene->site.allocator, 1024).id;
}

static inline void set_scene(struct scene *scene, const char *callback, enum lock lock) {
  set_scene_with(scene, callback, lock, 0);
}

static inline void end_scene(struct scene *scene) {
  CHECK(scene->runs != 0);
  scene->device.in_allocate = NULL;
  scene->device.in_deallocate = NULL;
  OK(slicepool_free(scene->site.allocator, scene->site.id));
  OK(slicepool_space_destroy(scene->site.space));
  finish(scene->site.allocator, &scene->device);
}

/* What the callback needs is made anew, in a page that has not gone back yet. */
static inline void on_destroying(struct mock_device *device) {
  struct scene *scene = device->hook_data;
  if (scene->busy || scene->runs != 0) return;
  scene->site.id = take(scene->site.allocator, 1024).id;
  scene->site.closing = true;
  on_device_callback(device);
  OK(slicepool_free(scene->site.allocator, scene->site.id));
}

/* Another page, so that one is there when the first goes back. */
static inline uint64_t take_a_page(struct scene *scene) { return take(scene->site.allocator, 4096).id; }

#define TESTS_OF(scene)                                                  \
  static void scene##_with_the_spin_lock(void) { scene(LOCK_SPIN); }     \
  static void scene##_with_lock_hooks(void) {                            \
    CHECK(pthread_mutex_init(&lock_of_hooks, NULL) == 0);                \
    scene(LOCK_HOOKS);                                                   \
    CHECK(pthread_mutex_destroy(&lock_of_hooks) == 0);                   \
  }                                                                      \
  static void scene##_without_a_lock(void) { scene(LOCK_NONE); }

#define ALL_OF(scene) TEST(scene##_with_the_spin_lock), TEST(scene##_with_lock_hooks), TEST(scene##_without_a_lock)

#define SCENE_MAIN(tests)                                           \
  int main(int argc, char **argv) {                                 \
    struct sigaction action;                                        \
    memset(&action, 0, sizeof action);                              \
    action.sa_handler = too_slow;                                   \
    CHECK(sigaction(SIGALRM, &action, NULL) == 0);                  \
    return run_tests(tests, sizeof tests / sizeof *tests, argc, argv); \
  }

#endif
