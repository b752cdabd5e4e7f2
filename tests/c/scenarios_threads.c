/* What users ran into: threads and callbacks. The number is in each comment. */
#include "check.h"
#include "shorthand.h"

enum { SHARED_SLOTS = 256 };

struct shared_list {
  pthread_mutex_t mutex;
  slicepool_allocator *allocator;
  struct {
    slicepool_slice slice;
    uint64_t stamp, requested;
  } slots[SHARED_SLOTS];
  uint64_t operations;
};

struct worker {
  struct shared_list *list;
  uint64_t number;
};

static void write_stamp(const slicepool_slice *slice, uint64_t requested, uint64_t stamp) {
  unsigned char *bytes = slice->mapped;
  memcpy(bytes, &stamp, sizeof stamp);
  memcpy(bytes + requested / 2, &stamp, sizeof stamp);
  memcpy(bytes + slice->size - sizeof stamp, &stamp, sizeof stamp);
}

static bool has_stamp(const slicepool_slice *slice, uint64_t requested, uint64_t stamp) {
  const unsigned char *bytes = slice->mapped;
  return memcmp(bytes, &stamp, sizeof stamp) == 0 && memcmp(bytes + requested / 2, &stamp, sizeof stamp) == 0 &&
         memcmp(bytes + slice->size - sizeof stamp, &stamp, sizeof stamp) == 0;
}

static void *churn_shared_list(void *argument) {
  struct worker *worker = argument;
  struct shared_list *list = worker->list;
  uint64_t state = worker->number;
  for (uint64_t i = 0; i < list->operations; i++) {
    const uint64_t at = random_between(&state, 0, SHARED_SLOTS - 1);
    CHECK(pthread_mutex_lock(&list->mutex) == 0);
    slicepool_slice slice = list->slots[at].slice;
    const uint64_t stamp = list->slots[at].stamp, requested = list->slots[at].requested;
    list->slots[at].slice.id = 0;
    CHECK(pthread_mutex_unlock(&list->mutex) == 0);
    if (slice.id != 0) {
      CHECK(has_stamp(&slice, requested, stamp));
      OK(slicepool_free(list->allocator, slice.id));
      continue;
    }
    const uint64_t wanted = random_between(&state, 100, 10000);
    slice = take(list->allocator, wanted);
    const uint64_t mine = (worker->number << 48) + i + 1;
    write_stamp(&slice, wanted, mine);
    CHECK(pthread_mutex_lock(&list->mutex) == 0);
    const bool taken = list->slots[at].slice.id != 0;
    if (!taken) {
      list->slots[at].slice = slice;
      list->slots[at].stamp = mine;
      list->slots[at].requested = wanted;
    }
    CHECK(pthread_mutex_unlock(&list->mutex) == 0);
    if (taken) {
      CHECK(has_stamp(&slice, wanted, mine));
      OK(slicepool_free(list->allocator, slice.id));
    }
  }
  return NULL;
}

/* 39. */
static void slices_of_four_threads_never_overlap(void) {
  enum { THREADS = 4 };
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  OK(slicepool_host_device(&table));
  slicepool_pool_options pool = sliced(MIB, 0, 0, 64);
  static struct shared_list list;
  memset(&list, 0, sizeof list);
  CHECK(pthread_mutex_init(&list.mutex, NULL) == 0);
  list.allocator = create_over(&table, &pool, 1, 0);
  list.operations = rounds(100000);
  pthread_t threads[THREADS];
  struct worker workers[THREADS];
  for (uint64_t t = 0; t < THREADS; t++) {
    workers[t] = (struct worker){ &list, t + 1 };
    CHECK(pthread_create(&threads[t], NULL, churn_shared_list, &workers[t]) == 0);
  }
  for (int t = 0; t < THREADS; t++) CHECK(pthread_join(threads[t], NULL) == 0);
  check_books(list.allocator, NULL);
  for (int at = 0; at < SHARED_SLOTS; at++) {
    if (list.slots[at].slice.id == 0) continue;
    CHECK(has_stamp(&list.slots[at].slice, list.slots[at].requested, list.slots[at].stamp));
    OK(slicepool_free(list.allocator, list.slots[at].slice.id));
  }
  slicepool_statistics figures = figures_of(list.allocator);
  CHECK_EQ(figures.slices, 0);
  CHECK_EQ(figures.in_use_bytes, 0);
  CHECK_EQ(figures.padding_bytes, 0);
  CHECK_EQ(figures.free_ranges, figures.pages);
  OK(slicepool_allocator_destroy(list.allocator, 0, NULL));
  CHECK(pthread_mutex_destroy(&list.mutex) == 0);
}

/* ---- every function at once */

struct mixer {
  slicepool_allocator *allocator;
  uint64_t seed, operations;
};

static int32_t count_range(void *user_data, const slicepool_range *range) {
  CHECK(range->size != 0);
  ++*(uint64_t *)user_data;
  return *(uint64_t *)user_data < 500 ? SLICEPOOL_WALK_CONTINUE : SLICEPOOL_WALK_STOP;
}

static void *call_everything_at_random(void *argument) {
  enum { SLOTS = 64, BATCH = 8 };
  struct mixer *mixer = argument;
  slicepool_allocator *allocator = mixer->allocator;
  uint64_t ids[SLOTS] = { 0 }, sizes[SLOTS] = { 0 }, state = mixer->seed, number = 0;
  for (uint64_t i = 0; i < mixer->operations; i++) {
    const uint64_t at = random_between(&state, 0, SLOTS - 1), size = random_between(&state, 1, 6000);
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    slicepool_request request = SLICEPOOL_REQUEST_INIT;
    request.size = size;
    switch (random_between(&state, 0, 15)) {
      case 0: {
        slicepool_request requests[BATCH];
        slicepool_slice slices[BATCH];
        uint64_t batch[BATCH];
        for (int b = 0; b < BATCH; b++) {
          requests[b] = request;
          slices[b] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
        }
        OK(slicepool_allocate_many(allocator, requests, BATCH, slices));
        for (int b = 0; b < BATCH; b++) batch[b] = slices[b].id;
        OK(slicepool_free_many(allocator, batch, BATCH, NULL));
        break;
      }
      case 1: OK(slicepool_trim(allocator, random_between(&state, 0, MIB), NULL)); break;
      case 2:
        number = 0;
        OK(slicepool_walk(allocator, count_range, &number));
        break;
      case 3: OK(slicepool_largest_free(allocator, &number)); break;
      case 4: OK(slicepool_report_json(allocator, NULL, 0, &number)); break;
      case 5: {
        uint32_t fits = 0;
        OK(slicepool_would_fit(allocator, &request, &fits));
        break;
      }
      case 6: {
        slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
        OK(slicepool_pool_statistics_get(allocator, 0, &figures));
        CHECK_EQ(figures.reserved_bytes, figures.in_use_bytes + figures.padding_bytes + figures.free_bytes +
                                             figures.leaving_bytes + figures.stuck_bytes);
        break;
      }
      case 7:
        if (ids[at] == 0) break;
        if (slicepool_try_resize(allocator, ids[at], size, &slice, NULL) == SLICEPOOL_OK) sizes[at] = slice.size;
        break;
      default:
        if (ids[at] == 0) {
          OK(slicepool_allocate(allocator, &request, &slice));
          ids[at] = slice.id;
          sizes[at] = slice.size;
        } else {
          CHECK_EQ(look_up(allocator, ids[at]).size, sizes[at]);
          OK(slicepool_free(allocator, ids[at]));
          CHECK_RESULT(slicepool_free(allocator, ids[at]), SLICEPOOL_ERROR_STALE_HANDLE);
          ids[at] = 0;
        }
    }
  }
  OK(slicepool_free_many(allocator, ids, SLOTS, NULL));
  return NULL;
}

/* Not in the list. */
static void all_functions_race_with_each_other_without_harm(void) {
  enum { THREADS = 4 };
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(64 * KIB, 0, 0, 64));
  pthread_t threads[THREADS];
  struct mixer mixers[THREADS];
  for (uint64_t t = 0; t < THREADS; t++) {
    mixers[t] = (struct mixer){ allocator, 50 + t, rounds(200000) };
    CHECK(pthread_create(&threads[t], NULL, call_everything_at_random, &mixers[t]) == 0);
  }
  for (int t = 0; t < THREADS; t++) CHECK(pthread_join(threads[t], NULL) == 0);
  finish(allocator, &device);
}

enum { CONTESTED = 100 };

struct contender {
  pthread_barrier_t *barrier;
  slicepool_allocator *allocator;
  uint64_t ids[CONTESTED];
  uint64_t freed;
  bool whole; /* in one call */
};

static void *free_contested(void *argument) {
  struct contender *contender = argument;
  pthread_barrier_wait(contender->barrier);
  if (contender->whole) {
    slicepool_result result = slicepool_free_many(contender->allocator, contender->ids, CONTESTED, NULL);
    CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_STALE_HANDLE);
    contender->freed = result == SLICEPOOL_OK ? CONTESTED : 0;
    return NULL;
  }
  for (int i = 0; i < CONTESTED; i++) {
    slicepool_result result = slicepool_free(contender->allocator, contender->ids[i]);
    CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_STALE_HANDLE);
    contender->freed += result == SLICEPOOL_OK;
  }
  return NULL;
}

/* Not in the list: a double free by two threads. Each slice is freed at most once; one by one, exactly once. */
static void a_handle_that_two_threads_free_is_freed_once(void) {
  pthread_barrier_t barrier;
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  const uint64_t all = 8 + rounds(2000);
  for (uint64_t round = 0; round < all; round++) {
    struct mock_device device;
    mock_init(&device);
    slicepool_allocator *allocator = create(&device, sliced(64 * KIB, 0, 0, 64));
    struct contender contenders[2];
    for (int i = 0; i < CONTESTED; i++) {
      contenders[0].ids[i] = take(allocator, 100).id;
      contenders[1].ids[round % 2 == 0 ? i : CONTESTED - 1 - i] = contenders[0].ids[i];
    }
    pthread_t threads[2];
    for (int t = 0; t < 2; t++) {
      contenders[t].barrier = &barrier;
      contenders[t].allocator = allocator;
      contenders[t].freed = 0;
      contenders[t].whole = round / 2 % (t == 0 ? 2 : 4) >= (t == 0 ? 1 : 2);
      CHECK(pthread_create(&threads[t], NULL, free_contested, &contenders[t]) == 0);
    }
    for (int t = 0; t < 2; t++) CHECK(pthread_join(threads[t], NULL) == 0);
    const uint64_t freed = contenders[0].freed + contenders[1].freed;
    CHECK_LE(freed, CONTESTED);
    if (!contenders[0].whole && !contenders[1].whole) CHECK_EQ(freed, CONTESTED);
    CHECK_EQ(figures_of(allocator).slices, CONTESTED - freed);
    for (int i = 0; i < CONTESTED; i++) {
      slicepool_result result = slicepool_free(allocator, contenders[0].ids[i]);
      CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_STALE_HANDLE);
    }
    finish(allocator, &device);
  }
  CHECK(pthread_barrier_destroy(&barrier) == 0);
}

struct published {
  slicepool_allocator *allocator;
  slicepool_slice *slices;
  uint64_t count;
  uint64_t newest; /* atomic: one more than the place of the newest slice */
  bool over;       /* atomic */
};

static void *query_published(void *argument) {
  struct published *published = argument;
  uint64_t right = 0;
  while (!__atomic_load_n(&published->over, __ATOMIC_ACQUIRE)) {
    const uint64_t newest = __atomic_load_n(&published->newest, __ATOMIC_ACQUIRE);
    if (newest == 0) continue;
    const slicepool_slice *expected = &published->slices[newest - 1];
    slicepool_slice found = SLICEPOOL_SLICE_INIT;
    slicepool_result result = slicepool_slice_get(published->allocator, expected->id, &found);
    if (result == SLICEPOOL_OK) {
      CHECK(same_slice(&found, expected));
      right++;
    } else {
      CHECK_RESULT(result, SLICEPOOL_ERROR_STALE_HANDLE);
      CHECK_EQ(found.id, 0);
    }
  }
  CHECK(right != 0);
  return NULL;
}

/* 40. */
static void a_query_races_with_frees_and_is_right_or_stale(void) {
  struct mock_device device;
  mock_init(&device);
  struct published published = { create(&device, sliced(MIB, 0, 0, 64)), NULL, rounds(500000), 0, false };
  published.slices = calloc(published.count, sizeof *published.slices);
  CHECK(published.slices != NULL);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, query_published, &published) == 0);
  uint64_t state = 40;
  for (uint64_t i = 0; i < published.count; i++) {
    published.slices[i] = take(published.allocator, random_between(&state, 1, 5000));
    __atomic_store_n(&published.newest, i + 1, __ATOMIC_RELEASE);
    /* The last one stays for a while, so that the other thread sees one alive however threads are scheduled. */
    if (i + 1 == published.count) usleep(20000);
    OK(slicepool_free(published.allocator, published.slices[i].id));
  }
  __atomic_store_n(&published.over, true, __ATOMIC_RELEASE);
  CHECK(pthread_join(thread, NULL) == 0);
  free(published.slices);
  finish(published.allocator, &device);
}

struct reentry {
  slicepool_allocator *allocator;
  int depth;
  uint64_t ids[64];
  uint64_t count;
  uint64_t busy;
};

static void allocate_from_callback(struct mock_device *device) {
  struct reentry *reentry = device->hook_data;
  if (reentry->depth == 0) {
    reentry->depth = 1;
    /* Would fit into the page that is being taken, and must not wait for it. */
    reentry->ids[reentry->count++] = take(reentry->allocator, 300).id;
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    CHECK_RESULT(slicepool_allocator_destroy(reentry->allocator, SLICEPOOL_DESTROY_FORCE, &failure),
                 SLICEPOOL_ERROR_BUSY);
    CHECK_EQ(failure.in_flight, 1);
    CHECK_RESULT(slicepool_allocator_abandon(reentry->allocator, 0), SLICEPOOL_ERROR_BUSY);
    reentry->busy++;
    reentry->depth = 0;
  }
}

/* 41. */
static void a_device_callback_may_allocate_and_free_but_not_destroy(void) {
  struct mock_device device;
  mock_init(&device);
  struct reentry reentry = { create(&device, sliced(4096, 0, 0, 256)), 0, { 0 }, 0, 0 };
  device.in_allocate = allocate_from_callback;
  device.hook_data = &reentry;
  slicepool_slice slice = take(reentry.allocator, 1000);
  CHECK_EQ(reentry.count, 1);
  CHECK_EQ(device.given, 2);
  check_books(reentry.allocator, &device);
  slicepool_slice inner = look_up(reentry.allocator, reentry.ids[0]);
  CHECK(inner.memory != slice.memory);
  OK(slicepool_free(reentry.allocator, inner.id));
  OK(slicepool_free(reentry.allocator, slice.id));
  /* While pages go back, the same holds. */
  device.in_allocate = NULL;
  device.in_deallocate = allocate_from_callback;
  OK(slicepool_trim(reentry.allocator, 0, NULL));
  CHECK(reentry.busy >= 2);
  device.in_deallocate = NULL;
  for (uint64_t i = 1; i < reentry.count; i++) OK(slicepool_free(reentry.allocator, reentry.ids[i]));
  finish(reentry.allocator, &device);
}

static void destroy_from_callback(struct mock_device *device) {
  struct reentry *reentry = device->hook_data;
  CHECK_RESULT(slicepool_allocator_destroy(reentry->allocator, SLICEPOOL_DESTROY_FORCE, NULL), SLICEPOOL_ERROR_BUSY);
  reentry->busy++;
}

/* 41. */
static void a_callback_of_destroy_is_told_busy_when_it_destroys(void) {
  struct mock_device device;
  mock_init(&device);
  struct reentry reentry = { create(&device, sliced(4096, 0, 0, 256)), 0, { 0 }, 0, 0 };
  device.in_deallocate = destroy_from_callback;
  device.hook_data = &reentry;
  OK(slicepool_free(reentry.allocator, take(reentry.allocator, 1000).id));
  OK(slicepool_allocator_destroy(reentry.allocator, 0, NULL));
  CHECK_EQ(reentry.busy, 1);
  mock_end(&device);
}

/* A device that answers as it is told to, with memory as it is told to. */
struct liar {
  slicepool_result answer;
  bool fills;
  uint64_t handle, address;
  uint64_t allocations, deallocations;
};

static slicepool_result liar_allocate(void *user_data, const slicepool_page_request *request,
                                      slicepool_device_memory *memory) {
  struct liar *liar = user_data;
  (void)request;
  liar->allocations++;
  if (liar->fills) {
    memory->handle = liar->handle;
    memory->address = liar->address;
  }
  return liar->answer;
}

static slicepool_result liar_deallocate(void *user_data, const slicepool_device_memory *memory) {
  struct liar *liar = user_data;
  CHECK(memory->handle == liar->handle && memory->address == liar->address);
  liar->deallocations++;
  return SLICEPOOL_OK;
}

/* 42. */
static void nonsense_from_a_device_is_a_failed_device_and_leaks_nothing(void) {
  struct liar liar = { SLICEPOOL_OK, false, 0, 0, 0, 0 };
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  table.user_data = &liar;
  table.allocate = liar_allocate;
  table.deallocate = liar_deallocate;
  slicepool_pool_options pool = sliced(4096, 0, 0, 256);
  slicepool_allocator *allocator = create_over(&table, &pool, 1, 0);

  slicepool_failure failure = refused(allocator, 100, 0, SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_NOT_FILLED);

  static const slicepool_result unknown[] = { 12345, 1, INT32_MAX, INT32_MIN, SLICEPOOL_ERROR_BUSY, -6, -100 };
  liar.fills = true;
  for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++) {
    liar.answer = unknown[i];
    failure = refused(allocator, 100, 0, SLICEPOOL_ERROR_DEVICE_FAILED);
    CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_UNKNOWN_RESULT);
    CHECK(failure.device_code == unknown[i]);
  }
  CHECK_EQ(liar.deallocations, 0);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 0);

  /* Handle and address 0 are as good as any: a file begins there. */
  liar.answer = SLICEPOOL_OK;
  slicepool_slice slice = take(allocator, 4096);
  CHECK(slice.memory == 0 && slice.address == 0 && slice.mapped == NULL);
  failure = refused(allocator, 4096, 0, SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_DUPLICATE);
  CHECK_EQ(liar.deallocations, 0);
  CHECK_EQ(figures_of(allocator).pages, 1);
  /* The same handle at another address is another page. */
  liar.address = 4096;
  slicepool_slice other = take(allocator, 4096);
  CHECK(other.memory == 0 && other.address == 4096);
  liar.address = 0;
  OK(slicepool_free(allocator, slice.id));
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(liar.deallocations, 1);
  /* What has come back may be given out again. */
  slicepool_slice again = take(allocator, 4096);
  OK(slicepool_free(allocator, again.id));
  OK(slicepool_cleanup(allocator, NULL));
  OK(slicepool_free(allocator, other.id));
  liar.address = 4096;
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  CHECK_EQ(liar.deallocations, 3);
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

static void grow_from_two_threads(uint64_t size, uint64_t device_capacity, uint64_t cap, slicepool_result refusal) {
  pthread_barrier_t barrier;
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  for (uint64_t round = 0; round < rounds(1000); round++) {
    struct mock_device device;
    mock_init(&device);
    device.capacity = device_capacity;
    if (round % 2 == 0) device.in_allocate = wait_a_little;
    slicepool_allocator *allocator = create(&device, sliced(4096, 0, cap, 256));
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
        CHECK_RESULT(growers[i].result, refusal);
        CHECK_LE(growers[i].failure.in_flight, 1);
      }
    }
    CHECK(served >= 1);
    if (size > 2048) CHECK_EQ(served, 1);
    CHECK_LE(device.bytes_peak, 4096);
    check_books(allocator, &device);
    for (int i = 0; i < 2; i++)
      if (growers[i].result == SLICEPOOL_OK) OK(slicepool_free(allocator, growers[i].slice.id));
    finish(allocator, &device);
  }
  CHECK(pthread_barrier_destroy(&barrier) == 0);
}

/* 43. */
static void two_threads_that_grow_into_room_for_one_page_both_get_an_answer(void) {
  grow_from_two_threads(2048, 4096, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  grow_from_two_threads(4096, 4096, 0, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  grow_from_two_threads(2048, 0, 4096, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  grow_from_two_threads(4096, 0, 4096, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
}

/* 44. */
static void pages_taken_by_a_call_that_fails_half_way_go_back(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 256));
  slicepool_slice keeper = take(allocator, 100);
  const slicepool_statistics before = figures_of(allocator);
  slicepool_request requests[5];
  slicepool_slice slices[5];
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  for (int i = 0; i < 5; i++) {
    requests[i] = (slicepool_request)SLICEPOOL_REQUEST_INIT;
    requests[i].size = 4096;
    requests[i].failure = &failure;
    slices[i] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
  }
  for (uint64_t fail_at = 1; fail_at <= 5; fail_at++) {
    /* The device is asked again although it has just refused. */
    OK(slicepool_trim(allocator, UINT64_MAX, NULL));
    device.fail_at = device.allocate_calls + fail_at;
    CHECK_RESULT(slicepool_allocate_many(allocator, requests, 5, slices), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
    CHECK_EQ(failure.index, fail_at - 1);
    CHECK_EQ(failure.size, 4096);
    for (int i = 0; i < 5; i++) CHECK_EQ(slices[i].id, 0);
    CHECK_EQ(device.live, 1);
    const slicepool_statistics after = figures_of(allocator);
    CHECK_EQ(after.slices, before.slices);
    CHECK_EQ(after.reserved_bytes, before.reserved_bytes);
    CHECK_EQ(after.free_bytes, before.free_bytes);
    CHECK_EQ(after.in_use_bytes, before.in_use_bytes);
    check_books(allocator, &device);
  }
  /* A device that refuses on the way back: the page is kept, and goes back at the next trim. */
  device.fail_at = device.allocate_calls + 3;
  device.refusals = 1;
  CHECK_RESULT(slicepool_allocate_many(allocator, requests, 5, slices), SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(figures_of(allocator).pages_stuck, 1);
  CHECK_EQ(device.live, 2);
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_EQ(device.live, 1);
  device.fail_at = 0;
  OK(slicepool_allocate_many(allocator, requests, 5, slices));
  for (int i = 0; i < 5; i++) OK(slicepool_free(allocator, slices[i].id));
  OK(slicepool_free(allocator, keeper.id));
  finish(allocator, &device);
}

/* 44. */
static void a_page_that_the_device_refuses_is_kept_and_asked_about_again(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 256));
  uint64_t ids[3];
  for (int i = 0; i < 3; i++) ids[i] = take(allocator, 4096).id;
  OK(slicepool_free_many(allocator, ids, 3, NULL));
  device.refusals = 1;
  device.refusal = 12345;
  CHECK_RESULT(slicepool_trim(allocator, 0, NULL), SLICEPOOL_ERROR_DEVICE_FAILED);
  slicepool_statistics figures = figures_of(allocator);
  CHECK_EQ(figures.pages_stuck, 1);
  CHECK_EQ(figures.stuck_bytes, 4096);
  CHECK_EQ(figures.pages, 0);
  CHECK_EQ(device.live, 1);
  /* It is no memory to allocate from. */
  slicepool_slice slice = take(allocator, 4096);
  CHECK_EQ(device.given, 4);
  OK(slicepool_free(allocator, slice.id));
  device.refusals = 2;
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_allocator_destroy(allocator, 0, &failure), SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_REFUSED);
  CHECK(failure.device_code == 12345);
  CHECK_EQ(device.live, 2);
  slice = take(allocator, 4096);
  OK(slicepool_free(allocator, slice.id));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  mock_end(&device);
}

/* 44. */
static void a_forced_destroy_gives_back_pages_with_live_slices_once_each(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 256));
  for (int i = 0; i < 40; i++) take(allocator, 1000);
  CHECK_EQ(device.live, 10);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  CHECK_EQ(device.deallocate_calls, 10);
  mock_end(&device);
}

/* 44. */
static void an_abandoned_allocator_says_no_word_to_the_device(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 256));
  for (int i = 0; i < 8; i++) take(allocator, 1000);
  OK(slicepool_allocator_abandon(allocator, 0));
  CHECK_EQ(device.deallocate_calls, 0);
  CHECK_EQ(device.live, 2);
  free(device.pages);
  CHECK(pthread_mutex_destroy(&device.mutex) == 0);
}

static const struct test tests[] = {
  TEST(slices_of_four_threads_never_overlap),
  TEST(all_functions_race_with_each_other_without_harm),
  TEST(a_handle_that_two_threads_free_is_freed_once),
  TEST(a_query_races_with_frees_and_is_right_or_stale),
  TEST(a_device_callback_may_allocate_and_free_but_not_destroy),
  TEST(a_callback_of_destroy_is_told_busy_when_it_destroys),
  TEST(nonsense_from_a_device_is_a_failed_device_and_leaks_nothing),
  TEST(two_threads_that_grow_into_room_for_one_page_both_get_an_answer),
  TEST(pages_taken_by_a_call_that_fails_half_way_go_back),
  TEST(a_page_that_the_device_refuses_is_kept_and_asked_about_again),
  TEST(a_forced_destroy_gives_back_pages_with_live_slices_once_each),
  TEST(an_abandoned_allocator_says_no_word_to_the_device),
};

TEST_MAIN(tests)
