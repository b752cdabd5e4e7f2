/* Buffers for I/O that go from one thread to another.
 *
 * A producer reads a file into buffers of a pool and hands them to a consumer, which hashes what is in them and gives them back.
 * Each thread has a cache of its own, so most buffers change hands without a lock. The pool never has more than 16 buffers of
 * a size: a producer that is too fast is told so, and waits.
 *
 * Two things to note: the consumer releases what the producer acquired, with its own cache; and a thread that is about to
 * wait flushes its cache first, because nobody else can have what is in it.
 */
#include "slicepool.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define KIB UINT64_C(1024)
#define FILE_BYTES (8 * 1024 * KIB + 123)
#define PIECE (16 * KIB)
#define QUEUE 16

typedef struct pipeline {
  slicepool_buffer_pool *pool;
  FILE *file;
  pthread_mutex_t mutex;
  pthread_cond_t changed; /* something was put into the queue, or released */
  slicepool_buffer queue[QUEUE];
  uint64_t bytes[QUEUE]; /* that are in each of them */
  uint64_t put, taken;
  int ended;
  uint64_t waits; /* of the producer, because there was no buffer */
  uint64_t hash, hashed;
} pipeline;

static void check(slicepool_result result, const char *what) {
  if (result != SLICEPOOL_OK) {
    fprintf(stderr, "%s: %s\n", what, slicepool_result_string(result));
    exit(1);
  }
}

static uint64_t hash_of(const unsigned char *bytes, uint64_t count, uint64_t hash) {
  for (uint64_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * UINT64_C(0x100000001B3);
  return hash;
}

static void *produce(void *argument) {
  pipeline *it = (pipeline *)argument;
  slicepool_buffer_cache *cache = NULL;
  check(slicepool_buffer_cache_create(it->pool, &cache), "cache of the producer");
  for (;;) {
    slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
    slicepool_result result = slicepool_buffer_acquire(it->pool, cache, PIECE, 0, &buffer, NULL);
    if (result == SLICEPOOL_ERROR_EXHAUSTED) {
      /* All are with the consumer, or in its cache, which has been told to give them back. */
      pthread_mutex_lock(&it->mutex);
      const uint64_t before = it->taken;
      it->waits++;
      while (it->taken == before && it->put != it->taken) pthread_cond_wait(&it->changed, &it->mutex);
      pthread_mutex_unlock(&it->mutex);
      continue;
    }
    check(result, "acquire");
    const size_t read = fread(buffer.mapped, 1, PIECE, it->file);
    pthread_mutex_lock(&it->mutex);
    while (it->put - it->taken == QUEUE) pthread_cond_wait(&it->changed, &it->mutex);
    if (read != 0) {
      it->queue[it->put % QUEUE] = buffer;
      it->bytes[it->put % QUEUE] = read;
      it->put++;
    }
    it->ended = read == 0;
    pthread_cond_broadcast(&it->changed);
    pthread_mutex_unlock(&it->mutex);
    if (read == 0) {
      check(slicepool_buffer_release(it->pool, cache, buffer.id), "release");
      check(slicepool_buffer_cache_destroy(cache), "end of the producer's cache");
      return NULL;
    }
  }
}

static void *consume(void *argument) {
  pipeline *it = (pipeline *)argument;
  slicepool_buffer_cache *cache = NULL;
  check(slicepool_buffer_cache_create(it->pool, &cache), "cache of the consumer");
  for (;;) {
    pthread_mutex_lock(&it->mutex);
    if (it->put == it->taken) check(slicepool_buffer_cache_flush(cache), "flush");
    while (it->put == it->taken && !it->ended) pthread_cond_wait(&it->changed, &it->mutex);
    if (it->put == it->taken) {
      pthread_mutex_unlock(&it->mutex);
      check(slicepool_buffer_cache_destroy(cache), "end of the consumer's cache");
      return NULL;
    }
    const slicepool_buffer buffer = it->queue[it->taken % QUEUE];
    const uint64_t bytes = it->bytes[it->taken % QUEUE];
    pthread_mutex_unlock(&it->mutex);

    it->hash = hash_of((const unsigned char *)buffer.mapped, bytes, it->hash);
    it->hashed += bytes;
    check(slicepool_buffer_release(it->pool, cache, buffer.id), "release");

    pthread_mutex_lock(&it->mutex);
    it->taken++;
    pthread_cond_broadcast(&it->changed);
    pthread_mutex_unlock(&it->mutex);
  }
}

int main(void) {
  /* A file to read, and the hash that is to come out. */
  static unsigned char block[64 * 1024];
  pipeline it = { 0 };
  it.file = tmpfile();
  if (it.file == NULL) {
    fprintf(stderr, "no temporary file\n");
    return 1;
  }
  const uint64_t seed = UINT64_C(0xCBF29CE484222325);
  uint64_t expected = seed, state = 1;
  for (uint64_t written = 0; written < FILE_BYTES;) {
    const uint64_t count = FILE_BYTES - written < sizeof block ? FILE_BYTES - written : sizeof block;
    for (uint64_t i = 0; i < count; i++) {
      state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
      block[i] = (unsigned char)(state >> 56);
    }
    if (fwrite(block, 1, count, it.file) != count) return 1;
    expected = hash_of(block, count, expected);
    written += count;
  }
  rewind(it.file);

  /* Pages of 4 KiB to 64 KiB, of which this program uses one size, for two threads. */
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  config.failure = &failure;
  check(slicepool_buffer_pool_config_with_size_class_range(&config, 4 * KIB, 64 * KIB, 16), "classes");
  check(slicepool_buffer_pool_config_with_parallelism(&config, 2), "parallelism");
  check(slicepool_buffer_pool_config_with_alignment(&config, 4 * KIB), "alignment");
  uint64_t ceiling = 0;
  check(slicepool_buffer_pool_config_max_tracked_bytes(&config, &ceiling), "ceiling");
  printf("ceiling: %" PRIu64 " KiB\n", ceiling / KIB);
  check(slicepool_buffer_pool_create(NULL, &config, &it.pool), "pool");

  it.hash = seed;
  pthread_mutex_init(&it.mutex, NULL);
  pthread_cond_init(&it.changed, NULL);
  pthread_t producer, consumer;
  if (pthread_create(&producer, NULL, produce, &it) != 0 || pthread_create(&consumer, NULL, consume, &it) != 0) return 1;
  pthread_join(producer, NULL);
  pthread_join(consumer, NULL);
  fclose(it.file);

  printf("hashed: %" PRIu64 " bytes, %s\n", it.hashed, it.hash == expected ? "right" : "wrong");
  printf("waits for a buffer: %" PRIu64 "\n", it.waits);
  slicepool_buffer_pool_statistics all = SLICEPOOL_BUFFER_POOL_STATISTICS_INIT;
  check(slicepool_buffer_pool_statistics_get(it.pool, &all), "statistics");
  for (uint32_t i = 0; i < all.classes; i++) {
    slicepool_buffer_class_statistics one = SLICEPOOL_BUFFER_CLASS_STATISTICS_INIT;
    check(slicepool_buffer_class_statistics_get(it.pool, i, &one), "statistics of a class");
    printf("%2" PRIu64 " KiB: %" PRIu32 " of %" PRIu32 " created, %" PRIu32 " in use, %" PRIu32 " in caches, %" PRIu32
           " free; %" PRIu64 " hits, %" PRIu64 " refills, %" PRIu64 " spills, %" PRIu64 " times exhausted\n",
           one.size / KIB, one.created, one.limit, one.in_use, one.cached, one.free, one.hits, one.refills, one.spills,
           one.exhausted);
  }
  check(slicepool_buffer_pool_destroy(it.pool, 0, &failure), "destroy");
  return it.hash == expected && it.hashed == FILE_BYTES ? 0 : 1;
}
