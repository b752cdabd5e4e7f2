/* The host side: memory and lock hooks of slicepool_host. */
#include "check.h"
#include "shorthand.h"
#include "watched_host.h"

#include <errno.h>
#include <sys/mman.h>

static void no_lock_is_held(struct mock_device *device) {
  (void)device;
  CHECK_EQ(locks_held, 0);
}

static void watch_device(struct mock_device *device) {
  mock_init(device);
  device->in_allocate = no_lock_is_held;
  device->in_deallocate = no_lock_is_held;
}

static slicepool_result try_create(struct mock_device *device, const slicepool_host *host, uint32_t flags,
                                   slicepool_allocator **allocator) {
  const slicepool_device table = mock_table(device);
  const slicepool_pool_options pools[3] = { sliced(4096, 2048, 64 * KIB, 64), sliced(64 * KIB, 0, 256 * KIB, 256),
                                            sliced(MIB, 0, 0, 4096) };
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.flags = flags;
  config.pools = pools;
  config.pool_count = 3;
  config.host = host;
  return slicepool_allocator_create(&table, &config, allocator);
}

static slicepool_allocator *create_hooked(struct mock_device *device, struct watched_host *host, int hooks) {
  const slicepool_host table = watched_table(host, hooks);
  slicepool_allocator *allocator = NULL;
  OK(try_create(device, &table, 0, &allocator));
  return allocator;
}

/* Allocates and frees slices of all pools, then frees everything. */
static void churn(slicepool_allocator *allocator, uint64_t seed, uint64_t operations) {
  enum { SLOTS = 256 };
  uint64_t ids[SLOTS] = { 0 }, state = seed;
  for (uint64_t i = 0; i < operations; i++) {
    uint64_t *id = &ids[random_between(&state, 0, SLOTS - 1)];
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    if (*id == 0) {
      *id = take(allocator, random_between(&state, 1, random_between(&state, 0, 7) == 0 ? 100000 : 2000)).id;
    } else if (random_between(&state, 0, 3) == 0) {
      slicepool_result result = slicepool_try_resize(allocator, *id, random_between(&state, 1, 2000), &slice, NULL);
      CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_NO_ROOM);
    } else {
      OK(slicepool_free(allocator, *id));
      *id = 0;
    }
  }
  OK(slicepool_free_many(allocator, ids, SLOTS, NULL));
}

/* ---- memory */

static void host_memory_is_given_back_as_it_was_got(void) {
  for (int round = 0; round < 3; round++) {
    struct mock_device device;
    struct watched_host host;
    watch_device(&device);
    watched_init(&host);
    slicepool_allocator *allocator = create_hooked(&device, &host, HOOK_MEMORY | HOOK_LOCK);
    CHECK(host.live != 0);
    churn(allocator, 1, rounds(200000));
    check_books(allocator, &device);
    if (round == 0) {
      finish(allocator, &device);
    } else {
      take(allocator, 100);
      if (round == 1) {
        OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
        mock_end(&device);
      } else {
        const uint64_t calls = mock_calls(&device);
        OK(slicepool_allocator_abandon(allocator, 0));
        CHECK_EQ(mock_calls(&device), calls);
        free(device.pages);
        CHECK(pthread_mutex_destroy(&device.mutex) == 0);
      }
    }
    watched_end(&host);
  }
}

static void the_figures_count_nearly_all_host_memory(void) {
  struct mock_device device;
  struct watched_host host;
  watch_device(&device);
  watched_init(&host);
  slicepool_allocator *allocator = create_hooked(&device, &host, HOOK_MEMORY);
  for (int i = 0; i < 5000; i++) take(allocator, 64);
  const uint64_t counted = figures_of(allocator).metadata_bytes;
  CHECK_LE(counted, host.bytes);
  /* But for the object itself. */
  CHECK_LE(host.bytes, counted + 4096);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);
  watched_end(&host);
}

static void the_steady_path_gets_no_host_memory(void) {
  struct mock_device device;
  struct watched_host host;
  watch_device(&device);
  watched_init(&host);
  slicepool_allocator *allocator = create_hooked(&device, &host, HOOK_MEMORY);
  const uint64_t operations = is_slow() ? 2000 : 20000;
  churn(allocator, 2, operations);
  const uint64_t allocations = host.allocations, deallocations = host.deallocations;
  churn(allocator, 2, operations);
  struct ranges ranges = ranges_of(allocator);
  free(ranges.list);
  figures_of(allocator);
  largest_free_of(allocator);
  uint64_t needed = 0;
  OK(slicepool_report_json(allocator, NULL, 0, &needed));
  refused(allocator, 2 * MIB, 0, SLICEPOOL_ERROR_TOO_LARGE);
  CHECK_EQ(host.allocations, allocations);
  CHECK_EQ(host.deallocations, deallocations);
  /* A batch needs two, for as long as the call lasts. */
  slicepool_request requests[3] = { SLICEPOOL_REQUEST_INIT, SLICEPOOL_REQUEST_INIT, SLICEPOOL_REQUEST_INIT };
  slicepool_slice slices[3] = { SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT, SLICEPOOL_SLICE_INIT };
  for (int i = 0; i < 3; i++) requests[i].size = 100;
  OK(slicepool_allocate_many(allocator, requests, 3, slices));
  const uint64_t ids[3] = { slices[0].id, slices[1].id, slices[2].id };
  OK(slicepool_free_many(allocator, ids, 3, NULL));
  CHECK_EQ(host.allocations, allocations + 2);
  CHECK_EQ(host.allocations - allocations, host.deallocations - deallocations);
  finish(allocator, &device);
  watched_end(&host);
}

static void a_space_keeps_its_books_in_the_host_memory_too(void) {
  struct watched_host host;
  watched_init(&host);
  const slicepool_host table = watched_table(&host, HOOK_MEMORY | HOOK_LOCK | HOOK_WAIT);
  slicepool_space_config config = SLICEPOOL_SPACE_CONFIG_INIT;
  config.size = 1000000;
  config.host = &table;
  slicepool_space *space = NULL;
  OK(slicepool_space_create(&config, &space));
  CHECK_EQ(host.allocations, 3);
  for (int round = 0; round < 2; round++) {
    const uint64_t before = host.allocations;
    for (int i = 0; i < 5000; i++) cut(space, 100, 1);
    check_space_books(space);
    CHECK((round == 0) == (host.allocations > before));
    OK(slicepool_space_clear(space));
  }
  CHECK_LE(space_figures_of(space).metadata_bytes, host.bytes);
  OK(slicepool_space_grow(space, UINT64_C(1) << 30));
  cut(space, UINT64_C(1) << 30, 1);
  OK(slicepool_space_destroy(space));
  CHECK_EQ(host.locks, 0);
  CHECK_EQ(host.waits, 0);
  watched_end(&host);
}

static void the_table_of_hooks_is_copied(void) {
  struct mock_device device;
  struct watched_host host;
  watch_device(&device);
  watched_init(&host);
  slicepool_host table = watched_table(&host, HOOK_MEMORY | HOOK_LOCK);
  slicepool_allocator *allocator = NULL;
  OK(try_create(&device, &table, 0, &allocator));
  memset(&table, 0x11, sizeof table);
  churn(allocator, 3, 5000);
  finish(allocator, &device);
  watched_end(&host);
}

/* Host memory between two inaccessible pages: a byte too far, and the test crashes. */
static void *walled_allocate(void *user_data, uint64_t size, uint64_t alignment) {
  uint64_t *live = user_data;
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
  CHECK(alignment <= page);
  const uint64_t room = (size + page - 1) / page * page;
  unsigned char *memory = mmap(NULL, room + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  CHECK(mprotect(memory + page, room, PROT_READ | PROT_WRITE) == 0);
  ++*live;
  return memory + page + (room - size) / alignment * alignment;
}

static void walled_deallocate(void *user_data, void *memory, uint64_t size, uint64_t alignment) {
  uint64_t *live = user_data;
  const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), room = (size + page - 1) / page * page;
  (void)alignment;
  uintptr_t start = (uintptr_t)memory / page * page;
  CHECK(munmap((void *)(start - page), room + 2 * page) == 0);
  --*live;
}

static void the_library_stays_inside_its_host_memory(void) {
  struct mock_device device;
  mock_init(&device);
  uint64_t live = 0;
  slicepool_host host = SLICEPOOL_HOST_INIT;
  host.user_data = &live;
  host.allocate = walled_allocate;
  host.deallocate = walled_deallocate;
  slicepool_allocator *allocator = NULL;
  OK(try_create(&device, &host, 0, &allocator));
  churn(allocator, 4, is_slow() ? 2000 : 20000);
  finish(allocator, &device);
  CHECK_EQ(live, 0);

  slicepool_space_config config = SLICEPOOL_SPACE_CONFIG_INIT;
  config.size = 100000;
  config.host = &host;
  slicepool_space *space = NULL;
  OK(slicepool_space_create(&config, &space));
  for (int i = 0; i < 3000; i++) cut(space, 1 + (uint64_t)i % 60, 1);
  OK(slicepool_space_grow(space, UINT64_C(1) << 31));
  cut(space, UINT64_C(1) << 31, 1);
  check_space_books(space);
  OK(slicepool_space_destroy(space));
  CHECK_EQ(live, 0);
}

/* ---- host memory that runs out */

/* A step that host memory may fail: then nothing has changed, and it succeeds once there is memory again. */
struct attempt {
  struct watched_host *host;
  slicepool_allocator *allocator; /* NULL before it is created */
  slicepool_space *space;
  slicepool_statistics before;
  slicepool_space_statistics space_before;
  uint64_t failures;
};

static void before_step(struct attempt *attempt) {
  if (attempt->allocator != NULL) attempt->before = figures_of(attempt->allocator);
  if (attempt->space != NULL) attempt->space_before = space_figures_of(attempt->space);
}

static bool must_try_again(struct attempt *attempt, slicepool_result result) {
  if (result == SLICEPOOL_OK) return false;
  CHECK_RESULT(result, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
  attempt->failures++;
  attempt->host->fail_at = 0;
  attempt->host->fail_from_then_on = false;
  if (attempt->allocator != NULL) {
    slicepool_statistics now = figures_of(attempt->allocator);
    /* What was got before memory ran out stays for next time. */
    now.metadata_bytes = attempt->before.metadata_bytes;
    /* Pages and slices of a batch were there for a while. */
    now.largest_allocation_bytes = attempt->before.largest_allocation_bytes;
    now.device_allocations = attempt->before.device_allocations;
    now.device_deallocations = attempt->before.device_deallocations;
    now.in_use_peak_bytes = attempt->before.in_use_peak_bytes;
    now.reserved_peak_bytes = attempt->before.reserved_peak_bytes;
    now.pages_peak = attempt->before.pages_peak;
    CHECK(memcmp(&now, &attempt->before, sizeof now) == 0);
  }
  if (attempt->space != NULL) {
    slicepool_space_statistics now = space_figures_of(attempt->space);
    now.metadata_bytes = attempt->space_before.metadata_bytes;
    CHECK(memcmp(&now, &attempt->space_before, sizeof now) == 0);
  }
  return true;
}

#define STEP(attempt, call)                                     \
  do {                                                          \
    before_step(attempt);                                       \
    if (must_try_again(attempt, (call))) {                      \
      before_step(attempt);                                     \
      OK(call);                                                 \
    }                                                           \
  } while (0)

/* Does a bit of everything; the `fail_at`-th host allocation fails. Answers whether there were that many. */
static bool run_short_of_host_memory(uint64_t fail_at, bool from_then_on) {
  enum { COUNT = 300, BATCH = 40 };
  struct mock_device device;
  struct watched_host host;
  watch_device(&device);
  watched_init(&host);
  const slicepool_host table = watched_table(&host, HOOK_MEMORY | HOOK_LOCK);
  struct attempt attempt = { .host = &host };
  host.fail_at = fail_at;
  host.fail_from_then_on = from_then_on;

  slicepool_allocator *allocator = NULL;
  if (must_try_again(&attempt, try_create(&device, &table, 0, &allocator))) {
    CHECK(allocator == NULL);
    CHECK_EQ(host.live, 0);
    OK(try_create(&device, &table, 0, &allocator));
  }
  attempt.allocator = allocator;

  slicepool_slice slices[COUNT];
  for (int i = 0; i < COUNT; i++) {
    slices[i] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
    const uint64_t size = i % 10 == 9 ? 40000 : 64 * ((uint64_t)i % 32 + 1);
    STEP(&attempt, try_take(allocator, size, i % 7 == 0 ? 1024 : 0, &slices[i], NULL));
  }
  for (int i = 0; i < COUNT; i += 2) OK(slicepool_free(allocator, slices[i].id));
  for (int i = 1; i < COUNT; i += 2) {
    slicepool_slice resized = SLICEPOOL_SLICE_INIT;
    STEP(&attempt, slicepool_try_resize(allocator, slices[i].id, 32, &resized, NULL));
  }
  slicepool_request requests[BATCH];
  slicepool_slice batch[BATCH];
  for (int i = 0; i < BATCH; i++) {
    requests[i] = (slicepool_request)SLICEPOOL_REQUEST_INIT;
    requests[i].size = i % 4 == 0 ? 300000 : 1000;
    batch[i] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
  }
  STEP(&attempt, slicepool_allocate_many(allocator, requests, BATCH, batch));
  uint64_t ids[BATCH];
  for (int i = 0; i < BATCH; i++) ids[i] = batch[i].id;
  STEP(&attempt, slicepool_free_many(allocator, ids, BATCH, NULL));
  STEP(&attempt, slicepool_trim(allocator, 0, NULL));
  check_books(allocator, &device);

  slicepool_space_config config = SLICEPOOL_SPACE_CONFIG_INIT;
  config.size = 100000;
  config.host = &table;
  slicepool_space *space = NULL;
  STEP(&attempt, slicepool_space_create(&config, &space));
  attempt.space = space;
  slicepool_space_slice pieces[COUNT];
  for (int i = 0; i < COUNT; i++) {
    pieces[i] = (slicepool_space_slice)SLICEPOOL_SPACE_SLICE_INIT;
    STEP(&attempt, slicepool_space_allocate(space, 10, i % 3 == 0 ? 32 : 1, &pieces[i], NULL));
  }
  for (int i = 0; i < COUNT; i++) {
    slicepool_space_slice resized = SLICEPOOL_SPACE_SLICE_INIT;
    STEP(&attempt, slicepool_space_try_resize(space, pieces[i].id, 5, &resized, NULL));
  }
  STEP(&attempt, slicepool_space_grow(space, UINT64_C(1) << 31));
  check_space_books(space);
  OK(slicepool_space_destroy(space));

  for (int i = 1; i < COUNT; i += 2) OK(slicepool_free(allocator, slices[i].id));
  finish(allocator, &device);
  const bool failed = host.refusals != 0;
  host.fail_at = 0;
  watched_end(&host);
  /* A request may have been served by another pool instead. */
  CHECK_LE(attempt.failures, host.refusals);
  CHECK(from_then_on ? attempt.failures == (failed ? 1 : 0) : true);
  return failed;
}

static void every_host_allocation_may_fail_once(void) {
  uint64_t k = 1;
  while (run_short_of_host_memory(k, false)) k += is_slow() ? 5 : 1;
  /* Objects, pools, nodes, pages, the ledger, a batch, a space. */
  CHECK(k > 30);
}

static void host_memory_may_be_gone_for_good(void) {
  uint64_t k = 1;
  while (run_short_of_host_memory(k, true)) k += is_slow() ? 5 : 1;
  CHECK(k > 30);
}

/* A free needs no memory: it cannot fail for want of it. */
static void frees_and_queries_work_without_any_host_memory(void) {
  struct mock_device device;
  struct watched_host host;
  watch_device(&device);
  watched_init(&host);
  slicepool_allocator *allocator = create_hooked(&device, &host, HOOK_MEMORY);
  enum { COUNT = 2000 };
  static uint64_t ids[COUNT];
  for (int i = 0; i < COUNT; i++) ids[i] = take(allocator, 100 + (uint64_t)i).id;
  host.fail_at = 1;
  host.fail_from_then_on = true;
  figures_of(allocator);
  largest_free_of(allocator);
  for (int i = 0; i < COUNT; i++) look_up(allocator, ids[i]);
  for (int i = 0; i < COUNT / 2; i++) OK(slicepool_free(allocator, ids[i]));
  OK(slicepool_free_many(allocator, ids + COUNT / 2, COUNT / 2, NULL));
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(device.live, 0);
  uint64_t needed = 0;
  OK(slicepool_report_json(allocator, NULL, 0, &needed));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  mock_end(&device);
  watched_end(&host);
}

/* ---- locks */

static void lock_hooks_are_never_nested_nor_held_during_callbacks(void) {
  struct mock_device device;
  struct watched_host host;
  watch_device(&device);
  watched_init(&host);
  slicepool_allocator *allocator = create_hooked(&device, &host, HOOK_MEMORY | HOOK_LOCK | HOOK_WAIT);
  churn(allocator, 5, rounds(200000));
  OK(slicepool_trim(allocator, 0, NULL));
  churn(allocator, 6, 5000);
  CHECK(host.locks != 0);
  CHECK_EQ(host.locks, host.unlocks);
  CHECK_EQ(host.waits, 0);
  finish(allocator, &device);
  watched_end(&host);
}

struct churner {
  slicepool_allocator *allocator;
  uint64_t seed, operations;
};

static void *churn_in_thread(void *argument) {
  struct churner *churner = argument;
  churn(churner->allocator, churner->seed, churner->operations);
  CHECK_EQ(locks_held, 0);
  return NULL;
}

static void churn_in_threads(slicepool_allocator *allocator, uint64_t operations) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  struct churner churners[THREADS];
  for (uint64_t t = 0; t < THREADS; t++) {
    churners[t] = (struct churner){ allocator, 100 + t, operations };
    CHECK(pthread_create(&threads[t], NULL, churn_in_thread, &churners[t]) == 0);
  }
  for (int t = 0; t < THREADS; t++) CHECK(pthread_join(threads[t], NULL) == 0);
}

static void threads_share_one_plain_mutex(void) {
  struct mock_device device;
  struct watched_host host;
  watch_device(&device);
  watched_init(&host);
  slicepool_allocator *allocator = create_hooked(&device, &host, HOOK_MEMORY | HOOK_LOCK);
  churn_in_threads(allocator, rounds(100000));
  finish(allocator, &device);
  watched_end(&host);
}

/* One mutex for two allocators: no call of one takes the lock within a call of the other. */
static void allocators_may_share_one_mutex(void) {
  struct mock_device device, other_device;
  struct watched_host host;
  watch_device(&device);
  watch_device(&other_device);
  watched_init(&host);
  slicepool_allocator *allocator = create_hooked(&device, &host, HOOK_LOCK);
  slicepool_allocator *other = create_hooked(&other_device, &host, HOOK_LOCK);
  churn(allocator, 7, 3000);
  churn(other, 7, 3000);
  finish(allocator, &device);
  finish(other, &other_device);
  watched_end(&host);
}

static void no_lock_hook_is_called_when_the_caller_synchronises(void) {
  struct mock_device device;
  struct watched_host host;
  watch_device(&device);
  watched_init(&host);
  const slicepool_host table = watched_table(&host, HOOK_MEMORY | HOOK_LOCK | HOOK_WAIT);
  slicepool_allocator *allocator = NULL;
  OK(try_create(&device, &table, SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED, &allocator));
  churn(allocator, 8, 5000);
  CHECK_EQ(host.locks, 0);
  CHECK_EQ(host.waits, 0);
  finish(allocator, &device);
  watched_end(&host);
}

/* A callback that allocates what would fit into the page it is getting: that request waits in vain, step by step. */
static slicepool_allocator *waiting;

static void allocate_while_growing(struct mock_device *device) {
  device->in_allocate = NULL;
  OK(slicepool_free(waiting, take(waiting, 64).id));
}

static void a_request_waits_for_a_growing_page_by_the_wait_hook(void) {
  static const uint32_t steps[] = { 0, 1, 5, 1000 };
  for (size_t s = 0; s < sizeof steps / sizeof *steps; s++) {
    struct mock_device device;
    struct watched_host host;
    mock_init(&device);
    watched_init(&host);
    const slicepool_host host_table = watched_table(&host, HOOK_WAIT);
    const slicepool_device table = mock_table(&device);
    const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
    slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
    config.growth_wait_steps = steps[s];
    config.pools = &pool;
    config.pool_count = 1;
    config.host = &host_table;
    OK(slicepool_allocator_create(&table, &config, &waiting));
    device.in_allocate = allocate_while_growing;
    OK(slicepool_free(waiting, take(waiting, 64).id));
    CHECK_EQ(host.waits, steps[s] == 0 ? 32 : steps[s]);
    CHECK(host.attempts_rise);
    CHECK_EQ(host.last_attempt, (steps[s] == 0 ? 32 : steps[s]) - 1);
    finish(waiting, &device);
    watched_end(&host);
  }
}

/* Many threads and few processors: somebody is bound to meet a lock that is taken. */
static void the_wait_hook_serves_a_contended_spin_lock(void) {
  struct mock_device device;
  struct watched_host host;
  watch_device(&device);
  watched_init(&host);
  slicepool_allocator *allocator = create_hooked(&device, &host, HOOK_MEMORY | HOOK_WAIT);
  for (int round = 0; round < 50 && host.waits == 0; round++) churn_in_threads(allocator, 20000);
  CHECK(host.waits != 0);
  finish(allocator, &device);
  watched_end(&host);
}

static const struct test tests[] = {
  TEST(host_memory_is_given_back_as_it_was_got),
  TEST(the_figures_count_nearly_all_host_memory),
  TEST(the_steady_path_gets_no_host_memory),
  TEST(a_space_keeps_its_books_in_the_host_memory_too),
  TEST(the_table_of_hooks_is_copied),
  TEST(the_library_stays_inside_its_host_memory),
  TEST(every_host_allocation_may_fail_once),
  TEST(host_memory_may_be_gone_for_good),
  TEST(frees_and_queries_work_without_any_host_memory),
  TEST(lock_hooks_are_never_nested_nor_held_during_callbacks),
  TEST(threads_share_one_plain_mutex),
  TEST(allocators_may_share_one_mutex),
  TEST(no_lock_hook_is_called_when_the_caller_synchronises),
  TEST(a_request_waits_for_a_growing_page_by_the_wait_hook),
  TEST(the_wait_hook_serves_a_contended_spin_lock),
};

TEST_MAIN(tests)
