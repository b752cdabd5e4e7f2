/* What pools of every kind have in common: the steady path, host memory, handles, threads. */
#include "check.h"
#include "shorthand.h"
#include "watched_host.h"

/* Every kind, without ageing and with. */
enum { AGED_KINDS = 2 * KINDS };

static struct kind aged_kind_of(int index) {
  struct kind kind = kind_of(index % KINDS);
  if (index >= KINDS) kind.pool.dealloc_period = 1000;
  return kind;
}

static slicepool_result try_create(struct mock_device *device, const slicepool_host *host,
                                   const slicepool_pool_options *pools, uint32_t count,
                                   slicepool_allocator **allocator) {
  const slicepool_device table = mock_table(device);
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.page_alignment = 32;
  config.pools = pools;
  config.pool_count = count;
  config.host = host;
  return slicepool_allocator_create(&table, &config, allocator);
}

/* ---- the steady path */

static void a_hundred_thousand_equal_slices_call_device_and_host_no_more_than_one(void) {
  static const uint64_t sizes[] = { 1, 1000, 64 * KIB };
  for (int k = 0; k < AGED_KINDS; k++) {
    for (int s = 0; s < 3; s++) {
      const struct kind kind = aged_kind_of(k);
      struct mock_device device;
      struct watched_host host;
      mock_init(&device);
      watched_init(&host);
      const slicepool_host table = watched_table(&host, HOOK_MEMORY);
      slicepool_allocator *allocator = NULL;
      OK(try_create(&device, &table, &kind.pool, 1, &allocator));
      touch(allocator, sizes[s]);
      const uint64_t reserved = figures_of(allocator).reserved_bytes, allocations = host.allocations;
      const uint64_t deallocations = host.deallocations, metadata = figures_of(allocator).metadata_bytes;
      /* The library that checks itself does so with every call. */
      for (uint64_t round = 0; round < rounds(100000) / (divide_by > 1 ? 4 : 1); round++) {
        touch(allocator, sizes[s]);
        if (round % 1000 == 0) CHECK_EQ(figures_of(allocator).reserved_bytes, reserved);
      }
      const slicepool_statistics figures = figures_of(allocator);
      if (mock_calls(&device) != 1) FAIL("%s: %d device calls", kind.name, (int)mock_calls(&device));
      CHECK_EQ(figures.reserved_bytes, reserved);
      CHECK_EQ(figures.reserved_peak_bytes, reserved);
      CHECK_EQ(figures.metadata_bytes, metadata);
      CHECK_EQ(figures.largest_allocation_bytes, sizes[s]);
      CHECK_EQ(host.allocations, allocations);
      CHECK_EQ(host.deallocations, deallocations);
      finish(allocator, &device);
      watched_end(&host);
    }
  }
}

/* Slices come and go, are looked up and resized, and idle pages go back and come again. */
static void the_steady_path_gets_no_host_memory_in_any_kind_of_pool(void) {
  enum { SLOTS = 40, WARM = 120 };
  static const uint64_t sizes[] = { 1, 100, 1000, 1024, 3000, 5000 };
  for (int k = 0; k < AGED_KINDS; k++) {
    const struct kind kind = aged_kind_of(k);
    struct mock_device device;
    struct watched_host host;
    mock_init(&device);
    watched_init(&host);
    const slicepool_host table = watched_table(&host, HOOK_MEMORY | HOOK_LOCK);
    slicepool_allocator *allocator = NULL;
    OK(try_create(&device, &table, &kind.pool, 1, &allocator));
    uint64_t ids[WARM] = { 0 }, state = 19;
    /* More of everything than ever again. */
    for (int s = 0; s < 7; s++) {
      for (int i = 0; i < WARM; i++) ids[i] = take(allocator, s == 6 ? 1 : sizes[s]).id;
      for (int i = 0; i < WARM; i++) {
        slicepool_slice slice = SLICEPOOL_SLICE_INIT;
        OK(slicepool_try_resize(allocator, ids[i], 1, &slice, NULL));
      }
      OK(slicepool_free_many(allocator, ids, WARM, NULL));
    }
    memset(ids, 0, sizeof ids);
    OK(slicepool_cleanup(allocator, NULL));
    const uint64_t allocations = host.allocations, deallocations = host.deallocations;
    for (uint64_t i = 0; i < rounds(40000) + 300; i++) {
      uint64_t *id = &ids[random_between(&state, 0, SLOTS - 1)];
      slicepool_slice slice = SLICEPOOL_SLICE_INIT;
      switch (random_between(&state, 0, 9)) {
        case 0:
          if (*id != 0) {
            slicepool_result result =
                slicepool_try_resize(allocator, *id, random_between(&state, 1, 9000), &slice, NULL);
            CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_NO_ROOM);
          }
          break;
        case 1:
          if (*id != 0) CHECK_EQ(look_up(allocator, *id).id, *id);
          break;
        case 2: would_fit(allocator, random_between(&state, 1, 64 * KIB)); break;
        case 3:
          if (i % 50 == 0) OK(slicepool_trim(allocator, random_between(&state, 0, 100 * KIB), NULL));
          break;
        case 4: largest_free_of(allocator); break;
        default:
          if (*id == 0) {
            *id = take(allocator, sizes[random_between(&state, 0, 5)]).id;
          } else {
            OK(slicepool_free(allocator, *id));
            *id = 0;
          }
      }
      if (i % 500 == 0) {
        figures_in(allocator, 0);
        struct ranges ranges = ranges_of(allocator);
        free(ranges.list);
      }
      /* The books of pages that come and go are made anew now and then. */
      if (host.allocations != allocations && device.taken < 100)
        FAIL("%s: host memory in operation %d", kind.name, (int)i);
    }
    CHECK_LE(host.allocations - allocations, device.taken / 16);
    CHECK_EQ(host.allocations - allocations, host.deallocations - deallocations);
    /* Freeing, trimming and destroying need none. */
    host.fail_at = 1;
    host.fail_from_then_on = true;
    OK(slicepool_free_many(allocator, ids, SLOTS, NULL));
    OK(slicepool_trim(allocator, 10 * KIB, NULL));
    OK(slicepool_cleanup(allocator, NULL));
    OK(slicepool_allocator_destroy(allocator, 0, NULL));
    CHECK_EQ(host.refusals, 0);
    mock_end(&device);
    watched_end(&host);
  }
}

/* ---- host memory that runs out */

static slicepool_statistics comparable(slicepool_allocator *allocator) {
  slicepool_statistics figures = figures_of(allocator);
  /* What was got before memory ran out stays for next time, and pages of a batch were there for a while. */
  figures.metadata_bytes = 0;
  figures.device_allocations = figures.device_deallocations = 0;
  figures.in_use_peak_bytes = figures.reserved_peak_bytes = figures.pages_peak = 0;
  figures.largest_allocation_bytes = 0;
  return figures;
}

/* The call fails for want of host memory and changes nothing, and succeeds when there is some again. */
#define TWICE(call)                                                                     \
  do {                                                                                  \
    const slicepool_statistics twice_before = comparable(allocator);                    \
    const uint64_t twice_bytes = device.bytes;                                          \
    slicepool_result twice_result = (call);                                             \
    if (twice_result != SLICEPOOL_OK) {                                                 \
      CHECK_RESULT(twice_result, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);                   \
      failures++;                                                                       \
      const slicepool_statistics twice_after = comparable(allocator);                   \
      CHECK(memcmp(&twice_before, &twice_after, sizeof twice_after) == 0);              \
      CHECK_EQ(device.bytes, twice_bytes);                                              \
      check_books(allocator, &device);                                                  \
      host.fail_at = 0;                                                                 \
      OK(call);                                                                         \
    }                                                                                   \
  } while (0)

/* A bit of everything with pools of one kind; the k-th host allocation fails, for one time or for good. Answers whether
 * there were that many. */
static bool run_short_of_host_memory(const slicepool_pool_options *pools, uint32_t count, uint64_t k, bool for_good) {
  enum { COUNT = 70, BATCH = 10 };
  struct mock_device device;
  struct watched_host host;
  mock_init(&device);
  watched_init(&host);
  const slicepool_host table = watched_table(&host, HOOK_MEMORY);
  host.fail_at = k;
  host.fail_from_then_on = for_good;
  uint64_t failures = 0;
  slicepool_allocator *allocator = NULL;
  slicepool_result result = try_create(&device, &table, pools, count, &allocator);
  if (result != SLICEPOOL_OK) {
    CHECK_RESULT(result, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
    CHECK(allocator == NULL);
    CHECK_EQ(host.live, 0);
    failures++;
    host.fail_at = 0;
    OK(try_create(&device, &table, pools, count, &allocator));
  }
  slicepool_slice slices[COUNT], batch[BATCH];
  for (int i = 0; i < COUNT; i++) {
    slices[i] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
    TWICE(try_take(allocator, 500 + 100 * (uint64_t)i, i % 5 == 0 ? 32 : 0, &slices[i], NULL));
  }
  for (int i = 0; i < COUNT; i += 2) TWICE(slicepool_free(allocator, slices[i].id));
  for (int i = 1; i < COUNT; i += 2) {
    slicepool_slice resized = SLICEPOOL_SLICE_INIT;
    TWICE(slicepool_try_resize(allocator, slices[i].id, 100, &resized, NULL));
  }
  slicepool_request requests[BATCH];
  for (int i = 0; i < BATCH; i++) {
    requests[i] = (slicepool_request)SLICEPOOL_REQUEST_INIT;
    requests[i].size = 20000 + 1000 * (uint64_t)i;
    batch[i] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
  }
  TWICE(slicepool_allocate_many(allocator, requests, BATCH, batch));
  uint64_t ids[BATCH];
  for (int i = 0; i < BATCH; i++) ids[i] = batch[i].id;
  TWICE(slicepool_free_many(allocator, ids, BATCH, NULL));
  TWICE(slicepool_trim(allocator, 50 * KIB, NULL));
  check_books(allocator, &device);
  for (int i = 1; i < COUNT; i += 2) OK(slicepool_free(allocator, slices[i].id));
  const bool failed = host.refusals != 0;
  host.fail_at = 0;
  finish(allocator, &device);
  watched_end(&host);
  CHECK_LE(failures, host.refusals);
  CHECK(!for_good || failures == (failed ? 1 : 0));
  return failed;
}

static void whichever_host_allocation_fails_everything_is_as_before_in_any_kind_of_pool(void) {
  for (int kind = 0; kind <= KINDS; kind++) {
    /* Each kind alone, then all of them. */
    slicepool_pool_options pools[KINDS];
    uint32_t count = kind < KINDS ? 1 : KINDS;
    for (int i = 0; i < (int)count; i++) pools[i] = ageing(kind_of(kind < KINDS ? kind : i).pool, 40);
    for (int for_good = 0; for_good < 2; for_good++) {
      uint64_t k = 1;
      while (run_short_of_host_memory(pools, count, k, for_good == 1)) k += is_slow() ? 7 : 1;
      /* The object, the pools, nodes, pages, the ledger, a batch. */
      CHECK(k > 8);
    }
  }
}

/* ---- handles */

/* 37: every kind against every other. */
static void a_handle_of_a_pool_of_any_kind_is_foreign_to_every_other_allocator(void) {
  struct mock_device devices[KINDS];
  slicepool_allocator *allocators[KINDS];
  slicepool_slice slices[KINDS];
  slicepool_statistics before[KINDS];
  for (int k = 0; k < KINDS; k++) {
    allocators[k] = create_one(&devices[k], kind_of(k).pool);
    slices[k] = take(allocators[k], 1000);
    before[k] = figures_of(allocators[k]);
  }
  for (int one = 0; one < KINDS; one++) {
    for (int other = 0; other < KINDS; other++) {
      if (one == other) continue;
      slicepool_slice slice = SLICEPOOL_SLICE_INIT;
      slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
      CHECK_RESULT(slicepool_free(allocators[one], slices[other].id), SLICEPOOL_ERROR_FOREIGN_HANDLE);
      CHECK_RESULT(slicepool_slice_get(allocators[one], slices[other].id, &slice), SLICEPOOL_ERROR_FOREIGN_HANDLE);
      CHECK_RESULT(slicepool_try_resize(allocators[one], slices[other].id, 1, &slice, NULL),
                   SLICEPOOL_ERROR_FOREIGN_HANDLE);
      const uint64_t ids[2] = { slices[one].id, slices[other].id };
      CHECK_RESULT(slicepool_free_many(allocators[one], ids, 2, &failure), SLICEPOOL_ERROR_FOREIGN_HANDLE);
      CHECK_EQ(failure.index, 1);
      CHECK_EQ(slice.id, 0);
    }
  }
  for (int k = 0; k < KINDS; k++) {
    const slicepool_statistics after = figures_of(allocators[k]);
    CHECK(memcmp(&before[k], &after, sizeof after) == 0);
    /* Destroying is refused, and everything works as before. */
    CHECK_RESULT(slicepool_allocator_destroy(allocators[k], 0, NULL), SLICEPOOL_ERROR_BUSY);
    slicepool_slice found = look_up(allocators[k], slices[k].id);
    CHECK(same_slice(&found, &slices[k]));
    OK(slicepool_free(allocators[k], slices[k].id));
    CHECK_RESULT(slicepool_free(allocators[k], slices[k].id), SLICEPOOL_ERROR_STALE_HANDLE);
    finish(allocators[k], &devices[k]);
  }
}

/* 37: a number that would be right in another pool of the same allocator. */
static void a_handle_guessed_for_a_pool_of_another_kind_is_refused(void) {
  slicepool_pool_options pools[KINDS];
  for (int k = 0; k < KINDS; k++) pools[k] = kind_of(k).pool;
  struct mock_device device;
  slicepool_allocator *allocator = create_list(&device, pools, KINDS);
  uint64_t live[64];
  uint32_t count = 0;
  for (uint32_t pool = 0; pool < KINDS; pool++) {
    for (uint64_t i = 0; i <= pool; i++) {
      const uint64_t freed = take_in(allocator, pool, 2000 + i).id;
      live[count++] = take_in(allocator, pool, 1000 + i).id;
      OK(slicepool_free(allocator, freed));
    }
  }
  const slicepool_statistics before = figures_of(allocator);
  uint64_t guesses = 0;
  for (uint32_t i = 0; i < count; i++) {
    for (int bit = 0; bit < 64; bit++) {
      for (uint64_t factor = 1; factor <= KINDS; factor++) {
        const uint64_t id = live[i] + (factor << bit);
        bool known = id == 0;
        for (uint32_t j = 0; j < count; j++) known = known || live[j] == id;
        if (known) continue;
        slicepool_slice slice = SLICEPOOL_SLICE_INIT;
        const slicepool_result results[2] = { slicepool_free(allocator, id),
                                              slicepool_slice_get(allocator, id, &slice) };
        for (int r = 0; r < 2; r++)
          CHECK(results[r] == SLICEPOOL_ERROR_STALE_HANDLE || results[r] == SLICEPOOL_ERROR_FOREIGN_HANDLE);
        guesses++;
      }
    }
  }
  CHECK(guesses > 1000);
  const slicepool_statistics after = figures_of(allocator);
  CHECK(memcmp(&before, &after, sizeof after) == 0);
  for (uint32_t i = 0; i < count; i++) OK(slicepool_free(allocator, live[i]));
  finish(allocator, &device);
}

/* ---- threads */

enum { THREADS = 4, OF_EACH = 2000 };

/* Slices that each thread asks for. */
static uint64_t of_each(void) { return is_slow() ? OF_EACH / 20 : OF_EACH; }

struct asker {
  slicepool_allocator *allocator;
  pthread_barrier_t *barrier;
  uint32_t pool;
  uint64_t size;
  slicepool_slice kept[OF_EACH];
  uint64_t count;
};

static void *ask_for_the_same(void *argument) {
  struct asker *asker = argument;
  pthread_barrier_wait(asker->barrier);
  for (uint64_t i = 0; i < of_each(); i++) {
    asker->kept[asker->count++] = take_in(asker->allocator, asker->pool, asker->size);
    if (i % 4 != 3) continue;
    const uint64_t at = i / 4;
    OK(slicepool_free(asker->allocator, asker->kept[at].id));
    asker->kept[at] = asker->kept[--asker->count];
  }
  return NULL;
}

static int by_id(const void *left, const void *right) {
  const slicepool_slice *a = left, *b = right;
  return a->id < b->id ? -1 : a->id > b->id;
}

static int by_place(const void *left, const void *right) {
  const slicepool_slice *a = left, *b = right;
  if (a->memory != b->memory) return a->memory < b->memory ? -1 : 1;
  return a->offset < b->offset ? -1 : a->offset > b->offset;
}

/* 38. */
static void threads_that_ask_for_nothing_or_for_the_same_at_once_get_distinct_slices(void) {
  static struct asker askers[THREADS];
  static slicepool_slice all[THREADS * OF_EACH];
  pthread_barrier_t barrier;
  CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
  const slicepool_pool_options pools[5] = { exclusive(0, 32), exclusive(64 * KIB, 32), direct(0, 32),
                                            growing(1024, 64 * KIB, 32), sliced(64 * KIB, 0, 0, 32) };
  for (uint32_t pool = 0; pool < 5; pool++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_list(&device, pools, 5);
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) {
      askers[t].allocator = allocator;
      askers[t].barrier = &barrier;
      askers[t].pool = pool;
      askers[t].size = pool == 0 ? 0 : 256;
      askers[t].count = 0;
      CHECK(pthread_create(&threads[t], NULL, ask_for_the_same, &askers[t]) == 0);
    }
    uint64_t count = 0;
    for (int t = 0; t < THREADS; t++) {
      CHECK(pthread_join(threads[t], NULL) == 0);
      memcpy(all + count, askers[t].kept, askers[t].count * sizeof *all);
      count += askers[t].count;
    }
    CHECK_EQ(count, THREADS * of_each() * 3 / 4);
    CHECK_EQ(figures_in(allocator, pool).slices, count);
    qsort(all, count, sizeof *all, by_id);
    for (uint64_t i = 1; i < count; i++) CHECK(all[i].id != all[i - 1].id);
    qsort(all, count, sizeof *all, by_place);
    for (uint64_t i = 1; i < count; i++)
      CHECK(all[i].memory != all[i - 1].memory || all[i].offset >= all[i - 1].offset + all[i - 1].size);
    check_books(allocator, &device);
    for (uint64_t i = 0; i < count; i++) {
      slicepool_slice found = look_up(allocator, all[i].id);
      CHECK(same_slice(&found, &all[i]));
      OK(slicepool_free(allocator, all[i].id));
    }
    finish(allocator, &device);
  }
  CHECK(pthread_barrier_destroy(&barrier) == 0);
}

struct grower {
  pthread_barrier_t *barrier;
  slicepool_allocator *allocator;
  uint64_t size;
  slicepool_slice slice;
  slicepool_failure failure;
  slicepool_result result;
};

static void *grow_at_once(void *argument) {
  struct grower *grower = argument;
  grower->slice = (slicepool_slice)SLICEPOOL_SLICE_INIT;
  grower->failure = (slicepool_failure)SLICEPOOL_FAILURE_INIT;
  pthread_barrier_wait(grower->barrier);
  grower->result = try_take(grower->allocator, grower->size, 0, &grower->slice, &grower->failure);
  return NULL;
}

static void wait_a_little(struct mock_device *device) {
  (void)device;
  usleep(200);
}

/* 43: the device has room for 4,096 bytes more. */
static void two_threads_that_grow_into_room_for_one_page_both_get_an_answer_from_any_kind(void) {
  const slicepool_pool_options pools[5] = { exclusive(4096, 32), direct(0, 32), direct(4096, 32),
                                            growing(4096, 4096, 32), capped(growing(2048, 4096, 32), 4096) };
  pthread_barrier_t barrier;
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  for (int p = 0; p < 5; p++) {
    for (uint64_t round = 0; round < rounds(600) + 4; round++) {
      const uint64_t size = round % 4 < 2 ? 4096 : 2048;
      struct mock_device device;
      slicepool_allocator *allocator = create_one(&device, pools[p]);
      device.capacity = 4096;
      if (round % 2 == 0) device.in_allocate = wait_a_little;
      struct grower growers[2];
      pthread_t threads[2];
      for (int i = 0; i < 2; i++) {
        growers[i].barrier = &barrier;
        growers[i].allocator = allocator;
        growers[i].size = size;
        CHECK(pthread_create(&threads[i], NULL, grow_at_once, &growers[i]) == 0);
      }
      uint64_t served = 0;
      for (int i = 0; i < 2; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
        if (growers[i].result == SLICEPOOL_OK) {
          served++;
        } else {
          CHECK(growers[i].result == SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY ||
                (p == 4 && growers[i].result == SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED));
          CHECK_LE(growers[i].failure.in_flight, 1);
        }
      }
      CHECK(served >= 1);
      if (size == 4096) CHECK_EQ(served, 1);
      /* Two pages of 2,048 bytes fit, and so do two slices in one of 4,096. */
      if (size == 2048 && p < 3) CHECK_EQ(served, 2);
      CHECK_LE(device.bytes_peak, 4096);
      for (int i = 0; i < 2; i++)
        if (growers[i].result == SLICEPOOL_OK) OK(slicepool_free(allocator, growers[i].slice.id));
      finish(allocator, &device);
    }
  }
  CHECK(pthread_barrier_destroy(&barrier) == 0);
}

/* A device whose first page takes until somebody opens a gate. */
struct gate {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool reached, open, closed_once;
};

static void wait_at_gate(struct mock_device *device) {
  struct gate *gate = device->hook_data;
  CHECK(pthread_mutex_lock(&gate->mutex) == 0);
  if (!gate->closed_once) {
    gate->closed_once = gate->reached = true;
    CHECK(pthread_cond_broadcast(&gate->changed) == 0);
    while (!gate->open) CHECK(pthread_cond_wait(&gate->changed, &gate->mutex) == 0);
  }
  CHECK(pthread_mutex_unlock(&gate->mutex) == 0);
}

static void *take_a_thousand(void *argument) {
  struct grower *grower = argument;
  grower->slice = take(grower->allocator, 1000);
  return NULL;
}

/* What is being got is not idle, and what is got is not idle either before it is used. */
static void a_cleanup_during_a_growth_gives_back_nothing_that_the_growth_uses(void) {
  for (int k = 0; k < KINDS; k++) {
    struct gate gate = { .reached = false };
    CHECK(pthread_mutex_init(&gate.mutex, NULL) == 0);
    CHECK(pthread_cond_init(&gate.changed, NULL) == 0);
    struct mock_device device;
    slicepool_allocator *allocator = create_one(&device, ageing(kind_of(k).pool, 5));
    device.hook_data = &gate;
    device.in_allocate = wait_at_gate;
    struct grower grower = { .allocator = allocator };
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, take_a_thousand, &grower) == 0);
    CHECK(pthread_mutex_lock(&gate.mutex) == 0);
    while (!gate.reached) CHECK(pthread_cond_wait(&gate.changed, &gate.mutex) == 0);
    CHECK(pthread_mutex_unlock(&gate.mutex) == 0);
    CHECK_EQ(figures_of(allocator).growths_in_flight, 1);
    /* Other pages come, age and go meanwhile. */
    for (int i = 0; i < 20; i++) touch(allocator, 2000);
    touch(allocator, 5000);
    OK(slicepool_trim(allocator, 4000, NULL));
    OK(slicepool_cleanup(allocator, NULL));
    CHECK_EQ(device.live, 0);
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    CHECK_RESULT(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, &failure), SLICEPOOL_ERROR_BUSY);
    CHECK_EQ(failure.in_flight, 1);
    CHECK(pthread_mutex_lock(&gate.mutex) == 0);
    gate.open = true;
    CHECK(pthread_cond_broadcast(&gate.changed) == 0);
    CHECK(pthread_mutex_unlock(&gate.mutex) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    OK(slicepool_cleanup(allocator, NULL));
    slicepool_slice found = look_up(allocator, grower.slice.id);
    CHECK(same_slice(&found, &grower.slice));
    CHECK(device.pages[found.memory - MOCK_FIRST_HANDLE].live);
    OK(slicepool_free(allocator, grower.slice.id));
    finish(allocator, &device);
    CHECK(pthread_cond_destroy(&gate.changed) == 0);
    CHECK(pthread_mutex_destroy(&gate.mutex) == 0);
  }
}

struct resident {
  slicepool_allocator *allocator;
  uint64_t seed, operations;
};

static void *live_a_life(void *argument) {
  enum { SLOTS = 30 };
  struct resident *resident = argument;
  slicepool_allocator *allocator = resident->allocator;
  slicepool_slice slices[SLOTS];
  uint64_t state = resident->seed;
  memset(slices, 0, sizeof slices);
  for (uint64_t i = 0; i < resident->operations; i++) {
    slicepool_slice *slice = &slices[random_between(&state, 0, SLOTS - 1)];
    if (slice->id != 0) {
      slicepool_slice found = look_up(allocator, slice->id);
      CHECK(same_slice(&found, slice));
      OK(slicepool_free(allocator, slice->id));
      slice->id = 0;
    } else {
      slicepool_slice fresh = SLICEPOOL_SLICE_INIT;
      const uint64_t size = random_between(&state, 0, 40) == 0 ? 0 : random_between(&state, 1, 20000);
      const uint32_t pool = (uint32_t)random_between(&state, 0, 2 * KINDS);
      slicepool_result result = pool < KINDS && size != 0 ? try_take_in(allocator, pool, size, &fresh, NULL)
                                                          : try_take(allocator, size, 0, &fresh, NULL);
      CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
      *slice = fresh;
    }
    if (i % 200 == 0) OK(slicepool_trim(allocator, random_between(&state, 0, MIB), NULL));
  }
  for (int i = 0; i < SLOTS; i++) OK(slicepool_free(allocator, slices[i].id));
  return NULL;
}

/* All kinds in one allocator, with pages that age, from four threads. */
static void threads_that_share_pools_of_all_kinds_leave_balanced_books(void) {
  slicepool_pool_options pools[KINDS + 1];
  for (int k = 0; k < KINDS; k++) pools[k] = ageing(kind_of(k).pool, 50 + 10 * (uint64_t)k);
  pools[KINDS] = exclusive(0, 32);
  struct mock_device device;
  slicepool_allocator *allocator = create_list(&device, pools, KINDS + 1);
  pthread_t threads[THREADS];
  struct resident residents[THREADS];
  for (uint64_t t = 0; t < THREADS; t++) {
    residents[t] = (struct resident){ allocator, 70 + t, rounds(60000) };
    CHECK(pthread_create(&threads[t], NULL, live_a_life, &residents[t]) == 0);
  }
  for (int t = 0; t < THREADS; t++) CHECK(pthread_join(threads[t], NULL) == 0);
  CHECK_EQ(figures_of(allocator).in_use_bytes, 0);
  CHECK_EQ(figures_of(allocator).padding_bytes, 0);
  CHECK(device.taken > 10);
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(a_hundred_thousand_equal_slices_call_device_and_host_no_more_than_one),
  TEST(the_steady_path_gets_no_host_memory_in_any_kind_of_pool),
  TEST(whichever_host_allocation_fails_everything_is_as_before_in_any_kind_of_pool),
  TEST(a_handle_of_a_pool_of_any_kind_is_foreign_to_every_other_allocator),
  TEST(a_handle_guessed_for_a_pool_of_another_kind_is_refused),
  TEST(threads_that_ask_for_nothing_or_for_the_same_at_once_get_distinct_slices),
  TEST(two_threads_that_grow_into_room_for_one_page_both_get_an_answer_from_any_kind),
  TEST(a_cleanup_during_a_growth_gives_back_nothing_that_the_growth_uses),
  TEST(threads_that_share_pools_of_all_kinds_leave_balanced_books),
};

TEST_MAIN(tests)
