/* What docs/security.md claims and no other program shows: devices that lie, what is believed of them, what handles and
 * recycled memory reveal, who can make host memory grow. */
#include "check.h"
#include "shorthand.h"
#include "buffers.h"
#include "liar.h"

/* ---- a device that lies at random */

enum { LIVE = 48 };

/* It overlaps none of the others. */
static void check_apart(const slicepool_slice *slices, int count, const slicepool_slice *one) {
  for (int i = 0; i < count; i++) {
    if (slices[i].id == one->id || slices[i].memory != one->memory) continue;
    CHECK(slices[i].offset + slices[i].size <= one->offset || one->offset + one->size <= slices[i].offset);
  }
}

/* One call with a slice or without; any known result will do. */
static void use(struct liar *liar, slicepool_slice *live, int *count) {
  slicepool_allocator *allocator = liar->allocator;
  const int at = *count == 0 ? 0 : (int)random_between(&liar->state, 0, (uint64_t)*count - 1);
  slicepool_point points[2] = { { 0, 0, random_between(&liar->state, 0, 9) }, { 0, 0, random_next(&liar->state) } };
  for (int i = 0; i < 2; i++) points[i].timeline = (uint32_t)random_between(&liar->state, 0, 7);
  slicepool_result result = SLICEPOOL_OK;
  const uint64_t what = random_between(&liar->state, 0, *count == 0 ? 4 : 11);
  void *mapped = NULL;
  if (what < 4 && *count < LIVE) {
    static const uint32_t flags[] = { 0, SLICEPOOL_REQUEST_ZERO, SLICEPOOL_REQUEST_SCRUB, SLICEPOOL_REQUEST_PERSISTENT,
                                      SLICEPOOL_REQUEST_DEDICATED, SLICEPOOL_REQUEST_WITHIN_BUDGET };
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    const uint64_t size = random_between(&liar->state, 1, random_between(&liar->state, 0, 3) == 0 ? 60000 : 3000);
    result = try_take_flagged(allocator, size, flags[random_between(&liar->state, 0, 5)], &slice, NULL);
    CHECK((result == SLICEPOOL_OK) == (slice.id != 0));
    if (result == SLICEPOOL_OK) {
      CHECK(slice.size >= size);
      check_apart(live, *count, &slice);
      live[(*count)++] = slice;
    }
  } else if (what <= 4) {
    if (random_between(&liar->state, 0, 1) == 0) result = slicepool_trim(allocator, 0, NULL);
    else result = slicepool_collect(allocator, points[0].timeline, points[0].value, NULL);
  } else if (what <= 6) {
    const uint32_t waits_for = (uint32_t)random_between(&liar->state, 0, 2);
    if (what == 5) OK(slicepool_free(allocator, live[at].id));
    else OK(slicepool_free_after(allocator, live[at].id, points, waits_for, NULL));
    live[at] = live[--*count];
  } else if (what == 7) {
    result = slicepool_try_resize(allocator, live[at].id, random_between(&liar->state, 1, 4000), &live[at], NULL);
    check_apart(live, *count, &live[at]);
  } else if (what == 8) {
    result = slicepool_map(allocator, live[at].id, &mapped, NULL);
    if (result == SLICEPOOL_OK) OK(slicepool_unmap(allocator, live[at].id));
  } else if (what == 9) {
    result = slicepool_flush(allocator, live[at].id, 0, 1, NULL);
  } else if (what == 10) {
    result = slicepool_name_set(allocator, live[at].id, "a name");
  } else {
    const slicepool_slice same = look_up(allocator, live[at].id);
    CHECK(same.memory == live[at].memory && same.offset == live[at].offset && same.size == live[at].size);
  }
  CHECK(result <= SLICEPOOL_OK && result >= SLICEPOOL_ERROR_MARGIN_DAMAGED);
}

/* Calls `live_over` with a device for every seed, or for the one that the environment says. */
static void with_every_seed(void (*live_over)(struct liar *liar)) {
  const char *given = getenv("SLICEPOOL_SEED");
  const uint64_t first = given == NULL ? 1 : strtoull(given, NULL, 10), runs = given == NULL ? rounds(1000) : 1;
  for (uint64_t seed = first; seed < first + runs; seed++) {
    printf("SLICEPOOL_SEED=%" PRIu64 "\n", seed);
    fflush(stdout);
    struct liar liar = { .state = seed, .next_address = UINT64_C(1) << 52 };
    live_over(&liar);
    CHECK_EQ(liar.out, 0);
    free(liar.pages);
  }
}

static void use_an_allocator(struct liar *liar) {
  slicepool_slice live[LIVE];
  int count = 0;
  liar->allocator = create_over_liar(liar);
  for (uint64_t i = 0; i < 4000; i++) {
    use(liar, live, &count);
    if (i % 64 != 0) continue;
    const slicepool_statistics figures = figures_of(liar->allocator);
    check_sums(liar->allocator);
    CHECK_EQ(figures.pages + figures.pages_stuck, liar->out);
    CHECK_EQ(figures.slices, (uint64_t)count);
    CHECK_LE(figures.reserved_bytes, MIB);
  }
  CHECK(liar->lies > 1000);
  /* Now it is in order, and so is everything else. */
  liar->is_honest = true;
  while (count != 0) OK(slicepool_free(liar->allocator, live[--count].id));
  for (uint32_t timeline = 0; timeline < 8; timeline++) collect(liar->allocator, timeline, UINT64_MAX);
  OK(slicepool_trim(liar->allocator, 0, NULL));
  CHECK_EQ(pending_in(liar->allocator), 0);
  OK(slicepool_cleanup(liar->allocator, NULL));
  OK(slicepool_allocator_destroy(liar->allocator, 0, NULL));
}

static void a_device_that_lies_at_random_corrupts_nothing_and_loses_nothing(void) { with_every_seed(use_an_allocator); }

static void use_buffers(struct liar *liar) {
  /* The CPU writes the zeros where it sees a buffer. */
  liar->maps_nothing = true;
  const slicepool_device table = liar_table(liar);
  slicepool_buffer_pool *pool = create_buffers(&table, with_class(one_class(64 * KIB, 20), 256 * KIB, 20));
  slicepool_buffer_cache *cache = create_cache(pool);
  slicepool_buffer out[LIVE];
  int count = 0;
  uint64_t served = 0;
  for (uint64_t i = 0; i < 1000; i++) {
    if (count < LIVE && random_between(&liar->state, 0, 2) != 0) {
      slicepool_buffer *buffer = &out[count];
      *buffer = (slicepool_buffer)SLICEPOOL_BUFFER_INIT;
      const uint32_t flags = (uint32_t)random_between(&liar->state, 0, 3);
      const uint64_t size = random_between(&liar->state, 1, 300 * KIB);
      const slicepool_result result = slicepool_buffer_acquire(pool, cache, size, flags, buffer, NULL);
      CHECK(result <= SLICEPOOL_OK && result >= SLICEPOOL_ERROR_MARGIN_DAMAGED);
      CHECK((result == SLICEPOOL_OK) == (buffer->id != 0));
      if (result != SLICEPOOL_OK) continue;
      served++;
      CHECK(buffer->size >= size);
      for (int b = 0; b < count; b++)
        CHECK(out[b].memory != buffer->memory || out[b].offset + out[b].size <= buffer->offset ||
              buffer->offset + buffer->size <= out[b].offset);
      count++;
    } else if (count != 0) {
      const int at = (int)random_between(&liar->state, 0, (uint64_t)count - 1);
      release(pool, cache, out[at]);
      out[at] = out[--count];
    }
    if (i % 64 == 0) check_buffer_books(pool);
  }
  CHECK(liar->lies > 10 && served > 10);
  liar->is_honest = true;
  while (count != 0) release(pool, cache, out[--count]);
  OK(slicepool_buffer_cache_destroy(cache));
  end_buffers(pool);
}

static void a_device_that_lies_at_random_corrupts_no_buffers_and_loses_none(void) { with_every_seed(use_buffers); }

/* ---- what is believed of a device */

struct namer {
  uint64_t handle, address;
};

static slicepool_result name_a_page(void *user_data, const slicepool_page_request *request,
                                    slicepool_device_memory *memory) {
  const struct namer *namer = user_data;
  (void)request;
  memory->handle = namer->handle;
  memory->address = namer->address;
  return SLICEPOOL_OK;
}

static slicepool_result forget_a_page(void *user_data, const slicepool_device_memory *memory) {
  (void)user_data;
  (void)memory;
  return SLICEPOOL_OK;
}

/* Only the name of a page tells whether it is live; where pages lie is the device's business. */
static void pages_that_overlap_under_different_names_are_believed(void) {
  struct namer namer = { 1, MIB };
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  table.user_data = &namer;
  table.allocate = name_a_page;
  table.deallocate = forget_a_page;
  const slicepool_pool_options pool = sliced(64 * KIB, 0, 0, 64);
  slicepool_allocator *allocator = create_over(&table, &pool, 1, 0);
  const slicepool_slice first = take(allocator, 64 * KIB);
  namer.handle = 2;
  namer.address += 4096;
  const slicepool_slice second = take(allocator, 64 * KIB);
  CHECK(second.address < first.address + first.size);
  /* The same name is refused, and so is the page that has it. */
  const slicepool_failure failure = refused(allocator, 64 * KIB, 0, SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_DUPLICATE);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
}

static struct {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool is_inside, may_end;
} stop = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false };

static void stop_inside(struct mock_device *device) {
  (void)device;
  CHECK(pthread_mutex_lock(&stop.mutex) == 0);
  stop.is_inside = true;
  CHECK(pthread_cond_broadcast(&stop.changed) == 0);
  while (!stop.may_end) CHECK(pthread_cond_wait(&stop.changed, &stop.mutex) == 0);
  CHECK(pthread_mutex_unlock(&stop.mutex) == 0);
}

static void *take_a_page(void *allocator) {
  OK(slicepool_free(allocator, take(allocator, 64 * KIB).id));
  return NULL;
}

/* Its caller waits; the others need no page, and nobody can end what is in use. */
static void a_callback_that_does_not_return_holds_up_nobody_else(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(64 * KIB, 0, 0, 64));
  const slicepool_slice slice = take(allocator, 100);
  stop.is_inside = stop.may_end = false;
  device.in_allocate = stop_inside;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, take_a_page, allocator) == 0);
  CHECK(pthread_mutex_lock(&stop.mutex) == 0);
  while (!stop.is_inside) CHECK(pthread_cond_wait(&stop.changed, &stop.mutex) == 0);
  CHECK(pthread_mutex_unlock(&stop.mutex) == 0);
  alarm(60);
  for (uint64_t i = 0; i < 1000; i++) OK(slicepool_free(allocator, take(allocator, 1 + i).id));
  free_at(allocator, take(allocator, 100).id, 1, 1);
  collect(allocator, 1, 1);
  OK(slicepool_trim(allocator, 0, NULL));
  check_sums(allocator);
  CHECK_EQ(figures_of(allocator).growths_in_flight, 1);
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  CHECK_RESULT(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, &failure), SLICEPOOL_ERROR_BUSY);
  CHECK_EQ(failure.in_flight, 1);
  CHECK_RESULT(slicepool_allocator_abandon(allocator, 0), SLICEPOOL_ERROR_BUSY);
  OK(slicepool_free(allocator, slice.id));
  alarm(0);
  CHECK(pthread_mutex_lock(&stop.mutex) == 0);
  stop.may_end = true;
  CHECK(pthread_cond_broadcast(&stop.changed) == 0);
  CHECK(pthread_mutex_unlock(&stop.mutex) == 0);
  CHECK(pthread_join(thread, NULL) == 0);
  device.in_allocate = NULL;
  finish(allocator, &device);
}

/* ---- what handles and recycled memory reveal */

/* They protect from mistakes; whoever can call the library can name any slice. */
static void the_next_handle_follows_from_the_last(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(64 * KIB, 0, 0, 64));
  const uint64_t generation = UINT64_C(1) << 24;
  uint64_t id = take(allocator, 100).id;
  for (int i = 0; i < 10; i++) {
    CHECK_EQ(take(allocator, 100).id, id + 1);
    OK(slicepool_free(allocator, id + 1));
    CHECK_EQ(take(allocator, 100).id, id + 1 + generation);
    id = id + 1 + generation;
    id = (id & (generation - 1)) | (id >> 48 << 48);
    CHECK_RESULT(slicepool_free(allocator, id), SLICEPOOL_ERROR_STALE_HANDLE);
  }
  /* Another pool's begin with another number, the next one. */
  struct mock_device second;
  mock_init(&second);
  slicepool_allocator *other = create(&second, sliced(64 * KIB, 0, 0, 64));
  CHECK(take(other, 100).id >> 48 > id >> 48);
  OK(slicepool_allocator_destroy(other, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&second);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&device);
}

static uint64_t bytes_that_are(const void *memory, uint64_t size, unsigned char byte) {
  uint64_t count = 0;
  for (uint64_t i = 0; i < size; i++) count += ((const unsigned char *)memory)[i] == byte;
  return count;
}

/* Over host memory, one slice of which keeps the page. */
static slicepool_allocator *create_on_host(void) {
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  OK(slicepool_host_device(&table));
  const slicepool_pool_options pool = sliced(64 * KIB, 0, 0, 64);
  slicepool_allocator *allocator = create_over(&table, &pool, 1, 0);
  take(allocator, 64);
  return allocator;
}

static void a_slice_shows_what_its_last_owner_wrote_unless_one_of_them_asked_for_zeros(void) {
  static const struct {
    uint32_t first, second;
    bool shows;
  } cases[] = {
    { 0, 0, true },
    { SLICEPOOL_REQUEST_ZERO, 0, true },
    { SLICEPOOL_REQUEST_SCRUB, 0, false },
    { 0, SLICEPOOL_REQUEST_ZERO, false },
    { 0, SLICEPOOL_REQUEST_SCRUB, true },
  };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    slicepool_allocator *allocator = create_on_host();
    const slicepool_slice first = take_flagged(allocator, 4096, cases[c].first);
    memset(first.mapped, 0x5A, 4096);
    OK(slicepool_free(allocator, first.id));
    const slicepool_slice second = take_flagged(allocator, 4096, cases[c].second);
    CHECK(second.mapped == first.mapped);
    CHECK_EQ(bytes_that_are(second.mapped, 4096, 0x5A), cases[c].shows ? 4096 : 0);
    CHECK_EQ(bytes_that_are(second.mapped, 4096, 0), cases[c].shows ? 0 : 4096);
    OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  }
}

/* Zeros are what a slice begins with. */
static void what_a_zeroed_slice_grows_by_shows_what_was_there(void) {
  slicepool_allocator *allocator = create_on_host();
  const slicepool_slice secret = take(allocator, 8192);
  memset(secret.mapped, 0x5A, 8192);
  OK(slicepool_free(allocator, secret.id));
  slicepool_slice slice = take_flagged(allocator, 1024, SLICEPOOL_REQUEST_ZERO);
  CHECK(slice.mapped == secret.mapped);
  OK(slicepool_try_resize(allocator, slice.id, 8192, &slice, NULL));
  CHECK_EQ(bytes_that_are(slice.mapped, 1024, 0), 1024);
  CHECK_EQ(bytes_that_are(slice.mapped, 8192, 0x5A), 8192 - 1024);
  OK(slicepool_allocator_destroy(allocator, SLICEPOOL_DESTROY_FORCE, NULL));
}

static void a_buffer_shows_what_its_last_owner_wrote_unless_it_is_zeroed(void) {
  slicepool_buffer_pool *pool = create_buffers(NULL, without_caches(one_class(4096, 1)));
  for (int zeroed = 0; zeroed < 2; zeroed++) {
    const slicepool_buffer first = acquire(pool, NULL, 4096);
    memset(first.mapped, 0x5A, 4096);
    release(pool, NULL, first);
    const slicepool_buffer second = acquire_flagged(pool, NULL, 4096, zeroed == 1 ? SLICEPOOL_BUFFER_ZERO : 0);
    CHECK(second.mapped == first.mapped);
    CHECK_EQ(bytes_that_are(second.mapped, 4096, 0x5A), zeroed == 1 ? 0 : 4096);
    release(pool, NULL, second);
  }
  end_buffers(pool);
}

/* ---- who can make host memory grow */

/* So numbers of timelines are the program's to choose, and not those of whoever it serves. */
static void every_timeline_that_is_told_of_takes_host_memory_until_it_is_forgotten(void) {
  enum { TIMELINES = 20000 };
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(64 * KIB, 0, 0, 64));
  const uint64_t before = figures_of(allocator).metadata_bytes;
  for (uint32_t i = 0; i < TIMELINES; i++) collect(allocator, i, 1);
  const uint64_t grown = figures_of(allocator).metadata_bytes;
  CHECK(grown > before + TIMELINES && grown < before + UINT64_C(200) * TIMELINES);
  for (uint32_t round = 1; round < 5; round++) {
    for (uint32_t i = 0; i < TIMELINES; i++) OK(slicepool_timeline_forget(allocator, (round - 1) * TIMELINES + i));
    for (uint32_t i = 0; i < TIMELINES; i++) collect(allocator, round * TIMELINES + i, 1);
    CHECK_LE(figures_of(allocator).metadata_bytes, 2 * grown);
  }
  finish(allocator, &device);
}

/* A handle that is refused, however often, takes nothing. */
static void calls_that_are_refused_take_no_host_memory(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_allocator *allocator = create(&device, sliced(64 * KIB, 0, 64 * KIB, 64));
  const slicepool_slice slice = take(allocator, 60 * KIB);
  const slicepool_point point = { 5, 0, 1 };
  uint64_t state = 11;
  slicepool_statistics figures = SLICEPOOL_STATISTICS_INIT;
  for (uint64_t i = 0; i < 2000; i++) {
    uint64_t id = random_next(&state);
    if (id == slice.id) continue;
    slicepool_slice out = SLICEPOOL_SLICE_INIT;
    CHECK(slicepool_free(allocator, id) != SLICEPOOL_OK);
    CHECK(slicepool_free_after(allocator, id, &point, 1, NULL) != SLICEPOOL_OK);
    CHECK(slicepool_name_set(allocator, id, "name") != SLICEPOOL_OK);
    CHECK(slicepool_try_resize(allocator, id, 100, &out, NULL) != SLICEPOOL_OK);
    CHECK(try_take(allocator, 32 * KIB, 0, &out, NULL) == SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
    CHECK(try_take(allocator, UINT64_MAX - i, 0, &out, NULL) == SLICEPOOL_ERROR_TOO_LARGE);
    /* What the first round needs stays for the next. */
    if (i == 0) figures = figures_of(allocator);
    else CHECK_EQ(figures_of(allocator).metadata_bytes, figures.metadata_bytes);
  }
  OK(slicepool_free(allocator, slice.id));
  finish(allocator, &device);
}

/* ---- a device that contradicts itself */

struct contrary {
  slicepool_allocator *allocator;
  slicepool_device_memory page;
  slicepool_slice inner;
  int offered, told;
  bool takes, allocates;
};

static slicepool_result contrary_allocate(void *user_data, const slicepool_page_request *request,
                                          slicepool_device_memory *memory) {
  const struct contrary *device = user_data;
  (void)request;
  memory->handle = device->page.handle;
  memory->address = device->page.address;
  return SLICEPOOL_OK;
}

static slicepool_result contrary_deallocate(void *user_data, const slicepool_device_memory *memory) {
  struct contrary *device = user_data;
  CHECK_EQ(memory->handle, device->page.handle);
  device->offered++;
  if (device->allocates) {
    device->allocates = false;
    device->inner = take(device->allocator, 4096);
  }
  return device->takes ? SLICEPOOL_OK : SLICEPOOL_ERROR_DEVICE_FAILED;
}

static void contrary_event(void *user_data, const slicepool_event *event) {
  struct contrary *device = user_data;
  (void)event;
  device->told++;
  if (device->allocator != NULL) check_sums(device->allocator);
}

static slicepool_allocator *create_contrary(struct contrary *device) {
  slicepool_device table = SLICEPOOL_DEVICE_INIT;
  table.user_data = device;
  table.allocate = contrary_allocate;
  table.deallocate = contrary_deallocate;
  table.event = contrary_event;
  OK(slicepool_allocator_create(&table, NULL, &device->allocator));
  return device->allocator;
}

static void a_page_given_out_again_while_it_is_taken_back_is_held_once(void) {
  struct contrary device = { .page = { .handle = 1, .address = 1 << 24 } };
  slicepool_allocator *allocator = create_contrary(&device);
  OK(slicepool_free(allocator, take(allocator, 4096).id));
  device.allocates = true;
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_EQ(device.offered, 1);
  CHECK_EQ(figures_of(allocator).pages, 1);
  CHECK_EQ(figures_of(allocator).pages_stuck, 0);
  check_sums(allocator);
  /* A slice lives in it: it is neither offered again nor accepted again. */
  device.takes = true;
  OK(slicepool_trim(allocator, 0, NULL));
  CHECK_EQ(device.offered, 1);
  const slicepool_failure failure = refused(allocator, 8 * MIB, 0, SLICEPOOL_ERROR_DEVICE_FAILED);
  CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_DUPLICATE);
  OK(slicepool_free(allocator, device.inner.id));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  CHECK_EQ(device.offered, 2);
}

static void a_page_that_ends_above_the_last_address_is_given_back_and_refused(void) {
  struct contrary device = { .page = { .handle = 1 }, .takes = true };
  slicepool_allocator *allocator = create_contrary(&device);
  /* The first page has as many bytes as a request of one byte takes. */
  device.page.address = UINT64_C(1) << 40;
  OK(slicepool_free(allocator, take(allocator, 1).id));
  const uint64_t bytes = figures_of(allocator).reserved_bytes;
  OK(slicepool_trim(allocator, 0, NULL));
  device.page.address = UINT64_MAX - (bytes - 1) + 65536;
  CHECK_EQ(refused(allocator, 1, 0, SLICEPOOL_ERROR_DEVICE_FAILED).device_fault, SLICEPOOL_DEVICE_FAULT_OUT_OF_RANGE);
  /* Once by the trim, and then once by each pool that has tried. */
  CHECK(device.offered >= 2);
  CHECK_EQ(figures_of(allocator).reserved_bytes, 0);
  /* One that ends with the last address is as good as any. */
  device.page.address = UINT64_MAX - (bytes - 1);
  const slicepool_slice slice = take(allocator, 1);
  CHECK_EQ(slice.address, device.page.address);
  OK(slicepool_free(allocator, slice.id));
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
}

static void figures_agree_in_the_events_of_a_page_that_is_of_no_use(void) {
  struct contrary device = { .page = { .handle = 1, .address = 64 } };
  slicepool_allocator *allocator = create_contrary(&device);
  CHECK_EQ(refused(allocator, 100, 0, SLICEPOOL_ERROR_DEVICE_FAILED).device_fault, SLICEPOOL_DEVICE_FAULT_MISALIGNED);
  CHECK(device.told >= 2);
  CHECK_EQ(figures_of(allocator).pages_stuck, 1);
  device.takes = true;
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
}

static const struct test tests[] = {
  TEST(a_device_that_lies_at_random_corrupts_nothing_and_loses_nothing),
  TEST(a_device_that_lies_at_random_corrupts_no_buffers_and_loses_none),
  TEST(pages_that_overlap_under_different_names_are_believed),
  TEST(a_callback_that_does_not_return_holds_up_nobody_else),
  TEST(the_next_handle_follows_from_the_last),
  TEST(a_slice_shows_what_its_last_owner_wrote_unless_one_of_them_asked_for_zeros),
  TEST(what_a_zeroed_slice_grows_by_shows_what_was_there),
  TEST(a_buffer_shows_what_its_last_owner_wrote_unless_it_is_zeroed),
  TEST(every_timeline_that_is_told_of_takes_host_memory_until_it_is_forgotten),
  TEST(calls_that_are_refused_take_no_host_memory),
  TEST(a_page_given_out_again_while_it_is_taken_back_is_held_once),
  TEST(a_page_that_ends_above_the_last_address_is_given_back_and_refused),
  TEST(figures_agree_in_the_events_of_a_page_that_is_of_no_use),
};

TEST_MAIN(tests)
