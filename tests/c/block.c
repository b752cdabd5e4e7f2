/* Allocators that keep all their books in one block of memory. */
#include "check.h"
#include "watched_host.h"
#include "world.h"

/* ---- whether anybody asks the C library for memory */

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTS_MEMORY 1

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t count, size_t size);
extern void *__libc_realloc(void *memory, size_t size);
extern void *__libc_memalign(size_t alignment, size_t size);
extern void __libc_free(void *memory);

static bool counting;
static uint64_t counted;

static void count(void) {
  if (__atomic_load_n(&counting, __ATOMIC_RELAXED)) __atomic_fetch_add(&counted, 1, __ATOMIC_RELAXED);
}

/* The whole program uses these instead of those of the C library, a shared slicepool included. */
void *malloc(size_t size) {
  count();
  return __libc_malloc(size);
}

void *calloc(size_t number, size_t size) {
  count();
  return __libc_calloc(number, size);
}

void *realloc(void *memory, size_t size) {
  count();
  return __libc_realloc(memory, size);
}

int posix_memalign(void **memory, size_t alignment, size_t size) {
  count();
  *memory = __libc_memalign(alignment, size);
  return *memory == NULL ? 12 : 0;
}

void *aligned_alloc(size_t alignment, size_t size) {
  count();
  return __libc_memalign(alignment, size);
}

void free(void *memory) {
  count();
  __libc_free(memory);
}
#else
#define COUNTS_MEMORY 0
static bool counting;
static uint64_t counted;
#endif

static void begin_counting(void) {
  counted = 0;
  __atomic_store_n(&counting, true, __ATOMIC_RELAXED);
}

static uint64_t end_counting(void) {
  __atomic_store_n(&counting, false, __ATOMIC_RELAXED);
  return counted;
}

/* ---- blocks between guards */

/* A block that begins `skew` bytes behind a multiple of 64, with bytes around it that nobody may touch. */
struct guarded {
  unsigned char *region;
  size_t room;
  unsigned char *block;
  uint64_t bytes;
};

static void fill_guards(const struct guarded *guarded) { memset(guarded->region, 0xA5, guarded->room); }

static struct guarded guarded_block(uint64_t bytes, uint64_t skew) {
  CHECK(skew < 64);
  struct guarded guarded = { NULL, (size_t)((192 + bytes + 63) / 64 * 64), NULL, bytes };
  guarded.region = before_the_wall(guarded.room);
  CHECK_EQ((uintptr_t)guarded.region % 64, 0);
  guarded.block = guarded.region + 64 + skew;
  fill_guards(&guarded);
  return guarded;
}

static bool is_untouched(const unsigned char *from, const unsigned char *to) {
  return *from == 0xA5 && memcmp(from, from + 1, (size_t)(to - from) - 1) == 0;
}

static void check_guards(const struct guarded *guarded) {
  CHECK(is_untouched(guarded->region, guarded->block));
  CHECK(is_untouched(guarded->block + guarded->bytes, guarded->region + guarded->room));
}

static void unguard(const struct guarded *guarded) {
  check_guards(guarded);
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)guarded->region / page * page;
  CHECK(munmap((void *)first, (uintptr_t)guarded->region + guarded->room - first + page) == 0);
}

/* ---- allocators of several kinds */

struct shape {
  const char *name;
  slicepool_pool_options pools[24];
  uint32_t count;
  uint64_t largest; /* request */
};

enum { SHAPES = 9 };

static struct shape shape_of(int index) {
  struct shape shape = { "", { { 0 } }, 0, 64 * KIB };
  switch (index) {
    case 0: shape = (struct shape){ "sliced", { sliced(4096, 0, 0, 64) }, 1, 4096 }; break;
    case 1: shape = (struct shape){ "exclusive", { exclusive(64 * KIB, 32) }, 1, 64 * KIB }; break;
    case 2: shape = (struct shape){ "direct", { direct(0, 32) }, 1, 64 * KIB }; break;
    case 3: shape = (struct shape){ "growing", { growing(16 * KIB, MIB, 256) }, 1, 64 * KIB }; break;
    case 4:
      shape = (struct shape){ "exclusive, sliced and direct",
                              { exclusive(64 * KIB, 32), sliced(16 * KIB, 2048, 0, 32), direct(256 * KIB, 32) }, 3,
                              16 * KIB };
      break;
    case 5: shape = (struct shape){ "adaptive", { { 0 } }, 0, 100 * KIB }; break;
    case 6:
      shape.name = "exclusive pages in 24 pools";
      shape.pools[0].struct_size = sizeof *shape.pools;
      OK(slicepool_layout_exclusive_pages(NULL, shape.pools, 24, &shape.count));
      break;
    case 7:
      shape = (struct shape){ "all that age",
                              { ageing(exclusive(64 * KIB, 32), 40), ageing(direct(0, 32), 60),
                                ageing(sliced(4096, 0, 0, 64), 50), ageing(growing(4096, MIB, 64), 100),
                                exclusive(0, 32) }, 5, 4096 };
      break;
    default:
      /* The table of size classes is as large as can be. */
      shape = (struct shape){ "sliced, the largest page", { sliced(UINT64_C(0xFFFFFFFF), 0, 0, 1) }, 1, 64 * KIB };
  }
  return shape;
}

static slicepool_allocator_config config_of(const struct shape *shape) {
  slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
  config.pools = shape->count == 0 ? NULL : shape->pools;
  config.pool_count = shape->count;
  return config;
}

static uint64_t bytes_needed(const struct shape *shape, uint32_t slices, uint32_t pages) {
  const slicepool_allocator_config config = config_of(shape);
  uint64_t bytes = 0;
  OK(slicepool_allocator_bytes_needed(&config, slices, pages, 0, &bytes));
  return bytes;
}

static slicepool_allocator *create_in(struct mock_device *device, const struct shape *shape, void *block,
                                      uint64_t bytes) {
  slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
  slicepool_allocator_config config = config_of(shape);
  config.failure = &failure;
  const slicepool_device table = mock_table(device);
  slicepool_allocator *allocator = NULL;
  slicepool_result result = slicepool_allocator_create_in(&table, &config, block, bytes, &allocator);
  if (result != SLICEPOOL_OK)
    FAIL("%s in %" PRIu64 " bytes: %d (%s)", shape->name, bytes, result, failure.field == NULL ? "" : failure.field);
  CHECK((unsigned char *)allocator >= (unsigned char *)block);
  CHECK((unsigned char *)allocator < (unsigned char *)block + bytes);
  return allocator;
}

/* Has its list of pages already, so that it asks for no memory itself. */
static void mock_init_with_room(struct mock_device *device) {
  mock_init(device);
  device->page_room = 200000;
  device->pages = malloc(device->page_room * sizeof *device->pages);
  CHECK(device->pages != NULL);
}

/* ---- creating */

static void an_allocator_lies_in_its_block_and_asks_for_no_other_memory(void) {
  for (int s = 0; s < SHAPES; s++) {
    const struct shape shape = shape_of(s);
    for (uint64_t skew = 0; skew < 64; skew += is_slow() ? 31 : s == 0 ? 1 : 13) {
      struct mock_device device;
      mock_init_with_room(&device);
      const struct guarded guarded = guarded_block(bytes_needed(&shape, 100, 100), skew);
      uint64_t ids[100] = { 0 }, state = skew + 1;
      begin_counting();
      slicepool_allocator *allocator = create_in(&device, &shape, guarded.block, guarded.bytes);
      for (int i = 0; i < (is_slow() ? 200 : 1000); i++) {
        uint64_t *id = &ids[random_between(&state, 0, 99)];
        if (*id == 0 && device.live < 99) {
          *id = take(allocator, random_between(&state, 1, shape.largest)).id;
        } else {
          OK(slicepool_free(allocator, *id));
          *id = 0;
          if (i % 10 == 0) OK(slicepool_cleanup(allocator, NULL));
        }
      }
      OK(slicepool_free_many(allocator, ids, 100, NULL));
      CHECK_EQ(end_counting(), 0);
      CHECK_LE(figures_of(allocator).metadata_bytes, guarded.bytes);
      check_books(allocator, &device);
      begin_counting();
      OK(slicepool_allocator_destroy(allocator, 0, NULL));
      CHECK_EQ(end_counting(), 0);
      mock_end(&device);
      unguard(&guarded);
    }
  }
  /* An allocator without a block is seen to ask. */
  struct mock_device device;
  mock_init_with_room(&device);
  begin_counting();
  slicepool_allocator *allocator = create(&device, sliced(4096, 0, 0, 64));
  const bool asks = end_counting() != 0;
  /* Tools that make everything slow have functions of their own instead of these. */
  CHECK(asks || !COUNTS_MEMORY || is_slow());
  finish(allocator, &device);
}

/* Too small, or it works; a byte more is never worse. */
static void blocks_of_every_small_size_work_or_are_refused_and_nothing_around_them_is_touched(void) {
  for (int s = 0; s < SHAPES; s++) {
    const struct shape shape = shape_of(s);
    for (uint64_t skew = 0; skew < 64; skew += is_slow() ? 50 : s == 0 ? 7 : 21) {
      const uint64_t enough = bytes_needed(&shape, 0, 0);
      const uint64_t step = enough / (is_slow() ? 10 : 2000) + 1, first_step = is_slow() ? 101 : 1;
      uint64_t least = 0, refusals = 0;
      struct guarded guarded = guarded_block(enough, skew);
      uint64_t next = 0;
      for (uint64_t bytes = 0; bytes <= enough; bytes = next) {
        next = bytes + (bytes < 2000 ? first_step : step);
        /* Enough is among them. */
        if (bytes < enough && next > enough) next = enough;
        struct mock_device device;
        mock_init(&device);
        fill_guards(&guarded);
        slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
        slicepool_allocator_config config = config_of(&shape);
        config.failure = &failure;
        const slicepool_device table = mock_table(&device);
        slicepool_allocator *allocator = NULL;
        slicepool_result result = slicepool_allocator_create_in(&table, &config, guarded.block, bytes, &allocator);
        if (result == SLICEPOOL_OK) {
          if (least == 0) least = bytes;
          OK(slicepool_allocator_destroy(allocator, 0, NULL));
        } else {
          CHECK(allocator == NULL);
          CHECK_EQ(least, 0);
          CHECK_RESULT(result, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
          CHECK_EQ(failure.result, result);
          refusals++;
        }
        guarded.bytes = bytes;
        check_guards(&guarded);
        mock_end(&device);
      }
      CHECK(least != 0 && refusals != 0);
      unguard(&guarded);
    }
  }
}

static void a_host_with_memory_of_its_own_is_refused_and_one_with_a_lock_is_fine(void) {
  static unsigned char block[65536];
  struct mock_device device;
  struct watched_host host;
  mock_init(&device);
  watched_init(&host);
  const struct shape shape = shape_of(4);
  const slicepool_device table = mock_table(&device);
  for (int hooks = 0; hooks < 8; hooks++) {
    const slicepool_host hook_table = watched_table(&host, hooks);
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    slicepool_allocator_config config = config_of(&shape);
    config.failure = &failure;
    config.host = &hook_table;
    slicepool_allocator *allocator = NULL;
    slicepool_result result = slicepool_allocator_create_in(&table, &config, block, sizeof block, &allocator);
    if (hooks & HOOK_MEMORY) {
      CHECK_RESULT(result, SLICEPOOL_ERROR_INVALID_ARGUMENT);
      CHECK_TEXT(failure.field, "allocate");
      CHECK(allocator == NULL);
      continue;
    }
    OK(result);
    const uint64_t locks = host.locks;
    uint64_t ids[100];
    for (uint64_t i = 0; i < 100; i++) ids[i] = take(allocator, 100 * i + 1).id;
    OK(slicepool_free_many(allocator, ids, 100, NULL));
    CHECK_EQ(host.locks != locks, (hooks & HOOK_LOCK) != 0);
    check_books(allocator, NULL);
    OK(slicepool_allocator_destroy(allocator, 0, NULL));
    CHECK_EQ(host.allocations, 0);
  }
  /* Nor is one refused whose caller synchronises. */
  slicepool_allocator_config config = config_of(&shape);
  config.flags = SLICEPOOL_ALLOCATOR_EXTERNALLY_SYNCHRONIZED;
  slicepool_allocator *allocator = NULL;
  OK(slicepool_allocator_create_in(&table, &config, block, sizeof block, &allocator));
  touch(allocator, 100);
  OK(slicepool_allocator_destroy(allocator, 0, NULL));
  mock_end(&device);
  watched_end(&host);
}

/* Whatever is wrong with a config is wrong for all three. */
static void a_config_is_refused_alike_with_and_without_a_block(void) {
  static unsigned char block[65536];
  struct mock_device device;
  mock_init(&device);
  const slicepool_device table = mock_table(&device);
  const slicepool_pool_options good = sliced(4096, 0, 0, 64);
  slicepool_pool_options pools[8];
  for (int i = 0; i < 8; i++) pools[i] = good;
  pools[0].page_size = 0;
  pools[1].granule = 3;
  pools[2].kind = 9;
  pools[3].max_alloc_size = 7;
  pools[4].page_size = GIB;
  pools[5].near_page = 3;
  pools[6].reserved = 1;
  pools[7].struct_size = 12;
  for (int c = 0; c < 14; c++) {
    slicepool_failure failures[3] = { SLICEPOOL_FAILURE_INIT, SLICEPOOL_FAILURE_INIT, SLICEPOOL_FAILURE_INIT };
    slicepool_result results[3];
    for (int call = 0; call < 3; call++) {
      slicepool_allocator_config config = SLICEPOOL_ALLOCATOR_CONFIG_INIT;
      config.max_page = MIB;
      config.pools = c < 8 ? &pools[c] : &good;
      config.pool_count = 1;
      config.failure = &failures[call];
      slicepool_pool_options too_large = sliced(4096, 8192, 0, 64);
      switch (c) {
        case 8: config.flags = 64; break;
        case 9: config.page_alignment = 3; break;
        case 10: config.pool_count = 257; break;
        case 11: config.pools = NULL; break;
        case 12: config.reserved = 1; break;
        case 13:
          config.flags = SLICEPOOL_ALLOCATOR_VALIDATE;
          config.pools = &too_large;
          break;
        default: break;
      }
      slicepool_allocator *allocator = NULL;
      uint64_t bytes = 0;
      results[call] = call == 0   ? slicepool_allocator_create(&table, &config, &allocator)
                      : call == 1 ? slicepool_allocator_create_in(&table, &config, block, sizeof block, &allocator)
                                  : slicepool_allocator_bytes_needed(&config, 1, 1, 0, &bytes);
      CHECK(allocator == NULL && bytes == 0);
    }
    CHECK_RESULT(results[0], SLICEPOOL_ERROR_INVALID_ARGUMENT);
    for (int call = 1; call < 3; call++) {
      CHECK_RESULT(results[call], results[0]);
      CHECK_TEXT(failures[call].field, failures[0].field);
      CHECK_EQ(failures[call].value, failures[0].value);
    }
  }
  mock_end(&device);
}

/* ---- the end */

static void a_block_is_the_callers_again_when_its_allocator_is_gone(void) {
  const size_t page = (size_t)sysconf(_SC_PAGESIZE);
  for (int s = 0; s < SHAPES; s++) {
    for (int end = 0; end < 4; end++) {
      const struct shape shape = shape_of(s);
      const size_t bytes = (bytes_needed(&shape, 200, 200) + page - 1) / page * page;
      unsigned char *block = before_the_wall(bytes);
      struct mock_device device;
      mock_init(&device);
      slicepool_allocator *allocator = create_in(&device, &shape, block, bytes);
      uint64_t ids[100];
      for (int i = 0; i < 100; i++) ids[i] = take(allocator, 1 + (uint64_t)i * 37 % shape.largest).id;
      /* Refused, everything works as before. */
      CHECK_RESULT(slicepool_allocator_destroy(allocator, 0, NULL), SLICEPOOL_ERROR_BUSY);
      check_books(allocator, &device);
      if (end == 0) OK(slicepool_free_many(allocator, ids, 100, NULL));
      if (end == 3) {
        OK(slicepool_allocator_abandon(allocator, 0));
        CHECK_EQ(device.deallocate_calls, 0);
      } else {
        if (end == 2) device.refusals = UINT64_MAX;
        OK(slicepool_allocator_destroy(allocator, end == 0 ? 0 : SLICEPOOL_DESTROY_FORCE, NULL));
        CHECK(end == 2 || device.live == 0);
      }
      free(device.pages);
      CHECK(pthread_mutex_destroy(&device.mutex) == 0);
      CHECK(mprotect(block, bytes, PROT_NONE) == 0);
      build_world();
      for (int i = 0; i < 10; i++) touch(world.allocator, 1000);
      end_world();
      /* And serves again. */
      CHECK(mprotect(block, bytes, PROT_READ | PROT_WRITE) == 0);
      memset(block, 0xEE, bytes);
      mock_init(&device);
      allocator = create_in(&device, &shape, block, bytes);
      for (int i = 0; i < 100; i++) ids[i] = take(allocator, 1 + (uint64_t)i * 37 % shape.largest).id;
      OK(slicepool_free_many(allocator, ids, 100, NULL));
      finish(allocator, &device);
      CHECK(munmap(block, bytes + page) == 0);
    }
  }
}

/* ---- a block that is full */

static void a_full_block_refuses_what_needs_more_and_everything_else_works(void) {
  enum { MOST = 20000 };
  static uint64_t ids[MOST];
  for (int s = 0; s < SHAPES; s++) {
    const struct shape shape = shape_of(s);
    for (uint64_t more = 0; more < 6; more += is_slow() ? 3 : 1) {
      const struct guarded guarded = guarded_block(bytes_needed(&shape, 0, 0) + more * 3001, 5 * more);
      struct mock_device device;
      mock_init(&device);
      slicepool_allocator *allocator = create_in(&device, &shape, guarded.block, guarded.bytes);
      uint64_t most = 0;
      for (int round = 0; round < 3; round++) {
        uint64_t taken = 0;
        for (;;) {
          CHECK(taken < MOST);
          slicepool_slice slice = SLICEPOOL_SLICE_INIT;
          slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
          const slicepool_statistics before = figures_of(allocator);
          slicepool_result result = try_take(allocator, 1 + taken * 61 % 300, 0, &slice, &failure);
          if (result == SLICEPOOL_OK) {
            ids[taken++] = slice.id;
            continue;
          }
          CHECK_RESULT(result, SLICEPOOL_ERROR_OUT_OF_HOST_MEMORY);
          CHECK_EQ(slice.id, 0);
          CHECK(failure.size != 0);
          const slicepool_statistics after = figures_of(allocator);
          CHECK_EQ(after.slices, before.slices);
          CHECK_EQ(after.in_use_bytes, before.in_use_bytes);
          CHECK_EQ(after.reserved_bytes, before.reserved_bytes);
          CHECK_EQ(after.growths_in_flight, 0);
          break;
        }
        check_books(allocator, &device);
        check_guards(&guarded);
        /* What came once comes again, but for a table that is made anew beside the one in use. */
        if (round == 0) most = taken;
        CHECK(2 * taken >= most);
        for (uint64_t i = 0; i < taken; i++) look_up(allocator, ids[i]);
        uint64_t needed = 0;
        OK(slicepool_report_json(allocator, NULL, 0, &needed));
        OK(slicepool_free_many(allocator, ids, (uint32_t)taken, NULL));
        check_books(allocator, &device);
        OK(slicepool_cleanup(allocator, NULL));
        CHECK_EQ(device.live, 0);
      }
      finish(allocator, &device);
      unguard(&guarded);
    }
  }
}

/* ---- bytes that are enough */

struct load {
  const struct shape *shape;
  uint32_t slices, pages;
  uint64_t seed;
  uint64_t over; /* pages that were asked for although `pages` were held */
};

static void note_page(struct mock_device *device) {
  struct load *load = device->hook_data;
  if (device->live >= load->pages) load->over++;
}

#define WITHIN(load, call, ...)                                                                                    \
  do {                                                                                                             \
    const uint64_t within_over = (load)->over;                                                                     \
    slicepool_result within_result = (call);                                                                       \
    const slicepool_result within_allowed[] = { SLICEPOOL_OK, __VA_ARGS__ };                                       \
    bool within_is_allowed = (load)->over != within_over;                                                          \
    for (size_t w = 0; w < sizeof within_allowed / sizeof *within_allowed; w++)                                    \
      within_is_allowed = within_is_allowed || within_result == within_allowed[w];                                 \
    if (!within_is_allowed)                                                                                        \
      FAIL("%s answers %d (%s) for %s, %" PRIu32 " slices, %" PRIu32 " pages, seed %" PRIu64, #call, within_result, \
           slicepool_result_string(within_result), (load)->shape->name, (load)->slices, (load)->pages, (load)->seed); \
  } while (0)

/* A life with at most so many slices and pages at a time, in every pool by turns. Answers the host memory that it came
 * to. */
static uint64_t live_in_block(struct load *load, slicepool_allocator *allocator, struct mock_device *device,
                              uint64_t operations) {
  const uint32_t pools = figures_of(allocator).pools;
  uint64_t *ids = calloc(load->slices + 1, sizeof *ids), state = load->seed;
  CHECK(ids != NULL);
  uint32_t live = 0, pool = 0;
  bool filling = true, alone = true;
  for (uint64_t i = 0; i < operations && load->slices != 0 && load->pages != 0; i++) {
    if (live == load->slices) filling = false;
    if (live == 0) {
      /* What one pool has held stays in its books while another is filled. */
      filling = true;
      pool = (uint32_t)random_between(&state, 0, pools - 1);
      alone = random_between(&state, 0, 3) != 0;
      if (random_between(&state, 0, 1) == 0) OK(slicepool_cleanup(allocator, NULL));
    }
    const bool allocate = random_between(&state, 0, 9) < (filling ? 8 : 2);
    const uint32_t at = live == 0 ? 0 : (uint32_t)random_between(&state, 0, live - 1);
    slicepool_slice slice = SLICEPOOL_SLICE_INIT;
    if (!allocate) {
      if (live == 0) continue;
      if (random_between(&state, 0, 4) == 0) {
        WITHIN(load, slicepool_try_resize(allocator, ids[at], random_between(&state, 1, load->shape->largest), &slice,
                                          NULL),
               SLICEPOOL_ERROR_NO_ROOM, SLICEPOOL_ERROR_TOO_LARGE);
      } else {
        OK(slicepool_free(allocator, ids[at]));
        ids[at] = ids[--live];
      }
      continue;
    }
    if (live == load->slices) continue;
    slicepool_request request = SLICEPOOL_REQUEST_INIT;
    const slicepool_pool_options options = options_in(allocator, pool);
    const bool sliced_pages = options.kind == SLICEPOOL_POOL_SLICED_PAGES;
    uint64_t largest = load->shape->largest >> random_between(&state, 0, sliced_pages ? 12 : 3);
    if (alone) {
      request.flags = SLICEPOOL_REQUEST_IN_POOL;
      request.pool = pool;
      if (sliced_pages && largest > options.max_slice_size) largest = options.max_slice_size;
      if (options.kind == SLICEPOOL_POOL_EXCLUSIVE_PAGES && largest > options.max_alloc_size)
        largest = options.max_alloc_size;
    }
    request.size = largest == 0 ? (alone && options.max_alloc_size == 0 && !sliced_pages ? 0 : 1)
                                : random_between(&state, 1, largest);
    if (alone && options.kind == SLICEPOOL_POOL_DIRECT && request.size == 0) request.size = 1;
    request.alignment = UINT64_C(1) << random_between(&state, 0, 12);
    if (device->live >= load->pages) {
      uint32_t fits = 0;
      WITHIN(load, slicepool_would_fit(allocator, &request, &fits), SLICEPOOL_ERROR_TOO_LARGE);
      if (fits == 0) {
        OK(slicepool_trim(allocator, 0, NULL));
        if (device->live >= load->pages) {
          filling = false;
          continue;
        }
      }
    }
    WITHIN(load, slicepool_allocate(allocator, &request, &slice), SLICEPOOL_ERROR_TOO_LARGE,
           SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
    if (slice.id != 0) ids[live++] = slice.id;
  }
  check_books(allocator, device);
  OK(slicepool_free_many(allocator, ids, live, NULL));
  free(ids);
  return figures_of(allocator).metadata_bytes;
}

static void a_block_of_the_bytes_needed_is_never_full(void) {
  static const uint32_t sizes[][2] = { { 0, 0 },    { 1, 1 },     { 2, 1 },      { 1, 50 },     { 10, 3 },  { 17, 16 },
                                       { 100, 10 }, { 100, 100 }, { 1000, 20 }, { 1000, 1000 }, { 3, 1000 } };
  for (int s = 0; s < SHAPES; s++) {
    const struct shape shape = shape_of(s);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
      const uint64_t seed = 1000 * (uint64_t)s + i + 1;
      struct load load = { &shape, sizes[i][0], sizes[i][1], seed, 0 };
      if (is_slow() && (s + (int)i) % 3 != 0) continue;
      const struct guarded guarded = guarded_block(bytes_needed(&shape, load.slices, load.pages), seed % 64);
      struct mock_device device;
      mock_init(&device);
      device.hook_data = &load;
      device.in_allocate = note_page;
      slicepool_allocator *allocator = create_in(&device, &shape, guarded.block, guarded.bytes);
      /* The library that checks itself is slow where there is much to check. */
      const uint64_t less = divide_by > 1 && load.slices + load.pages > 1000 ? 10 : 1;
      const uint64_t used = live_in_block(&load, allocator, &device, rounds(100000) / less);
      CHECK_LE(device.live_peak, load.pages + (load.over != 0));
      CHECK_LE(used, guarded.bytes);
      printf("%s: %" PRIu32 " slices, %" PRIu32 " pages: %" PRIu64 " bytes, of which %" PRIu64 " (%.2f) in use\n",
             shape.name, load.slices, load.pages, guarded.bytes, used, (double)used / (double)guarded.bytes);
      finish(allocator, &device);
      unguard(&guarded);
    }
  }
}

/* Slices of one size in pages of their own: as many pages as slices at most. */
struct block_thread {
  slicepool_allocator *allocator;
  pthread_barrier_t *barrier;
  uint64_t seed, operations;
  slicepool_result worst;
};

enum { THREAD_SLICES = 50, BLOCK_THREADS = 4 };

static void *fill_and_drain(void *argument) {
  struct block_thread *thread = argument;
  uint64_t ids[THREAD_SLICES] = { 0 }, state = thread->seed;
  pthread_barrier_wait(thread->barrier);
  for (uint64_t i = 0; i < thread->operations; i++) {
    uint64_t *id = &ids[i < THREAD_SLICES ? i : random_between(&state, 0, THREAD_SLICES - 1)];
    if (*id == 0) {
      slicepool_slice slice = SLICEPOOL_SLICE_INIT;
      slicepool_result result = try_take(thread->allocator, 1024, 0, &slice, NULL);
      if (result != SLICEPOOL_OK) thread->worst = result;
      *id = slice.id;
    } else {
      OK(slicepool_free(thread->allocator, *id));
      *id = 0;
    }
  }
  OK(slicepool_free_many(thread->allocator, ids, THREAD_SLICES, NULL));
  return NULL;
}

static void threads_find_a_block_of_the_bytes_needed_never_full(void) {
  pthread_barrier_t barrier;
  CHECK(pthread_barrier_init(&barrier, NULL, BLOCK_THREADS) == 0);
  for (uint64_t round = 0; round < rounds(400) + 10; round++) {
    const struct shape shape = shape_of((int)(round % 3));
    const uint64_t bytes = bytes_needed(&shape, BLOCK_THREADS * THREAD_SLICES, BLOCK_THREADS * THREAD_SLICES);
    const struct guarded guarded = guarded_block(bytes, round % 64);
    struct mock_device device;
    mock_init(&device);
    slicepool_allocator *allocator = create_in(&device, &shape, guarded.block, guarded.bytes);
    pthread_t threads[BLOCK_THREADS];
    struct block_thread arguments[BLOCK_THREADS];
    for (uint64_t t = 0; t < BLOCK_THREADS; t++) {
      arguments[t] = (struct block_thread){ allocator, &barrier, round * BLOCK_THREADS + t, 300, SLICEPOOL_OK };
      CHECK(pthread_create(&threads[t], NULL, fill_and_drain, &arguments[t]) == 0);
    }
    for (int t = 0; t < BLOCK_THREADS; t++) {
      CHECK(pthread_join(threads[t], NULL) == 0);
      if (arguments[t].worst != SLICEPOOL_OK)
        FAIL("%s: %s in round %" PRIu64, shape.name, slicepool_result_string(arguments[t].worst), round);
    }
    finish(allocator, &device);
    unguard(&guarded);
  }
  CHECK(pthread_barrier_destroy(&barrier) == 0);
}

static void more_slices_and_pages_need_no_less_and_too_many_are_refused(void) {
  static const uint32_t numbers[] = { 0,   1,   2,    3,    15,    16,    17,     63,     64,      65,      100,
                                      255, 256, 1000, 4096, 65535, 65536, 100000, 1 << 20, 1 << 24, 1 << 28 };
  enum { NUMBERS = sizeof numbers / sizeof *numbers };
  for (int s = 0; s < SHAPES; s++) {
    const struct shape shape = shape_of(s);
    const slicepool_allocator_config config = config_of(&shape);
    for (int i = 0; i < NUMBERS; i++) {
      uint64_t before[2] = { 0, 0 };
      bool refused_before[2] = { false, false };
      for (int j = is_slow() ? i : 0; j < NUMBERS; j += is_slow() ? 4 : 1) {
        for (int which = 0; which < 2; which++) {
          slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
          slicepool_allocator_config with_failure = config;
          with_failure.failure = &failure;
          uint64_t bytes = 0;
          slicepool_result result = slicepool_allocator_bytes_needed(&with_failure, numbers[which == 0 ? i : j],
                                                                     numbers[which == 0 ? j : i], 0, &bytes);
          if (result != SLICEPOOL_OK) {
            CHECK_RESULT(result, SLICEPOOL_ERROR_TOO_MANY_SLICES);
            CHECK_EQ(failure.result, result);
            CHECK(bytes == 0 && numbers[i] + numbers[j] >= (1 << 20));
          } else {
            CHECK(!refused_before[which] && bytes >= before[which] && bytes > 500);
            before[which] = bytes;
          }
          refused_before[which] = result != SLICEPOOL_OK;
        }
      }
    }
    uint64_t bytes = 77;
    CHECK_RESULT(slicepool_allocator_bytes_needed(&config, UINT32_MAX, 1, 0, &bytes), SLICEPOOL_ERROR_TOO_MANY_SLICES);
    CHECK_RESULT(slicepool_allocator_bytes_needed(&config, UINT32_MAX, UINT32_MAX, 0, &bytes),
                 SLICEPOOL_ERROR_TOO_MANY_SLICES);
    CHECK_RESULT(slicepool_allocator_bytes_needed(&config, 1, UINT32_MAX, 0, &bytes), SLICEPOOL_ERROR_TOO_MANY_SLICES);
    CHECK_EQ(bytes, 77);
  }
}

static const struct test tests[] = {
  TEST(an_allocator_lies_in_its_block_and_asks_for_no_other_memory),
  TEST(blocks_of_every_small_size_work_or_are_refused_and_nothing_around_them_is_touched),
  TEST(a_host_with_memory_of_its_own_is_refused_and_one_with_a_lock_is_fine),
  TEST(a_config_is_refused_alike_with_and_without_a_block),
  TEST(a_block_is_the_callers_again_when_its_allocator_is_gone),
  TEST(a_full_block_refuses_what_needs_more_and_everything_else_works),
  TEST(a_block_of_the_bytes_needed_is_never_full),
  TEST(threads_find_a_block_of_the_bytes_needed_never_full),
  TEST(more_slices_and_pages_need_no_less_and_too_many_are_refused),
};

TEST_MAIN(tests)
