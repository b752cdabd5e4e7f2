/* What a program hears of an allocator: every kind of event, and a log that replays. */
#include "check.h"
#include "shorthand.h"

/* ---- a log */

struct entry {
  slicepool_event event;
  char name[SLICEPOOL_MAX_NAME + 1];
};

static struct {
  pthread_mutex_t mutex;
  struct entry *entries;
  size_t count, room;
} events = { PTHREAD_MUTEX_INITIALIZER, NULL, 0, 0 };

static void note_event(struct mock_device *device, const slicepool_event *event) {
  (void)device;
  CHECK(pthread_mutex_lock(&events.mutex) == 0);
  if (events.count == events.room) {
    events.room = events.room == 0 ? 1024 : events.room * 2;
    events.entries = realloc(events.entries, events.room * sizeof *events.entries);
    CHECK(events.entries != NULL);
  }
  struct entry *entry = &events.entries[events.count++];
  entry->event = *event;
  /* The name is there during the call only. */
  memcpy(entry->name, event->name, strlen(event->name) + 1);
  entry->event.name = NULL;
  CHECK(pthread_mutex_unlock(&events.mutex) == 0);
}

static void forget_events(void) {
  free(events.entries);
  events.entries = NULL;
  events.count = events.room = 0;
}

static const struct entry *event_at(size_t place, uint32_t kind) {
  if (place >= events.count) FAIL("there are %zu events only", events.count);
  const struct entry *entry = &events.entries[place];
  if (entry->event.kind != kind) FAIL("event %zu is of kind %" PRIu32 ", not %" PRIu32, place, entry->event.kind, kind);
  if (place != 0 && kind != SLICEPOOL_EVENT_SIZE_ROUNDED) CHECK(entry->event.sequence > entry[-1].event.sequence);
  return entry;
}

static size_t events_of(uint32_t kind) {
  size_t count = 0;
  for (size_t i = 0; i < events.count; i++) count += events.entries[i].event.kind == kind;
  return count;
}

static slicepool_allocator *create_that_tells(struct mock_device *device, const slicepool_pool_options *pools,
                                              uint32_t count, uint32_t flags) {
  mock_init(device);
  device->on_event = note_event;
  const slicepool_device table = mock_table(device);
  slicepool_allocator_config config = config_for(pools, count);
  config.flags = flags;
  return create_of(&table, config);
}

/* Everything of an event that is not said elsewhere is 0. */
static void check_page_event(const struct entry *entry, uint64_t memory, uint64_t size, uint32_t pool,
                             slicepool_result result) {
  CHECK_EQ(entry->event.memory, memory);
  CHECK_EQ(entry->event.size, size);
  CHECK_EQ(entry->event.pool, pool);
  CHECK_EQ(entry->event.memory_type, 0);
  CHECK_RESULT(entry->event.result, result);
  CHECK(entry->event.id == 0 && entry->event.offset == 0 && entry->event.requested == 0);
  CHECK(entry->name[0] == 0 && entry->event.user_data == NULL);
}

static void check_slice_event(const struct entry *entry, const slicepool_slice *slice, uint64_t requested,
                              uint32_t pool, const char *name, const void *user_data) {
  CHECK_EQ(entry->event.id, slice->id);
  CHECK_EQ(entry->event.memory, slice->memory);
  CHECK_EQ(entry->event.offset, slice->offset);
  CHECK_EQ(entry->event.size, slice->size);
  CHECK_EQ(entry->event.requested, requested);
  CHECK_EQ(entry->event.pool, pool);
  CHECK_EQ(entry->event.memory_type, 0);
  CHECK_RESULT(entry->event.result, SLICEPOOL_OK);
  CHECK_TEXT(entry->name, name);
  CHECK(entry->event.user_data == user_data);
}

/* ---- kinds */

static slicepool_slice take_labelled(slicepool_allocator *allocator, uint64_t size, const char *name, void *user_data) {
  slicepool_request request = SLICEPOOL_REQUEST_INIT;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  request.size = size;
  request.name = name;
  request.user_data = user_data;
  OK(slicepool_allocate(allocator, &request, &slice));
  CHECK(slice.user_data == user_data);
  return slice;
}

static void slices_are_told_from_their_beginning_to_their_end(void) {
  struct mock_device device;
  int mine = 0;
  const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  slicepool_allocator *allocator = create_that_tells(&device, &pool, 1, SLICEPOOL_ALLOCATOR_SLICE_EVENTS);
  slicepool_slice first = take_labelled(allocator, 1000, "the first", &mine);
  check_page_event(event_at(0, SLICEPOOL_EVENT_PAGE_ALLOCATED), first.memory, 4096, 0, SLICEPOOL_OK);
  check_slice_event(event_at(1, SLICEPOOL_EVENT_SLICE_ALLOCATED), &first, 1000, 0, "the first", &mine);
  const slicepool_slice second = take(allocator, 1);
  check_slice_event(event_at(2, SLICEPOOL_EVENT_SLICE_ALLOCATED), &second, 1, 0, "", NULL);
  OK(slicepool_try_resize(allocator, first.id, 500, &first, NULL));
  check_slice_event(event_at(3, SLICEPOOL_EVENT_SLICE_RESIZED), &first, 500, 0, "the first", &mine);
  /* What fails is not told. */
  slicepool_slice untouched = SLICEPOOL_SLICE_INIT;
  CHECK_RESULT(slicepool_try_resize(allocator, first.id, 3000, &untouched, NULL), SLICEPOOL_ERROR_NO_ROOM);
  CHECK_RESULT(slicepool_free(allocator, 12345), SLICEPOOL_ERROR_FOREIGN_HANDLE);
  CHECK_EQ(events.count, 4);
  OK(slicepool_name_set(allocator, first.id, "renamed"));
  free_at(allocator, first.id, 1, 5);
  check_slice_event(event_at(4, SLICEPOOL_EVENT_SLICE_PENDING), &first, 0, 0, "renamed", &mine);
  collect(allocator, 1, 4);
  CHECK_EQ(events.count, 5);
  collect(allocator, 1, 5);
  check_slice_event(event_at(5, SLICEPOOL_EVENT_SLICE_FREED), &first, 0, 0, "renamed", &mine);
  /* One that need not wait is free at once. */
  free_at(allocator, second.id, 1, 3);
  CHECK_EQ(events.entries[events.count - 1].event.kind, SLICEPOOL_EVENT_SLICE_FREED);
  CHECK_EQ(events.entries[events.count - 1].event.id, second.id);
  const slicepool_slice third = take_labelled(allocator, 700, NULL, &device);
  const slicepool_point point = { 1, 0, 9 };
  OK(slicepool_free_after_many(allocator, &third.id, 1, &point, 1, NULL));
  check_slice_event(event_at(events.count - 1, SLICEPOOL_EVENT_SLICE_PENDING), &third, 0, 0, "", &device);
  collect(allocator, 1, 9);
  check_slice_event(event_at(events.count - 1, SLICEPOOL_EVENT_SLICE_FREED), &third, 0, 0, "", &device);
  OK(slicepool_trim(allocator, 0, NULL));
  check_page_event(event_at(events.count - 1, SLICEPOOL_EVENT_PAGE_RETURNED), first.memory, 4096, 0, SLICEPOOL_OK);
  const size_t told = events.count;
  finish(allocator, &device);
  CHECK_EQ(events.count, told);
  forget_events();
}

static void pages_are_told_however_they_come_and_go(void) {
  struct mock_device device;
  slicepool_memory_type type = SLICEPOOL_MEMORY_TYPE_INIT;
  type.granularity = 4096;
  slicepool_pool_options pools[2] = { sliced(4096, 0, 0, 64), sliced(4096, 0, 0, 64) };
  pools[0].kinds = SLICEPOOL_KINDS_LINEAR;
  pools[1].kinds = SLICEPOOL_KINDS_OPTIMAL;
  slicepool_allocator_config config = config_for(pools, 2);
  config.memory_types = &type;
  config.memory_type_count = 1;
  mock_init(&device);
  device.on_event = note_event;
  const slicepool_device table = mock_table(&device);
  slicepool_allocator *allocator = create_of(&table, config);
  OK(slicepool_prefill(allocator, 0, 1, NULL));
  const uint64_t memory = events.count == 0 ? 0 : events.entries[0].event.memory;
  check_page_event(event_at(0, SLICEPOOL_EVENT_PAGE_ALLOCATED), MOCK_FIRST_HANDLE, 4096, 0, SLICEPOOL_OK);
  OK(slicepool_free(allocator, take_flagged(allocator, 100, SLICEPOOL_REQUEST_OPTIMAL).id));
  check_page_event(event_at(1, SLICEPOOL_EVENT_PAGE_MOVED), memory, 4096, 1, SLICEPOOL_OK);
  /* The device does not take it. */
  device.refusals = 1;
  CHECK_RESULT(slicepool_trim(allocator, 0, NULL), SLICEPOOL_ERROR_DEVICE_FAILED);
  check_page_event(event_at(2, SLICEPOOL_EVENT_PAGE_REFUSED), memory, 4096, 1, SLICEPOOL_ERROR_DEVICE_FAILED);
  OK(slicepool_trim(allocator, 0, NULL));
  check_page_event(event_at(3, SLICEPOOL_EVENT_PAGE_RETURNED), memory, 4096, 1, SLICEPOOL_OK);
  /* A page of the program's. */
  slicepool_device_memory own = SLICEPOOL_DEVICE_MEMORY_INIT;
  slicepool_page_request request = { .struct_size = sizeof request, .size = 4096, .alignment = 4096 };
  own.handle = UINT64_MAX;
  own.size = 4096;
  OK(mock_allocate(&device, &request, &own));
  own.struct_size = sizeof own;
  own.size = 4096;
  OK(slicepool_adopt(allocator, 1, &own, NULL));
  check_page_event(event_at(4, SLICEPOOL_EVENT_PAGE_ADOPTED), own.handle, 4096, 1, SLICEPOOL_OK);
  /* Pages of one slice name what stands for their pool. */
  OK(slicepool_free(allocator, take_flagged(allocator, 5000, SLICEPOOL_REQUEST_DEDICATED).id));
  check_page_event(event_at(5, SLICEPOOL_EVENT_PAGE_ALLOCATED), device.page_count - 1 + MOCK_FIRST_HANDLE, 5120,
                   slicepool_own_pool(SLICEPOOL_OWN_PAGES_DEDICATED, 0), SLICEPOOL_OK);
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(events.count, 8);
  CHECK_EQ(events_of(SLICEPOOL_EVENT_PAGE_RETURNED), 3);
  finish(allocator, &device);
  forget_events();
}

static void requests_that_cannot_be_served_are_told_with_the_reason(void) {
  struct mock_device device;
  const slicepool_pool_options pool = sliced(4096, 0, 4096, 64);
  slicepool_allocator *allocator = create_that_tells(&device, &pool, 1, 0);
  const uint64_t id = take(allocator, 4000).id;
  CHECK_EQ(events.count, 1);
  refused(allocator, 300, 0, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(events.count, 2);
  const struct entry *entry = event_at(1, SLICEPOOL_EVENT_OUT_OF_MEMORY);
  CHECK_RESULT(entry->event.result, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  CHECK_EQ(entry->event.size, 300);
  CHECK(entry->event.id == 0 && entry->event.offset == 0 && entry->name[0] == 0 && entry->event.user_data == NULL);
  device.fail_at = 2;
  slicepool_slice slice = SLICEPOOL_SLICE_INIT;
  CHECK_RESULT(try_take_flagged(allocator, 777, SLICEPOOL_REQUEST_DEDICATED, &slice, NULL),
               SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_RESULT(event_at(2, SLICEPOOL_EVENT_OUT_OF_MEMORY)->event.result, SLICEPOOL_ERROR_OUT_OF_DEVICE_MEMORY);
  CHECK_EQ(events.entries[2].event.size, 777);
  /* What could never be served is a fault of the program's. */
  refused(allocator, 5000, 0, SLICEPOOL_ERROR_TOO_LARGE);
  refused(allocator, 0, 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
  CHECK_EQ(events.count, 3);
  OK(slicepool_free(allocator, id));
  finish(allocator, &device);
  forget_events();
}

static void slices_are_told_only_if_asked_for(void) {
  struct mock_device device;
  const slicepool_pool_options pool = sliced(4096, 0, 0, 64);
  slicepool_allocator *allocator = create_that_tells(&device, &pool, 1, 0);
  slicepool_slice slice = take_labelled(allocator, 100, "quiet", &device);
  OK(slicepool_try_resize(allocator, slice.id, 200, &slice, NULL));
  free_at(allocator, slice.id, 1, 1);
  collect(allocator, 1, 1);
  CHECK_EQ(events.count, 1);
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(events.count, 2);
  finish(allocator, &device);
  forget_events();
}

/* ---- leaks */

static void every_slice_that_is_live_at_the_end_is_told_whether_that_is_refused_or_forced(void) {
  for (uint32_t flags = 0; flags <= SLICEPOOL_ALLOCATOR_SLICE_EVENTS; flags += SLICEPOOL_ALLOCATOR_SLICE_EVENTS) {
    struct mock_device device;
    const slicepool_pool_options pools[2] = { sliced(4096, 1000, 0, 64), exclusive(10000, 64) };
    slicepool_allocator *allocator = create_that_tells(&device, pools, 2, flags);
    enum { SLICES = 60 };
    slicepool_slice slices[SLICES];
    uint32_t in_pool[SLICES];
    char names[SLICES][24];
    for (int i = 0; i < SLICES; i++) {
      snprintf(names[i], sizeof names[i], "slice %d", i);
      slices[i] = take_labelled(allocator, (uint64_t)i % 3 == 0 ? 2000 : 100 + (uint64_t)i, names[i], names[i]);
      in_pool[i] = i % 3 == 0 ? 1 : 0;
    }
    const slicepool_slice own = take_flagged(allocator, 300, SLICEPOOL_REQUEST_DEDICATED);
    /* Not those that are free, nor those that wait. */
    OK(slicepool_free(allocator, slices[5].id));
    free_at(allocator, slices[6].id, 1, 1);
    for (int forced = 0; forced < 2; forced++) {
      const size_t before = events.count;
      const uint64_t last = before == 0 ? 0 : events.entries[before - 1].event.sequence;
      if (forced == 0) {
        slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
        CHECK_RESULT(slicepool_allocator_destroy(allocator, 0, &failure), SLICEPOOL_ERROR_BUSY);
        CHECK_EQ(failure.live, SLICES - 2 + 1);
        CHECK_EQ(failure.pending, 1);
        CHECK_EQ(events.count - before, SLICES - 2 + 1);
        check_books(allocator, &device);
      } else {
        OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
      }
      bool told[SLICES + 1] = { false };
      for (size_t e = before; e < events.count; e++) {
        const struct entry *entry = &events.entries[e];
        CHECK(entry->event.sequence > last);
        if (entry->event.kind != SLICEPOOL_EVENT_SLICE_LEAKED) {
          CHECK(forced == 1);
          continue;
        }
        int i = 0;
        while (i < SLICES && slices[i].id != entry->event.id) i++;
        CHECK(!told[i]);
        told[i] = true;
        if (i == SLICES) {
          check_slice_event(entry, &own, 300, slicepool_own_pool(SLICEPOOL_OWN_PAGES_DEDICATED, 0), "", NULL);
        } else {
          check_slice_event(entry, &slices[i], in_pool[i] == 1 ? 2000 : 100 + (uint64_t)i, in_pool[i], names[i],
                            names[i]);
        }
      }
      for (int i = 0; i <= SLICES; i++) CHECK_EQ(told[i], i != 5 && i != 6);
    }
    /* With a forced end every page goes back, and is told. */
    CHECK_EQ(events_of(SLICEPOOL_EVENT_PAGE_RETURNED), device.taken);
    if (flags != 0) CHECK_EQ(events_of(SLICEPOOL_EVENT_SLICE_FREED), events_of(SLICEPOOL_EVENT_SLICE_ALLOCATED));
    mock_end(&device);
    forget_events();
  }
}

/* ---- a log that replays */

static int by_sequence(const void *left, const void *right) {
  const struct entry *a = left, *b = right;
  return a->event.sequence < b->event.sequence ? -1 : a->event.sequence > b->event.sequence;
}

struct replayed {
  bool is_page;
  uint64_t id, memory, offset, size;
};

/* Every slice lies in a page that is there, over no other; every page that leaves holds none; everything ends. */
static void replay(void) {
  qsort(events.entries, events.count, sizeof *events.entries, by_sequence);
  struct replayed *things = calloc(events.count + 1, sizeof *things);
  size_t count = 0;
  CHECK(things != NULL);
  for (size_t e = 0; e < events.count; e++) {
    const slicepool_event *event = &events.entries[e].event;
    if (e != 0) CHECK(events.entries[e - 1].event.sequence < event->sequence);
    switch (event->kind) {
      case SLICEPOOL_EVENT_PAGE_ALLOCATED:
        for (size_t i = 0; i < count; i++) CHECK(!(things[i].is_page && things[i].memory == event->memory));
        things[count++] = (struct replayed){ true, 0, event->memory, 0, event->size };
        break;
      case SLICEPOOL_EVENT_SLICE_ALLOCATED: {
        bool in_page = false;
        for (size_t i = 0; i < count; i++) {
          if (things[i].memory != event->memory) continue;
          if (things[i].is_page) in_page = event->offset + event->size <= things[i].size;
          else if (event->offset < things[i].offset + things[i].size && things[i].offset < event->offset + event->size)
            FAIL("a slice overlaps another in the log");
        }
        CHECK(in_page);
        things[count++] = (struct replayed){ false, event->id, event->memory, event->offset, event->size };
        break;
      }
      case SLICEPOOL_EVENT_SLICE_PENDING: break;
      case SLICEPOOL_EVENT_SLICE_FREED: {
        size_t i = 0;
        while (i < count && (things[i].is_page || things[i].id != event->id)) i++;
        CHECK(i < count);
        things[i] = things[--count];
        break;
      }
      case SLICEPOOL_EVENT_PAGE_RETURNED: {
        size_t page = count;
        for (size_t i = 0; i < count; i++) {
          if (things[i].memory != event->memory) continue;
          CHECK(things[i].is_page);
          page = i;
        }
        CHECK(page < count);
        things[page] = things[--count];
        break;
      }
      default: FAIL("an event of kind %" PRIu32, event->kind);
    }
  }
  CHECK_EQ(count, 0);
  free(things);
}

enum { THREADS = 4, SLOTS = 24 };

/* Slices that the threads share: each takes out what another has put in. */
static uint64_t slots[SLOTS];

struct worker {
  slicepool_allocator *allocator;
  uint64_t seed;
  uint32_t timeline;
};

static void *allocate_and_free(void *argument) {
  struct worker *worker = argument;
  uint64_t value = 0;
  for (uint64_t i = 0; i < rounds(6000); i++) {
    const uint64_t place = random_between(&worker->seed, 0, SLOTS - 1);
    const slicepool_slice slice = take(worker->allocator, random_between(&worker->seed, 1, 3000));
    const uint64_t old = __atomic_exchange_n(&slots[place], slice.id, __ATOMIC_ACQ_REL);
    if (i % 5 == 0) {
      free_at(worker->allocator, old, worker->timeline, ++value);
      if (i % 10 == 0) collect(worker->allocator, worker->timeline, value);
    } else {
      OK(slicepool_free(worker->allocator, old));
    }
    if (i % 50 == 0) OK(slicepool_trim(worker->allocator, 0, NULL));
  }
  collect(worker->allocator, worker->timeline, value);
  return NULL;
}

static void a_log_of_four_threads_replays_in_the_order_of_its_numbers(void) {
  for (int k = 0; k < 3; k++) {
    const slicepool_pool_options pools[3] = { sliced(4096, 0, 0, 64), growing(4096, 65536, 64), exclusive(4096, 64) };
    struct mock_device device;
    slicepool_allocator *allocator = create_that_tells(&device, &pools[k], 1, SLICEPOOL_ALLOCATOR_SLICE_EVENTS);
    struct worker workers[THREADS];
    pthread_t threads[THREADS];
    memset(slots, 0, sizeof slots);
    for (uint32_t i = 0; i < THREADS; i++) {
      workers[i] = (struct worker){ allocator, i, i };
      CHECK(pthread_create(&threads[i], NULL, allocate_and_free, &workers[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    OK(slicepool_free_many(allocator, slots, SLOTS, NULL));
    for (uint32_t i = 0; i < THREADS; i++) collect(allocator, i, UINT64_MAX);
    CHECK_EQ(pending_in(allocator), 0);
    CHECK_EQ(events_of(SLICEPOOL_EVENT_SLICE_ALLOCATED), THREADS * rounds(6000));
    finish(allocator, &device);
    replay();
    forget_events();
  }
}

static const struct test tests[] = {
  TEST(slices_are_told_from_their_beginning_to_their_end),
  TEST(pages_are_told_however_they_come_and_go),
  TEST(requests_that_cannot_be_served_are_told_with_the_reason),
  TEST(slices_are_told_only_if_asked_for),
  TEST(every_slice_that_is_live_at_the_end_is_told_whether_that_is_refused_or_forced),
  TEST(a_log_of_four_threads_replays_in_the_order_of_its_numbers),
};

TEST_MAIN(tests)
