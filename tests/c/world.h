/* A small world for calls that go wrong: an allocator, a space, whether they have changed, memory that ends before an
 * inaccessible page, and calls in forked children. */
#ifndef WORLD_H
#define WORLD_H

#include "buffers.h"
#include "check.h"
#include "shorthand.h"

#include <limits.h>
#include <sys/mman.h>

#define TWO_63 (UINT64_C(1) << 63)

/* ---- the world, and whether it has changed */

struct world {
  struct mock_device device;
  slicepool_device table;
  slicepool_allocator *allocator;
  slicepool_space *space;
  slicepool_slice slice;      /* live */
  slicepool_space_slice piece; /* live */
  slicepool_buffer_pool *buffers;
  slicepool_buffer_cache *cache;
  slicepool_buffer buffer; /* out */
};

static struct world world;

static inline void build_world(void) {
  mock_init(&world.device);
  world.table = mock_table(&world.device);
  world.allocator = create(&world.device, sliced(64 * KIB, 0, 64 * KIB, 256));
  world.space = create_space(1000, 1);
  world.slice = take(world.allocator, 5000);
  world.piece = cut(world.space, 100, 1);
  world.buffers = create_buffers(NULL, one_class(1024, 4));
  world.cache = create_cache(world.buffers);
  world.buffer = acquire(world.buffers, world.cache, 1000);
}

static inline void end_world(void) {
  OK(slicepool_free(world.allocator, world.slice.id));
  OK(slicepool_space_free(world.space, world.piece.id));
  check_space_is_empty(world.space);
  OK(slicepool_space_destroy(world.space));
  release(world.buffers, world.cache, world.buffer);
  OK(slicepool_buffer_cache_destroy(world.cache));
  end_buffers(world.buffers);
  finish(world.allocator, &world.device);
}

struct snapshot {
  slicepool_statistics figures;
  slicepool_space_statistics space_figures;
  uint64_t device_calls;
  slicepool_buffer_pool_statistics pool_figures;
  slicepool_buffer_class_statistics class_figures;
};

static inline struct snapshot look(void) {
  struct snapshot now = { figures_of(world.allocator), space_figures_of(world.space), mock_calls(&world.device),
                          buffer_figures_of(world.buffers), class_in(world.buffers, 0) };
  return now;
}

static inline void check_nothing_changed(const struct snapshot *before) {
  struct snapshot now = look();
  /* Others may have seen the slices of a batch before one was refused. */
  now.figures.in_use_peak_bytes = before->figures.in_use_peak_bytes;
  CHECK(memcmp(&before->figures, &now.figures, sizeof now.figures) == 0);
  CHECK(memcmp(&before->space_figures, &now.space_figures, sizeof now.space_figures) == 0);
  CHECK_EQ(before->device_calls, now.device_calls);
  CHECK(memcmp(&before->pool_figures, &now.pool_figures, sizeof now.pool_figures) == 0);
  CHECK(memcmp(&before->class_figures, &now.class_figures, sizeof now.class_figures) == 0);
  check_buffer_books(world.buffers);
  check_books(world.allocator, &world.device);
  check_space_books(world.space);
}

/* A call in a forked child, which must end normally and leave the world as it is. */
#define IN_CHILD(what, ...)                                                                    \
  do {                                                                                         \
    fflush(stdout);                                                                            \
    pid_t in_child_pid = fork();                                                               \
    CHECK(in_child_pid >= 0);                                                                  \
    if (in_child_pid == 0) {                                                                   \
      alarm(10);                                                                               \
      __VA_ARGS__;                                                                             \
      exit(0);                                                                                 \
    }                                                                                          \
    int in_child_end = end_of_child(in_child_pid);                                             \
    if (in_child_end < 0) FAIL("%s: killed by signal %d", what, -in_child_end);                \
    if (in_child_end != 0) FAIL("%s: failed", what);                                           \
  } while (0)

#define REFUSED(call, expected)                      \
  do {                                               \
    printf("%s\n", #call);                           \
    IN_CHILD(#call, {                                \
      const struct snapshot before = look();         \
      CHECK_RESULT(call, expected);                  \
      check_nothing_changed(&before);                \
    });                                              \
  } while (0)

#define INVALID(call) REFUSED(call, SLICEPOOL_ERROR_INVALID_ARGUMENT)

/* Memory of `size` bytes whose next byte cannot be touched. */
static inline void *before_the_wall(size_t size) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  const size_t room = (size + page - 1) / page * page;
  unsigned char *memory = mmap(NULL, room + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  CHECK(mprotect(memory + room, page, PROT_NONE) == 0);
  return memory + room - size;
}

static inline void *copy_before_the_wall(const void *object, size_t size) {
  return memcpy(before_the_wall(size), object, size);
}

static inline void fill_pattern(void *object, size_t size) {
  for (size_t i = 0; i < size; i++) ((unsigned char *)object)[i] = (unsigned char)(0xA5 ^ i);
}

static inline bool is_pattern(const void *object, size_t from, size_t size) {
  for (size_t i = from; i < size; i++)
    if (((const unsigned char *)object)[i] != (unsigned char)(0xA5 ^ i)) return false;
  return true;
}

static inline slicepool_request request_of(uint64_t size) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  request.size = size;
  return request;
}

/* ---- calls with one struct */

/* Calls something with a struct whose first `size` bytes count. */
typedef slicepool_result (*call_with)(void *object);

static inline slicepool_result create_with_device(void *device) {
  slicepool_allocator *allocator = NULL;
  slicepool_result result = slicepool_allocator_create(device, NULL, &allocator);
  if (result == SLICEPOOL_OK) OK(slicepool_allocator_destroy(allocator, 0, NULL));
  return result;
}

static slicepool_failure creation_failure;

static inline slicepool_result create_with_config(void *config) {
  slicepool_allocator *allocator = NULL;
  slicepool_result result = slicepool_allocator_create(&world.table, config, &allocator);
  CHECK((allocator != NULL) == (result == SLICEPOOL_OK));
  if (result == SLICEPOOL_OK) OK(slicepool_allocator_destroy(allocator, 0, NULL));
  return result;
}

static inline slicepool_result create_in_with_config(void *config) {
  static unsigned char block[65536];
  slicepool_allocator *allocator = NULL;
  slicepool_result result =
      slicepool_allocator_create_in(&world.table, config, block, sizeof block, &allocator);
  CHECK((allocator != NULL) == (result == SLICEPOOL_OK));
  if (result == SLICEPOOL_OK) OK(slicepool_allocator_destroy(allocator, 0, NULL));
  return result;
}

static inline slicepool_result bytes_needed_with(void *config) {
  uint64_t bytes = 0;
  slicepool_result result = slicepool_allocator_bytes_needed(config, 10, 10, 2, &bytes);
  CHECK((bytes != 0) == (result == SLICEPOOL_OK));
  return result;
}

static inline slicepool_result create_with_host(void *host) {
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.host = host;
  config.failure = &creation_failure;
  return create_with_config(&config);
}

static inline slicepool_result create_space_with_host(void *host) {
  slicepool_space_config config = SLICEPOOL_SPACE_CONFIG_INIT;
  config.size = 100;
  config.host = host;
  slicepool_space *space = NULL;
  slicepool_result result = slicepool_space_create(&config, &space);
  if (result == SLICEPOOL_OK) OK(slicepool_space_destroy(space));
  return result;
}

static inline slicepool_result create_with_pool(void *pool) {
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.pools = pool;
  config.pool_count = 1;
  config.failure = &creation_failure;
  return create_with_config(&config);
}

static inline slicepool_result create_space_with(void *config) {
  slicepool_space *space = NULL;
  slicepool_result result = slicepool_space_create(config, &space);
  if (result == SLICEPOOL_OK) OK(slicepool_space_destroy(space));
  return result;
}

static inline slicepool_result allocate_with(void *request) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_result result = slicepool_allocate(world.allocator, request, &slice);
  if (result == SLICEPOOL_OK) OK(slicepool_free(world.allocator, slice.id));
  return result;
}

static inline slicepool_result allocate_one_with(void *request) {
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_result result = slicepool_allocate_many(world.allocator, request, 1, &slice);
  if (result == SLICEPOOL_OK) OK(slicepool_free(world.allocator, slice.id));
  return result;
}

static inline slicepool_result would_fit_with(void *request) {
  uint32_t fits = 2;
  slicepool_result result = slicepool_would_fit(world.allocator, request, &fits);
  CHECK((fits == 2) == (result != SLICEPOOL_OK));
  return result;
}

static inline slicepool_result would_grow_with(void *request) {
  uint32_t grows = 2;
  slicepool_result result = slicepool_would_grow(world.allocator, request, &grows);
  CHECK((grows == 2) == (result != SLICEPOOL_OK));
  return result;
}

static inline slicepool_result config_pools_with(void *config) {
  uint32_t count = 0;
  slicepool_result result = slicepool_config_pools(config, NULL, 0, &count);
  CHECK((count != 0) == (result == SLICEPOOL_OK));
  return result;
}

static inline slicepool_allocator_config config_that_tells(void) {
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  creation_failure = (slicepool_failure)SLICEPOOL_FAILURE_INIT;
  config.failure = &creation_failure;
  return config;
}

static inline slicepool_result create_with_type(void *memory_type) {
  slicepool_allocator_config config = config_that_tells();
  config.memory_types = memory_type;
  config.memory_type_count = 1;
  return create_with_config(&config);
}

static inline slicepool_result create_with_heap(void *heap) {
  const slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
  slicepool_allocator_config config = config_that_tells();
  config.memory_types = &type;
  config.memory_type_count = 1;
  config.heaps = heap;
  config.heap_count = 1;
  return create_with_config(&config);
}

static inline slicepool_result create_with_blocks(void *sizes) {
  slicepool_allocator_config config = config_that_tells();
  config.blocks = sizes;
  return create_with_config(&config);
}

/* The pool uses no more than its books say, and a device or a block where the config has one. */
static inline slicepool_result create_pool_with(void *config) {
  slicepool_buffer_pool *pool = NULL;
  slicepool_result result = slicepool_buffer_pool_create(NULL, config, &pool);
  CHECK((pool != NULL) == (result == SLICEPOOL_OK));
  if (result == SLICEPOOL_OK) OK(slicepool_buffer_pool_destroy(pool, 0, NULL));
  return result;
}

static inline slicepool_result create_pool_in_with(void *config) {
  static unsigned char block[262144];
  slicepool_buffer_pool *pool = NULL;
  slicepool_result result = slicepool_buffer_pool_create_in(NULL, config, block, sizeof block, &pool);
  CHECK((pool != NULL) == (result == SLICEPOOL_OK));
  if (result == SLICEPOOL_OK) OK(slicepool_buffer_pool_destroy(pool, 0, NULL));
  return result;
}

static inline slicepool_result create_pool_over(void *device) {
  slicepool_buffer_pool *pool = NULL;
  slicepool_result result = slicepool_buffer_pool_create(device, NULL, &pool);
  if (result == SLICEPOOL_OK) OK(slicepool_buffer_pool_destroy(pool, 0, NULL));
  return result;
}

static inline slicepool_result create_pool_with_host(void *host) {
  slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  config.host = host;
  return create_pool_with(&config);
}

static inline void *host_allocate(void *user_data, uint64_t size, uint64_t alignment) {
  (void)user_data;
  void *memory = NULL;
  if (alignment < sizeof(void *)) alignment = sizeof(void *);
  return posix_memalign(&memory, alignment, size) == 0 ? memory : NULL;
}

static inline void host_deallocate(void *user_data, void *memory, uint64_t size, uint64_t alignment) {
  (void)user_data;
  (void)size;
  (void)alignment;
  free(memory);
}

static inline void host_lock(void *user_data) { (void)user_data; }

static inline void host_wait(void *user_data, uint32_t attempt) {
  (void)user_data;
  (void)attempt;
}

#endif
