/* Everything at once, from four threads: slices that are filled, that wait, that are persistent, under a budget, over a
 * device that is often full, often late and fails at times. Every slice bears its owner's stamp as long as it is his. */
#include "check.h"
#include "shorthand.h"

#include <stdatomic.h>

enum { THREADS = 4, TIMELINES = 3 };

/* ---- a device of host memory whose work takes until somebody looks */

struct late_device {
  slicepool_allocator *allocator; /* that collects in `out_of_memory` */
  atomic_ulong submitted[TIMELINES];
  atomic_ulong pages; /* that it has given out */
  atomic_uint moods; /* counts calls, of which some fail */
};

static bool in_bad_mood(struct late_device *device, unsigned one_in) {
  return one_in != 0 && atomic_fetch_add(&device->moods, 1) % one_in == 0;
}

static slicepool_result late_allocate(void *user_data, const slicepool_page_request *request,
                                      slicepool_device_memory *memory) {
  struct late_device *device = user_data;
  if (in_bad_mood(device, 31)) return SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY;
  atomic_fetch_add(&device->pages, 1);
  void *block = NULL;
  CHECK(posix_memalign(&block, request->alignment < 64 ? 64 : request->alignment, request->size) == 0);
  memset(block, 0x99, request->size);
  memory->handle = memory->address = (uintptr_t)block;
  memory->mapped = block;
  return SLICEPOOL_OK;
}

static slicepool_result late_deallocate(void *user_data, const slicepool_device_memory *memory) {
  struct late_device *device = user_data;
  if (in_bad_mood(device, 29)) return SLICEPOOL_ERROR_DEVICE_FAILED;
  memset(memory->mapped, 0x66, memory->size);
  free(memory->mapped);
  atomic_fetch_sub(&device->pages, 1);
  return SLICEPOOL_OK;
}

static slicepool_result late_completed(void *user_data, uint32_t timeline, uint64_t *completed) {
  struct late_device *device = user_data;
  if (timeline >= TIMELINES || in_bad_mood(device, 7)) return SLICEPOOL_ERROR_NOT_SUPPORTED;
  *completed = atomic_load(&device->submitted[timeline]);
  return SLICEPOOL_OK;
}

static int32_t late_out_of_memory(void *user_data, const slicepool_shortage *shortage) {
  struct late_device *device = user_data;
  const uint32_t timeline = shortage->attempt % TIMELINES;
  const slicepool_result result =
      slicepool_collect(device->allocator, timeline, atomic_load(&device->submitted[timeline]), NULL);
  CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_DEVICE_FAILED);
  return shortage->attempt < TIMELINES ? SLICEPOOL_SHORTAGE_RETRY : SLICEPOOL_SHORTAGE_REFUSE;
}

static slicepool_result late_fill(void *user_data, const slicepool_fill_request *request, slicepool_point *point) {
  struct late_device *device = user_data;
  if (in_bad_mood(device, 23)) return SLICEPOOL_ERROR_DEVICE_FAILED;
  memset(request->mapped, 0, request->size);
  if (request->reason == SLICEPOOL_FILL_SCRUB && in_bad_mood(device, 3)) {
    point->timeline = (uint32_t)(request->offset / 64 % TIMELINES);
    point->value = atomic_fetch_add(&device->submitted[point->timeline], 1) + 1;
  }
  return SLICEPOOL_OK;
}

/* ---- its users */

struct user {
  slicepool_allocator *allocator;
  struct late_device *device;
  uint64_t seed, operations, served, refusals;
};

struct owned {
  slicepool_slice slice;
  unsigned char stamp;
};

static bool is_all(const void *memory, uint64_t size, unsigned char byte) {
  const unsigned char *bytes = memory;
  for (uint64_t i = 0; i < size; i++)
    if (bytes[i] != byte) return false;
  return true;
}

static bool is_shortage(slicepool_result result) {
  return result == SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY || result == SLICEPOOL_ERROR_BUDGET_EXCEEDED ||
         result == SLICEPOOL_ERROR_PAGE_COUNT_EXCEEDED || result == SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED;
}

static void take_one(struct user *user, struct owned *owned, uint64_t *state) {
  static const uint32_t flags[] = { 0, 0, 0, SLICEPOOL_REQUEST_ZERO, SLICEPOOL_REQUEST_SCRUB,
                                    SLICEPOOL_REQUEST_PERSISTENT,
                                    SLICEPOOL_REQUEST_ZERO | SLICEPOOL_REQUEST_SCRUB,
                                    SLICEPOOL_REQUEST_PERSISTENT | SLICEPOOL_REQUEST_SCRUB };
  const uint32_t flag = flags[random_between(state, 0, 7)];
  /* Few sizes of persistent slices, which nobody but a cleanup takes back. */
  const uint64_t size = flag & SLICEPOOL_REQUEST_PERSISTENT ? 512 * random_between(state, 1, 3)
                                                            : random_between(state, 1, 6000);
  owned->slice = (slicepool_slice)SLICEPOOL_SLICE_INIT;
  const slicepool_result result = try_take_flagged(user->allocator, size, flag, &owned->slice, NULL);
  if (result != SLICEPOOL_OK) {
    CHECK(is_shortage(result) || (result == SLICEPOOL_ERROR_DEVICE_FAILED && (flag & SLICEPOOL_REQUEST_ZERO)));
    CHECK_EQ(owned->slice.id, 0);
    user->refusals++;
    return;
  }
  user->served++;
  if (flag & SLICEPOOL_REQUEST_ZERO) CHECK(is_all(owned->slice.mapped, owned->slice.size, 0));
  owned->stamp = (unsigned char)random_between(state, 1, 255);
  memset(owned->slice.mapped, owned->stamp, owned->slice.size);
}

static void give_one(struct user *user, struct owned *owned, uint64_t *state) {
  CHECK(is_all(owned->slice.mapped, owned->slice.size, owned->stamp));
  const uint32_t timeline = (uint32_t)random_between(state, 0, TIMELINES - 1);
  const slicepool_point points[2] = {
    { timeline, 0, atomic_fetch_add(&user->device->submitted[timeline], 1) + 1 },
    { (timeline + 1) % TIMELINES, 0, atomic_load(&user->device->submitted[(timeline + 1) % TIMELINES]) },
  };
  const uint64_t id = owned->slice.id;
  switch (random_between(state, 0, 4)) {
    case 0: OK(slicepool_free(user->allocator, id)); break;
    case 1: OK(slicepool_free_many(user->allocator, &id, 1, NULL)); break;
    case 2: OK(slicepool_free_after(user->allocator, id, points, 1, NULL)); break;
    case 3: OK(slicepool_free_after(user->allocator, id, points, 2, NULL)); break;
    default: OK(slicepool_free_after_many(user->allocator, &id, 1, points, 2, NULL)); break;
  }
  CHECK_RESULT(slicepool_free(user->allocator, id), SLICEPOOL_ERROR_STALE_HANDLE);
  owned->slice.id = 0;
}

static void *use_everything(void *argument) {
  enum { SLOTS = 24 };
  struct user *user = argument;
  struct owned slots[SLOTS];
  uint64_t state = user->seed;
  memset(slots, 0, sizeof slots);
  for (uint64_t i = 0; i < user->operations; i++) {
    struct owned *owned = &slots[random_between(&state, 0, SLOTS - 1)];
    const uint32_t timeline = (uint32_t)random_between(&state, 0, TIMELINES - 1);
    slicepool_result result = SLICEPOOL_OK;
    switch (random_between(&state, 0, 39)) {
      case 0: result = slicepool_trim(user->allocator, random_between(&state, 0, 64 * KIB), NULL); break;
      case 1: result = slicepool_cleanup(user->allocator, NULL); break;
      case 2:
      case 3:
      case 4:
        result = slicepool_collect(user->allocator, timeline, atomic_load(&user->device->submitted[timeline]), NULL);
        break;
      default:
        if (owned->slice.id == 0) take_one(user, owned, &state);
        else give_one(user, owned, &state);
    }
    /* A page that was not taken back, a slice that was not overwritten. */
    CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_DEVICE_FAILED);
  }
  for (int i = 0; i < SLOTS; i++)
    if (slots[i].slice.id != 0) give_one(user, &slots[i], &state);
  return NULL;
}

static void use_from_four_threads(const slicepool_pool_options *pools, uint32_t count, uint32_t flags) {
  struct late_device devices[2];
  slicepool_allocator *allocators[2];
  slicepool_budget *budget = NULL;
  slicepool_budget_config budget_config = SLICEPOOL_BUDGET_CONFIG_INIT;
  budget_config.max_pages = 40;
  OK(slicepool_budget_create(&budget_config, &budget));
  for (int a = 0; a < 2; a++) {
    memset(&devices[a], 0, sizeof devices[a]);
    slicepool_device table = SLICEPOOL_DEVICE_INIT;
    table.user_data = &devices[a];
    table.allocate = late_allocate;
    table.deallocate = late_deallocate;
    table.completed = late_completed;
    table.out_of_memory = late_out_of_memory;
    table.fill = late_fill;
    slicepool_allocator_config config = config_for(pools, count);
    config.budget = budget;
    config.flags = flags;
    config.persistent_granule = 64;
    devices[a].allocator = allocators[a] = create_of(&table, config);
  }
  pthread_t threads[THREADS];
  struct user users[THREADS];
  for (uint64_t t = 0; t < THREADS; t++) {
    users[t] = (struct user){ allocators[t % 2], &devices[t % 2], t + 1, 100 + rounds(20000), 0, 0 };
    CHECK(pthread_create(&threads[t], NULL, use_everything, &users[t]) == 0);
  }
  for (int t = 0; t < THREADS; t++) {
    CHECK(pthread_join(threads[t], NULL) == 0);
    CHECK(users[t].served != 0);
  }
  /* Everything can be got back, however often the device has to be asked. */
  for (int a = 0; a < 2; a++) {
    slicepool_result result = SLICEPOOL_ERROR_BUSY;
    for (int tries = 0; tries < 1000 && result != SLICEPOOL_OK; tries++) {
      for (uint32_t t = 0; t < TIMELINES; t++) {
        const slicepool_result collected =
            slicepool_collect(allocators[a], t, atomic_load(&devices[a].submitted[t]), NULL);
        CHECK(collected == SLICEPOOL_OK || collected == SLICEPOOL_ERROR_DEVICE_FAILED);
      }
      result = slicepool_allocator_destroy(allocators[a], 0, NULL);
      CHECK(result == SLICEPOOL_OK || result == SLICEPOOL_ERROR_BUSY || result == SLICEPOOL_ERROR_DEVICE_FAILED);
      if (result != SLICEPOOL_OK) {
        const slicepool_statistics figures = figures_of(allocators[a]);
        CHECK_EQ(figures.slices, 0);
        CHECK_EQ(figures.growths_in_flight, 0);
      }
    }
    OK(result);
    CHECK_EQ(atomic_load(&devices[a].pages), 0);
  }
  slicepool_budget_statistics used = SLICEPOOL_BUDGET_STATISTICS_INIT;
  OK(slicepool_budget_statistics_get(budget, &used));
  CHECK_EQ(used.pages, 0);
  CHECK_EQ(used.bytes, 0);
  CHECK_LE(used.pages_peak, 40);
  OK(slicepool_budget_release(budget));
}

static void slices_of_all_sorts_are_their_owners_alone(void) {
  for (int k = 0; k < KINDS; k++) {
    const slicepool_pool_options pools[2] = { kind_of(k).pool, sliced(16 * KIB, 0, 0, 64) };
    use_from_four_threads(pools, 1 + (uint32_t)k % 2, 0);
  }
}

static void slices_of_all_sorts_are_their_owners_alone_where_faults_are_looked_for(void) {
  const slicepool_pool_options pools[2] = { exclusive(2000, 32), sliced(16 * KIB, 0, 0, 64) };
  use_from_four_threads(pools, 2, SLICEPOOL_ALLOCATOR_DEBUG_FILL);
}

static void slices_of_all_sorts_are_their_owners_alone_where_pages_age(void) {
  const slicepool_pool_options pools[2] = { ageing(exclusive(2000, 32), 50), ageing(growing(4096, 64 * KIB, 32), 20) };
  use_from_four_threads(pools, 2, 0);
}

static const struct test tests[] = {
  TEST(slices_of_all_sorts_are_their_owners_alone),
  TEST(slices_of_all_sorts_are_their_owners_alone_where_faults_are_looked_for),
  TEST(slices_of_all_sorts_are_their_owners_alone_where_pages_age),
};

TEST_MAIN(tests)
