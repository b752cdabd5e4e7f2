/* Pages that hold nothing go back: by age, exactly when, and by trimming, oldest first. Alignment 32. */
#include "check.h"
#include "shorthand.h"

/* Pools whose pages for requests of 1 KiB have 1 KiB. */
enum { POOLS = 5 };

static slicepool_pool_options pool_of_1_kib(int index) {
  const slicepool_pool_options pools[POOLS] = {
    exclusive(1024, 32), sliced(1024, 0, 0, 32), sliced(1024, 0, 64 * KIB, 32), direct(0, 32), growing(1024, 1024, 32),
  };
  return pools[index];
}

/* An allocator whose last pool does not age: requests to it tell the time to the others. */
struct timed {
  slicepool_allocator *allocator;
  struct mock_device device;
  uint32_t clock;
  uint64_t now; /* allocations so far */
};

static void begin(struct timed *timed, const slicepool_pool_options *pools, uint32_t count) {
  slicepool_pool_options list[32];
  memcpy(list, pools, count * sizeof *pools);
  list[count] = sliced(32, 32, 0, 32);
  timed->allocator = create_list(&timed->device, list, count + 1);
  timed->clock = count;
  timed->now = 0;
}

static void begin_one(struct timed *timed, slicepool_pool_options pool) { begin(timed, &pool, 1); }

static slicepool_slice place(struct timed *timed, uint32_t pool, uint64_t size) {
  timed->now++;
  return take_in(timed->allocator, pool, size);
}

static slicepool_slice place_and_free(struct timed *timed, uint32_t pool, uint64_t size) {
  slicepool_slice slice = place(timed, pool, size);
  OK(slicepool_free(timed->allocator, slice.id));
  return slice;
}

/* Takes so many pages of 1 KiB with as many requests, and frees them. */
static void idle_pages(struct timed *timed, uint32_t pool, int count) {
  uint64_t ids[64];
  for (int i = 0; i < count; i++) ids[i] = place(timed, pool, 1024).id;
  for (int i = 0; i < count; i++) OK(slicepool_free(timed->allocator, ids[i]));
}

static void until(struct timed *timed, uint64_t count) {
  CHECK(timed->now <= count);
  while (timed->now < count) place_and_free(timed, timed->clock, 32);
}

/* The pages of a pool when there have been so many allocations. */
static uint64_t pages_at(struct timed *timed, uint32_t pool, uint64_t count) {
  until(timed, count);
  check_books(timed->allocator, &timed->device);
  return figures_in(timed->allocator, pool).pages;
}

static void end(struct timed *timed) {
  check_books(timed->allocator, &timed->device);
  OK(slicepool_allocator_destroy(timed->allocator, SLICEPOOL_DESTROY_FORCE, NULL));
  mock_end(&timed->device);
}

/* ---- when */

/* Period 100 is a check every 20 allocations. Eight have taken pages; the 20th finds seven of them unused. */
static void of_eight_fresh_pages_four_go_with_the_twelfth_request_after_and_three_with_the_next(void) {
  for (int p = 0; p < POOLS; p++) {
    struct timed timed;
    begin_one(&timed, ageing(pool_of_1_kib(p), 100));
    idle_pages(&timed, 0, 8);
    const uint64_t used = place_and_free(&timed, 0, 1024).memory;
    for (uint64_t request = 2; request <= 500; request++) {
      CHECK_EQ(place_and_free(&timed, 0, 1024).memory, used);
      CHECK_EQ(timed.device.taken, request < 12 ? 0 : request == 12 ? 4 : 7);
    }
    CHECK_EQ(timed.device.given, 8);
    CHECK(timed.device.pages[used - MOCK_FIRST_HANDLE].live);
    end(&timed);
  }
}

static void allocations_in_one_pool_age_the_pages_of_another(void) {
  for (int p = 0; p < POOLS; p++) {
    struct timed timed;
    begin_one(&timed, ageing(pool_of_1_kib(p), 100));
    idle_pages(&timed, 0, 8);
    CHECK_EQ(pages_at(&timed, 0, 19), 8);
    CHECK_EQ(pages_at(&timed, 0, 20), 4);
    CHECK_EQ(pages_at(&timed, 0, 21), 0);
    /* A new page is as fresh as the first ones were. */
    idle_pages(&timed, 0, 1);
    CHECK_EQ(pages_at(&timed, 0, 39), 1);
    CHECK_EQ(pages_at(&timed, 0, 40), 0);
    end(&timed);
  }
}

/* Each use takes 1 off 4, each check adds 1, and 5 is too old. */
static void the_more_often_a_page_was_used_again_the_longer_it_stays(void) {
  for (int p = 0; p < POOLS; p++) {
    for (uint64_t used_again = 0; used_again < 10; used_again++) {
      struct timed timed;
      begin_one(&timed, ageing(pool_of_1_kib(p), 100));
      for (uint64_t i = 0; i <= used_again; i++) place_and_free(&timed, 0, 1024);
      const uint64_t checks = (used_again < 4 ? used_again : 4) + 1;
      CHECK_EQ(pages_at(&timed, 0, 20 * checks - 1), 1);
      CHECK_EQ(pages_at(&timed, 0, 20 * checks), 0);
      end(&timed);
    }
  }
}

static void a_page_that_was_used_all_the_time_goes_after_a_whole_period_without_use(void) {
  for (int p = 0; p < POOLS; p++) {
    struct timed timed;
    begin_one(&timed, ageing(pool_of_1_kib(p), 100));
    while (timed.now < 200) place_and_free(&timed, 0, 1024);
    CHECK_EQ(pages_at(&timed, 0, 299), 1);
    CHECK_EQ(pages_at(&timed, 0, 300), 0);
    end(&timed);
  }
}

/* Seen in other pools: sliced pages did not age. */
static void a_page_with_a_slice_does_not_age_and_comings_and_goings_in_it_do_not_refresh_it(void) {
  for (int p = 0; p < POOLS; p++) {
    if (has_whole_pages(pool_of_1_kib(p))) continue;
    struct timed timed;
    begin_one(&timed, ageing(pool_of_1_kib(p), 100));
    slicepool_slice stays = place(&timed, 0, 32);
    for (int i = 0; i < 300; i++) place_and_free(&timed, 0, 32);
    CHECK_EQ(pages_at(&timed, 0, 310), 1);
    OK(slicepool_free(timed.allocator, stays.id));
    CHECK_EQ(pages_at(&timed, 0, 319), 1);
    CHECK_EQ(pages_at(&timed, 0, 320), 0);
    end(&timed);
  }
}

/* A check every fifth of the period, at least one for each allocation. */
static void periods_of_any_length_are_honoured(void) {
  static const struct {
    uint64_t period, interval;
  } cases[] = { { 1, 1 }, { 4, 1 }, { 5, 1 }, { 9, 1 }, { 10, 2 }, { 99, 19 }, { 1000, 200 }, { 5003, 1000 } };
  for (size_t c = 0; c < sizeof cases / sizeof *cases - is_slow(); c++) {
    struct timed timed;
    begin_one(&timed, ageing(exclusive(1024, 32), cases[c].period));
    slicepool_slice slice = place(&timed, 0, 1024);
    until(&timed, cases[c].interval);
    OK(slicepool_free(timed.allocator, slice.id));
    CHECK_EQ(pages_at(&timed, 0, 2 * cases[c].interval - 1), 1);
    CHECK_EQ(pages_at(&timed, 0, 2 * cases[c].interval), 0);
    end(&timed);
  }
  static const uint64_t long_periods[] = { 0, UINT64_C(1) << 32, UINT64_C(1) << 40, UINT64_C(1) << 63, UINT64_MAX };
  for (int i = 0; i < 5; i++) {
    struct timed timed;
    begin_one(&timed, ageing(exclusive(1024, 32), long_periods[i]));
    idle_pages(&timed, 0, 3);
    CHECK_EQ(pages_at(&timed, 0, is_slow() ? 500 : 20000), 3);
    end(&timed);
  }
}

static void every_pool_has_a_period_of_its_own(void) {
  static const struct {
    uint64_t count, pages[4];
  } steps[] = { { 9, { 1, 1, 1, 1 } },  { 10, { 1, 0, 1, 1 } }, { 19, { 1, 0, 1, 1 } },
                { 20, { 0, 0, 1, 1 } }, { 69, { 0, 0, 1, 1 } }, { 70, { 0, 0, 0, 1 } }, { 5000, { 0, 0, 0, 1 } } };
  const slicepool_pool_options pools[4] = { ageing(exclusive(1024, 32), 100), ageing(direct(0, 32), 50),
                                            ageing(sliced(1024, 0, 0, 32), 350), exclusive(1024, 32) };
  struct timed timed;
  begin(&timed, pools, 4);
  for (uint32_t pool = 0; pool < 4; pool++) idle_pages(&timed, pool, 1);
  for (size_t s = 0; s < sizeof steps / sizeof *steps; s++)
    for (uint32_t pool = 0; pool < 4; pool++) CHECK_EQ(pages_at(&timed, pool, steps[s].count), steps[s].pages[pool]);
  end(&timed);
}

/* What is refused is no allocation, and a batch is as many as it has slices. */
static void refused_requests_do_not_count_and_batches_count_by_their_slices(void) {
  struct timed timed;
  const slicepool_pool_options pools[2] = { ageing(exclusive(1024, 32), 100), sliced(1024, 0, 1, 32) };
  begin(&timed, pools, 2);
  idle_pages(&timed, 0, 8);
  until(&timed, 19);
  for (int i = 0; i < 1000; i++) {
    refused(timed.allocator, 0, 0, SLICEPOOL_ERROR_INVALID_ARGUMENT);
    refused(timed.allocator, 2048, 0, SLICEPOOL_ERROR_TOO_LARGE);
    refused_in(timed.allocator, 1, 100, SLICEPOOL_ERROR_POOL_CAPACITY_EXCEEDED);
  }
  CHECK_EQ(pages_at(&timed, 0, 19), 8);
  CHECK_EQ(pages_at(&timed, 0, 20), 4);
  CHECK_EQ(pages_at(&timed, 0, 21), 0);
  end(&timed);

  for (uint32_t count = 11; count <= 13; count++) {
    begin_one(&timed, ageing(exclusive(1024, 32), 100));
    idle_pages(&timed, 0, 8);
    slicepool_request requests[13];
    slicepool_slice slices[13];
    for (uint32_t i = 0; i < count; i++) {
      requests[i] = (slicepool_request)SLICEPOOL_REQUEST_INIT;
      requests[i].size = 32;
      requests[i].flags = SLICEPOOL_REQUEST_IN_POOL;
      requests[i].pool = 1;
      slices[i] = (slicepool_slice)SLICEPOOL_SLICE_INIT;
    }
    OK(slicepool_allocate_many(timed.allocator, requests, count, slices));
    CHECK_EQ(figures_in(timed.allocator, 0).pages, count == 11 ? 8 : count == 12 ? 4 : 0);
    end(&timed);
  }
}

/* ---- which, and how many */

static void four_pages_go_with_one_allocation_whichever_pools_they_are_in(void) {
  static const struct {
    uint64_t count, pages[3];
  } steps[] = { { 19, { 3, 3, 3 } }, { 20, { 0, 2, 3 } }, { 21, { 0, 0, 1 } }, { 22, { 0, 0, 0 } } };
  struct timed timed;
  slicepool_pool_options pools[3];
  for (int i = 0; i < 3; i++) pools[i] = ageing(exclusive(1024, 32), 100);
  begin(&timed, pools, 3);
  for (uint32_t pool = 0; pool < 3; pool++) idle_pages(&timed, pool, 3);
  for (int s = 0; s < 4; s++)
    for (uint32_t pool = 0; pool < 3; pool++) CHECK_EQ(pages_at(&timed, pool, steps[s].count), steps[s].pages[pool]);
  end(&timed);
}

static void pages_go_in_the_order_in_which_they_grew_too_old(void) {
  static const int order[8] = { 5, 2, 7, 0, 1, 6, 4, 3 };
  struct timed timed;
  begin_one(&timed, ageing(exclusive(1024, 32), 100));
  slicepool_slice slices[8];
  for (int i = 0; i < 8; i++) slices[i] = place(&timed, 0, 1024);
  for (int i = 0; i < 8; i++) OK(slicepool_free(timed.allocator, slices[order[i]].id));
  until(&timed, 20);
  for (int i = 0; i < 8; i++) CHECK_EQ(timed.device.pages[order[i]].live, i >= 4);
  end(&timed);
}

static void a_page_that_is_overdue_stays_if_it_is_used_before_its_turn(void) {
  for (int p = 0; p < POOLS; p++) {
    struct timed timed;
    begin_one(&timed, ageing(pool_of_1_kib(p), 100));
    idle_pages(&timed, 0, 8);
    CHECK_EQ(pages_at(&timed, 0, 20), 4);
    slicepool_slice used = place(&timed, 0, 1024);
    CHECK_EQ(pages_at(&timed, 0, 21), 1);
    slicepool_slice found = look_up(timed.allocator, used.id);
    CHECK(same_slice(&found, &used));
    CHECK(timed.device.pages[used.memory - MOCK_FIRST_HANDLE].live);
    OK(slicepool_free(timed.allocator, used.id));
    end(&timed);
  }
}

static void ageing_leaves_as_many_bytes_as_the_pool_is_to_keep(void) {
  static const struct {
    uint64_t keep, left;
  } cases[] = { { 0, 0 },    { 1, 1 },    { 1024, 1 },        { 3 * 1024 - 1, 3 },
                { 3072, 3 }, { 3073, 4 }, { 8 * 1024, 8 }, { UINT64_MAX, 8 } };
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    for (int p = 0; p < POOLS; p++) {
      struct timed timed;
      slicepool_pool_options pool = ageing(pool_of_1_kib(p), 100);
      pool.keep_bytes = cases[c].keep;
      begin_one(&timed, pool);
      idle_pages(&timed, 0, 8);
      CHECK_EQ(pages_at(&timed, 0, 20), cases[c].left > 4 ? cases[c].left : 4);
      CHECK_EQ(pages_at(&timed, 0, 21), cases[c].left);
      CHECK_EQ(pages_at(&timed, 0, is_slow() ? 100 : 1000), cases[c].left);
      end(&timed);
    }
  }
  /* What is live in the pool counts; what another pool holds does not. */
  struct timed timed;
  slicepool_pool_options pools[2] = { ageing(exclusive(1024, 32), 100), exclusive(MIB, 32) };
  pools[0].keep_bytes = 3 * 1024;
  begin(&timed, pools, 2);
  place(&timed, 1, MIB);
  const uint64_t live[2] = { place(&timed, 0, 1024).id, place(&timed, 0, 1024).id };
  idle_pages(&timed, 0, 4);
  CHECK_EQ(pages_at(&timed, 0, 19), 6);
  CHECK_EQ(pages_at(&timed, 0, 20), 3);
  OK(slicepool_free_many(timed.allocator, live, 2, NULL));
  CHECK_EQ(pages_at(&timed, 0, 500), 3);
  end(&timed);
}

/* ---- what may happen meanwhile */

static void an_aged_page_that_the_device_refuses_is_stuck_and_the_allocation_succeeds(void) {
  for (int p = 0; p < POOLS; p++) {
    struct timed timed;
    begin_one(&timed, ageing(pool_of_1_kib(p), 100));
    idle_pages(&timed, 0, 8);
    timed.device.refusals = UINT64_MAX;
    CHECK_EQ(pages_at(&timed, 0, 19), 8);
    CHECK_EQ(pages_at(&timed, 0, 20), 4);
    CHECK_EQ(pages_at(&timed, 0, 21), 0);
    CHECK_EQ(pages_at(&timed, 0, 500), 0);
    CHECK_EQ(figures_of(timed.allocator).pages_stuck, 8);
    /* Nobody asks again before a trim. */
    CHECK_EQ(timed.device.deallocate_calls, 8);
    slicepool_failure failure = SLICEPOOL_FAILURE_INIT;
    CHECK_RESULT(slicepool_trim(timed.allocator, UINT64_MAX, &failure), SLICEPOOL_ERROR_DEVICE_FAILED);
    CHECK_EQ(failure.device_fault, SLICEPOOL_DEVICE_FAULT_REFUSED);
    timed.device.refusals = 0;
    OK(slicepool_trim(timed.allocator, UINT64_MAX, NULL));
    CHECK_EQ(figures_of(timed.allocator).pages_stuck, 0);
    CHECK_EQ(timed.device.taken, 8);
    end(&timed);
  }
}

/* 200 sizes, each a twentieth above the one before and freed before the next. */
static void with_a_short_period_what_is_held_follows_sizes_that_grow(void) {
  for (int p = 0; p < 3; p++) {
    /* Growing pages are multiples of 2 MiB, so that only large ones can be near their request. */
    const slicepool_pool_options pools[3] = { exclusive(128 * MIB, 32), direct(0, 32), growing(32, 128 * MIB, 32) };
    struct timed timed;
    begin_one(&timed, ageing(pools[p], 5));
    uint64_t size = p == 2 ? MIB + MIB / 2 : 1024;
    for (int step = 0; step < (p == 2 ? 90 : 200); step++) {
      slicepool_slice slice = place(&timed, 0, size);
      CHECK_LE(figures_in(timed.allocator, 0).reserved_bytes * 10, size * 22);
      OK(slicepool_free(timed.allocator, slice.id));
      size = size * 21 / 20;
    }
    CHECK(size > 16 * MIB && timed.device.taken > 20);
    end(&timed);
  }
}

static void pages_that_age_can_be_trimmed_as_well(void) {
  for (int p = 0; p < POOLS; p++) {
    struct timed timed;
    begin_one(&timed, ageing(pool_of_1_kib(p), 100));
    idle_pages(&timed, 0, 8);
    until(&timed, 15);
    /* The clock's page is among what is kept. */
    OK(slicepool_trim(timed.allocator, 5 * 1024 + 32, NULL));
    CHECK_EQ(pages_at(&timed, 0, 19), 5);
    CHECK_EQ(pages_at(&timed, 0, 20), 1);
    CHECK_EQ(pages_at(&timed, 0, 21), 0);
    end(&timed);
  }
}

/* The default: what a program does not use any more goes back after some thousand allocations. */
static void by_default_what_is_not_used_any_more_goes_back(void) {
  struct mock_device device;
  mock_init(&device);
  slicepool_device table = mock_table(&device);
  slicepool_allocator *allocator = create_over(&table, NULL, 0, 0);
  uint64_t ids[100];
  for (int i = 0; i < 100; i++) ids[i] = take(allocator, 10 * MIB).id;
  OK(slicepool_free_many(allocator, ids, 100, NULL));
  CHECK(device.bytes >= 1000 * MIB);
  for (int i = 0; i < 20000 + 100; i++) touch(allocator, 10 * KIB);
  CHECK_EQ(device.live, 1);
  CHECK_LE(device.bytes, 256 * MIB);
  const uint64_t calls = mock_calls(&device);
  for (int i = 0; i < 10000; i++) touch(allocator, 10 * KIB);
  CHECK_EQ(mock_calls(&device), calls);
  finish(allocator, &device);
}

/* ---- trimming */

/* Pools of all makes whose pages for 1 MiB have 1 MiB. */
static slicepool_allocator *create_for_trimming(struct mock_device *device) {
  const slicepool_pool_options pools[4] = { sliced(MIB, 0, 0, 32), exclusive(MIB, 32), direct(0, 32),
                                            growing(MIB, MIB, 32) };
  return create_list(device, pools, 4);
}

static void a_trim_of_several_pools_gives_back_what_has_been_idle_the_longest(void) {
  enum { PAGES = 20 };
  for (uint64_t seed = 1; seed <= 20; seed++) {
    struct mock_device device;
    slicepool_allocator *allocator = create_for_trimming(&device);
    slicepool_slice slices[PAGES];
    int order[PAGES];
    uint64_t state = seed;
    for (int i = 0; i < PAGES; i++) {
      slices[i] = take_in(allocator, (uint32_t)random_between(&state, 0, 3), MIB);
      CHECK_EQ(slices[i].memory, MOCK_FIRST_HANDLE + (uint64_t)i);
      order[i] = i;
    }
    for (uint64_t i = PAGES - 1; i > 0; i--) {
      const uint64_t j = random_between(&state, 0, i);
      const int other = order[i];
      order[i] = order[j];
      order[j] = other;
    }
    for (int i = 0; i < PAGES; i++) OK(slicepool_free(allocator, slices[order[i]].id));
    uint64_t left = PAGES;
    while (left != 0) {
      left = random_between(&state, 0, left - random_between(&state, 0, 1));
      const uint64_t keep = left == 0 ? 0 : left * MIB - random_between(&state, 0, MIB - 1);
      OK(slicepool_trim(allocator, keep, NULL));
      CHECK_EQ(figures_of(allocator).reserved_bytes, left * MIB);
      for (uint64_t i = 0; i < PAGES; i++) CHECK_EQ(device.pages[order[i]].live, i >= PAGES - left);
      check_books(allocator, &device);
      /* Again and again costs nothing. */
      const uint64_t calls = mock_calls(&device);
      OK(slicepool_trim(allocator, keep, NULL));
      CHECK_EQ(mock_calls(&device), calls);
    }
    finish(allocator, &device);
  }
}

static void live_pages_of_all_pools_count_towards_the_floor_of_a_trim(void) {
  struct mock_device device;
  slicepool_allocator *allocator = create_for_trimming(&device);
  uint64_t live[4], idle[4];
  for (uint32_t pool = 0; pool < 4; pool++) {
    live[pool] = take_in(allocator, pool, MIB).id;
    idle[pool] = take_in(allocator, pool, MIB).id;
  }
  OK(slicepool_free_many(allocator, idle, 4, NULL));
  static const uint64_t keep[][2] = { { UINT64_MAX, 8 },      { 8 * MIB, 8 }, { 8 * MIB - 1, 8 }, { 7 * MIB, 7 },
                                      { 6 * MIB - 1, 6 }, { 5 * MIB, 5 }, { 4 * MIB + 1, 5 }, { 4 * MIB, 4 },
                                      { 0, 4 } };
  for (size_t i = 0; i < sizeof keep / sizeof *keep; i++) {
    OK(slicepool_trim(allocator, keep[i][0], NULL));
    CHECK_EQ(figures_of(allocator).reserved_bytes, keep[i][1] * MIB);
  }
  for (uint32_t pool = 0; pool < 4; pool++) CHECK_EQ(look_up(allocator, live[pool]).size, MIB);
  OK(slicepool_free_many(allocator, live, 4, NULL));
  OK(slicepool_cleanup(allocator, NULL));
  CHECK_EQ(device.live, 0);
  finish(allocator, &device);
}

/* Where the oldest page of a pool is too large to go, others of that pool stay, but not those of other pools. */
static void a_page_that_is_too_large_to_go_holds_up_its_own_pool_only(void) {
  struct mock_device device;
  const slicepool_pool_options pools[2] = { exclusive(8 * MIB, 32), direct(0, 32) };
  slicepool_allocator *allocator = create_list(&device, pools, 2);
  const uint64_t ids[3] = { take_in(allocator, 0, 8 * MIB).id, take_in(allocator, 0, MIB).id,
                            take_in(allocator, 1, MIB).id };
  for (int i = 0; i < 3; i++) OK(slicepool_free(allocator, ids[i]));
  OK(slicepool_trim(allocator, 3 * MIB, NULL));
  CHECK(device.pages[0].live && device.pages[1].live && !device.pages[2].live);
  OK(slicepool_trim(allocator, 2 * MIB, NULL));
  CHECK_EQ(device.live, 2);
  OK(slicepool_trim(allocator, MIB, NULL));
  CHECK(!device.pages[0].live && device.pages[1].live);
  CHECK_EQ(figures_of(allocator).reserved_bytes, MIB);
  OK(slicepool_trim(allocator, 1, NULL));
  CHECK_EQ(device.live, 1);
  OK(slicepool_trim(allocator, 0, NULL));
  finish(allocator, &device);
}

/* What is to be kept from ageing is not kept from a trim. */
static void a_trim_does_not_ask_what_ageing_is_to_keep(void) {
  for (int p = 0; p < POOLS; p++) {
    struct timed timed;
    slicepool_pool_options pool = ageing(pool_of_1_kib(p), 100);
    pool.keep_bytes = UINT64_MAX;
    begin_one(&timed, pool);
    idle_pages(&timed, 0, 8);
    OK(slicepool_trim(timed.allocator, 2048, NULL));
    CHECK_EQ(figures_in(timed.allocator, 0).pages, 2);
    OK(slicepool_cleanup(timed.allocator, NULL));
    CHECK_EQ(figures_in(timed.allocator, 0).pages, 0);
    end(&timed);
  }
}

static const struct test tests[] = {
  TEST(of_eight_fresh_pages_four_go_with_the_twelfth_request_after_and_three_with_the_next),
  TEST(allocations_in_one_pool_age_the_pages_of_another),
  TEST(the_more_often_a_page_was_used_again_the_longer_it_stays),
  TEST(a_page_that_was_used_all_the_time_goes_after_a_whole_period_without_use),
  TEST(a_page_with_a_slice_does_not_age_and_comings_and_goings_in_it_do_not_refresh_it),
  TEST(periods_of_any_length_are_honoured),
  TEST(every_pool_has_a_period_of_its_own),
  TEST(refused_requests_do_not_count_and_batches_count_by_their_slices),
  TEST(four_pages_go_with_one_allocation_whichever_pools_they_are_in),
  TEST(pages_go_in_the_order_in_which_they_grew_too_old),
  TEST(a_page_that_is_overdue_stays_if_it_is_used_before_its_turn),
  TEST(ageing_leaves_as_many_bytes_as_the_pool_is_to_keep),
  TEST(an_aged_page_that_the_device_refuses_is_stuck_and_the_allocation_succeeds),
  TEST(with_a_short_period_what_is_held_follows_sizes_that_grow),
  TEST(pages_that_age_can_be_trimmed_as_well),
  TEST(by_default_what_is_not_used_any_more_goes_back),
  TEST(a_trim_of_several_pools_gives_back_what_has_been_idle_the_longest),
  TEST(live_pages_of_all_pools_count_towards_the_floor_of_a_trim),
  TEST(a_page_that_is_too_large_to_go_holds_up_its_own_pool_only),
  TEST(a_trim_does_not_ask_what_ageing_is_to_keep),
};

TEST_MAIN(tests)
