/* The hot pair of buffers through the shared library. */
#include "library.h"

int c_buffer_hits(const char *path, uint64_t count);

/* 0 if there is no library. */
int c_buffer_hits(const char *path, uint64_t count) {
  slicepool_result (*create)(const slicepool_device *, const slicepool_buffer_pool_config *, slicepool_buffer_pool **);
  slicepool_result (*create_cache)(slicepool_buffer_pool *, slicepool_buffer_cache **);
  slicepool_result (*acquire)(slicepool_buffer_pool *, slicepool_buffer_cache *, uint64_t, uint32_t, slicepool_buffer *,
                              slicepool_failure *);
  slicepool_result (*release)(slicepool_buffer_pool *, slicepool_buffer_cache *, uint64_t);
  slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
  slicepool_buffer_pool *pool = NULL;
  slicepool_buffer_cache *cache = NULL;
  void *library = open_library(path);
  if (library == NULL) return 0;
  FUNCTION(library, "slicepool_buffer_pool_create", create);
  FUNCTION(library, "slicepool_buffer_cache_create", create_cache);
  FUNCTION(library, "slicepool_buffer_acquire", acquire);
  FUNCTION(library, "slicepool_buffer_release", release);
  need(create(NULL, &config, &pool) == SLICEPOOL_OK, "slicepool_buffer_pool_create");
  need(create_cache(pool, &cache) == SLICEPOOL_OK, "slicepool_buffer_cache_create");
  for (uint64_t i = 0; i < count; i++) {
    if (acquire(pool, cache, 1024, 0, &buffer, NULL) != SLICEPOOL_OK) need(0, "slicepool_buffer_acquire");
    if (release(pool, cache, buffer.id) != SLICEPOOL_OK) need(0, "slicepool_buffer_release");
  }
  return 1;
}
