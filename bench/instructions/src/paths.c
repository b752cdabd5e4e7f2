/* Paths through the shared library, as programs in C walk them. */
#include "slicepool.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MADE 16384u

static void *library;

static void need(int condition, const char *what) {
  if (condition) return;
  fprintf(stderr, "%s\n", what);
  exit(1);
}

static void *function(const char *name) {
  void *found = dlsym(library, name);
  need(found != NULL, name);
  return found;
}

/* Between pointers to data and to functions. */
#define FUNCTION(name) \
  do {                                       \
    void *found = function("slicepool_" #name); \
    memcpy(&name, &found, sizeof name);      \
  } while (0)

static uint64_t handles;

static slicepool_result give(void *user_data, const slicepool_page_request *request, slicepool_device_memory *memory) {
  (void)user_data;
  (void)request;
  memory->handle = ++handles;
  return SLICEPOOL_OK;
}

static slicepool_result take_back(void *user_data, const slicepool_device_memory *memory) {
  (void)user_data;
  (void)memory;
  return SLICEPOOL_OK;
}

/* The same numbers as in slices.rs. */
static uint64_t random_next(uint64_t *state) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return *state >> 16;
}

static uint64_t random_size(uint64_t *state) {
  const uint64_t shift = random_next(state) % 12;
  return (256 + random_next(state) % 256) << shift;
}

static void churn(uint64_t walks) {
  enum { LIVE = 1000 };
  slicepool_result (*allocator_create)(const slicepool_device *, const slicepool_allocator_config *,
                                       slicepool_allocator **);
  slicepool_result (*allocate)(slicepool_allocator *, const slicepool_request *, slicepool_slice *);
  slicepool_result (*free)(slicepool_allocator *, uint64_t);
  static uint64_t ids[LIVE], sizes[MADE];
  static uint32_t victims[MADE];
  slicepool_device device = SLICEPOOL_DEVICE_INIT;
  slicepool_pool_options pool = SLICEPOOL_POOL_OPTIONS_INIT;
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  slicepool_allocator *allocator = NULL;
  uint64_t state = 42;
  FUNCTION(allocator_create);
  FUNCTION(allocate);
  FUNCTION(free);
  device.allocate = give;
  device.deallocate = take_back;
  pool.kind = SLICEPOOL_POOL_SLICED_PAGES;
  pool.page_size = (uint64_t)16 << 30;
  config.pools = &pool;
  config.pool_count = 1;
  need(allocator_create(&device, &config, &allocator) == SLICEPOOL_OK, "create");
  for (uint32_t i = 0; i < LIVE; i++) {
    request.size = random_size(&state);
    need(allocate(allocator, &request, &slice) == SLICEPOOL_OK, "allocate");
    ids[i] = slice.id;
  }
  for (uint32_t i = 0; i < MADE; i++) {
    victims[i] = (uint32_t)(random_next(&state) % LIVE);
    sizes[i] = random_size(&state);
  }
  for (uint64_t walk = 0; walk < walks; walk++) {
    const uint32_t victim = victims[walk % MADE];
    if (free(allocator, ids[victim]) != SLICEPOOL_OK) need(0, "free");
    request.size = sizes[walk % MADE];
    if (allocate(allocator, &request, &slice) != SLICEPOOL_OK) need(0, "allocate");
    ids[victim] = slice.id;
  }
}

static void buffers(uint64_t walks) {
  slicepool_result (*buffer_pool_create)(const slicepool_device *, const slicepool_buffer_pool_config *,
                                         slicepool_buffer_pool **);
  slicepool_result (*buffer_cache_create)(slicepool_buffer_pool *, slicepool_buffer_cache **);
  slicepool_result (*buffer_acquire)(slicepool_buffer_pool *, slicepool_buffer_cache *, uint64_t, uint32_t,
                                     slicepool_buffer *, slicepool_failure *);
  slicepool_result (*buffer_release)(slicepool_buffer_pool *, slicepool_buffer_cache *, uint64_t);
  slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
  slicepool_buffer_pool *pool = NULL;
  slicepool_buffer_cache *cache = NULL;
  FUNCTION(buffer_pool_create);
  FUNCTION(buffer_cache_create);
  FUNCTION(buffer_acquire);
  FUNCTION(buffer_release);
  need(buffer_pool_create(NULL, &config, &pool) == SLICEPOOL_OK, "create");
  need(buffer_cache_create(pool, &cache) == SLICEPOOL_OK, "cache");
  for (uint64_t walk = 0; walk < walks; walk++) {
    if (buffer_acquire(pool, cache, 1024, 0, &buffer, NULL) != SLICEPOOL_OK) need(0, "acquire");
    if (buffer_release(pool, cache, buffer.id) != SLICEPOOL_OK) need(0, "release");
  }
}

void walk_in_c(const char *path, uint32_t which, uint64_t walks);

void walk_in_c(const char *path, uint32_t which, uint64_t walks) {
  library = dlopen(path, RTLD_NOW);
  need(library != NULL, "the shared library is not there: make builds it");
  if (which == 0) churn(walks);
  if (which == 1) buffers(walks);
}
