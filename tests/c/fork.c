/* After fork() the child may only abandon what it inherits, whatever the parent's threads were doing; then it uses an
 * allocator of its own. */
#include "check.h"
#include "shorthand.h"

struct hammer {
  struct mock_device device;
  slicepool_allocator *allocator;
  uint64_t seed;
  bool over; /* atomic */
};

/* Set in children: from then on nobody may call back into the parent's device, locks or memory. */
static bool in_child;

static void never_in_a_child(struct mock_device *device) {
  (void)device;
  CHECK(!in_child);
}

static void *run_hammer(void *argument) {
  enum { SLOTS = 3000 };
  static _Thread_local uint64_t ids[SLOTS];
  struct hammer *hammer = argument;
  uint64_t state = hammer->seed;
  memset(ids, 0, sizeof ids);
  for (uint64_t i = 0; !__atomic_load_n(&hammer->over, __ATOMIC_ACQUIRE); i++) {
    uint64_t *id = &ids[i % SLOTS];
    OK(slicepool_free(hammer->allocator, *id));
    *id = take(hammer->allocator, random_between(&state, 1, 2000)).id;
    if (random_between(&state, 0, 63) == 0) OK(slicepool_trim(hammer->allocator, 0, NULL));
    if (random_between(&state, 0, 255) == 0) OK(slicepool_free(hammer->allocator, take(hammer->allocator, 65536).id));
  }
  for (int i = 0; i < SLOTS; i++) OK(slicepool_free(hammer->allocator, ids[i]));
  return NULL;
}

/* What a child does with the inherited allocator, and then with one of its own. */
static void abandon_and_start_anew(slicepool_allocator *inherited) {
  in_child = true;
  alarm(20);
  OK(slicepool_allocator_abandon(inherited, SLICEPOOL_ABANDON_FORKED));
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *own = create(&device, sliced(65536, 0, 0, 64));
  uint64_t ids[500];
  for (int i = 0; i < 500; i++) ids[i] = take(own, 1 + (uint64_t)i * 7).id;
  check_books(own, &device);
  OK(slicepool_free_many(own, ids, 500, NULL));
  finish(own, &device);
}

static void wait_for_child(pid_t child) {
  int end = end_of_child(child);
  if (end != 0) FAIL("the child ended with %d", end);
}

static void a_child_abandons_while_threads_of_the_parent_were_at_work(void) {
  enum { THREADS = 2 };
  uint64_t state = 1;
  for (uint64_t round = 0; round < rounds(1000) / 2 + 1; round++) {
    struct hammer hammer;
    memset(&hammer, 0, sizeof hammer);
    mock_init(&hammer.device);
    hammer.device.in_allocate = never_in_a_child;
    hammer.device.in_deallocate = never_in_a_child;
    hammer.allocator = create(&hammer.device, sliced(65536, 0, 0, 64));
    hammer.seed = round;
    pthread_t threads[THREADS];
    for (int t = 0; t < THREADS; t++) CHECK(pthread_create(&threads[t], NULL, run_hammer, &hammer) == 0);
    /* Early rounds meet the books while they grow. */
    usleep((useconds_t)random_between(&state, 0, round % 4 == 0 ? 3000 : 300));
    fflush(stdout);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      abandon_and_start_anew(hammer.allocator);
      _exit(0);
    }
    wait_for_child(child);
    __atomic_store_n(&hammer.over, true, __ATOMIC_RELEASE);
    for (int t = 0; t < THREADS; t++) CHECK(pthread_join(threads[t], NULL) == 0);
    finish(hammer.allocator, &hammer.device);
  }
}

/* ---- a callback that is running at the fork */

static bool callback_runs, callback_may_end; /* atomic */

static void wait_in_callback(struct mock_device *device) {
  (void)device;
  CHECK(!in_child);
  __atomic_store_n(&callback_runs, true, __ATOMIC_RELEASE);
  while (!__atomic_load_n(&callback_may_end, __ATOMIC_ACQUIRE)) usleep(100);
}

static void *take_one(void *allocator) {
  OK(slicepool_free(allocator, take(allocator, 100).id));
  return NULL;
}

static void a_callback_that_ran_at_the_fork_is_busy_unless_the_flag_says_forked(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(65536, 0, 0, 64));
  OK(slicepool_free(allocator, take(allocator, 100).id));
  OK(slicepool_cleanup(allocator, NULL));
  device.in_allocate = wait_in_callback;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, take_one, allocator) == 0);
  while (!__atomic_load_n(&callback_runs, __ATOMIC_ACQUIRE)) usleep(100);
  CHECK_EQ(figures_of(allocator).growths_in_flight, 1);
  fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK_RESULT(slicepool_allocator_abandon(allocator, 0), SLICEPOOL_ERROR_BUSY);
    abandon_and_start_anew(allocator);
    _exit(0);
  }
  wait_for_child(child);
  /* The parent goes on as if nothing had happened. */
  CHECK_RESULT(slicepool_allocator_abandon(allocator, 0), SLICEPOOL_ERROR_BUSY);
  __atomic_store_n(&callback_may_end, true, __ATOMIC_RELEASE);
  CHECK(pthread_join(thread, NULL) == 0);
  device.in_allocate = NULL;
  finish(allocator, &device);
}

/* ---- hooks in the child: memory comes back, no lock is taken */

static pthread_mutex_t held_lock = PTHREAD_MUTEX_INITIALIZER;

static void lock_of_parent(void *user_data) {
  (void)user_data;
  CHECK(!in_child);
  CHECK(pthread_mutex_lock(&held_lock) == 0);
}

static void unlock_of_parent(void *user_data) {
  (void)user_data;
  CHECK(!in_child);
  CHECK(pthread_mutex_unlock(&held_lock) == 0);
}

static void *counting_allocate(void *user_data, uint64_t size, uint64_t alignment) {
  uint64_t *live = user_data;
  void *memory = NULL;
  if (alignment < sizeof(void *)) alignment = sizeof(void *);
  if (posix_memalign(&memory, alignment, size) != 0) return NULL;
  ++*live;
  return memory;
}

static void counting_deallocate(void *user_data, void *memory, uint64_t size, uint64_t alignment) {
  uint64_t *live = user_data;
  (void)size;
  (void)alignment;
  free(memory);
  --*live;
}

static void an_abandoned_allocator_frees_its_memory_and_takes_no_lock(void) {
  uint64_t live = 0;
  struct mock_device device;
  mock_init(&device);
  device.in_deallocate = never_in_a_child;
  const slicepool_device table = mock_table(&device);
  slicepool_host host = SLICEPOOL_HOST_INIT;
  host.user_data = &live;
  host.allocate = counting_allocate;
  host.deallocate = counting_deallocate;
  host.lock = lock_of_parent;
  host.unlock = unlock_of_parent;
  const slicepool_pool_options pool = sliced(65536, 0, 0, 64);
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.pools = &pool;
  config.pool_count = 1;
  config.host = &host;
  /* The allocator is the only owner of its budget, which goes with it. */
  slicepool_budget_config budget_config = SLICEPOOL_BUDGET_CONFIG_INIT;
  budget_config.host = &host;
  OK(slicepool_budget_create(&budget_config, &config.budget));
  slicepool_allocator *allocator = NULL;
  OK(slicepool_allocator_create(&table, &config, &allocator));
  OK(slicepool_budget_release(config.budget));
  for (int i = 0; i < 3000; i++) take(allocator, 200);
  for (uint32_t i = 0; i < 100; i++) {
    const slicepool_point points[2] = { { i, 0, 1 }, { i + 1, 0, 1 } };
    const uint64_t id = take_flagged(allocator, 200, i % 2 == 0 ? SLICEPOOL_REQUEST_PERSISTENT : 0).id;
    OK(slicepool_free_after(allocator, id, points, 2, NULL));
  }
  CHECK(live != 0);
  /* At the fork another thread holds the lock, which nobody will ever give up in the child. */
  CHECK(pthread_mutex_lock(&held_lock) == 0);
  fflush(stdout);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    abandon_and_start_anew(allocator);
    CHECK_EQ(live, 0);
    _exit(0);
  }
  wait_for_child(child);
  CHECK(pthread_mutex_unlock(&held_lock) == 0);
  CHECK(live != 0);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  CHECK_EQ(live, 0);
  mock_end(&device);
}

static void a_child_of_a_quiet_parent_abandons_without_a_flag_too(void) {
  struct mock_device device;
  mock_init(&device);
  device.in_deallocate = never_in_a_child;
  slicepool_allocator *allocator = create(&device, sliced(65536, 0, 0, 64));
  uint64_t id = take(allocator, 100).id;
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    in_child = true;
    OK(slicepool_allocator_abandon(allocator, 0));
    _exit(0);
  }
  wait_for_child(child);
  OK(slicepool_free(allocator, id));
  finish(allocator, &device);
}

static const struct test tests[] = {
  TEST(a_child_abandons_while_threads_of_the_parent_were_at_work),
  TEST(a_callback_that_ran_at_the_fork_is_busy_unless_the_flag_says_forked),
  TEST(an_abandoned_allocator_frees_its_memory_and_takes_no_lock),
  TEST(a_child_of_a_quiet_parent_abandons_without_a_flag_too),
};

TEST_MAIN(tests)
