/* Buffer pools: what users ran into, and threads. */
#include "buffers.h"
#include "check.h"
#include "watched_host.h"

#include <sched.h>

/* ---- counts and costs */

static void a_class_of_64_has_61_free_after_129_acquired_and_126_released(void) {
  slicepool_buffer_pool *pool = create_buffers(NULL, prefilled(one_class(64, 64)));
  slicepool_buffer_cache *cache = create_cache(pool);
  slicepool_buffer live[3];
  for (int i = 0; i < 3; i++) live[i] = acquire(pool, cache, 1);
  for (int i = 0; i < 126; i++) release(pool, i % 2 == 0 ? cache : NULL, acquire(pool, i % 3 == 0 ? cache : NULL, 1));
  OK(slicepool_buffer_cache_flush(cache));
  CHECK_CLASS(pool, 0, 3, 0, 61, 64);
  slicepool_buffer rest[61];
  for (int i = 0; i < 61; i++) rest[i] = acquire(pool, NULL, 1);
  not_acquired(pool, NULL, 1, 0, SLICEPOOL_ERROR_EXHAUSTED);
  for (int i = 0; i < 61; i++) release(pool, NULL, rest[i]);
  for (int i = 0; i < 3; i++) release(pool, cache, live[i]);
  OK(slicepool_buffer_cache_destroy(cache));
  end_buffers(pool);
}

/* Host memory that a pool takes before it has a buffer, and with one and a cache. */
static uint64_t bytes_with_limit(uint32_t limit, bool is_used) {
  struct watched_host host;
  watched_init(&host);
  const slicepool_host functions = watched_table(&host, HOOK_MEMORY);
  slicepool_buffer_pool_config config = one_class(64, limit);
  config.host = &functions;
  slicepool_buffer_pool *pool = create_buffers(NULL, config);
  slicepool_buffer_cache *cache = NULL;
  if (is_used) {
    cache = create_cache(pool);
    release(pool, cache, acquire(pool, cache, 1));
  }
  const uint64_t bytes = host.bytes;
  CHECK_LE(buffer_figures_of(pool).metadata_bytes, bytes);
  if (is_used) OK(slicepool_buffer_cache_destroy(cache));
  end_buffers(pool);
  watched_end(&host);
  return bytes;
}

static void the_largest_limit_costs_nothing(void) {
  const double start = seconds_now();
  for (int is_used = 0; is_used < 2; is_used++)
    CHECK_LE(bytes_with_limit(UINT32_MAX, is_used), bytes_with_limit(4096, is_used) * 2);
  slicepool_buffer_pool_config config = SLICEPOOL_BUFFER_POOL_CONFIG_INIT;
  OK(slicepool_buffer_pool_config_with_max_per_class(&config, UINT32_MAX));
  slicepool_buffer_pool *pool = create_buffers(NULL, config);
  CHECK_EQ(class_in(pool, 7).limit, UINT32_MAX);
  release(pool, NULL, acquire(pool, NULL, 128 * KIB));
  CHECK_LE(buffer_figures_of(pool).reserved_bytes, 256 * KIB);
  end_buffers(pool);
  CHECK(is_slow() || seconds_now() - start < 1);
}

static double seconds_of_misses(slicepool_buffer_pool *pool, slicepool_buffer_cache *cache, int misses) {
  const double start = seconds_now();
  slicepool_buffer buffer;
  for (int i = 0; i < misses; i++) CHECK_RESULT(try_acquire(pool, cache, 1, &buffer), SLICEPOOL_ERROR_EXHAUSTED);
  return seconds_now() - start;
}

/* The best of some rounds, in which both are measured by turns. */
static void a_miss_costs_the_same_however_many_buffers_there_are(void) {
  enum { MISSES = 500, ROUNDS = 50 };
  const uint32_t limits[2] = { 100, (uint32_t)rounds(1000000) + 100 };
  slicepool_buffer_pool *pools[2];
  slicepool_buffer_cache *caches[2];
  double best[2] = { 1e9, 1e9 };
  for (int i = 0; i < 2; i++) {
    pools[i] = create_buffers(NULL, one_class(8, limits[i]));
    caches[i] = create_cache(pools[i]);
    for (uint32_t n = 0; n < limits[i]; n++) acquire(pools[i], n % 2 == 0 ? caches[i] : NULL, 1);
    CHECK_CLASS(pools[i], 0, limits[i], 0, 0, limits[i]);
  }
  for (int round = 0; round < 2 * ROUNDS; round++) {
    const double took = seconds_of_misses(pools[round % 2], caches[round % 2], MISSES);
    if (took < best[round % 2]) best[round % 2] = took;
  }
  if (best[1] > best[0] * 3)
    FAIL("a miss takes %g ns with 100 buffers, %g with more", best[0] / MISSES * 1e9, best[1] / MISSES * 1e9);
  for (int i = 0; i < 2; i++) {
    OK(slicepool_buffer_cache_destroy(caches[i]));
    OK(slicepool_buffer_pool_destroy(pools[i], SLICEPOOL_DESTROY_FORCE, NULL));
  }
}

/* ---- from one thread to another */

enum { RING = 4096 };

struct stream {
  slicepool_buffer_pool *pool;
  slicepool_buffer ring[RING];
  uint64_t head, tail; /* atomic: put and taken */
  uint64_t count, exhausted, told;
};

static void *produce(void *argument) {
  struct stream *stream = argument;
  slicepool_buffer_cache *cache = create_cache(stream->pool);
  for (uint64_t i = 0; i < stream->count; i++) {
    slicepool_buffer buffer = SLICEPOOL_BUFFER_INIT;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_result result;
    while ((result = slicepool_buffer_acquire(stream->pool, cache, 64, 0, &buffer, &failure)) != SLICEPOOL_OK) {
      CHECK_RESULT(result, SLICEPOOL_ERROR_EXHAUSTED);
      CHECK_LE(failure.pending, 1024);
      stream->exhausted++;
      stream->told += failure.pending != 0;
      sched_yield();
    }
    memcpy(buffer.mapped, &i, sizeof i);
    while (i - __atomic_load_n(&stream->tail, __ATOMIC_ACQUIRE) == RING) sched_yield();
    stream->ring[i % RING] = buffer;
    __atomic_store_n(&stream->head, i + 1, __ATOMIC_RELEASE);
  }
  OK(slicepool_buffer_cache_destroy(cache));
  return NULL;
}

static void *consume(void *argument) {
  struct stream *stream = argument;
  slicepool_buffer_cache *cache = create_cache(stream->pool);
  for (uint64_t i = 0; i < stream->count; i++) {
    while (__atomic_load_n(&stream->head, __ATOMIC_ACQUIRE) == i) {
      /* Somebody who waits is somebody who uses the cache: the producer may be waiting for what it holds. */
      OK(slicepool_buffer_cache_flush(cache));
      sched_yield();
    }
    const slicepool_buffer buffer = stream->ring[i % RING];
    uint64_t value = 0;
    memcpy(&value, buffer.mapped, sizeof value);
    CHECK_EQ(value, i);
    __atomic_store_n(&stream->tail, i + 1, __ATOMIC_RELEASE);
    OK(slicepool_buffer_release(stream->pool, cache, buffer.id));
  }
  OK(slicepool_buffer_cache_destroy(cache));
  return NULL;
}

static void a_producer_gets_back_what_sits_in_its_consumers_cache(void) {
  enum { LIMIT = 1024 };
  slicepool_buffer_pool *pool = create_buffers(NULL, one_class(64, LIMIT));
  /* Step by step: an error tells how many there are, and the consumer's next release lets the producer go on. */
  slicepool_buffer_cache *producer = create_cache(pool), *consumer = create_cache(pool);
  static slicepool_buffer buffers[LIMIT];
  for (int i = 0; i < LIMIT; i++) buffers[i] = acquire(pool, producer, 64);
  for (int i = 0; i < LIMIT / 2; i++) release(pool, consumer, buffers[i]);
  const slicepool_failure failure = not_acquired(pool, producer, 64, 0, SLICEPOOL_ERROR_EXHAUSTED);
  CHECK(failure.pending == LIMIT / 2 && failure.limit == LIMIT && failure.size == 64);
  release(pool, consumer, buffers[LIMIT / 2]);
  release(pool, producer, acquire(pool, producer, 64));
  for (int i = LIMIT / 2 + 1; i < LIMIT; i++) release(pool, consumer, buffers[i]);
  OK(slicepool_buffer_cache_destroy(producer));
  OK(slicepool_buffer_cache_destroy(consumer));
  CHECK_CLASS(pool, 0, 0, 0, LIMIT, LIMIT);

  static struct stream stream;
  memset(&stream, 0, sizeof stream);
  stream.pool = pool;
  stream.count = rounds(10000000);
  pthread_t threads[2];
  CHECK(pthread_create(&threads[0], NULL, produce, &stream) == 0);
  CHECK(pthread_create(&threads[1], NULL, consume, &stream) == 0);
  for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK_EQ(class_in(pool, 0).in_use, 0);
  CHECK_EQ(class_in(pool, 0).free, class_in(pool, 0).created);
  end_buffers(pool);
}

/* ---- one handle, two threads */

struct duel {
  slicepool_buffer_pool *pool;
  uint64_t id;
  uint64_t round, done; /* atomic */
  uint64_t rounds;
  slicepool_result result;
};

static void wait_for(const uint64_t *number, uint64_t value) {
  for (int spins = 0; __atomic_load_n(number, __ATOMIC_ACQUIRE) != value; spins++)
    if (spins > 2000) sched_yield();
}

static void *fight(void *argument) {
  struct duel *duel = argument;
  slicepool_buffer_cache *cache = create_cache(duel->pool);
  for (uint64_t round = 1; round <= duel->rounds; round++) {
    wait_for(&duel->round, round);
    duel->result = slicepool_buffer_release(duel->pool, round % 3 == 0 ? NULL : cache, duel->id);
    __atomic_store_n(&duel->done, round, __ATOMIC_RELEASE);
  }
  OK(slicepool_buffer_cache_destroy(cache));
  return NULL;
}

static void a_buffer_that_two_threads_release_is_released_once(void) {
  struct duel duel = { .rounds = rounds(200000) };
  duel.pool = create_buffers(NULL, with_capacity(one_class(64, 16), 4));
  slicepool_buffer_cache *cache = create_cache(duel.pool);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, fight, &duel) == 0);
  for (uint64_t round = 1; round <= duel.rounds; round++) {
    /* Not more than 4 are in the other's cache. */
    duel.id = acquire(duel.pool, cache, 1).id;
    __atomic_store_n(&duel.round, round, __ATOMIC_RELEASE);
    /* Now earlier, now later than the other one. */
    for (uint64_t i = 0; i < round % 128; i++) __atomic_signal_fence(__ATOMIC_SEQ_CST);
    const slicepool_result result = slicepool_buffer_release(duel.pool, round % 5 == 0 ? NULL : cache, duel.id);
    wait_for(&duel.done, round);
    const bool first = result == SLICEPOOL_OK, second = duel.result == SLICEPOOL_OK;
    CHECK(first != second);
    CHECK_RESULT(first ? duel.result : result, SLICEPOOL_ERROR_STALE_HANDLE);
  }
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK_EQ(class_in(duel.pool, 0).in_use, 0);
  OK(slicepool_buffer_cache_destroy(cache));
  end_buffers(duel.pool);
}

/* ---- many threads */

enum { THREADS = 4, SHELF = 32 };

struct crowd {
  slicepool_buffer_pool *pool;
  uint64_t shelf[SHELF]; /* atomic: buffers that anybody may release */
  uint64_t turns, seed;  /* seed: atomic */
  bool closes;
  bool over; /* atomic */
};

/* Each buffer is filled by its owner and looked at before it goes: nobody else has had it meanwhile. */
static void *jostle(void *argument) {
  enum { OWN = 24 };
  struct crowd *crowd = argument;
  uint64_t state = __atomic_add_fetch(&crowd->seed, 1, __ATOMIC_RELAXED);
  const unsigned char mark = (unsigned char)(state * 16);
  slicepool_buffer_cache *cache = NULL;
  const slicepool_result created = slicepool_buffer_cache_create(crowd->pool, &cache);
  if (crowd->closes && created == SLICEPOOL_ERROR_CLOSED) return NULL;
  OK(created);
  slicepool_buffer own[OWN];
  memset(own, 0, sizeof own);
  for (uint64_t turn = 0; turn < crowd->turns && !__atomic_load_n(&crowd->over, __ATOMIC_RELAXED); turn++) {
    slicepool_buffer *mine = &own[random_between(&state, 0, OWN - 1)];
    slicepool_buffer_cache *with = random_between(&state, 0, 3) == 0 ? NULL : cache;
    if (mine->id != 0) {
      const unsigned char *at = mine->mapped;
      for (uint64_t i = 0; i < 64; i++) CHECK_EQ(at[i], mark);
      if (random_between(&state, 0, 3) == 0) {
        const uint64_t other =
            __atomic_exchange_n(&crowd->shelf[random_between(&state, 0, SHELF - 1)], mine->id, __ATOMIC_ACQ_REL);
        OK(slicepool_buffer_release(crowd->pool, with, other));
      } else {
        OK(slicepool_buffer_release(crowd->pool, with, mine->id));
      }
      mine->id = 0;
    } else {
      const uint64_t size = random_between(&state, 64, 300);
      const uint32_t flags = random_between(&state, 0, 255) == 0 ? SLICEPOOL_BUFFER_UNTRACKED : 0;
      *mine = (slicepool_buffer)SLICEPOOL_BUFFER_INIT;
      const slicepool_result result = slicepool_buffer_acquire(crowd->pool, with, size, flags, mine, NULL);
      if (result == SLICEPOOL_OK) memset(mine->mapped, mark, 64);
      else CHECK(result == SLICEPOOL_ERROR_EXHAUSTED || (crowd->closes && result == SLICEPOOL_ERROR_CLOSED));
      if (result == SLICEPOOL_ERROR_CLOSED) break;
    }
    if (random_between(&state, 0, 999) == 0) OK(slicepool_buffer_cache_flush(cache));
    if (random_between(&state, 0, 4999) == 0) {
      OK(slicepool_buffer_cache_destroy(cache));
      cache = NULL;
      const slicepool_result result = slicepool_buffer_cache_create(crowd->pool, &cache);
      if (result != SLICEPOOL_OK) {
        CHECK(crowd->closes && result == SLICEPOOL_ERROR_CLOSED);
        break;
      }
    }
    if (random_between(&state, 0, 9999) == 0) CHECK_LE(class_in(crowd->pool, 0).in_use, 40);
  }
  for (int i = 0; i < OWN; i++) OK(slicepool_buffer_release(crowd->pool, cache, own[i].id));
  if (cache != NULL) OK(slicepool_buffer_cache_destroy(cache));
  return NULL;
}

static void run_crowd(struct crowd *crowd, void (*meanwhile)(struct crowd *crowd)) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) CHECK(pthread_create(&threads[i], NULL, jostle, crowd) == 0);
  if (meanwhile != NULL) meanwhile(crowd);
  for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  for (int i = 0; i < SHELF; i++) OK(slicepool_buffer_release(crowd->pool, NULL, crowd->shelf[i]));
}

static void buffers_of_four_threads_never_overlap(void) {
  struct crowd crowd = { .turns = rounds(1000000) };
  crowd.pool = create_buffers(NULL, with_class(with_class(one_class(64, 40), 128, 20), 512, 60));
  run_crowd(&crowd, NULL);
  for (uint32_t i = 0; i < 3; i++) CHECK_EQ(class_in(crowd.pool, i).in_use, 0);
  end_buffers(crowd.pool);
}

static void close_soon(struct crowd *crowd) {
  /* The threads draw theirs from it at the same time. */
  usleep((useconds_t)(__atomic_load_n(&crowd->seed, __ATOMIC_RELAXED) * 37 % 900));
  OK(slicepool_buffer_pool_close(crowd->pool));
}

static void a_pool_that_is_closed_under_its_threads_gives_everything_back(void) {
  for (uint64_t round = 0; round < rounds(400) / 2 + 2; round++) {
    slicepool_device table = SLICEPOOL_DEVICE_INIT;
    OK(slicepool_host_device(&table));
    struct crowd crowd = { .turns = UINT64_MAX, .seed = round * THREADS, .closes = true };
    crowd.pool = create_buffers(&table, with_class(with_class(one_class(64, 40), 128, 20), 512, 60));
    run_crowd(&crowd, close_soon);
    CHECK_EQ(buffer_figures_of(crowd.pool).reserved_bytes, 0);
    end_buffers(crowd.pool);
  }
}

/* Locks of the program's, and none at all where one thread is at work. */
static void a_pool_uses_the_locks_it_is_given(void) {
  struct watched_host host;
  watched_init(&host);
  const slicepool_host functions = watched_table(&host, HOOK_MEMORY | HOOK_LOCK);
  slicepool_buffer_pool_config config = with_class(with_class(one_class(64, 40), 128, 20), 512, 60);
  config.host = &functions;
  struct crowd crowd = { .turns = rounds(100000) };
  crowd.pool = create_buffers(NULL, config);
  run_crowd(&crowd, NULL);
  CHECK(host.locks != 0);
  end_buffers(crowd.pool);
  const uint64_t locks = host.locks;
  config.flags = SLICEPOOL_BUFFER_POOL_EXTERNALLY_SYNCHRONIZED;
  memset(&crowd, 0, sizeof crowd);
  crowd.turns = rounds(100000);
  crowd.pool = create_buffers(NULL, config);
  jostle(&crowd);
  for (int i = 0; i < SHELF; i++) OK(slicepool_buffer_release(crowd.pool, NULL, crowd.shelf[i]));
  end_buffers(crowd.pool);
  CHECK_EQ(host.locks, locks);
  watched_end(&host);
}

static void a_child_abandons_a_pool_and_its_caches_while_threads_are_at_work(void) {
  for (uint64_t round = 0; round < rounds(100) + 1; round++) {
    struct crowd crowd = { .turns = UINT64_MAX, .seed = round * THREADS };
    crowd.pool = create_buffers(NULL, with_class(with_class(one_class(64, 40), 128, 20), 512, 60));
    pthread_t threads[2];
    for (int i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, jostle, &crowd) == 0);
    usleep((useconds_t)(round * 13 % 300));
    fflush(stdout);
    const pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      alarm(20);
      OK(slicepool_buffer_pool_abandon(crowd.pool, SLICEPOOL_ABANDON_FORKED));
      slicepool_buffer_pool *own = create_buffers(NULL, one_class(64, 4));
      release(own, NULL, acquire(own, NULL, 1));
      end_buffers(own);
      /* The pages and caches of the parent's pool are lost here on purpose: not for tools to look at. */
      execl("/bin/true", "true", (char *)NULL);
      _exit(1);
    }
    CHECK_EQ(end_of_child(child), 0);
    __atomic_store_n(&crowd.over, true, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    for (int i = 0; i < SHELF; i++) OK(slicepool_buffer_release(crowd.pool, NULL, crowd.shelf[i]));
    end_buffers(crowd.pool);
  }
}

static const struct test tests[] = {
  TEST(a_class_of_64_has_61_free_after_129_acquired_and_126_released),
  TEST(the_largest_limit_costs_nothing),
  TEST(a_miss_costs_the_same_however_many_buffers_there_are),
  TEST(a_producer_gets_back_what_sits_in_its_consumers_cache),
  TEST(a_buffer_that_two_threads_release_is_released_once),
  TEST(buffers_of_four_threads_never_overlap),
  TEST(a_pool_that_is_closed_under_its_threads_gives_everything_back),
  TEST(a_pool_uses_the_locks_it_is_given),
  TEST(a_child_abandons_a_pool_and_its_caches_while_threads_are_at_work),
};

TEST_MAIN(tests)
